//! What a peer asks of whoever drives it: to write, to say, to fetch, to compute.
//!
//! Every machine decides by these, and nothing on the way out changes them.

use std::sync::Arc;

use crate::base::blocks::Blocks;
use crate::base::fault::Fault;
use crate::base::id::{Digest, PeerId, RunId};
use crate::base::sign::Verified;
use crate::history::log::Record;
use crate::machine::event::Event;
use crate::message::wire;
use crate::message::{Ask, Head, Keep, Member, Message, Receipt};
use crate::ring::Layout;

/// What the caller has to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Append this to the log, and flush it before the first later output that leaves the machine.
    Log(Record),
    /// Gossip a message; the count tells repeats apart.
    Gossip(Arc<Verified<Message>>),
    /// Send a message directly to a peer; where no stream is open, gossip it with a count.
    Send(PeerId, Arc<Verified<Message>>),
    /// Run the ring of a roster: we hold all its Accepts. Where it keeps chunks, what the ring gives is
    /// the rest: the update is both.
    Ring(Arc<Ring>),
    /// Give up the ring of a roster, if it still runs.
    Abandon(Digest),
    /// Fetch an update by digest from any of these peers, in this order.
    FetchUpdate(Digest, Vec<PeerId>),
    /// Take the outer step of a committed epoch.
    Apply(Arc<Apply>),
    /// Fetch these updates from any of these peers, the first one first, as the `Apply` of each will
    /// follow once that of the one before is done. One that nobody delivers is
    /// [`crate::peer::Input::UpdateMissing`], when its `Apply` has come.
    Replay {
        /// Epoch and digest of each.
        updates: Vec<(u64, Digest)>,
        /// Who serves them.
        donors: Vec<PeerId>,
    },
    /// Ask a peer about its lineage; answer with [`crate::peer::Input::Answer`], at the latest after
    /// [`crate::peer::ASK_TIMEOUT`].
    Ask(PeerId, Ask),
    /// Fetch and load the checkpoint of a verified head from any of these peers. An `Apply` that still
    /// waits for its update is void.
    Fetch {
        /// The head.
        head: Head,
        /// Digest of the receipt that leads to it.
        r: Digest,
        /// Who serves it.
        donors: Vec<PeerId>,
        /// In which blocks some of our unshared work is in it already (R27, R34).
        spent: Blocks,
    },
    /// Train the next epoch, from this many committed tokens on.
    Train {
        /// The epoch to train.
        epoch: u64,
        /// Tokens committed on the lineage so far.
        tokens: u64,
    },
    /// A peer broke a rule: drop it.
    Fault(PeerId, Fault),
    /// Something that people may want to see.
    Event(Event),
    /// We have said farewell: nothing more will come.
    Left,
}

/// A ring to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Digest of the roster.
    pub roster: Digest,
    /// Members with a place, in ring order.
    pub members: Vec<Member>,
    /// Our position among them.
    pub index: usize,
    /// How it lies in the fragment.
    pub layout: Layout,
    /// The rest of the update, computed by earlier rings: to be fetched where it is not held.
    pub keep: Vec<Keep>,
}

/// An outer step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// The epoch that is committed.
    pub epoch: u64,
    /// Digest of its receipt.
    pub r: Digest,
    /// Tokens committed on the lineage, this epoch included.
    pub tokens: u64,
    /// Digest of the update's bytes, which are held.
    pub update: Digest,
    /// In which blocks our frozen delta is in it (R34). In the others it is carried.
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
