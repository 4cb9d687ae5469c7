//! The table of reads: one per form of an entry and source, whoever waits for it.
//!
//! A read lives from the first item that waits for it to the last, over as many attempts as it takes.
//! At most one transfer of it is under way.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use super::request::{ItemRef, RequestKey};
use crate::consumer::{FailureReason, TransferId, Wanted};
use crate::endpoint::Endpoint;
use crate::time::Nanos;

/// One read. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ReadId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// May be asked for as soon as a request that waits for it has room.
    Idle,
    /// Not before `until`.
    Pause { until: Nanos },
    /// The producer is asked, for the `number`th time that any is. While `reserved_until` is set, its
    /// blocks count as taken.
    Asking { transfer: TransferId, number: u64, reserved_until: Option<Nanos> },
    /// The producer has agreed: the cache counts its blocks.
    Reading { transfer: TransferId, number: u64 },
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) wanted: Wanted,
    pub(super) waiters: BTreeSet<ItemRef>,
    pub(super) phase: Phase,
    /// Attempts that were started.
    pub(super) attempts: u32,
    /// Pauses so far: each is longer than the one before.
    pub(super) pauses: u32,
    /// A plane did not reach the producer, and another one was tried at once.
    pub(super) switched: bool,
    /// It has ended wrong once.
    pub(super) wrong: bool,
    pub(super) last: Option<FailureReason>,
}

impl Read {
    pub(super) fn under_way(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. } | Phase::Reading { .. })
    }

    /// Attempts that were over before now, for an item that begins to wait.
    pub(super) fn attempts_over(&self) -> u32 {
        self.attempts - u32::from(self.under_way())
    }
}

/// One producer as far as reads are concerned.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) reads: BTreeSet<ReadId>,
    pub(super) under_way: usize,
    /// Requests that wait for a transfer of others to end, or for the breaker.
    pub(super) waiting: BTreeSet<RequestKey>,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    table: BTreeMap<ReadId, Read>,
    by_wanted: IndexMap<Wanted, ReadId>,
    by_transfer: BTreeMap<TransferId, ReadId>,
    by_source: BTreeMap<Endpoint, Source>,
    next: u64,
    /// Blocks of all attempts that hold room without the cache knowing.
    reserved: u64,
    /// Attempts that were not the first of their read.
    retries: u64,
    /// Attempts of all reads since the start. The latest one has this number.
    begun: u64,
}

impl Reads {
    pub(super) fn get(&self, id: ReadId) -> Option<&Read> {
        self.table.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ReadId) -> Option<&mut Read> {
        self.table.get_mut(&id)
    }

    pub(super) fn source(&self, source: &Endpoint) -> Option<&Source> {
        self.by_source.get(source)
    }

    pub(super) fn source_mut(&mut self, source: &Endpoint) -> Option<&mut Source> {
        self.by_source.get_mut(source)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &Endpoint> {
        self.by_source.keys()
    }

    pub(super) fn of_source(&self, source: &Endpoint) -> Vec<ReadId> {
        self.by_source.get(source).map(|it| it.reads.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// The number of the latest attempt: whatever fails now, it had begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn transfers(&self) -> usize {
        self.by_transfer.len()
    }

    /// The read of this, made if there is none; `at` waits for it from now on. Gives it and how many
    /// of its attempts are over.
    pub(super) fn join(&mut self, wanted: &Wanted, at: ItemRef) -> (ReadId, u32) {
        let id = match self.by_wanted.get(wanted) {
            Some(id) => *id,
            None => self.add(wanted),
        };
        let read = self.table.get_mut(&id).expect("a read by its form is in the table");
        read.waiters.insert(at);
        (id, read.attempts_over())
    }

    fn add(&mut self, wanted: &Wanted) -> ReadId {
        let id = ReadId(self.next);
        self.next += 1;
        let read = Read {
            wanted: wanted.clone(),
            waiters: BTreeSet::new(),
            phase: Phase::Idle,
            attempts: 0,
            pauses: 0,
            switched: false,
            wrong: false,
            last: None,
        };
        self.table.insert(id, read);
        self.by_wanted.insert(wanted.clone(), id);
        self.by_source.entry(wanted.source.clone()).or_default().reads.insert(id);
        id
    }

    /// Forgets a read that nobody waits for and of which nothing is under way.
    pub(super) fn remove(&mut self, id: ReadId) {
        let Some(read) = self.table.remove(&id) else { return };
        debug_assert!(read.waiters.is_empty() && !read.under_way());
        self.by_wanted.swap_remove(&read.wanted);
        if let Some(source) = self.by_source.get_mut(&read.wanted.source) {
            source.reads.remove(&id);
            if source.reads.is_empty() {
                self.by_source.remove(&read.wanted.source);
            }
        }
    }

    /// An attempt of the read is under way; its blocks are reserved until then.
    pub(super) fn asking(&mut self, id: ReadId, transfer: TransferId, reserved_until: Nanos) {
        let Some(read) = self.table.get_mut(&id) else { return };
        debug_assert!(!read.under_way());
        self.begun += 1;
        let number = self.begun;
        read.phase = Phase::Asking { transfer, number, reserved_until: Some(reserved_until) };
        self.retries += u64::from(read.attempts > 0);
        read.attempts = read.attempts.saturating_add(1);
        self.reserved += u64::from(read.wanted.blocks);
        self.by_transfer.insert(transfer, id);
        if let Some(source) = self.by_source.get_mut(&read.wanted.source) {
            source.under_way += 1;
        }
    }

    pub(super) fn by_transfer(&self, transfer: TransferId) -> Option<ReadId> {
        self.by_transfer.get(&transfer).copied()
    }

    /// The attempt's blocks do not count any more, or the cache counts them. Gives the timer that was
    /// set for it.
    pub(super) fn unreserve(&mut self, id: ReadId) -> Option<Nanos> {
        let read = self.table.get_mut(&id)?;
        let Phase::Asking { reserved_until, .. } = &mut read.phase else { return None };
        let until = reserved_until.take()?;
        self.reserved -= u64::from(read.wanted.blocks);
        Some(until)
    }

    /// The attempt is over, or given up. Its room must have been [unreserved](Self::unreserve). Gives it
    /// with its number.
    pub(super) fn over(&mut self, id: ReadId) -> Option<(TransferId, u64)> {
        let read = self.table.get_mut(&id)?;
        let (Phase::Asking { transfer, number, .. } | Phase::Reading { transfer, number }) =
            read.phase
        else {
            return None;
        };
        debug_assert!(!matches!(read.phase, Phase::Asking { reserved_until: Some(_), .. }));
        read.phase = Phase::Idle;
        self.by_transfer.remove(&transfer);
        if let Some(source) = self.by_source.get_mut(&read.wanted.source) {
            source.under_way -= 1;
        }
        Some((transfer, number))
    }

    /// Whether everything that must hold between calls does.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut reserved = 0;
        let mut under_way = 0;
        for (id, read) in &self.table {
            if read.waiters.is_empty() && !matches!(read.phase, Phase::Reading { .. }) {
                return Err(format!("{id:?}: nobody waits for it"));
            }
            if self.by_wanted.get(&read.wanted) != Some(id) {
                return Err(format!("{id:?}: not found by its form"));
            }
            if let Phase::Asking { reserved_until: Some(_), .. } = read.phase {
                reserved += u64::from(read.wanted.blocks);
            }
            under_way += usize::from(read.under_way());
        }
        if reserved != self.reserved {
            return Err(format!("{reserved} blocks reserved, {} on the books", self.reserved));
        }
        let by_source: usize = self.by_source.values().map(|source| source.under_way).sum();
        if under_way != by_source || under_way != self.by_transfer.len() {
            return Err(format!("{under_way} under way, {by_source} on the books of sources"));
        }
        Ok(())
    }
}
