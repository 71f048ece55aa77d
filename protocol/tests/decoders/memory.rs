//! The most heap that a call holds, measured by the allocator of this test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting the bytes that each thread holds.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: usize, sign: isize) {
    let held = HELD.get() + sign * isize::try_from(bytes).unwrap_or(isize::MAX);
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its nature; this one passes everything on"
)]
// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

/// The result of `call`, and the most bytes that it held at once in addition to those held before.
pub(crate) fn held<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let said = call();
    (said, usize::try_from(MOST.get() - before).unwrap_or_default())
}
