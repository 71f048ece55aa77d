//! The row kernels: norm, rotation, SwiGLU, loss and AdamW as loops over `f32` slices, forward and
//! backward.
//!
//! Work is cut into fixed chunks of [`ROWS`] rows, which run on all threads, and partial sums are
//! added in the order of the chunks: results do not depend on the number of threads. How the loops
//! become vector code is `lanes.rs`'s matter.

use pulp::Simd;
use rayon::prelude::*;

use super::clock;
use super::lanes::{BLOCK, dot_lanes, exp, exp_lanes, fma, max_lanes, simd};

/// Rows per task.
const ROWS: usize = 64;

/// Elements per task of an elementwise pass.
const ELEMENTS: usize = 1 << 15;

#[inline(always)]
fn silu_parts<S: Simd>(x: f32) -> (f32, f32) {
    let s = 1.0 / (1.0 + exp::<S>(-x));
    (s, x * s)
}

/// y = silu(g)·u.
#[inline(always)]
fn swiglu_block<S: Simd>(g: &[f32], u: &[f32], y: &mut [f32]) {
    for i in 0..y.len() {
        y[i] = silu_parts::<S>(g[i]).1 * u[i];
    }
}

/// silu'(g) = s + g·s·(1 − s), s = 1/(1 + e⁻ᵍ).
#[inline(always)]
fn swiglu_grad_block<S: Simd>(g: &[f32], u: &[f32], dy: &[f32], dg: &mut [f32], du: &mut [f32]) {
    for i in 0..dy.len() {
        let (s, a) = silu_parts::<S>(g[i]);
        du[i] = dy[i] * a;
        dg[i] = dy[i] * u[i] * fma::<S>(a, 1.0 - s, s);
    }
}

/// (a, b) turned by the angles.
#[inline(always)]
fn turn_block(a: &mut [f32], b: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
    for i in 0..a.len() {
        let (u, v, s) = (a[i], b[i], sin[i] * sign);
        a[i] = u * cos[i] - v * s;
        b[i] = v * cos[i] + u * s;
    }
}

simd! {
    fn rms_norm_rows<S>(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
        let width = w.len();
        for ((x, y), r) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(rstd) {
            *r = 1.0 / (dot_lanes::<S>(x, x) / width as f32 + eps).sqrt();
            for ((y, &x), &w) in y.iter_mut().zip(x).zip(w) {
                *y = x * *r * w;
            }
        }
    }

    /// dx = r·(w∘dy) − x·r³·⟨w∘dy, x⟩/D; dw += dy∘x·r.
    fn rms_norm_grad_rows<S>(
        dy: &[f32], x: &[f32], w: &[f32], rstd: &[f32], dx: &mut [f32], dw: &mut [f32],
    ) {
        let width = w.len();
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(rstd);
        for (((dy, x), &r), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            let dw = &mut dw[..width];
            for i in 0..width {
                dx[i] = dy[i] * w[i];
                dw[i] = fma::<S>(dy[i], x[i] * r, dw[i]);
            }
            let k = dot_lanes::<S>(dx, x) * r * r * r / width as f32;
            for (dx, &x) in dx.iter_mut().zip(x) {
                *dx = fma::<S>(*dx, r, -x * k);
            }
        }
    }

    /// Rotates the pairs (i, i + K/2) of each head of width K, forward (`sign` 1) or back (−1).
    /// `first` is the position of the first row; cos, sin [T, K/2].
    fn rope_rows<S>(
        x: &mut [f32], widths: [usize; 3], cos: &[f32], sin: &[f32], first: usize, sign: f32,
    ) {
        let [row, rotated, half] = widths;
        let tokens = cos.len() / half;
        for (i, x) in x.chunks_exact_mut(row).enumerate() {
            let at = (first + i) % tokens * half;
            let (cos, cos_rest) = cos[at..at + half].as_chunks::<BLOCK>();
            let (sin, sin_rest) = sin[at..at + half].as_chunks::<BLOCK>();
            for head in x[..rotated].chunks_exact_mut(2 * half) {
                let (a, b) = head.split_at_mut(half);
                let (a, a_rest) = a.as_chunks_mut::<BLOCK>();
                let (b, b_rest) = b.as_chunks_mut::<BLOCK>();
                for i in 0..a.len() {
                    turn_block(&mut a[i], &mut b[i], &cos[i], &sin[i], sign);
                }
                turn_block(a_rest, b_rest, cos_rest, sin_rest, sign);
            }
        }
    }

    fn swiglu_rows<S>(gate_up: &[f32], width: usize, y: &mut [f32]) {
        for (x, y) in gate_up.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (g, u) = x.split_at(width);
            let ((g, g_rest), (u, u_rest)) = (g.as_chunks::<BLOCK>(), u.as_chunks::<BLOCK>());
            let (y, y_rest) = y.as_chunks_mut::<BLOCK>();
            for i in 0..y.len() {
                swiglu_block::<S>(&g[i], &u[i], &mut y[i]);
            }
            swiglu_block::<S>(g_rest, u_rest, y_rest);
        }
    }

    fn swiglu_grad_rows<S>(gate_up: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
        let rows = gate_up.chunks_exact(2 * width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
            let ((g, u), (dg, du)) = (x.split_at(width), dx.split_at_mut(width));
            let ((g, g_rest), (u, u_rest)) = (g.as_chunks::<BLOCK>(), u.as_chunks::<BLOCK>());
            let (dy, dy_rest) = dy.as_chunks::<BLOCK>();
            let (dg, dg_rest) = dg.as_chunks_mut::<BLOCK>();
            let (du, du_rest) = du.as_chunks_mut::<BLOCK>();
            for i in 0..dy.len() {
                swiglu_grad_block::<S>(&g[i], &u[i], &dy[i], &mut dg[i], &mut du[i]);
            }
            swiglu_grad_block::<S>(g_rest, u_rest, dy_rest, dg_rest, du_rest);
        }
    }

    /// One row of logits becomes `scale` × d(−log softmax(x)\[target\])/dx. Returns (max, Σ exp(x −
    /// max)).
    fn cross_entropy_row<S>(x: &mut [f32], target: usize, scale: f32) -> (f32, f32) {
        let max = max_lanes(x);
        let sum = exp_lanes::<S>(x, 1.0, max);
        let k = scale / sum;
        for x in x.iter_mut() {
            *x *= k;
        }
        x[target] -= scale;
        (max, sum)
    }

    fn add_assign<S>(x: &mut [f32], a: &[f32]) {
        for (x, &a) in x.iter_mut().zip(a) {
            *x += a;
        }
    }

    fn scale_assign<S>(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }

    /// Σ xᵢ².
    fn square_sum_chunk<S>(x: &[f32]) -> f32 {
        dot_lanes::<S>(x, x)
    }

    fn adamw_chunk<S>(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: super::AdamW) {
        let keep = 1.0 - step.learning_rate * step.weight_decay;
        let rate = step.learning_rate / step.correction1;
        let root = 1.0 / step.correction2.sqrt();
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * step.gradient_scale;
            *m = fma::<S>(step.beta1, *m, (1.0 - step.beta1) * g);
            *v = fma::<S>(step.beta2, *v, (1.0 - step.beta2) * g * g);
            *p = *p * keep - rate * *m / fma::<S>(v.sqrt(), root, step.eps);
        }
    }
}

/// y = x∘w/√(mean(x²) + eps), and 1/√… of each row. // `x, y [N, D]; w [D]; rstd [N]`
pub(super) fn rms_norm(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let _timer = clock::start("norm");
    let chunk = ROWS * w.len();
    let outputs = y.par_chunks_mut(chunk).zip(rstd.par_chunks_mut(ROWS));
    x.par_chunks(chunk).zip(outputs).for_each(|(x, (y, rstd))| rms_norm_rows(x, w, eps, y, rstd));
}

/// Gradients of [`rms_norm`]. // `dy, x, dx [N, D]; w, dw [D]; rstd [N]`
pub(super) fn rms_norm_grad(
    dy: &[f32],
    x: &[f32],
    w: &[f32],
    rstd: &[f32],
    dx: &mut [f32],
    dw: &mut [f32],
) {
    let _timer = clock::start("norm back");
    let chunk = ROWS * w.len();
    let inputs = dy.par_chunks(chunk).zip(x.par_chunks(chunk)).zip(rstd.par_chunks(ROWS));
    let partial: Vec<Vec<f32>> = inputs
        .zip(dx.par_chunks_mut(chunk))
        .map(|(((dy, x), rstd), dx)| {
            let mut dw = vec![0.0; w.len()];
            rms_norm_grad_rows(dy, x, w, rstd, dx, &mut dw);
            dw
        })
        .collect();
    dw.fill(0.0);
    for partial in &partial {
        add_assign(dw, partial);
    }
}

/// Which way [`rope`] turns.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Forward,
    Back,
}

/// Rotary embedding of the query and key heads of packed rows, in place. // x [B·T, (H + 2G)·K]
pub(super) fn rope(x: &mut [f32], heads: super::Heads, table: &super::Rope, turn: Turn) {
    let _timer = clock::start("rotate");
    let (row, rotated) = (heads.row(), (heads.query + heads.kv) * heads.size);
    let [cos, sin] = table.angles(heads.tokens);
    let sign = match turn {
        Turn::Forward => 1.0,
        Turn::Back => -1.0,
    };
    x.par_chunks_mut(ROWS * row).enumerate().for_each(|(i, x)| {
        rope_rows(x, [row, rotated, table.half], cos, sin, i * ROWS, sign);
    });
}

/// y = silu(gate)∘up of rows [gate | up]. // gate_up [N, 2F], y [N, F]
pub(super) fn swiglu(gate_up: &[f32], width: usize, y: &mut [f32]) {
    let _timer = clock::start("swiglu");
    let inputs = gate_up.par_chunks(ROWS * 2 * width);
    inputs
        .zip(y.par_chunks_mut(ROWS * width))
        .for_each(|(gate_up, y)| swiglu_rows(gate_up, width, y));
}

/// Gradient of [`swiglu`]. // dx [N, 2F], dy [N, F]
pub(super) fn swiglu_grad(gate_up: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
    let _timer = clock::start("swiglu back");
    let inputs = gate_up.par_chunks(ROWS * 2 * width).zip(dy.par_chunks(ROWS * width));
    inputs
        .zip(dx.par_chunks_mut(ROWS * 2 * width))
        .for_each(|((gate_up, dy), dx)| swiglu_grad_rows(gate_up, dy, width, dx));
}

/// Mean cross entropy plus the z-loss; the logits become their gradient. // logits [N, V], targets
/// `[N]`
pub(super) fn cross_entropy(
    logits: &mut [f32],
    vocabulary: usize,
    targets: &[i32],
    z_loss: super::ZLoss,
) -> f32 {
    let _timer = clock::start("loss");
    let scale = 1.0 / targets.len() as f32;
    let chunks = logits.par_chunks_mut(ROWS * vocabulary).zip(targets.par_chunks(ROWS));
    let partial: Vec<f64> = chunks
        .map(|(logits, targets)| {
            let rows = logits.chunks_exact_mut(vocabulary).zip(targets);
            rows.map(|(x, &target)| position_loss(x, target, scale, z_loss)).sum()
        })
        .collect();
    (partial.into_iter().sum::<f64>() / targets.len() as f64) as f32
}

/// The loss of one position; its logits become their gradient, divided by the number of positions
/// (`scale`).
fn position_loss(x: &mut [f32], target: i32, scale: f32, z_loss: super::ZLoss) -> f64 {
    let target = target as usize;
    assert!(target < x.len(), "target {target} is beyond a vocabulary of {}", x.len());
    let goal = f64::from(x[target]);
    let largest = (z_loss.weight != 0.0 && z_loss.form == super::ZForm::Max).then(|| first_max(x));
    let (max, sum) = cross_entropy_row(x, target, scale);
    let lse = f64::from(sum).ln() + f64::from(max);
    let mut loss = lse - goal;
    let weight = z_loss.weight;
    if let Some(at) = largest {
        loss += f64::from(weight) * f64::from(max).powi(2);
        x[at] += 2.0 * weight * max * scale;
    } else if weight != 0.0 {
        loss += f64::from(weight) * lse * lse;
        // d(lse²)/dx = 2·lse·softmax(x), and x holds scale·(softmax − one-hot).
        let factor = 2.0 * weight * lse as f32;
        x[target] += scale;
        scale_assign(x, 1.0 + factor);
        x[target] -= scale;
    }
    loss
}

/// The index of the first largest element.
fn first_max(x: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in x.iter().enumerate() {
        if *value > x[best] {
            best = i;
        }
    }
    best
}

/// x *= factor.
pub(super) fn scale(x: &mut [f32], factor: f32) {
    x.par_chunks_mut(ELEMENTS).for_each(|x| scale_assign(x, factor));
}

/// y = x, on all threads.
pub(super) fn copy(y: &mut [f32], x: &[f32]) {
    let _timer = clock::start("residual");
    y.par_chunks_mut(ELEMENTS).zip(x.par_chunks(ELEMENTS)).for_each(|(y, x)| y.copy_from_slice(x));
}

/// Σ x², the same for every number of threads.
pub(super) fn square_sum(x: &[f32]) -> f32 {
    let _timer = clock::start("gradient norm");
    let partial: Vec<f64> =
        x.par_chunks(ELEMENTS).map(|x| f64::from(square_sum_chunk(x))).collect();
    partial.into_iter().sum::<f64>() as f32
}

/// One AdamW update in one pass over parameter, gradient and both moments.
pub(super) fn adamw(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: super::AdamW) {
    let _timer = clock::start("adamw");
    let moments = m.par_chunks_mut(ELEMENTS).zip(v.par_chunks_mut(ELEMENTS));
    let values = p.par_chunks_mut(ELEMENTS).zip(g.par_chunks(ELEMENTS));
    values.zip(moments).for_each(|((p, g), (m, v))| adamw_chunk(p, g, m, v, step));
}
