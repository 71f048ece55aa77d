//! The network of one node: an actor that owns the libp2p swarm, and the handle to it.
//!
//! The actor finds the peers of a run, stays connected to them, and carries gossip, direct
//! messages, requests and ring streams. Of a message it reads only the length and the claimed
//! author. It detects misbehaviour that shows without decoding: lengths above the limit, and
//! floods. What only the driver can judge (an envelope that does not decode or verify) the driver
//! reports by [`Handle::verdict`] and [`Handle::fault`]. A peer with too many faults is dropped and
//! kept out for ten minutes.
//!
//! Tasks: the actor, and one for each control stream, request and answer; all of them end with the
//! actor. Every queue has a bound: commands [`COMMANDS`], ring streams [`RINGS`], events
//! [`EVENTS`]. The actor stops reading the network while the queue of events is full, and never
//! stops taking commands, so driver and actor cannot wait for each other.
//!
//! How bytes pass through this module:
//!
//! - A direct message comes on a control stream, whose task counts it, and goes to the driver as
//!   [`Event::Message`]. One to a peer goes straight into the queue of its stream, past the actor.
//! - A gossiped message is held back by gossipsub, compared with the limits of the peer that
//!   brought it, and goes to the driver with a token. The verdict under that token passes it on or
//!   drops it.
//! - A request goes to the driver with a [`Reply`]; the task of its stream writes the answer at the
//!   pace of all bulk.
//! - A ring stream is handed over unread, once its peer is within its rate.
//!
//! This module decides nothing about epochs.

mod access;
mod actor;
pub(crate) mod address;
mod behaviour;
mod contacts;
mod control_stream;
mod dial;
mod enter;
pub(crate) mod exam;
mod fetch;
mod gossip_filter;
mod inbox;
mod interface;
mod joined;
pub(crate) mod limits;
mod members;
mod name;
mod path;
mod peers;
pub(crate) mod ports;
mod reach;
mod run;
mod swarm;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use intellect_protocol::{
    access::handshake::Visit,
    base::id::{PeerId, RunId},
    download::Failure,
};
use libp2p::identity::Keypair;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{
    access::allow_list::AllowList,
    actor::Actor,
    address::Address,
    enter::Wanted,
    inbox::{Command, Responder, Shared, replace},
    limits::rate::{Receiver, Urgency},
};

pub(crate) use self::{
    enter::{Offer, OfferError, Offerers},
    fetch::TIMEOUT as FETCH_TIMEOUT,
    interface::{
        ByteStream, Config, Event, GOSSIP_BYTES_MAX, GossipToken, Link, MESSAGE_BYTES_MAX,
        NetError, Reply, Ring, SendError, StreamError, Topic, Verdict, Via,
    },
    path::Path,
    reach::Reachability,
};

/// A running network: the handle, what it reports, and its task.
pub(crate) struct Net {
    /// Can be cloned for every part that talks to peers.
    pub(crate) handle: Handle,
    /// The driver reads these without a pause.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Ring streams that peers open. A stream that finds the queue full is reset.
    pub(crate) rings: mpsc::Receiver<Ring>,
    /// Ends after `stop` is cancelled and the last messages had [`actor::FLUSH`] to leave.
    pub(crate) task: JoinHandle<()>,
}

/// Starts the network on the current tokio runtime; it ends when `stop` is cancelled or all
/// handles are dropped.
///
/// # Errors
/// See [`NetError`]; nothing is left running then.
pub(crate) fn start(config: Config, stop: CancellationToken) -> Result<Net, NetError> {
    let key = Keypair::ed25519_from_bytes(config.key_seed)?;
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let (outbox, events) = mpsc::channel(EVENTS);
    let (arrivals, rings) = mpsc::channel(RINGS);
    let shared = Arc::new(Shared::new(config.rate));
    let actor = Actor::new(config, &key, shared.clone(), inbox, outbox, arrivals)?;
    let task = tokio::spawn(actor.run(stop));
    Ok(Net { handle: Handle { commands, shared }, events, rings, task })
}

/// A handle to the network, cheap to clone. Methods wait for the network only where they say so.
#[derive(Clone)]
pub(crate) struct Handle {
    /// The queue of the actor, which takes commands even while the driver is slow.
    commands: mpsc::Sender<Command>,
    /// What is read or set without the actor, so that nobody waits for it.
    shared: Arc<Shared>,
}

impl Handle {
    /// Asks for signed manifests, of `run` or of all runs. Waits 25 s at most: 10 s for entry
    /// points that are still dialled, and 15 s for the answers. No signature is checked here.
    ///
    /// # Errors
    /// See [`OfferError`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn manifests(
        &self,
        run: Option<RunId>,
        of: Offerers,
    ) -> Result<Vec<Offer>, OfferError> {
        let wanted = Wanted::Manifests(run);
        self.ask(|reply| Command::Offers { wanted, of, reply }, OfferError::Stopped).await
    }

    /// Asks every connected peer for the notices of a run. Waits 25 s at most.
    ///
    /// # Errors
    /// See [`OfferError`]; most runs have no notices.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn entry_notices(&self, run: RunId) -> Result<Vec<Offer>, OfferError> {
        let (wanted, of) = (Wanted::Notices(run), Offerers::Everybody);
        self.ask(|reply| Command::Offers { wanted, of, reply }, OfferError::Stopped).await
    }

    /// Asks one peer for the notices of a run. Waits 15 s at most.
    ///
    /// # Errors
    /// Why there is no answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn notices(&self, peer: PeerId, run: RunId) -> Result<Vec<Vec<u8>>, Failure> {
        self.ask(|reply| Command::Notices { peer, run, reply }, Failure::Refused).await
    }

    /// Replaces the notices that are served to peers that name the run. Also peers that are not
    /// allowed get them, since a notice may be what admits them.
    pub(crate) fn serve_notices(&self, notices: Vec<Arc<[u8]>>) {
        self.shared.notices.send_replace(notices);
    }

    /// Sets the allow list: other peers get only the handshake, the manifest and its notices. In a
    /// run of invited peers this comes before [`Self::join`].
    pub(crate) fn allow(&self, these: HashSet<PeerId>) {
        replace(&self.shared.allowed, AllowList::Only(Arc::new(these)));
    }

    /// Sends this to every peer that is connected now or later; replies are [`Event::AdmitReply`].
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn set_admit_request(&self, request: &Visit) -> Result<(), SendError> {
        let command = Command::SetAdmitRequest { request: request.to_bytes() };
        self.commands.send(command).await.map_err(|_| SendError::Stopped)
    }

    /// Finds peers of a run, about `most`, and connects to them without joining. Excludes
    /// [`Self::join`].
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn seek(&self, run: RunId, most: usize) -> Result<(), SendError> {
        self.commands.send(Command::Seek { run, most }).await.map_err(|_| SendError::Stopped)
    }

    /// The peers of the run that [`Self::seek`] has found and connected to.
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn sought(&self) -> Result<Vec<PeerId>, SendError> {
        self.ask(|reply| Command::Sought { reply }, SendError::Stopped).await
    }

    /// Joins a run: subscribes to its gossip, announces this node, finds others, and serves the
    /// manifest. A node is in one run; a second call changes nothing.
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn join(&self, run: RunId, manifest: Vec<u8>) -> Result<(), SendError> {
        let command = Command::Join { run, manifest: manifest.into() };
        self.commands.send(command).await.map_err(|_| SendError::Stopped)
    }

    /// The members of the run to which a control stream is open, so those that [`Self::send`]
    /// reaches.
    pub(crate) fn members(&self) -> Vec<PeerId> {
        self.shared.queues().keys().copied().collect()
    }

    /// Gossips a message to the run. It is no error that nobody is connected yet. Gossipsub sends
    /// equal bytes once, so a repeat needs another number in front (`wire::gossip`).
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn gossip(&self, topic: Topic, bytes: Vec<u8>) -> Result<(), SendError> {
        if bytes.len() > GOSSIP_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        self.command(Command::Gossip { topic, bytes })
    }

    /// Sends a message to one peer over its control stream. It is only queued: nothing says whether
    /// the peer has read it.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn send(&self, peer: PeerId, bytes: Vec<u8>) -> Result<(), SendError> {
        if u32::try_from(bytes.len()).map_or(true, |length| length > MESSAGE_BYTES_MAX) {
            return Err(SendError::TooLong);
        }
        let queues = self.shared.queues();
        queues.get(&peer).ok_or(SendError::NoStream)?.try_send(bytes).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NoStream,
        })
    }

    /// Gives a message to a peer on each of its connections: where two programs have its key, both
    /// hear it.
    pub(crate) fn send_to_all(&self, peer: PeerId, bytes: Vec<u8>) {
        // One that is lost is sent again.
        let _ = self.command(Command::SendToAll { peer, bytes });
    }

    /// Gives our heartbeat to some connected peers of the run, those first that do not listen to
    /// us.
    pub(crate) fn knock(&self, beat: Vec<u8>) {
        // If the queue is full, the next heartbeat knocks again.
        let _ = self.command(Command::Knock { beat });
    }

    /// A peer has sent us its heartbeat beside gossip, so it is in the run, and should be a member.
    pub(crate) fn spoke(&self, peer: PeerId) {
        // If the queue is full, the peer's next heartbeat says it again.
        let _ = self.command(Command::Spoke { peer });
    }

    /// Judges a gossiped message, which is not passed on before.
    pub(crate) fn verdict(&self, token: GossipToken, verdict: Verdict) {
        // A verdict that is lost costs one forwarding.
        let _ = self.command(Command::Verdict { token, verdict });
    }

    /// Sets the members of the run: the more there are, the more messages each may pass on. Members
    /// also have turns of their own for answers, and half of the queue for ring streams.
    pub(crate) fn note_members(&self, members: BTreeSet<PeerId>) {
        replace(&self.shared.members, members);
    }

    /// Sets the peers that are not heard any more. Gossip skips those that a direct message can
    /// reach.
    pub(crate) fn note_silent(&self, peers: BTreeSet<PeerId>) {
        replace(&self.shared.silent, peers);
    }

    /// The peers of [`Self::note_silent`].
    pub(crate) fn silent(&self) -> BTreeSet<PeerId> {
        self.shared.silent.borrow().clone()
    }

    /// The peers that are kept out for their faults, and until when.
    pub(crate) fn blocked(&self) -> BTreeMap<PeerId, Instant> {
        self.shared.blocked.borrow().clone()
    }

    /// Whether this node has ever met a peer, in this start or an earlier one.
    pub(crate) fn has_met_peers(&self) -> bool {
        !self.shared.contacts.borrow().is_empty()
    }

    /// Opens a stream of bytes to a peer on a connection of its own, by TCP if possible, and closes
    /// the one before it to the same peer. Waits about 20 s at most: for two dials of 8 s, by TCP
    /// and by QUIC, and for the stream.
    ///
    /// # Errors
    /// See [`StreamError`].
    ///
    /// # Cancel safety
    /// Cancel safe; the stream is reset.
    pub(crate) async fn open_ring(&self, peer: PeerId) -> Result<ByteStream, StreamError> {
        self.ask(|reply| Command::OpenRing { peer, reply }, StreamError::Stopped).await
    }

    /// Sends a request to a peer, and waits 30 s at most for its answer.
    ///
    /// # Errors
    /// Why there is no answer. That says nothing about whether the peer has the data.
    ///
    /// # Cancel safety
    /// Cancel safe; the request may have reached the peer.
    pub(crate) async fn fetch(&self, peer: PeerId, request: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.ask(|reply| Command::Fetch { peer, request, reply }, Failure::Refused).await
    }

    /// Whether answers arrive about as fast as they ever did, so that another donor would not speed
    /// them up.
    pub(crate) fn is_link_full(&self) -> bool {
        self.shared.inflow.is_full(Instant::now())
    }

    /// Waits until `bytes` more of bulk may be sent under the rate limit. The writer of a ring
    /// stream calls this; answers to requests are limited by the network itself.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(crate) async fn pace(&self, bytes: usize) {
        self.shared.limiter.take(bytes, Urgency::Ring, Receiver::Member).await;
    }

    /// The length of the slices that a sender writes, at most `most` bytes. Under a low rate short
    /// slices let other senders have their turn, and show the reader that we live.
    pub(crate) fn slice(&self, most: usize) -> usize {
        self.shared.limiter.slice(most)
    }

    /// Counts a fault of the peer whose connection brought something that does not decode or
    /// verify, and reports it by [`Event::Fault`]. A peer with too many faults is dropped. For ten
    /// seconds after this process has slept none is counted.
    pub(crate) fn fault(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.command(Command::Fault { peer, why: why.into() });
    }

    /// Disconnects a peer and keeps it out for ten minutes. The caller has proof of a fault, which
    /// `why` names in [`Event::Disconnected`].
    pub(crate) fn drop_peer(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.command(Command::Drop { peer, why: why.into() });
    }

    /// The addresses at which this node listens and is reached, `/p2p/…` included.
    #[must_use]
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.borrow().clone()
    }

    /// The ports of this node's sockets, each as an address with an unspecified host.
    pub(crate) fn ports(&self) -> watch::Receiver<Vec<Address>> {
        self.shared.ports.subscribe()
    }

    /// Addresses of peers of the run, `/p2p/…` included, the best first.
    pub(crate) fn contacts(&self) -> watch::Receiver<Vec<Address>> {
        self.shared.contacts.subscribe()
    }

    /// Sends a command, and waits for the answer; `stopped` is the answer of an actor that has
    /// gone.
    async fn ask<T, E>(
        &self,
        command: impl FnOnce(Responder<T, E>) -> Command,
        stopped: E,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        // A command that nobody takes is dropped with its reply, so the answer below is an error
        // too.
        let _ = self.commands.send(command(reply)).await;
        answer.await.unwrap_or(Err(stopped))
    }

    /// Queues a command without waiting, for callers such as the driver that must not wait.
    fn command(&self, command: Command) -> Result<(), SendError> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Stopped,
        })
    }
}

/// Commands that may wait: one second of all messages in a run of a few hundred peers.
const COMMANDS: usize = 1_024;

/// Events that may wait for the driver; each may hold a megabyte. With a full queue the actor
/// stores further ones itself, up to a bound, and then stops reading.
const EVENTS: usize = 256;

/// Ring streams that may wait for the driver, which takes them at once: room for the burst of eight
/// peers.
const RINGS: usize = 64;

#[cfg(test)]
pub(crate) mod tests;
