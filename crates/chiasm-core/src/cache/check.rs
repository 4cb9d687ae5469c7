//! The cache's invariants, recomputed from scratch. For tests and the simulator; never on a path that
//! serves.

use super::{Cache, EntryKey, EntryState};
use crate::extent::{Extent, blocks_in};
use crate::limits::MAX_EXTENTS;

/// Fails with `$message` unless `$condition`.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

impl Cache {
    /// Whether everything that must hold between calls does (S2, S3, S4): each block is in exactly
    /// one hole or entry, the counters are the sums of what they count, an entry is evictable exactly
    /// if it is ready and has no pin, and a hash leads to its one published entry. The error says
    /// what does not hold. Costs time in proportion to entries and holes.
    pub fn check(&self) -> Result<(), String> {
        let (mut published, mut evictable, mut pinned, mut quarantined) = (0, 0, 0, 0);
        let (mut live_blocks, mut quarantined_blocks) = (0_u64, 0_u64);
        let mut taken: Vec<Extent> = Vec::new();
        let mut reclaimable: Vec<Extent> = self.free.iter().collect();
        for (index, entry) in &self.entries {
            let index = u32::try_from(index).map_err(|_| "index past 32 bits".to_owned())?;
            let key = EntryKey::from_parts(index, entry.generation);
            let extents = &entry.extents;
            ensure!(extents.len() <= MAX_EXTENTS, "{key}: {} extents", extents.len());
            ensure!(
                extents.is_sorted_by(|left, right| left.end() < right.first()),
                "{key}: {extents:?} are not ascending or touch"
            );
            ensure!(
                blocks_in(extents) == u64::from(entry.blocks),
                "{key}: {extents:?} are not {} blocks",
                entry.blocks
            );
            ensure!(
                entry.pins == 0 || entry.state == EntryState::Ready,
                "{key}: pinned and {:?}",
                entry.state
            );
            taken.extend_from_slice(extents);

            let may_go = entry.state == EntryState::Ready && entry.pins == 0;
            ensure!(
                entry.ticket.is_some_and(|ticket| self.order.holds(ticket, key)) == may_go
                    && entry.ticket.is_some() == may_go,
                "{key}: {:?} with {} pins and ticket {:?}",
                entry.state,
                entry.pins,
                entry.ticket
            );
            if may_go {
                evictable += 1;
                reclaimable.extend_from_slice(extents);
            }
            pinned += usize::from(entry.pins > 0);

            let named = self.key_by_hash.get(&entry.hash) == Some(&key);
            ensure!(named == entry.published, "{key}: published {}", entry.published);
            published += usize::from(named);
            match entry.state {
                EntryState::Quarantined => {
                    ensure!(!named, "{key}: quarantined and found by its hash");
                    quarantined += 1;
                    quarantined_blocks += u64::from(entry.blocks);
                }
                EntryState::Ready => {
                    ensure!(named, "{key}: ready and not found by its hash");
                    live_blocks += u64::from(entry.blocks);
                }
                EntryState::NotReady => live_blocks += u64::from(entry.blocks),
            }
        }
        ensure!(published == self.key_by_hash.len(), "a hash leads to an entry that is gone");
        ensure!(evictable == self.order.len(), "the order of eviction holds an entry that is gone");
        ensure!(
            (pinned, quarantined, quarantined_blocks)
                == (
                    self.pinned_entries,
                    self.quarantined_entries,
                    u64::from(self.quarantined_blocks)
                ),
            "{pinned} pinned, {quarantined} quarantined of {quarantined_blocks} blocks were counted, \
             {} pinned, {} quarantined of {} blocks are on the books",
            self.pinned_entries,
            self.quarantined_entries,
            self.quarantined_blocks
        );

        ensure!(self.free.is_consistent(), "the free holes disagree with themselves");
        ensure!(self.reclaimable.is_consistent(), "the reclaimable holes disagree with themselves");
        let holes: Vec<Extent> = self.free.iter().collect();
        ensure!(join(holes.clone())? == holes, "adjacent free holes are apart");
        ensure!(
            join(reclaimable)? == self.reclaimable.iter().collect::<Vec<_>>(),
            "reclaimable blocks are not the free and evictable ones"
        );
        taken.extend(holes);
        let whole: Vec<Extent> = Extent::new(0, self.total).into_iter().collect();
        ensure!(join(taken)? == whole, "holes and entries do not cover the region");

        let usage = self.usage();
        ensure!(
            u64::from(usage.live) == live_blocks
                && u64::from(usage.free) + live_blocks + quarantined_blocks
                    == u64::from(self.total),
            "{live_blocks} blocks are live, but {usage:?}"
        );
        Ok(())
    }
}

/// The same blocks in as few extents as possible, ascending; an error where two overlap.
fn join(mut extents: Vec<Extent>) -> Result<Vec<Extent>, String> {
    extents.sort_unstable();
    let mut joined: Vec<Extent> = Vec::new();
    for extent in extents {
        match joined.last_mut() {
            Some(last) if extent.first() < last.end() => {
                return Err(format!("{last:?} and {extent:?} overlap"));
            }
            Some(last) if extent.first() == last.end() => {
                *last = Extent::new(last.first(), last.count() + extent.count())
                    .ok_or("joined extents pass the last block")?;
            }
            _ => joined.push(extent),
        }
    }
    Ok(joined)
}
