//! Draws from models whose predictions are known, and prompts that do not fit.

use super::*;
use crate::data::Batch;
use crate::train::{Judged, Reader, ReaderGroup};

/// Predicts the successor of the newest token, modulo 8, with a score of `certainty`.
struct Counter {
    vocab: usize,
    certainty: f32,
}

impl Model for Counter {
    fn load(&mut self, _: &[f32]) -> Result<(), TrainError> {
        Ok(())
    }

    fn store(&self, _: &mut [f32]) -> Result<(), TrainError> {
        Ok(())
    }

    fn logits(&self, _: &[i32], _: usize) -> Result<Vec<f32>, TrainError> {
        unreachable!("a sample reads on")
    }

    fn judge(&self, _: &[i32], _: &[i32], _: usize) -> Result<Vec<Judged>, TrainError> {
        unreachable!("a sample has no targets")
    }
    fn loss(&self, _: &Batch) -> Result<f64, TrainError> {
        unreachable!("a sample has no targets")
    }

    fn reader(&self, _: Keep) -> Box<dyn Reader + '_> {
        Box::new(Counting { model: self, read: 0 })
    }

    fn group(&self, _: Keep) -> Box<dyn ReaderGroup + '_> {
        unreachable!("a sample is one text")
    }
}

/// Sees [`SEEN`] tokens at most.
struct Counting<'a> {
    model: &'a Counter,
    read: usize,
}

const SEEN: usize = 50;

const PLAIN: Sampling = Sampling {
    temperature: 1.0,
    top_p: 1.0,
    seed: 1,
    tokens: 1,
    ending: Ending::Document,
    keep: Keep::EXACT,
};

impl Reader for Counting<'_> {
    fn read(&mut self, tokens: &[i32], scored: Scored) -> Result<Vec<f32>, TrainError> {
        assert_eq!(scored, Scored::Last, "nothing else is needed");
        self.read += tokens.len();
        let mut scores = vec![0.0; self.model.vocab];
        let last = *tokens.last().expect("a token to go on from");
        scores[(last as usize + 1) % 8] = self.model.certainty;
        // Of a source of 8 tokens, the scores beyond them are high, and must not count.
        scores[8..].fill(if self.model.vocab > 256 { -1e6 } else { 1e6 });
        Ok(scores)
    }

    fn forgotten(&self) -> usize {
        self.read.saturating_sub(SEEN)
    }

    fn judge(&mut self, _: &[i32], _: &[i32]) -> Result<Vec<Judged>, TrainError> {
        unreachable!("a sample has no targets")
    }
    fn fork(&self) -> Box<dyn Reader + '_> {
        Box::new(Counting { ..*self })
    }
}

fn work() -> Work {
    let mut work = Work::synthetic();
    work.data.source = crate::config::Source::Synthetic { symbols: 8, order: 1 };
    work
}

fn draw(certainty: f32, prompt: &[i32], sampling: Sampling) -> Result<Vec<i32>, SampleError> {
    let mut drawn = Vec::new();
    let model = Counter { vocab: 11, certainty };
    sample(&model, &work(), prompt, sampling, &mut |token| {
        drawn.push(token);
        ControlFlow::Continue(())
    })?;
    Ok(drawn)
}

#[test]
fn at_temperature_zero_the_likeliest_comes() {
    let sampling = Sampling { temperature: 0.0, tokens: 40, ..PLAIN };
    let drawn = draw(0.1, &[6], sampling).expect("drawn");
    let counted: Vec<_> = (7..47).map(|token| token % 8).collect();
    assert_eq!(drawn, counted);
}

/// A score higher by ln 7 makes one of 8 tokens as likely as the others together; doubling the
/// temperature takes the square root of its weight.
#[test]
fn tokens_come_as_often_as_expected() {
    for (temperature, expected) in [(1.0, 0.5), (2.0, 7_f64.sqrt() / (7.0 + 7_f64.sqrt()))] {
        let sampling = Sampling { temperature, tokens: 20_000, ..PLAIN };
        let drawn = draw(7_f32.ln(), &[0], sampling).expect("drawn");
        let hits = drawn.windows(2).filter(|pair| (pair[0] + 1) % 8 == pair[1]).count();
        let share = hits as f64 / 20_000.0;
        assert!((share - expected).abs() < 0.018, "{share} instead of {expected}");
    }
}

#[test]
fn the_seed_selects_the_draws() {
    let seeded = |seed| {
        draw(0.0, &[0, 1], Sampling { top_p: 0.9, seed, tokens: 30, ..PLAIN }).expect("drawn")
    };
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1), seeded(2));
}

#[test]
fn it_stops_when_asked() {
    let sampling = Sampling { tokens: 1000, ..PLAIN };
    let mut count = 0;
    let mut stop = |_| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let model = Counter { vocab: 11, certainty: 1.0 };
    sample(&model, &work(), &[0], sampling, &mut stop).expect("drawn");
    assert_eq!(count, 3);
}

/// The model counts, and 4 begins a document.
#[test]
fn a_text_ends_with_its_document_unless_it_is_to_go_on() {
    let vocabulary = crate::config::Vocabulary { bos: 4, ..crate::config::Vocabulary::BYTES };
    let file = crate::config::Fingerprint { digest: [3; 32], bytes: 1_000_000 };
    let work = Work::tokens(vocabulary, file);
    let model = Counter { vocab: 300, certainty: 1.0 };
    let drawn = |ending| {
        let sampling = Sampling { temperature: 0.0, tokens: 6, ending, ..PLAIN };
        let mut all = Vec::new();
        let sampled = sample(&model, &work, &[4, 0, 1], sampling, &mut |token| {
            all.push(token);
            ControlFlow::Continue(())
        });
        (all, sampled.expect("drawn").is_ended)
    };
    assert_eq!(drawn(Ending::Document), (vec![2, 3], true));
    assert_eq!(drawn(Ending::Never), (vec![2, 3, 4, 5, 6, 7], false));
}

#[test]
fn a_prompt_that_is_cut_is_reported() {
    let model = Counter { vocab: 11, certainty: 1.0 };
    let cut = |prompt: usize| {
        let sampling = Sampling { tokens: 30, ..PLAIN };
        let mut go_on = |_| ControlFlow::Continue(());
        let sampled = sample(&model, &work(), &vec![0; prompt], sampling, &mut go_on);
        sampled.expect("drawn").cut
    };
    // What is forgotten of a short prompt later, while the text grows, was not cut.
    assert_eq!([1, SEEN, SEEN + 7].map(cut), [0, 0, 7]);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let sampling = PLAIN;
    assert!(matches!(draw(1.0, &[], sampling), Err(SampleError::NoPrompt)));
    for temperature in [-0.1, 100.1, f64::NAN] {
        let sampling = Sampling { temperature, ..sampling };
        assert!(matches!(draw(1.0, &[0], sampling), Err(SampleError::Temperature(_))));
    }
    for certainty in [f32::NAN, f32::INFINITY] {
        assert!(matches!(draw(certainty, &[0], sampling), Err(SampleError::NotFinite)));
    }
    for top_p in [0.0, -0.1, 1.1, f64::NAN] {
        let sampling = Sampling { top_p, ..sampling };
        assert!(matches!(draw(1.0, &[0], sampling), Err(SampleError::TopP(_))));
    }
    assert_eq!(pick(&[], sampling, 0.5), None);
    assert_eq!(pick(&[0.0, 0.0], sampling, 1.0), Some(1));
}

/// With probabilities 0.1, 0.6, 0.3 the nucleus of 0.59 has one token and that of 0.7 two, the
/// likeliest first.
#[test]
fn only_the_nucleus_is_drawn_from() {
    let scores = [0.1_f64, 0.6, 0.3].map(f64::ln);
    let drawn = |top_p| {
        let sampling = Sampling { top_p, seed: 0, tokens: 0, ..PLAIN };
        [0.0, 0.5, 0.65, 0.75, 0.95].map(|unit| pick(&scores, sampling, unit))
    };
    assert_eq!(drawn(0.59), [1; 5].map(Some));
    assert_eq!(drawn(0.7), [1, 1, 1, 2, 2].map(Some));
    assert_eq!(drawn(1.0), [1, 1, 2, 2, 0].map(Some));
}
