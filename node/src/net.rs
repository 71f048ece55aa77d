//! The network of one node: an actor that owns the libp2p swarm, and the handle to it.
//!
//! Messages are opaque bytes here but for their length and the author that they name. The actor finds the peers of a run, keeps
//! connected to them, carries gossip, direct messages, requests and ring streams, and notices
//! misbehaviour that shows without understanding: lengths above the limit, floods. What only the
//! driver can judge (an envelope that does not decode or verify) it reports with
//! [`Handle::verdict`] and [`Handle::fault`], and who has misbehaved enough is dropped and kept out
//! for ten minutes.
//!
//! Tasks: the actor, and one per control stream, request and answer, all of them in the actor's
//! set, ended with it. Every queue has a bound: calls [`CALLS`], events [`EVENTS`] (the actor
//! stops reading the network while they are full, and never stops taking calls, so driver and
//! actor cannot wait for each other), ring streams [`RINGS`].
//!
//! It decides nothing about epochs and reads no message.

mod actor;
pub(crate) mod address;
mod behaviour;
mod carrier;
mod contacts;
mod dial;
mod door;
mod enter;
mod fetch;
mod inbox;
mod interface;
mod line;
mod lobby;
mod members;
mod mute;
mod name;
pub(crate) mod pace;
mod path;
mod peers;
pub(crate) mod ports;
mod reach;
mod run;
mod source;
mod visit;

use std::{
    collections::{BTreeSet, HashSet},
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
    actor::Actor,
    address::Address,
    door::Door,
    enter::Wanted,
    inbox::{Call, Responder, Shared},
    pace::Urgency,
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

/// A running network.
pub(crate) struct Net {
    /// To talk to it.
    pub(crate) handle: Handle,
    /// What happens; to be read all the time.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Ring streams that peers open. One that finds the queue full is reset.
    pub(crate) rings: mpsc::Receiver<Ring>,
    /// Ends soon after `stop` was cancelled: the last messages get [`actor::FLUSH`] to leave.
    pub(crate) task: JoinHandle<()>,
}

/// Starts the network on the current tokio runtime; it ends when `stop` is cancelled or all
/// handles are dropped.
///
/// # Errors
/// See [`NetError`]; nothing is left running then.
pub(crate) fn start(config: Config, stop: CancellationToken) -> Result<Net, NetError> {
    let key = Keypair::ed25519_from_bytes(config.key_seed)?;
    let (calls, inbox) = mpsc::channel(CALLS);
    let (outbox, events) = mpsc::channel(EVENTS);
    let (arrivals, rings) = mpsc::channel(RINGS);
    let shared = Arc::new(Shared::new(config.rate));
    let actor = Actor::new(config, &key, shared.clone(), inbox, outbox, arrivals)?;
    let task = tokio::spawn(actor.run(stop));
    Ok(Net { handle: Handle { calls, shared }, events, rings, task })
}

/// Talks to the network. Cheap to clone; nothing here waits for the network but where it says so.
#[derive(Clone)]
pub(crate) struct Handle {
    calls: mpsc::Sender<Call>,
    shared: Arc<Shared>,
}

impl Handle {
    /// Every signed manifest that those who are asked hand out, of `run` or of all.
    /// Waits 25 s at most.
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
        let (stopped, wanted) = (|| OfferError::Stopped, Wanted::Manifests(run));
        self.ask(|reply| Call::Offers { wanted, of, reply }, stopped).await
    }

    /// Every notice of a run that somebody who is connected hands out. Waits 25 s at most.
    ///
    /// # Errors
    /// See [`OfferError`]; most runs have no notices.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn entry_notices(&self, run: RunId) -> Result<Vec<Offer>, OfferError> {
        let (stopped, wanted) = (|| OfferError::Stopped, Wanted::Notices(run));
        let of = Offerers::Everybody;
        self.ask(|reply| Call::Offers { wanted, of, reply }, stopped).await
    }

    /// The notices of a run that one peer hands out. Waits 15 s at most.
    ///
    /// # Errors
    /// Why there is no answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn notices(&self, peer: PeerId, run: RunId) -> Result<Vec<Vec<u8>>, Failure> {
        self.ask(|reply| Call::Notices { peer, run, reply }, || Failure::Refused).await
    }

    /// From now on these are handed out to who names the run.
    pub(crate) fn serve_notices(&self, notices: Vec<Arc<[u8]>>) {
        self.shared.notices.send_replace(notices);
    }

    /// From now on only these are let in: the rest gets the lobby, and the manifest and its notices.
    /// To be said before [`Self::join`] in a run of invited peers.
    pub(crate) fn let_in(&self, these: HashSet<PeerId>) {
        self.shared.door.send_if_modified(|door| {
            let new = Door::Invited(Arc::new(these));
            let changed = *door != new;
            *door = new;
            changed
        });
    }

    /// Shows this to whoever is connected now or later; answers are [`Event::Received`].
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn show(&self, visit: &Visit) -> Result<(), SendError> {
        let call = Call::Show { visit: visit.to_bytes() };
        self.calls.send(call).await.map_err(|_| SendError::Stopped)
    }

    /// Looks for the peers of a run and connects to them, without being one. Not with [`Self::join`].
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn seek(&self, run: RunId) -> Result<(), SendError> {
        self.calls.send(Call::Seek { run }).await.map_err(|_| SendError::Stopped)
    }

    /// Joins a run: listens to its gossip, announces itself and finds others, and hands out its
    /// manifest. Once and for good; a second call changes nothing.
    ///
    /// # Errors
    /// [`SendError::Stopped`] only.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn join(&self, run: RunId, manifest: Vec<u8>) -> Result<(), SendError> {
        let call = Call::Join { run, manifest: manifest.into() };
        self.calls.send(call).await.map_err(|_| SendError::Stopped)
    }

    /// The members of the run that a control stream is open to.
    pub(crate) fn members(&self) -> Vec<PeerId> {
        self.shared.lines().keys().copied().collect()
    }

    /// Gives a message to everybody in the run. That nobody is there yet is no error.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn gossip(&self, topic: Topic, bytes: Vec<u8>) -> Result<(), SendError> {
        if bytes.len() > GOSSIP_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        self.call(Call::Gossip { topic, bytes })
    }

    /// Gives a message to one peer.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn send(&self, peer: PeerId, bytes: Vec<u8>) -> Result<(), SendError> {
        if u32::try_from(bytes.len()).map_or(true, |length| length > MESSAGE_BYTES_MAX) {
            return Err(SendError::TooLong);
        }
        let lines = self.shared.lines();
        lines.get(&peer).ok_or(SendError::NoStream)?.try_send(bytes).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::NoStream,
        })
    }

    /// Gives a message to a peer on each of its connections: where two programs have its key, both
    /// hear it.
    pub(crate) fn send_to_all(&self, peer: PeerId, bytes: Vec<u8>) {
        // One that is lost is sent again.
        let _ = self.call(Call::SendToAll { peer, bytes });
    }

    /// Gives our heartbeat to some connected peers of the run, those first that do not listen to
    /// us.
    pub(crate) fn knock(&self, beat: Vec<u8>) {
        // Another one follows.
        let _ = self.call(Call::Knock { beat });
    }

    /// A peer has sent us its heartbeat beside gossip, so it is in the run, and should be a member.
    pub(crate) fn spoke(&self, peer: PeerId) {
        // It sends another one.
        let _ = self.call(Call::Spoke { peer });
    }

    /// Says what becomes of a gossiped message; without it, it is not passed on.
    pub(crate) fn verdict(&self, token: GossipToken, verdict: Verdict) {
        // A verdict that is lost costs one forwarding.
        let _ = self.call(Call::Verdict { token, verdict });
    }

    /// Says who are the members of the run: the more there are, the more each may pass on.
    pub(crate) fn note_members(&self, members: BTreeSet<PeerId>) {
        self.shared.members.send_if_modified(|known| {
            let changed = *known != members;
            *known = members;
            changed
        });
    }

    /// Says who is not heard any more: by gossip nothing goes to them, as far as they can be reached directly.
    pub(crate) fn note_silent(&self, peers: BTreeSet<PeerId>) {
        self.shared.silent.send_if_modified(|known| {
            let changed = *known != peers;
            *known = peers;
            changed
        });
    }

    /// Who that is.
    pub(crate) fn silent(&self) -> BTreeSet<PeerId> {
        self.shared.silent.borrow().clone()
    }

    /// Whether this node has ever met a peer, in an earlier start perhaps.
    pub(crate) fn has_met_peers(&self) -> bool {
        !self.shared.contacts.borrow().is_empty()
    }

    /// Opens a stream of bytes to a peer on a connection of its own, by TCP if that can be had. The
    /// one before it to the same peer is closed. Waits 20 s at most.
    ///
    /// # Errors
    /// See [`StreamError`].
    ///
    /// # Cancel safety
    /// Cancel safe; the stream is reset.
    pub(crate) async fn open_ring(&self, peer: PeerId) -> Result<ByteStream, StreamError> {
        self.ask(|reply| Call::OpenRing { peer, reply }, || StreamError::Stopped).await
    }

    /// Asks a peer, and waits 30 s at most for its answer.
    ///
    /// # Errors
    /// Why there is no answer; that says nothing about what was asked for. Bulk never goes over a
    /// relay, so a peer without a direct connection refuses.
    ///
    /// # Cancel safety
    /// Cancel safe; the request may have reached the peer.
    pub(crate) async fn fetch(&self, peer: PeerId, request: Vec<u8>) -> Result<Vec<u8>, Failure> {
        self.ask(|reply| Call::Fetch { peer, request, reply }, || Failure::Refused).await
    }

    /// Whether answers come in about as fast as they ever did: no other donor would bring them
    /// sooner.
    pub(crate) fn is_line_full(&self) -> bool {
        self.shared.inflow.is_full(Instant::now())
    }

    /// Waits until `bytes` more of bulk may be sent under the rate limit. Answers to requests do it
    /// by themselves; whoever writes to a ring stream does it with this.
    ///
    /// # Cancel safety
    /// Cancel safe; the bytes count as sent.
    pub(crate) async fn pace(&self, bytes: usize) {
        self.shared.limiter.take(bytes, Urgency::Ring).await;
    }

    /// How long the slices are into which a sender cuts what it sends, at most `most` bytes: under
    /// a low rate others get their turn, and whoever reads hears of us all the time.
    pub(crate) fn slice(&self, most: usize) -> usize {
        self.shared.limiter.slice(most)
    }

    /// Counts a fault against the peer whose connection brought something that does not decode or
    /// verify, and tells of it by [`Event::Fault`]. One too many and the peer is dropped.
    pub(crate) fn fault(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.call(Call::Fault { peer, why: why.into() });
    }

    /// Disconnects a peer and keeps it out for ten minutes.
    pub(crate) fn drop_peer(&self, peer: PeerId, why: impl Into<String>) {
        let _ = self.call(Call::Drop { peer, why: why.into() });
    }

    /// Where this node listens and is reached, `/p2p/…` included.
    #[must_use]
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.borrow().clone()
    }

    /// The ports of this node's sockets, each as an address of any host.
    pub(crate) fn ports(&self) -> watch::Receiver<Vec<Address>> {
        self.shared.ports.subscribe()
    }

    /// Where peers of the run are reached, `/p2p/…` included, the best first.
    pub(crate) fn contacts(&self) -> watch::Receiver<Vec<Address>> {
        self.shared.contacts.subscribe()
    }

    /// Calls, and waits for the answer.
    async fn ask<T, E>(
        &self,
        call: impl FnOnce(Responder<T, E>) -> Call,
        stopped: impl Fn() -> E,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        self.calls.send(call(reply)).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    fn call(&self, call: Call) -> Result<(), SendError> {
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Stopped,
        })
    }
}

/// Calls that wait: a second of everybody's messages in a run of a few hundred.
const CALLS: usize = 1_024;

/// Events that wait for the driver. 256 of them may hold a megabyte each.
const EVENTS: usize = 256;

/// Ring streams that wait to be taken, which the driver does at once: eight peers may open at the
/// same moment as many as they may.
const RINGS: usize = 64;

#[cfg(test)]
pub(crate) mod tests;
