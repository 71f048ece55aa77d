//! The node whose sight is shown: what it is, and how others reach it.

use serde::{Deserialize, Serialize};

use crate::record::{List, Text};

/// The node that wrote the events file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its id; `None` until a record says which writer is the node.
    pub(crate) peer: Option<Text>,
    /// The version of its program, as `--version` prints it.
    pub(crate) version: Option<Text>,
    /// The device that trains, in the form of `--device`.
    pub(crate) device: Option<Text>,
    /// Sequences that its model takes at a time.
    pub(crate) micro_batch: Option<u64>,
    /// Where it listens, at most `ADDRESSES_MAX`. Only readers on its own machine see them.
    pub(crate) addresses: Vec<Text>,
    /// The last step on the way between this node and others, with its error if it failed.
    pub(crate) path: Option<(Text, Option<Text>)>,
    /// How others reach it, in a word.
    pub(crate) reachability: Option<Text>,
    /// Where others can dial it from anywhere, with its id at the end as `--bootstrap` takes it.
    pub(crate) entrance: Option<Text>,
    /// Whether it only looks at the run.
    #[serde(default)]
    pub(crate) watches: bool,
}

impl Node {
    /// A number that a node measures; `None` if this one only looks, and writes a 0 in its place.
    pub(crate) fn measured(&self, number: u64) -> Option<u64> {
        (!self.watches).then_some(number)
    }

    /// Others can dial it at these addresses, as far as it knows itself.
    pub(super) fn listens(&mut self, addresses: &List<Text>) {
        self.addresses = addresses.0.iter().take(ADDRESSES_MAX).cloned().collect();
    }

    /// Takes how others reach the node, whose id is `peer`, and where anybody can dial it.
    pub(super) fn reach(&mut self, state: &Text, addresses: &List<Text>, peer: &Text) {
        self.reachability = Some(state.clone());
        self.entrance = addresses.0.first().map(|address| {
            if address.as_str().contains("/p2p/") {
                return address.clone();
            }
            Text::new(&format!("{address}/p2p/{peer}"))
        });
    }
}

/// More than a machine with a few networks has.
const ADDRESSES_MAX: usize = 16;
