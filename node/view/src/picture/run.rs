//! What the run is, and what it needs of a machine, by its manifest.

use serde::{Deserialize, Serialize};

use crate::record::{Settings, Text};

/// The settings that the events name. Each is `None` until one has said it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The RunId in hex, which every record has once a run is chosen.
    pub(crate) id: Option<Text>,
    /// The name that the organiser has given it; not unique.
    pub(crate) name: Option<Text>,
    /// The key that signed the manifest, in hex.
    pub(crate) organiser: Option<Text>,
    /// The number of parameters of its model.
    pub(crate) parameters: Option<u64>,
    /// Committed tokens at which the run is finished; `None` also if it has no end.
    pub(crate) stop_tokens: Option<u64>,
    /// Tokens of one inner step of a peer.
    pub(crate) step_tokens: Option<u64>,
    /// Bytes of memory that a node takes, where a CPU trains all sequences of a step at a time.
    pub(crate) memory_bytes: Option<u64>,
    /// Bytes of disk that a node takes, with the data that it fetches.
    pub(crate) disk_bytes: Option<u64>,
    /// The most bytes that a ring sends and receives through one line in an epoch.
    pub(crate) epoch_bytes: Option<u64>,
}

impl Run {
    /// Takes what the manifest says. An older program does not name the parameters there.
    pub(super) fn learn(&mut self, settings: &Settings) {
        *self = Self {
            id: self.id.take(),
            name: Some(settings.name.clone()),
            organiser: Some(settings.organiser.clone()),
            parameters: settings.parameters.or(self.parameters),
            stop_tokens: settings.stop_tokens,
            step_tokens: settings.step_tokens,
            memory_bytes: settings.memory_bytes,
            disk_bytes: settings.disk_bytes,
            epoch_bytes: settings.epoch_bytes,
        };
    }
}
