//! `sim --virtual`: the protocol core of a node, with many peers in virtual time, over many seeds.
//!
//! There is no process and no socket: network, clock and faults are simulated, and every invariant of docs/PROTOCOL.md
//! is checked after every step. A failure names the seed and the command that repeats it.
//!
//! The simulator is a crate of its own; this file has its command: which classes and seeds run,
//! what is printed of them, and when that is a failure. Seeds are spread over all cores, and equal
//! seeds have equal results on every machine.

mod counts;
mod ticker;

use std::{io::Write, ops::Range, str::FromStr, time::Instant};

use intellect_protocol_sim::report::{Count, Summary};
use intellect_protocol_sim::{self as sim, Faults};

use crate::{
    cli::SimArgs,
    figures,
    os::{self, cannot},
};

use super::{error::SimError, folder::Folder};
use counts::Counts;
use ticker::Ticker;

/// Runs every class of faults that was asked for. Prints a row of a table for each, or with `--details` everything
/// that was counted. With `--out` it writes the counts, also those of classes that fail.
pub(super) fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let seeds = parse_seeds(&args.seeds)?;
    let classes = match &args.faults {
        Some(text) => vec![parse_faults(text)?],
        None => Faults::ALL.to_vec(),
    };
    let peers = args.peers.map_or(PEERS_DEFAULT, std::num::NonZeroUsize::get);
    let folder = args.out.is_some().then(|| Folder::make(args)).transpose()?;
    let (began, number) = (Instant::now(), classes.len());
    let mut counts = Counts::new(peers, &seeds);
    if !args.details {
        writeln!(out, "{HEADER}")?;
    }
    let mut failed = 0;
    for faults in classes {
        let ticker = Ticker::begin(faults, seeds.end - seeds.start);
        let shown = |done| ticker.show(done);
        let summary = sim::swarm_shown(peers, seeds.clone(), faults, os::cores(), &shown);
        ticker.clear();
        // A few seeds need not show everything that a class can do.
        let enough = seeds.end - seeds.start >= SEEDS_ENOUGH && peers >= PEERS_DEFAULT;
        if args.details {
            writeln!(out, "{summary}")?;
        } else {
            write!(out, "{}", row(&summary, enough))?;
        }
        out.flush()?;
        if !summary.failures.is_empty() || (enough && !summary.holds()) {
            failed += 1;
        }
        counts.classes.push(summary);
        if let Some(folder) = &folder {
            counts.write(&folder.path).map_err(cannot("write to", &folder.path))?;
        }
    }
    let classes = if number == 1 { "1 class".to_owned() } else { format!("{number} classes") };
    writeln!(out, "{classes} in {:.1} s", began.elapsed().as_secs_f64())?;
    if let Some(folder) = folder {
        writeln!(out, "virtual.json and virtual.csv are in {}", folder.path.display())?;
    }
    if failed > 0 {
        return Err(SimError::Swarm { failed });
    }
    Ok(())
}

/// The columns of the table, as wide as [`row`] fills them.
const HEADER: &str = "class        seeds hold  commits  attempts 2+  Regroups  forks  restarts  faults  \
    virtual min  longest pause";

/// The row of one class, the seeds that failed, and what the class never showed. With `enough` seeds that last one is a
/// failure.
fn row(summary: &Summary, enough: bool) -> String {
    let Summary { faults, peers: _, held, total, failures } = summary;
    let seeds = format!("{held} of {}", held + failures.len() as u64);
    let (class, commits) = (faults.to_string(), figures::count(total.of(Count::Commits)));
    let restarts = total.of(Count::Resumed) + total.of(Count::Blank);
    let struck = figures::count(total.faults.values().sum());
    let mut text = format!(
        "{class:<11}  {seeds:>10}  {commits:>7}  {:>12}  {:>8}  {:>5}  {restarts:>8}  {struck:>6}  {:>11.1}  \
         {:>11.1} s\n",
        total.of(Count::Attempts),
        total.of(Count::Regroups),
        total.of(Count::Forks),
        total.virtual_ms as f64 / 60_000.0,
        total.progress_ms as f64 / 1_000.0,
    );
    for failure in failures {
        text += &format!("{failure}\n");
    }
    let missing = summary.missing().join(", ");
    match (missing.is_empty(), enough) {
        (true, _) => {}
        (false, true) => text += &format!("  failed: never seen: {missing}\n"),
        (false, false) => text += &format!("  more seeds would show: {missing}\n"),
    }
    text
}

/// Parses a half-open range, `A..B`. An empty one is refused, as nothing would be tested by it.
fn parse_seeds(text: &str) -> Result<Range<u64>, SimError> {
    let wrong = || SimError::Seeds { text: text.to_owned() };
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| u64::from_str(text.trim()).map_err(|_| wrong());
    let seeds = number(start)?..number(end)?;
    if seeds.is_empty() { Err(wrong()) } else { Ok(seeds) }
}

/// The class of faults of this name.
fn parse_faults(text: &str) -> Result<Faults, SimError> {
    let named = Faults::ALL.into_iter().find(|faults| faults.to_string() == text);
    named.ok_or_else(|| SimError::Faults { text: text.to_owned() })
}

/// Peers of a virtual run, unless `--peers` says otherwise.
const PEERS_DEFAULT: usize = 16;
/// From so many seeds on a class must show all that it can do: fewer may miss what is rare, and
/// that proves nothing.
const SEEDS_ENOUGH: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_half_open_range() {
        assert_eq!(parse_seeds("3..7").unwrap(), 3..7);
        for text in ["", "3", "3..", "..3", "3..3", "7..3", "a..b", "-1..3", "0..=3"] {
            assert!(matches!(parse_seeds(text), Err(SimError::Seeds { .. })), "{text}");
        }
    }

    #[test]
    fn classes_are_a_closed_list() {
        for faults in Faults::ALL {
            assert_eq!(parse_faults(&faults.to_string()).unwrap(), faults);
        }
        assert!(parse_faults("storm").unwrap_err().to_string().contains("blackhole"));
    }

    #[test]
    fn a_class_is_a_row_that_fits_a_terminal_and_names_what_it_never_showed() {
        let total = sim::report::Report::default();
        let summary =
            Summary { faults: Faults::Clean, peers: 16, held: 4, total, failures: Vec::new() };
        let few = row(&summary, false);
        assert!(few.contains("4 of 4") && few.contains("more seeds would show: commits"), "{few}");
        assert!(row(&summary, true).contains("failed: never seen: commits"));
        assert!(few.lines().chain([HEADER]).all(|line| line.chars().count() <= 110), "{few}");
    }
}
