//! The identifier of one encoder output.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limits::MAX_MM_HASH_BYTES;

/// An `mm_hash`: 1 to [`MAX_MM_HASH_BYTES`] bytes of text, compared byte for byte. vLLM's own are
/// 64 hexadecimal digits, but a client may choose any text (`uuid` of a media item). Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MmHash(Arc<str>);

/// Why a text is no [`MmHash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MmHashError {
    /// An empty text identifies nothing.
    #[error("mm_hash is empty")]
    Empty,
    /// Longer than the limit; it would be copied into every log line and table.
    #[error("mm_hash has {bytes} bytes, more than the limit of {MAX_MM_HASH_BYTES}")]
    TooLong {
        /// Length of the text that was refused.
        bytes: usize,
    },
}

impl MmHash {
    /// Takes `text` if its length is within the limits.
    pub fn new(text: &str) -> Result<Self, MmHashError> {
        match text.len() {
            0 => Err(MmHashError::Empty),
            bytes if bytes > MAX_MM_HASH_BYTES => Err(MmHashError::TooLong { bytes }),
            _ => Ok(Self(Arc::from(text))),
        }
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 characters: what log lines and error messages show.
    #[must_use]
    pub fn short(&self) -> &str {
        let end = self.0.char_indices().nth(12).map_or(self.0.len(), |(at, _)| at);
        self.0.get(..end).unwrap_or(&self.0)
    }
}

impl Borrow<str> for MmHash {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MmHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MmHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_bounded_and_short_form_respects_characters() {
        assert_eq!(MmHash::new(""), Err(MmHashError::Empty));
        let longest = "h".repeat(MAX_MM_HASH_BYTES);
        assert!(MmHash::new(&longest).is_ok());
        assert_eq!(
            MmHash::new(&format!("{longest}h")),
            Err(MmHashError::TooLong { bytes: MAX_MM_HASH_BYTES + 1 })
        );
        assert_eq!(
            MmHash::new("画像画像画像画像画像画像画像").unwrap().short(),
            "画像画像画像画像画像画像"
        );
        assert_eq!(MmHash::new("abc").unwrap().short(), "abc");
    }
}
