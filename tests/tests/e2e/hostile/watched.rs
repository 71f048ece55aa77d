//! A stranger that calls itself a member, and shows a watcher a run that is not so.

use std::{
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use futures::AsyncWriteExt as _;
use intellect_bootstrap::frame;
use intellect_protocol::{
    base::id::Digest,
    message::{Answer, Head, Picture, Request, wire},
};
use libp2p::swarm::SwarmEvent;
use serde_json::Value;

use super::{
    Honest, PATIENCE, states,
    stranger::{BehaviourEvent, FETCH, Stranger, VERSION},
};
use crate::see::{get, page, until};

/// It is asked like others, since an entry point names it, and first, since nobody is further. What it cannot prove ends
/// that, and the run is shown as it is.
#[test]
fn a_liar_that_is_found_like_a_member_is_asked_no_more_by_a_watcher() {
    let mut honest = Honest::train();
    let mut liar = Stranger::new(200, &mut honest.one, VERSION);
    liar.announce(&honest.entry);
    let who = liar.name();
    let (end, over) = channel();
    let lying = thread::spawn(move || lie(liar, &over));

    let line = ["watch", "--bootstrap", &honest.entry, "--page", "127.0.0.1:0"];
    let mut watch = honest.story.start_command("watch", &line).unwrap();
    let at = page(&mut watch);
    let why = format!("is asked no more: it says that it is at epoch {LIE}, and proves none");
    watch.wait_until_it_said(&why, PATIENCE).unwrap();
    let seen = || serde_json::from_str::<Value>(&get(&at, "/status").1).unwrap();
    let seen = until(seen, |seen| seen["head"]["epoch"].as_u64() >= Some(3));
    let epoch = seen["head"]["epoch"].as_u64().unwrap();
    assert!(epoch < LIE, "{seen}");
    honest.one.wait_for_commit(epoch, PATIENCE).unwrap();
    assert_eq!(seen["head"]["state"], states(&honest.one)[&epoch]);
    let ring = seen["ring"].as_array().unwrap();
    assert!(ring.len() == 2 && ring.iter().all(|seat| seat["peer"] != *who), "{seen}");
    drop(end);
    lying.join().unwrap();
    honest.expect_no_harm();
}

/// Answers each question as a member would that is far ahead of all others, until the story is over.
fn lie(mut liar: Stranger, over: &Receiver<()>) {
    let mut kept = Vec::new();
    while over.try_recv() == Err(TryRecvError::Empty) {
        let event = liar.happens(Duration::from_millis(50));
        let Some(SwarmEvent::Behaviour(BehaviourEvent::Streams(incoming))) = event else {
            continue;
        };
        let mut stream = incoming.stream;
        if incoming.protocol != FETCH {
            // A member keeps such a stream open.
            kept.push(stream);
            continue;
        }
        liar.spawn(async move {
            let Ok(Some(bytes)) = frame::read(&mut stream, LIMIT).await else { return };
            let head = Head { epoch: LIE, tokens: 1 << 40, state: Digest([7; 32]) };
            let answer = match wire::open_request(&bytes) {
                Some(Request::Picture) => Answer::Picture(Picture { head, rows: Vec::new() }),
                Some(Request::Ask(_)) => {
                    Answer::Lineage { links: Vec::new(), head, openings: Vec::new() }
                }
                _ => return,
            };
            // A watcher that has left it reads nothing.
            let _ = frame::write(&mut stream, &wire::answer(&answer)).await;
            let _ = stream.close().await;
        });
    }
}

/// The epoch at which it says that it is.
const LIE: u64 = 1_000_000;
/// The longest question that it reads, in bytes.
const LIMIT: u32 = 1 << 10;
