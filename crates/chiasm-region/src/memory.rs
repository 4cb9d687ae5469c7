//! Raw bytes that other processes may read and write at any time.
//!
//! Everything that touches such memory goes through here: whole copies between it and memory of our
//! own, by raw pointer. It must never form a reference into it, because the bytes may change while
//! the reference lives.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// `len` bytes at `base`, valid for `'a`, that this process touches only by the methods below and
/// by system calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedBytes<'a> {
    base: NonNull<u8>,
    len: usize,
    owner: PhantomData<&'a ()>,
}

impl SharedBytes<'_> {
    /// # Safety
    ///
    /// `base .. base + len` is one allocation, valid for reads for `'a` (and for writes if
    /// [`SharedBytes::store`] or [`SharedBytes::touch`] is called), and no reference into it exists
    /// meanwhile.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len, owner: PhantomData }
    }

    /// Pointer to byte `at`, of which `len` bytes lie inside.
    pub(crate) fn pointer(self, at: usize, len: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "bytes {at}+{len} of {}: ranges are checked by the geometry", self.len);
        // SAFETY: `at <= self.len`, so the result is inside the one allocation that `new` was
        // promised, or just past its end with `len` zero.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Copy `source` to byte `at` and on.
    pub(crate) fn store(self, at: usize, source: &[u8]) {
        let target = self.pointer(at, source.len());
        // SAFETY: `source` is readable by its type; the target is writable for as many bytes
        // (checked above, promised to `new`). Who else may write: other processes, and other
        // threads of this one through the same copies, if the cache's rule that one block has one
        // writer at a time is broken; no Rust reference sees the bytes, so the damage is torn bytes,
        // which the digest finds. `copy` allows overlap, though no slice can lie in the mapping.
        unsafe { std::ptr::copy(source.as_ptr(), target, source.len()) }
    }

    /// Copy bytes from byte `at` on into `target`.
    pub(crate) fn load(self, at: usize, target: &mut [u8]) {
        let source = self.pointer(at, target.len());
        // SAFETY: as in `store`, the other way round: `target` is exclusively ours, the source is
        // readable, and a concurrent writer gives torn bytes, never an invalid value (any byte is a
        // valid `u8`).
        unsafe { std::ptr::copy(source.cast_const(), target.as_mut_ptr(), target.len()) }
    }

    /// Write one byte per page back as it is, so that every page is there for writing.
    pub(crate) fn touch(self, page_bytes: usize) {
        for at in (0..self.len).step_by(page_bytes) {
            let byte = self.pointer(at, 1);
            // SAFETY: one readable byte inside; volatile so that the pair below is not removed.
            let value = unsafe { byte.read_volatile() };
            // SAFETY: the same byte, writable (promised to `new`). Only the creator does this,
            // before the file has a name: nobody else can write in between.
            unsafe { byte.write_volatile(value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run `body` over a heap buffer and return the buffer afterwards.
    fn with_buffer(len: usize, body: impl FnOnce(SharedBytes<'_>)) -> Vec<u8> {
        let mut buffer: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let base = NonNull::new(buffer.as_mut_ptr()).unwrap();
        // SAFETY: the buffer outlives `body`, and nothing refers to it until `body` is done.
        body(unsafe { SharedBytes::new(base, len) });
        buffer
    }

    #[test]
    fn copies_land_where_they_should_and_nowhere_else() {
        let buffer = with_buffer(100, |bytes| {
            bytes.store(10, &[200; 5]);
            bytes.store(100, &[]);
            let mut seen = [0; 7];
            bytes.load(9, &mut seen);
            assert_eq!(seen, [9, 200, 200, 200, 200, 200, 15]);
        });
        let expected: Vec<u8> =
            (0..100).map(|i| if (10..15).contains(&i) { 200 } else { i }).collect();
        assert_eq!(buffer, expected);
    }

    #[test]
    fn touching_keeps_every_byte() {
        let buffer = with_buffer(1000, |bytes| bytes.touch(64));
        assert!(buffer.iter().enumerate().all(|(i, &byte)| usize::from(byte) == i % 251));
    }

    #[test]
    fn nothing_outside_is_touched() {
        for (at, len) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 2)] {
            with_buffer(100, |bytes| {
                let outcome = std::panic::catch_unwind(|| bytes.pointer(at, len));
                assert!(outcome.is_err(), "{at}+{len}");
            });
        }
    }
}
