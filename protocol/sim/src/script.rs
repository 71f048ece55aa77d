//! What a director has in mind for a simulated world: fates of messages, lies, crashes, and what people decide.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::disk::Doom;
use crate::liars::Lying;
use crate::network::Fate;
use intellect_protocol::base::id::Digest;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::{Answer, Message, Notice, Ticket};

/// Who attests states and lets peers in, with a key that is not simulated: everybody checks what it has signed.
pub(crate) fn organiser() -> Keypair {
    Keypair::from_seed(&[ORGANISER; 32])
}

/// The name of its key.
pub(crate) const ORGANISER: u8 = 0x0e;

/// Decides the fate of a message from one host to another.
pub(crate) type Filter = Box<dyn FnMut(usize, usize, &Message) -> Fate>;

/// Changes what a host answers to another one.
pub(crate) type Forger = Box<dyn FnMut(usize, usize, &mut Answer)>;

/// A run of invited peers.
#[derive(Clone, Debug)]
pub(crate) struct Invited {
    /// The ticket of each host that has one.
    pub(crate) tickets: BTreeMap<usize, Ticket>,
    /// Unix seconds at the beginning, by the clock of everybody.
    pub(crate) unix: u64,
    /// The hosts whose processes have a manifest of their own making, with the organiser of this name.
    pub(crate) forged: BTreeMap<usize, u8>,
    /// How far the clocks of some hosts are off, in seconds.
    pub(crate) off: BTreeMap<usize, i64>,
}

/// What the organiser has attested, and when it does so again.
#[derive(Debug, Default)]
pub(crate) struct Attesting {
    pub(crate) notices: Vec<Notice>,
    /// When it attests one again, and a number that says for whom.
    pub(crate) due: VecDeque<(u64, usize)>,
    /// Whether most must have what it attests.
    pub(crate) by_most: bool,
}

/// What somebody outside has in mind for this world, and waits for.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) filter: Option<Filter>,
    pub(crate) forger: Option<Forger>,
    /// A host whose questions reach nobody.
    pub(crate) unheard: Option<usize>,
    pub(crate) doom: Option<Doom>,
    pub(crate) lying: Lying,
    /// Who signs, and who has a ticket, in a run of invited peers.
    pub(crate) invited: Option<Invited>,
    /// Epochs that a greater head may undo, and within which time any number, for those who start from now on.
    pub(crate) undo: Option<(u64, Duration)>,
    /// The head that a person has decided for, on each host, once it starts.
    pub(crate) follow: BTreeMap<usize, Digest>,
    pub(crate) attesting: Attesting,
    /// Hosts that have crashed, until somebody asks.
    pub(crate) crashed: Vec<usize>,
}
