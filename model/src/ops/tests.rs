//! Each fused operator against its plain form: values and gradients, with contiguous, expanded and
//! transposed gradients, contiguous and transposed inputs, and sizes that divide nothing.

use burn::tensor::{Int, Tensor, TensorData, TensorPrimitive};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;

use super::*;

pub(super) type A = Autodiff<Flex>;
pub(super) type F = FloatTensor<A>;

/// What the operator's output is multiplied with before it is summed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Upstream {
    /// Random and contiguous.
    Random,
    /// One number, expanded: what `sum().backward()` sends.
    Expanded,
    /// Random, behind a transpose.
    Transposed,
}

/// How an input reaches the operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    Contiguous,
    Transposed,
}

/// Values in ±`size`, not symmetric about zero, from a small generator.
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
    inputs: &[(Vec<f32>, Vec<usize>)],
    layout: Input,
    upstream: Upstream,
    op: &dyn Fn(Vec<F>) -> F,
) -> Vec<Vec<f32>> {
    let leaves: Vec<_> = inputs.iter().map(|(values, _)| leaf(values)).collect();
    let shaped = leaves.iter().zip(inputs).map(|(leaf, (_, shape))| {
        let primitive = leaf.clone().into_primitive().tensor();
        match (layout, shape.as_slice()) {
            (Input::Transposed, &[rows, cols]) => {
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

/// Largest difference over largest value.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(1e-12_f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs())) / largest
}

/// Ten times what burn.md measured, for other processors.
pub(super) const BOUND: f32 = 1e-5;

pub(super) fn assert_same(
    what: &str,
    inputs: &[(Vec<f32>, Vec<usize>)],
    fused: &dyn Fn(Vec<F>) -> F,
    plain: &dyn Fn(Vec<F>) -> F,
) {
    for upstream in [Upstream::Random, Upstream::Expanded, Upstream::Transposed] {
        for layout in [Input::Contiguous, Input::Transposed] {
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

pub(super) fn input(shape: &[usize], size: f32, seed: u64) -> (Vec<f32>, Vec<usize>) {
    (random(shape.iter().product(), size, seed), shape.to_vec())
}

/// The inputs as an array of the arity that an operator takes.
pub(super) fn array<const N: usize>(inputs: Vec<F>) -> [F; N] {
    inputs.try_into().unwrap()
}

/// The slope of the output along each input's gradient is that gradient's length.
pub(super) fn assert_slopes(
    what: &str,
    inputs: &[(Vec<f32>, Vec<usize>)],
    op: &dyn Fn(Vec<F>) -> F,
) {
    let run = |inputs: &[_]| run_with(inputs, Input::Contiguous, Upstream::Random, op);
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

#[test]
fn rms_norm_is_the_plain_form() {
    for (rows, width) in [(1, 3), (3, 7), (130, 64), (65, 200), (200, 65)] {
        let inputs = [input(&[rows, width], 2.0, 1), input(&[width], 1.0, 2)];
        assert_same(
            &format!("rms_norm [{rows}, {width}]"),
            &inputs,
            &|x| {
                let [x, w] = array(x);
                A::rms_norm(x, w, 1e-5)
            },
            &|x| {
                let [x, w] = array(x);
                plain::rms_norm::<A>(x, w, 1e-5)
            },
        );
    }
}

#[test]
fn projections_are_the_plain_form() {
    for (rows, ins, outs) in [(1, 1, 1), (5, 3, 7), (130, 33, 65), (64, 128, 96)] {
        let inputs = [
            input(&[rows, ins], 1.0, 1),
            input(&[outs, ins], 1.0, 2),
            input(&[rows, outs], 1.0, 3),
        ];
        let name = format!("project [{rows}, {ins}] to {outs}");
        assert_same(
            &name,
            &inputs[..2],
            &|x| {
                let [x, w] = array(x);
                A::project(x, w)
            },
            &|x| {
                let [x, w] = array(x);
                plain::project::<A>(x, w)
            },
        );
        assert_same(
            &format!("{name} and add"),
            &inputs,
            &|x| {
                let [x, w, r] = array(x);
                A::project_add(x, w, r)
            },
            &|x| {
                let [x, w, r] = array(x);
                plain::project_add::<A>(x, w, r)
            },
        );
    }
}

/// B, T, H, G, K: one token, odd lengths, more tokens than a block, grouped and single key-value
/// heads, odd K.
const SHAPES: [[usize; 5]; 8] = [
    [1, 1, 1, 1, 2],
    [2, 5, 4, 2, 6],
    [2, 40, 8, 2, 32],
    [1, 100, 4, 1, 64],
    [3, 64, 2, 2, 20],
    [1, 65, 6, 3, 48],
    [2, 129, 3, 3, 16],
    [1, 200, 2, 1, 8],
];

fn heads(shape: [usize; 5]) -> Heads {
    let [sequences, tokens, query, kv, size] = shape;
    Heads { sequences, tokens, query, kv, size }
}

#[test]
fn rotation_is_the_plain_form() {
    for shape in SHAPES {
        let heads = heads(shape);
        // The table may be longer than the sequence.
        let rope = Rope::new(heads.tokens + 3, heads.size, 10_000.0, None);
        let inputs = [input(&[heads.sequences * heads.tokens, heads.row()], 1.0, 1)];
        assert_same(
            &format!("rotate {shape:?}"),
            &inputs,
            &|x| {
                let [x] = array(x);
                A::rotate(x, heads, &rope)
            },
            &|x| {
                let [x] = array(x);
                plain::rotate::<A>(x, heads, &rope)
            },
        );
    }
}

/// The documents of rows in which one begins at every so-many-th position, another number in each
/// row.
fn documents(heads: Heads, every: usize) -> Documents {
    let number = |position: usize| {
        let (row, at) = (position / heads.tokens, position % heads.tokens);
        (at / (every + row)) as i32
    };
    let numbers: Vec<_> = (0..heads.sequences * heads.tokens).map(number).collect();
    Documents::packed(&numbers, heads.tokens)
}

#[test]
fn causal_attention_is_the_plain_form() {
    for shape in SHAPES {
        let heads = heads(shape);
        let inputs = [input(&[heads.sequences * heads.tokens, heads.row()], 2.0, 1)];
        // Documents shorter than a block, longer, and one for the whole row.
        for every in [1, 7, 70, 1000] {
            let documents = documents(heads, every);
            assert_same(
                &format!("attention {shape:?}, documents of {every}"),
                &inputs,
                &|x| {
                    let [x] = array(x);
                    A::causal_attention(x, heads, &documents)
                },
                &|x| {
                    let [x] = array(x);
                    plain::causal_attention::<A>(x, heads, &documents)
                },
            );
        }
    }
}

/// Three documents in one row give what each gives alone, to the last bit where no block holds two.
/// Of one new token and of several, with heads that share keys.
#[test]
fn attention_from_a_cache_is_the_plain_form() {
    for ([sequences, tokens, query, kv, size], new) in
        [([1, 1, 1, 1, 2], 1), ([2, 9, 4, 2, 6], 1), ([3, 70, 6, 2, 33], 7), ([1, 5, 2, 2, 64], 5)]
    {
        let heads = heads([sequences, tokens, query, kv, size]);
        let tensor = |rows: usize, width: usize, seed| {
            let data = TensorData::new(random(rows * width, 2.0, seed), [rows, width]);
            Flex::float_from_data(data, &Default::default())
        };
        let q = tensor(sequences * new, query * size, 1);
        let [k, v] = [2, 3].map(|seed| tensor(sequences * tokens, kv * size, seed));
        let fused = Flex::attend(q.clone(), k.clone(), v.clone(), heads);
        let plain = plain::attend::<Flex>([q, k, v], heads);
        let [fused, plain] = [fused, plain].map(|y| buf::floats(&buf::contiguous(y)).to_vec());
        assert!(distance(&fused, &plain) < BOUND, "{heads:?}, {new} new");
    }
}

#[test]
fn a_packed_document_sees_nothing_of_the_others() {
    let heads = heads([1, 200, 4, 2, 8]);
    let x = random(200 * heads.row(), 1.0, 5);
    let run = |x: &[f32], tokens: usize, documents: &Documents| {
        let heads = Heads { tokens, ..heads };
        let x = A::float_reshape(leaf(x).into_primitive().tensor(), [tokens, heads.row()].into());
        let y = A::causal_attention(x, heads, documents);
        values(Tensor::<A, 2>::from_primitive(TensorPrimitive::Float(y)))
    };
    let numbers: Vec<i32> = (0..200).map(|at| i32::from(at >= 64) + i32::from(at >= 150)).collect();
    let packed = run(&x, 200, &Documents::packed(&numbers, 200));
    let alone = [(0, 64), (64, 150), (150, 200)].map(|(start, end)| {
        let part = &x[start * heads.row()..end * heads.row()];
        run(part, end - start, &Documents::whole(end - start))
    });
    assert!(distance(&packed, &alone.concat()) < 1e-6);
    assert_eq!(packed[..128 * 32], alone.concat()[..128 * 32]);
}

#[test]
fn a_document_begins_where_the_number_changes() {
    let starts = |numbers: &[i32], length| Documents::packed(numbers, length).starts.to_vec();
    assert_eq!(starts(&[4, 4, 2, 2, 2, 4, 4, 4], 4), [0, 0, 2, 2, 0, 1, 1, 1]);
    assert_eq!(starts(&[7; 4], 4), Documents::whole(4).starts.to_vec());
}

#[test]
fn a_later_token_changes_nothing_before_it() {
    let heads = heads([1, 70, 4, 2, 8]);
    let mut x = random(70 * heads.row(), 1.0, 5);
    let run = |x: &[f32]| {
        let x = A::float_reshape(leaf(x).into_primitive().tensor(), [70, heads.row()].into());
        let y = A::causal_attention(x, heads, &Documents::whole(70));
        values(Tensor::<A, 2>::from_primitive(TensorPrimitive::Float(y)))
    };
    let before = run(&x);
    let changed = 66;
    x[changed * heads.row()..].fill(3.0);
    let after = run(&x);
    let width = heads.query * heads.size;
    assert_eq!(before[..changed * width], after[..changed * width]);
    assert_ne!(before[changed * width..], after[changed * width..]);
}

#[test]
fn swiglu_is_the_plain_form() {
    for (rows, width) in [(1, 1), (3, 7), (130, 64), (65, 43)] {
        assert_same(
            &format!("swiglu [{rows}, {width}]"),
            &[input(&[rows, 2 * width], 6.0, 1)],
            &|x| {
                let [x] = array(x);
                A::swiglu(x)
            },
            &|x| {
                let [x] = array(x);
                plain::swiglu::<A>(x)
            },
        );
    }
}

#[test]
fn cross_entropy_is_the_plain_form() {
    let losses = [
        ZLoss { weight: 0.0, form: ZForm::Max },
        ZLoss { weight: 2e-2, form: ZForm::Max },
        ZLoss { weight: 2e-2, form: ZForm::LogSumExp },
    ];
    for (rows, vocabulary) in [(1, 2), (3, 7), (130, 64), (65, 257)] {
        let targets: Vec<i32> = (0..rows).map(|i| (i * 31 % vocabulary) as i32).collect();
        let targets = TensorData::new(targets, [rows]);
        let targets = Tensor::<A, 1, Int>::from_data(targets, &Default::default()).into_primitive();
        for z_loss in losses {
            assert_same(
                &format!("cross entropy [{rows}, {vocabulary}] {z_loss:?}"),
                &[input(&[rows, vocabulary], 8.0, 1)],
                &|x| {
                    let [x] = array(x);
                    A::cross_entropy(x, targets.clone(), z_loss)
                },
                &|x| {
                    let [x] = array(x);
                    plain::cross_entropy::<A>(x, targets.clone(), z_loss)
                },
            );
        }
    }
}

/// Saturated values must not become NaN: logits and gates far beyond what f32's exponential
/// reaches.
#[test]
fn gradients_are_slopes() {
    let matrix = |rows, columns, seed| input(&[rows, columns], 1.0, seed);
    assert_slopes("rms norm", &[matrix(5, 7, 1), input(&[7], 1.0, 2)], &|x| {
        let [x, w] = array(x);
        A::rms_norm(x, w, 1e-5)
    });
    let inputs = [matrix(5, 7, 1), matrix(4, 7, 2), matrix(5, 4, 3)];
    assert_slopes("projections", &inputs, &|x| {
        let [x, w, r] = array(x);
        A::project_add(x.clone(), w.clone(), A::float_add(A::project(x, w), r))
    });
    let heads = heads([2, 9, 4, 2, 6]);
    let rope = Rope::new(heads.tokens, heads.size, 100.0, None);
    assert_slopes("rotation", &[matrix(18, heads.row(), 1)], &|x| {
        let [x] = array(x);
        A::rotate(x, heads, &rope)
    });
    for every in [100, 4] {
        assert_slopes("attention", &[matrix(18, heads.row(), 1)], &|x| {
            let [x] = array(x);
            A::causal_attention(x, heads, &documents(heads, every))
        });
    }
    assert_slopes("swiglu", &[matrix(5, 8, 1)], &|x| {
        let [x] = array(x);
        A::swiglu(x)
    });
    for form in [ZForm::Max, ZForm::LogSumExp] {
        assert_slopes("cross entropy", &[matrix(5, 8, 1)], &|x| {
            let [x] = array(x);
            let targets = Tensor::<A, 1, Int>::from_data([1, 7, 0, 3, 3], &Default::default());
            A::cross_entropy(x, targets.into_primitive(), ZLoss { weight: 0.1, form })
        });
    }
}

#[test]
fn extreme_inputs_stay_finite() {
    let swiglu = run_with(
        &[(vec![-1e4, 1e4, -200.0, 3.0, 2.0, 1.0, 1.0, 1.0], vec![1, 8])],
        Input::Contiguous,
        Upstream::Random,
        &|x| {
            let [x] = array(x);
            A::swiglu(x)
        },
    );
    let targets = Tensor::<A, 1, Int>::from_data([0, 1], &Default::default()).into_primitive();
    let z_loss = ZLoss { weight: 0.0, form: ZForm::Max };
    let entropy = run_with(
        &[(vec![1e4, -1e4, 0.0, 1e4, -1e4, 0.0], vec![2, 3])],
        Input::Contiguous,
        Upstream::Expanded,
        &|x| {
            let [x] = array(x);
            A::cross_entropy(x, targets.clone(), z_loss)
        },
    );
    assert!(
        swiglu.iter().chain(&entropy).flatten().all(|x| x.is_finite()),
        "{swiglu:?} {entropy:?}"
    );
    assert_eq!(entropy[0], [1e4]);
}

#[test]
fn adamw_and_square_sum_are_the_plain_form() {
    let step = AdamW {
        learning_rate: 3e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        correction1: 0.19,
        correction2: 0.0975,
        gradient_scale: 0.4,
    };
    for count in [1, 65, 40_000] {
        let tensor = |seed: u64, offset: f32| {
            let values: Vec<f32> = random(count, 1.0, seed).iter().map(|x| x + offset).collect();
            let data = TensorData::new(values, [count]);
            Tensor::<Flex, 1>::from_data(data, &Default::default()).into_primitive().tensor()
        };
        let inputs = || (tensor(1, 0.0), tensor(2, 0.0), [tensor(3, 0.0), tensor(4, 1.0)]);
        let (mut fused, mut plain) = (inputs(), inputs());
        Flex::adamw(&mut fused.0, fused.1, &mut fused.2, step);
        plain::adamw::<Flex>(&mut plain.0, plain.1, &mut plain.2, step);
        let ([m, v], [plain_m, plain_v]) = (fused.2, plain.2);
        for (fused, plain) in [(fused.0, plain.0), (m, plain_m), (v, plain_v)] {
            assert!(distance(buf::floats(&fused), buf::floats(&plain)) < 1e-6);
        }
        let (fused, plain) =
            (Flex::square_sum(tensor(1, 0.0)), plain::square_sum::<Flex>(tensor(1, 0.0)));
        assert!(distance(buf::floats(&fused), buf::floats(&plain)) < 1e-5);
    }
}

/// The same bits from one thread and from three, for every operator of one block.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
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
    let targets: Vec<i32> = (0..rows).map(|i| (i % 48) as i32).collect();
    let block = || {
        run_with(&inputs, Input::Contiguous, Upstream::Random, &|x| {
            let [x, norm, qkv, out, gate_up, down] = array(x);
            let h = A::project(A::rms_norm(x.clone(), norm.clone(), 1e-5), qkv);
            let h = A::causal_attention(A::rotate(h, heads, &rope), heads, &documents(heads, 90));
            let x = A::project_add(h, out, x);
            let h = A::swiglu(A::project(A::rms_norm(x.clone(), norm, 1e-5), gate_up));
            let x = A::project_add(h, down, x);
            let targets = TensorData::new(targets.clone(), [rows]);
            let targets = Tensor::<A, 1, Int>::from_data(targets, &Default::default());
            A::cross_entropy(x, targets.into_primitive(), ZLoss { weight: 1e-3, form: ZForm::Max })
        })
    };
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
