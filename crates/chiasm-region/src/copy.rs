//! From one mapping into another: the copies of the shm plane.
//!
//! Two ways were measured (one core, cold source, medians of CPU time, GB/s at 256 KiB / 2 / 14 /
//! 64 MiB). A bare copy: plain 16 / 19 / 19 / 19, past the caches (non-temporal stores of 32 bytes) 21 /
//! 24 / 24 / 25, of 64 bytes no better. Copied and then hashed chunk by chunk: plain 13 / 13 / 13 / 13,
//! past the caches 10 / 11 / 11 / 11, because the hash then fetches from memory what has just gone
//! there. So bytes that are hashed as they land are copied plainly, others past the caches.

use crate::memory::SharedBytes;

/// Bytes copied before they are hashed: they are in the second-level cache then. Measured with
/// [`CHUNK_BYTES`](crate::digest::CHUNK_BYTES) at 14 MiB: 64 KiB 13.2, 128 KiB 13.5, 256 KiB 13.2 GB/s.
pub(crate) const LANDING_BYTES: usize = 128 * 1024;

/// Shortest copy that goes past the caches. Shorter ones, of which the target may be read at once, are
/// left to the cache; the crossing point was not measured.
const STREAMED_BYTES: usize = 64 * 1024;

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Into the caches: for bytes that are read again at once.
    Plain,
    /// Past the caches where the processor can and it pays.
    Streamed,
}

/// Copy `len` bytes of `source` from byte `from` on to byte `to` of `target`.
pub(crate) fn copy(
    source: SharedBytes<'_>,
    from: usize,
    target: SharedBytes<'_>,
    to: usize,
    len: usize,
    stores: Stores,
) {
    let (from, to) = (source.pointer(from, len).cast_const(), target.pointer(to, len));
    if stores == Stores::Streamed && len >= STREAMED_BYTES && streaming::is_there() {
        // SAFETY: as below; the processor can do it (asked in this line).
        unsafe { streaming::copy(from, to, len) }
    } else {
        // SAFETY: both ranges lie inside their mappings (checked by `pointer`), the source readable,
        // the target writable (the caller's `Region` has checked how it is mapped). No reference
        // covers either. Others may write the source meanwhile, which gives torn bytes that the digest
        // or the lease gives away; nobody else writes blocks that are being filled. `copy` allows
        // overlap, though two mappings never overlap in addresses.
        unsafe { std::ptr::copy(from, to, len) }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streaming {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// Bytes of one store, and the alignment that it needs.
    const STORE_BYTES: usize = 32;
    /// Stores of one round of the loop: two cache lines.
    const ROUND: usize = 4;

    pub(super) fn is_there() -> bool {
        std::arch::is_x86_feature_detected!("avx")
    }

    fn wide(base: *const u8, at: usize) -> *mut __m256i {
        base.wrapping_add(at).cast_mut().cast()
    }

    /// # Safety
    ///
    /// As `std::ptr::copy`, for ranges that do not overlap, on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        let head = to.align_offset(STORE_BYTES).min(len);
        // SAFETY: the first bytes of both ranges.
        unsafe { std::ptr::copy(from, to, head) };
        let mut at = head;
        while len - at >= ROUND * STORE_BYTES {
            for at in (at..).step_by(STORE_BYTES).take(ROUND) {
                let (from, to) = (wide(from, at).cast_const(), wide(to, at));
                // SAFETY: 32 bytes inside the source; any alignment will do.
                let bytes = unsafe { _mm256_loadu_si256(from) };
                // SAFETY: 32 bytes inside the target, aligned by the head.
                unsafe { _mm256_stream_si256(to, bytes) };
            }
            at += ROUND * STORE_BYTES;
        }
        // SAFETY: what is left of both ranges.
        unsafe { std::ptr::copy(from.wrapping_add(at), to.wrapping_add(at), len - at) };
        // Streamed stores may be seen late: whoever is told that the bytes are there sees them.
        _mm_sfence();
    }
}

/// Where nothing better was measured, copies are plain.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod streaming {
    pub(super) fn is_there() -> bool {
        false
    }

    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy(from, to, len) }
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
                for stores in [Stores::Plain, Stores::Streamed] {
                    let mut target = vec![251; len];
                    let from = shift / 3;
                    copy(bytes_of(&mut source), from, bytes_of(&mut target), shift, size, stores);
                    let (before, rest) = target.split_at(shift);
                    let (there, after) = rest.split_at(size);
                    assert!(there == &plain[from..from + size], "{shift} {size} {stores:?}");
                    assert!(before.iter().chain(after).all(|byte| *byte == 251));
                }
            }
        }
    }
}
