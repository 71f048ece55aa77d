//! One autodiff node for every operator by hand.
//!
//! burn-autodiff asks of an operator a forward, a backward and a state that waits between the two;
//! [`Tracked`] is just that, on contiguous CPU tensors. A node of burn's graph has one output, so
//! an operator with several becomes a node for the whole and, behind it, one for each output; what
//! these have for that one does not go through the graph.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};

use super::buf::{contiguous, make};
use super::operator::{MultiOutput, Operator};

/// A tensor whose gradient is tracked.
type Variable = FloatTensor<Autodiff<Flex>>;

/// What a node does.
trait Tracked<const N: usize>: Clone + Debug + Send + 'static {
    type Saved: Clone + Debug + Send + 'static;

    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];
}

impl<O: Operator<N>, const N: usize> Tracked<N> for O {
    type Saved = O::Saved;

    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved) {
        Operator::forward(self, inputs)
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N] {
        Operator::backward(self, saved, gradient)
    }
}

#[derive(Debug)]
struct Node<O>(PhantomData<O>);

impl<O: Tracked<N>, const N: usize> Backward<Flex, N> for Node<O> {
    type State = (O, O::Saved);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = contiguous(gradients.consume::<Flex>(&ops.node));
        let (op, saved) = ops.state;
        for (parent, gradient) in ops.parents.into_iter().zip(op.backward(saved, gradient)) {
            if let Some(parent) = parent {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// Runs `op` and, where an input is tracked, leaves its node in the graph.
pub(super) fn apply<O: Operator<N>, const N: usize>(op: O, inputs: [Variable; N]) -> Variable {
    track(op, inputs)
}

/// The same of an operator with several outputs.
pub(super) fn apply_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
    op: O,
    inputs: [Variable; N],
) -> [Variable; M] {
    let between = Between(Arc::new(Mutex::new(std::array::from_fn(|_| None))));
    let whole = track(Whole { op, between: between.clone() }, inputs);
    std::array::from_fn(|index| track(Output { index, between: between.clone() }, [whole.clone()]))
}

fn track<O: Tracked<N>, const N: usize>(op: O, inputs: [Variable; N]) -> Variable {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    let (output, saved) = op.forward(inputs.map(|input| contiguous(input.primitive)));
    match Node::<O>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish((op, saved), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// Outputs on their way forward, and their gradients on the way back.
#[derive(Clone, Debug)]
struct Between<const M: usize>(Arc<Mutex<[Option<FlexTensor>; M]>>);

impl<const M: usize> Between<M> {
    fn lock(&self) -> MutexGuard<'_, [Option<FlexTensor>; M]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
struct Whole<O, const M: usize> {
    op: O,
    between: Between<M>,
}

impl<O: MultiOutput<N, M>, const N: usize, const M: usize> Tracked<N> for Whole<O, M> {
    type Saved = O::Saved;

    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved) {
        let (outputs, saved) = self.op.forward(inputs);
        *self.between.lock() = outputs.map(Some);
        (nothing(), saved)
    }

    fn backward(&self, saved: Self::Saved, _: FlexTensor) -> [FlexTensor; N] {
        let gradients = self.between.lock().each_mut().map(Option::take);
        self.op.backward(saved, gradients)
    }
}

#[derive(Clone, Debug)]
struct Output<const M: usize> {
    index: usize,
    between: Between<M>,
}

impl<const M: usize> Tracked<1> for Output<M> {
    type Saved = ();

    fn forward(&self, _: [FlexTensor; 1]) -> (FlexTensor, ()) {
        #[expect(clippy::expect_used, reason = "`apply_multi` makes one node for each output")]
        let output = self.between.lock()[self.index].take().expect("an output is taken once");
        (output, ())
    }

    fn backward(&self, (): (), gradient: FlexTensor) -> [FlexTensor; 1] {
        self.between.lock()[self.index] = Some(gradient);
        [nothing()]
    }
}

/// What goes through the graph instead.
fn nothing() -> FlexTensor {
    make([1], |_| ())
}
