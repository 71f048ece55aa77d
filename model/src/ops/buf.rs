//! Between burn-flex tensors and `f32` slices, without a copy where the layout allows.
//!
//! Operators read contiguous slices. A gradient may arrive strided (`sum().backward()` sends an expanded scalar,
//! burn's own matmul a transposed view): [`contiguous`] copies those and passes the rest through.

use burn_backend::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};

/// The tensor itself where it is contiguous, a contiguous copy where it is strided.
pub(super) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// The elements of a contiguous tensor.
pub(super) fn floats(tensor: &FlexTensor) -> &[f32] {
    #[expect(
        clippy::expect_used,
        reason = "every operator calls `contiguous` first, and Flex floats are f32"
    )]
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}

/// The elements of a contiguous integer tensor (burn-flex keeps `Int` as i32).
pub(super) fn ints(tensor: &FlexTensor) -> &[i32] {
    #[expect(clippy::expect_used, reason = "made contiguous by the caller; Flex integers are i32")]
    tensor.as_slice::<i32>().expect("a contiguous i32 tensor")
}

/// The elements for writing. Copies the buffer first when someone else still holds it.
pub(super) fn floats_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    // `storage_mut` is the whole buffer and ignores the offset of a view.
    if tensor.storage::<f32>().len() != tensor.layout().num_elements() || !tensor.is_contiguous() {
        *tensor = owned(floats(&contiguous(tensor.clone())), tensor.layout().shape().clone());
    }
    tensor.storage_mut::<f32>()
}

/// A new contiguous tensor that `fill` writes; it sees zeros.
pub(super) fn make(shape: impl Into<Shape>, fill: impl FnOnce(&mut [f32])) -> FlexTensor {
    let shape = shape.into();
    let mut data = vec![0.0; shape.num_elements()];
    fill(&mut data);
    from_vec(data, shape)
}

fn owned(data: &[f32], shape: Shape) -> FlexTensor {
    from_vec(data.to_vec(), shape)
}

fn from_vec(data: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(data), Layout::contiguous(shape), DType::F32)
}
