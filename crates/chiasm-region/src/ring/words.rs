//! Memory that processes share, as words of 64 bits that are only ever touched atomically.
//!
//! The ring and the wake-up are written against this trait, so that the code that runs in shared
//! memory is the code that loom explores.

use std::sync::atomic::Ordering;

/// Some words, by index. An index past the end is a bug of ours and panics.
pub(crate) trait Words {
    /// The word's value.
    fn load(&self, word: usize, order: Ordering) -> u64;

    /// Give the word a value.
    fn store(&self, word: usize, value: u64, order: Ordering);

    /// Sequentially consistent fence.
    fn fence(&self);
}
