//! What goes into the machine, and what it is told of the open epoch.

use std::sync::Arc;
use std::time::Duration;

use crate::base::id::{Digest, PeerId};
use crate::machine::step::Extension;
use crate::message::{Answer, Head, Notice, Opening, Series, Voter};

/// What the machine must know when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// State digest of genesis, epoch 0. Peers that differ in it cannot follow one another.
    pub genesis: Digest,
    /// The voters of epoch 1, before any Regroup; empty where the run founds itself by a Regroup.
    /// Only a run with `quorum = "majority"` names them.
    pub founders: Vec<Voter>,
    /// The most updates that are replayed; a longer path begins with a checkpoint. It is best about
    /// the number whose bytes make up a checkpoint (R28). 0 begins each path with a checkpoint; more
    /// than [`super::UPDATES_KEPT`] counts as that.
    pub replay_max: usize,
    /// Epochs of ours that a greater head may undo if a third of the voters signed its lineage, or
    /// if only genesis is common (G11). With 0 a person decides about each fork that is older than
    /// a day or begins at genesis; a large number lets old keys undo much.
    pub undo_max: u64,
    /// A greater head may undo what we took within this time, however many epochs that is and
    /// however few voters have signed ([`super::UNDO_TIME`]).
    pub undo_time: Duration,
    /// The wall clock at the start: seconds since 1970. It dates our head (G11). A clock that is
    /// wrong makes our epochs look younger or older than they are, so a head undoes more or less of
    /// them by itself.
    pub unix: u64,
    /// A head that is followed whatever it undoes, since a person has decided so (`--follow`). The
    /// person names the head, or any head on the path to it. A new attestation still counts for
    /// more.
    pub follow: Option<Digest>,
    /// The notices that are known at the start. One that the organiser has not signed is ignored.
    pub notices: Vec<Notice>,
}

/// What happened, as `peer` reports it.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Time has passed, or the peer table or the open epoch has changed.
    Tick,
    /// This process did not run for so long, which the time of the inputs does not contain.
    Woke(Duration),
    /// The answer to a question of ours, or its absence.
    Answer {
        /// The peer that was asked, and has answered or not.
        from: PeerId,
        /// `None` if the peer did not answer in time.
        answer: Option<Arc<Answer>>,
        /// Whether we may decide the open epoch, as one of a majority of its voters that is present
        /// (R24).
        majority: bool,
    },
    /// Our delta for the epoch after our head is frozen, and a receipt may include it there.
    Frozen,
    /// The epoch machine committed an epoch.
    Extend(Extension),
    /// A replayed update gave this state.
    Applied(Digest),
    /// No peer delivered an update that is replayed.
    UpdateMissing(Digest),
    /// Part of the checkpoint of this state is stored.
    Partial(Digest),
    /// The checkpoint of this head is loaded.
    Loaded(Head),
    /// No peer delivered the checkpoint of this head.
    LoadFailed {
        /// The head that was to be reached.
        head: Head,
        /// Whether more of it is stored than before.
        kept: bool,
    },
    /// A notice, and the peer that sent it; `None` if it came with the manifest or in a checked
    /// message.
    Notice(Box<Notice>, Option<PeerId>),
}

/// What the open epoch shows to this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'a> {
    /// The series that the epoch machine is in.
    pub series: Series,
    /// Whether it is decided already: our head is about to move one epoch on.
    pub decided: bool,
    /// Whether its outer step is under way.
    pub applying: bool,
    /// The Regroups that led to its series.
    pub openings: &'a [Opening],
    /// The voters that decide the open epoch.
    pub voters: &'a [Voter],
}
