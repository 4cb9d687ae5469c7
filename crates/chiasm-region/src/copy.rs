//! From one mapping into another: the copies of the shm plane.
//!
//! Two ways of storing were measured (one thread, cold source, medians of CPU time, GB/s at 256 KiB /
//! 2 / 14 / 64 MiB). A bare copy: plain 18 / 19 / 20 / 21, past the caches (non-temporal stores of 32
//! bytes) 21 / 24 / 24 / 25, of 64 bytes no better. With a digest: copied and then hashed out of the
//! target 13.5 / 14 / 14 / 14; loaded once and stored twice, past the caches into the target and plainly
//! into 8 KiB of private memory that are hashed at once, 17 / 20 / 20 / 20 (plainly into both 15 / 17 /
//! 17 / 17; with 16 KiB 16 / 17 / 17 / 17, with 32 KiB 13.5 / 14 / 15 / 15). So everything goes past
//! the caches, and what is hashed goes through a buffer that stays in the first-level cache.
//!
//! What is hashed is what was stored, bit by bit, and the source is read once: a writer in between
//! makes torn bytes of which the digest is the digest (S2). It must never read the source twice.

use crate::memory::SharedBytes;

/// Bytes that are copied and then hashed.
pub(crate) const HASHED_BYTES: usize = 8 * 1024;

/// Shortest bare copy that goes past the caches. Shorter ones, of which the target may be read at once,
/// are left to the cache; the crossing point was not measured.
const STREAMED_BYTES: usize = 64 * 1024;

/// Copy `len` bytes of `source` from byte `from` on to byte `to` of `target`.
pub(crate) fn copy(
    source: SharedBytes<'_>,
    from: usize,
    target: SharedBytes<'_>,
    to: usize,
    len: usize,
) {
    let (from, to) = (source.pointer(from, len).cast_const(), target.pointer(to, len));
    if len >= STREAMED_BYTES && streaming::is_there() {
        // SAFETY: as below; the processor can do it (asked in this line).
        unsafe { streaming::copy(from, to, len) }
        streaming::finish();
    } else {
        // SAFETY: both ranges lie inside their mappings (checked by `pointer`), the source readable,
        // the target writable (the caller's `Region` has checked how it is mapped). No reference
        // covers either. Others may write the source meanwhile, which gives torn bytes that the digest
        // or the lease gives away; nobody else writes blocks that are being filled. `copy` allows
        // overlap, though two mappings never overlap in addresses.
        unsafe { std::ptr::copy(from, to, len) }
    }
}

/// Copy as many bytes as `taken` holds of `source` from byte `from` on to byte `to` of `target`, and
/// the very same into `taken`. Whoever is told of them later has to be told after [`finish`].
pub(crate) fn copy_and_take(
    source: SharedBytes<'_>,
    from: usize,
    target: SharedBytes<'_>,
    to: usize,
    taken: &mut [u8],
) {
    let len = taken.len();
    let (from, to) = (source.pointer(from, len).cast_const(), target.pointer(to, len));
    if streaming::is_there() {
        // SAFETY: as below; the processor can do it (asked in this line).
        unsafe { streaming::copy_and_take(from, to, taken) }
    } else {
        // SAFETY: as in `copy`; `taken` is exclusively ours.
        unsafe { through(from, to, taken) }
    }
}

/// Whoever is told from here on that bytes have been copied sees them.
pub(crate) fn finish() {
    streaming::finish();
}

/// # Safety
///
/// `from` is readable and `to` writable for as many bytes as `taken` has, and no reference covers them.
unsafe fn through(from: *const u8, to: *mut u8, taken: &mut [u8]) {
    // SAFETY: the caller's, and `taken` is no part of either.
    unsafe { std::ptr::copy_nonoverlapping(from, taken.as_mut_ptr(), taken.len()) };
    // SAFETY: the same.
    unsafe { std::ptr::copy_nonoverlapping(taken.as_ptr(), to, taken.len()) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streaming {
    use std::arch::x86_64::{
        __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
    };

    /// Bytes of one store, and the alignment that it needs.
    const STORE_BYTES: usize = 32;
    /// Bytes of one round of the loop: two cache lines.
    const ROUND_BYTES: usize = 4 * STORE_BYTES;

    pub(super) fn is_there() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    /// Streamed stores may be seen late, unless this comes after them.
    pub(super) fn finish() {
        // SAFETY: every x86-64 processor has it; it touches no memory.
        unsafe { _mm_sfence() }
    }

    fn wide(base: *const u8, at: usize) -> *mut __m256i {
        base.wrapping_add(at).cast_mut().cast()
    }

    /// The part of `len` bytes at `to` that whole rounds of aligned stores cover.
    fn rounds(to: *mut u8, len: usize) -> std::ops::Range<usize> {
        let head = to.align_offset(STORE_BYTES).min(len);
        head..head + (len - head) / ROUND_BYTES * ROUND_BYTES
    }

    /// # Safety
    ///
    /// As `std::ptr::copy_nonoverlapping`, on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let rounds = rounds(to, len);
        // SAFETY: the first bytes of both ranges.
        unsafe { std::ptr::copy_nonoverlapping(from, to, rounds.start) };
        for round in rounds.clone().step_by(ROUND_BYTES) {
            for at in (round..round + ROUND_BYTES).step_by(STORE_BYTES) {
                // SAFETY: 32 bytes inside the source; any alignment will do.
                let bytes = unsafe { _mm256_loadu_si256(wide(from, at)) };
                // SAFETY: 32 bytes inside the target, aligned by the head.
                unsafe { _mm256_stream_si256(wide(to, at), bytes) };
            }
        }
        let (from, to) = (from.wrapping_add(rounds.end), to.wrapping_add(rounds.end));
        // SAFETY: what is left of both ranges.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len - rounds.end) };
    }

    /// # Safety
    ///
    /// As `through`, on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy_and_take(from: *const u8, to: *mut u8, taken: &mut [u8]) {
        let rounds = rounds(to, taken.len());
        let (head, rest) = taken.split_at_mut(rounds.start);
        // SAFETY: the first bytes of both ranges.
        unsafe { super::through(from, to, head) };
        let (middle, tail) = rest.split_at_mut(rounds.end - rounds.start);
        let middle = middle.as_mut_ptr();
        for round in rounds.clone().step_by(ROUND_BYTES) {
            for at in (round..round + ROUND_BYTES).step_by(STORE_BYTES) {
                // SAFETY: 32 bytes inside the source; any alignment will do.
                let bytes = unsafe { _mm256_loadu_si256(wide(from, at)) };
                // SAFETY: 32 bytes inside the target, aligned by the head.
                unsafe { _mm256_stream_si256(wide(to, at), bytes) };
                // SAFETY: 32 bytes inside `middle`, exclusively ours; any alignment will do.
                unsafe { _mm256_storeu_si256(wide(middle, at - rounds.start), bytes) };
            }
        }
        let (from, to) = (from.wrapping_add(rounds.end), to.wrapping_add(rounds.end));
        // SAFETY: what is left of both ranges.
        unsafe { super::through(from, to, tail) };
    }
}

/// Where nothing better was measured, copies are plain.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod streaming {
    pub(super) fn is_there() -> bool {
        false
    }

    pub(super) fn finish() {}

    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
    }

    pub(super) unsafe fn copy_and_take(from: *const u8, to: *mut u8, taken: &mut [u8]) {
        // SAFETY: the caller's.
        unsafe { super::through(from, to, taken) }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    fn bytes_of(buffer: &mut [u8]) -> SharedBytes<'_> {
        let base = NonNull::new(buffer.as_mut_ptr()).unwrap();
        // SAFETY: the buffer is borrowed for as long as the value lives, and not used meanwhile.
        unsafe { SharedBytes::new(base, buffer.len()) }
    }

    #[test]
    fn every_alignment_and_length_lands_where_it_should_and_nowhere_else() {
        let len = STREAMED_BYTES + 300;
        let mut source: Vec<u8> = (0..len).map(|i| u8::try_from(i % 249).unwrap()).collect();
        let plain = source.clone();
        let shifts = if cfg!(miri) { vec![0, 33] } else { (0..70).collect() };
        for shift in shifts {
            for size in [0, 1, 31, STREAMED_BYTES, STREAMED_BYTES + 127, STREAMED_BYTES + 129] {
                for taking in [false, true] {
                    let mut target = vec![251; len];
                    let from = shift / 3;
                    let (theirs, ours) = (bytes_of(&mut source), bytes_of(&mut target));
                    if taking {
                        let mut taken = vec![0; size];
                        copy_and_take(theirs, from, ours, shift, &mut taken);
                        finish();
                        assert!(taken == plain[from..from + size], "{shift} {size}");
                    } else {
                        copy(theirs, from, ours, shift, size);
                    }
                    let (before, rest) = target.split_at(shift);
                    let (there, after) = rest.split_at(size);
                    assert!(there == &plain[from..from + size], "{shift} {size} {taking}");
                    assert!(before.iter().chain(after).all(|byte| *byte == 251));
                }
            }
        }
    }

    /// What processors without streamed stores do.
    #[test]
    fn bytes_that_go_through_private_memory_are_those_that_arrive() {
        let (source, mut target) = ([7, 8, 9, 10], [0; 6]);
        let mut taken = [0; 3];
        let (from, to) = (source.as_ptr().wrapping_add(1), target.as_mut_ptr().wrapping_add(2));
        // SAFETY: three bytes inside each, and nothing refers to them meanwhile.
        unsafe { through(from, to, &mut taken) };
        assert_eq!((taken, target), ([8, 9, 10], [0, 0, 8, 9, 10, 0]));
    }
}
