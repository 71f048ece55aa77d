//! The script of a simulated world: fates of messages, lies, crashes, and what people decide.
//!
//! None of it is a rule: a scene sets it line by line, a class of faults draws it. The world reads
//! it where something is decided that the machines of peers do not decide, and writes to it what it
//! has to remember for that, such as crashed hosts and the organiser's notices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::disk::PlannedCrash;
use crate::liars::Lying;
use crate::network::Fate;
use intellect_protocol::base::id::Digest;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::{Answer, Message, Notice, Ticket};

/// The organiser's key, which is real ed25519: every peer checks what it has signed.
pub(crate) fn organiser() -> Keypair {
    Keypair::from_seed(&[ORGANISER; 32])
}

/// The byte of which the organiser's seed consists.
pub(crate) const ORGANISER: u8 = 0x0e;

/// Decides the fate of a message from one host to another.
pub(crate) type Filter = Box<dyn FnMut(usize, usize, &Message) -> Fate>;

/// Changes what a host answers to another one.
pub(crate) type Forger = Box<dyn FnMut(usize, usize, &mut Answer)>;

/// The admission of a run of invited peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Invited {
    /// The ticket of each host that has one.
    pub(crate) tickets: BTreeMap<usize, Ticket>,
    /// Unix seconds at the start, by every exact clock.
    pub(crate) unix: u64,
    /// Hosts whose processes have a forged manifest, with the organiser of this name.
    pub(crate) forged: BTreeMap<usize, u8>,
    /// How far the clocks of some hosts are off, in seconds.
    pub(crate) off: BTreeMap<usize, i64>,
}

/// What the organiser has attested, and when it does so again.
#[derive(Debug, Default)]
pub(crate) struct Attesting {
    /// What it has attested so far, in the order of the chain.
    pub(crate) notices: Vec<Notice>,
    /// When it attests again, and a number that selects the host.
    pub(crate) due: VecDeque<(u64, usize)>,
    /// Whether most peers must have the attested state.
    pub(crate) by_most: bool,
}

/// What the organiser of a run of invited peers has said of them, and whom it revokes when.
#[derive(Debug, Default)]
pub(crate) struct Revoking {
    /// What it has said so far, in the order of the chain.
    pub(crate) notices: Vec<Notice>,
    /// When it revokes which host, the earliest first.
    pub(crate) due: VecDeque<(u64, usize)>,
    /// The hosts that it has revoked, of which no progress is required.
    pub(crate) revoked: BTreeSet<usize>,
}

/// Whether a scene still has to say how it ends. Dropped before, it panics.
#[derive(Default)]
pub(crate) struct OwedEnd(pub(crate) bool);

impl Drop for OwedEnd {
    fn drop(&mut self) {
        let is_owed = self.0 && !std::thread::panicking();
        assert!(!is_owed, "the scene does not name what its hosts wait for at its end");
    }
}

/// What a test or a class of faults has planned for this world.
#[derive(Default)]
pub(crate) struct Script {
    /// Without one every message has the fate that the network draws.
    pub(crate) filter: Option<Filter>,
    /// Without one an answer is what its machine says.
    pub(crate) forger: Option<Forger>,
    /// A host whose requests reach no donor.
    pub(crate) unheard: Option<usize>,
    /// A host that gets other bytes of a ring's last chunk than the other members.
    pub(crate) deceived: Option<usize>,
    /// At most one crash is planned at a time.
    pub(crate) planned_crash: Option<PlannedCrash>,
    /// What the checks over liars remember.
    pub(crate) lying: Lying,
    /// Tickets and clocks, in a run of invited peers.
    pub(crate) invited: Option<Invited>,
    /// How many epochs a greater head may undo, and within which time any number, at
    /// hosts that start from now on.
    pub(crate) undo: Option<(u64, Duration)>,
    /// The bytes of an update, by which processes that start from now on set their deadlines, if
    /// not those that it has here.
    pub(crate) update_bytes: Option<u64>,
    /// The head that a person has chosen for each host, for its next start.
    pub(crate) follow: BTreeMap<usize, Digest>,
    /// A scene that holds is ended by `World::finish`.
    pub(crate) owed_end: OwedEnd,
    /// The attestations of a drawn run. Those that a scene makes are not in it.
    pub(crate) attesting: Attesting,
    /// The revocations of a drawn run of invited peers.
    pub(crate) revoking: Revoking,
    /// Hosts that have crashed, until they are asked for.
    pub(crate) crashed: Vec<usize>,
}
