//! Several networks and one entry point in this process, over loopback TCP with ports from the
//! system. Every wait has a deadline.

mod invited;
mod silent;
mod strangers;

use std::{
    collections::HashSet,
    io::ErrorKind,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{AsyncReadExt as _, AsyncWriteExt as _, StreamExt as _};
use intellect_bootstrap::{address, frame, manifest, server, streams, transport};
use libp2p::{
    Multiaddr, StreamProtocol, Swarm, identity::Keypair, multiaddr::Protocol, swarm::SwarmEvent,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::timeout,
};

use super::{interface::REQUEST_BYTES_MAX, *};

/// A handle to no network at all, and how many heartbeats it was given.
pub(crate) fn counted() -> (Handle, Arc<AtomicUsize>) {
    let (commands, mut inbox) = mpsc::channel(COMMANDS);
    let count = Arc::new(AtomicUsize::new(0));
    let beats = Arc::clone(&count);
    tokio::spawn(async move {
        while let Some(call) = inbox.recv().await {
            if matches!(call, Command::Gossip { topic: Topic::Beat, .. }) {
                beats.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (Handle { commands, shared: Arc::new(Shared::new(0)) }, count)
}

/// A handle to a network with these members, which answer requests so; and the peers that were blamed.
pub(crate) fn played(
    members: &[PeerId],
    answer: impl Fn(PeerId, &[u8]) -> Result<Vec<u8>, Failure> + Send + 'static,
) -> (Handle, Arc<std::sync::Mutex<Vec<PeerId>>>) {
    let (commands, mut inbox) = mpsc::channel(COMMANDS);
    let blamed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (named, found) = (Arc::clone(&blamed), members.to_vec());
    tokio::spawn(async move {
        while let Some(call) = inbox.recv().await {
            match call {
                Command::Fetch { peer, request, reply } => drop(reply.send(answer(peer, &request))),
                Command::Sought { reply } => {
                    let left = |peer: &PeerId| named.lock().unwrap().contains(peer);
                    let found = found.iter().filter(|peer| !left(peer)).copied().collect();
                    drop(reply.send(Ok(found)));
                }
                Command::Fault { peer, .. } | Command::Drop { peer, .. } => {
                    named.lock().unwrap().push(peer);
                }
                _ => {}
            }
        }
    });
    let shared = Shared::new(0);
    members.iter().for_each(|member| shared.set_queue(*member, Some(mpsc::channel(1).0)));
    (Handle { commands, shared: Arc::new(shared) }, blamed)
}

const DEADLINE: Duration = Duration::from_secs(30);
const RUN: RunId = RunId([9; 32]);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

/// An entry point; ends when dropped.
struct Entry {
    address: Multiaddr,
    _stop: tokio_util::sync::DropGuard,
    task: JoinHandle<()>,
}

async fn entry(seed: u8, listen: &str) -> Entry {
    let config = server::Config {
        key: Keypair::ed25519_from_bytes([seed; 32]).unwrap(),
        listen: vec![listen.parse().unwrap()],
        external: Vec::new(),
        offers: vec![server::Offer {
            run: [9; 32],
            manifest: b"a manifest".to_vec().into(),
            notices: std::path::PathBuf::new(),
        }],
        unlisted: false,
        measure_rate: 0,
        line: None,
    };
    let (announce, mut announced) = mpsc::channel(4);
    let stop = CancellationToken::new();
    let (guard, stopped) = (stop.clone().drop_guard(), stop.cancelled_owned());
    let task = tokio::spawn(async move {
        let announce = move |event| {
            if let server::Event::Address { address, .. } = event {
                announce.try_send(address).unwrap();
            }
        };
        server::serve(config, announce, stopped).await.unwrap();
    });
    let address = soon("listening", announced.recv()).await.unwrap();
    Entry { address, _stop: guard, task }
}

/// A node whose gossip is always accepted and whose requests are answered in capitals.
struct Node {
    id: PeerId,
    net: Net,
    stop: CancellationToken,
}

fn config(seed: u8, bootstrap: &[Multiaddr]) -> Config {
    Config {
        key_seed: [seed; 32],
        listen: vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()],
        bootstrap: bootstrap.to_vec(),
        ..Config::default()
    }
}

impl Node {
    fn new(seed: u8, bootstrap: &[Multiaddr]) -> Self {
        Self::start(config(seed, bootstrap))
    }

    fn start(config: Config) -> Self {
        let key = Keypair::ed25519_from_bytes(config.key_seed).unwrap();
        let id = name::from_libp2p(&key.public().to_peer_id()).unwrap();
        let stop = CancellationToken::new();
        Self { id, net: start(config, stop.clone()).unwrap(), stop }
    }

    /// The first thing that `pick` takes from the events.
    async fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        soon(what, async {
            loop {
                let event = self.net.events.recv().await.expect("the network runs");
                let picked = pick(&event);
                match event {
                    Event::Message { via: Via::Gossip(token), .. } => {
                        self.net.handle.verdict(token, Verdict::Accept);
                    }
                    Event::Fetch { request, reply, .. } => {
                        reply.send(request.to_ascii_uppercase());
                    }
                    _ => {}
                }
                if let Some(picked) = picked {
                    return picked;
                }
            }
        })
        .await
    }

    /// The same for what has to be taken to be answered.
    async fn until_owned<T>(&mut self, what: &str, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        soon(what, async {
            loop {
                let event = self.net.events.recv().await.expect("the network runs");
                if let Some(picked) = pick(event) {
                    return picked;
                }
            }
        })
        .await
    }

    async fn linked(&mut self, count: usize) {
        let mut linked = HashSet::new();
        self.until("all links", |event| {
            match event {
                Event::Connected { peer, link: Link::Direct } => linked.insert(*peer),
                Event::Disconnected { peer, .. } => linked.remove(peer),
                _ => false,
            };
            (linked.len() == count).then_some(())
        })
        .await;
    }

    async fn hears(&mut self, bytes: &[u8]) -> (PeerId, Via) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.until(&text, |event| match event {
            Event::Message { from, via, bytes: heard, .. } if heard == bytes => {
                Some((*from, via.clone()))
            }
            _ => None,
        })
        .await
    }

    async fn loses(&mut self, who: PeerId) -> String {
        self.until("a loss", |event| match event {
            Event::Disconnected { peer, cause } if *peer == who => Some(cause.clone()),
            _ => None,
        })
        .await
    }
}

/// Nodes 1 to `count`, all linked to one another.
async fn run_of(count: u8, entry: &Entry) -> Vec<Node> {
    let mut nodes = Vec::new();
    for seed in 1..=count {
        let node = Node::new(seed, std::slice::from_ref(&entry.address));
        node.net.handle.join(RUN, b"a manifest".to_vec()).await.unwrap();
        nodes.push(node);
    }
    for node in &mut nodes {
        node.linked(usize::from(count) - 1).await;
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_meet_through_the_entry_point_and_talk() {
    let entry = entry(100, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(4, &entry).await;
    let offers = nodes[0].net.handle.manifests(Some(RUN), Offerers::Everybody).await.unwrap();
    // The entry point and, once it is asked, every peer of the run.
    assert!(offers.iter().all(|offer| offer.bytes == b"a manifest") && offers.len() > 1);
    assert!(!nodes[0].net.handle.addresses().is_empty());

    for from in 0..nodes.len() {
        let everybody = format!("gossip of {from}").into_bytes();
        nodes[from].net.handle.gossip(Topic::Beat, everybody.clone()).unwrap();
        let sender = nodes[from].id;
        for to in (0..nodes.len()).filter(|to| *to != from) {
            assert!(matches!(nodes[to].hears(&everybody).await.1, Via::Gossip(_)));
            let one = format!("from {from} to {to}").into_bytes();
            let receiver = nodes[to].id;
            nodes[from].net.handle.send(receiver, one.clone()).unwrap();
            assert_eq!(nodes[to].hears(&one).await, (sender, Via::Direct));
        }
    }

    let handle = nodes[0].net.handle.clone();
    let asked = nodes[1].id;
    let large = vec![b'x'; REQUEST_BYTES_MAX as usize];
    for request in [b"a question".to_vec(), Vec::new(), large] {
        let expected = request.to_ascii_uppercase();
        let answer = tokio::spawn({
            let handle = handle.clone();
            async move { handle.fetch(asked, request).await }
        });
        nodes[1].until("a request", |e| matches!(e, Event::Fetch { .. }).then_some(())).await;
        assert_eq!(soon("an answer", answer).await.unwrap().unwrap(), expected);
    }
    assert_eq!(handle.send(asked, vec![0; 1024 * 1024 + 1]), Err(SendError::TooLong));
    assert_eq!(handle.gossip(Topic::Ctl, vec![0; 64 * 1024 + 1]), Err(SendError::TooLong));
    assert_eq!(handle.send(PeerId([7; 32]), vec![0]), Err(SendError::NoStream));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_stream_carries_both_ways_at_once_beside_messages() {
    const BYTES: usize = 64 << 20;
    let entry = entry(101, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let (one, two) = (nodes[0].id, nodes[1].id);
    let opened = nodes[0].net.handle.open_ring(two).await.unwrap();
    let ring = soon("a ring stream", nodes[1].net.rings.recv()).await.unwrap();
    let accepted = ring.stream;
    assert_eq!(ring.from, one);
    let mut work = JoinSet::new();
    for stream in [opened, accepted] {
        // Both ends write before either has read it all: what a stream that cannot do both at once
        // does not survive.
        let (mut reader, mut writer) = tokio::io::split(stream);
        work.spawn(async move {
            let chunk: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
            for _ in 0..BYTES / chunk.len() {
                writer.write_all(&chunk).await.unwrap();
            }
            writer.flush().await.unwrap();
            // Kept open: dropping it would reset what is under way.
            std::future::pending::<()>().await;
        });
        work.spawn(async move {
            let mut chunk = vec![0; 1 << 20];
            for _ in 0..BYTES / chunk.len() {
                reader.read_exact(&mut chunk).await.unwrap();
                assert!(chunk.iter().zip((0..=255).cycle()).all(|(a, b)| *a == b));
            }
        });
    }
    nodes[0].net.handle.send(two, b"meanwhile".to_vec()).unwrap();
    nodes[1].hears(b"meanwhile").await;
    for _ in 0..2 {
        soon("64 MiB each way", work.join_next()).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_measure_the_round_trip_to_one_another() {
    let entry = entry(108, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let ids = [nodes[0].id, nodes[1].id];
    for (node, other) in nodes.iter_mut().zip(ids.into_iter().rev()) {
        let measured = node.until("a round trip", |event| match event {
            Event::RoundTrip { peer, length } => Some((*peer, *length)),
            _ => None,
        });
        // The entry point is measured too, but is no member.
        let (peer, length) = measured.await;
        assert_eq!(peer, other);
        assert!(!length.is_zero() && length < DEADLINE, "{length:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_needs_the_entry_point_after_entering() {
    let first = entry(102, "/ip4/127.0.0.1/tcp/0").await;
    let address = first.address.clone();
    let mut nodes = run_of(3, &first).await;
    let Entry { _stop, task, .. } = first;
    drop(_stop);
    soon("the end of the entry point", task).await.unwrap();
    nodes[0].net.handle.gossip(Topic::Ctl, b"still here".to_vec()).unwrap();
    for node in &mut nodes[1..] {
        node.hears(b"still here").await;
    }
    // At the same address and with the same key it lets others in again.
    let listen = address.to_string();
    let again = entry(102, listen.split("/p2p").next().unwrap()).await;
    assert_eq!(again.address, address);
    let late = Node::new(4, &[address]);
    late.net.handle.join(RUN, Vec::new()).await.unwrap();
    nodes.push(late);
    nodes[3].linked(3).await;
}

/// No entry point is left that could test who can be dialled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_that_enters_by_a_member_meets_all_others() {
    // Somewhere on the internet, by a transport that no node has: it is never dialled.
    let peer = libp2p::PeerId::random();
    let gone: Multiaddr = format!("/ip4/203.0.113.7/tcp/1/ws/p2p/{peer}").parse().unwrap();
    let listening = |event: &Event| matches!(event, Event::Listening).then_some(());
    let mut first = Node::new(1, std::slice::from_ref(&gone));
    first.until("listening", listening).await;
    let contacts = first.net.handle.addresses();
    let mut second = Node::start(Config { contacts, ..config(2, &[gone]) });
    second.until("listening", listening).await;
    let mut newcomer = Node::new(3, &second.net.handle.addresses());
    for node in [&first, &second, &newcomer] {
        node.net.handle.join(RUN, Vec::new()).await.unwrap();
    }
    newcomer.linked(2).await;
    first.linked(2).await;
    second.linked(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_peer_is_noticed_and_a_dropped_one_stays_out() {
    let entry = entry(103, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(3, &entry).await;
    let last = nodes.pop().unwrap();
    let dead = last.id;
    last.stop.cancel();
    soon("a clean end", last.net.task).await.unwrap();
    for node in &mut nodes {
        node.loses(dead).await;
        assert_eq!(node.net.handle.send(dead, vec![1]), Err(SendError::NoStream));
        assert!(matches!(node.net.handle.fetch(dead, vec![1]).await, Err(Failure::Refused)));
        assert!(matches!(node.net.handle.open_ring(dead).await, Err(StreamError::NotConnected)));
    }
    let mut back = Node::new(3, std::slice::from_ref(&entry.address));
    back.net.handle.join(RUN, Vec::new()).await.unwrap();
    back.linked(2).await;
    nodes[0].linked(1).await;
    let one = nodes[0].id;
    nodes[0].net.handle.drop_peer(dead, "a test");
    assert_eq!(nodes[0].loses(dead).await, "dropped: a test");
    back.loses(one).await;
    let two = nodes[1].id;
    back.net.handle.send(two, b"kept".to_vec()).unwrap();
    nodes[1].hears(b"kept").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_entry_point_is_named_with_what_failed_and_what_to_do() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let peer = libp2p::PeerId::random();
    let one: Multiaddr = format!("/ip4/127.0.0.1/tcp/{gone}/p2p/{peer}").parse().unwrap();
    // Somebody else lives at the second address.
    let other = entry(104, "/ip4/127.0.0.1/tcp/0").await;
    let bare = other.address.to_string();
    let peer = libp2p::PeerId::random();
    let two = format!("{}/p2p/{peer}", bare.split("/p2p").next().unwrap()).parse().unwrap();
    let node = Node::new(1, &[one.clone(), two]);
    let error =
        soon("an error", node.net.handle.manifests(None, Offerers::Named)).await.unwrap_err();
    let text = error.to_string();
    for part in [&one.to_string(), "refused", "somebody else answers", "Check that it runs"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let alone = Node::new(2, &[]);
    let error =
        soon("an error", alone.net.handle.manifests(None, Offerers::Named)).await.unwrap_err();
    assert!(matches!(error, OfferError::NoEntry), "{error}");
    // One entry point that works is enough.
    let mixed = Node::new(3, &[one, other.address.clone()]);
    let offers = soon("offers", mixed.net.handle.manifests(None, Offerers::Named)).await.unwrap();
    assert_eq!(offers[0].bytes, b"a manifest");
}

/// A peer that has dialled us and hands out a run of its own making is not asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_run_only_what_the_named_entry_points_hand_out_counts() {
    let entry = entry(110, "/ip4/127.0.0.1/tcp/0").await;
    let mut newcomer = Node::new(1, std::slice::from_ref(&entry.address));
    newcomer.until("listening", |e| matches!(e, Event::Listening).then_some(())).await;
    newcomer.net.handle.join(RUN, b"a manifest".to_vec()).await.unwrap();
    let address = newcomer.net.handle.addresses()[0].clone();
    let liar = Node::new(2, &[address]);
    liar.net.handle.join(RUN, b"another one".to_vec()).await.unwrap();
    newcomer.linked(1).await;
    let handle = &newcomer.net.handle;
    let named = soon("offers", handle.manifests(None, Offerers::Named)).await.unwrap();
    assert!(named.iter().all(|offer| offer.bytes == b"a manifest"), "{named:?}");
    let all = soon("offers", handle.manifests(None, Offerers::Everybody)).await.unwrap();
    assert!(all.iter().any(|offer| offer.bytes == b"another one"), "{all:?}");
}

/// Gossip has one conversation with a key, so this is how a third tells two programs of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_hears_both_programs_that_have_one_key_and_both_hear_it() {
    let entry = entry(109, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let original = nodes.pop().unwrap();
    let (mut third, twins) = (nodes.pop().unwrap(), original.id);
    let copy = Node::new(2, std::slice::from_ref(&entry.address));
    copy.net.handle.join(RUN, b"a manifest".to_vec()).await.unwrap();
    let mut work = JoinSet::new();
    for (mut node, beat) in [(original, b"original"), (copy, b"the copy")] {
        let handle = node.net.handle.clone();
        work.spawn(async move { node.hears(b"there are two").await.1 });
        work.spawn(async move {
            loop {
                handle.knock(beat.to_vec());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    for beat in [b"original", b"the copy"] {
        assert_eq!(third.hears(beat).await, (twins, Via::Direct));
    }
    third.net.handle.send_to_all(twins, b"there are two".to_vec());
    for _ in 0..2 {
        let heard = soon("the word to each of the two", work.join_next()).await;
        assert_eq!(heard.unwrap().unwrap(), Via::Direct);
    }
}

/// The copy came while the original was connected, and received no subscriptions: its connections are closed,
/// so that others begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_taken_for_another_program_is_in_the_gossip_once_that_has_ended() {
    let entry = entry(108, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let original = nodes.pop().unwrap();
    let mut third = nodes.pop().unwrap();
    let mut copy = Node::new(2, std::slice::from_ref(&entry.address));
    copy.net.handle.join(RUN, b"a manifest".to_vec()).await.unwrap();
    let (thirds, copies) = (third.net.handle.clone(), copy.net.handle.clone());
    let mut work = JoinSet::new();
    work.spawn(async move {
        loop {
            thirds.knock(b"a third".to_vec());
            copies.gossip(Topic::Ctl, b"at last".to_vec()).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert_eq!(copy.hears(b"a third").await, (third.id, Via::Direct));
    original.stop.cancel();
    let (id, handle) = (third.id, copy.net.handle.clone());
    work.spawn(async move {
        copy.until("no end", |event| {
            let knocked = matches!(event, Event::Message { via: Via::Direct, .. });
            knocked.then(|| handle.spoke(id)).and(None::<()>)
        })
        .await;
    });
    assert!(matches!(third.hears(b"at last").await.1, Via::Gossip(_)));
}

/// As a node listens by default: every interface, TCP and QUIC, IPv6 where there is any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_listen_everywhere_meet_once() {
    let entry = entry(107, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = Vec::new();
    for seed in [1, 2] {
        let mut config = config(seed, std::slice::from_ref(&entry.address));
        config.listen = ["ip4/0.0.0.0", "ip6/::"]
            .iter()
            .flat_map(|ip| [format!("/{ip}/udp/0/quic-v1"), format!("/{ip}/tcp/0")])
            .map(|address| address.parse().unwrap())
            .collect();
        let node = Node::start(config);
        node.net.handle.join(RUN, Vec::new()).await.unwrap();
        nodes.push(node);
    }
    nodes[0].linked(1).await;
    nodes[1].linked(1).await;
    let (one, two) = (nodes[0].id, nodes[1].id);
    let _ring = nodes[0].net.handle.open_ring(two).await.unwrap();
    assert_eq!(soon("a ring stream", nodes[1].net.rings.recv()).await.unwrap().from, one);
    nodes[0].stop.cancel();
    assert!(nodes[1].loses(one).await.contains("the connection ended"));
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(1, &[]);
    let port = taken.local_addr().unwrap().port();
    config.listen = vec![format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap()];
    let Err(error) = start(config, CancellationToken::new()) else { panic!("it started") };
    assert!(error.to_string().contains("choose another port"), "{error}");
}

/// A peer outside the run that is connected and opens a stream of one of our protocols.
async fn opened(
    target: Multiaddr,
    protocol: &'static str,
) -> (Swarm<streams::Behaviour>, streams::Opening) {
    let key = Keypair::generate_ed25519();
    let (transport, _) = transport::build(&key, None).unwrap();
    let me = key.public().to_peer_id();
    let behaviour = streams::Behaviour::new(&[]);
    let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
    swarm.dial(target).unwrap();
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                let protocol = StreamProtocol::new(protocol);
                let opening = swarm.behaviour_mut().open(peer_id, connection_id, protocol);
                return (swarm, opening);
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
}

/// A peer that misuses the protocol: it writes `bytes`. Ends when the node has thrown it out.
async fn misbehave(target: Multiaddr, protocol: &'static str, bytes: Vec<u8>) {
    let (mut swarm, opening) = opened(target, protocol).await;
    tokio::spawn(async move {
        let mut stream = opening.await.unwrap().unwrap();
        let _ = stream.write_all(&bytes).await;
        let _ = stream.flush().await;
        let _ = stream.read(&mut [0; 64]).await;
        std::future::pending::<()>().await;
    });
    while !matches!(swarm.select_next_some().await, SwarmEvent::ConnectionClosed { .. }) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_length_above_the_limit_is_dropped_and_nobody_else_notices() {
    let entry = entry(105, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let target = nodes[0].net.handle.addresses()[0].clone();
    let mut flood = Vec::new();
    for _ in 0..400 {
        frame::write(&mut flood, b"again").await.unwrap();
    }
    let long = || vec![0xff; 64];
    for (protocol, bytes, why) in [
        ("/intellect/ctl/1", long(), "bytes where at most"),
        ("/intellect/ctl/1", flood, "64 messages"),
        ("/intellect/fetch/2", long(), "a request: "),
        ("/intellect/manifest/1", long(), "a request for manifests: "),
        ("/intellect/manifest/1", vec![3, 0, 0, 0, 1, 2, 3], "a request of 3 bytes"),
    ] {
        let bad = tokio::spawn(misbehave(target.clone(), protocol, bytes));
        // Faults of the flood may still come meanwhile.
        let named = nodes[0].until(why, |event| match event {
            Event::Fault { why: text, .. } => text.contains(why).then_some(()),
            _ => None,
        });
        named.await;
        soon("being thrown out", bad).await.unwrap();
    }
    // Bytes that are not even libp2p, at the node and at the entry point.
    for target in [target, entry.address.clone()] {
        let parts: Vec<_> = target.iter().collect();
        let [Protocol::Ip4(ip), Protocol::Tcp(port), ..] = parts[..] else { panic!("{target}") };
        let mut raw = tokio::net::TcpStream::connect((ip, port)).await.unwrap();
        raw.write_all(&[0xff; 100_000]).await.unwrap();
        // Closed, or reset with bytes unread.
        let end = soon("the end of it", raw.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    }
    let (one, two) = (nodes[0].id, nodes[1].id);
    nodes[1].net.handle.send(one, b"unharmed".to_vec()).unwrap();
    assert_eq!(nodes[0].hears(b"unharmed").await.0, two);
    let offers =
        soon("offers", nodes[1].net.handle.manifests(None, Offerers::Named)).await.unwrap();
    assert!(offers.iter().all(|offer| offer.bytes == b"a manifest"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_driver_rejects_counts_against_whoever_brought_it() {
    let entry = entry(106, "/ip4/127.0.0.1/tcp/0").await;
    let mut nodes = run_of(2, &entry).await;
    let bad = nodes[1].id;
    for index in 0..peers::FAULTS_MAX {
        nodes[1].net.handle.gossip(Topic::Ctl, format!("bad {index}").into()).unwrap();
        let token = nodes[0].until("bad gossip", |event| match event {
            Event::Message { via: Via::Gossip(token), .. } => Some(token.clone()),
            _ => None,
        });
        let token = token.await;
        nodes[0].net.handle.verdict(token, Verdict::Reject);
        nodes[0].net.handle.fault(bad, "a test");
        nodes[0].until("a fault", |e| matches!(e, Event::Fault { .. }).then_some(())).await;
    }
    assert!(nodes[0].loses(bad).await.starts_with("dropped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_comes_from_any_peer() {
    // The entry point of the second is a plain node that has joined.
    let mut first = Node::new(1, &[]);
    first.net.handle.join(RUN, b"from a peer".to_vec()).await.unwrap();
    let (mut listens, mut local) = (false, false);
    let known = first.until("listening and its reachability", |event| {
        listens |= matches!(event, Event::Listening);
        local |= matches!(event, Event::Reachability(Reachability::Local));
        (listens && local).then_some(())
    });
    known.await;
    let address = first.net.handle.addresses()[0].clone();
    assert!(address::peer(&address).is_some());
    let second = Node::new(2, &[address]);
    let offers =
        soon("offers", second.net.handle.manifests(Some(RUN), Offerers::Everybody)).await.unwrap();
    assert_eq!(offers[0].bytes, b"from a peer");
    let other =
        soon("none", second.net.handle.manifests(Some(RunId([1; 32])), Offerers::Everybody)).await;
    assert!(matches!(other, Err(OfferError::AnotherRun { .. })));
    assert_eq!(manifest::FILES_MAX, 16);
}
