//! Another instance's region on this host, mapped to be read.
//!
//! What a peer says about its region is a claim; here it becomes a mapping or a reason why not. It must
//! never write, never follow a link, and never keep a lock: the region's owner must be able to end and
//! start again while somebody still has the old pages mapped.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use chiasm_core::extent::Extent;
use chiasm_core::limits::MAX_EXCERPT_CHARS;
use rustix::fs::{self, FlockOperation};

use crate::error::RegionError;
use crate::file;
use crate::geometry::{Geometry, Pieces, RangeError};
use crate::header_area::{SERVING_AT, SERVING_BYTES};
use crate::mapping::{Access, Mapping};
use crate::memory::SharedBytes;
use crate::options::{absolute, is_region_name};
use crate::region::mapped_bytes;

/// Most bytes of one region that are faulted in ahead of their use; what lies beyond is faulted in as
/// it is read. Page tables take a five-hundredth of it.
const POPULATED_BYTES: usize = 16 << 30;

/// A peer's region, mapped read-only.
///
/// Its pages stay for as long as this value lives, also if the owner dies or removes the file, and so
/// does their memory. Whether their bytes are still what was granted is for a digest or a lease to say.
/// Nothing of Chiasm truncates a region; a process of the same user that does so anyway ends its
/// readers with a fault, as it could end them with a signal.
#[derive(Debug)]
pub struct PeerRegion {
    path: PathBuf,
    geometry: Geometry,
    mapping: Mapping,
    /// Bytes that have been faulted in, from the start.
    populated: AtomicUsize,
}

impl PeerRegion {
    /// Map the region `name` in `dir`, if it is a live region of this user's, made by the node that
    /// lives as `epoch`, with blocks of `block_size_bytes`, and all its memory is there.
    pub fn attach(
        dir: &Path,
        name: &str,
        epoch: u64,
        block_size_bytes: u64,
    ) -> Result<Self, RegionError> {
        let (path, file) = open(dir, name)?;
        // To be had exactly if nobody lives; it goes with the descriptor. If it is not, no lock of ours
        // is left behind, and the mapping keeps none.
        if file::lock(&file, FlockOperation::NonBlockingLockExclusive, &path)?
            || !file::is_at(file.as_fd(), &path)
        {
            return Err(RegionError::Stale { path });
        }
        let header = file::read_header(file.as_fd(), &path)?;
        if header.epoch != epoch {
            return Err(RegionError::OtherLife { path });
        }
        let geometry = header.geometry;
        if geometry.block_size_bytes() != block_size_bytes {
            let found = geometry.block_size_bytes();
            return Err(RegionError::BlockSize { path, found, expected: block_size_bytes });
        }
        // A page that is missing would be made here, on this process's account, or be a fault.
        let stat = fs::fstat(&file).map_err(|error| RegionError::io("stat", &path, error))?;
        let reserved_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        if reserved_bytes < geometry.file_bytes() {
            return Err(RegionError::Holes { path });
        }
        let mapping = Mapping::new(file.as_fd(), mapped_bytes(&header), Access::ReadOnly)
            .map_err(|error| RegionError::io("map", &path, error))?;
        Ok(Self { path, geometry, mapping, populated: AtomicUsize::new(0) })
    }

    /// Whether the node of this region serves at the endpoint of this mark. Whoever knows the name and the
    /// life of another's region could else have it read as its own.
    #[must_use]
    pub fn serves(&self, mark: [u8; SERVING_BYTES]) -> bool {
        let mut serving = [0; SERVING_BYTES];
        self.bytes().load(SERVING_AT, &mut serving);
        serving == mark && mark != [0; SERVING_BYTES]
    }

    /// Absolute path of the file when it was mapped.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of blocks, at least one.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.geometry.blocks()
    }

    /// Whether an entry of `bytes` bytes can lie over `extents` of this region.
    pub fn check(&self, extents: &[Extent], bytes: u64) -> Result<(), RangeError> {
        let last = u64::from(bytes > 0);
        self.pieces(extents, bytes - last, usize::from(bytes > 0)).map(drop)
    }

    /// Fault the next `bytes` bytes in, so that later copies stop for none of them; whether some are
    /// left to be asked for. About 150 us per MiB. Where the kernel cannot (it can from 5.14 on),
    /// nothing happens and nothing is left.
    pub fn populate(&self, bytes: usize) -> bool {
        let all = self.mapping.len().min(POPULATED_BYTES);
        let from = self.populated.load(Ordering::Relaxed);
        if from >= all {
            return false;
        }
        let now = bytes.min(all - from);
        let to = if self.mapping.populate_read(from, now).is_ok() { from + now } else { all };
        self.populated.store(to, Ordering::Relaxed);
        to < all
    }

    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        self.mapping.bytes()
    }

    pub(crate) fn pieces<'a>(
        &self,
        extents: &'a [Extent],
        offset: u64,
        len: usize,
    ) -> Result<Pieces<'a>, RangeError> {
        self.geometry.pieces(extents, offset, len)
    }
}

/// Open what a peer says is its region, to be read: a name and no path, a file of this user's.
pub(crate) fn open(dir: &Path, name: &str) -> Result<(PathBuf, OwnedFd), RegionError> {
    if !is_region_name(name) {
        return Err(RegionError::InvalidName { name: excerpt(name) });
    }
    let path = absolute(&dir.join(name))?;
    let opened = file::open_ours(&path, Access::ReadOnly)
        .map_err(|error| RegionError::io("open", &path, error))?;
    let file = match opened {
        Ok(file) => file,
        Err(cause) => return Err(RegionError::Foreign { path, cause }),
    };
    Ok((path, file))
}

/// The name came from a peer and ends up in a log line.
fn excerpt(name: &str) -> String {
    let printable = |char: char| if matches!(char, ' '..='~') { char } else { '?' };
    name.chars().take(MAX_EXCERPT_CHARS).map(printable).collect()
}
