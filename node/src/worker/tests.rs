//! Commands and reports of a worker with a real model of the smallest size.

use std::sync::Arc;

use intellect_model::config::{self, Work};
use intellect_model::{Device, arch, data, genesis};

use super::*;

const STEPS: u64 = 2;

fn work() -> Work {
    let mut work = Work::synthetic();
    work.model = config::Model { layers: 1, width: 8, heads: 2, kv_heads: 1, ffn: 8, ..work.model };
    work.model.context = 8;
    work.train.batch = 2;
    work
}

fn config(weight_max: u64) -> Config {
    Config {
        run: RunId([1; 32]),
        me: PeerId([2; 32]),
        epoch: Epoch::new(Budget::Steps, STEPS),
        weight_max,
        codec: Codec::F32,
        // The identity: the new anchor is where the delta led.
        outer: Outer { lr: 1.0, momentum: 0.0, momentum_ramp_epochs: 0 },
    }
}

fn first() -> State {
    State::genesis(genesis::weights(7, &arch::specs(&work().model)))
}

fn trainer(work: &Work) -> Result<Box<dyn Trainer>, String> {
    let source = data::Dataset::open(work, 7, &[]).map_err(|error| error.to_string())?;
    let trainer = intellect_model::trainer(work, Arc::new(source), Device::Cpu, None);
    trainer.map_err(|error| error.to_string())
}

/// A worker without a thread, whose commands and steps a test carries out one by one.
fn by_hand() -> (Worker, tasks::Receiver<Report>) {
    let (reports, outbox) = tasks::channel(REPORTS);
    let trainer = trainer(&work()).unwrap();
    (Worker::new(config(u64::MAX), trainer, first(), reports).unwrap(), outbox)
}

/// A worker that has reported its genesis.
fn begin(weight_max: u64) -> (Orders, tasks::Receiver<Report>) {
    begin_with(weight_max, work())
}

fn begin_with(weight_max: u64, work: Work) -> (Orders, tasks::Receiver<Report>) {
    let (handle, mut reports) =
        start(config(weight_max), move || Ok((trainer(&work)?, first()))).unwrap();
    let genesis = state(&mut reports, None);
    assert_eq!(*genesis.state, first());
    (handle, reports)
}

fn next(reports: &mut tasks::Receiver<Report>) -> Report {
    loop {
        match reports.blocking_recv().unwrap() {
            Report::Step { .. } => {}
            report => return report,
        }
    }
}

fn state(reports: &mut tasks::Receiver<Report>, expected: Option<Origin>) -> Arc<Snapshot> {
    match next(reports) {
        Report::State(snapshot, origin) if origin == expected => snapshot,
        other => panic!("{other:?}"),
    }
}

/// Trains an epoch, and returns its tokens and its delta.
fn train(
    (handle, reports): &mut (Orders, tasks::Receiver<Report>),
    epoch: u64,
) -> (u64, Arc<Vec<f32>>) {
    assert!(handle.try_send(Command::Train { epoch, tokens: 0 }).is_ok());
    match next(reports) {
        Report::Trained { epoch: trained, tokens, delta, norm, loss } => {
            assert_eq!(trained, epoch);
            assert!(norm > 0.0 && loss > 0.0);
            (tokens, delta)
        }
        other => panic!("{other:?}"),
    }
}

fn header(epoch: u64) -> Header {
    let parameters = first().theta().len() as u64;
    Header { run: RunId([1; 32]), epoch, tokens: 5, r: Digest([6; 32]), parameters }
}

fn apply(
    (handle, reports): &mut (Orders, tasks::Receiver<Report>),
    epoch: u64,
    delta: &[f32],
    spent: bool,
) -> Arc<Snapshot> {
    let mut update = vec![0; Codec::F32.encoded_bytes(delta.len())];
    Codec::F32.encode(delta, &mut update).unwrap();
    let update = Arc::new(update);
    let spent = if spent { Blocks::all(delta.len() as u64) } else { Blocks::default() };
    assert!(handle.try_send(Command::Apply { header: header(epoch), update, spent }).is_ok());
    state(reports, Some(Origin::Applied))
}

fn budget() -> u64 {
    STEPS * work().tokens_per_step()
}

#[test]
fn an_epoch_of_one_peer_leads_where_it_trained() {
    let mut worker = begin(u64::MAX);
    let (tokens, delta) = train(&mut worker, 1);
    assert_eq!(tokens, budget());
    let snapshot = apply(&mut worker, 1, &delta, true);
    let mut expected = first();
    expected.step(&config(0).outer, 1, &delta);
    assert_eq!(*snapshot.state, expected);
    assert_ne!(snapshot.state.theta(), first().theta());
    let table = Table::of(header(1), expected.theta(), expected.momentum()).unwrap();
    assert_eq!(snapshot.table.state(), table.state());
    // Spent: the next epoch begins at the new anchor, with nothing carried.
    assert_eq!(train(&mut worker, 2).0, budget());
}

/// R34: work that no receipt names stays in the local weights, and is offered again with its tokens.
#[test]
fn r34_a_delta_that_was_left_out_is_offered_again() {
    let nothing = vec![0.0; first().theta().len()];
    let (mut left_out, mut alone) = (begin(u64::MAX), begin(u64::MAX));
    let once = train(&mut left_out, 1).1;
    assert_eq!(*once, *train(&mut alone, 1).1, "training is a pure function");
    let unmoved = apply(&mut left_out, 1, &nothing, false);
    assert_eq!(unmoved.state.theta(), first().theta());
    // The other one never heard of the commit.
    let ((tokens, offered), (_, expected)) = (train(&mut left_out, 2), train(&mut alone, 2));
    assert_eq!(tokens, 2 * budget());
    let distance =
        |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum() };
    let (error, length) = (distance(&offered, &expected), distance(&expected, &once));
    assert!(error < 1e-3 * length, "{error} of {length}");
    apply(&mut left_out, 2, &offered, true);
    assert_eq!(train(&mut left_out, 3).0, budget());
}

/// R34: in blocks that were spent only the training since Ready stays; in the others all of it.
#[test]
fn r34_a_delta_is_spent_block_by_block() {
    let (mut worker, _outbox) = by_hand();
    let anchor = first().theta().to_vec();
    let more = |by: f32| -> Vec<f32> { anchor.iter().map(|number| number + by).collect() };
    worker.at_ready = Some(more(1.0));
    worker.trainer.model().load(&more(1.5)).unwrap();
    worker.unspent = 7;
    let mut nothing = vec![0; Codec::F32.encoded_bytes(anchor.len())];
    Codec::F32.encode(&vec![0.0; anchor.len()], &mut nothing).unwrap();
    let (update, blocks) = (Arc::new(nothing), Blocks::of(std::iter::once(1..2)));
    let header = header(1);
    worker.execute(Command::Apply { header, update, spent: blocks.clone() }).unwrap();
    let mut local = vec![0.0; anchor.len()];
    worker.trainer.model().store(&mut local).unwrap();
    let spent: Vec<_> = blocks.elements(anchor.len() as u64).collect();
    assert_eq!((spent.len(), spent[0].len()), (1, 256));
    for (index, (local, anchor)) in local.iter().zip(&anchor).enumerate() {
        let expected = if spent[0].contains(&index) { 0.5 } else { 1.5 };
        assert!((local - anchor - expected).abs() < 1e-5, "{index}: {local} of {anchor}");
    }
    assert_eq!(worker.unspent, 0, "its tokens count as spent");
}

#[test]
fn a_weight_above_the_bound_is_declared_as_the_bound() {
    assert_eq!(train(&mut begin(budget() - 1), 1).0, budget() - 1);
}

/// A run that diverges ends, and does not wait without end for a delta that cannot come.
#[test]
fn training_that_gives_no_numbers_is_tried_again_and_then_ends_with_the_remedy() {
    let mut work = work();
    (work.train.lr, work.train.warmup_tokens) = (1e30, 0);
    let (handle, mut reports) = begin_with(u64::MAX, work);
    assert!(handle.try_send(Command::Train { epoch: 4, tokens: 0 }).is_ok());
    for _ in 1..FAILURES_MAX {
        let Report::Diverged { epoch, .. } = next(&mut reports) else { panic!() };
        assert_eq!(epoch, 4);
    }
    let Report::Failed(why) = next(&mut reports) else { panic!() };
    assert!(why.contains("epoch 4") && why.contains("train.lr"), "{why}");
    assert!(reports.blocking_recv().is_none());
}

#[test]
fn a_fetched_state_replaces_the_anchor() {
    let mut worker = begin(u64::MAX);
    let (_, delta) = train(&mut worker, 1);
    let mut fetched = first();
    fetched.step(&config(0).outer, 1, &delta);
    let table = Table::of(header(9), fetched.theta(), fetched.momentum()).unwrap();
    let all = Blocks::all(delta.len() as u64);
    let load = Command::Load { table, state: Box::new(fetched.clone()), spent: all };
    assert!(worker.0.try_send(load).is_ok());
    let snapshot = state(&mut worker.1, Some(Origin::Loaded));
    assert_eq!((&*snapshot.state, snapshot.table.header().epoch), (&fetched, 9));
    // Our delta is in it, so nothing is offered twice.
    assert_eq!(train(&mut worker, 10).0, budget());
}

#[test]
fn work_on_a_model_of_long_ago_is_given_up() {
    for (epoch, budgets) in [(STALE_AFTER, 2), (STALE_AFTER + 1, 1)] {
        let mut worker = begin(u64::MAX);
        let (_, delta) = train(&mut worker, 1);
        let mut fetched = first();
        fetched.step(&config(0).outer, 1, &vec![0.1; delta.len()]);
        let table = Table::of(header(epoch), fetched.theta(), fetched.momentum()).unwrap();
        let (state_of, spent) = (Box::new(fetched), Blocks::default());
        assert!(worker.0.try_send(Command::Load { table, state: state_of, spent }).is_ok());
        state(&mut worker.1, Some(Origin::Loaded));
        assert_eq!(train(&mut worker, epoch + 1).0, budgets * budget(), "epoch {epoch}");
    }
}

/// Updates are checked before the vote, so one that does not decode here ends the node.
/// A member that names such an update must not end every node of the run.
#[test]
fn the_greatest_numbers_give_a_state_that_can_be_kept() {
    let mut worker = begin(u64::MAX);
    let greatest = vec![f32::MAX; first().theta().len()];
    let snapshot = apply(&mut worker, 1, &greatest, false);
    assert!(snapshot.state.theta().iter().all(|x| x.is_finite()));
}

/// A step may last longer than an epoch of the others, and a lid may stay closed for several.
#[test]
fn a_slow_peer_goes_on_where_it_was_after_epochs_without_it() {
    let (mut worker, mut heard) = by_hand();
    let zeros = vec![0.0; first().theta().len()];
    let mut update = vec![0; Codec::F32.encoded_bytes(zeros.len())];
    Codec::F32.encode(&zeros, &mut update).unwrap();
    let update = Arc::new(update);
    let without_it = |epoch| {
        let (update, spent) = (Arc::clone(&update), Blocks::default());
        Command::Apply { header: header(epoch), update, spent }
    };
    let train = |epoch| Command::Train { epoch, tokens: 0 };
    worker.execute(train(1)).unwrap();
    worker.step().unwrap();
    (1..=2).for_each(|epoch| worker.execute(without_it(epoch)).unwrap());
    worker.execute(train(3)).unwrap();
    assert!(!worker.has_done_all());
    worker.step().unwrap();
    // The others commit before the delta is frozen.
    worker.execute(without_it(3)).unwrap();
    worker.execute(train(4)).unwrap();
    assert!(worker.has_done_all());
    worker.freeze().unwrap();
    let trained = std::iter::from_fn(|| heard.try_recv().ok()).find_map(|report| match report {
        Report::Trained { epoch, tokens, .. } => Some((epoch, tokens)),
        _ => None,
    });
    assert_eq!(trained, Some((4, budget())));
}

#[test]
fn an_update_that_does_not_decode_is_never_applied() {
    let (handle, mut reports) = begin(u64::MAX);
    let update = Arc::new(vec![0xff; Codec::F32.encoded_bytes(first().theta().len())]);
    let spent = Blocks::default();
    assert!(handle.try_send(Command::Apply { header: header(1), update, spent }).is_ok());
    let Report::Failed(why) = next(&mut reports) else { panic!() };
    assert!(why.contains("decode"), "{why}");
    assert!(reports.blocking_recv().is_none());
}

#[test]
fn a_device_that_cannot_be_had_is_reported() {
    let (_handle, mut reports) = start(config(1), || Err("no device".to_owned())).unwrap();
    let Report::Failed(why) = next(&mut reports) else { panic!() };
    assert_eq!(why, "no device");
}
