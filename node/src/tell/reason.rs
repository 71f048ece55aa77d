//! Why a node makes no progress: each reason has a sentence and a remedy.
//!
//! Three of its methods have a `match` over the same variants on purpose: a new reason does not
//! compile until it has a name, a remedy and a sentence. The names are a documented output and
//! never change.
//!
//! The machines say for what they wait ([`Wait`]), and the node adds what they cannot know. When a
//! reason is reported is decided in `waiting`, by its name and by whether it is ordinary.

use std::{collections::BTreeSet, fmt};

use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::time::utc;
use intellect_protocol::machine::wait::{Obstacle, Wait};
use intellect_protocol::message::QuorumRule;

use crate::{
    figures::{bytes, number_of},
    name::PeerName,
};

/// Why a node makes no progress. `Display` is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// What the protocol waits for.
    Run(Wait),
    /// A later state is fetched, of which so many bytes have come.
    Behind {
        /// Bytes that are here and verified.
        have: u64,
        /// The size of the whole state, in bytes.
        want: u64,
    },
    /// No peer that is here hands out the later state that this node follows.
    Unserved,
    /// The run is by invitation, and its members have not admitted this node yet.
    NotAdmitted,
    /// The same, and by the clock of this machine its invite has expired meanwhile.
    Clock {
        /// When it expired, in Unix seconds.
        expires: u64,
    },
    /// Another lineage is greater, and would undo so much of this one that a person has to decide.
    /// Until then this node keeps its own.
    Forked {
        /// The first epoch in which the two differ.
        first_epoch: u64,
        /// How many epochs of this node's lineage the other one would undo.
        undone: u64,
        /// The state of the other lineage, by which `--follow` names it.
        theirs: Digest,
    },
    /// The disk does not take this node's votes. What it cannot store it must not say, or a restart
    /// could contradict it.
    Disk,
    /// What the protocol waits for, while this node itself keeps one of the missing peers out.
    ShutOut {
        /// What it waits for: the voters that are missing, or any peer.
        wait: Wait,
        /// The peer that this node keeps out.
        who: PeerId,
        /// Until when, in Unix seconds.
        until: u64,
    },
    /// The last epoch is reached; peers that are behind may still fetch it.
    Finished,
}

impl Reason {
    /// Its name in the events file, and whether an epoch that goes well has it too, for a short
    /// time. Such an ordinary reason is a sentence only if it lasts, and one follows another as a
    /// wait of its own.
    pub(crate) fn kind(&self) -> (&'static str, bool) {
        match self {
            Self::Run(wait) | Self::ShutOut { wait, .. } => match wait {
                Wait::Founders { .. } => ("founders", false),
                Wait::Alone { goes_on: true, .. } => ("goes-on-alone", false),
                Wait::Alone { goes_on: false, .. } => ("alone", false),
                Wait::Voters { .. } => ("voters", false),
                Wait::Behind => ("behind", true),
                Wait::PassedOver => ("passed-over", false),
                Wait::Joins(_) => ("joins", true),
                Wait::Training(_) => ("training", true),
                Wait::Roster { .. } => ("roster", true),
                Wait::LeftOut(Obstacle::NotDirect | Obstacle::FewLinks { .. }) => {
                    ("not-reachable", false)
                }
                Wait::LeftOut(Obstacle::Clock) => ("clock", false),
                Wait::LeftOut(
                    Obstacle::Late
                    | Obstacle::NoPlace
                    | Obstacle::Unheard
                    | Obstacle::Refused
                    | Obstacle::Unknown,
                ) => ("left-out", true),
                Wait::Accepts(_) => ("accepts", true),
                Wait::Ring { .. } => ("ring", true),
                Wait::Votes(_) => ("votes", true),
                Wait::Update => ("update", true),
            },
            Self::Behind { .. } => ("behind", true),
            Self::Unserved => ("unserved", false),
            Self::NotAdmitted => ("not-admitted", false),
            Self::Clock { .. } => ("clock", false),
            Self::Forked { .. } => ("forked", false),
            Self::Disk => ("disk", false),
            Self::Finished => ("finished", true),
        }
    }

    /// What a person can do, or what the run does by itself. It follows the sentence, and is a key
    /// of the event.
    pub(crate) fn cure(&self) -> &'static str {
        match self {
            Self::Run(wait) => match wait {
                Wait::Founders { here, needed } if here >= needed => "nothing has to be done",
                Wait::Founders { .. } => "others join with the line that the bootstrap prints",
                Wait::Alone { goes_on: false, regroups: true, .. } => {
                    "it goes on without them within a minute, or the run's minority_grace if that is longer, once its work is ready"
                }
                Wait::Alone { .. } => {
                    "start again the nodes that have left; if they run, name an entry point that works with --bootstrap, or wait ten minutes if they have shut this node out"
                }
                Wait::Voters { enough: true, .. } => {
                    "it goes on by itself within a minute, or the run's minority_grace if that is longer, or with the next epoch"
                }
                Wait::Voters { regroups: true, .. } => {
                    "they go on without the others within a minute, or the run's minority_grace if that is longer, once their work is ready"
                }
                Wait::Voters { .. } => "start again the nodes that have left",
                Wait::Behind | Wait::Update => BYTES,
                Wait::PassedOver | Wait::LeftOut(Obstacle::FewLinks { .. }) => DIRECT,
                Wait::Joins(_) => {
                    "a peer that stays silent is left behind after the run's minority_grace"
                }
                Wait::Training(_) => {
                    "those that take much longer than last time are left out of this ring"
                }
                Wait::Roster { .. } => "if nothing comes, the next voter takes its turn",
                Wait::LeftOut(Obstacle::NotDirect) => {
                    "forward the port of --listen on the router, and name the router's address with --external"
                }
                Wait::LeftOut(Obstacle::Clock) => "set the clock of this machine: it is ahead",
                Wait::LeftOut(Obstacle::Late) => {
                    "nothing has to be done: it counts in the next epoch; a faster device avoids it"
                }
                Wait::LeftOut(Obstacle::Unheard) => {
                    "nothing has to be done; if it comes again, check this machine's network"
                }
                Wait::LeftOut(Obstacle::NoPlace | Obstacle::Refused | Obstacle::Unknown) => {
                    "nothing has to be done"
                }
                Wait::Accepts(_) => "those that stay silent get no position in the next attempt",
                Wait::Ring { .. } => "a member that stalls it gets no position in the next attempt",
                Wait::Votes(_) => {
                    "a quorum of the voters is enough; if it does not come, the next attempt begins"
                }
            },
            Self::Behind { .. } => BYTES,
            Self::Unserved => "start a node that trained last, or wait for one",
            Self::NotAdmitted => {
                "members admit whoever has an invite of the organiser that is still good: --invite"
            }
            Self::Clock { .. } => {
                "set the clock of this machine if it is wrong; else ask the organiser for another invite"
            }
            Self::Forked { .. } => {
                "you decide: if it is the run's, start this node again with --follow and that state"
            }
            Self::ShutOut {
                wait:
                    wait @ (Wait::Alone { regroups: true, .. } | Wait::Voters { regroups: true, .. }),
                ..
            } => Self::Run(wait.clone()).cure(),
            Self::ShutOut { .. } => {
                "it may come back then; start again the other nodes that have left"
            }
            Self::Disk => "free some disk space, and check the disk if it has room",
            Self::Finished => "Ctrl-C ends it now",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(wait) => sentence(wait, f),
            Self::Behind { have, want } => write!(
                f,
                "waiting: this node fetches a later state of the run, and {} of {} are left",
                bytes(want.saturating_sub(*have)),
                bytes(*want)
            ),
            Self::Unserved => f.write_str(
                "waiting: this node follows a later state of the run, and no peer that is here hands it out",
            ),
            Self::NotAdmitted => f.write_str("waiting: no member of the run has admitted this node yet"),
            Self::Clock { expires } => write!(
                f,
                "waiting: by this machine's clock the invite of this node expired at {}, and nobody has admitted it",
                utc(*expires)
            ),
            Self::Forked { first_epoch, undone, theirs } => write!(
                f,
                "fork: from epoch {first_epoch} on a greater lineage would undo {} of ours; its state is {}",
                number_of(*undone, "epoch"),
                theirs.hex()
            ),
            Self::ShutOut { wait, who, until } => {
                sentence(wait, f)?;
                let (who, until) = (PeerName::from(*who), utc(*until));
                write!(f, "; this node keeps peer {} out until {until}, for its fault", who.short())
            }
            Self::Disk => {
                f.write_str("waiting: the disk does not take this node's votes or its state, and it sends no vote that it has not kept")
            }
            Self::Finished => {
                f.write_str("finished: the last epoch is reached, and peers that are behind may still fetch it")
            }
        }
    }
}

/// The sentence about a wait of the protocol. It names peers where that helps a person to act.
fn sentence(wait: &Wait, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let verb = |here: usize| if here == 1 { "is" } else { "are" };
    match wait {
        Wait::Founders { here, needed } if here >= needed => {
            write!(f, "waiting: {} {} here, and the run begins soon", number_of(*here, "peer"), verb(*here))
        }
        Wait::Founders { here, needed } => {
            let needed = number_of(*needed, "peer");
            write!(f, "waiting: {here} of the {needed} that the run needs to begin {} here", verb(*here))
        }
        Wait::Alone { goes_on: true, .. } => f.write_str(
            "alone: no other peer of this run can be reached; what is trained now may be undone when one can",
        ),
        Wait::Alone { regroups: true, .. } => f.write_str(
            "alone: no other peer of this run can be reached, and this node waits a while for the others",
        ),
        Wait::Alone { voters, rule, .. } => write!(
            f,
            "alone: no other peer of this run can be reached, and it takes {} of {} to go on",
            quorum(*rule, *voters),
            number_of(*voters, "voter")
        ),
        Wait::Voters { missing, all, enough, regroups, rule } => {
            let here = all.saturating_sub(missing.len());
            let why = match (enough, regroups) {
                (true, _) => "this node first hears from the others, since it was away".to_owned(),
                (false, true) => "this node waits a while for the others".to_owned(),
                (false, false) => format!("it takes {} to go on", quorum(*rule, *all)),
            };
            let (voters, is, missing) = (number_of(*all, "voter"), verb(here), without(missing));
            write!(f, "waiting: {here} of {voters} {is} here, and {why}{missing}")
        }
        Wait::Behind => f.write_str("waiting: this node fetches a later state of the run"),
        Wait::PassedOver => f.write_str(
            "waiting: the others have decided an epoch, and this node has not got its update yet",
        ),
        Wait::Joins(peers) => write!(f, "waiting: the peers that are here agree on who goes on{}", without(peers)),
        Wait::Training(peers) => write!(f, "waiting: others still train{}", without(peers)),
        Wait::Roster { owner: None, .. } => {
            f.write_str("waiting: all are ready, and no ring has been proposed yet")
        }
        Wait::Roster { attempt, owner: Some(owner) } => {
            let owner = PeerName::from(*owner);
            write!(f, "waiting: attempt {attempt} of this epoch is the turn of {}", owner.short())
        }
        Wait::LeftOut(obstacle) => left_out(*obstacle, f),
        Wait::Accepts(peers) => write!(f, "waiting: not all have agreed to the ring{}", without(peers)),
        Wait::Ring { slowest: None, .. } => f.write_str("waiting: the ring runs"),
        Wait::Ring { slowest: Some((peer, rate)), needed } => write!(
            f,
            "waiting: the ring runs; it needs {}/s of each member, and {} sent {}/s in its last one",
            bytes(*needed),
            PeerName::from(*peer).short(),
            bytes(*rate)
        ),
        Wait::Votes(peers) => write!(f, "waiting: not all have voted on the result{}", without(peers)),
        Wait::Update => f.write_str("waiting: the epoch is decided, and its update is on its way"),
    }
}

/// The sentence about a ring that has no place for this node.
fn left_out(obstacle: Obstacle, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let without = "waiting: the others average this epoch without this node";
    match obstacle {
        Obstacle::NotDirect => {
            f.write_str("waiting: no other peer connects to this node directly, so rings pass it by")
        }
        Obstacle::FewLinks { linked, voters } => write!(
            f,
            "waiting: rings pass this node by, since it has direct connections with {linked} of {}",
            number_of(voters, "other voter")
        ),
        Obstacle::Late => write!(f, "{without}, whose work was not ready"),
        Obstacle::NoPlace => write!(f, "{without}: a ring takes few newcomers at a time"),
        Obstacle::Unheard => write!(f, "{without}, which the proposer of the ring does not hear"),
        Obstacle::Clock => f.write_str(
            "waiting: by this machine's clock the invite of a peer that the others admit has expired",
        ),
        Obstacle::Refused => f.write_str("waiting: this node refuses the ring that was proposed"),
        Obstacle::Unknown => write!(f, "{without}, whose work counts in the next one"),
    }
}

/// The first of the peers that are missing, by the ends of their names.
fn without(peers: &BTreeSet<PeerId>) -> String {
    let shown: Vec<String> =
        peers.iter().take(SHOWN_MAX).map(|peer| PeerName::from(*peer).short().to_owned()).collect();
    let more = peers.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if shown.is_empty() { more } else { format!(": {}{more} to come", shown.join(", ")) }
}

/// How many of so many voters form a quorum, in words. Where liars are tolerated it is a number, as
/// people do not have the formula in mind.
fn quorum(rule: QuorumRule, voters: usize) -> String {
    match rule {
        QuorumRule::Available | QuorumRule::Majority => "more than half".to_owned(),
        QuorumRule::Byzantine => rule.least(voters).to_string(),
    }
}

/// The remedy where bytes are on their way, which is none.
const BYTES: &str = "nothing has to be done while bytes come in";

/// The remedy where no peer hands out an update: perhaps none of them has a direct connection.
const DIRECT: &str = "if this lasts, there is no direct connection to them: forward the port of --listen on the \
    router, and give the router's address with --external";

/// Names that a sentence has at most.
const SHOWN_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_sentence() {
        let said = |wait: Wait| Reason::Run(wait).to_string();
        let founders = "waiting: 1 of the 2 peers that the run needs to begin is here";
        assert_eq!(said(Wait::Founders { here: 1, needed: 2 }), founders);
        let (available, liars) = (QuorumRule::Available, QuorumRule::Byzantine);
        let voters = |missing: u8, all, enough, rule| {
            let missing = (0..missing).map(|name| PeerId([name; 32])).collect();
            Reason::Run(Wait::Voters { missing, all, enough, regroups: false, rule })
        };
        let few = voters(3, 5, false, available).to_string();
        let five = "waiting: 2 of 5 voters are here, and it takes more than half to go on: ";
        assert!(few.starts_with(five) && few.ends_with(" to come"), "{few}");
        let back = voters(1, 5, true, available);
        let said_back = back.to_string();
        assert!(said_back.starts_with("waiting: 4 of 5 voters are here, and this"), "{said_back}");
        assert!(said_back.contains("it was away: ") && back.cure().contains("by itself"));
        assert!(!voters(0, 5, true, available).to_string().contains("to come"));
        let seven = "waiting: 4 of 7 voters are here, and it takes 5 to go on: ";
        assert!(voters(3, 7, false, liars).to_string().starts_with(seven));
        let alone = alone(false);
        assert!(alone.to_string().contains("more than half of 2 voters"));
        assert!(alone.cure().starts_with("start again the nodes"), "{}", alone.cure());
        assert!(!Reason::Run(Wait::PassedOver).cure().contains("  "));
    }

    /// One of two voters is here, and does not go on yet.
    fn alone(regroups: bool) -> Reason {
        let rule = QuorumRule::Available;
        Reason::Run(Wait::Alone { voters: 2, rule, goes_on: false, regroups })
    }

    /// A Regroup needs no majority, so nobody has to come back.
    #[test]
    fn survivors_that_will_go_on_do_not_say_that_they_need_a_majority() {
        let (missing, rule) = ([PeerId([1; 32])].into(), QuorumRule::Available);
        let few = Wait::Voters { missing, all: 2, enough: false, regroups: true, rule };
        for reason in [alone(true), Reason::Run(few)] {
            let said = reason.to_string();
            assert!(said.contains("this node waits a while for the others"), "{said}");
            assert!(!said.contains("more than half"), "{said}");
            assert!(reason.cure().contains("on without"), "{}", reason.cure());
        }
    }

    #[test]
    fn a_peer_that_this_node_keeps_out_is_named_until_when() {
        let shut_out = |alone| match alone {
            Reason::Run(wait) => Reason::ShutOut { wait, who: PeerId([7; 32]), until: 951_782_399 },
            other => other,
        };
        assert_eq!(shut_out(alone(true)).cure(), alone(true).cure());
        let reason = shut_out(alone(false));
        let said = reason.to_string();
        let short = PeerName::from(PeerId([7; 32])).short().to_owned();
        let end = format!("keeps peer {short} out until 2000-02-28 23:59 UTC, for its fault");
        assert!(said.starts_with("alone: ") && said.ends_with(&end), "{said}");
        assert_eq!(reason.kind(), ("alone", false));
        assert!(reason.cure().starts_with("it may come back"), "{}", reason.cure());
    }

    /// The cure of too few connections is another one than that of a slow device or of a clock.
    #[test]
    fn each_obstacle_in_the_way_of_a_place_is_named_with_its_cure() {
        for (obstacle, name, said, cure) in [
            (Obstacle::NotDirect, "not-reachable", "no other peer connects", "--external"),
            (
                Obstacle::FewLinks { linked: 1, voters: 3 },
                "not-reachable",
                "connections with 1 of 3 other voters",
                "--external",
            ),
            (Obstacle::Late, "left-out", "without this node, whose work was not", "faster device"),
            (Obstacle::NoPlace, "left-out", "few newcomers at a time", "nothing"),
            (Obstacle::Unheard, "left-out", "does not hear", "network"),
            (Obstacle::Clock, "clock", "the invite of a peer", "clock"),
            (Obstacle::Refused, "left-out", "refuses the ring", "nothing"),
            (Obstacle::Unknown, "left-out", "counts in the next one", "nothing"),
        ] {
            let reason = Reason::Run(Wait::LeftOut(obstacle));
            let text = reason.to_string();
            assert!(text.starts_with("waiting: ") && text.contains(said), "{text}");
            assert!(reason.cure().contains(cure), "{name}: {}", reason.cure());
            assert_eq!(reason.kind(), (name, name == "left-out"));
        }
    }

    /// What only the node knows, and not the protocol.
    #[test]
    fn a_node_that_nobody_admits_or_serves_says_so_and_what_to_do() {
        let clock = Reason::Clock { expires: 951_782_399 };
        for (reason, name, part, cure) in [
            (Reason::NotAdmitted, "not-admitted", "no member of the run has admitted", "--invite"),
            (Reason::Unserved, "unserved", "no peer that is here hands it out", "start a node"),
            (clock, "clock", "expired at 2000-02-28 23:59 UTC", "set the clock"),
        ] {
            let said = reason.to_string();
            assert!(said.starts_with("waiting: ") && said.contains(part), "{said}");
            assert!(reason.cure().contains(cure), "{}", reason.cure());
            assert_eq!(reason.kind(), (name, false), "no part of an epoch that goes well");
        }
    }

    #[test]
    fn a_state_that_comes_in_has_what_is_left_of_it() {
        let behind = Reason::Behind { have: 5_900_000, want: 14_000_000 };
        let said = behind.to_string();
        assert!(said.ends_with("and 8.1 MB of 14 MB are left"), "{said}");
        let unknown = Reason::Run(Wait::Behind);
        assert_eq!((behind.kind(), behind.cure()), (unknown.kind(), unknown.cure()));
    }

    /// On a terminal of 80 columns the whole fits into the three rows of a verdict.
    #[test]
    fn a_fork_that_is_held_has_the_state_to_type() {
        let theirs = Digest([0xbb; 32]);
        let forked = Reason::Forked { first_epoch: 234, undone: 67, theirs };
        let said = format!("{forked}. {}", forked.cure());
        assert!(said.contains("would undo 67 epochs") && said.contains(&"bb".repeat(32)), "{said}");
        assert!(said.contains("--follow") && said.len() <= 3 * 80, "{said}");
        assert_eq!(forked.kind(), ("forked", false));
    }

    #[test]
    fn a_few_of_those_that_are_missing_are_named() {
        let training = |count: u8| {
            let peers = (0..count).map(|name| PeerId([name; 32])).collect();
            Reason::Run(Wait::Training(peers)).to_string()
        };
        assert_eq!(training(1).matches(", ").count(), 0);
        assert!(training(1).starts_with("waiting: others still train: "), "{}", training(1));
        assert_eq!(training(4).matches(", ").count(), 3);
        assert!(training(9).ends_with(" and 5 more to come"), "{}", training(9));
    }
}
