//! What comes over a data stream, at either end: nothing is opened that was not granted, nothing is
//! written outside the blocks that wait for it, and no answer is taken for another.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{ReadEnd, TransferId};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{
    GrantToken, PeerId, Producer, ProducerConfig, ProducerLimits, StreamId, StreamRead,
};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, ReqExtension, XferAck, XferReq};
use chiasm_planes::tcp::{Progress, ReadJob, ReadStream, ServeStream, Serving};
use chiasm_region::Region;
use tempfile::TempDir;

use crate::input::Input;
use crate::region::{directory, options};

const BLOCKS: u32 = 8;
const BLOCK_BYTES: u64 = 16;
const PREAMBLE: &[u8] = b"\xC7hiasm\x01\x00";

/// A region and the directory that it is in.
fn region() -> (Region, TempDir) {
    let dir = directory();
    let region = Region::create(&options(&dir, BLOCKS, BLOCK_BYTES));
    (region.expect("room for a small region"), dir)
}

fn extent(first: u32, count: u32) -> Extent {
    Extent::new(first, count).expect("not empty")
}

/// A producer with one grant, whose token is here all fives.
struct OneGrant {
    producer: Producer,
    cache: Cache,
    token: GrantToken,
    opened: bool,
}

impl OneGrant {
    /// Of 20 bytes in blocks 0 and 1.
    fn new() -> Self {
        let config = ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 1,
            block_size_bytes: BLOCK_BYTES,
            lease: Duration::from_secs(30),
            upstream_lease: Duration::from_secs(30),
            planes: PlaneList::from_iter([Plane::Tcp]),
            shm: None,
            limits: ProducerLimits::for_region(BLOCKS),
        };
        let mut producer = Producer::new(config, [1; 32]);
        let mut cache = Cache::new(BLOCKS, EvictionPolicy::Fifo);
        let meta = EntryMeta::new(1, 20, Dtype::Uint8).expect("small");
        let key = cache.reserve(&MmHash::new("h").expect("short"), meta, 2).expect("room");
        cache.mark_ready(key, None).expect("a save under way");
        let planes = PlaneList::from_iter([Plane::Tcp]);
        let request = XferReq {
            mm_hash: "h",
            compatibility_hash: "same",
            session_id: "session",
            connector_version: 2,
            chiasm: Some(ReqExtension { planes, ..ReqExtension::default() }),
        };
        let ack = producer.handle_request(Nanos::ZERO, PeerId(1), &request.encode(), &mut cache);
        let ack = ack.expect("an answer").into_bytes();
        let ack = XferAck::decode(&ack, &AckLimits::default()).expect("our own ack");
        let token = ack.chiasm.and_then(|extension| extension.token).expect("granted");
        Self { producer, cache, token: GrantToken(token), opened: false }
    }
}

impl Serving for OneGrant {
    fn open(&mut self, token: GrantToken) -> Option<StreamRead> {
        let token = if token == GrantToken([5; 16]) { self.token } else { token };
        let read = self.producer.open_stream(Nanos::ZERO, token);
        self.opened |= read.is_some();
        read
    }

    fn completed(&mut self, stream: StreamId) {
        let before = self.producer.counters().completed;
        self.producer.stream_ended(stream, true, &mut self.cache);
        assert_eq!(self.producer.counters().completed, before + 1, "it completes once");
    }
}

/// The first byte says whether the preamble is there for the fuzzer and how the rest is cut.
pub(crate) fn producer(bytes: &[u8]) {
    let (region, _dir) = region();
    let content: Vec<u8> = (0..128).collect();
    region.copy_in(&[extent(0, BLOCKS)], 0, &content).expect("the whole region");
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let mut sent = if kind & 1 == 0 { Vec::new() } else { PREAMBLE.to_vec() };
    sent.extend(input.rest());

    let (near, far) = sockets();
    let mut stream = ServeStream::new(Nanos::ZERO);
    let mut core = OneGrant::new();
    let mut answers = Vec::new();
    let mut pieces = sent.chunks(usize::from(kind / 2) + 1);
    loop {
        let piece = pieces.next();
        if let Some(piece) = piece {
            (&far).write_all(piece).expect("the socket takes a small input");
        }
        let progress = stream.progress(Nanos::ZERO, near.as_fd(), &region, &mut core);
        drain(&far, &mut answers);
        match progress {
            Progress::Closed(reason) => {
                assert!(reason.len() < 400 && !reason.contains('\n'), "{reason}");
                break;
            }
            _ if piece.is_none() && !stream.wants_write() => break,
            _ => {}
        }
    }
    // Everything that was said is a refusal, or the grant's bytes and no others.
    let mut said = answers.as_slice();
    let mut given = 0;
    while let Some((head, rest)) = said.split_at_checked(13) {
        let length = u64::from_be_bytes(head[5..13].try_into().expect("eight bytes"));
        said = match (head[0], length) {
            (0x82, 0) => rest,
            (0x81, 20) => {
                given += 1;
                let (data, rest) = rest.split_at(20.min(rest.len()));
                assert_eq!(data, &content[..data.len()]);
                rest
            }
            other => panic!("a producer never says {other:?}"),
        };
    }
    assert!(said.is_empty() && given == usize::from(core.opened), "{answers:?}");
}

/// What a producer sends: pieces, each with its length in front, to a consumer with two open reads.
pub(crate) fn consumer(bytes: &[u8]) {
    let (region, _dir) = region();
    region.copy_in(&[extent(0, BLOCKS)], 0, &[0xEE; 128]).expect("the whole region");
    let (near, far) = sockets();
    let mut stream = ReadStream::new(Nanos::ZERO);
    for (id, first, length) in [(1, 0, 20), (2, 4, 32)] {
        let (transfer, token) = (TransferId(id), GrantToken([5; 16]));
        let local = vec![extent(first, 2)];
        stream.start(Nanos::ZERO, ReadJob { transfer, token, local, bytes: length, digest: true });
    }
    let mut input = Input::new(bytes);
    let mut sent = Vec::new();
    let mut ended = Vec::new();
    let mut closed = false;
    stream.progress(Nanos::ZERO, near.as_fd(), &region);
    drain(&far, &mut Vec::new());
    while !input.is_empty() && !closed {
        match input.byte() {
            // Frames that are right, so that what comes behind them is looked at.
            1 => sent.extend(b"\x81\0\0\0\0\0\0\0\0\0\0\0\x14"),
            2 => sent.extend(b"\x81\0\0\0\x01\0\0\0\0\0\0\0\x20"),
            3 => sent.extend(b"\x82\0\0\0\0\0\0\0\0\0\0\0\0"),
            4 => {
                let _ = stream.abort(TransferId(1 + u64::from(input.byte() & 1)));
            }
            length => sent.extend(input.take(usize::from(length))),
        }
        (&far).write_all(&sent).expect("the socket takes a small input");
        sent.clear();
        if let Progress::Closed(reason) = stream.progress(Nanos::ZERO, near.as_fd(), &region) {
            assert!(reason.len() < 400 && !reason.contains('\n'), "{reason}");
            stream.lose(&reason);
            closed = true;
        }
        ended.extend(stream.take_ended());
    }
    stream.lose("over");
    ended.extend(stream.take_ended());
    let mut ids: Vec<u64> = ended.iter().map(|(transfer, _)| transfer.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2], "each read ends once: {ended:?}");
    let mut content = vec![0; 128];
    region.copy_out(&[extent(0, BLOCKS)], 0, &mut content).expect("the whole region");
    // Blocks 2, 3, 6 and 7 are nobody's, and so is the rest of block 1 behind the entry's end.
    for place in (20..64).chain(96..128) {
        assert_eq!(content[place], 0xEE, "byte {place} is outside what was granted");
    }
    for (transfer, end) in &ended {
        if let ReadEnd::Landed { bytes, digest } = end {
            let (at, length) = if transfer.0 == 1 { (0, 20) } else { (64, 32) };
            assert_eq!(*bytes, length as u64);
            let landed = chiasm_region::digest_of(&content[at..at + length]);
            assert_eq!(*digest, Some(landed), "the digest is that of what landed");
        }
    }
}

fn sockets() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("descriptors");
    near.set_nonblocking(true).expect("a socket");
    far.set_nonblocking(true).expect("a socket");
    (near, far)
}

/// What is there to be read.
fn drain(socket: &UnixStream, into: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = rustix::io::read(socket, &mut buffer) {
        into.extend(&buffer[..count]);
    }
}
