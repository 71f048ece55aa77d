//! Measures how a step spends its time: wall time per kind of kernel, for `bench train`.
//!
//! A kernel is called from the thread that runs the model, and returns when its tasks are done. So
//! the sums are per thread, and two models in one process do not mix. The cost is two readings of
//! the clock per kernel, of which a step has a few hundred.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Wall time spent in one kind of kernel, and how often it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// The kind of kernel, such as "attention back".
    pub name: &'static str,
    /// Wall time of all calls together.
    pub time: Duration,
    /// How often this kind of kernel ran.
    pub calls: u64,
}

thread_local! {
    /// A few dozen kinds, so a search by name is fast enough.
    static PARTS: RefCell<Vec<KernelTime>> = const { RefCell::new(Vec::new()) };
}

/// The measurements of this thread since the last call, in the order of first use. Empty on a GPU,
/// whose kernels run asynchronously.
#[must_use]
pub fn take() -> Vec<KernelTime> {
    PARTS.take()
}

/// Measures a kernel until it is dropped, and adds the time to its kind. A timer inside another one
/// is counted in both.
#[must_use]
pub(super) struct Timer {
    /// The kind that the time is added to.
    name: &'static str,
    /// The time at which the kernel was called.
    start: Instant,
}

/// Starts the clock of one kernel. Equal names are one kind, from whichever operator.
pub(super) fn start(name: &'static str) -> Timer {
    Timer { name, start: Instant::now() }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Self { name, start } = *self;
        let time = start.elapsed();
        PARTS.with_borrow_mut(|parts| match parts.iter_mut().find(|part| part.name == name) {
            Some(part) => {
                part.time += time;
                part.calls += 1;
            }
            None => parts.push(KernelTime { name, time, calls: 1 }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_by_name_and_are_taken_once() {
        let _ = take();
        for name in ["a", "b", "a"] {
            drop(start(name));
        }
        let parts = take();
        let calls: Vec<_> = parts.iter().map(|part| (part.name, part.calls)).collect();
        assert_eq!(calls, [("a", 2), ("b", 1)]);
        assert_eq!(take(), []);
    }
}
