//! Packs three matrices into the rows that attention reads.
//!
//! Llama has one projection for queries, keys and values, whose output is packed already. GoldFinch
//! makes the three by separate maps, and packs them, so that both use one attention.
//!
//! The copy passes once over 3·N·D numbers, which is little beside the attention that follows. The
//! gradient is cut into the three parts again; nothing has to be saved for it but the shape.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::FlexTensor;
use burn_tensor::Tensor;
use rayon::prelude::*;

use super::buf::{floats, floats_mut, make};
use super::clock;
use super::operator::{FusedOps, Operator, primitive, tensor};

/// y = [a | b | c], with the columns side by side. // [N, D] each; y [N, 3D]
#[derive(Clone, Copy, Debug)]
pub struct Pack;

impl Operator<3> for Pack {
    fn plain<B: FusedOps>(&self, parts: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        primitive(Tensor::cat(parts.map(tensor::<B, 2>).into(), 1))
    }

    /// Nothing: the gradient is only cut into three.
    type Saved = ();

    fn forward(&self, parts: [FlexTensor; 3]) -> (FlexTensor, ()) {
        let _timer = clock::start("pack");
        let [rows, width] = [parts[0].shape()[0], parts[0].shape()[1]];
        let y = make([rows, 3 * width], |y| {
            let parts = parts.each_ref().map(floats);
            y.par_chunks_mut(3 * width).enumerate().for_each(|(i, row)| {
                for (row, part) in row.chunks_exact_mut(width).zip(parts) {
                    row.copy_from_slice(&part[i * width..][..width]);
                }
            });
        });
        (y, ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 3] {
        let _timer = clock::start("pack");
        let [rows, width] = [dy.shape()[0], dy.shape()[1] / 3];
        let mut parts: [FlexTensor; 3] = std::array::from_fn(|_| make([rows, width], |_| ()));
        let [a, b, c] = parts.each_mut().map(|part| floats_mut(part).par_chunks_mut(width));
        let rows = floats(&dy).par_chunks(3 * width);
        rows.zip(a.zip(b).zip(c)).for_each(|(row, ((a, b), c))| {
            a.copy_from_slice(&row[..width]);
            b.copy_from_slice(&row[width..2 * width]);
            c.copy_from_slice(&row[2 * width..]);
        });
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_plain, input};
    use super::*;

    #[test]
    fn it_is_the_plain_form() {
        for (rows, width) in [(1, 1), (5, 7), (130, 64), (300, 65)] {
            assert_plain(Pack, [1, 2, 3].map(|seed| input(&[rows, width], 3.0, seed)));
        }
    }
}
