//! Tests of operators: hand-written forms are compared with plain forms, values and gradients, with
//! contiguous, expanded and transposed gradients, contiguous and transposed inputs, and odd sizes;
//! and gradients are compared with finite differences.

use std::sync::Arc;

use burn_autodiff::Autodiff;
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_flex::Flex;
use burn_tensor::{Tensor, TensorData, TensorPrimitive};

use super::*;

/// Values and shape of one input.
pub(super) type Input = (Vec<f32>, Vec<usize>);

pub(super) type A = Autodiff<Flex>;
pub(super) type F = FloatTensor<A>;

/// The factors of the operator's output before it is summed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Upstream {
    /// Random numbers in a contiguous tensor.
    Random,
    /// One expanded number, as `sum().backward()` sends it.
    Expanded,
    /// Random numbers in a transposed view.
    Transposed,
}

/// The memory layout in which the operator gets its inputs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    Contiguous,
    Transposed,
}

/// Values within ±`size`, not symmetric about zero, from a simple generator.
pub(super) fn random(count: usize, size: f32, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..count).map(|_| (next() * 2.0 - 0.9) * size).collect()
}

pub(super) fn leaf(values: &[f32]) -> Tensor<A, 1> {
    let data = TensorData::new(values.to_vec(), [values.len()]);
    Tensor::from_data(data, &Default::default()).require_grad()
}

pub(super) fn values<const D: usize>(tensor: Tensor<A, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

/// The operator's output, and the gradient of each input.
pub(super) fn run_with(
    inputs: &[Input],
    layout: Layout,
    upstream: Upstream,
    op: &dyn Fn(Vec<F>) -> F,
) -> Vec<Vec<f32>> {
    let leaves: Vec<_> = inputs.iter().map(|(values, _)| leaf(values)).collect();
    let shaped = leaves.iter().zip(inputs).map(|(leaf, (_, shape))| {
        let primitive = leaf.clone().into_primitive().tensor();
        match (layout, shape.as_slice()) {
            (Layout::Transposed, &[rows, cols]) => {
                let turned = A::float_reshape(primitive, [cols, rows].into());
                A::float_swap_dims(turned, 0, 1)
            }
            _ => A::float_reshape(primitive, shape.clone().into()),
        }
    });
    let y = op(shaped.collect());
    let rank = y.shape().num_dims();
    let y = Tensor::<A, 2>::from_primitive(TensorPrimitive::Float(if rank == 2 {
        y
    } else {
        let count = y.shape().num_elements();
        A::float_reshape(y, [count, 1].into())
    }));
    let [rows, cols] = y.dims();
    let weights = |shape: [usize; 2]| {
        let data = TensorData::new(random(rows * cols, 1.0, 99), shape);
        Tensor::<A, 2>::from_data(data, &Default::default())
    };
    let loss = match upstream {
        Upstream::Random => (y.clone() * weights([rows, cols])).sum(),
        Upstream::Expanded => y.clone().sum() * 0.7,
        Upstream::Transposed => (y.clone().transpose() * weights([cols, rows])).sum(),
    };
    let gradients = loss.backward();
    let gradient =
        |leaf: &Tensor<A, 1>| leaf.grad(&gradients).unwrap().into_data().into_vec().unwrap();
    std::iter::once(values(y)).chain(leaves.iter().map(gradient)).collect()
}

/// The largest difference over the largest value.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(1e-12_f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs())) / largest
}

/// Ten times what burn.md measured, for other processors.
pub(super) const BOUND: f32 = 1e-5;

pub(super) fn assert_same(
    what: &str,
    inputs: &[Input],
    fused: &dyn Fn(Vec<F>) -> F,
    plain: &dyn Fn(Vec<F>) -> F,
) {
    for upstream in [Upstream::Random, Upstream::Expanded, Upstream::Transposed] {
        for layout in [Layout::Contiguous, Layout::Transposed] {
            let fused = run_with(inputs, layout, upstream, fused);
            let plain = run_with(inputs, layout, upstream, plain);
            for (i, (fused, plain)) in fused.iter().zip(&plain).enumerate() {
                let distance = distance(fused, plain);
                assert!(
                    distance < BOUND,
                    "{what}, {upstream:?}, {layout:?}: result {i} (0: output) is {distance:e} away"
                );
            }
        }
    }
}

pub(super) fn input(shape: &[usize], size: f32, seed: u64) -> Input {
    (random(shape.iter().product(), size, seed), shape.to_vec())
}

/// The inputs as an array of the arity that an operator takes.
pub(super) fn array<const N: usize>(inputs: Vec<F>) -> [F; N] {
    inputs.try_into().unwrap()
}

/// Checks that the slope of the output along each input's gradient is that gradient's length.
pub(super) fn assert_slope(what: &str, inputs: &[Input], op: &dyn Fn(Vec<F>) -> F) {
    let run = |inputs: &[_]| run_with(inputs, Layout::Contiguous, Upstream::Random, op);
    let results = run(inputs);
    let weights = random(results[0].len(), 1.0, 99);
    for (i, gradient) in results[1..].iter().enumerate() {
        let length = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let sum = |distance: f64| {
            let mut inputs = inputs.to_vec();
            for (x, g) in inputs[i].0.iter_mut().zip(gradient) {
                *x += (distance * f64::from(*g) / length) as f32;
            }
            let y = run(&inputs).swap_remove(0);
            y.iter().zip(&weights).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum::<f64>()
        };
        let slope = (sum(0.02) - sum(-0.02)) / 0.04;
        assert!((slope / length - 1.0).abs() < 3e-3, "{what}, input {i}: {slope} against {length}");
    }
}

/// Checks that the hand-written form agrees with the plain form.
pub(super) fn assert_plain<O: Operator<N>, const N: usize>(op: O, inputs: [Input; N]) {
    let shapes: Vec<_> = inputs.iter().map(|(_, shape)| shape).collect();
    assert_same(
        &format!("{op:?} of {shapes:?}"),
        &inputs,
        &|x| A::run(op.clone(), array(x)),
        &|x| op.plain::<A>(array(x)),
    );
}

/// [`assert_slope`] of an operator.
pub(super) fn assert_slopes<O: Operator<N>, const N: usize>(op: O, inputs: [Input; N]) {
    assert_slope(&format!("{op:?}"), &inputs, &|x| A::run(op.clone(), array(x)));
}

/// Output and gradients of the hand-written form.
pub(super) fn results<O: Operator<N>, const N: usize>(
    op: O,
    inputs: [Input; N],
    upstream: Upstream,
) -> Vec<Vec<f32>> {
    run_with(&inputs, Layout::Contiguous, upstream, &|x| A::run(op.clone(), array(x)))
}

/// Sequences, tokens, width: one token, odd sizes, more rows than a task has.
pub(super) const SIZES: [[usize; 3]; 5] =
    [[1, 1, 3], [3, 1, 16], [2, 5, 7], [2, 70, 48], [3, 33, 65]];

/// B, T, H, G, K: one token, odd lengths, more tokens than a block, grouped and single key-value
/// heads, odd K.
pub(super) const SHAPES: [[usize; 5]; 8] = [
    [1, 1, 1, 1, 2],
    [2, 5, 4, 2, 6],
    [2, 40, 8, 2, 32],
    [1, 100, 4, 1, 64],
    [3, 64, 2, 2, 20],
    [1, 65, 6, 3, 48],
    [2, 129, 3, 3, 16],
    [1, 200, 2, 1, 8],
];

pub(super) fn heads(shape: [usize; 5]) -> Heads {
    let [sequences, tokens, query, kv, size] = shape;
    Heads { sequences, tokens, query, kv, size }
}

/// Checks that one, two and three threads give the same bits.
fn assert_same_bits(block: &(dyn Fn() -> Vec<Vec<f32>> + Sync)) {
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(block)
    };
    let one = with(1);
    assert!(one.iter().flatten().any(|x| *x != 0.0));
    for threads in [2, 3] {
        assert_eq!(one, with(threads), "{threads} threads");
    }
}

/// One thread and several give the same bits, for every operator of a Llama's block.
#[test]
fn a_llama_s_block_does_not_depend_on_the_number_of_threads() {
    let heads = heads([3, 150, 4, 2, 16]);
    let rows = heads.sequences * heads.tokens;
    let rope = Rope::new(heads.tokens, heads.size, 10_000.0, None);
    let inputs = [
        input(&[rows, 48], 1.0, 1),
        input(&[48], 1.0, 2),
        input(&[heads.row(), 48], 0.3, 3),
        input(&[48, 64], 0.3, 4),
        input(&[2 * 72, 48], 0.3, 5),
        input(&[48, 72], 0.3, 6),
    ];
    let targets: Arc<[i32]> = (0..rows).map(|i| (i % 48) as i32).collect();
    let numbers: Vec<_> = (0..rows as i32).map(|i| i / 90).collect();
    let documents = Documents::packed(&numbers, heads.tokens);
    let block = || {
        run_with(&inputs, Layout::Contiguous, Upstream::Random, &|x| {
            let [x, norm, qkv, out, gate_up, down] = array(x);
            let rms = RmsNorm { eps: 1e-5 };
            let h = A::run(Project, [A::run(rms, [x.clone(), norm.clone()]), qkv]);
            let h = A::run(Rotate { heads, rope: rope.clone() }, [h]);
            let h = A::run(Attention { heads, documents: documents.clone() }, [h]);
            let x = A::run(ProjectAdd, [h, out, x]);
            let h = A::run(Project, [A::run(rms, [x.clone(), norm]), gate_up]);
            let x = A::run(ProjectAdd, [A::run(SwiGlu, [h]), down, x]);
            let z_loss = ZLoss { weight: 1e-3, form: ZForm::Max };
            A::run(CrossEntropy { targets: targets.clone(), z_loss }, [x])
        })
    };
    assert_same_bits(&block);
}

/// The same for the operators that the RWKV families add.
#[test]
fn an_rwkv_s_block_does_not_depend_on_the_number_of_threads() {
    let mut inputs = wkv::tests::recurrence([3, 90, 2, 16], true).to_vec();
    inputs.extend([7, 8].map(|seed| input(&[32], 1.0, seed)));
    inputs.push(input(&[3, 32], 1.0, 9));
    let block = || {
        run_with(&inputs, Layout::Contiguous, Upstream::Random, &|x| {
            let [r, k, v, w, u, state, a, b, before] = array(x);
            let shift = ShiftMix { weighs: Weighs::Past };
            let r = A::run(shift, [r, a.clone(), before.clone()]);
            let w2 = A::float_slice(v.clone(), &[(0..32).into(), (0..32).into()]);
            let mu = A::float_reshape(a.clone(), [1, 32].into());
            let mix = DataMix { first: 0, rank: 32 };
            let [r] = A::run_multi(mix, [r, k.clone(), w2, mu, before]);
            let [y, _] = A::run_multi(Wkv, [r.clone(), k, v, w, u, state]);
            let y = A::run(NormGate { heads: 2, eps: 1e-5 }, [y, r.clone(), a.clone(), b.clone()]);
            let normed = A::run(LayerNorm { eps: 1e-5 }, [y.clone(), a, b]);
            A::run(GatedAdd, [y, normed, r])
        })
    };
    assert_same_bits(&block);
}
