//! What can be seen from outside: per item for `chiasm fetch` and the plug-in, in sum for status.

use std::time::Duration;

use super::request::{RequestKey, Settled};
use super::{Admission, Decision, Offer, Reason};
use crate::cache::{Cache, EntryKey};
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::time::Nanos;

/// How one item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Its tokens are computed; nothing is kept for it.
    Computed,
    /// It is in the region and pinned.
    Ready,
    /// It was never announced and is not in the region: the engine encodes it.
    NotAnnounced,
    /// It is waited for.
    Waiting,
    /// It was announced, but the engine has to encode it.
    Fallback,
    /// Its request has failed, because of it if there is a reason.
    Unavailable,
}

/// How one item stands, and how that came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReport<'a> {
    /// The item.
    pub hash: &'a MmHash,
    /// How it stands.
    pub verdict: Verdict,
    /// Why it fell back, or why its request failed.
    pub reason: Option<&'a Reason>,
    /// The producer that it names, approved or not; none if the announcement is invalid.
    pub source: Option<&'a Endpoint>,
    /// Attempts that were made while it waited.
    pub attempts: u32,
    /// How long it has waited, or had when that ended.
    pub waited: Duration,
    /// The plane that brought it, if it waited for that.
    pub plane: Option<Plane>,
    /// The entry that is pinned for it.
    pub entry: Option<EntryKey>,
}

/// How often an item's entry was in the region at once. Items that the engine encodes without having
/// waited count in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Items whose entry was there.
    pub hits: u64,
    /// Items that had to wait: for a read, or for a save that was under way.
    pub misses: u64,
}

impl Admission {
    /// How each item of the request stands, in the order in which they were named; nothing if the
    /// request is not known.
    pub fn report(&self, now: Nanos, id: &str) -> impl Iterator<Item = ItemReport<'_>> {
        let request = self.requests.find(id).and_then(|key| self.requests.get(key));
        request.into_iter().flat_map(move |request| {
            request.items.iter().map(move |tracked| {
                let reason = match &tracked.settled {
                    Some(Settled::Fallback(reason) | Settled::Unavailable(reason)) => Some(reason),
                    None => None,
                };
                let verdict = if request.decision == Decision::Unavailable {
                    Verdict::Unavailable
                } else if tracked.pin.is_some() {
                    Verdict::Ready
                } else if tracked.item.end <= request.computed {
                    Verdict::Computed
                } else if tracked.settled.is_some() {
                    Verdict::Fallback
                } else if tracked.item.offer == Offer::None && !tracked.waits() {
                    Verdict::NotAnnounced
                } else {
                    Verdict::Waiting
                };
                let reading = tracked
                    .read
                    .and_then(|(id, over)| Some(self.reads.get(id)?.attempts.saturating_sub(over)));
                let since = tracked.since.filter(|_| tracked.waits());
                ItemReport {
                    hash: &tracked.item.hash,
                    verdict,
                    reason,
                    source: match &tracked.item.offer {
                        Offer::Remote(wanted) => Some(&wanted.source),
                        Offer::None | Offer::Invalid(_) => None,
                    },
                    attempts: tracked.attempts.saturating_add(reading.unwrap_or(0)),
                    waited: since.map_or(tracked.waited, |since| now.since(since)),
                    plane: tracked.plane,
                    entry: tracked.pin,
                }
            })
        })
    }

    /// The items of the request that the engine has to encode although they were announced. Once
    /// named, an item stays named: its announcement is never tried again for this request.
    pub fn fell_back(&self, id: &str) -> impl Iterator<Item = &MmHash> {
        let request = self.requests.find(id).and_then(|key| self.requests.get(key));
        let items = request.into_iter().flat_map(|request| &request.items);
        items
            .filter(|tracked| matches!(tracked.settled, Some(Settled::Fallback(_))))
            .map(|tracked| &tracked.item.hash)
    }

    /// Requests that are tracked.
    #[must_use]
    pub fn tracked_requests(&self) -> usize {
        self.requests.len()
    }

    /// Items, of all requests, that wait now.
    #[must_use]
    pub fn waiting_items(&self) -> usize {
        self.timers.budgets()
    }

    /// Requests that could start reading if there were room in the region.
    #[must_use]
    pub fn waiting_for_room(&self) -> usize {
        self.room.queued()
    }

    /// How looking for items' entries has gone since the start.
    #[must_use]
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Attempts since the start that were not the first of their read.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.reads.retries()
    }

    /// Endpoints that are approved.
    #[must_use]
    pub fn allowed_endpoints(&self) -> usize {
        self.allowlist.len()
    }

    /// Reads that somebody waits for or that are under way.
    #[must_use]
    pub fn live_reads(&self) -> usize {
        self.reads.len()
    }

    /// Transfers under way.
    #[must_use]
    pub fn live_transfers(&self) -> usize {
        self.reads.transfers()
    }

    /// Blocks that unanswered attempts hold as reserved.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.reads.reserved()
    }

    /// Whether everything that must hold between calls does: an item waits exactly if its timer runs,
    /// for exactly one thing; pins are those of entries that are there; a failed request keeps nothing
    /// (S5, S6). For tests and the simulator. Costs time in proportion to everything.
    pub fn check(&self, cache: &Cache) -> Result<(), String> {
        self.check_waiting()?;
        self.reads.check()?;
        for key in self.requests.keys() {
            self.check_request(key, cache)?;
        }
        let (queue, holders) = self.room.all();
        for key in queue {
            let request = self.requests.get(*key).ok_or("one who is gone waits for room")?;
            if request.decision != Decision::Wait {
                return Err(format!("{} waits for room, but {:?}", request.id, request.decision));
            }
        }
        for key in holders {
            let request = self.requests.get(*key).ok_or("one who is gone holds room")?;
            if request.told {
                return Err(format!("{} could lose what it has been promised", request.id));
            }
        }
        Ok(())
    }

    fn check_request(&self, key: RequestKey, cache: &Cache) -> Result<(), String> {
        let request = self.requests.get(key).ok_or("an id leads to no request")?;
        let id = &request.id;
        for tracked in &request.items {
            let hash = &tracked.item.hash;
            let waits_for = usize::from(tracked.read.is_some()) + usize::from(tracked.for_save);
            if waits_for != usize::from(tracked.waits()) {
                return Err(format!("{id} {hash}: waits for {waits_for} things: {tracked:?}"));
            }
            if tracked.waits() && (tracked.pin.is_some() || tracked.settled.is_some()) {
                return Err(format!("{id} {hash}: waits and is resolved: {tracked:?}"));
            }
            if tracked.waits() && !request.dirty && request.decision != Decision::Wait {
                return Err(format!("{id} {hash}: waits, but {:?}", request.decision));
            }
            let entry = tracked.pin.map(|pin| cache.entry(pin));
            if entry.is_some_and(|entry| entry.is_none_or(|entry| entry.pins() == 0)) {
                return Err(format!("{id} {hash}: pinned, but the entry is not"));
            }
            if request.decision == Decision::Unavailable && tracked.pin.is_some() {
                return Err(format!("{id} {hash}: failed and keeps an entry"));
            }
        }
        Ok(())
    }

    fn check_waiting(&self) -> Result<(), String> {
        let requests = self.requests.keys().filter_map(|key| self.requests.get(key));
        let items = requests.flat_map(|request| &request.items);
        let waiting = items.filter(|tracked| tracked.waits()).count();
        if waiting == self.waiting_items() {
            Ok(())
        } else {
            Err(format!("{waiting} items wait, {} budgets run", self.waiting_items()))
        }
    }
}
