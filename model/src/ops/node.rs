//! One autodiff node for every fused operator.
//!
//! burn-autodiff asks of an operator a forward, a backward and a state that waits between the two.
//! [`FlexOp`] is just that, on plain CPU tensors; [`apply`] turns any of them into a node of burn's
//! graph. Integer inputs and scalars live in the operator itself.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};

use super::buf::make;

/// An operator of `N` float tensors with a backward pass of its own.
pub(super) trait FlexOp<const N: usize>: Clone + Debug + Send + 'static {
    /// What the backward pass needs. Clones of tensors are references: saving an input costs
    /// nothing.
    type Saved: Clone + Debug + Send + 'static;

    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The gradient of each input, contiguous, from the gradient of the output, which may be
    /// strided.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor) -> [FlexTensor; N];
}

#[derive(Debug)]
struct Node<O>(PhantomData<O>);

impl<O: FlexOp<N>, const N: usize> Backward<Flex, N> for Node<O> {
    type State = (O, O::Saved);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (op, saved) = ops.state;
        for (parent, gradient) in ops.parents.into_iter().zip(op.backward(saved, gradient)) {
            if let Some(parent) = parent {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// An operator with `M` outputs, each with a gradient of its own.
pub(super) trait FlexSplit<const N: usize, const M: usize>:
    Clone + Debug + Send + 'static
{
    /// As [`FlexOp::Saved`].
    type Saved: Clone + Debug + Send + 'static;

    fn forward(&self, inputs: [FlexTensor; N]) -> ([FlexTensor; M], Self::Saved);

    /// The gradient of each input from those of the outputs; an output that took no part has none.
    fn backward(&self, saved: Self::Saved, gradients: [Option<FlexTensor>; M]) -> [FlexTensor; N];
}

/// Runs `op`. A node of burn's graph has one output, so the operator becomes a node for the whole and,
/// behind it, one for each output; what these have for that one does not go through the graph.
pub(super) fn apply_split<O: FlexSplit<N, M>, const N: usize, const M: usize>(
    op: O,
    inputs: [FloatTensor<Autodiff<Flex>>; N],
) -> [FloatTensor<Autodiff<Flex>>; M] {
    let between = Between(Arc::new(Mutex::new(std::array::from_fn(|_| None))));
    let whole = apply(Whole { op, between: between.clone() }, inputs);
    std::array::from_fn(|index| apply(Output { index, between: between.clone() }, [whole.clone()]))
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

impl<O: FlexSplit<N, M>, const N: usize, const M: usize> FlexOp<N> for Whole<O, M> {
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

impl<const M: usize> FlexOp<1> for Output<M> {
    type Saved = ();

    fn forward(&self, _: [FlexTensor; 1]) -> (FlexTensor, ()) {
        #[expect(clippy::expect_used, reason = "`apply_split` makes one node for each output")]
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

/// An operator with a second output, through which no gradient flows.
pub(super) trait FlexPair<const N: usize>: FlexOp<N> {
    /// The second output, which the forward pass left among what it saved.
    fn second(saved: &Self::Saved) -> FlexTensor;
}

/// Runs `op` and, where an input is tracked, leaves its node in the graph.
pub(super) fn apply<O: FlexOp<N>, const N: usize>(
    op: O,
    inputs: [FloatTensor<Autodiff<Flex>>; N],
) -> FloatTensor<Autodiff<Flex>> {
    apply_and(op, inputs, |_| ()).0
}

/// [`apply`] of an operator with two outputs.
pub(super) fn apply_both<O: FlexPair<N>, const N: usize>(
    op: O,
    inputs: [FloatTensor<Autodiff<Flex>>; N],
) -> [FloatTensor<Autodiff<Flex>>; 2] {
    let (first, second) = apply_and(op, inputs, O::second);
    [first, <Autodiff<Flex> as AutodiffBackend>::from_inner(second)]
}

fn apply_and<O: FlexOp<N>, T, const N: usize>(
    op: O,
    inputs: [FloatTensor<Autodiff<Flex>>; N],
    also: impl FnOnce(&O::Saved) -> T,
) -> (FloatTensor<Autodiff<Flex>>, T) {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    let inputs = inputs.map(|input| input.primitive);
    match Node::<O>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = op.forward(inputs);
            let also = also(&saved);
            (prepared.finish((op, saved), output), also)
        }
        OpsKind::UnTracked(prepared) => {
            let (output, saved) = op.forward(inputs);
            (prepared.finish(output), also(&saved))
        }
    }
}
