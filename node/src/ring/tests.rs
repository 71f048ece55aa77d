//! Rings over streams in memory: the same update everywhere, and what neighbours may do to us.

use super::pace::{Pace, SLICE_BYTES, Take};
use super::run::run;
use super::stream::{read_preamble, write_preamble};
use super::*;
use intellect_protocol::{
    base::id::LogId,
    ring::{
        FRAME, Half,
        codec::reduce::Share,
        exchange::frame::{Kind, LABEL_BYTES, Label, Preamble},
    },
};
use tokio::{
    io::{self, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    sync::mpsc,
    time,
};
use tokio_util::sync::CancellationToken;

const RUN: RunId = RunId([1; 32]);
const ROSTER: Digest = Digest([2; 32]);

fn key(position: usize) -> Keypair {
    Keypair::from_seed(&[u8::try_from(position).unwrap() + 1; 32])
}

fn member(position: usize) -> Member {
    let (peer, weight) = (key(position).peer(), 100 + position as u64);
    Member { peer, log: LogId([0; 16]), incarnation: 1, weight }
}

fn timeouts() -> Timeouts {
    let short = Duration::from_millis(300);
    Timeouts { first: short, least: short, most: short, rtt: Duration::from_millis(1) }
}

fn delta(position: usize, elements: usize) -> Arc<Vec<f32>> {
    let number = |index: usize| ((index * (position + 3)) % 997) as f32 - 400.0;
    Arc::new((0..elements).map(number).collect())
}

fn job(position: usize, members: usize, elements: usize) -> Job {
    Job {
        run: RUN,
        roster: ROSTER,
        cut: Cut::new(elements, members),
        members: (0..members).map(member).collect(),
        position,
        codec: Codec::Int8,
        key: key(position),
        delta: delta(position, elements),
        recomputed: None,
        timeouts: timeouts(),
    }
}

fn no_limit() -> Pace {
    Pace { slice_bytes: SLICE_BYTES, take: Arc::new(|_| Box::pin(std::future::ready(()))) }
}

/// The arithmetic of a ring, without one.
fn expected(members: usize, elements: usize) -> Vec<u8> {
    let (cut, codec) = (Cut::new(elements, members), Codec::Int8);
    let total = (0..members).map(|position| member(position).weight).sum();
    let deltas: Vec<_> = (0..members).map(|position| delta(position, elements)).collect();
    let mut update = Vec::new();
    for chunk in 0..members {
        for frame in 0..cut.frame_count(chunk) {
            let range = cut.frame(chunk, frame);
            let (mut bytes, mut out) = (vec![], vec![0; codec.encoded_bytes(range.len())]);
            for hop in 0..members {
                let position = (chunk + hop) % members;
                let delta = &deltas[position][range.clone()];
                let share = Share { codec, weight: member(position).weight, delta };
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

type Streams = Option<(DuplexStream, DuplexStream)>;

/// Streams of a ring that hold `buffer` bytes each: (from the predecessor, to the successor).
fn streams(members: usize, buffer: usize) -> Vec<Streams> {
    if members == 1 {
        return vec![None];
    }
    let (tos, mut froms): (Vec<_>, Vec<_>) = (0..members).map(|_| io::duplex(buffer)).unzip();
    // What position i writes, position i + 1 reads.
    froms.rotate_right(1);
    froms.into_iter().zip(tos).map(Some).collect()
}

type Outcome = (Option<Held>, Result<(), RingError>);

/// Runs a member to its end. What it holds counts all its bytes, with those after the update.
async fn member_of(job: Job, streams: Streams, pace: Pace) -> Outcome {
    let (sender, mut news) = mpsc::channel(1_000);
    let end = run(job, streams, pace, CancellationToken::new(), sender).await;
    let mut held: Option<Held> = None;
    while let Some(news) = news.recv().await {
        match news {
            News::Held(one) => held = Some(one),
            News::Ended { sent_bytes, received_bytes, .. } => {
                if let Some(held) = &mut held {
                    held.sent_bytes += sent_bytes;
                    held.received_bytes += received_bytes;
                }
            }
            News::Sealed(..) | News::Salvaged(_) => {}
        }
    }
    (held, end)
}

/// R32: position 2 sends its sums, and then nothing more. The others give the ring up, and the chunks that
/// were reported to them are there, as their owners sealed them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r32_what_is_finished_outlives_the_ring() {
    let (members, elements) = (3, 5_000);
    let cut = Cut::new(elements, members);
    let expected = expected(members, elements);
    let mut tasks = Vec::new();
    for (position, streams) in streams(members, 1 << 16).into_iter().enumerate() {
        let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let stalls: Take = Arc::new(move |bytes| {
            let before = sent.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
            Box::pin(async move {
                if before > 3_000 {
                    std::future::pending::<()>().await;
                }
            })
        });
        let pace = if position == 2 { Pace { take: stalls, ..no_limit() } } else { no_limit() };
        tasks.push(tokio::spawn(async move {
            let (sender, mut news) = mpsc::channel(1_000);
            let job = job(position, members, elements);
            let end = run(job, streams, pace, CancellationToken::new(), sender).await;
            let mut all = Vec::new();
            while let Some(one) = news.recv().await {
                all.push(one);
            }
            (end, all)
        }));
    }
    let mut kept = 0;
    for task in tasks.drain(..2) {
        let (end, news) = task.await.unwrap();
        assert!(end.is_err(), "{end:?}");
        let salvaged = news.iter().find_map(|one| match one {
            News::Salvaged(bytes) => Some(bytes),
            _ => None,
        });
        for one in &news {
            let News::Sealed(chunk, seal) = one else { continue };
            let range = cut.chunk(usize::try_from(*chunk).unwrap());
            let place =
                Codec::Int8.encoded_bytes(range.start)..Codec::Int8.encoded_bytes(range.end);
            let bytes = &salvaged.unwrap()[place.clone()];
            assert_eq!(seal.digest.0, *blake3::hash(bytes).as_bytes());
            assert_eq!(*bytes, expected[place], "chunk {chunk}");
            kept += 1;
        }
    }
    assert!(kept >= 1, "{kept}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_holds_the_same_update() {
    for (members, elements, buffer) in
        [(1, 700, 1), (2, 300, 64), (3, 5_000, 4096), (4, 1_000, 77), (3, 9 * FRAME + 5, 1 << 16)]
    {
        let expected = expected(members, elements);
        let tasks: Vec<_> = streams(members, buffer)
            .into_iter()
            .enumerate()
            .map(|(position, streams)| {
                tokio::spawn(member_of(job(position, members, elements), streams, no_limit()))
            })
            .collect();
        let (mut sent, mut received) = (0, 0);
        for task in tasks {
            let (held, end) = task.await.unwrap();
            let held = held.unwrap_or_else(|| panic!("{members} members: {end:?}"));
            end.unwrap();
            assert!(*held.update == expected, "{members} members: another update");
            assert_eq!(held.digest, Digest(*blake3::hash(&expected).as_bytes()));
            sent += held.sent_bytes;
            received += held.received_bytes;
        }
        assert_eq!(received, sent, "{members} members");
    }
}

/// The predecessor of a slow member has closed its stream long before the slow one has passed on
/// what its successor needs: it must go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_member_passes_on_what_others_need() {
    let take: Take = Arc::new(|_| Box::pin(time::sleep(Duration::from_millis(50))));
    let slow = || Pace { take: Arc::clone(&take), ..no_limit() };
    let tasks: Vec<_> = streams(3, 1 << 16)
        .into_iter()
        .enumerate()
        .map(|(position, streams)| {
            let pace = if position == 0 { slow() } else { no_limit() };
            tokio::spawn(member_of(job(position, 3, 5_000), streams, pace))
        })
        .collect();
    for task in tasks {
        let (held, end) = task.await.unwrap();
        assert!(held.is_some(), "{end:?}");
        end.unwrap();
    }
}

/// An attempt that fails costs traffic too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_that_is_given_up_says_what_it_carried() {
    let long = Duration::from_secs(60);
    let patient = Timeouts { first: long, least: long, most: long, ..timeouts() };
    let job = Job { timeouts: patient, ..job(1, 3, 3 * FRAME) };
    let (mut to_us, from) = io::duplex(1 << 21);
    let (to, mut from_us) = io::duplex(1 << 12);
    let (sender, mut news) = mpsc::channel(1_000);
    let stop = CancellationToken::new();
    let ring = tokio::spawn(run(job, Some((from, to)), no_limit(), stop.clone(), sender));
    let payload = vec![0_u8; Codec::Int8.encoded_bytes(FRAME)];
    let item = [&label_of(&payload).to_bytes(), payload.as_slice()].concat();
    to_us.write_all(&item).await.unwrap();
    // It begins the sum of its own chunk, and goes on with the one that came.
    from_us.read_exact(&mut vec![0; 2 * item.len()]).await.unwrap();
    stop.cancel();
    let end = ring.await.unwrap();
    assert!(matches!(end, Err(RingError::Abandoned)), "{end:?}");
    let Some(News::Ended { sent_bytes, received_bytes, .. }) = news.recv().await else { panic!() };
    assert_eq!([sent_bytes, received_bytes], [2, 1].map(|items| items * item.len() as u64));
}

#[tokio::test]
async fn preambles_say_what_a_stream_is_for() {
    let (mut to, mut from) = io::duplex(64);
    let job = job(2, 3, 10);
    let (written, read) = tokio::join!(write_preamble(&mut to, &job), read_preamble(&mut from));
    written.unwrap();
    assert_eq!(read.unwrap(), Preamble { run: RUN, roster: ROSTER, index: 2, count: 3 });
    drop(to);
    assert!(read_preamble(&mut from).await.is_err());
}

/// Position 1 of 3, with both neighbours in the hands of the test.
struct Neighbours {
    to_us: DuplexStream,
    from_us: DuplexStream,
    task: tokio::task::JoinHandle<Outcome>,
}

fn neighbours() -> Neighbours {
    neighbours_of(job(1, 3, 3 * FRAME))
}

fn neighbours_of(job: Job) -> Neighbours {
    let (to_us, from) = io::duplex(1 << 21);
    let (to, from_us) = io::duplex(1 << 12);
    Neighbours { to_us, from_us, task: tokio::spawn(member_of(job, Some((from, to)), no_limit())) }
}

impl Neighbours {
    /// What became of the member, which held nothing.
    async fn error(self) -> RingError {
        let (held, end) = self.task.await.unwrap();
        assert!(held.is_none());
        drop((self.to_us, self.from_us));
        end.unwrap_err()
    }
}

fn label_of(payload: &[u8]) -> Label {
    Label {
        length: small(payload.len()),
        roster: ROSTER,
        kind: Kind::Frame(Half::Reduce),
        chunk: 0,
        frame: 0,
        payload: Digest(*blake3::hash(payload).as_bytes()),
    }
}

fn assert_lost(error: &RingError, position: usize, what: &str) {
    let RingError::Lost { neighbour, why } = error else { panic!("{error:?}") };
    assert_eq!(*neighbour, key(position).peer(), "{why}");
    assert!(why.contains(what), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_predecessor_whose_stream_ends_is_lost() {
    let (to_us, _) = io::duplex(1);
    let mut ours = neighbours();
    drop(std::mem::replace(&mut ours.to_us, to_us));
    let mut from_us = std::mem::replace(&mut ours.from_us, io::duplex(1).0);
    let drain = tokio::spawn(async move { io::copy(&mut from_us, &mut io::sink()).await });
    assert_lost(&ours.error().await, 0, "its stream ended");
    drain.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_predecessor_and_a_deaf_successor_stand_still() {
    // Both are still; the buffer to the successor is small, so either may be noticed first.
    let error = neighbours().error().await;
    let RingError::Quiet { neighbour, why } = &error else { panic!("{error:?}") };
    assert!([key(0).peer(), key(2).peer()].contains(neighbour), "{why}");
    assert!(why.contains("stood still"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_predecessor_must_not_send_is_its_fault() {
    let good = vec![0; Codec::Int8.encoded_bytes(FRAME)];
    let mut undecodable = good.clone();
    undecodable[4] = 0x80;
    let label = label_of(&good);
    let item = |label: Label, payload: &[u8]| [&label.to_bytes(), payload].concat();
    let oversize = Label { length: u32::MAX, ..label };
    let cases = [
        (item(label, &undecodable), "does not announce"),
        (item(label_of(&undecodable), &undecodable), "does not decode"),
        (item(oversize, &[]), "impossible"),
        (item(Label { chunk: 1, ..label }, &good), "starts at this peer"),
        (item(label_of(&good[..260]), &good[..260]), "length"),
        ([item(label, &good), item(label, &good)].concat(), "not the next"),
        (item(Label { kind: Kind::Seal, ..label_of(&good[..95]) }, &good[..95]), "seal"),
        (vec![0xff; LABEL_BYTES], "impossible"),
    ];
    for (bytes, expected) in cases {
        let mut ours = neighbours();
        // It may have given up before all is written.
        let _ = ours.to_us.write_all(&bytes).await;
        let error = ours.error().await;
        let RingError::Fault { who, fault } = &error else { panic!("{expected}: {error:?}") };
        assert_eq!(*who, key(0).peer());
        assert!(fault.to_string().contains(expected), "{expected}: {fault}");
    }
}

/// A delta of NaN, by itself or behind a scale: the first who reads it names the one who sent it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_are_none_are_the_fault_of_who_sends_them() {
    let subnormal = f32::MIN_POSITIVE / 2.0;
    let scales = [f32::NAN, f32::INFINITY, f32::MAX, -1.0, -0.0, subnormal];
    let numbers = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let cases = scales.map(|scale| (Codec::Int8, scale)).into_iter();
    for (codec, number) in cases.chain(numbers.map(|number| (Codec::F32, number))) {
        let elements = 1_000;
        let job = Job { codec, delta: delta(1, 3 * elements), ..job(1, 3, 3 * elements) };
        let range = Cut::new(job.delta.len(), 3).frame(0, 0);
        let mut payload = vec![0; codec.encoded_bytes(range.len())];
        // The first number, or the scale of the second block.
        let at = if codec == Codec::Int8 { codec.encoded_bytes(256) } else { 0 };
        payload[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let mut ours = neighbours_of(job);
        let item = [&label_of(&payload).to_bytes(), payload.as_slice()].concat();
        ours.to_us.write_all(&item).await.unwrap();
        let error = ours.error().await;
        let RingError::Fault { who, fault } = &error else { panic!("{codec:?} {number}: {error}") };
        assert_eq!(*who, key(0).peer());
        assert_eq!(fault.to_string(), "bad frame: a frame that does not decode", "{number}");
    }
}

/// Any member may have made the sum so large, so none is at fault; but the next ring must be another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sum_that_is_too_large_loses_the_predecessor() {
    let (codec, elements) = (Codec::F32, 3_000);
    let delta = Arc::new(vec![1e33; elements]);
    let mut ours = neighbours_of(Job { codec, delta, ..job(1, 3, elements) });
    let range = Cut::new(elements, 3).frame(0, 0);
    let payload = f32::MAX.to_le_bytes().repeat(range.len());
    let item = [&label_of(&payload).to_bytes(), payload.as_slice()].concat();
    ours.to_us.write_all(&item).await.unwrap();
    let error = ours.error().await;
    let RingError::Lost { neighbour, why } = &error else { panic!("{error}") };
    assert!(*neighbour == key(0).peer() && why.contains("sum"), "{why}");
}

#[test]
fn timeouts_follow_the_link_within_its_bounds() {
    let timeouts = Timeouts::new(Duration::from_millis(20), 1_000_000);
    let quiet = |gap_ms| timeouts.quiet(Some(Duration::from_millis(gap_ms))).as_millis();
    assert_eq!(timeouts.quiet(None).as_millis(), 2_000);
    assert_eq!((quiet(1), quiet(100), quiet(1_000)), (500, 880, 2_000));
    // A ring of a gigabyte outlives a wireless link that drops.
    for (bytes, bounds) in [(100_000_000, (5_000, 5_000)), (1_000_000_000, (7_000, 7_000))] {
        let long = Timeouts::new(Duration::from_millis(20), bytes);
        assert_eq!((long.least.as_millis(), long.most.as_millis()), bounds);
    }
}
