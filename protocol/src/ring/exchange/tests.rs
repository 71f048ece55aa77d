//! Whole rings in memory, with events in any order, and what a bad neighbour may try.

use std::collections::BTreeSet;

use super::*;
use crate::base::fault::{Fault, FrameFault};
use crate::base::rng::Rng;
use crate::ring::FRAME;
use crate::ring::codec::reduce::Share;

const RUN: RunId = RunId([1; 32]);
const ROSTER: Digest = Digest([2; 32]);

fn key(position: usize) -> Keypair {
    Keypair::from_seed(&[u8::try_from(position).unwrap() + 10; 32])
}

fn state(elements: usize, members: usize, position: usize, codec: Codec) -> State {
    State::new(Config {
        run: RUN,
        roster: ROSTER,
        cut: Cut::new(elements, members),
        codec,
        members: (0..members).map(|position| key(position).peer()).collect(),
        position,
        key: key(position),
    })
}

/// One member: the machine, and the buffers that its caller owns.
struct Node {
    state: State,
    codec: Codec,
    weight: u64,
    total: u64,
    delta: Vec<f32>,
    update: Vec<u8>,
    works: VecDeque<(Work, Frame, Vec<u8>)>,
    /// Bytes copied at `Send` that are not written yet.
    writing: Option<(Label, Vec<u8>)>,
    hashes: VecDeque<usize>,
    sealed: BTreeSet<usize>,
    held: bool,
    closed: bool,
    most_works: usize,
}

impl Node {
    fn new(state: State, weight: u64, total: u64, delta: Vec<f32>) -> Self {
        let codec = state.config.codec;
        let update = vec![0xcc; codec.encoded_bytes(delta.len())];
        Self {
            state,
            codec,
            weight,
            total,
            delta,
            update,
            works: VecDeque::new(),
            writing: None,
            hashes: VecDeque::new(),
            sealed: BTreeSet::new(),
            held: false,
            closed: false,
            most_works: 0,
        }
    }

    fn handle(&mut self, input: Input, payload: &[u8]) {
        let mut out = Vec::new();
        self.state.handle(input, &mut out);
        for output in out {
            match output {
                Output::Work(work, at) => self.works.push_back((work, at, payload.to_vec())),
                Output::Keep(at) => self.update[self.state.place(at)].copy_from_slice(payload),
                Output::Hash(chunk) => self.hashes.push_back(chunk),
                Output::Send(item) => {
                    let payload = match item {
                        Item::Frame(_, at) => self.update[self.state.place(at)].to_vec(),
                        Item::Seal(_, seal) => seal.to_bytes().to_vec(),
                    };
                    assert!(self.writing.is_none(), "one at a time");
                    self.writing = Some((self.state.label(&item, &payload), payload));
                }
                Output::Sealed(chunk, seal) => self.seal(chunk, &seal),
                Output::Held => self.held = true,
                Output::Closed => self.closed = true,
                Output::Fault(why) => panic!("{why}"),
            }
        }
        self.most_works = self.most_works.max(self.works.len());
    }

    /// A chunk that is reported can be kept: its bytes are here, and its owner has sealed it (R32).
    fn seal(&mut self, chunk: usize, seal: &Seal) {
        let Config { cut, roster, members, .. } = &self.state.config;
        let owner = members[cut.owner(chunk)];
        assert!(seal.is_of(&owner, &key(0), &RUN, roster, u32::try_from(chunk).unwrap()));
        let bytes = &self.update[self.state.chunk_place(chunk)];
        assert_eq!(seal.digest.0, *blake3::hash(bytes).as_bytes());
        assert!(self.sealed.insert(chunk), "once");
    }

    /// Does the oldest piece of work, if there is one.
    fn work(&mut self) -> bool {
        let Some((work, at, payload)) = self.works.pop_front() else { return false };
        let delta = &self.delta[self.state.config.cut.frame(at.chunk, at.frame)];
        let share = Share { codec: self.codec, weight: self.weight, delta };
        let out = &mut self.update[self.state.place(at)];
        match work {
            Work::Start => share.start(out),
            Work::Add => share.add(&payload, out),
            Work::Finish => share.finish(&payload, self.total, out),
            Work::Alone => share.alone(out),
        }
        .unwrap();
        self.handle(Input::Worked, &[]);
        true
    }

    fn hash(&mut self) -> bool {
        let Some(chunk) = self.hashes.pop_front() else { return false };
        let bytes = &self.update[self.state.chunk_place(chunk)];
        self.handle(Input::Hashed(chunk, Digest(*blake3::hash(bytes).as_bytes())), &[]);
        true
    }
}

/// The receiving side of a stream: an item that was read whole.
fn input_of(label: Label, payload: &[u8]) -> Input {
    assert!(label.announces(payload));
    match label.kind {
        Kind::Frame(_) => Input::Frame(label),
        Kind::Seal => Input::Seal(label, Seal::from_bytes(payload).unwrap()),
    }
}

fn deltas(elements: usize, members: usize) -> Vec<Vec<f32>> {
    let value = |member: usize, index: usize| ((index * (2 * member + 3)) % 1009) as f32 - 500.0;
    (0..members).map(|member| (0..elements).map(|i| value(member, i)).collect()).collect()
}

fn weight(member: usize) -> u64 {
    1000 + 37 * member as u64
}

/// A ring in which the next possible event is drawn at random, over streams that hold one item.
/// Ends when no event is possible.
fn run_ring(elements: usize, members: usize, codec: Codec, seed: u64) -> Vec<Node> {
    run_ring_with(elements, members, codec, seed, None)
}

/// The same, with a member that sends nothing.
fn run_ring_with(
    elements: usize,
    members: usize,
    codec: Codec,
    seed: u64,
    silent: Option<usize>,
) -> Vec<Node> {
    let mut rng = Rng::new(seed);
    let total = (0..members).map(weight).sum();
    let mut nodes: Vec<Node> = deltas(elements, members)
        .into_iter()
        .enumerate()
        .map(|(i, delta)| Node::new(state(elements, members, i, codec), weight(i), total, delta))
        .collect();
    // What is on its way to each node.
    let mut streams: Vec<Option<(Label, Vec<u8>)>> = vec![None; members];
    for node in &mut nodes {
        node.handle(Input::Open, &[]);
    }
    let mut idle = 0;
    while idle < 40 * members {
        let at = usize::try_from(rng.below(members as u64)).unwrap();
        let next = (at + 1) % members;
        let moved = match rng.below(4) {
            0 => nodes[at].work(),
            1 => nodes[at].hash(),
            2 if silent != Some(at) && nodes[at].writing.is_some() && streams[next].is_none() => {
                streams[next] = nodes[at].writing.take();
                nodes[at].handle(Input::Sent, &[]);
                true
            }
            3 if nodes[at].state.may_read() => match streams[at].take() {
                Some((label, payload)) => {
                    nodes[at].handle(input_of(label, &payload), &payload);
                    true
                }
                None => false,
            },
            _ => false,
        };
        idle = if moved { 0 } else { idle + 1 };
    }
    nodes
}

/// The expected update: the same arithmetic chunk by chunk, without any machine.
fn expected_update(elements: usize, members: usize, codec: Codec) -> Vec<u8> {
    let (cut, deltas) = (Cut::new(elements, members), deltas(elements, members));
    let total = (0..members).map(weight).sum();
    let mut update = Vec::new();
    for chunk in 0..members {
        for frame in 0..cut.frame_count(chunk) {
            let range = cut.frame(chunk, frame);
            let (mut bytes, mut out) = (vec![], vec![0; codec.encoded_bytes(range.len())]);
            for hop in 0..members {
                let member = (chunk + hop) % members;
                let delta = &deltas[member][range.clone()];
                let share = Share { codec, weight: weight(member), delta };
                match hop {
                    _ if members == 1 => share.alone(&mut out),
                    0 => share.start(&mut out),
                    _ if hop + 1 == members => share.finish(&bytes, total, &mut out),
                    _ => share.add(&bytes, &mut out),
                }
                .unwrap();
                bytes.clone_from(&out);
            }
            update.extend(bytes);
        }
    }
    update
}

/// D3, S4 and the end of every ring: whatever the order of events, all members hold the bytes that
/// ring order alone determines, and no member waits for ever.
#[test]
fn every_order_of_events_gives_the_same_update() {
    for members in 1..=6 {
        for (elements, seeds) in [(100, 3), (3000, 3), (2 * members * FRAME + 5000, 1)] {
            for codec in [Codec::F32, Codec::Int8] {
                if elements > 3000 && codec == Codec::F32 {
                    continue;
                }
                let expected = expected_update(elements, members, codec);
                for seed in 0..seeds {
                    for (position, node) in
                        run_ring(elements, members, codec, seed).iter().enumerate()
                    {
                        let place = format!("{members} members, position {position}, seed {seed}");
                        assert!(node.held && node.closed, "{place}: not finished");
                        assert!(node.update == expected, "{place}: another update");
                        assert!(node.most_works <= FRAMES_MAX, "{place}: {}", node.most_works);
                    }
                }
            }
        }
    }
}

/// More frames than may be under way: streams that are full everywhere do not deadlock.
#[test]
fn a_full_ring_does_not_lock_up() {
    let (members, elements) = (3, 3 * 30 * FRAME);
    let zeros = |i: usize| {
        let state = state(elements, members, i, Codec::Int8);
        Node::new(state, 1, 3, vec![0.0; elements])
    };
    let mut nodes: Vec<Node> = (0..members).map(zeros).collect();
    for node in &mut nodes {
        node.handle(Input::Open, &[]);
    }
    let mut streams: Vec<Option<(Label, Vec<u8>)>> = vec![None; members];
    let mut moved = true;
    // Work comes first and reads come last: the streams are as full as possible.
    while moved {
        moved = false;
        for (at, node) in nodes.iter_mut().enumerate() {
            while node.work() || node.hash() {
                moved = true;
            }
            let stream = &mut streams[(at + 1) % members];
            if stream.is_none() && node.writing.is_some() {
                *stream = node.writing.take();
                node.handle(Input::Sent, &[]);
                moved = true;
            }
        }
        for (node, stream) in nodes.iter_mut().zip(&mut streams) {
            if node.state.may_read()
                && let Some((label, payload)) = stream.take()
            {
                node.handle(input_of(label, &payload), &payload);
                moved = true;
            }
        }
    }
    assert!(nodes.iter().all(|node| node.most_works <= FRAMES_MAX), "frames in memory");
    assert!(nodes.iter().all(|node| node.held && node.closed));
}

/// The middle one of three, with one frame in each chunk, after `Open` and its first work.
fn middle() -> State {
    let mut state = state(3 * FRAME, 3, 1, Codec::Int8);
    let mut out = Vec::new();
    state.handle(Input::Open, &mut out);
    assert_eq!(out, [Output::Work(Work::Start, Frame { chunk: 1, frame: 0 })]);
    state.handle(Input::Worked, &mut out);
    assert_eq!(
        out.last(),
        Some(&Output::Send(Item::Frame(Half::Reduce, Frame { chunk: 1, frame: 0 })))
    );
    state
}

fn label(half: Half, chunk: u32, frame: u32) -> Label {
    let length = u32::try_from(Codec::Int8.encoded_bytes(FRAME)).unwrap();
    let payload = Digest::ZERO;
    Label { length, roster: ROSTER, kind: Kind::Frame(half), chunk, frame, payload }
}

fn outputs(state: &mut State, inputs: &[Input]) -> Vec<Output> {
    let mut out = Vec::new();
    for input in inputs {
        state.handle(*input, &mut out);
    }
    out
}

/// The fault of the last of `inputs`, which must be the first fault.
fn fault(inputs: &[Input]) -> FrameFault {
    let mut state = middle();
    let before = outputs(&mut state, &inputs[..inputs.len() - 1]);
    assert!(!before.iter().any(|output| matches!(output, Output::Fault(_))), "{before:?}");
    let out = outputs(&mut state, &inputs[inputs.len() - 1..]);
    let [Output::Fault(Fault::Frame(why))] = out[..] else { panic!("{out:?}") };
    // The exchange is over: no input moves it any more.
    assert_eq!(outputs(&mut state, &[Input::Worked, Input::Sent, Input::Open]), []);
    why
}

#[test]
fn r31_a_frame_is_applied_once_and_where_it_belongs() {
    let sum = |chunk, frame| Input::Frame(label(Half::Reduce, chunk, frame));
    let finished = |chunk, frame| Input::Frame(label(Half::Gather, chunk, frame));
    // Position 1 of 3 adds to chunk 0, finishes chunk 2 and starts chunk 1.
    let mut state = middle();
    let out = outputs(&mut state, &[sum(0, 0), sum(2, 0)]);
    let works = [
        Output::Work(Work::Add, Frame { chunk: 0, frame: 0 }),
        Output::Work(Work::Finish, Frame { chunk: 2, frame: 0 }),
    ];
    assert_eq!(out, works);
    let twice = FrameFault::SumOrder;
    assert_eq!(fault(&[sum(0, 0), sum(0, 0)]), twice);
    assert_eq!(fault(&[sum(0, 0), Input::Worked, Input::Sent, sum(0, 0)]), twice);
    assert_eq!(fault(&[sum(1, 0)]), FrameFault::OwnSum);
    assert_eq!(fault(&[sum(0, 1)]), FrameFault::NoSuchFrame);
    assert_eq!(fault(&[sum(0, u32::MAX)]), FrameFault::NoSuchFrame);
    assert_eq!(fault(&[sum(3, 0)]), FrameFault::NoSuchChunk);
    assert_eq!(fault(&[sum(u32::MAX, 0)]), FrameFault::NoSuchChunk);
    assert_eq!(fault(&[finished(2, 0)]), FrameFault::OwnChunk);
    assert_eq!(fault(&[finished(1, 0), finished(1, 0)]), FrameFault::FinishedOrder);
    let early = FrameFault::TooEarly;
    assert_eq!(fault(&[finished(0, 0)]), early);
    assert_eq!(fault(&[sum(0, 0), Input::Worked, finished(0, 0)]), early);
    let short = Label { length: 260, ..label(Half::Reduce, 0, 0) };
    assert_eq!(fault(&[Input::Frame(short)]), FrameFault::Length);
}

#[test]
fn r31_frames_of_another_roster_are_dropped_without_fault() {
    let mut state = middle();
    let other = Label { roster: Digest([9; 32]), ..label(Half::Reduce, 0, 0) };
    let seal = Seal::new(&key(0), &RUN, &ROSTER, 0, Digest::ZERO);
    assert_eq!(outputs(&mut state, &[Input::Frame(other), Input::Seal(other, seal)]), []);
}

/// Position 0, the predecessor, owns chunk 1: frame, hash, then its seal in several forms.
#[test]
fn r30_a_seal_is_checked_before_it_is_passed_on() {
    let finished = Input::Frame(label(Half::Gather, 1, 0));
    let digest = Digest([4; 32]);
    let hashed = Input::Hashed(1, digest);
    let head = Label { kind: Kind::Seal, ..label(Half::Gather, 1, 0) };
    let seal_by = |position: usize, roster: &Digest, chunk, digest: Digest| {
        Input::Seal(head, Seal::new(&key(position), &RUN, roster, chunk, digest))
    };
    let good = seal_by(0, &ROSTER, 1, digest);
    for inputs in [[finished, hashed, good], [finished, good, hashed]] {
        let mut state = middle();
        let mut out = outputs(&mut state, &inputs);
        assert!(out.contains(&Output::Keep(Frame { chunk: 1, frame: 0 })));
        assert!(out.contains(&Output::Hash(1)));
        // Its successor, position 2, does not own chunk 1: frame and seal go on, in order.
        out = outputs(&mut state, &[Input::Sent, Input::Sent]);
        let Input::Seal(_, seal) = good else { unreachable!() };
        let sent = [
            Output::Send(Item::Frame(Half::Gather, Frame { chunk: 1, frame: 0 })),
            Output::Send(Item::Seal(1, seal)),
        ];
        assert_eq!(out, sent);
    }
    let forged = FrameFault::SealOfOther;
    assert_eq!(fault(&[finished, hashed, seal_by(2, &ROSTER, 1, digest)]), forged);
    assert_eq!(fault(&[finished, hashed, seal_by(0, &Digest([9; 32]), 1, digest)]), forged);
    assert_eq!(fault(&[finished, hashed, seal_by(0, &ROSTER, 0, digest)]), forged);
    let other = seal_by(0, &ROSTER, 1, Digest([5; 32]));
    let mismatch = FrameFault::SealOfOtherChunk;
    assert_eq!(fault(&[finished, hashed, other]), mismatch);
    assert_eq!(fault(&[good]), FrameFault::SealTooEarly);
    assert_eq!(fault(&[finished, good, good]), FrameFault::SealNotDue);
    let seal = Seal::new(&key(0), &RUN, &ROSTER, 2, digest);
    let own = Label { chunk: 2, ..head };
    assert_eq!(fault(&[Input::Seal(own, seal)]), FrameFault::SealNotDue);
    let none = Label { chunk: 3, ..head };
    assert_eq!(fault(&[Input::Seal(none, seal)]), FrameFault::SealOfNoChunk);
}

/// Each member gets one hop more than the one before it, from the successor of the silent one on.
#[test]
fn r40_the_hops_that_came_show_which_member_sends_nothing() {
    for (seed, members) in (2..=7).enumerate() {
        for silent in 0..members {
            let nodes = run_ring_with(5000, members, Codec::F32, seed as u64, Some(silent));
            for (at, node) in nodes.iter().enumerate() {
                let distance = (at + members - silent + members - 1) % members;
                assert_eq!(node.state.hops(), distance, "{members}: {silent} silent, {at}");
            }
        }
        let nodes = run_ring(1000, members, Codec::Int8, 1);
        assert!(nodes.iter().all(|node| node.state.hops() == 2 * (members - 1)));
    }
}

#[test]
fn a_ring_of_one_needs_no_neighbour() {
    let nodes = run_ring(1000, 1, Codec::Int8, 1);
    assert_eq!(nodes[0].state.hops(), 0);
    assert!(nodes[0].held && !nodes[0].state.is_due());
    let mut bytes = vec![0; Codec::Int8.encoded_bytes(1000)];
    Codec::Int8.encode(&deltas(1000, 1)[0], &mut bytes).unwrap();
    assert_eq!(nodes[0].update, bytes);
}
