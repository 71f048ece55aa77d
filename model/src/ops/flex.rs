//! The operators on CPU tensors: which kernel runs on which slices, and what waits for the backward
//! pass.
//!
//! Saving a tensor keeps a reference. Two operators mutate their input in place, because in a model
//! nobody else holds it: [`Rotate`] turns a fresh projection, [`CrossEntropy`] turns logits into
//! their gradient. Where someone does hold it, copy-on-write makes it merely slower.

use burn_backend::TensorMetadata;
use burn_flex::FlexTensor;

use super::buf::{contiguous, floats, floats_mut, ints, make};
use super::gemm::{self, Linear, Write};
use super::node::FlexOp;
use super::rows::{self, Turn};
use super::{AdamW, Documents, Heads, Rope, ZLoss, attention};

/// The forward pass alone.
pub(super) fn run<O: FlexOp<N>, const N: usize>(op: O, inputs: [FlexTensor; N]) -> FlexTensor {
    op.forward(inputs).0
}

#[derive(Clone, Debug)]
pub(super) struct RmsNorm {
    pub(super) eps: f32,
}

impl FlexOp<2> for RmsNorm {
    /// x, w, 1/√(mean(x²) + eps) of each row
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let [x, w] = inputs.map(contiguous);
        let mut rstd = make([x.shape()[0]], |_| ());
        let y = make(x.shape(), |y| {
            rows::rms_norm(floats(&x), floats(&w), self.eps, y, floats_mut(&mut rstd));
        });
        (y, [x, w, rstd])
    }

    fn backward(&self, [x, w, rstd]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let dy = contiguous(dy);
        let mut dw = make(w.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            rows::rms_norm_grad(
                floats(&dy),
                floats(&x),
                floats(&w),
                floats(&rstd),
                dx,
                floats_mut(&mut dw),
            );
        });
        [dx, dw]
    }
}

fn sizes(x: &FlexTensor, w: &FlexTensor) -> Linear {
    Linear { rows: x.shape()[0], inputs: w.shape()[1], outputs: w.shape()[0] }
}

#[derive(Clone, Debug)]
pub(super) struct Project;

impl FlexOp<2> for Project {
    /// x, w
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let [x, w] = inputs.map(contiguous);
        let shape = sizes(&x, &w);
        let y = make([shape.rows, shape.outputs], |y| {
            gemm::linear(y, Write::Replace, floats(&x), floats(&w), shape);
        });
        (y, [x, w])
    }

    fn backward(&self, [x, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let dy = contiguous(dy);
        let shape = sizes(&x, &w);
        let dx = make(x.shape(), |dx| gemm::linear_dx(dx, floats(&dy), floats(&w), shape));
        let dw = make(w.shape(), |dw| gemm::linear_dw(dw, floats(&dy), floats(&x), shape));
        [dx, dw]
    }
}

#[derive(Clone, Debug)]
pub(super) struct ProjectAdd;

impl FlexOp<3> for ProjectAdd {
    /// x, w
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let [x, w, r] = inputs.map(contiguous);
        let shape = sizes(&x, &w);
        let y = make(r.shape(), |y| {
            rows::copy(y, floats(&r));
            gemm::linear(y, Write::Add, floats(&x), floats(&w), shape);
        });
        (y, [x, w])
    }

    fn backward(&self, saved: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let [dx, dw] = Project.backward(saved, dy.clone());
        [dx, dw, dy]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Rotate {
    pub(super) heads: Heads,
    pub(super) rope: Rope,
}

impl Rotate {
    fn turn(&self, x: FlexTensor, turn: Turn) -> FlexTensor {
        let mut x = contiguous(x);
        rows::rope(floats_mut(&mut x), self.heads, &self.rope, turn);
        x
    }
}

impl FlexOp<1> for Rotate {
    type Saved = ();

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, ()) {
        (self.turn(x, Turn::Forward), ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 1] {
        [self.turn(dy, Turn::Back)]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Attention {
    pub(super) heads: Heads,
    pub(super) documents: Documents,
}

impl FlexOp<1> for Attention {
    /// qkv, y, log Σ exp of each row of scores
    type Saved = [FlexTensor; 3];

    fn forward(&self, [qkv]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let qkv = contiguous(qkv);
        let Heads { sequences, tokens, query, size, .. } = self.heads;
        let mut lse = make([sequences * query * tokens], |_| ());
        let y = make([sequences * tokens, query * size], |y| {
            let inputs = self.inputs(&qkv);
            attention::forward(inputs, y, floats_mut(&mut lse));
        });
        (y.clone(), [qkv, y, lse])
    }

    fn backward(&self, [qkv, y, lse]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let dy = contiguous(dy);
        let inputs = self.inputs(&qkv);
        let saved = attention::Saved { o: floats(&y), lse: floats(&lse), d_o: floats(&dy) };
        [make(qkv.shape(), |dqkv| attention::backward(inputs, saved, dqkv))]
    }
}

impl Attention {
    fn inputs<'a>(&'a self, qkv: &'a FlexTensor) -> attention::Inputs<'a> {
        attention::Inputs { qkv: floats(qkv), starts: &self.documents.starts, heads: self.heads }
    }
}

/// Attention from a cache, without a gradient.
pub(super) fn attend(inputs: [FlexTensor; 3], heads: Heads) -> FlexTensor {
    let [q, k, v] = inputs.map(contiguous);
    make(q.shape(), |o| {
        let (q, k, v) = (floats(&q), floats(&k), floats(&v));
        attention::attend(attention::Cached { q, k, v, heads }, o);
    })
}

#[derive(Clone, Debug)]
pub(super) struct SwiGlu;

impl FlexOp<1> for SwiGlu {
    /// gate_up
    type Saved = FlexTensor;

    fn forward(&self, [gate_up]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let gate_up = contiguous(gate_up);
        let [rows, width] = [gate_up.shape()[0], gate_up.shape()[1] / 2];
        (make([rows, width], |y| rows::swiglu(floats(&gate_up), width, y)), gate_up)
    }

    fn backward(&self, gate_up: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let dy = contiguous(dy);
        let width = gate_up.shape()[1] / 2;
        [make(gate_up.shape(), |dx| rows::swiglu_grad(floats(&gate_up), floats(&dy), width, dx))]
    }
}

#[derive(Clone, Debug)]
pub(super) struct CrossEntropy {
    pub(super) targets: FlexTensor,
    pub(super) z_loss: ZLoss,
}

impl FlexOp<1> for CrossEntropy {
    /// The gradient of the logits: it costs nothing more while the loss is computed.
    type Saved = FlexTensor;

    fn forward(&self, [logits]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let (mut logits, targets) = (contiguous(logits), contiguous(self.targets.clone()));
        let vocabulary = logits.shape()[1];
        let loss =
            rows::cross_entropy(floats_mut(&mut logits), vocabulary, ints(&targets), self.z_loss);
        (make([1], |y| y.fill(loss)), logits)
    }

    fn backward(&self, mut dx: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let dy = contiguous(dy);
        let factor = floats(&dy)[0];
        if factor != 1.0 {
            rows::scale(floats_mut(&mut dx), factor);
        }
        [dx]
    }
}

pub(super) fn square_sum(x: FlexTensor) -> FlexTensor {
    let x = contiguous(x);
    make([1], |y| y.fill(rows::square_sum(floats(&x))))
}

pub(super) fn adamw(
    parameter: &mut FlexTensor,
    gradient: FlexTensor,
    moments: &mut [FlexTensor; 2],
    step: AdamW,
) {
    let gradient = contiguous(gradient);
    let [m, v] = moments;
    rows::adamw(floats_mut(parameter), floats(&gradient), floats_mut(m), floats_mut(v), step);
}
