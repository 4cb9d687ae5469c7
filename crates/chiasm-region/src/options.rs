//! What a new region is to be, checked before anything is touched.

use std::path::{Path, PathBuf};

use crate::error::RegionError;
use crate::geometry::Geometry;

/// Every region's file name starts so: what `reclaim_stale` looks for, and what an operator greps.
const PREFIX: &str = "chiasm-";

/// Longest file name in bytes. `NAME_MAX` is 255; the rest is room for the draft's decoration.
const NAME_BYTES: usize = chiasm_core::limits::MAX_REGION_NAME_BYTES;

/// What [`Region::create`](crate::Region::create) makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionOptions {
    /// File name: starts with `chiasm-`, only `A-Z a-z 0-9 . _ -`, at most 200 bytes, so it never
    /// names anything outside `dir`.
    pub name: String,
    /// Directory of the file: `/dev/shm`, or any directory in tests. Should be a `tmpfs`.
    pub dir: PathBuf,
    /// Number of blocks, at least one.
    pub blocks: u32,
    /// Bytes of one block (one embedding row), at least one. 64 bits, since rows x element size is
    /// computed in 64 bits everywhere; the product with `blocks` must fit the address space.
    pub block_size_bytes: u64,
    /// Random id of this node's life.
    pub epoch: u64,
    /// Ask the system for huge pages. Whether it gives any is its own choice, and that of the mount:
    /// `mount -o remount,huge=advise /dev/shm`. [`Region::huge_page_bytes`] says what came of it.
    ///
    /// [`Region::huge_page_bytes`]: crate::Region::huge_page_bytes
    pub huge_pages: bool,
    /// Take all memory from this NUMA node: that of the device whose copies matter most. An error where
    /// there is no such node, or a sandbox forbids to ask (Docker's default does, without
    /// `CAP_SYS_NICE`).
    pub numa_node: Option<u32>,
}

impl RegionOptions {
    /// A region in `/dev/shm` with epoch 0, in pages of whatever size, from wherever.
    #[must_use]
    pub fn new(name: impl Into<String>, blocks: u32, block_size_bytes: u64) -> Self {
        Self {
            name: name.into(),
            dir: PathBuf::from("/dev/shm"),
            blocks,
            block_size_bytes,
            epoch: 0,
            huge_pages: false,
            numa_node: None,
        }
    }

    /// The geometry and the absolute path, or what is wrong with the options.
    pub(crate) fn check(&self) -> Result<(Geometry, PathBuf), RegionError> {
        let (blocks, block_size_bytes) = (self.blocks, self.block_size_bytes);
        if !is_region_name(&self.name) {
            return Err(RegionError::InvalidName { name: self.name.clone() });
        }
        if blocks == 0 {
            return Err(RegionError::ZeroBlocks);
        }
        if block_size_bytes == 0 {
            return Err(RegionError::ZeroBlockSize);
        }
        let geometry = Geometry::new(blocks, block_size_bytes, page_bytes())
            .ok_or(RegionError::TooLarge { blocks, block_size_bytes })?;
        // Absolute, so that the creator's drop finds it after a change of directory.
        let dir = absolute(&self.dir)?;
        Ok((geometry, dir.join(&self.name)))
    }
}

/// Whether `name` can be a region's file name.
pub(crate) fn is_region_name(name: &str) -> bool {
    name.len() <= NAME_BYTES
        && name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// `path` from the root on.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, RegionError> {
    std::path::absolute(path).map_err(|source| RegionError::io("resolve", path, source))
}

/// The system's page size in bytes: 4 KiB, or 16 or 64 KiB on some ARM hosts.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_directory() {
        for name in ["chiasm-a", "chiasm-0.A_b-c", "chiasm-..", &format!("chiasm-{:0>193}", 1)] {
            assert!(is_region_name(name), "{name}");
        }
        for name in [
            "",
            "chiasm-",
            "chiasm",
            "Chiasm-a",
            ".chiasm-a",
            "x-chiasm-a",
            "chiasm-a/b",
            "chiasm-/../x",
            "chiasm-a\0",
            "chiasm-a b",
            "chiasm-\u{e9}",
            &format!("chiasm-{:0>194}", 1),
        ] {
            assert!(!is_region_name(name), "{name}");
        }
    }
}
