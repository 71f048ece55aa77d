//! The kernels of this crate on a GPU, forward and backward, compared with the definitions in f64;
//! and a second run compared with the first.

use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata as _};
use burn_tensor::{Tensor, TensorData, TensorPrimitive};
use intellect_model::ops::{Attention, Documents, FusedOps, Heads, Project, Wkv};

use crate::definition::{self, Sizes};

/// Values between −`size` and `size` from a small generator.
pub(crate) fn random(count: usize, size: f32, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..count).map(|_| (next() * 2.0 - 1.0) * size).collect()
}

/// An input of an operator: its values in row-major order, and its shape.
type Input<'a> = (&'a [f32], Vec<usize>);

/// The output of an operator, and the gradient of each input when the output has the gradient `dy`.
pub(crate) fn forth_and_back<A: AutodiffBackend + FusedOps>(
    inputs: &[Input<'_>],
    dy: &[f32],
    op: &dyn Fn(Vec<FloatTensor<A>>) -> FloatTensor<A>,
) -> Vec<Vec<f32>> {
    let device = Default::default();
    let flat =
        |x: &[f32]| Tensor::<A, 1>::from_data(TensorData::new(x.to_vec(), [x.len()]), &device);
    let leaves: Vec<_> = inputs.iter().map(|(values, _)| flat(values).require_grad()).collect();
    let shaped = leaves.iter().zip(inputs).map(|(leaf, (_, shape))| {
        A::float_reshape(leaf.clone().into_primitive().tensor(), shape.clone().into())
    });
    let y = op(shaped.collect());
    let count = y.shape().num_elements();
    let y = A::float_reshape(y, [count].into());
    let y = Tensor::<A, 1>::from_primitive(TensorPrimitive::Float(y));
    let gradients = (y.clone() * flat(dy)).sum().backward();
    let of = |leaf: &Tensor<A, 1>| leaf.grad(&gradients).unwrap().into_data().to_vec().unwrap();
    std::iter::once(y.into_data().to_vec().unwrap()).chain(leaves.iter().map(of)).collect()
}

/// The largest difference, divided by the largest value.
pub(crate) fn distance(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let most = expected.iter().fold(1e-30, |most: f64, x| most.max(x.abs()));
    let apart = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs() / most);
    apart.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// Sequences packed with documents of `document` tokens, one token more in each next sequence.
fn assert_attention<A: AutodiffBackend + FusedOps>(heads: Heads, document: usize) {
    let positions = heads.sequences * heads.tokens;
    let number = |at: usize| (at % heads.tokens / (document + at / heads.tokens)) as i32;
    let numbers: Vec<_> = (0..positions).map(number).collect();
    let length = |at: usize| document + at / heads.tokens;
    let start = |at: usize| (at % heads.tokens / length(at) * length(at)) as u32;
    let starts: Vec<_> = (0..positions).map(start).collect();
    let qkv = random(positions * heads.row(), 2.0, 7);
    let dy = random(positions * heads.query * heads.size, 1.0, 8);
    let run = || {
        let op = Attention { heads, documents: Documents::packed(&numbers, heads.tokens) };
        let inputs = [(&qkv[..], vec![positions, heads.row()])];
        forth_and_back::<A>(&inputs, &dy, &|inputs| A::run(op.clone(), inputs.try_into().unwrap()))
    };
    let found = run();
    let expected = definition::attention(heads, &starts, &qkv, &dy);
    for (found, expected) in found.iter().zip(&expected) {
        let off = distance(found, expected);
        assert!(off < 2e-6, "{heads:?}, documents of {document}: {off:.1e}");
    }
    assert_eq!(found, run(), "a second run gives another result");
}

/// Sequences of one token and of many, heads that share keys, documents of one token and of all
/// tokens.
pub(crate) fn assert_attention_is_its_definition<A: AutodiffBackend + FusedOps>() {
    for ([sequences, tokens, query, kv, size], document) in [
        ([1, 1, 1, 1, 16], 9),
        ([2, 5, 4, 2, 32], 2),
        ([1, 33, 2, 1, 64], 1000),
        ([2, 70, 6, 2, 8], 7),
        ([1, 129, 4, 4, 64], 50),
        ([1, 200, 4, 1, 128], 1000),
        ([2, 97, 2, 2, 40], 40),
        ([1, 300, 2, 1, 64], 1),
    ] {
        assert_attention::<A>(Heads { sequences, tokens, query, kv, size }, document);
    }
}

fn assert_wkv<A: AutodiffBackend + FusedOps>(sizes: Sizes, by_token: bool, decays: &[f32]) {
    let [sequences, tokens, heads, size] = sizes;
    let (rows, width) = (sequences * tokens, heads * size);
    let [r, k, v, dy] = [1, 2, 3, 4].map(|seed| random(rows * width, 1.0, seed));
    let (shape, count) =
        if by_token { (vec![rows, width], rows * width) } else { (vec![width], width) };
    let w: Vec<f32> = match decays {
        [] => random(count, 4.0, 5).into_iter().map(|w| w - 2.0).collect(),
        decays => decays.iter().copied().cycle().take(count).collect(),
    };
    let (u, state) = (random(width, 1.0, 6), random(sequences * width * size, 1.0, 7));
    let matrix = vec![rows, width];
    let run = || {
        let inputs = [
            (&r[..], matrix.clone()),
            (&k[..], matrix.clone()),
            (&v[..], matrix.clone()),
            (&w[..], shape.clone()),
            (&u[..], vec![width]),
            (&state[..], vec![sequences, heads, size, size]),
        ];
        forth_and_back::<A>(&inputs, &dy, &|inputs| {
            let [y, _] = A::run_multi(Wkv, inputs.try_into().unwrap());
            y
        })
    };
    let found = run();
    let expected = definition::wkv(sizes, [&r, &k, &v, &w, &u, &state], &dy);
    let names = ["y", "dr", "dk", "dv", "dw", "du", "dstate"];
    for ((found, expected), name) in found.iter().zip(&expected).zip(names) {
        let off = distance(found, expected);
        // dw comes from p, a difference of sums over a span.
        let bound = if name == "dw" { 2e-5 } else { 2e-6 };
        assert!(off < bound, "{sizes:?}, by token {by_token}, {decays:?}: {name} {off:.1e}");
    }
    assert_eq!(found, run(), "a second run gives another result");
}

/// Sequences that end within a chunk and within a span, heads of several widths, and decays of
/// every size.
pub(crate) fn assert_the_recurrence_is_its_definition<A: AutodiffBackend + FusedOps>() {
    for (sizes, by_token) in [
        ([1, 1, 1, 8], true),
        ([2, 5, 3, 8], true),
        ([2, 5, 3, 8], false),
        ([1, 64, 2, 16], true),
        ([2, 100, 2, 24], false),
        ([1, 70, 1, 64], true),
        ([1, 300, 2, 64], true),
        ([1, 129, 1, 40], true),
    ] {
        assert_wkv::<A>(sizes, by_token, &[]);
    }
    for decays in [&[-20.0, 0.0, 5.0][..], &[-80.0, 7.0, 90.0], &[-12.0], &[-8.0, 1.0]] {
        for by_token in [true, false] {
            assert_wkv::<A>([1, 200, 1, 64], by_token, decays);
        }
    }
}

/// Rows and columns that are not multiples of a tile, and a single row.
pub(crate) fn assert_products_are_their_definition<A: AutodiffBackend + FusedOps>() {
    for [rows, ins, outs] in
        [[1, 1, 1], [1, 64, 7], [5, 3, 7], [130, 33, 65], [64, 128, 96], [3, 500, 2]]
    {
        let (x, w) = (random(rows * ins, 1.0, 1), random(outs * ins, 1.0, 2));
        let dy = random(rows * outs, 1.0, 3);
        let found =
            forth_and_back::<A>(&[(&x, vec![rows, ins]), (&w, vec![outs, ins])], &dy, &|inputs| {
                A::run(Project, inputs.try_into().unwrap())
            });
        let mut expected = [vec![0.0; rows * outs], vec![0.0; rows * ins], vec![0.0; outs * ins]];
        for (n, o, i) in
            (0..rows).flat_map(|n| (0..outs).flat_map(move |o| (0..ins).map(move |i| (n, o, i))))
        {
            let [x, w, dy] = [x[n * ins + i], w[o * ins + i], dy[n * outs + o]].map(f64::from);
            expected[0][n * outs + o] += x * w;
            expected[1][n * ins + i] += dy * w;
            expected[2][o * ins + i] += dy * x;
        }
        for (found, expected) in found.iter().zip(&expected) {
            let off = distance(found, expected);
            assert!(off < 2e-6, "[{rows}, {ins}] by [{outs}, {ins}]: {off:.1e}");
        }
    }
}
