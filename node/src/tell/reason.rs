//! Why a node makes no progress, each reason with a sentence and a remedy.

use std::fmt;

use intellect_protocol::base::id::PeerId;
use intellect_protocol::base::time::Time;
use intellect_protocol::machine::table::PeerTable;
use intellect_protocol::message::{QuorumRule, Series, Voter};

use crate::figures::number_of;

/// Why a node makes no progress. `Display` is a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The run needs more peers to begin (R15).
    Founders {
        /// Peers that are here, this one included.
        here: usize,
        /// `members.min_peers` of the manifest.
        needed: usize,
    },
    /// No other peer is here, and training still counts: this node is a majority by itself.
    GoesOnAlone,
    /// No other peer is here, and this node alone is no quorum.
    Alone {
        /// How many voters the open epoch has.
        voters: usize,
        /// The rule by which voters form a quorum.
        rule: QuorumRule,
    },
    /// The voters of the open epoch that are here form no quorum.
    Voters {
        /// Voters that are here, this one included if it votes.
        here: usize,
        /// All voters of the open epoch.
        all: usize,
        /// The rule by which voters form a quorum.
        rule: QuorumRule,
    },
    /// Other peers have decided an epoch, but this node does not receive its update (R44).
    PassedOver,
}

impl Reason {
    /// Which peers are missing apart from `me`, as far as the table shows. `met`: whether this node has ever met
    /// another one. A node that has not is a run of one, if the run needs no other peer, and misses nobody.
    pub(crate) fn absent(
        me: PeerId,
        (series, voters): (Series, &[Voter]),
        (peers_min, rule, met): (usize, QuorumRule, bool),
        table: &PeerTable,
        now: Time,
    ) -> Option<Self> {
        if voters.is_empty() {
            let here = table.live_in(series, now).count() + 1;
            return (here < peers_min).then_some(Self::Founders { here, needed: peers_min });
        }
        let is_here = |voter: &Voter| voter.peer == me || table.alive(&voter.peer, now);
        if table.live(now).next().is_none() && (peers_min > 1 || met) {
            let alone = rule.holds(voters, is_here);
            let voters = voters.len();
            return Some(if alone { Self::GoesOnAlone } else { Self::Alone { voters, rule } });
        }
        let here = voters.iter().filter(|voter| is_here(voter)).count();
        (!rule.holds(voters, is_here)).then_some(Self::Voters { here, all: voters.len(), rule })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Founders { .. } => "founders",
            Self::GoesOnAlone => "goes-on-alone",
            Self::Alone { .. } => "alone",
            Self::Voters { .. } => "voters",
            Self::PassedOver => "passed-over",
        }
    }

    pub(crate) fn cure(self) -> &'static str {
        match self {
            Self::Founders { .. } => "others join with the line that the bootstrap prints",
            Self::GoesOnAlone | Self::Alone { .. } => "name an entry point with --bootstrap",
            Self::Voters { .. } => "start again the nodes that have left",
            Self::PassedOver => {
                "if this lasts, there is no direct connection to them: forward the port of --listen on the router, \
                 and give the router's address with --external"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |here| if here == 1 { "is" } else { "are" };
        match *self {
            Self::Founders { here, needed } => {
                let needed = number_of(needed, "peer");
                write!(f, "waiting: {here} of the {needed} that the run needs to begin {} here", verb(here))
            }
            Self::GoesOnAlone => f.write_str(
                "alone: no other peer of this run can be reached; what is trained now may be undone when one can",
            ),
            Self::Alone { voters, rule } => write!(
                f,
                "alone: no other peer of this run can be reached, and it takes {} of {} to go on",
                quorum(rule, voters),
                number_of(voters, "voter")
            ),
            Self::Voters { here, all, rule } => write!(
                f,
                "waiting: {here} of {} {} here, and it takes {} to go on",
                number_of(all, "voter"),
                verb(here),
                quorum(rule, all)
            ),
            Self::PassedOver => f.write_str(
                "waiting: the others have decided an epoch, and none of them hands out its update",
            ),
        }
    }
}

/// How many of so many voters form a quorum, in words.
fn quorum(rule: QuorumRule, voters: usize) -> String {
    match rule {
        QuorumRule::Available | QuorumRule::Majority => "more than half".to_owned(),
        QuorumRule::Byzantine => rule.least(voters).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use intellect_protocol::base::id::{Digest, LogId};
    use intellect_protocol::message::Head;

    use super::*;

    const ME: PeerId = PeerId([1; 32]);

    fn series() -> Series {
        Series::after(&Head { epoch: 0, tokens: 0, state: Digest([0; 32]) })
    }

    fn table() -> PeerTable {
        PeerTable::new(Duration::from_millis(500), Duration::from_secs(8))
    }

    #[test]
    fn a_lone_node_lacks_founders_or_voters() {
        let of = |voters: &[Voter], min, met| {
            Reason::absent(
                ME,
                (series(), voters),
                (min, QuorumRule::Available, met),
                &table(),
                Time::ZERO,
            )
        };
        let missing = |voters: &[Voter], min| of(voters, min, false);
        assert_eq!(missing(&[], 2), Some(Reason::Founders { here: 1, needed: 2 }));
        assert_eq!(missing(&[], 1), None);
        let voter = |peer| Voter { peer: PeerId([peer; 32]), log: LogId([peer; 16]) };
        assert_eq!(missing(&[voter(1)], 1), None, "a run of one");
        assert_eq!(missing(&[voter(1)], 2), Some(Reason::GoesOnAlone));
        assert_eq!(of(&[voter(1)], 1, true), Some(Reason::GoesOnAlone), "it was a run of two");
        let three = [voter(1), voter(2), voter(3)];
        assert_eq!(
            missing(&three, 2),
            Some(Reason::Alone { voters: 3, rule: QuorumRule::Available })
        );
    }

    #[test]
    fn each_reason_is_a_sentence() {
        let said = |reason: Reason| reason.to_string();
        let founders = "waiting: 1 of the 2 peers that the run needs to begin is here";
        assert_eq!(said(Reason::Founders { here: 1, needed: 2 }), founders);
        let voters = "waiting: 2 of 5 voters are here, and it takes more than half to go on";
        assert_eq!(said(Reason::Voters { here: 2, all: 5, rule: QuorumRule::Majority }), voters);
        assert!(
            said(Reason::Alone { voters: 2, rule: QuorumRule::Available })
                .contains("more than half of 2 voters")
        );
        let seven = said(Reason::Voters { here: 4, all: 7, rule: QuorumRule::Byzantine });
        assert_eq!(seven, "waiting: 4 of 7 voters are here, and it takes 5 to go on");
        assert!(!Reason::PassedOver.cure().contains("  "));
    }
}
