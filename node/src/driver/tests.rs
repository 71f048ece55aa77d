//! A driver with a network that nobody else is in.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use intellect_model::config::Work;
use intellect_protocol::blocks::Blocks;
use intellect_protocol::epoch::Apply;
use intellect_protocol::id::Digest;
use intellect_protocol::manifest::Run;
use intellect_protocol::peer::Output;

use super::*;
use crate::cli::{Cli, RunArgs};
use crate::config::{Local, Voice};
use crate::enter::{self, Opened, genesis::Found};
use crate::identity::{Home, Origin};
use crate::manifest::Draft;
use crate::tell::events::Sink;

const ENTRY: &str = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

/// A driver at genesis, and what its worker reports.
async fn driver(folder: &Path) -> (Driver, mpsc::Receiver<Report>) {
    let listen = "/ip4/127.0.0.1/tcp/0";
    let line = ["intellect-node", "--bootstrap", ENTRY, "--listen", listen, "--data-dir"];
    let line = line.into_iter().map(Into::into).chain([folder.as_os_str().to_owned()]);
    let args: RunArgs = Cli::try_parse_from(line).unwrap().run;
    let local = Local::new(args).unwrap();
    let home = Home::open(folder, Origin::Random).unwrap();
    let identity = &home.identity;
    let draft = Draft::new(&Run::new(identity.peer(), 1), &Work::synthetic()).unwrap();
    let manifest = Arc::new(draft.sign(&identity.keypair()).unwrap());
    let store = Arc::new(Store::open(folder, manifest.id).unwrap());
    let begun = store.begin(identity.log_id(), Origin::Random, 1).unwrap();
    let source = enter::open_data(&local, &manifest).await.unwrap();
    let stop = CancellationToken::new();
    let config = net::Config {
        key_seed: identity.seed(),
        listen: local.listen.clone(),
        external: Vec::new(),
        bootstrap: local.bootstrap.clone(),
        contacts: Vec::new(),
        rate: 0,
        line: None,
    };
    let net = net::start(config, stop.clone()).unwrap();
    let tell = Teller::new(Sink::new(None, identity.peer().into()), Voice::Quiet, PathBuf::new());
    let opened = Opened { local: &local, home: &home, manifest, store, source };
    let loaded = opened.load(begun, Found::default(), net.handle, &tell, &stop).await;
    let (parts, reports) = loaded.unwrap();
    (Driver::new(parts).0, reports)
}

fn decide(driver: &mut Driver, update: Digest) {
    let (r, tokens) = (Digest([6; 32]), 9);
    let apply = Apply { epoch: 1, r, tokens, update, spent: Blocks::default() };
    driver.apply(Output::Apply(Arc::new(apply)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decided_update_that_was_not_kept_is_fetched_and_then_applied() {
    let folder = tempfile::tempdir().unwrap();
    let (mut driver, mut reports) = driver(folder.path()).await;
    let (codec, elements) = (driver.manifest.run.codec, driver.newest.state.theta().len());
    let mut update = vec![0; codec.encoded_bytes(elements)];
    codec.encode(&vec![0.0; elements], &mut update).unwrap();
    let digest = Digest(*blake3::hash(&update).as_bytes());
    decide(&mut driver, digest);
    // There is nobody to ask.
    let done = driver.jobs.join_next().await.unwrap().unwrap();
    let name = Name { epoch: 1, digest };
    assert!(matches!(done, Done::Update { name: missing, found: None } if missing == name));
    driver.on_done(done).unwrap();
    driver.on_done(Done::Update { name, found: Some(Arc::new(update)) }).unwrap();
    // It is applied once it is on the disk.
    let kept = driver.jobs.join_next().await.unwrap().unwrap();
    assert!(matches!(&kept, Done::Kept { name: kept, result: Ok(()), .. } if *kept == name));
    assert_eq!(driver.store.updates().unwrap(), [name]);
    driver.on_done(kept).unwrap();
    let Some(Report::State(snapshot, worker::Origin::Applied)) = reports.recv().await else {
        panic!("the outer step was not taken")
    };
    assert_eq!(snapshot.table.header().epoch, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decided_update_that_nobody_has_ends_the_node_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (mut driver, _reports) = driver(folder.path()).await;
    let digest = Digest([5; 32]);
    decide(&mut driver, digest);
    let end = (0..100).find_map(|_| {
        let name = Name { epoch: 1, digest };
        let missing = driver.on_done(Done::Update { name, found: None });
        missing.and_then(|()| driver.on_done(Done::Refetch)).err()
    });
    let end = end.unwrap();
    assert!(matches!(end, DriverError::UpdateLost { epoch: 1 }), "{end}");
    assert!(end.to_string().contains("start the node again"), "{end}");
}
