//! Where an instance looks for regions, as sixteen bytes that two instances can compare.
//!
//! A hint and nothing else: equal ones only say that trying shm makes sense. Whether a region is there
//! and is what it should be is found out by whoever opens it.

use sha2::{Digest as _, Sha256};

/// Equal for two instances that run on one boot of one machine, as one user, with their regions in one
/// directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostHint(pub [u8; 16]);

impl HostHint {
    /// The hint of an instance whose regions are in the directory with this device and file number,
    /// as its own mount namespace shows it. A digest, so that peers elsewhere learn nothing about the
    /// machine.
    #[must_use]
    pub fn of(boot_id: &str, directory: (u64, u64), user: u32) -> Self {
        let mut digest = Sha256::new();
        // Fixed lengths first: no two inputs run together.
        digest.update(directory.0.to_be_bytes());
        digest.update(directory.1.to_be_bytes());
        digest.update(user.to_be_bytes());
        digest.update(boot_id.as_bytes());
        let mut hint = [0; 16];
        for (to, from) in hint.iter_mut().zip(digest.finalize()) {
            *to = from;
        }
        Self(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_it_counts() {
        let hint = HostHint::of("a1b2", (26, 1), 1000);
        assert_eq!(hint, HostHint::of("a1b2", (26, 1), 1000));
        for other in [
            HostHint::of("a1b3", (26, 1), 1000),
            HostHint::of("a1b2", (27, 1), 1000),
            HostHint::of("a1b2", (26, 2), 1000),
            HostHint::of("a1b2", (1, 26), 1000),
            HostHint::of("a1b2", (26, 1), 0),
        ] {
            assert_ne!(hint, other);
        }
    }
}
