//! A text that is read on, compared with the pass that trains, whose attention is a plain softmax
//! over all keys at once.

use burn_backend::TensorData;
use burn_backend::ops::IntTensorOps;
use burn_flex::Flex;

use super::cache::BLOCK;
use super::*;
use crate::arch::{State as AnyState, specs};
use crate::config::Family;
use crate::hf::Precision;
use crate::{genesis, params};

/// A small model with two attention blocks, and several texts.
struct Subject {
    arch: Arch,
    parameters: Vec<FloatTensor<Flex>>,
    /// The texts, which are equally long.
    texts: Vec<Vec<i32>>,
}

impl Subject {
    fn new(texts: i32, length: i32) -> Self {
        let arch = Arch::new(&config::Model {
            layers: 4,
            width: 64,
            heads: 2,
            ffn: 96,
            vocab: 61,
            context: length as usize,
            ..Family::GoldFinch.bench_model()
        });
        let mut theta = genesis::weights(5, &specs(arch.model()));
        // At its start a model looks only at the present token.
        theta.iter_mut().enumerate().for_each(|(i, x)| *x += ((i * 37 % 23) as f32 - 11.0) * 0.005);
        let device = Default::default();
        let parameters = params::upload::<Flex>(&arch.shapes(), &theta, &device).unwrap();
        let text = |text: i32| (0..length).map(|i| (i * i / 3 + text * i) % 61).collect();
        Self { arch, parameters, texts: (0..texts).map(text).collect() }
    }

    fn state(&self, keep: Keep) -> AnyState<Flex> {
        self.arch.state::<Flex>(self.texts.len(), keep, &Default::default())
    }

    fn tokens(&self, part: std::ops::Range<usize>) -> IntTensor<Flex> {
        let parts = self.texts.iter().flat_map(|text| text[part.clone()].to_vec());
        let ids: Vec<i32> = parts.collect();
        let count = ids.len();
        Flex::int_from_data(TensorData::new(ids, [count]), &Default::default())
    }

    /// Reads this part of every text.
    fn read(
        &self,
        part: std::ops::Range<usize>,
        scored: Scored,
        state: &mut AnyState<Flex>,
    ) -> Option<Vec<f32>> {
        let tokens = self.tokens(part);
        self.arch.extend::<Flex>(&self.parameters, tokens, scored, state).map(numbers)
    }

    /// The scores after the last token of every text, from the pass that trains.
    fn expected(&self, length: usize) -> Vec<f32> {
        let sequences = self.texts.len();
        let rows = Rows::whole(sequences, length);
        let scores = self.arch.logits::<Flex>(&self.parameters, self.tokens(0..length), &rows);
        numbers(last_rows::<Flex>(scores, sequences, 1))
    }
}

fn numbers(x: FloatTensor<Flex>) -> Vec<f32> {
    params::read::<Flex>(x).unwrap().into_vec::<f32>().unwrap()
}

/// The largest difference as a share of the largest number.
fn far(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let far = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    far.fold(0.0, f32::max) / largest
}

fn cache(state: &AnyState<Flex>) -> &Cache<Flex> {
    match state {
        AnyState::GoldFinch(state) => &state.cache,
        AnyState::Llama(_) | AnyState::Eagle(_) | AnyState::Finch(_) => panic!("a GoldFinch"),
    }
}

/// Parts that are shorter than what attention blocks need before them (4 tokens), parts that end
/// within a cache block and beyond it, and tokens one by one.
#[test]
fn a_prompt_in_parts_is_a_prompt_at_once() {
    let subject = Subject::new(1, 2 * BLOCK as i32 + 40);
    let end = subject.texts[0].len();
    for ends in [
        vec![end],
        vec![end - 1, end],
        vec![1, 2, 3, end - 3, end - 2, end],
        vec![BLOCK - 1, BLOCK + 1, 2 * BLOCK, end],
    ] {
        let mut state = subject.state(Keep::EXACT);
        let mut at = 0;
        for part in &ends[..ends.len() - 1] {
            assert_eq!(subject.read(at..*part, Scored::Nothing, &mut state), None);
            at = *part;
        }
        let found = subject.read(at..end, Scored::Last, &mut state).unwrap();
        let far = far(&found, &subject.expected(end));
        assert!(far < 1e-5, "{ends:?}: {far:e}");
    }
}

/// A text is written on from a prompt, over the end of a cache block.
#[test]
fn tokens_one_by_one_are_a_text_at_once() {
    let subject = Subject::new(2, BLOCK as i32 + 6);
    let mut state = subject.state(Keep::EXACT);
    subject.read(0..BLOCK - 4, Scored::Nothing, &mut state);
    for at in BLOCK - 4..BLOCK + 6 {
        let found = subject.read(at..at + 1, Scored::Last, &mut state).unwrap();
        let far = far(&found, &subject.expected(at + 1));
        assert!(far < 1e-5, "token {at}: {far:e}");
    }
}

/// Only so many as scores and their two shifts per attention block need.
#[test]
fn attention_blocks_read_the_last_tokens_only() {
    let subject = Subject::new(2, 20);
    let AnyState::GoldFinch(mut state) = subject.state(Keep::EXACT) else { panic!("a GoldFinch") };
    let rows = |count: usize| zeros::<Flex>(&[2 * count, 64], &Default::default());
    let read = |x: Option<FloatTensor<Flex>>| x.map(|x| x.shape().dims::<2>()[0] / 2);
    assert_eq!(read(state.due(rows(20), 1, 4)), Some(5));
    assert_eq!(read(state.due(rows(20), 7, 4)), Some(11));
    assert_eq!(read(state.due(rows(1), 1, 4)), Some(1));
    assert_eq!(read(state.due(rows(3), 0, 4)), None);
    assert_eq!(read(state.due(rows(20), 0, 4)), None);
    assert_eq!(read(state.due(rows(2), 1, 4)), Some(5));
    assert_eq!(read(state.due(rows(2), 1, 4)), Some(2));
}

/// What is kept changes the time and not the scores, and no more is kept than allowed.
#[test]
fn keys_and_values_are_kept_up_to_the_bound() {
    let subject = Subject::new(1, 2 * BLOCK as i32 + 8);
    let end = subject.texts[0].len();
    let expected = subject.expected(end);
    // Keys and values of two attention blocks.
    let all = (2 * 2 * 4 * 64 * end) as u64;
    for (bound, least) in [(0, 0), (all / 2, all / 4), (all, all)] {
        let keep = Keep { expanded_bytes: bound, ..Keep::EXACT };
        let mut state = subject.state(keep);
        subject.read(0..end - 8, Scored::Nothing, &mut state);
        assert_eq!(cache(&state).expanded_bytes(), 0, "a prompt needs no keys");
        let mut found = Vec::new();
        for at in end - 8..end {
            found = subject.read(at..at + 1, Scored::Last, &mut state).unwrap();
            assert!(cache(&state).expanded_bytes() <= bound);
        }
        assert!(cache(&state).expanded_bytes() >= least, "{bound}");
        let far = far(&found, &expected);
        assert!(far < 1e-5, "{bound}: {far:e}");
    }
}

/// In 16 bits the scores are within 2 % of the largest one, whatever is kept of keys and values.
#[test]
fn sixteen_bits_are_close_to_the_whole() {
    let subject = Subject::new(1, BLOCK as i32 + 30);
    let end = subject.texts[0].len();
    let expected = subject.expected(end);
    for expanded_bytes in [0, 1 << 20] {
        let keep = Keep { precision: Precision::Bf16, expanded_bytes };
        let mut state = subject.state(keep);
        subject.read(0..end - 1, Scored::Nothing, &mut state);
        let found = subject.read(end - 1..end, Scored::Last, &mut state).unwrap();
        let far = far(&found, &expected);
        assert!(far < 0.02, "{far:e}");
    }
}
