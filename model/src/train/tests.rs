//! The trainer through its public interface, on the CPU.

use super::*;
use crate::arch::specs;
use crate::config::{self, Family};
use crate::{Device, genesis};

const STREAM: Stream = Stream { seed: [7; 32], committed: 0 };

fn work() -> Work {
    let mut work = Work::synthetic();
    (work.model.layers, work.model.width, work.model.ffn, work.model.context) = (2, 32, 48, 24);
    work.train.warmup_tokens = 0;
    work.train.join_ramp_steps = 0;
    work
}

fn trainer_of(work: &Work, micro_batch: Option<usize>) -> Box<dyn Trainer> {
    let source = Arc::new(Dataset::open(work, 5, &[]).unwrap());
    let mut trainer = crate::trainer(work, source, Device::Cpu, micro_batch).unwrap();
    trainer.model().load(&genesis::weights(5, &specs(&work.model))).unwrap();
    trainer
}

fn weights(model: &dyn Model) -> Vec<f32> {
    let mut theta = vec![0.0; work().model.parameter_count() as usize];
    model.store(&mut theta).unwrap();
    theta
}

/// The same work with another architecture.
pub(super) fn work_of(family: Family) -> Work {
    let mut work = work();
    let model = work.model.clone();
    let recurrent = config::Model {
        family,
        kv_heads: 0,
        rope_theta: 0.0,
        norm_eps: 0.0,
        layers: 3,
        ..model.clone()
    };
    let finch = config::Model { mix_rank: 4, decay_rank: 8, ..recurrent.clone() };
    work.model = match family {
        Family::Llama => model,
        Family::Eagle => recurrent,
        Family::Finch => finch,
        Family::GoldFinch => {
            config::Model { gold_layers: 1, value_rank: 8, compression: 8, ..finch }
        }
    };
    work
}

#[test]
fn every_family_learns_the_source() {
    for family in Family::ALL {
        assert_learns(&work_of(family));
    }
}

fn assert_learns(work: &Work) {
    let mut trainer = trainer_of(work, None);
    let held_out = Dataset::open(work, 5, &[]).unwrap().held_out(0..8, 8).unwrap();
    let before = trainer.model().loss(&held_out).unwrap();
    let entropy = Dataset::open(work, 5, &[]).unwrap().entropies();
    assert!(before > entropy.unigram, "{before}");
    for step in 0..150 {
        let done = trainer.step(&STREAM, step, step * work.tokens_per_step()).unwrap();
        assert_eq!(done.tokens, work.tokens_per_step());
    }
    let after = trainer.model().loss(&held_out).unwrap();
    let family = work.model.family;
    assert!(after < entropy.unigram, "{family:?}: {after} is no better than {}", entropy.unigram);
}

/// Reading token by token, or in parts longer than the context, gives the same scores as reading
/// the whole text at once. But a Llama sees no more than its context, and when that is full it
/// continues from three quarters of it.
#[test]
fn a_reader_expects_what_the_model_expects() {
    for family in Family::ALL {
        let mut work = work_of(family);
        let mut model = crate::model(&work, Device::Cpu).unwrap();
        let mut theta = genesis::weights(5, &specs(&work.model));
        // At its start a model looks only at the present token.
        theta.iter_mut().enumerate().for_each(|(i, x)| *x += ((i * 37 % 23) as f32 - 11.0) * 0.02);
        model.load(&theta).unwrap();
        let text: Vec<i32> = (0..20).map(|i| i * i % 13).collect();
        let mut reader = model.reader(Keep::EXACT);
        let vocab = work.model.vocab;
        let scores = model.logits(&text, 1).unwrap();
        assert!(reader.read(&[], Scored::Last).unwrap().is_empty());
        let mut at = 0;
        for count in [7, 1, 1, 4, 1, 6] {
            let found = reader.read(&text[at..at + count], Scored::Last).unwrap();
            at += count;
            let expected = &scores[(at - 1) * vocab..at * vocab];
            let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{family:?}, token {at}: {far}");
        }
        assert!(matches!(
            reader.read(&[vocab as i32], Scored::Last),
            Err(TrainError::Tokens { .. })
        ));
        drop(reader);
        work.model.context = 8;
        let mut short = crate::model(&work, Device::Cpu).unwrap();
        short.load(&theta).unwrap();
        let mut reader = short.reader(Keep::EXACT);
        // How many tokens are read, and how many of all read so far a Llama then sees.
        let mut at = 0;
        for (count, seen) in [(1, 1), (7, 8), (1, 6), (2, 8), (9, 6)] {
            let found = reader.read(&text[at..at + count], Scored::Last).unwrap();
            at += count;
            let seen = if family == Family::Llama { &text[at - seen..at] } else { &text[..at] };
            let scores = model.logits(seen, 1).unwrap();
            let expected = &scores[(seen.len() - 1) * vocab..];
            let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-4, "{family:?}, token {at} of a short context: {far}");
        }
    }
}

/// Of 20 tokens the last 10. A Llama of 24 positions forgets none of them, and of 25 all but 18.
#[test]
fn only_what_is_asked_for_is_scored() {
    for family in Family::ALL {
        let work = work_of(family);
        let vocab = work.model.vocab;
        let mut model = crate::model(&work, Device::Cpu).unwrap();
        model.load(&genesis::weights(5, &specs(&work.model))).unwrap();
        let text: Vec<i32> = (0..20).map(|i| i * i % 13).collect();
        let whole = model.logits(&text, 1).unwrap();
        let mut reader = model.reader(Keep::EXACT);
        assert!(reader.read(&text[..8], Scored::Nothing).unwrap().is_empty());
        let found = reader.read(&text[8..], Scored::From(2)).unwrap();
        assert_eq!(found.len(), 10 * vocab, "{family:?}");
        let far = found.iter().zip(&whole[10 * vocab..]).map(|(a, b)| (a - b).abs());
        assert!(far.fold(0.0, f32::max) < 1e-4, "{family:?}");
        assert_eq!(reader.forgotten(), 0);
        assert_eq!(reader.read(&text[..5], Scored::All).unwrap().len(), 5 * vocab);
        let forgotten = if family == Family::Llama { 7 } else { 0 };
        assert_eq!(reader.forgotten(), forgotten, "{family:?}");
        assert_eq!(reader.fork().forgotten(), forgotten);
    }
}

/// A GoldFinch keeps numbers of 16 bits unless it is told otherwise. The bound is a share of the
/// largest score; rounding to 8 bits of precision costs up to 0.4 % of each number.
#[test]
fn a_past_of_sixteen_bits_changes_scores_by_two_per_cent_at_most() {
    let work = work_of(Family::GoldFinch);
    let mut model = crate::model(&work, Device::Cpu).unwrap();
    let mut theta = genesis::weights(5, &specs(&work.model));
    theta.iter_mut().enumerate().for_each(|(i, x)| *x += ((i * 37 % 23) as f32 - 11.0) * 0.02);
    model.load(&theta).unwrap();
    let text: Vec<i32> = (0..20).map(|i| i * i % 13).collect();
    let [exact, half] = [Keep::EXACT, Keep::default()].map(|keep| {
        let mut reader = model.reader(keep);
        reader.read(&text[..19], Scored::Nothing).unwrap();
        reader.read(&text[19..], Scored::Last).unwrap()
    });
    let far = check::distance(&exact, &half);
    assert!(0.0 < far && far < 0.02, "{far}");
}

#[test]
fn a_step_is_a_pure_function_on_any_number_of_threads() {
    let run = |threads: usize, stream: Stream| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut trainer = trainer_of(&work(), None);
            let steps: Vec<_> =
                (0..3).map(|step| trainer.step(&stream, step, 0).unwrap().loss).collect();
            (steps, weights(trainer.model()))
        })
    };
    let one = run(1, STREAM);
    assert_eq!(one, run(3, STREAM));
    assert_ne!(one, run(1, Stream { seed: [8; 32], ..STREAM }));
}

/// Micro-batches, whether or not they divide the batch, give the same step up to rounding.
#[test]
fn micro_batches_add_up_to_the_batch() {
    let run = |micro_batch: Option<usize>| {
        let mut trainer = trainer_of(&work(), micro_batch);
        let steps: Vec<Step> = (0..2).map(|step| trainer.step(&STREAM, step, 0).unwrap()).collect();
        (steps, weights(trainer.model()))
    };
    let (whole, theta) = run(None);
    for micro_batch in [1, 3, 4, 100] {
        let (parts, parts_theta) = run(Some(micro_batch));
        for (a, b) in whole.iter().zip(&parts) {
            assert!((a.loss - b.loss).abs() < 1e-5 && (a.grad_norm - b.grad_norm).abs() < 1e-4);
        }
        let far = theta.iter().zip(&parts_theta).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Adam turns the rounding of tiny gradients into larger differences, but never above a
        // step.
        assert!(far < 0.1 * work().train.lr as f32, "{micro_batch}: {far}");
    }
    let source = Arc::new(Dataset::open(&work(), 5, &[]).unwrap());
    let error = crate::trainer(&work(), source, Device::Cpu, Some(0)).err().unwrap();
    assert!(matches!(error, TrainError::MicroBatch(8)));
}

#[test]
fn weights_come_back_as_they_were_loaded() {
    let mut trainer = trainer_of(&work(), None);
    let theta = genesis::weights(9, &specs(&work().model));
    trainer.model().load(&theta).unwrap();
    assert_eq!(weights(trainer.model()), theta);
    assert!(matches!(trainer.model().load(&theta[1..]), Err(TrainError::Params(_))));
    assert!(matches!(trainer.model().store(&mut [0.0; 3]), Err(TrainError::Params(_))));
    assert_eq!(weights(trainer.model()), theta);
}

/// A second load of the same weights keeps the moments: the step after it differs from a cold
/// trainer's first.
#[test]
fn moments_survive_a_load() {
    let theta = genesis::weights(5, &specs(&work().model));
    let (mut warm, mut cold) = (trainer_of(&work(), None), trainer_of(&work(), None));
    warm.step(&STREAM, 0, 0).unwrap();
    warm.model().load(&theta).unwrap();
    let (a, b) = (warm.step(&STREAM, 1, 0).unwrap(), cold.step(&STREAM, 1, 0).unwrap());
    assert_eq!((a.loss, a.grad_norm), (b.loss, b.grad_norm));
    assert_ne!(weights(warm.model()), weights(cold.model()));
}

#[test]
fn the_learning_rate_follows_run_and_peer() {
    let mut work = work();
    work.train.warmup_tokens = 10 * work.tokens_per_step();
    work.train.join_ramp_steps = 4;
    let mut trainer = trainer_of(&work, None);
    let tokens = |steps: u64| steps * work.tokens_per_step();
    let mut rate = |committed: u64| {
        let step = trainer.step(&STREAM, committed, tokens(committed)).unwrap();
        step.learning_rate / work.train.lr
    };
    // The run's warmup limits a peer at the start, cold moments limit a peer that joins later.
    let found = [rate(0), rate(1), rate(100), rate(100), rate(100)];
    for (found, expected) in found.into_iter().zip([0.1, 0.2, 0.75, 1.0, 1.0]) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
}

#[test]
fn a_runaway_step_is_refused_and_changes_nothing() {
    let mut trainer = trainer_of(&work(), None);
    let mut theta = weights(trainer.model());
    theta[40] = f32::NAN;
    trainer.model().load(&theta).unwrap();
    let error = trainer.step(&STREAM, 0, 0).unwrap_err();
    assert!(matches!(error, TrainError::Optim(OptimError::NotFinite { .. })), "{error}");
    let after = weights(trainer.model());
    assert!(theta.iter().zip(&after).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn logits_and_loss_agree() {
    let work = work();
    let mut trainer = trainer_of(&work, None);
    let batch = Dataset::open(&work, 5, &[]).unwrap().batch(&STREAM, 0, 0..3).unwrap();
    let logits = trainer.model().logits(&batch.inputs, 3).unwrap();
    let rows = logits.chunks_exact(work.model.vocab).zip(&batch.targets);
    let losses = rows.map(|(row, &target)| {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        sum.ln() - f64::from(row[target as usize])
    });
    let mean = losses.sum::<f64>() / batch.targets.len() as f64;
    assert!((mean - trainer.model().loss(&batch).unwrap()).abs() < 1e-5);
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let mut trainer = trainer_of(&work(), None);
    let mut refused = |tokens: &[i32], sequences: usize| {
        matches!(trainer.model().logits(tokens, sequences), Err(TrainError::Tokens { .. }))
    };
    let vocab = work().model.vocab as i32;
    assert!(refused(&[], 0) && refused(&[], 1) && refused(&[1, 2, 3], 2));
    assert!(refused(&[vocab], 1) && refused(&[-1], 1) && refused(&[0; 25], 1));
    assert!(!refused(&[vocab - 1], 1) && !refused(&[0; 48], 2));
}

#[test]
fn more_micro_batch_costs_more_memory() {
    let work = Work::synthetic();
    let count = work.model.parameter_count();
    let embedding = 4 * (work.model.vocab * work.model.width) as u64;
    let (one, two) = (held_bytes(&work, 1), held_bytes(&work, 2));
    assert!(20 * count + embedding < one && one < two);
    assert_eq!(two - one, one - 20 * count - embedding);
    // A whole batch needs no sum of gradients, and a micro-batch is at most the batch.
    let batch = work.train.batch as u64;
    assert_eq!(held_bytes(&work, 8), 16 * count + embedding + batch * (two - one));
    assert_eq!(held_bytes(&work, 8), held_bytes(&work, 100));
}

#[test]
fn scores_of_a_gpu_are_a_quarter_of_it_and_counted_by_32_bits() {
    let mut work = Work::synthetic();
    (work.model.vocab, work.model.context, work.train.batch) = (1 << 17, 1 << 10, 64);
    let enough = 1 << 50;
    assert!(fits_gpu(&work, 31, enough) && !fits_gpu(&work, 32, enough));
    assert_eq!(micro_batch(&work, |size| fits_gpu(&work, size, enough)), Some(16));
    let quarter = 4 * 4 * (4 << 27);
    let roomy = |size| held_on_gpu(&work, size) / 11 * 12 + 12;
    assert!(fits_gpu(&work, 4, quarter.max(roomy(4))));
    assert!(fits_gpu(&work, 1, roomy(1)) && !fits_gpu(&work, 1, roomy(1) - 24), "pages");
}
