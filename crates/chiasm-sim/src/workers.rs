//! Simulated workers: they carry out real orders on simulated memory, and report late, twice, wrongly
//! or not at all.

use std::collections::BTreeMap;

use chiasm_core::cache::{Entry, EntryState};
use chiasm_core::dispatch::{DispatchError, DispatchId, Order, OrderKind, Outcome, Rank, Report};

use crate::content::{OTHER, digest_of, word};
use crate::fault::Fault;
use crate::memory::blocks_of;
use crate::queue::Event;
use crate::violation::{Promise, Step, broken, ensure};
use crate::world::World;

/// Ranks of one instance.
pub(crate) const RANKS: u16 = 2;

/// One order on one rank.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) order: Order,
    pub(crate) rank: Rank,
    entry: usize,
    /// Whose words a save writes: the entry's number, or that of another encoder's output.
    encoded: usize,
    blocks: Vec<u32>,
    done: usize,
    /// What it is going to say; set when the copy is over.
    outcome: Option<Outcome>,
    /// It has said it, but nobody has looked yet.
    committed: bool,
    /// Its worker is dead: until then its device may still write.
    dying_until: Option<u64>,
    /// The request that the load is for.
    job: Option<String>,
}

/// The process that is one rank.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    /// Which: another number for each that sits here.
    process: u64,
    /// Until then nobody does.
    empty_until: u64,
    /// The one that has the orders that are out, as far as the node knows.
    known: Option<u64>,
}

/// All workers of one life of a node.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) tasks: BTreeMap<u64, Task>,
    next: u64,
    seats: [Seat; RANKS as usize],
    /// A report of earlier times, to be replayed.
    old: Option<Report>,
}

impl Workers {
    /// Whether a worker has copied something and does not say so.
    pub(crate) fn owes(&self, rank: Rank) -> bool {
        let owes = |task: &Task| task.rank == rank && task.outcome.is_some() && !task.committed;
        self.tasks.values().any(owes)
    }
}

impl World {
    /// Orders an entry to be saved. False if there is no need or no room for it.
    pub(crate) fn save(&mut self, number: usize, entry: usize) -> Step<bool> {
        let now = self.time();
        let content = self.catalogue.content(entry).clone();
        let rank = Rank::new(u16::try_from(self.random.below(u64::from(RANKS))).unwrap_or(0));
        let rank = rank.unwrap_or(Rank::ZERO);
        if !self.has_worker(number, rank) {
            return Ok(false);
        }
        let node = &mut self.nodes[number];
        let order =
            node.instance.dispatch_save(now, &content.hash, content.meta, content.blocks, rank);
        let order = match order {
            Ok(order) => order,
            Err(DispatchError::Reserve(error)) => {
                self.tally.count(match error {
                    chiasm_core::cache::ReserveError::TooLarge { .. } => "save too large",
                    chiasm_core::cache::ReserveError::Duplicate { .. } => "save duplicate",
                    chiasm_core::cache::ReserveError::Full { .. } => "save full",
                });
                return Ok(false);
            }
            Err(error) => return Err(broken(Promise::S6, format!("a save: {error}"))),
        };
        let evicted = node.instance.cache().evicted().len() as u64;
        self.tally.add("cache evicted for a save", evicted);
        let order = carried(&order)?;
        for block in blocks_of(&order.extents) {
            let word = self.junk();
            self.nodes[number].memory.write(block, word, "a new save")?;
        }
        self.note("save", &[number as u64, entry as u64]);
        self.begin(number, order, rank, entry, None);
        Ok(true)
    }

    /// Orders a promised entry to be loaded on every rank.
    pub(crate) fn load(
        &mut self,
        number: usize,
        entry: usize,
        job: &str,
    ) -> Step<Option<DispatchId>> {
        let now = self.time();
        let hash = self.catalogue.content(entry).hash.clone();
        let ranks = chiasm_core::dispatch::RankSet::first(RANKS).unwrap_or_default();
        if !ranks.iter().all(|rank| self.has_worker(number, rank)) {
            return Ok(None);
        }
        let order = self.nodes[number].instance.dispatch_load(now, hash.as_str(), ranks);
        let order = match order {
            Ok(order) => carried(&order)?,
            Err(DispatchError::TooMany) => return Ok(None),
            Err(error) => {
                let what =
                    format!("node {number}: {hash} was promised and cannot be loaded: {error}");
                return Err(broken(Promise::S6, what));
            }
        };
        self.note("load", &[number as u64, entry as u64]);
        for rank in ranks.iter() {
            self.begin(number, order.clone(), rank, entry, Some(job.to_owned()));
        }
        Ok(Some(order.dispatch))
    }

    fn begin(
        &mut self,
        number: usize,
        order: Order,
        rank: Rank,
        entry: usize,
        job: Option<String>,
    ) {
        let when = self.now + self.block_time();
        let differs = order.kind == OrderKind::Save && self.fires(Fault::OtherEncoding);
        let encoded = if differs { entry + OTHER } else { entry };
        let at = self.life(number);
        let workers = &mut self.nodes[number].workers;
        workers.next += 1;
        let task = workers.next;
        let blocks = blocks_of(&order.extents).collect();
        let outcome = None;
        let (done, committed, dying_until) = (0, false, None);
        let new = Task {
            order,
            rank,
            entry,
            encoded,
            blocks,
            done,
            outcome,
            committed,
            dying_until,
            job,
        };
        workers.tasks.insert(task, new);
        self.push(when, Event::Work { at, task });
    }

    /// A worker copies a slice.
    pub(crate) fn work(&mut self, number: usize, id: u64) -> Step {
        let now = self.now;
        let Some(task) = self.nodes[number].workers.tasks.get(&id) else { return Ok(()) };
        if task.outcome.is_some() {
            return Ok(());
        }
        if task.dying_until.is_some_and(|until| now >= until) {
            // A request still waits for its load: it learns that it is lost when the node does.
            if task.job.is_none() {
                self.nodes[number].workers.tasks.remove(&id);
            }
            return Ok(());
        }
        let slice: Vec<u32> =
            task.blocks.iter().skip(task.done).take(self.setup.slice_blocks).copied().collect();
        let (kind, from, key) = (task.order.kind, task.done, task.order.key);
        let (entry, encoded) = (task.entry, task.encoded);
        for (offset, block) in slice.iter().enumerate() {
            let truth = word(encoded, from + offset);
            let node = &mut self.nodes[number];
            match kind {
                OrderKind::Save => {
                    let state = node.instance.cache().entry(key).map(Entry::state);
                    let owns =
                        matches!(state, Some(EntryState::NotReady | EntryState::Quarantined));
                    ensure(owns, Promise::S4, || {
                        format!(
                            "node {number}: a save writes into blocks that are not its own any more"
                        )
                    })?;
                    node.memory.write(*block, truth, "a save")?;
                }
                OrderKind::Load => {
                    let found = node.memory.read(*block);
                    let content = self.catalogue.content(entry);
                    ensure(
                        found == node.expected(key, content, from + offset),
                        Promise::S2,
                        || {
                            format!(
                                "node {number}: the engine loads {} and gets other bytes (block {block})",
                                content.hash
                            )
                        },
                    )?;
                }
            }
        }
        let Some(task) = self.nodes[number].workers.tasks.get_mut(&id) else { return Ok(()) };
        task.done += slice.len();
        let at = self.life(number);
        let task = &self.nodes[number].workers.tasks[&id];
        if task.done < task.blocks.len() {
            let mut next = self.now + self.block_time() * slice.len() as u64;
            if self.fires(Fault::CopyStalled) {
                let timeout = u64::try_from(self.setup.save_timeout.as_nanos()).unwrap_or(u64::MAX);
                next += self.random.below(timeout.saturating_mul(2));
                next = self.around_a_deadline(next, self.nodes[number].instance.poll_timeout());
            }
            self.push(next, Event::Work { at, task: id });
            return Ok(());
        }
        if task.dying_until.is_none() {
            self.copied(number, id);
        }
        Ok(())
    }

    /// The copy is over: the worker reports, or does not.
    fn copied(&mut self, number: usize, id: u64) {
        let at = self.life(number);
        let task = &self.nodes[number].workers.tasks[&id];
        let kind = task.order.kind;
        let words: Vec<u64> =
            (0..task.blocks.len()).map(|block| word(task.encoded, block)).collect();
        let digest = (kind == OrderKind::Save && self.setup.digests).then(|| digest_of(words));
        let fails = match kind {
            OrderKind::Save => Fault::SaveFailed,
            OrderKind::Load => Fault::LoadFailed,
        };
        let outcome = if self.fires(fails) { Outcome::Failed } else { Outcome::Done(digest) };
        if let Some(task) = self.nodes[number].workers.tasks.get_mut(&id) {
            task.outcome = Some(outcome);
        }
        if !self.quiet && self.fires(Fault::ReportMissing) {
            return;
        }
        if let Some(task) = self.nodes[number].workers.tasks.get_mut(&id) {
            task.committed = true;
        }
        let mut when = self.now + self.random.skewed(1_000, 5_000_000);
        if self.fires(Fault::ReportLate) {
            let timeout = u64::try_from(self.setup.save_timeout.as_nanos()).unwrap_or(u64::MAX);
            when += timeout / 2 + self.random.below(timeout);
        }
        when = self.around_a_deadline(when, self.nodes[number].instance.poll_timeout());
        self.push(when, Event::Report { at, task: id });
        if self.fires(Fault::ReportDuplicated) {
            self.push(when + 1_000, Event::Report { at, task: id });
        }
    }

    /// A report is taken out of its ring.
    pub(crate) fn report(&mut self, number: usize, id: u64) -> Step {
        self.take_report(number, id);
        if self.fires(Fault::ReportForged) {
            self.forge_report(number);
        }
        self.settle(number)
    }

    fn take_report(&mut self, number: usize, id: u64) {
        let now = self.time();
        let node = &mut self.nodes[number];
        let Some(task) = node.workers.tasks.remove(&id) else {
            // It comes a second time.
            if let Some(old) = node.workers.old {
                node.instance.reported(now, &old);
            }
            return;
        };
        let Some(outcome) = task.outcome else { return };
        let report = Report { rank: task.rank, receipt: task.order.receipt(), outcome };
        node.workers.old = Some(report);
        node.instance.reported(now, &report);
        let failed = u64::from(outcome == Outcome::Failed);
        self.note("report", &[number as u64, id, failed]);
        if let Some(job) = &task.job {
            self.nodes[number].engine.loaded(job, task.order.dispatch);
        }
    }

    /// Something in a ring that is no report of a live order.
    fn forge_report(&mut self, number: usize) {
        let now = self.time();
        let (junk, other) = (self.random.next(), self.random.next());
        let node = &mut self.nodes[number];
        let live = node.workers.tasks.values().find(|task| task.order.kind == OrderKind::Save);
        let Some(task) = live else { return };
        let mut receipt = task.order.receipt();
        let rank = task.rank;
        match junk % 3 {
            0 => receipt.dispatch = DispatchId::from_u64(other),
            1 => {
                let generation = receipt.key.generation() + 1;
                let index = receipt.key.index();
                receipt.key = chiasm_core::cache::EntryKey::from_parts(index, generation);
            }
            _ => {
                let rank = Rank::new((rank.as_u16() + 1) % RANKS).unwrap_or(Rank::ZERO);
                node.instance
                    .reported(now, &Report { rank, receipt, outcome: Outcome::Done(None) });
                return;
            }
        }
        node.instance.reported(now, &Report { rank, receipt, outcome: Outcome::Done(None) });
    }

    /// A worker dies. What its device was told to write it may write for a while.
    pub(crate) fn kill_worker(&mut self, number: usize, rank: Rank) {
        let (at, now) = (self.life(number), self.now);
        let empty_until = now + self.random.skewed(1_000_000, 500_000_000);
        let quarantine = u64::try_from(self.setup.quarantine.as_nanos()).unwrap_or(u64::MAX);
        let until = now + self.random.between(1, quarantine);
        let workers = &mut self.nodes[number].workers;
        let Some(seat) = workers.seats.get_mut(rank.index()) else { return };
        if now < seat.empty_until {
            return;
        }
        (seat.process, seat.empty_until) = (seat.process + 1, empty_until);
        let mut dying = Vec::new();
        for (id, task) in &mut workers.tasks {
            // Those of a process that had died before are the device's already.
            if task.rank == rank && !task.committed && task.dying_until.is_none() {
                task.dying_until = Some(until);
                dying.push(*id);
            }
        }
        for task in dying {
            let when = now + self.random.below(until - now + 1);
            self.push(when, Event::Work { at, task });
        }
        // It is looked for four times a second.
        let noticed = now + self.random.below(250_000_000);
        self.push(noticed, Event::WorkerGone { at, rank });
    }

    /// Whether there is a process to give an order to. As at the node, who finds another one than that
    /// which has the earlier orders says first that those are lost.
    fn has_worker(&mut self, number: usize, rank: Rank) -> bool {
        let now = self.now;
        let seats = &self.nodes[number].workers.seats;
        let Some(seat) = seats.get(rank.index()).copied().filter(|it| now >= it.empty_until) else {
            self.tally.count("order without a worker");
            return false;
        };
        if seat.known.is_some_and(|known| known != seat.process) {
            self.tally.count("worker replaced before it was missed");
            self.lose_worker(number, rank);
        }
        if let Some(slot) = self.nodes[number].workers.seats.get_mut(rank.index()) {
            slot.known = Some(seat.process);
        }
        true
    }

    /// The node looks whether a worker that has orders is dead.
    pub(crate) fn worker_gone(&mut self, number: usize, rank: Rank) -> Step {
        let node = &self.nodes[number];
        let seat = node.workers.seats.get(rank.index());
        let gone = seat.is_some_and(|it| self.now < it.empty_until || it.known != Some(it.process));
        if gone && node.instance.dispatches().awaited().has(rank) {
            self.lose_worker(number, rank);
        }
        self.settle(number)
    }

    /// The node says that a worker is dead; what that had committed is taken first.
    fn lose_worker(&mut self, number: usize, rank: Rank) {
        let now = self.time();
        let tasks = self.nodes[number].workers.tasks.iter();
        let committed = tasks.filter(|(_, task)| task.rank == rank && task.committed);
        let committed: Vec<u64> = committed.map(|(id, _)| *id).collect();
        for id in committed {
            self.take_report(number, id);
        }
        let node = &mut self.nodes[number];
        let mut jobs = Vec::new();
        node.workers.tasks.retain(|_, task| {
            let gone = task.dying_until.is_some() && task.rank == rank;
            if let Some(job) = task.job.take_if(|_| gone) {
                jobs.push((job, task.order.dispatch));
            }
            // A dead worker's device writes on; nobody reads on.
            !(gone && (task.order.kind == OrderKind::Load || task.outcome.is_some()))
        });
        if let Some(seat) = node.workers.seats.get_mut(rank.index()) {
            seat.known = None;
        }
        node.instance.worker_gone(now, rank);
        for (job, dispatch) in jobs {
            self.nodes[number].engine.loaded(&job, dispatch);
        }
    }
}

/// An order as it arrives at a worker: through its bytes.
fn carried(order: &Order) -> Step<Order> {
    Order::from_bytes(&order.to_bytes()).map_err(|error| {
        broken(Promise::S7, format!("an order does not survive its bytes: {error}"))
    })
}
