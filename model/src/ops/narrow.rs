//! Numbers in 16 bits, for what is kept of a long text: bf16, the upper half of an f32.
//!
//! Only the memory is halved. Every operator computes in f32, and
//! [`AttendBlock`](super::AttendBlock) reads both formats. bf16 has the exponents of f32 and 8 bits
//! of precision.
//!
//! Narrowing loses digits, has no gradient, and is never a part of training. A text that was read
//! with narrowed keys gives other scores than one that was read without. So measurements use f32
//! (`Keep::EXACT`), and generation may use either.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Bytes, DType, FloatDType, TensorMetadata, bf16};
use burn_flex::{FlexTensor, Layout};
use rayon::prelude::*;

use super::buf::{floats, make};
use super::operator::{FusedOps, Untracked};

/// Rounds to bf16: to nearest, ties to even. A device without bf16 keeps f32.
#[derive(Clone, Copy, Debug)]
pub struct Narrow;

impl Untracked<1, 1> for Narrow {
    /// Casts on the device, or returns x where the device has no bf16.
    fn plain<B: FusedOps>(&self, [x]: [FloatTensor<B>; 1]) -> [FloatTensor<B>; 1] {
        if B::supports_dtype(&B::float_device(&x), DType::BF16) {
            return [B::float_cast(x, FloatDType::BF16)];
        }
        [x]
    }

    fn forward(&self, [x]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let numbers = floats(&x);
        let mut halves = vec![bf16::ZERO; numbers.len()];
        let chunks = halves.par_chunks_mut(CHUNK).zip(numbers.par_chunks(CHUNK));
        chunks.for_each(|(halves, numbers)| {
            for (half, number) in halves.iter_mut().zip(numbers) {
                *half = bf16::from_f32(*number);
            }
        });
        let layout = Layout::contiguous(x.shape());
        [FlexTensor::new(Bytes::from_elems(halves), layout, DType::BF16)]
    }
}

/// The same numbers in f32, which is exact. A tensor that is f32 already is returned as it is.
#[derive(Clone, Copy, Debug)]
pub struct Widen;

impl Untracked<1, 1> for Widen {
    fn plain<B: FusedOps>(&self, [x]: [FloatTensor<B>; 1]) -> [FloatTensor<B>; 1] {
        if x.dtype() == DType::F32 {
            return [x];
        }
        [B::float_cast(x, FloatDType::F32)]
    }

    fn forward(&self, [x]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        let Some(halves) = x.as_slice::<bf16>() else { return [x] };
        let wide = make(x.shape(), |numbers| {
            let chunks = numbers.par_chunks_mut(CHUNK).zip(halves.par_chunks(CHUNK));
            chunks.for_each(|(numbers, halves)| widen(halves, numbers));
        });
        [wide]
    }
}

/// Converts as many numbers as both slices have.
#[inline]
pub(super) fn widen(halves: &[bf16], numbers: &mut [f32]) {
    for (number, half) in numbers.iter_mut().zip(halves) {
        *number = f32::from_bits(u32::from(half.to_bits()) << 16);
    }
}

/// Numbers that one task converts: 64 KiB in f32.
const CHUNK: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;
    use burn_backend::ops::FloatTensorOps;
    use burn_flex::Flex;

    use super::super::buf::contiguous;
    use super::super::tests::random;
    use super::*;

    /// In one chunk and in several. The plain form may take the other neighbour of a number that lies
    /// in the middle but for its last bits: burn-flex converts by way of an f64, of which `half`
    /// rounds the upper 32 bits alone.
    #[test]
    fn sixteen_bits_keep_eight_of_precision_and_come_back_unchanged() {
        for count in [1, 100, CHUNK + 7] {
            let numbers = random(count, 3.0, 1);
            let data = TensorData::new(numbers.clone(), [count]);
            let x = Flex::float_from_data(data, &Default::default());
            let [narrow] = Flex::untracked(Narrow, [x.clone()]);
            assert_eq!(narrow.dtype(), DType::BF16);
            let [wide] = Flex::untracked(Widen, [narrow.clone()]);
            let [plain] = Narrow.plain::<Flex>([x]);
            let [plain] = Widen.plain::<Flex>([plain]);
            let [wide, plain] = [wide, plain].map(contiguous);
            for (tensor, part) in [(&wide, 256.0), (&plain, 255.9)] {
                for (number, rounded) in numbers.iter().zip(floats(tensor)) {
                    assert!((number - rounded).abs() <= number.abs() / part, "{number} {rounded}");
                }
            }
            let [again] = Flex::untracked(Narrow, [wide.clone()]);
            let [again] = Flex::untracked(Widen, [again]);
            assert_eq!(floats(&again), floats(&wide));
        }
    }
}
