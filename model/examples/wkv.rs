//! Measures how long the recurrence of RWKV takes, forward and backward, compared with the
//! projections of a block.
//!
//! ```text
//! cargo run --release -p intellect-model --example wkv
//! ```
//!
//! There is one sequence of T tokens with D = 256 and heads of 64 channels; the projections are the
//! five of time mixing, D × D each. Both are measured in turn, and the shortest of several rounds
//! counts, since other programs may use the machine. The recurrence is linear in T when its time
//! per token does not grow.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

use std::time::{Duration, Instant};

use burn_autodiff::Autodiff;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorData};
use burn_flex::Flex;
use intellect_model::ops::{FusedOps, Project, Wkv};

type A = Autodiff<Flex>;

const WIDTH: usize = 256;
const HEAD: usize = 64;
const PROJECTIONS: usize = 5;
const ROUNDS: usize = 9;

fn main() {
    println!("{} threads", intellect_model::threads());
    println!("{:>6} {:>14} {:>20} {:>6}", "T", "wkv us/token", "projections us/token", "ratio");
    for tokens in [256, 512, 1024, 2048, 4096, 8192] {
        let (mut wkv, mut projections) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            wkv = wkv.min(time(|| recurrence(tokens)));
            projections = projections.min(time(|| project(tokens)));
        }
        let [wkv, projections] = [wkv, projections].map(|t| 1e6 * t.as_secs_f64() / tokens as f64);
        println!("{tokens:>6} {wkv:>14.3} {projections:>20.3} {:>6.2}", wkv / projections);
    }
}

/// The duration of the pass that `prepare` returns; the preparation does not count.
fn time<F: FnOnce()>(prepare: impl FnOnce() -> F) -> Duration {
    let pass = prepare();
    let start = Instant::now();
    pass();
    start.elapsed()
}

/// A tensor of numbers between −1 and 1 that requires a gradient.
fn tensor(shape: &[usize], seed: usize) -> FloatTensor<A> {
    let count = shape.iter().product();
    let values: Vec<f32> =
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    let tensor = A::float_from_data(TensorData::new(values, shape.to_vec()), &Default::default());
    A::float_set_require_grad(tensor, true)
}

fn recurrence(tokens: usize) -> impl FnOnce() {
    let [r, k, v, w] = [1, 2, 3, 4].map(|seed| tensor(&[tokens, WIDTH], seed));
    let (u, state) = (tensor(&[WIDTH], 5), tensor(&[1, WIDTH / HEAD, HEAD, HEAD], 6));
    move || {
        let [y, _] = A::run_multi(Wkv, [r, k, v, w, u, state]);
        drop(A::backward(A::float_sum(y)));
    }
}

fn project(tokens: usize) -> impl FnOnce() {
    let (x, w) = (tensor(&[tokens, WIDTH], 1), tensor(&[WIDTH, WIDTH], 2));
    move || {
        for _ in 0..PROJECTIONS {
            drop(A::backward(A::float_sum(A::run(Project, [x.clone(), w.clone()]))));
        }
    }
}
