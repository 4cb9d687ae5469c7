//! Runs of blocks that may be given out, and which of them to give. Entries are unknown here.

use std::collections::{BTreeMap, BTreeSet};

use crate::extent::Extent;
use crate::limits::MAX_EXTENTS;

/// Disjoint runs of blocks, each as long as it can be: two adjacent runs are one.
///
/// Every operation costs a few searches in trees of runs and looks at no more than [`MAX_EXTENTS`]
/// runs, however many blocks there are.
#[derive(Clone, Debug)]
pub(super) struct Holes {
    count_by_first: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
    blocks: u32,
    steps: u64,
}

impl Holes {
    /// One hole of all `blocks`.
    pub(super) fn new(blocks: u32) -> Self {
        let mut holes =
            Self { count_by_first: BTreeMap::new(), by_size: BTreeSet::new(), blocks: 0, steps: 0 };
        if let Some(all) = Extent::new(0, blocks) {
            holes.insert(all);
        }
        holes
    }

    /// Number of blocks in all holes.
    pub(super) const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Tree searches and holes looked at so far.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// The holes in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.count_by_first.iter().filter_map(|(&first, &count)| Extent::new(first, count))
    }

    /// Whether both orders hold the same runs and `blocks` is their sum.
    pub(super) fn is_consistent(&self) -> bool {
        let sum: u64 = self.iter().map(|hole| u64::from(hole.count())).sum();
        self.by_size.len() == self.count_by_first.len()
            && self.iter().all(|hole| self.by_size.contains(&(hole.count(), hole.first())))
            && sum == u64::from(self.blocks)
    }

    /// Where `blocks` would go, ascending: the least number of extents that is possible. `None` if
    /// the holes are too small in sum, or more than [`MAX_EXTENTS`] of them would be needed.
    ///
    /// Best fit, lowest first among equals: encoder outputs come in few sizes, so the hole that one
    /// leaves is mostly exactly right for another, and large holes last. It is also one search,
    /// where first fit in address order would need a tree of its own.
    pub(super) fn plan(&mut self, blocks: u32) -> Option<Vec<Extent>> {
        // Mostly there is one.
        let mut extents = Vec::with_capacity(1);
        self.walk(blocks, |extent| extents.extend(extent))?;
        extents.sort_unstable();
        Some(extents)
    }

    /// Whether [`Holes::plan`] would find a place.
    pub(super) fn can_hold(&mut self, blocks: u32) -> bool {
        self.walk(blocks, |_| {}).is_some()
    }

    fn walk(&mut self, blocks: u32, mut take: impl FnMut(Option<Extent>)) -> Option<()> {
        if blocks > self.blocks {
            return None;
        }
        let mut missing = blocks;
        for (taken, &(count, first)) in self.by_size.iter().rev().enumerate() {
            self.steps += 1;
            if missing <= count {
                break;
            }
            // The last extent has to hold all that is missing, and no untaken hole is larger.
            if taken + 1 == MAX_EXTENTS {
                return None;
            }
            take(Extent::new(first, count));
            missing -= count;
        }
        if missing > 0 {
            self.steps += 1;
            // Not one that was taken above: those come later in this order than the hole that ended
            // the loop, which is large enough.
            let &(_, first) = self.by_size.range((missing, 0)..).next()?;
            take(Extent::new(first, missing));
        }
        Some(())
    }

    /// Takes out `extent`, which lies within one hole.
    pub(super) fn take(&mut self, extent: Extent) {
        self.steps += 1;
        let hole = self.last_before(extent.end()).expect("blocks that are given out lie in a hole");
        assert!(
            hole.first() <= extent.first() && extent.end() <= hole.end(),
            "{extent:?} is given out twice (nearest hole {hole:?})"
        );
        self.remove(hole);
        let left = Extent::new(hole.first(), extent.first() - hole.first());
        let right = Extent::new(extent.end(), hole.end() - extent.end());
        for rest in left.into_iter().chain(right) {
            self.insert(rest);
        }
    }

    /// Puts back `extent`, which lies outside all holes, and joins it with its neighbours.
    pub(super) fn put_back(&mut self, extent: Extent) {
        self.steps += 2;
        let (mut first, mut end) = (extent.first(), extent.end());
        if let Some(left) = self.last_before(extent.end()) {
            assert!(left.end() <= first, "{extent:?} is freed twice (hole {left:?})");
            if left.end() == first {
                self.remove(left);
                first = left.first();
            }
        }
        if let Some(&count) = self.count_by_first.get(&end) {
            let right = Extent::new(end, count).expect("a hole is a valid extent");
            self.remove(right);
            end = right.end();
        }
        self.insert(Extent::new(first, end - first).expect("joined holes stay inside the region"));
    }

    /// The last hole that begins before block `end`.
    fn last_before(&self, end: u32) -> Option<Extent> {
        let (&first, &count) = self.count_by_first.range(..end).next_back()?;
        Extent::new(first, count)
    }

    fn insert(&mut self, hole: Extent) {
        self.steps += 2;
        self.count_by_first.insert(hole.first(), hole.count());
        self.by_size.insert((hole.count(), hole.first()));
        self.blocks += hole.count();
    }

    fn remove(&mut self, hole: Extent) {
        self.steps += 2;
        self.count_by_first.remove(&hole.first());
        self.by_size.remove(&(hole.count(), hole.first()));
        self.blocks -= hole.count();
    }
}
