//! Entries whose bytes are known, and requests for them: what the families have in common.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use chiasm_core::admission::{Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Endpoint, ListenAddress};
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::PlaneList;
use chiasm_node::{Node, NodeConfig};
use rustix::time::{ClockId, clock_gettime};

/// Elements of a row, two bytes each: an embedding of 3584.
const WIDTH: u32 = 3584;

/// Bytes of a row.
pub(super) const ROW_BYTES: u64 = 2 * WIDTH as u64;

/// Bytes of an entry repeat after so many; not a multiple of a block.
const PATTERN_BYTES: usize = (1 << 20) + 7;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_mins(2);

/// How a node is started that serves on a port of the system's choice.
pub(super) fn producer_config(region_bytes: u64) -> anyhow::Result<NodeConfig> {
    let mut config = NodeConfig::new(region_bytes);
    config.identity.block_size_bytes = ROW_BYTES;
    config.listen = Some(ListenAddress::parse("127.0.0.1:0")?);
    Ok(config)
}

/// A node that serves over shm and tcp.
pub(super) fn producer(region_bytes: u64) -> anyhow::Result<Node> {
    Ok(Node::start(&producer_config(region_bytes)?)?)
}

/// How a node is started that reads from these producers over these planes.
pub(super) fn consumer_config(
    region_bytes: u64,
    allowed: &[Endpoint],
    planes: PlaneList,
) -> anyhow::Result<NodeConfig> {
    let mut config = NodeConfig::new(region_bytes);
    config.identity.block_size_bytes = ROW_BYTES;
    config.planes = planes;
    let texts: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    let allowed = Allowlist::parse(texts.iter().map(String::as_str));
    config.allowed = allowed.map_err(|mut errors| errors.remove(0))?;
    Ok(config)
}

/// The rows of an entry of about so many bytes, one at least.
pub(super) fn rows_of(bytes: u64) -> u32 {
    u32::try_from(bytes / ROW_BYTES).unwrap_or(u32::MAX).max(1)
}

/// Bytes that look random, from which those of all entries are cut.
#[derive(Debug)]
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Self(words.flatten().take(PATTERN_BYTES).collect())
    }

    /// The bytes of the entry `name` from `offset` on, as many as lie in one piece, `most` at most.
    fn piece(&self, name: &str, offset: usize, most: usize) -> &[u8] {
        let seed = name
            .bytes()
            .fold(0_usize, |seed, byte| seed.wrapping_mul(131).wrapping_add(usize::from(byte)));
        let from = (seed % self.0.len() + offset) % self.0.len();
        let to = (from + most).min(self.0.len());
        &self.0[from..to]
    }

    /// Saves the entry `name`.
    pub(super) fn save(&self, node: &Node, name: &str, rows: u32) -> anyhow::Result<()> {
        let meta = EntryMeta::new(rows, WIDTH, Dtype::Bfloat16).context("too large")?;
        let bytes = usize::try_from(meta.bytes)?;
        let mut saving = node.reserve(&MmHash::new(name)?, meta)?;
        let mut offset = 0;
        while offset < bytes {
            let piece = self.piece(name, offset, bytes - offset);
            saving.write(piece)?;
            offset += piece.len();
        }
        Ok(saving.finish()?)
    }

    /// Whether every byte of the entry that a request was promised is that of `name`.
    pub(super) fn check(&self, node: &Node, name: &str) -> anyhow::Result<u64> {
        let loaded = node.load(name).with_context(|| format!("{name}: nothing was promised"))?;
        let bytes = loaded.meta().bytes;
        let mut chunk = vec![0; PATTERN_BYTES];
        let (mut offset, end) = (0, usize::try_from(bytes)?);
        while offset < end {
            let piece = self.piece(name, offset, end - offset);
            let there = &mut chunk[..piece.len()];
            loaded.read(offset as u64, there)?;
            ensure!(*there == *piece, "{name}: wrong bytes from byte {offset} on");
            offset += piece.len();
        }
        Ok(bytes)
    }
}

/// One item that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) offer: RemoteAnnouncement,
    /// Whether the engine could encode it itself.
    pub(super) local_input: bool,
}

/// How a request for one item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Ready,
    Fallback,
    Unavailable,
}

/// Requests under way, one item each.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    node: &'a Node,
    running: Vec<(String, Wanted, Instant)>,
    count: usize,
    /// The most thread CPU time that one call of an engine's scheduler has taken, if that is watched.
    longest_call: Option<Duration>,
}

impl<'a> Requests<'a> {
    pub(super) fn new(node: &'a Node) -> Self {
        Self { node, running: Vec::new(), count: 0, longest_call: None }
    }

    /// With an eye on what each call costs its thread, which costs something itself.
    pub(super) fn watched(node: &'a Node) -> Self {
        Self { longest_call: Some(Duration::ZERO), ..Self::new(node) }
    }

    /// The most thread CPU time that one call has taken.
    pub(super) fn longest_call(&self) -> Option<Duration> {
        self.longest_call
    }

    fn call<T>(longest: &mut Option<Duration>, call: impl FnOnce() -> T) -> T {
        let Some(longest) = longest else { return call() };
        let start = thread_cpu();
        let answer = call();
        *longest = (*longest).max(thread_cpu().saturating_sub(start));
        answer
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether this item is under way.
    pub(super) fn has(&self, name: &str) -> bool {
        self.running.iter().any(|(_, wanted, _)| wanted.name == name)
    }

    pub(super) fn start(&mut self, wanted: Wanted) -> anyhow::Result<()> {
        let expected = Expectation {
            rows: None,
            width: None,
            dtype: None,
            block_size_bytes: self.node.block_size_bytes(),
            region_blocks: u32::MAX,
        };
        let announcement = Ok(Announcement::Remote(wanted.offer.clone()));
        let hash = MmHash::new(&wanted.name)?;
        let item = Item::new(hash, 1, wanted.local_input, Some(&announcement), &expected);
        self.count += 1;
        let id = self.count.to_string();
        let since = Instant::now();
        Self::call(&mut self.longest_call, || self.node.track(&id, vec![item]))?;
        self.running.push((id, wanted, since));
        Ok(())
    }

    /// Waits until at least one has ended; those that have, with how long each took. An entry that has
    /// arrived is handed to `take` and then let go and evicted.
    pub(super) fn wait(
        &mut self,
        mut take: impl FnMut(&Node, &Wanted, End, Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        let before = self.running.len();
        while self.running.len() == before {
            let news = self.node.news();
            let mut left = Vec::with_capacity(before);
            for (id, wanted, since) in self.running.drain(..) {
                let node = self.node;
                let answer = Self::call(&mut self.longest_call, || node.ensure(&id, 1, 0));
                let ended = match answer {
                    Some(Decision::Wait) => {
                        left.push((id, wanted, since));
                        continue;
                    }
                    Some(Decision::Ready) => End::Ready,
                    Some(Decision::Fallback) => End::Fallback,
                    Some(Decision::Unavailable) => End::Unavailable,
                    None => bail!("{}: the request is not known any more", wanted.name),
                };
                take(self.node, &wanted, ended, since.elapsed())?;
                self.node.finish(&id);
                let _ = self.node.evict(&wanted.name);
            }
            self.running = left;
            if self.running.len() == before {
                ensure!(Instant::now() < end, "nothing has ended for {PATIENCE:?}");
                self.node.wait(news, Duration::from_secs(1));
            }
        }
        Ok(())
    }
}

/// What the calling thread has used.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}
