//! The operators of the RWKV families on CPU tensors: which kernel runs on which slices, and what
//! waits for the backward pass.

use burn_backend::TensorMetadata;
use burn_flex::FlexTensor;

use super::super::buf::{contiguous, floats, floats_mut, make};
use super::super::gemm::{Mat, MatMut, Threads, Write, product};
use super::super::node::{FlexOp, FlexPair, FlexSplit};
use super::super::rows as common;
use super::gates;
use super::mix;
use super::rows::{self, Norm, Shifted, Weights};
use super::wkv::{self, Gradients, Inputs, Outputs, Shape};
use super::{Pieces, Weighs};

/// The forward pass alone of an operator with two outputs.
pub(super) fn run_both<O: FlexPair<N>, const N: usize>(
    op: O,
    inputs: [FlexTensor; N],
) -> [FlexTensor; 2] {
    let (first, saved) = op.forward(inputs);
    [first, O::second(&saved)]
}

/// The forward pass alone of an operator with any number of outputs.
pub(super) fn run_split<O: FlexSplit<N, M>, const N: usize, const M: usize>(
    op: O,
    inputs: [FlexTensor; N],
) -> [FlexTensor; M] {
    op.forward(inputs).0
}

fn norm_of<'a>(w: &'a FlexTensor, b: &'a FlexTensor, heads: usize, eps: f32) -> Norm<'a> {
    Norm { w: floats(w), b: floats(b), group: w.shape()[0] / heads, eps }
}

/// `[D]` each, from the sums `[2D]`.
fn halves(sums: &[f32]) -> [FlexTensor; 2] {
    let (dw, db) = sums.split_at(sums.len() / 2);
    [dw, db].map(|half| make([half.len()], |y| y.copy_from_slice(half)))
}

#[derive(Clone, Debug)]
pub(super) struct LayerNorm {
    pub(super) eps: f32,
}

impl FlexOp<3> for LayerNorm {
    /// x, w, b
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let [x, w, b] = inputs.map(contiguous);
        let norm = norm_of(&w, &b, 1, self.eps);
        let y = make(x.shape(), |y| rows::norm(floats(&x), None, norm, y));
        (y, [x, w, b])
    }

    fn backward(&self, [x, w, b]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let norm = norm_of(&w, &b, 1, self.eps);
        let mut sums = vec![0.0; 2 * w.shape()[0]];
        let dx = make(x.shape(), |dx| {
            rows::norm_grad(floats(&dy), floats(&x), norm, dx, &mut sums);
        });
        let [dw, db] = halves(&sums);
        [dx, dw, db]
    }
}

#[derive(Clone, Debug)]
pub(super) struct NormGate {
    pub(super) heads: usize,
    pub(super) eps: f32,
}

impl FlexOp<4> for NormGate {
    /// x, g, w, b
    type Saved = [FlexTensor; 4];

    fn forward(&self, inputs: [FlexTensor; 4]) -> (FlexTensor, Self::Saved) {
        let [x, g, w, b] = inputs.map(contiguous);
        let norm = norm_of(&w, &b, self.heads, self.eps);
        let y = make(x.shape(), |y| rows::norm(floats(&x), Some(floats(&g)), norm, y));
        (y, [x, g, w, b])
    }

    fn backward(&self, [x, g, w, b]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 4] {
        let dy = contiguous(dy);
        let norm = norm_of(&w, &b, self.heads, self.eps);
        let mut sums = vec![0.0; 2 * w.shape()[0]];
        let mut dg = make(g.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let outputs = [dx, floats_mut(&mut dg)];
            rows::norm_gate_grad(floats(&dy), [floats(&x), floats(&g)], norm, outputs, &mut sums);
        });
        let [dw, db] = halves(&sums);
        [dx, dg, dw, db]
    }
}

fn shifted<'a>(x: &'a FlexTensor, before: &'a FlexTensor) -> Shifted<'a> {
    Shifted { x: floats(x), before: floats(before), width: x.shape()[1] }
}

#[derive(Clone, Debug)]
pub(super) struct ShiftMix {
    pub(super) weighs: Weighs,
}

impl FlexOp<3> for ShiftMix {
    /// x, mu, before
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let [x, mu, before] = inputs.map(contiguous);
        let weights = Weights { mu: floats(&mu), weighs: self.weighs };
        let y = make(x.shape(), |y| rows::shift(shifted(&x, &before), weights, y));
        (y, [x, mu, before])
    }

    fn backward(&self, [x, mu, before]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let weights = Weights { mu: floats(&mu), weighs: self.weighs };
        let mut dmu = make(mu.shape(), |_| ());
        let mut dbefore = make(before.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let outputs = [dx, floats_mut(&mut dmu), floats_mut(&mut dbefore)];
            rows::shift_grad(floats(&dy), shifted(&x, &before), weights, outputs);
        });
        [dx, dmu, dbefore]
    }
}

#[derive(Clone, Debug)]
pub(super) struct DataMix<const M: usize> {
    pub(super) pieces: Pieces,
}

impl<const M: usize> DataMix<M> {
    fn inputs<'a>(&self, [x, a, w, mu, before]: [&'a FlexTensor; 5]) -> mix::Inputs<'a> {
        let [a, w, mu] = [a, w, mu].map(floats);
        mix::Inputs { rows: shifted(x, before), a, w, mu, pieces: self.pieces }
    }
}

impl<const M: usize> FlexSplit<5, M> for DataMix<M> {
    /// x, a, w, mu, before
    type Saved = [FlexTensor; 5];

    fn forward(&self, inputs: [FlexTensor; 5]) -> ([FlexTensor; M], Self::Saved) {
        let inputs = inputs.map(contiguous);
        let mut ys = std::array::from_fn(|_| make(inputs[0].shape(), |_| ()));
        mix::forward(self.inputs(inputs.each_ref()), ys.each_mut().map(floats_mut));
        (ys, inputs)
    }

    fn backward(&self, saved: Self::Saved, dys: [Option<FlexTensor>; M]) -> [FlexTensor; 5] {
        let shape = saved[0].shape();
        let dys =
            dys.map(|dy| dy.map_or_else(|| make(shape.clone(), |dy| dy.fill(0.0)), contiguous));
        let mut gradients = saved.each_ref().map(|input| make(input.shape(), |_| ()));
        let [x, a, w, mu, before] = gradients.each_mut().map(floats_mut);
        if M * self.pieces.rank < saved[1].shape()[1] {
            a.fill(0.0);
            w.fill(0.0);
        }
        let outputs = mix::Gradients { x, a, w, mu, before };
        mix::backward(self.inputs(saved.each_ref()), dys.each_ref().map(floats), outputs);
        gradients
    }
}

/// y = x·W or y += x·W. // x [N, I], w [I, O], y [N, O]
fn multiply(y: &mut [f32], write: Write, x: &FlexTensor, w: &FlexTensor) {
    let _timer = super::super::clock::start("low rank");
    let [rows, inputs, outputs] = [x.shape()[0], w.shape()[0], w.shape()[1]];
    let (x, w) = (Mat::new(floats(x), rows, inputs), Mat::new(floats(w), inputs, outputs));
    product(MatMut::new(y, rows, outputs), write, x, w, Threads::Pool);
}

/// Gradients of x and W in y = x·W.
fn multiply_grad(x: &FlexTensor, w: &FlexTensor, dy: &FlexTensor) -> [FlexTensor; 2] {
    let _timer = super::super::clock::start("low rank back");
    let [rows, inputs, outputs] = [x.shape()[0], w.shape()[0], w.shape()[1]];
    let d = Mat::new(floats(dy), rows, outputs);
    let dx = make(x.shape(), |dx| {
        let w = Mat::new(floats(w), inputs, outputs);
        product(MatMut::new(dx, rows, inputs), Write::Replace, d, w.t(), Threads::Pool);
    });
    let dw = make(w.shape(), |dw| {
        let x = Mat::new(floats(x), rows, inputs);
        product(MatMut::new(dw, inputs, outputs), Write::Replace, x.t(), d, Threads::Pool);
    });
    [dx, dw]
}

#[derive(Clone, Debug)]
pub(super) struct TanhProject;

impl FlexOp<2> for TanhProject {
    /// x, w, y
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let [x, w] = inputs.map(contiguous);
        let y = make([x.shape()[0], w.shape()[1]], |y| {
            multiply(y, Write::Replace, &x, &w);
            gates::tanh_in_place(y);
        });
        (y.clone(), [x, w, y])
    }

    fn backward(&self, [x, w, y]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let mut d = contiguous(dy);
        gates::tanh_grad(floats(&y), floats_mut(&mut d));
        multiply_grad(&x, &w, &d)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Expand;

impl FlexOp<3> for Expand {
    /// a, w, and how many dimensions the base has
    type Saved = ([FlexTensor; 2], usize);

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let [a, w, base] = inputs.map(contiguous);
        let rank = base.shape().num_dims();
        let y = make([a.shape()[0], w.shape()[1]], |y| {
            if rank == 1 {
                rows::repeat(y, floats(&base));
            } else {
                common::copy(y, floats(&base));
            }
            multiply(y, Write::Add, &a, &w);
        });
        (y, ([a, w], rank))
    }

    fn backward(&self, ([a, w], rank): Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let [da, dw] = multiply_grad(&a, &w, &dy);
        let dbase = match rank {
            1 => make([w.shape()[1]], |d| rows::sum_rows(floats(&dy), d)),
            _ => dy,
        };
        [da, dw, dbase]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Wkv;

/// What a recurrence leaves: its inputs r, k, v, w, u, state; the states before its chunks; the last.
type WkvSaved = ([FlexTensor; 6], FlexTensor, FlexTensor);

fn wkv_shape(r: &FlexTensor, state: &FlexTensor) -> Shape {
    let [sequences, heads, size] = [0, 1, 2].map(|i| state.shape()[i]);
    Shape { sequences, tokens: r.shape()[0] / sequences, heads, size }
}

fn wkv_inputs(inputs: &[FlexTensor; 6]) -> Inputs<'_> {
    let [r, k, v, w, u, state] = inputs.each_ref().map(floats);
    Inputs { r, k, v, w, u, state }
}

impl FlexOp<6> for Wkv {
    type Saved = WkvSaved;

    fn forward(&self, inputs: [FlexTensor; 6]) -> (FlexTensor, Self::Saved) {
        let inputs = inputs.map(contiguous);
        let shape = wkv_shape(&inputs[0], &inputs[5]);
        let mut kept = make([shape.kept_in_all()], |_| ());
        let mut last = make(inputs[5].shape(), |_| ());
        let y = make(inputs[0].shape(), |y| {
            let (kept, last) = (floats_mut(&mut kept), floats_mut(&mut last));
            wkv::forward(wkv_inputs(&inputs), shape, Outputs { y, kept, last });
        });
        (y, (inputs, kept, last))
    }

    fn backward(&self, (inputs, kept, _): Self::Saved, dy: FlexTensor) -> [FlexTensor; 6] {
        let dy = contiguous(dy);
        let shape = wkv_shape(&inputs[0], &inputs[5]);
        let mut gradients = inputs.each_ref().map(|input| make(input.shape(), |_| ()));
        let [r, k, v, w, u, state] = gradients.each_mut().map(floats_mut);
        let outputs = Gradients { r, k, v, w, u, state };
        wkv::backward(wkv_inputs(&inputs), shape, floats(&kept), floats(&dy), outputs);
        gradients
    }
}

impl FlexPair<6> for Wkv {
    fn second((_, _, last): &WkvSaved) -> FlexTensor {
        last.clone()
    }
}

#[derive(Clone, Debug)]
pub(super) struct DecayedKeys;

impl FlexOp<2> for DecayedKeys {
    /// k, w
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 2]) -> (FlexTensor, Self::Saved) {
        let [k, w] = inputs.map(contiguous);
        (make(k.shape(), |y| gates::decayed_keys(floats(&k), floats(&w), y)), [k, w])
    }

    fn backward(&self, [k, w]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 2] {
        let dy = contiguous(dy);
        let mut dw = make(w.shape(), |_| ());
        let dk = make(k.shape(), |dk| {
            let outputs = [dk, floats_mut(&mut dw)];
            gates::decayed_keys_grad(floats(&k), floats(&w), floats(&dy), outputs);
        });
        [dk, dw]
    }
}

#[derive(Clone, Debug)]
pub(super) struct ReluSquare;

impl FlexOp<1> for ReluSquare {
    /// y, which the product behind it holds as well: x is not needed any more
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, Self::Saved) {
        let mut y = contiguous(x);
        gates::relu_square(floats_mut(&mut y));
        (y.clone(), y)
    }

    fn backward(&self, y: Self::Saved, dy: FlexTensor) -> [FlexTensor; 1] {
        let mut d = contiguous(dy);
        gates::relu_square_grad(floats(&y), floats_mut(&mut d));
        [d]
    }
}

#[derive(Clone, Debug)]
pub(super) struct GatedAdd;

impl FlexOp<3> for GatedAdd {
    /// r, x
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Self::Saved) {
        let [r, x, residual] = inputs.map(contiguous);
        let y = make(x.shape(), |y| {
            gates::gated_add(floats(&r), floats(&x), floats(&residual), y);
        });
        (y, [r, x])
    }

    fn backward(&self, [r, x]: Self::Saved, dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let mut dr = make(r.shape(), |_| ());
        let dx = make(x.shape(), |dx| {
            let outputs = [floats_mut(&mut dr), dx];
            gates::gated_add_grad(floats(&r), floats(&x), floats(&dy), outputs);
        });
        [dr, dx, dy]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pack;

impl FlexOp<3> for Pack {
    type Saved = ();

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, ()) {
        let parts = inputs.map(contiguous);
        let [rows, width] = [parts[0].shape()[0], parts[0].shape()[1]];
        let y = make([rows, 3 * width], |y| {
            gates::interleave(gates::Pack::Join(parts.each_ref().map(floats), y), width);
        });
        (y, ())
    }

    fn backward(&self, (): (), dy: FlexTensor) -> [FlexTensor; 3] {
        let dy = contiguous(dy);
        let [rows, width] = [dy.shape()[0], dy.shape()[1] / 3];
        let mut parts: [FlexTensor; 3] = std::array::from_fn(|_| make([rows, width], |_| ()));
        let outputs = parts.each_mut().map(floats_mut);
        gates::interleave(gates::Pack::Split(floats(&dy), outputs), width);
        parts
    }
}
