//! In which order evictable entries go. It knows keys only; whether an entry is evictable is the
//! cache's to say.

use std::collections::BTreeMap;

use super::key::EntryKey;

/// Which evictable entry goes first. A further policy is a further arm of `rank`, once it is measured
/// that it helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// The entry that has been evictable for longest, as upstream does it: becoming ready and losing
    /// the last pin put an entry at the end, a lookup does not move it.
    #[default]
    Fifo,
}

impl EvictionPolicy {
    /// Entries of lower rank go first; `sequence` counts the entries that became evictable.
    const fn rank(self, sequence: u64) -> u64 {
        match self {
            Self::Fifo => sequence,
        }
    }
}

/// An entry's place in the order. Unique, because of the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    rank: u64,
    sequence: u64,
}

/// The evictable entries, first to go first.
#[derive(Clone, Debug)]
pub(super) struct EvictionOrder {
    policy: EvictionPolicy,
    queue: BTreeMap<Ticket, EntryKey>,
    sequence: u64,
}

impl EvictionOrder {
    pub(super) const fn new(policy: EvictionPolicy) -> Self {
        Self { policy, queue: BTreeMap::new(), sequence: 0 }
    }

    /// Takes in an entry that has become evictable.
    pub(super) fn insert(&mut self, key: EntryKey) -> Ticket {
        self.sequence += 1;
        let ticket = Ticket { rank: self.policy.rank(self.sequence), sequence: self.sequence };
        self.queue.insert(ticket, key);
        ticket
    }

    /// Takes out an entry that is pinned or gone.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        let key = self.queue.remove(&ticket);
        assert!(key.is_some(), "an evictable entry stands in the order of eviction");
    }

    /// The entry that goes next.
    pub(super) fn next(&self) -> Option<EntryKey> {
        self.queue.first_key_value().map(|(_, &key)| key)
    }

    pub(super) fn holds(&self, ticket: Ticket, key: EntryKey) -> bool {
        self.queue.get(&ticket) == Some(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
