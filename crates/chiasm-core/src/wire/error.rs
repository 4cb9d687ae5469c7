//! Why bytes are no message: what is wrong, where, and what would be allowed.
//!
//! Messages never repeat text that a peer has sent: they end up in logs.

use std::fmt;

use crate::limits::MAX_NESTING;
use crate::mm_hash::MmHash;

/// A place inside a message, in msgspec's notation: `$.src_block_indices[3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPath {
    field: &'static str,
    index: Option<usize>,
    column: Option<usize>,
}

impl FieldPath {
    /// The whole message.
    pub const ROOT: Self = Self::field("$");

    /// The field with this path, which starts with `$`.
    pub(super) const fn field(field: &'static str) -> Self {
        Self { field, index: None, column: None }
    }

    /// Element `index` of this array.
    pub(super) const fn index(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }

    /// Element `column` of this row.
    pub(super) const fn column(self, column: usize) -> Self {
        Self { column: Some(column), ..self }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field)?;
        for index in [self.index, self.column].into_iter().flatten() {
            write!(f, "[{index}]")?;
        }
        Ok(())
    }
}

/// A field and the offset of the byte where its value starts (or where reading it stopped).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which part of the message.
    pub path: FieldPath,
    /// Bytes from the start of the message.
    pub offset: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}, byte {}", self.path, self.offset)
    }
}

/// Why bytes are no message. Everything but [`Self::UnknownStatus`] means that the peer does not
/// speak this protocol, or that the bytes were damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before this value does: cut short, or a length that lies.
    #[error("{at}: the message ends inside this value")]
    Truncated {
        /// Where the bytes ran out.
        at: Place,
    },
    /// `0xc1`, the one byte that starts no msgpack value.
    #[error("{at}: 0xc1 starts no msgpack value")]
    Reserved {
        /// Where that byte is.
        at: Place,
    },
    /// Bytes follow the message.
    #[error("byte {offset}: {extra} bytes follow the end of the message")]
    Trailing {
        /// Offset of the first byte after the message.
        offset: usize,
        /// Number of bytes that follow.
        extra: usize,
    },
    /// A value of another type.
    #[error("{at}: expected {expected}, found {found}")]
    Type {
        /// Which value.
        at: Place,
        /// The type that is allowed.
        expected: &'static str,
        /// The type that came.
        found: &'static str,
    },
    /// A map key that is not text.
    #[error("{at}: a key must be str, found {found}")]
    Key {
        /// The map, and the offset of the key.
        at: Place,
        /// The type that came.
        found: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("{at}: str is not valid UTF-8")]
    Utf8 {
        /// Which value.
        at: Place,
    },
    /// The tag names another kind of message.
    #[error("{at}: expected \"{expected}\"")]
    Tag {
        /// Where the tag is.
        at: Place,
        /// The tag of the kind of message that was asked for.
        expected: &'static str,
    },
    /// A number outside its range.
    #[error("{at}: {found} is outside {min}..={max}")]
    Range {
        /// Which value.
        at: Place,
        /// The number that came.
        found: i128,
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
    },
    /// Too long, or not of the exact length.
    #[error("{at}: {found} {unit}, allowed: {allowed}")]
    Length {
        /// Which value.
        at: Place,
        /// The length that came.
        found: usize,
        /// What is counted.
        unit: &'static str,
        /// What is allowed.
        allowed: Allowed,
    },
    /// A run of blocks that is empty or ends past the last 32-bit index.
    #[error("{at}: [{first}, {count}] is no run of blocks (count >= 1, first + count < 2^32)")]
    Extent {
        /// Which value.
        at: Place,
        /// Index of its first block.
        first: u32,
        /// Its number of blocks.
        count: u32,
    },
    /// Containers inside an unknown field nest too deep.
    #[error("{at}: nested deeper than {MAX_NESTING} levels")]
    Nesting {
        /// The first container that is too deep.
        at: Place,
    },
    /// A required field is not there.
    #[error("{path}: required field is missing")]
    Missing {
        /// Which field.
        path: FieldPath,
    },
    /// A well-formed ack with a status that this version does not know. Its transfer can be failed
    /// at once: waiting for another answer would only run into the time-out.
    #[error("$.status: unknown status {status}, allowed: 0..=5")]
    UnknownStatus {
        /// The hash that the ack is about; `None` if its length is outside the limits, so that
        /// nobody can have asked for it.
        mm_hash: Option<MmHash>,
        /// The status that came.
        status: i128,
        /// The attempt that is answered, if the peer said so.
        attempt: Option<u32>,
    },
}

/// Which lengths are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// This one only.
    Exactly(usize),
    /// Up to this one.
    AtMost(usize),
    /// Multiples of two up to this one.
    EvenUpTo(usize),
}

impl Allowed {
    pub(super) const fn permits(self, length: usize) -> bool {
        match self {
            Self::Exactly(exact) => length == exact,
            Self::AtMost(max) => length <= max,
            Self::EvenUpTo(max) => length <= max && length.is_multiple_of(2),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(length) => write!(f, "exactly {length}"),
            Self::AtMost(length) => write!(f, "at most {length}"),
            Self::EvenUpTo(length) => write!(f, "an even number up to {length}"),
        }
    }
}
