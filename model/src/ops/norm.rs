//! Norms: by the root mean square (Zhang & Sennrich 2019, arXiv 1910.07467), and by mean and
//! variance with a bias (Ba et al. 2016, arXiv 1607.06450), the latter also by head and with a
//! gate.
//!
//! ```text
//! rms    y = x·r∘w, r = 1/√(mean(x²) + eps)      dx = r·(w∘dy) − x·r³·⟨w∘dy, x⟩/D,  dw = Σ dy∘x·r
//! layer  y = x̂∘w + b, x̂ = (x − mean x)/σ, σ = √(var x + eps)
//!        dx = (dx̂ − mean dx̂ − x̂·mean(dx̂∘x̂))/σ with dx̂ = w∘dy,  dw = Σ dy∘x̂,  db = Σ dy
//! ```
//!
//! A task norms 64 rows. The sums for dw and db of each task are a vector of its own, and these are
//! added in the order of the rows. So the bits depend on the length of a task and not on the number
//! of threads.

#[cfg(feature = "cube")]
mod cube;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;
use burn_tensor::Tensor;
use burn_tensor::activation::silu;
use pulp::Simd;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::lanes::{dot_lanes, each, fma, sigmoid, simd, sum_lanes};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::reduce;
use super::rows::{ROWS, add_up};

/// y = x / √(mean(x²) + eps) ∘ w. // `x, y [N, D]; w [D]`
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    /// Added to the mean square, so that a zero row stays zero.
    pub eps: f32,
}

impl Operator<2> for RmsNorm {
    fn plain<B: FusedOps>(&self, [x, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        let (x, w) = (tensor::<B, 2>(x), tensor::<B, 1>(w));
        let mean = reduce::mean_dim(x.clone() * x.clone(), 1); // [N, 1]
        primitive(x / (mean + self.eps).sqrt() * w.unsqueeze())
    }

    /// x, w, and r of each row: N numbers, so that no mean square is computed again.
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("norm");
        let chunk = ROWS * w.shape()[0];
        let mut r = make([x.shape()[0]], |_| ());
        let y = make(x.shape(), |y| {
            let r = floats_mut(&mut r).par_chunks_mut(ROWS);
            let tasks = (floats(&x).par_chunks(chunk), y.par_chunks_mut(chunk), r).into_par_iter();
            tasks.for_each(|(x, y, r)| rms_norm_rows(x, floats(&w), self.eps, y, r));
        });
        (y, [x, w, r])
    }

    /// Sums for dw are made by chunk of rows, and added in the order of the chunks.
    fn backward(&self, [x, w, r]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let _timer = clock::start("norm back");
        let width = w.shape()[0];
        let chunk = ROWS * width;
        let mut dw = make(w.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let (r, dx) = (floats(&r).par_chunks(ROWS), dx.par_chunks_mut(chunk));
            let tasks = (floats(&dy).par_chunks(chunk), floats(&x).par_chunks(chunk), r, dx);
            let partial = tasks.into_par_iter().map(|(dy, x, r, dx)| {
                let mut dw = vec![0.0; width];
                rms_norm_grad_rows(dy, x, floats(&w), r, dx, &mut dw);
                dw
            });
            add_up(&partial.collect::<Vec<_>>(), floats_mut(&mut dw));
        });
        [dx, dw]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, [x, w]: [FloatTensor<B>; 2]) -> Option<OnGpu<B, 2>> {
        let norm = cube::NormKernel { group: w.shape()[0], centred: false, gated: false };
        let (y, back) = cube::norm::<B>(norm, self.eps, [x.clone(), x, w.clone(), w]);
        let back = move |dy| {
            let [dx, _, dw, _] = back(dy);
            [dx, dw]
        };
        Some((y, Box::new(back)))
    }
}

/// y = (x − mean x)/√(var x + eps) ∘ w + b, over each row. // `x, y [N, D]; w, b [D]`
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Added to the variance, so that a constant row gives b and not a division by zero.
    pub eps: f32,
}

impl Operator<3> for LayerNorm {
    fn plain<B: FusedOps>(&self, [x, w, b]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let (w, b) = (tensor::<B, 1>(w), tensor::<B, 1>(b));
        let normed = normalize(tensor::<B, 2>(x), self.eps);
        primitive(normed * w.unsqueeze() + b.unsqueeze())
    }

    /// x, w, b; mean and deviation are computed again, which costs one pass over a row in the
    /// cache.
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, w, b]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("norm");
        let norm = Norm::new(&w, &b, 1, self.eps);
        let y = make(x.shape(), |y| {
            let tasks = floats(&x).par_chunks(norm.chunk()).zip(y.par_chunks_mut(norm.chunk()));
            tasks.for_each(|(x, y)| norm_rows(x, norm, y));
        });
        (y, [x, w, b])
    }

    fn backward(&self, [x, w, b]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let _timer = clock::start("norm back");
        let norm = Norm::new(&w, &b, 1, self.eps);
        let chunk = norm.chunk();
        let mut sums = vec![0.0; 2 * norm.w.len()];
        let dx = make(x.shape(), |dx| {
            let dx = dx.par_chunks_mut(chunk);
            let tasks = (floats(&dy).par_chunks(chunk), floats(&x).par_chunks(chunk), dx);
            let partial = tasks.into_par_iter().map(|(dy, x, dx)| {
                let mut sums = vec![0.0; 2 * norm.w.len()];
                norm_grad_rows(dy, x, norm, dx, &mut sums);
                sums
            });
            add_up(&partial.collect::<Vec<_>>(), &mut sums);
        });
        let [dw, db] = halves(&sums);
        [dx, dw, db]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, [x, w, b]: [FloatTensor<B>; 3]) -> Option<OnGpu<B, 3>> {
        let norm = cube::NormKernel { group: w.shape()[0], centred: true, gated: false };
        let (y, back) = cube::norm::<B>(norm, self.eps, [x.clone(), x, w, b]);
        let back = move |dy| {
            let [dx, _, dw, db] = back(dy);
            [dx, dw, db]
        };
        Some((y, Box::new(back)))
    }
}

/// y = norm(x)∘silu(g), with the norm over each of `heads` groups of channels, and one affine map
/// for all channels. // `x, g, y [N, D]; w, b [D]`
#[derive(Clone, Copy, Debug)]
pub struct NormGate {
    /// H, the number of groups of channels.
    pub heads: usize,
    /// Added to the variance, so that a constant group gives b∘silu(g).
    pub eps: f32,
}

impl Operator<4> for NormGate {
    fn plain<B: FusedOps>(&self, [x, g, w, b]: [FloatTensor<B>; 4]) -> FloatTensor<B> {
        let x = tensor::<B, 2>(x);
        let [rows, width] = x.dims();
        let (w, b) = (tensor::<B, 1>(w), tensor::<B, 1>(b));
        let x = x.reshape([rows, self.heads, width / self.heads]);
        let normed = normalize(x, self.eps).reshape([rows, width]);
        primitive((normed * w.unsqueeze() + b.unsqueeze()) * silu(tensor::<B, 2>(g)))
    }

    /// x, g, w, b; the normed values are computed again.
    type Saved = [FlexTensor; 4];

    fn forward(&self, [x, g, w, b]: [FlexTensor; 4]) -> (FlexTensor, Self::Saved) {
        let _timer = clock::start("norm");
        let norm = Norm::new(&w, &b, self.heads, self.eps);
        let chunk = norm.chunk();
        let y = make(x.shape(), |y| {
            let y = y.par_chunks_mut(chunk);
            let tasks = (floats(&x).par_chunks(chunk), floats(&g).par_chunks(chunk), y);
            tasks.into_par_iter().for_each(|(x, g, y)| {
                norm_rows(x, norm, y);
                silu_rows(g, y);
            });
        });
        (y, [x, g, w, b])
    }

    fn backward(&self, [x, g, w, b]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 4] {
        let _timer = clock::start("norm back");
        let norm = Norm::new(&w, &b, self.heads, self.eps);
        let chunk = norm.chunk();
        let mut sums = vec![0.0; 2 * norm.w.len()];
        let mut dg = make(g.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let [dy, x, g] = [&dy, &x, &g].map(|input| floats(input).par_chunks(chunk));
            let dg = floats_mut(&mut dg).par_chunks_mut(chunk);
            let tasks = (dy, x, g, dx.par_chunks_mut(chunk), dg).into_par_iter();
            let partial = tasks.map(|(dy, x, g, dx, dg)| {
                let mut normed = vec![0.0; x.len()];
                // The gate stands behind the norm: its backward pass turns `normed` into the
                // gradient of the norm's output.
                norm_rows(x, norm, &mut normed);
                silu_grad_rows(g, dy, &mut normed, dg);
                let mut sums = vec![0.0; 2 * norm.w.len()];
                norm_grad_rows(&normed, x, norm, dx, &mut sums);
                sums
            });
            add_up(&partial.collect::<Vec<_>>(), &mut sums);
        });
        let [dw, db] = halves(&sums);
        [dx, dg, dw, db]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 4]) -> Option<OnGpu<B, 4>> {
        let group = inputs[2].shape()[0] / self.heads;
        let norm = cube::NormKernel { group, centred: true, gated: true };
        Some(cube::norm::<B>(norm, self.eps, inputs))
    }
}

/// x̂ over the last dimension, by the variance that divides by the number of elements.
fn normalize<B: Backend, const D: usize>(x: Tensor<B, D>, eps: f32) -> Tensor<B, D> {
    let x = x.clone() - reduce::mean_dim(x, D - 1);
    let variance = reduce::mean_dim(x.clone() * x.clone(), D - 1);
    x / (variance + eps).sqrt()
}

/// Splits the sums `[2D]` into two tensors `[D]`.
fn halves(sums: &[f32]) -> [FlexTensor; 2] {
    let (dw, db) = sums.split_at(sums.len() / 2);
    [dw, db].map(|half| make([half.len()], |y| y.copy_from_slice(half)))
}

/// An affine map of each row, and the size of the groups over which rows are normed.
#[derive(Clone, Copy)]
struct Norm<'a> {
    /// The factor of each channel. // `[D]`
    w: &'a [f32],
    /// What is added to each channel. // `[D]`
    b: &'a [f32],
    /// Channels that are normed together: D, or D/H by head.
    group: usize,
    /// Added to the variance, so that a constant group is no division by zero.
    eps: f32,
}

impl<'a> Norm<'a> {
    /// w and b for all channels, and groups of D/`heads` of them.
    fn new(w: &'a FlexTensor, b: &'a FlexTensor, heads: usize, eps: f32) -> Self {
        Self { w: floats(w), b: floats(b), group: w.shape()[0] / heads, eps }
    }

    /// Elements that one task processes.
    fn chunk(self) -> usize {
        ROWS * self.w.len()
    }
}

/// Mean and 1/√(var + eps) of one group of channels.
#[derive(Clone, Copy)]
struct Stats {
    /// The mean of the group's channels.
    mean: f32,
    /// 1/√(var + eps), by which differences to the mean are multiplied.
    scale: f32,
}

impl Stats {
    /// Takes the mean first and sums squares of differences: the mean of squares less the square of
    /// the mean would cancel. `centred` is overwritten with x − mean.
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

simd! {
    /// y, and r of each row into `rstd`.
    fn rms_norm_rows<S>(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
        let width = w.len();
        for ((x, y), r) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(rstd) {
            *r = 1.0 / (dot_lanes::<S>(x, x) / width as f32 + eps).sqrt();
            for ((y, &x), &w) in y.iter_mut().zip(x).zip(w) {
                *y = x * *r * w;
            }
        }
    }

    /// Overwrites `dx`, and adds to `dw`.
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

    /// y = x̂∘w + b, group by group.
    fn norm_rows<S>(x: &[f32], norm: Norm<'_>, y: &mut [f32]) {
        let Norm { w, b, group, eps } = norm;
        let width = w.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let groups = x.chunks_exact(group).zip(y.chunks_exact_mut(group));
            for ((x, y), (w, b)) in groups.zip(w.chunks_exact(group).zip(b.chunks_exact(group))) {
                let stats = Stats::of::<S>(x, eps, y);
                each!(<S>(x, w, b; y; stats: Stats) |i| {
                    y[i] = fma::<S>((x[i] - stats.mean) * stats.scale, w[i], b[i]);
                });
            }
        }
    }

    /// dx = (dx̂ − mean dx̂ − x̂·mean(dx̂∘x̂))/σ, group by group. Overwrites `dx`, and adds to
    /// `sums`, which are dw and db.
    fn norm_grad_rows<S>(
        dy: &[f32], x: &[f32], norm: Norm<'_>, dx: &mut [f32], sums: &mut [f32],
    ) {
        let Norm { w, group, eps, .. } = norm;
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
                each!(<S>(dy, x, w; dx, hat, dw; stats: Stats) |i| {
                    hat[i] = (x[i] - stats.mean) * stats.scale;
                    dw[i] = fma::<S>(dy[i], hat[i], dw[i]);
                    dx[i] = dy[i] * w[i];
                });
                each!((dy; db) |i| { db[i] += dy[i] });
                // Here dx holds dx̂ = w∘dy.
                let mean = sum_lanes(dx) / group as f32;
                let slope = dot_lanes::<S>(dx, hat) / group as f32;
                let scale = stats.scale;
                each!((hat; dx; scale: f32, mean: f32, slope: f32) |i| {
                    dx[i] = scale * (dx[i] - mean - hat[i] * slope);
                });
            }
        }
    }

    /// y becomes y∘silu(g), in place.
    fn silu_rows<S>(g: &[f32], y: &mut [f32]) {
        each!(<S>(g; y) |i| { y[i] *= g[i] * sigmoid::<S>(g[i]) });
    }

    /// dg = dy∘n∘silu'(g), and then n becomes dy∘silu(g), the gradient of the norm's output.
    fn silu_grad_rows<S>(g: &[f32], dy: &[f32], n: &mut [f32], dg: &mut [f32]) {
        each!(<S>(g, dy; n, dg) |i| {
            let s = sigmoid::<S>(g[i]);
            let a = g[i] * s;
            dg[i] = dy[i] * n[i] * fma::<S>(a, 1.0 - s, s);
            n[i] = dy[i] * a;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn norms_are_the_plain_form() {
        for (rows, heads, size) in
            [(1, 1, 3), (3, 2, 7), (130, 4, 16), (65, 2, 100), (200, 1, 65), (130, 1, 64)]
        {
            let width = heads * size;
            let [x, g] = [(2.0, 1), (4.0, 2)].map(|(by, seed)| input(&[rows, width], by, seed));
            let [w, b] = [3, 4].map(|seed| input(&[width], 1.0, seed));
            assert_plain(RmsNorm { eps: 1e-5 }, [x.clone(), w.clone()]);
            assert_plain(LayerNorm { eps: 1e-5 }, [x.clone(), w.clone(), b.clone()]);
            assert_plain(NormGate { heads, eps: 64e-5 }, [x, g, w, b]);
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let [x, g] = [1, 2].map(|seed| input(&[14, 12], 1.0, seed));
        let [w, b] = [3, 4].map(|seed| input(&[12], 1.0, seed));
        assert_slopes(RmsNorm { eps: 1e-5 }, [x.clone(), w.clone()]);
        assert_slopes(LayerNorm { eps: 1e-5 }, [x.clone(), w.clone(), b.clone()]);
        assert_slopes(NormGate { heads: 3, eps: 1e-5 }, [x, g, w, b]);
    }
}
