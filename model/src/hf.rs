//! Models as folders that other programs read: safetensors and JSON as Hugging Face lays them out.
//!
//! | file | what |
//! |---|---|
//! | `model.safetensors` | every parameter under its public name, or instead of it: |
//! | `model-00001-of-0000N.safetensors` | a share of them, and |
//! | `model.safetensors.index.json` | which tensor is in which of these |
//! | `config.json` | architecture and sizes |
//! | `generation_config.json` | how `sample` draws unless told otherwise |
//! | `tokenizer.json`, `tokenizer_config.json` | the run's tokenizer, unless it is one of RWKV World: |
//! | `rwkv_vocab_v20230424.txt` | its vocabulary, under the name by which RWKV's programs look for it |
//!
//! The names and shapes are those of [`Arch::specs`](crate::arch::Arch::specs): transformers' for
//! Llama (whose rows of queries and keys are in Hugging Face's order already), RWKV-LM's for Eagle
//! and Finch, the paper's program's for GoldFinch. So a tensor is a slice of the flat parameters,
//! and one tensor at a time is all that is ever copied.
//!
//! Momentum, epochs and whose run it was stay behind: a folder is a model and nothing else.

pub mod config;
pub mod conversion;
pub mod export;
pub mod import;
pub mod tokenizer;

use burn_backend::bf16;

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Unchanged: whoever reads them back has the same bits.
    #[default]
    F32,
    /// The upper half of an f32, rounded to nearest, ties to even: half the size, 8 bits of
    /// precision.
    Bf16,
}

impl Precision {
    /// The name that PyTorch has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Bytes of one number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Whether this number is finite once it is written: the largest f32 round up to infinity.
    fn holds(self, number: f32) -> bool {
        match self {
            Self::F32 => number.is_finite(),
            Self::Bf16 => bf16::from_f32(number).is_finite(),
        }
    }

    /// These numbers, little endian.
    fn encode(self, numbers: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
            Self::Bf16 => {
                numbers.iter().flat_map(|number| bf16::from_f32(*number).to_le_bytes()).collect()
            }
        }
    }
}

/// The one file of a model that needs no others.
const WHOLE: &str = "model.safetensors";
/// Where the tensors of a model of several files are.
const INDEX: &str = "model.safetensors.index.json";
/// Architecture and sizes.
const CONFIG: &str = "config.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(number: f32) -> f32 {
        let [low, high] = Precision::Bf16.encode(&[number])[..] else { panic!("two bytes") };
        f32::from_bits(u32::from_le_bytes([0, 0, low, high]))
    }

    /// 1 + 2^−8 lies between two neighbours, 1 + 3·2^−8 too: each goes to the even one.
    #[test]
    fn bf16_rounds_to_nearest_even() {
        let step = 2.0_f32.powi(-7);
        assert_eq!(rounded(1.0), 1.0);
        assert_eq!(rounded(1.0 + step / 2.0), 1.0);
        assert_eq!(rounded(1.0 + 1.5 * step), 1.0 + 2.0 * step);
        assert_eq!(rounded(1.0 + 0.51 * step), 1.0 + step);
        assert_eq!(rounded(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(rounded(f32::from_bits(0x8001)), f32::from_bits(0x1_0000));
        assert_eq!(Precision::Bf16.encode(&[1.0, -2.0]), [0x80, 0x3f, 0x00, 0xc0]);
        assert_eq!(Precision::F32.encode(&[1.0]), 1.0_f32.to_le_bytes());
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
