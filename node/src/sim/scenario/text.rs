//! The text of a scenario file: every key may be there, and each is checked here once.
//!
//! A step is a flat table, so that a file stays short. Which keys belong to which verb is a table here; a key too many
//! is as wrong as one too few.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Action, PeerAction, When};
use crate::sim::links::{AccessLink, Change};
use crate::sim::observations::Allowed;

/// The file as a person writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Complaints that are expected, by name.
    #[serde(default)]
    pub(super) allow: Vec<Allowed>,
    /// The steps in the order in which they are checked and taken.
    #[serde(default)]
    pub(super) step: Vec<Step>,
}

/// One step, with every key that any verb has. An absent key is `None`, which is not the same as a
/// default: a link's rate that is not named stays as it is. The keys from `epoch` on say when.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// What the step does, which says which other keys it needs.
    r#do: Verb,
    peer: Option<usize>,
    peers: Option<Vec<usize>>,
    to: Option<usize>,
    one_way: Option<bool>,
    up: Option<bool>,
    rate: Option<u64>,
    delay_ms: Option<u64>,
    loss: Option<f64>,
    epoch: Option<u64>,
    second: Option<f64>,
    roster: Option<u64>,
    plus_ms: Option<u64>,
    plus_share: Option<f64>,
}

/// The verbs, whose words are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Kill,
    Interrupt,
    Terminate,
    Stop,
    Continue,
    Start,
    KillBootstrap,
    Link,
    Cut,
    BlackHole,
    Heal,
}

impl Step {
    /// The meaning of the step among `peers` peers, or what to write instead. Keys that the verb
    /// does not have are found first: a key that is ignored would make a person believe in
    /// something that does not happen.
    pub(super) fn parse(&self, peers: usize) -> Result<(Action, When), String> {
        let (verb, keys) = self.r#do.grammar();
        let extra = self.given().into_iter().find(|key| !keys.contains(key));
        if let Some(key) = extra {
            return Err(format!("{verb} has no `{key}`: remove it"));
        }
        Ok((self.action(peers)?, self.when()?))
    }

    /// The keys that the step has, except those that say when.
    fn given(&self) -> Vec<&'static str> {
        let all = [
            ("peer", self.peer.is_some()),
            ("peers", self.peers.is_some()),
            ("to", self.to.is_some()),
            ("one_way", self.one_way.is_some()),
            ("up", self.up.is_some()),
            ("rate", self.rate.is_some()),
            ("delay_ms", self.delay_ms.is_some()),
            ("loss", self.loss.is_some()),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
    }

    /// The action of the verb, with its keys checked.
    fn action(&self, peers: usize) -> Result<Action, String> {
        let action = |action| Ok(Action::Peer(action, self.peer(peers)?));
        match self.r#do {
            Verb::Kill => action(PeerAction::Kill),
            Verb::Interrupt => action(PeerAction::Interrupt),
            Verb::Terminate => action(PeerAction::Terminate),
            Verb::Stop => action(PeerAction::Stop),
            Verb::Continue => action(PeerAction::Continue),
            Verb::Start => action(PeerAction::Start),
            Verb::KillBootstrap => Ok(Action::KillBootstrap),
            Verb::Link => self.link(peers).map(Action::Links),
            Verb::Cut => self.cut(peers).map(Action::Links),
            Verb::BlackHole => self.black_hole(peers).map(Action::Links),
            Verb::Heal => Ok(Action::Links(Change::Heal)),
        }
    }

    /// The peer that the step names.
    fn peer(&self, peers: usize) -> Result<usize, String> {
        known(self.peer.ok_or("say which `peer`; 0 is the first")?, peers)
    }

    /// A change of one access link. At least one property must be named.
    fn link(&self, peers: usize) -> Result<Change, String> {
        let peer = self.peer(peers)?;
        let link = AccessLink {
            up: self.up,
            rate: self.rate,
            delay: self.delay_ms.map(Duration::from_millis),
            loss: self.loss,
        };
        if link == AccessLink::default() {
            return Err("say how the link is to be: `up`, `rate`, `delay_ms`, `loss`".to_owned());
        }
        if let Some(loss) = link.loss.filter(|loss| !(0.0..=1.0).contains(loss)) {
            return Err(format!("`loss = {loss}` is no share of the packets: choose 0 to 1"));
        }
        if link.delay.is_some_and(|delay| delay > DELAY_MAX) {
            return Err(format!("`delay_ms` is at most {}", DELAY_MAX.as_millis()));
        }
        Ok(Change::Access { peer, link })
    }

    /// A cut between the named peers and all others; neither side may be empty.
    fn cut(&self, peers: usize) -> Result<Change, String> {
        let named = self.peers.as_deref().unwrap_or_default();
        let group = named.iter().map(|peer| known(*peer, peers));
        let group = group.collect::<Result<BTreeSet<_>, _>>()?;
        if group.is_empty() || group.len() == peers {
            return Err("say which `peers` are cut off from the others, as in [0, 1]".to_owned());
        }
        Ok(Change::Cut(group))
    }

    /// A black hole between two different peers, both ways unless the step says otherwise.
    fn black_hole(&self, peers: usize) -> Result<Change, String> {
        let from = self.peer(peers)?;
        let to = known(self.to.ok_or("name the receiver in `to`")?, peers)?;
        if from == to {
            return Err("`peer` and `to` are the same: name two".to_owned());
        }
        Ok(Change::BlackHole { from, to, both: !self.one_way.unwrap_or(false) })
    }

    /// When the step is due: by exactly one of the three clocks.
    fn when(&self) -> Result<When, String> {
        let plus_ms = self.plus_ms.unwrap_or(0);
        if let Some(plus_share) = self.plus_share {
            return self.ring(plus_share);
        }
        match (self.epoch, self.second, self.roster) {
            (Some(epoch), None, None) => Ok(When::Epoch { epoch, plus_ms }),
            (None, Some(_), None) if self.plus_ms.is_some() => {
                Err("`plus_ms` belongs to `roster` or `epoch`".to_owned())
            }
            (None, Some(second), None) => Duration::try_from_secs_f64(second)
                .map(When::Elapsed)
                .map_err(|_| format!("`second = {second}` is no time after the start")),
            (None, None, Some(epoch)) => {
                let peer = self.peer.ok_or("only a peer has a `roster`")?;
                Ok(When::Roster { peer, epoch, plus_ms })
            }
            _ => Err("say when with exactly one of `epoch`, `second`, `roster`".to_owned()),
        }
    }

    /// A time within a ring, as a share of how long the peer's rings took so far.
    fn ring(&self, plus_share: f64) -> Result<When, String> {
        let (None, None, None, Some(peer), Some(epoch)) =
            (self.epoch, self.second, self.plus_ms, self.peer, self.roster)
        else {
            return Err("`plus_share` belongs to the `roster` of a `peer`, alone".to_owned());
        };
        if !(0.0..=10.0).contains(&plus_share) {
            return Err(format!("`plus_share = {plus_share}`: choose 0 to 10"));
        }
        if epoch < 2 {
            return Err("`plus_share` needs an epoch before: `roster = 2` or later".to_owned());
        }
        Ok(When::Ring { peer, epoch, plus_share })
    }
}

impl Verb {
    /// The name of the verb, and its keys apart from those that say when.
    fn grammar(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Kill => ("kill", &["peer"]),
            Self::Interrupt => ("interrupt", &["peer"]),
            Self::Terminate => ("terminate", &["peer"]),
            Self::Stop => ("stop", &["peer"]),
            Self::Continue => ("continue", &["peer"]),
            Self::Start => ("start", &["peer"]),
            Self::KillBootstrap => ("kill-bootstrap", &[]),
            Self::Link => ("link", &["peer", "up", "rate", "delay_ms", "loss"]),
            Self::Cut => ("cut", &["peers"]),
            Self::BlackHole => ("black-hole", &["peer", "to", "one_way"]),
            Self::Heal => ("heal", &[]),
        }
    }
}

/// The number of a peer, if there is such a peer.
fn known(peer: usize, peers: usize) -> Result<usize, String> {
    if peer < peers {
        return Ok(peer);
    }
    Err(format!("there is no peer {peer}: with {peers} they are 0 to {}", peers - 1))
}

/// Longer than on any connection on Earth, shorter than the timers that declare a peer gone.
const DELAY_MAX: Duration = Duration::from_secs(10);
