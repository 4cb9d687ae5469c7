//! The producer's answer in one number (PROTOCOL 13).

use std::fmt;

/// `XferAck.status`: granted, or why not. Six values in connector version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AckStatus {
    /// The entry is granted.
    Ok = 0,
    /// The producer does not have the entry (any more).
    Missing = 1,
    /// The compatibility hashes differ.
    Incompat = 2,
    /// The connector versions differ.
    Version = 3,
    /// The producer cannot serve this, for a reason of its own.
    Internal = 4,
    /// The entry is being saved: ask again later.
    NotReady = 5,
}

impl AckStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Missing, Self::Incompat, Self::Version, Self::Internal, Self::NotReady];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Missing => 1,
            Self::Incompat => 2,
            Self::Version => 3,
            Self::Internal => 4,
            Self::NotReady => 5,
        }
    }

    /// The status with this number.
    #[must_use]
    pub fn from_code(code: i128) -> Option<Self> {
        Self::ALL.into_iter().find(|status| i128::from(status.code()) == code)
    }

    /// Upstream's name, as log lines show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Missing => "NACK_MISSING",
            Self::Incompat => "NACK_INCOMPAT",
            Self::Version => "NACK_VERSION",
            Self::Internal => "NACK_INTERNAL",
            Self::NotReady => "NACK_NOT_READY",
        }
    }

    /// Whether the entry is granted.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// Whether the same question may be answered otherwise a little later. Every other refusal is
    /// final for this producer.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::NotReady)
    }
}

impl fmt::Display for AckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
