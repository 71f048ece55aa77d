//! How a text is read on: which of its tokens get scores, and how the past is kept.
//!
//! The head may be the largest matrix of a model, so a prompt is read without scores but for its
//! last token.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use crate::hf::Precision;
use crate::ops::{FusedOps, Narrow};

/// Which of the tokens that are read get scores. The head is not computed for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scored {
    /// None of them: they only become the past of later tokens.
    Nothing,
    /// Only the last one, as for a prompt.
    Last,
    /// Those from this place on, counted from 0 among the tokens that are read now.
    From(usize),
    /// Every one of them, as for a text that is judged.
    All,
}

impl Scored {
    /// How many of `length` tokens get scores; they are the last ones.
    #[must_use]
    pub fn count(self, length: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Last => length.min(1),
            Self::From(first) => length.saturating_sub(first),
            Self::All => length,
        }
    }

    /// The last `count` of `length` tokens; all of them if there are fewer.
    pub(crate) fn last(count: usize, length: usize) -> Self {
        Self::From(length.saturating_sub(count))
    }

    /// The rows that get scores; `None` where none does. // x [B·S, D], result [B·R, D]
    pub(super) fn rows<B: FusedOps>(
        self,
        x: FloatTensor<B>,
        sequences: usize,
    ) -> Option<FloatTensor<B>> {
        let [rows, _] = x.shape().dims::<2>();
        let count = self.count(rows / sequences);
        (count > 0).then(|| last_rows::<B>(x, sequences, count))
    }
}

/// How a state keeps a past that grows with the text, as GoldFinch's does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The format of the numbers that are kept; sums are in f32 either way.
    pub precision: Precision,
    /// The most bytes of keys and values that are kept besides the cache, so that they are not
    /// computed from it again for every token. With 0 all are computed again.
    pub expanded_bytes: u64,
}

impl Keep {
    /// For comparisons: as exact as the operators.
    pub const EXACT: Self = Self { precision: Precision::F32, expanded_bytes: EXPANDED_BYTES };

    /// The tensor in the format in which it is kept.
    pub(super) fn narrow<B: FusedOps>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        match self.precision {
            Precision::F32 => x,
            Precision::Bf16 => {
                let [x] = B::untracked(Narrow, [x]);
                x
            }
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self { precision: Precision::Bf16, expanded_bytes: EXPANDED_BYTES }
    }
}

/// The last `count` rows of each sequence. // x [B·S, D], result [B·count, D]
pub(super) fn last_rows<B: FusedOps>(
    x: FloatTensor<B>,
    sequences: usize,
    count: usize,
) -> FloatTensor<B> {
    let [rows, width] = x.shape().dims();
    let length = rows / sequences;
    if count == length {
        return x;
    }
    let x = B::float_reshape(x, [sequences, length * width].into());
    let last = [(0..sequences).into(), ((length - count) * width..length * width).into()];
    B::float_reshape(B::float_slice(x, &last), [sequences * count, width].into())
}

/// Room for the keys and values of 4,096 tokens of a model of 1.5 billion parameters in 16 bits: 8
/// blocks with attention, width 2,048.
pub const EXPANDED_BYTES: u64 = 1 << 28;

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;
    use burn_backend::ops::{FloatTensorOps, IntTensorOps};
    use burn_flex::Flex;

    use super::*;
    use crate::arch::{Arch, Rows, specs};
    use crate::config::{Family, Model};
    use crate::{genesis, params};

    /// Two texts at once: only rows that are asked for exist, and they are those of the whole.
    #[test]
    fn no_family_scores_what_nobody_asked_for() {
        for family in Family::ALL {
            let arch = Arch::new(&Model { layers: 3, context: 16, ..family.bench_model() });
            let vocab = arch.model().vocab;
            let theta = genesis::weights(5, &specs(arch.model()));
            let device = Default::default();
            let parameters = params::upload::<Flex>(&arch.shapes(), &theta, &device).unwrap();
            let tokens = |first: i32, length: i32| {
                let row = |row: i32| (first..first + length).map(move |i| (i * i + row) % 61);
                let all: Vec<i32> = row(0).chain(row(7)).collect();
                let count = all.len();
                Flex::int_from_data(TensorData::new(all, [count]), &device)
            };
            let whole = arch.logits::<Flex>(&parameters, tokens(0, 9), &Rows::whole(2, 9));
            let mut state = arch.state::<Flex>(2, Keep::EXACT, &device);
            let nothing =
                arch.extend::<Flex>(&parameters, tokens(0, 4), Scored::Nothing, &mut state);
            assert!(nothing.is_none(), "{family:?}");
            let found = arch.extend::<Flex>(&parameters, tokens(4, 5), Scored::From(3), &mut state);
            let found = found.unwrap();
            assert_eq!(found.shape().dims::<2>(), [4, vocab], "{family:?}");
            let expected = last_rows::<Flex>(whole, 2, 2);
            let [found, expected] = [found, expected].map(|x| {
                let x = Flex::float_reshape(x, [4 * vocab].into());
                params::read::<Flex>(x).unwrap().into_vec::<f32>().unwrap()
            });
            let far = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 1e-5, "{family:?}: {far}");
        }
    }

    #[test]
    fn scored_tokens_are_the_last_ones() {
        let counts = |scored: Scored| [0, 1, 5].map(|length| scored.count(length));
        assert_eq!(counts(Scored::Nothing), [0, 0, 0]);
        assert_eq!(counts(Scored::Last), [0, 1, 1]);
        assert_eq!(counts(Scored::From(3)), [0, 0, 2]);
        assert_eq!(counts(Scored::All), [0, 1, 5]);
        assert_eq!(Scored::last(2, 5), Scored::From(3));
        assert_eq!(Scored::last(2, 1), Scored::From(0));
    }
}
