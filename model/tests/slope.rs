//! Whole models compared with finite differences: the gradient of each parameter, along its own
//! direction, is the slope of the loss. No reference program and no file is needed.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of a test are tests")]

use burn_autodiff::Autodiff;
use burn_backend::TensorData;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_flex::Flex;
use intellect_model::arch::{Arch, Rows};
use intellect_model::config::{Model, Work};
use intellect_model::ops::{CrossEntropy, Documents, FusedOps, ZForm, ZLoss};
use intellect_model::{genesis, params};

type A = Autodiff<Flex>;

const LENGTH: usize = 96;

/// The loss and the gradient of one row of tokens.
fn run(arch: &Arch, theta: &[f32], rows: &Rows) -> (f64, Vec<f32>) {
    let parameters = params::upload::<Flex>(&arch.shapes(), theta, &Default::default()).unwrap();
    let leaves: Vec<_> = parameters
        .into_iter()
        .map(|p| {
            A::float_set_require_grad(<A as burn_backend::AutodiffBackend>::from_inner(p), true)
        })
        .collect();
    let squares = |by: i32| (0..LENGTH as i32).map(move |i| i * i % by);
    let ids = TensorData::new(squares(61).collect::<Vec<_>>(), [LENGTH]);
    let ids = A::int_from_data(ids, &Default::default());
    let z_loss = ZLoss { weight: 1e-2, form: ZForm::LogSumExp };
    let logits = arch.logits::<A>(&leaves, ids, rows);
    let loss = A::run(CrossEntropy { targets: squares(53).collect(), z_loss }, [logits]);
    let mut value = [0.0];
    params::download::<Flex>(std::slice::from_ref(&loss.primitive), &mut value).unwrap();
    let mut gradients = <A as burn_backend::AutodiffBackend>::backward(loss);
    let gradients = leaves.iter().map(|leaf| {
        <A as burn_backend::AutodiffBackend>::grad_remove(leaf, &mut gradients).unwrap()
    });
    let mut flat = vec![0.0; theta.len()];
    params::download::<Flex>(&gradients.collect::<Vec<_>>(), &mut flat).unwrap();
    (f64::from(value[0]), flat)
}

fn assert_gradient_is_the_slope(model: &Model, rows: &Rows) {
    let arch = Arch::new(model);
    let specs = arch.specs();
    // The weights are large enough that no part of the model is nearly linear.
    let mut theta = genesis::weights(7, &specs);
    theta.iter_mut().for_each(|x| *x *= if x.abs() < 0.2 { 8.0 } else { 1.0 });
    let (_, gradient) = run(&arch, &theta, rows);
    let mut at = 0;
    for spec in specs {
        let part = at..at + spec.len();
        at = part.end;
        let squares = gradient[part.clone()].iter().map(|g| f64::from(*g).powi(2));
        let length = squares.sum::<f64>().sqrt();
        let moved = |distance: f64| {
            let mut theta = theta.clone();
            for (x, g) in theta[part.clone()].iter_mut().zip(&gradient[part.clone()]) {
                *x += (distance * f64::from(*g) / length) as f32;
            }
            run(&arch, &theta, rows).0
        };
        let h = 2e-3 / length.max(0.05);
        let slope = (moved(h) - moved(-h)) / (2.0 * h);
        assert!((slope / length - 1.0).abs() < 1e-2, "{}: {slope} against {length}", spec.name);
    }
}

fn llama() -> Model {
    let mut model = Work::synthetic().model;
    (model.layers, model.width, model.heads, model.kv_heads) = (2, 48, 4, 2);
    (model.ffn, model.context, model.vocab) = (72, LENGTH, 64);
    model
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    assert_gradient_is_the_slope(&llama(), &Rows::whole(1, LENGTH));
}

#[test]
fn the_gradient_of_packed_documents_is_the_slope_of_the_loss() {
    let numbers: Vec<i32> = (0..LENGTH).map(|i| i32::from(i >= 20) + i32::from(i >= 70)).collect();
    let documents = Documents::packed(&numbers, LENGTH);
    let rows = Rows { documents, ..Rows::whole(1, LENGTH) };
    assert_gradient_is_the_slope(&llama(), &rows);
}
