//! What happens to updates that are decided, and to those that the disk refuses.

use super::updates::{FETCH_PAUSE, FETCHES};
use super::*;
use crate::access::admit::Level;
use crate::base::blocks::Blocks;
use crate::base::id::{LogId, RunId};
use crate::base::sign::Keypair;
use crate::consensus::epoch::Apply;
use crate::consensus::{epoch, sync};
use crate::history::lineage::{Capacity, LocalPeer, Validator};
use crate::history::log::Recovered;
use crate::machine::output::Replayed;
use crate::message::QuorumRule;

/// A file of the run's data that is handed out.
const FILE: Digest = Digest([7; 32]);

const NAME: Name = Name { epoch: 1, digest: Digest([5; 32]) };

/// A peer at genesis without any other peers.
fn state() -> State {
    let newest = Head { epoch: 0, tokens: 0, state: Digest([1; 32]) };
    let key = Keypair::from_seed(&[1; 32]);
    let peer = peer::Config {
        me: LocalPeer { peer: key.peer(), log: LogId([1; 16]), incarnation: 1 },
        validator: Validator {
            run: RunId([1; 32]),
            key,
            peers_min: 2,
            quorum: QuorumRule::Available,
            elements: 256,
            capacity: Capacity::Counted(125),
            level: Level::Open,
            organiser: PeerId([9; 32]),
            rules: Rules::ALL,
        },
        epoch: epoch::Config {
            ready_grace: Duration::from_secs(30),
            update_bytes: 1_024,
            credentials: epoch::Credentials::default(),
        },
        sync: sync::Config {
            genesis: newest.state,
            founders: Vec::new(),
            replay_max: 7,
            undo_max: 64,
            undo_time: Duration::ZERO,
            unix: 0,
            follow: None,
            notices: Vec::new(),
        },
        heartbeat: Duration::from_millis(500),
        minority_grace: Duration::from_secs(8),
        recovered: Recovered::default(),
    };
    State::new(
        Time::ZERO,
        Config {
            peer,
            codec: Codec::F32,
            newest,
            saved: None,
            published: None,
            file: None,
            data: vec![FILE],
            updates: Vec::new(),
            held: Vec::new(),
        },
    )
}

fn apply() -> peer::Output {
    let Name { epoch, digest: update } = NAME;
    let (r, tokens) = (Digest([6; 32]), 9);
    peer::Output::Apply(Arc::new(Apply { epoch, r, tokens, update, spent: Blocks::default() }))
}

/// The outputs that concern the update.
fn step(state: &mut State, now: Time, input: Input) -> Vec<String> {
    let mut out = Vec::new();
    state.handle(now, input, &mut out);
    described(&out)
}

fn described(out: &[Output]) -> Vec<String> {
    let about = out.iter().filter_map(|output| match output {
        Output::FetchUpdate(name, _) => Some(format!("fetch {}", name.epoch)),
        Output::UpdateDonors(_, from) => Some(format!("donors {}", from.len())),
        Output::Keep(name) => Some(format!("keep {}", name.epoch)),
        Output::Apply(apply) => Some(format!("apply {}", apply.epoch)),
        Output::Lost { epoch } => Some(format!("lost {epoch}")),
        _ => None,
    });
    about.collect()
}

fn tick() -> Input {
    Input::Peer(peer::Input::Tick)
}

#[test]
fn a_decided_update_that_is_not_here_is_fetched_and_then_applied() {
    let (mut state, mut out, now) = (state(), Vec::new(), Time::ZERO);
    state.decide(now, apply(), &mut out);
    assert_eq!(described(&out), ["fetch 1"]);
    assert!(step(&mut state, now, Input::UpdateMissed(NAME)).is_empty());
    assert!(step(&mut state, now, tick()).is_empty(), "a pause");
    assert_eq!(step(&mut state, now + FETCH_PAUSE, tick()), ["fetch 1"]);
    assert_eq!(step(&mut state, now + FETCH_PAUSE, Input::UpdateCame(NAME)), ["keep 1"]);
    let kept = Input::Kept(NAME, Disk::Took);
    assert_eq!(step(&mut state, now + FETCH_PAUSE, kept), ["apply 1"]);
}

/// The first to vote does not serve all that were in no ring.
#[test]
fn an_update_on_its_way_comes_from_all_that_have_it_by_now() {
    let (mut state, now) = (state(), Time::ZERO);
    let named = |state: &mut State, count| {
        let mut out = Vec::new();
        let from = (1..=count).map(|n| PeerId([n; 32])).collect();
        state.decide(now, peer::Output::FetchUpdate(NAME.digest, from), &mut out);
        described(&out)
    };
    assert_eq!(named(&mut state, 1), ["fetch 1"]);
    assert_eq!(named(&mut state, 3), ["donors 3"]);
    assert_eq!(step(&mut state, now, Input::UpdateCame(NAME)), ["keep 1"]);
    assert!(named(&mut state, 4).is_empty(), "it is here");
}

/// Two updates that wait for their votes leave a replay no room to fetch ahead.
#[test]
fn r28_a_replay_without_room_to_fetch_ahead_asks_the_donors_that_it_was_given() {
    let (mut state, mut out, now) = (state(), Vec::new(), Time::ZERO);
    for n in [8, 9] {
        state.hold(Name { epoch: 2, digest: Digest([n; 32]) }, &mut out);
    }
    let donors = vec![PeerId([4; 32]), PeerId([3; 32])];
    let replayed = Replayed { epoch: 1, update: NAME.digest, donors: donors.clone() };
    state.decide(now, peer::Output::Replay(vec![replayed]), &mut out);
    assert!(described(&out).is_empty(), "{out:?}");
    state.decide(now, apply(), &mut out);
    assert!(
        matches!(&out[..], [.., Output::FetchUpdate(NAME, from)] if *from == donors),
        "{out:?}"
    );
}

#[test]
fn the_files_that_a_manifest_lets_hand_out_are_served_and_no_others() {
    let mut state = state();
    let mut ask = |request| {
        let mut out = Vec::new();
        state.handle(Time::ZERO, Input::Asked(Inquiry(1), request), &mut out);
        let served = |output: &Output| matches!(output, Output::Serve(_, Location::Data));
        assert!(out.iter().any(|o| served(o) || matches!(o, Output::Refuse(_))), "{out:?}");
        out.iter().any(served)
    };
    for (file, served) in [(FILE, true), (Digest([8; 32]), false)] {
        assert_eq!(ask(Request::Tree { file, offset: 0 }), served);
        assert_eq!(ask(Request::Data { file, index: 3 }), served);
        assert!(!ask(Request::File { file, offset: 0 }), "it is no tokenizer");
    }
}

/// A restarted process fetches the state instead.
#[test]
fn a_decided_update_that_nobody_has_is_lost() {
    let (mut state, mut out, mut now) = (state(), Vec::new(), Time::ZERO);
    state.decide(now, apply(), &mut out);
    for _ in 1..FETCHES {
        assert!(step(&mut state, now, Input::UpdateMissed(NAME)).is_empty());
        now = now + FETCH_PAUSE;
        assert_eq!(step(&mut state, now, tick()), ["fetch 1"]);
    }
    assert_eq!(step(&mut state, now, Input::UpdateMissed(NAME)), ["lost 1"]);
}

/// R5: the outer step is taken without the disk, which is tried again.
#[test]
fn an_update_that_the_disk_refuses_is_applied_and_kept_later() {
    let (mut state, mut out, now) = (state(), Vec::new(), Time::ZERO);
    state.decide(now, apply(), &mut out);
    assert_eq!(step(&mut state, now, Input::UpdateCame(NAME)), ["keep 1"]);
    assert_eq!(step(&mut state, now, Input::Kept(NAME, Disk::Refused)), ["apply 1"]);
    assert!(step(&mut state, now, tick()).is_empty(), "a pause");
    assert_eq!(step(&mut state, now + DISK_PAUSE, tick()), ["keep 1"]);
}

#[test]
fn what_is_not_here_is_refused_and_an_update_is_served_from_where_it_is() {
    let (mut state, now) = (state(), Time::ZERO);
    let ask = |state: &mut State, number| {
        let (mut out, update) = (Vec::new(), NAME.digest);
        let request = Request::Update { update, offset: 0 };
        state.handle(now, Input::Asked(Inquiry(number), request), &mut out);
        out.into_iter().find_map(|output| match output {
            Output::Serve(Inquiry(of), place) if of == number => Some(Some(place)),
            Output::Refuse(Inquiry(of)) if of == number => Some(None),
            _ => None,
        })
    };
    assert_eq!(ask(&mut state, 1), Some(None));
    step(&mut state, now, Input::UpdateCame(NAME));
    let part = Slice { buffer: Buffer::Update(NAME.digest), range: None };
    assert_eq!(ask(&mut state, 2), Some(Some(Location::Memory(part))));
}

/// R5: a peer votes for updates that it holds; one that had to give way is held no more.
#[test]
fn r5_the_peer_hears_what_it_holds_no_more() {
    let mut state = state();
    for n in 0..=u8::try_from(OPEN).unwrap() {
        state.keep(Name { epoch: 1, digest: Digest([n; 32]) }, None, &mut Vec::new());
    }
    let [peer::Input::UpdateMissing(gone)] = *state.inbox.make_contiguous() else { unreachable!() };
    assert_eq!(gone, Digest([0; 32]));
}

/// R5, R19: an update from our ring stays, and may have a vote, even if no other peer delivers it.
#[test]
fn r19_a_fetch_in_vain_costs_nothing_that_is_here() {
    let (mut state, now) = (state(), Time::ZERO);
    state.fetch(now, NAME, Vec::new(), &mut Vec::new());
    state.keep(NAME, None, &mut Vec::new());
    assert_eq!(step(&mut state, now, Input::UpdateMissed(NAME)), Vec::<String>::new());
    assert!(state.updates.is_in_memory(&NAME.digest));
    step(&mut state, now, Input::Kept(NAME, Disk::Took));
    assert_eq!(step(&mut state, now, Input::UpdateMissed(NAME)), Vec::<String>::new());
    assert!(state.updates.is_on_disk(&NAME.digest));
}

/// R5: an update that had to give way while it was written is not held afterwards.
#[test]
fn r5_an_update_that_gave_way_while_it_was_written_is_not_held() {
    let (mut state, mut out) = (state(), Vec::new());
    for n in 0..=u8::try_from(OPEN).unwrap() {
        state.keep(Name { epoch: 1, digest: Digest([n; 32]) }, None, &mut out);
    }
    state.inbox.clear();
    let gone = Name { epoch: 1, digest: Digest([0; 32]) };
    let buffer = Buffer::Update(gone.digest);
    assert!(out.iter().any(|o| matches!(o, Output::Release(released) if *released == buffer)));
    let drops = |out: &[Output]| out.iter().filter(|o| matches!(o, Output::Drop(_))).count();
    assert_eq!(drops(&out), 0, "its file is not there yet");
    state.on_kept(Time::ZERO, gone, Disk::Took, &mut out);
    assert!(state.inbox.is_empty());
    assert_eq!(drops(&out), 1);
    let held = Name { epoch: 1, digest: Digest([1; 32]) };
    state.on_kept(Time::ZERO, held, Disk::Took, &mut Vec::new());
    assert_eq!(state.inbox.len(), 1);
}
