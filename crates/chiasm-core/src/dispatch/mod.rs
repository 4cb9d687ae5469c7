//! Orders that workers have and have not reported: one table, matched by dispatch and generation.
//!
//! A save holds its entry not ready, a load holds one pin until every rank has reported it. What is
//! not reported in time is given up without trusting that nobody touches it any more: a lost save's
//! blocks go into quarantine, a late load keeps its pin, until the word comes or the worker is known
//! to be dead (C18, S2). Reports are hostile input: one that fits no order changes nothing and is
//! counted.
//!
//! It must never free blocks that a live worker may still write, nor unpin what it may still read.

mod event;
mod order;
mod rank;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use self::event::Event;
pub use self::order::{DispatchId, Order, OrderError, OrderKind};
pub use self::rank::{MAX_RANKS, Rank, RankSet};
pub use self::report::{Outcome, Receipt, Report};

use crate::cache::{Cache, Entry, EntryKey, ReserveError, StateError};
use crate::entry::EntryMeta;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// Orders that may be out at once. Each costs about 200 bytes; an engine step makes a few.
pub const MAX_DISPATCHES: usize = 4096;

/// How long a save may stay unreported: `save_timeout_s`.
pub const SAVE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long the blocks of a dead worker's save stay in quarantine: `quarantine_s`. Its own writes end
/// before its lock is given back; a device that still copies for it is stopped by its driver later.
pub const QUARANTINE: Duration = Duration::from_mins(1);

/// Events that wait for a reader; the oldest go first.
const MAX_EVENTS: usize = 256;

/// Why nothing was dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// A save: there is no room for it, or no need.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// A load: the hash was not promised to any request, or its entry is gone.
    #[error("there is no entry that was promised under this hash")]
    NotPromised,
    /// A load: the entry cannot be pinned.
    #[error(transparent)]
    State(#[from] StateError),
    /// Nobody is to act.
    #[error("an order needs at least one rank")]
    NoRank,
    /// A rank's process is not attached to the region: not yet, or not any more.
    #[error("no worker of rank {0} is attached to the region")]
    NoWorker(Rank),
    /// Workers do not report: [`MAX_DISPATCHES`] orders are out.
    #[error("{MAX_DISPATCHES} orders are out already: the workers do not report")]
    TooMany,
}

/// What became of orders and reports since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DispatchCounters {
    /// Saves that were dispatched.
    pub saves: u64,
    /// Loads that were dispatched.
    pub loads: u64,
    /// Saves that were reported whole and in time.
    pub saved: u64,
    /// Loads that every rank has reported, or is dead.
    pub loaded: u64,
    /// Saves that a worker said have failed.
    pub failed_saves: u64,
    /// Ranks that said that a load has failed.
    pub failed_loads: u64,
    /// Saves that were not reported in time, or whose worker died.
    pub lost_saves: u64,
    /// Loads that were not reported in time.
    pub late_loads: u64,
    /// Reports of lost saves that came after all.
    pub late_reports: u64,
    /// Reports that fit no order: replayed, of another generation, rank or instance, or garbage.
    pub ignored_reports: u64,
}

/// Orders that are out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Saves that can still be reported in time.
    pub saves: usize,
    /// Loads.
    pub loads: usize,
    /// Lost saves whose blocks are in quarantine.
    pub lost_saves: usize,
}

impl Outstanding {
    /// Whether nothing is out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug)]
struct Dispatch {
    receipt: Receipt,
    hash: MmHash,
    since: Nanos,
    state: State,
    /// When [`Dispatches::handle_timeout`] has something to do with it.
    due: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Saving(Rank),
    /// In quarantine; `due` is never while its worker lives.
    Lost(Rank),
    /// Ranks that have not reported.
    Loading(RankSet),
}

/// The table.
#[derive(Debug)]
pub struct Dispatches {
    save_timeout: Duration,
    quarantine: Duration,
    next_id: u64,
    out: BTreeMap<DispatchId, Dispatch>,
    timers: BTreeSet<(Nanos, DispatchId)>,
    outstanding: Outstanding,
    counters: DispatchCounters,
    events: VecDeque<Event>,
}

impl Dispatches {
    /// An empty table. `first_id` is where this life's ids begin: random.
    #[must_use]
    pub fn new(save_timeout: Duration, quarantine: Duration, first_id: u64) -> Self {
        Self {
            save_timeout,
            quarantine,
            // Room to count up without ever wrapping.
            next_id: first_id >> 1,
            out: BTreeMap::new(),
            timers: BTreeSet::new(),
            outstanding: Outstanding::default(),
            counters: DispatchCounters::default(),
            events: VecDeque::new(),
        }
    }

    /// Takes room for an encoder output and orders `rank` to save it.
    pub fn save(
        &mut self,
        now: Nanos,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
        rank: Rank,
        cache: &mut Cache,
    ) -> Result<Order, DispatchError> {
        self.has_room()?;
        let key = cache.reserve(hash, meta, blocks)?;
        self.counters.saves += 1;
        self.outstanding.saves += 1;
        Ok(self.add(now, hash, key, meta, State::Saving(rank), cache))
    }

    /// Pins a ready entry and orders `ranks` to load it.
    pub fn load(
        &mut self,
        now: Nanos,
        key: EntryKey,
        ranks: RankSet,
        cache: &mut Cache,
    ) -> Result<Order, DispatchError> {
        if ranks.is_empty() {
            return Err(DispatchError::NoRank);
        }
        self.has_room()?;
        cache.pin(key)?;
        let entry = cache.entry(key).ok_or(StateError::UnknownKey(key))?;
        let (hash, meta) = (entry.hash().clone(), *entry.meta());
        self.counters.loads += 1;
        self.outstanding.loads += 1;
        Ok(self.add(now, &hash, key, meta, State::Loading(ranks), cache))
    }

    /// Takes in one report. The hash of a save that it ended.
    pub fn report(&mut self, report: &Report, cache: &mut Cache) -> Option<MmHash> {
        let id = report.receipt.dispatch;
        let fits = self.out.get(&id).filter(|dispatch| {
            // The length is judged where it is used: who names another has the right order in hand.
            let expects = match dispatch.state {
                State::Saving(rank) | State::Lost(rank) => rank == report.rank,
                State::Loading(ranks) => ranks.has(report.rank),
            };
            dispatch.receipt.key == report.receipt.key && expects
        });
        let Some(dispatch) = fits else {
            self.counters.ignored_reports += 1;
            return None;
        };
        match dispatch.state {
            State::Saving(_) => self.save_reported(report, cache),
            State::Lost(_) => {
                self.counters.late_reports += 1;
                self.release(id, cache);
                None
            }
            State::Loading(_) => {
                self.counters.failed_loads += u64::from(report.outcome == Outcome::Failed);
                self.load_done(id, report.rank, cache);
                None
            }
        }
    }

    /// No process of this rank is left of those that had orders: neither writes nor reads any more.
    /// What it had committed to its ring must have been [reported](Self::report) before. The hashes of
    /// saves that this ended.
    pub fn worker_gone(&mut self, now: Nanos, rank: Rank, cache: &mut Cache) -> Vec<MmHash> {
        let ids: Vec<DispatchId> = self.out.keys().copied().collect();
        let (mut lost, mut loads) = (Vec::new(), 0);
        for id in ids {
            match self.out.get(&id).map(|dispatch| (dispatch.state, dispatch.due)) {
                Some((State::Saving(of), _)) if of == rank => {
                    lost.extend(self.lose(id, now.after(self.quarantine), cache));
                }
                Some((State::Lost(of), Nanos::NEVER)) if of == rank => {
                    self.set_due(id, now.after(self.quarantine));
                }
                Some((State::Loading(ranks), _)) if ranks.has(rank) => {
                    loads += 1;
                    self.load_done(id, rank, cache);
                }
                _ => {}
            }
        }
        if !lost.is_empty() || loads > 0 {
            self.tell(Event::WorkerGone { rank, saves: lost.len(), loads });
        }
        lost
    }

    /// Gives an order up that no worker has got, nor will: its blocks or its pin are free at once.
    /// The hash of a save that this ended. Nothing happens if it is over already.
    pub fn discard(&mut self, id: DispatchId, cache: &mut Cache) -> Option<MmHash> {
        let dispatch = self.out.get(&id)?;
        let key = dispatch.receipt.key;
        match dispatch.state {
            State::Saving(_) => {
                let _ = cache.discard(key);
                self.outstanding.saves -= 1;
                self.remove(id).map(|dispatch| dispatch.hash)
            }
            State::Lost(_) => {
                self.release(id, cache);
                None
            }
            State::Loading(_) => {
                self.unpin(id, cache);
                None
            }
        }
    }

    /// Gives a save up that its worker may have begun: its blocks are in quarantine until it reports,
    /// or is dead. The hash of the save. Nothing happens to a load: its ranks may be reading.
    pub fn withdraw(&mut self, id: DispatchId, cache: &mut Cache) -> Option<MmHash> {
        matches!(self.out.get(&id)?.state, State::Saving(_))
            .then(|| self.lose(id, Nanos::NEVER, cache))
            .flatten()
    }

    /// Gives up what has run out of time. The hashes of saves that this ended.
    pub fn handle_timeout(&mut self, now: Nanos, cache: &mut Cache) -> Vec<MmHash> {
        let mut ended = Vec::new();
        while let Some(&(due, id)) = self.timers.first()
            && due <= now
        {
            let Some(dispatch) = self.out.get(&id) else { break };
            let (hash, waited) = (dispatch.hash.clone(), now.since(dispatch.since));
            match dispatch.state {
                State::Saving(rank) => {
                    let entry = cache.entry(dispatch.receipt.key);
                    let blocks = entry.map_or(0, Entry::blocks);
                    self.tell(Event::SaveLost { hash, rank, waited, blocks });
                    ended.extend(self.lose(id, Nanos::NEVER, cache));
                }
                State::Lost(_) => self.release(id, cache),
                State::Loading(ranks) => {
                    self.counters.late_loads += 1;
                    self.tell(Event::LoadLate { hash, ranks, waited });
                    self.set_due(id, Nanos::NEVER);
                }
            }
        }
        ended
    }

    /// When [`Dispatches::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.timers.first().map_or(Nanos::NEVER, |&(due, _)| due)
    }

    /// What to log next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Orders that are out.
    #[must_use]
    pub fn outstanding(&self) -> Outstanding {
        self.outstanding
    }

    /// Ranks whose reports or whose ends are waited for. Lost saves of dead workers wait for time
    /// alone.
    #[must_use]
    pub fn awaited(&self) -> RankSet {
        let of = |dispatch: &Dispatch| match dispatch.state {
            State::Saving(rank) => rank.into(),
            State::Lost(rank) if dispatch.due == Nanos::NEVER => rank.into(),
            State::Lost(_) => RankSet::default(),
            State::Loading(ranks) => ranks,
        };
        let bits = self.out.values().fold(0, |bits, dispatch| bits | of(dispatch).bits());
        RankSet::from_bits(bits)
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> DispatchCounters {
        self.counters
    }

    fn has_room(&self) -> Result<(), DispatchError> {
        if self.out.len() < MAX_DISPATCHES { Ok(()) } else { Err(DispatchError::TooMany) }
    }

    fn add(
        &mut self,
        now: Nanos,
        hash: &MmHash,
        key: EntryKey,
        meta: EntryMeta,
        state: State,
        cache: &Cache,
    ) -> Order {
        self.next_id += 1;
        let dispatch = DispatchId::from_u64(self.next_id);
        let (kind, ranks) = match state {
            State::Saving(rank) | State::Lost(rank) => (OrderKind::Save, rank.into()),
            State::Loading(ranks) => (OrderKind::Load, ranks),
        };
        let extents = cache.entry(key).map(|entry| entry.extents().to_vec());
        let extents = extents.unwrap_or_default();
        let order = Order { kind, dispatch, key, ranks, meta, extents };
        let (receipt, due) = (order.receipt(), now.after(self.save_timeout));
        let hash = hash.clone();
        self.out.insert(dispatch, Dispatch { receipt, hash, since: now, state, due });
        self.timers.insert((due, dispatch));
        order
    }

    fn save_reported(&mut self, report: &Report, cache: &mut Cache) -> Option<MmHash> {
        let dispatch = self.remove(report.receipt.dispatch)?;
        let Receipt { key, bytes, .. } = dispatch.receipt;
        self.outstanding.saves -= 1;
        match report.outcome {
            Outcome::Done(digest) if report.receipt.bytes == bytes => {
                // S3. The entry is not ready: nobody else ends the entry of a dispatched save.
                let ready = cache.mark_ready(key, digest);
                debug_assert!(ready.is_ok(), "the entry of a dispatched save: {ready:?}");
                self.counters.saved += 1;
            }
            Outcome::Done(_) | Outcome::Failed => {
                let _ = cache.discard(key);
                self.counters.failed_saves += 1;
                let hash = dispatch.hash.clone();
                self.tell(Event::SaveFailed { hash, rank: report.rank });
            }
        }
        Some(dispatch.hash)
    }

    /// Into quarantine with the blocks of a save, until `due`.
    fn lose(&mut self, id: DispatchId, due: Nanos, cache: &mut Cache) -> Option<MmHash> {
        let dispatch = self.out.get_mut(&id)?;
        let State::Saving(rank) = dispatch.state else { return None };
        dispatch.state = State::Lost(rank);
        let hash = dispatch.hash.clone();
        let _ = cache.quarantine(dispatch.receipt.key);
        self.set_due(id, due);
        self.outstanding.saves -= 1;
        self.outstanding.lost_saves += 1;
        self.counters.lost_saves += 1;
        Some(hash)
    }

    /// Nothing writes into a lost save's blocks any more.
    fn release(&mut self, id: DispatchId, cache: &mut Cache) {
        if let Some(dispatch) = self.remove(id) {
            let _ = cache.release_quarantined(dispatch.receipt.key);
            self.outstanding.lost_saves -= 1;
        }
    }

    fn load_done(&mut self, id: DispatchId, rank: Rank, cache: &mut Cache) {
        let Some(dispatch) = self.out.get_mut(&id) else { return };
        let State::Loading(ranks) = &mut dispatch.state else { return };
        ranks.remove(rank);
        if ranks.is_empty() {
            self.counters.loaded += 1;
            self.unpin(id, cache);
        }
    }

    fn unpin(&mut self, id: DispatchId, cache: &mut Cache) {
        if let Some(dispatch) = self.remove(id) {
            let _ = cache.unpin(dispatch.receipt.key);
            self.outstanding.loads -= 1;
        }
    }

    fn remove(&mut self, id: DispatchId) -> Option<Dispatch> {
        let dispatch = self.out.remove(&id)?;
        self.timers.remove(&(dispatch.due, id));
        Some(dispatch)
    }

    fn set_due(&mut self, id: DispatchId, due: Nanos) {
        let Some(dispatch) = self.out.get_mut(&id) else { return };
        self.timers.remove(&(dispatch.due, id));
        dispatch.due = due;
        if due != Nanos::NEVER {
            self.timers.insert((due, id));
        }
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
