//! The outer loop through the public interface of the crate: the peers train in turn, then one
//! outer step applies the mean of their deltas. The mathematics is that of real nodes.

#![expect(clippy::expect_used, reason = "helpers of a test fail the test")]

use std::sync::Arc;

use intellect_model::config::Work;
use intellect_model::data::{Dataset, Stream};
use intellect_model::eval::evaluate;
use intellect_model::outer::Outer;
use intellect_model::state::State;
use intellect_model::train::Trainer;
use intellect_model::{Device, arch, genesis, trainer};

/// A work that a few hundred steps make progress on, with a batch so small that averaging removes
/// much of its noise.
fn work() -> Work {
    let mut work = Work::synthetic();
    (work.model.layers, work.model.width, work.model.ffn, work.model.context) = (1, 32, 64, 32);
    work.train.batch = 2;
    work
}

/// The agreed parameters and their excess loss after `peers` peers trained for 8 epochs of 15
/// steps.
fn run(work: &Work, peers: u8, outer: Outer) -> (Vec<f32>, f64) {
    let source = Arc::new(Dataset::open(work, 1, &[]).expect("opens"));
    let mut state = State::genesis(genesis::weights(1, &arch::specs(&work.model)));
    let new = |_| trainer(work, Arc::clone(&source), Device::Cpu, None).expect("a trainer");
    let mut trainers: Vec<_> = (0..peers).map(new).collect();
    let mut committed = 0;
    for epoch in 1..=8 {
        let mut mean = vec![0.0; state.theta().len()];
        for (peer, trainer) in (0..).zip(&mut trainers) {
            let mut seed = [epoch; 32];
            seed[0] = peer;
            let stream = Stream { seed, committed };
            let local = learn(trainer.as_mut(), &state, &stream, committed);
            for ((mean, theta), local) in mean.iter_mut().zip(state.theta()).zip(local) {
                *mean += (theta - local) / f32::from(peers);
            }
        }
        state.step(&outer, u64::from(epoch), &mean);
        committed += u64::from(peers) * 15 * work.tokens_per_step();
    }
    trainers[0].model().load(state.theta()).expect("loaded");
    let held_out = evaluate(trainers[0].model(), &source, work, 1 << 13).expect("measured");
    (state.theta().to_vec(), held_out.excess.expect("a known source"))
}

/// The local parameters after 15 inner steps that begin with the agreed ones.
fn learn(trainer: &mut dyn Trainer, state: &State, stream: &Stream, mut tokens: u64) -> Vec<f32> {
    trainer.model().load(state.theta()).expect("loaded");
    for step in 0..15 {
        let done = trainer.step(stream, step, tokens).expect("a step");
        tokens += done.tokens;
    }
    let mut local = vec![0.0; state.theta().len()];
    trainer.model().store(&mut local).expect("stored");
    local
}

const OUTER: Outer = Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 };

/// Four peers that average reach a lower loss than one alone with the same number of steps each.
#[test]
fn averaging_helps() {
    let work = work();
    let unigram = {
        let source = Dataset::open(&work, 1, &[]).expect("opens");
        source.entropies().yardsticks().expect("a known source").unigram
    };
    let (_, together) = run(&work, 4, OUTER);
    let (_, alone) = run(&work, 1, OUTER);
    println!("excess: 4 peers {together:.4}, one alone {alone:.4}, unigram {unigram:.4}");
    assert!(together < 0.95 * alone, "{together} and {alone}");
    assert!(together < unigram);
}

/// With η = 1 and μ = 0 the outer loop of one peer equals plain AdamW up to rounding.
#[test]
fn the_identity_step_is_plain_training() {
    let work = work();
    let identity = Outer { lr: 1.0, momentum: 0.0, momentum_ramp_epochs: 0 };
    let (outer, _) = run(&work, 1, identity);

    let source = Arc::new(Dataset::open(&work, 1, &[]).expect("opens"));
    let mut plain = trainer(&work, source, Device::Cpu, None).expect("a trainer");
    plain.model().load(&genesis::weights(1, &arch::specs(&work.model))).expect("loaded");
    let mut tokens = 0;
    for epoch in 1..=8_u8 {
        let mut seed = [epoch; 32];
        seed[0] = 0;
        let stream = Stream { seed, committed: tokens };
        for step in 0..15 {
            tokens += plain.step(&stream, step, tokens).expect("a step").tokens;
        }
    }
    let mut theta = vec![0.0; outer.len()];
    plain.model().store(&mut theta).expect("stored");
    let error: f32 = theta.iter().zip(&outer).map(|(a, b)| (a - b) * (a - b)).sum();
    let norm: f32 = theta.iter().map(|a| a * a).sum();
    assert!((error / norm).sqrt() < 1e-3, "{}", (error / norm).sqrt());
}
