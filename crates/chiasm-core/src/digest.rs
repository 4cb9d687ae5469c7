//! The content digest of an entry: xxh3-128 over its exact bytes.

use std::fmt;

/// xxh3-128 of an entry's bytes, big-endian (the canonical form of the xxHash specification). It
/// finds accidents (stale, torn, corrupt bytes), not attacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
