//! The events of a run: one JSON object per line, flushed, a documented output (`--events`).
//!
//! Reports, tests and `sim` read these lines and never log text, so a key, once released, is never
//! renamed. Every line has `event`, `t_ms`, `peer`, `run` (null until a run is chosen), and `epoch`
//! where it has one; the rest depends on the event. Peers, and members in lists, are written as
//! libp2p prints them, digests as 64 hex digits. A number that is not finite is `null`.
//!
//! The sink never stops a run: a full disk is reported once, and each later event is tried again.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::name::{Hex, PeerName};

/// One line of the events file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What happened, with its own fields.
    #[serde(flatten)]
    pub(crate) event: Event,
    /// When, in Unix milliseconds of the writer's clock.
    pub(crate) t_ms: u64,
    /// Who writes.
    pub(crate) peer: PeerName,
    /// The run, once it is chosen.
    pub(crate) run: Option<Hex>,
    /// The epoch that it belongs to, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
}

/// What happened. The variant is the value of the key `event`, in kebab case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The node has its manifest and device and begins to take part.
    Started {
        /// Version of this program.
        version: String,
        /// Device that trains, as `--device` names it.
        device: String,
        /// Sequences that it takes at a time.
        micro_batch: u64,
        /// Parameters of the model.
        parameters: u64,
        /// The number of this start; greater than that of every earlier one.
        incarnation: u64,
        /// The log of votes that binds it, 32 hex digits; another one is another voter.
        log: String,
    },
    /// Others can dial these addresses.
    Listening {
        /// With real ports and the peer at the end.
        addresses: Vec<String>,
    },
    /// What was tried to reach others, or to be reached, and what came of it.
    Path {
        /// `punched`, `mapped`, `gateway`, `reserved`, `tested`, or `observed`.
        step: String,
        /// The other end, if there is one: a peer, a relay, who observed.
        who: Option<String>,
        /// The address that it is about, if it is about one.
        address: Option<String>,
        /// What went wrong, if something did.
        error: Option<String>,
    },
    /// The node does not get on, or goes on alone.
    Waiting {
        /// `founders`, `goes-on-alone`, `alone`, `voters`, or `passed-over`.
        reason: String,
        /// What a person can do.
        cure: String,
    },
    /// This process did not run for a while: it was stopped, or the machine slept.
    Woke {
        /// How long, in milliseconds.
        slept_ms: u64,
    },
    /// A peer of the run has been heard for the first time, or again.
    PeerFound {
        /// The peer.
        who: PeerName,
        /// Whether it can be reached without a relay.
        direct: bool,
    },
    /// A peer counts as gone.
    PeerLost {
        /// The peer.
        who: PeerName,
        /// `silent`, `left`, …
        cause: String,
    },
    /// Keys without a part in the run have come, more of them than are told one by one.
    Strangers {
        /// How many within a minute.
        count: u64,
    },
    /// The manifest of the run has been verified.
    Manifest {
        /// Name of the run.
        name: String,
        /// Key that signed it, 64 hex digits.
        organiser: Hex,
        /// Who handed it out: a peer or an address.
        from: String,
    },
    /// A state is being fetched.
    Sync {
        /// Own head.
        from_epoch: u64,
        /// Head that is fetched.
        to_epoch: u64,
        /// Verified so far.
        have_bytes: u64,
        /// Size of all.
        want_bytes: u64,
        /// Peers that serve it.
        donors: Vec<PeerName>,
        /// Bytes per second.
        rate: f64,
    },
    /// A file of the run's data is being fetched.
    Data {
        /// BLAKE3 of it, 64 hex digits.
        file: Hex,
        /// Verified so far.
        have_bytes: u64,
        /// Size of all.
        want_bytes: u64,
        /// Peers that serve it.
        donors: Vec<PeerName>,
        /// Bytes per second.
        rate: f64,
    },
    /// The fetched state is complete, verified and taken over.
    CaughtUp {
        /// State digest at `epoch`.
        state: Hex,
    },
    /// Delta and weight of this peer are frozen.
    Ready {
        /// Its weight.
        tokens: u64,
        /// Mean training loss over it.
        loss: Option<f64>,
        /// L2 norm of the delta.
        norm: Option<f64>,
        /// Device that trained it; a replay needs the same one.
        device: String,
        /// Sequences that it took at a time, likewise.
        micro_batch: u64,
    },
    /// This peer has accepted a roster.
    Roster {
        /// Attempt of the epoch.
        attempt: u64,
        /// Its members in ring order.
        members: Vec<PeerName>,
        /// The receipt that it adopts, if it does.
        adopt: Option<Hex>,
        /// Chunks that it keeps from earlier attempts.
        kept_chunks: u64,
    },
    /// This peer has joined a Regroup.
    Regroup {
        /// Which one of the series that is left it is, from 1.
        number: u64,
        /// Who proposed it.
        proposer: PeerName,
        /// Voters of the new series.
        members: Vec<PeerName>,
        /// Voters that it does without.
        absent: Vec<PeerName>,
    },
    /// The epoch is committed and applied. Once per epoch, live only.
    Committed {
        /// Attempt that decided.
        attempt: u64,
        /// Members of the roster that formed the receipt.
        members: Vec<PeerName>,
        /// Their weights in tokens, in the same order.
        weights: Vec<u64>,
        /// State digest after it.
        state: Hex,
        /// Digest of the update.
        update: Hex,
        /// Committed tokens of the run after it.
        tokens: u64,
        /// This peer's mean training loss over what it contributed.
        loss: Option<f64>,
        /// From its own Ready to the commit.
        sync_ms: u64,
        /// Bulk bytes that this peer sent for the epoch.
        sent_bytes: u64,
        /// Bulk bytes that it received for it.
        received_bytes: u64,
        /// Since when the lineage may have a fork, if it may.
        forkable_since: Option<u64>,
    },
    /// The committed state has been measured on held-out data.
    Evaluated {
        /// Mean cross entropy in nats per token.
        loss: Option<f64>,
        /// Entropy rate of the source, where it is known.
        floor: Option<f64>,
        /// Mean divergence from the source, where it is known.
        excess: Option<f64>,
    },
    /// An attempt has ended without a decision.
    Aborted {
        /// The attempt.
        attempt: u64,
        /// Where it ended.
        phase: String,
        /// Why the attempt ended.
        reason: String,
    },
    /// The epoch was committed without this peer's delta.
    LeftOut {
        /// Tokens that it carries into the next one.
        carried_tokens: u64,
    },
    /// Equal receipts, different states: a fault of software or memory.
    Diverged {
        /// The peer whose state differs.
        who: PeerName,
        /// Own state digest.
        mine: Hex,
        /// Its state digest.
        theirs: Hex,
    },
    /// Two lineages have met.
    Fork {
        /// First epoch in which they differ.
        first_epoch: u64,
        /// Own state digest there.
        mine: Hex,
        /// The other's.
        theirs: Hex,
        /// Epochs that this peer takes back.
        undone: u64,
        /// Whether the other one is greater, and a person has to decide.
        held: bool,
    },
    /// The lineage can have no fork any more.
    ForkExcluded {
        /// The epoch since which it could have one.
        first_epoch: u64,
    },
    /// The organiser attests the state after this epoch: the run goes on from there.
    Attested {
        /// The number of its notice.
        number: u64,
    },
    /// A peer is in, in a run of invited peers.
    Admitted {
        /// The peer.
        who: PeerName,
        /// Key of the invite by which it came, 64 hex digits; nothing if the organiser named it.
        invite: Option<String>,
    },
    /// A peer is out.
    Revoked {
        /// The peer.
        who: PeerName,
        /// Number of the notice.
        notice: u64,
    },
    /// A membership update of the organiser.
    Membership {
        /// Its number.
        number: u64,
        /// Its digest.
        digest: Hex,
        /// Whether the receipt of `epoch` carries it, or it is only known.
        in_force: bool,
    },
    /// A peer has misbehaved and been dropped.
    Fault {
        /// The peer.
        who: PeerName,
        /// What it did.
        why: String,
    },
    /// Something could not be written.
    Disk {
        /// What the system said.
        error: String,
    },
    /// The epoch has seen more attempts than any healthy one does.
    Stuck {
        /// So many.
        attempts: u64,
    },
    /// A peer speaks another major version; no fault.
    Incompatible {
        /// The peer.
        who: PeerName,
        /// What it speaks.
        version: String,
        /// What to do.
        remedy: String,
    },
    /// A peer has nothing to show that lets it into a run of invited peers.
    Refused {
        /// The peer.
        who: PeerName,
        /// What it was told.
        why: String,
    },
    /// Two programs run with the key of a peer.
    DuplicateIdentity {
        /// The peer; the writer itself, where it ends for that.
        who: PeerName,
    },
    /// This peer has said good-bye.
    Leaving,
    /// The last line.
    Stopped {
        /// Exit code of the process.
        code: u8,
    },
}

/// Where events go: a file, or nowhere.
#[derive(Debug)]
pub(crate) struct Sink {
    peer: PeerName,
    run: Option<Hex>,
    file: Option<File>,
    /// Whether the last write failed: the user was told, and the file may end inside a line.
    torn: bool,
}

impl Sink {
    /// Events of `peer` go to `file`; without one they are dropped.
    pub(crate) fn new(file: Option<File>, peer: PeerName) -> Self {
        Self { peer, run: None, file, torn: false }
    }

    /// The same with the file at `path`.
    pub(crate) fn open(path: Option<&Path>, peer: PeerName) -> io::Result<Self> {
        Ok(Self::new(path.map(append_to).transpose()?, peer))
    }

    /// From now on events belong to `run`.
    pub(crate) fn set_run(&mut self, run: Hex) {
        self.run = Some(run);
    }

    /// Writes one line.
    ///
    /// # Errors
    /// The first failure, for the user to hear about; the caller goes on. Later ones are silent.
    pub(crate) fn emit(&mut self, epoch: Option<u64>, event: Event) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let record = Record {
            event,
            t_ms: unix_ms(),
            peer: self.peer.clone(),
            run: self.run.clone(),
            epoch,
        };
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        if self.torn {
            // Ends the line that the full disk may have torn.
            line.insert(0, b'\n');
        }
        // One write per line: nobody who reads along sees half of one for long.
        let written = file.write_all(&line);
        let told = std::mem::replace(&mut self.torn, written.is_err());
        if told { Ok(()) } else { written }
    }
}

/// Opens a file of events, which is created if need be.
pub(crate) fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The clock of `t_ms`.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
