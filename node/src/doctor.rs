//! `doctor`: whether this machine and its network suit a run, before a node joins one.
//!
//! Each examination ends in a [`Check`]: a verdict, a number, a sentence, a remedy. They are
//! printed as they come, in the order of the table. Nothing is kept: no key, no folder, no file.
//! All together takes at most 20 s.
//!
//! One examination goes through here so: [`run`] opens the network on a task and meanwhile examines
//! this machine ([`machine`]), one thing after the other. Then it takes what the task has found
//! ([`paths`]), compares what entry points offer with this machine ([`speed::needs`]), and measures
//! the line ([`speed::rates`]). Every [`Check`] goes to a [`Report`], and the worst of them is the
//! verdict of the program.
//!
//! A node that runs in the data folder says why it waits ([`node`]), which is the exit code where
//! nothing is bad. It leaves to others what is not the machine's: whether a run goes on, and which
//! of its peers answer, says `watch`.

mod check;
mod machine;
mod node;
mod paths;
mod speed;

use std::{
    io::{self, IsTerminal as _, Write},
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use self::check::{Check, Grade};
use crate::{
    cli::doctor::DoctorArgs,
    config::{self, LocalError},
    figures::number_of,
    net::{self, NetError, address, exam::Exam},
    os,
    tools::status,
};

/// Why `doctor` ends with an error. All but `Usage` and `Bad` mean that the examination itself
/// broke off; lines that were printed until then are right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoctorError {
    /// The command line makes no sense; nothing was examined.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// Something keeps a node on this machine out of a run. It has the names of the checks; their
    /// sentences and remedies were printed above. The exit code is 1.
    #[error("{} bad: {}; the lines above say what to do", are(.0.len()), .0.join(", "))]
    Bad(Vec<&'static str>),
    /// The network could not be opened.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The system refused threads or random bytes.
    #[error("cannot start")]
    Start(#[source] io::Error),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// "1 check is", "2 checks are": the beginning of the last sentence.
fn are(number: usize) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", number_of(number, "check"))
}

/// Examines everything, and prints a table or one JSON object. The network is examined meanwhile,
/// since UPnP takes ten seconds to say that there is none; the line is measured last, since
/// training would disturb it.
///
/// The network has a key of its own for this look, so that a node that runs meanwhile is not taken
/// for its twin. It listens where the node would, so a port that `--listen` names has to be free.
///
/// Returns the exit code: 0, or 3 if nothing is bad and the node of the data folder waits.
pub(crate) fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<u8, DoctorError> {
    let begun = Instant::now();
    let bootstrap = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let config = net::Config {
        key_seed: os::random().map_err(DoctorError::Start)?,
        listen: listen(&args.listen)?,
        external: config::addresses("external", &args.external, address::parse_external)?,
        bootstrap,
        ..net::Config::default()
    };
    let data_dir = args.data_dir.clone().map_or_else(config::data_dir, Ok)?;
    let runtime = os::runtime().map_err(DoctorError::Start)?;
    let enough = CancellationToken::new();
    let looking = if config.bootstrap.is_empty() {
        None
    } else {
        let _inside = runtime.enter();
        let exam = Exam::start(&config, |file| speed::parse(file).map(|manifest| manifest.id))?;
        Some(runtime.spawn(exam.look((begun + LOOK).into(), enough.clone())))
    };
    let mut report = Report { checks: Vec::new(), as_json: args.json, out };
    for (name, examine) in machine::examinations(&data_dir) {
        report.begins(name)?;
        report.ends(examine())?;
    }
    enough.cancel();
    match looking {
        None => report.ends(
            Check::not_tried("network", "no entry point is named")
                .remedy("name the entry point of a run with --bootstrap"),
        )?,
        Some(looking) => {
            report.begins("network")?;
            let exam = runtime.block_on(looking).map_err(|e| DoctorError::Start(e.into()))?;
            way_in(&runtime, exam, &data_dir, &mut report)?;
        }
    }
    // What is still open, such as a search for a router, must not hold the program.
    runtime.shutdown_background();
    report.finish(begun)
}

/// Where the node would listen, as it takes these words. Without any it is the default of a node,
/// and the system chooses the port.
fn listen(typed: &[String]) -> Result<Vec<address::Address>, LocalError> {
    let default = || config::LISTEN_DEFAULT.map(str::to_owned).to_vec();
    let texts = if typed.is_empty() { default() } else { typed.to_vec() };
    config::addresses("listen", &texts, address::parse_listen)
}

/// Reports what the network was found to be, and measures the line. The network is dropped inside
/// the runtime, since its sockets belong to that.
fn way_in(
    runtime: &Runtime,
    mut exam: Exam,
    data_dir: &Path,
    report: &mut Report<'_>,
) -> io::Result<()> {
    for check in paths::checks(&exam.findings) {
        report.ends(check)?;
    }
    let runs = speed::runs(&exam.findings.manifests);
    for check in speed::needs(&runs, &machine::existing(data_dir)) {
        report.ends(check)?;
    }
    report.begins("down and up")?;
    let measured = runtime.block_on(exam.measure());
    for check in speed::rates(measured, &runs) {
        report.ends(check)?;
    }
    let _inside = runtime.enter();
    drop(exam);
    Ok(())
}

/// Prints what was found, as it is found. With `--json` the lines go to standard error, so that
/// standard output has the object and nothing else.
struct Report<'a> {
    /// All results so far, in the order of the table.
    checks: Vec<Check>,
    /// Whether the results are printed as one JSON object at the end.
    as_json: bool,
    /// Standard output, or what stands for it.
    out: &'a mut dyn Write,
}

impl Report<'_> {
    /// Says on a terminal what is examined now. The next line replaces it. Without a terminal
    /// nothing is written, as in a log the line would stay.
    fn begins(&mut self, name: &str) -> io::Result<()> {
        if io::stderr().is_terminal() {
            write!(io::stderr(), "\r\x1b[K{name} …")?;
        }
        Ok(())
    }

    /// Prints one result, and keeps it for the verdict over all.
    fn ends(&mut self, check: Check) -> io::Result<()> {
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

    /// Prints the worst verdict, which is an error if it is bad. A warning is no error: a node
    /// works. What could not be tried counts for nothing, unless nothing at all could be tried.
    /// Returns the exit code, which tells that a node waits as that of `status` does.
    ///
    /// # Errors
    /// [`DoctorError::Bad`] with the names of the bad checks; [`DoctorError::Output`].
    fn finish(self, begun: Instant) -> Result<u8, DoctorError> {
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
        let waits = of(Grade::Warning).any(|check| check.check == node::NAME);
        if !bad.is_empty() {
            return Err(DoctorError::Bad(bad));
        }
        Ok(if waits { status::WAITS } else { 0 })
    }
}

/// How long the network is examined at most: UPnP gives up after 10 s, and the measurement takes 7
/// s.
const LOOK: Duration = Duration::from_secs(12);
/// The number of the JSON object's form. It rises where a key changes its meaning, and stays where
/// one is added.
const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_that_the_node_waits_unless_something_is_bad() {
        let ends = |checks: &[(&'static str, Grade)]| {
            let checks = checks.iter().map(|(name, grade)| Check::new(name, *grade, "")).collect();
            let mut out = Vec::new();
            let report = Report { checks, as_json: true, out: &mut out };
            report.finish(Instant::now()).map_err(|error| error.to_string())
        };
        let waits = (node::NAME, Grade::Warning);
        assert_eq!(ends(&[("disk", Grade::Warning), (node::NAME, Grade::Ok)]), Ok(0));
        assert_eq!(ends(&[("disk", Grade::Ok), waits]), Ok(status::WAITS));
        assert!(ends(&[("disk", Grade::Bad), waits]).unwrap_err().contains("bad: disk"));
    }
}
