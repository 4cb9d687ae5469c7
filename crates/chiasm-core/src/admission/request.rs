//! The table of requests and of their items. It keeps; it decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use slab::Slab;

use super::reads::ReadId;
use super::{Decision, Item, Offer, Reason};
use crate::cache::EntryKey;
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::time::Nanos;

/// A tracked request. Ordered by age: the oldest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestKey {
    age: u64,
    slot: u32,
}

impl RequestKey {
    /// The item with this index.
    pub(super) fn item(self, index: usize) -> Option<ItemRef> {
        Some(ItemRef { request: self, index: u32::try_from(index).ok()? })
    }
}

/// One item of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemRef {
    pub(super) request: RequestKey,
    pub(super) index: u32,
}

/// What is settled for good about an item's announcement.
#[derive(Clone, Debug)]
pub(super) enum Settled {
    Fallback(Reason),
    Unavailable(Reason),
}

#[derive(Debug)]
pub(super) struct TrackedItem {
    pub(super) item: Item,
    /// Since when it waits: the start of its budget. Kept while a completed read is held for a request
    /// that still waits for others, so that losing it to an older request starts no new budget.
    pub(super) since: Option<Nanos>,
    /// When its timer is set. Only while it waits.
    pub(super) deadline: Option<Nanos>,
    /// The read that it waits for, and how many attempts that had made before.
    pub(super) read: Option<(ReadId, u32)>,
    /// It waits for a local save of its hash.
    pub(super) for_save: bool,
    /// The ready entry that is kept for it.
    pub(super) pin: Option<EntryKey>,
    pub(super) settled: Option<Settled>,
    /// Attempts of the reads that it waited for, the present one excepted.
    pub(super) attempts: u32,
    /// How long it had waited when that ended.
    pub(super) waited: Duration,
    pub(super) plane: Option<Plane>,
}

impl TrackedItem {
    fn new(item: Item) -> Self {
        Self {
            item,
            since: None,
            deadline: None,
            read: None,
            for_save: false,
            pin: None,
            settled: None,
            attempts: 0,
            waited: Duration::ZERO,
            plane: None,
        }
    }

    /// The engine encodes it anyhow, if it is not in the region.
    pub(super) fn may_be_encoded(&self) -> bool {
        self.item.local_input && (self.settled.is_some() || self.item.offer == Offer::None)
    }

    pub(super) fn waits(&self) -> bool {
        self.deadline.is_some()
    }
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Arc<str>,
    pub(super) items: Vec<TrackedItem>,
    /// How many items the engine has named, repeated hashes included.
    pub(super) given: usize,
    /// `num_computed_tokens` of the latest call.
    pub(super) computed: u32,
    /// `decision` holds while the tokens computed are at least the first and less than the second.
    pub(super) holds: (u32, u32),
    pub(super) decision: Decision,
    /// `decision` has to be found anew whatever the tokens.
    pub(super) dirty: bool,
    /// It waits for something that may come without a report to us.
    pub(super) watches: bool,
    /// The engine has been told that it may run: what is pinned for it is promised.
    pub(super) told: bool,
}

impl Request {
    pub(super) fn waits_for_save(&self) -> bool {
        self.items.iter().any(|tracked| tracked.for_save)
    }
}

/// Who has to do with one hash.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pub(super) items: BTreeSet<ItemRef>,
    /// Where an entry came from.
    pub(super) origin: Option<(EntryKey, Endpoint)>,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    table: Slab<(u64, Request)>,
    by_id: IndexMap<Arc<str>, RequestKey>,
    by_hash: IndexMap<MmHash, Interest>,
    next_age: u64,
    items: usize,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Items of all requests.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    pub(super) fn find(&self, id: &str) -> Option<RequestKey> {
        self.by_id.get(id).copied()
    }

    pub(super) fn get(&self, key: RequestKey) -> Option<&Request> {
        self.table.get(key.slot as usize).filter(|(age, _)| *age == key.age).map(|(_, kept)| kept)
    }

    pub(super) fn get_mut(&mut self, key: RequestKey) -> Option<&mut Request> {
        let kept = self.table.get_mut(key.slot as usize).filter(|(age, _)| *age == key.age);
        kept.map(|(_, request)| request)
    }

    pub(super) fn item(&self, at: ItemRef) -> Option<&TrackedItem> {
        self.get(at.request)?.items.get(at.index as usize)
    }

    pub(super) fn item_mut(&mut self, at: ItemRef) -> Option<&mut TrackedItem> {
        self.get_mut(at.request)?.items.get_mut(at.index as usize)
    }

    pub(super) fn interest_mut(&mut self, hash: &MmHash) -> Option<&mut Interest> {
        self.by_hash.get_mut(hash)
    }

    pub(super) fn interest(&self, hash: &str) -> Option<&Interest> {
        self.by_hash.get(hash)
    }

    /// All items of `hash`, oldest request first.
    pub(super) fn items_of(&self, hash: &MmHash) -> Vec<ItemRef> {
        self.by_hash.get(hash).map(|it| it.items.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = RequestKey> {
        self.by_id.values().copied()
    }

    /// A new request without items. The owner has checked the limits.
    pub(super) fn add(&mut self, id: &str) -> RequestKey {
        let id: Arc<str> = id.into();
        let age = self.next_age;
        self.next_age += 1;
        let request = Request {
            id: id.clone(),
            items: Vec::new(),
            given: 0,
            computed: 0,
            holds: (0, 0),
            decision: Decision::Ready,
            dirty: true,
            watches: false,
            told: false,
        };
        let slot = self.table.insert((age, request));
        let slot = u32::try_from(slot).expect("the number of requests is limited");
        let key = RequestKey { age, slot };
        self.by_id.insert(id, key);
        key
    }

    /// Adds the item, or widens the one of the same hash: it is computed only when its last
    /// occurrence is, and can be encoded here only if every occurrence can. What was announced first
    /// stands.
    pub(super) fn add_item(&mut self, key: RequestKey, item: Item) {
        let Some(request) = self.get_mut(key) else { return };
        request.dirty = true;
        if let Some(known) = request.items.iter_mut().find(|known| known.item.hash == item.hash) {
            known.item.end = known.item.end.max(item.end);
            known.item.local_input &= item.local_input;
            return;
        }
        let hash = item.hash.clone();
        let index = u32::try_from(request.items.len()).expect("the number of items is limited");
        request.items.push(TrackedItem::new(item));
        self.items += 1;
        self.by_hash.entry(hash).or_default().items.insert(ItemRef { request: key, index });
    }

    /// Forgets the request. Nothing may be kept for it any more.
    pub(super) fn remove(&mut self, key: RequestKey) {
        if self.get(key).is_none() {
            return;
        }
        let (_, request) = self.table.remove(key.slot as usize);
        self.by_id.swap_remove(&request.id);
        self.items -= request.items.len();
        for (index, tracked) in (0_u32..).zip(&request.items) {
            debug_assert!(tracked.pin.is_none() && tracked.read.is_none() && !tracked.waits());
            if let Some(interest) = self.by_hash.get_mut(&tracked.item.hash) {
                interest.items.remove(&ItemRef { request: key, index });
                if interest.items.is_empty() {
                    self.by_hash.swap_remove(&tracked.item.hash);
                }
            }
        }
    }
}
