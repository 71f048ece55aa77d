//! Tests of `measure`, on small models with random weights of every family.

use super::*;
use crate::config::{Family, Model as Sizes};
use crate::data::draw::Draw;
use crate::eval::task::score;
use crate::{Device, arch, genesis};

const REACH: usize = 40;

fn work(family: Family) -> Work {
    let mut work = Work::synthetic();
    work.model = Sizes { context: REACH, vocab: 257, ..family.bench_model() };
    work.model.layers = work.model.layers.min(3);
    work
}

fn model(work: &Work) -> Box<dyn Model> {
    let mut model = crate::model(work, Device::Cpu).unwrap();
    let mut theta = genesis::weights(5, &arch::specs(&work.model));
    // At its start a model looks only at the present token.
    theta.iter_mut().enumerate().for_each(|(i, x)| *x += ((i * 37 % 23) as f32 - 11.0) * 0.002);
    model.load(&theta).unwrap();
    model
}

/// ln q of the last `judged` tokens, by the scores of the whole row in f64.
fn by_scores(model: &dyn Model, tokens: &[i32], judged: usize) -> f64 {
    let read = &tokens[..tokens.len() - 1];
    let scores = model.logits(read, 1).unwrap();
    let vocab = scores.len() / read.len();
    let log = |at: usize| {
        let row = &scores[at * vocab..][..vocab];
        let sum: f64 = row.iter().map(|score| f64::from(*score).exp()).sum();
        f64::from(row[tokens[at + 1] as usize]) - sum.ln()
    };
    (read.len() - judged..read.len()).map(log).sum()
}

fn bytes(text: &str) -> Vec<i32> {
    text.bytes().map(i32::from).collect()
}

fn choice(context: &str, choices: &[&str]) -> Item {
    let choices = choices.iter().map(|choice| (*choice).to_owned()).collect();
    Item::Choice { context: context.into(), delimiter: " ".into(), choices, gold: Some(0) }
}

fn log_likelihoods(answer: &Answer) -> &[f64] {
    let Outcome::Choice { log_likelihoods, .. } = &answer.outcome else { panic!("{answer:?}") };
    log_likelihoods
}

/// The state behind a context, and behind what contexts have in common, is as good as reading the
/// whole text for every choice.
#[test]
fn a_forked_state_judges_as_the_whole_text_does() {
    let tokenizer = Tokenizer::bytes();
    for family in Family::ALL {
        let work = work(family);
        let model = model(&work);
        let mut examiner = Examiner::new(model.as_ref(), &work, &tokenizer);
        // The second and third share their first words with the one before, which is kept.
        for context in ["Q: how many peers", "Q: how many peers", "Q: how many pears ", "", "Z"] {
            let choices = ["one", "two hundred", "x"];
            let answer = examiner.measure(&choice(context, &choices)).unwrap();
            assert!(!answer.truncated);
            for (choice, found) in choices.iter().zip(log_likelihoods(&answer)) {
                let judged = format!("{}{} {choice}", "", &context[context.trim_end().len()..]);
                let whole = [vec![256], bytes(context.trim_end()), bytes(&judged)].concat();
                let expected = by_scores(model.as_ref(), &whole, judged.len());
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{family:?} {context:?}: {found} {expected}"
                );
            }
        }
        assert!(examiner.base.is_some(), "what contexts have in common was kept");
    }
}

/// `(context + continuation)[-(reach + 1):][:-1]` is what lm-eval reads.
#[test]
fn a_long_context_loses_its_begin_for_a_family_with_positions_only() {
    let tokenizer = Tokenizer::bytes();
    let context = "0123456789".repeat(5);
    let choices = ["a", "a long one"];
    for family in Family::ALL {
        let work = work(family);
        let model = model(&work);
        let mut long = work.clone();
        long.model.context = 100;
        let mut reads_all = crate::model(&long, Device::Cpu).unwrap();
        let mut theta = vec![0.0; work.model.parameter_count() as usize];
        model.store(&mut theta).unwrap();
        reads_all.load(&theta).unwrap();
        let mut examiner = Examiner::new(model.as_ref(), &work, &tokenizer);
        let answer = examiner.measure(&choice(&context, &choices)).unwrap();
        assert_eq!(answer.truncated, family == Family::Llama);
        for (choice, found) in choices.iter().zip(log_likelihoods(&answer)) {
            let judged = bytes(&format!(" {choice}"));
            let mut whole = [vec![256], bytes(&context), judged.clone()].concat();
            if family == Family::Llama {
                whole.drain(..whole.len() - (REACH + 1));
            }
            let expected = by_scores(reads_all.as_ref(), &whole, judged.len());
            assert!((found - expected).abs() < 1e-3, "{family:?} {choice}: {found} {expected}");
        }
        let (context, delimiter) = ("a".into(), String::new());
        let item = Item::Continuation { context, delimiter, continuation: "b".repeat(REACH + 1) };
        let measured = examiner.measure(&item);
        assert_eq!(matches!(measured, Err(MeasureError::Long { .. })), family == Family::Llama);
    }
}

/// lm-eval's windows: disjoint, each with the token before it, the last with as many as fit.
#[test]
fn a_long_text_is_judged_once_from_begin_to_end() {
    let tokenizer = Tokenizer::bytes();
    let text = "the quick brown fox jumps over the lazy dog ".repeat(2) + "and rests";
    let all = [vec![256], bytes(&text)].concat();
    for family in [Family::Llama, Family::Finch] {
        let work = work(family);
        let model = model(&work);
        let mut examiner = Examiner::new(model.as_ref(), &work, &tokenizer);
        let answer = examiner.measure(&Item::Text { text: text.clone() }).unwrap();
        let Outcome::Text { log_likelihood, words, bytes } = answer.outcome else { panic!() };
        assert_eq!((words, bytes), (20, 97));
        let mut long = work.clone();
        long.model.context = 100;
        let mut reads_all = crate::model(&long, Device::Cpu).unwrap();
        let mut theta = vec![0.0; work.model.parameter_count() as usize];
        model.store(&mut theta).unwrap();
        reads_all.load(&theta).unwrap();
        let window = |range: std::ops::Range<usize>, judged| {
            by_scores(reads_all.as_ref(), &all[range], judged)
        };
        let expected = match family {
            Family::Llama => window(0..41, 40) + window(40..81, 40) + window(57..98, 17),
            Family::Eagle | Family::Finch | Family::GoldFinch => window(0..98, 97),
        };
        assert!((log_likelihood - expected).abs() < 1e-3, "{log_likelihood} {expected}");
    }
}

/// Words are counted as Python's `len(re.split(r"\s+", text))` counts them.
#[test]
fn words_are_counted_as_lm_eval_counts_them() {
    for (text, count) in [("a b", 2), (" a  b\n", 4), ("a", 1), (" ", 2), ("a\tb c ", 4)] {
        assert_eq!(words(text), count, "{text:?}");
    }
}

/// A model that has learnt nothing is right as often as a die: 25 % ± 3 σ of 1,000 items.
#[test]
fn random_weights_guess() {
    let mut work = Work::synthetic();
    work.model = Sizes { context: 24, vocab: 257, layers: 1, ..work.model };
    let mut model = crate::model(&work, Device::Cpu).unwrap();
    model.load(&genesis::weights(3, &arch::specs(&work.model))).unwrap();
    let tokenizer = Tokenizer::bytes();
    let mut examiner = Examiner::new(model.as_ref(), &work, &tokenizer);
    let mut draw = Draw::new(&[9; 32], 0, 0);
    let mut word = |length: u64| -> String {
        (0..=draw.below(length)).map(|_| char::from(b'a' + draw.below(26) as u8)).collect()
    };
    let mut outcomes = Vec::new();
    for number in 0..1_000 {
        let choices = [(); 4].map(|()| word(1));
        let item = Item::Choice {
            context: word(9),
            delimiter: " ".into(),
            choices: choices.to_vec(),
            // The right one is as often each of the four, whatever the letters.
            gold: Some(number % 4),
        };
        outcomes.push(examiner.measure(&item).unwrap().outcome);
    }
    let metrics = score::metrics(&outcomes.iter().collect::<Vec<_>>());
    let sigma = (0.25 * 0.75 / 1000.0_f64).sqrt();
    for metric in &metrics {
        assert!((metric.value - 0.25).abs() < 3.0 * sigma, "{metric:?}");
        assert!((metric.error.unwrap() - sigma).abs() < 1e-3, "{metric:?}");
    }
    assert_eq!(metrics.len(), 2);
}

#[test]
fn weights_that_are_not_finite_and_text_without_tokens_are_refused() {
    let work = work(Family::Llama);
    let mut model = crate::model(&work, Device::Cpu).unwrap();
    let parameters = work.model.parameter_count() as usize;
    model.load(&vec![f32::NAN; parameters]).unwrap();
    let tokenizer = Tokenizer::bytes();
    let mut examiner = Examiner::new(model.as_ref(), &work, &tokenizer);
    for item in [choice("a", &["b", "c"]), Item::Text { text: "abc".into() }] {
        assert!(matches!(examiner.measure(&item), Err(MeasureError::NotFinite)), "{item:?}");
    }
    let symbols = Tokenizer::of(&Work::synthetic().data, None).unwrap();
    let mut examiner = Examiner::new(model.as_ref(), &work, &symbols);
    let refused = examiner.measure(&choice("a", &["!", "c"]));
    assert!(matches!(refused, Err(MeasureError::Encode(_))));
}
