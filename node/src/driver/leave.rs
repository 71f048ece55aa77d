//! What a driver does towards its end, whose state is [`Finish`](super::finish::Finish), and what it
//! reports on the way.
//!
//! A node ends in one of four ways. It reaches a goal and waits for peers that are behind
//! (`Linger`). It is interrupted and says goodbye. The state wants another start. Or the loop
//! returns an error, which skips all of this: then nothing is said to the others, and they notice
//! it by silence.
//!
//! [`Finish`](super::finish::Finish) has the times and decides; this file gives it the facts, and
//! gives the state its [`peer::Input::Leave`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::base::id::PeerId;
use intellect_protocol::machine::event::Event;
use intellect_protocol::machine::wait::Wait;
use intellect_protocol::peer;

use super::access::is_first;
use super::finish::Goal;
use super::{Done, Driver, Ended};
use crate::access::{Admission, unix_seconds};
use crate::net::Net;
use crate::tell::Reason;

/// Time for the last bytes to leave, and for the last checkpoint to be written.
/// It is spent at most twice: on the jobs of the disk, and on the task of the network.
const CLOSE: Duration = Duration::from_millis(500);

impl Driver {
    /// Reports an event of the protocol, and notes the head that it leads to.
    ///
    /// Two events do more than to be reported. A notice that was learnt is stored and served. A
    /// refusal is reported once for each peer, since strangers can cause any number.
    pub(super) fn on_event(&mut self, event: Event) {
        let moved = matches!(event, Event::Committed(_) | Event::CaughtUp { .. });
        if matches!(event, Event::Notice { in_force: None, .. }) {
            self.keep_notices();
        }
        if let Event::Refused { who, .. } = &event
            && !is_first(&mut self.access.refused, *who)
        {
            return;
        }
        self.tell.event(event, self.holdings.peer());
        if moved {
            self.reach(false);
        }
    }

    /// Notes the head, which an earlier start reached where `before`, and reports the last one.
    ///
    /// `before` is true only for the call at the begin of the loop. It changes the sentences: a
    /// node that starts at the end of its run trains nothing, and only hands out the last state.
    pub(super) fn reach(&mut self, before: bool) {
        let head = self.holdings.peer().head();
        match self.finish.reach(head.epoch, head.tokens, before, Instant::now()) {
            Some(Goal::Epochs) => self.tell.reached(head.epoch, self.finish.epochs),
            Some(Goal::Tokens) if before => self.tell.handing_out(head.epoch),
            Some(Goal::Tokens) => self.tell.reached(head.epoch, None),
            None => {}
        }
    }

    /// Why this node makes no progress; `None` if it does.
    ///
    /// The order is the rank of the reasons. A disk that refuses comes first, since the node sends
    /// nothing that rests on it, so all other reasons would follow from that one. A lineage about
    /// which a person has to decide comes before all that may pass by itself. The reasons of the
    /// protocol are replaced by closer ones: no peer serves the state that is wanted, or so much of
    /// it is left; the ledger does not admit this peer, perhaps since its invite has expired; all
    /// peers refuse it; this node itself keeps a missing peer out.
    pub(super) fn reason(&self) -> Option<Reason> {
        let (peer, now) = (self.holdings.peer(), self.now());
        if self.buffers.disk_refuses() || self.holdings.awaits_disk(now) {
            return Some(Reason::Disk);
        }
        if self.finish.is_reached() {
            return Some(Reason::Finished);
        }
        if let Some(forked) = self.tell.forked() {
            return Some(forked);
        }
        let met = self.net.has_met_peers() || !peer.table().peers.is_empty();
        let wait = peer.wait(now, met)?;
        let me = self.key.peer();
        if let Some(expires) = self.access.admission.as_ref().and_then(Admission::expired)
            && !peer.notices().admit(&me)
        {
            return Some(Reason::Clock { expires });
        }
        let is_in = || peer.ledger().is_none_or(|ledger| ledger.admits(&me).is_ok());
        Some(match wait {
            Wait::Behind => match peer.donors(now).map(|donors| donors.is_empty()) {
                Some(true) => Reason::Unserved,
                Some(false) => self.tell.fetching(),
                None => Reason::Run(Wait::Behind),
            },
            Wait::LeftOut(_) if !is_in() => Reason::NotAdmitted,
            Wait::Founders { .. } | Wait::PassedOver if !is_in() && self.is_turned_away() => {
                Reason::NotAdmitted
            }
            wait => match self.kept_out(&wait) {
                Some((who, until)) => Reason::ShutOut { wait, who, until },
                None => Reason::Run(wait),
            },
        })
    }

    /// Whether all connected peers that have answered our ticket refuse it. Then nothing shows whether the run has begun.
    fn is_turned_away(&self) -> bool {
        self.access.admission.as_ref().is_some_and(Admission::is_turned_away)
    }

    /// A peer that is missed and that this node itself keeps out, and until when, in Unix seconds. It is
    /// rounded up, since people read minutes.
    fn kept_out(&self, wait: &Wait) -> Option<(PeerId, u64)> {
        let (_, voters) = self.holdings.peer().series();
        let misses = |who: &PeerId| match wait {
            Wait::Alone { .. } => voters.iter().any(|voter| voter.peer == *who),
            Wait::Voters { missing, .. } => missing.contains(who),
            _ => false,
        };
        let (who, until) = self.net.blocked().into_iter().find(|(who, _)| misses(who))?;
        let left = until.into_std().saturating_duration_since(Instant::now());
        Some((who, unix_seconds() + left.as_secs() + 59))
    }

    /// Reports what the run waits for, and gives the picture what no event says, a few times a second.
    ///
    /// It is called at each turn of the loop, and the console says whether a sample is due. So a
    /// busy loop takes no more samples than a quiet one.
    pub(super) fn sample(&mut self) {
        let now = Instant::now();
        if !self.tell.is_sample_due(now) {
            return;
        }
        self.tell.count_strangers();
        if let Some((at, peers)) = self.holdings.peer().expected_founding(self.now()) {
            self.tell.beginning(at.since(self.now()), peers);
        }
        let reason = self.reason();
        self.tell.waiting(reason);
        let (table, at) = (self.holdings.peer().table(), self.now());
        let silence = table.peers.values().map(|seen| at.since(seen.heard)).min();
        self.tell.sample(now, &self.manifest.run, silence);
        self.tell.member(now, table);
    }

    /// Ctrl-C: begins to leave; false at the second one, which ends the node now.
    ///
    /// After a second one nothing is waited for but [`close`](Self::close). The others may have to
    /// wait for this node as for one that was killed.
    pub(super) fn interrupt(&mut self) -> bool {
        let begins = self.take_leave();
        if begins {
            self.tell.leaving();
        }
        begins
    }

    /// Says goodbye; false if that has been done.
    /// The state answers with a message to all and, once an open ring or vote has ended, with
    /// `Output::Left`, which ends the loop.
    fn take_leave(&mut self) -> bool {
        let begins = self.finish.leave(Instant::now());
        if begins {
            self.peer_input(peer::Input::Leave);
        }
        begins
    }

    /// Leaves at the last epoch, once every live member has that head or no peer that is behind makes
    /// progress.
    ///
    /// A peer that is behind by one epoch may only be slow to say that it is not. So people hear of
    /// such peers only once they lack more than one epoch (`Finish::note_behind`).
    ///
    /// As long as the last state is not on the disk the node stays, up to a bound
    /// (`Finish::await_disk`): perhaps no other peer has it.
    pub(super) fn consider_finishing(&mut self) {
        if self.finish.has_lingered(Instant::now()).is_none() {
            return;
        }
        let (epoch, now) = (self.holdings.peer().head().epoch, self.now());
        let live = self.holdings.peer().table().live(now);
        let heads = live.map(|(peer, seen)| (*peer, seen.beat.head.epoch));
        let behind: BTreeMap<PeerId, u64> = heads.filter(|(_, head)| *head < epoch).collect();
        // After a start at the end of the run nobody was met yet, and somebody may lack its last state.
        let alone = self.finish.is_past() && self.holdings.peer().table().peers.is_empty();
        let all_there = behind.is_empty() && !alone && !self.holdings.is_saving();
        if let Some(far) = self.finish.note_behind(Instant::now(), epoch, behind) {
            self.tell.lingering(epoch, far);
        }
        let lingered = self.finish.has_lingered(Instant::now()) == Some(true);
        if lingered
            && self.holdings.is_saving()
            && let Some(is_news) = self.finish.await_disk(Instant::now())
        {
            if is_news {
                self.tell.writes_the_last(epoch);
            }
        } else if all_there || lingered {
            self.take_leave();
        }
    }

    /// Lets the last messages leave and the last checkpoint be written. Reports how this node ends, except at
    /// the end of the run, which the caller reports.
    ///
    /// Only the logs and the checkpoint are waited for. All other jobs, such as fetches and
    /// answers, are dropped with the set of jobs. What they leave half written, the next start
    /// resumes or removes.
    pub(super) async fn close(mut self, net: Net) -> Ended {
        let until = tokio::time::Instant::now() + CLOSE;
        while self.holdings.is_saving() || self.holdings.is_logging() {
            match tokio::time::timeout_at(until, self.jobs.join_next()).await {
                Ok(Some(Ok(done @ (Done::Saved(_) | Done::Written(..))))) => {
                    if let Err(error) = self.on_done(done) {
                        tracing::error!("{error}");
                        break;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.stop.cancel();
        drop(tokio::time::timeout(CLOSE, net.task).await);
        if self.finish.restarts {
            self.tell.led_back();
            return Ended::LedBack;
        }
        match self.finish.reached {
            Some((Goal::Tokens, before)) => {
                let newest = Arc::clone(&self.buffers.newest);
                let stored = self.buffers.saved.contains_key(&newest.table.state());
                return Ended::Complete { newest, before, stored };
            }
            Some((Goal::Epochs, _)) => self.tell.last_word("done"),
            None => self.tell.last_word("left"),
        }
        Ended::Reported
    }
}
