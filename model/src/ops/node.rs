//! One autodiff node for every operator with a backward pass of its own.
//!
//! A node holds the closure that its operator's forward pass returned for the backward pass; if no
//! input is tracked, the closure is dropped at once. A node of burn's graph has one output, so an
//! operator with several becomes a node for the whole, followed by one for each output. The
//! gradients of the outputs reach the node for the whole through shared memory, not through the
//! graph.

use std::fmt::{Debug, Formatter, Result};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType};

/// Computes the gradients of N inputs from that of the output.
pub(super) type Back<B, const N: usize> =
    Box<dyn FnOnce(FloatTensor<B>) -> [FloatTensor<B>; N] + Send + 'static>;

/// The same for M outputs; an unused output has no gradient.
pub(super) type BackOfMany<B, const N: usize, const M: usize> =
    Box<dyn FnOnce([Option<FloatTensor<B>>; M]) -> [FloatTensor<B>; N] + Send + 'static>;

/// A tensor whose gradient is tracked.
pub(super) type Variable<B> = FloatTensor<Autodiff<B>>;

/// Runs an operator on the inputs' tensors, and adds its node to the graph. Without a tracked input
/// no node is added.
///
/// `compute_bound` tells burn's checkpointing to keep the output instead of computing it again.
pub(super) fn track<B: Backend, const N: usize>(
    inputs: [Variable<B>; N],
    forward: impl FnOnce([FloatTensor<B>; N]) -> (FloatTensor<B>, Back<B, N>),
) -> Variable<B> {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    let (output, back) = forward(inputs.map(|input| input.primitive));
    match Node::<B, N>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(Once::new(back), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// The same for an operator with several outputs.
///
/// Each output is a node behind the whole one. In the backward pass burn visits a node after all
/// nodes that use it. So every output that has a gradient has left it in `gradients` before the
/// whole's closure takes them.
pub(super) fn track_many<B: Backend, const N: usize, const M: usize>(
    inputs: [Variable<B>; N],
    forward: impl FnOnce([FloatTensor<B>; N]) -> ([FloatTensor<B>; M], BackOfMany<B, N, M>),
) -> [Variable<B>; M] {
    // A placeholder that passes through the graph instead of the outputs.
    let device = B::float_device(&inputs[0].primitive);
    let nothing = B::float_empty([1].into(), &device, FloatDType::F32);
    let gradients = Arc::new(Mutex::new([const { None }; M]));
    let mut outputs = None;
    let whole = track(inputs, |inputs| {
        let (computed, back) = forward(inputs);
        outputs = Some(computed);
        let gradients = gradients.clone();
        let back = move |_| back(lock(&gradients).each_mut().map(Option::take));
        (nothing.clone(), Box::new(back))
    });
    let mut index = 0;
    #[expect(clippy::expect_used, reason = "`track` runs what it is given")]
    let outputs = outputs.expect("the operator has run");
    outputs.map(|output| {
        let (gradients, nothing, at) = (gradients.clone(), nothing.clone(), index);
        index += 1;
        track([whole.clone()], |_| {
            let back = move |gradient| {
                lock(&gradients)[at] = Some(gradient);
                [nothing]
            };
            (output, Box::new(back))
        })
    })
}

/// The one type of node; the operator is in its state.
#[derive(Debug)]
struct Node<B, const N: usize>(PhantomData<fn() -> B>);

impl<B: Backend, const N: usize> Backward<B, N> for Node<B, N> {
    type State = Once<B, N>;

    /// Takes the gradient of this node and adds those of its inputs to theirs. An input that is not
    /// tracked has no parent, and its gradient is dropped. A second call does nothing.
    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let Some(back) = ops.state.take() else { return };
        for (parent, gradient) in ops.parents.into_iter().zip(back(gradient)) {
            if let Some(parent) = parent {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// A backward pass that runs once. burn requires `Clone`, but does not use it.
#[derive(Clone)]
struct Once<B: Backend, const N: usize>(Arc<Mutex<Option<Back<B, N>>>>);

impl<B: Backend, const N: usize> Once<B, N> {
    /// Keeps a backward pass until it runs.
    fn new(back: Back<B, N>) -> Self {
        Self(Arc::new(Mutex::new(Some(back))))
    }

    /// The backward pass, once: the tensors that it keeps are freed with it.
    fn take(&self) -> Option<Back<B, N>> {
        lock(&self.0).take()
    }
}

impl<B: Backend, const N: usize> Debug for Once<B, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Once")
    }
}

/// Locks although a thread may have panicked: the value is replaced as a whole, never changed in
/// part.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
