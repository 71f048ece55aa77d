//! Gates and other elementwise maps of the RWKV families, forward and backward.

use pulp::Simd;
use rayon::prelude::*;

use super::super::clock;
use super::super::lanes::{blocks, exp, fma, simd, tanh};

/// Elements per task.
const ELEMENTS: usize = 1 << 14;

#[inline(always)]
fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// y *= silu(g)
#[inline(always)]
fn silu_block<S: Simd>(g: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] *= g[i] * sigmoid::<S>(g[i]);
    }
}

/// dg = dy∘n∘silu'(g); n becomes dy∘silu(g).
#[inline(always)]
fn silu_grad_block<S: Simd>(g: &[f32], dy: &[f32], n: &mut [f32], dg: &mut [f32]) {
    for i in 0..dg.len() {
        let s = sigmoid::<S>(g[i]);
        let a = g[i] * s;
        dg[i] = dy[i] * n[i] * fma::<S>(a, 1.0 - s, s);
        n[i] = dy[i] * a;
    }
}

#[inline(always)]
fn relu_square_block(x: &mut [f32]) {
    for x in x {
        let positive = if *x > 0.0 { *x } else { 0.0 };
        *x = positive * positive;
    }
}

#[inline(always)]
fn relu_square_grad_block(y: &[f32], d: &mut [f32]) {
    for i in 0..d.len() {
        d[i] *= 2.0 * y[i].sqrt();
    }
}

#[inline(always)]
fn gated_add_block<S: Simd>(r: &[f32], x: &[f32], residual: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = fma::<S>(sigmoid::<S>(r[i]), x[i], residual[i]);
    }
}

#[inline(always)]
fn gated_add_grad_block<S: Simd>(r: &[f32], x: &[f32], dy: &[f32], dr: &mut [f32], dx: &mut [f32]) {
    for i in 0..dx.len() {
        let s = sigmoid::<S>(r[i]);
        dx[i] = dy[i] * s;
        dr[i] = dx[i] * x[i] * (1.0 - s);
    }
}

#[inline(always)]
fn decayed_block<S: Simd>(k: &[f32], w: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = k[i] * (1.0 - exp::<S>(-exp::<S>(w[i])));
    }
}

/// d(1 − exp(−eʷ))/dw = eʷ·exp(−eʷ)
#[inline(always)]
fn decayed_grad_block<S: Simd>(k: &[f32], w: &[f32], dy: &[f32], dk: &mut [f32], dw: &mut [f32]) {
    for i in 0..dk.len() {
        let rate = exp::<S>(w[i]);
        let factor = exp::<S>(-rate);
        dk[i] = dy[i] * (1.0 - factor);
        dw[i] = dy[i] * k[i] * rate * factor;
    }
}

#[inline(always)]
fn tanh_block<S: Simd>(y: &mut [f32]) {
    for y in y {
        *y = tanh::<S>(*y);
    }
}

/// d becomes d∘(1 − y²).
#[inline(always)]
fn tanh_grad_block<S: Simd>(y: &[f32], d: &mut [f32]) {
    for i in 0..d.len() {
        d[i] *= fma::<S>(-y[i], y[i], 1.0);
    }
}

simd! {
    pub(super) fn silu_rows<S>(g: &[f32], y: &mut [f32]) {
        blocks!(silu_block::<S>(g; y));
    }

    pub(super) fn silu_grad_rows<S>(g: &[f32], dy: &[f32], n: &mut [f32], dg: &mut [f32]) {
        blocks!(silu_grad_block::<S>(g, dy; n, dg));
    }

    fn relu_square_all<S>(x: &mut [f32]) {
        blocks!(relu_square_block(; x));
    }

    fn relu_square_grad_all<S>(y: &[f32], d: &mut [f32]) {
        blocks!(relu_square_grad_block(y; d));
    }

    fn gated_add_all<S>(r: &[f32], x: &[f32], residual: &[f32], y: &mut [f32]) {
        blocks!(gated_add_block::<S>(r, x, residual; y));
    }

    fn gated_add_grad_all<S>(r: &[f32], x: &[f32], dy: &[f32], dr: &mut [f32], dx: &mut [f32]) {
        blocks!(gated_add_grad_block::<S>(r, x, dy; dr, dx));
    }

    fn decayed_all<S>(k: &[f32], w: &[f32], y: &mut [f32]) {
        blocks!(decayed_block::<S>(k, w; y));
    }

    fn decayed_grad_all<S>(k: &[f32], w: &[f32], dy: &[f32], dk: &mut [f32], dw: &mut [f32]) {
        blocks!(decayed_grad_block::<S>(k, w, dy; dk, dw));
    }

    fn tanh_all<S>(y: &mut [f32]) {
        blocks!(tanh_block::<S>(; y));
    }

    fn tanh_grad_all<S>(y: &[f32], d: &mut [f32]) {
        blocks!(tanh_grad_block::<S>(y; d));
    }
}

/// x becomes max(x, 0)².
pub(super) fn relu_square(x: &mut [f32]) {
    let _timer = clock::start("gate");
    x.par_chunks_mut(ELEMENTS).for_each(relu_square_all);
}

/// d becomes d∘2√y, y = max(x, 0)².
pub(super) fn relu_square_grad(y: &[f32], d: &mut [f32]) {
    let _timer = clock::start("gate back");
    let chunks = y.par_chunks(ELEMENTS).zip(d.par_chunks_mut(ELEMENTS));
    chunks.for_each(|(y, d)| relu_square_grad_all(y, d));
}

/// y = residual + sigmoid(r)∘x.
pub(super) fn gated_add(r: &[f32], x: &[f32], residual: &[f32], y: &mut [f32]) {
    let _timer = clock::start("gate");
    let inputs = r.par_chunks(ELEMENTS).zip(x.par_chunks(ELEMENTS));
    let chunks = inputs.zip(residual.par_chunks(ELEMENTS)).zip(y.par_chunks_mut(ELEMENTS));
    chunks.for_each(|(((r, x), residual), y)| gated_add_all(r, x, residual, y));
}

/// Gradients of [`gated_add`] for r and x; that of the residual is `dy`.
pub(super) fn gated_add_grad(r: &[f32], x: &[f32], dy: &[f32], [dr, dx]: [&mut [f32]; 2]) {
    let _timer = clock::start("gate back");
    let inputs = r.par_chunks(ELEMENTS).zip(x.par_chunks(ELEMENTS)).zip(dy.par_chunks(ELEMENTS));
    let outputs = dr.par_chunks_mut(ELEMENTS).zip(dx.par_chunks_mut(ELEMENTS));
    let chunks = inputs.zip(outputs);
    chunks.for_each(|(((r, x), dy), (dr, dx))| gated_add_grad_all(r, x, dy, dr, dx));
}

/// y = k∘(1 − exp(−exp w)).
pub(super) fn decayed_keys(k: &[f32], w: &[f32], y: &mut [f32]) {
    let _timer = clock::start("gate");
    let inputs = k.par_chunks(ELEMENTS).zip(w.par_chunks(ELEMENTS));
    let chunks = inputs.zip(y.par_chunks_mut(ELEMENTS));
    chunks.for_each(|((k, w), y)| decayed_all(k, w, y));
}

/// Gradients of [`decayed_keys`].
pub(super) fn decayed_keys_grad(k: &[f32], w: &[f32], dy: &[f32], [dk, dw]: [&mut [f32]; 2]) {
    let _timer = clock::start("gate back");
    let inputs = k.par_chunks(ELEMENTS).zip(w.par_chunks(ELEMENTS)).zip(dy.par_chunks(ELEMENTS));
    let outputs = dk.par_chunks_mut(ELEMENTS).zip(dw.par_chunks_mut(ELEMENTS));
    let chunks = inputs.zip(outputs);
    chunks.for_each(|(((k, w), dy), (dk, dw))| decayed_grad_all(k, w, dy, dk, dw));
}

/// y becomes tanh(y).
pub(super) fn tanh_in_place(y: &mut [f32]) {
    let _timer = clock::start("gate");
    y.par_chunks_mut(ELEMENTS).for_each(tanh_all);
}

/// d becomes d∘(1 − y²), y = tanh.
pub(super) fn tanh_grad(y: &[f32], d: &mut [f32]) {
    let _timer = clock::start("gate back");
    y.par_chunks(ELEMENTS).zip(d.par_chunks_mut(ELEMENTS)).for_each(|(y, d)| tanh_grad_all(y, d));
}

/// Which way [`interleave`] copies.
pub(super) enum Pack<'a> {
    /// The three parts into the rows.
    Join([&'a [f32]; 3], &'a mut [f32]),
    /// The rows into three parts.
    Split(&'a [f32], [&'a mut [f32]; 3]),
}

/// Between three matrices of `width` columns and their rows side by side.
pub(super) fn interleave(pack: Pack<'_>, width: usize) {
    let _timer = clock::start("pack");
    match pack {
        Pack::Join(parts, rows) => {
            rows.par_chunks_mut(3 * width).enumerate().for_each(|(i, row)| {
                for (row, part) in row.chunks_exact_mut(width).zip(parts) {
                    row.copy_from_slice(&part[i * width..][..width]);
                }
            });
        }
        Pack::Split(rows, [a, b, c]) => {
            let parts = a.par_chunks_mut(width).zip(b.par_chunks_mut(width));
            let parts = parts.zip(c.par_chunks_mut(width));
            rows.par_chunks(3 * width).zip(parts).for_each(|(row, ((a, b), c))| {
                a.copy_from_slice(&row[..width]);
                b.copy_from_slice(&row[width..2 * width]);
                c.copy_from_slice(&row[2 * width..]);
            });
        }
    }
}
