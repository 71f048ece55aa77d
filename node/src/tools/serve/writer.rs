//! One text that is being written: draws its next token, and decides whether it ends.
//!
//! A token passes the sampler, the decoder, which waits until its bytes are whole letters, and the
//! search for stop strings. So what a client sees may be several tokens behind, and catches up when
//! the text ends. The model's pass over the new tokens is the engine's.

use intellect_model::{
    sample::{SampleError, TokenSampler},
    tokenizer::Decoder,
};

use super::{
    engine::{Delivery, EndReason, Errand, deliver, record},
    served::Served,
    stop::StopScan,
};

/// A text of a request that is being written.
pub(super) struct TextWriter {
    /// The request that it is of, and where its parts go.
    pub(super) errand: Errand,
    /// The number of the text in the model's group.
    pub(super) text: usize,
    /// The scores of its next token. // `[V]`
    pub(super) scores: Vec<f32>,
    /// The number of the text in the answer.
    choice: usize,
    sampler: TokenSampler,
    /// Turns tokens into characters.
    decoder: Decoder,
    /// Holds back what may become a stop string.
    scan: StopScan,
    /// The tokens that were drawn so far.
    drawn: usize,
}

impl TextWriter {
    /// A text that begins behind a prompt: number `prompt` of the request, `choice` of the answer, and `number` of those
    /// after the prompt. Nothing if its settings make no sense, which an [`Order`](super::order::Order) rules out.
    pub(super) fn new(
        errand: Errand,
        [prompt, choice, number]: [usize; 3],
        text: usize,
        scores: &[f32],
        served: &Served,
    ) -> Option<Self> {
        let order = &errand.order;
        let sampler = TokenSampler::new(order.sampling, served.known, number as u64).ok()?;
        let tokens = &order.prompts[prompt].tokens;
        // Only the newest tokens decide how the text goes on.
        let newest = &tokens[tokens.len().saturating_sub(BEHIND)..];
        let decoder = served.tokenizer.decoder_behind(newest);
        let scan = StopScan::new(&order.stops);
        let scores = scores.to_vec();
        Some(Self { errand, text, scores, choice, sampler, decoder, scan, drawn: 0 })
    }

    /// Draws the next token, and delivers what it adds. The channel needs room for two parts, which
    /// the engine has checked. What is returned is the token that the model has to read before the
    /// next one is drawn; after `None` the text has ended, and nothing may be drawn any more.
    ///
    /// A token that ends texts is counted, but its characters are not shown. The text also ends at
    /// a stop string, and at the number of tokens that was asked for; if both come at once, the
    /// stop string is the reason.
    ///
    /// # Errors
    /// The scores are no numbers. The text cannot go on, and its request fails.
    pub(super) fn draw(&mut self, served: &Served) -> Result<Option<i32>, SampleError> {
        let token = self.sampler.draw(&self.scores)?;
        let listed = self.errand.order.logprobs;
        let records = match listed {
            Some(most) => vec![record(&self.scores, token, served, most)?],
            None => Vec::new(),
        };
        self.drawn += 1;
        let is_last = self.drawn == self.errand.order.sampling.tokens;
        let (mut text, end) = if served.ends.contains(&token) {
            (self.flush(), Some(EndReason::Stop))
        } else {
            let piece = self.decoder.push(token);
            let shown = self.scan.push(&piece);
            match (shown.is_over, is_last) {
                (true, _) => (shown.text, Some(EndReason::Stop)),
                (false, true) => (shown.text, Some(EndReason::Length)),
                (false, false) => (shown.text, None),
            }
        };
        if end == Some(EndReason::Length) {
            text += &self.flush();
        }
        let choice = self.choice;
        if !text.is_empty() || !records.is_empty() {
            deliver(&self.errand, Delivery::Text { choice, text, records });
        }
        let Some(reason) = end else { return Ok(Some(token)) };
        deliver(&self.errand, Delivery::End { choice, reason, tokens: self.drawn });
        Ok(None)
    }

    /// What was held back of a text that ends here.
    fn flush(&mut self) -> String {
        let rest = self.decoder.finish();
        let shown = self.scan.push(&rest);
        if shown.is_over { shown.text } else { shown.text + &self.scan.finish() }
    }
}

/// Tokens of a prompt behind which a decoder begins: more than one letter has. Some tokenizers
/// spell a token otherwise at the begin of a text, so a decoder has to know that it is behind
/// something.
const BEHIND: usize = 32;
