//! Options that were typed once are stored in the run's folder, with the ports, and a later start
//! without any options uses them.

use std::{collections::BTreeSet, fs, net::TcpListener, path::PathBuf, time::Duration};

use e2e::{Process, Story};
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(60);

/// A run of one peer on a text, which its node has trained on and left,
/// and the file of stored options.
struct Past {
    story: Story,
    entry: String,
    _bootstrap: Process,
    left: e2e::Done,
    kept: PathBuf,
}

fn past() -> Past {
    let story = story();
    let text: String = (0..4_000).map(|n| format!("{n} sheep, ")).collect();
    fs::write(story.path("text.txt"), text).unwrap();
    let (run, key) = (story.text("run.toml"), story.text("k"));
    story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
    let mut new = vec!["manifest", "new", "--out", &run, "--key", &key, "--data", "text.txt"];
    new.extend(e2e::SMALL.iter().flat_map(|setting| ["--set", setting]));
    new.extend(["--set", "members.min_peers=1"]);
    story.node(&new).unwrap().expect_success().unwrap();
    let (bootstrap, entry) = story.start_bootstrap(&[story.path("run.toml")]).unwrap();
    let typed = ["--data", "text.txt", "--rate", "5M"];
    let mut node = story.start_node("one", &entry, &typed).unwrap();
    node.wait_for_commit(2, PATIENCE).unwrap();
    node.interrupt().unwrap();
    let left = node.wait(PATIENCE).unwrap().expect_success().unwrap();
    let runs = fs::read_dir(story.path("one/data/runs")).unwrap().next().unwrap().unwrap();
    Past { story, entry, _bootstrap: bootstrap, left, kept: runs.path().join("node.toml") }
}

impl Past {
    /// Goes on by the printed line until one more epoch is committed;
    /// returns what it printed since.
    fn goes_on(&self) -> String {
        let events = self.story.path("one/events.jsonl");
        let head = |events: &str| {
            let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            events.filter_map(|event| event["epoch"].as_u64()).max().unwrap()
        };
        let head = head(&fs::read_to_string(events).unwrap());
        let before = fs::read_to_string(self.story.path("one/out.txt")).unwrap().len();
        let mut node = self.story.go_on("one", &self.left).unwrap();
        node.wait_for_commit(head + 1, PATIENCE).unwrap();
        node.interrupt().unwrap();
        let done = node.wait(PATIENCE).unwrap().expect_success().unwrap();
        done.out[before..].to_owned()
    }

    /// The ports at which each start listened.
    fn ports(&self) -> Vec<BTreeSet<String>> {
        let text = fs::read_to_string(self.story.path("one/events.jsonl")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut starts = vec![BTreeSet::new()];
        for event in events {
            if event["event"] == "stopped" {
                starts.push(BTreeSet::new());
            }
            for address in event["addresses"].as_array().into_iter().flatten() {
                let port = address.as_str().unwrap().split('/').nth(4).unwrap().to_owned();
                starts.last_mut().unwrap().insert(port);
            }
        }
        starts.retain(|ports| !ports.is_empty());
        starts
    }
}

#[test]
fn a_start_without_options_goes_on_with_those_of_before() {
    let past = past();
    let kept = fs::read_to_string(&past.kept).unwrap();
    let text = past.story.path("text.txt").canonicalize().unwrap();
    for line in [
        format!("bootstrap = [\"{}\"]", past.entry),
        format!("data = [\"{}\"]", text.display()),
        "listen = [\"/ip4/127.0.0.1/tcp/0\"]".to_owned(),
        "rate = 5000000".to_owned(),
        "threads = 1".to_owned(),
    ] {
        assert!(kept.contains(&line), "{line} is missing in {kept}");
    }
    let said = past.goes_on();
    assert!(said.contains("with 1 thread") && !said.contains("alone:"), "a run of one: {said}");
    let ports = past.ports();
    assert_eq!(ports[0], ports[1]);
    assert_eq!(fs::read_to_string(&past.kept).unwrap(), kept);
    let data = past.story.text("one/data");
    let eval = past.story.node(&["eval", "--data-dir", &data]).unwrap().expect_success().unwrap();
    assert!(eval.out.contains("held-out loss"), "{}", eval.out);

    // An option that a person typed into the file counts, and an unknown one
    // keeps no node from starting.
    fs::write(&past.kept, kept.replace("threads = 1", "threads = 2\nsheep = 3")).unwrap();
    let _taken = TcpListener::bind(format!("127.0.0.1:{}", ports[0].first().unwrap())).unwrap();
    let said = past.goes_on();
    for words in
        ["with 2 threads", "sheep in ", "there is no such option", "is taken by another program"]
    {
        assert!(said.contains(words), "{words} is missing in {said}");
    }
    assert_ne!(past.ports()[2], ports[0]);
    assert!(fs::read_to_string(&past.kept).unwrap().contains("sheep = 3"));

    // The manifest is gone: the same bootstrap serves it again.
    fs::remove_file(past.kept.with_file_name("run.toml")).unwrap();
    past.goes_on();
    assert!(past.kept.with_file_name("run.toml").exists());

    // Without the file it is as if nothing had been typed.
    fs::write(&past.kept, "bootstrap = [").unwrap();
    let done = past.story.node(&["--data-dir", &data]).unwrap();
    done.clone().expect_failure(1, &["text.txt", "--data"]).unwrap();
    assert!(done.out.contains("node.toml is not TOML (line 1"), "{}", done.out);
    assert_eq!(fs::read_to_string(&past.kept).unwrap(), "bootstrap = [", "it is left to be mended");
}
