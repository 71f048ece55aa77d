//! Projections: y = x·Wᵀ, alone or added to another tensor.
//!
//! Weights are [out, in], as Hugging Face stores them, so a row of W and a row of x are both
//! contiguous.
//!
//! ```text
//! y = x·Wᵀ,   dx = dy·W,   dW = dyᵀ·x
//! ```
//!
//! Most weights of a model are used by such a product. A prompt and a training step have many rows,
//! and the product is `gemm`'s. A token that is generated has one row, and reading W is the work.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use burn_tensor::Tensor;

use super::buf::{floats, make};
#[cfg(feature = "cube")]
use super::cube::{self, GpuBackend, OnGpu};
use super::gemm::{FEW, Mat, MatMut, Threads, Write, product, product_of_few};
use super::operator::{FusedOps, Operator, primitive, tensor};
use super::{clock, rows};

/// y = a·b by our own strategy for the backend. Plain forms use it instead of burn's choice of a
/// kernel. // a [.., N, I], b [.., I, O], the same leading dimensions; y [.., N, O]
#[derive(Clone, Copy, Debug)]
struct Multiply;

impl Operator<2> for Multiply {
    fn plain<B: FusedOps>(&self, [a, b]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        B::float_matmul(a, b)
    }

    /// The two factors: each gradient is a product with the other.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [a, b]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        (Flex::float_matmul(a.clone(), b.clone()), [a, b])
    }

    fn backward(&self, [a, b]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let last = dy.shape().num_dims() - 1;
        let turned = |x| Flex::float_swap_dims(x, last - 1, last);
        [Flex::float_matmul(dy.clone(), turned(b)), Flex::float_matmul(turned(a), dy)]
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, [a, b]: [FloatTensor<B>; 2]) -> Option<OnGpu<B, 2>> {
        let y = cube::product(a.clone(), b.clone());
        let back = move |dy| {
            let dy = cube::contiguous(dy);
            let da = cube::product(dy.clone(), cube::turned::<B>(b));
            [da, cube::product(cube::turned::<B>(a), dy)]
        };
        Some((y, Box::new(back)))
    }
}

/// a·b in a plain form, see [`Multiply`].
pub(super) fn matmul<B: FusedOps, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
) -> Tensor<B, D> {
    tensor(B::run(Multiply, [primitive(a), primitive(b)]))
}

/// y = x·Wᵀ. // x [N, I], w [O, I], y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct Project;

impl Operator<2> for Project {
    fn plain<B: FusedOps>(&self, [x, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive(matmul(tensor::<B, 2>(x), tensor(w).transpose()))
    }

    #[cfg(feature = "cube")]
    fn on_gpu<B: GpuBackend>(&self, [x, w]: [FloatTensor<B>; 2]) -> Option<OnGpu<B, 2>> {
        let y = cube::product(x.clone(), cube::turned::<B>(w.clone()));
        let back = move |dy| {
            let dy = cube::contiguous(dy);
            [cube::product(dy.clone(), w), cube::product(cube::turned::<B>(dy), x)]
        };
        Some((y, Box::new(back)))
    }

    /// x and w: references, no copies.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let y = make([x.shape()[0], w.shape()[0]], |y| project(y, Write::Replace, &x, &w));
        (y, [x, w])
    }

    /// Two products, which are timed apart: their shapes differ, and so does their speed.
    fn backward(&self, [x, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let timer = clock::start("product dx");
        let dx = multiply(matrix(&dy), matrix(&w));
        drop(timer);
        let _timer = clock::start("product dw");
        [dx, multiply(matrix(&dy).t(), matrix(&x))]
    }
}

/// y = r + x·Wᵀ, where r is the residual stream. One operator saves a tensor for the product alone.
/// // x [N, I], w [O, I], r, y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct ProjectAdd;

impl Operator<3> for ProjectAdd {
    fn plain<B: FusedOps>(&self, [x, w, r]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(r) + tensor(B::run(Project, [x, w])))
    }

    /// x and w; r needs none, since its gradient is dy.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, w, r]: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let y = make(r.shape(), |y| {
            rows::copy(y, floats(&r));
            project(y, Write::Add, &x, &w);
        });
        (y, [x, w])
    }

    fn backward(&self, saved: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let [dx, dw] = Operator::backward(&Project, saved, dy.clone());
        [dx, dw, dy]
    }
}

/// y = x·Wᵀ or y += x·Wᵀ. Up to [`FEW`] rows, as in generation, W is read in place; more rows pay
/// for `gemm`'s packing. // x [N, I], w [O, I], y [N, O]
fn project(y: &mut [f32], write: Write, x: &FlexTensor, w: &FlexTensor) {
    let _timer = clock::start("product");
    let (rows, outputs) = (x.shape()[0], w.shape()[0]);
    let y = MatMut::new(y, rows, outputs);
    if (1..=FEW).contains(&rows) {
        return product_of_few(y, write, floats(x), floats(w));
    }
    product(y, write, matrix(x), matrix(w).t(), Threads::Pool);
}

/// a·b as a new tensor, on all threads.
pub(super) fn multiply(a: Mat<'_>, b: Mat<'_>) -> FlexTensor {
    let ([rows, _], [_, cols]) = (a.shape(), b.shape());
    make([rows, cols], |y| {
        product(MatMut::new(y, rows, cols), Write::Replace, a, b, Threads::Pool);
    })
}

/// A tensor of two dimensions as a matrix.
pub(super) fn matrix(x: &FlexTensor) -> Mat<'_> {
    Mat::new(floats(x), x.shape()[0], x.shape()[1])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, assert_slopes, input};
    use super::*;

    #[test]
    fn projections_are_the_plain_form() {
        for (rows, ins, outs) in [(1, 1, 1), (5, 3, 7), (130, 33, 65), (64, 128, 96)] {
            let x = input(&[rows, ins], 1.0, 1);
            let w = input(&[outs, ins], 1.0, 2);
            assert_plain(Project, [x.clone(), w.clone()]);
            assert_plain(ProjectAdd, [x, w, input(&[rows, outs], 1.0, 3)]);
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let [x, w, r] =
            [(5, 7, 1), (4, 7, 2), (5, 4, 3)].map(|(n, d, seed)| input(&[n, d], 1.0, seed));
        assert_slopes(Project, [x.clone(), w.clone()]);
        assert_slopes(ProjectAdd, [x, w, r]);
    }
}
