//! A screen beside which a thread panics once a file is there, for the story of what is left of the terminal then.

#![allow(clippy::panic, reason = "this program is there to panic")]

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::Duration,
};

use intellect_view::{
    picture::Source,
    stage::Stage,
    tui::{self, Ended},
};

fn main() -> ExitCode {
    let Some(file) = env::args_os().nth(1).map(PathBuf::from) else { return ExitCode::from(2) };
    let (_stage, seen) = Stage::new(Source::default());
    let (_stop, stopped) = mpsc::channel();
    thread::spawn(move || panic_with(&file));
    let panicked = matches!(tui::run(seen, &stopped, "", None), Ok(Ended::Panicked));
    if panicked { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Panics as soon as there is a file of this name.
fn panic_with(file: &Path) {
    while !file.exists() {
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it was asked to");
}
