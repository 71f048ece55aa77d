//! Liars in the world: which messages they hear and send, and what else they do.
//!
//! `liars` has the behaviours and knows no world. This file gives them their cues, carries their
//! messages, does their deeds, and judges what their presence may cost the others (S11, S12).
//!
//! No rule is checked for what a liar does, nor for whom it blames. Its messages only become part
//! of the history, because honest peers may count them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Digest, Happening, Message, PeerId, Voter, World, peer, wire};
use crate::check::{Verdict, require};
use crate::liars::{Cue, Deed, Facts, LOOK_MS, Liar, Lie, Stand, stranger_log};
use crate::report::Count;
use crate::rings::Sends;
use crate::{GRACE_MS, HEARTBEAT_MS};
use intellect_protocol::base::sign::{Keypair, Verified};
use intellect_protocol::machine::event::Committed;
use intellect_protocol::message::{Phase, Receipt, Roster, majority};

/// When strangers come that are not there from the start, in
/// milliseconds: the run is founded by then.
const STRANGERS_LATE_MS: u64 = 15_000;

/// Opened rings of an epoch after which every peer still takes part; after more, the peers that are
/// in dispute do not (R40).
const SPOILT_MAX: usize = 2;

/// Rosters for which Readies are remembered. The oldest gives way, and S11 is not checked for it.
const READIES_MAX: usize = 64;

/// How long after the last fault every peer is heard again, in
/// milliseconds: silent-after and the grace.
const SETTLED_MS: u64 = 4 * HEARTBEAT_MS + GRACE_MS + 2_000;

impl World {
    /// Makes a host a liar: a member if a process runs or will run there, else a stranger. It stays
    /// one, since the checks cannot trust again what has been said in its name.
    pub(crate) fn corrupt(&mut self, host: usize, liar: Liar) {
        self.check.distrust(self.hosts[host].name);
        self.hosts[host].liar = Some(Box::new(liar));
        self.misbehave(host);
    }

    /// Draws the liars: at most `most` of the first `peers` hosts, and all of the last `strangers`.
    /// Returns the number of liars among the first.
    pub(crate) fn draw_liars(&mut self, peers: usize, most: usize, strangers: usize) -> usize {
        let count = usize::try_from(self.rng.below(most as u64 + 1)).unwrap_or(0);
        let mut members: Vec<(u64, usize)> =
            (0..peers).map(|host| (self.rng.next_u64(), host)).collect();
        members.sort_unstable();
        let all = self.hosts.len();
        let members = members.into_iter().take(count).map(|(_, host)| host);
        for host in members.chain(all - strangers..all).collect::<Vec<_>>() {
            let liar = Liar::draw(&mut self.rng);
            self.corrupt(host, liar);
        }
        // In half of the seeds strangers are there when the run is founded.
        let late = self.rng.below(2);
        self.script.lying.strangers_ms = late * STRANGERS_LATE_MS;
        self.script.lying.drawn = true;
        self.push(LOOK_MS, 0, Happening::LookUp);
        count
    }

    /// Ends all faults of the network; liars go on. From now on S11 and S12 are promised, once
    /// every peer has been heard again.
    pub(crate) fn heal(&mut self) {
        self.network.heal();
        self.script.lying.healed_ms = Some(self.now_ms);
    }

    /// Whether a liar drives this host.
    pub(crate) fn is_liar(&self, host: usize) -> bool {
        self.hosts[host].liar.is_some()
    }

    /// Whether a host does this besides what it says.
    pub(super) fn does(&self, host: usize, deed: Deed) -> bool {
        self.hosts[host].liar.as_ref().is_some_and(|liar| liar.does(deed))
    }

    /// Applies the deeds of a liar to its process, which has started. It is called again at each
    /// start, because they end with the process.
    pub(super) fn misbehave(&mut self, host: usize) {
        let [never_sends, crawls, breaks, withholds] =
            [Deed::NeverSends, Deed::Crawls, Deed::BreaksOff, Deed::Withholds]
                .map(|deed| self.does(host, deed));
        let Some(process) = &mut self.hosts[host].process else { return };
        process.withholds |= withholds;
        if never_sends {
            process.sends = Sends::Never;
        } else if crawls {
            process.sends = Sends::Slowly;
        } else if breaks {
            process.sends = Sends::UntilItBreaks;
        }
    }

    /// Whether a liar suppresses a message of its machine; it may send others.
    pub(super) fn is_swallowed(
        &mut self,
        host: usize,
        to: Option<PeerId>,
        message: &Verified<Message>,
    ) -> bool {
        let (lies, swallows) = self.act(host, &[], Cue::Says(message.body()));
        for mut lie in lies {
            lie.to = lie.to.or(to);
            self.spread(host, lie);
        }
        swallows
    }

    /// Liars hear gossip, and messages that are sent to them. What they answer arrives later than
    /// the message would, by their own distance from its author. Heartbeats are no cue: there are
    /// too many.
    pub(super) fn overhear(
        &mut self,
        from: usize,
        to: Option<PeerId>,
        message: &Verified<Message>,
    ) {
        if !self.script.lying.drawn || matches!(message.body(), Message::Heartbeat(_)) {
            return;
        }
        for host in 0..self.hosts.len() {
            let heard = to.is_none_or(|to| to == self.hosts[host].name);
            if host == from || !heard || !self.is_liar(host) {
                continue;
            }
            let after_ms = self.network.delay_ms(from, host, &mut self.rng);
            let (lies, _) = self.act(host, &[], Cue::Hears(message.body()));
            for mut lie in lies {
                lie.delay_ms += after_ms;
                self.spread(host, lie);
            }
        }
    }

    /// All liars act without a message, in the order of their hosts, and again after [`LOOK_MS`].
    /// All see the same positions: those from before the first of them acts.
    pub(super) fn on_look_up(&mut self) {
        let stands: Vec<Stand> =
            (0..self.hosts.len()).filter_map(|host| self.stand(host)).collect();
        for host in 0..self.hosts.len() {
            let (lies, _) = self.act(host, &stands, Cue::Look);
            for lie in lies {
                self.spread(host, lie);
            }
        }
        self.push(LOOK_MS, 0, Happening::LookUp);
    }

    /// What liars know of a host: they see the state of everyone.
    fn stand(&self, host: usize) -> Option<Stand> {
        let process = self.hosts[host].process.as_ref()?;
        let (series, voters) = process.holdings.peer().series();
        let (head, voter) = (process.judged.head, process.judged.voter);
        let frozen = process.toy.frozen.as_ref();
        Some(Stand {
            voter,
            incarnation: process.judged.incarnation,
            head,
            series,
            voters: voters.to_vec(),
            ready: frozen.map_or(0, crate::toy::Frozen::weight),
            lies: self.is_liar(host),
        })
    }

    /// Lets a liar answer a cue. `true` suppresses the message of its machine. A liar that has no
    /// process speaks only if it is a stranger, and only from the time at which strangers come.
    fn act(&mut self, host: usize, stands: &[Stand], cue: Cue<'_>) -> (Vec<Lie>, bool) {
        let Some(mut liar) = self.hosts[host].liar.take() else { return (Vec::new(), false) };
        let name = self.hosts[host].name;
        let process = self.hosts[host].process.as_ref();
        let me = process.map(|process| process.judged.voter);
        let me = me.unwrap_or_else(|| Voter { peer: name, log: stranger_log(&name) });
        if let Some(process) = process {
            liar.memory.incarnation = process.judged.incarnation;
        }
        let facts = Facts { run: self.run, me, is_stranger: process.is_none(), stands };
        let stranger = process.is_none() && self.hosts[host].incarnation == 0;
        let dead = process.is_none() && !stranger
            || stranger && self.now_ms < self.script.lying.strangers_ms;
        let acted = if dead { (Vec::new(), false) } else { liar.act(&facts, cue) };
        self.hosts[host].liar = Some(liar);
        acted
    }

    /// A lie travels like any other message: the network may lose or double it. Gossip of a liar
    /// reaches each host directly, whatever links are broken; so a fault does not silence it.
    fn spread(&mut self, from: usize, Lie { author, to, message, delay_ms }: Lie) {
        self.check.lied(author, &message);
        self.count_lie(&message);
        let sealed = Arc::new(wire::seal(&Keypair::simulated(author), &self.run, message));
        let to = to.map(|to| self.host(&to));
        for host in 0..self.hosts.len() {
            let other = host == from || to.is_some_and(|to| to != Some(host));
            if other || self.hosts[host].process.is_none() {
                continue;
            }
            for way_ms in self.network.arrivals(from, host, 1, &mut self.rng).into_iter().flatten()
            {
                let input = peer::Input::Message(Arc::clone(&sealed));
                self.push_peer(way_ms + delay_ms, host, input);
            }
        }
    }

    /// Counts the lies that a run must have had to be worth anything.
    fn count_lie(&mut self, message: &Message) {
        match message {
            Message::Refuse(_) => self.report.count(Count::Refusals, 1),
            Message::Roster(roster) => self.note_readies(roster),
            _ => {}
        }
    }

    /// Records the honest voters that are Ready to a majority when a roster is proposed. They are
    /// the ones to which S11 promises positions, so it matters what was known then and not later.
    pub(super) fn note_readies(&mut self, roster: &Roster) {
        if !self.script.lying.drawn
            || self.script.lying.readies.iter().any(|(known, _)| known == roster)
        {
            return;
        }
        let (series, voters) = (roster.series, self.check.lineage.voters(&roster.series.parent));
        let knows = |voter: &Voter, peer: &PeerId| {
            let host = self.host(&voter.peer).filter(|host| !self.is_liar(*host));
            let process = host.and_then(|host| self.hosts[host].process.as_ref());
            process.is_some_and(|process| process.judged.knows_ready(peer, &series))
        };
        let well = |v: &Voter| self.host(&v.peer).filter(|host| self.is_well(*host));
        let held = voters.iter().filter_map(well).filter(|host| {
            let name = self.hosts[*host].name;
            let process = self.hosts[*host].process.as_ref();
            process.is_some_and(|process| process.toy.frozen.is_some())
                && majority(&voters, |voter| knows(voter, &name))
        });
        let held = held.map(|host| self.hosts[host].name).collect();
        self.script.lying.readies.push_back((roster.clone(), held));
        if self.script.lying.readies.len() > READIES_MAX {
            self.script.lying.readies.pop_front();
        }
    }

    /// Records that an honest host has opened a ring.
    pub(super) fn note_ring(&mut self, host: usize, roster: Digest) {
        let (Some(process), false) = (&self.hosts[host].process, self.is_liar(host)) else {
            return;
        };
        let parent = process.judged.head.state;
        self.script.lying.rings.entry(parent).or_default().insert(roster);
    }

    /// S11 and S12, once no faults strike. Also counts the liars that have no position.
    pub(super) fn judge_part(&mut self, committed: &Committed) {
        let receipt = &committed.receipt;
        let since_ms = self.script.lying.healed_ms.map_or(u64::MAX, |ms| ms + SETTLED_MS);
        if !self.script.lying.drawn || self.check.lineage.knows(&committed.head.state) {
            return;
        }
        let liars = (0..self.hosts.len()).filter(|host| self.is_liar(*host));
        let names: BTreeSet<PeerId> = liars.map(|host| self.hosts[host].name).collect();
        let places: BTreeSet<PeerId> =
            receipt.contributors().into_keys().map(|(peer, _)| peer).collect();
        let held_back = names.iter().filter(|name| !places.contains(name)).count();
        self.report.count(Count::HeldBack, held_back as u64);
        if self.now_ms < since_ms {
            return;
        }
        let wasted = self.report.count_wasted(&receipt.series);
        let voters = self.check.lineage.voters(&receipt.series.parent);
        let lying = voters.iter().filter(|voter| names.contains(&voter.peer)).count();
        if 2 * lying >= voters.len() {
            return;
        }
        let verdict = self
            .judge_wasted(receipt, wasted, names.len() as u64)
            .and_then(|()| self.judge_voters(receipt, &voters))
            .and_then(|()| match self.setup.quorum.prepares() {
                true => self.judge_places(receipt, &places),
                false => Ok(()),
            });
        self.judge(verdict);
    }

    /// S12: an epoch costs two attempts by chance, and at most three for each liar. Liars are
    /// counted by key, strangers too.
    fn judge_wasted(&self, receipt: &Receipt, wasted: u64, liars: u64) -> Verdict {
        require(wasted <= 2 + 3 * liars, "S12", || {
            let epoch = receipt.series.epoch;
            format!("{wasted} attempts of epoch {epoch} came to nothing, beside {liars} liars")
        })
    }

    /// S11: an honest voter that is alive remains a voter.
    fn judge_voters(&self, receipt: &Receipt, voters: &[Voter]) -> Verdict {
        let next = receipt.voters();
        for voter in voters.iter().filter(|voter| !next.contains(voter)) {
            let lives = |host: &usize| {
                let process = self.hosts[*host].process.as_ref();
                self.is_well(*host) && process.is_some_and(|p| p.judged.voter == *voter)
            };
            let host = self.host(&voter.peer).filter(lives);
            require(host.is_none(), "S11", || {
                let (epoch, next) = (receipt.series.epoch, next.len());
                format!("{} is no voter after epoch {epoch}, of {next}", voter.peer)
            })?;
        }
        Ok(())
    }

    /// S11: of the voters whose Ready a majority held when the roster was proposed, half have a
    /// position. A third has to after failed rings, which cost peers their position (R40), or once
    /// a liar has shown two rosters, of which each voter accepts one at most (G6). Newcomers have
    /// few positions in any case (G7).
    fn judge_places(&self, receipt: &Receipt, places: &BTreeSet<PeerId>) -> Verdict {
        let formed = |(roster, _): &&(Roster, BTreeSet<PeerId>)| {
            roster.series == receipt.series && roster.members == receipt.members
        };
        let lying = &self.script.lying;
        let Some((roster, held)) = lying.readies.iter().find(formed) else { return Ok(()) };
        let rings = lying.rings.get(&receipt.series.parent).map_or(0, BTreeSet::len);
        let placed = held.iter().filter(|peer| places.contains(peer)).count();
        let of_series =
            || lying.readies.iter().map(|(r, _)| r).filter(|r| r.series == roster.series);
        let two = |a: &Roster| {
            of_series().any(|b| (a.attempt, a.proposer) == (b.attempt, b.proposer) && a != b)
        };
        let spoilt = rings > SPOILT_MAX || of_series().any(two);
        let least = if spoilt { held.len() / 3 } else { held.len() / 2 };
        require(placed >= least.min(held.len()), "S11", || {
            let (epoch, attempt) = (receipt.series.epoch, roster.attempt);
            format!(
                "{placed} of {} Readies have a place in attempt {attempt} of epoch {epoch}, ring {rings}, by {}",
                held.len(),
                roster.proposer
            )
        })
    }

    /// Whether an honest process is well: it has run for a while, and is not behind.
    pub(super) fn is_well(&self, host: usize) -> bool {
        let Some(process) = &self.hosts[host].process else { return false };
        let age_ms = self.now_ms - process.judged.started_ms;
        let behind = process.holdings.peer().phase().0 == Phase::Behind;
        !self.is_liar(host) && process.paused.is_none() && !behind && age_ms > self.setup.grace_ms
    }
}
