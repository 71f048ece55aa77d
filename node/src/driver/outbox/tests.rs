//! What leaves, and when.

use std::sync::Arc;

use intellect_protocol::event::Event;
use intellect_protocol::id::{Digest, LogId, RunId};
use intellect_protocol::message::{Head, Heartbeat, Leaving, Phase, Series};
use intellect_protocol::sign::Keypair;
use intellect_protocol::wire;

use super::*;
use crate::identity::Origin;
use crate::store::Store;

const RUN: RunId = RunId([1; 32]);
const SERIES: Series = Series { epoch: 1, parent: Digest([2; 32]), regroup: None };

struct Bench {
    folder: tempfile::TempDir,
    outbox: Outbox,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Self::journal(folder.path());
        Self { folder, outbox: Outbox::new(journal), now: Instant::now() }
    }

    fn journal(folder: &std::path::Path) -> Journal {
        let store = Store::open(folder, RUN).unwrap();
        store.begin(LogId([3; 16]), Origin::Random, 1).unwrap().journal
    }

    /// Whether it may happen now.
    fn admits(&mut self, output: Output) -> bool {
        self.outbox.admit(Item::Output(Box::new(output)), self.now).is_some()
    }

    /// Writes what is due: what happens then.
    fn write(&mut self) -> Vec<String> {
        let batch = self.outbox.due(self.now).unwrap();
        let (items, news) = self.outbox.written(batch.write(), self.now);
        assert!(news.is_none(), "{news:?}");
        items.iter().map(name).collect()
    }

    fn fail(&mut self) -> (Vec<String>, Option<Result<(), StoreError>>) {
        let batch = self.outbox.due(self.now).unwrap();
        let path = self.folder.path().to_owned();
        let source = std::io::Error::other("full");
        let result = Err(StoreError::Io { what: "write", path, source });
        let (items, news) = self.outbox.written(Written { batch, result }, self.now);
        (items.iter().map(name).collect(), news)
    }

    /// Records that another start finds.
    fn on_disk(&self) -> (usize, usize) {
        let store = Store::open(self.folder.path(), RUN).unwrap();
        let begun = store.begin(LogId([3; 16]), Origin::Random, 1).unwrap();
        (begun.votes.len(), begun.receipts.len())
    }
}

fn name(item: &Item) -> String {
    match item {
        Item::Answer(..) => "answer".to_owned(),
        Item::Output(output) => match &**output {
            Output::Gossip(message) => format!("gossip {}", message.body().tag()),
            Output::Send(..) => "send".to_owned(),
            Output::Train { epoch, .. } => format!("train {epoch}"),
            other => format!("{other:?}"),
        },
    }
}

/// R21: a head that its own disk could not lead to again is not told.
#[test]
fn nothing_leaves_while_a_decided_update_is_not_on_the_disk() {
    let update = |n| Digest([n; 32]);
    let mut bench = Bench::new();
    bench.outbox.owe(4, update(4));
    bench.outbox.owe(5, update(5));
    assert!(bench.outbox.owes(&update(4)) && !bench.outbox.owes(&update(6)));
    assert!(!bench.admits(heartbeat()) && !bench.admits(message()));
    assert!(bench.admits(Output::Train { epoch: 5, tokens: 1 }), "it follows");
    bench.outbox.kept(&update(4));
    assert!(!bench.admits(heartbeat()));
    bench.outbox.saved(4);
    assert!(!bench.admits(heartbeat()));
    bench.outbox.kept(&update(5));
    assert!(bench.admits(heartbeat()) && bench.admits(message()));
    bench.outbox.owe(6, update(6));
    bench.outbox.owe(7, update(7));
    bench.outbox.saved(6);
    assert!(!bench.admits(heartbeat()));
    bench
        .outbox
        .log(Record::Rewound { epoch: 6, to: Head { epoch: 6, tokens: 9, state: update(9) } });
    assert!(!bench.outbox.is_owing(), "it is given up");
}

/// A disk that takes nothing for a day costs memory up to a bound; then all of it is written, in parts.
#[test]
fn what_waits_for_a_disk_is_bounded_and_none_of_it_is_lost() {
    let mut bench = Bench::new();
    let length = promised(1).bytes().len() + LENGTH_BYTES;
    let count = WAITING_BYTES_MAX / length + 1;
    bench.outbox.log(promised(1));
    assert!(bench.fail().1.is_some() && !bench.outbox.is_stuck());
    (1..count).for_each(|_| bench.outbox.log(promised(1)));
    assert!(bench.outbox.is_stuck());
    bench.now += RETRY;
    let mut batches = 0;
    while let Some(batch) = bench.outbox.due(bench.now) {
        bench.outbox.written(batch.write(), bench.now);
        assert!(!bench.outbox.is_stuck());
        batches += 1;
    }
    assert_eq!(batches, WAITING_BYTES_MAX / BATCH_BYTES + 1);
    assert_eq!(bench.on_disk(), (count, 0));
}

fn promised(attempt: u32) -> Record {
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
    gossip(Message::Heartbeat(Heartbeat {
        count: 1,
        head: Head { epoch: 0, tokens: 0, state: Digest([2; 32]) },
        series: SERIES,
        joined: None,
        log: LogId([3; 16]),
        incarnation: 1,
        phase: Phase::Train,
        attempt: 0,
        ready: 0,
        direct: true,
        round_trips: Vec::new(),
        send_rate: 0,
        serves: 0,
    }))
}

fn train(epoch: u64) -> Output {
    Output::Train { epoch, tokens: 0 }
}

#[test]
fn nothing_waits_where_nothing_is_logged() {
    let mut bench = Bench::new();
    for output in [message(), train(1), heartbeat()] {
        assert!(bench.admits(output));
    }
    assert!(bench.outbox.due(bench.now).is_none() && !bench.outbox.is_open());
}

/// One flush for records that follow each other, and everything after them in order.
#[test]
fn what_comes_after_a_record_waits_until_it_is_on_the_disk() {
    let mut bench = Bench::new();
    bench.outbox.log(promised(1));
    bench.outbox.log(promised(2));
    assert!(!bench.admits(message()) && !bench.admits(train(1)));
    let batch = bench.outbox.due(bench.now).unwrap();
    // While it is being written, more is decided.
    assert!(bench.outbox.due(bench.now).is_none());
    bench.outbox.log(promised(3));
    assert!(!bench.admits(train(2)));
    let (items, _) = bench.outbox.written(batch.write(), bench.now);
    assert_eq!(items.iter().map(name).collect::<Vec<_>>(), ["gossip leaving", "train 1"]);
    assert!(bench.outbox.is_open() && !bench.admits(message()));
    assert_eq!(bench.write(), ["train 2", "gossip leaving"]);
    assert!(bench.admits(message()));
    assert_eq!(bench.on_disk(), (3, 0));
}

#[test]
fn an_answer_about_the_lineage_waits_for_the_lineage() {
    let mut bench = Bench::new();
    bench.outbox.log(committed(1));
    let (reply, _asked) = Reply::new();
    let ask = Ask::Chain { from_epoch: 1 };
    assert!(bench.outbox.admit(Item::Answer(ask, reply), bench.now).is_none());
    assert_eq!(bench.write(), ["answer"]);
    assert_eq!(bench.on_disk(), (0, 1));
}

/// Who votes says that it lives meanwhile; who has a new head says so only when it is sure.
#[test]
fn a_heartbeat_overtakes_votes_and_no_head() {
    let mut bench = Bench::new();
    bench.outbox.log(promised(1));
    assert!(!bench.admits(message()) && bench.admits(heartbeat()));
    bench.outbox.log(committed(1));
    assert!(!bench.admits(heartbeat()));
    assert_eq!(bench.write(), ["gossip leaving", "gossip heartbeat"]);
    bench.outbox.log(promised(2));
    let batch = bench.outbox.due(bench.now).unwrap();
    assert!(bench.admits(heartbeat()));
    bench.now += OVERTAKE;
    assert!(!bench.admits(heartbeat()), "others would wait for its votes");
    let (items, _) = bench.outbox.written(batch.write(), bench.now);
    assert_eq!(items.iter().map(name).collect::<Vec<_>>(), ["gossip heartbeat"]);
    assert!(bench.admits(heartbeat()));
}

/// A full disk: no vote and no promise leaves, the rest goes on, and nothing is lost.
#[test]
fn after_a_write_that_failed_nothing_leaves_until_all_of_it_is_written() {
    let mut bench = Bench::new();
    bench.outbox.log(promised(1));
    assert!(!bench.admits(message()) && !bench.admits(train(1)) && !bench.admits(message()));
    let (items, news) = bench.fail();
    assert_eq!(items, ["train 1"]);
    assert!(matches!(news, Some(Err(StoreError::Io { .. }))));
    // Dropped, not kept: the state repeats what matters.
    assert!(!bench.admits(message()) && bench.admits(train(2)));
    assert!(!bench.admits(heartbeat()), "others would wait for its votes");
    bench.outbox.log(committed(1));
    assert!(bench.outbox.due(bench.now).is_none(), "the disk is left alone for a while");
    assert_eq!(bench.outbox.deadline(), Some(bench.now + RETRY));
    assert!(!bench.outbox.is_open(), "nobody who leaves waits for it");
    bench.now += RETRY;
    // Told once.
    assert!(bench.fail().1.is_none());
    bench.now += RETRY;
    let batch = bench.outbox.due(bench.now).unwrap();
    let (items, news) = bench.outbox.written(batch.write(), bench.now);
    assert!(items.is_empty() && matches!(news, Some(Ok(()))));
    assert_eq!(bench.on_disk(), (1, 1));
    assert!(bench.admits(message()) && bench.admits(heartbeat()));
}

#[test]
fn the_queue_is_bounded_and_loses_no_work() {
    let mut bench = Bench::new();
    bench.outbox.log(promised(1));
    for _ in 0..2 * QUEUE_MAX {
        bench.admits(message());
    }
    assert!(!bench.admits(train(7)) && !bench.admits(Output::Event(Event::Leaving)));
    assert_eq!(bench.outbox.queue.len(), QUEUE_MAX + 2);
}
