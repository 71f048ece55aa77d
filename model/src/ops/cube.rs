//! What kernels for GPUs share: the backends that run them, products, and how a tensor reaches a kernel.
//!
//! Kernels are written in CubeCL, so that one source is CUDA and WGSL. They are launched without CubeCL's check of
//! every index, which puts a compare and a select around each load: a kernel clamps its indices, or compares them with
//! the sizes that it is given, and its launch says so beside `unsafe`.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorMetadata as _};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, IntElement};
use burn_std::tensor::is_contiguous;
use cubecl::prelude::TensorArg;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::std::InputBinding;

use super::node::{Back, BackOfMany};

/// A backend of CubeCL with numbers of 32 bits.
pub trait GpuBackend: Backend<FloatTensorPrimitive = CubeTensor<Self::Runtime>> {
    /// CUDA or wgpu.
    type Runtime: CubeRuntime;
}

impl<R: CubeRuntime, I: IntElement, T: BoolElement> GpuBackend for CubeBackend<R, f32, I, T> {
    type Runtime = R;
}

/// What kernels computed of N inputs, and the way back.
pub(super) type OnGpu<B, const N: usize> = (FloatTensor<B>, Back<B, N>);

/// The same of M outputs.
pub(super) type OnGpuOfMany<B, const N: usize, const M: usize> =
    ([FloatTensor<B>; M], BackOfMany<B, N, M>);

/// A tensor of that shape beside `like`, filled with whatever was there. Rows are not padded.
pub(super) fn empty<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
) -> CubeTensor<R> {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), DType::F32)
}

/// The same values in the order of their indices.
pub(super) fn contiguous<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    into_contiguous(x)
}

/// A contiguous tensor as a kernel's argument.
pub(super) fn arg<R: CubeRuntime>(x: &CubeTensor<R>) -> TensorArg<R> {
    x.clone().into_tensor_arg()
}

/// Exchanges the last two dimensions.
pub(super) fn turned<B: GpuBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let rank = x.shape().num_dims();
    B::float_swap_dims(x, rank - 2, rank - 1)
}

/// a·b by multiply-adds of 32 bits: the strategy is fixed, because cubek's own choice takes TF32 where a GPU has it.
/// // a [.., N, I], b [.., I, O], the same leading dimensions; y [.., N, O]
pub(super) fn product<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>) -> CubeTensor<R> {
    let mut shape = a.shape();
    let last = shape.num_dims() - 1;
    shape[last] = b.shape()[last];
    let (y, a, b) = (empty(&a, shape), matrices(a), matrices(b));
    let (client, dtype) = (y.client.clone(), DType::F32.into());
    // Which of them takes the job depends on nothing but the device and the shape.
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

/// The same matrices, one after the other, each by rows or by columns. Of those whose heads lie side by side
/// cubek 0.2 makes other numbers.
fn matrices<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let rank = x.meta.num_dims();
    let (mut shape, mut strides) = (x.meta.shape().clone(), x.meta.strides().clone());
    shape.swap(rank - 2, rank - 1);
    strides.swap(rank - 2, rank - 1);
    if is_contiguous(&shape, &strides) { x } else { contiguous(x) }
}
