//! Models as folders that other programs read: safetensors and JSON in the layout of Hugging Face.
//!
//! | file | what |
//! |---|---|
//! | `model.safetensors` | every parameter under its public name, or instead of it: |
//! | `model-00001-of-0000N.safetensors` | a share of them, and |
//! | `model.safetensors.index.json` | which tensor is in which of these |
//! | `config.json` | architecture and sizes |
//! | `generation_config.json` | the default options of `sample` |
//! | `tokenizer.json`, `tokenizer_config.json` | the run's tokenizer, unless it is one of RWKV World: |
//! | `rwkv_vocab_v20230424.txt` | its vocabulary, under the name by which RWKV's programs look for it |
//!
//! The names and shapes are those of [`Arch::specs`](crate::arch::Arch::specs): transformers' for
//! Llama (whose rows of queries and keys are in Hugging Face's order already), RWKV-LM's for Eagle
//! and Finch, the paper's program's for GoldFinch. So a tensor is a slice of the flat parameters,
//! and only one tensor at a time is copied.
//!
//! What is read may have other names: [`import`] knows those of Meta's Llamas, and [`released`]
//! those of RWKV-5 and RWKV-6, which are released as a [`pth`] without any other file.
//!
//! A folder has only the model: no momentum, no epoch, and no reference to the run.

pub mod chat;
pub mod config;
pub mod conversion;
pub mod error;
pub mod export;
pub mod import;
pub mod input;
pub mod pth;
pub mod released;
pub mod staged;
pub mod text;
pub mod tokenizer;

use burn_backend::bf16;
use safetensors::Dtype;

/// The format in which numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Unchanged f32, which is read back as the same bits.
    #[default]
    F32,
    /// The upper half of an f32, rounded to nearest, ties to even: half the size, 8 bits of
    /// precision.
    Bf16,
}

impl Precision {
    /// The name of this format in PyTorch.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Bytes that one number takes in a file.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Whether this number is finite once written: in bf16 the largest f32 round to infinity.
    pub(crate) fn holds(self, number: f32) -> bool {
        match self {
            Self::F32 => number.is_finite(),
            Self::Bf16 => bf16::from_f32(number).is_finite(),
        }
    }

    /// The name of this format in the header of a file of safetensors.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::BF16,
        }
    }

    /// Replaces `bytes` by these finite numbers, little endian; bf16 rounds to nearest, ties to
    /// even.
    pub(crate) fn encode(self, numbers: &[f32], bytes: &mut Vec<u8>) {
        bytes.resize(numbers.len() * self.bytes(), 0);
        match self {
            Self::F32 => {
                for (word, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *word = number.to_le_bytes();
                }
            }
            Self::Bf16 => {
                for (word, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                    let bits = number.to_bits();
                    let even = 0x7fff + (bits >> 16 & 1);
                    *word = ((bits.wrapping_add(even) >> 16) as u16).to_le_bytes();
                }
            }
        }
    }
}

/// The file of tensors of a model that has only one.
pub(crate) const WHOLE: &str = "model.safetensors";
/// The file that maps tensors to files, of a model that has several.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The file of architecture and sizes.
pub(crate) const CONFIG: &str = "config.json";
/// The file of a tokenizer in the form of Hugging Face.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// The name under which RWKV's programs look for the vocabulary of RWKV World.
pub(crate) const RWKV_VOCABULARY: &str = "rwkv_vocab_v20230424.txt";

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(precision: Precision, numbers: &[f32]) -> Vec<u8> {
        let mut bytes = vec![7; 3];
        precision.encode(numbers, &mut bytes);
        bytes
    }

    fn rounded(number: f32) -> f32 {
        let [low, high] = encoded(Precision::Bf16, &[number])[..] else { panic!("two bytes") };
        f32::from_bits(u32::from_le_bytes([0, 0, low, high]))
    }

    /// 1 + 2^−8 and 1 + 3·2^−8 are halfway between two neighbours; each goes to the even one.
    #[test]
    fn bf16_rounds_to_nearest_even() {
        let step = 2.0_f32.powi(-7);
        assert_eq!(rounded(1.0), 1.0);
        assert_eq!(rounded(1.0 + step / 2.0), 1.0);
        assert_eq!(rounded(1.0 + 1.5 * step), 1.0 + 2.0 * step);
        assert_eq!(rounded(1.0 + 0.51 * step), 1.0 + step);
        assert_eq!(rounded(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(rounded(f32::from_bits(0x8001)), f32::from_bits(0x1_0000));
        assert_eq!(encoded(Precision::Bf16, &[1.0, -2.0]), [0x80, 0x3f, 0x00, 0xc0]);
        assert_eq!(encoded(Precision::F32, &[1.0]), 1.0_f32.to_le_bytes());
    }

    #[test]
    fn finite_numbers_are_encoded_as_by_the_crate_half() {
        let numbers = (0..70_000_u32).map(|i| f32::from_bits(i * 30_011));
        let numbers: Vec<f32> = numbers.filter(|x| Precision::Bf16.holds(*x)).collect();
        let halves = numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
        assert!(encoded(Precision::Bf16, &numbers) == halves.collect::<Vec<_>>());
        let whole = numbers.iter().flat_map(|x| x.to_le_bytes());
        assert!(encoded(Precision::F32, &numbers) == whole.collect::<Vec<_>>());
    }

    #[test]
    fn what_would_round_to_infinity_does_not_fit() {
        assert!(Precision::F32.holds(f32::MAX) && !Precision::Bf16.holds(f32::MAX));
        assert!(Precision::Bf16.holds(3.38e38) && !Precision::Bf16.holds(-f32::MAX));
        for format in [Precision::F32, Precision::Bf16] {
            assert!(!format.holds(f32::NAN) && !format.holds(f32::NEG_INFINITY));
        }
    }
}
