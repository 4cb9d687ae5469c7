//! Random numbers of the system.

use std::io;

/// Fills `bytes`, which are 256 at most: so many come whole or not at all.
pub(crate) fn fill(bytes: &mut [u8]) -> io::Result<()> {
    rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(())
}

/// A number.
pub(crate) fn word() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
