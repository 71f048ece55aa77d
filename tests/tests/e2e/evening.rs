//! An ordinary evening: friends leave, in any order, and come back another day with
//! the line that each node printed last. They are one run again, and nothing that two
//! of them had decided is undone.

use std::{
    collections::BTreeMap,
    env, fs, thread,
    time::{Duration, Instant},
};

use e2e::{Done, Process, Story};
use rustix::process::Signal;
use serde_json::Value;

use crate::story;

const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two actions of people: enough for the nodes that are
/// there to decide an epoch or two.
const MOMENT: Duration = Duration::from_millis(1_500);

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A few friends and their run.
struct Evening {
    story: Story,
    bootstrap: Option<Process>,
    nodes: Vec<Option<Process>>,
    left: BTreeMap<usize, Done>,
    returned: Instant,
}

impl Evening {
    /// Starts the nodes and waits until they have committed epochs together.
    fn begin(friends: usize, settings: &[&str]) -> Self {
        Self::of(story(), friends, settings)
    }

    fn of(story: Story, friends: usize, settings: &[&str]) -> Self {
        let least = format!("members.min_peers={friends}");
        let settings: Vec<&str> = settings.iter().copied().chain([least.as_str()]).collect();
        let manifest = story.manifest("run.toml", &settings).unwrap();
        let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
        let start = |name: &&str| Some(story.start_node(name, &entry, &[]).unwrap());
        let nodes = NAMES[..friends].iter().map(start).collect();
        let (left, returned) = (BTreeMap::new(), Instant::now());
        let mut evening = Self { story, bootstrap: Some(bootstrap), nodes, left, returned };
        evening.wait_together(2);
        evening
    }

    fn node(&mut self, friend: usize) -> &mut Process {
        self.nodes[friend].as_mut().unwrap()
    }

    /// Ends a node by Ctrl-C, and waits a moment.
    fn leave(&mut self, friend: usize) {
        let node = self.nodes[friend].take().unwrap();
        node.interrupt().unwrap();
        let done = node.wait(PATIENCE).unwrap().expect_success().unwrap();
        self.left.insert(friend, done);
        thread::sleep(MOMENT);
    }

    /// Starts the node with its own last line, and waits a moment.
    fn go_on(&mut self, friend: usize) {
        self.returned = Instant::now();
        let left = &self.left[&friend];
        self.nodes[friend] = Some(self.story.go_on(NAMES[friend], left).unwrap());
        thread::sleep(MOMENT);
    }

    fn leave_in_turn(&mut self, friends: &[usize]) {
        friends.iter().for_each(|friend| self.leave(*friend));
    }

    fn go_on_in_turn(&mut self, friends: &[usize]) {
        friends.iter().for_each(|friend| self.go_on(*friend));
    }

    /// The commits of a friend's node so far, over all its starts.
    fn committed(&self, friend: usize) -> Vec<Value> {
        let path = self.story.path(NAMES[friend]).join("events.jsonl");
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole.lines().map(|line| serde_json::from_str(line).unwrap());
        let kinds = ["committed", "fork", "diverged"];
        events.filter(|event: &Value| kinds.iter().any(|kind| event["event"] == *kind)).collect()
    }

    fn head(&self) -> u64 {
        let all = (0..self.nodes.len()).flat_map(|friend| self.committed(friend));
        all.filter_map(|event| event["epoch"].as_u64()).max().unwrap_or(0)
    }

    /// Waits until all have committed `more` epochs above the greatest
    /// one, each with the work of all.
    fn wait_together(&mut self, more: u64) {
        let (head, friends) = (self.head(), self.nodes.len());
        for friend in 0..friends {
            let together = |event: &Value| {
                let weights = event["weights"].as_array();
                event["epoch"].as_u64() >= Some(head + more)
                    && weights.is_some_and(|all| all.iter().filter(|w| **w != 0).count() == friends)
            };
            self.node(friend).wait_for(PATIENCE, together).unwrap();
        }
    }

    /// Checks that they are together again, that there was no fork, and
    /// that each epoch has one state.
    fn expect_one_run(mut self, story: &str) {
        self.wait_together(1);
        println!(
            "{story}: in one ring {:.1} s after the last start",
            self.returned.elapsed().as_secs_f64()
        );
        let mut states: BTreeMap<u64, Value> = BTreeMap::new();
        for event in (0..self.nodes.len()).flat_map(|friend| self.committed(friend)) {
            assert_eq!(event["event"], "committed", "{event}");
            let state = states.entry(event["epoch"].as_u64().unwrap());
            assert_eq!(*state.or_insert_with(|| event["state"].clone()), event["state"], "{event}");
        }
    }
}

/// Plays a story once, or `INTELLECT_EVENINGS` times, and prints after how
/// long all were together again.
fn play(name: &str, story: impl Fn() -> Evening) {
    let tries = env::var("INTELLECT_EVENINGS").map_or(1, |tries| tries.parse().unwrap());
    (0..tries).for_each(|_| story().expect_one_run(name));
}

#[test]
fn both_leave_and_both_return_in_the_same_order() {
    play("both leave and return", || {
        let mut evening = Evening::begin(2, &[]);
        evening.leave_in_turn(&[0, 1]);
        evening.go_on_in_turn(&[0, 1]);
        evening
    });
}

#[test]
fn both_leave_and_both_return_the_other_way_round() {
    play("both leave, and return the other way round", || {
        let mut evening = Evening::begin(2, &[]);
        evening.leave_in_turn(&[0, 1]);
        evening.go_on_in_turn(&[1, 0]);
        evening
    });
}

#[test]
fn one_leaves_and_returns_while_the_other_goes_on() {
    play("one goes on, the other returns", || {
        let mut evening = Evening::begin(2, &[]);
        evening.leave(0);
        let head = evening.head();
        evening.node(1).wait_for_commit(head + 4, PATIENCE).unwrap();
        evening.go_on(0);
        evening
    });
}

/// The friend that left first must not go on next to the one that went on without it.
#[test]
fn one_goes_on_alone_and_leaves_and_both_return() {
    play("one goes on and leaves later", || {
        let mut evening = Evening::begin(2, &[]);
        evening.leave(0);
        let head = evening.head();
        evening.node(1).wait_for_commit(head + 4, PATIENCE).unwrap();
        evening.leave(1);
        evening.go_on_in_turn(&[0, 1]);
        evening
    });
}

#[test]
fn all_return_without_the_bootstrap() {
    play("without the bootstrap", || {
        let mut evening = Evening::begin(3, &[]);
        evening.leave_in_turn(&[0, 1, 2]);
        evening.bootstrap = None;
        evening.go_on_in_turn(&[2, 0, 1]);
        evening
    });
}

/// Its key is another one too, as after the loss of its folder.
#[test]
fn all_return_and_the_bootstrap_has_another_port() {
    play("with the bootstrap elsewhere", || {
        let mut evening = Evening::begin(2, &[]);
        evening.leave_in_turn(&[0, 1]);
        evening.bootstrap = None;
        fs::remove_dir_all(evening.story.path("bootstrap")).unwrap();
        let manifest = evening.story.path("run.toml");
        evening.bootstrap = Some(evening.story.start_bootstrap(&[manifest]).unwrap().0);
        evening.go_on_in_turn(&[0, 1]);
        evening
    });
}

/// No Regroup could open the next series in such a run, so no goodbye may close one.
#[test]
fn founders_who_need_a_majority_return() {
    play("founders of a majority run", || {
        let story = story();
        let founder = |name: &str| {
            fs::create_dir_all(story.path(&format!("{name}/data"))).unwrap();
            let key = story.text(&format!("{name}/data/identity.key"));
            let made = story.node(&["keygen", "--out", &key]).unwrap().expect_success().unwrap();
            let founder = made.out.lines().find_map(|line| line.strip_prefix("founder "));
            founder.unwrap_or_else(|| panic!("{}", made.out)).trim().to_owned()
        };
        let founders = format!("members.founders={:?}", NAMES.map(founder));
        let mut evening = Evening::of(story, 3, &["members.quorum=majority", &founders]);
        evening.leave_in_turn(&[0, 1, 2]);
        evening.go_on_in_turn(&[1, 2, 0]);
        evening
    });
}

#[test]
fn the_last_one_leaves_while_another_sleeps() {
    play("one sleeps meanwhile", || {
        let mut evening = Evening::begin(2, &[]);
        evening.node(1).signal(Signal::STOP).unwrap();
        thread::sleep(MOMENT);
        evening.leave(0);
        evening.node(1).signal(Signal::CONT).unwrap();
        thread::sleep(MOMENT);
        evening.go_on(0);
        evening
    });
}
