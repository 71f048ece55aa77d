//! `doctor`: whether this machine and its network suit a run, before a node joins one.
//!
//! Each examination ends in a [`Check`]: a verdict, a number, a sentence, a remedy. They are printed as they come, in
//! the order of the table. Nothing is kept: no key, no folder, no file. All together takes at most 20 s.

mod check;
mod machine;

use std::{
    io::{self, Write},
    time::Instant,
};

use serde_json::json;

use self::check::{Check, Grade};
use crate::{
    cli::doctor::DoctorArgs,
    config::{self, LocalError},
    figures::number_of,
    net::address,
};

/// Why `doctor` ends with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoctorError {
    /// The command line makes no sense; nothing was examined.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// Something keeps a node on this machine out of a run.
    #[error("{} bad: {}; the lines above say what to do", are(.0.len()), .0.join(", "))]
    Bad(Vec<&'static str>),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

fn are(number: usize) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", number_of(number, "check"))
}

/// Examines everything, and prints a table or one JSON object.
pub(crate) fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), DoctorError> {
    let begun = Instant::now();
    let _entries = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let data_dir = args.data_dir.clone().map_or_else(config::data_dir, Ok)?;
    let mut report = Report { checks: Vec::new(), as_json: args.json, out };
    for (name, examine) in machine::examinations(&data_dir) {
        report.begins(name)?;
        report.ends(examine())?;
    }
    report.finish(begun)
}

/// Prints what was found, as it is found.
struct Report<'a> {
    checks: Vec<Check>,
    as_json: bool,
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Says on a terminal what is examined now.
    fn begins(&mut self, name: &str) -> io::Result<()> {
        use io::IsTerminal as _;
        if io::stderr().is_terminal() {
            let mut err = io::stderr();
            write!(err, "\r\x1b[K{name} …")?;
            err.flush()?;
        }
        Ok(())
    }

    fn ends(&mut self, check: Check) -> io::Result<()> {
        use io::IsTerminal as _;
        if io::stderr().is_terminal() {
            write!(io::stderr(), "\r\x1b[K")?;
        }
        if self.as_json {
            // Standard output is for the object alone.
            writeln!(io::stderr(), "{check}")?;
        } else {
            writeln!(self.out, "{check}")?;
            self.out.flush()?;
        }
        self.checks.push(check);
        Ok(())
    }

    /// Prints the worst verdict, which is an error if it is bad.
    fn finish(self, begun: Instant) -> Result<(), DoctorError> {
        let worst = self.checks.iter().map(|check| check.verdict).max().unwrap_or(Grade::Ok);
        let of = |grade: Grade| self.checks.iter().filter(move |check| check.verdict == grade);
        let bad: Vec<&str> = of(Grade::Bad).map(|check| check.check).collect();
        let seconds = begun.elapsed().as_secs_f64();
        if self.as_json {
            let object = json!({
                "format": FORMAT,
                "version": env!("CARGO_PKG_VERSION"),
                "verdict": worst,
                "took_s": seconds,
                "checks": self.checks,
            });
            writeln!(self.out, "{object}")?;
        } else if bad.is_empty() {
            let warnings = of(Grade::Warning).count();
            let note = if warnings == 0 {
                String::new()
            } else {
                format!(", {}", number_of(warnings, "warning"))
            };
            writeln!(self.out, "nothing is bad{note}; {seconds:.0} s")?;
        }
        self.out.flush()?;
        if bad.is_empty() { Ok(()) } else { Err(DoctorError::Bad(bad)) }
    }
}

/// The number of the JSON object's form.
const FORMAT: u32 = 1;
