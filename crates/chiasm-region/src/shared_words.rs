//! Words of the mapping that other processes read and write at the same time.
//!
//! It must never hand a word out as anything but an atomic.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::memory::SharedBytes;
use crate::ring::words::Words;

/// `count` words from byte `first` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedWords<'a> {
    bytes: SharedBytes<'a>,
    first: usize,
    count: usize,
}

impl<'a> SharedWords<'a> {
    /// The words, which lie inside `bytes` or are never touched.
    pub(crate) fn new(bytes: SharedBytes<'a>, first: usize, count: usize) -> Self {
        Self { bytes, first, count }
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.count, "word {word} of {}", self.count);
        let pointer = self.bytes.pointer(self.first + word * 8, 8);
        assert!(pointer.addr().is_multiple_of(8), "the header area and its parts are aligned");
        #[expect(clippy::cast_ptr_alignment, reason = "asserted above")]
        let pointer = pointer.cast::<u64>();
        // SAFETY: eight bytes inside the mapping (checked by `pointer`) and aligned (asserted), mapped
        // while the `SharedBytes` lives, which outlives the reference given out. Other processes write
        // them too, atomically as we do; `AtomicU64` expects that. No non-atomic access by this
        // process: copies go to blocks, which lie after the header area, and the header proper, which
        // is read with `pread` at attach, ends before the first word.
        unsafe { AtomicU64::from_ptr(pointer) }
    }
}

impl Words for SharedWords<'_> {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    #[test]
    fn words_lie_where_they_should_and_nowhere_else() {
        let mut buffer = [0_u64; 8];
        let base = NonNull::new(buffer.as_mut_ptr()).unwrap().cast();
        {
            // SAFETY: the buffer outlives the block, and nothing refers to it meanwhile.
            let words = SharedWords::new(unsafe { SharedBytes::new(base, 64) }, 16, 4);
            words.store(0, 5, Ordering::Relaxed);
            words.store(3, 9, Ordering::Release);
            assert_eq!(words.load(3, Ordering::Acquire), 9);
            for outside in [4, usize::MAX] {
                let outcome = std::panic::catch_unwind(|| words.load(outside, Ordering::Relaxed));
                assert!(outcome.is_err(), "word {outside}");
            }
        }
        assert_eq!(buffer, [0, 0, 5, 0, 0, 9, 0, 0]);
    }
}
