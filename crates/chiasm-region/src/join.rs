//! The first process of an instance makes the region, the others attach to it, and nobody knows who
//! will be first.
//!
//! It must never make a second region next to one that lives, nor join one of another shape.

use std::path::{Path, PathBuf};

use crate::create;
use crate::error::RegionError;
use crate::options::RegionOptions;
use crate::random;
use crate::reclaim;
use crate::region::Region;

/// Rounds of finding a region that is gone when it is attached to, and of finding one that was not
/// there when it is to be made. Each needs another process that starts or ends at that very moment.
const ATTEMPTS: u32 = 64;

/// See [`Region::create_or_attach`].
pub(crate) fn create_or_attach(options: &RegionOptions) -> Result<Region, RegionError> {
    let (_, path) = options.check()?;
    let mut options = options.clone();
    if options.epoch == 0 {
        options.epoch = random::number(&path)?.max(1);
    }
    for _ in 0..ATTEMPTS {
        match Region::attach(&path) {
            Ok(region) => return fits(region, &options),
            Err(RegionError::Stale { .. }) => {}
            Err(RegionError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match create::create(&options, &create::SYSTEM) {
            Ok(region) => return Ok(region.left_to_the_last()),
            // Somebody else was faster.
            Err(RegionError::Live { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RegionError::Live { path })
}

fn fits(region: Region, options: &RegionOptions) -> Result<Region, RegionError> {
    let found = (region.blocks(), region.block_size_bytes());
    let wanted = (options.blocks, options.block_size_bytes);
    if found == wanted {
        return Ok(region.left_to_the_last());
    }
    Err(RegionError::OtherShape { path: region.path().to_owned(), found, wanted })
}

/// Removes the region when the last process that shares it lets go. Dropped after the mapping and the
/// descriptor of its process.
#[derive(Debug)]
pub(crate) struct LastOut {
    path: PathBuf,
    /// A forked child has a copy of this value, and the parent's lock besides.
    process: u32,
}

impl LastOut {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), process: std::process::id() }
    }
}

impl Drop for LastOut {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            reclaim::remove_if_unused(&self.path);
        }
    }
}
