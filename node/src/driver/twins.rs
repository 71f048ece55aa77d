//! Detects that two programs run with one key. A copy of a data folder, started beside the
//! original, votes twice with one key. A copy of the key alone is another voter, and both are one
//! peer for everybody else.
//!
//! Two such programs never meet. libp2p knows a peer by its key, connects to nobody with its own
//! key, and has one gossip connection for each key. So each program sends its heartbeat directly to
//! some peers that it is connected to, first to those that do not listen to it
//! (`net::Handle::knock`). A peer that hears both programs tells them. When the first of the two
//! has ended, the other one begins its connections anew (`net::Handle::spoke`).
//!
//! One heartbeat of our own key is enough to know that another program uses it, if neither this
//! start nor an earlier one can have sent it. Such a heartbeat has a *greater* incarnation, or the
//! same one and another log. Each start writes an incarnation into its log before it sends
//! anything. It is above all earlier ones, and not below the time. So a recording of an earlier
//! start proves nothing. There is one exception: the clock of an earlier start was ahead, and its
//! folder was lost. Its heartbeats count as another program's until that time has come.
//!
//! A smaller incarnation proves nothing, since anybody may repeat what earlier starts said. So of
//! the two programs the one that started first learns of it, and ends; the other one goes on.
//!
//! Other peers believe it on another ground: over one connection of its own, the key's owner sends
//! heartbeats of an earlier start long after those of a later one. Nobody else can do that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::sign::Verified;
use intellect_protocol::message::Message;

use crate::figures;
use crate::store::Start;

/// Peers that are looked at; as many as the view keeps.
const PEERS_MAX: usize = 1024;

/// Between two tries to let a peer know.
const ECHO: Duration = Duration::from_secs(1);

/// A process that has ended cannot be heard for so long after the next one, which had to start and
/// to connect, began to speak.
const CERTAIN: Duration = Duration::from_secs(1);

/// What a heartbeat tells of two programs with one key.
#[derive(Debug)]
pub(super) enum Twin {
    /// Another program runs with our key.
    Ours,
    /// Two programs run with the key of another peer.
    Theirs {
        /// What the later one said, for the earlier one to hear.
        proof: Arc<Verified<Message>>,
        /// Whether this peer was not reported before.
        news: bool,
    },
}

/// The first heartbeat of the latest start of each peer that was heard.
#[derive(Debug)]
pub(super) struct Twins {
    /// Our own peer, whose heartbeats are judged by [`Self::start`].
    me: PeerId,
    /// The log and the incarnation of this start.
    start: Start,
    /// The later start of our key, if one was heard, in Unix milliseconds.
    ours: Option<u64>,
    /// The latest start of each peer. If the table is full the peer that was silent for longest gives way:
    /// one that runs twice speaks all the time, and a stranger with many keys must not hide it.
    latest: BTreeMap<PeerId, Latest>,
    /// Peers that were reported, at most [`PEERS_MAX`].
    told: BTreeSet<PeerId>,
}

/// What is known of the latest start of one peer.
#[derive(Debug)]
struct Latest {
    /// The highest incarnation that was heard of the peer.
    incarnation: u64,
    /// The first heartbeat with that incarnation, which is the proof for the other program.
    beat: Arc<Verified<Message>>,
    /// When that heartbeat came. An older start that is heard a second later has not ended.
    heard: Instant,
    /// When the peer was heard last, with any start.
    spoke: Instant,
    /// When the peer was told last. A proof may be lost, so it is repeated, but not for each
    /// heartbeat.
    echoed: Option<Instant>,
}

impl Twins {
    /// Nothing was heard yet of any peer.
    pub(super) fn new(me: PeerId, start: Start) -> Self {
        Self { me, start, ours: None, latest: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// The time of day at which another program began that has our key, if one has.
    pub(super) fn since(&self) -> Option<String> {
        self.ours.map(|ms| format!("{} UTC", figures::clock(ms / 1_000)))
    }

    /// Takes a message that the connection of `from` brought.
    pub(super) fn note(
        &mut self,
        now: Instant,
        from: PeerId,
        message: &Arc<Verified<Message>>,
    ) -> Option<Twin> {
        let Message::Heartbeat(beat) = message.body() else { return None };
        let (author, incarnation) = (message.author(), beat.incarnation);
        if author == self.me {
            let Start { log, incarnation: ours } = self.start;
            let proves = incarnation > ours || incarnation == ours && beat.log != log;
            self.ours = self.ours.or_else(|| proves.then_some(incarnation));
            return proves.then_some(Twin::Ours);
        }
        if self.latest.len() >= PEERS_MAX && !self.latest.contains_key(&author) {
            let silent = *self.latest.iter().min_by_key(|(_, latest)| latest.spoke)?.0;
            self.latest.remove(&silent);
        }
        let first = || {
            let beat = Arc::clone(message);
            Latest { incarnation, beat, heard: now, spoke: now, echoed: None }
        };
        let latest = self.latest.entry(author).or_insert_with(first);
        latest.spoke = now;
        if incarnation > latest.incarnation {
            *latest = first();
        }
        let again = latest.echoed.is_none_or(|at| now.duration_since(at) >= ECHO);
        let certain = now.duration_since(latest.heard) >= CERTAIN;
        if incarnation == latest.incarnation || from != author || !certain || !again {
            return None;
        }
        latest.echoed = Some(now);
        let news = self.told.len() < PEERS_MAX && self.told.insert(author);
        Some(Twin::Theirs { proof: Arc::clone(&latest.beat), news })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use intellect_protocol::base::id::{Digest, LogId, RunId};
    use intellect_protocol::base::sign::Keypair;
    use intellect_protocol::message::{Head, Heartbeat, Phase, Series};

    use super::*;
    use intellect_protocol::message::wire;

    fn key(number: u8) -> Keypair {
        Keypair::from_seed(&[number; 32])
    }

    fn beat(author: u8, log: u8, incarnation: u64) -> Arc<Verified<Message>> {
        beat_of(&key(author), log, incarnation)
    }

    /// The first heartbeat of a peer that trains from this head on.
    pub(in crate::driver) fn heartbeat(head: Head) -> Heartbeat {
        Heartbeat {
            count: 1,
            head,
            series: Series::after(&head),
            joined: None,
            closed: false,
            log: LogId([1; 16]),
            incarnation: 1,
            phase: Phase::Train,
            attempt: 0,
            ready: 0,
            direct: true,
            unlinked: Vec::new(),
            round_trips: Vec::new(),
            send_rate: 0,
            serves: 0,
            notice: 0,
            attested: 0,
            ticket: None,
        }
    }

    fn beat_of(author: &Keypair, log: u8, incarnation: u64) -> Arc<Verified<Message>> {
        let head = Head { epoch: 0, tokens: 0, state: Digest([0; 32]) };
        let beat = Heartbeat { log: LogId([log; 16]), incarnation, ..heartbeat(head) };
        Arc::new(wire::seal(author, &RunId([7; 32]), Message::Heartbeat(beat)))
    }

    fn twins() -> Twins {
        Twins::new(key(1).peer(), Start { log: LogId([1; 16]), incarnation: 100 })
    }

    /// From a copy of the folder, or with a copy of the key and a log of its own.
    #[test]
    fn a_later_start_with_our_key_is_another_program() {
        for (log, incarnation) in [(1, 101), (2, 101), (2, 100)] {
            let mut twins = twins();
            assert_eq!(twins.since(), None);
            let twin = twins.note(Instant::now(), key(2).peer(), &beat(1, log, incarnation));
            assert!(matches!(twin, Some(Twin::Ours)), "{log}, {incarnation}");
            assert_eq!(twins.since().unwrap(), "00:00:00 UTC");
        }
    }

    /// A stranger repeats what he has recorded of our earlier lives, and of this one.
    #[test]
    fn recordings_of_our_own_life_end_nobody() {
        let (mut twins, stranger) = (twins(), key(9).peer());
        for old in [beat(1, 1, 99), beat(1, 1, 100), beat(1, 2, 99), beat(1, 2, 5)] {
            assert!(twins.note(Instant::now(), stranger, &old).is_none(), "{old:?}");
        }
        assert_eq!(twins.since(), None);
    }

    #[test]
    fn of_a_peer_that_speaks_with_two_starts_both_are_told_and_we_are_once() {
        let (mut twins, start, peer) = (twins(), Instant::now(), key(2).peer());
        assert!(twins.note(start, peer, &beat(2, 2, 50)).is_none());
        assert!(twins.note(start, peer, &beat(2, 2, 60)).is_none(), "a restart");
        assert!(twins.note(start, peer, &beat(2, 2, 50)).is_none(), "on its way");
        let mut news = 0;
        for second in 1..8 {
            let now = start + Duration::from_secs(second);
            match twins.note(now, peer, &beat(2, 2, 50)) {
                Some(Twin::Theirs { proof, news: now }) => {
                    assert_eq!(proof, beat(2, 2, 60));
                    news += usize::from(now);
                }
                other => panic!("{other:?}"),
            }
            assert!(twins.note(now, peer, &beat(2, 2, 60)).is_none());
        }
        assert_eq!(news, 1);
    }

    /// A stranger speaks once with each of many keys, while the peer speaks with two starts.
    #[test]
    fn many_keys_hide_no_peer_that_runs_twice() {
        let (mut twins, start, peer) = (twins(), Instant::now(), key(2).peer());
        for number in 0..2 * PEERS_MAX as u64 {
            let mut seed = [9; 32];
            seed[..8].copy_from_slice(&number.to_le_bytes());
            let stranger = Keypair::from_seed(&seed);
            let now = start + Duration::from_millis(number);
            twins.note(now, stranger.peer(), &beat_of(&stranger, 1, 1));
            if number.is_multiple_of(200) {
                assert!(twins.note(now, peer, &beat(2, 2, 60)).is_none());
            }
        }
        assert_eq!(twins.latest.len(), PEERS_MAX);
        let late = start + Duration::from_secs(3);
        assert!(matches!(twins.note(late, peer, &beat(2, 2, 50)), Some(Twin::Theirs { .. })));
    }

    /// Only the owner of a key opens a connection with it.
    #[test]
    fn what_others_pass_on_of_an_earlier_start_proves_nothing() {
        let (mut twins, start) = (twins(), Instant::now());
        twins.note(start, key(2).peer(), &beat(2, 2, 60));
        let late = start + Duration::from_secs(60);
        assert!(twins.note(late, key(9).peer(), &beat(2, 2, 50)).is_none());
    }
}
