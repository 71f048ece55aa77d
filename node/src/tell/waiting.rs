//! Decides when to report that a node makes no progress: soon after it stops, and again every minute. Without that
//! sentence a lone node looks as though it trained.

use std::time::{Duration, Instant};

use super::reason::Reason;

/// Other peers may need so long to be found, or to come back, before a report of their absence helps.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same where no other peer at all is there: an address answers within a second or two.
const ALONE: Duration = Duration::from_secs(2);

/// Time between two reports of the same reason.
const AGAIN: Duration = Duration::from_secs(60);

/// Since when a node waits, and what it last reported, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
    said: Option<(Instant, Reason)>,
}

impl Waiting {
    /// The reason to report now, if one is due.
    pub(crate) fn note(&mut self, now: Instant, reason: Option<Reason>) -> Option<Reason> {
        let Some(reason) = reason else {
            *self = Self::default();
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let alone = matches!(reason, Reason::GoesOnAlone | Reason::Alone { .. });
        let patience = since + if alone { ALONE } else { PATIENCE };
        let due = match self.said {
            // A node that begins to go on alone is reported at once, though it was reported to wait.
            Some((_, said)) if reason == Reason::GoesOnAlone && said != reason => patience,
            Some((at, _)) => at + AGAIN,
            None => patience,
        };
        (now >= due).then(|| {
            self.said = Some((now, reason));
            reason
        })
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::message::QuorumRule;

    use super::*;

    #[test]
    fn a_lone_node_says_so_sooner_and_once_more_when_it_goes_on() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let [stuck, goes_on] =
            [Reason::Alone { voters: 2, rule: QuorumRule::Available }, Reason::GoesOnAlone]
                .map(Some);
        assert_eq!(waiting.note(start, stuck), None);
        assert_eq!(waiting.note(start + ALONE, stuck), stuck);
        assert_eq!(waiting.note(start + PATIENCE, stuck), None);
        assert_eq!(waiting.note(start + PATIENCE, goes_on), goes_on);
        assert_eq!(waiting.note(start + AGAIN, goes_on), None);
        assert_eq!(waiting.note(start + PATIENCE + AGAIN, goes_on), goes_on);
    }

    #[test]
    fn a_node_that_waits_says_so_soon_and_every_minute() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let founders = Some(Reason::Founders { here: 1, needed: 2 });
        assert_eq!(waiting.note(start, founders), None);
        assert_eq!(waiting.note(start + PATIENCE, founders), founders);
        assert_eq!(waiting.note(start + AGAIN, founders), None);
        assert_eq!(waiting.note(start + PATIENCE + AGAIN, founders), founders);
        assert_eq!(waiting.note(start + 2 * AGAIN, None), None);
        let voters = Some(Reason::Voters { here: 2, all: 5, rule: QuorumRule::Available });
        assert_eq!(waiting.note(start + 2 * AGAIN, voters), None, "it has only begun to wait");
        assert_eq!(waiting.note(start + 2 * AGAIN + PATIENCE, voters), voters);
    }
}
