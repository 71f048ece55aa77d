//! Low-rank maps, base + tanh(x·W₁)·W₂, as two operators: into the low rank and out of it.
//!
//! Their matrices are [in, out], as in RWKV-LM, the other way round than those of a projection. The
//! map is cut in two because Finch uses one set of features for several maps out of the low rank.
//!
//! ```text
//! a = tanh(x·W₁)      dz = da∘(1 − a²),  dx = dz·W₁ᵀ,  dW₁ = xᵀ·dz
//! y = base + a·W₂     da = dy·W₂ᵀ,  dW₂ = aᵀ·dy,  dbase = dy, or its sum over rows
//! ```

#[cfg(feature = "cube")]
mod cube;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::Tensor;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
#[cfg(feature = "cube")]
use super::cube::{GpuBackend, OnGpu};
use super::gemm::{MatMut, Threads, Write, product};
use super::lanes::{fma, tanh};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::project::{matmul, matrix, multiply};
use super::rows::{self, elementwise};

/// y = tanh(x·W), the map into a low rank. // x [N, I], w [I, O], y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct TanhProject;

impl Operator<2> for TanhProject {
    fn plain<B: FusedOps>(&self, [x, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive(matmul::<B, 2>(tensor(x), tensor(w)).tanh())
    }

    /// x, w, y; the derivative of tanh is 1 − y², so the sum before it is not kept.
    type Saved = [FlexTensor; 3];

    fn forward(&self, [x, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let timer = clock::start("low rank");
        let mut y = multiply(matrix(&x), matrix(&w));
        drop(timer);
        let _timer = clock::start("gate");
        tanh_all(floats_mut(&mut y));
        (y.clone(), [x, w, y])
    }

    fn backward(&self, [x, w, y]: Self::Saved, mut d: FlexTensor) -> [FlexTensor; 2] {
        let timer = clock::start("gate back");
        tanh_grad(floats(&y), floats_mut(&mut d));
        drop(timer);
        multiply_grad(&x, &w, &d)
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 2]) -> Option<OnGpu<B, 2>> {
        Some(cube::tanh_project::<B>(inputs))
    }
}

/// y = base + a·W, the map out of a low rank; a base of one row is added to every row.
/// // `a [N, I], w [I, O], base [O] or [N, O], y [N, O]`
#[derive(Clone, Copy, Debug)]
pub struct Expand;

impl Operator<3> for Expand {
    fn plain<B: FusedOps>(&self, [a, w, base]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let base: Tensor<B, 2> = match base.shape().num_dims() {
            1 => tensor::<B, 1>(base).unsqueeze(),
            _ => tensor(base),
        };
        primitive(matmul(tensor(a), tensor(w)) + base)
    }

    /// a, w, and the number of dimensions of the base, which says how its gradient is summed.
    type Saved = ([FlexTensor; 2], usize);

    fn forward(&self, [a, w, base]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let rank = base.shape().num_dims();
        let y = make([a.shape()[0], w.shape()[1]], |y| {
            match rank {
                1 => rows::repeat(y, floats(&base)),
                _ => rows::copy(y, floats(&base)),
            }
            let _timer = clock::start("low rank");
            let (rows, outputs) = (a.shape()[0], w.shape()[1]);
            let y = MatMut::new(y, rows, outputs);
            product(y, Write::Add, matrix(&a), matrix(&w), Threads::Pool);
        });
        (y, ([a, w], rank))
    }

    fn backward(&self, ([a, w], rank): Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let [da, dw] = multiply_grad(&a, &w, &dy);
        let dbase = match rank {
            1 => make([w.shape()[1]], |d| rows::sum_rows(floats(&dy), d)),
            _ => dy,
        };
        [da, dw, dbase]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, inputs: [FloatTensor<B>; 3]) -> Option<OnGpu<B, 3>> {
        Some(cube::expand::<B>(inputs))
    }
}

/// Gradients of x and W in y = x·W: dy·Wᵀ and xᵀ·dy. // x [N, I], w [I, O], dy [N, O]
fn multiply_grad(x: &FlexTensor, w: &FlexTensor, dy: &FlexTensor) -> [FlexTensor; 2] {
    let _timer = clock::start("low rank back");
    [multiply(matrix(dy), matrix(w).t()), multiply(matrix(x).t(), matrix(dy))]
}

elementwise! {
    /// y becomes tanh(y), in place.
    fn tanh_all<S>(; y) |i| {
        y[i] = tanh::<S>(y[i]);
    }

    /// d becomes d∘(1 − y²), the gradient of the sum before the tanh.
    fn tanh_grad<S>(y; d) |i| {
        d[i] *= fma::<S>(-y[i], y[i], 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn low_rank_maps_are_the_plain_form() {
        for (rows, width, rank) in [(1, 1, 1), (5, 7, 3), (130, 64, 32)] {
            let x = input(&[rows, width], 1.0, 1);
            assert_plain(TanhProject, [x, input(&[width, rank], 1.0, 2)]);
            let [a, w] = [input(&[rows, rank], 1.0, 1), input(&[rank, width], 1.0, 3)];
            for base in [vec![width], vec![rows, width]] {
                assert_plain(Expand, [a.clone(), w.clone(), input(&base, 1.0, 4)]);
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let [x, w] = [input(&[14, 12], 1.0, 1), input(&[12, 4], 0.3, 2)];
        assert_slopes(TanhProject, [x, w]);
        let [a, w] = [input(&[14, 4], 1.0, 1), input(&[4, 12], 1.0, 3)];
        assert_slopes(Expand, [a, w, input(&[14, 12], 1.0, 4)]);
    }
}
