//! What only a scene asks of a world. A scene has a few peers, a network without chance, and a
//! filter that decides the fate of each message.
//!
//! Its times are chosen, not drawn: a message takes 4 ms, training 400 ms. The invariants are
//! checked at each step as in any other simulated run.
//!
//! A scene goes on by [`World::until`] or [`World::play`], and between two of these calls it
//! changes what it likes: it starts and kills processes, breaks links, sends messages in the name
//! of others. What it changes holds from the next event on. It reads where peers stand
//! ([`World::head`], [`World::phase`], [`World::wait`]) and what they have reported
//! ([`World::events`]).
//!
//! A message that a scene sends counts as a lie to the checks. So it may break any rule, and only
//! what honest peers make of it is judged.

use super::{
    Answer, Duration, Event, Fate, Liar, Message, PeerId, PlannedCrash, Rule, Rules, Series, Setup,
    Violation, World, peer, wire,
};
use crate::disk::Kept;
use crate::script::organiser;
use crate::{GRACE_MS, HEARTBEAT_MS};
use intellect_protocol::base::id::Digest;
use intellect_protocol::history::lineage::Validator;
use intellect_protocol::machine::event::Committed;
use intellect_protocol::machine::wait::Wait;
use intellect_protocol::message::{Attestation, Body, Head, Notice, Phase, QuorumRule};

/// The peer of a stranger with this name.
#[must_use]
pub fn stranger(name: u8) -> PeerId {
    PeerId([name; 32])
}

impl World {
    /// A world of `hosts` hosts, on which no process runs yet. `founders` of them are the voters of
    /// genesis; if there are any, the run has `quorum = "majority"`.
    #[must_use]
    pub fn scene(hosts: usize, founders: usize, without: Option<Rule>) -> Self {
        let quorum = if founders > 0 { QuorumRule::Majority } else { QuorumRule::Available };
        Self::scene_with(hosts, founders, quorum, without)
    }

    /// A world with this rule of quorums. `without` names a rule that is switched off, to see that
    /// the scene notices; two peers are enough to found the run.
    #[must_use]
    pub fn scene_with(
        hosts: usize,
        founders: usize,
        quorum: QuorumRule,
        without: Option<Rule>,
    ) -> Self {
        let mut world = Self::new(Setup {
            hosts,
            peers_min: 2,
            quorum,
            founders,
            heartbeat_ms: HEARTBEAT_MS,
            grace_ms: GRACE_MS,
            seed: 1,
            rules: Rules::without(without),
            distance_ms: 1,
            jitter_ms: 0,
        });
        world.events = Some(Vec::new());
        world.script.owed_end.0 = true;
        world
    }

    /// Lets this function decide the fate of every message from now on, by sender and receiver. One
    /// function at a time: it replaces the one before.
    pub fn direct(&mut self, fate: impl FnMut(usize, usize, &Message) -> Fate + 'static) {
        self.script.filter = Some(Box::new(fate));
    }

    /// Lets this function change every answer about a lineage from now on, by donor and receiver.
    pub fn forge(&mut self, forge: impl FnMut(usize, usize, &mut Answer) + 'static) {
        self.script.forger = Some(Box::new(forge));
    }

    /// Sends a message of a stranger to some hosts, which have it at once: it passes neither the
    /// network nor the filter.
    pub fn say(&mut self, hosts: &[usize], name: u8, message: &Message) {
        self.say_as(hosts, stranger(name), message);
    }

    /// Sends a message of any key to some hosts. If the key is a host's, that host
    /// counts as a liar from now on.
    pub fn say_as(&mut self, hosts: &[usize], author: PeerId, message: &Message) {
        match self.host(&author) {
            Some(liar) if !self.is_liar(liar) => self.corrupt(liar, Liar::silent()),
            _ => {}
        }
        for host in hosts {
            self.bring(*host, author, message.clone());
        }
    }

    /// Lets a host count as a liar from now on: it may be blamed.
    pub fn call_liar(&mut self, host: usize) {
        self.corrupt(host, Liar::silent());
    }

    /// Lets a host be this liar. It hears and says what a liar of a seed does, and does nothing by itself.
    pub fn lie_as(&mut self, host: usize, liar: Liar) {
        self.script.lying.drawn = true;
        self.corrupt(host, liar);
    }

    /// An attestation of a committed epoch by the organiser, after the notice `before`.
    #[must_use]
    pub fn attest(&self, before: Option<&Notice>, committed: &Committed) -> Notice {
        let Head { epoch, state, .. } = committed.head;
        let r = wire::receipt_digest(&self.run, &committed.receipt);
        let body = Body::Attestation(Attestation { epoch, state, r });
        let last = before.map_or((0, Digest::ZERO), Notice::place);
        Notice::after(self.run, last, body, &organiser())
    }

    /// Brings a notice to a host with its manifest; if no process runs there, before it starts.
    pub fn bring_notice(&mut self, host: usize, notice: &Notice) {
        match &mut self.hosts[host].process {
            Some(process) => process.judged.knows(notice),
            None => self.hosts[host].notices.push(notice.clone()),
        }
        let input = peer::Input::Notice(Box::new(notice.clone()));
        self.push_peer(0, host, input);
    }

    /// Reports a round trip to a host, in milliseconds. Its next own measurement counts beside it.
    pub fn round_trip(&mut self, host: usize, to: PeerId, ms: u32) {
        self.push_peer(0, host, peer::Input::RoundTrip(to, ms));
    }

    /// The next processes of a host claim this many tokens for each epoch's training, and believe
    /// any peer that claims as much.
    pub fn boast(&mut self, host: usize, tokens: u64) {
        self.corrupt(host, Liar::silent());
        self.hosts[host].boast = Some(tokens);
    }

    /// From now on the requests of a host reach no donor. One host at a time: it replaces the one
    /// before.
    pub fn drop_requests(&mut self, host: usize) {
        self.script.unheard = Some(host);
    }

    /// Gives a host other bytes of the last chunk of its rings than the other members get, as if the
    /// owner of that chunk had sealed it twice. `None` ends it.
    pub fn deceive(&mut self, host: Option<usize>) {
        self.script.deceived = host;
    }

    /// Lets every message, request and answer through again, unchanged.
    pub fn let_through(&mut self) {
        self.script.unheard = None;
        self.script.forger = None;
        self.script.filter = None;
    }

    /// Bounds the epochs that a greater head may undo at hosts that start from
    /// now on, however new they are.
    pub fn undo_at_most(&mut self, epochs: u64) {
        self.script.undo = Some((epochs, Duration::ZERO));
    }

    /// The same, but any number of epochs that were taken within this time may be undone.
    pub fn undo_within(&mut self, epochs: u64, time: Duration) {
        self.script.undo = Some((epochs, time));
    }

    /// Sets the head that a person has chosen for a host; its next process follows it.
    pub fn follow(&mut self, host: usize, head: Digest) {
        self.script.follow.insert(host, head);
    }

    /// Starts processes, from what their disks have. A host on which one runs is left alone.
    pub fn start(&mut self, hosts: &[usize]) {
        hosts.iter().for_each(|host| self.boot(*host));
    }

    /// Ends processes at once; any part of what is not flushed may survive.
    pub fn kill(&mut self, hosts: &[usize]) {
        hosts.iter().for_each(|host| self.stop(*host));
    }

    /// Lets the power of a host fail at a point at which something could be lost: before or
    /// after a flush, or between two outputs. `points` such points pass before. `kept` says
    /// which unflushed writes survive.
    pub fn crash(&mut self, host: usize, points: u64, kept: Kept) {
        self.plan_crash(Some(PlannedCrash { host, points, kept }));
    }

    /// Undoes every fault of the network. Pairs without a direct connection stay unlinked, and the
    /// filter of the scene goes on.
    pub fn mend(&mut self) {
        self.network.heal();
    }

    /// Sets how long an epoch's training takes on a host. The training of its open epoch
    /// begins again, unless it has ended.
    pub fn train_in(&mut self, host: usize, training_ms: u64) {
        self.set_training(host, training_ms);
        let Some(process) = &mut self.hosts[host].process else { return };
        if process.training.take().is_some() {
            self.train(host);
        }
    }

    /// Fills the disk of a host: it accepts records, but neither updates nor checkpoints.
    pub fn fill_disk(&mut self, host: usize) {
        self.hosts[host].disk.full = true;
    }

    /// Makes room on the disk of a host, which accepts files again.
    pub fn clear_disk(&mut self, host: usize) {
        self.hosts[host].disk.full = false;
    }

    /// Lets processes that start from now on set their deadlines by updates of so many bytes.
    pub fn update_of(&mut self, bytes: u64) {
        self.script.update_bytes = Some(bytes);
    }

    /// Lets so many peers found the run; before a process starts. All processes have to start with
    /// the same number, as it stands in the manifest.
    pub fn needs(&mut self, peers: usize) {
        self.setup.peers_min = peers;
    }

    /// Plays until `done`, for at most `limit_ms`. Returns whether `done` became true.
    ///
    /// # Errors
    /// An invariant that was broken. `done` is asked before the first event and after each. False
    /// means that the time is over.
    pub fn until(
        &mut self,
        limit_ms: u64,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<bool, Violation> {
        let end_ms = self.now_ms + limit_ms;
        while !done(self) {
            self.moments.clear();
            if !self.step(end_ms)? {
                break;
            }
        }
        Ok(done(self))
    }

    /// Plays for `length_ms`, whatever happens.
    ///
    /// # Errors
    /// An invariant that was broken.
    pub fn play(&mut self, length_ms: u64) -> Result<(), Violation> {
        self.until(length_ms, |_| false).map(|_| ())
    }

    /// Ends the scene, as each has to that breaks no invariant: the phase of each host on which a
    /// process runs, and what it waits for.
    pub fn finish(mut self) -> Vec<(usize, Phase, Option<Wait>)> {
        self.script.owed_end.0 = false;
        let stands = |host: usize| Some((host, self.phase(host)?.0, self.wait(host)));
        (0..self.hosts.len()).filter_map(stands).collect()
    }

    /// The validation rules of every honest process, with the key of host 0. A scene verifies with
    /// them what a peer would.
    #[must_use]
    pub fn validator(&self) -> Validator {
        self.law_of(0)
    }

    /// The epoch of a host's head; 0 if no process runs.
    #[must_use]
    pub fn epoch(&self, host: usize) -> u64 {
        self.head(host).map_or(0, |head| head.epoch)
    }

    /// Whether these hosts have the same head.
    #[must_use]
    pub fn same(&self, hosts: &[usize]) -> bool {
        hosts.windows(2).all(|pair| self.head(pair[0]) == self.head(pair[1]))
    }

    /// Bytes of links that a host holds in memory for a lineage that it verifies.
    #[must_use]
    pub fn judged_bytes(&self, host: usize) -> usize {
        let process = self.hosts[host].process.as_ref();
        process.map_or(0, |process| process.holdings.peer().judged_bytes())
    }

    /// The events of a host's processes so far. All that came since the scene began, also of
    /// processes that have ended.
    pub fn events(&self, host: usize) -> impl Iterator<Item = &Event> {
        let events = self.events.iter().flatten();
        events.filter(move |(who, _)| *who == host).map(|(_, event)| event)
    }

    /// The last commit of this epoch by a host's processes.
    #[must_use]
    pub fn commit(&self, host: usize, epoch: u64) -> Option<&Committed> {
        let commits = self.events(host).filter_map(|event| match event {
            Event::Committed(committed) => Some(committed.as_ref()),
            _ => None,
        });
        commits.filter(|committed| committed.head.epoch == epoch).last()
    }

    /// The open series of a host, while its process runs.
    #[must_use]
    pub fn series(&self, host: usize) -> Option<Series> {
        self.hosts[host].process.as_ref().map(|process| process.holdings.peer().series().0)
    }

    /// The hosts that vote in a host's open series, in its order.
    #[must_use]
    pub fn voters(&self, host: usize) -> Vec<usize> {
        let process = self.hosts[host].process.as_ref();
        let voters = process.map_or(&[][..], |process| process.holdings.peer().series().1);
        voters.iter().filter_map(|voter| self.host(&voter.peer)).collect()
    }
}
