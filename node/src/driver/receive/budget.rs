//! How many messages of each author are read and passed on (D1), once their signatures are verified.
//!
//! What a connection brings is counted at the connection before (`net::limits::source`). An author is
//! charged only for messages that it has signed, so a forger cannot use up its budget; and only for messages
//! that other peers bring, so that repeating them cannot use up the limit of its own connection.
//!
//! Passing a message on costs bandwidth to each neighbour. Each voter has its own budget for that; all other
//! authors share one, so that a thousand made-up keys cost no more than one.
//!
//! What we say for others' sake is budgeted alike: our answers to questions, and messages that are gossiped to reach
//! one peer. The run names a peer that votes, or that one of the last receipts has. All other keys together have budgets
//! of their own, which the named peers do not feel.

use std::collections::BTreeMap;
use std::time::Duration;

use intellect_protocol::base::id::PeerId;
use tokio::time::Instant;

use crate::net::limits::bucket::{Allowance, Bucket};

/// The budgets of all authors. Each map holds at most [`AUTHORS_MAX`] of them.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// What is left for each author whose messages others bring.
    brought: BTreeMap<PeerId, Allowance>,
    /// What is left for passing on messages of all non-voters together.
    non_voters: Allowance,
    /// What is left for the questions of each peer.
    asks: BTreeMap<PeerId, Bucket>,
    /// What is left for the questions of all peers together that the run does not name.
    strange_asks: Bucket,
    /// What is left for messages that are gossiped for want of a control stream, to peers that the run names.
    answers: Allowance,
    /// The same to all other peers.
    strange_answers: Allowance,
}

impl Budgets {
    /// Full budgets, as if nobody had said anything yet.
    pub(crate) fn new(now: Instant) -> Self {
        let answers = |part: u32| {
            Allowance::new(
                Bucket::new(ANSWERS_PER_S / part, ANSWERS_BURST / part, now),
                Bucket::new(ANSWER_BYTES_PER_S / part, ANSWER_BYTES_BURST / part, now),
            )
        };
        Self {
            brought: BTreeMap::new(),
            non_voters: Allowance::new(
                Bucket::new(MESSAGES_PER_S, MESSAGES_BURST, now),
                Bucket::new(BYTES_PER_S, NON_VOTERS_BYTES_BURST, now),
            ),
            asks: BTreeMap::new(),
            strange_asks: Bucket::new(STRANGE_ASKS_PER_S, STRANGE_ASKS_BURST, now),
            answers: answers(1),
            strange_answers: answers(STRANGE_PART),
        }
    }

    /// Whether a message of `author` that another peer has brought is read.
    pub(crate) fn is_read(&mut self, author: PeerId, bytes: usize, now: Instant) -> bool {
        let fresh = || {
            Allowance::new(
                Bucket::new(MESSAGES_PER_S, MESSAGES_BURST, now),
                Bucket::new(BYTES_PER_S, BYTES_BURST, now),
            )
        };
        let rested = |allowance: &Allowance| allowance.rested(now);
        of(&mut self.brought, author, rested, fresh).take(bytes, now)
    }

    /// Whether a message of a non-voter is passed on.
    pub(crate) fn is_passed_on(&mut self, bytes: usize, now: Instant) -> bool {
        self.non_voters.take(bytes, now)
    }

    /// How long a question of `from` about our lineage waits for its answer, since each costs up to 64 links
    /// encoded on the loop. `None`: it has asked too much and gets no answer. Honest peers ask one question
    /// after the other and start again where no answer comes, so waiting slows them down. Anybody can make keys, so peers
    /// that the run does not name wait at the same time for a turn in their common budget, unless `is_exempt`.
    pub(crate) fn ask(&mut self, from: PeerId, is_exempt: bool, now: Instant) -> Option<Duration> {
        let fresh = || Bucket::new(ASKS_PER_S, ASKS_BURST, now);
        let own = of(&mut self.asks, from, |bucket| bucket.rested(now), fresh);
        let wait = own.reserve(ASK_WAIT_MAX, now)?;
        if is_exempt {
            return Some(wait);
        }
        Some(wait.max(self.strange_asks.reserve(ASK_WAIT_MAX, now)?))
    }

    /// Whether a message to a peer without a control stream may be gossiped instead. A peer that asks under
    /// many keys must not make us flood the others, for which they would blame us, nor use up what voters need that no
    /// connection joins to us.
    pub(crate) fn answer(&mut self, is_named: bool, bytes: usize, now: Instant) -> bool {
        let answers = if is_named { &mut self.answers } else { &mut self.strange_answers };
        answers.take(bytes, now)
    }
}

/// The entry of one author, made by `fresh` if it is new. A full map forgets the author that has rested longest: it has
/// a full budget again, as any new key has, while an author that got no entry would not be heard at all.
fn of<T>(
    all: &mut BTreeMap<PeerId, T>,
    author: PeerId,
    rested: impl Fn(&T) -> Duration,
    fresh: impl FnOnce() -> T,
) -> &mut T {
    if all.len() >= AUTHORS_MAX && !all.contains_key(&author) {
        let longest = all.iter().max_by_key(|(_, left)| rested(left)).map(|(author, _)| *author);
        if let Some(longest) = longest {
            all.remove(&longest);
        }
    }
    all.entry(author).or_insert_with(fresh)
}

/// Messages a second and author that are read, and how many may come at once (docs/FORMATS.md).
pub(crate) const MESSAGES_PER_S: u32 = 64;
const MESSAGES_BURST: u32 = 256;

/// The bytes of these. Passed on to six neighbours they are a quarter of a megabyte a second.
const BYTES_PER_S: u32 = 40_000;
const BYTES_BURST: u32 = 512 << 10;
const NON_VOTERS_BYTES_BURST: u32 = 256 << 10;

/// Questions of one peer that are answered each second, and how many at once (docs/FORMATS.md). Further ones
/// wait, well below the timeout of the asking peer.
const ASKS_PER_S: u32 = 16;
const ASKS_BURST: u32 = 16;
const ASK_WAIT_MAX: Duration = Duration::from_secs(2);
/// The same of all peers together that the run does not name.
const STRANGE_ASKS_PER_S: u32 = 64;
const STRANGE_ASKS_BURST: u32 = 64;

/// Messages to single peers that are gossiped each second: together with our own ones far below the limit
/// that others read.
const ANSWERS_PER_S: u32 = 16;
const ANSWERS_BURST: u32 = 64;
/// Their bytes: a quarter of what others read of us (`net::limits::source`).
const ANSWER_BYTES_PER_S: u32 = 10_000;
const ANSWER_BYTES_BURST: u32 = 256 << 10;
/// Peers that the run does not name get one part of so many besides, together.
const STRANGE_PART: u32 = 4;

/// Authors whose messages are counted: as many as the view can hold.
const AUTHORS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::limits::source::{Claim, Ruling, Source};

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    #[test]
    fn an_author_is_read_at_one_rate_whichever_peer_brings_it() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        assert!((0..256).all(|_| budgets.is_read(A, 100, now)));
        assert!(!budgets.is_read(A, 100, now) && budgets.is_read(B, 100, now));
        let later = now + Duration::from_secs(1);
        let read = (0..256).filter(|_| budgets.is_read(A, 100, later)).count();
        let long = (0..256).filter(|_| budgets.is_read(B, 60_000, later)).count();
        assert_eq!((read, long), (64, 8));
    }

    /// A thousand keys get no more than one.
    #[test]
    fn non_voters_share_what_is_passed_on() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        let mut bytes = 0;
        for tenth in 0..100 {
            let now = now + Duration::from_millis(100) * tenth;
            bytes += (0..50).filter(|_| budgets.is_passed_on(60_000, now)).count() * 60_000;
        }
        assert!((600_000..720_000).contains(&bytes), "{bytes} in ten seconds");
    }

    #[test]
    fn answers_to_many_keys_stay_below_what_others_read_of_us() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        let mut answered =
            |is_named, at| (0..1_000).filter(|_| budgets.answer(is_named, 100, at)).count();
        let later = now + Duration::from_secs(1);
        // What made-up keys use up is not that of voters.
        assert_eq!((answered(false, now), answered(true, now)), (16, 64));
        assert_eq!((answered(false, later), answered(true, later)), (4, 16));
        // Made-up keys ask for certificates, which are long; others count them as ours.
        let (mut budgets, mut others) = (Budgets::new(now), Source::new(now));
        for at in (0..60 * 16).map(|turn| now + turn * Duration::from_secs(1) / 16) {
            for is_named in [true, false] {
                if budgets.answer(is_named, 8_000, at) {
                    assert_eq!(others.take(Claim::Own, 8_000, 16, 6, at), Ruling::Read);
                }
            }
        }
    }

    #[test]
    fn questions_wait_for_their_turn_and_too_many_get_none() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        let waits: Vec<_> = (0..100).map_while(|_| budgets.ask(A, true, now)).collect();
        assert_eq!(waits.len(), 16 + 32);
        assert!(waits[..16].iter().all(Duration::is_zero));
        assert_eq!((waits[16].as_millis(), waits[47].as_millis()), (62, 2_000));
        assert_eq!(budgets.ask(B, true, now), Some(Duration::ZERO));
        assert_eq!(budgets.ask(A, true, now + Duration::from_secs(4)), Some(Duration::ZERO));
    }

    #[test]
    fn questions_under_made_up_keys_share_one_budget_and_cost_no_member_its_answer() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        let mut strange = |key| budgets.ask(PeerId([key; 32]), false, now);
        let waits: Vec<_> = (0..=255).map_while(&mut strange).collect();
        assert_eq!(waits.len(), 64 + 128);
        assert!(waits[..64].iter().all(Duration::is_zero));
        assert_eq!((waits[64].as_millis(), waits[191].as_millis()), (15, 2_000));
        assert_eq!(strange(255), None);
        assert_eq!(budgets.ask(A, true, now), Some(Duration::ZERO));
    }

    #[test]
    fn a_crowd_keeps_nobody_from_being_read_and_takes_bounded_memory() {
        let now = Instant::now();
        let mut budgets = Budgets::new(now);
        for number in 0..2_000_u16 {
            let mut author = [9; 32];
            author[..2].copy_from_slice(&number.to_le_bytes());
            budgets.is_read(PeerId(author), 1, now);
        }
        assert!(budgets.is_read(A, 1, now));
        assert_eq!(budgets.brought.len(), AUTHORS_MAX);
    }
}
