//! Who owns which blocks: entries, their states and pins, allocation and eviction.
//!
//! Bookkeeping only. It never touches a byte, never reads a clock and never frees a block that
//! something may still read (a pin) or write (not ready, quarantined). What goes wrong is a value,
//! except a broken invariant of its own, which panics.

mod check;
mod entry;
mod error;
mod eviction;
mod holes;
mod key;
mod usage;

use indexmap::IndexMap;
use slab::Slab;

pub use self::entry::{Entry, EntryState};
pub use self::error::{PublishError, ReserveError, StateError};
pub use self::eviction::EvictionPolicy;
pub use self::key::EntryKey;
pub use self::usage::Usage;

use self::eviction::EvictionOrder;
use self::holes::Holes;
use crate::digest::Digest;
use crate::entry::EntryMeta;
use crate::mm_hash::MmHash;

/// An entry that had to go so that another could come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key, now unknown.
    pub key: EntryKey,
    /// Its hash.
    pub hash: MmHash,
    /// How many blocks it had.
    pub blocks: u32,
}

/// The blocks of one region and the entries that they belong to.
///
/// ```text
/// reserve -> not ready -- mark_ready --> ready <-> pinned
/// stage   -> not ready -- publish ----->   |
///               |  |                       evict, or evicted by reserve and stage
///         discard  quarantine -> quarantined -> release_quarantined
/// ```
///
/// Every operation costs time that depends neither on the number of blocks of the region nor on that
/// of the entry: a few searches in trees of holes and entries for each of at most
/// [`MAX_EXTENTS`](crate::limits::MAX_EXTENTS) extents, and as much again for each entry that it
/// evicts.
#[derive(Clone, Debug)]
pub struct Cache {
    total: u32,
    entries: Slab<Entry>,
    key_by_hash: IndexMap<MmHash, EntryKey>,
    /// Evictable entries. All others are held.
    order: EvictionOrder,
    /// Blocks of no entry.
    free: Holes,
    /// Blocks of no entry and of evictable ones: what could be free if everything that may go went.
    /// It answers whether an allocation can succeed before anything is evicted for it.
    reclaimable: Holes,
    generation: u64,
    pinned_entries: usize,
    quarantined_entries: usize,
    quarantined_blocks: u32,
    evicted: Vec<Evicted>,
    evictions: u64,
}

impl Cache {
    /// An empty cache of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32, policy: EvictionPolicy) -> Self {
        Self {
            total: blocks,
            entries: Slab::new(),
            key_by_hash: IndexMap::new(),
            order: EvictionOrder::new(policy),
            free: Holes::new(blocks),
            reclaimable: Holes::new(blocks),
            generation: 0,
            pinned_entries: 0,
            quarantined_entries: 0,
            quarantined_blocks: 0,
            evicted: Vec::new(),
            evictions: 0,
        }
    }

    /// Makes the entry of a local save. Its hash leads to it at once, so a second save of the hash is
    /// a duplicate, and a peer that asks for it is told that it is not ready.
    ///
    /// The blocks are one extent whenever a hole allows, else as few as possible. Entries are evicted
    /// in order, no more than needed, also where the free blocks lie too scattered for
    /// [`MAX_EXTENTS`](crate::limits::MAX_EXTENTS); none if even that would not be enough.
    /// [`evicted`](Self::evicted) tells which. An entry of no blocks has no extents.
    pub fn reserve(
        &mut self,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
    ) -> Result<EntryKey, ReserveError> {
        if let Some(&key) = self.key_by_hash.get(hash) {
            self.evicted = Vec::new();
            return Err(ReserveError::Duplicate { key });
        }
        let key = self.allocate(hash, meta, blocks)?;
        self.existing(key).published = true;
        self.key_by_hash.insert(hash.clone(), key);
        Ok(key)
    }

    /// Makes the staging entry of a remote read. Its hash does not lead to it before it is
    /// [published](Self::publish); several of one hash may exist. Room is made as in
    /// [`reserve`](Self::reserve); never a duplicate.
    pub fn stage(
        &mut self,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
    ) -> Result<EntryKey, ReserveError> {
        self.allocate(hash, meta, blocks)
    }

    /// All bytes of a local save have landed (S3): the entry is ready and evictable.
    pub fn mark_ready(&mut self, key: EntryKey, digest: Option<Digest>) -> Result<(), StateError> {
        let entry = self.not_ready(key)?;
        if !entry.published {
            return Err(StateError::Unpublished(key));
        }
        entry.digest = digest;
        self.become_ready(key);
        Ok(())
    }

    /// All bytes of a remote read have landed and match (S3): the staging entry is ready, evictable
    /// and found by its hash.
    pub fn publish(&mut self, key: EntryKey, digest: Option<Digest>) -> Result<(), PublishError> {
        let entry = self.not_ready(key)?;
        if entry.published {
            return Err(StateError::NotStaged(key).into());
        }
        let hash = entry.hash.clone();
        if let Some((other, named)) = self.find(hash.as_str()) {
            return Err(match named.state {
                EntryState::Ready => PublishError::AlreadyPublished(other),
                EntryState::NotReady | EntryState::Quarantined => PublishError::SavePending(other),
            });
        }
        self.key_by_hash.insert(hash, key);
        let entry = self.existing(key);
        entry.published = true;
        entry.digest = digest;
        self.become_ready(key);
        Ok(())
    }

    /// Ends an entry that is not ready and that nothing writes into: all its blocks are free at once.
    pub fn discard(&mut self, key: EntryKey) -> Result<(), StateError> {
        self.not_ready(key)?;
        self.remove(key);
        Ok(())
    }

    /// Gives up an entry that is not ready while something may still write into it. Its hash is free
    /// for another entry; its blocks stay taken until they are
    /// [released](Self::release_quarantined).
    pub fn quarantine(&mut self, key: EntryKey) -> Result<(), StateError> {
        let entry = self.not_ready(key)?;
        entry.state = EntryState::Quarantined;
        let blocks = entry.blocks;
        self.unpublish(key);
        self.quarantined_entries += 1;
        self.quarantined_blocks += blocks;
        Ok(())
    }

    /// Nothing can write into a quarantined entry any more: its blocks are free.
    pub fn release_quarantined(&mut self, key: EntryKey) -> Result<(), StateError> {
        let entry = self.known(key)?;
        if entry.state != EntryState::Quarantined {
            return Err(StateError::NotQuarantined(key));
        }
        let entry = self.remove(key);
        self.quarantined_entries -= 1;
        self.quarantined_blocks -= entry.blocks;
        Ok(())
    }

    /// Keeps a ready entry from eviction until it is unpinned as often as it was pinned.
    pub fn pin(&mut self, key: EntryKey) -> Result<(), StateError> {
        let entry = self.ready(key)?;
        entry.pins = entry.pins.checked_add(1).ok_or(StateError::TooManyPins(key))?;
        if entry.pins == 1 {
            self.pinned_entries += 1;
            self.leave_order(key);
        }
        Ok(())
    }

    /// Takes back one pin. The last one makes the entry evictable, as the youngest.
    pub fn unpin(&mut self, key: EntryKey) -> Result<(), StateError> {
        let entry = self.ready(key)?;
        entry.pins = entry.pins.checked_sub(1).ok_or(StateError::NotPinned(key))?;
        if entry.pins == 0 {
            self.pinned_entries -= 1;
            self.enter_order(key);
        }
        Ok(())
    }

    /// Removes a ready entry that nobody has pinned, out of turn.
    pub fn evict(&mut self, key: EntryKey) -> Result<(), StateError> {
        if self.ready(key)?.pins > 0 {
            return Err(StateError::Pinned(key));
        }
        self.leave_order(key);
        self.remove(key);
        Ok(())
    }

    /// The entry that `hash` leads to, ready or not.
    #[must_use]
    pub fn find(&self, hash: &str) -> Option<(EntryKey, &Entry)> {
        let &key = self.key_by_hash.get(hash)?;
        Some((key, self.entry(key)?))
    }

    /// The entry of `key`, in whatever state; `None` if it is gone.
    #[must_use]
    pub fn entry(&self, key: EntryKey) -> Option<&Entry> {
        self.entries.get(key.index() as usize).filter(|entry| entry.generation == key.generation())
    }

    /// Every entry, in whatever state, by slot. For tests and the simulator: it costs time in
    /// proportion to the entries.
    pub fn entries(&self) -> impl Iterator<Item = (EntryKey, &Entry)> {
        self.entries.iter().filter_map(|(index, entry)| {
            let index = u32::try_from(index).ok()?;
            Some((EntryKey::from_parts(index, entry.generation), entry))
        })
    }

    /// Which entries the latest [`reserve`](Self::reserve) or [`stage`](Self::stage) evicted, in
    /// order. Nobody has to collect them: the next such call begins a new list.
    #[must_use]
    pub fn evicted(&self) -> &[Evicted] {
        &self.evicted
    }

    /// Entries that were evicted since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether `blocks` are free or can be by eviction. Exact for the sum of what several entries
    /// need; a single one can still be refused where what is in use is badly scattered.
    #[must_use]
    pub fn can_fit_now(&self, blocks: u32) -> bool {
        blocks <= self.reclaimable.blocks()
    }

    /// Whether any entry is not ready, pinned or quarantined. If not, the cache is at rest in the
    /// sense of S4: every block is free or belongs to a ready entry that may go.
    #[must_use]
    pub fn has_held_entries(&self) -> bool {
        self.entries.len() > self.order.len()
    }

    /// The counters, at no cost that grows with anything.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let free = self.free.blocks();
        Usage {
            total: self.total,
            free,
            live: self.total - free - self.quarantined_blocks,
            quarantined: self.quarantined_blocks,
            evictable: self.reclaimable.blocks() - free,
            entries: self.entries.len() - self.quarantined_entries,
            pinned_entries: self.pinned_entries,
        }
    }

    /// Work done since the start, for tests of cost: one step is a search, insertion or removal in a
    /// tree of holes, a hole looked at, or an entry evicted.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.free.steps() + self.reclaimable.steps() + self.evictions
    }

    fn allocate(
        &mut self,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
    ) -> Result<EntryKey, ReserveError> {
        self.evicted = Vec::new();
        if blocks > self.total {
            return Err(ReserveError::TooLarge { needed: blocks, region: self.total });
        }
        let no_slot = self.has_all_entries() && self.order.len() == 0;
        if no_slot || !self.reclaimable.can_hold(blocks) {
            let Usage { free, evictable, .. } = self.usage();
            return Err(ReserveError::Full { needed: blocks, free, evictable });
        }
        let extents = loop {
            if !self.has_all_entries()
                && let Some(extents) = self.free.plan(blocks)
            {
                break extents;
            }
            self.evict_next();
        };
        for &extent in &extents {
            self.free.take(extent);
            self.reclaimable.take(extent);
        }
        self.generation += 1;
        let index = self.entries.insert(Entry {
            generation: self.generation,
            hash: hash.clone(),
            meta,
            extents: extents.into_boxed_slice(),
            blocks,
            state: EntryState::NotReady,
            published: false,
            pins: 0,
            digest: None,
            ticket: None,
        });
        let index = u32::try_from(index).expect("entries are capped by blocks");
        Ok(EntryKey::from_parts(index, self.generation))
    }

    /// As many entries as blocks: only entries of no blocks get there, and without a cap a client
    /// could make any number of them.
    fn has_all_entries(&self) -> bool {
        self.entries.len() >= self.total.max(1) as usize
    }

    fn evict_next(&mut self) {
        let key =
            self.order.next().expect("what is reclaimable is free when all that may go is gone");
        self.evictions += 1;
        self.leave_order(key);
        let entry = self.remove(key);
        self.evicted.push(Evicted { key, hash: entry.hash, blocks: entry.blocks });
    }

    fn become_ready(&mut self, key: EntryKey) {
        self.existing(key).state = EntryState::Ready;
        self.enter_order(key);
    }

    fn enter_order(&mut self, key: EntryKey) {
        let ticket = self.order.insert(key);
        let entry = &mut self.entries[key.index() as usize];
        entry.ticket = Some(ticket);
        for &extent in &entry.extents {
            self.reclaimable.put_back(extent);
        }
    }

    fn leave_order(&mut self, key: EntryKey) {
        let entry = &mut self.entries[key.index() as usize];
        let ticket = entry.ticket.take().expect("an entry without pins has its place in the order");
        self.order.remove(ticket);
        for &extent in &entry.extents {
            self.reclaimable.take(extent);
        }
    }

    /// Ends an entry that stands in no order, and frees its blocks.
    fn remove(&mut self, key: EntryKey) -> Entry {
        self.unpublish(key);
        let entry = self.entries.remove(key.index() as usize);
        assert!(entry.pins == 0, "a pinned entry keeps its blocks (S2)");
        for &extent in &entry.extents {
            self.free.put_back(extent);
            self.reclaimable.put_back(extent);
        }
        entry
    }

    fn unpublish(&mut self, key: EntryKey) {
        let entry = &mut self.entries[key.index() as usize];
        if entry.published {
            entry.published = false;
            let named = self.key_by_hash.swap_remove(&entry.hash);
            assert!(named == Some(key), "a published entry has its name");
        }
    }

    /// The entry of a key that was checked in the same operation.
    fn existing(&mut self, key: EntryKey) -> &mut Entry {
        &mut self.entries[key.index() as usize]
    }

    fn known(&mut self, key: EntryKey) -> Result<&mut Entry, StateError> {
        self.entries
            .get_mut(key.index() as usize)
            .filter(|entry| entry.generation == key.generation())
            .ok_or(StateError::UnknownKey(key))
    }

    fn not_ready(&mut self, key: EntryKey) -> Result<&mut Entry, StateError> {
        let entry = self.known(key)?;
        match entry.state {
            EntryState::NotReady => Ok(entry),
            EntryState::Ready => Err(StateError::AlreadyReady(key)),
            EntryState::Quarantined => Err(StateError::Quarantined(key)),
        }
    }

    fn ready(&mut self, key: EntryKey) -> Result<&mut Entry, StateError> {
        let entry = self.known(key)?;
        match entry.state {
            EntryState::Ready => Ok(entry),
            EntryState::NotReady => Err(StateError::NotReady(key)),
            EntryState::Quarantined => Err(StateError::Quarantined(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By field, since four billion calls would be a slow way to get there.
    #[test]
    fn pins_do_not_wrap_to_none() {
        let mut cache = Cache::new(1, EvictionPolicy::Fifo);
        let meta = EntryMeta { rows: 1, width: 1, dtype: None, bytes: 1 };
        let key = cache.reserve(&MmHash::new("a").unwrap(), meta, 1).unwrap();
        cache.mark_ready(key, None).unwrap();
        cache.pin(key).unwrap();
        cache.existing(key).pins = u32::MAX;
        assert_eq!(cache.pin(key), Err(StateError::TooManyPins(key)));
        assert_eq!(cache.entry(key).unwrap().pins(), u32::MAX);
        cache.check().unwrap();
    }
}
