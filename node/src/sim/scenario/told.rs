//! An action as data: the keys that a step of a scenario file has, without its time.
//!
//! The chaos makes actions too. So a report names what both did in one form, and a person can write
//! the chaos of one simulation down as the scenario of the next.

use serde_json::{Map, Value, json};

use crate::sim::links::{AccessLink, Change};

use super::Action;

impl Action {
    /// What is done, as `do` and further keys.
    pub(in crate::sim) fn told(&self) -> Map<String, Value> {
        let keys = match self {
            Self::Peer(action, peer) => json!({ "do": action, "peer": peer }),
            Self::KillBootstrap => json!({ "do": "kill-bootstrap" }),
            Self::Links(Change::Access { peer, link }) => {
                let AccessLink { up, rate, delay, loss } = link;
                let delay_ms = delay.map(|delay| delay.as_millis() as u64);
                json!({ "do": "link", "peer": peer, "up": up, "rate": rate, "delay_ms": delay_ms, "loss": loss })
            }
            Self::Links(Change::Cut(peers)) => json!({ "do": "cut", "peers": peers }),
            Self::Links(Change::BlackHole { from, to, both }) => {
                json!({ "do": "black-hole", "peer": from, "to": to, "one_way": !both })
            }
            Self::Links(Change::Heal) => json!({ "do": "heal" }),
        };
        let Value::Object(keys) = keys else { return Map::new() };
        keys.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }
}
