//! The rings of a node: pairs each roster that has opened with its two streams.
//!
//! A task of its own. It opens a stream to the successor and writes the preamble that names the ring; from
//! the predecessor it takes the stream with the same preamble. A stream may come before its roster has
//! opened here; then it waits unread, and the transport holds its sender back. A stream that fits no ring
//! of ours is no fault, since it may be early or late; but only a few streams of each peer wait, and strangers
//! together have a bounded number of places, which they cannot take from members. The predecessor of a ring that runs
//! here has a place for its preamble too.
//!
//! A ring is one attempt, and is named by the digest of its roster. So a stream of an attempt that
//! has failed can never be taken for one of the next. Each ring runs in a task of its own; this
//! task only starts it, hands it its stream, and cancels it. What a ring reports goes to the driver
//! through one bounded queue, which the ring waits for if it is full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_protocol::base::fault::Fault;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::message::Finished;
use intellect_protocol::ring::assembly::gather;
use intellect_protocol::ring::exchange::frame::Preamble;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::pace::{Pace, SLICE_BYTES, Take};
use super::{Held, Job, News, RingError, run, stream};
use crate::net::{ByteStream, Handle, Ring};

/// Commands that may wait: a few for each ring.
const COMMANDS: usize = 64;

/// New streams that may wait. They have their own queue, since any peer can open them.
const ARRIVALS: usize = 64;

/// Streams that may wait for their roster, beside those of members, and for how long: an Accept may be repeated
/// once or twice.
const EARLY_MAX: usize = 64;
const EARLY_WAIT: Duration = Duration::from_secs(10);

/// News of one ring that may wait for the driver.
const NEWS: usize = 16;

/// Streams whose preambles may be read at a time, beside those of members and predecessors.
const ARRIVING_MAX: usize = 64;

/// Streams of one peer, in either set: one, and one of the attempt before.
const PER_PEER: usize = 2;

/// What rings report to the driver.
/// Most name their ring by its roster, since a ring that was given up may still report.
#[derive(Debug)]
pub(crate) enum Event {
    /// A chunk is complete, with the seal of its owner.
    Sealed(Finished),
    /// The update of a ring is complete.
    /// The ring may go on for others: [`Event::Carried`] follows.
    Held(Digest, Held),
    /// A ring has failed; the chunks that were reported lie at their ranges in these bytes.
    Salvaged(Digest, Arc<Vec<u8>>),
    /// A ring has ended, with or without its update: these are the bytes that [`Event::Held`] did not count.
    Carried { sent_bytes: u64, received_bytes: u64 },
    /// A ring has stopped before its end, or was given up; see `epoch::Input::RingStopped`.
    /// `lost` is the neighbour whose stream has ended or could not be opened; `None` accuses
    /// nobody. `hops` is how far the ring came, of 2(n − 1).
    Stopped { roster: Digest, lost: Option<PeerId>, hops: u32 },
    /// A neighbour did what no honest member does, and its connection counts as failed too.
    Fault { roster: Digest, who: PeerId, fault: Fault, hops: u32 },
}

/// What the driver asks of the task.
enum Command {
    /// The roster has opened, so its ring may run.
    Start(Box<Job>),
    /// The attempt has failed, or the epoch is decided without this ring.
    Abandon(Digest),
}

/// A handle that starts and ends rings.
pub(crate) struct Rings {
    /// Bounded by [`COMMANDS`]; a command that finds no room is dropped.
    commands: mpsc::Sender<Command>,
    /// Bounded by [`ARRIVALS`]; a stream that finds no room is reset.
    arrivals: mpsc::Sender<Ring>,
}

impl Rings {
    /// Starts the task; it ends when this is dropped.
    pub(crate) fn new(net: Handle, events: mpsc::Sender<Event>) -> Self {
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let (arrivals, arrived) = mpsc::channel(ARRIVALS);
        tokio::spawn(Actor::new(net, events).run(inbox, arrived));
        Self { commands, arrivals }
    }

    /// Runs the ring of a roster that has opened.
    /// It returns at once. A ring that cannot start reports [`Event::Stopped`] or ends at the
    /// deadline of its attempt.
    pub(crate) fn start(&self, job: Job) {
        self.send(Command::Start(Box::new(job)));
    }

    /// Ends the ring of a roster at any point.
    /// Its streams are reset. The finished chunks are reported before it ends.
    pub(crate) fn abandon(&self, roster: Digest) {
        self.send(Command::Abandon(roster));
    }

    /// Takes a ring stream that a peer has opened.
    /// Nothing of it was read yet, so the peer has only claimed to take part.
    pub(crate) fn arrive(&self, ring: Ring) {
        // A stream that finds no room is reset. Strangers leave half of it to members.
        if ring.is_member || self.arrivals.capacity() > ARRIVALS / 2 {
            let _ = self.arrivals.try_send(ring);
        }
    }

    /// Gives a command without waiting.
    fn send(&self, command: Command) {
        // A ring that does not start times out.
        if self.commands.try_send(command).is_err() {
            tracing::warn!("too many rings at once");
        }
    }
}

/// The task that pairs streams with rings. It never reads or writes a payload itself.
struct Actor {
    /// Opens the streams to successors.
    net: Handle,
    /// The limit on bulk, which all rings share.
    pace: Pace,
    /// Where the rings report; the driver reads it.
    events: mpsc::Sender<Event>,
    /// The rings under way. There is usually one, and for a moment two after a failed attempt.
    running: BTreeMap<Digest, Running>,
    /// Streams whose preamble is read, but whose ring has not opened.
    early: Early<(Preamble, Ring)>,
    /// Streams whose preamble is being read, each with a place.
    arriving: JoinSet<(PeerId, Option<(Preamble, Ring)>)>,
    /// The places of the arriving streams.
    places: Places,
    /// The tasks of the rings, each of which returns its roster.
    tasks: JoinSet<Digest>,
}

/// A ring under way, as far as the pairing needs to know it.
struct Running {
    /// Ends the ring at its next await.
    stop: CancellationToken,
    /// The only peer whose stream with this roster's preamble is taken.
    predecessor: PeerId,
    /// Takes the stream of the predecessor, once.
    stream: Option<oneshot::Sender<ByteStream>>,
}

impl Actor {
    fn new(net: Handle, events: mpsc::Sender<Event>) -> Self {
        let handle = net.clone();
        let take: Take = Arc::new(move |bytes| {
            let net = handle.clone();
            Box::pin(async move { net.pace(bytes).await })
        });
        let pace = Pace { slice_bytes: net.slice(SLICE_BYTES), take };
        Self {
            net,
            pace,
            events,
            running: BTreeMap::new(),
            early: Early(Vec::new()),
            arriving: JoinSet::new(),
            places: Places::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Runs until the handle is dropped, which also ends all rings.
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>, mut arrived: mpsc::Receiver<Ring>) {
        loop {
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.execute(command),
                    None => return,
                },
                Some(ring) = arrived.recv() => self.arrive(ring),
                Some(arrived) = self.arriving.join_next() => {
                    if let Ok((from, arrived)) = arrived {
                        self.on_arrived(from, arrived);
                    }
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(roster) = ended {
                        self.running.remove(&roster);
                    }
                }
            }
        }
    }

    /// Carries out one command. An abandoned ring is forgotten at once, so that a late stream for
    /// it waits with the early ones and expires there.
    fn execute(&mut self, command: Command) {
        match command {
            Command::Start(job) => self.start(*job),
            Command::Abandon(roster) => {
                if let Some(running) = self.running.remove(&roster) {
                    running.stop.cancel();
                }
            }
        }
    }

    /// Reads the preamble of a stream that gets a place.
    fn arrive(&mut self, mut ring: Ring) {
        let from = ring.from;
        let is_awaited = ring.is_member || self.running.values().any(|r| r.predecessor == from);
        if self.places.take(from, is_awaited) {
            self.arriving.spawn(async move {
                let preamble = stream::read_preamble(&mut ring.stream).await;
                (from, preamble.ok().map(|preamble| (preamble, ring)))
            });
        }
    }

    /// Frees the place of a stream, and pairs the stream if its preamble came in time.
    fn on_arrived(&mut self, from: PeerId, arrived: Option<(Preamble, Ring)>) {
        self.places.free(from);
        if let Some((preamble, ring)) = arrived {
            self.pair(preamble, ring);
        }
    }

    /// Starts the task of a ring. It waits for the predecessor's stream and opens the one to the
    /// successor at the same time, since each neighbour does the same. If only the predecessor's
    /// stream is missing nobody is accused: the predecessor may not know yet that the ring has
    /// opened.
    fn start(&mut self, job: Job) {
        let (roster, count) = (job.roster, job.members.len());
        let (predecessor, successor) = (job.predecessor(), job.successor());
        let (sender, stream) = oneshot::channel();
        let (net, pace, events) = (self.net.clone(), self.pace.clone(), self.events.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        self.tasks.spawn(async move {
            let streams = async |job: &Job| {
                if count == 1 {
                    return Ok(None);
                }
                let first = job.timeouts.first;
                let incoming = async {
                    match tokio::time::timeout(first, stream).await {
                        Ok(Ok(stream)) => Ok(stream),
                        // It may not have learnt that the ring has opened.
                        _ => Err(None),
                    }
                };
                let outgoing = open(&net, job, successor);
                tokio::try_join!(incoming, outgoing).map(Some)
            };
            let found = tokio::select! {
                () = stopped.cancelled() => Err(None),
                found = streams(&job) => found,
            };
            let event = match found {
                Ok(streams) => exchange(job, streams, pace, stopped, &events).await,
                Err(lost) => Some(Event::Stopped { roster, lost, hops: 0 }),
            };
            if let Some(event) = event {
                drop(events.send(event).await);
            }
            roster
        });
        self.running.insert(roster, Running { stop, predecessor, stream: Some(sender) });
        for (_, (preamble, ring)) in self.early.take(Instant::now()) {
            self.pair(preamble, ring);
        }
    }

    /// Gives a stream to its ring, or lets it wait for it.
    /// A stream of another peer than the predecessor, and a second one of the predecessor, are
    /// dropped: a preamble names a ring, and its sender must be the one that the roster names.
    fn pair(&mut self, preamble: Preamble, ring: Ring) {
        match self.running.get_mut(&preamble.roster) {
            Some(running) if running.predecessor == ring.from => {
                if let Some(slot) = running.stream.take() {
                    // A ring that has ended takes nothing; the stream is reset.
                    drop(slot.send(ring.stream));
                }
            }
            Some(_) => {}
            None => {
                let (from, is_member) = (ring.from, ring.is_member);
                self.early.store(Instant::now(), from, is_member, (preamble, ring));
            }
        }
    }
}

/// How many streams of each peer are arriving. Without the rule for awaited peers, strangers who open streams and
/// write nothing would end every ring.
/// The sum over all peers is at most [`ARRIVING_MAX`] and [`PER_PEER`] for each awaited peer.
#[derive(Default)]
struct Places(BTreeMap<PeerId, usize>);

impl Places {
    /// Takes a place for a stream, if there is one for its peer.
    fn take(&mut self, from: PeerId, is_awaited: bool) -> bool {
        let own = self.0.get(&from).copied().unwrap_or(0);
        let free = is_awaited || self.0.values().sum::<usize>() < ARRIVING_MAX;
        if free && own < PER_PEER {
            self.0.insert(from, own + 1);
        }
        free && own < PER_PEER
    }

    /// Gives the place of one stream back, read or not.
    fn free(&mut self, from: PeerId) {
        match self.0.get_mut(&from) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.0.remove(&from)),
        }
    }
}

/// Items that came before they can be used, with their time, the oldest first.
struct Early<T>(Vec<(Instant, PeerId, T)>);

impl<T> Early<T> {
    /// Stores an item. A peer with too many loses its oldest one, which later attempts have made useless;
    /// where there is no room, the new item is dropped, unless a member has sent it.
    fn store(&mut self, now: Instant, from: PeerId, is_member: bool, item: T) {
        self.0.retain(|(since, ..)| now.duration_since(*since) < EARLY_WAIT);
        let mut own = self.0.iter().enumerate().filter(|(_, (_, peer, _))| *peer == from);
        let oldest = own.next().map(|(index, _)| index);
        if let Some(oldest) = oldest
            && 1 + own.count() >= PER_PEER
        {
            self.0.remove(oldest);
        }
        if is_member || self.0.len() < EARLY_MAX {
            self.0.push((now, from, item));
        }
    }

    /// Takes all items that are not too old.
    fn take(&mut self, now: Instant) -> Vec<(PeerId, T)> {
        let early = std::mem::take(&mut self.0).into_iter();
        let fresh = early.filter(|(since, ..)| now.duration_since(*since) < EARLY_WAIT);
        fresh.map(|(_, from, item)| (from, item)).collect()
    }
}

/// Opens the stream to the successor and names the ring on it. The error is the successor, which
/// counts as lost to this ring.
/// A peer that only refuses this stream may be alive all the same; the view decides that by
/// heartbeats.
async fn open(net: &Handle, job: &Job, successor: PeerId) -> Result<ByteStream, Option<PeerId>> {
    let stream = net.open_ring(successor).await;
    let mut stream = stream.map_err(|error| {
        tracing::info!(%error, "no ring stream");
        Some(successor)
    })?;
    stream::write_preamble(&mut stream, job).await.map_err(|_| Some(successor))?;
    Ok(stream)
}

/// The job with only the blocks of the delta that are computed again, which takes as long as copying them.
async fn gathered(job: Job) -> Option<Job> {
    let Some(blocks) = job.recomputed.clone() else { return Some(job) };
    let gather = move || Job { delta: Arc::new(gather(&job.delta, &blocks)), ..job };
    tokio::task::spawn_blocking(gather).await.ok()
}

/// Runs the exchange. Returns the last event, after all others were sent.
///
/// `None`: the ring has ended well, or this program is ending. A fault and a loss carry the number
/// of hops, by which the state judges how far the attempt came.
async fn exchange(
    job: Job,
    streams: Option<(ByteStream, ByteStream)>,
    pace: Pace,
    stop: CancellationToken,
    events: &mpsc::Sender<Event>,
) -> Option<Event> {
    let job = gathered(job).await?;
    let (roster, successor, count) = (job.roster, job.successor(), job.members.len());
    let (sender, mut news) = mpsc::channel(NEWS);
    let forward = async {
        let mut stopped = 0;
        while let Some(news) = news.recv().await {
            let event = match news {
                News::Sealed(chunk, seal) => Event::Sealed(Finished { roster, chunk, seal }),
                News::Held(held) => Event::Held(roster, held),
                News::Salvaged(bytes) => Event::Salvaged(roster, bytes),
                News::Ended { hops, sent_bytes, received_bytes } => {
                    stopped = hops;
                    Event::Carried { sent_bytes, received_bytes }
                }
            };
            drop(events.send(event).await);
        }
        stopped
    };
    let (ended, hops) = tokio::join!(run::run(job, streams, pace, stop, sender), forward);
    let lost = match ended {
        Ok(()) | Err(RingError::Stopped) => return None,
        Err(RingError::Abandoned) => None,
        Err(RingError::Lost { neighbour, why }) => {
            tracing::info!(why, "ring neighbour lost");
            Some(neighbour)
        }
        Err(RingError::Quiet { neighbour, why }) => {
            tracing::info!(why, "ring stands still");
            // A silent predecessor may itself be waiting. A successor always reads, so it or the link
            // is broken where nothing leaves. In a ring of two one neighbour is both.
            (count > 2 && neighbour == successor).then_some(neighbour)
        }
        Err(RingError::Fault { who, fault }) => {
            return Some(Event::Fault { roster, who, fault, hops });
        }
    };
    Some(Event::Stopped { roster, lost, hops })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: PeerId = PeerId([1; 32]);
    const PREDECESSOR: PeerId = PeerId([2; 32]);

    #[test]
    fn early_streams_of_one_peer_displace_only_its_own() {
        let (mut early, start) = (Early(Vec::new()), Instant::now());
        early.store(start, PREDECESSOR, false, 0);
        for number in 1..1_000 {
            early.store(start, OTHER, false, number);
        }
        let stored = early.take(start);
        assert_eq!(stored, [(PREDECESSOR, 0), (OTHER, 998), (OTHER, 999)]);
        // Not even many peers displace it, but it is stored for a while only.
        for peer in 0..=u8::MAX {
            early.store(start, PeerId([peer; 32]), false, 0);
        }
        assert_eq!(early.0.len(), EARLY_MAX);
        early.store(start, PREDECESSOR, true, 5);
        assert_eq!(early.0.last(), Some(&(start, PREDECESSOR, 5)), "strangers took its place");
        early.store(start + EARLY_WAIT, PREDECESSOR, false, 7);
        assert_eq!(early.take(start + EARLY_WAIT), [(PREDECESSOR, 7)]);
    }

    #[test]
    fn strangers_take_no_place_of_an_awaited_peer() {
        let mut places = Places::default();
        let taken = (3..=u8::MAX).flat_map(|peer| [PeerId([peer; 32]); PER_PEER + 1]);
        assert_eq!(taken.filter(|peer| places.take(*peer, false)).count(), ARRIVING_MAX);
        assert!(!places.take(OTHER, false));
        assert!(places.take(PREDECESSOR, true) && places.take(PREDECESSOR, true));
        assert!(!places.take(PREDECESSOR, true), "it has two");
        places.free(PeerId([3; 32]));
        assert!(!places.take(OTHER, false), "the two of the predecessor count as well");
        places.free(PREDECESSOR);
        places.free(PREDECESSOR);
        assert!(places.take(OTHER, false));
    }
}
