//! The operators on a GPU, forward and backward, compared with their results on the CPU.

use std::fmt::Debug;

use burn_autodiff::Autodiff;
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;
use burn_flex::Flex;
use intellect_model::ops::{
    DataMix, DecayedKeys, Expand, FusedOps, GatedAdd, LayerNorm, MultiOutput, NormGate, Operator,
    ReluSquare, RmsNorm, ShiftMix, SwiGlu, TanhProject, Weighs,
};

use crate::kernels::{distance, forth_and_back, random};

type Cpu = Autodiff<Flex>;

/// The largest allowed difference, relative to the largest value: sums of a few hundred numbers are
/// taken in another order.
const BOUND: f64 = 1e-5;

/// Computes the output of an operator on a backend.
type Run<'a, B> = &'a dyn Fn(Vec<FloatTensor<B>>) -> FloatTensor<B>;

/// Compares both backends for random inputs of these shapes and an output of `outputs` numbers.
fn assert_same<A: AutodiffBackend + FusedOps>(
    name: &dyn Debug,
    shapes: &[Vec<usize>],
    outputs: usize,
    cpu: Run<'_, Cpu>,
    gpu: Run<'_, A>,
) {
    // Small enough that no tanh is saturated.
    let values = |(at, shape): (usize, &Vec<usize>)| {
        random(shape.iter().product(), if at == 0 { 2.0 } else { 0.5 }, 1 + at as u64)
    };
    let values: Vec<_> = shapes.iter().enumerate().map(values).collect();
    let inputs: Vec<_> = values.iter().map(Vec::as_slice).zip(shapes.iter().cloned()).collect();
    let dy = random(outputs, 1.0, 99);
    let (expected, found) =
        (forth_and_back::<Cpu>(&inputs, &dy, cpu), forth_and_back::<A>(&inputs, &dy, gpu));
    for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let expected: Vec<_> = expected.iter().copied().map(f64::from).collect();
        let off = distance(found, &expected);
        let what = if at == 0 { "the output".into() } else { format!("gradient {}", at - 1) };
        assert!(off < BOUND, "{name:?} of {shapes:?}: {what} is off by {off:.1e}");
    }
    assert_eq!(found, forth_and_back::<A>(&inputs, &dy, gpu), "{name:?}: a second run differs");
}

fn assert_operator<A: AutodiffBackend + FusedOps, O: Operator<N>, const N: usize>(
    op: O,
    shapes: [&[usize]; N],
    outputs: usize,
) {
    fn run<B: FusedOps, O: Operator<N>, const N: usize>(
        op: &O,
        inputs: Vec<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        B::run(op.clone(), inputs.try_into().unwrap())
    }
    let (cpu, gpu) = (|inputs| run::<Cpu, O, N>(&op, inputs), |inputs| run::<A, O, N>(&op, inputs));
    assert_same::<A>(&op, &shapes.map(<[usize]>::to_vec), outputs, &cpu, &gpu);
}

/// Compares the sum of all outputs, each weighted by its number, and the last output alone.
fn assert_multi_output<A, O, const N: usize, const M: usize>(
    op: O,
    shapes: [&[usize]; N],
    outputs: usize,
) where
    A: AutodiffBackend + FusedOps,
    O: MultiOutput<N, M>,
{
    fn run<B: FusedOps, O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: &O,
        first: usize,
        inputs: Vec<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        let ys: [_; M] = B::run_multi(op.clone(), inputs.try_into().unwrap());
        let weighed = ys.into_iter().enumerate().skip(first);
        let weighed = weighed.map(|(at, y)| B::float_mul_scalar(y, (at as f32 + 1.0).into()));
        weighed.reduce(B::float_add).unwrap()
    }
    for first in [0, M - 1] {
        let cpu = |inputs| run::<Cpu, O, N, M>(&op, first, inputs);
        let gpu = |inputs| run::<A, O, N, M>(&op, first, inputs);
        assert_same::<A>(&(&op, first), &shapes.map(<[usize]>::to_vec), outputs, &cpu, &gpu);
    }
}

/// One token, sizes that are not multiples of a block, and more channels than a cube has units.
pub(crate) fn assert_operators_are_those_of_the_cpu<A: AutodiffBackend + FusedOps>() {
    for [sequences, tokens, heads, size] in
        [[1, 1, 1, 8], [2, 5, 1, 7], [3, 70, 4, 16], [1, 300, 2, 65], [2, 9, 1, 600]]
    {
        let (rows, width) = (sequences * tokens, heads * size);
        let (matrix, count) = (&[rows, width][..], rows * width);
        assert_operator::<A, _, 2>(RmsNorm { eps: 1e-5 }, [matrix, &[width]], count);
        assert_operator::<A, _, 3>(LayerNorm { eps: 1e-5 }, [matrix, &[width], &[width]], count);
        let gate = NormGate { heads, eps: 64e-5 };
        assert_operator::<A, _, 4>(gate, [matrix, matrix, &[width], &[width]], count);
        for weighs in [Weighs::Present, Weighs::Past] {
            let shapes = [matrix, &[width], &[sequences, width]];
            assert_operator::<A, _, 3>(ShiftMix { weighs }, shapes, count);
        }
        for (first, rank) in [(0, 32), (1, 3)] {
            let (features, maps) = ([rows, 5 * rank], [5 * rank, width]);
            let before = [sequences, width];
            let op = DataMix { first, rank };
            if first == 0 {
                let shapes = [matrix, &features, &maps, &[5, width], &before];
                assert_multi_output::<A, _, 5, 5>(op, shapes, count);
            } else {
                let shapes = [matrix, &features, &maps, &[2, width], &before];
                assert_multi_output::<A, _, 5, 2>(op, shapes, count);
            }
        }
        assert_operator::<A, _, 2>(TanhProject, [matrix, &[width, 12]], rows * 12);
        for base in [&[width][..], matrix] {
            assert_operator::<A, _, 3>(Expand, [&[rows, 12], &[12, width], base], count);
        }
        assert_operator::<A, _, 1>(ReluSquare, [matrix], count);
        assert_operator::<A, _, 3>(GatedAdd, [matrix; 3], count);
        assert_operator::<A, _, 2>(DecayedKeys, [matrix; 2], count);
        assert_operator::<A, _, 1>(SwiGlu, [&[rows, 2 * width]], count);
    }
}
