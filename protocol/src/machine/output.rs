//! What a peer asks of its caller: to write, to send, to fetch, to compute.
//!
//! Every machine decides by these, and nothing on the way out changes them.

use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::Fault;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Verified;
use crate::history::evidence::Evidence;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::message::{Ask, Head, Keep, Member, Message, Receipt, wire};
use crate::ring::Layout;

/// What the caller has to do, in order and before the next input. A caller that cannot carry one
/// out, as where no donor answers, says so by a later input. Messages may be lost as on any
/// network.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append this to the log, and flush it before the first later output that leaves the machine.
    Log(Record),
    /// Gossip a message; the count tells repeats apart.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly to a peer; where no stream is open, gossip it with a count.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run the ring of a roster, all of whose Accepts we hold. Where the roster keeps chunks, the
    /// ring gives the rest, and the update is both.
    Ring(Arc<Ring>),
    /// Stop the ring of this roster, if it still runs.
    Abandon(Digest),
    /// Fetch an update by digest from any of these peers, trying them in this order. If it is being fetched already,
    /// these are all peers that have it by now.
    FetchUpdate(Digest, Vec<PeerId>),
    /// Take the outer step of a committed epoch.
    Apply(Arc<Apply>),
    /// Fetch these updates, the first one first. The `Apply` of each follows once that of the one
    /// before is done. An update that no donor delivers is reported as
    /// [`crate::peer::Input::UpdateMissing`] once its `Apply` has come.
    Replay(Vec<Replayed>),
    /// Ask a peer about its lineage. The caller answers with [`crate::peer::Input::Answer`], at the
    /// latest after [`crate::peer::ASK_TIMEOUT`].
    Ask(PeerId, Ask),
    /// Fetch and load the checkpoint of a verified head from any of these peers. An `Apply` that
    /// still waits for its update becomes void.
    Fetch {
        /// The head whose state is wanted.
        head: Head,
        /// Digest of the receipt that leads to the head.
        r: Digest,
        /// The peers that may serve it.
        donors: Vec<PeerId>,
        /// The blocks in which the checkpoint already contains some of
        /// our unshared work (R27, R34).
        spent: Blocks,
    },
    /// Train the next epoch, from this many committed tokens on.
    Train {
        /// The epoch that is trained: the head's plus 1.
        epoch: u64,
        /// Tokens committed on the lineage so far, from which the schedule goes on.
        tokens: u64,
    },
    /// A peer broke a rule: close its connections and report it.
    Fault(PeerId, Fault),
    /// The same, where two messages of the peer prove it to everybody: report these too.
    Proven(Fault, Evidence),
    /// Something that a person may want to see.
    Event(Event),
    /// The farewell was sent: this peer gives no more outputs.
    Left,
    /// We were led back to an epoch in which we have been. This start gives no more outputs, and the next one is bound
    /// by the log (R20).
    Restart,
}

impl Output {
    /// The fault of a peer, with what proves it to others, where that is here.
    pub(crate) fn fault(who: PeerId, fault: Fault, evidence: Option<Evidence>) -> Self {
        match evidence {
            Some(evidence) => Self::Proven(fault, evidence),
            None => Self::Fault(who, fault),
        }
    }
}

/// A ring to run, once all its members have accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Digest of the roster, which names the ring.
    pub roster: Digest,
    /// Members with a position in the ring, in ring order.
    pub members: Vec<Member>,
    /// Our index among `members`, below their number.
    pub index: usize,
    /// The blocks that the ring computes, and how they are cut.
    pub layout: Layout,
    /// The chunks that earlier rings finished: to be fetched where they are not stored here. Empty
    /// at attempt 1.
    pub keep: Vec<Keep>,
}

/// An update that leads on from our head, and the peers that may serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Digest of its bytes, by which a peer is asked for it.
    pub update: Digest,
    /// The peers that may serve it, in the order in which they are to be asked.
    pub donors: Vec<PeerId>,
}

/// An outer step to take, after the update was decided. Every peer that applies it to the same
/// state must get the same bits. Where one does not, the next receipt shows it (R26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// The epoch that is committed.
    pub epoch: u64,
    /// Digest of the epoch's receipt.
    pub r: Digest,
    /// Tokens committed on the lineage, this epoch included.
    pub tokens: u64,
    /// Digest of the update's bytes, which are stored here.
    pub update: Digest,
    /// The blocks in which the update contains our frozen delta (R34). In the others the delta is
    /// carried into the next epoch.
    pub spent: Blocks,
}

impl Apply {
    /// The outer step of `receipt`, which follows on the head `before`.
    pub(crate) fn of(run: &RunId, before: &Head, receipt: &Receipt, spent: Blocks) -> Self {
        Self {
            epoch: receipt.series.epoch,
            r: wire::receipt_digest(run, receipt),
            tokens: before.tokens.saturating_add(receipt.tokens()),
            update: receipt.update,
            spent,
        }
    }
}
