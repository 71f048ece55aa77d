//! What a driver does towards its end ([`Finish`](super::finish::Finish) says where that stands),
//! and what it tells of the way there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use intellect_protocol::event::Event;
use intellect_protocol::id::PeerId;
use intellect_protocol::lobby::Paper;
use intellect_protocol::message::{Decree, Phase};
use intellect_protocol::peer;

use super::{Done, Driver};
use crate::net::Net;
use crate::tell::Missing;

/// For the last bytes to leave, and the last checkpoint to be written.
const CLOSE: Duration = Duration::from_millis(500);

impl Driver {
    /// Tells of what the protocol reports, and notes where it got to.
    pub(super) fn on_event(&mut self, event: Event) {
        let moved = matches!(event, Event::Committed(_) | Event::CaughtUp { .. });
        if let Event::Decree { decree, .. } = &event {
            self.keep_paper(&Paper::Decree(Decree::clone(decree)));
        }
        if let Event::Refused { who, .. } = &event
            && !self.gate.is_first_refused(*who)
        {
            return;
        }
        self.tell.event(event, self.holdings.peer().roll());
        if moved {
            self.reach();
        }
    }

    /// Notes the head, and whether it is the last one.
    pub(super) fn reach(&mut self) {
        let head = self.holdings.peer().head();
        if self.finish.reach(head.epoch, head.tokens, Instant::now()) {
            self.tell.reached(head.epoch, self.finish.epochs);
        }
    }

    /// Says whom the run waits for here, if it does.
    pub(super) fn tell_waiting(&mut self) {
        let (peer, me, now) = (self.holdings.peer(), self.key.peer(), self.now());
        let peers_min = usize::try_from(self.manifest.run.members.min_peers).unwrap_or(usize::MAX);
        let missing = || Missing::of(me, peer.series(), peers_min, peer.roll(), now);
        let moves = self.finish.is_reached() || peer.phase().0 == Phase::Behind;
        self.tell.waiting(if moves { None } else { missing() });
    }

    /// Ctrl-C: takes leave; false at the second one, which ends it now.
    pub(super) fn interrupt(&mut self) -> bool {
        let begins = self.finish.leave(Instant::now());
        if begins {
            self.tell.leaving();
            self.hear(peer::Input::Leave);
        }
        begins
    }

    /// Leaves at the last epoch, when every live member is seen on that head, or when none that is
    /// behind gets on.
    pub(super) fn consider_finishing(&mut self) {
        if self.finish.has_lingered(Instant::now()).is_none() {
            return;
        }
        let (epoch, now) = (self.holdings.peer().head().epoch, self.now());
        let live = self.holdings.peer().roll().live(now);
        let heads = live.map(|(peer, seen)| (*peer, seen.beat.head.epoch));
        let behind: BTreeMap<PeerId, u64> = heads.filter(|(_, head)| *head < epoch).collect();
        let all_there = behind.is_empty() && !self.holdings.is_saving();
        if let Some(far) = self.finish.note_behind(Instant::now(), epoch, behind) {
            self.tell.lingering(epoch, far);
        }
        if all_there || self.finish.has_lingered(Instant::now()) == Some(true) {
            self.interrupt();
        }
    }

    /// Lets the last messages leave and the last checkpoint be written.
    pub(super) async fn close(mut self, net: Net) {
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
        self.tell.left();
    }
}
