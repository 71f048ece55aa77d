//! What one peer may bring by gossip, counted before a signature is looked at.
//!
//! Whose word a message is, is only what it says; but nobody else than the owner of a connection
//! chooses what comes over it. So what a peer says in its own name may be as much as any peer needs
//! to say, and more is its fault. What it passes on is limited by how many there are whose word it
//! could be; more is dropped unread, since it may come of others that pour it in there. Only a flood
//! that no relaying explains is a fault again.
//!
//! What is left is verified, and then counted for its author (`driver::budget`).

use tokio::time::Instant;

use super::pace::{Allowance, Bucket};

/// What may still come from one peer.
#[derive(Debug)]
pub(super) struct Source {
    own: Allowance,
    passed_on: Allowance,
    all: Bucket,
}

/// Whose word a message is, as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// That of the peer that brought it.
    Own,
    /// Somebody else's, or nobody's.
    PassedOn,
}

/// Whether a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It is.
    Read,
    /// It is too much, and perhaps not the fault of who brought it.
    Drop,
    /// It is too much, and its fault.
    Fault,
}

impl Source {
    /// A peer that has brought nothing yet.
    pub(super) fn new(now: Instant) -> Self {
        let allowance = |messages, message_burst, bytes, burst| {
            Allowance::new(
                Bucket::new(messages, message_burst, now),
                Bucket::new(bytes, burst, now),
            )
        };
        let (messages, bytes) = passed_on(0);
        Self {
            own: allowance(OWN_PER_S, OWN_BURST, OWN_BYTES_PER_S, OWN_BYTES_BURST),
            passed_on: allowance(messages, PASSED_ON_BURST, bytes, PASSED_ON_BYTES_BURST),
            all: Bucket::new(ALL_PER_S, ALL_BURST, now),
        }
    }

    /// Counts a message of `bytes` bytes, where `alive` authors are heard.
    pub(super) fn take(
        &mut self,
        claim: Claim,
        bytes: usize,
        alive: usize,
        now: Instant,
    ) -> Ruling {
        let (messages_per_s, bytes_per_s) = passed_on(alive);
        self.passed_on.set_rates(messages_per_s, bytes_per_s);
        let flood = !self.all.take(now);
        let allowance = match claim {
            Claim::Own => &mut self.own,
            Claim::PassedOn => &mut self.passed_on,
        };
        match (flood, allowance.take(bytes, now), claim) {
            (true, ..) | (_, false, Claim::Own) => Ruling::Fault,
            (_, true, _) => Ruling::Read,
            (_, false, Claim::PassedOn) => Ruling::Drop,
        }
    }
}

/// Messages and bytes a second that one peer may pass on.
fn passed_on(alive: usize) -> (u32, u32) {
    let authors = u32::try_from(alive).unwrap_or(u32::MAX).clamp(AUTHORS_MIN, AUTHORS_MAX);
    (authors * PER_AUTHOR_PER_S, authors * PER_AUTHOR_BYTES_PER_S)
}

/// What a peer may say itself (docs/FORMATS.md).
const OWN_PER_S: u32 = 64;
const OWN_BURST: u32 = 256;
/// A proposer of 256 members says 16 KiB for each attempt, and repeats it.
const OWN_BYTES_PER_S: u32 = 40_000;
const OWN_BYTES_BURST: u32 = 1 << 20;

/// Heartbeats, at the pace that most runs have, and what an epoch needs besides.
const PER_AUTHOR_PER_S: u32 = 2;
const PER_AUTHOR_BYTES_PER_S: u32 = 8_000;
const AUTHORS_MIN: u32 = 8;
/// What the view can hold.
const AUTHORS_MAX: u32 = 1_024;
/// Whoever has just come hears the heartbeats of a whole run before it knows who lives.
const PASSED_ON_BURST: u32 = 512;
const PASSED_ON_BYTES_BURST: u32 = 512 << 10;

/// 64 messages a second and author (docs/FORMATS.md), of at most 256 members, all through one peer
/// in the worst case; in practice a hundredth.
const ALL_PER_S: u32 = 64 * 64;
const ALL_BURST: u32 = 256 * 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn read(
        source: &mut Source,
        claim: Claim,
        (bytes, alive): (usize, usize),
        now: Instant,
    ) -> usize {
        (0..1_000).filter(|_| source.take(claim, bytes, alive, now) == Ruling::Read).count()
    }

    #[test]
    fn what_is_passed_on_rises_with_those_who_live_and_costs_nobody_its_place() {
        let start = Instant::now();
        for (alive, messages, long) in [(0, 16, 1), (8, 16, 1), (100, 200, 8), (256, 512, 8)] {
            let mut source = Source::new(start);
            assert_eq!(read(&mut source, Claim::PassedOn, (100, alive), start), 512);
            assert_eq!(source.take(Claim::PassedOn, 100, alive, start), Ruling::Drop);
            assert_eq!(read(&mut source, Claim::PassedOn, (100, alive), start + SECOND), messages);
            // A minute later all may come at once again, but no more than so many bytes.
            let later = start + 60 * SECOND;
            assert_eq!(read(&mut source, Claim::PassedOn, (60_000, alive), later), 8);
            let then = read(&mut source, Claim::PassedOn, (60_000, alive), later + SECOND);
            assert_eq!(then, long);
        }
    }

    #[test]
    fn who_says_too_much_in_its_own_name_is_at_fault_until_it_rests() {
        let start = Instant::now();
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, (100, 0), start), 256);
        assert_eq!(source.take(Claim::Own, 100, 0, start), Ruling::Fault);
        assert_eq!(read(&mut source, Claim::Own, (100, 0), start + SECOND), 64);
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, (65_536, 0), start), 16);
        assert_eq!(source.take(Claim::Own, 65_536, 0, start), Ruling::Fault);
        assert_eq!(source.take(Claim::PassedOn, 65_536, 0, start), Ruling::Read);
    }

    #[test]
    fn a_flood_that_no_relaying_explains_is_a_fault() {
        let start = Instant::now();
        let mut source = Source::new(start);
        let rulings: Vec<_> =
            (0..ALL_BURST).map(|_| source.take(Claim::PassedOn, 1, 0, start)).collect();
        assert!(!rulings.contains(&Ruling::Fault));
        assert_eq!(source.take(Claim::PassedOn, 1, 0, start), Ruling::Fault);
    }
}
