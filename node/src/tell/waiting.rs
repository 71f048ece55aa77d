//! Decides when to report that a node makes no progress: soon after it stops, and again every minute. Without that
//! sentence a lone node looks as though it trained.

use std::time::{Duration, Instant};

use super::reason::Reason;

/// Other peers may need so long to be found, or to come back, before a report of their absence helps.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same where no other peer at all is there: an address answers within a second or two.
const ALONE: Duration = Duration::from_secs(2);

/// How long something lasts that belongs to an epoch before people are told: programs are told sooner.
const ORDINARY: Duration = Duration::from_secs(30);

/// Time between two reports of the same reason.
const AGAIN: Duration = Duration::from_secs(60);

/// Since when a node waits, and what was last reported of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// The present reason by its name, whether it is ordinary, and since when.
    now: Option<(&'static str, bool, Instant)>,
    /// The reason of the last event, and when it was written.
    event: Option<(&'static str, Instant)>,
    /// The reason of the last sentence, and when it was printed.
    sentence: Option<(&'static str, Instant)>,
}

/// Whether a report is due, and of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Whether programs are to be told.
    pub(crate) event: bool,
    /// Whether people are to be told.
    pub(crate) sentence: bool,
}

impl Waiting {
    /// Whether there was a reason when this was noted last.
    pub(crate) fn waits(&self) -> bool {
        self.now.is_some()
    }

    /// An epoch was committed. What belongs to an epoch has ended with it, even if the next look finds the same again.
    pub(crate) fn commit(&mut self) {
        if self.now.is_some_and(|(name, ordinary, _)| ordinary || name == "passed-over") {
            *self = Self::default();
        }
    }

    /// Which reports of this reason are due now.
    pub(crate) fn note(&mut self, now: Instant, reason: Option<&Reason>) -> Due {
        let Some(reason) = reason else {
            *self = Self::default();
            return Due::default();
        };
        let (name, ordinary) = reason.kind();
        // Other peers may go missing while a run stands still; what an epoch waits for is something new each time.
        let goes_on = |before: &str, was: bool| before == name || !(was || ordinary);
        let since = self.now.filter(|(before, was, _)| goes_on(before, *was));
        let since = since.map_or(now, |(_, _, since)| since);
        self.now = Some((name, ordinary, since));
        let alone = matches!(name, "alone" | "goes-on-alone");
        let soon = since + if alone { ALONE } else { PATIENCE };
        let late = if ordinary { since + ORDINARY } else { soon };
        // A node that begins to go on alone, or whose owner has to decide, is reported at once, though
        // it was reported to wait.
        let again = |last: (&'static str, Instant)| match name {
            "goes-on-alone" | "forked" if last.0 != name => soon,
            _ => last.1 + AGAIN,
        };
        let event = match self.event {
            Some(last) if last.0 == name => again(last),
            _ => soon,
        };
        let due = Due {
            event: now >= event,
            sentence: now >= self.sentence.map_or(late, again).max(late),
        };
        if due.event {
            self.event = Some((name, now));
        }
        if due.sentence {
            self.sentence = Some((name, now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use intellect_protocol::base::id::Digest;
    use intellect_protocol::machine::wait::Wait;
    use intellect_protocol::message::QuorumRule;

    use super::*;

    const NEITHER: Due = Due { event: false, sentence: false };
    const BOTH: Due = Due { event: true, sentence: true };

    #[test]
    fn a_lone_node_says_so_sooner_and_once_more_when_it_goes_on() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let [stuck, goes_on] = [false, true].map(|goes_on| {
            let (voters, rule, regroups) = (2, QuorumRule::Available, true);
            Reason::Run(Wait::Alone { voters, rule, goes_on, regroups })
        });
        let mut note = |after, reason| waiting.note(start + after, Some(reason));
        assert_eq!(note(Duration::ZERO, &stuck), NEITHER);
        assert_eq!(note(ALONE, &stuck), BOTH);
        assert_eq!(note(PATIENCE, &stuck), NEITHER);
        assert_eq!(note(PATIENCE, &goes_on), BOTH);
        assert_eq!(note(AGAIN, &goes_on), NEITHER);
        assert_eq!(note(PATIENCE + AGAIN, &goes_on), BOTH);
    }

    /// The looks of a node can be in step with its epochs, so that each finds the same.
    #[test]
    fn what_belongs_to_an_epoch_ends_with_it_and_a_lone_node_says_so_each_minute() {
        let (rule, start) = (QuorumRule::Available, Instant::now());
        for (wait, times) in [
            (Wait::Ring { slowest: None, needed: 1 }, 0),
            (Wait::PassedOver, 0),
            (Wait::Alone { voters: 1, rule, goes_on: true, regroups: true }, 2),
        ] {
            let (mut waiting, reason) = (Waiting::default(), Reason::Run(wait));
            let looks = (0..=124).map(|look| {
                waiting.commit();
                waiting.note(start + Duration::from_millis(500) * look, Some(&reason))
            });
            let due: Vec<Due> = looks.filter(|due| *due != NEITHER).collect();
            assert_eq!(due, vec![BOTH; times], "{reason}");
        }
    }

    #[test]
    fn a_node_that_waits_says_so_soon_and_every_minute() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let founders = Reason::Run(Wait::Founders { here: 1, needed: 2 });
        let voters = Reason::Run(Wait::Voters {
            missing: BTreeSet::new(),
            all: 5,
            enough: false,
            regroups: true,
            rule: QuorumRule::Available,
        });
        let mut note = |after, reason| waiting.note(start + after, reason);
        assert_eq!(note(Duration::ZERO, Some(&founders)), NEITHER);
        assert_eq!(note(PATIENCE, Some(&founders)), BOTH);
        assert_eq!(note(AGAIN, Some(&founders)), NEITHER);
        assert_eq!(note(PATIENCE + AGAIN, Some(&founders)), BOTH);
        assert_eq!(note(2 * AGAIN, None), NEITHER);
        assert_eq!(note(2 * AGAIN, Some(&voters)), NEITHER, "it has only begun to wait");
        assert_eq!(note(2 * AGAIN + PATIENCE, Some(&voters)), BOTH);
    }

    /// The sentence names what has to be typed, so it must not wait for the minute of another one.
    #[test]
    fn a_fork_that_a_person_decides_about_is_said_beside_another_reason() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let voters = Reason::Run(Wait::Voters {
            missing: BTreeSet::new(),
            all: 5,
            enough: false,
            regroups: true,
            rule: QuorumRule::Available,
        });
        let forked = Reason::Forked { first_epoch: 7, undone: 3, theirs: Digest::ZERO };
        let mut note = |after, reason| waiting.note(start + after, Some(reason));
        assert_eq!(note(Duration::ZERO, &voters), NEITHER);
        assert_eq!(note(PATIENCE, &voters), BOTH);
        assert_eq!(note(2 * PATIENCE, &forked), BOTH);
        assert_eq!(note(AGAIN, &forked), NEITHER);
        assert_eq!(note(2 * PATIENCE + AGAIN, &forked), BOTH);
    }

    #[test]
    fn what_belongs_to_an_epoch_is_an_event_soon_and_a_sentence_late() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let training = Reason::Run(Wait::Training(BTreeSet::new()));
        let votes = Reason::Run(Wait::Votes(BTreeSet::new()));
        let mut note = |after, reason| waiting.note(start + after, Some(reason));
        assert_eq!(note(Duration::ZERO, &training), NEITHER);
        assert_eq!(note(PATIENCE, &training), Due { event: true, sentence: false });
        assert_eq!(note(2 * PATIENCE, &votes), NEITHER, "another thing begins anew");
        assert_eq!(note(3 * PATIENCE, &votes), Due { event: true, sentence: false });
        assert_eq!(note(2 * PATIENCE + ORDINARY, &votes), Due { event: false, sentence: true });
    }
}
