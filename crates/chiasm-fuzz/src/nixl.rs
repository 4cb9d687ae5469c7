//! What peers and helper processes of the nixl plane send: a blob of metadata, messages between the
//! processes, and numbers that say what goes where.

use std::fmt::Debug;

use chiasm_nixl::{AgentMetadata, Command, Event, Piece, Span, pieces};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::input::Input;

/// As it would be made, field by field, or as it comes.
pub(crate) fn metadata(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let blob = if input.flag() { blob(&mut input) } else { input.rest().to_vec() };
    match AgentMetadata::parse(&blob) {
        Ok(read) => {
            assert!(!read.agent_name().is_empty() && read.agent_name().is_ascii());
            assert!(read.ranges().iter().all(|range| range.end().is_some()));
            assert!(read.ranges().iter().all(|range| read.holds(*range)));
            // A whole blob is whole to its last byte.
            for shorter in [&blob[..blob.len() - 1], &blob[..blob.len() / 2]] {
                AgentMetadata::parse(shorter).expect_err("a part of a blob is none");
            }
        }
        Err(error) => assert!(error.to_string().len() < 300),
    }
}

fn field(blob: &mut Vec<u8>, tag: &[u8], value: &[u8], lie: u8) {
    blob.extend(tag);
    let length = value.len() as u64;
    blob.extend(if lie == 255 { u64::MAX } else { length }.to_le_bytes());
    blob.extend(value);
    blob.push(b'|');
}

fn blob(input: &mut Input<'_>) -> Vec<u8> {
    let mut blob = b"nixlSerDes|".to_vec();
    field(&mut blob, b"Agent", input.bytes(60), 0);
    let connections = input.below(4) as u64;
    field(&mut blob, b"Conns", &connections.to_le_bytes(), 0);
    for _ in 0..connections {
        field(&mut blob, b"t", b"UCX", 0);
        field(&mut blob, b"c", input.bytes(60), input.byte());
    }
    field(&mut blob, b"", b"MemSection", 0);
    let sections = input.below(4) as u64;
    field(&mut blob, b"nixlSecElms", &sections.to_le_bytes(), 0);
    for _ in 0..sections {
        field(&mut blob, b"bknd", b"UCX", 0);
        field(&mut blob, b"nixlDList", b"nixlSDList", 0);
        field(&mut blob, b"t", &u32::from(input.byte() % 3).to_le_bytes(), 0);
        let ranges = input.below(5) as u64;
        field(&mut blob, b"n", &ranges.to_le_bytes(), 0);
        for _ in 0..ranges {
            let mut range = Vec::new();
            range.extend(input.size().to_le_bytes());
            range.extend(input.size().to_le_bytes());
            range.extend(0_u64.to_le_bytes());
            range.extend(input.bytes(20));
            field(&mut blob, b"", &range, input.byte());
        }
    }
    blob.extend(input.rest());
    blob
}

/// The first byte says whether a command or an event.
pub(crate) fn messages(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() {
        message::<Command>(input.rest());
    } else {
        message::<Event>(input.rest());
    }
}

fn message<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok((read, _)) = postcard::take_from_bytes::<T>(bytes) {
        let again = postcard::to_extend(&read, Vec::new()).expect("it was read");
        assert_eq!(postcard::from_bytes::<T>(&again).as_ref(), Ok(&read));
    }
}

/// Runs on both sides, some of them adjacent.
fn runs(input: &mut Input<'_>) -> Vec<(u64, u64)> {
    let mut next = 0_u64;
    (0..input.below(20))
        .map(|_| {
            let start = if input.flag() { next } else { input.size() };
            let bytes = input.size();
            next = start.wrapping_add(bytes);
            (start, bytes)
        })
        .collect()
}

pub(crate) fn laid_over(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (local, remote) = (runs(&mut input), runs(&mut input));
    let span = Span { address: input.size(), bytes: input.size() };
    let region_bytes = input.size();
    let Ok(found) = pieces(local.iter().copied(), remote.iter().copied(), span, region_bytes)
    else {
        return;
    };
    // Each lies where it may, and together they are all of both sides, in order.
    for Piece { local_offset, remote_address, bytes } in &found {
        assert!(
            *bytes > 0 && local_offset.checked_add(*bytes).is_some_and(|end| end <= region_bytes)
        );
        assert!(span.holds(Span { address: *remote_address, bytes: *bytes }));
    }
    let all = |runs: &[(u64, u64)]| runs.iter().map(|(_, bytes)| u128::from(*bytes)).sum::<u128>();
    let moved = found.iter().map(|piece| u128::from(piece.bytes)).sum::<u128>();
    assert_eq!((all(&local), all(&remote)), (moved, moved));
    let start = |runs: &[(u64, u64)]| runs.iter().find(|(_, bytes)| *bytes > 0).map(|run| run.0);
    assert_eq!(start(&local), Some(found[0].local_offset));
    assert_eq!(start(&remote), Some(found[0].remote_address));
}
