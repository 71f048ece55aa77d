//! Tests of the membership view, without clock or network.

use super::*;
use crate::base::id::RunId;
use crate::base::sign::Keypair;
use crate::message::{Invite, Terms};

fn beat(incarnation: u64, count: u64) -> Heartbeat {
    Heartbeat { incarnation, count, ..crate::machine::table::beat() }
}

fn view() -> State {
    let table = PeerTable::new(Duration::from_millis(500), Duration::from_secs(8));
    State::new(PeerId([0; 32]), table)
}

/// G10: a round trip is a claim of the other side.
#[test]
fn g10_no_round_trip_counts_as_longer_than_the_earth_is_wide() {
    let mut view = view();
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    run(&mut view, 0, Input::RoundTrip(A, 19_000));
    assert_eq!(view.table().peers[&A].rtt_ms, 4_000);
}

/// A heartbeat is stored for each of many peers, without its parts that are too long.
#[test]
fn what_is_too_long_in_a_heartbeat_is_not_kept() {
    let mut view = view();
    let key = Keypair::from_seed(&[1; 32]);
    let named = Ticket::named(RunId([7; 32]), A, 0, &key);
    let terms = Terms { label: "x".repeat(TICKET_BYTES_MAX), ..Terms::new(key.peer()) };
    let long = Ticket::invited(Invite::new(RunId([7; 32]), terms, &key), &key, A);
    let of = |ticket: Ticket| Heartbeat { ticket: Some(Box::new(ticket)), ..beat(1, 1) };
    let round_trips = vec![(PeerId([9; 32]), 1); 1_000];
    let unlinked = vec![1; UNLINKED_BYTES_MAX + 1];
    run(&mut view, 0, Input::Heartbeat(A, &Heartbeat { round_trips, unlinked, ..of(long) }));
    let kept = &view.table().peers[&A].beat;
    assert_eq!((kept.round_trips.len(), &kept.ticket), (ROUND_TRIPS_MAX, &None));
    assert!(kept.unlinked.is_empty());
    let next = Heartbeat { count: 2, ..of(named.clone()) };
    run(&mut view, 0, Input::Heartbeat(A, &next));
    assert_eq!(view.table().peers[&A].beat.ticket.as_deref(), Some(&named));
}

/// Far enough from zero for ageing to stay above zero.
const START_MS: u64 = 10_000;

const A: PeerId = PeerId([1; 32]);

fn run(view: &mut State, ms: u64, input: Input<'_>) -> Vec<Event> {
    let mut out = Vec::new();
    view.handle(Time(START_MS + ms), input, &mut out);
    out
}

#[test]
fn a_silent_peer_is_lost_after_four_heartbeats_and_found_again() {
    let mut view = view();
    assert_eq!(run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1))), [Event::PeerFound { who: A }]);
    assert_eq!(view.deadline(), Some(Time(START_MS + 2000)));
    assert_eq!(run(&mut view, 1999, Input::Tick), []);
    assert_eq!(
        run(&mut view, 2000, Input::Tick),
        [Event::PeerLost { who: A, cause: Cause::Silent }]
    );
    assert_eq!(
        run(&mut view, 2500, Input::Heartbeat(A, &beat(1, 2))),
        [Event::PeerFound { who: A }]
    );
}

#[test]
fn a_replayed_heartbeat_revives_nobody() {
    let mut view = view();
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 7)));
    run(&mut view, 1500, Input::Heartbeat(A, &beat(1, 7)));
    run(&mut view, 1600, Input::Heartbeat(A, &beat(0, 99)));
    assert_eq!(
        run(&mut view, 2000, Input::Tick),
        [Event::PeerLost { who: A, cause: Cause::Silent }]
    );
}

#[test]
fn a_closed_connection_is_lost_sooner_unless_gossip_still_brings_heartbeats() {
    let mut view = view();
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    run(&mut view, 100, Input::Unlinked(A));
    assert_eq!(
        run(&mut view, 850, Input::Tick),
        [Event::PeerLost { who: A, cause: Cause::Closed }]
    );
    run(&mut view, 900, Input::Heartbeat(A, &beat(1, 2)));
    run(&mut view, 1000, Input::Unlinked(A));
    run(&mut view, 1400, Input::Heartbeat(A, &beat(1, 3)));
    assert_eq!(run(&mut view, 1800, Input::Tick), []);
}

/// A key that was lost and closes once more is kept nowhere: anybody can make keys.
#[test]
fn a_closed_connection_of_a_lost_peer_is_not_remembered() {
    let mut view = view();
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    run(&mut view, 100, Input::Leaving(A, &Leaving { head: beat(1, 1).head, incarnation: 1 }));
    run(&mut view, 200, Input::Unlinked(A));
    assert!(view.closed.is_empty(), "{:?}", view.closed);
}

#[test]
fn a_farewell_holds_until_a_higher_incarnation_is_heard() {
    let mut view = view();
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    let head = beat(1, 1).head;
    let leaving = Leaving { head, incarnation: 1 };
    assert_eq!(
        run(&mut view, 10, Input::Leaving(A, &leaving)),
        [Event::PeerLost { who: A, cause: Cause::Left }]
    );
    assert_eq!(run(&mut view, 20, Input::Heartbeat(A, &beat(1, 2))), []);
    assert_eq!(run(&mut view, 30, Input::Heartbeat(A, &beat(2, 1))), [Event::PeerFound { who: A }]);
}

fn key(n: u64) -> PeerId {
    let mut key = [0xcc; 32];
    key[..8].copy_from_slice(&n.to_le_bytes());
    PeerId(key)
}

/// F4: more keys than there is room for say, one after the other, that they live.
#[test]
fn a_thousand_keys_close_the_table_to_nobody() {
    let mut view = view();
    view.set_named([A].into());
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    let mut lost = 0;
    for n in 0..1_100 {
        let events = run(&mut view, 1 + n, Input::Heartbeat(key(n), &beat(1, 1)));
        lost += events.iter().filter(|e| matches!(e, Event::PeerLost { .. })).count();
    }
    let is_here = |view: &State, n: u64| view.table().peers.contains_key(&key(n));
    assert!(
        is_here(&view, 1_099) && !is_here(&view, 0),
        "the peer that was silent longest gives way"
    );
    assert!(view.table().peers.contains_key(&A), "a named peer does not");
    assert_eq!((view.table().peers.len(), lost), (PEERS_MAX, 1_101 - PEERS_MAX));
}

/// F4: a peer that is in no receipt is forgotten once it is silent.
#[test]
fn only_named_peers_are_remembered_in_silence() {
    let mut view = view();
    view.set_named([A].into());
    run(&mut view, 0, Input::Heartbeat(A, &beat(1, 1)));
    run(&mut view, 0, Input::Heartbeat(key(1), &beat(1, 1)));
    let events = run(&mut view, 2_000, Input::Tick);
    assert!(events.contains(&Event::PeerLost { who: key(1), cause: Cause::Silent }));
    assert!(view.table().peers.keys().eq([&A]));
    run(&mut view, 600_000, Input::Tick);
    assert!(view.table().peers.is_empty());
}
