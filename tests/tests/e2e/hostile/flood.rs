//! The messages of a stranger are bounded where they enter: they fill no link but its own, delay no
//! node's timers, and silence no peer. Each of these strangers claims to be Ready.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use intellect_protocol::{
    base::{
        base58,
        id::{LogId, PeerId},
        sign::Keypair,
    },
    message::{Heartbeat, Message, Report, wire},
};

use super::{Honest, Stranger, WEIGHT, about, next_beat};

/// Keys that one stranger has made.
pub(super) fn crowd(first: u16, count: u16) -> Vec<Keypair> {
    let key = |number: u16| {
        let mut seed = [0xcc; 32];
        seed[..2].copy_from_slice(&number.to_le_bytes());
        Keypair::from_seed(&seed)
    };
    (first..first + count).map(key).collect()
}

/// A heartbeat of such a key, at the position of an honest node and Ready.
pub(super) fn ready(beat: &Heartbeat, count: u64) -> Message {
    let (log, incarnation) = (LogId([9; 16]), 1);
    Message::Heartbeat(Heartbeat {
        count,
        ready: WEIGHT,
        serves: 0,
        log,
        incarnation,
        ..beat.clone()
    })
}

/// What `stranger` has heard of `authors`, in bytes.
fn heard_of(stranger: &Stranger, authors: &BTreeSet<PeerId>) -> usize {
    let of = |bytes: &[u8]| wire::claimed_author(bytes.get(4..).unwrap_or_default());
    let heard = stranger.side.heard.iter().map(|heard| &heard.bytes);
    heard
        .filter(|bytes| of(bytes).is_some_and(|author| authors.contains(&author)))
        .map(Vec::len)
        .sum()
}

/// Well-signed messages of the greatest length of gossip, which no peer needs.
#[test]
fn what_a_stranger_pours_into_one_node_is_not_passed_on_to_all() {
    // More bytes than all nodes together may pass on in that time: see the last assertion.
    const BYTES: usize = 4_000_000;
    let mut honest = Honest::train();
    let mut stranger = Stranger::enter(200, &mut honest.one);
    let mut witness = Stranger::enter(201, &mut honest.two);
    let (_, beat) = next_beat(&mut stranger);
    let keys = crowd(0, 8);
    let authors: BTreeSet<_> = keys.iter().map(Keypair::peer).collect();
    let present: Vec<_> = (0..1_900_u16).map(|n| crowd(n + 1_000, 1)[0].peer()).collect();
    let run = stranger.run;
    let (mut sent, mut repeat) = (0, 0_u32);
    let start = Instant::now();
    while sent < BYTES {
        assert!(start.elapsed() < Duration::from_secs(70), "{sent} bytes in 70 s");
        for key in &keys {
            repeat += 1;
            let living = wire::seal(key, &run, ready(&beat, repeat.into()));
            stranger.gossip(true, wire::gossip(repeat, &living));
            let (series, present) = (beat.series, present.clone());
            let report = Report { series, attempt: 1, chunks: Vec::new(), ready: None, present };
            let long = wire::seal(key, &run, Message::Report(report));
            let bytes = wire::gossip(repeat, &long);
            sent += bytes.len();
            stranger.gossip(false, bytes);
        }
        stranger.live(Duration::from_millis(600));
        witness.live(Duration::from_millis(200));
    }
    witness.live(Duration::from_secs(1));
    let passed_on = heard_of(&witness, &authors);
    let seconds = start.elapsed().as_secs_f64();
    println!("{sent} bytes were sent in {seconds} s, {passed_on} passed on");
    // 40 kB/s, and the burst that is allowed.
    let most = 340_000.0 + 40_000.0 * seconds;
    assert!((passed_on as f64) < most, "{passed_on} of {sent} bytes were passed on, of {most}");
    drop((stranger, witness));
    honest.expect_no_harm();
}

/// Heartbeats without news, of keys that one stranger has made, as fast as a link carries them.
#[test]
fn a_flood_of_heartbeats_keeps_no_node_from_its_own() {
    let mut honest = Honest::train();
    let mut stranger = Stranger::enter(202, &mut honest.one);
    let mut witness = Stranger::enter(203, &mut honest.one);
    let (_, beat) = next_beat(&mut stranger);
    let (run, keys) = (stranger.run, crowd(0, 400));
    let one = base58::decode(&super::name(&honest.one)).unwrap();
    let flood: Vec<Vec<u8>> = (1..=75)
        .flat_map(|count| {
            let message = ready(&beat, count);
            keys.iter().map(move |key| wire::gossip(0, &wire::seal(key, &run, message.clone())))
        })
        .collect();
    let seen = witness.side.heard.len();
    let start = Instant::now();
    for part in flood.chunks(1_000) {
        part.iter().for_each(|bytes| stranger.gossip(true, bytes.clone()));
        stranger.live(Duration::from_millis(30));
        witness.live(Duration::from_millis(10));
    }
    witness.live(Duration::from_secs(6).saturating_sub(start.elapsed()));
    let seconds = start.elapsed().as_secs_f64();
    let new = witness.side.heard.iter().skip(seen).filter(|heard| heard.beat);
    let own = new.filter(|heard| wire::claimed_author(&heard.bytes[4..]) == Some(one)).count();
    println!("{own} heartbeats of its own in {seconds} s");
    assert!(own as f64 > 4.0 * seconds, "{own} heartbeats in {seconds} s, five a second are due");
    drop((stranger, witness));
    honest.expect_no_harm();
}

/// A peer that is heard only through others is not silenced by one that repeats its messages.
#[test]
fn who_repeats_a_peer_does_not_silence_it() {
    let mut honest = Honest::train();
    let mut far = Stranger::enter(204, &mut honest.two);
    let mut stranger = Stranger::enter(205, &mut honest.one);
    let (_, beat) = next_beat(&mut far);
    let who = far.name();
    let mut recorded = None;
    let (mut count, mut repeat) = (0, 1_000_u32);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(12) {
        count += 1;
        let message = far.seal(ready(&beat, count));
        far.gossip(true, wire::gossip(0, &message));
        far.live(Duration::from_millis(60));
        recorded.get_or_insert_with(|| wire::envelope(&message));
        if start.elapsed() > Duration::from_secs(3) {
            for _ in 0..60 {
                repeat += 1;
                let old = recorded.as_deref().unwrap_or_default();
                stranger.gossip(true, [repeat.to_le_bytes().as_slice(), old].concat());
            }
        }
        stranger.live(Duration::from_millis(60));
    }
    assert_eq!(
        about(&honest.one, "peer-found", &who).len(),
        1,
        "it is heard through the other node"
    );
    let lost = about(&honest.one, "peer-lost", &who);
    assert!(lost.is_empty(), "{lost:?}");
    drop((far, stranger));
}

/// Silent streams at the bootstrap, while a newcomer wants to enter there.
#[test]
fn who_is_silent_at_the_bootstrap_keeps_nobody_out() {
    let mut honest = Honest::train();
    let mut stranger = Stranger::enter(206, &mut honest.one);
    stranger.occupy(&honest.entry);
    let mut late = honest.story.start_node("late", &honest.entry, &[]).unwrap();
    stranger.sees(&mut late, "the manifest", |event| event["event"] == "manifest");
    drop((stranger, late));
    honest.expect_no_harm();
}
