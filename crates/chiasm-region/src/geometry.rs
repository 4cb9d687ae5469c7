//! Where everything lies in a region's file, and which bytes of it an entry's extents mean.
//!
//! Pure arithmetic, all of it checked: this is the one place that turns extents and offsets (which
//! may come from a peer) into offsets into memory. It must never give out a piece that does not lie
//! wholly inside the blocks.

use chiasm_core::extent::Extent;

/// Smallest header area in bytes. 64 KiB is the largest page of the supported hosts (some ARM
/// kernels), and leaves each of 16 ranks a completion ring of 3840 bytes after the first 4 KiB.
pub(crate) const HEADER_AREA_BYTES: u64 = 64 * 1024;

/// Extents that do not fit the region, or an access that does not fit the extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// An extent ends after the last block: a bug of the caller's, or a peer's offer that was not
    /// checked.
    #[error("extent {extent:?} ends outside the region of {blocks} blocks")]
    ExtentOutside {
        /// The first such extent.
        extent: Extent,
        /// Number of blocks in the region.
        blocks: u32,
    },
    /// The access ends after the entry's last block.
    #[error("bytes {offset}+{len} end outside the entry of {entry_bytes} bytes in all its extents")]
    PastEnd {
        /// First byte of the access, counted from the entry's start.
        offset: u64,
        /// Bytes of the access.
        len: u64,
        /// Bytes that the extents hold in all.
        entry_bytes: u64,
    },
    /// The region was attached read-only and the access would write.
    #[error("the region is attached read-only")]
    ReadOnly,
}

/// The shape of a region's file. A value of this type is consistent: every number below fits the
/// address space, and blocks end inside the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    blocks: u32,
    block_size_bytes: u64,
    header_bytes: u64,
    file_bytes: u64,
}

impl Geometry {
    /// The shape of a new region; `None` if it has no blocks, blocks of no size, or more bytes than
    /// an address space can map.
    pub(crate) fn new(blocks: u32, block_size_bytes: u64, page_bytes: u64) -> Option<Self> {
        let header_bytes = HEADER_AREA_BYTES.checked_next_multiple_of(page_bytes)?;
        Self::with_header(blocks, block_size_bytes, header_bytes, page_bytes)
    }

    /// As [`Geometry::new`] with a header area of a given size, as an existing file states it.
    pub(crate) fn with_header(
        blocks: u32,
        block_size_bytes: u64,
        header_bytes: u64,
        page_bytes: u64,
    ) -> Option<Self> {
        let fits = blocks > 0
            && block_size_bytes > 0
            && header_bytes >= HEADER_AREA_BYTES
            && header_bytes.checked_rem(page_bytes)? == 0;
        let data_bytes = u64::from(blocks).checked_mul(block_size_bytes)?;
        let file_bytes =
            data_bytes.checked_next_multiple_of(page_bytes)?.checked_add(header_bytes)?;
        // One mapping is at most `isize::MAX` bytes: what pointer arithmetic in Rust allows.
        let mappable = isize::try_from(file_bytes).is_ok();
        (fits && mappable).then_some(Self { blocks, block_size_bytes, header_bytes, file_bytes })
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(crate) fn block_size_bytes(&self) -> u64 {
        self.block_size_bytes
    }

    pub(crate) fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Where all blocks together lie in the file: the first byte, and how many.
    pub(crate) fn blocks_piece(&self) -> Piece {
        // A geometry's blocks end inside its file: no overflow.
        let bytes = u64::from(self.blocks) * self.block_size_bytes;
        Piece { at: in_address_space(self.header_bytes), len: in_address_space(bytes) }
    }

    /// The pieces of the file that bytes `offset .. offset + len` of the entry laid over `extents`
    /// occupy, in the entry's order. Everything is checked before the first piece is given out.
    pub(crate) fn pieces<'a>(
        &self,
        extents: &'a [Extent],
        offset: u64,
        len: usize,
    ) -> Result<Pieces<'a>, RangeError> {
        let blocks = self.blocks;
        let mut entry_bytes: u64 = 0;
        for &extent in extents {
            if extent.end() > blocks {
                return Err(RangeError::ExtentOutside { extent, blocks });
            }
            // An extent lies inside the file; only absurdly many repetitions could pass u64.
            entry_bytes = entry_bytes.saturating_add(self.extent_bytes(extent));
        }
        let len = len as u64;
        match offset.checked_add(len) {
            Some(end) if end <= entry_bytes => {
                Ok(Pieces { geometry: *self, extents: extents.iter(), skip: offset, left: len })
            }
            _ => Err(RangeError::PastEnd { offset, len, entry_bytes }),
        }
    }

    /// Bytes of an extent that lies inside the region: at most `file_bytes`, so no overflow.
    fn extent_bytes(&self, extent: Extent) -> u64 {
        u64::from(extent.count()) * self.block_size_bytes
    }
}

/// A contiguous run of bytes of the file, inside the blocks, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset into the file, and so into the mapping.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Iterator over [`Geometry::pieces`].
#[derive(Debug, Clone)]
pub(crate) struct Pieces<'a> {
    geometry: Geometry,
    extents: std::slice::Iter<'a, Extent>,
    skip: u64,
    left: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while self.left > 0 {
            let extent = *self.extents.next()?;
            let bytes = self.geometry.extent_bytes(extent);
            if self.skip >= bytes {
                self.skip -= bytes;
                continue;
            }
            let start = u64::from(extent.first()) * self.geometry.block_size_bytes + self.skip;
            let len = self.left.min(bytes - self.skip);
            self.skip = 0;
            self.left -= len;
            return Some(Piece {
                at: in_address_space(self.geometry.header_bytes + start),
                len: in_address_space(len),
            });
        }
        None
    }
}

fn in_address_space(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a geometry fits the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(first: u32, count: u32) -> Extent {
        Extent::new(first, count).unwrap()
    }

    fn geometry_for_test() -> Geometry {
        Geometry::new(10, 100, 4096).unwrap()
    }

    fn pieces(extents: &[Extent], offset: u64, len: usize) -> Vec<(usize, usize)> {
        geometry_for_test()
            .pieces(extents, offset, len)
            .unwrap()
            .map(|piece| (piece.at - 65536, piece.len))
            .collect()
    }

    #[test]
    fn blocks_start_after_a_header_of_whole_pages() {
        for page_bytes in [4096, 16384, 65536, 2 * 1024 * 1024] {
            let geometry = Geometry::new(3, 7168, page_bytes).unwrap();
            assert!(geometry.header_bytes() >= HEADER_AREA_BYTES);
            assert_eq!(geometry.header_bytes() % page_bytes, 0);
            assert_eq!(geometry.file_bytes() % page_bytes, 0);
            assert!(geometry.file_bytes() - geometry.header_bytes() >= 3 * 7168);
        }
    }

    #[test]
    fn shapes_that_no_address_space_holds_do_not_exist() {
        assert_eq!(Geometry::new(0, 1, 4096), None);
        assert_eq!(Geometry::new(1, 0, 4096), None);
        assert_eq!(Geometry::new(1, 1, 0), None);
        assert_eq!(Geometry::new(u32::MAX, u64::MAX, 4096), None);
        assert_eq!(Geometry::new(1, u64::MAX, 4096), None);
        assert_eq!(Geometry::new(1, i64::MAX as u64, 4096), None);
        assert_eq!(Geometry::with_header(1, 1, 4096, 4096), None, "no room for rings");
        assert_eq!(Geometry::with_header(1, 1, 65537, 4096), None, "blocks not on a page");
        assert_eq!(Geometry::with_header(1, 1, u64::MAX - 4095, 4096), None);
    }

    #[test]
    fn an_entry_runs_through_its_extents_in_their_order() {
        let extents = [extent(4, 2), extent(0, 1), extent(9, 1)];
        assert_eq!(pieces(&extents, 0, 400), [(400, 200), (0, 100), (900, 100)]);
        assert_eq!(pieces(&extents, 199, 2), [(599, 1), (0, 1)]);
        assert_eq!(pieces(&extents, 200, 100), [(0, 100)]);
        assert_eq!(pieces(&extents, 250, 100), [(50, 50), (900, 50)]);
        assert_eq!(pieces(&extents, 400, 0), []);
        assert_eq!(pieces(&[], 0, 0), []);
    }

    #[test]
    fn nothing_outside_the_region_or_the_entry_is_given_out() {
        let geometry = geometry_for_test();
        let bad = extent(9, 2);
        assert_eq!(
            geometry.pieces(&[extent(0, 1), bad], 0, 1).unwrap_err(),
            RangeError::ExtentOutside { extent: bad, blocks: 10 }
        );
        let far = extent(u32::MAX - 1, 1);
        assert!(geometry.pieces(&[far], 0, 0).is_err());
        for (offset, len) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(
                geometry.pieces(&[extent(0, 1)], offset, len).unwrap_err(),
                RangeError::PastEnd { offset, len: len as u64, entry_bytes: 100 }
            );
        }
        assert!(geometry.pieces(&[], 0, 1).is_err());
    }
}
