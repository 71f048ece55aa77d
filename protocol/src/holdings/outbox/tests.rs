//! What leaves the machine, and when.

use super::*;
use crate::base::fault::{Fault, ReadyFault};
use crate::base::id::{PeerId, RunId};
use crate::base::sign::Keypair;
use crate::machine::event::Cause;
use crate::machine::table::beat;
use crate::message::wire;
use crate::message::{Head, Leaving, Series};

const RUN: RunId = RunId([1; 32]);
const SERIES: Series = Series { epoch: 1, parent: Digest([2; 32]), regroup: None };

/// An outbox, and the records that a disk has accepted from it.
#[derive(Default)]
struct Bench {
    outbox: Outbox,
    disk: Vec<Record>,
    now: Time,
}

impl Bench {
    fn admits(&mut self, output: Output) -> bool {
        let item = Effect::Decision(Box::new(output));
        matches!(self.outbox.admit(self.now, item), Ruling::Now(_))
    }

    /// Writes the batch that is due, and names what happens then.
    fn write(&mut self) -> Vec<String> {
        let batch = self.outbox.due(self.now).unwrap();
        self.take(&batch)
    }

    fn take(&mut self, batch: &[Record]) -> Vec<String> {
        self.disk.extend_from_slice(batch);
        let (items, never) = self.outbox.written(self.now, Disk::Took);
        assert!(never.is_empty(), "{never:?}");
        items.iter().map(name).collect()
    }

    /// The disk refuses the batch that is due: what happens then, and what never does.
    fn fail(&mut self) -> (Vec<String>, Vec<String>) {
        assert!(self.outbox.due(self.now).is_some());
        let (items, never) = self.outbox.written(self.now, Disk::Refused);
        (items.iter().map(name).collect(), never.iter().map(name).collect())
    }
}

fn name(item: &Effect) -> String {
    match item {
        Effect::Answer(..) => "answer".to_owned(),
        Effect::Decision(output) => match &**output {
            Output::Gossip(message) => format!("gossip {}", message.body().tag()),
            Output::Send(..) => "send".to_owned(),
            Output::Train { epoch, .. } => format!("train {epoch}"),
            other => format!("{other:?}"),
        },
    }
}

/// R21: a head from which this peer could not restart is not announced.
#[test]
fn nothing_leaves_while_a_decided_update_is_not_on_the_disk() {
    let update = |n| Digest([n; 32]);
    let mut bench = Bench::default();
    bench.outbox.await_flush(4, update(4));
    bench.outbox.await_flush(5, update(5));
    assert!(bench.outbox.awaits_flush(&update(4)) && !bench.outbox.awaits_flush(&update(6)));
    assert!(!bench.admits(heartbeat()) && !bench.admits(message()));
    assert!(bench.admits(Output::Train { epoch: 5, tokens: 1 }), "it follows");
    bench.outbox.kept(&update(4));
    assert!(!bench.admits(heartbeat()));
    bench.outbox.saved(4);
    assert!(!bench.admits(heartbeat()));
    bench.outbox.kept(&update(5));
    assert!(bench.admits(heartbeat()) && bench.admits(message()));
    bench.outbox.await_flush(6, update(6));
    bench.outbox.await_flush(7, update(7));
    bench.outbox.saved(6);
    assert!(!bench.admits(heartbeat()));
    bench
        .outbox
        .log(Record::Rewound { epoch: 6, to: Head { epoch: 6, tokens: 9, state: update(9) } });
    assert!(!bench.outbox.awaits_any_flush(), "it is given up");
}

/// The next start needs all records before it.
#[test]
fn a_restart_waits_for_a_disk_that_refuses() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(1));
    assert!(!bench.admits(Output::Restart));
    assert_eq!(bench.fail(), (Vec::new(), Vec::new()));
    bench.now = bench.now + RETRY;
    assert_eq!(bench.write(), ["Restart"]);
    bench.outbox.log(promised(2));
    bench.fail();
    assert!(!bench.admits(Output::Restart));
    bench.now = bench.now + RETRY;
    assert_eq!(bench.write(), ["Restart"]);
}

/// A disk that does not answer, as on a server that is gone, costs no more memory than one that refuses.
#[test]
fn what_waits_for_a_write_that_hangs_is_bounded_too() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(0));
    assert!(bench.outbox.due(bench.now).is_some());
    assert!(!bench.outbox.is_late(bench.now) && bench.outbox.is_late(bench.now + LATE));
    (0..=WAITING_BYTES_MAX / length(&promised(1))).for_each(|_| bench.outbox.log(promised(1)));
    assert!(bench.outbox.is_stuck());
}

/// A disk that is full for a day costs memory up to a bound; then all of it is written, in batches.
#[test]
fn what_waits_for_a_disk_is_bounded_and_none_of_it_is_lost() {
    let mut bench = Bench::default();
    let length = length(&promised(1));
    let count = WAITING_BYTES_MAX / length + 1;
    let number = |index: usize| promised(u64::try_from(index % 200).unwrap());
    bench.outbox.log(number(0));
    bench.fail();
    assert!(!bench.outbox.is_stuck() && !bench.outbox.is_late(bench.now + LATE));
    (1..count).for_each(|index| bench.outbox.log(number(index)));
    assert!(bench.outbox.is_stuck());
    bench.now = bench.now + RETRY;
    let mut batches = 0;
    while let Some(batch) = bench.outbox.due(bench.now) {
        bench.take(&batch);
        assert!(!bench.outbox.is_stuck());
        batches += 1;
    }
    // First the batch that was refused, then the rest.
    assert_eq!(batches, 1 + (count - 1).div_ceil(BATCH_BYTES / length));
    assert!(bench.disk.iter().enumerate().all(|(index, record)| *record == number(index)));
    assert_eq!(bench.disk.len(), count);
}

fn promised(attempt: u64) -> Record {
    Record::Promised { series: SERIES, attempt }
}

fn committed(epoch: u64) -> Record {
    Record::Committed { head: Head { epoch, tokens: 1, state: Digest([4; 32]) } }
}

fn gossip(message: Message) -> Output {
    Output::Gossip(Arc::new(wire::seal(&Keypair::from_seed(&[5; 32]), &RUN, message)))
}

fn message() -> Output {
    let head = Head { epoch: 0, tokens: 0, state: Digest([2; 32]) };
    gossip(Message::Leaving(Leaving { head, incarnation: 1 }))
}

fn heartbeat() -> Output {
    gossip(Message::Heartbeat(beat()))
}

fn train(epoch: u64) -> Output {
    Output::Train { epoch, tokens: 0 }
}

#[test]
fn nothing_waits_where_nothing_is_logged() {
    let mut bench = Bench::default();
    for output in [message(), train(1), heartbeat()] {
        assert!(bench.admits(output));
    }
    assert!(bench.outbox.due(bench.now).is_none() && !bench.outbox.is_open());
}

/// One flush for consecutive records, and everything after them in order.
#[test]
fn what_comes_after_a_record_waits_until_it_is_on_the_disk() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(1));
    bench.outbox.log(promised(2));
    assert!(!bench.admits(message()) && !bench.admits(train(1)));
    let batch = bench.outbox.due(bench.now).unwrap();
    // More is decided while it is being written.
    assert!(bench.outbox.due(bench.now).is_none());
    bench.outbox.log(promised(3));
    assert!(!bench.admits(train(2)));
    assert_eq!(bench.take(&batch), ["gossip leaving", "train 1"]);
    assert!(bench.outbox.is_open() && !bench.admits(message()));
    assert_eq!(bench.write(), ["train 2", "gossip leaving"]);
    assert!(bench.admits(message()));
    assert_eq!(bench.disk.len(), 3);
}

#[test]
fn an_answer_about_the_lineage_waits_for_the_lineage() {
    let mut bench = Bench::default();
    bench.outbox.log(committed(1));
    let ruling = bench.outbox.admit(bench.now, Effect::Answer(Inquiry(7)));
    assert!(matches!(ruling, Ruling::Later));
    assert_eq!(bench.write(), ["answer"]);
    // A peer that asks while the disk is full gets a refusal at once.
    bench.outbox.log(committed(2));
    bench.outbox.admit(bench.now, Effect::Answer(Inquiry(8)));
    assert_eq!(bench.fail().1, ["answer"]);
    let ruling = bench.outbox.admit(bench.now, Effect::Answer(Inquiry(9)));
    assert!(matches!(ruling, Ruling::Never(Effect::Answer(Inquiry(9)))));
}

/// A voter sends heartbeats meanwhile; a peer with a new head announces it only once it is durable.
#[test]
fn a_heartbeat_overtakes_votes_and_no_head() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(1));
    assert!(!bench.admits(message()) && bench.admits(heartbeat()));
    bench.outbox.log(committed(1));
    assert!(!bench.admits(heartbeat()));
    assert_eq!(bench.write(), ["gossip leaving", "gossip heartbeat"]);
    bench.outbox.log(promised(2));
    let batch = bench.outbox.due(bench.now).unwrap();
    assert!(bench.admits(heartbeat()));
    bench.now = bench.now + OVERTAKE;
    assert!(!bench.admits(heartbeat()), "others would wait for its votes");
    assert_eq!(bench.take(&batch), ["gossip heartbeat"]);
    assert!(bench.admits(heartbeat()));
}

/// A full disk: no vote and no promise leaves, the rest goes on, and no record is lost.
#[test]
fn after_a_write_that_failed_nothing_leaves_until_all_of_it_is_written() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(1));
    assert!(!bench.admits(message()) && !bench.admits(train(1)) && !bench.admits(message()));
    let (items, never) = bench.fail();
    assert_eq!(items, ["train 1"]);
    // Dropped, not queued: the peer repeats what matters.
    assert_eq!(never, ["gossip leaving", "gossip leaving"]);
    assert!(!bench.admits(message()) && bench.admits(train(2)));
    assert!(!bench.admits(heartbeat()), "others would wait for its votes");
    bench.outbox.log(committed(1));
    assert!(bench.outbox.due(bench.now).is_none(), "the disk is left alone for a while");
    assert_eq!(bench.outbox.deadline(), Some(bench.now + RETRY));
    assert!(!bench.outbox.is_open(), "nobody who leaves waits for it");
    bench.now = bench.now + RETRY;
    bench.fail();
    bench.now = bench.now + RETRY;
    assert!(bench.write().is_empty() && bench.write().is_empty());
    assert_eq!(bench.disk, [promised(1), committed(1)]);
    assert!(bench.admits(message()) && bench.admits(heartbeat()));
}

/// What a flood of bad messages brings must not fill the queue while a slow disk writes, and a peer
/// that floods is dropped at once.
#[test]
fn what_others_did_waits_for_no_disk() {
    let (mut bench, who) = (Bench::default(), PeerId([9; 32]));
    bench.outbox.log(committed(1));
    assert!(!bench.admits(train(2)));
    for _ in 0..2 * QUEUE_MAX {
        assert!(bench.admits(Output::Fault(who, Fault::Ready(ReadyFault::Weight))));
        assert!(bench.admits(Output::Event(Event::PeerFound { who })));
        assert!(bench.admits(Output::Event(Event::PeerLost { who, cause: Cause::Silent })));
    }
    assert!(!bench.admits(Output::Event(Event::LeftOut { epoch: 1 })), "this says what is logged");
    assert_eq!(bench.outbox.queue.len(), 2);
}

#[test]
fn the_queue_is_bounded_and_loses_no_work() {
    let mut bench = Bench::default();
    bench.outbox.log(promised(1));
    for _ in 0..2 * QUEUE_MAX {
        bench.admits(message());
    }
    assert!(!bench.admits(train(7)) && !bench.admits(Output::Event(Event::Leaving)));
    assert_eq!(bench.outbox.queue.len(), QUEUE_MAX + 2);
}
