//! Two nodes of the tcp plane: a producer with its region, a consumer with its region, and the
//! sockets between them.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
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
use chiasm_region::{Region, RegionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

pub(crate) const BLOCK_BYTES: u64 = 100;
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn at(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

pub(crate) fn extent(first: u32, count: u32) -> Extent {
    Extent::new(first, count).expect("a valid extent")
}

/// `length` bytes of a simple generator.
pub(crate) fn bytes_for_test(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn region_for_test(dir: &TempDir, name: &str, blocks: u32) -> Region {
    let name = format!("chiasm-{name}");
    let options = RegionOptions::new(name, blocks, BLOCK_BYTES);
    Region::create(&RegionOptions { dir: dir.path().to_owned(), ..options }).expect("a region")
}

/// All bytes of a region's blocks.
pub(crate) fn contents(region: &Region) -> Vec<u8> {
    let bytes = u64::from(region.blocks()) * region.block_size_bytes();
    let mut out = vec![0; usize::try_from(bytes).unwrap()];
    region.copy_out(&[extent(0, region.blocks())], 0, &mut out).unwrap();
    out
}

/// A pair of connected stream sockets that do not block.
pub(crate) fn unix_pair() -> (OwnedFd, OwnedFd) {
    let (left, right) = UnixStream::pair().unwrap();
    left.set_nonblocking(true).unwrap();
    right.set_nonblocking(true).unwrap();
    (left.into(), right.into())
}

pub(crate) fn tcp_pair() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let left = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (right, _) = listener.accept().unwrap();
    left.set_nonblocking(true).unwrap();
    right.set_nonblocking(true).unwrap();
    (left.into(), right.into())
}

/// The smallest send buffer that the system gives: every write is cut into pieces.
pub(crate) fn with_tiny_buffer(pair: (OwnedFd, OwnedFd)) -> (OwnedFd, OwnedFd) {
    rustix::net::sockopt::set_socket_send_buffer_size(&pair.0, 1).unwrap();
    pair
}

/// A producer, its cache and its region.
pub(crate) struct Source {
    pub(crate) region: Region,
    pub(crate) cache: Cache,
    pub(crate) producer: Producer,
    pub(crate) completed: Vec<StreamId>,
    pub(crate) now: Nanos,
    saved: u32,
}

impl Source {
    pub(crate) fn new(dir: &TempDir, blocks: u32) -> Self {
        let limits = ProducerLimits::for_region(blocks);
        let config = ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 1,
            block_size_bytes: BLOCK_BYTES,
            lease: LEASE,
            upstream_lease: LEASE,
            planes: [Plane::Tcp].into_iter().collect(),
            shm: None,
            limits: ProducerLimits { max_blocks_per_peer: blocks, max_blocks: blocks, ..limits },
        };
        Self {
            region: region_for_test(dir, "source", blocks),
            cache: Cache::new(blocks, EvictionPolicy::Fifo),
            producer: Producer::new(config, [1; 32]),
            completed: Vec::new(),
            now: at(0),
            saved: 0,
        }
    }

    /// Takes blocks away so that what is saved next lies scattered.
    pub(crate) fn scatter(&mut self, holes: u32) {
        let meta = EntryMeta::new(1, 1, Dtype::Uint8).unwrap();
        let mut keys = Vec::new();
        for n in 0..2 * holes {
            let hash = MmHash::new(&format!("spacer{n}")).unwrap();
            keys.push(self.cache.reserve(&hash, meta, 1).unwrap());
        }
        let last = self.cache.usage().free;
        let hash = MmHash::new("rest").unwrap();
        let _ = self.cache.reserve(&hash, meta, last).unwrap();
        for key in keys.into_iter().step_by(2) {
            self.cache.discard(key).unwrap();
        }
    }

    /// Saves `bytes` and grants them; the token.
    pub(crate) fn grant(&mut self, bytes: &[u8]) -> GrantToken {
        self.saved += 1;
        let name = format!("entry{}", self.saved);
        let hash = MmHash::new(&name).unwrap();
        let meta = EntryMeta::new(1, u32::try_from(bytes.len()).unwrap(), Dtype::Uint8).unwrap();
        let blocks = meta.blocks(BLOCK_BYTES).unwrap();
        let key = self.cache.reserve(&hash, meta, blocks).unwrap();
        let extents = self.cache.entry(key).unwrap().extents();
        self.region.copy_in(extents, 0, bytes).unwrap();
        self.cache.mark_ready(key, None).unwrap();
        let planes: PlaneList = [Plane::Tcp].into_iter().collect();
        let request = XferReq {
            mm_hash: &name,
            compatibility_hash: "same",
            session_id: "session",
            connector_version: 2,
            chiasm: Some(ReqExtension { planes, ..ReqExtension::default() }),
        };
        let (now, peer) = (self.now, PeerId(1));
        let ack = self.producer.handle_request(now, peer, &request.encode(), &mut self.cache);
        let ack = ack.expect("an answer").into_bytes();
        let ack = XferAck::decode(&ack, &AckLimits::default()).unwrap();
        GrantToken(ack.chiasm.unwrap().token.expect("granted"))
    }

    pub(crate) fn serve(&mut self, stream: &mut ServeStream, socket: &OwnedFd) -> Progress {
        let mut core = Core {
            producer: &mut self.producer,
            cache: &mut self.cache,
            completed: &mut self.completed,
            now: self.now,
        };
        stream.progress(self.now, socket.as_fd(), &self.region, &mut core)
    }
}

struct Core<'a> {
    producer: &'a mut Producer,
    cache: &'a mut Cache,
    completed: &'a mut Vec<StreamId>,
    now: Nanos,
}

impl Serving for Core<'_> {
    fn open(&mut self, token: GrantToken) -> Option<StreamRead> {
        self.producer.open_stream(self.now, token)
    }

    fn completed(&mut self, stream: StreamId) {
        self.completed.push(stream);
        self.producer.stream_ended(stream, true, self.cache);
    }
}

/// A stream between a source and a consumer's region.
pub(crate) struct Rig {
    pub(crate) source: Source,
    pub(crate) serve: ServeStream,
    pub(crate) serve_socket: OwnedFd,
    pub(crate) read: ReadStream,
    pub(crate) read_socket: OwnedFd,
    pub(crate) region: Region,
    pub(crate) ended: Vec<(TransferId, ReadEnd)>,
    _dir: TempDir,
}

impl Rig {
    pub(crate) fn new(blocks: u32, (serve_socket, read_socket): (OwnedFd, OwnedFd)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            source: Source::new(&dir, blocks),
            serve: ServeStream::new(at(0)),
            serve_socket,
            read: ReadStream::new(at(0)),
            read_socket,
            region: region_for_test(&dir, "sink", blocks),
            ended: Vec::new(),
            _dir: dir,
        }
    }

    pub(crate) fn start(&mut self, id: u64, token: GrantToken, local: Vec<Extent>, bytes: usize) {
        let bytes = bytes as u64;
        let transfer = TransferId(id);
        self.read.start(at(0), ReadJob { transfer, token, local, bytes, digest: true });
    }

    pub(crate) fn progress_read(&mut self) -> Progress {
        let progress = self.read.progress(at(0), self.read_socket.as_fd(), &self.region);
        self.ended.extend(self.read.take_ended());
        progress
    }

    pub(crate) fn progress_serve(&mut self) -> Progress {
        self.source.serve(&mut self.serve, &self.serve_socket)
    }

    /// Lets both ends work, waiting for their sockets, until `jobs` have ended.
    pub(crate) fn run_until_ended(&mut self, jobs: usize) {
        while self.ended.len() < jobs {
            for progress in [self.progress_read(), self.progress_serve()] {
                assert!(!matches!(progress, Progress::Closed(_)), "{progress:?}");
            }
            if self.ended.len() < jobs {
                self.wait();
            }
        }
    }

    fn wait(&self) {
        let interest = |read: bool, write: bool| {
            let none = PollFlags::empty();
            (if read { PollFlags::IN } else { none }) | (if write { PollFlags::OUT } else { none })
        };
        let mut sockets = [
            PollFd::new(
                &self.serve_socket,
                interest(self.serve.wants_read(), self.serve.wants_write()),
            ),
            PollFd::new(&self.read_socket, interest(true, self.read.wants_write())),
        ];
        let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
        let ready = poll(&mut sockets, Some(&limit)).unwrap();
        assert!(ready > 0, "both ends wait for each other");
    }
}

/// The READ frames that stand in `socket` behind the preamble, as (id, token).
pub(crate) fn read_frames(socket: &OwnedFd) -> Vec<(u32, [u8; 16])> {
    let mut bytes = [0; 4096];
    let count = rustix::io::read(socket, &mut bytes).unwrap();
    let frames = &bytes[..count];
    let frames = frames.strip_prefix(b"\xC7hiasm\x01\x00").unwrap_or(frames);
    frames
        .chunks_exact(21)
        .map(|frame| {
            assert_eq!(frame[0], 1);
            let id = u32::from_be_bytes(frame[1..5].try_into().unwrap());
            (id, frame[5..].try_into().unwrap())
        })
        .collect()
}

pub(crate) fn answer(kind: u8, id: u32, length: u64) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}
