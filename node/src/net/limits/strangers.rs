//! How many messages of strangers are read, under however many keys.
//!
//! Each message costs the check of a signature, and a key costs nothing. So all peers that are no members share one
//! rate, and those of one network half of it. The share of the network is charged first: a network of many keys waits
//! for itself, and takes no turn of others meanwhile.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use intellect_protocol::base::id::PeerId as Peer;
use tokio::time::{Instant, sleep};

use super::bucket::Bucket;

/// What all strangers together may still send.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// What is left of the share of each network, and under `None` of the rate of all. A full share needs no entry.
    left: Mutex<HashMap<Option<IpAddr>, Bucket>>,
}

/// Whether a peer is limited as a stranger. Nobody is before the run has members.
pub(crate) fn is_stranger(peer: &Peer, members: &BTreeSet<Peer>) -> bool {
    !members.is_empty() && !members.contains(peer)
}

impl Strangers {
    /// Waits for the turn of a message, at most twice [`WAIT_MAX`]. False where no turn comes in that time. `network`:
    /// where its sender is, if that network has a limit.
    ///
    /// # Cancel safety
    /// Cancel safe, but what was taken is not given back.
    pub(crate) async fn turn(&self, network: Option<IpAddr>, bytes: usize) -> bool {
        for share in shares(network) {
            let wait = self.reserve(share, bytes, WAIT_MAX, Instant::now());
            // A message without a turn waits as well, so that the next ones stay with their sender.
            sleep(wait.unwrap_or(WAIT_MAX)).await;
            if wait.is_none() {
                return false;
            }
        }
        true
    }

    /// Takes the turn of a message, if there is one at once.
    pub(crate) fn take(&self, network: Option<IpAddr>, bytes: usize, now: Instant) -> bool {
        shares(network).all(|share| self.reserve(share, bytes, Duration::ZERO, now).is_some())
    }

    /// Takes the tokens of a message from one share, as [`Bucket::reserve_many`] does.
    fn reserve(
        &self,
        share: Option<IpAddr>,
        bytes: usize,
        wait_max: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let cost = u32::try_from(1 + bytes / TOKEN_BYTES).unwrap_or(u32::MAX);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if !left.contains_key(&share) {
            left.retain(|_, bucket| !bucket.is_full(now));
        }
        let part = if share.is_some() { 2 } else { 1 };
        let fresh = || Bucket::new(PER_SECOND / part, BURST / part, now);
        left.entry(share).or_insert_with(fresh).reserve_many(cost, wait_max, now)
    }
}

/// The shares that a message takes, the smaller one first.
fn shares(network: Option<IpAddr>) -> impl Iterator<Item = Option<IpAddr>> {
    network.map(Some).into_iter().chain([None])
}

/// Messages a second, and how many at once (docs/FORMATS.md). With 50 µs for each signature they take 3 % of a core.
const PER_SECOND: u32 = 512;
const BURST: u32 = 1_024;

/// A longer message counts as one more for each of these.
const TOKEN_BYTES: usize = 4 * 1024;

/// How long a message waits for each of its shares. In that time a share gets back its whole burst.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(network: u8) -> Option<IpAddr> {
        Some(IpAddr::from([203, 0, 113, network]))
    }

    #[test]
    fn one_network_has_half_and_others_have_their_turn_at_once() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let read = |network, bytes, now| {
            (0..2_000).filter(|_| strangers.take(network, bytes, now)).count()
        };
        assert_eq!(read(at(1), 100, start), 512, "its keys are not asked for");
        assert_eq!(read(at(2), 100, start), 512);
        assert_eq!(read(None, 100, start), 0, "all have had their burst");
        let second = start + Duration::from_secs(1);
        assert_eq!((read(at(1), 100, second), read(at(3), 100, second)), (256, 256));
        let later = start + Duration::from_secs(60);
        assert_eq!(read(at(1), 8_192, later), 512 / 3, "long messages cost more");
        assert!(strangers.take(at(4), 100, later));
        assert_eq!(strangers.left.lock().unwrap().len(), 3, "full shares are forgotten");
    }

    #[tokio::test]
    async fn a_network_that_waits_delays_no_other() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        while strangers.reserve(at(1), 0, WAIT_MAX, start).is_some() {}
        assert!(strangers.turn(at(2), 100).await && strangers.take(at(2), 100, Instant::now()));
        assert!(start.elapsed() < WAIT_MAX / 2);
        while strangers.reserve(at(1), 0, WAIT_MAX, Instant::now()).is_some() {}
        assert!(!strangers.turn(at(1), 1 << 20).await, "it owes too much");
        assert!(start.elapsed() >= WAIT_MAX);
    }

    #[test]
    fn members_are_no_strangers_and_before_a_run_has_members_nobody_is() {
        let (member, other) = (Peer([1; 32]), Peer([2; 32]));
        let members = BTreeSet::from([member]);
        assert!(!is_stranger(&member, &members) && is_stranger(&other, &members));
        assert!(!is_stranger(&other, &BTreeSet::new()));
    }
}
