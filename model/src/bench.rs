//! Whether a device computes correctly, and how fast: the measurements behind `bench device`.
//!
//! [`check()`] is the check at each start on a GPU, with its distances; [`measure`] runs one
//! operator at any size, forward and backward. The results are plain numbers, and the caller judges
//! them. A failure on the device is an error only of the call in which it occurs.

use std::any::Any;
use std::iter;
use std::time::{Duration, Instant};

use burn_backend::tensor::FloatTensor;
use burn_tensor::Tensor;

use crate::config::Family;
use crate::data::draw::Draw;
use crate::ops::{Attention, Documents, FusedOps, Heads, Project, Wkv};
use crate::params;
use crate::train::check::{self, Farthest};
use crate::train::{Inner, Place, Tensors, TrainBackend, TrainError};
use crate::{Device, on};

/// The self-check of a device with a small model of one family.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The largest error over its bound: up to 1 is correct, above 1 or NaN is wrong.
    pub of_bound: f32,
    /// The quantity with this error, and the error itself.
    pub what: String,
    /// Time of the first step on the device, including the compilation of kernels.
    pub first: Duration,
    /// Time of the same step, repeated.
    pub second: Duration,
    /// Whether the repetition gave the same bits.
    pub same_again: bool,
    /// Whether the step gives the same bits in memory that was full of NaN before.
    pub same_in_used_memory: bool,
}

/// An operator at a size: what [`measure`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// y = x·Wᵀ. // x [rows, ins], W [outs, ins], y [rows, outs]
    Product {
        /// N, the number of inputs that share W.
        rows: usize,
        /// Width of each input, the columns of W.
        ins: usize,
        /// Width of each output, the rows of W.
        outs: usize,
    },
    /// Causal attention, each sequence one document.
    Attention(Heads),
    /// The recurrence, with a decay for each token.
    Wkv {
        /// B, sequences with a state of their own.
        sequences: usize,
        /// T, the tokens of each sequence.
        tokens: usize,
        /// H, heads with a state of their own.
        heads: usize,
        /// K, the width of each head: a state is K × K.
        size: usize,
    },
}

/// The measurement of an operator, forward and backward.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Time of the first call, including the compilation of kernels.
    pub first: Duration,
    /// Median time of the other calls.
    pub median: Duration,
    /// The number of the other calls, at least one.
    pub repeats: usize,
    /// Whether all calls gave the same bits.
    pub same: bool,
    /// The largest difference of an output or gradient over its largest value. A product is
    /// compared with sums in f64 on a random sample, the others with the CPU. It may be NaN.
    pub error: f32,
}

/// Checks a device with a small model of this family, three times.
///
/// # Errors
/// [`TrainError::Device`], [`TrainError::Lost`]
pub fn check(device: Device, family: Family) -> Result<Checked, TrainError> {
    on!(device, place => check_on(&place, family))
}

/// Runs an operator once and then `repeats` times; fewer, but at least once, if `limit` is
/// exceeded.
///
/// # Errors
/// [`TrainError::Device`], [`TrainError::Lost`]
pub fn measure(
    device: Device,
    subject: Subject,
    repeats: usize,
    limit: Duration,
) -> Result<Measured, TrainError> {
    on!(device, place => measure_on(&place, subject, repeats, limit))
}

/// Returns the memory that this thread keeps for later computations to the driver.
///
/// # Errors
/// [`TrainError::Device`], [`TrainError::Lost`]
pub fn release(device: Device) -> Result<(), TrainError> {
    on!(device, place => release_on(&place))
}

/// Takes about so many bytes of a device's memory, until the result is dropped.
///
/// # Errors
/// [`TrainError::Device`], [`TrainError::Lost`]
pub fn occupy(device: Device, bytes: u64) -> Result<Box<dyn Any>, TrainError> {
    on!(device, place => occupy_on(&place, bytes))
}

/// Three steps on the device: the first compiles kernels, the second has to give the same bits, and
/// the third does so in memory that was full of NaN.
fn check_on<A: TrainBackend>(place: &Place<A>, family: Family) -> Result<Checked, TrainError> {
    let work = check::work(family);
    let expected = check::step(&work, check::cpu())?;
    let step = || {
        let begin = Instant::now();
        check::step(&work, place.clone()).map(|computed| (computed, begin.elapsed()))
    };
    let (found, first) = step()?;
    let (again, second) = step()?;
    leave_dirt(place)?;
    let (dirty, _) = step()?;
    let Farthest { of_bound, what } = check::farthest(&work, &expected, &found);
    let [same_again, same_in_used_memory] = [again, dirty].map(|other| other.same_bits(&found));
    Ok(Checked { of_bound, what, first, second, same_again, same_in_used_memory })
}

/// Fills free memory with NaN, so that later allocations do not contain zeros.
fn leave_dirt<A: TrainBackend>(place: &Place<A>) -> Result<(), TrainError> {
    let full = |size| Tensor::<Inner<A>, 1>::full([size], f32::NAN, &place.device);
    let sizes = (3..23).flat_map(|bits| iter::repeat_n(1_usize << bits, 6));
    let dirty = place.over(|| Ok(sizes.map(full).collect::<Vec<_>>()))?;
    drop(dirty);
    Ok(())
}

/// Takes memory in tensors of 1 GiB, and the rest in one.
fn occupy_on<A: TrainBackend>(place: &Place<A>, bytes: u64) -> Result<Box<dyn Any>, TrainError> {
    let (whole, rest) = (bytes >> 30, (bytes % (1 << 30) / 4).max(1) as usize);
    let sizes = iter::repeat_n(1 << 28, whole as usize).chain([rest]);
    let taken = sizes.map(|size| Tensor::<Inner<A>, 1>::empty([size], &place.device));
    Ok(Box::new(place.over(|| Ok(taken.collect::<Vec<_>>()))?))
}

/// Hands the memory that the device keeps for later tensors back to the driver.
fn release_on<A: TrainBackend>(place: &Place<A>) -> Result<(), TrainError> {
    place.over(|| {
        A::memory_cleanup(&place.device);
        Ok(())
    })
}

impl Subject {
    /// Bytes in memory during a call: inputs, outputs, their gradients, and the output once more.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let outputs = self.output().iter().product::<usize>();
        8 * (params::count(&self.inputs()) + 2 * outputs) as u64
    }

    /// The shapes of the inputs, in the order in which the operator takes them.
    fn inputs(&self) -> Vec<Vec<usize>> {
        match *self {
            Self::Product { rows, ins, outs } => vec![vec![rows, ins], vec![outs, ins]],
            Self::Attention(heads) => vec![vec![heads.sequences * heads.tokens, heads.row()]],
            Self::Wkv { sequences, tokens, heads, size } => {
                let width = heads * size;
                let mut shapes = vec![vec![sequences * tokens, width]; 4];
                shapes.extend([vec![width], vec![sequences, heads, size, size]]);
                shapes
            }
        }
    }

    /// The shape of the one output that is measured.
    fn output(&self) -> Vec<usize> {
        match *self {
            Self::Product { rows, outs, .. } => vec![rows, outs],
            Self::Attention(heads) => {
                vec![heads.sequences * heads.tokens, heads.query * heads.size]
            }
            Self::Wkv { sequences, tokens, heads, size } => vec![sequences * tokens, heads * size],
        }
    }

    /// The values of all inputs, within ±1, except that a raw decay is from −6 to 2.
    fn values(&self) -> Vec<f32> {
        let mut values = random(params::count(&self.inputs()), 1);
        if let Self::Wkv { .. } = self {
            let count = self.output().iter().product::<usize>();
            values[3 * count..4 * count].iter_mut().for_each(|w| *w = 4.0 * *w - 2.0);
        }
        values
    }

    /// Runs the operator, with gradients tracked or without.
    fn run<A: FusedOps>(&self, inputs: &[FloatTensor<A>]) -> FloatTensor<A> {
        let input = |at: usize| inputs[at].clone();
        match *self {
            Self::Product { .. } => A::run(Project, [0, 1].map(input)),
            Self::Attention(heads) => {
                let documents = Documents::whole(heads.sequences * heads.tokens);
                A::run(Attention { heads, documents }, [0].map(input))
            }
            Self::Wkv { .. } => {
                let [y, _] = A::run_multi(Wkv, [0, 1, 2, 3, 4, 5].map(input));
                y
            }
        }
    }
}

/// The inputs of a subject on a device, and the gradient of its output.
struct Loaded<A: TrainBackend> {
    /// The operator at its size, whose passes are measured.
    subject: Subject,
    /// The inputs of the operator, in its order.
    inputs: Tensors<A>,
    /// One tensor, the gradient that the backward pass begins with.
    dy: Tensors<A>,
}

impl<A: TrainBackend> Loaded<A> {
    /// Copies both to the device, which is not part of what is timed.
    fn new(
        subject: Subject,
        values: &[f32],
        dy: &[f32],
        place: &Place<A>,
    ) -> Result<Self, TrainError> {
        place.over(|| {
            let inputs = params::upload::<Inner<A>>(&subject.inputs(), values, &place.device)?;
            let dy = params::upload::<Inner<A>>(&[subject.output()], dy, &place.device)?;
            Ok(Self { subject, inputs, dy })
        })
    }

    /// Computes the output, and the gradient of each input.
    fn forth_and_back(&self) -> Tensors<A> {
        let track =
            |x: &FloatTensor<Inner<A>>| A::float_set_require_grad(A::from_inner(x.clone()), true);
        let leaves: Vec<_> = self.inputs.iter().map(track).collect();
        let y = self.subject.run::<A>(&leaves);
        // burn starts the backward pass with a gradient of ones.
        let weighted = A::float_mul(y.clone(), A::from_inner(self.dy[0].clone()));
        let mut gradients = A::backward(weighted);
        #[expect(clippy::expect_used, reason = "every input takes part in the output")]
        let gradient =
            |leaf| A::grad_remove(leaf, &mut gradients).expect("a gradient for every input");
        iter::once(A::inner(y)).chain(leaves.iter().map(gradient)).collect()
    }
}

/// All values on the host, in the order of the tensors.
fn read<A: TrainBackend>(
    place: &Place<A>,
    tensors: Tensors<A>,
) -> Result<Vec<Vec<f32>>, TrainError> {
    let read = |tensor| Ok(params::values::<Inner<A>>(tensor)?);
    place.over(|| tensors.into_iter().map(read).collect())
}

/// Times calls from their launch until the device has finished, without the copy to the host.
///
/// The first call compiles kernels and is timed apart. At least one more follows, and then others
/// until there are `repeats` of them or `limit` is over. All have to give the bits of the first.
fn measure_on<A: TrainBackend>(
    place: &Place<A>,
    subject: Subject,
    repeats: usize,
    limit: Duration,
) -> Result<Measured, TrainError> {
    let start = Instant::now();
    let values = subject.values();
    let dy = random(subject.output().iter().product(), 2);
    let loaded = Loaded::new(subject, &values, &dy, place)?;
    let once = || {
        let begin = Instant::now();
        let computed = place.over(|| Ok(loaded.forth_and_back()))?;
        let time = begin.elapsed();
        Ok::<_, TrainError>((read(place, computed)?, time))
    };
    let (found, first) = once()?;
    let (mut times, mut same) = (Vec::new(), true);
    while times.is_empty() || (times.len() < repeats && start.elapsed() < limit) {
        let (again, time) = once()?;
        same &= check::same_bits(&found, &again);
        times.push(time);
    }
    times.sort_unstable();
    let error = error(subject, &values, &dy, &found)?;
    Ok(Measured { first, median: times[times.len() / 2], repeats: times.len(), same, error })
}

/// The largest error of an output or gradient. A product in f64 would take too long as a whole, so
/// only some of its numbers are computed again.
fn error(
    subject: Subject,
    values: &[f32],
    dy: &[f32],
    found: &[Vec<f32>],
) -> Result<f32, TrainError> {
    if let Subject::Product { rows, ins, outs } = subject {
        let (x, w) = values.split_at(rows * ins);
        return Ok(error_of_product([rows, ins, outs], [x, w, dy], found));
    }
    let cpu = check::cpu();
    let expected = read(&cpu, Loaded::new(subject, values, dy, &cpu)?.forth_and_back())?;
    Ok(check::largest(expected.iter().zip(found).map(|(a, b)| check::distance(a, b))))
}

/// The largest error of some random values of y, dx and dw.
fn error_of_product(
    [rows, ins, outs]: [usize; 3],
    [x, w, dy]: [&[f32]; 3],
    found: &[Vec<f32>],
) -> f32 {
    // By index: y = x·Wᵀ, dx = dy·W, dw = dyᵀ·x.
    let exact = |which: usize, at: usize| {
        let sum = match which {
            0 => dot((x, at / outs * ins, 1), (w, at % outs * ins, 1), ins),
            1 => dot((dy, at / ins * outs, 1), (w, at % ins, ins), outs),
            _ => dot((dy, at / ins, outs), (x, at % ins, ins), rows),
        };
        sum as f32
    };
    let mut draw = Draw::new(&[1; 32], 0, 0);
    check::largest(found.iter().enumerate().map(|(which, found)| {
        let mut index = || draw.below(found.len() as u64) as usize;
        let indices: Vec<usize> = (0..SAMPLES).map(|_| index()).collect();
        let expected: Vec<f32> = indices.iter().map(|at| exact(which, *at)).collect();
        let sample: Vec<f32> = indices.iter().map(|at| found[*at]).collect();
        check::distance(&expected, &sample)
    }))
}

/// The sum over k < `count` of the products of a[i + k·s], given as (a, i, s), and the same of b.
fn dot(a: (&[f32], usize, usize), b: (&[f32], usize, usize), count: usize) -> f64 {
    let at = |(x, start, step): (&[f32], usize, usize), k: usize| f64::from(x[start + k * step]);
    (0..count).map(|k| at(a, k) * at(b, k)).sum()
}

/// Numbers within ±1 from a fast generator (Knuth's MMIX), since a large product has 10⁸ of them.
fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Values of each output and gradient of a product that are computed again in f64.
const SAMPLES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_right_and_repeats_itself() {
        let heads = Heads { sequences: 2, tokens: 70, query: 4, kv: 2, size: 16 };
        for subject in [
            Subject::Product { rows: 33, ins: 20, outs: 17 },
            Subject::Attention(heads),
            Subject::Wkv { sequences: 2, tokens: 70, heads: 2, size: 16 },
        ] {
            let found = measure(Device::Cpu, subject, 2, Duration::from_secs(60)).unwrap();
            assert!(found.same && found.error < 1e-6 && found.repeats == 2, "{found:?}");
        }
    }

    #[test]
    fn an_error_of_a_product_is_seen() {
        let sizes = [3, 2, 2];
        let (x, w, dy) = (random(6, 1), random(4, 2), random(6, 3));
        let mut found = vec![vec![0.0; 6], vec![0.0; 6], vec![0.0; 4]];
        for n in 0..3 {
            for (o, i) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                found[0][n * 2 + o] += x[n * 2 + i] * w[o * 2 + i];
                found[1][n * 2 + i] += dy[n * 2 + o] * w[o * 2 + i];
                found[2][o * 2 + i] += dy[n * 2 + o] * x[n * 2 + i];
            }
        }
        let error = |found: &[Vec<f32>]| error_of_product(sizes, [&x, &w, &dy], found);
        assert!(error(&found) < 1e-6);
        for which in 0..3 {
            let mut wrong = found.clone();
            wrong[which].iter_mut().for_each(|x| *x *= 1.01);
            assert!(error(&wrong) > 5e-3, "{which}");
            wrong[which].fill(f32::NAN);
            assert!(error(&wrong).is_nan(), "{which}");
        }
    }
}
