//! Room in the region: who waits for it, who holds some meanwhile, and who has to give way.
//!
//! No hold-and-wait: a request starts reading only when all that it misses fits together. Where a
//! guess about room was wrong all the same, the older of two requests takes the completed reads of
//! the younger, and one that waits for a producer that may be dead gives way to all others.

use std::collections::{BTreeMap, BTreeSet};

use super::breaker::Gate;
use super::reads::Phase;
use super::request::{ItemRef, RequestKey};
use super::{Admission, Call};
use crate::cache::{Cache, EntryKey};
use crate::time::Nanos;

#[derive(Debug, Default)]
pub(super) struct Room {
    /// Requests that could start if there were room, oldest first.
    queue: BTreeSet<RequestKey>,
    /// Requests with pinned entries that the engine has not been promised.
    holders: BTreeSet<RequestKey>,
}

impl Room {
    pub(super) fn first(&self) -> Option<RequestKey> {
        self.queue.first().copied()
    }

    pub(super) fn is_queued(&self, key: RequestKey) -> bool {
        self.queue.contains(&key)
    }

    /// Requests that could start if there were room.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn queue(&mut self, key: RequestKey) {
        self.queue.insert(key);
    }

    pub(super) fn unqueue(&mut self, key: RequestKey) {
        self.queue.remove(&key);
    }

    pub(super) fn hold(&mut self, key: RequestKey) {
        self.holders.insert(key);
    }

    pub(super) fn unhold(&mut self, key: RequestKey) {
        self.holders.remove(&key);
    }

    /// Everybody who waits for room, and everybody who holds some meanwhile.
    pub(super) fn all(&self) -> (&BTreeSet<RequestKey>, &BTreeSet<RequestKey>) {
        (&self.queue, &self.holders)
    }
}

/// What is free or can be by eviction.
fn reclaimable(cache: &Cache) -> u64 {
    let usage = cache.usage();
    u64::from(usage.free) + u64::from(usage.evictable)
}

impl Admission {
    pub(super) fn has_room(&self, missing: u64, call: &Call<'_>) -> bool {
        missing + self.reads.reserved() <= reclaimable(call.cache)
    }

    /// The first in line tries again. True if there is a new first.
    pub(super) fn pump_room(&mut self, call: &mut Call<'_>) -> bool {
        let Some(first) = self.room.first() else { return false };
        self.evaluate(first, call);
        self.room.first() != Some(first)
    }

    /// Whether some item of the request waits for something that may not come for long.
    pub(super) fn is_stalled(&self, key: RequestKey, now: Nanos) -> bool {
        let Some(request) = self.requests.get(key) else { return false };
        request.items.iter().any(|tracked| {
            let read = tracked.read.and_then(|(id, _)| self.reads.get(id));
            tracked.for_save
                || read.is_some_and(|read| match read.phase {
                    Phase::Reading { .. } => false,
                    Phase::Asking { reserved_until, .. } => reserved_until.is_none(),
                    Phase::Pause { until } if until > now => true,
                    Phase::Pause { .. } | Phase::Idle => {
                        let source = self.reads.source(&read.wanted.source);
                        let limit = self.config.max_transfers_per_source.max(1);
                        source.is_some_and(|source| source.under_way >= limit)
                            || self.breakers.gate(now, &read.wanted.source) != Gate::Closed
                    }
                })
        })
    }

    /// Drops completed reads that are held only for requests that come after this one, if that makes
    /// enough room; else none. Those requests read them again.
    pub(super) fn make_room(
        &mut self,
        key: RequestKey,
        missing: u64,
        stalled: bool,
        call: &mut Call<'_>,
    ) -> bool {
        let short = (missing + self.reads.reserved()).saturating_sub(reclaimable(call.cache));
        let mut held: BTreeMap<EntryKey, Vec<ItemRef>> = BTreeMap::new();
        let mut victims: Vec<EntryKey> = Vec::new();
        let mut gain = 0_u64;
        for &holder in self.room.holders.iter().rev() {
            if gain >= short {
                break;
            }
            if holder == key || (self.is_stalled(holder, call.now), holder) < (stalled, key) {
                continue;
            }
            let Some(request) = self.requests.get(holder) else { continue };
            for (index, tracked) in request.items.iter().enumerate() {
                self.steps += 1;
                let (Some(entry), Some(at)) = (tracked.pin, holder.item(index)) else { continue };
                let pins = held.entry(entry).or_default();
                pins.push(at);
                let Some(kept) = call.cache.entry(entry) else { continue };
                if kept.pins() as usize == pins.len() {
                    gain += u64::from(kept.blocks());
                    victims.push(entry);
                }
            }
        }
        if gain < short {
            return false;
        }
        for entry in victims {
            for at in held.remove(&entry).unwrap_or_default() {
                self.unpin(at, call);
                self.pending.insert(at.request);
            }
            let evicted = call.cache.evict(entry);
            debug_assert!(evicted.is_ok(), "all of its pins were given back");
        }
        true
    }
}
