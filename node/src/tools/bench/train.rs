//! `bench train`: measures how fast this machine trains, where the time goes, and how much memory it takes.
//!
//! A model of at least 5.0M parameters takes inner steps of 8 sequences in f32, with AdamW and clipping, through the same
//! trainer that a node runs. It has width 256, 6 blocks, vocabulary 512 and context 256; a Llama has 8 heads and ffn
//! 688, the other families have heads of 64 and ffn 896. `tests/peers/train.py` does the Llama's work in PyTorch and
//! prints the same fields. A family other than Llama takes its steps in turn with a Llama, since on a machine that
//! others use only the ratio of neighbouring steps is meaningful.
//!
//! The figure is the median step after three that warm up. The parts are wall time per kind of kernel. The rest of a step
//! goes into drawing the batch, the embedding, bookkeeping and the additions of burn's graph.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intellect_model::config::{Data, Family, Hints, Source, Train, Work};
use intellect_model::ops::clock::{self, KernelTime};
use intellect_model::train::Trainer;
use intellect_model::{Device, arch, data, genesis};
use serde_json::json;

use super::{BenchError, middle};
use crate::os;

/// Measures, and prints a table or one JSON object. The speed is in tokens and in floating-point
/// operations that the model needs, not those that the kernels execute, so that programs with other
/// kernels can be compared. The loss is that of the last step: equal programs on equal machines
/// print the same one.
pub(crate) fn run(family: Family, as_json: bool, out: &mut dyn Write) -> Result<(), BenchError> {
    let (runner, llama, parts) = measure(family)?;
    let model = &runner.work.model;
    let seconds = runner.median().as_secs_f64();
    let tokens_per_s = runner.work.tokens_per_step() as f64 / seconds;
    let ratio = llama.map(|llama| seconds / llama.median().as_secs_f64());
    let gflops = tokens_per_s * arch::Arch::new(model).flops_per_token() as f64 / 1e9;
    let (parameters, threads) = (model.parameter_count(), intellect_model::threads());
    let peak = os::memory_peak_bytes();
    let ms = |time: Duration| 1e3 * time.as_secs_f64() / STEPS as f64;
    let parts = parts.into_iter().map(|(name, time)| (name, ms(time)));
    if as_json {
        let parts: serde_json::Map<_, _> =
            parts.map(|(name, ms)| (name.to_owned(), json!(ms))).collect();
        let report = json!({
            "tokens_per_s": tokens_per_s,
            "step_ms": 1e3 * seconds,
            "times_llama": ratio,
            "peak_bytes": peak,
            "parameters": parameters,
            "threads": threads,
            "steps": STEPS,
            "loss": runner.loss,
            "gflop_per_s": gflops,
            "parts_ms": parts,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    writeln!(out, "{parameters} parameters, {threads} threads, median of {STEPS} steps")?;
    writeln!(out, "{tokens_per_s:>10.0} tokens/s ({:.1} ms a step)", 1e3 * seconds)?;
    if let Some(ratio) = ratio {
        writeln!(out, "{ratio:>10.2} times the step of a Llama in between")?;
    }
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

/// A model that is measured, and its steps so far. Two of them may train in turn, and then share
/// the threads and the clock of the kernels.
struct Runner {
    /// What is trained, and on which data.
    work: Work,
    /// The same trainer that a node has, on the CPU.
    trainer: Box<dyn Trainer>,
    /// The length of each step so far, those that warm up included.
    times: Vec<Duration>,
    /// The mean loss of the last step; 0 before the first.
    loss: f64,
}

impl Runner {
    /// A model of this family with the weights of its seed, before its first step.
    fn new(family: Family) -> Result<Self, BenchError> {
        let work = work(family);
        let source = Arc::new(data::Dataset::open(&work, SEED, &[])?);
        let mut trainer = intellect_model::trainer(&work, source, Device::Cpu, None)?;
        trainer.model().load(&genesis::weights(SEED, &arch::specs(&work.model)))?;
        Ok(Self { work, trainer, times: Vec::new(), loss: 0.0 })
    }

    /// Takes step number `step`, and returns where its time went. What the clock of the kernels
    /// counted before, as by the other model, is thrown away first.
    fn step(&mut self, step: usize) -> Result<Vec<KernelTime>, BenchError> {
        drop(clock::take());
        let tokens = step as u64 * self.work.tokens_per_step();
        let stream = data::Stream { seed: [0; 32], committed: 0 };
        let start = Instant::now();
        self.loss = self.trainer.step(&stream, step as u64, tokens)?.loss;
        self.times.push(start.elapsed());
        Ok(clock::take())
    }

    /// The median step, without those that warm up.
    fn median(&self) -> Duration {
        middle(self.times[WARM_UP..].to_vec())
    }
}

/// Wall time per kind of kernel.
type Parts = BTreeMap<&'static str, Duration>;

/// Trains, and takes the steps of a Llama between, unless the family is Llama itself. Returns both,
/// and the wall time per kind of kernel, summed over the measured steps. The steps that warm up are
/// not in these sums.
fn measure(family: Family) -> Result<(Runner, Option<Runner>, Parts), BenchError> {
    let mut runner = Runner::new(family)?;
    let mut llama = if family == Family::Llama { None } else { Some(Runner::new(Family::Llama)?) };
    let mut parts = Parts::new();
    for step in 0..WARM_UP + STEPS {
        if let Some(llama) = &mut llama {
            llama.step(step)?;
        }
        let seen = runner.step(step)?;
        if step < WARM_UP {
            continue;
        }
        for part in seen {
            *parts.entry(part.name).or_default() += part.time;
        }
    }
    Ok((runner, llama, parts))
}

/// The speed of a Llama in tokens a second, after steps for about so long: at least two, of which
/// the first is not counted. It is what `doctor` says of this machine. Making the model comes
/// before its clock starts.
pub(crate) fn short(time: Duration) -> Result<f64, BenchError> {
    let (mut runner, begun) = (Runner::new(Family::Llama)?, Instant::now());
    for step in 0.. {
        runner.step(step)?;
        if step > 0 && begun.elapsed() >= time {
            break;
        }
    }
    let step = middle(runner.times.split_off(1));
    Ok(runner.work.tokens_per_step() as f64 / step.as_secs_f64())
}

/// The model, data and training that are measured.
fn work(family: Family) -> Work {
    let source = Source::Synthetic { symbols: 256, order: 1 };
    let data = Data { source, held_out: 0.0, hints: Hints::default(), share: false };
    let train = Train { batch: 8, lr: 3e-4, ..Work::synthetic().train };
    Work { model: family.bench_model(), data, train }
}

/// How many steps are measured.
const STEPS: usize = 10;

/// Steps before the measured ones, which touch memory and start threads.
const WARM_UP: usize = 3;

/// The seed of weights and data; any other would do.
const SEED: u64 = 1;
