//! A driver whose network has no other peer.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Parser as _;
use intellect_bootstrap::frame::Reservation;
use intellect_model::config::Work;
use intellect_model::data::Dataset;
use intellect_protocol::access::admit::Level;
use intellect_protocol::base::id::Digest;
use intellect_protocol::history::evidence::Evidence;
use intellect_protocol::holdings::Output;
use intellect_protocol::machine::event::Event;
use intellect_protocol::manifest::{Run, Trust};
use intellect_protocol::message::wire;
use intellect_protocol::message::{Done as Vote, Head, Heartbeat, Message, Series};

use super::twins::tests::heartbeat;
use super::*;
use crate::access::Admission;
use crate::cli::{Cli, RunArgs};
use crate::config::{Local, Voice};
use crate::enter::{Opened, genesis::Found, machine::Machine};
use crate::identity::{Home, Origin};
use crate::manifest::Draft;
use crate::name::PeerName;
use crate::tell::events::{self, Sink};
use crate::tell::{Reason, screen};

const ENTRY: &str = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

/// A driver at genesis in a folder of its own, and the reports of its worker.
async fn driver() -> (tempfile::TempDir, Driver, mpsc::Receiver<Report>) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
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
    let begun = store.begin(None, Origin::Random, 1).unwrap();
    let source = Dataset::open(&manifest.work, manifest.run.seed, &[]).unwrap().into();
    let stop = CancellationToken::new();
    let config = net::Config {
        key_seed: identity.seed,
        listen: local.options.listen(),
        bootstrap: local.options.bootstrap.clone(),
        ..net::Config::default()
    };
    let net = net::start(config, stop.clone()).unwrap();
    let tell = Console::new(Sink::new(None, identity.peer().into()), Voice::Quiet, PathBuf::new());
    let machine = Machine { device: local.device, micro_batch: manifest.work.train.batch };
    let opened = Opened { local: &local, home: &home, machine, manifest, store, source };
    let loaded = opened.load(begun, Found::default(), None, net.handle, &tell, &stop).await;
    let (parts, reports) = loaded.unwrap();
    (temporary, Driver::new(parts).0, reports)
}

async fn next(driver: &mut Driver) -> Done {
    ended(driver.jobs.join_next().await.unwrap()).unwrap()
}

/// R5: a fetched update is reported once it is on disk; one that cannot be applied counts as missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_is_fetched_checked_and_kept() {
    let (_folder, mut driver, _reports) = driver().await;
    let (codec, elements) =
        (driver.manifest.run.ring.codec, driver.buffers.newest.state.theta().len());
    let mut update = vec![0; codec.encoded_bytes(elements)];
    codec.encode(&vec![0.0; elements], &mut update).unwrap();
    let name = Name { epoch: 1, digest: Digest(*blake3::hash(&update).as_bytes()) };
    driver.apply(Output::FetchUpdate(name, Vec::new()));
    let Done::Input(missed) = next(&mut driver).await else { panic!("there is nobody to ask") };
    assert!(matches!(*missed, Input::UpdateMissed(missed) if missed == name));
    driver.on_done(disk::update_came(name, Some(update))).unwrap();
    let kept = next(&mut driver).await;
    assert!(matches!(&kept, Done::Kept(kept, Ok(())) if *kept == name));
    assert_eq!(driver.store.updates().unwrap(), [name]);
    driver.on_done(kept).unwrap();
    let wrong = vec![0; 3];
    let other = Name { epoch: 1, digest: Digest(*blake3::hash(&wrong).as_bytes()) };
    driver.store.keep_update(other, &wrong).unwrap();
    driver.apply(Output::Read(other));
    let Done::Input(missed) = next(&mut driver).await else { panic!("it cannot be applied") };
    assert!(matches!(*missed, Input::UpdateMissed(missed) if missed == other));
}

/// The time of the ring and of the next state counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_time_of_an_epoch_is_from_ready_to_ready() {
    let (_folder, mut driver, _reports) = driver().await;
    assert_eq!(driver.early(), Duration::ZERO, "the first Ready waits for nothing");
    driver.buffers.delta = Some(Arc::new(vec![0.0; driver.buffers.newest.state.theta().len()]));
    driver.on_done(Done::Trained { epoch: 1, tokens: 64, loss: 3.0, norm: 1.0 }).unwrap();
    assert!(driver.readied.is_some());
    driver.readied = Instant::now().checked_sub(EPOCH_MIN);
    driver.on_state(Arc::clone(&driver.buffers.newest), None);
    assert_eq!(driver.early(), Duration::ZERO, "a new state begins no wait");
}

fn beat(driver: &Driver, key: &Keypair, count: u64) -> Vec<u8> {
    let (series, _) = driver.holdings.peer().series();
    let beat = Heartbeat { count, series, ..heartbeat(driver.holdings.peer().head()) };
    wire::envelope(&wire::seal(key, &driver.manifest.id, Message::Heartbeat(beat)))
}

/// A peer that claims another author uses up nothing of that author's budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_author_is_not_charged_for_it() {
    let (_folder, mut driver, _reports) = driver().await;
    let [honest, liar, other] = [1, 2, 3].map(|seed| Keypair::from_seed(&[seed; 32]));
    let true_word = beat(&driver, &honest, 1);
    let mut forged = true_word.clone();
    *forged.last_mut().unwrap() ^= 1;
    for _ in 0..2_000 {
        driver.on_message(liar.peer(), net::Via::Direct, &forged);
    }
    driver.on_message(other.peer(), net::Via::Direct, &true_word);
    assert!(driver.holdings.peer().table().peers.contains_key(&honest.peer()));
}

/// The loop takes the first event that is ready, so timers are fired before each one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_sends_without_pause_does_not_stop_the_clock() {
    let (_folder, mut driver, reports) = driver().await;
    let (handle, beats) = net::tests::counted();
    driver.net = handle.clone();
    let liar = Keypair::from_seed(&[2; 32]);
    let (bytes, from) = (beat(&driver, &liar, 1), liar.peer());
    let (flood, events) = mpsc::channel(256);
    let pouring = tokio::spawn(async move {
        loop {
            let (via, bytes, reserved) = (net::Via::Direct, bytes.clone(), Reservation::default());
            let message = net::Event::Message { from, via, bytes, reserved };
            if flood.send(message).await.is_err() {
                return;
            }
        }
    });
    let net = Net { handle, events, rings: mpsc::channel(1).1, task: tokio::spawn(async {}) };
    let run = driver.run(net, reports, mpsc::channel(1).1, Interrupts::new().unwrap());
    let ran = tokio::time::timeout(Duration::from_secs(4), run).await;
    assert!(ran.is_err(), "it runs on");
    pouring.await.unwrap();
    let beats = beats.load(Ordering::Relaxed);
    assert!(beats >= 2, "{beats} heartbeats in 4 s, one is due each half second");
}

/// A liar votes twice, in an open run and in one of invited peers. Two messages in the event prove it
/// to everybody, and in the second run the node prints what the organiser types.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_kept_and_in_a_run_of_invited_peers_the_organisers_line_is_printed() {
    let (folder, mut driver, _reports) = driver().await;
    let (run, me, path) = (driver.manifest.id, driver.key.peer(), folder.path().join("events"));
    let sink = Sink::open(Some(&path), me.into()).unwrap();
    driver.tell = Console::new(sink, Voice::Sentences, PathBuf::new());
    let trust = Trust { level: Level::Invited, ..Trust::default() };
    let invited = Draft::new(&Run { trust, ..Run::new(me, 1) }, &Work::synthetic()).unwrap();
    let invited = Admission::new(&invited.sign(&driver.key).unwrap(), me, None);
    let said = Default::default();
    screen::hide(&said);
    for (seed, admission) in [(7, None), (8, invited)] {
        driver.access.admission = admission;
        let liar = Keypair::from_seed(&[seed; 32]);
        let series = Series::after(&driver.holdings.peer().head());
        let vote = |value| {
            let (roster, r, update) = (Digest::ZERO, Digest([value; 32]), Digest([value; 32]));
            let vote = Message::Done(Vote { series, roster, r, update });
            Arc::new(wire::seal(&liar, &run, vote))
        };
        let proof = Evidence { messages: [vote(1), vote(2)], rosters: Vec::new() };
        let fault = proof.fault(&run).unwrap();
        for _ in 0..2 {
            driver.apply(Output::Proven(fault, proof.clone()));
        }
        let line = format!("invite revoke --peer {}", PeerName::from(liar.peer()));
        let printed = said.last(usize::MAX).iter().any(|sentence| sentence.contains(&line));
        assert_eq!(printed, driver.access.admission.is_some(), "{:?}", said.last(usize::MAX));
        let text = std::fs::read_to_string(&path).unwrap();
        let faults = text.lines().filter_map(|line| proof_of(line, liar.peer()));
        let proofs: Vec<Option<Vec<String>>> = faults.collect();
        let [Some(pieces), None] = &proofs[..] else { panic!("{text}") };
        let open = |piece: &String| {
            let digits = |at| u8::from_str_radix(&piece[2 * at..2 * at + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..piece.len() / 2).map(digits).collect();
            Arc::new(wire::open(&run, &bytes, wire::DIRECT_BYTES_MAX).unwrap())
        };
        let messages = [open(&pieces[0]), open(&pieces[1])];
        assert!(messages.iter().all(|message| message.author() == liar.peer()));
        assert_eq!(Evidence { messages, rosters: Vec::new() }.fault(&run), Some(fault));
    }
    screen::show();
}

/// The proof in an event, if that is a fault of this peer.
fn proof_of(line: &str, peer: PeerId) -> Option<Option<Vec<String>>> {
    match serde_json::from_str::<events::Record>(line).unwrap().event {
        events::Event::Fault { who, proof, .. } if who == PeerName::from(peer) => Some(proof),
        _ => None,
    }
}

/// After a lost write the node would train on and never vote again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_panics_ends_the_node_with_what_it_was() {
    let mut jobs: JoinSet<Done> = JoinSet::new();
    jobs.spawn_blocking(|| panic!("the disk is made of cheese"));
    let error = ended(jobs.join_next().await.unwrap()).err().unwrap();
    assert!(matches!(error, DriverError::Job(_)));
    let text = error.to_string();
    assert!(text.contains("the disk is made of cheese"), "{text}");
    assert!(text.contains("start the node again"), "{text}");
}

/// A person reads of it whatever else the node waits for, until no other lineage can exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_that_is_held_is_the_reason_until_it_is_decided() {
    let (_folder, mut driver, _reports) = driver().await;
    let is_forked = |driver: &Driver| matches!(driver.reason(), Some(Reason::Forked { .. }));
    let [mine, theirs] = [1, 2].map(|n| Head { epoch: 9, tokens: 1, state: Digest([n; 32]) });
    driver.on_event(Event::Fork { first_epoch: 3, mine, theirs, undone: 0, held: false });
    assert!(!is_forked(&driver), "the rule decides");
    driver.on_event(Event::Fork { first_epoch: 3, mine, theirs, undone: 0, held: true });
    assert!(is_forked(&driver));
    driver.on_event(Event::ForkExcluded { first_epoch: 3 });
    assert!(!is_forked(&driver));
}
