//! Tests of `scenario`, on small files and made-up observations.

use super::*;
use crate::sim::{
    links::AccessLink,
    observations::tests::{committed, roster},
};
use crate::tell::events::Record;

/// Peer 0 commits epoch e at second e / 2; the clock of the events is a second ahead.
fn observations(epochs: u64) -> Observations {
    let mut observations = Observations::new(2);
    for epoch in 1..=epochs {
        let line = Record { t_ms: 1_000 + 500 * epoch, ..committed(0, epoch, 1) };
        observations.record(0, line);
    }
    observations
}

fn due(scenario: &mut Scenario, second: f64, observations: &Observations) -> Vec<Action> {
    let elapsed = Duration::from_secs_f64(second);
    scenario.take_due(Moment { elapsed, unix_ms: 1_000 + (1_000.0 * second) as u64, observations })
}

fn parse(text: &str, peers: usize) -> Result<Scenario, ScenarioError> {
    Scenario::check(toml::from_str(text).unwrap(), peers)
}

fn step(what: &str) -> String {
    format!("[[step]]\n{what}\n")
}

#[test]
fn steps_are_taken_once_when_their_moment_comes() {
    let text =
        step("do = \"kill\"\npeer = 1\nepoch = 3") + &step("do = \"kill-bootstrap\"\nsecond = 2");
    let mut scenario = parse(&text, 3).unwrap();
    assert!(due(&mut scenario, 1.0, &observations(2)).is_empty());
    assert_eq!(due(&mut scenario, 2.0, &observations(2)), [Action::KillBootstrap]);
    assert_eq!(scenario.pending(), [1]);
    assert_eq!(due(&mut scenario, 2.5, &observations(4)), [Action::Peer(PeerAction::Kill, 1)]);
    assert!(due(&mut scenario, 9.0, &observations(9)).is_empty());
    assert!(scenario.pending().is_empty());
}

/// A run that commits nothing reaches the time after it too.
#[test]
fn epoch_0_is_the_start_of_the_simulation() {
    let at_once = step("do = \"kill-bootstrap\"\nepoch = 0");
    let later = step("do = \"kill\"\npeer = 1\nepoch = 0\nplus_ms = 4000");
    let mut scenario = parse(&(at_once + &later), 2).unwrap();
    assert_eq!(due(&mut scenario, 0.0, &observations(0)), [Action::KillBootstrap]);
    assert!(due(&mut scenario, 3.9, &observations(0)).is_empty());
    assert_eq!(due(&mut scenario, 4.0, &observations(0)), [Action::Peer(PeerAction::Kill, 1)]);
}

#[test]
fn a_roster_step_waits_for_its_peer_and_its_epoch() {
    let text = step("do = \"kill\"\npeer = 1\nroster = 5\nplus_ms = 200");
    let mut scenario = parse(&text, 2).unwrap();
    let mut due = |peer, epoch, second| {
        let mut observations = observations(4);
        observations.record(peer, roster(peer, epoch, 3_000));
        due(&mut scenario, second, &observations)
    };
    assert!(due(0, 5, 9.0).is_empty());
    assert!(due(1, 4, 9.0).is_empty());
    assert!(due(1, 5, 2.1).is_empty());
    assert_eq!(due(1, 6, 2.3), [Action::Peer(PeerAction::Kill, 1)]);
}

#[test]
fn a_share_is_relative_to_earlier_rings() {
    let text = step("do = \"kill\"\npeer = 1\nroster = 5\nplus_share = 0.25");
    let mut scenario = parse(&text, 2).unwrap();
    let mut observations = observations(3);
    // Its ring of epoch 4 took two seconds.
    observations.record(1, roster(1, 4, 1_000));
    observations.record(1, Record { t_ms: 3_000, ..committed(1, 4, 1) });
    observations.record(1, roster(1, 5, 3_000));
    assert!(due(&mut scenario, 2.49, &observations).is_empty());
    assert_eq!(due(&mut scenario, 2.5, &observations), [Action::Peer(PeerAction::Kill, 1)]);
}

/// The later step of the same peer must not overtake the earlier one.
#[test]
fn what_happens_to_one_peer_happens_in_order() {
    let text =
        step("do = \"kill\"\npeer = 0\nepoch = 9") + &step("do = \"start\"\npeer = 0\nsecond = 1");
    let mut scenario = parse(&text, 2).unwrap();
    assert!(due(&mut scenario, 5.0, &observations(1)).is_empty());
    assert_eq!(
        due(&mut scenario, 6.0, &observations(9)),
        [Action::Peer(PeerAction::Kill, 0), Action::Peer(PeerAction::Start, 0)]
    );
}

#[test]
fn it_knows_which_peers_start_late_and_which_survive() {
    let text = step("do = \"start\"\npeer = 0\nsecond = 1")
        + &step("do = \"interrupt\"\npeer = 1\nsecond = 2")
        + &step("do = \"kill\"\npeer = 2\nsecond = 3")
        + &step("do = \"start\"\npeer = 2\nsecond = 4");
    let scenario = parse(&text, 4).unwrap();
    let peers = |holds: &dyn Fn(usize) -> bool| (0..4).filter(|p| holds(*p)).collect::<Vec<_>>();
    assert_eq!(peers(&|peer| scenario.starts_later(peer)), [0]);
    assert_eq!(peers(&|peer| scenario.survives(peer)), [0, 2, 3]);
    let text = format!("allow = [\"fork\"]\n{text}");
    assert!(parse(&text, 4).unwrap().allows(Allowed::Fork));
    assert!(!scenario.allows(Allowed::Fault));
}

#[test]
fn every_mistake_is_named_before_anything_starts() {
    for (what, words) in [
        ("do = \"kill\"\nepoch = 1", "which `peer`"),
        ("do = \"kill\"\npeer = 4\nepoch = 1", "0 to 3"),
        ("do = \"kill-bootstrap\"\npeer = 1\nepoch = 1", "no `peer`"),
        ("do = \"kill\"\npeer = 1", "exactly one of"),
        ("do = \"kill\"\npeer = 1\nepoch = 1\nsecond = 2", "exactly one of"),
        ("do = \"kill\"\npeer = 1\nsecond = -1", "no time"),
        ("do = \"kill\"\npeer = 1\nsecond = nan", "no time"),
        ("do = \"kill\"\npeer = 1\nsecond = 1\nplus_ms = 3", "belongs to `roster`"),
        ("do = \"kill\"\npeer = 1\nepoch = 1\nloss = 0.1", "kill has no `loss`"),
        ("do = \"kill\"\npeer = 1\nepoch = 1\nplus_share = 0.1", "of a `peer`, alone"),
        ("do = \"kill\"\npeer = 1\nroster = 1\nplus_share = 0.1", "an epoch before"),
        ("do = \"kill\"\npeer = 1\nroster = 2\nplus_share = -1", "0 to 10"),
        ("do = \"heal\"\npeer = 1\nepoch = 1", "heal has no `peer`"),
        ("do = \"link\"\npeer = 1\nepoch = 1", "`up`, `rate`"),
        ("do = \"link\"\nup = true\nepoch = 1", "which `peer`"),
        ("do = \"link\"\npeer = 1\nloss = 1.1\nepoch = 1", "0 to 1"),
        ("do = \"link\"\npeer = 1\nloss = nan\nepoch = 1", "0 to 1"),
        ("do = \"link\"\npeer = 1\ndelay_ms = 60000\nepoch = 1", "at most 10000"),
        ("do = \"cut\"\nepoch = 1", "which `peers`"),
        ("do = \"cut\"\npeers = [0, 1, 2, 3]\nepoch = 1", "which `peers`"),
        ("do = \"cut\"\npeers = [4]\nepoch = 1", "0 to 3"),
        ("do = \"black-hole\"\npeer = 1\nepoch = 1", "the receiver in `to`"),
        ("do = \"black-hole\"\npeer = 1\nto = 1\nepoch = 1", "name two"),
        ("do = \"black-hole\"\npeer = 1\nto = 9\nepoch = 1", "0 to 3"),
        ("do = \"kill-bootstrap\"\nroster = 1", "only a peer"),
    ] {
        let error = parse(&step(what), 4).unwrap_err().to_string();
        assert!(error.contains("step 1") && error.contains(words), "{what}: {error}");
    }
    let twice =
        step("do = \"kill\"\npeer = 1\nepoch = 1") + &step("do = \"kill\"\npeer = 1\nepoch = 2");
    let error = parse(&twice, 4).unwrap_err().to_string();
    assert!(error.contains("step 2") && error.contains("does not run"), "{error}");
    let again = step("do = \"interrupt\"\npeer = 1\nepoch = 1")
        + &step("do = \"start\"\npeer = 1\nepoch = 2")
        + &step("do = \"start\"\npeer = 1\nepoch = 2");
    assert!(parse(&again, 4).unwrap_err().to_string().contains("runs already"));
    let all = step("do = \"kill\"\npeer = 0\nepoch = 1");
    assert!(matches!(parse(&all, 1), Err(ScenarioError::NobodyLeft)));
}

#[test]
fn a_stopped_process_can_only_be_continued_or_killed() {
    let steps = |actions: &[&str]| -> String {
        actions
            .iter()
            .map(|action| step(&format!("do = \"{action}\"\npeer = 1\nepoch = 1")))
            .collect()
    };
    for (actions, survives) in [
        (&["stop", "continue"][..], true),
        (&["stop", "kill"], false),
        (&["terminate"], false),
        (&["stop", "kill", "start", "stop", "continue"], true),
    ] {
        assert_eq!(parse(&steps(actions), 2).unwrap().survives(1), survives, "{actions:?}");
    }
    for (actions, words) in [
        (&["continue"][..], "is not stopped"),
        (&["stop", "interrupt"], "continue it first"),
        (&["stop", "start"], "continue it first"),
        (&["kill", "stop"], "does not run"),
        (&["stop"], "stays stopped"),
    ] {
        let error = parse(&steps(actions), 2).unwrap_err().to_string();
        assert!(error.contains(words), "{actions:?}: {error}");
    }
}

#[test]
fn steps_about_links_are_read_and_keep_their_order() {
    let text = step("do = \"cut\"\npeers = [2, 0, 2]\nepoch = 3")
        + &step("do = \"heal\"\nepoch = 3\nplus_ms = 2500")
        + &step("do = \"black-hole\"\npeer = 1\nto = 2\none_way = true\nsecond = 0")
        + &step(
            "do = \"link\"\npeer = 1\nup = false\nrate = 5\ndelay_ms = 7\nloss = 0.5\nsecond = 0",
        );
    let mut scenario = parse(&text, 4).unwrap();
    assert!(scenario.has_links() && !scenario.concerns(1) && scenario.survives(1));
    assert!(due(&mut scenario, 2.9, &observations(2)).is_empty());
    let cut = Action::Links(Change::Cut([0, 2].into()));
    assert_eq!(due(&mut scenario, 3.0, &observations(3)), [cut]);
    assert!(due(&mut scenario, 3.9, &observations(9)).is_empty());
    let hole = Change::BlackHole { from: 1, to: 2, both: false };
    let link = AccessLink {
        up: Some(false),
        rate: Some(5),
        delay: Some(Duration::from_millis(7)),
        loss: Some(0.5),
    };
    let link = Change::Access { peer: 1, link };
    assert_eq!(
        due(&mut scenario, 4.0, &observations(9)),
        [Change::Heal, hole, link].map(Action::Links)
    );
}

#[test]
fn a_file_that_is_not_there_or_not_toml_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    assert!(matches!(Scenario::load(&path, 2), Err(ScenarioError::Read(_))));
    fs::write(&path, "[[step]]\ndo = \"explode\"\n").unwrap();
    let error = Scenario::load(&path, 2).unwrap_err().to_string();
    assert!(error.contains("s.toml") && error.contains("explode"), "{error}");
    fs::write(&path, "[[step]]\ndo = \"kill\"\npeer = 0\nepoc = 3\n").unwrap();
    assert!(Scenario::load(&path, 2).unwrap_err().to_string().contains("epoc"));
}

#[test]
fn a_file_and_its_actions_are_told_as_they_were_written() {
    let text = "allow = [\"fork\"]\n[[step]]\ndo = \"black-hole\"\npeer = 1\nto = 0\none_way = true\nepoch = 4\n";
    let file: File = toml::from_str(text).unwrap();
    let scenario = Scenario::check(file, 2).unwrap();
    let step = json!({ "do": "black-hole", "peer": 1, "to": 0, "one_way": true, "epoch": 4 });
    assert_eq!(scenario.told(), json!({ "allow": ["fork"], "step": [step] }));
    let told = json!({ "do": "black-hole", "peer": 1, "to": 0, "one_way": true });
    assert_eq!(serde_json::Value::Object(scenario.steps[0].action.told()), told);
    assert_eq!(Scenario::default().told(), serde_json::Value::Null);
}
