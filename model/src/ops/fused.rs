//! Selects the form of an operator that a backend runs.
//!
//! | backend | form |
//! |---|---|
//! | `Flex` | the hand-written one, and what it saves is dropped |
//! | `Autodiff<Flex>` | the hand-written one, as one node of the graph |
//! | CubeCL, with gradients or without | our own kernels, else the plain one |
//! | all others | the plain one |
//!
//! An operator has no kernels of ours where its `on_gpu` answers `None`, as for some sizes. An
//! [`Untracked`] operator under `Autodiff` is not overridden, so burn differentiates its plain form.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::buf::contiguous;
use super::node::{Variable, track, track_many};
use super::operator::{FusedOps, MultiOutput, Operator, Untracked};

/// Without gradients: what `forward` saved for a backward pass is dropped at once.
impl FusedOps for Flex {
    fn run<O: Operator<N>, const N: usize>(op: O, inputs: [FlexTensor; N]) -> FlexTensor {
        op.forward(inputs.map(contiguous)).0
    }

    fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FlexTensor; N],
    ) -> [FlexTensor; M] {
        op.forward(inputs.map(contiguous)).0
    }

    fn untracked<O: Untracked<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [FlexTensor; N],
    ) -> [FlexTensor; M] {
        op.forward(inputs.map(contiguous))
    }

    fn map_each<T: Send, R: Send>(items: Vec<T>, map: impl Fn(T) -> R + Send + Sync) -> Vec<R> {
        items.into_par_iter().map(map).collect()
    }
}

/// With gradients: what `forward` saved belongs to the node, and is freed when its backward pass
/// has run. A gradient may arrive as a strided view, and is made contiguous here, so that no
/// operator has to look.
impl FusedOps for Autodiff<Flex> {
    fn run<O: Operator<N>, const N: usize>(op: O, inputs: [Variable<Flex>; N]) -> Variable<Flex> {
        track(inputs, |inputs| {
            let (output, saved) = op.forward(inputs.map(contiguous));
            (output, Box::new(move |dy| op.backward(saved, contiguous(dy))))
        })
    }

    fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
        op: O,
        inputs: [Variable<Flex>; N],
    ) -> [Variable<Flex>; M] {
        track_many(inputs, |inputs| {
            let (outputs, saved) = op.forward(inputs.map(contiguous));
            let back = move |dys: [Option<FlexTensor>; M]| {
                op.backward(saved, dys.map(|dy| dy.map(contiguous)))
            };
            (outputs, Box::new(back))
        })
    }
}

/// The plain form on the CPU, under another checkpointing strategy: tests compare the hand-written
/// form with it.
impl FusedOps for Autodiff<Flex, BalancedCheckpointing> {}

#[cfg(feature = "cube")]
mod on_gpus {
    //! Our own kernels where an operator has some, else the plain form.

    use burn_backend::tensor::FloatTensor;
    use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, IntElement};

    use super::super::cube::add_all;
    use super::*;

    /// A backend of CubeCL with 32-bit floats, of any runtime: CUDA or wgpu.
    type Gpu<R, I, T> = CubeBackend<R, f32, I, T>;

    /// Without gradients: the backward pass that `on_gpu` returns is dropped at once. Inputs are
    /// cloned, which copies no number, because the plain form needs them where there is no kernel.
    impl<R: CubeRuntime, I: IntElement, T: BoolElement> FusedOps for Gpu<R, I, T> {
        fn run<O: Operator<N>, const N: usize>(
            op: O,
            inputs: [FloatTensor<Self>; N],
        ) -> FloatTensor<Self> {
            match op.on_gpu::<Self>(inputs.clone()) {
                Some((output, _)) => output,
                None => op.plain::<Self>(inputs),
            }
        }

        fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
            op: O,
            inputs: [FloatTensor<Self>; N],
        ) -> [FloatTensor<Self>; M] {
            match op.on_gpu::<Self>(inputs.clone()) {
                Some((outputs, _)) => outputs,
                None => op.plain::<Self>(inputs),
            }
        }

        fn untracked<O: Untracked<N, M>, const N: usize, const M: usize>(
            op: O,
            inputs: [FloatTensor<Self>; N],
        ) -> [FloatTensor<Self>; M] {
            op.on_gpu::<Self>(inputs)
        }

        fn add_all(
            sums: Vec<FloatTensor<Self>>,
            more: Vec<FloatTensor<Self>>,
        ) -> Vec<FloatTensor<Self>> {
            add_all::<Self>(sums, more)
        }
    }

    /// With gradients: kernels become one node of the graph. Without kernels the plain form runs on
    /// the tracked tensors, so that burn differentiates each of its steps.
    impl<R: CubeRuntime, I: IntElement, T: BoolElement> FusedOps for Autodiff<Gpu<R, I, T>> {
        fn run<O: Operator<N>, const N: usize>(
            op: O,
            inputs: [Variable<Gpu<R, I, T>>; N],
        ) -> Variable<Gpu<R, I, T>> {
            let primitives = inputs.each_ref().map(|input| input.primitive.clone());
            match op.on_gpu::<Gpu<R, I, T>>(primitives) {
                Some(computed) => track(inputs, |_| computed),
                None => op.plain::<Self>(inputs),
            }
        }

        fn run_multi<O: MultiOutput<N, M>, const N: usize, const M: usize>(
            op: O,
            inputs: [Variable<Gpu<R, I, T>>; N],
        ) -> [Variable<Gpu<R, I, T>>; M] {
            let primitives = inputs.each_ref().map(|input| input.primitive.clone());
            match op.on_gpu::<Gpu<R, I, T>>(primitives) {
                Some(computed) => track_many(inputs, |_| computed),
                None => op.plain::<Self>(inputs),
            }
        }
    }
}
