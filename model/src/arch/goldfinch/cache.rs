//! What a GoldFinch keeps of the tokens that it has read: the token itself and C numbers, 4 + 2·C
//! bytes in 16 bits, in blocks of [`BLOCK`] tokens.
//!
//! Keys and values of a block follow from it and from the token before it, and they never change.
//! So those that were computed once are kept up to a bound, and the others are computed again for
//! every pass, one block at a time. What is kept stays: a pass visits all blocks in the same order,
//! and whatever was dropped for a newer one would be needed before it.

use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};

use crate::arch::past::Keep;
use crate::ops::{FusedOps, Widen};

/// What a GoldFinch keeps of each token.
#[derive(Clone, Debug)]
pub struct Cache<B: FusedOps> {
    /// The format, and the bound on keys and values.
    keep: Keep,
    /// The number of blocks with attention.
    layers: usize,
    /// Full blocks, and a last one that grows.
    blocks: Vec<CacheBlock<B>>,
    /// Bytes of all keys and values that are kept.
    expanded_bytes: u64,
}

/// Up to [`BLOCK`] tokens of each sequence.
#[derive(Clone, Debug)]
struct CacheBlock<B: FusedOps> {
    /// The tokens themselves, for their x0. // [B, n]
    tokens: IntTensor<B>,
    /// The c of each, in the format that is kept. // [B, n, C]
    compressed: FloatTensor<B>,
    /// Keys and values for each block with attention, as far as they are kept; the last cache block
    /// may have grown since. // [B, m, D] each, m ≤ n
    expanded: Vec<Option<[FloatTensor<B>; 2]>>,
}

/// Tokens of the cache with their c, from which keys and values follow.
#[derive(Clone, Debug)]
pub(super) struct CacheRows<B: FusedOps> {
    /// One token for each row. // `[B·n]`
    pub(super) tokens: IntTensor<B>,
    /// The c of each row, in f32. // [B·n, C]
    pub(super) compressed: FloatTensor<B>,
    /// Whether the first token of each sequence only precedes those whose keys are needed.
    pub(super) is_led: bool,
}

impl<B: FusedOps> CacheBlock<B> {
    /// n, the tokens of each sequence that are in the block.
    fn length(&self) -> usize {
        self.tokens.shape().dims::<2>()[1]
    }

    /// The tokens from place `first` on, without keys and values.
    fn starting_at(&self, first: usize) -> Self {
        let tokens = part_of_tokens::<B>(&self.tokens, first, self.length());
        let compressed = part::<B>(&self.compressed, first, self.length());
        Self { tokens, compressed, expanded: Vec::new() }
    }

    /// The tokens of both, with the keys and values of the first.
    fn followed_by(self, new: Self) -> Self {
        Self {
            tokens: B::int_cat(vec![self.tokens, new.tokens], 1),
            compressed: B::float_cat(vec![self.compressed, new.compressed], 1),
            expanded: self.expanded,
        }
    }
}

impl<B: FusedOps> Cache<B> {
    /// The cache before the first token, of a model with so many blocks with attention.
    pub(super) fn new(layers: usize, keep: Keep) -> Self {
        Self { keep, layers, blocks: Vec::new(), expanded_bytes: 0 }
    }

    /// T, the number of tokens of each sequence.
    #[must_use]
    pub fn length(&self) -> usize {
        self.blocks.iter().map(CacheBlock::length).sum()
    }

    /// Bytes of the keys and values that are kept besides the tokens and c.
    #[must_use]
    pub fn expanded_bytes(&self) -> u64 {
        self.expanded_bytes
    }

    /// The tokens and the c of all tokens; `None` before the first. // [B, T]; [B, T, C]
    #[must_use]
    pub fn whole(&self) -> Option<(IntTensor<B>, FloatTensor<B>)> {
        let blocks = self.blocks.iter().map(|block| block.starting_at(0));
        let all = blocks.reduce(CacheBlock::followed_by)?;
        Some((all.tokens, widen::<B>(all.compressed)))
    }

    /// The number of cache blocks, each full but the last.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Appends tokens with their c. // tokens [B, S], compressed [B, S, C]
    pub(super) fn append(&mut self, tokens: &IntTensor<B>, compressed: FloatTensor<B>) {
        let compressed = self.keep.narrow::<B>(compressed);
        let length = tokens.shape().dims::<2>()[1];
        let mut done = 0;
        while done < length {
            let growing = self.blocks.pop_if(|block| block.length() < BLOCK);
            let room = growing.as_ref().map_or(BLOCK, |block| BLOCK - block.length());
            let end = length.min(done + room);
            let new = CacheBlock {
                tokens: part_of_tokens::<B>(tokens, done, end),
                compressed: part::<B>(&compressed, done, end),
                expanded: vec![None; self.layers],
            };
            self.blocks.push(match growing {
                Some(block) => block.followed_by(new),
                None => new,
            });
            done = end;
        }
    }

    /// Keys and values of cache block `at` for block `layer` with attention. `expand` makes those
    /// of the rows that it is given: of a block that has grown only the new ones. // [B·n, D] each
    pub(super) fn expanded(
        &mut self,
        layer: usize,
        at: usize,
        expand: impl FnOnce(CacheRows<B>) -> [FloatTensor<B>; 2],
    ) -> [FloatTensor<B>; 2] {
        let length = self.blocks[at].length();
        // What is kept is taken out here, and is put back below as long as all fits its bound.
        let kept = self.blocks[at].expanded[layer].take();
        if let Some(kept) = &kept {
            self.expanded_bytes -= bytes::<B>(kept);
        }
        let known = kept.as_ref().map_or(0, |[k, _]| k.shape().dims::<3>()[1]);
        let whole = match kept {
            Some(kept) if known == length => kept,
            kept => {
                let sequences = self.blocks[at].tokens.shape().dims::<2>()[0];
                let [k, v] = expand(self.rows(at, known)).map(|x| {
                    let width = x.shape().dims::<2>()[1];
                    let x = B::float_reshape(x, [sequences, length - known, width].into());
                    self.keep.narrow::<B>(x)
                });
                match kept {
                    Some([keys, values]) => {
                        [B::float_cat(vec![keys, k], 1), B::float_cat(vec![values, v], 1)]
                    }
                    None => [k, v],
                }
            }
        };
        // Beyond the bound they are not kept, and are made again when they are next read.
        if self.expanded_bytes + bytes::<B>(&whole) <= self.keep.expanded_bytes {
            self.expanded_bytes += bytes::<B>(&whole);
            self.blocks[at].expanded[layer] = Some(whole.clone());
        }
        whole.map(|x| {
            let [sequences, length, width] = x.shape().dims();
            B::float_reshape(x, [sequences * length, width].into())
        })
    }

    /// The tokens of a cache block from place `first` on, and the one before them.
    fn rows(&self, at: usize, first: usize) -> CacheRows<B> {
        let block = &self.blocks[at];
        let before = at.checked_sub(1).map(|at| &self.blocks[at]);
        let (rows, is_led) = match (first.checked_sub(1), before) {
            (Some(first), _) => (block.starting_at(first), true),
            (None, Some(before)) => {
                (before.starting_at(before.length() - 1).followed_by(block.starting_at(0)), true)
            }
            (None, None) => (block.starting_at(0), false),
        };
        let [sequences, length, width] = rows.compressed.shape().dims();
        let count = sequences * length;
        let compressed = B::float_reshape(widen::<B>(rows.compressed), [count, width].into());
        CacheRows { tokens: B::int_reshape(rows.tokens, [count].into()), compressed, is_led }
    }
}

/// Tokens `first..end` of each sequence. // [B, n]
fn part_of_tokens<B: FusedOps>(tokens: &IntTensor<B>, first: usize, end: usize) -> IntTensor<B> {
    let [sequences, _] = tokens.shape().dims::<2>();
    B::int_slice(tokens.clone(), &[(0..sequences).into(), (first..end).into()])
}

/// Rows `first..end` of each sequence. // [B, n, C]
fn part<B: FusedOps>(x: &FloatTensor<B>, first: usize, end: usize) -> FloatTensor<B> {
    let [sequences, _, width] = x.shape().dims::<3>();
    let part = [(0..sequences).into(), (first..end).into(), (0..width).into()];
    B::float_slice(x.clone(), &part)
}

/// The numbers in f32, whatever the format in which they were kept.
fn widen<B: FusedOps>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [x] = B::untracked(Widen, [x]);
    x
}

/// Bytes of keys and values as they are kept.
fn bytes<B: FusedOps>(kept: &[FloatTensor<B>; 2]) -> u64 {
    let size = |x: &FloatTensor<B>| x.shape().num_elements() * x.dtype().size();
    kept.iter().map(size).sum::<usize>() as u64
}

/// Tokens of a cache block: its keys and values of one block with attention take 2 MiB each at a
/// width of 2,048, in f32; a guess.
pub(super) const BLOCK: usize = 256;

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;
    use burn_backend::ops::{FloatTensorOps, IntTensorOps};
    use burn_flex::Flex;

    use super::*;
    use crate::hf::Precision;

    /// Over several blocks, and with a block that grows.
    #[test]
    fn a_token_takes_4_bytes_and_2_for_each_of_its_numbers() {
        let (width, sequences) = (8, 2);
        for (precision, per_number) in [(Precision::Bf16, 2), (Precision::F32, 4)] {
            let mut cache = Cache::<Flex>::new(1, Keep { precision, expanded_bytes: 0 });
            for length in [1, 2, BLOCK, 3 * BLOCK + 5] {
                let data = TensorData::new(vec![7_i32; sequences * length], [sequences, length]);
                let tokens = Flex::int_from_data(data, &Default::default());
                let numbers = vec![0.5_f32; sequences * length * width];
                let data = TensorData::new(numbers, [sequences, length, width]);
                cache.append(&tokens, Flex::float_from_data(data, &Default::default()));
            }
            let length = 4 * BLOCK + 8;
            assert_eq!((cache.length(), cache.blocks()), (length, 5));
            let size = |shape: usize, dtype: burn_backend::DType| shape * dtype.size();
            let bytes: usize = cache
                .blocks
                .iter()
                .map(|block| {
                    let CacheBlock { tokens, compressed, .. } = block;
                    size(tokens.shape().num_elements(), tokens.dtype())
                        + size(compressed.shape().num_elements(), compressed.dtype())
                })
                .sum();
            assert_eq!(bytes, sequences * length * (4 + per_number * width));
            let (tokens, compressed) = cache.whole().unwrap();
            assert_eq!(tokens.shape().dims::<2>(), [sequences, length]);
            assert_eq!(compressed.shape().dims::<3>(), [sequences, length, width]);
        }
    }

    /// Their shift needs the token before them, which may be in another block.
    #[test]
    fn the_rows_of_a_block_are_led_by_the_token_before_them() {
        let mut cache = Cache::<Flex>::new(1, Keep::EXACT);
        let ids: Vec<i32> = (0..BLOCK as i32 + 3).collect();
        let data = TensorData::new(ids.clone(), [1, ids.len()]);
        let tokens = Flex::int_from_data(data, &Default::default());
        let data = TensorData::new(vec![0.0_f32; ids.len()], [1, ids.len(), 1]);
        cache.append(&tokens, Flex::float_from_data(data, &Default::default()));
        for (at, first, is_led, expected) in [
            (0, 0, false, &ids[..BLOCK]),
            (0, 5, true, &ids[4..BLOCK]),
            (1, 0, true, &ids[BLOCK - 1..]),
            (1, 2, true, &ids[BLOCK + 1..]),
        ] {
            let rows = cache.rows(at, first);
            assert_eq!(rows.is_led, is_led, "{at}, {first}");
            let found = rows.tokens.into_data().into_vec::<i32>().unwrap();
            assert_eq!(found, expected);
            assert_eq!(rows.compressed.shape().dims::<2>(), [expected.len(), 1]);
        }
    }
}
