//! Each operator of the RWKV families against its plain form, and the recurrence against its
//! definition in f64, token by token.

use burn::tensor::{Tensor, TensorPrimitive};
use burn_backend::ops::FloatTensorOps;

use super::super::tests::{
    A, F, Input, Upstream, array, assert_same, assert_slopes, distance, input, leaf, random,
    run_with, values,
};
use super::*;

/// Sequences, tokens, width: one token, odd sizes, more rows than a task has.
const SIZES: [[usize; 3]; 5] = [[1, 1, 3], [3, 1, 16], [2, 5, 7], [2, 70, 48], [3, 33, 65]];

#[test]
fn norms_are_the_plain_form() {
    for (rows, heads, size) in [(1, 1, 3), (3, 2, 7), (130, 4, 16), (65, 2, 100), (200, 1, 65)] {
        let width = heads * size;
        let inputs = [
            input(&[rows, width], 2.0, 1),
            input(&[rows, width], 4.0, 2),
            input(&[width], 1.0, 3),
            input(&[width], 1.0, 4),
        ];
        let name = format!("norm [{rows}, {heads} x {size}]");
        assert_same(
            &name,
            &inputs,
            &|x| {
                let [x, g, w, b] = array(x);
                A::norm_gate([x, g], w, b, heads, 64e-5)
            },
            &|x| {
                let [x, g, w, b] = array(x);
                plain::norm_gate::<A>([x, g], w, b, heads, 64e-5)
            },
        );
        assert_same(
            &name,
            &[inputs[0].clone(), inputs[2].clone(), inputs[3].clone()],
            &|x| {
                let [x, w, b] = array(x);
                A::norm(x, w, b, 1e-5)
            },
            &|x| {
                let [x, w, b] = array(x);
                plain::norm::<A>(x, w, b, 1e-5)
            },
        );
    }
}

#[test]
fn token_shifts_are_the_plain_form() {
    for [sequences, tokens, width] in SIZES {
        let rows = sequences * tokens;
        let inputs = [
            input(&[rows, width], 1.0, 1),
            input(&[width], 1.0, 2),
            input(&[sequences, width], 1.0, 3),
        ];
        for weighs in [Weighs::Present, Weighs::Past] {
            assert_same(
                &format!("shift [{sequences} x {tokens}, {width}] {weighs:?}"),
                &inputs,
                &|x| {
                    let [x, mu, before] = array(x);
                    A::shift_mix(x, mu, before, weighs)
                },
                &|x| {
                    let [x, mu, before] = array(x);
                    plain::shift_mix::<A>(x, mu, before, weighs)
                },
            );
        }
    }
}

#[test]
fn data_dependent_shifts_are_the_plain_form() {
    for [sequences, tokens, width] in SIZES {
        let rows = sequences * tokens;
        let inputs = [
            input(&[rows, width], 1.0, 1),
            input(&[rows, 9], 1.0, 2),
            input(&[9, width], 1.0, 3),
            input(&[2, width], 1.0, 4),
            input(&[sequences, width], 1.0, 5),
        ];
        // All pieces but the first; and both outputs count, or the second alone.
        let pieces = Pieces { first: 1, rank: 3 };
        for first in [0.3, 0.0] {
            let joined = |[a, b]: [F; 2]| match first {
                0.0 => b,
                _ => A::float_add(A::float_mul_scalar(a, first.into()), A::float_mul(b.clone(), b)),
            };
            assert_same(
                &format!("data mix [{sequences} x {tokens}, {width}], {first}"),
                &inputs,
                &|x| {
                    let [x, a, w, mu, before] = array(x);
                    joined(A::data_mix(x, [a, w], mu, before, pieces))
                },
                &|x| {
                    let [x, a, w, mu, before] = array(x);
                    joined(plain::data_mix::<A, 2>(x, [a, w], mu, before, pieces))
                },
            );
        }
    }
}

#[test]
fn low_rank_maps_are_the_plain_form() {
    for (rows, width, rank) in [(1, 1, 1), (5, 7, 3), (130, 64, 32)] {
        for base in [vec![width], vec![rows, width]] {
            assert_same(
                &format!("low rank [{rows}, {width}] by {rank}, base {base:?}"),
                &[
                    input(&[rows, width], 1.0, 1),
                    input(&[width, rank], 1.0, 2),
                    input(&[rank, width], 1.0, 3),
                    input(&base, 1.0, 4),
                ],
                &|x| {
                    let [x, w1, w2, base] = array(x);
                    A::expand(A::tanh_project(x, w1), w2, base)
                },
                &|x| {
                    let [x, w1, w2, base] = array(x);
                    plain::expand::<A>(plain::tanh_project::<A>(x, w1), w2, base)
                },
            );
        }
    }
}

#[test]
fn gates_are_the_plain_form() {
    for (rows, width) in [(1, 1), (5, 7), (130, 64), (300, 65)] {
        let inputs = [1, 2, 3].map(|seed| input(&[rows, width], 3.0, seed));
        let name = format!("gates [{rows}, {width}]");
        assert_same(
            &name,
            &inputs,
            &|x| {
                let [r, x, residual] = array(x);
                A::gated_add(r, x, residual)
            },
            &|x| {
                let [r, x, residual] = array(x);
                plain::gated_add::<A>(r, x, residual)
            },
        );
        assert_same(&name, &inputs, &|x| A::pack(array(x)), &|x| plain::pack::<A>(array(x)));
        assert_same(
            &name,
            &inputs[..2],
            &|x| {
                let [k, w] = array(x);
                A::relu_square(A::decayed_keys(k, w))
            },
            &|x| {
                let [k, w] = array(x);
                plain::relu_square::<A>(plain::decayed_keys::<A>(k, w))
            },
        );
    }
}

/// B, T, H, K and whether the decay depends on the token: one token, odd sizes, chunks of the fused
/// form (32 tokens) and of the plain form (64) that end early and that end on time.
const RECURRENCES: [([usize; 4], bool); 7] = [
    ([1, 1, 1, 2], true),
    ([2, 5, 3, 8], true),
    ([2, 5, 3, 8], false),
    ([1, 64, 2, 16], true),
    ([2, 100, 2, 20], false),
    ([1, 70, 1, 64], true),
    ([1, 129, 1, 33], true),
];

/// r, k, v, w, u and the state before; decays from almost 1 to almost 0.
fn recurrence([b, t, h, k]: [usize; 4], by_token: bool) -> [(Vec<f32>, Vec<usize>); 6] {
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

fn wkv_inputs(x: Vec<F>) -> WkvInputs<A> {
    let [r, k, v, w, u, state] = array(x);
    WkvInputs { r, k, v, w, u, state }
}

fn run_fused(inputs: &[(Vec<f32>, Vec<usize>)], upstream: Upstream) -> Vec<Vec<f32>> {
    run_with(inputs, Input::Contiguous, upstream, &|x| A::wkv(wkv_inputs(x))[0].clone())
}

/// The state after the last token.
fn last_state(inputs: &[(Vec<f32>, Vec<usize>)], wkv: impl Fn(WkvInputs<A>) -> [F; 2]) -> Vec<f32> {
    let tensors = inputs.iter().map(|(values, shape)| {
        A::float_reshape(leaf(values).into_primitive().tensor(), shape.clone().into())
    });
    let [_, state] = wkv(wkv_inputs(tensors.collect()));
    values(Tensor::<A, 4>::from_primitive(TensorPrimitive::Float(state)))
}

#[test]
fn the_recurrence_is_the_plain_chunked_form() {
    for (shape, by_token) in RECURRENCES {
        let inputs = recurrence(shape, by_token);
        let fused = run_fused(&inputs, Upstream::Random);
        let plain = run_with(&inputs, Input::Contiguous, Upstream::Random, &|x| {
            plain::wkv::<A>(wkv_inputs(x))[0].clone()
        });
        for (i, (fused, plain)) in fused.iter().zip(&plain).enumerate() {
            let distance = distance(fused, plain);
            assert!(distance < 1e-5, "{shape:?} {by_token}: result {i} is {distance:e} away");
        }
        let states = [last_state(&inputs, A::wkv), last_state(&inputs, plain::wkv::<A>)];
        assert!(distance(&states[0], &states[1]) < 1e-5, "{shape:?}");
    }
}

/// y, and the gradients of r, k, v, w, u and the state for the gradient `g`: the equations token by
/// token, in f64. // the state is [K, K]; B = H = 1
fn definition(inputs: &[(Vec<f32>, Vec<usize>)], g: &[f32]) -> Vec<Vec<f32>> {
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

/// Ordinary decays, and ones from 1 to nothing inside one sequence: no exponent overflows, and only
/// the gradient of w, a difference of sums, loses a digit.
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

/// Two halves, the state carried, are the whole; and what comes later changes nothing before it.
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
    let second = part(half, tokens, last_state(&first, A::wkv));
    let mut joined = run_fused(&first, Upstream::Random)[0].clone();
    joined.extend(run_fused(&second, Upstream::Random)[0].clone());
    assert_eq!(joined, run_fused(&whole, Upstream::Random)[0]);
    assert_eq!(last_state(&second, A::wkv), last_state(&whole, A::wkv));
}

#[test]
fn gradients_are_slopes() {
    let (rows, width) = (14, 12);
    let matrix = |seed| input(&[rows, width], 1.0, seed);
    let vector = |seed| input(&[width], 1.0, seed);
    let before = input(&[2, width], 1.0, 9);
    assert_slopes("wkv", &recurrence([2, 7, 2, 6], true), &|x| A::wkv(wkv_inputs(x))[0].clone());
    assert_slopes("wkv", &recurrence([2, 7, 2, 6], false), &|x| A::wkv(wkv_inputs(x))[0].clone());
    assert_slopes("norm", &[matrix(1), vector(2), vector(3)], &|x| {
        let [x, w, b] = array(x);
        A::norm(x, w, b, 1e-5)
    });
    assert_slopes("norm and gate", &[matrix(1), matrix(2), vector(3), vector(4)], &|x| {
        let [x, g, w, b] = array(x);
        A::norm_gate([x, g], w, b, 3, 1e-5)
    });
    assert_slopes("shift", &[matrix(1), vector(2), before.clone()], &|x| {
        let [x, mu, before] = array(x);
        A::shift_mix(x, mu, before, Weighs::Present)
    });
    let features = [input(&[rows, 6], 1.0, 2), input(&[6, width], 1.0, 3)];
    let [a, w] = features;
    assert_slopes("data mix", &[matrix(1), a, w, input(&[2, width], 1.0, 4), before], &|x| {
        let [x, a, w, mu, before] = array(x);
        let [a, b] = A::data_mix(x, [a, w], mu, before, Pieces { first: 0, rank: 3 });
        A::float_mul(a, b)
    });
    assert_slopes(
        "low rank",
        &[matrix(1), input(&[width, 4], 0.3, 2), input(&[4, width], 1.0, 3), matrix(4)],
        &|x| {
            let [x, w1, w2, base] = array(x);
            A::expand(A::tanh_project(x, w1), w2, base)
        },
    );
    assert_slopes("pack", &[matrix(1), matrix(2), matrix(3)], &|x| A::pack(array(x)));
    assert_slopes("gate", &[matrix(1), matrix(2), matrix(3)], &|x| {
        let [r, x, residual] = array(x);
        A::gated_add(A::decayed_keys(x.clone(), r), A::relu_square(x), residual)
    });
}

/// The same bits from one thread and from three.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut inputs = recurrence([3, 90, 2, 16], true).to_vec();
    inputs.extend([7, 8].map(|seed| input(&[32], 1.0, seed)));
    inputs.push(input(&[3, 32], 1.0, 9));
    let block = || {
        run_with(&inputs, Input::Contiguous, Upstream::Random, &|x| {
            let [r, k, v, w, u, state, a, b, before] = array(x);
            let r = A::shift_mix(r, a.clone(), before.clone(), Weighs::Past);
            let map = [k.clone(), A::float_slice(v.clone(), &[(0..32).into(), (0..32).into()])];
            let mu = A::float_reshape(a.clone(), [1, 32].into());
            let [r] = A::data_mix(r, map, mu, before, Pieces { first: 0, rank: 32 });
            let inputs = WkvInputs { r: r.clone(), k, v, w, u, state };
            let y =
                A::norm_gate([A::wkv(inputs)[0].clone(), r.clone()], a.clone(), b.clone(), 2, 1e-5);
            A::gated_add(y.clone(), A::norm(y, a, b, 1e-5), r)
        })
    };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(block)
    };
    let one = with(1);
    for threads in [2, 3] {
        assert_eq!(one, with(threads), "{threads} threads");
    }
}
