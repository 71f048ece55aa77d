//! Detects failures on a device.
//!
//! CubeCL computes on threads of its own. An operation that fails there (an allocation, a launch, a
//! kernel that the driver refuses) panics on such a thread. CubeCL catches the panic, logs a
//! warning and continues with undefined buffers, and burn's `sync` reports success. So panics of
//! those threads are counted, and results that were computed during one are discarded, with the
//! whole state of the device.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// Failures on all devices of this process so far.
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// The message of the first failure in the current step.
static FIRST: Mutex<Option<String>> = Mutex::new(None);
/// A panic hook belongs to the process, so it is set once.
static HOOK: Once = Once::new();

thread_local! {
    /// Whether this thread is in [`Watch::over`], which reports failures itself.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    /// What the last panic of this thread said there.
    static SAID: Cell<Option<String>> = const { Cell::new(None) };
}

/// Notes that something failed on a device.
pub(crate) fn note(what: &str) {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| what.to_owned());
    FAILURES.fetch_add(1, Ordering::Release);
}

/// From now on panics on CubeCL's threads are noted and not printed; others are printed as before.
fn install() {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_some_and(is_of_a_device) {
                note(&text(info));
            } else if WATCHED.get() {
                SAID.set(Some(text(info)));
            } else {
                others(info);
            }
        }));
    });
}

/// Whether a thread is CubeCL's: DSU-0-0, DSD-0-0, by stage, kind and number of the device.
fn is_of_a_device(thread: &str) -> bool {
    thread.starts_with("DSU-") || thread.starts_with("DSD-")
}

/// What a panic says, in short. If it says nothing, its line says more.
fn text(info: &PanicHookInfo<'_>) -> String {
    let text = in_short(info.payload_as_str().unwrap_or(NO_WORDS));
    match info.location() {
        Some(at) if text == NOTHING_THERE => {
            format!("an empty value at line {} of {}", at.line(), at.file())
        }
        _ => text,
    }
}

/// The error in an unwrapped result, or the innermost cause of an error, on one line.
fn in_short(text: &str) -> String {
    let text = text.strip_prefix("called `Result::unwrap()` on an `Err` value: ").unwrap_or(text);
    let text = text.split("\nNo backtrace").next().unwrap_or(text);
    let text = text.split("\nBacktrace:").next().unwrap_or(text);
    let text = text.rsplit("Caused by:").next().unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rust's words where an `Option` is empty.
const NOTHING_THERE: &str = "called `Option::unwrap()` on a `None` value";
/// For a panic whose payload is no text.
const NO_WORDS: &str = "a panic without words";

/// Watches one device. After the first failure all further work fails.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Set for the CPU, whose kernels are ours: a panic there is our bug and ends the program.
    idle: bool,
    /// The first failure; from then on the answer to every call.
    failed: OnceLock<String>,
}

impl Watch {
    /// A watch for the CPU, which does nothing.
    pub(crate) fn idle() -> Self {
        Self { idle: true, failed: OnceLock::new() }
    }

    /// A watch for a GPU. The first one sets the hook for panics of the whole process.
    pub(crate) fn new() -> Self {
        install();
        Self::default()
    }

    /// Runs `work`, then `sync`, which waits until the device has finished.
    ///
    /// # Errors
    /// What failed on any device of this process meanwhile, or on this device before. The result of
    /// `work` is then invalid.
    pub(crate) fn over<T>(
        &self,
        sync: impl FnOnce() -> Result<(), String>,
        work: impl FnOnce() -> T,
    ) -> Result<T, String> {
        if self.idle {
            return Ok(work());
        }
        if let Some(failed) = self.failed.get() {
            return Err(failed.clone());
        }
        let before = FAILURES.load(Ordering::Acquire);
        *FIRST.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let was = WATCHED.replace(true);
        let done = panic::catch_unwind(AssertUnwindSafe(|| (work(), sync())));
        WATCHED.set(was);
        let after = FAILURES.load(Ordering::Acquire);
        let what = match done {
            Ok((done, Ok(()))) if before == after => return Ok(done),
            Ok((_, Err(what))) if before == after => in_short(&what),
            Err(_) if before == after => SAID.take().unwrap_or_else(|| NO_WORDS.to_owned()),
            _ => first(),
        };
        Err(self.failed.get_or_init(|| what).clone())
    }
}

/// The message of the first failure.
fn first() -> String {
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone();
    first.unwrap_or_else(|| NO_WORDS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn what_fails_on_a_devices_thread_is_an_error_and_ends_it() {
        let (watch, other) = (Watch::new(), Watch::new());
        assert_eq!(watch.over(well, || 7), Ok(7));
        let fails = || {
            let thread = std::thread::Builder::new().name("DSU-9-0".to_owned());
            let words =
                "called `Result::unwrap()` on an `Err` value: no room for 17 GB\nNo backtrace";
            thread.spawn(move || panic!("{words}")).unwrap().join().unwrap_err();
            7
        };
        assert_eq!(watch.over(well, fails), Err("no room for 17 GB".to_owned()));
        assert_eq!(watch.over(well, || 7), Err("no room for 17 GB".to_owned()));
        assert_eq!(other.over(well, || 7), Ok(7), "earlier failures elsewhere do not count");
        let panics = || -> u64 { panic!("lost") };
        assert_eq!(other.over(well, panics), Err("lost".to_owned()));
        let late = || Err("it failed\nCaused by:\n  it is away\nBacktrace:\nnone".to_owned());
        assert_eq!(Watch::new().over(late, || 7), Err("it is away".to_owned()));
    }

    #[test]
    fn a_mistake_of_ours_on_the_cpu_is_none_of_the_devices() {
        let works = || Watch::idle().over(well, || panic!("ours"));
        assert!(panic::catch_unwind(works).is_err());
    }
}
