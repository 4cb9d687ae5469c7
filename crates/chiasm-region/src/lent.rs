//! A region as a helper process of its node has it: a descriptor in, a mapping out.
//!
//! It must never keep a lock: a helper that outlives its node, stopped or slow to end, must not make a
//! dead region look alive. Its pages stay mapped for as long as it lives, whatever becomes of the file.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use crate::error::{ForeignCause, RegionError};
use crate::file;
use crate::geometry::Geometry;
use crate::mapping::{Access, Mapping};
use crate::region::{Region, mapped_bytes};

/// What a helper may do with the memory it is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lending {
    /// Read it: the descriptor is open for reading, and no mapping of it can be made writable.
    ReadOnly,
    /// Read and write it.
    ReadWrite,
}

impl From<Lending> for Access {
    fn from(lending: Lending) -> Self {
        match lending {
            Lending::ReadOnly => Self::ReadOnly,
            Lending::ReadWrite => Self::ReadWrite,
        }
    }
}

impl Region {
    /// A descriptor of the region for a helper process, opened anew: it carries no lock and closes on
    /// `exec` unless it is passed on.
    pub fn lend(&self, lending: Lending) -> Result<OwnedFd, RegionError> {
        let path = self.path().to_owned();
        let opened = file::open_ours(&path, lending.into())
            .map_err(|source| RegionError::io("open", &path, source))?;
        match opened {
            Ok(lent) if self.is_same_file(lent.as_fd()) => Ok(lent),
            Ok(_) => Err(RegionError::Stale { path }),
            Err(cause) => Err(RegionError::Foreign { path, cause }),
        }
    }
}

/// The mapping that a helper makes of what it was lent.
#[derive(Debug)]
pub struct LentRegion {
    geometry: Geometry,
    mapping: Mapping,
    lending: Lending,
    /// Bytes that have been faulted in, from the start.
    populated: Cell<usize>,
}

/// Most bytes of one region that are faulted in ahead of their use.
const POPULATED_BYTES: usize = 16 << 30;

impl LentRegion {
    /// Map the region behind `file`, all of it. The header is checked as a stranger's would be.
    pub fn map(file: &OwnedFd, lending: Lending) -> Result<Self, RegionError> {
        let path = PathBuf::from("the lent region");
        let stat =
            rustix::fs::fstat(file).map_err(|source| RegionError::io("stat", &path, source))?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Err(RegionError::Foreign { path, cause: ForeignCause::NotRegular });
        }
        let header = file::read_header(file.as_fd(), &path)?;
        let mapping = Mapping::new(file.as_fd(), mapped_bytes(&header), lending.into())
            .map_err(|source| RegionError::io("map", &path, source))?;
        Ok(Self { geometry: header.geometry, mapping, lending, populated: Cell::new(0) })
    }

    /// Address of block 0 in this process, valid while this value lives, for
    /// [`blocks_bytes`](Self::blocks_bytes) bytes. The header before it is nobody's business but the
    /// node's and its workers'.
    #[must_use]
    pub fn blocks_address(&self) -> usize {
        let blocks = self.geometry.blocks_piece();
        self.mapping.bytes().pointer(blocks.at, blocks.len).addr()
    }

    /// Fault the next `bytes` bytes in, so that no read stops for them; whether some are left to be asked
    /// for. About 150 us per MiB. Where the kernel cannot (it can from 5.14 on), nothing happens and
    /// nothing is left.
    pub fn populate(&self, bytes: usize) -> bool {
        let all = self.mapping.len().min(POPULATED_BYTES);
        let from = self.populated.get();
        if from >= all {
            return false;
        }
        let now = bytes.min(all - from);
        let outcome = match self.lending {
            Lending::ReadOnly => self.mapping.populate_read(from, now),
            Lending::ReadWrite => self.mapping.populate_write(from, now),
        };
        let to = if outcome.is_ok() { from + now } else { all };
        self.populated.set(to);
        to < all
    }

    /// Bytes of all blocks together.
    #[must_use]
    pub fn blocks_bytes(&self) -> usize {
        self.geometry.blocks_piece().len
    }
}
