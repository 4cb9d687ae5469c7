//! The encodings of one fetch: which are under way, and what comes of them.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use chiasm_core::admission::{Decision, Item};
use chiasm_core::announcement::{Announcement, RemoteAnnouncement};
use chiasm_core::mm_hash::MmHash;
use chiasm_node::{Loaded, Node};
use indicatif::ProgressBar;

use super::Plan;
use super::outcome::{Outcome, Report, Verdict};
use crate::commands::progress;
use crate::commands::stop::StopSignal;
use crate::exit::Failure;
use crate::store::StoreWriter;

/// Encodings that are under way at the same time. More would wait for each other's room and bytes
/// while their budgets run.
const WINDOW: usize = 64;

/// Bytes written into a file at once.
const CHUNK_BYTES: usize = 1 << 20;

/// How long to wait for news before looking for a signal.
const PATIENCE: Duration = Duration::from_millis(200);

/// Each encoding is a request of its own, so that each ends for itself.
pub(super) struct Fetching<'a> {
    node: &'a Node,
    store: &'a StoreWriter,
    plan: &'a Plan,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    outcomes: Vec<Option<Outcome>>,
    bar: ProgressBar,
}

impl<'a> Fetching<'a> {
    pub(super) fn new(node: &'a Node, store: &'a StoreWriter, plan: &'a Plan) -> Self {
        let count = plan.params.items.len();
        let announced = plan.params.items.iter().filter_map(|(_, item)| remote(item.as_ref().ok()));
        let total = announced.map(|remote| remote.size_bytes).fold(0, u64::saturating_add);
        Self {
            node,
            store,
            plan,
            waiting: (0..count).collect(),
            running: Vec::new(),
            outcomes: vec![None; count],
            bar: progress::bar(total, "fetching"),
        }
    }

    /// Goes on until every encoding has ended, or a signal has come.
    pub(super) fn run(&mut self, stop: &StopSignal) -> Result<(), Failure> {
        while !stop.came() {
            let news = self.node.news();
            self.start_more();
            let mut ended = false;
            for index in std::mem::take(&mut self.running) {
                if self.look(index)? {
                    ended = true;
                } else {
                    self.running.push(index);
                }
            }
            if self.running.is_empty() && self.waiting.is_empty() {
                self.bar.finish_and_clear();
                return Ok(());
            }
            if !ended {
                self.node.wait(news, PATIENCE);
            }
        }
        Err(Failure::work(anyhow::anyhow!("stopped by a signal")))
    }

    /// Starts encodings while those under way leave room for one more in the region.
    fn start_more(&mut self) {
        while let Some(index) = self.waiting.front().copied() {
            let size =
                |index: &usize| remote(self.announcement(*index)).map_or(0, |r| r.size_bytes);
            let taken = self.running.iter().map(size).fold(0, u64::saturating_add);
            let full = taken.saturating_add(size(&index)) > self.plan.config.region_bytes;
            if self.running.len() >= WINDOW || (full && !self.running.is_empty()) {
                return;
            }
            self.waiting.pop_front();
            let (hash, announcement) = &self.plan.params.items[index];
            let item = Item::new(
                hash.clone(),
                1,
                self.plan.local.iter().any(|local| local == hash.as_str()),
                Some(announcement),
                &self.plan.expected,
            );
            match self.node.track(hash.as_str(), vec![item]) {
                Ok(()) => self.running.push(index),
                Err(untracked) => {
                    let outcome =
                        Outcome::not_fetched(hash, Verdict::Unavailable, &untracked.reason);
                    self.outcomes[index] = Some(outcome);
                }
            }
        }
    }

    fn announcement(&self, index: usize) -> Option<&Announcement> {
        self.plan.params.items[index].1.as_ref().ok()
    }

    /// Looks at one encoding under way. True once it has ended.
    fn look(&mut self, index: usize) -> Result<bool, Failure> {
        let hash = &self.plan.params.items[index].0;
        let id = hash.as_str();
        let decision = self.node.ensure(id, 1, 0);
        let outcome = match decision {
            Some(Decision::Wait) => return Ok(false),
            Some(Decision::Ready) => self.take(hash).map_err(Failure::work)?,
            Some(Decision::Fallback) => self.not_fetched(hash, Verdict::Fallback),
            Some(Decision::Unavailable) | None => self.not_fetched(hash, Verdict::Unavailable),
        };
        self.node.finish(id);
        if let Some(remote) = remote(self.announcement(index)) {
            self.bar.inc(remote.size_bytes);
        }
        self.outcomes[index] = Some(outcome);
        Ok(true)
    }

    /// Writes an encoding that is in the region into the store.
    fn take(&self, hash: &MmHash) -> anyhow::Result<Outcome> {
        let Some(loaded) = self.node.load(hash.as_str()) else {
            // Nothing was announced, so nothing was read: an engine would encode it.
            return Ok(Outcome::not_announced(hash));
        };
        let meta = *loaded.meta();
        let dtype = meta.dtype.or(self.plan.expected.dtype).with_context(|| {
            format!("{}: the producer does not say its element type, give --dtype", hash.short())
        })?;
        let mut file = self.store.begin(hash, dtype, meta.rows, meta.width)?;
        copy(&loaded, &mut file).with_context(|| format!("writing {}", hash.short()))?;
        file.finish()?;
        let seen = self.node.report(hash.as_str(), |item| (item.plane, item.waited, item.attempts));
        let (plane, waited, attempts) = seen.first().copied().unwrap_or_default();
        Ok(Outcome::fetched(hash, meta, plane, waited, attempts))
    }

    fn not_fetched(&self, hash: &MmHash, verdict: Verdict) -> Outcome {
        let outcome = self.node.report(hash.as_str(), |item| {
            let mut outcome = match item.reason {
                Some(reason) => Outcome::not_fetched(hash, verdict, reason),
                None => Outcome::not_announced(hash),
            };
            outcome.waited = item.waited;
            outcome.attempts = item.attempts;
            if let Some(why) = &self.plan.missing_nixl {
                outcome.note_missing_nixl(why);
            }
            outcome
        });
        outcome.into_iter().next().unwrap_or_else(|| Outcome::not_announced(hash))
    }

    /// All outcomes, in the order of the hashes.
    pub(super) fn into_report(self) -> Report {
        Report { outcomes: self.outcomes.into_iter().flatten().collect() }
    }
}

fn remote(announcement: Option<&Announcement>) -> Option<&RemoteAnnouncement> {
    match announcement {
        Some(Announcement::Remote(remote)) => Some(remote),
        _ => None,
    }
}

fn copy(loaded: &Loaded<'_>, file: &mut impl std::io::Write) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < loaded.meta().bytes {
        let left = usize::try_from(loaded.meta().bytes - offset).unwrap_or(usize::MAX);
        let chunk = &mut chunk[..left.min(CHUNK_BYTES)];
        loaded.read(offset, chunk).map_err(std::io::Error::other)?;
        file.write_all(chunk)?;
        offset += chunk.len() as u64;
    }
    Ok(())
}
