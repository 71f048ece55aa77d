//! `bench train`: how fast this machine trains, where the time goes, and how much memory it takes.
//!
//! A Llama of 5.0M parameters (width 256, 6 blocks, 8 heads, ffn 688, vocabulary 512, context 256)
//! takes inner steps of 8 sequences in f32, AdamW and clipping included, through the same trainer
//! that a node runs. `tests/peers/train.py` does the same work in PyTorch and prints the same
//! fields; run the two in turn, for only their ratio says anything on a machine that others use.
//!
//! The figure is the median step after three that warm up. The parts are wall time per kind of
//! kernel; what they leave of a step goes into drawing the batch, the embedding, bookkeeping and
//! the additions of burn's graph.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::{Data, Model, Source, Tokenizer, Train, Work};
use intellect_model::ops::clock::{self, Part};
use intellect_model::{Device, arch, data, genesis};
use serde_json::json;

use super::BenchError;
use crate::os;

/// What was measured.
struct Figures {
    step: Duration,
    parts: Vec<Part>,
    parameters: usize,
    threads: usize,
    flops_per_token: u64,
    loss: f64,
}

/// Measures, and writes a table or one JSON object.
pub(crate) fn run(as_json: bool, out: &mut dyn Write) -> Result<(), BenchError> {
    let work = work();
    let figures = measure(&work)?;
    let seconds = figures.step.as_secs_f64();
    let tokens_per_s = work.tokens_per_step() as f64 / seconds;
    let gflops = tokens_per_s * figures.flops_per_token as f64 / 1e9;
    let peak = os::memory_peak_bytes();
    let parts = figures.parts.iter();
    let parts = parts.map(|part| (part.name, 1e3 * part.time.as_secs_f64() / STEPS as f64));
    if as_json {
        let parts: serde_json::Map<_, _> =
            parts.map(|(name, ms)| (name.to_owned(), json!(ms))).collect();
        let report = json!({
            "tokens_per_s": tokens_per_s,
            "step_ms": 1e3 * seconds,
            "peak_bytes": peak,
            "parameters": figures.parameters,
            "threads": figures.threads,
            "steps": STEPS,
            "loss": figures.loss,
            "gflop_per_s": gflops,
            "parts_ms": parts,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    let Figures { parameters, threads, .. } = figures;
    writeln!(out, "{parameters} parameters, {threads} threads, median of {STEPS} steps")?;
    writeln!(out, "{tokens_per_s:>10.0} tokens/s ({:.1} ms a step)", 1e3 * seconds)?;
    writeln!(out, "{gflops:>10.1} GFLOP/s")?;
    if let Some(peak) = peak {
        writeln!(out, "{:>10.0} MB of memory at the peak", peak as f64 / 1e6)?;
    }
    writeln!(out, "of a step, on average:")?;
    let mut parts: Vec<_> = parts.collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, ms) in parts {
        writeln!(out, "{ms:>10.2} ms  {name}")?;
    }
    Ok(())
}

fn measure(work: &Work) -> Result<Figures, BenchError> {
    let source = Arc::new(data::Source::open(work, SEED, None)?);
    let mut trainer = intellect_model::trainer(work, source, Device::Cpu, None)?;
    trainer.load(&genesis::weights(SEED, &arch::specs(&work.model)))?;
    let mut times = Vec::with_capacity(STEPS);
    let mut loss = 0.0;
    for step in 0..WARM_UP + STEPS {
        if step == WARM_UP {
            drop(clock::take());
        }
        let start = Instant::now();
        loss = trainer.step(&[0; 32], step as u64, step as u64 * work.tokens_per_step())?.loss;
        if step >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    Ok(Figures {
        step: times[STEPS / 2],
        parts: clock::take(),
        parameters: trainer.parameter_count(),
        threads: intellect_model::threads(),
        flops_per_token: arch::Arch::new(&work.model).flops_per_token(),
        loss,
    })
}

/// The work that is measured.
fn work() -> Work {
    let model = Model {
        layers: 6,
        width: 256,
        heads: 8,
        kv_heads: 8,
        ffn: 688,
        context: 256,
        vocab: 512,
        ..Work::synthetic().model
    };
    let source = Source::Synthetic { symbols: 256, order: 1 };
    let data = Data { source, tokenizer: Tokenizer::Symbols, held_out: 0.0 };
    let train = Train { batch: 8, lr: 3e-4, ..Work::synthetic().train };
    Work { model, data, train }
}

/// Steps that are measured.
const STEPS: usize = 10;

/// Steps before them: the first ones touch memory and start threads.
const WARM_UP: usize = 3;

/// Any.
const SEED: u64 = 1;
