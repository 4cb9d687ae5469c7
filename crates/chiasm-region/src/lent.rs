//! A region as a helper process of its node has it: a descriptor in, a mapping out.
//!
//! It must never keep a lock: a helper that outlives its node, stopped or slow to end, must not make a
//! dead region look alive. Its pages stay mapped for as long as it lives, whatever becomes of the file.

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
}

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
        Ok(Self { geometry: header.geometry, mapping })
    }

    /// Address of block 0 in this process, valid while this value lives, for
    /// [`blocks_bytes`](Self::blocks_bytes) bytes. The header before it is nobody's business but the
    /// node's and its workers'.
    #[must_use]
    pub fn blocks_address(&self) -> usize {
        let blocks = self.geometry.blocks_piece();
        self.mapping.bytes().pointer(blocks.at, blocks.len).addr()
    }

    /// Bytes of all blocks together.
    #[must_use]
    pub fn blocks_bytes(&self) -> usize {
        self.geometry.blocks_piece().len
    }
}
