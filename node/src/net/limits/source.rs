//! What one peer may bring by gossip, counted before any signature is verified.
//!
//! The author of a message is only claimed at this point, but the owner of a connection chooses what comes
//! over it. A peer that exceeds the limit for its own messages is at fault. Messages of members are limited
//! by the number of members; messages of other authors by a rate that the networks of all peers share, since
//! anybody can make a key ([`Others`]). What exceeds these two is dropped unread without a fault, since the
//! peer may only relay it. Only a flood that no relaying explains is a fault again.
//!
//! What is left is verified, and then counted for its author (`driver::receive::budget`).

use std::{collections::HashMap, net::IpAddr, time::Duration};

use libp2p::PeerId;
use tokio::time::Instant;

use super::bucket::{Allowance, Bucket};

/// What one peer may still bring.
#[derive(Debug)]
pub(crate) struct Source {
    /// Messages that the peer has signed itself.
    own: Allowance,
    /// Messages of members that it passes on.
    passed_on: Allowance,
    /// All messages together, whoever signed them.
    all: Bucket,
}

/// The network of a peer, or the peer itself where networks are not limited.
pub(crate) type SourceNetwork = Result<IpAddr, PeerId>;

/// What may still be passed on of non-members. The peers of one network share what one peer has.
#[derive(Debug)]
pub(crate) struct Others {
    /// What is left for each network, at most [`NETWORKS_MAX`].
    left: HashMap<SourceNetwork, Allowance>,
    /// How many networks have passed such messages on within the last seconds, and when that was counted.
    relaying: (usize, Instant),
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
        let (messages, bytes) = passed_on(0);
        let (messages, bytes) = ((messages, PASSED_ON_BURST), (bytes, PASSED_ON_BYTES_BURST));
        let (own, own_bytes) = ((OWN_PER_S, OWN_BURST), (OWN_BYTES_PER_S, OWN_BYTES_BURST));
        Self {
            own: Allowance::new(own, own_bytes, now),
            passed_on: Allowance::new(messages, bytes, now),
            all: Bucket::new(ALL_PER_S, ALL_BURST, now),
        }
    }

    /// Counts a message of `bytes` bytes that comes from `network`. The run has so many members.
    pub(crate) fn take(
        &mut self,
        claim: Claim,
        bytes: usize,
        members: usize,
        (others, network): (&mut Others, SourceNetwork),
        now: Instant,
    ) -> Ruling {
        self.passed_on.set_rates(passed_on(members));
        let flood = !self.all.take(now);
        let fair = match claim {
            Claim::Own => self.own.take(bytes, now),
            Claim::Member => self.passed_on.take(bytes, now),
            Claim::Other => others.take(network, bytes, now),
        };
        match (flood, fair, claim) {
            (true, ..) | (_, false, Claim::Own) => Ruling::Fault,
            (_, true, _) => Ruling::Read,
            (_, false, Claim::Member | Claim::Other) => Ruling::Drop,
        }
    }
}

impl Others {
    /// Nobody has passed anything on.
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: HashMap::new(), relaying: (1, now) }
    }

    /// Whether a message that comes from `network` is read. In a full table a new network has to wait.
    fn take(&mut self, network: SourceNetwork, length: usize, now: Instant) -> bool {
        if now >= self.relaying.1 + COUNT_INTERVAL {
            self.left.retain(|_, left| left.rested(now) < FULL_AFTER);
            let count = self.left.values().filter(|left| left.rested(now) < RESTED).count();
            self.relaying = (count, now);
        }
        if self.left.len() >= NETWORKS_MAX && !self.left.contains_key(&network) {
            return false;
        }
        let (messages, bytes) = share(self.relaying.0);
        let full = || Allowance::new((messages, OTHERS_BURST), (bytes, OTHERS_BYTES_BURST), now);
        let left = self.left.entry(network).or_insert_with(full);
        left.set_rates((messages, bytes));
        left.take(length, now)
    }
}

/// Messages and bytes of non-members that one of so many networks may pass on each second.
fn share(networks: usize) -> (u32, u32) {
    let networks = u32::try_from(networks).unwrap_or(u32::MAX).clamp(1, OTHERS_PER_S);
    (OTHERS_PER_S / networks, OTHERS_BYTES_PER_S / networks)
}

/// Messages and bytes of members that one peer may pass on each second.
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
const AUTHORS_MIN: u32 = 8;
/// The most members of a receipt.
const AUTHORS_MAX: u32 = 256;
/// A new peer hears the heartbeats of a whole run before it knows the members.
const PASSED_ON_BURST: u32 = 512;
const PASSED_ON_BYTES_BURST: u32 = 512 << 10;

/// Messages of non-members over all networks together, but at least one of each; a newcomer sends two
/// heartbeats a second.
const OTHERS_PER_S: u32 = 16;
const OTHERS_BYTES_PER_S: u32 = 64_000;
const OTHERS_BURST: u32 = 32;
const OTHERS_BYTES_BURST: u32 = 128 << 10;
/// A network that is idle for this long gives its share back.
const RESTED: Duration = Duration::from_secs(4);
/// By then even the smallest share has filled up, so a network gains nothing by being forgotten.
const FULL_AFTER: Duration = Duration::from_secs(33);
/// How often the networks are counted that pass on messages of non-members.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// More networks than a node has connections.
const NETWORKS_MAX: usize = 1_024;

/// 64 messages a second of each author (docs/FORMATS.md) and at most 256 members, all through one peer in
/// the worst case; in practice a hundredth of that.
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
        (0..1_000).filter(|_| rule(source, claim, bytes, members, now) == Ruling::Read).count()
    }

    /// The ruling where nobody else passes anything on.
    fn rule(
        source: &mut Source,
        claim: Claim,
        bytes: usize,
        members: usize,
        now: Instant,
    ) -> Ruling {
        source.take(claim, bytes, members, (&mut Others::new(now), network(1)), now)
    }

    fn network(number: u8) -> SourceNetwork {
        Ok([203, 0, 113, number].into())
    }

    #[test]
    fn what_is_passed_on_rises_with_the_members_and_costs_nobody_its_place() {
        let start = Instant::now();
        let crowd = (1_000, 512, 8);
        for (members, messages, long) in [(0, 16, 1), (8, 16, 1), (100, 200, 8), crowd] {
            let mut source = Source::new(start);
            assert_eq!(read(&mut source, Claim::Member, 100, members, start), 512);
            assert_eq!(rule(&mut source, Claim::Member, 100, members, start), Ruling::Drop);
            let then = read(&mut source, Claim::Member, 100, members, start + SECOND);
            assert_eq!(then, messages);
            // A minute later all may come at once again, but no more than so many bytes.
            let later = start + 60 * SECOND;
            assert_eq!(read(&mut source, Claim::Member, 60_000, members, later), 8);
            let then = read(&mut source, Claim::Member, 60_000, members, later + SECOND);
            assert_eq!(then, long);
        }
    }

    /// However many networks pass them on, and whatever they contain.
    #[test]
    fn non_members_share_sixteen_messages_a_second() {
        let start = Instant::now();
        for networks in [1, 2, 5, 16] {
            let mut others = Others::new(start);
            let mut second = |at: u32, networks: u8| -> Vec<usize> {
                let now = start + at * SECOND;
                let of = |n| (0..100).filter(|_| others.take(network(n), 300, now)).count();
                (0..networks).map(of).collect()
            };
            second(0, networks);
            for at in 1..5 {
                let read = second(at, networks);
                assert!(read.iter().sum::<usize>() <= 16, "{read:?}");
                assert!(read.iter().all(|read| *read == 16 / usize::from(networks)), "{read:?}");
            }
            // Those that are idle for four seconds give their share back.
            for (at, share) in [(5, networks), (6, networks), (7, networks), (8, 1)] {
                assert_eq!(second(at, 1), [16 / usize::from(share)], "{at}");
            }
        }
    }

    #[test]
    fn the_table_of_networks_is_bounded_and_forgets_the_idle() {
        let (start, first) = (Instant::now(), Err(PeerId::random()));
        let mut others = Others::new(start);
        assert!(others.take(first, 1, start));
        for _ in 1..NETWORKS_MAX {
            assert!(others.take(Err(PeerId::random()), 1, start));
        }
        let late = start + FULL_AFTER - SECOND;
        for now in [start, late] {
            assert!(!others.take(Err(PeerId::random()), 1, now), "it is full");
            assert!(others.take(first, 1, now));
        }
        assert!(others.take(Err(PeerId::random()), 1, late + SECOND));
        assert_eq!(others.left.len(), 2);
    }

    #[test]
    fn a_peer_with_too_many_own_messages_is_at_fault_until_it_rests() {
        let start = Instant::now();
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, 100, 0, start), 256);
        assert_eq!(rule(&mut source, Claim::Own, 100, 0, start), Ruling::Fault);
        assert_eq!(read(&mut source, Claim::Own, 100, 0, start + SECOND), 64);
        let mut source = Source::new(start);
        assert_eq!(read(&mut source, Claim::Own, 65_536, 0, start), 16);
        assert_eq!(rule(&mut source, Claim::Own, 65_536, 0, start), Ruling::Fault);
        assert_eq!(rule(&mut source, Claim::Member, 65_536, 0, start), Ruling::Read);
    }

    #[test]
    fn a_flood_that_no_relaying_explains_is_a_fault() {
        let start = Instant::now();
        let mut source = Source::new(start);
        let rulings: Vec<_> =
            (0..ALL_BURST).map(|_| rule(&mut source, Claim::Other, 1, 0, start)).collect();
        assert!(!rulings.contains(&Ruling::Fault));
        assert_eq!(rule(&mut source, Claim::Other, 1, 0, start), Ruling::Fault);
    }
}
