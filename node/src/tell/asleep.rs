//! Reports that this process slept, and once the node has caught up, at which epoch the run is.

use std::time::Duration;

use intellect_protocol::base::time::Time;
use intellect_protocol::peer;

use super::{Console, Waiting, events, times::ms};
use crate::figures::length;

/// A shorter sleep is no sentence. Guess: a busy machine keeps no program from running for longer, and
/// whoever shuts a lid or types Ctrl-Z does.
const WORTH_SAYING: Duration = Duration::from_secs(5);

impl Console {
    /// This process did not run for this long, and goes on now.
    pub(crate) fn woke(&mut self, slept: Duration, now: Time) {
        // What stood still with the process has not lasted.
        self.waiting = Waiting::default();
        // It may sleep again before it has caught up.
        let before = self.later.asleep.map_or(Duration::ZERO, |(slept, _)| slept);
        self.later.asleep = Some((before + slept, now));
        self.emit(None, events::Event::Woke { slept_ms: ms(slept) });
    }

    /// Says that the node has caught up after a sleep that was no short one, once it has heard members since and none of them is further.
    pub(super) fn awake(&mut self, peer: &peer::State) {
        let Some((slept, woke)) = self.later.asleep else { return };
        let table = peer.table();
        // What came meanwhile is read within that time.
        let since = woke + 2 * table.heartbeat;
        let members = peer.members().filter_map(|who| table.peers.get(&who));
        let heard = members.filter(|seen| seen.heard >= since);
        let newest = heard.map(|seen| seen.beat.head.epoch).max();
        if newest.is_some_and(|newest| newest <= self.epoch) {
            self.later.asleep = None;
            if slept >= WORTH_SAYING {
                let (slept, epoch) = (length(slept.as_secs()), self.epoch);
                self.say(&format!("asleep for {slept} · caught up at epoch {epoch}"));
            }
        }
    }
}
