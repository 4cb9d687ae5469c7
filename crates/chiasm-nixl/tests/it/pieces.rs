//! What goes where: every byte once, none outside.

use chiasm_nixl::{MAX_PIECES, PieceError, Span, pieces};
use proptest::prelude::*;

const SPAN: Span = Span { address: 1_000_000, bytes: 100_000 };
const REGION_BYTES: u64 = 100_000;

#[test]
fn a_contiguous_entry_is_one_piece() {
    let found = pieces([(0, 7168), (7168, 7168)], [(1_000_100, 14_336)], SPAN, REGION_BYTES);
    let found = found.unwrap();
    assert_eq!(found.len(), 1);
    let first = found[0];
    assert_eq!((first.local_offset, first.remote_address, first.bytes), (0, 1_000_100, 14_336));
}

#[test]
fn runs_are_cut_where_either_side_ends() {
    let found = pieces([(0, 3), (10, 5)], [(1_000_000, 4), (1_000_050, 4)], SPAN, REGION_BYTES);
    let found: Vec<_> = found
        .unwrap()
        .iter()
        .map(|piece| (piece.local_offset, piece.remote_address - 1_000_000, piece.bytes))
        .collect();
    assert_eq!(found, [(0, 0, 3), (10, 3, 1), (11, 50, 4)]);
}

#[test]
fn nothing_outside_of_the_peers_blocks_is_asked_for() {
    for (address, bytes) in [
        (999_999, 10),
        (1_099_999, 2),
        (1_100_000, 1),
        (u64::MAX, 1),
        (u64::MAX - 5, 10),
        (1_000_000, u64::MAX),
        (0, 1),
    ] {
        let outcome = pieces([(0, bytes)], [(address, bytes)], SPAN, REGION_BYTES);
        assert!(
            matches!(outcome, Err(PieceError::Remote { .. } | PieceError::Local { .. })),
            "{address} {bytes}: {outcome:?}"
        );
        let outcome = pieces([(0, 1)], [(address, 1)], SPAN, REGION_BYTES);
        assert_eq!(outcome.is_ok(), SPAN.holds(Span { address, bytes: 1 }));
    }
    let wrapping = Span { address: 1_000_000, bytes: u64::MAX };
    assert!(pieces([(0, 1)], [(1_000_000, 1)], wrapping, REGION_BYTES).is_err());
}

#[test]
fn nothing_outside_of_the_region_is_written() {
    for (offset, bytes) in [(100_000, 1), (99_999, 2), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        let outcome = pieces([(offset, bytes)], [(1_000_000, bytes)], SPAN, REGION_BYTES);
        assert!(outcome.is_err(), "{offset} {bytes}: {outcome:?}");
    }
    assert!(pieces([(99_999, 1)], [(1_099_999, 1)], SPAN, REGION_BYTES).is_ok());
}

#[test]
fn unequal_lengths_and_nothing_at_all_are_refused() {
    let outcome = pieces([(0, 10)], [(1_000_000, 9)], SPAN, REGION_BYTES);
    assert_eq!(outcome, Err(PieceError::Length { local_bytes: 10, remote_bytes: 9 }));
    let outcome = pieces([(0, 10), (20, 5)], [(1_000_000, 30)], SPAN, REGION_BYTES);
    assert_eq!(outcome, Err(PieceError::Length { local_bytes: 15, remote_bytes: 30 }));
    assert_eq!(pieces([], [], SPAN, REGION_BYTES), Err(PieceError::Empty));
    assert_eq!(pieces([(5, 0)], [(0, 0)], SPAN, REGION_BYTES), Err(PieceError::Empty));
}

#[test]
fn a_read_of_too_many_pieces_is_refused() {
    let span = Span { address: 0, bytes: u64::MAX };
    let scattered = |count: usize| (0..count as u64).map(|index| (index * 2, 1));
    let all = pieces(scattered(MAX_PIECES), scattered(MAX_PIECES), span, u64::MAX).unwrap();
    assert_eq!(all.len(), MAX_PIECES);
    let more = pieces(scattered(MAX_PIECES + 1), scattered(MAX_PIECES + 1), span, u64::MAX);
    assert_eq!(more, Err(PieceError::TooMany));
}

/// Runs that do not overlap, in any order, each byte of them told.
fn runs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0_u64..40, 1_u64..30), 1..12).prop_map(|gaps| {
        let mut at = 0;
        let mut runs = Vec::new();
        for (gap, bytes) in gaps {
            runs.push((at + gap, bytes));
            at += gap + bytes;
        }
        let half = runs.len() / 2;
        runs.rotate_left(half);
        runs
    })
}

fn bytes_of(runs: &[(u64, u64)]) -> Vec<u64> {
    runs.iter().flat_map(|&(at, bytes)| at..at + bytes).collect()
}

/// The first `bytes` bytes of the runs.
fn cut(runs: &[(u64, u64)], mut bytes: u64) -> Vec<(u64, u64)> {
    let mut cut = Vec::new();
    for &(at, len) in runs {
        let taken = len.min(bytes);
        bytes -= taken;
        cut.push((at, taken));
    }
    cut
}

proptest! {
    #[test]
    fn every_byte_goes_where_the_runs_say(local in runs(), remote in runs()) {
        let sum = |runs: &[(u64, u64)]| runs.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let bytes = sum(&local).min(sum(&remote));
        let (local, remote) = (cut(&local, bytes), cut(&remote, bytes));
        let span = Span { address: 0, bytes: 1000 };
        let found = pieces(local.clone(), remote.clone(), span, 1000).unwrap();
        let moved: Vec<_> = found
            .iter()
            .flat_map(|piece| {
                let here = piece.local_offset..piece.local_offset + piece.bytes;
                here.zip(piece.remote_address..)
            })
            .collect();
        let expected: Vec<_> = bytes_of(&local).into_iter().zip(bytes_of(&remote)).collect();
        prop_assert_eq!(moved, expected);
        for pair in found.windows(2) {
            let adjacent = pair[0].local_offset + pair[0].bytes == pair[1].local_offset
                && pair[0].remote_address + pair[0].bytes == pair[1].remote_address;
            prop_assert!(!adjacent, "two pieces that are one: {:?}", pair);
        }
    }

    #[test]
    fn nothing_gets_out_of_the_ranges(
        local in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..4),
        remote in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..4),
        span in (any::<u64>(), any::<u64>()),
        region_bytes: u64,
    ) {
        let span = Span { address: span.0, bytes: span.1 };
        for piece in pieces(local, remote, span, region_bytes).unwrap_or_default() {
            let remote = Span { address: piece.remote_address, bytes: piece.bytes };
            prop_assert!(span.holds(remote));
            prop_assert!(piece.local_offset.checked_add(piece.bytes).unwrap() <= region_bytes);
        }
    }
}
