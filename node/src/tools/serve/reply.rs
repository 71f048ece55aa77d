//! Answers in the form that clients of OpenAI read: one object, or parts of it as server-sent events.
//!
//! Both forms are made from the same deliveries of the engine, which may come for several texts in
//! turn. [`Gathered`] puts them together and has all of an answer in memory; [`Streamed`] turns
//! each into an event and keeps only counts. Neither waits: `http` takes the deliveries from their
//! channel.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    engine::{Delivery, EndReason, TokenRecord},
    order::{AskedFor, Order, SendAs},
    refusal::Refusal,
    served::Served,
};

/// What all parts of an answer have in common.
#[derive(Clone, Debug)]
pub(super) struct ReplyHead {
    /// The number of the answer, by which a client can name it. It is another one after each start
    /// of the server.
    pub(super) id: String,
    /// Unix seconds at which it was begun.
    pub(super) created: u64,
    /// By which path the request came in, which decides the form of the answer.
    pub(super) asked: AskedFor,
}

/// An answer that is put together. Its size is bounded by the request: see the bounds in `order`.
#[derive(Debug)]
pub(super) struct Gathered<'a> {
    order: &'a Order,
    served: &'a Served,
    texts: Vec<GatheredText>,
    /// Tokens that were written for all texts.
    written: usize,
}

/// One text of an answer, as far as it is written.
#[derive(Clone, Debug, Default)]
struct GatheredText {
    text: String,
    listed: Listed,
    /// Why it ended; `None` while it is written.
    reason: Option<EndReason>,
}

/// Tokens as an answer lists them, in columns: an entry of each column for each token.
#[derive(Clone, Debug, Default)]
struct Listed {
    tokens: Vec<String>,
    log_probabilities: Vec<Option<f64>>,
    /// The likeliest tokens where each token stands, as JSON; nothing for a token before which
    /// there is none.
    tops: Vec<Option<Value>>,
    /// How many letters are before each token, with those of an echo. Letters are Unicode scalar
    /// values.
    offsets: Vec<usize>,
    /// Letters before the next token.
    letters: usize,
}

impl<'a> Gathered<'a> {
    /// An answer without any part; with an echo it begins with the prompts.
    pub(super) fn new(order: &'a Order, served: &'a Served) -> Self {
        let text = |choice: usize| GatheredText {
            text: echoed(order, choice).to_owned(),
            ..GatheredText::default()
        };
        let texts = (0..order.texts()).map(text).collect();
        Self { order, served, texts, written: 0 }
    }

    /// Takes a part of the answer. A refusal ends it, and what was gathered is worth nothing then.
    pub(super) fn add(&mut self, delivery: Delivery) -> Result<(), Refusal> {
        match delivery {
            Delivery::Echo { prompt, records } => {
                let first = prompt * self.order.choices;
                for text in self.texts.iter_mut().skip(first).take(self.order.choices) {
                    text.listed.add(&records, self.served);
                }
            }
            Delivery::Text { choice, text, records } => {
                if let Some(gathered) = self.texts.get_mut(choice) {
                    gathered.text += &text;
                    gathered.listed.add(&records, self.served);
                }
            }
            Delivery::End { choice, reason, tokens } => {
                self.written += tokens;
                if let Some(gathered) = self.texts.get_mut(choice) {
                    gathered.reason = Some(reason);
                }
            }
            Delivery::Failed(refusal) => return Err(refusal),
        }
        Ok(())
    }

    /// The whole answer. Nothing may be missing: a text that has not ended means that the engine
    /// has gone, and the answer is a refusal.
    pub(super) fn whole(self, head: &ReplyHead) -> Result<Value, Refusal> {
        if self.texts.iter().any(|text| text.reason.is_none()) {
            return Err(Refusal::failed("its thread has ended"));
        }
        let choice = |(index, text): (usize, GatheredText)| match head.asked {
            AskedFor::Completion => {
                let logprobs = self.order.logprobs.map(|_| text.listed.json());
                completed(index, &text.text, logprobs, text.reason)
            }
            AskedFor::Chat => json!({
                "index": index, "message": { "role": "assistant", "content": text.text }, "logprobs": null,
                "finish_reason": text.reason.map(word),
            }),
        };
        let choices: Vec<Value> = self.texts.into_iter().enumerate().map(choice).collect();
        let object = match head.asked {
            AskedFor::Completion => "text_completion",
            AskedFor::Chat => "chat.completion",
        };
        let usage = usage(self.order, self.written);
        Ok(head.json(object, self.served, choices, &usage))
    }
}

/// An answer that is sent in parts.
#[derive(Debug)]
pub(super) struct Streamed {
    head: ReplyHead,
    order: Arc<Order>,
    served: Arc<Served>,
    /// The letters of each text that were listed so far.
    letters: Vec<usize>,
    /// Tokens that were written for all texts.
    written: usize,
    /// The number of texts that have not ended.
    open: usize,
}

impl Streamed {
    pub(super) fn new(head: ReplyHead, order: Arc<Order>, served: Arc<Served>) -> Self {
        let open = order.texts();
        Self { head, order, served, letters: vec![0; open], written: 0, open }
    }

    /// What is sent before anything is written: the echo of a completion, or the role of a chat,
    /// for each text. It may be empty.
    pub(super) fn begin(&self) -> String {
        let part = |choice: usize| match self.head.asked {
            AskedFor::Completion if self.order.echo => {
                Some(completed(choice, echoed(&self.order, choice), None, None))
            }
            AskedFor::Completion => None,
            AskedFor::Chat => {
                Some(delta(choice, &json!({ "role": "assistant", "content": "" }), None))
            }
        };
        let parts = (0..self.order.texts()).filter_map(part);
        parts.map(|part| self.part(vec![part], &Value::Null)).collect()
    }

    /// What is sent for a part, and whether it is the last: all texts have ended, or the request
    /// has failed.
    pub(super) fn add(&mut self, delivery: Delivery) -> (String, bool) {
        match delivery {
            Delivery::Echo { prompt, records } => {
                let first = prompt * self.order.choices;
                let choices = first..first + self.order.choices;
                (choices.map(|choice| self.text(choice, "", &records)).collect(), false)
            }
            Delivery::Text { choice, text, records } => (self.text(choice, &text, &records), false),
            Delivery::End { choice, reason, tokens } => {
                self.written += tokens;
                self.open = self.open.saturating_sub(1);
                let part = match self.head.asked {
                    AskedFor::Completion => completed(choice, "", None, Some(reason)),
                    AskedFor::Chat => delta(choice, &json!({}), Some(reason)),
                };
                (self.part(vec![part], &Value::Null), self.open == 0)
            }
            Delivery::Failed(refusal) => (frame(&refusal.json()), true),
        }
    }

    /// What is sent at the end: the counts of tokens if they are wanted, and the mark of the end. A
    /// request that has failed has no counts, as its texts are incomplete.
    pub(super) fn end(&self) -> String {
        let mut text = String::new();
        if self.order.send == (SendAs::Stream { usage: true }) && self.open == 0 {
            text = self.part(Vec::new(), &usage(&self.order, self.written));
        }
        text + "data: [DONE]\n\n"
    }

    /// A part with the characters with which a text goes on. A chat lists no log-probabilities.
    fn text(&mut self, choice: usize, text: &str, records: &[TokenRecord]) -> String {
        let part = match self.head.asked {
            AskedFor::Completion => {
                let mut listed = Listed { letters: self.letters[choice], ..Listed::default() };
                listed.add(records, &self.served);
                self.letters[choice] = listed.letters;
                let logprobs = self.order.logprobs.map(|_| listed.json());
                completed(choice, text, logprobs, None)
            }
            AskedFor::Chat => delta(choice, &json!({ "content": text }), None),
        };
        self.part(vec![part], &Value::Null)
    }

    /// A part of a stream as an event, in the form of its path.
    fn part(&self, choices: Vec<Value>, usage: &Value) -> String {
        let object = match self.head.asked {
            AskedFor::Completion => "text_completion",
            AskedFor::Chat => "chat.completion.chunk",
        };
        frame(&self.head.json(object, &self.served, choices, usage))
    }
}

impl ReplyHead {
    fn json(&self, object: &str, served: &Served, choices: Vec<Value>, usage: &Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": served.name, "choices": choices,
            "usage": usage,
        })
    }
}

impl Listed {
    /// Adds a column for each of these tokens.
    fn add(&mut self, records: &[TokenRecord], served: &Served) {
        for TokenRecord { token, log_probability, top } in records {
            let name = served.spelled(*token);
            self.offsets.push(self.letters);
            self.letters += name.chars().count();
            // The token itself is listed too, as OpenAI does.
            self.tops.push(log_probability.map(|own| {
                let mut listed = Map::new();
                for one in top {
                    listed.insert(served.spelled(one.token), one.log_probability.into());
                }
                listed.insert(name.clone(), own.into());
                listed.into()
            }));
            self.tokens.push(name);
            self.log_probabilities.push(*log_probability);
        }
    }

    fn json(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.log_probabilities,
            "top_logprobs": self.tops,
            "text_offset": self.offsets,
        })
    }
}

/// The list of models, with the only one that there is.
pub(super) fn models(served: &Served) -> Value {
    let model = json!({
        "id": served.name, "object": "model", "created": served.began, "owned_by": "intellect-node",
    });
    json!({ "object": "list", "data": [model] })
}

/// The prompt before a text, if it is to be echoed; else nothing. A chat is never echoed.
fn echoed(order: &Order, choice: usize) -> &str {
    let prompt = order.prompts.get(choice / order.choices);
    prompt.map_or("", |prompt| if order.echo { &prompt.text } else { "" })
}

/// A text of a completion, as a whole or in part.
fn completed(at: usize, text: &str, logprobs: Option<Value>, end: Option<EndReason>) -> Value {
    json!({ "index": at, "text": text, "logprobs": logprobs, "finish_reason": end.map(word) })
}

/// A part of the message that answers a chat.
fn delta(at: usize, delta: &Value, end: Option<EndReason>) -> Value {
    json!({ "index": at, "delta": delta, "finish_reason": end.map(word) })
}

/// An event of a stream: one line of JSON, and a blank line.
fn frame(part: &Value) -> String {
    format!("data: {part}\n\n")
}

/// The counts of tokens that an answer ends with. A prompt counts once, however many texts follow
/// it, and with the tokens that the client did not send.
fn usage(order: &Order, written: usize) -> Value {
    let read = order.prompt_tokens();
    json!({ "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written })
}

/// The word that OpenAI has for this.
fn word(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Stop => "stop",
        EndReason::Length => "length",
    }
}

#[cfg(test)]
mod tests;
