//! The formula of each method, for one tensor in pieces.
//!
//! With base B, models Mᵢ, task vectors dᵢ = Mᵢ − B, weights aᵢ, densities pᵢ, n numbers:
//!
//! - linear (Wortsman et al. 2022): Σ aᵢMᵢ, divided by Σ aᵢ.
//! - slerp (Shoemake 1985): with θ the angle of M₀ and M₁, (sin((1−t)θ)M₀ + sin(tθ)M₁) / sin θ, and
//!   on the straight line where |cos θ| > 0.9995. nuslerp: t = a₁/(a₀+a₁), with a base on dᵢ.
//! - task arithmetic (Ilharco et al. 2023): B + λ Σ aᵢdᵢ.
//! - ties (Yadav et al. 2023): of each dᵢ the ⌊pᵢn⌋ largest entries stay. Each entry elects the
//!   sign of Σ aᵢdᵢ; the others drop out, and the rest is divided by the sum of its weights.
//! - dare (Yu et al. 2024): each entry stays with probability pᵢ. What stays is scaled to the sum
//!   of magnitudes that all had, as mergekit does it, not by 1/pᵢ.
//! - breadcrumbs (Davari and Belilovsky 2024): the ⌊γn⌋ largest drop out, the next ⌊pᵢn⌋ stay.
//! - model stock (Jang et al. 2024): c the mean cosine between the N task vectors, t = Nc / (1 +
//!   (N−1)c): t mean(Mᵢ) + (1−t)B.
//!
//! Where entries are equally large, the first of them are the larger ones.
//!
//! `affine.rs` has the formulas with one factor for each input, and `task.rs` those that drop
//! entries. Both read their inputs through [`Streams`], a block of each at a time.

mod affine;
mod task;

use super::{MergeError, Method};
use crate::hf::input::Numbers;

/// One tensor to make, and all that its formula needs.
pub struct TensorMerge<'a> {
    /// The formula that makes the tensor.
    pub method: Method,
    /// B, if the formula has one. Slerp has one model, and begins at the base.
    pub base: Option<&'a dyn Numbers>,
    /// Mᵢ with their factors, the base not among them.
    pub models: Vec<Operand<'a>>,
    /// Numbers in a row: the last dimension.
    pub row: usize,
    /// What all models have in common.
    pub settings: Settings,
    /// What stays where chance decides.
    pub masks: &'a dyn Masks,
}

/// The tensor of one model in a formula, and its factors.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// M, as many numbers as all others have.
    pub numbers: &'a dyn Numbers,
    /// a, or the scale of a tensor that passes through.
    pub weight: f64,
    /// p, the share of the entries that stays, from 0 to 1.
    pub density: f64,
    /// γ, the share of entries that drop out as the largest, from 0 to 1.
    pub gamma: f64,
}

/// The parameters of a formula that all models share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// λ, the factor of the merged task vector.
    pub lambda: f64,
    /// t of slerp: 0 is the base, and 1 is the model.
    pub t: f64,
    /// Whether the sum is divided by the sum of weights.
    pub normalize: Choice,
    /// Whether what stays is scaled to the sum of all magnitudes.
    pub rescale: Choice,
    /// Whether angles are those of rows, not of whole tensors.
    pub by_row: Choice,
}

/// The answer to a yes-or-no question about a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The formula does what the setting says.
    Yes,
    /// The formula does without it.
    No,
}

impl Choice {
    /// Whether the formula does what the setting says.
    fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Decides which entries stay where chance does.
pub trait Masks {
    /// Marks the entries of task vector `model` from `at` on that stay with all bits, the others
    /// with none. The same question has the same answer, for a formula may pass over its inputs
    /// twice.
    fn mark(&self, model: usize, density: f64, at: usize, marks: &mut [u32]);
}

/// Chance that depends on nothing but a seed and a tensor's name: 32 bits of SplitMix64 (Steele, Lea and
/// Flood 2014) for each entry, from a state that BLAKE3 makes of both.
pub struct Chance {
    /// The seed, which all tensors of a merge share.
    pub seed: u64,
    /// The name of the tensor, by which its chance differs from that of others.
    pub tensor: String,
}

impl Masks for Chance {
    fn mark(&self, model: usize, density: f64, at: usize, marks: &mut [u32]) {
        let mut hasher = blake3::Hasher::new_derive_key("intellect-node 1 merge mask");
        hasher.update(&self.seed.to_le_bytes()).update(&(model as u64).to_le_bytes());
        let digest = hasher.update(self.tensor.as_bytes()).finalize();
        let begin = u64::from_le_bytes(*digest.as_bytes().first_chunk().unwrap_or(&[0; 8]));
        // Exact for 0 and 1, which a rounded border would miss.
        let border = (density * (1_u64 << 32) as f64) as u64;
        for (mark, index) in marks.iter_mut().zip(at as u64..) {
            let word = split_mix(begin, index) >> 32;
            *mark = if word < border { u32::MAX } else { 0 };
        }
    }
}

/// The number of this index in the stream of SplitMix64.
#[inline(always)]
fn split_mix(begin: u64, index: u64) -> u64 {
    let mut word = begin.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Numbers of an input that are infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// Which model; none for the base.
    pub model: Option<usize>,
    /// How many of its numbers are not finite.
    pub count: usize,
    /// Index of the first of them in the tensor.
    pub first: usize,
}

/// Takes the result, piece after piece.
pub type Sink<'a> = dyn FnMut(&[f32]) -> Result<(), MergeError> + 'a;

/// Makes a tensor and gives it to `out`. Returns which inputs are not finite; then the result means
/// nothing.
///
/// # Errors
/// If an input cannot be read, or `out` fails.
///
/// # Panics
/// If the formula needs a base that is not there, or the inputs differ in length.
pub fn blend(merge: &TensorMerge<'_>, out: &mut Sink<'_>) -> Result<Vec<NotFinite>, MergeError> {
    match merge.method {
        Method::Linear
        | Method::Passthrough
        | Method::Slerp
        | Method::NuSlerp
        | Method::ModelStock => affine::blend(merge, out),
        Method::TaskArithmetic
        | Method::Ties
        | Method::DareLinear
        | Method::DareTies
        | Method::Breadcrumbs
        | Method::BreadcrumbsTies => task::blend(merge, out),
    }
}

/// The inputs of a merge, the base first if there is one, a block at a time.
struct Streams<'a> {
    /// All of the same number of numbers.
    inputs: Vec<&'a dyn Numbers>,
    /// How many of them are the base: 0, or 1 if the first is.
    bases: usize,
    /// One for each input, filled anew for each place.
    blocks: Vec<Vec<f32>>,
    /// The instruction set that is there.
    arch: pulp::Arch,
}

impl<'a> Streams<'a> {
    /// Opens the inputs of one tensor.
    ///
    /// # Panics
    /// If they differ in length.
    fn of(merge: &TensorMerge<'a>) -> Self {
        let models = merge.models.iter().map(|operand| operand.numbers);
        let inputs: Vec<_> = merge.base.into_iter().chain(models).collect();
        let count = inputs[0].count();
        assert!(inputs.iter().all(|input| input.count() == count), "inputs of one length");
        let blocks = vec![vec![0.0; count.min(BLOCK)]; inputs.len()];
        let bases = usize::from(merge.base.is_some());
        Self { inputs, bases, blocks, arch: pulp::Arch::new() }
    }

    /// n, the numbers of the tensor.
    fn count(&self) -> usize {
        self.inputs[0].count()
    }

    /// Reads everything once. `each` gets the index of the first number of a block, and the blocks.
    fn pass(
        &mut self,
        mut each: impl FnMut(usize, &mut [Vec<f32>]) -> Result<(), MergeError>,
    ) -> Result<(), MergeError> {
        let count = self.count();
        for at in (0..count).step_by(BLOCK) {
            let length = BLOCK.min(count - at);
            for (input, block) in self.inputs.iter().zip(&mut self.blocks) {
                block.resize(length, 0.0);
                input.read(at, block)?;
            }
            // Compiles the formula for the instruction set that is there.
            self.arch.dispatch(|| each(at, &mut self.blocks))?;
        }
        Ok(())
    }

    /// Subtracts the base, the first block, from the others.
    fn subtract_base(blocks: &mut [Vec<f32>]) {
        if let [base, models @ ..] = blocks {
            for model in models {
                model.iter_mut().zip(&*base).for_each(|(model, base)| *model -= base);
            }
        }
    }

    /// Adds what is not finite in these blocks, which begin at `at`.
    fn examine(bases: usize, at: usize, blocks: &[Vec<f32>], found: &mut Vec<NotFinite>) {
        for (index, block) in blocks.iter().enumerate() {
            let bad = block.iter().fold(false, |bad, number| bad | !number.is_finite());
            if !bad {
                continue;
            }
            let model = index.checked_sub(bases);
            let mut places = block.iter().enumerate().filter(|(_, number)| !number.is_finite());
            let Some((first, _)) = places.next() else { continue };
            let count = 1 + places.count();
            match found.iter_mut().find(|found| found.model == model) {
                Some(found) => found.count += count,
                None => found.push(NotFinite { model, count, first: at + first }),
            }
        }
    }
}

/// Numbers of each input that are in memory at once: they fit into a core's cache.
const BLOCK: usize = 1 << 15;

#[cfg(test)]
mod tests;
