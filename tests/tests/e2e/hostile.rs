//! Peers that misbehave: each is reported in an event and dropped, and the
//! honest ones are not disturbed.
//!
//! Two real nodes train together while a stranger, made here from the same libraries, does one bad
//! thing over a real connection. Afterwards the nodes must go on committing the same states, never
//! have lost or blamed one another, and end with 0.

mod crowd;
mod flood;
mod ready;
mod rogue;
mod stranger;
mod uninvited;
mod watched;

use std::{collections::BTreeMap, time::Duration};

use e2e::{Process, Story};
use intellect_protocol::{
    base::{
        base58,
        id::{PeerId, RunId},
    },
    history::lineage::Capacity,
    message::{Heartbeat, Loss, Member, Message, Ready, Roster, wire},
};
use serde_json::Value;

use crate::story;
use rogue::Rogue;
use stranger::{Stranger, WEIGHT, beat_within, next_beat};

const PATIENCE: Duration = Duration::from_secs(60);

/// A bootstrap and two nodes; every other peer is a stranger.
struct Honest {
    one: Process,
    two: Process,
    /// The entry address of the bootstrap.
    entry: String,
    _bootstrap: Process,
    story: Story,
}

impl Honest {
    /// Starts two nodes that have committed an epoch together.
    fn train() -> Self {
        let mut honest = Self::start("members.min_peers=2");
        honest.one.wait_for_commit(1, PATIENCE).unwrap();
        honest.two.wait_for_commit(1, PATIENCE).unwrap();
        honest
    }

    fn start(setting: &str) -> Self {
        let story = story();
        let settings = ["members.heartbeat_ms=200", setting];
        let manifest = story.manifest("run.toml", &settings).unwrap();
        let (bootstrap, entry) = story.start_bootstrap(&[manifest]).unwrap();
        let one = story.start_node("one", &entry, &[]).unwrap();
        let two = story.start_node("two", &entry, &[]).unwrap();
        Self { one, two, entry, _bootstrap: bootstrap, story }
    }

    /// What every story requires: no effect on honest peers.
    fn expect_no_harm(mut self) {
        let names = [name(&self.one), name(&self.two)];
        let last = states(&self.one).keys().max().copied().unwrap();
        for node in [&mut self.one, &mut self.two] {
            node.wait_for_commit(last + 2, PATIENCE).unwrap();
            for event in node.events().unwrap() {
                let honest = names.iter().any(|name| event["who"] == **name);
                let kind = event["event"].as_str().unwrap();
                assert!(!(honest && ["fault", "peer-lost"].contains(&kind)), "{event}");
                assert!(!["regroup", "fork", "diverged"].contains(&kind) || is_founding(&event));
                if kind == "committed" {
                    let members = event["members"].as_array().unwrap();
                    assert!(names.iter().all(|name| members.contains(&Value::from(&**name))));
                }
            }
        }
        let (ours, theirs) = (states(&self.one), states(&self.two));
        assert!((1..=last + 2).all(|epoch| ours[&epoch] == theirs[&epoch]));
        for node in [self.one, self.two] {
            node.interrupt().unwrap();
            node.wait(PATIENCE).unwrap().expect_success().unwrap();
        }
    }
}

fn is_founding(event: &Value) -> bool {
    event["event"] == "regroup" && event["epoch"] == 1
}

fn name(node: &Process) -> String {
    node.events().unwrap()[0]["peer"].as_str().unwrap().to_owned()
}

/// The states that a node committed, by epoch.
fn states(node: &Process) -> BTreeMap<u64, String> {
    let events = node.events().unwrap();
    let commits = events.iter().filter(|event| event["event"] == "committed");
    let state = |event: &Value| event["state"].as_str().unwrap().to_owned();
    commits.map(|event| (event["epoch"].as_u64().unwrap(), state(event))).collect()
}

/// Events of one kind about one peer.
fn about(node: &Process, kind: &str, who: &str) -> Vec<Value> {
    let mut events = node.events().unwrap();
    events.retain(|event| event["event"] == kind && event["who"] == who);
    events
}

/// Checks that the stranger is reported for what it did, and dropped for good.
fn expect_fault(stranger: &mut Stranger, node: &mut Process, words: &str) {
    let who = stranger.name();
    let named = |event: &Value| event["event"] == "fault" && event["who"] == *who;
    let fault = stranger.sees(node, words, named);
    assert!(fault["why"].as_str().unwrap().contains(words), "{fault}");
    stranger.expect_to_be_kept_out(node);
    // One report for each message that counts, and none after it was dropped.
    let faults = about(node, "fault", &who);
    assert!(faults.len() <= 8, "{faults:#?}");
}

/// A valid heartbeat of the stranger, which claims the position of an honest node, and to
/// be Ready if it has a weight.
fn own_beat(stranger: &mut Stranger, count: u64, ready: u64) -> Message {
    let (_, beat) = next_beat(stranger);
    Message::Heartbeat(Heartbeat { count, ready, serves: 0, ..beat })
}

/// What a stranger sends, made at that time, and what the fault then says.
type Bytes = (&'static str, fn(&mut Stranger) -> Vec<u8>);

/// The same, made from a heartbeat of an honest node, if a lie about that node is possible: `true`
/// for the node that hears the lie, `false` for the other one.
type Lie = (&'static str, fn(&Stranger, (PeerId, &Heartbeat), bool) -> Option<Message>);

/// Every way to send bytes that are no message of this run: to the node alone, and by gossip.
#[test]
fn who_sends_what_cannot_be_believed_is_dropped_and_named() {
    let mut honest = Honest::train();
    let node = &mut honest.one;
    let cases: [Bytes; 5] = [
        ("cut short", |_| vec![wire::VERSION, 2, 3]),
        ("cannot be decoded", |_| [vec![wire::VERSION], vec![0xa5; 300]].concat()),
        // A valid message, but of another run.
        ("signature does not match", |stranger| {
            let beat = own_beat(stranger, 1, WEIGHT);
            wire::envelope(&wire::seal(&stranger.key, &RunId([7; 32]), beat))
        }),
        // A message with a broken signature.
        ("signature does not match", |stranger| {
            let beat = own_beat(stranger, 1, WEIGHT);
            let mut bytes = wire::envelope(&stranger.seal(beat));
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        }),
        // Signed with another key than that of its author, which is honest.
        ("signature does not match", |stranger| {
            let (author, beat) = next_beat(stranger);
            let beat = Heartbeat { count: beat.count + 1_000, ..beat };
            let mut bytes = wire::envelope(&stranger.seal(Message::Heartbeat(beat)));
            bytes[1..33].copy_from_slice(author.as_bytes());
            bytes
        }),
    ];
    for (index, (words, bytes)) in cases.into_iter().enumerate() {
        let mut stranger = Stranger::enter(100 + u8::try_from(index).unwrap(), node);
        let bytes = bytes(&mut stranger);
        for _ in 0..8 {
            stranger.tell(node, &bytes);
        }
        expect_fault(&mut stranger, node, words);
        let mut stranger = Stranger::enter(120 + u8::try_from(index).unwrap(), node);
        for repeat in 0..8_u32 {
            stranger.gossip(true, [repeat.to_le_bytes().as_slice(), &bytes].concat());
        }
        expect_fault(&mut stranger, node, words);
    }
    honest.expect_no_harm();
}

#[test]
fn who_sends_too_much_is_dropped_and_named() {
    let mut honest = Honest::train();
    let node = &mut honest.one;

    // A length above the limit: the rest is not awaited.
    let mut stranger = Stranger::enter(140, node);
    stranger.write(node, &[0xff; 64]);
    expect_fault(&mut stranger, node, "bytes where at most 1048576 are allowed");

    // A flood of messages that are valid one by one, to one node and by gossip.
    for (seed, ready) in [(141, 0), (144, WEIGHT)] {
        let mut stranger = Stranger::enter(seed, node);
        let Message::Heartbeat(beat) = own_beat(&mut stranger, 0, ready) else {
            panic!("a heartbeat")
        };
        let good = |stranger: &Stranger, count| {
            wire::envelope(&stranger.seal(Message::Heartbeat(Heartbeat { count, ..beat.clone() })))
        };
        for count in 0..400 {
            let bytes = good(&stranger, count);
            stranger.tell(node, &bytes);
        }
        expect_fault(&mut stranger, node, "more than 64 messages a second");
        let mut stranger = Stranger::enter(seed + 1, node);
        for count in 0..400_u32 {
            let bytes = good(&stranger, count.into());
            stranger.gossip(true, [count.to_le_bytes().as_slice(), &bytes].concat());
        }
        expect_fault(&mut stranger, node, "more messages than anybody needs to send");
    }
    // A gossiped message that is too long, although it may be sent directly.
    let mut stranger = Stranger::enter(146, node);
    for repeat in 0..8 {
        stranger.gossip(false, vec![repeat; 70_000]);
    }
    expect_fault(&mut stranger, node, "gossip of 70000 bytes, at most 65536 are allowed");
    honest.expect_no_harm();
}

/// A peer with another version may be honest, and newer or older: it is reported once with a remedy,
/// and not blamed. Nor is the honest node whose name it writes on its messages.
#[test]
fn who_speaks_another_version_is_named_and_blamed_for_nothing() {
    let mut honest = Honest::train();
    let node = &mut honest.one;
    let mut newer = Stranger::new(150, node, "/intellect/2");
    newer.dial(node);
    let (ours, next) = (wire::VERSION.to_string(), wire::VERSION + 1);
    let mut mixed = [(151, next), (152, 3)].map(|(seed, version)| {
        let mut mixed = Stranger::enter(seed, node);
        let (author, beat) = next_beat(&mut mixed);
        let mut bytes = wire::envelope(&mixed.seal(Message::Heartbeat(beat)));
        bytes[0] = version;
        bytes[1..33].copy_from_slice(author.as_bytes());
        for repeat in 0..20_u32 {
            mixed.tell(node, &bytes);
            mixed.gossip(true, [repeat.to_le_bytes().as_slice(), &bytes].concat());
        }
        mixed
    });
    let [later, three] = &mut mixed;
    let next = next.to_string();
    let strangers = [
        (&mut newer, "/intellect/2", "/intellect/1"),
        (later, &*next, &*ours),
        (three, "3", &*ours),
    ];
    for (stranger, version, ours) in strangers {
        let who = stranger.name();
        let named = |event: &Value| event["event"] == "incompatible" && event["who"] == *who;
        let event = stranger.sees(node, version, named);
        assert_eq!(event["version"], version);
        assert!(event["remedy"].as_str().unwrap().contains("update"), "{event}");
        assert!(node.said().contains(&format!(" {version}, this program {ours}: ")));
    }
    mixed.iter_mut().for_each(|mixed| mixed.live(Duration::from_secs(1)));
    let all = node.events().unwrap();
    let count = |kind: &str| all.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((count("incompatible"), count("fault")), (3, 0), "{all:#?}");
    honest.expect_no_harm();
}

/// A gossiped message travels through other peers, so a peer that repeats an old one cannot be told
/// from a slow relay. It must do no harm: no peer is blamed, least of all the author.
#[test]
fn replays_harm_nobody_and_least_of_all_their_author() {
    let mut honest = Honest::train();
    let node = &mut honest.one;
    let mut stranger = Stranger::enter(160, node);
    // Messages of several epochs, of both nodes, of every kind.
    let (_, first) = next_beat(&mut stranger);
    node.wait_for_commit(first.head.epoch + 1, PATIENCE).unwrap();
    stranger.live(Duration::from_secs(2));
    let recorded = stranger.side.heard.clone();
    assert!(recorded.len() > 20, "{}", recorded.len());
    // Each under a new number of repeats, far above what one author may send.
    for round in 1_000..1_030_u32 {
        for heard in &recorded {
            let bytes = [round.to_le_bytes().as_slice(), &heard.bytes[4..]].concat();
            stranger.gossip(heard.beat, bytes);
        }
        stranger.live(Duration::from_millis(100));
    }
    // Slowly to one node alone; a faster stranger would be blamed itself.
    for heard in recorded.iter().take(40) {
        stranger.tell(node, &heard.bytes[4..]);
        stranger.live(Duration::from_millis(20));
    }
    for node in [&honest.one, &honest.two] {
        let blamed = node.events().unwrap().into_iter().find(|event| event["event"] == "fault");
        assert!(blamed.is_none(), "{blamed:#?}");
    }
    honest.expect_no_harm();
}

/// Lies that a node can recognise by its own knowledge or by what others have signed.
#[test]
fn who_lies_about_the_epoch_is_dropped_and_named() {
    let mut honest = Honest::train();
    let node = &mut honest.one;
    let mine = name(node);
    let undeclared = "bad roster: a weight that nobody declared";
    let cases: [Lie; 5] = [
        // While the node still trains: it knows that it has declared nothing,
        // whatever others may believe.
        (undeclared, |liar, honest, to_itself| {
            (to_itself && honest.1.ready == 0).then(|| liar_with(liar, honest.0, honest.1, WEIGHT))
        }),
        // A weight that nobody can declare, for another node than the one that hears it.
        ("bad roster: a weight that no epoch can hold", |liar, honest, to_itself| {
            (!to_itself).then(|| liar_with(liar, honest.0, honest.1, u64::MAX))
        }),
        ("bad roster: the proposer is not its author", |liar, (author, beat), _| {
            Some(roster(beat, author, vec![member(beat, liar.key.peer())]))
        }),
        ("bad roster: the proposer is not a member", |liar, (_, beat), _| {
            Some(roster(beat, liar.key.peer(), vec![member(beat, PeerId([7; 32]))]))
        }),
        ("bad ready: the weight is 0, or more than an epoch can hold", |_, (_, beat), _| {
            let (series, incarnation) = (beat.series, 1);
            Some(Message::Ready(Ready {
                series,
                incarnation,
                weight: u64::MAX,
                norm: 1.0,
                loss: Loss::NONE,
            }))
        }),
    ];
    for (index, (words, lie)) in cases.into_iter().enumerate() {
        let mut stranger = Stranger::enter(170 + u8::try_from(index).unwrap(), node);
        let who = stranger.name();
        // Epochs are short: a lie about an epoch that has passed is merely old.
        for _ in 0..200 {
            // It may have been dropped already, with the event still to come.
            let heard = beat_within(&mut stranger, Duration::from_secs(10));
            let Some((author, beat)) = heard else { break };
            let Some(lie) = lie(&stranger, (author, &beat), base58::encode(&author) == mine) else {
                continue;
            };
            let lie = stranger.seal(lie);
            stranger.tell(node, &wire::envelope(&lie));
            stranger.live(Duration::from_millis(50));
            if !about(node, "fault", &who).is_empty() {
                break;
            }
        }
        expect_fault(&mut stranger, node, words);
    }
    honest.expect_no_harm();
}

/// A roster of the liar and an honest node, with a weight for that node.
fn liar_with(liar: &Stranger, honest: PeerId, beat: &Heartbeat, weight: u64) -> Message {
    let Heartbeat { log, incarnation, .. } = *beat;
    let honest = Member { peer: honest, log, incarnation, weight };
    let me = Member { peer: liar.key.peer(), weight: WEIGHT, ..honest };
    roster(beat, me.peer, vec![honest, me])
}

/// A member that says that it is Ready.
fn member(beat: &Heartbeat, peer: PeerId) -> Member {
    let Heartbeat { log, incarnation, .. } = *beat;
    Member { peer, log, incarnation, weight: WEIGHT }
}

fn roster(beat: &Heartbeat, proposer: PeerId, members: Vec<Member>) -> Message {
    let (series, heard) = (beat.series, Vec::new());
    let keep = Vec::new();
    let (adopt, trust) = (None, None);
    Message::Roster(Roster { series, attempt: 1, proposer, members, heard, adopt, trust, keep })
}

/// A member of the founding sends NaN in its ring stream. The first honest node that gets it
/// reports the fault, and the epoch is committed without that member.
#[test]
fn who_sends_numbers_that_are_none_is_dropped_and_left_out() {
    let mut honest = Honest::start("members.min_peers=3");
    let founders = [&mut honest.one, &mut honest.two];
    let mut rogue = Rogue::join(180, founders, 3, Capacity::Counted(WEIGHT));
    rogue.train();
    let who = rogue.stranger.name();
    let committed = |node: &Process| states(node).contains_key(&1);
    for _ in 0..600 {
        rogue.live(Duration::from_millis(50));
        if committed(&honest.one) && committed(&honest.two) {
            break;
        }
    }
    assert!(rogue.poisoned > 0, "it never came to that");
    let mut faults = about(&honest.one, "fault", &who);
    faults.extend(about(&honest.two, "fault", &who));
    let expected = "bad frame: a frame that does not decode";
    assert!(
        !faults.is_empty() && faults.iter().all(|fault| fault["why"] == expected),
        "{faults:#?}"
    );
    let commit = honest.one.wait_for_commit(1, PATIENCE).unwrap();
    let members = commit["members"].as_array().unwrap();
    let place = members.iter().position(|member| *member == *who);
    assert!(place.is_none_or(|place| commit["weights"][place] == 0), "{commit}");
    drop(rogue);
    honest.expect_no_harm();
}
