//! The entry point from outside: it hands out manifests to a peer that knows only its address, and
//! refuses addresses at which it cannot serve.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    future,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{
    manifest,
    server::{self, Config, Offer},
    streams, transport,
};
use libp2p::{Multiaddr, StreamProtocol, Swarm, identity::Keypair, swarm::SwarmEvent};
use tokio::{sync::mpsc, task::JoinHandle};

fn config(listen: &str) -> Config {
    Config {
        key: Keypair::generate_ed25519(),
        listen: vec![listen.parse().unwrap()],
        external: Vec::new(),
        offers: vec![Offer {
            run: RUN,
            manifest: b"a signed file".as_slice().into(),
            notices: PathBuf::new(),
        }],
        unlisted: false,
        measure_rate: 0,
        line: None,
    }
}

/// The same, but only for peers that name the run, with notices at `notices`.
fn unlisted(notices: &Path) -> Config {
    let mut config = config("/ip4/127.0.0.1/tcp/0");
    config.unlisted = true;
    config.offers[0].notices = notices.to_owned();
    config
}

const RUN: [u8; 32] = [7; 32];

/// An entry point that serves until its task is dropped, and the first address that it announces.
async fn start(listen: &str) -> (JoinHandle<()>, Multiaddr) {
    start_with(config(listen)).await
}

async fn start_with(config: Config) -> (JoinHandle<()>, Multiaddr) {
    let (announce, mut announced) = mpsc::channel(9);
    let serve = async move {
        let announce = |event| {
            if let server::Event::Address { address, .. } = event {
                announce.try_send(address).unwrap();
            }
        };
        server::serve(config, announce, future::pending()).await.unwrap();
    };
    let task = tokio::spawn(serve);
    (task, announced.recv().await.unwrap())
}

async fn fails(listen: &str) -> String {
    let serve = server::serve(config(listen), |_| panic!("announced"), future::pending());
    serve.await.unwrap_err().to_string()
}

/// A peer that asks the entry at `address` for all manifests.
async fn ask(address: Multiaddr) -> Vec<Vec<u8>> {
    ask_for(address, manifest::PROTOCOL, None).await
}

/// Asks for the manifests or the notices of `run`.
async fn ask_for(
    address: Multiaddr,
    protocol: StreamProtocol,
    run: Option<[u8; 32]>,
) -> Vec<Vec<u8>> {
    let key = Keypair::generate_ed25519();
    let (transport, _) = transport::build(&key, None).unwrap();
    let behaviour = streams::Behaviour::new(&[]);
    let me = key.public().to_peer_id();
    let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
    swarm.dial(address).unwrap();
    let opening = loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                break swarm.behaviour_mut().open(peer_id, connection_id, protocol.clone());
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => panic!("{error}"),
            _ => {}
        }
    };
    tokio::select! {
        files = async {
            let stream = opening.await.unwrap().unwrap();
            match run {
               Some(run) if protocol == manifest::NOTICES => {
                   manifest::ask_notices(stream, run).await
               }
               run => manifest::ask(stream, run).await,
            }
        } => files.unwrap(),
        () = async { loop { swarm.select_next_some().await; } } => unreachable!(),
    }
}

#[tokio::test]
async fn a_peer_that_knows_only_the_announced_address_gets_the_manifests() {
    for listen in ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"] {
        let (_server, address) = start(listen).await;
        let files = tokio::time::timeout(Duration::from_secs(20), ask(address)).await.unwrap();
        assert_eq!(files, [b"a signed file"]);
    }
}

#[tokio::test]
async fn an_unlisted_run_is_for_peers_that_name_it() {
    let (_server, address) = start_with(unlisted(Path::new("/absent"))).await;
    for (named, files) in [(None, 0), (Some([8; 32]), 0), (Some(RUN), 1)] {
        let asked = ask_for(address.clone(), manifest::PROTOCOL, named).await;
        assert_eq!(asked.len(), files, "{named:?}");
    }
}

/// Notices appear later than the manifest, and nobody restarts the entry point for them.
#[tokio::test]
async fn the_notices_beside_a_manifest_are_handed_out_as_they_are_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.notices");
    let (_server, address) = start_with(unlisted(&path)).await;
    let asked = async |run| ask_for(address.clone(), manifest::NOTICES, Some(run)).await;
    assert!(asked(RUN).await.is_empty());
    std::fs::write(&path, manifest::notices_file([b"one".as_slice(), b"two"])).unwrap();
    assert_eq!(asked(RUN).await, [b"one", b"two"]);
    assert!(asked([8; 32]).await.is_empty());
}

/// A peer that opens 100 streams to the entry at `address` and sends nothing on them.
async fn occupy(address: Multiaddr) -> JoinHandle<()> {
    let (occupied, waiting) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let key = Keypair::generate_ed25519();
        let (transport, _) = transport::build(&key, None).unwrap();
        let me = key.public().to_peer_id();
        let behaviour = streams::Behaviour::new(&[]);
        let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
        swarm.dial(address).unwrap();
        let (mut occupied, mut openings, mut open) = (Some(occupied), Vec::new(), Vec::new());
        loop {
            match swarm.select_next_some().await {
                SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                    let streams = swarm.behaviour_mut();
                    let request = |_| streams.open(peer_id, connection_id, manifest::PROTOCOL);
                    openings = (0..100).map(request).collect();
                }
                event => drop(event),
            }
            for opening in &mut openings {
                open.extend(opening.try_recv().ok().flatten());
            }
            if open.len() >= 64
                && let Some(occupied) = occupied.take()
            {
                occupied.send(()).unwrap();
            }
        }
    });
    let opened = tokio::time::timeout(Duration::from_secs(3), waiting).await;
    drop(opened);
    task
}

/// A silent peer uses up its own streams and nobody else's.
#[tokio::test]
async fn silent_streams_of_one_peer_keep_nobody_from_the_manifests() {
    let (_server, address) = start("/ip4/127.0.0.1/tcp/0").await;
    let silent = occupy(address.clone()).await;
    let files = tokio::time::timeout(Duration::from_secs(5), ask(address)).await.unwrap();
    assert_eq!(files, [b"a signed file"]);
    silent.abort();
}

#[tokio::test]
async fn a_port_in_use_is_named_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let error = fails(&plain).await;
    assert!(error.contains(&plain) && error.contains("choose another port"), "{error}");
    // Another libp2p program would share its port with any socket that sets `SO_REUSEPORT`.
    let (_server, address) = start("/ip4/127.0.0.1/tcp/0").await;
    let shared = address.to_string().split("/p2p").next().unwrap().to_owned();
    let error = fails(&shared).await;
    assert!(error.contains(&shared) && error.contains("choose another port"), "{error}");
}

#[tokio::test]
async fn an_address_that_cannot_be_served_is_refused() {
    let error = fails("/ip4/203.0.113.7/tcp/0").await;
    assert!(error.contains("choose an address of this machine"), "{error}");
    let error = fails("/dns/localhost/sctp/1").await;
    assert!(error.contains("neither /ip4/"), "{error}");
}
