//! What a thread takes from the global allocator. Whoever uses this is a binary of its own.
#![expect(unsafe_code, reason = "a counting allocator can only be written as an unsafe impl")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counters neither allocate nor unwind (the
// cells are `const` and have no destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get().saturating_add(1));
        BYTES.set(BYTES.get().saturating_add(layout.size()));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the allocations of this thread in it and their bytes.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let (allocations, bytes) = (ALLOCATIONS.get(), BYTES.get());
    let result = work();
    (result, ALLOCATIONS.get() - allocations, BYTES.get() - bytes)
}
