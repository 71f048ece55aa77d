//! An examination of this machine's way into the network, for `doctor`: which entry points answer
//! by which transport, what they see of this machine, and who can dial it.
//!
//! It runs the behaviours of a node under a key of its own, but joins no run. It decides nothing:
//! `doctor` makes verdicts of what is in [`Examined`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{
    address::{self, Scope},
    discovery::{Discovery, DiscoveryEvent, Gateway, Role},
    manifest,
    measure::{self, MeasureError, Rates},
    streams::{self, OpenError},
    transport::{self, root_cause},
};
use intellect_protocol::base::id::RunId;
use libp2p::{
    Multiaddr, PeerId, Swarm, TransportError, identify,
    identity::Keypair,
    kad::{self, QueryResult},
    multiaddr::Protocol,
    swarm::{
        ConnectionId, DialError, FromSwarm, NetworkBehaviour, NewExternalAddrCandidate, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    actor::way::path,
    address::host,
    interface::{Config, NetError},
    path::Path,
    ports::listen,
    run::record_key,
};

/// What was found of the way into the network. Every collection is bounded, whatever others send.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// Each address of an entry point, with the result of a dial to it alone.
    pub(crate) attempts: Vec<Attempt>,
    /// The addresses at which this machine listens, without the loopback. Among them are private
    /// ones.
    pub(crate) own: BTreeSet<IpAddr>,
    /// Addresses at which an entry point has dialled back, or could not.
    pub(crate) tested: BTreeMap<Multiaddr, Result<(), String>>,
    /// Where the router forwards a port to this machine.
    pub(crate) mapped: Option<Multiaddr>,
    /// Why the router forwards none; `None` also where it was not asked or has not answered yet.
    pub(crate) gateway: Option<Gateway>,
    /// The signed manifests that entry points hand out, verified.
    pub(crate) manifests: Vec<Vec<u8>>,
    /// Members of the run that were reached through a relay, and whether a hole was punched to
    /// each; `None` while that is being tried.
    pub(crate) relayed: BTreeMap<PeerId, Option<Result<(), String>>>,
}

/// A dial of one address of an entry point.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The dialled address, with the peer id at its end.
    pub(crate) address: Multiaddr,
    /// Whether its owner typed it; otherwise the entry point named it as another of its own.
    pub(crate) typed: bool,
    /// `None` while there is no answer.
    pub(crate) result: Option<Result<Met, String>>,
    /// The entry point that must answer there.
    peer: PeerId,
    /// The dial, by which its result is recognised.
    connection: ConnectionId,
    /// When the dial began, from which [`Met::took`] is measured.
    begun: Instant,
}

/// An entry point that has answered.
#[derive(Debug)]
pub(crate) struct Met {
    /// From the dial to what the entry point says of itself.
    pub(crate) took: Duration,
    /// The address from which this machine's connection came.
    pub(crate) observed: Multiaddr,
}

/// The examination, and the network that it has opened.
pub(crate) struct Exam {
    /// A swarm of its own, so that an examination never disturbs a running node.
    swarm: Swarm<Patient>,
    /// All that the examination has found so far.
    pub(crate) findings: Examined,
    /// Requests for manifests that are under way.
    asking: JoinSet<Vec<Vec<u8>>>,
    /// Entry points that were asked for manifests, each once.
    asked: BTreeSet<PeerId>,
    /// The run of a manifest, where it verifies.
    run_of: fn(&[u8]) -> Option<RunId>,
}

/// What a node runs without gossip: an examination joins nothing.
#[derive(NetworkBehaviour)]
struct Patient {
    /// Everything that finds peers and ways to them, in the role of a node.
    discovery: Discovery,
    /// Opens streams to entry points, and accepts none.
    streams: streams::Behaviour,
}

/// Why there are no rates of the line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RatesError {
    /// No dial has been answered, so there is nobody to measure with.
    #[error("no entry point is connected")]
    Nobody,
    /// The entry point is an older one, or the stream could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The measurement was refused or broke off; its text is a clause.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

impl Exam {
    /// Opens the network, and dials each entry point. Members are looked for in the runs that
    /// `run_of` finds in what they hand out.
    ///
    /// # Errors
    /// See [`NetError`].
    pub(crate) fn start(
        config: &Config,
        run_of: fn(&[u8]) -> Option<RunId>,
    ) -> Result<Self, NetError> {
        let key = Keypair::ed25519_from_bytes(config.key_seed)?;
        let (transport, relay) = transport::build(&key, None)?;
        let role = Role::Node { scope: config.scope() };
        let patient = Patient {
            discovery: Discovery::new(&key, relay, role),
            streams: streams::Behaviour::new(&[]),
        };
        let me = key.public().to_peer_id();
        let mut swarm = Swarm::new(transport, patient, me, transport::swarm_config());
        listen(&mut swarm, &config.listen)?;
        let (findings, asking) = (Examined::default(), JoinSet::new());
        let mut this = Self { swarm, findings, asking, asked: BTreeSet::new(), run_of };
        let reach = &mut this.swarm.behaviour_mut().discovery.reach;
        if let Some(reach) = reach.as_mut() {
            reach.ask(config.bootstrap.iter().filter_map(address::peer));
        }
        for external in &config.external {
            let candidate = NewExternalAddrCandidate { addr: external };
            reach.on_swarm_event(FromSwarm::NewExternalAddrCandidate(candidate));
        }
        for entry in &config.bootstrap {
            this.dial(entry.clone(), true);
        }
        Ok(this)
    }

    /// Looks until `until`, or until `enough` is cancelled and no more is expected. `doctor`
    /// cancels it once it has examined the machine itself, which takes some time anyhow.
    pub(crate) async fn look(mut self, until: Instant, enough: CancellationToken) -> Self {
        let end = tokio::time::sleep_until(until);
        tokio::pin!(end);
        loop {
            if enough.is_cancelled() && self.is_complete() {
                return self;
            }
            tokio::select! {
                biased;
                () = &mut end => return self,
                Some(done) = self.asking.join_next() => self.on_manifests(done.unwrap_or_default()),
                event = self.swarm.select_next_some() => self.on_event(event),
                // The token and the clock are looked at again.
                () = sleep(TICK) => {}
            }
        }
    }

    /// Measures the line to the first entry point that is connected, on the connection that
    /// answered. What else the network reports meanwhile is dropped: the findings are complete.
    ///
    /// # Errors
    /// See [`RatesError`].
    pub(crate) async fn measure(&mut self) -> Result<Rates, RatesError> {
        let met = self.findings.attempts.iter().find(|a| matches!(a.result, Some(Ok(_))));
        let (peer, connection) = met.map(|a| (a.peer, a.connection)).ok_or(RatesError::Nobody)?;
        let streams = &mut self.swarm.behaviour_mut().streams;
        let opening = streams.open(peer, connection, measure::PROTOCOL);
        let measured = async {
            let stream = opening.await.map_err(|_| OpenError::Closed)??;
            Ok::<Rates, RatesError>(measure::ask(stream, measure::BYTES_MAX).await?)
        };
        let measured = timeout(measure::TIMEOUT, measured);
        tokio::pin!(measured);
        loop {
            tokio::select! {
                rates = &mut measured => {
                    return rates.unwrap_or_else(|_| Err(MeasureError::Late.into()));
                }
                _ = self.swarm.select_next_some() => {}
            }
        }
    }

    /// Whether everything that can be expected has come: a result for each dial, and for each
    /// relayed member whether a hole was punched. If an entry point is connected, the router must
    /// have answered (where it is asked), and one address must have been dialled back. Behind a
    /// closed router the latter never happens, so the search lasts until its end there.
    fn is_complete(&self) -> bool {
        let Examined { attempts, tested, gateway, mapped, relayed, .. } = &self.findings;
        let upnp = !self.swarm.behaviour().discovery.upnp.is_enabled()
            || gateway.is_some()
            || mapped.is_some();
        let met = attempts.iter().any(|a| matches!(a.result, Some(Ok(_))));
        attempts.iter().all(|attempt| attempt.result.is_some())
            && (!met || (upnp && tested.values().any(Result::is_ok)))
            && relayed.values().all(Option::is_some)
    }

    /// Dials one address alone, whatever other connections there are, so that its result is its
    /// own. An address without a peer id at its end is left out.
    fn dial(&mut self, address: Multiaddr, typed: bool) {
        let Some(peer) = address::peer(&address) else { return };
        let options = DialOpts::peer_id(peer)
            .condition(PeerCondition::Always)
            .addresses(vec![address.clone()])
            .build();
        let (connection, begun) = (options.connection_id(), Instant::now());
        let result = self.swarm.dial(options).err().map(|error| Err(cause(error)));
        let attempt = Attempt { address, typed, result, peer, connection, begun };
        self.findings.attempts.push(attempt);
    }

    /// Takes one event of the swarm. Addresses of the loopback say nothing about the way out, so
    /// they are left out.
    fn on_event(&mut self, event: SwarmEvent<PatientEvent>) {
        match event {
            SwarmEvent::NewListenAddr { address, .. }
                if address::scope(&address) > Some(Scope::Loopback) =>
            {
                self.findings.own.extend(host(&address));
            }
            SwarmEvent::OutgoingConnectionError { connection_id, error, .. } => {
                if let Some(attempt) = self.attempt(connection_id) {
                    attempt.result = Some(Err(cause(error)));
                }
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                self.swarm.behaviour_mut().discovery.connected(peer_id);
                if endpoint.is_relayed() {
                    self.relayed(peer_id);
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, .. } => {
                self.swarm.behaviour_mut().discovery.closed(&peer_id);
            }
            SwarmEvent::Behaviour(PatientEvent::Discovery(event)) => self.on_discovery(event),
            _ => {}
        }
    }

    /// Takes one event of discovery.
    fn on_discovery(&mut self, event: DiscoveryEvent) {
        match path(&event) {
            Some(Path::Tested { address, result }) if self.findings.tested.len() < TESTED_MAX => {
                self.findings.tested.insert(address, result);
            }
            Some(Path::Mapped { address, result: Ok(()) }) => self.findings.mapped = Some(address),
            Some(Path::Gateway(gateway)) => self.findings.gateway = Some(gateway),
            Some(Path::Punched { peer, result }) => {
                if let Some(punched) = self.relayed(peer) {
                    *punched = Some(result);
                }
            }
            _ => {}
        }
        match event {
            DiscoveryEvent::Identify(identify::Event::Received {
                connection_id,
                peer_id,
                info,
            }) => self.on_identified(connection_id, peer_id, info),
            DiscoveryEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result:
                    QueryResult::GetProviders(Ok(kad::GetProvidersOk::FoundProviders {
                        providers, ..
                    })),
                ..
            }) => {
                for peer in providers.into_iter().take(MEMBERS_MAX) {
                    // Kademlia knows its addresses. A dial that fails is one member fewer.
                    let _ = self.swarm.dial(peer);
                }
            }
            _ => {}
        }
    }

    /// An entry point has said what it is. Its other transport at the same host is dialled too,
    /// since a firewall may pass only one of them.
    fn on_identified(&mut self, connection: ConnectionId, peer: PeerId, info: identify::Info) {
        let Some(attempt) = self.attempt(connection) else { return };
        let (took, observed) = (attempt.begun.elapsed(), info.observed_addr.clone());
        attempt.result.get_or_insert(Ok(Met { took, observed }));
        let seen = attempt.address.clone();
        self.swarm.behaviour_mut().discovery.learn(peer, &info, &seen);
        // The other transport at the same host, unless it was typed too.
        let tried = |at: &Multiaddr| {
            let all = &self.findings.attempts;
            all.iter().any(|a| {
                a.peer == peer
                    && host(&a.address) == host(at)
                    && address::is_tcp(&a.address) == address::is_tcp(at)
            })
        };
        let other = info.listen_addrs.iter().find(|at| host(at) == host(&seen) && !tried(at));
        if let Some(other) = other.cloned()
            && self.findings.attempts.len() < ATTEMPTS_MAX
        {
            self.dial(address::with_peer(other, peer), false);
        }
        if self.asked.insert(peer) {
            let streams = &mut self.swarm.behaviour_mut().streams;
            let opening = streams.open(peer, connection, manifest::PROTOCOL);
            self.asking.spawn(async move {
                let exchange = async { manifest::ask(opening.await.ok()?.ok()?, None).await.ok() };
                timeout(ASK_PATIENCE, exchange).await.ok().flatten().unwrap_or_default()
            });
        }
    }

    /// Takes manifests, and looks for members of their runs: a hole may be needed to one of them.
    fn on_manifests(&mut self, files: Vec<Vec<u8>>) {
        for file in files {
            let known = self.findings.manifests.contains(&file);
            if !known && let Some(run) = (self.run_of)(&file) {
                self.swarm.behaviour_mut().discovery.kademlia.get_providers(record_key(run));
                self.findings.manifests.push(file);
            }
        }
    }

    /// The row of a peer that was reached through a relay. Peers beyond the bound have none:
    /// anybody may come that way.
    fn relayed(&mut self, peer: PeerId) -> Option<&mut Option<Result<(), String>>> {
        let relayed = &mut self.findings.relayed;
        let has_room = relayed.len() < RELAYED_MAX || relayed.contains_key(&peer);
        has_room.then(|| relayed.entry(peer).or_default())
    }

    /// The row of a dial that this examination made.
    fn attempt(&mut self, connection: ConnectionId) -> Option<&mut Attempt> {
        self.findings.attempts.iter_mut().find(|attempt| attempt.connection == connection)
    }
}

/// The port of an address, of TCP or of UDP.
pub(crate) fn port(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| match part {
        Protocol::Tcp(port) | Protocol::Udp(port) => Some(port),
        _ => None,
    })
}

/// Why a dial has failed, as a clause.
fn cause(error: DialError) -> String {
    match error {
        DialError::Transport(failures) => {
            let causes = failures.into_iter().map(|(_, error)| match error {
                TransportError::MultiaddrNotSupported(_) => {
                    "neither a TCP nor a QUIC address".to_owned()
                }
                TransportError::Other(error) => root_cause(error).to_string(),
            });
            causes.collect::<Vec<_>>().join(", ")
        }
        DialError::WrongPeerId { obtained, .. } => {
            format!("somebody else answers there: {obtained}; is the address an old one?")
        }
        other => other.to_string(),
    }
}

/// How late it is noticed that the search may end.
const TICK: Duration = Duration::from_millis(100);
/// Time for the manifests of one entry point. What comes later is missing in the report.
const ASK_PATIENCE: Duration = Duration::from_secs(3);
/// Dials of entry points; people type two or three.
const ATTEMPTS_MAX: usize = 16;
/// AutoNAT tests at most ten addresses.
const TESTED_MAX: usize = 16;
/// Peers that come through a relay while this looks; a few are dialled on purpose.
const RELAYED_MAX: usize = 16;
/// Members that are dialled to see how they are reached.
const MEMBERS_MAX: usize = 4;
