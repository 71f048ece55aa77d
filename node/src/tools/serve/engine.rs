//! The thread that owns the model, and writes all texts that are asked for.
//!
//! Prompts are read in parts, one part at a time, and between two parts every text that is being written gets one token.
//! So a long prompt does not hold up the others, and the texts share a pass over the weights. A client that has gone is
//! noticed before the next token of each of its texts. A client that reads too slowly makes only its own texts wait.
//!
//! The weights are replaced only between requests: a newer state waits until what has begun is done, and what comes in
//! meanwhile waits for it.
//!
//! The thread never waits for a client: a part of an answer is sent only where the channel has
//! room, and a text without room is left out of the pass. It knows nothing of HTTP and of JSON. The
//! memory of a text grows by its length, and at most [`WRITERS_MAX`] texts are written at a time,
//! and one prompt is read.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc as blocking},
    thread,
    time::Duration,
};

use intellect_model::{
    arch::{Keep, Scored},
    sample::{
        SampleError,
        likely::{Likely, likely},
    },
    train::{Model, ReaderGroup},
};
use tokio::sync::mpsc;

use super::{
    order::{Order, TEXTS_MAX},
    refusal::Refusal,
    served::Served,
    writer::TextWriter,
};

/// A request on its way to the model, and where its answer goes.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    /// What is asked, shared by all prompts of the request.
    pub(super) order: Arc<Order>,
    /// Where the parts of the answer go. Its end means that the client has gone.
    pub(super) news: mpsc::Sender<Delivery>,
}

/// A part of an answer, in the order in which it is written. `prompt` counts the prompts of the
/// request from 0, and `choice` its texts: text `c` follows prompt `c / choices`.
#[derive(Debug)]
pub(super) enum Delivery {
    /// How likely the tokens of a prompt are, before any of its texts. It comes only if both `echo`
    /// and log-probabilities are wanted, since the characters of the prompt need no model.
    Echo { prompt: usize, records: Vec<TokenRecord> },
    /// The characters with which a text goes on. They may be none, where a token is only a part of
    /// a letter or may become a stop string; its record comes all the same, where log-probabilities
    /// are wanted.
    Text { choice: usize, text: String, records: Vec<TokenRecord> },
    /// A text has ended, after so many tokens. Each text of a request ends once, unless the request
    /// fails.
    End { choice: usize, reason: EndReason, tokens: usize },
    /// Nothing comes after this, and texts stay incomplete.
    Failed(Refusal),
}

/// Why the model writes a text no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The model ended it, or a stop string came.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
}

/// A token, and how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TokenRecord {
    pub(super) token: i32,
    /// Nothing for a token before which there is none.
    pub(super) log_probability: Option<f64>,
    /// The likeliest at its place, the likeliest first.
    pub(super) top: Vec<Likely>,
}

/// Newer weights, and the epoch that they are of.
#[derive(Debug)]
pub(super) struct NewState {
    /// The parameters, in the order of the model.
    pub(super) theta: Vec<f32>,
    /// The epoch after which they were committed.
    pub(super) epoch: u64,
}

/// How the thread is reached, and whom it tells that the weights have changed.
pub(super) struct EngineInbox {
    /// Requests. The thread ends once nobody can send any.
    pub(super) errands: blocking::Receiver<Errand>,
    /// Newer weights, if a node's folder is followed.
    pub(super) states: Option<blocking::Receiver<NewState>>,
    /// Lines for standard output; one that finds no room is lost.
    pub(super) told: mpsc::Sender<String>,
}

/// Answers until nobody can ask any more.
///
/// Each pass of the loop serves one state of the weights. The group of texts borrows the model, so
/// newer weights can be loaded only when the group is gone, and with it every text that was read by
/// the older ones. Weights that cannot be loaded are reported, and the server goes on with what the
/// model has then.
pub(super) fn run(mut model: Box<dyn Model>, served: &Served, inbox: &EngineInbox) {
    loop {
        let newer = Desk::new(model.group(Keep::default()), served).work(inbox);
        let Some(NewState { theta, epoch }) = newer else { return };
        let line = match model.load(&theta) {
            Ok(()) => format!("now serves the state of epoch {epoch}"),
            Err(error) => format!("the state of epoch {epoch} cannot be loaded: {error}"),
        };
        // A line that nobody has time to print is not worth waiting for.
        let _ = inbox.told.try_send(line);
    }
}

/// A prompt that waits, or is being read.
struct Incoming {
    /// The request that the prompt belongs to.
    errand: Errand,
    /// Its number among the prompts of the request.
    prompt: usize,
    /// Its number in the group, once it is being read.
    text: Option<usize>,
    /// How many of its tokens were read.
    read: usize,
    /// How likely its tokens are, if that was asked for.
    records: Vec<TokenRecord>,
}

/// Everything that is being answered by the same weights.
struct Desk<'a> {
    /// The texts that the model reads and writes at the same time.
    group: Box<dyn ReaderGroup + 'a>,
    served: &'a Served,
    /// Prompts that are not read yet, or only in part.
    waiting: VecDeque<Incoming>,
    /// Texts of which at least the prompt was read.
    writers: Vec<TextWriter>,
}

impl<'a> Desk<'a> {
    fn new(group: Box<dyn ReaderGroup + 'a>, served: &'a Served) -> Self {
        Self { group, served, waiting: VecDeque::new(), writers: Vec::new() }
    }

    /// Answers until there are newer weights, which are returned, or nobody can ask any more.
    ///
    /// One pass of the loop takes a request at most, reads one part of one prompt, and writes one
    /// token of every text. An idle desk waits for a request, but only for [`LOOK_EVERY`], since
    /// newer weights come by another channel.
    fn work(mut self, inbox: &EngineInbox) -> Option<NewState> {
        let mut newer = None;
        loop {
            if newer.is_none() {
                newer = inbox.states.as_ref().and_then(|states| states.try_recv().ok());
            }
            let is_idle = self.waiting.is_empty() && self.writers.is_empty();
            if is_idle && newer.is_some() {
                return newer;
            }
            if is_idle {
                match inbox.errands.recv_timeout(LOOK_EVERY) {
                    Ok(errand) => self.take(&errand),
                    Err(blocking::RecvTimeoutError::Timeout) => continue,
                    Err(blocking::RecvTimeoutError::Disconnected) => return None,
                }
            } else if newer.is_none()
                && self.waiting.is_empty()
                && self.writers.len() < WRITERS_MAX
                && let Ok(errand) = inbox.errands.try_recv()
            {
                self.take(&errand);
            }
            let has_read = self.read_on();
            if !self.write_on() && !has_read && !self.writers.is_empty() {
                thread::sleep(STALL);
            }
        }
    }

    /// Puts each prompt of a request at the end of those that wait. They share the request and its
    /// channel.
    fn take(&mut self, errand: &Errand) {
        for prompt in 0..errand.order.prompts.len() {
            let errand = errand.clone();
            let records = Vec::new();
            self.waiting.push_back(Incoming { errand, prompt, text: None, read: 0, records });
        }
    }

    /// Reads a part of the prompt that is next. Returns whether there was one.
    ///
    /// A prompt whose texts find no room among the writers stays the next one, and nothing
    /// overtakes it. If no text is being written it is read in any case.
    fn read_on(&mut self) -> bool {
        let Some(mut next) = self.waiting.pop_front() else { return false };
        if next.errand.news.is_closed() {
            self.forget(next.text);
            return true;
        }
        let choices = next.errand.order.choices;
        if next.text.is_none()
            && !self.writers.is_empty()
            && self.writers.len() + choices > WRITERS_MAX
        {
            self.waiting.push_front(next);
            return false;
        }
        match self.read_part(&mut next) {
            Ok(None) => self.waiting.push_front(next),
            Ok(Some(scores)) => self.begin_texts(next, &scores),
            Err(refusal) => {
                self.forget(next.text);
                deliver(&next.errand, Delivery::Failed(refusal));
            }
        }
        true
    }

    /// Reads a part of a prompt. Returns the scores of what follows the prompt, when all of it was
    /// read. // `[V]`
    ///
    /// Where log-probabilities of the prompt are wanted, the scores after each of its tokens are
    /// needed, and a part is as short as [`SCORES_MAX`] demands. Else only the last token is
    /// scored.
    ///
    /// # Errors
    /// The model cannot read the tokens. The text has then to be ended.
    fn read_part(&mut self, next: &mut Incoming) -> Result<Option<Vec<f32>>, Refusal> {
        let order = Arc::clone(&next.errand.order);
        let tokens = &order.prompts[next.prompt].tokens;
        let text = *next.text.get_or_insert_with(|| self.group.begin());
        let listed = if order.echo { order.logprobs } else { None };
        let part = match listed {
            None => PART,
            Some(_) => (SCORES_MAX / self.served.known.max(1)).clamp(1, PART),
        };
        let end = tokens.len().min(next.read + part);
        let unread = &tokens[next.read..end];
        let Some(most) = listed else {
            let is_last = end == tokens.len();
            let scored = if is_last { Scored::Last } else { Scored::Nothing };
            let scores = self.group.read(text, unread, scored).map_err(Refusal::failed)?;
            next.read = end;
            return Ok(is_last.then_some(scores));
        };
        if next.read == 0 {
            let first = TokenRecord { token: tokens[0], log_probability: None, top: Vec::new() };
            next.records.push(first);
        }
        let scores = self.group.read(text, unread, Scored::All).map_err(Refusal::failed)?; // [T, V]
        let width = scores.len() / unread.len();
        for (row, token) in scores.chunks_exact(width).zip(&tokens[next.read + 1..]) {
            next.records.push(record(row, *token, self.served, most).map_err(Refusal::failed)?);
        }
        next.read = end;
        Ok((end == tokens.len()).then(|| scores[scores.len() - width..].to_vec()))
    }

    /// Begins the texts after a prompt that was read. The first one goes on in the state of the
    /// prompt, the others fork from it before anything is drawn. A request for 0 tokens has ended
    /// with this.
    fn begin_texts(&mut self, next: Incoming, scores: &[f32]) {
        let Incoming { errand, prompt, text, mut records, .. } = next;
        let Some(text) = text else { return };
        let order = Arc::clone(&errand.order);
        if order.echo && order.logprobs.is_some() {
            // The token that begins a document was not sent, and is not echoed.
            records.drain(..order.prompts[prompt].hidden.min(records.len()));
            deliver(&errand, Delivery::Echo { prompt, records });
        }
        for number in 0..order.choices {
            let choice = prompt * order.choices + number;
            if order.sampling.tokens == 0 {
                let reason = EndReason::Length;
                deliver(&errand, Delivery::End { choice, reason, tokens: 0 });
                continue;
            }
            let own = if number == 0 { Some(text) } else { self.group.fork(text) };
            let writer = own.and_then(|own| {
                TextWriter::new(errand.clone(), [prompt, choice, number], own, scores, self.served)
            });
            match writer {
                Some(writer) => self.writers.push(writer),
                None => deliver(&errand, Delivery::Failed(Refusal::failed("a setting is wrong"))),
            }
        }
        if order.sampling.tokens == 0 {
            self.group.end(text);
        }
    }

    /// Writes one token of every text whose client takes it. Returns whether there was one.
    ///
    /// All these tokens are read in one pass over the weights. If that pass fails, all texts in it
    /// fail, because nobody knows what the model has read of each.
    fn write_on(&mut self) -> bool {
        let mut has_written = false;
        let mut next = Vec::new();
        let mut ended = Vec::new();
        for (at, writer) in self.writers.iter_mut().enumerate() {
            if writer.errand.news.is_closed() {
                ended.push(at);
                continue;
            }
            // Room for one piece and one end of every text of the request.
            if writer.errand.news.capacity() < 2 * writer.errand.order.texts() {
                continue;
            }
            has_written = true;
            match writer.draw(self.served) {
                Ok(Some(token)) => next.push((at, writer.text, token)),
                Ok(None) => ended.push(at),
                Err(error) => {
                    deliver(&writer.errand, Delivery::Failed(Refusal::failed(error)));
                    ended.push(at);
                }
            }
        }
        let read: Vec<(usize, i32)> = next.iter().map(|(_, text, token)| (*text, *token)).collect();
        match self.group.step(&read) {
            Ok(scores) => {
                for ((at, ..), scores) in next.iter().zip(scores) {
                    self.writers[*at].scores = scores;
                }
            }
            Err(error) => {
                for (at, ..) in &next {
                    let refusal = Refusal::failed(&error);
                    deliver(&self.writers[*at].errand, Delivery::Failed(refusal));
                    ended.push(*at);
                }
            }
        }
        ended.sort_unstable();
        for at in ended.into_iter().rev() {
            let writer = self.writers.remove(at);
            self.group.end(writer.text);
        }
        has_written
    }

    /// Gives a place in the group back, if it was taken.
    fn forget(&mut self, text: Option<usize>) {
        if let Some(text) = text {
            self.group.end(text);
        }
    }
}

/// A token of a text, and how likely it was, with the `most` likeliest tokens where it stands.
///
/// # Errors
/// The scores are no numbers, or the token is none of the tokens that are known.
pub(super) fn record(
    scores: &[f32],
    token: i32,
    served: &Served,
    most: usize,
) -> Result<TokenRecord, SampleError> {
    let (one, top) = likely(scores, token, served.known, most)?;
    Ok(TokenRecord { token, log_probability: Some(one.log_probability), top })
}

/// Sends a part of an answer. If the client has gone, nobody misses it; there is room, since texts wait for it.
pub(super) fn deliver(errand: &Errand, delivery: Delivery) {
    let _ = errand.news.try_send(delivery);
}

/// Parts of an answer that wait for its client: several for each of its texts, and one for each prompt.
pub(super) const DELIVERIES_MAX: usize = 8 * TEXTS_MAX;
/// Requests that wait for the model. Each may hold prompts of a megabyte; the next one is refused
/// as busy.
pub(super) const ERRANDS_MAX: usize = 64;
/// Texts that are written at the same time.
const WRITERS_MAX: usize = 64;
/// Tokens of a prompt that are read between two tokens of other texts: a guess.
const PART: usize = 256;
/// Scores of a part of a prompt that are kept at once: 16 MiB.
const SCORES_MAX: usize = 1 << 22;
/// How often an idle engine looks for newer weights.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long an engine waits whose clients do not read, before it looks at their channels again.
const STALL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
