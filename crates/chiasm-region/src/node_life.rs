//! Whether the node of another instance on this host still lives: what the lock on its region says.
//!
//! It must never keep a lock, and never take anything but the lock for an answer: a name can be removed
//! while its node lives, and a process id means nothing in another namespace.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::claim;
use crate::error::RegionError;
use crate::file;
use crate::header_area::BOARD_AT;
use crate::peer;

/// The region of another node, open, to see by its lock when that node ends.
#[derive(Debug)]
pub struct NodeLife {
    file: OwnedFd,
}

impl NodeLife {
    /// Watch the node that lives as `epoch` and has the region `name` in `dir`, which must be this
    /// user's. Fails if no node holds it now: then nothing would be proven by a lock that is free.
    pub fn watch(dir: &Path, name: &str, epoch: u64) -> Result<Self, RegionError> {
        let (path, file) = peer::open(dir, name)?;
        if file::read_header(file.as_fd(), &path)?.epoch != epoch {
            return Err(RegionError::OtherLife { path });
        }
        let life = Self { file };
        match life.is_over() {
            Ok(false) => Ok(life),
            Ok(true) => Err(RegionError::Stale { path }),
            Err(source) => Err(RegionError::io("look at the lock of", &path, source)),
        }
    }

    /// Whether that node is dead for certain: its process has ended, and every process that it has
    /// forked with the region.
    pub fn is_over(&self) -> io::Result<bool> {
        claim::is_taken(self.file.as_fd(), BOARD_AT as u64).map(|taken| !taken)
    }
}
