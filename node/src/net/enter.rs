//! Entering the network: the entry points that the owner named, the state of each, and the
//! manifests that they and other peers serve.
//!
//! Entry points are dialled at the start, and again whenever they are not connected, since a
//! restarted entry point knows no peers: after 5 s, then twice as long, at most a minute. Only our
//! own dials count for that. A node that knows peers does not wait for them.

use std::{fmt::Display, time::Duration};

use futures::future::join_all;
use intellect_bootstrap::{address, manifest, streams::Opening, transport::root_cause};
use intellect_protocol::base::id::RunId;
use libp2p::{Multiaddr, PeerId, TransportError, swarm::DialError};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

/// A signed manifest that a peer served. Its signature is not checked here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The peer that served it, as libp2p prints it.
    pub(crate) from: String,
    /// The file as it was served, at most 64 KiB for a manifest.
    pub(crate) bytes: Vec<u8>,
}

/// Why there is no manifest. `Display` gives every address that was tried, with its result, on a
/// line of its own, and says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OfferError {
    /// The owner has named no entry point.
    #[error(
        "no address to enter at: give one with --bootstrap, as intellect-bootstrap prints it; a node that has \
         been in a run finds it again in its folder, --data-dir"
    )]
    NoEntry,
    /// None of the entry points answered; each address is named with its own failure.
    #[error(
        "no bootstrap could be reached:{}\nCheck that it runs and that its port is open, or ask \
         the organiser of the run for another address.", .0.concat()
    )]
    Unreachable(Vec<String>),
    /// Peers are connected, but none handed one out: it has none, or did not answer in time.
    #[error(
        "nobody handed out a manifest:{}\nAsk the organiser of the run whether these addresses \
         belong to it.", .0.concat()
    )]
    Nothing(Vec<String>),
    /// Peers answered, but had not the one that was asked for.
    #[error(
        "nobody handed out the manifest of run {of}, which --run or the invite names:{}\nIf these addresses \
         are right, they offer another run by now: ask its organiser for a new invite.", .attempts.concat()
    )]
    AnotherRun {
        /// The run that was asked for, which is the whole name.
        of: RunId,
        /// Each address, with what came of it.
        attempts: Vec<String>,
    },
    /// As many callers as may wait do so already.
    #[error("too many ask for manifests at once; try again in a moment")]
    Busy,
    /// The actor has ended, so nobody can answer any more.
    #[error("the network has stopped")]
    Stopped,
}

/// What is asked for. Entry points answer both, and so does a node that has joined a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The manifest of one run, or of all runs.
    Manifests(Option<RunId>),
    /// The notices of one run, which a peer serves only if it is asked for that run.
    Notices(RunId),
}

/// Which peers are asked for manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offerers {
    /// The entry points that the owner named: another peer may have made up a run.
    Named,
    /// All connected peers, since the owner has named the run.
    Everybody,
}

/// A caller that waits for manifests.
pub(super) struct Ask {
    /// The kind of files, and of which run.
    pub(super) wanted: Wanted,
    /// Which peers are asked once the wait is over.
    pub(super) of: Offerers,
    /// Where the files go, or why there are none.
    pub(super) reply: oneshot::Sender<Result<Vec<Offer>, OfferError>>,
    /// When the caller asked, from which its wait is measured.
    pub(super) since: Instant,
}

/// Whether an entry point is connected.
enum State {
    /// A dial is under way, which ends in one of the others.
    Dialling,
    /// At least one connection is open; which of the addresses led to it does not matter.
    Up,
    /// No connection. The texts say why the last dial failed at each address; empty if none has
    /// ended.
    Down(Vec<String>),
}

/// An entry point, which may have several addresses.
struct Entry {
    /// The id at the end of its addresses, which must answer.
    peer: PeerId,
    /// All addresses that were typed for it; one dial tries them together.
    addresses: Vec<Multiaddr>,
    /// Whether it is connected, and if not, why.
    state: State,
    /// How long it waits after the next failure.
    wait: Duration,
    /// When it is dialled again, if it is down.
    dial_at: Instant,
    /// Since when it has not been connected.
    down_since: Option<Instant>,
    /// Whether it was reported that it does not answer.
    is_silent: bool,
    /// Whether an impostor at its address was reported.
    reported: bool,
}

/// All entry points, and the callers that wait for them.
pub(super) struct Entries {
    /// The entry points in the order in which they were typed.
    all: Vec<Entry>,
    /// Callers that wait, at most [`ASKS_MAX`].
    asks: Vec<Ask>,
}

impl Entries {
    /// Groups addresses by the peer id at their end.
    pub(super) fn new(addresses: Vec<Multiaddr>, now: Instant) -> Self {
        let mut all: Vec<Entry> = Vec::new();
        for address in addresses {
            let Some(peer) = address::peer(&address) else { continue };
            match all.iter_mut().find(|entry| entry.peer == peer) {
                Some(entry) => entry.addresses.push(address),
                None => all.push(Entry {
                    peer,
                    addresses: vec![address],
                    state: State::Down(Vec::new()),
                    wait: WAIT_MIN,
                    dial_at: now,
                    down_since: Some(now),
                    is_silent: false,
                    reported: false,
                }),
            }
        }
        Self { all, asks: Vec::new() }
    }

    /// The entry points to dial now, with their addresses. Each counts as being dialled until the
    /// caller says by [`Self::up`], [`Self::failed`], [`Self::down`] or [`Self::put_off`] how that
    /// ended.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PeerId, Vec<Multiaddr>)> {
        let mut due = Vec::new();
        for entry in &mut self.all {
            if matches!(entry.state, State::Down(_)) && entry.dial_at <= now {
                entry.state = State::Dialling;
                due.push((entry.peer, entry.addresses.clone()));
            }
        }
        due
    }

    /// Whether a peer is an entry point, which keeps it out of the limits for peers.
    pub(super) fn contains(&self, peer: &PeerId) -> bool {
        self.all.iter().any(|entry| entry.peer == *peer)
    }

    /// One address of each entry point.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Multiaddr> {
        self.all.iter().filter_map(|entry| entry.addresses.first())
    }

    /// An entry point is connected, so its next failure waits the shortest time again.
    pub(super) fn up(&mut self, peer: &PeerId) {
        for entry in self.all.iter_mut().filter(|entry| entry.peer == *peer) {
            (entry.state, entry.wait, entry.down_since) = (State::Up, WAIT_MIN, None);
        }
    }

    /// Whether there is no entry point, or none has been connected for a while.
    pub(super) fn are_gone(&self, now: Instant) -> bool {
        let gone = |since: Instant| now.saturating_duration_since(since) >= GONE_AFTER;
        self.all.iter().all(|entry| entry.down_since.is_some_and(gone))
    }

    /// The entry points that have not answered for minutes (false), or answer again (true), each
    /// change once.
    pub(super) fn news(&mut self, now: Instant) -> Vec<(Multiaddr, bool)> {
        let mut news = Vec::new();
        for entry in &mut self.all {
            let down = entry.down_since.map(|since| now.saturating_duration_since(since));
            let is_silent = down.is_some_and(|down| entry.is_silent || down >= SILENT_AFTER);
            if is_silent != entry.is_silent {
                entry.is_silent = is_silent;
                news.extend(entry.addresses.first().map(|address| (address.clone(), !is_silent)));
            }
        }
        news
    }

    /// A dial of ours has failed. Returns the address at which another peer answered, and its id, if
    /// that is news.
    pub(super) fn failed(
        &mut self,
        peer: &PeerId,
        error: DialError,
        now: Instant,
    ) -> Option<(Multiaddr, PeerId)> {
        let entry = self.all.iter_mut().find(|entry| entry.peer == *peer)?;
        let mut impostor = None;
        if let DialError::WrongPeerId { obtained, address } = &error {
            impostor = (!entry.reported).then(|| (address.clone(), *obtained));
            entry.reported = true;
        }
        let attempts = attempts(error, &entry.addresses);
        self.down(peer, attempts, now);
        impostor
    }

    /// An entry point has gone, or these attempts at it have failed. Doubles the wait after the
    /// next failure.
    pub(super) fn down(&mut self, peer: &PeerId, attempts: Vec<String>, now: Instant) {
        for entry in self.all.iter_mut().filter(|entry| entry.peer == *peer) {
            entry.state = State::Down(attempts.clone());
            entry.down_since.get_or_insert(now);
            entry.dial_at = now + entry.wait;
            entry.wait = (entry.wait * 2).min(WAIT_MAX);
        }
    }

    /// An entry point could not be dialled just now, which says nothing about it.
    pub(super) fn put_off(&mut self, peer: &PeerId, now: Instant) {
        for entry in self.all.iter_mut().filter(|entry| entry.peer == *peer) {
            (entry.state, entry.dial_at) = (State::Down(Vec::new()), now + PUT_OFF);
        }
    }

    /// Takes a caller; entry points that are down are dialled at once.
    pub(super) fn ask(&mut self, ask: Ask) {
        for entry in &mut self.all {
            entry.dial_at = ask.since;
        }
        if self.asks.len() < ASKS_MAX {
            return self.asks.push(ask);
        }
        // Fails only where nobody waits any longer.
        let _ = ask.reply.send(Err(OfferError::Busy));
    }

    /// Takes the callers that need not wait any longer: every entry point is connected or has
    /// failed, or one is connected and the others had some time.
    pub(super) fn settled(&mut self, now: Instant) -> Vec<Ask> {
        let up = self.all.iter().any(|entry| matches!(entry.state, State::Up));
        let pending = self.all.iter().any(|entry| match &entry.state {
            State::Dialling => true,
            State::Down(attempts) => attempts.is_empty() || entry.dial_at <= now,
            State::Up => false,
        });
        let over = |ask: &mut Ask| {
            let waited = now.saturating_duration_since(ask.since);
            !pending || waited >= ASK_WAIT_MAX || (up && waited >= ASK_WAIT_UP)
        };
        self.asks.extract_if(.., over).collect()
    }

    /// The connected peers to ask, the entry points first.
    pub(super) fn asked<T>(
        &self,
        of: Offerers,
        connected: impl Iterator<Item = (PeerId, T)>,
    ) -> Vec<(PeerId, T)> {
        let (mut asked, others): (Vec<_>, Vec<_>) =
            connected.partition(|(peer, _)| self.contains(peer));
        if of == Offerers::Everybody {
            asked.extend(others);
        }
        asked
    }

    /// The results of all addresses, for an error. Those of connected entry points are left out,
    /// since such a peer names its own result in [`collect`].
    pub(super) fn attempts(&self) -> Vec<String> {
        let of = |entry: &Entry| match &entry.state {
            State::Up => Vec::new(),
            State::Down(attempts) if !attempts.is_empty() => attempts.clone(),
            State::Down(_) | State::Dialling => {
                entry.addresses.iter().map(|address| attempt(address, "no answer yet")).collect()
            }
        };
        self.all.iter().flat_map(of).collect()
    }
}

/// Asks several peers at the same time, and returns all that they serve. One offer is enough for a
/// success. The slowest peer decides how long this takes, at most [`manifest::TIMEOUT`].
pub(super) async fn collect(
    wanted: Wanted,
    askings: Vec<(PeerId, Opening)>,
    mut attempts: Vec<String>,
) -> Result<Vec<Offer>, OfferError> {
    if askings.is_empty() {
        let none = attempts.is_empty();
        return Err(if none { OfferError::NoEntry } else { OfferError::Unreachable(attempts) });
    }
    let exchanges = askings.into_iter().map(|(peer, opening)| async move {
        let exchange = async {
            let stream = opening.await.map_err(|_| "the connection closed".to_owned())?;
            let stream = stream.map_err(|error| error.to_string())?;
            let asked = match wanted {
                Wanted::Manifests(run) => manifest::ask(stream, run.map(|run| run.0)).await,
                Wanted::Notices(run) => manifest::ask_notices(stream, run.0).await,
            };
            asked.map_err(|error| error.to_string())
        };
        let late = || Err(format!("no answer within {} s", manifest::TIMEOUT.as_secs()));
        (peer, timeout(manifest::TIMEOUT, exchange).await.unwrap_or_else(|_| late()))
    });
    let mut offers = Vec::new();
    for (peer, answer) in join_all(exchanges).await {
        let from = peer.to_string();
        match answer {
            Ok(files) if files.is_empty() => attempts.push(attempt(from, "it has none")),
            Ok(files) => {
                offers.extend(files.into_iter().map(|bytes| Offer { from: from.clone(), bytes }));
            }
            Err(cause) => attempts.push(attempt(from, cause)),
        }
    }
    match wanted {
        _ if !offers.is_empty() => Ok(offers),
        Wanted::Manifests(Some(of)) => Err(OfferError::AnotherRun { of, attempts }),
        Wanted::Manifests(None) | Wanted::Notices(_) => Err(OfferError::Nothing(attempts)),
    }
}

/// A line about one address or peer that was tried. It begins with the line break, so that the
/// lines stand below the sentence of their [`OfferError`].
fn attempt(address: impl Display, cause: impl Display) -> String {
    format!("\n  {address}: {cause}")
}

/// The result of a failed dial for each address.
fn attempts(error: DialError, addresses: &[Multiaddr]) -> Vec<String> {
    match error {
        DialError::Transport(failures) => failures
            .into_iter()
            .map(|(address, error)| match error {
                TransportError::MultiaddrNotSupported(_) => {
                    attempt(address, "neither a TCP nor a QUIC address")
                }
                TransportError::Other(error) => {
                    attempt(&address, explain(root_cause(error), &address))
                }
            })
            .collect(),
        DialError::WrongPeerId { obtained, address } => vec![attempt(
            address,
            format!("somebody else answers there: {obtained}; is the address an old one?"),
        )],
        DialError::LocalPeerId { address } => vec![attempt(address, "this is the node itself")],
        other => addresses.iter().map(|address| attempt(address, &other)).collect(),
    }
}

/// Why a dial has failed. The resolver's own words for a name without an address are those of a
/// program.
fn explain(cause: std::io::Error, address: &Multiaddr) -> String {
    let is_unknown = cause.to_string().starts_with(NO_RECORDS);
    if is_unknown && let Some(name) = address::name(address) {
        return format!("{name} has no address: a typing error, or no internet here");
    }
    if cause.kind() == std::io::ErrorKind::ConnectionRefused {
        return format!("{cause}: nothing listens on that port");
    }
    if cause.to_string() == "invalid data" {
        return "what answers there is no bootstrap and no node".to_owned();
    }
    cause.to_string()
}

/// How the resolver begins to say that a name has no address.
const NO_RECORDS: &str = "no records found";

/// The first and the longest wait between two dials of an entry point that is not connected.
const WAIT_MIN: Duration = Duration::from_secs(5);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The wait where a dial was not possible: several fit into the wait of a caller.
const PUT_OFF: Duration = Duration::from_secs(1);
/// A bootstrap that starts anew is back before, and was dialled at least four times.
const SILENT_AFTER: Duration = Duration::from_secs(120);
/// Each was dialled at least once by then, with the time that a dial may take.
const GONE_AFTER: Duration = Duration::from_secs(10);
/// Longer than a dial may take (8 s, see the transport).
const ASK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time for the others once one entry point is connected.
const ASK_WAIT_UP: Duration = Duration::from_secs(1);
/// Callers at a time; there is one driver.
const ASKS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry point with one address.
    fn one(now: Instant) -> (PeerId, Multiaddr, Entries) {
        let peer = PeerId::random();
        let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/1/p2p/{peer}").parse().unwrap();
        (peer, address.clone(), Entries::new(vec![address], now))
    }

    fn ask(
        entries: &mut Entries,
        since: Instant,
    ) -> oneshot::Receiver<Result<Vec<Offer>, OfferError>> {
        let (reply, asked) = oneshot::channel();
        let wanted = Wanted::Manifests(None);
        entries.ask(Ask { wanted, of: Offerers::Named, reply, since });
        asked
    }

    #[test]
    fn every_address_is_named_with_its_cause_and_the_remedy() {
        let now = Instant::now();
        let peer = PeerId::random();
        let one: Multiaddr = format!("/ip4/127.0.0.1/tcp/1/p2p/{peer}").parse().unwrap();
        let two: Multiaddr = format!("/ip4/127.0.0.1/udp/1/quic-v1/p2p/{peer}").parse().unwrap();
        let mut entries = Entries::new(vec![one.clone(), two.clone()], now);
        let _asked = ask(&mut entries, now);
        assert!(entries.settled(now).is_empty(), "not before it was dialled");
        assert_eq!(entries.due(now), [(peer, vec![one.clone(), two.clone()])]);
        assert!(entries.due(now).is_empty() && entries.settled(now).is_empty());
        let refused = std::io::Error::from_raw_os_error(111);
        let failure = (one.clone(), TransportError::Other(std::io::Error::other(refused)));
        let silent = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer");
        let failures = vec![failure, (two.clone(), TransportError::Other(silent))];
        entries.failed(&peer, DialError::Transport(failures), now);
        assert_eq!(entries.settled(now).len(), 1);
        let text = OfferError::Unreachable(entries.attempts()).to_string();
        for part in [&one.to_string(), "refused", &two.to_string(), "no answer", "Check that"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    /// The node runs on, so the network has not stopped.
    #[test]
    fn a_caller_without_a_place_is_told_so() {
        let now = Instant::now();
        let mut entries = Entries::new(Vec::new(), now);
        let waiting: Vec<_> = (0..ASKS_MAX).map(|_| ask(&mut entries, now)).collect();
        let answer = ask(&mut entries, now).try_recv().unwrap();
        assert!(matches!(answer, Err(OfferError::Busy)), "{answer:?}");
        assert!(waiting.into_iter().all(|mut asked| asked.try_recv().is_err()));
        assert_eq!(entries.settled(now).len(), ASKS_MAX);
    }

    #[test]
    fn an_entry_point_that_falls_silent_is_named_once_and_again_once_it_answers() {
        let now = Instant::now();
        let (peer, address, mut entries) = one(now);
        entries.up(&peer);
        assert!(entries.news(now + 2 * SILENT_AFTER).is_empty());
        let gone = now + 2 * SILENT_AFTER;
        entries.down(&peer, Vec::new(), gone);
        entries.down(&peer, Vec::new(), gone + WAIT_MAX);
        assert!(entries.news(gone + WAIT_MAX).is_empty());
        assert_eq!(entries.news(gone + SILENT_AFTER), [(address.clone(), false)]);
        assert!(entries.news(gone + 2 * SILENT_AFTER).is_empty());
        entries.up(&peer);
        assert_eq!(entries.news(gone + 2 * SILENT_AFTER), [(address, true)]);
        assert!(entries.news(gone + 3 * SILENT_AFTER).is_empty());
    }

    /// While Kademlia dials an entry point this node cannot, which is neither an answer nor a failure.
    #[test]
    fn an_entry_point_that_is_put_off_has_not_answered_and_is_waited_for() {
        let start = Instant::now();
        let (peer, address, mut entries) = one(start);
        let late = start + SILENT_AFTER;
        assert_eq!(entries.news(late), [(address, false)]);
        let _asked = ask(&mut entries, late);
        assert_eq!(entries.due(late).len(), 1);
        entries.put_off(&peer, late);
        assert!(entries.news(late).is_empty() && entries.settled(late).is_empty());
        assert!(entries.due(late).is_empty());
        assert_eq!(entries.due(late + PUT_OFF).len(), 1);
    }

    #[test]
    fn a_name_without_an_address_is_called_so() {
        let address: Multiaddr = "/dns4/no.such.host/tcp/1".parse().unwrap();
        let words = "no records found for Query { name: Name(\"no.such.host.\"), query_type: A }";
        let unknown = || std::io::Error::other(words);
        let said = explain(unknown(), &address);
        assert_eq!(said, "no.such.host has no address: a typing error, or no internet here");
        let number: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        assert_eq!(explain(unknown(), &number), words);
    }

    /// Other connected peers may have made up a run, and may be many.
    #[test]
    fn entry_points_are_asked_first_and_without_a_run_nobody_else() {
        let (named, _, entries) = one(Instant::now());
        let connected = || (0..40).map(|_| (PeerId::random(), ())).chain([(named, ())]);
        assert_eq!(entries.asked(Offerers::Named, connected()), [(named, ())]);
        let all = entries.asked(Offerers::Everybody, connected());
        assert_eq!((all.len(), all[0].0), (41, named));
    }

    #[test]
    fn an_entry_point_that_is_down_is_dialled_ever_more_seldom() {
        let start = Instant::now();
        let (peer, _, mut entries) = one(start);
        let mut now = start;
        for wait in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            assert_eq!(entries.due(now).len(), 1);
            assert_eq!(entries.failed(&peer, DialError::Aborted, now), None);
            assert!(entries.due(now + wait - Duration::from_millis(1)).is_empty());
            now += wait;
        }
        entries.up(&peer);
        assert!(entries.due(now + WAIT_MAX).is_empty() && entries.contains(&peer));
        entries.down(&peer, Vec::new(), now);
        assert_eq!(entries.due(now + WAIT_MIN).len(), 1);
    }
}
