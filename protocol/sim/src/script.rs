//! What a director has in mind for a simulated world: fates of messages, lies, crashes, and what people decide.

use std::collections::BTreeMap;

use crate::disk::Doom;
use crate::liars::Lying;
use crate::network::Fate;
use intellect_protocol::id::Digest;
use intellect_protocol::message::{Answer, Message};
use intellect_protocol::sign::Keypair;

/// Who vouches for states, with a key that is not simulated: everybody checks what it has signed.
pub(crate) fn organiser() -> Keypair {
    Keypair::from_seed(&[0x0e; 32])
}

/// Decides the fate of a message from one host to another.
pub(crate) type Filter = Box<dyn FnMut(usize, usize, &Message) -> Fate>;

/// Changes what a host answers to another one.
pub(crate) type Forger = Box<dyn FnMut(usize, usize, &mut Answer)>;

/// What somebody outside has in mind for this world, and waits for.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) filter: Option<Filter>,
    pub(crate) forger: Option<Forger>,
    pub(crate) doom: Option<Doom>,
    pub(crate) lying: Lying,
    /// Epochs that a greater head may undo, for those who start from now on.
    pub(crate) undo_max: Option<u64>,
    /// The head that a person has decided for, on each host, once it starts.
    pub(crate) follow: BTreeMap<usize, Digest>,
    /// Hosts that have crashed, until somebody asks.
    pub(crate) crashed: Vec<usize>,
}
