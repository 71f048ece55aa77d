//! What one peer may bring by gossip, counted before any signature is verified.
//!
//! The author of a message is only claimed at this point, but the owner of a connection chooses
//! what comes over it. A peer that exceeds the limit for its own messages is at fault. Messages of
//! members are limited by the number of members; messages of other authors by a rate that all
//! connections share, since anybody can make a key. What exceeds these two is dropped unread
//! without a fault, since the peer may only relay it. Only a flood that no relaying explains is a
//! fault again.
//!
//! What is left is verified, and then counted for its author (`driver::receive::budget`).

use std::time::Duration;

use tokio::time::Instant;

use super::bucket::{Allowance, Bucket};

/// What one peer may still bring.
#[derive(Debug)]
pub(crate) struct Source {
    /// Messages that the peer has signed itself.
    own: Allowance,
    /// Messages of members that it passes on.
    passed_on: Allowance,
    /// Messages of all other authors that it passes on.
    others: Allowance,
    /// All messages together, whoever signed them.
    all: Bucket,
}

/// The author of a message, according to the message itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Of the peer that brought it.
    Own,
    /// Of a member, or of any author while there are no members.
    Member,
    /// Of another author, or of none.
    Other,
}

/// Whether a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// It is within the limits, so its signature is verified next.
    Read,
    /// It exceeds a limit, perhaps without a fault of the peer that brought it.
    Drop,
    /// It exceeds a limit, and the peer that brought it is at fault.
    Fault,
}

impl Source {
    /// Full allowances, for a peer that has just connected.
    pub(crate) fn new(now: Instant) -> Self {
        let allowance = |messages, message_burst, bytes, burst| {
            Allowance::new(
                Bucket::new(messages, message_burst, now),
                Bucket::new(bytes, burst, now),
            )
        };
        let (messages, bytes) = passed_on(0);
        let (other_messages, other_bytes) = share(1);
        Self {
            own: allowance(OWN_PER_S, OWN_BURST, OWN_BYTES_PER_S, OWN_BYTES_BURST),
            passed_on: allowance(messages, PASSED_ON_BURST, bytes, PASSED_ON_BYTES_BURST),
            others: allowance(other_messages, OTHERS_BURST, other_bytes, OTHERS_BYTES_BURST),
            all: Bucket::new(ALL_PER_S, ALL_BURST, now),
        }
    }

    /// Counts a message of `bytes` bytes. The run has so many members, and `connections` pass on
    /// messages of non-members.
    pub(crate) fn take(
        &mut self,
        claim: Claim,
        bytes: usize,
        members: usize,
        connections: usize,
        now: Instant,
    ) -> Ruling {
        let (messages_per_s, bytes_per_s) = passed_on(members);
        self.passed_on.set_rates(messages_per_s, bytes_per_s);
        let flood = !self.all.take(now);
        let allowance = match claim {
            Claim::Own => &mut self.own,
            Claim::Member => &mut self.passed_on,
            Claim::Other => {
                let (messages_per_s, bytes_per_s) = share(connections);
                self.others.set_rates(messages_per_s, bytes_per_s);
                &mut self.others
            }
        };
        match (flood, allowance.take(bytes, now), claim) {
            (true, ..) | (_, false, Claim::Own) => Ruling::Fault,
            (_, true, _) => Ruling::Read,
            (_, false, Claim::Member | Claim::Other) => Ruling::Drop,
        }
    }

    /// Whether it has passed on messages of non-members within the last seconds.
    pub(crate) fn is_relaying(&self, now: Instant) -> bool {
        self.others.rested(now) < RESTED
    }
}

/// Messages and bytes of non-members that one of so many connections may pass on each second. Each
/// may pass on one message at least, so above sixteen connections the sum exceeds [`OTHERS_PER_S`].
fn share(connections: usize) -> (u32, u32) {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX).clamp(1, OTHERS_PER_S);
    (OTHERS_PER_S / connections, OTHERS_BYTES_PER_S / connections)
}

/// Messages and bytes of members that one peer may pass on each second. Below eight members the
/// limit no longer falls: a run that forms has few members and many messages.
fn passed_on(members: usize) -> (u32, u32) {
    let authors = u32::try_from(members).unwrap_or(u32::MAX).clamp(AUTHORS_MIN, AUTHORS_MAX);
    (authors * PER_AUTHOR_PER_S, authors * PER_AUTHOR_BYTES_PER_S)
}

/// Messages that a peer may send in its own name (docs/FORMATS.md).
const OWN_PER_S: u32 = 64;
const OWN_BURST: u32 = 256;
/// A proposal with 256 members takes 16 KiB for each attempt, and is repeated.
const OWN_BYTES_PER_S: u32 = 40_000;
const OWN_BYTES_BURST: u32 = 1 << 20;

/// Heartbeats at the usual interval, and the other messages of an epoch.
const PER_AUTHOR_PER_S: u32 = 2;
const PER_AUTHOR_BYTES_PER_S: u32 = 8_000;
/// A smaller run is limited as one of so many members.
const AUTHORS_MIN: u32 = 8;
/// The most members of a receipt.
const AUTHORS_MAX: u32 = 256;
/// A new peer hears the heartbeats of a whole run before it knows the members.
const PASSED_ON_BURST: u32 = 512;
const PASSED_ON_BYTES_BURST: u32 = 512 << 10;

/// Messages of non-members over all connections together; a newcomer sends two heartbeats a second.
/// The bursts are of each connection.
const OTHERS_PER_S: u32 = 16;
const OTHERS_BYTES_PER_S: u32 = 64_000;
const OTHERS_BURST: u32 = 32;
const OTHERS_BYTES_BURST: u32 = 128 << 10;
/// A connection that is idle for this long gives its share back.
const RESTED: Duration = Duration::from_secs(4);

/// 64 messages a second of each author (docs/FORMATS.md) and at most 256 members, all through one
/// peer in the worst case; in practice a hundredth of that.
const ALL_PER_S: u32 = 64 * 64;
const ALL_BURST: u32 = 256 * 64;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn read(
        source: &mut Source,
        claim: Claim,
        bytes: usize,
        members: usize,
        now: Instant,
    ) -> usize {
        (0..1_000).filter(|_| source.take(claim, bytes, members, 1, now) == Ruling::Read).count()
    }

    #[test]
    fn what_is_passed_on_rises_with_the_members_and_costs_nobody_its_place() {
        let start = Instant::now();
        let crowd = (1_000, 512, 8);
        for (members, messages, long) in [(0, 16, 1), (8, 16, 1), (100, 200, 8), crowd] {
            let mut source = Source::new(start);
            assert_eq!(read(&mut source, Claim::Member, 100, members, start), 512);
            assert_eq!(source.take(Claim::Member, 100, members, 1, start), Ruling::Drop);
            let then = read(&mut source, Claim::Member, 100, members, start + SECOND);
            assert_eq!(then, messages);
            // A minute later all may come at once again, but no more than so many bytes.
            let later = start + 60 * SECOND;
            assert_eq!(read(&mut source, Claim::Member, 60_000, members, later), 8);
            let then = read(&mut source, Claim::Member, 60_000, members, later + SECOND);
            assert_eq!(then, long);
        }
    }

    /// However many connections pass them on, and whatever they contain.
    #[test]
    fn non_members_share_sixteen_messages_a_second() {
        let start = Instant::now();
        for connections in [1, 2, 5, 16] {
            let mut sources: Vec<_> = (0..connections).map(|_| Source::new(start)).collect();
            let mut second = |at: u32| -> Vec<usize> {
                let now = start + at * SECOND;
                let take = |source: &mut Source| {
                    source.take(Claim::Other, 300, 256, connections, now) == Ruling::Read
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
            assert!(sources[0].is_relaying(start + 7 * SECOND));
            assert!(!sources[0].is_relaying(start + 8 * SECOND));
        }
    }

    #[test]
    fn a_peer_with_too_many_own_messages_is_at_fault_until_it_rests() {
        let start = Instant::now();
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, 100, 0, start), 256);
        assert_eq!(source.take(Claim::Own, 100, 0, 1, start), Ruling::Fault);
        assert_eq!(read(&mut source, Claim::Own, 100, 0, start + SECOND), 64);
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, 65_536, 0, start), 16);
        assert_eq!(source.take(Claim::Own, 65_536, 0, 1, start), Ruling::Fault);
        assert_eq!(source.take(Claim::Member, 65_536, 0, 1, start), Ruling::Read);
    }

    #[test]
    fn a_flood_that_no_relaying_explains_is_a_fault() {
        let start = Instant::now();
        let mut source = Source::new(start);
        let rulings: Vec<_> =
            (0..ALL_BURST).map(|_| source.take(Claim::Other, 1, 0, 1, start)).collect();
        assert!(!rulings.contains(&Ruling::Fault));
        assert_eq!(source.take(Claim::Other, 1, 0, 1, start), Ruling::Fault);
    }
}
