//! A running node is looked at: by its page, by its socket, by people who ask the wrong folder.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use e2e::{Process, Story};
use rustix::process::Signal;
use serde_json::Value;

use crate::story;

pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// Where the node says that its page is.
pub(super) fn page(node: &mut Process) -> String {
    node.wait_until_it_said("page: http://", PATIENCE).unwrap();
    let said = node.said();
    let url = said.split_once("page: http://").unwrap().1;
    url.split('/').next().unwrap().to_owned()
}

/// The status and the body of an answer.
pub(super) fn get(at: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

/// Asks until `accepts` is true of the answer.
pub(super) fn until<T>(mut ask: impl FnMut() -> T, accepts: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let answer = ask();
        if accepts(&answer) {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "the answer does not come");
        thread::sleep(Duration::from_millis(50));
    }
}

/// `doctor` says of a node that runs what it waits for.
fn doctor_waits_too(story: &Story, folder: &str) {
    let examined = ["doctor", "--json", "--data-dir", folder];
    let examined = story.node_within(&examined, PATIENCE).unwrap();
    let report: Value = serde_json::from_str(&examined.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let own = checks.iter().find(|check| check["check"] == "node").unwrap();
    assert_eq!((&own["verdict"], &own["of"]), (&"warning".into(), &"founders".into()), "{own}");
    assert_eq!(examined.code, Some(3), "{report}");
}

#[test]
fn a_node_that_trains_is_seen_on_its_page_and_by_status() {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=2"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let mut one = story.start_node("one", &entry, &["--page", "127.0.0.1:0"]).unwrap();
    let at = page(&mut one);

    // Alone it waits, and its exit code says so.
    let folder = story.text("one/data");
    let status = || story.node(&["status", "--data-dir", &folder]).unwrap();
    let waits = until(status, |done| {
        done.out.contains("Waiting: 1 of the 2 peers that the run needs to begin is here.")
    });
    assert_eq!(waits.code, Some(3), "{}{}", waits.out, waits.err);
    doctor_waits_too(&story, &folder);
    let socket = fs::metadata(story.path("one/data/status.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);

    let mut two = story.start_node("two", &entry, &["--quiet"]).unwrap();
    one.wait_for_commit(4, PATIENCE).unwrap();
    let seen: Value = until(
        || serde_json::from_str(&get(&at, "/status").1).unwrap(),
        |seen: &Value| seen["head"]["epoch"].as_u64() >= Some(4),
    );
    // The page shows what the events say.
    let epoch = seen["head"]["epoch"].as_u64().unwrap();
    let commit = one.wait_for_commit(epoch, PATIENCE).unwrap();
    assert_eq!(seen["head"]["state"], commit["state"]);
    assert_eq!(seen["head"]["times"]["train"], commit["train_ms"]);
    assert_eq!(seen["source"]["live"], true);
    for need in ["memory_bytes", "disk_bytes", "epoch_bytes", "step_tokens"] {
        assert!(seen["run"][need].as_u64() > Some(0), "{need}");
    }
    let other = two.wait_for(PATIENCE, |event| event["event"] == "committed").unwrap();
    let other = other["peer"].as_str().unwrap();
    // The first event may be older than the connection: a heartbeat also comes by way of others.
    let linked = |event: &Value| {
        event["event"] == "member" && event["who"] == other && event["link"] == "direct"
    };
    one.wait_for(PATIENCE, linked).unwrap();
    let row = until(
        || serde_json::from_str::<Value>(&get(&at, "/status").1).unwrap()["peers"][other].clone(),
        |row| ["rtt_ms", "send_rate", "version"].iter().all(|key| !row[key].is_null()),
    );
    assert_eq!(row["version"], seen["node"]["version"]);
    assert_eq!((&row["here"], &row["link"]), (&Value::from(true), &Value::from("direct")));

    let (code, metrics) = get(&at, "/metrics");
    assert_eq!(code, "200");
    assert!(
        metrics.contains("intellect_epoch_part_seconds{run=") && metrics.contains("part=\"ring\"")
    );
    assert_eq!(get(&at, "/healthz"), ("200".to_owned(), "ok\n".to_owned()));
    assert!(get(&at, "/").1.contains("<!doctype html>"));

    let done = until(status, |done| done.code == Some(0));
    assert!(
        done.out.contains(&other[other.len() - 6..]) && done.out.contains("direct"),
        "{}",
        done.out
    );
    let json = story.node(&["status", "--json", "--data-dir", &folder]).unwrap();
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["format"], &json["run"]["id"]), (&Value::from(1), &commit["run"]));

    status_without_an_answer(&story, one, two);
}

/// What `status` says of a node that is suspended, was killed or has left, and of other folders.
fn status_without_an_answer(story: &Story, one: Process, mut two: Process) {
    let asked = |name: &str| story.node(&["status", "--data-dir", &story.text(name)]).unwrap();
    two.signal(Signal::STOP).unwrap();
    asked("two/data").expect_failure(1, &["does not answer: process ", "kill -CONT"]).unwrap();
    // A killed node leaves its socket, which is then dead.
    two.kill().unwrap();
    let dead = asked("two/data");
    dead.expect_failure(1, &["no node runs in", "intellect-node --data-dir"]).unwrap();
    one.interrupt().unwrap();
    one.wait(PATIENCE).unwrap().expect_success().unwrap();
    assert!(!story.path("one/data/status.sock").exists());
    asked("one/data").expect_failure(1, &["no node runs in"]).unwrap();
    let above = asked("one").expect_failure(1, &["it remembers no run; name the folder"]).unwrap();
    assert!(!above.err.contains("start it with"), "{}", above.err);
    asked("nowhere").expect_failure(1, &["is no folder", "--data-dir"]).unwrap();
}

/// A terminal that is stopped, or a pipe behind which nobody reads, delays neither the node nor its end.
#[test]
fn a_reader_that_never_reads_stops_nobody() {
    let story = story();
    let manifest = story.manifest("run.toml", &["members.min_peers=2"]).unwrap();
    let (_bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
    let (reader, out) = io::pipe().unwrap();
    // It fills the pipe, and waits then.
    let mut more = out.try_clone().unwrap();
    let full = thread::spawn(move || while more.write_all(b"full\n").is_ok() {});
    let data = story.text("unread-data");
    let mut unread = Command::new(env!("CARGO_BIN_EXE_node"))
        .args(["--bootstrap", &entry, "--listen", "/ip4/127.0.0.1/tcp/0", "--data-dir", &data])
        .args(["--threads", "1", "--epochs", "4"])
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap();
    let mut other = story.start_node("other", &entry, &["--epochs", "4"]).unwrap();
    let commit = other.wait_for_commit(4, PATIENCE).unwrap();
    assert_eq!(commit["members"].as_array().unwrap().len(), 2, "{commit}");
    let ended = until(|| unread.try_wait().unwrap(), Option::is_some);
    assert_eq!(ended.unwrap().code(), Some(0));
    drop(reader);
    full.join().unwrap();
}

/// Where there is no terminal, a sentence says so: a node goes on in lines, and a screen of another node ends.
#[test]
fn a_screen_without_a_terminal_is_a_sentence() {
    let story = story();
    let entry = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let mut node = story.start_node("node", entry, &["--tui"]).unwrap();
    node.wait_until_it_said("no screen: input and output are no terminal", PATIENCE).unwrap();
    let folder = story.text("node/data");
    let tui = |folder: &str| story.node(&["tui", folder]).unwrap();
    let done = until(|| tui(&folder), |done| !done.err.contains("no node runs in"));
    done.expect_failure(1, &["no screen: input and output are no terminal", "status"]).unwrap();
    tui(&story.text("nowhere")).expect_failure(1, &["is no folder"]).unwrap();
    let both = story.node(&["--bootstrap", entry, "--tui", "--quiet"]).unwrap();
    both.expect_failure(2, &["--tui", "--quiet"]).unwrap();
    for option in ["--tui", "--page"] {
        let virtually = story.node(&["sim", "--virtual", option]).unwrap();
        virtually.expect_failure(2, &[option, "leave out one of the two"]).unwrap();
    }
}

/// Neither a folder that only its owner may enter, nor a socket in an open one, answers somebody else.
#[test]
fn the_node_of_another_user_is_a_sentence() {
    let story = story();
    let other = |name: &str, line: &[&str]| {
        let under = ["setpriv", "--reuid", "65534"];
        story.start_command_under(name, &under, line).and_then(|asked| asked.wait(PATIENCE))
    };
    // It takes root, setpriv, and a program in a folder that everybody may enter.
    let version = other("version", &["--version"]);
    if !version.as_ref().is_ok_and(|done| done.code == Some(0)) {
        println!("skipped: the program cannot run as another user here: {version:?}");
        return;
    }
    let entry = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let _node = story.start_node("node", entry, &[]).unwrap();
    let folder = story.text("node/data");
    let status = ["status", "--data-dir", &folder];
    until(|| story.node(&status).unwrap(), |done| done.code != Some(1));
    let words = ["is of another user: ask as that user, or open its page", &folder];
    other("closed", &status).unwrap().expect_failure(1, &words).unwrap();
    for name in ["", "node", "node/data"] {
        fs::set_permissions(story.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    other("open", &status).unwrap().expect_failure(1, &words).unwrap();
}

/// The page of a simulation shows what its peers wrote and what it measured, and stays when it has ended.
#[test]
fn a_simulation_is_seen_on_its_page() {
    let story = story();
    let line = ["sim", "--peers", "2", "--epochs", "3", "--page", "127.0.0.1:0"];
    let mut sim = story.start_command("sim", &line).unwrap();
    let at = page(&mut sim);
    sim.wait_until_it_said("the page stays until Ctrl-C", PATIENCE).unwrap();
    let seen = until(
        || serde_json::from_str::<Value>(&get(&at, "/status").1).unwrap(),
        |seen| seen["open"]["phase"] == "stopped" && seen["held_out"]["epoch"] == 3,
    );
    assert_eq!((&seen["head"]["epoch"], &seen["run"]["name"]), (&3.into(), &"sim".into()));
    assert!(seen["agreement"]["compared"].as_u64() >= Some(3), "{seen}");
    assert_eq!(seen["agreement"]["differing"], 0);
    assert_eq!(seen["agreement"]["epochs"][0][1], true);
    sim.interrupt().unwrap();
    sim.wait(PATIENCE).unwrap().expect_success().unwrap();
}

/// A page that cannot be shown ends the node before it leaves anything behind; one that others reach is warned of.
#[test]
fn a_page_without_a_place_is_a_sentence() {
    let story = story();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let entry = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    let folder = story.text("data");
    let line = ["--bootstrap", entry, "--data-dir", &folder, "--page", &at];
    let words = ["cannot show a page at", "--page 127.0.0.1:0"];
    story.node(&line).unwrap().expect_failure(1, &words).unwrap();
    assert!(!story.path("data").exists());
    let wrong = story.node(&["--bootstrap", entry, "--page", "8080"]).unwrap();
    wrong.expect_failure(2, &["--page", "127.0.0.1:8080"]).unwrap();
    let lonely = story.node(&["--bootstrap", entry, "--page-host", "train.example"]).unwrap();
    lonely.expect_failure(2, &["--page"]).unwrap();
    let mut public = story.start_node("public", entry, &["--page", "0.0.0.0:0"]).unwrap();
    let at = page(&mut public);
    let sees = "everybody who reaches this address sees the run";
    public.wait_until_it_said(sees, PATIENCE).unwrap();
    let local = format!("127.0.0.1:{}", at.rsplit(':').next().unwrap());
    assert_eq!(get(&local, "/status").0, "200");
}
