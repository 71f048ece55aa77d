//! Says in a sentence what a node waits for that cannot get on: soon after it stands still, and
//! again every minute. Without that a lone node looks as though it trained.

use std::time::{Duration, Instant};

use intellect_protocol::id::PeerId;
use intellect_protocol::message::{Series, Voter, majority};
use intellect_protocol::roll::Roll;
use intellect_protocol::time::Time;

use crate::figures::number_of;

/// Others need so long to be found, or to come back, before a word about them helps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two sentences about the same.
const AGAIN: Duration = Duration::from_secs(60);

/// Who is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// So many peers are here, of those whom the run needs to begin (R15).
    Founders {
        /// This one included.
        here: usize,
        /// `members.min_peers`.
        needed: usize,
    },
    /// Voters of the open epoch, of whom no majority is here.
    Voters {
        /// This one included, if it votes.
        here: usize,
        /// All of them.
        all: usize,
    },
}

impl Missing {
    /// Who is missing beside `me`, as far as the roll tells.
    pub(crate) fn of(
        me: PeerId,
        (series, voters): (Series, &[Voter]),
        peers_min: usize,
        roll: &Roll,
        now: Time,
    ) -> Option<Self> {
        if voters.is_empty() {
            let here = roll.live_in(series, now).count() + 1;
            return (here < peers_min).then_some(Self::Founders { here, needed: peers_min });
        }
        let is_here = |voter: &Voter| voter.peer == me || roll.alive(&voter.peer, now);
        let here = voters.iter().filter(|voter| is_here(voter)).count();
        (!majority(voters, is_here)).then_some(Self::Voters { here, all: voters.len() })
    }

    fn sentence(self) -> String {
        let verb = |here| if here == 1 { "is" } else { "are" };
        match self {
            Self::Founders { here, needed } => {
                let needed = number_of(needed, "peer");
                format!(
                    "waiting: {here} of the {needed} that the run needs to begin {} here",
                    verb(here)
                )
            }
            Self::Voters { here, all } => format!(
                "waiting: {here} of {} {} here, and it takes more than half to go on",
                number_of(all, "voter"),
                verb(here)
            ),
        }
    }
}

/// Since when a node waits, and when it last said so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    since: Option<Instant>,
    said: Option<Instant>,
}

impl Waiting {
    /// What is to be said now.
    pub(crate) fn note(&mut self, now: Instant, missing: Option<Missing>) -> Option<String> {
        let Some(missing) = missing else {
            *self = Self::default();
            return None;
        };
        let since = *self.since.get_or_insert(now);
        let due = self.said.map_or(since + PATIENCE, |said| said + AGAIN);
        if now < due {
            return None;
        }
        self.said = Some(now);
        Some(missing.sentence())
    }
}

#[cfg(test)]
mod tests {
    use intellect_protocol::id::{Digest, LogId};
    use intellect_protocol::message::Head;

    use super::*;

    const ME: PeerId = PeerId([1; 32]);

    fn series() -> Series {
        Series::after(&Head { epoch: 0, tokens: 0, state: Digest([0; 32]) })
    }

    fn roll() -> Roll {
        Roll::new(Duration::from_millis(500), Duration::from_secs(8))
    }

    #[test]
    fn a_lone_node_lacks_founders_or_voters() {
        let missing =
            |voters: &[Voter], min| Missing::of(ME, (series(), voters), min, &roll(), Time::ZERO);
        assert_eq!(missing(&[], 2), Some(Missing::Founders { here: 1, needed: 2 }));
        assert_eq!(missing(&[], 1), None);
        let voter = |peer| Voter { peer: PeerId([peer; 32]), log: LogId([peer; 16]) };
        assert_eq!(missing(&[voter(1)], 2), None);
        let three = [voter(1), voter(2), voter(3)];
        assert_eq!(missing(&three, 2), Some(Missing::Voters { here: 1, all: 3 }));
    }

    #[test]
    fn who_waits_says_so_soon_and_every_minute_until_it_gets_on() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        let missing = Some(Missing::Founders { here: 1, needed: 2 });
        assert_eq!(waiting.note(start, missing), None);
        let said = waiting.note(start + PATIENCE, missing).unwrap();
        assert_eq!(said, "waiting: 1 of the 2 peers that the run needs to begin is here");
        assert_eq!(waiting.note(start + AGAIN, missing), None);
        assert!(waiting.note(start + PATIENCE + AGAIN, missing).is_some());
        assert_eq!(waiting.note(start + 2 * AGAIN, None), None);
        let missing = Some(Missing::Voters { here: 2, all: 5 });
        assert_eq!(waiting.note(start + 2 * AGAIN, missing), None, "it has only begun to wait");
        let said = waiting.note(start + 2 * AGAIN + PATIENCE, missing).unwrap();
        assert_eq!(said, "waiting: 2 of 5 voters are here, and it takes more than half to go on");
    }
}
