//! Random numbers from the system.
//!
//! It must never depend on a process id or a clock: those come again, in this namespace or another.

use std::path::Path;

use crate::error::RegionError;

/// 64 random bits, for what is made at `path`.
pub(crate) fn number(path: &Path) -> Result<u64, RegionError> {
    let mut bytes = [0; 8];
    // Up to 256 bytes come whole or not at all.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| RegionError::io("draw a random number for", path, error))?;
    Ok(u64::from_le_bytes(bytes))
}
