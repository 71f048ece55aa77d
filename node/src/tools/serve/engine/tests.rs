//! The engine over a model that counts: after a token comes the next letter, always.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use intellect_model::{
    data::Batch,
    train::{Judged, Reader, TrainError},
};
use serde_json::{Value, json};

use super::*;
use crate::tools::serve::{order::AskedFor, tests::served};

/// Predicts the successor of the newest token, modulo the vocabulary. Its weights are added to the step.
#[derive(Default)]
struct Successor {
    /// How many texts each pass continued.
    passes: Arc<Mutex<Vec<usize>>>,
    further: usize,
}

struct Successors<'a> {
    model: &'a Successor,
    begun: AtomicUsize,
}

impl Model for Successor {
    fn load(&mut self, theta: &[f32]) -> Result<(), TrainError> {
        self.further = theta.len();
        Ok(())
    }

    fn store(&self, _: &mut [f32]) -> Result<(), TrainError> {
        Ok(())
    }

    fn logits(&self, _: &[i32], _: usize) -> Result<Vec<f32>, TrainError> {
        unreachable!("texts are continued in a group")
    }

    fn judge(&self, _: &[i32], _: &[i32], _: usize) -> Result<Vec<Judged>, TrainError> {
        unreachable!("texts are continued in a group")
    }

    fn loss(&self, _: &Batch) -> Result<f64, TrainError> {
        unreachable!("texts are continued in a group")
    }

    fn reader(&self, _: Keep) -> Box<dyn Reader + '_> {
        unreachable!("texts are continued in a group")
    }

    fn group(&self, _: Keep) -> Box<dyn ReaderGroup + '_> {
        Box::new(Successors { model: self, begun: AtomicUsize::new(0) })
    }
}

impl Successors<'_> {
    fn scores(&self, token: i32) -> Vec<f32> {
        let mut scores = vec![0.0; 257];
        scores[(token as usize + 1 + self.model.further) % 257] = 9.0;
        scores
    }
}

impl ReaderGroup for Successors<'_> {
    fn begin(&mut self) -> usize {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    fn fork(&mut self, _: usize) -> Option<usize> {
        Some(self.begin())
    }

    fn end(&mut self, _: usize) {}

    fn read(&mut self, _: usize, tokens: &[i32], scored: Scored) -> Result<Vec<f32>, TrainError> {
        let unscored = tokens.len() - scored.count(tokens.len());
        Ok(tokens[unscored..].iter().flat_map(|token| self.scores(*token)).collect())
    }

    fn step(&mut self, next: &[(usize, i32)]) -> Result<Vec<Vec<f32>>, TrainError> {
        if !next.is_empty() {
            self.model.passes.lock().unwrap().push(next.len());
        }
        Ok(next.iter().map(|(_, token)| self.scores(*token)).collect())
    }
}

fn order(body: &Value) -> Arc<Order> {
    let body = body.to_string();
    Arc::new(Order::read(body.as_bytes(), AskedFor::Completion, &served(None), 1).unwrap())
}

/// Texts and ends of an answer that is complete.
fn texts(news: &mut mpsc::Receiver<Delivery>, count: usize) -> Vec<(String, Option<EndReason>)> {
    let mut texts = vec![(String::new(), None); count];
    while let Ok(delivery) = news.try_recv() {
        match delivery {
            Delivery::Text { choice, text, .. } => texts[choice].0 += &text,
            Delivery::End { choice, reason, .. } => texts[choice].1 = Some(reason),
            Delivery::Echo { .. } => {}
            Delivery::Failed(refusal) => panic!("{refusal:?}"),
        }
    }
    texts
}

/// Runs the engine on these requests, all of which wait when it starts. Returns their news, how many texts each pass
/// continued, and what was told.
fn run_on(
    orders: &[Arc<Order>],
    states: Option<blocking::Receiver<NewState>>,
) -> (Vec<mpsc::Receiver<Delivery>>, Vec<usize>, Vec<String>) {
    let model = Successor::default();
    let passes = Arc::clone(&model.passes);
    let (errands, inbox) = blocking::sync_channel(ERRANDS_MAX);
    let (told, mut lines) = mpsc::channel(8);
    let mut news = Vec::new();
    for order in orders {
        let (send, receive) = mpsc::channel(DELIVERIES_MAX);
        errands.send(Errand { order: Arc::clone(order), news: send }).unwrap();
        news.push(receive);
    }
    drop(errands);
    run(Box::new(model), &served(None), &EngineInbox { errands: inbox, states, told });
    let told = std::iter::from_fn(|| lines.try_recv().ok()).collect();
    let passes = passes.lock().unwrap().clone();
    (news, passes, told)
}

#[test]
fn texts_of_several_requests_share_a_pass() {
    let orders = [
        order(&json!({ "prompt": "a", "temperature": 0, "max_tokens": 3 })),
        order(&json!({ "prompt": ["k", "x"], "temperature": 0, "max_tokens": 5 })),
    ];
    let (mut news, passes, _) = run_on(&orders, None);
    let length = Some(EndReason::Length);
    assert_eq!(texts(&mut news[0], 1), [("bcd".to_owned(), length)]);
    assert_eq!(
        texts(&mut news[1], 2),
        [("lmnop".to_owned(), length), ("yz{|}".to_owned(), length)]
    );
    assert!(passes.iter().any(|texts| *texts > 1), "{passes:?}");
    assert_eq!(passes.iter().sum::<usize>(), 2 + 4 + 4, "the last token of a text is not read");
}

#[test]
fn a_stop_string_and_the_token_that_ends_a_document_end_a_text() {
    let orders = [
        order(&json!({ "prompt": "a", "temperature": 0, "max_tokens": 9, "stop": ["ef"] })),
        order(
            &json!({ "prompt": [[252]], "temperature": 0, "max_tokens": 9, "logprobs": 0, "n": 2 }),
        ),
    ];
    let (mut news, ..) = run_on(&orders, None);
    assert_eq!(texts(&mut news[0], 1), [("bcd".to_owned(), Some(EndReason::Stop))]);
    let both = texts(&mut news[1], 2);
    assert!(both.iter().all(|(_, reason)| *reason == Some(EndReason::Stop)), "{both:?}");
}

#[test]
fn an_echo_lists_every_token_of_the_prompt_but_the_one_that_was_not_sent() {
    let body =
        json!({ "prompt": "abx", "temperature": 0, "max_tokens": 0, "echo": true, "logprobs": 1 });
    let (mut news, passes, _) = run_on(&[order(&body)], None);
    let Ok(Delivery::Echo { prompt: 0, records }) = news[0].try_recv() else { panic!("no echo") };
    let tokens: Vec<i32> = records.iter().map(|record| record.token).collect();
    assert_eq!(tokens, [97, 98, 120]);
    let likely: Vec<bool> =
        records.iter().map(|record| record.log_probability.unwrap() > -0.1).collect();
    assert_eq!(likely, [false, true, false]);
    assert_eq!(records[2].top[0].token, 99);
    assert_eq!(texts(&mut news[0], 1), [(String::new(), Some(EndReason::Length))]);
    assert!(passes.is_empty());
    let body = json!({ "prompt": [97, 98], "max_tokens": 0, "echo": true, "logprobs": 1 });
    let (mut news, ..) = run_on(&[order(&body)], None);
    let Ok(Delivery::Echo { records, .. }) = news[0].try_recv() else { panic!("no echo") };
    assert_eq!((records.len(), records[0].log_probability), (2, None), "nothing stands before it");
}

#[test]
fn a_client_that_has_gone_costs_no_pass() {
    let model = Successor::default();
    let passes = Arc::clone(&model.passes);
    let (errands, inbox) = blocking::sync_channel(ERRANDS_MAX);
    let (told, _lines) = mpsc::channel(8);
    let (send, receive) = mpsc::channel(DELIVERIES_MAX);
    let order = order(&json!({ "prompt": "a", "max_tokens": 900 }));
    errands.send(Errand { order, news: send }).unwrap();
    drop((receive, errands));
    run(Box::new(model), &served(None), &EngineInbox { errands: inbox, states: None, told });
    assert_eq!(passes.lock().unwrap().len(), 0);
}

#[test]
fn newer_weights_answer_the_requests_that_come_after_them() {
    let (states, newer) = blocking::sync_channel(1);
    states.send(NewState { theta: vec![0.0], epoch: 8 }).unwrap();
    let order = order(&json!({ "prompt": "a", "temperature": 0, "max_tokens": 3 }));
    let (mut news, _, told) = run_on(&[order], Some(newer));
    assert_eq!(texts(&mut news[0], 1), [("ceg".to_owned(), Some(EndReason::Length))]);
    assert_eq!(told, ["now serves the state of epoch 8"]);
}
