//! Converts between burn-flex tensors and `f32` slices, without a copy where the layout permits,
//! and owns the memory of new tensors.
//!
//! Operators read contiguous slices. A gradient may be strided (`sum().backward()` sends an
//! expanded scalar, burn's own matmul a transposed view): [`contiguous`] copies those and returns
//! others unchanged.
//!
//! Every step allocates and frees some hundred megabytes, always in the same sizes. The system's
//! allocator returns large blocks to the kernel, and touching fresh pages costs more than many
//! compute kernels. So large buffers are kept in a pool by size ([`Pooled`]) and reused: after the
//! first step nothing is allocated any more. While shapes stay the same, the pool holds no more
//! than one step needs; [`release`] empties it when they change.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use burn_backend::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};
use burn_std::{AllocationController, AllocationProperty};

/// The tensor itself if it is contiguous, else a contiguous copy.
pub(super) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// The elements of a contiguous tensor, in the order of its dimensions, the last one fastest.
pub(super) fn floats(tensor: &FlexTensor) -> &[f32] {
    #[expect(
        clippy::expect_used,
        reason = "operators call `contiguous` first; Flex floats are f32"
    )]
    tensor.as_slice::<f32>().expect("a contiguous f32 tensor")
}

/// The elements for writing. Copies the buffer first if it has another owner, or is part of a
/// larger one.
pub(super) fn floats_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    // `storage_mut` returns the whole buffer and ignores the offset of a view.
    let whole = tensor.storage::<f32>().len() == tensor.layout().num_elements();
    if !whole || !tensor.is_contiguous() || !tensor.is_unique() {
        let source = contiguous(tensor.clone());
        let shape = tensor.layout().shape().clone();
        *tensor = make(shape, |data| data.copy_from_slice(floats(&source)));
    }
    tensor.storage_mut::<f32>()
}

/// A new contiguous tensor whose elements `fill` writes. It must write all of them, since they
/// contain the data of a former tensor.
///
/// An operator that fills the tensor later passes an empty closure and calls [`floats_mut`].
pub(super) fn make(shape: impl Into<Shape>, fill: impl FnOnce(&mut [f32])) -> FlexTensor {
    let shape = shape.into();
    let count = shape.num_elements();
    let bytes = if count < POOLED_MIN {
        Bytes::from_elems(vec![0.0_f32; count])
    } else {
        Pooled::bytes(count)
    };
    let mut tensor = FlexTensor::new(bytes, Layout::contiguous(shape), DType::F32);
    fill(tensor.storage_mut::<f32>());
    tensor
}

/// Returns the memory of idle buffers to the system. Buffers in use come back to the pool when they
/// are dropped.
pub(super) fn release() {
    let idle = std::mem::take(&mut *POOL.lock().unwrap_or_else(PoisonError::into_inner));
    drop(idle);
}

/// One cache line, to which buffers are aligned.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Idle buffers by length. Bounded by the number of buffers of each length that were live at the
/// same time since the last [`release`].
static POOL: Mutex<BTreeMap<usize, Vec<Box<[Line]>>>> = Mutex::new(BTreeMap::new());

/// Buffers of at least this many elements are pooled; malloc itself reuses smaller ones (glibc's
/// mmap threshold is 128 KiB).
const POOLED_MIN: usize = 1 << 14;

/// The memory of one tensor, which returns to the pool when the last reference is dropped. Its
/// length is fixed, so it fits only requests of the same number of cache lines.
struct Pooled(Box<[Line]>);

impl Pooled {
    /// Initialised memory for `count` elements with arbitrary contents.
    fn bytes(count: usize) -> Bytes {
        let lines = count.div_ceil(16);
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = pool.get_mut(&lines).and_then(Vec::pop);
        drop(pool);
        let memory = idle.unwrap_or_else(|| vec![Line([0.0; 16]); lines].into_boxed_slice());
        #[expect(unsafe_code, reason = "burn takes foreign memory by this constructor only")]
        // SAFETY: the controller owns at least `4 * count` bytes, all initialised, at alignment 64.
        unsafe {
            Bytes::from_controller(Box::new(Self(memory)), 4 * count)
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.entry(memory.len()).or_default().push(memory);
    }
}

#[expect(unsafe_code, reason = "the trait hands out memory as bytes")]
impl AllocationController for Pooled {
    fn alloc_align(&self) -> usize {
        align_of::<Line>()
    }

    /// Other memory than burn's own: burn may neither grow it nor take it over.
    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    fn memory(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: lines are initialised plain bytes without padding, borrowed as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(&*self.0)) }
    }

    unsafe fn memory_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: as above, borrowed uniquely; the caller promises to write initialised bytes only.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), size_of_val(&*self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One length for malloc, and one for the pool.
    const COUNTS: [usize; 2] = [100, 2 * POOLED_MIN];

    #[test]
    fn writing_to_one_reference_leaves_the_others_alone() {
        for count in COUNTS {
            let mut tensor = make([count], |x| x.fill(1.0));
            let other = tensor.clone();
            floats_mut(&mut tensor).fill(2.0);
            assert!(floats(&other).iter().all(|&x| x == 1.0));
            assert!(floats(&tensor).iter().all(|&x| x == 2.0));
        }
    }

    #[test]
    fn a_part_of_a_buffer_is_written_without_its_surroundings() {
        for count in COUNTS {
            let whole = make([count, 2], |x| x.fill(1.0));
            let mut part = whole.narrow(0, 10, 20);
            assert_eq!(floats_mut(&mut part).len(), 40);
            floats_mut(&mut part).fill(2.0);
            assert!(floats(&whole).iter().all(|&x| x == 1.0));
            let mut turned = whole.transpose(0, 1);
            floats_mut(&mut turned)[0] = 3.0;
            assert_eq!(floats(&turned)[..2], [3.0, 1.0]);
        }
    }

    /// Memory from the pool is aligned, has the requested size, and is reused.
    #[test]
    fn pooled_memory_is_used_again() {
        for round in 0..3 {
            let tensors: Vec<_> =
                (0..4).map(|i| make([POOLED_MIN + i], |x| x.fill(i as f32))).collect();
            for (i, tensor) in tensors.iter().enumerate() {
                let values = floats(tensor);
                assert_eq!((values.len(), values.as_ptr().align_offset(64)), (POOLED_MIN + i, 0));
                assert!(values.iter().all(|&x| x == i as f32));
            }
            if round == 1 {
                release();
            }
        }
    }
}
