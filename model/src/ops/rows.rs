//! The row kernels: loops over `f32` slices, one row of a matrix after the other.
//!
//! Every kernel is a plain loop, compiled once per instruction set and chosen at run time by `pulp` ([`simd!`]). Three
//! habits make the compiler vectorise it: rows come from `chunks_exact`, so that no bounds check is left; a reduction
//! runs in [`LANES`] independent sums, since float addition may not be reordered behind our back; `exp` is a polynomial
//! ([`exp`], the Cephes one, 1e-7 relative), since a call into the C library stops everything.
//!
//! Work is cut into fixed chunks of [`ROWS`] rows, and partial sums are added in the order of the chunks: results do
//! not depend on the number of threads.

use pulp::Simd;
use rayon::prelude::*;

/// Rows per task.
const ROWS: usize = 64;

/// Elements per task of an elementwise pass.
const ELEMENTS: usize = 1 << 15;

/// Independent partial sums of a reduction: four AVX-512 registers, which hides the latency of an addition.
const LANES: usize = 64;

/// Turns functions into ones that dispatch at run time. The body sees the instruction set as the type `S`.
///
/// `pulp` inlines a struct's `with_simd` into a function compiled for the instruction set; a closure or a function
/// value is not inlined, and every `mul_add` in it would become a call into the C library.
macro_rules! simd {
    ($($(#[$doc:meta])* fn $name:ident<$S:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$doc])*
        pub(super) fn $name($($arg: $ty),*) $(-> $ret)? {
            struct Kernel<T>(T);
            impl pulp::WithSimd for Kernel<($($ty,)*)> {
                type Output = simd!(@output $($ret)?);
                #[inline(always)]
                fn with_simd<$S: Simd>(self, _: $S) -> Self::Output {
                    let Self(($($arg,)*)) = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Kernel(($($arg,)*)))
        }
    )*};
    (@output) => { () };
    (@output $ret:ty) => { $ret };
}

/// `a·b + c`, fused where the processor can.
#[inline(always)]
fn fma<S: Simd>(a: f32, b: f32, c: f32) -> f32 {
    if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
}

/// `eˣ` within 1e-7 relative; saturates beyond ±88. Cephes `expf`: x = n·ln 2 + r, then a polynomial in r.
#[inline(always)]
fn exp<S: Simd>(x: f32) -> f32 {
    /// Adding and subtracting 1.5·2²³ rounds to the nearest integer and leaves it in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.3);
    let shifted = fma::<S>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, so that n times the first is exact.
    let r = fma::<S>(n, -0.693_359_4, x);
    let r = fma::<S>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = fma::<S>(p, r, coefficient);
    }
    let e = fma::<S>(p, r * r, r) + 1.0;
    // 2ⁿ by its exponent bits.
    e * f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000))
}

#[inline(always)]
fn silu_parts<S: Simd>(x: f32) -> (f32, f32) {
    let s = 1.0 / (1.0 + exp::<S>(-x));
    (s, x * s)
}

/// The sum of the lanes, as a tree.
#[inline(always)]
fn fold(lanes: [f32; LANES]) -> f32 {
    let mut sums = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

/// Σ aᵢ·bᵢ.
#[inline(always)]
fn dot_lanes<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane = fma::<S>(a, b, *lane);
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = fma::<S>(a, b, *lane);
    }
    fold(lanes)
}

/// The largest element; −∞ of nothing.
#[inline(always)]
fn max_lanes(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for x in chunks {
        for (lane, &x) in lanes.iter_mut().zip(x) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    rest.iter().copied().fold(max, f32::max)
}

/// Replaces x by exp(scale·x − shift) and returns the sum.
#[inline(always)]
fn exp_lanes<S: Simd>(x: &mut [f32], scale: f32, shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for x in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *x = exp::<S>(fma::<S>(*x, scale, -shift));
            *lane += *x;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(chunks.into_remainder()) {
        *x = exp::<S>(fma::<S>(*x, scale, -shift));
        *lane += *x;
    }
    fold(lanes)
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
            for (((dx, &dy), &x), (&w, dw)) in dx.iter_mut().zip(dy).zip(x).zip(w.iter().zip(&mut *dw)) {
                *dx = dy * w;
                *dw = fma::<S>(dy, x * r, *dw);
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
            let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
            for head in x[..rotated].chunks_exact_mut(2 * half) {
                let (a, b) = head.split_at_mut(half);
                for (((a, b), &c), &s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                    let (u, v, s) = (*a, *b, s * sign);
                    *a = u * c - v * s;
                    *b = v * c + u * s;
                }
            }
        }
    }

    fn swiglu_rows<S>(gate_up: &[f32], width: usize, y: &mut [f32]) {
        for (x, y) in gate_up.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (gate, up) = x.split_at(width);
            for ((y, &g), &u) in y.iter_mut().zip(gate).zip(up) {
                *y = silu_parts::<S>(g).1 * u;
            }
        }
    }

    /// silu'(g) = s + g·s·(1 − s), s = 1/(1 + e⁻ᵍ).
    fn swiglu_grad_rows<S>(gate_up: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
        let rows = gate_up.chunks_exact(2 * width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
            let ((gate, up), (dgate, dup)) = (x.split_at(width), dx.split_at_mut(width));
            let outputs = dgate.iter_mut().zip(dup);
            for (((dg, du), (&g, &u)), &dy) in outputs.zip(gate.iter().zip(up)).zip(dy) {
                let (s, a) = silu_parts::<S>(g);
                *du = dy * a;
                *dg = dy * u * fma::<S>(a, 1.0 - s, s);
            }
        }
    }

    /// One row of logits becomes `scale` × d(−log softmax(x)[target])/dx. Returns (max, Σ exp(x − max)).
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

    fn dot<S>(a: &[f32], b: &[f32]) -> f32 {
        dot_lanes::<S>(a, b)
    }

    /// x becomes exp(scale·x − max(scale·x)); returns (that maximum, the sum).
    fn softmax_row<S>(x: &mut [f32], scale: f32) -> (f32, f32) {
        let max = max_lanes(x) * scale;
        (max, exp_lanes::<S>(x, scale, max))
    }

    /// Softmax and its gradient for one row: s becomes P = exp(scale·s − lse), dp becomes dS = scale·P∘(dP − D).
    fn softmax_grad_row<S>(s: &mut [f32], dp: &mut [f32], scale: f32, lse: f32, d: f32) {
        for (s, dp) in s.iter_mut().zip(dp) {
            let p = exp::<S>(fma::<S>(*s, scale, -lse));
            *s = p;
            *dp = p * (*dp - d) * scale;
        }
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

/// y = x∘w/√(mean(x²) + eps), and 1/√… of each row. // x, y [N, D]; w [D]; rstd [N]
pub(super) fn rms_norm(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let chunk = ROWS * w.len();
    let outputs = y.par_chunks_mut(chunk).zip(rstd.par_chunks_mut(ROWS));
    x.par_chunks(chunk).zip(outputs).for_each(|(x, (y, rstd))| rms_norm_rows(x, w, eps, y, rstd));
}

/// Gradients of [`rms_norm`]. // dy, x, dx [N, D]; w, dw [D]; rstd [N]
pub(super) fn rms_norm_grad(
    dy: &[f32],
    x: &[f32],
    w: &[f32],
    rstd: &[f32],
    dx: &mut [f32],
    dw: &mut [f32],
) {
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
    let (row, rotated) = (heads.row(), (heads.query + heads.kv) * heads.size);
    let used = heads.tokens * table.half;
    let (cos, sin) = (&table.cos[..used], &table.sin[..used]);
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
    let inputs = gate_up.par_chunks(ROWS * 2 * width);
    inputs
        .zip(y.par_chunks_mut(ROWS * width))
        .for_each(|(gate_up, y)| swiglu_rows(gate_up, width, y));
}

/// Gradient of [`swiglu`]. // dx [N, 2F], dy [N, F]
pub(super) fn swiglu_grad(gate_up: &[f32], dy: &[f32], width: usize, dx: &mut [f32]) {
    let inputs = gate_up.par_chunks(ROWS * 2 * width).zip(dy.par_chunks(ROWS * width));
    inputs
        .zip(dx.par_chunks_mut(ROWS * 2 * width))
        .for_each(|((gate_up, dy), dx)| swiglu_grad_rows(gate_up, dy, width, dx));
}

/// Mean cross entropy plus the z-loss; the logits become their gradient. // logits [N, V], targets [N]
pub(super) fn cross_entropy(
    logits: &mut [f32],
    vocabulary: usize,
    targets: &[i32],
    z_loss: super::ZLoss,
) -> f32 {
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

/// The loss of one position; its logits become their gradient, divided by the number of positions (`scale`).
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
    y.par_chunks_mut(ELEMENTS).zip(x.par_chunks(ELEMENTS)).for_each(|(y, x)| y.copy_from_slice(x));
}

/// Σ x², the same for every number of threads.
pub(super) fn square_sum(x: &[f32]) -> f32 {
    let partial: Vec<f64> = x.par_chunks(ELEMENTS).map(|x| f64::from(dot(x, x))).collect();
    partial.into_iter().sum::<f64>() as f32
}

/// One AdamW update in one pass over parameter, gradient and both moments.
pub(super) fn adamw(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: super::AdamW) {
    let moments = m.par_chunks_mut(ELEMENTS).zip(v.par_chunks_mut(ELEMENTS));
    let values = p.par_chunks_mut(ELEMENTS).zip(g.par_chunks(ELEMENTS));
    values.zip(moments).for_each(|((p, g), (m, v))| adamw_chunk(p, g, m, v, step));
}
