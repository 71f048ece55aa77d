//! Messages of processes: where they travel, how long that takes, and the checks over them.
//!
//! A message is checked when its author sends it, once, however many peers receive it. It is judged
//! by what the author knew then and by what was on its disk, and not by what becomes of it. After
//! that liars hear it, if it is gossiped or sent to them.

use std::sync::Arc;

use super::{Message, Moment, PeerId, Rule, Verified, World, peer, wire};
use crate::network::Fate;
use crate::report::Count;

impl World {
    /// A process sends a message to one peer, or to all. A liar may send another one. Without an
    /// open stream to its receiver a message is gossiped; over a stream that carries nothing it is
    /// lost, since the sender does not know that.
    pub(super) fn send(
        &mut self,
        host: usize,
        to: Option<PeerId>,
        message: &Arc<Verified<Message>>,
    ) {
        if self.is_swallowed(host, to, message) {
            // Its machine has sent it all the same, and serves links and openings that rest on it.
            return self.check.lied(message.author(), message.body());
        }
        self.note_sent(host, message);
        match to.map(|to| self.host(&to)) {
            None => self.gossip(host, message),
            Some(Some(to)) if !self.network.is_open(host, to) => self.gossip(host, message),
            Some(Some(to)) if self.network.carries(host, to) => self.deliver(host, to, 1, message),
            Some(_) => {}
        }
        self.overhear(host, to, message);
    }

    /// Carries a message to every running host that it can reach, directly or over one other host
    /// that runs.
    fn gossip(&mut self, from: usize, message: &Arc<Verified<Message>>) {
        let running = self.running();
        for to in running.iter().copied().filter(|to| *to != from) {
            if let Some(hops) = self.network.hops(from, to, &running) {
                self.deliver(from, to, hops, message);
            }
        }
    }

    /// Carries a message to one host, unless the network or the script loses it. The script decides
    /// first, and a message that it drops draws nothing from the network.
    fn deliver(&mut self, from: usize, to: usize, hops: u64, message: &Arc<Verified<Message>>) {
        let fate = match &mut self.script.filter {
            Some(filter) => filter(from, to, message.body()),
            None => Fate::Deliver,
        };
        let (first_ms, again_ms) = match fate {
            Fate::Drop => return,
            Fate::Deliver => (0, None),
            Fate::Delay(ms) => (ms, None),
            Fate::Again(ms) => (0, Some(ms)),
        };
        for delay_ms in self.network.arrivals(from, to, hops, &mut self.rng).into_iter().flatten() {
            for later_ms in again_ms.into_iter().chain([first_ms]) {
                self.report.count(Count::Messages, 1);
                let input = peer::Input::Message(Arc::clone(message));
                self.push_peer(delay_ms + later_ms, to, input);
            }
        }
    }

    /// Counts and checks a message when its author sends it. What a liar sends is noted as a lie:
    /// no rule is checked for it, but others may count it as a vote.
    fn note_sent(&mut self, host: usize, message: &Arc<Verified<Message>>) {
        self.report.count(Count::Bytes, wire::envelope_bytes(message) as u64);
        if let Message::Heartbeat(beat) = message.body() {
            self.report.count(Count::Unlinked, u64::from(!beat.unlinked.is_empty()));
        }
        let Some(process) = &self.hosts[host].process else { return };
        if self.is_liar(host) {
            self.check.lied(message.author(), message.body());
            return self.note_moment(host, message.body());
        }
        let verdict = self.check.sent(&process.judged, message.body());
        let (now_ms, heartbeat_ms) = (self.now_ms, self.setup.heartbeat_ms);
        let links = self.check.links(now_ms, heartbeat_ms, &process.judged, message.body());
        self.judge(verdict.and(links));
        // Without a rule that writes, its effect has to be noticed elsewhere.
        if self.setup.rules.keeps(Rule::Durable) && self.setup.rules.keeps(Rule::R2) {
            self.check_flushed(host, message.body());
        }
        self.note_moment(host, message.body());
    }

    /// Records the moments at which planned faults strike. Messages that are no moment of an epoch
    /// record nothing.
    fn note_moment(&mut self, host: usize, message: &Message) {
        let moment = match message {
            Message::Ready(_) => Moment::Ready,
            Message::Roster(roster) => {
                self.note_readies(roster);
                self.report.count_roster(&wire::roster_digest(&self.run, roster), roster);
                Moment::Roster
            }
            Message::Accept(_) => Moment::Accepted,
            Message::Done(_) => Moment::Finished,
            Message::Query(_) => Moment::Asking,
            Message::Join(_) => Moment::Regrouping,
            _ => return,
        };
        let epoch = message.series().map_or(0, |series| series.epoch);
        self.moments.push((host, epoch, moment));
    }
}
