//! `bench device`: checks whether a device computes what it should, and how fast.
//!
//! The command is a list of tasks in six parts. Each task is a line: its name when it begins, then its result. A task that
//! finds something wrong, or fails, does not stop those after it; the last line names all of them. Each part has a time;
//! when it is over, the tasks that have not begun are left out, and reported as such. A kernel that hangs cannot be
//! cancelled. So the tasks run on a thread, which is abandoned with an error if a part takes several times its time.
//!
//! This file has the order and the time of the tasks. What they measure is in `tasks`, and what is
//! printed in `printout`. Both threads know the time of each part: the computing one leaves out
//! what comes too late, and this one notices that the other does not come back.

mod printout;
mod tasks;

use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use intellect_model::Device;
use intellect_model::bench::release;

use self::printout::Printout;
use self::tasks::{Finding, Task};
use super::BenchError;
use crate::cli::device::{DeviceArgs, DevicePart};
use crate::{config, figures};

/// Runs the parts that were typed, or all of them, in the order of [`DevicePart`]. On the CPU the
/// sizes are always small, since those of a GPU would take too long.
///
/// # Errors
/// The name of the device makes no sense, a preset cannot be used, or standard output is closed.
/// After the last task it is [`BenchError::Wrong`], if anything was wrong.
pub(crate) fn run(args: &DeviceArgs, out: &mut dyn Write) -> Result<(), BenchError> {
    let device = config::parse_device(&args.device)?;
    let asked = |task: &Task| args.parts.is_empty() || args.parts.contains(&task.part);
    let small = args.small || !device.is_gpu();
    let tasks = tasks::all(device, small, args.peak_tflops)?;
    let printout = Printout::new(out, args.json);
    let seconds = args.seconds.map(|seconds| Duration::from_secs(seconds.get()));
    let time = move |part: DevicePart| seconds.unwrap_or_else(|| part.time());
    play(device, tasks.into_iter().filter(asked).collect(), time, printout)
}

impl DevicePart {
    /// How long a part may take; under eight minutes for all of them. `--seconds` replaces it for
    /// every part.
    fn time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Facts | Self::Memory => 20,
            Self::Check | Self::Products | Self::Operators => 60,
            Self::Train => 200,
        })
    }

    /// The name by which it is typed and printed.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What the computing thread reports. The channel has room for one report, so the thread cannot run
/// far ahead of what is printed.
enum Progress {
    /// A task of this part and of this name has begun.
    Begins(DevicePart, String),
    /// The task that began last has ended.
    Ends(Finding),
}

/// Runs the tasks in order, each part within its time, and prints the results.
///
/// If the computing thread seems to hang, the task that has begun counts as wrong and the rest is
/// left out. The thread cannot be ended, and goes on until the process does.
fn play(
    device: Device,
    tasks: Vec<Task>,
    time: impl Fn(DevicePart) -> Duration + Copy + Send + 'static,
    mut printout: Printout<'_>,
) -> Result<(), BenchError> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || compute(device, tasks, time, &sender));
    let (mut part, mut begun) = (None, Instant::now());
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(Progress::Begins(next, of)) => {
                if part != Some(next) {
                    (part, begun) = (Some(next), Instant::now());
                }
                printout.begins(next, &of)?;
            }
            Ok(Progress::Ends(found)) => printout.ends(found)?,
            Err(RecvTimeoutError::Disconnected) => return printout.finish(),
            Err(RecvTimeoutError::Timeout) => {
                let patience = part.map_or(SLOWEST, |part| SLOWEST.max(PATIENCE * time(part)));
                if begun.elapsed() > patience {
                    let what = format!(
                        "no end after {} s; the rest is left out",
                        begun.elapsed().as_secs()
                    );
                    printout.ends(Finding::wrong(what))?;
                    return printout.finish();
                }
                printout.waits()?;
            }
        }
    }
}

/// The computing thread; it ends early if nobody receives its reports.
///
/// A part begins with its first task. Each task gets an equal share of what is left of its part,
/// after which it must not repeat its work; what it does not use is left to those after it. The
/// device's memory is released between two tasks, so that a large one does not fail because of the
/// one before.
fn compute(
    device: Device,
    tasks: Vec<Task>,
    time: impl Fn(DevicePart) -> Duration,
    sender: &SyncSender<Progress>,
) {
    let parts: Vec<_> = tasks.iter().map(|task| task.part).collect();
    let (mut part, mut begun) = (None, Instant::now());
    for (at, task) in tasks.into_iter().enumerate() {
        if part != Some(task.part) {
            (part, begun) = (Some(task.part), Instant::now());
        }
        if sender.send(Progress::Begins(task.part, task.of)).is_err() {
            return;
        }
        let left = time(task.part).saturating_sub(begun.elapsed());
        let share = parts[at..].iter().filter(|other| **other == task.part).count() as u32;
        let found = if left.is_zero() {
            Finding::left_out("the time of this part is over".to_owned())
        } else {
            found_by(|| (task.work)(left / share))
        };
        // A device that cannot release its memory fails at the next task.
        let _ = panic::catch_unwind(AssertUnwindSafe(|| release(device)));
        if sender.send(Progress::Ends(found)).is_err() {
            return;
        }
    }
}

/// Does the work of a task. An error or a panic is a finding as well: the libraries beneath may
/// panic where a kernel cannot run, and the other tasks are still worth their time.
fn found_by(work: impl FnOnce() -> Result<Finding, BenchError>) -> Finding {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => Finding::wrong(figures::explain(&error, ": ")),
        Err(panicked) => {
            let text = panicked.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panicked.downcast_ref::<&str>().copied());
            Finding::wrong(format!("a panic: {}", text.unwrap_or("without words")))
        }
    }
}

/// How often a person sees that a task is still running.
const TICK: Duration = Duration::from_secs(2);

/// After this multiple of its time, or after [`SLOWEST`] if that is more, a part is taken to hang. The margin is needed
/// because a task that has begun is not cut off, and compiles its kernels.
const PATIENCE: u32 = 3;
/// The least time after which a part is taken to hang.
const SLOWEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn lines(out: &[u8]) -> Vec<Value> {
        let text = str::from_utf8(out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn the_cpu_is_right_in_all_its_parts() {
        let args = DeviceArgs {
            device: "cpu".to_owned(),
            small: true,
            parts: Vec::new(),
            seconds: None,
            peak_tflops: Some(1.0),
            json: true,
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let lines = lines(&out);
        for part in ["facts", "check", "products", "operators", "train"] {
            let ends = |line: &&Value| line["part"] == part && line["right"] == true;
            assert!(lines.iter().any(|line| ends(&line)), "{part}: {lines:?}");
        }
        let last = lines.last().unwrap();
        assert!(
            last["part"] == "end" && last["right"] == true && last["wrong"] == Value::Array(vec![])
        );
    }

    #[test]
    fn what_is_wrong_or_fails_ends_the_command_as_an_error_and_stops_nothing() {
        let task = |of: &str, work: fn() -> Result<Finding, BenchError>| Task {
            part: DevicePart::Check,
            of: of.to_owned(),
            work: Box::new(move |_| work()),
        };
        let tasks = || {
            vec![
                task("a", || Ok(Finding::wrong("off".to_owned()))),
                task("b", || Err(std::io::Error::other("lost").into())),
                task("c", || panic!("no kernel")),
                task("d", || Ok(Finding::left_out("too large".to_owned()))),
                task("e", || Ok(Finding::right("fine".to_owned(), Value::Null))),
            ]
        };
        for as_json in [true, false] {
            let mut out = Vec::new();
            let time = |_| Duration::from_secs(60);
            let done = play(Device::Cpu, tasks(), time, Printout::new(&mut out, as_json));
            let error = done.unwrap_err().to_string();
            for what in ["check a: off", "check b: ", "lost", "check c: a panic: no kernel"] {
                assert!(error.contains(what), "{error}");
            }
            if as_json {
                let lines = lines(&out);
                assert_eq!(lines.len(), 11);
                let last = &lines[10];
                assert!(last["right"] == false && last["wrong"].as_array().unwrap().len() == 3);
                assert_eq!(last["left_out"][0], "check d");
            } else {
                let text = String::from_utf8(out).unwrap();
                assert!(text.contains("check e: fine\n"), "{text}");
                let last = text.lines().last().unwrap();
                assert!(last.starts_with("wrong: check a: off; "), "{last}");
            }
        }
    }

    #[test]
    fn nothing_is_begun_when_the_time_of_a_part_is_over() {
        let work = || Err(std::io::Error::other("begun").into());
        let task =
            Task { part: DevicePart::Check, of: "a".to_owned(), work: Box::new(move |_| work()) };
        let mut out = Vec::new();
        let done =
            play(Device::Cpu, vec![task], |_| Duration::ZERO, Printout::new(&mut out, false));
        done.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("nothing is wrong; left out: check a\n"), "{text}");
    }
}
