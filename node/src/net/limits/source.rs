//! What one peer may bring by gossip, counted before a signature is looked at.
//!
//! Whose word a message is, is only what it says; but nobody else than the owner of a connection
//! chooses what comes over it. So what a peer says in its own name may be as much as any peer needs
//! to say, and more is its fault. What it passes on of members is limited by how many of them there are;
//! what all connections pass on of others, by a number that they share: anybody can make a key. More is dropped
//! unread, since it may come of others that pour it in there. Only a flood that no relaying explains is a fault
//! again.
//!
//! What is left is verified, and then counted for its author (`driver::receive::budget`).

use std::time::Duration;

use tokio::time::Instant;

use super::bucket::{Allowance, Bucket};

/// What may still come from one peer.
#[derive(Debug)]
pub(crate) struct Source {
    own: Allowance,
    passed_on: Allowance,
    strangers: Allowance,
    all: Bucket,
}

/// Whose word a message is, as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// That of the peer that brought it.
    Own,
    /// That of a member, or of anybody while there are none.
    Member,
    /// Somebody else's, or nobody's.
    Stranger,
}

/// Whether a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// It is.
    Read,
    /// It is too much, and perhaps not the fault of who brought it.
    Drop,
    /// It is too much, and its fault.
    Fault,
}

impl Source {
    /// A peer that has brought nothing yet.
    pub(crate) fn new(now: Instant) -> Self {
        let allowance = |messages, message_burst, bytes, burst| {
            Allowance::new(
                Bucket::new(messages, message_burst, now),
                Bucket::new(bytes, burst, now),
            )
        };
        let (messages, bytes) = passed_on(0);
        let (others, other_bytes) = share(1);
        Self {
            own: allowance(OWN_PER_S, OWN_BURST, OWN_BYTES_PER_S, OWN_BYTES_BURST),
            passed_on: allowance(messages, PASSED_ON_BURST, bytes, PASSED_ON_BYTES_BURST),
            strangers: allowance(others, STRANGERS_BURST, other_bytes, STRANGERS_BYTES_BURST),
            all: Bucket::new(ALL_PER_S, ALL_BURST, now),
        }
    }

    /// Counts a message of `bytes` bytes, where there are so many members, and where so many connections pass on what
    /// strangers say.
    pub(crate) fn take(
        &mut self,
        claim: Claim,
        bytes: usize,
        (members, connections): (usize, usize),
        now: Instant,
    ) -> Ruling {
        let (messages_per_s, bytes_per_s) = passed_on(members);
        self.passed_on.set_rates(messages_per_s, bytes_per_s);
        let flood = !self.all.take(now);
        let allowance = match claim {
            Claim::Own => &mut self.own,
            Claim::Member => &mut self.passed_on,
            Claim::Stranger => {
                let (messages_per_s, bytes_per_s) = share(connections);
                self.strangers.set_rates(messages_per_s, bytes_per_s);
                &mut self.strangers
            }
        };
        match (flood, allowance.take(bytes, now), claim) {
            (true, ..) | (_, false, Claim::Own) => Ruling::Fault,
            (_, true, _) => Ruling::Read,
            (_, false, Claim::Member | Claim::Stranger) => Ruling::Drop,
        }
    }

    /// Whether it has passed on what strangers say within the last seconds.
    pub(crate) fn has_strangers(&self, now: Instant) -> bool {
        self.strangers.rested(now) < RESTED
    }
}

/// Messages and bytes a second that one of so many connections may pass on of strangers.
fn share(connections: usize) -> (u32, u32) {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX).clamp(1, STRANGERS_PER_S);
    (STRANGERS_PER_S / connections, STRANGERS_BYTES_PER_S / connections)
}

/// Messages and bytes a second that one peer may pass on of members.
fn passed_on(members: usize) -> (u32, u32) {
    let authors = u32::try_from(members).unwrap_or(u32::MAX).clamp(AUTHORS_MIN, AUTHORS_MAX);
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
/// What a receipt can name.
const AUTHORS_MAX: u32 = 256;
/// Whoever has just come hears the heartbeats of a whole run before it knows who lives.
const PASSED_ON_BURST: u32 = 512;
const PASSED_ON_BYTES_BURST: u32 = 512 << 10;

/// What strangers say through others, of all connections together; a newcomer beats twice a second.
const STRANGERS_PER_S: u32 = 16;
const STRANGERS_BYTES_PER_S: u32 = 64_000;
/// Of each connection.
const STRANGERS_BURST: u32 = 32;
const STRANGERS_BYTES_BURST: u32 = 128 << 10;
/// After so long a connection gives its share back.
const RESTED: Duration = Duration::from_secs(4);

/// 64 messages a second and author (docs/FORMATS.md), of at most 256 members, all through one peer
/// in the worst case; in practice a hundredth.
const ALL_PER_S: u32 = 64 * 64;
const ALL_BURST: u32 = 256 * 64;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn read(
        source: &mut Source,
        claim: Claim,
        (bytes, members): (usize, usize),
        now: Instant,
    ) -> usize {
        (0..1_000).filter(|_| source.take(claim, bytes, (members, 1), now) == Ruling::Read).count()
    }

    #[test]
    fn what_is_passed_on_rises_with_the_members_and_costs_nobody_its_place() {
        let start = Instant::now();
        let crowd = (1_000, 512, 8);
        for (members, messages, long) in [(0, 16, 1), (8, 16, 1), (100, 200, 8), crowd] {
            let mut source = Source::new(start);
            assert_eq!(read(&mut source, Claim::Member, (100, members), start), 512);
            assert_eq!(source.take(Claim::Member, 100, (members, 1), start), Ruling::Drop);
            let then = read(&mut source, Claim::Member, (100, members), start + SECOND);
            assert_eq!(then, messages);
            // A minute later all may come at once again, but no more than so many bytes.
            let later = start + 60 * SECOND;
            assert_eq!(read(&mut source, Claim::Member, (60_000, members), later), 8);
            let then = read(&mut source, Claim::Member, (60_000, members), later + SECOND);
            assert_eq!(then, long);
        }
    }

    /// However many connections pass them on, and whatever they say.
    #[test]
    fn strangers_share_sixteen_messages_a_second() {
        let start = Instant::now();
        for connections in [1, 2, 5, 16] {
            let mut sources: Vec<_> = (0..connections).map(|_| Source::new(start)).collect();
            let mut second = |at: u32| -> Vec<usize> {
                let now = start + at * SECOND;
                let take = |source: &mut Source| {
                    source.take(Claim::Stranger, 300, (256, connections), now) == Ruling::Read
                };
                let of = |source: &mut Source| (0..100).filter(|_| take(source)).count();
                sources.iter_mut().map(of).collect()
            };
            second(0);
            for at in 1..5 {
                let read = second(at);
                assert!(read.iter().sum::<usize>() <= 16, "{read:?}");
                assert!(read.iter().all(|read| *read == 16 / connections), "{read:?}");
            }
            assert!(sources[0].has_strangers(start + 7 * SECOND));
            assert!(!sources[0].has_strangers(start + 8 * SECOND));
        }
    }

    #[test]
    fn who_says_too_much_in_its_own_name_is_at_fault_until_it_rests() {
        let start = Instant::now();
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, (100, 0), start), 256);
        assert_eq!(source.take(Claim::Own, 100, (0, 1), start), Ruling::Fault);
        assert_eq!(read(&mut source, Claim::Own, (100, 0), start + SECOND), 64);
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, (65_536, 0), start), 16);
        assert_eq!(source.take(Claim::Own, 65_536, (0, 1), start), Ruling::Fault);
        assert_eq!(source.take(Claim::Member, 65_536, (0, 1), start), Ruling::Read);
    }

    #[test]
    fn a_flood_that_no_relaying_explains_is_a_fault() {
        let start = Instant::now();
        let mut source = Source::new(start);
        let rulings: Vec<_> =
            (0..ALL_BURST).map(|_| source.take(Claim::Stranger, 1, (0, 1), start)).collect();
        assert!(!rulings.contains(&Ruling::Fault));
        assert_eq!(source.take(Claim::Stranger, 1, (0, 1), start), Ruling::Fault);
    }
}
