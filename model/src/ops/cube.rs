//! The common part of GPU kernels: the backends that run them, products, and arguments of kernels.
//!
//! Kernels are written in CubeCL, so that one source gives CUDA and WGSL. They are launched without
//! CubeCL's check of every index, which puts a compare and a select around each load. Instead a
//! kernel clamps its indices, or compares them with the sizes in its arguments. [`launch`] launches
//! all of them and contains their `unsafe`.
//!
//! No sum depends on the order in which units run, so the same inputs give the same bits.

mod accumulate;
mod columns;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorMetadata as _};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, IntElement};
use burn_std::tensor::is_contiguous;
use cubecl::prelude::*;
use cubecl::{calculate_cube_count_elemwise, client::ComputeClient};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::std::InputBinding;

pub(super) use self::accumulate::add_all;
pub(super) use self::columns::sum_rows;
use super::node::{Back, BackOfMany};

/// A backend of CubeCL with 32-bit floats.
pub trait GpuBackend: Backend<FloatTensorPrimitive = CubeTensor<Self::Runtime>> {
    /// The runtime of CubeCL: CUDA or wgpu.
    type Runtime: CubeRuntime;
}

impl<R: CubeRuntime, I: IntElement, T: BoolElement> GpuBackend for CubeBackend<R, f32, I, T> {
    type Runtime = R;
}

/// The output of kernels with N inputs, and their backward pass.
pub(super) type OnGpu<B, const N: usize> = (FloatTensor<B>, Back<B, N>);

/// The same for kernels with M outputs.
pub(super) type OnGpuOfMany<B, const N: usize, const M: usize> =
    ([FloatTensor<B>; M], BackOfMany<B, N, M>);

/// An uninitialised tensor of this shape on the device of `like`. Rows are not padded. A kernel has
/// to write every element.
pub(super) fn empty<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
) -> CubeTensor<R> {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), DType::F32)
}

/// The tensor itself if it is contiguous, else a contiguous copy. Kernels index as if there were no
/// strides.
pub(super) fn contiguous<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    into_contiguous(x)
}

/// Launches a kernel of this crate. Arguments: its path, a tensor on its device, the numbers of
/// cubes and units, and the arguments of the kernel. Tensors at the begin of these stand in
/// brackets, and become arguments by [`arg`].
macro_rules! launch {
    ($kernel:ident $(::$part:ident)* $(<$generic:ty>)?, $like:expr, $cubes:expr, [$($tensor:expr),+] $(, $argument:expr)* $(,)?) => {
        $crate::ops::cube::launch!(
            $kernel$(::$part)*$(<$generic>)?, $like, $cubes, $($crate::ops::cube::arg($tensor)),+ $(, $argument)*
        )
    };
    ($kernel:ident $(::$part:ident)* $(<$generic:ty>)?, $like:expr, $cubes:expr, $($argument:expr),+ $(,)?) => {{
        let (count, dim) = $cubes;
        #[expect(unsafe_code, reason = "kernels clamp every index, or compare it with the sizes that they are given")]
        unsafe {
            $kernel$(::$part)*::launch_unchecked$(::<$generic, _>)?(&$like.client, count, dim, $($argument),+);
        }
    }};
}
pub(super) use launch;

/// One unit for each of `count` numbers, for kernels whose excess units do nothing. A cube has 256
/// units.
pub(super) fn units<R: CubeRuntime>(like: &CubeTensor<R>, count: usize) -> (CubeCount, CubeDim) {
    let client: &ComputeClient<R> = &like.client;
    let dim = CubeDim::new_1d(256);
    (calculate_cube_count_elemwise(client, count, dim), dim)
}

/// The number of elements of a tensor.
pub(super) fn count<R: CubeRuntime>(x: &CubeTensor<R>) -> usize {
    x.shape().num_elements()
}

/// A tensor's parts along its first dimension, as views. // x [M, ..]; each [..]
pub(super) fn parts<B: GpuBackend, const M: usize>(x: FloatTensor<B>) -> [FloatTensor<B>; M] {
    let shape = x.shape();
    std::array::from_fn(|at| {
        let part = B::float_slice(x.clone(), &[(at..at + 1).into()]);
        B::float_reshape(part, shape[1..].to_vec().into())
    })
}

/// σ(x) = 1/(1 + e⁻ˣ), for use inside kernels.
#[cube]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0f32 / (1.0f32 + (0.0f32 - x).exp())
}

/// exp x for x ≤ 0. Near 1 it avoids WGSL's exp, whose errors in the last place would accumulate in
/// a state over thousands of tokens.
#[cube]
pub(super) fn exp_of(x: f32) -> f32 {
    select(
        x > -0.03f32,
        1.0f32 + x * (1.0f32 + x * (0.5f32 + x * (0.16666667f32 + x * 0.041666667f32))),
        x.exp(),
    )
}

/// A contiguous tensor as a kernel's argument.
pub(super) fn arg<R: CubeRuntime>(x: &CubeTensor<R>) -> TensorArg<R> {
    x.clone().into_tensor_arg()
}

/// Swaps the last two dimensions of a tensor, as a view: no element moves.
pub(super) fn turned<B: GpuBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let rank = x.shape().num_dims();
    B::float_swap_dims(x, rank - 2, rank - 1)
}

/// a·b by 32-bit multiply-adds. The strategy is fixed, because cubek's own choice is TF32 where a
/// GPU has it. // a [.., N, I], b [.., I, O], the same leading dimensions; y [.., N, O]
///
/// # Panics
/// If neither strategy has a kernel for these shapes.
pub(super) fn product<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>) -> CubeTensor<R> {
    let mut shape = a.shape();
    let last = shape.num_dims() - 1;
    shape[last] = b.shape()[last];
    let (y, a, b) = (empty(&a, shape), matrices(a), matrices(b));
    let (client, dtype) = (y.client.clone(), DType::F32.into());
    // The first that succeeds depends only on the device and the shape.
    let strategies = [Strategy::SimpleUnit(Default::default()), Strategy::Naive];
    let launched = strategies.iter().any(|strategy| {
        let globals = MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype };
        let mut types = MatmulElems::from_globals(&globals);
        let [a, b] = [&a, &b].map(|x| InputBinding::new(x.clone().binding(), dtype));
        launch_ref(strategy, &client, a, b, y.clone().binding(), &mut types).is_ok()
    });
    assert!(launched, "no kernel of cubek multiplies {:?} by {:?}", a.shape(), b.shape());
    y
}

/// The same matrices, consecutive in memory, each by rows or by columns. For matrices whose heads
/// are interleaved, cubek 0.2 computes wrong results.
fn matrices<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let rank = x.meta.num_dims();
    let (mut shape, mut strides) = (x.meta.shape().clone(), x.meta.strides().clone());
    shape.swap(rank - 2, rank - 1);
    strides.swap(rank - 2, rank - 1);
    if is_contiguous(&shape, &strides) { x } else { contiguous(x) }
}
