//! Row kernels of the RWKV families: norms with a bias and token shift, forward and backward.
//!
//! As in the other row kernels, work is cut into fixed chunks of [`ROWS`] rows and partial sums are
//! added in the order of the chunks, so results do not depend on the number of threads.

use pulp::Simd;
use rayon::prelude::*;

use super::super::clock;
use super::super::lanes::{blocks, dot_lanes, fma, simd, sum_lanes};
use super::Weighs;
use super::gates::{silu_grad_rows, silu_rows};

/// Rows per task.
pub(super) const ROWS: usize = 64;

/// y = x·scale − shift·scale, times w plus b.
#[inline(always)]
fn affine_block<S: Simd>(x: &[f32], w: &[f32], b: &[f32], y: &mut [f32], stats: Stats) {
    for i in 0..y.len() {
        y[i] = fma::<S>((x[i] - stats.mean) * stats.scale, w[i], b[i]);
    }
}

/// dw += dy∘x̂, y = dy∘w, x̂ into `hat`.
#[inline(always)]
fn norm_grad_block<S: Simd>(
    dy: &[f32],
    x: &[f32],
    w: &[f32],
    y: &mut [f32],
    hat: &mut [f32],
    dw: &mut [f32],
    stats: Stats,
) {
    for i in 0..y.len() {
        hat[i] = (x[i] - stats.mean) * stats.scale;
        dw[i] = fma::<S>(dy[i], hat[i], dw[i]);
        y[i] = dy[i] * w[i];
    }
}

/// dx = scale·(dx − mean − x̂·slope)
#[inline(always)]
fn center_block(hat: &[f32], dx: &mut [f32], scale: f32, mean: f32, slope: f32) {
    for i in 0..dx.len() {
        dx[i] = scale * (dx[i] - mean - hat[i] * slope);
    }
}

/// Mean and 1/√(var + eps) of a group of channels.
#[derive(Clone, Copy)]
struct Stats {
    mean: f32,
    scale: f32,
}

impl Stats {
    #[inline(always)]
    fn of<S: Simd>(x: &[f32], eps: f32, centred: &mut [f32]) -> Self {
        let count = x.len() as f32;
        let mean = sum_lanes(x) / count;
        for (centred, x) in centred.iter_mut().zip(x) {
            *centred = x - mean;
        }
        let scale = 1.0 / (dot_lanes::<S>(centred, centred) / count + eps).sqrt();
        Self { mean, scale }
    }
}

/// The weight of the row before, a·μ + b, by what μ weighs.
#[derive(Clone, Copy)]
struct Affine {
    a: f32,
    b: f32,
}

impl From<Weighs> for Affine {
    fn from(weighs: Weighs) -> Self {
        match weighs {
            Weighs::Present => Self { a: -1.0, b: 1.0 },
            Weighs::Past => Self { a: 1.0, b: 0.0 },
        }
    }
}

/// The rows of sequences, and what stands before each sequence.
#[derive(Clone, Copy)]
pub(super) struct Shifted<'a> {
    /// [B·T, D]
    pub(super) x: &'a [f32],
    /// [B, D]
    pub(super) before: &'a [f32],
    pub(super) width: usize,
}

impl<'a> Shifted<'a> {
    /// T
    pub(super) fn tokens(self) -> usize {
        self.x.len() / self.before.len()
    }

    pub(super) fn row(self, index: usize) -> &'a [f32] {
        &self.x[index * self.width..][..self.width]
    }

    /// The row before this one.
    #[inline(always)]
    pub(super) fn prev(self, index: usize) -> &'a [f32] {
        if index.is_multiple_of(self.tokens()) {
            return &self.before[index / self.tokens() * self.width..][..self.width];
        }
        self.row(index - 1)
    }
}

/// Weights of a shift.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    /// `[D]`
    pub(super) mu: &'a [f32],
    pub(super) weighs: Weighs,
}

/// y = x + (prev − x)·(a·μ + b)
#[inline(always)]
fn shift_block<S: Simd>(x: &[f32], prev: &[f32], mu: &[f32], y: &mut [f32], weight: Affine) {
    for i in 0..y.len() {
        let past = fma::<S>(weight.a, mu[i], weight.b);
        y[i] = fma::<S>(prev[i] - x[i], past, x[i]);
    }
}

/// dx = dy·(1 − past), dmu += dy·(prev − x)·a
#[inline(always)]
fn shift_grad_block<S: Simd>(
    dy: &[f32],
    x: &[f32],
    prev: &[f32],
    mu: &[f32],
    dx: &mut [f32],
    dmu: &mut [f32],
    weight: Affine,
) {
    for i in 0..dx.len() {
        let past = fma::<S>(weight.a, mu[i], weight.b);
        dx[i] = fma::<S>(-dy[i], past, dy[i]);
        dmu[i] = fma::<S>(dy[i] * weight.a, prev[i] - x[i], dmu[i]);
    }
}

/// dx += dy·past, of the row after.
#[inline(always)]
fn shift_carry_block<S: Simd>(dy: &[f32], mu: &[f32], dx: &mut [f32], weight: Affine) {
    for i in 0..dx.len() {
        dx[i] = fma::<S>(dy[i], fma::<S>(weight.a, mu[i], weight.b), dx[i]);
    }
}

#[inline(always)]
pub(super) fn add_block(x: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] += x[i];
    }
}

simd! {
    fn norm_rows<S>(x: &[f32], w: &[f32], b: &[f32], group: usize, eps: f32, y: &mut [f32]) {
        let width = w.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let groups = x.chunks_exact(group).zip(y.chunks_exact_mut(group));
            for ((x, y), (w, b)) in groups.zip(w.chunks_exact(group).zip(b.chunks_exact(group))) {
                let stats = Stats::of::<S>(x, eps, y);
                blocks!(affine_block::<S>(x, w, b; y) stats);
            }
        }
    }

    /// With dx̂ = w∘dy: dx = (dx̂ − mean dx̂ − x̂·mean(dx̂∘x̂))/σ; dw += dy∘x̂; db += dy.
    fn norm_grad_rows<S>(
        dy: &[f32], x: &[f32], w: &[f32], group: usize, eps: f32, dx: &mut [f32], sums: &mut [f32],
    ) {
        let width = w.len();
        let mut hat = vec![0.0; group];
        let (dw, db) = sums.split_at_mut(width);
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width));
        for ((dy, x), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            for at in (0..width).step_by(group) {
                let part = at..at + group;
                let (dy, x, w) = (&dy[part.clone()], &x[part.clone()], &w[part.clone()]);
                let (dw, db) = (&mut dw[part.clone()], &mut db[part.clone()]);
                let (dx, hat) = (&mut dx[part], &mut hat[..]);
                let stats = Stats::of::<S>(x, eps, hat);
                blocks!(norm_grad_block::<S>(dy, x, w; dx, hat, dw) stats);
                blocks!(add_block(dy; db));
                let mean = sum_lanes(dx) / group as f32;
                let slope = dot_lanes::<S>(dx, hat) / group as f32;
                blocks!(center_block(hat; dx) stats.scale, mean, slope);
            }
        }
    }

    fn shift_rows<S>(rows: Shifted<'_>, weights: Weights<'_>, start: usize, y: &mut [f32]) {
        let weight = Affine::from(weights.weighs);
        for (i, y) in y.chunks_exact_mut(rows.width).enumerate() {
            let (x, prev, mu) = (rows.row(start + i), rows.prev(start + i), weights.mu);
            blocks!(shift_block::<S>(x, prev, mu; y) weight);
        }
    }

    /// `dmu` is added to.
    fn shift_grad_rows<S>(
        dy: &[f32], rows: Shifted<'_>, weights: Weights<'_>, start: usize, dx: &mut [f32],
        dmu: &mut [f32],
    ) {
        let weight = Affine::from(weights.weighs);
        let (width, tokens, mu) = (rows.width, rows.tokens(), weights.mu);
        for (i, dx) in dx.chunks_exact_mut(width).enumerate() {
            let at = start + i;
            let (x, prev, here) = (rows.row(at), rows.prev(at), &dy[at * width..][..width]);
            blocks!(shift_grad_block::<S>(here, x, prev, mu; dx, dmu) weight);
            if !(at + 1).is_multiple_of(tokens) {
                let after = &dy[(at + 1) * width..][..width];
                blocks!(shift_carry_block::<S>(after, mu; dx) weight);
            }
        }
    }

    /// Adds the rows of x to y.
    fn sum_chunk<S>(x: &[f32], y: &mut [f32]) {
        let width = y.len();
        for x in x.chunks_exact(width) {
            blocks!(add_block(x; y));
        }
    }
}

/// Sizes of a norm: each row of `w.len()` channels falls into groups of so many.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) w: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) group: usize,
    pub(super) eps: f32,
}

/// y = norm(x), times silu of the gate where there is one. // x, gate, y [N, D]
pub(super) fn norm(x: &[f32], gate: Option<&[f32]>, norm: Norm<'_>, y: &mut [f32]) {
    let _timer = clock::start("norm");
    let Norm { w, b, group, eps } = norm;
    let chunk = ROWS * w.len();
    x.par_chunks(chunk).zip(y.par_chunks_mut(chunk)).enumerate().for_each(|(i, (x, y))| {
        norm_rows(x, w, b, group, eps, y);
        if let Some(gate) = gate {
            silu_rows(&gate[i * chunk..][..y.len()], y);
        }
    });
}

/// Gradients of [`norm`] without a gate. // `sums [2D]`: dw and db
pub(super) fn norm_grad(dy: &[f32], x: &[f32], norm: Norm<'_>, dx: &mut [f32], sums: &mut [f32]) {
    let _timer = clock::start("norm back");
    let Norm { w, group, eps, .. } = norm;
    let chunk = ROWS * w.len();
    let inputs = dy.par_chunks(chunk).zip(x.par_chunks(chunk));
    let partial = inputs.zip(dx.par_chunks_mut(chunk)).map(|((dy, x), dx)| {
        let mut sums = vec![0.0; 2 * w.len()];
        norm_grad_rows(dy, x, w, group, eps, dx, &mut sums);
        sums
    });
    add_up(partial.collect(), sums);
}

/// Gradients of [`norm`] with a gate.
pub(super) fn norm_gate_grad(
    dy: &[f32],
    [x, g]: [&[f32]; 2],
    norm: Norm<'_>,
    [dx, dg]: [&mut [f32]; 2],
    sums: &mut [f32],
) {
    let _timer = clock::start("norm back");
    let Norm { w, b, group, eps } = norm;
    let chunk = ROWS * w.len();
    let inputs = dy.par_chunks(chunk).zip(x.par_chunks(chunk)).zip(g.par_chunks(chunk));
    let outputs = dx.par_chunks_mut(chunk).zip(dg.par_chunks_mut(chunk));
    let partial = inputs.zip(outputs).map(|(((dy, x), g), (dx, dg))| {
        let mut normed = vec![0.0; x.len()];
        norm_rows(x, w, b, group, eps, &mut normed);
        silu_grad_rows(g, dy, &mut normed, dg);
        let mut sums = vec![0.0; 2 * w.len()];
        norm_grad_rows(&normed, x, w, group, eps, dx, &mut sums);
        sums
    });
    add_up(partial.collect(), sums);
}

fn add_up(parts: Vec<Vec<f32>>, sums: &mut [f32]) {
    sums.fill(0.0);
    for part in &parts {
        sum_chunk(part, sums);
    }
}

/// y = x + (prev(x) − x)∘(weight of the past). // y [B·T, D]
pub(super) fn shift(rows: Shifted<'_>, weights: Weights<'_>, y: &mut [f32]) {
    let _timer = clock::start("shift");
    let chunk = ROWS * rows.width;
    y.par_chunks_mut(chunk).enumerate().for_each(|(i, y)| shift_rows(rows, weights, i * ROWS, y));
}

/// Gradients of [`shift`]. // `dx [B·T, D], dmu [D], dbefore [B, D]`
pub(super) fn shift_grad(
    dy: &[f32],
    rows: Shifted<'_>,
    weights: Weights<'_>,
    [dx, dmu, dbefore]: [&mut [f32]; 3],
) {
    let _timer = clock::start("shift back");
    let width = rows.width;
    let chunk = ROWS * width;
    let partial = dx.par_chunks_mut(chunk).enumerate().map(|(i, dx)| {
        let mut dmu = vec![0.0; width];
        shift_grad_rows(dy, rows, weights, i * ROWS, dx, &mut dmu);
        dmu
    });
    add_up(partial.collect(), dmu);
    let Affine { a, b } = Affine::from(weights.weighs);
    for (i, dbefore) in dbefore.chunks_exact_mut(width).enumerate() {
        let dy = &dy[i * rows.tokens() * width..][..width];
        for ((dbefore, dy), mu) in dbefore.iter_mut().zip(dy).zip(weights.mu) {
            *dbefore = dy * (a * mu + b);
        }
    }
}

/// y = Σ of the rows of x. // x [N, D], y `[D]`
pub(super) fn sum_rows(x: &[f32], y: &mut [f32]) {
    let partial = x.par_chunks(ROWS * y.len()).map(|x| {
        let mut sum = vec![0.0; y.len()];
        sum_chunk(x, &mut sum);
        sum
    });
    add_up(partial.collect(), y);
}

/// Every row of y is `row`.
pub(super) fn repeat(y: &mut [f32], row: &[f32]) {
    y.par_chunks_mut(ROWS * row.len()).for_each(|y| {
        for y in y.chunks_exact_mut(row.len()) {
            y.copy_from_slice(row);
        }
    });
}
