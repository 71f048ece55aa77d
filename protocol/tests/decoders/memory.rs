//! What a call holds of the heap at most, measured by the allocator of this test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread holds.
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
// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(place, layout) }
    }
}

/// What `call` says, and the most bytes that it held at once beside what was held before.
pub(crate) fn held<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let said = call();
    (said, usize::try_from(MOST.get() - before).unwrap_or_default())
}
