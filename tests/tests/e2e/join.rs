//! What an organiser and a contributor type, with the real programs.

use std::{
    fs,
    net::TcpListener,
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use e2e::{Process, SMALL};
use intellect_bootstrap::server;
use libp2p::identity::Keypair;
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than the simulations' default, so that a machine under load does not regroup.
const CALM: [&str; 1] = ["members.heartbeat_ms=200"];

/// The state at the last epoch that a node committed.
fn last_state(process: &Process) -> Value {
    let events = process.events().unwrap();
    events.iter().rfind(|event| event["event"] == "committed").unwrap()["state"].clone()
}

/// Keygen, manifest, bootstrap, paste: the four lines of the README.
#[test]
fn an_organiser_and_two_contributors() {
    let story = story();
    let manifest = story.manifest("run.toml", &CALM).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut one = story.start_node("one", &entry, &["--epochs", "8"]).unwrap();
    let mut two = story.start_node("two", &entry, &["--epochs", "8"]).unwrap();
    one.wait_for_commit(8, PATIENCE).unwrap();
    two.wait_for_commit(8, PATIENCE).unwrap();
    assert_eq!(last_state(&one), last_state(&two));
    for process in [one, two] {
        process.wait(PATIENCE).unwrap().expect_success().unwrap();
    }
    // Their checkpoints can be measured and used.
    let data = story.text("one/data");
    let eval = story.node(&["eval", "--data-dir", &data]).unwrap().expect_success().unwrap();
    assert!(eval.out.contains("of epoch 8"), "{}", eval.out);
    story.node(&["sample", "--data-dir", &data]).unwrap().expect_success().unwrap();
}

/// Without that message it would look as if it trained, forever.
#[test]
fn a_lone_node_says_what_it_waits_for() {
    let story = story();
    let manifest = story.manifest("run.toml", &CALM).unwrap();
    let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut one = story.start_node("one", &entry, &[]).unwrap();
    let waits = "waiting: 1 of the 2 peers that the run needs to begin is here";
    one.wait_until_it_said("ready to train", PATIENCE).unwrap();
    one.wait_until_it_said(waits, PATIENCE).unwrap();
    let waiting = one.wait_for(PATIENCE, |event| event["event"] == "waiting").unwrap();
    assert_eq!(waiting["reason"], "founders");
    one.interrupt().unwrap();
    one.wait(PATIENCE).unwrap().expect_success().unwrap();

    drop(bootstrap);
    // Removes the options that were stored.
    let run = fs::read_dir(story.path("one/data/runs")).unwrap().next().unwrap().unwrap();
    fs::remove_file(run.path().join("node.toml")).unwrap();
    let mut again = story.resume_node("one", &[]).unwrap();
    again.wait_until_it_said("no other peer is known", PATIENCE).unwrap();
    again.interrupt().unwrap();
    let done = again.wait(PATIENCE).unwrap().expect_success().unwrap();
    assert_eq!(done.err, "", "a library speaks");
}

/// One node brings the tokenizer; the other one writes text with the copy that it got.
#[test]
fn a_contributor_gets_the_tokenizer_from_a_peer() {
    let story = story();
    let bytes = (0..256).map(|byte| format!("{} b'\\x{byte:02x}' 1\n", byte + 1));
    fs::write(story.path("v.txt"), bytes.collect::<String>()).unwrap();
    fs::write(story.path("a.txt"), "the same line over and over\n".repeat(200)).unwrap();
    let [text, vocabulary, tokens, run, key] =
        ["a.txt", "v.txt", "a.tokens", "run.toml", "k"].map(|name| story.text(name));
    let mut new = vec!["manifest", "new", "--out", &run, "--key", &key, "--data", &tokens];
    new.extend(SMALL.iter().chain(&CALM).flat_map(|setting| ["--set", setting]));
    let tokenize = vec!["data", "tokenize", &text, "--tokenizer", &vocabulary, "--out", &tokens];
    for line in [tokenize, vec!["keygen", "--out", &key], new] {
        story.node(&line).unwrap().expect_success().unwrap();
    }
    let (_bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let bring = ["--data", &tokens, "--tokenizer", &vocabulary];
    let _one = story.start_node("one", &entry, &bring).unwrap();
    let mut two = story.start_node("two", &entry, &["--data", &tokens]).unwrap();
    two.wait_for_commit(2, PATIENCE).unwrap();
    let runs = fs::read_dir(story.path("two/data/runs")).unwrap();
    let kept = runs.last().unwrap().unwrap().path().join("tokenizer");
    let asked = Instant::now();
    while !kept.exists() && asked.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(fs::read(kept).unwrap(), fs::read(story.path("v.txt")).unwrap());
    two.interrupt().unwrap();
    two.wait(PATIENCE).unwrap().expect_success().unwrap();
    let data = story.text("two/data");
    let written = story.node(&["sample", "--data-dir", &data, "--prompt", "the"]).unwrap();
    assert!(written.expect_success().unwrap().out.starts_with("the"));
}

#[test]
fn ctrl_c_ends_a_node_that_waits_for_others() {
    let story = story();
    let manifest = story.manifest("run.toml", &CALM).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut alone = story.start_node("alone", &entry, &[]).unwrap();
    alone.wait_for(PATIENCE, |event| event["event"] == "started").unwrap();
    alone.interrupt().unwrap();
    alone.wait(PATIENCE).unwrap().expect_success().unwrap();
}

#[test]
fn several_runs_at_one_bootstrap_are_told_apart() {
    let story = story();
    let first = story.manifest("first.toml", &["name=first", "members.min_peers=1"]).unwrap();
    let second = story.manifest("second.toml", &["name=second", "members.min_peers=1"]).unwrap();
    let show = story.node(&["manifest", "show", second.to_str().unwrap()]).unwrap();
    let run = show.out.split_whitespace().nth(1).unwrap()[..16].to_owned();
    let (_bootstrap, entry) = story.start_bootstrap(&[first, second]).unwrap();
    let undecided = story.start_node("undecided", &entry, &["--epochs", "1"]).unwrap();
    let undecided = undecided.wait(PATIENCE).unwrap();
    undecided.expect_failure(1, &["--run", "first", "second", &run]).unwrap();
    // There are two organisers: the second could have tried keys until
    // its first digits were the same.
    let unsure = story.start_node("u", &entry, &["--epochs", "1", "--run", &run[..8]]).unwrap();
    let unsure = unsure.wait(PATIENCE).unwrap();
    unsure.expect_failure(1, &["16 digits", "first", "second", &run]).unwrap();
    let mut decided = story.start_node("d", &entry, &["--epochs", "1", "--run", &run]).unwrap();
    let manifest = decided.wait_for(PATIENCE, |event| event["event"] == "manifest").unwrap();
    assert_eq!(manifest["name"], "second");
    decided.wait_for_commit(1, PATIENCE).unwrap();
}

/// An entry point that verifies nothing. Returns its address; it lives until the tests end.
fn hand_out(listen: &str, file: &[u8]) -> String {
    let (tell, told) = mpsc::channel();
    let config = server::Config {
        key: Keypair::ed25519_from_bytes([9; 32]).unwrap(),
        listen: vec![listen.parse().unwrap()],
        external: Vec::new(),
        offers: vec![server::Offer {
            run: [9; 32],
            manifest: file.into(),
            notices: std::path::PathBuf::new(),
        }],
        unlisted: false,
        measure_rate: 0,
        line: None,
    };
    thread::spawn(move || {
        let announce = |event| {
            if let server::Event::Address { address, .. } = event {
                drop(tell.send(address.to_string()));
            }
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(server::serve(config, announce, std::future::pending())).unwrap();
    });
    told.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn a_manifest_that_was_changed_on_the_way_is_refused() {
    let story = story();
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let text = fs::read_to_string(&manifest).unwrap().replace("amount = 10", "amount = 11");
    let entry = hand_out("/ip4/127.0.0.1/tcp/0", text.as_bytes());
    let node = story.start_node("node", &entry, &[]).unwrap();
    node.wait(PATIENCE).unwrap().expect_failure(1, &["signature"]).unwrap();
}

#[test]
fn a_dead_bootstrap_is_named_with_what_to_do() {
    let story = story();
    // No program listens there any more; the system reuses a port only after many others.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let entry = format!(
        "/ip4/127.0.0.1/tcp/{port}/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
    );
    let mut node = story.start_node("node", &entry, &[]).unwrap();
    node.wait_until_it_said("trying again for", PATIENCE).unwrap();
    node.interrupt().unwrap();
    let said = node.wait(PATIENCE).unwrap().expect_success().unwrap().out;
    let remedy = "Check that it runs and that its port is open";
    let cause = format!("\n  /ip4/127.0.0.1/tcp/{port}");
    for words in ["no bootstrap could be reached", &cause, "Connection refused", remedy] {
        assert!(said.contains(words), "{words} is missing in: {said}");
    }
}

/// The person that is first need not type the line again.
#[test]
fn a_bootstrap_that_starts_after_the_node_is_found() {
    let story = story();
    let manifest = fs::read(story.manifest("run.toml", &[]).unwrap()).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("/ip4/127.0.0.1/tcp/{port}");
    let peer = Keypair::ed25519_from_bytes([9; 32]).unwrap().public().to_peer_id();
    let mut node = story.start_node("node", &format!("{listen}/p2p/{peer}"), &[]).unwrap();
    node.wait_until_it_said("trying again for", PATIENCE).unwrap();
    hand_out(&listen, &manifest);
    node.wait_for(PATIENCE, |event| event["event"] == "manifest").unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let story = story();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let manifest = story.manifest("run.toml", &[]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let data = story.text("data");
    let line = ["--bootstrap", &entry, "--data-dir", &data, "--listen", &listen];
    story.node(&line).unwrap().expect_failure(1, &[&listen]).unwrap();
}

#[test]
fn a_second_node_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=1"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut first = story.start_node("node", &entry, &[]).unwrap();
    first.wait_for_commit(1, PATIENCE).unwrap();
    let data = story.text("node/data");
    let second = story.node(&["--bootstrap", &entry, "--data-dir", &data]).unwrap();
    second.expect_failure(1, &["another intellect-node", "--data-dir"]).unwrap();
    let seen = first.events().unwrap();
    let last = seen.iter().filter_map(|event| event["epoch"].as_u64()).max().unwrap();
    first.wait_for_commit(last + 2, PATIENCE).unwrap();
    first.interrupt().unwrap();
    first.wait(PATIENCE).unwrap().expect_success().unwrap();
}

/// The events are lost, the user gets one message about that, and the peers are not disturbed.
#[test]
fn a_full_disk_under_the_events_stops_nobody() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("skipped: this system has no /dev/full");
        return;
    }
    let story = story();
    let manifest = story.manifest("run.toml", &CALM).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let data = story.text("mute-data");
    let mute = Command::new(env!("CARGO_BIN_EXE_node"))
        .args(["--bootstrap", &entry, "--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", &data])
        .args(["--threads", "1", "--epochs", "4", "--events", "/dev/full"])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut other = story.start_node("other", &entry, &["--epochs", "4"]).unwrap();
    let commit = other.wait_for_commit(4, PATIENCE).unwrap();
    assert_eq!(commit["members"].as_array().unwrap().len(), 2, "{commit}");
    let mute = mute.wait_with_output().unwrap();
    let said = String::from_utf8(mute.stdout).unwrap() + &String::from_utf8(mute.stderr).unwrap();
    assert_eq!(mute.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("events are not written").count(), 1, "{said}");
}

/// A file-size limit refuses every checkpoint of one node, as a full disk does. The node reports
/// it, as an event too, leaves no partial file, takes part all the same, and ends normally.
#[test]
fn a_file_size_limit_stops_nobody() {
    let story = story();
    let settings = [CALM[0], "model.ffn=256"];
    let manifest = story.manifest("run.toml", &settings).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let (data, events) = (story.text("limited-data"), story.path("limited-events"));
    // 32 KiB are enough for the events of four epochs, and not for a checkpoint.
    let limited = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_node")])
        .args(["--bootstrap", &entry, "--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", &data])
        .args(["--threads", "1", "--epochs", "4", "--events", events.to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut other = story.start_node("other", &entry, &["--epochs", "4"]).unwrap();
    let commit = other.wait_for_commit(4, PATIENCE).unwrap();
    assert_eq!(commit["members"].as_array().unwrap().len(), 2, "{commit}");
    let limited = limited.wait_with_output().unwrap();
    let said =
        String::from_utf8(limited.stdout).unwrap() + &String::from_utf8(limited.stderr).unwrap();
    assert_eq!(limited.status.code(), Some(0), "{said}");
    assert!(said.contains("training goes on: free some disk space"), "{said}");

    let seen: Vec<Value> = fs::read_to_string(&events)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name| seen.iter().filter(move |event| event["event"] == name);
    let disk = of("disk").next().unwrap()["error"].as_str().unwrap();
    assert!(disk.contains("checkpoints") && disk.contains("File too large"), "{disk}");
    let (last, stopped) = (of("committed").next_back().unwrap(), seen.last().unwrap());
    assert_eq!((&last["epoch"], &last["state"]), (&commit["epoch"], &commit["state"]));
    assert_eq!((&stopped["event"], &stopped["code"]), (&"stopped".into(), &0.into()));
    let run = fs::read_dir(story.path("limited-data/runs")).unwrap().next().unwrap().unwrap();
    assert_eq!(fs::read_dir(run.path().join("checkpoints")).unwrap().count(), 0);
    other.wait(PATIENCE).unwrap().expect_success().unwrap();
}
