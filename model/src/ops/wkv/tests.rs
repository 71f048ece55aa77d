//! The recurrence compared with its plain form, and with its definition in f64, token by token.

use burn_backend::ops::FloatTensorOps;
use burn_tensor::{Tensor, TensorPrimitive};

use super::super::FusedOps;
use super::super::tests::{
    A, F, Input, Layout, Upstream, array, assert_slope, distance, input, leaf, random, run_with,
    values,
};
use super::*;

/// B, T, H, K and whether the decay depends on the token: one token, odd sizes, and last chunks of
/// the fused form (32 tokens) and of the plain form (64) that are full or partly filled.
const RECURRENCES: [([usize; 4], bool); 7] = [
    ([1, 1, 1, 2], true),
    ([2, 5, 3, 8], true),
    ([2, 5, 3, 8], false),
    ([1, 64, 2, 16], true),
    ([2, 100, 2, 20], false),
    ([1, 70, 1, 64], true),
    ([1, 129, 1, 33], true),
];

/// r, k, v, w, u and the initial state; decays range from almost 1 to almost 0.
pub(in crate::ops) fn recurrence([b, t, h, k]: [usize; 4], by_token: bool) -> [Input; 6] {
    let (rows, width) = (b * t, h * k);
    let shape = if by_token { vec![rows, width] } else { vec![width] };
    let mut w = input(&shape, 4.0, 4);
    w.0.iter_mut().for_each(|w| *w -= 2.0);
    [
        input(&[rows, width], 1.0, 1),
        input(&[rows, width], 1.0, 2),
        input(&[rows, width], 1.0, 3),
        w,
        input(&[width], 1.0, 5),
        input(&[b, h, k, k], 1.0, 6),
    ]
}

fn fused(x: Vec<F>) -> F {
    let [y, _] = A::run_multi(Wkv, array(x));
    y
}

fn by_hand(x: [F; 6]) -> [F; 2] {
    A::run_multi(Wkv, x)
}

fn run_fused(inputs: &[Input], upstream: Upstream) -> Vec<Vec<f32>> {
    run_with(inputs, Layout::Contiguous, upstream, &fused)
}

/// The state after the last token.
fn last_state(inputs: &[Input], wkv: impl Fn([F; 6]) -> [F; 2]) -> Vec<f32> {
    let tensors = inputs.iter().map(|(values, shape)| {
        A::float_reshape(leaf(values).into_primitive().tensor(), shape.clone().into())
    });
    let [_, state] = wkv(array(tensors.collect()));
    values(Tensor::<A, 4>::from_primitive(TensorPrimitive::Float(state)))
}

#[test]
fn the_recurrence_is_the_plain_chunked_form() {
    for (shape, by_token) in RECURRENCES {
        let inputs = recurrence(shape, by_token);
        let fused = run_fused(&inputs, Upstream::Random);
        let plain = run_with(&inputs, Layout::Contiguous, Upstream::Random, &|x| {
            let [y, _] = Wkv.plain::<A>(array(x));
            y
        });
        for (i, (fused, plain)) in fused.iter().zip(&plain).enumerate() {
            let distance = distance(fused, plain);
            assert!(distance < 1e-5, "{shape:?} {by_token}: result {i} is {distance:e} away");
        }
        let states = [last_state(&inputs, by_hand), last_state(&inputs, plain::wkv::<A>)];
        assert!(distance(&states[0], &states[1]) < 1e-5, "{shape:?}");
    }
}

/// y, and the gradients of r, k, v, w, u and the state for the gradient `g`: the equations token by
/// token, in f64. // the state is [K, K]; B = H = 1
fn definition(inputs: &[Input], g: &[f32]) -> Vec<Vec<f32>> {
    let [r, k, v, w, u, state]: [Vec<f64>; 6] =
        std::array::from_fn(|i| inputs[i].0.iter().map(|x| f64::from(*x)).collect());
    let g: Vec<f64> = g.iter().map(|x| f64::from(*x)).collect();
    let (size, tokens) = (u.len(), r.len() / u.len());
    let decay = |t: usize, i: usize| (-w[(t * size + i) % w.len()].exp()).exp();
    let mut states = vec![state];
    let mut y = vec![0.0; r.len()];
    let [mut dr, mut dk, mut dv] = [(); 3].map(|()| vec![0.0; r.len()]);
    let (mut dw, mut du) = (vec![0.0; w.len()], vec![0.0; size]);
    for t in 0..tokens {
        let s = &states[t];
        let mut next = s.clone();
        for (i, u) in u.iter().enumerate() {
            for j in 0..size {
                let (x, z) = (t * size + i, t * size + j);
                let kv = k[x] * v[z];
                y[z] += r[x] * (s[i * size + j] + u * kv);
                dr[x] += (s[i * size + j] + u * kv) * g[z];
                du[i] += r[x] * kv * g[z];
                next[i * size + j] = decay(t, i) * s[i * size + j] + kv;
            }
        }
        states.push(next);
    }
    let mut ds = vec![0.0; size * size];
    for t in (0..tokens).rev() {
        for (i, u) in u.iter().enumerate() {
            for j in 0..size {
                let (x, z, at) = (t * size + i, t * size + j, i * size + j);
                dk[x] += (ds[at] + u * r[x] * g[z]) * v[z];
                dv[z] += (ds[at] + u * r[x] * g[z]) * k[x];
                let slope = -w[x % w.len()].exp() * decay(t, i);
                dw[x % w.len()] += ds[at] * states[t][at] * slope;
                ds[at] = decay(t, i) * ds[at] + r[x] * g[z];
            }
        }
    }
    let f32s = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect();
    [y, dr, dk, dv, dw, du, ds].map(f32s).into()
}

/// Ordinary decays, and decays from 1 down to 0 inside one sequence: no exponent overflows, and
/// only the gradient of w, a difference of sums, loses a digit.
#[test]
fn the_recurrence_is_its_definition_for_any_decay() {
    for (shape, by_token) in [([1, 70, 1, 16], true), ([1, 100, 1, 40], false)] {
        for extremes in [&[][..], &[-20.0, 0.0, 5.0], &[-80.0, 7.0, 90.0]] {
            let mut inputs = recurrence(shape, by_token);
            if !extremes.is_empty() {
                let values = &mut inputs[3].0;
                values.iter_mut().enumerate().for_each(|(i, w)| *w = extremes[i % extremes.len()]);
            }
            let found = run_fused(&inputs, Upstream::Random);
            let expected = definition(&inputs, &random(inputs[0].0.len(), 1.0, 99));
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let distance = distance(found, expected);
                let bound = if i == 4 { 1e-5 } else { 2e-6 };
                assert!(distance < bound, "{shape:?} {extremes:?}: result {i}: {distance:e}");
            }
        }
    }
}

/// Two halves with the state carried between them equal the whole, and later tokens change nothing
/// before them.
#[test]
fn a_state_carries_everything_from_the_past() {
    let (tokens, half) = (75, 43);
    let whole = recurrence([1, tokens, 2, 24], true);
    let part = |from: usize, to: usize, state: Vec<f32>| {
        let mut inputs = whole.clone();
        for (values, shape) in &mut inputs[..4] {
            *values = values[from * shape[1]..to * shape[1]].to_vec();
            shape[0] = to - from;
        }
        inputs[5].0 = state;
        inputs
    };
    let first = part(0, half, whole[5].0.clone());
    let second = part(half, tokens, last_state(&first, by_hand));
    let mut joined = run_fused(&first, Upstream::Random)[0].clone();
    joined.extend(run_fused(&second, Upstream::Random)[0].clone());
    assert_eq!(joined, run_fused(&whole, Upstream::Random)[0]);
    assert_eq!(last_state(&second, by_hand), last_state(&whole, by_hand));
}

#[test]
fn gradients_are_slopes() {
    for by_token in [true, false] {
        assert_slope("wkv", &recurrence([2, 7, 2, 6], by_token), &fused);
    }
}
