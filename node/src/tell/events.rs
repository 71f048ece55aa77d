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
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use intellect_view::{record::Record as Seen, replay::Player, stage::Stage};
use serde::{Deserialize, Serialize};

use crate::name::{Hex, PeerName};

/// One line of the events file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What happened, with its own fields.
    #[serde(flatten)]
    pub(crate) event: Event,
    /// When it was written, in Unix milliseconds of the writer's clock.
    pub(crate) t_ms: u64,
    /// The node that wrote it; in `sim.jsonl` the organiser.
    pub(crate) peer: PeerName,
    /// The run that it belongs to, once one is chosen.
    pub(crate) run: Option<Hex>,
    /// The epoch that it is about, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
}

/// What happened. The variant is the value of the key `event`, in kebab case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The node has its manifest and device and begins to take part.
    Started {
        /// Version of this program, as `--version` prints it.
        version: String,
        /// Device that trains, in the form of `--device`.
        device: String,
        /// Sequences that the model takes at a time.
        micro_batch: u64,
        /// Number of the model's parameters.
        parameters: u64,
        /// The number of this start; greater than that of every earlier one.
        incarnation: u64,
        /// The log of votes that binds it, 32 hex digits; another one is another voter.
        log: String,
        /// Committed tokens of the state that it goes on from; 0 at genesis.
        tokens: u64,
    },
    /// Other peers can dial these addresses.
    Listening {
        /// With real ports and the peer at the end.
        addresses: Vec<String>,
    },
    /// A step towards a connection or an address that others can dial, and its outcome.
    Path {
        /// `punched`, `mapped`, `gateway`, `reserved`, `tested`, or `observed`.
        step: String,
        /// The other end, if there is one: a peer, a relay, or the peer that observed this node.
        who: Option<String>,
        /// The address that the step is about, if there is one.
        address: Option<String>,
        /// The cause, where the step failed.
        error: Option<String>,
    },
    /// What is known about whether others can dial this node has changed.
    Reachability {
        /// `local`, `unknown`, `open`, `relayed`, or `closed`.
        state: String,
        /// Where they can, if the state is `open`.
        addresses: Vec<String>,
    },
    /// The node makes no progress, or goes on alone.
    Waiting {
        /// One of the names in docs/FORMATS.md.
        reason: String,
        /// The same reason as a sentence.
        text: String,
        /// What a person can do about it.
        cure: String,
    },
    /// This process did not run for a while: it was stopped, or the machine slept.
    Woke {
        /// Length of the pause in milliseconds.
        slept_ms: u64,
    },
    /// A peer of the run has been heard for the first time, or again.
    PeerFound {
        who: PeerName,
        /// Whether it can be reached without a relay.
        direct: bool,
    },
    /// A peer counts as gone: it is silent, has left, or its connection closed.
    PeerLost {
        who: PeerName,
        /// `silent`, `left` or `closed`.
        cause: String,
    },
    /// What another peer says of itself, and the way to it. At most once in ten seconds for each peer that was
    /// found, and twice a second in all.
    Member {
        who: PeerName,
        /// The epoch that it committed last.
        head: u64,
        /// `behind`, `train`, `ready`, `accepted`, `reduce`, `finished`, `recover`, or `regrouping`.
        phase: String,
        /// Tokens of its frozen work; 0 while it has none.
        ready: u64,
        /// Smoothed round trip, if it was measured.
        rtt_ms: Option<u32>,
        /// Bytes a second that it sent in its last ring, if it was in one.
        send_rate: Option<u64>,
        /// `direct` or `relayed`; `null` where there is no connection and gossip brings its messages.
        link: Option<String>,
        /// The loss that it named with its last work, in nats per token: nobody can check it.
        loss: Option<f64>,
        /// Version of its program, as its connection says it; `null` where there is none.
        version: Option<String>,
    },
    /// Peers that have no part in the run were heard, more of them than are reported one by one.
    Strangers {
        /// How many were heard within a minute.
        count: u64,
    },
    /// The manifest of the run has been verified.
    Manifest {
        /// Name of the run, as the organiser chose it.
        name: String,
        /// Key that signed it, 64 hex digits.
        organiser: Hex,
        /// Where it came from: a peer or an address.
        from: String,
        /// Number of the model's parameters.
        parameters: u64,
        /// Committed tokens at which the run is finished; `null` if it has no end.
        stop_tokens: Option<u64>,
        /// Tokens of one inner step of a peer.
        step_tokens: u64,
        /// Bytes of memory that a node takes, where a CPU trains all sequences of a step at a time.
        memory_bytes: u64,
        /// Bytes of disk that a node takes, with the data that it fetches.
        disk_bytes: u64,
        /// The most bytes that a ring sends and receives through one line in an epoch.
        epoch_bytes: u64,
    },
    /// A state is being fetched from other peers.
    Sync {
        /// Epoch of the node's own head.
        from_epoch: u64,
        /// Epoch of the head that is fetched.
        to_epoch: u64,
        /// Bytes that were fetched and verified so far.
        have_bytes: u64,
        /// Size of the whole state in bytes.
        want_bytes: u64,
        donors: Vec<PeerName>,
        /// Bytes per second, averaged over the last seconds.
        rate: f64,
    },
    /// A file of the run's data is being fetched.
    Data {
        /// BLAKE3 digest of the file, 64 hex digits.
        file: Hex,
        /// Bytes that were fetched and verified so far.
        have_bytes: u64,
        /// Size of the whole file in bytes.
        want_bytes: u64,
        /// Peers that serve it; none for a web server.
        donors: Vec<PeerName>,
        /// Bytes per second, averaged over the last seconds.
        rate: f64,
    },
    /// The fetched state is complete, verified and now the node's own.
    CaughtUp {
        /// Digest of the state after `epoch`.
        state: Hex,
        /// Committed tokens of that state.
        tokens: u64,
    },
    /// This peer's delta and weight are frozen.
    Ready {
        /// Tokens that it trained: its weight.
        tokens: u64,
        /// Mean training loss over these tokens.
        loss: Option<f64>,
        /// L2 norm of the frozen delta.
        norm: Option<f64>,
        /// Device that trained it; a replay needs the same one.
        device: String,
        /// Sequences that it took at a time; a replay needs the same number.
        micro_batch: u64,
    },
    /// This peer has accepted a roster.
    Roster {
        /// Number of the attempt within the epoch.
        attempt: u64,
        /// Members of the roster in ring order.
        members: Vec<PeerName>,
        /// Digest of the receipt that the roster adopts, if it adopts one.
        adopt: Option<Hex>,
        /// Finished chunks that the roster keeps from earlier attempts.
        kept_chunks: u64,
        /// Weight of each member in tokens; 0 of a voter without a position in the ring.
        weights: Vec<u64>,
    },
    /// This peer has joined a Regroup.
    Regroup {
        /// Its number among the Regroups of the series that it leaves, from 1.
        number: u64,
        proposer: PeerName,
        members: Vec<PeerName>,
        /// Voters of the old series that are left out.
        absent: Vec<PeerName>,
    },
    /// A ring of this peer has computed its update.
    Ring {
        /// Digest of the ring's roster.
        roster: Hex,
        /// Position of this peer, from 1.
        position: u64,
        /// How many members have a position.
        of: u64,
        /// The member to which this peer sends; itself in a ring of one.
        to: PeerName,
        /// Milliseconds from the first byte to the update.
        took_ms: u64,
        /// Bytes that were sent to that member.
        sent_bytes: u64,
        /// Bytes received from the member before.
        received_bytes: u64,
    },
    /// The epoch is committed and applied. Written once per epoch, and not for replayed ones.
    Committed {
        /// Number of the attempt that decided.
        attempt: u64,
        /// Members of the roster that formed the receipt.
        members: Vec<PeerName>,
        /// Their weights in tokens, in the same order.
        weights: Vec<u64>,
        /// State digest after the epoch.
        state: Hex,
        /// Digest of the update that was applied.
        update: Hex,
        /// Committed tokens of the run after the epoch.
        tokens: u64,
        /// This peer's mean training loss over what it contributed.
        loss: Option<f64>,
        /// Milliseconds from this peer's Ready to the commit.
        sync_ms: u64,
        /// Bulk bytes that this peer sent for the epoch.
        sent_bytes: u64,
        /// Bulk bytes that this peer received for the epoch.
        received_bytes: u64,
        /// Epoch since which the lineage may have a fork, if it may.
        forkable_since: Option<u64>,
        /// Where the time of the epoch went.
        #[serde(flatten)]
        times: Times,
    },
    /// The committed state has been measured on held-out data.
    Evaluated {
        /// Mean cross entropy in nats per token.
        loss: Option<f64>,
        /// Standard error of that mean, from how far its sequences are apart; unknown of a single one.
        error: Option<f64>,
        /// Entropy rate of the source, where it is known.
        floor: Option<f64>,
        /// Mean divergence from the source, where it is known.
        excess: Option<f64>,
        /// Loss of the best predictor that looks at no token, but knows the file of a mix.
        unigram: Option<f64>,
        /// Loss of the best predictor that looks at the last token, where pairs can be counted.
        bigram: Option<f64>,
    },
    /// An attempt has ended without a decision.
    Aborted {
        /// Number of the attempt within the epoch.
        attempt: u64,
        /// Phase in which the attempt ended.
        phase: String,
        /// Why the attempt ended, in words.
        reason: String,
    },
    /// The epoch was committed without this peer's delta.
    LeftOut {
        /// Tokens that it carries into the next epoch.
        carried_tokens: u64,
    },
    /// Equal receipts led to different states: a fault of software or memory.
    Diverged {
        /// The peer whose state differs.
        who: PeerName,
        /// Digest of the node's own state.
        mine: Hex,
        /// Digest of that peer's state.
        theirs: Hex,
    },
    /// Two lineages of the run have met.
    Fork {
        /// First epoch in which they differ.
        first_epoch: u64,
        /// State digest of the node's own lineage there.
        mine: Hex,
        /// State digest of the other lineage there.
        theirs: Hex,
        /// Epochs of its own that this peer undoes.
        undone: u64,
        /// Whether the other lineage is greater and a person has to decide.
        held: bool,
    },
    /// The lineage can have no fork any more: no unseen majority is possible.
    ForkExcluded {
        /// Epoch since which a fork was possible.
        first_epoch: u64,
    },
    /// The organiser attests the state after this epoch; lineages without that state are not followed.
    Attested {
        /// Number of the notice that attests it.
        number: u64,
    },
    /// A peer was admitted to a run of invited peers.
    Admitted {
        who: PeerName,
        /// Key of the invite that admitted it, 64 hex digits; `null` if the organiser named the peer.
        invite: Option<String>,
    },
    /// A peer was revoked: it takes no further part in the run.
    Revoked {
        who: PeerName,
        /// Number of the notice that revokes it.
        notice: u64,
    },
    /// A membership notice of the organiser has arrived or taken effect.
    Membership {
        /// Number of the notice in the organiser's chain.
        number: u64,
        digest: Hex,
        /// Whether the receipt of `epoch` carries it. If not, it is only known.
        in_force: bool,
    },
    /// A peer broke the protocol and was dropped.
    Fault {
        who: PeerName,
        /// What the peer did, in words.
        why: String,
        /// Two messages of the peer that prove it, and the rosters that they name, in hex.
        proof: Option<Vec<String>>,
    },
    /// A file could not be read or written.
    Disk { error: String },
    /// The epoch has seen more attempts than any healthy epoch has.
    Stuck { attempts: u64 },
    /// A peer speaks another major version, which is not its fault.
    Incompatible {
        who: PeerName,
        version: String,
        /// What a person can do about it.
        remedy: String,
    },
    /// A peer was refused in a run of invited peers.
    Refused {
        who: PeerName,
        /// The reason, as the refused peer learns it too.
        why: String,
    },
    /// Two programs run with the same peer's key.
    DuplicateIdentity {
        /// That peer; the writer itself if it ends because of this.
        who: PeerName,
    },
    /// This peer has said goodbye to the others.
    Leaving,
    /// The last line: the process ends.
    Stopped { code: u8 },
    /// The writer of the next events is a watcher: it proves epochs and trains nothing, so it measures neither times nor
    /// bytes of a commit. The loss of one is the mean of what members say, by their weights.
    Watching {
        /// Version of this program, as `--version` prints it.
        version: String,
    },
}

/// Milliseconds of one epoch by what they were spent on: together from the state before to this one. None of them
/// is known if this peer was not Ready in the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// From the state before to this peer's Ready.
    pub(crate) train_ms: Option<u64>,
    /// From there until it accepted a roster.
    pub(crate) wait_ready_ms: Option<u64>,
    /// From there until it had the update, with attempts that failed.
    pub(crate) ring_ms: Option<u64>,
    /// From there until it had the certificate.
    pub(crate) vote_ms: Option<u64>,
    /// From there to the new state.
    pub(crate) apply_ms: Option<u64>,
}

/// Where events go: a file, a picture, both, or nowhere.
#[derive(Debug)]
pub(crate) struct Sink {
    /// The peer that every line names.
    peer: PeerName,
    /// The run that every line names, once it is chosen.
    run: Option<Hex>,
    /// The file; without one only the picture is fed.
    file: Option<File>,
    /// The picture of a running node.
    stage: Option<Stage>,
    /// Whether the last write failed. Its error was reported, and the file may end inside a line.
    torn: bool,
}

impl Sink {
    /// Events of `peer` go to `file`; without a file they are dropped.
    pub(crate) fn new(file: Option<File>, peer: PeerName) -> Self {
        Self { peer, run: None, file, stage: None, torn: false }
    }

    /// The same, and each event is also folded into the picture on `stage`.
    pub(crate) fn staged(self, stage: Stage) -> Self {
        Self { stage: Some(stage), ..self }
    }

    /// The picture, if there is one.
    pub(crate) fn stage(&mut self) -> Option<&mut Stage> {
        self.stage.as_mut()
    }

    /// The same, with the file at `path` opened for appending.
    pub(crate) fn open(path: Option<&Path>, peer: PeerName) -> io::Result<Self> {
        Ok(Self::new(path.map(append_to).transpose()?, peer))
    }

    /// Whether these are the events of `peer`.
    pub(crate) fn is_of(&self, peer: &PeerName) -> bool {
        self.peer == *peer
    }

    /// Names the run in every event from now on.
    pub(crate) fn set_run(&mut self, run: Hex) {
        self.run = Some(run);
    }

    /// Folds what the file at `path` says of this run into the picture, as far as the file can be read. Its lines of other
    /// runs are passed over.
    pub(crate) fn recall(&mut self, path: &Path) {
        let player = Player::open(&[path.to_owned()], true);
        let (Some(stage), Some(run), Ok(mut player)) = (&mut self.stage, &self.run, player) else {
            return;
        };
        while let Ok(Some(line)) = player.line() {
            if let Some(record) = Seen::parse(line.as_bytes())
                && record.run.as_ref().is_some_and(|of| of.as_str() == run.as_str())
            {
                stage.take(&record, &line);
            }
        }
    }

    /// Appends one line to the file, and folds it into the picture, as far as they are there.
    ///
    /// # Errors
    /// The first failed write in a row; the following ones return `Ok`, so that a full disk is reported once.
    pub(crate) fn emit(&mut self, epoch: Option<u64>, event: Event) -> io::Result<()> {
        if self.file.is_none() && self.stage.is_none() {
            return Ok(());
        }
        let record = Record {
            event,
            t_ms: unix_ms(),
            peer: self.peer.clone(),
            run: self.run.clone(),
            epoch,
        };
        let mut line = serde_json::to_string(&record)?;
        // The picture reads what a replay of the file would read, so the two cannot differ.
        if let Some(stage) = &mut self.stage
            && let Some(record) = Seen::parse(line.as_bytes())
        {
            stage.take(&record, &line);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        line.push('\n');
        if self.torn {
            // Ends the line that a full disk may have torn.
            line.insert(0, '\n');
        }
        // One write per line: a reader never sees half a line for long.
        let written = file.write_all(line.as_bytes());
        let was_torn = self.torn;
        self.torn = written.is_err();
        if was_torn { Ok(()) } else { written }
    }
}

/// Opens a file of events for appending, and creates it if needed. A full pipe refuses an event, and one that nobody
/// reads is refused here: neither makes the node wait.
pub(crate) fn append_to(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().create(true).append(true).custom_flags(flags).open(path)
}

/// The time now, in Unix milliseconds as in `t_ms`.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
