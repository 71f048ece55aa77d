//! The entry point from outside: as a program with its exit codes and messages, and as a server
//! that hands out manifests to a peer that knows nothing but its address.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use futures::StreamExt as _;
use intellect_bootstrap::{address, manifest, streams, transport};
use libp2p::{Multiaddr, Swarm, identity::Keypair, swarm::SwarmEvent};

/// Kills the program if the test ends early.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(folder: &Path, listen: &str) -> Command {
    let manifest = folder.join("run.toml");
    std::fs::write(&manifest, "a signed file").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_intellect-bootstrap"));
    command.arg("--manifest").arg(manifest).args(["--listen", listen]);
    command.arg("--data-dir").arg(folder.join("data"));
    command
}

fn start(folder: &Path, listen: &str) -> (Program, Multiaddr) {
    let mut child = command(folder, listen).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("intellect-node --bootstrap ").unwrap();
    (Program(child), address::entry(address).unwrap())
}

fn fails(folder: &Path, listen: &str) -> String {
    let Output { status, stderr, stdout } = command(folder, listen).output().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(stdout.is_empty());
    String::from_utf8(stderr).unwrap()
}

/// A peer that asks the entry at `address` for all manifests.
async fn ask(address: Multiaddr) -> Vec<Vec<u8>> {
    let key = Keypair::generate_ed25519();
    let (transport, _) = transport::build(&key, None).unwrap();
    let behaviour = streams::Behaviour::new(&[]);
    let me = key.public().to_peer_id();
    let mut swarm = Swarm::new(transport, behaviour, me, transport::swarm_config());
    swarm.dial(address).unwrap();
    let opening = loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, .. } => {
                break swarm.behaviour_mut().open(peer_id, connection_id, manifest::PROTOCOL);
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => panic!("{error}"),
            _ => {}
        }
    };
    tokio::select! {
        files = async { manifest::ask(opening.await.unwrap().unwrap(), None).await } => {
            files.unwrap()
        }
        () = async { loop { swarm.select_next_some().await; } } => unreachable!(),
    }
}

#[tokio::test]
async fn a_peer_that_knows_only_the_printed_address_gets_the_manifests() {
    for listen in ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"] {
        let folder = tempfile::tempdir().unwrap();
        let (_program, address) = start(folder.path(), listen);
        let files = tokio::time::timeout(Duration::from_secs(20), ask(address)).await.unwrap();
        assert_eq!(files, [b"a signed file"]);
    }
}

#[test]
fn a_signal_ends_it_well_and_a_restart_keeps_its_peer_id() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for name in ["-INT", "-TERM"] {
        let (mut program, address) = start(folder.path(), "/ip4/127.0.0.1/tcp/0");
        seen.push(address::peer(&address).unwrap());
        let killed = Command::new("kill").args([name, &program.0.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert_eq!(program.0.wait().unwrap().code(), Some(0));
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_port_in_use_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let error = fails(folder.path(), &plain);
    assert!(error.contains(&plain) && error.contains("choose another port"), "{error}");
    // Another libp2p program shares its port with whoever asks for it politely.
    let (_program, address) = start(folder.path(), "/ip4/127.0.0.1/tcp/0");
    let shared = address.to_string().split("/p2p").next().unwrap().to_owned();
    let error = fails(folder.path(), &shared);
    assert!(error.contains(&shared) && error.contains("choose another port"), "{error}");
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = fails(folder.path(), "/ip4/203.0.113.7/tcp/0");
    assert!(error.contains("choose an address of this machine"), "{error}");
    let error = fails(folder.path(), "/dns/localhost/sctp/1");
    assert!(error.contains("neither /ip4/"), "{error}");
    let key = folder.path().join("data/bootstrap.key");
    std::fs::set_permissions(key, Permissions::from_mode(0o640)).unwrap();
    let error = fails(folder.path(), "/ip4/127.0.0.1/tcp/0");
    assert!(error.contains("chmod 600"), "{error}");
    let usage = Command::new(env!("CARGO_BIN_EXE_intellect-bootstrap")).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
