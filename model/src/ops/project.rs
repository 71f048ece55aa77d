//! Projections: y = x·Wᵀ, alone or added to what is there.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_flex::FlexTensor;

use super::buf::{floats, make};
use super::gemm::{Mat, MatMut, Threads, Write, product, product_of_row};
use super::operator::{Operator, primitive, tensor};
use super::{clock, rows};

/// y = x·Wᵀ. // x [N, I], w [O, I], y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct Project;

impl Operator<2> for Project {
    fn plain<B: Backend>(&self, [x, w]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(x).matmul(tensor::<B, 2>(w).transpose()))
    }

    /// x, w
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, w]: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let y = make([x.shape()[0], w.shape()[0]], |y| project(y, Write::Replace, &x, &w));
        (y, [x, w])
    }

    fn backward(&self, [x, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let timer = clock::start("product dx");
        let dx = multiply(matrix(&dy), matrix(&w));
        drop(timer);
        let _timer = clock::start("product dw");
        [dx, multiply(matrix(&dy).t(), matrix(&x))]
    }
}

/// y = r + x·Wᵀ. // x [N, I], w [O, I], r, y [N, O]
#[derive(Clone, Copy, Debug)]
pub struct ProjectAdd;

impl Operator<3> for ProjectAdd {
    fn plain<B: Backend>(&self, [x, w, r]: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(tensor::<B, 2>(r) + tensor(Project.plain::<B>([x, w])))
    }

    /// x, w
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

/// y = x·Wᵀ or y += x·Wᵀ. // x [N, I], w [O, I], y [N, O]
fn project(y: &mut [f32], write: Write, x: &FlexTensor, w: &FlexTensor) {
    let _timer = clock::start("product");
    if x.shape()[0] == 1 {
        return product_of_row(y, write, floats(x), floats(w));
    }
    let (rows, outputs) = (x.shape()[0], w.shape()[0]);
    product(MatMut::new(y, rows, outputs), write, matrix(x), matrix(w).t(), Threads::Pool);
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
