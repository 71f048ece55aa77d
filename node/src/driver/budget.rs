//! How many messages are read of each author (D1): what is above is dropped before anything is
//! decoded or verified.
//!
//! A message can be repeated by anybody, and gossip carries repeats on. If they were counted
//! together with what comes over the author's own connection, whoever repeats its old messages fast
//! enough would silence it. So each author has two budgets: one that only its own connection can
//! use up, which is its fault, and one for what others bring of it, which is nobody's.
//!
//! A budget is a [`Bucket`]: a message takes one token.

use std::collections::BTreeMap;
use std::time::Duration;

use intellect_protocol::id::PeerId;
use tokio::time::Instant;

use crate::net::pace::Bucket;

/// The budgets of all authors.
#[derive(Debug)]
pub(super) struct Budgets {
    own: Buckets,
    brought: Buckets,
    asks: Buckets,
    answers: Buckets,
}

/// Whether a message is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It is within its author's budget.
    Read,
    /// It is above what others may bring of its author.
    Ignore,
    /// Its author sends more than anybody needs to.
    Fault,
}

impl Default for Budgets {
    fn default() -> Self {
        let messages = || Buckets::new(MESSAGES_PER_S, MESSAGES_BURST);
        let asks = Buckets::new(ASKS_PER_S, ASKS_BURST);
        let answers = Buckets::new(ANSWERS_PER_S, ANSWERS_BURST);
        Self { own: messages(), brought: messages(), asks, answers }
    }
}

impl Budgets {
    /// Counts a message of `author` that came over the connection of `from`. That it is of `author`
    /// is only what it says: a lie uses up nothing of what `author` sends itself.
    pub(super) fn take(&mut self, author: PeerId, from: PeerId, now: Instant) -> Ruling {
        let own = author == from;
        let buckets = if own { &mut self.own } else { &mut self.brought };
        match (buckets.take(author, now), own) {
            (true, _) => Ruling::Read,
            (false, true) => Ruling::Fault,
            (false, false) => Ruling::Ignore,
        }
    }

    /// How long a question of `from` about our lineage waits for its answer: each costs up to 64
    /// links, encoded on the loop. `None`: it has asked so much that it gets none. Honest peers ask
    /// one after the other, and begin anew where an answer does not come, so they wait.
    pub(super) fn ask(&mut self, from: PeerId, now: Instant) -> Option<Duration> {
        self.asks.of(from, now)?.reserve(ASK_WAIT_MAX, now)
    }

    /// Whether a message to one peer may be gossiped, because no stream leads to it. Who asks under
    /// many names must not make a flood of our answers: at the others it would be our fault.
    pub(super) fn answer(&mut self, now: Instant) -> bool {
        self.answers.take(ANYBODY, now)
    }
}

/// A bucket for each author.
#[derive(Debug)]
struct Buckets {
    all: BTreeMap<PeerId, Bucket>,
    per_s: u32,
    burst: u32,
}

impl Buckets {
    fn new(per_s: u32, burst: u32) -> Self {
        Self { all: BTreeMap::new(), per_s, burst }
    }

    fn take(&mut self, author: PeerId, now: Instant) -> bool {
        self.of(author, now).is_some_and(|bucket| bucket.take(now))
    }

    /// The bucket of an author, if there is room for one.
    fn of(&mut self, author: PeerId, now: Instant) -> Option<&mut Bucket> {
        if self.all.len() >= AUTHORS_MAX && !self.all.contains_key(&author) {
            self.all.retain(|_, bucket| bucket.rested(now) < FORGET_AFTER);
            if self.all.len() >= AUTHORS_MAX {
                return None;
            }
        }
        let (per_s, burst) = (self.per_s, self.burst);
        Some(self.all.entry(author).or_insert_with(|| Bucket::new(per_s, burst, now)))
    }
}

/// Messages a second and author that are read, and how many may come at once (docs/FORMATS.md).
pub(super) const MESSAGES_PER_S: u32 = 64;
const MESSAGES_BURST: u32 = 256;

/// Questions a second and peer that are answered, and how many at once (docs/FORMATS.md); what is
/// above waits, well below the patience of who asks.
const ASKS_PER_S: u32 = 16;
const ASKS_BURST: u32 = 16;
const ASK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Messages to single peers a second that are gossiped: with our own ones far below what others
/// read.
const ANSWERS_PER_S: u32 = 16;
const ANSWERS_BURST: u32 = 64;
const ANYBODY: PeerId = PeerId([0; 32]);

/// Authors whose messages are counted: what the view can hold.
const AUTHORS_MAX: usize = 1_024;

/// A full budget is the same as none; it fills up in 4 s.
const FORGET_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    #[test]
    fn what_others_repeat_of_an_author_uses_up_nothing_of_its_own() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        let brought = |budgets: &mut Budgets| budgets.take(A, B, now);
        assert!((0..256).all(|_| brought(&mut budgets) == Ruling::Read));
        assert_eq!(brought(&mut budgets), Ruling::Ignore);
        assert_eq!(budgets.take(A, A, now), Ruling::Read);
        assert_eq!(budgets.take(B, B, now), Ruling::Read);
    }

    #[test]
    fn answers_to_many_names_stay_below_what_others_read_of_us() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        let answered = (0..1_000).filter(|_| budgets.answer(now)).count();
        let later = now + Duration::from_secs(1);
        let then = (0..1_000).filter(|_| budgets.answer(later)).count();
        assert_eq!((answered, then), (64, 16));
    }

    #[test]
    fn who_sends_too_much_itself_is_at_fault_until_it_rests() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        assert!((0..256).all(|_| budgets.take(A, A, now) == Ruling::Read));
        assert_eq!(budgets.take(A, A, now), Ruling::Fault);
        let later = now + Duration::from_secs(1);
        assert!((0..64).all(|_| budgets.take(A, A, later) == Ruling::Read));
        assert_eq!(budgets.take(A, A, later), Ruling::Fault);
    }

    #[test]
    fn questions_wait_for_their_turn_and_too_many_get_none() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        let waits: Vec<_> = (0..100).map_while(|_| budgets.ask(A, now)).collect();
        assert_eq!(waits.len(), 16 + 32);
        assert!(waits[..16].iter().all(Duration::is_zero));
        assert_eq!((waits[16].as_millis(), waits[47].as_millis()), (62, 2_000));
        assert_eq!(budgets.ask(B, now), Some(Duration::ZERO));
        assert_eq!(budgets.ask(A, now + Duration::from_secs(4)), Some(Duration::ZERO));
        assert_eq!(budgets.take(A, A, now), Ruling::Read);
    }

    #[test]
    fn a_crowd_that_one_peer_invents_locks_nobody_out_who_speaks_for_itself() {
        let (mut budgets, now) = (Budgets::default(), Instant::now());
        for invented in 0..2_000_u16 {
            let mut author = [9; 32];
            author[..2].copy_from_slice(&invented.to_le_bytes());
            budgets.take(PeerId(author), B, now);
        }
        assert_eq!(budgets.take(A, B, now), Ruling::Ignore);
        assert_eq!(budgets.take(A, A, now), Ruling::Read);
        assert_eq!(budgets.take(A, B, now + FORGET_AFTER), Ruling::Read);
    }
}
