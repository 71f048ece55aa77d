//! Keys without a vote hold up no founding, keep no peer out, and are not reported one by one.

use std::time::{Duration, Instant};

use futures::AsyncWriteExt as _;
use intellect_bootstrap::frame;
use intellect_protocol::{
    base::id::{Digest, LogId},
    message::{Answer, Ask, Head, Heartbeat, Message, Phase, Request, Series, wire},
};
use libp2p::Stream;
use serde_json::Value;

use super::{
    Honest, Stranger,
    flood::{crowd, ready},
    name, next_beat, states,
    stranger::{BehaviourEvent, Event, FETCH},
};

const PATIENCE: Duration = Duration::from_secs(40);

/// Answers a request about a lineage on this stream with this head and no link.
async fn answer_with_nothing(mut stream: Stream, head: Head) {
    let Ok(Some(request)) = frame::read(&mut stream, 65_536).await else { return };
    let answer = match wire::open_request(&request) {
        Some(Request::Ask(Ask::Lineage { .. })) => {
            Answer::Lineage { links: Vec::new(), head, openings: Vec::new() }
        }
        Some(Request::Ask(Ask::Chain { .. })) => Answer::Chain(Vec::new()),
        _ => return,
    };
    if frame::write(&mut stream, &wire::answer(&answer)).await.is_ok() {
        // Without this the answer would be lost with the stream, and the
        // request would count as unanswered.
        let _ = stream.close().await;
    }
}

/// R12: while three nodes found their run, a stranger claims a greater
/// head and answers with no link.
#[test]
fn who_answers_with_no_link_delays_no_founding() {
    let mut honest = Honest::start("members.min_peers=3");
    let mut stranger = Stranger::enter(210, &mut honest.one);
    stranger.meet(&mut honest.two);
    let (_, beat) = next_beat(&mut stranger);
    let head = Head { epoch: 1_000, tokens: 1 << 40, state: Digest([7; 32]) };
    let (series, phase, log) = (Series::after(&head), Phase::Train, LogId([9; 16]));
    let claim = Heartbeat { head, series, phase, log, serves: head.epoch, ..beat };
    let mut three = honest.story.start_node("three", &honest.entry, &[]).unwrap();
    // A node that hears of its head and cannot ask it would found the run for all of them.
    stranger.meet(&mut three);
    let (mut count, mut asked, start) = (0, 0, Instant::now());
    while [&honest.one, &honest.two, &three].iter().any(|node| states(node).is_empty()) {
        assert!(start.elapsed() < PATIENCE, "no epoch beside who was asked {asked} times");
        count += 1;
        let beat = stranger.seal(Message::Heartbeat(Heartbeat { count, ..claim.clone() }));
        stranger.gossip(true, wire::gossip(0, &beat));
        let until = Instant::now() + Duration::from_millis(150);
        while let Some(event) = stranger.happens(until.saturating_duration_since(Instant::now())) {
            let Event::Behaviour(BehaviourEvent::Streams(incoming)) = event else { continue };
            if incoming.protocol == FETCH {
                asked += 1;
                stranger.spawn(answer_with_nothing(incoming.stream, head));
            }
        }
    }
    assert!(asked > 0, "nobody has asked the stranger");
}

/// A thousand keys send heartbeats over one connection to each node. A newcomer becomes a member
/// all the same, and few of the keys are reported.
#[test]
fn a_thousand_keys_close_a_run_to_nobody() {
    let mut honest = Honest::train();
    let mut stranger = Stranger::enter(211, &mut honest.one);
    stranger.dial(&mut honest.two);
    let (_, beat) = next_beat(&mut stranger);
    let keys = crowd(5_000, 1_100);
    let say = |stranger: &mut Stranger, count: u64| {
        for part in keys.chunks(60) {
            for key in part {
                let message = wire::seal(key, &stranger.run, ready(&beat, count));
                stranger.gossip(true, wire::gossip(0, &message));
            }
            stranger.live(Duration::from_millis(50));
        }
    };
    (1..=3).for_each(|count| say(&mut stranger, count));
    let late = honest.story.start_node("late", &honest.entry, &[]).unwrap();
    let is_member = |event: &Value| {
        let members = event["members"].as_array();
        event["event"] == "committed"
            && members.is_some_and(|all| all.contains(&name(&late).into()))
    };
    let (mut count, start) = (3, Instant::now());
    while states(&late).is_empty() || !honest.one.events().unwrap().iter().any(is_member) {
        assert!(start.elapsed() < PATIENCE, "the newcomer is no member");
        count += 1;
        say(&mut stranger, count);
    }
    for node in [&honest.one, &honest.two] {
        let events = node.events().unwrap();
        let found = events.iter().filter(|event| event["event"] == "peer-found").count();
        assert!(found <= 40, "{found} peers were told one by one");
    }
    drop((stranger, late));
}
