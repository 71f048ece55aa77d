//! `sim --virtual`: the very core of a node, many peers at a time, in virtual time, over seeds.
//!
//! No process and no socket: the network, the clock and the faults are simulated, and every
//! invariant of docs/PROTOCOL.md is checked after every step. A seed that fails names itself and
//! the command that repeats it.

use std::{io::Write, ops::Range, str::FromStr};

use intellect_protocol_sim::{self as sim, Faults};

use crate::{cli::SimArgs, os};

use super::SimError;

/// Runs every class that was asked for, and prints one line for each.
pub(super) fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimError> {
    let seeds = parse_seeds(&args.seeds)?;
    let classes = match &args.faults {
        Some(text) => vec![parse_faults(text)?],
        None => Faults::ALL.to_vec(),
    };
    let peers = args.peers.map_or(PEERS_DEFAULT, std::num::NonZeroUsize::get);
    let mut failed = 0;
    for faults in classes {
        let summary = sim::swarm(peers, seeds.clone(), faults, os::cores());
        writeln!(out, "{summary}")?;
        out.flush()?;
        // A few seeds need not show everything that a class can do.
        let enough = seeds.end - seeds.start >= SEEDS_ENOUGH && peers >= PEERS_DEFAULT;
        if !summary.failures.is_empty() || (enough && !summary.holds()) {
            failed += 1;
        }
    }
    if failed > 0 {
        return Err(SimError::Swarm { failed });
    }
    Ok(())
}

/// A half-open range, `A..B`.
fn parse_seeds(text: &str) -> Result<Range<u64>, SimError> {
    let wrong = || SimError::Seeds { text: text.to_owned() };
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| u64::from_str(text.trim()).map_err(|_| wrong());
    let seeds = number(start)?..number(end)?;
    if seeds.is_empty() { Err(wrong()) } else { Ok(seeds) }
}

fn parse_faults(text: &str) -> Result<Faults, SimError> {
    let named = Faults::ALL.into_iter().find(|faults| faults.to_string() == text);
    named.ok_or_else(|| SimError::Faults { text: text.to_owned() })
}

/// Peers of a virtual run.
const PEERS_DEFAULT: usize = 16;
/// From so many seeds on a class must show all that it can do.
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
}
