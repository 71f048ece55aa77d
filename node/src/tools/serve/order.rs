//! What a client asks for, turned once into values that cannot be wrong.
//!
//! A field that would be honoured in part, or not at all, is refused: an answer that ignores a wish looks like one that
//! grants it.
//!
//! Everything that a request can cost is bounded here, before it waits for the model: prompts,
//! texts, tokens that are read and written, and the numbers of the answer. What is refused later
//! can only be the model's failure. Nothing here reads the weights, so a request is checked on any
//! thread, and while another one is being answered.

use intellect_model::arch::Keep;
use intellect_model::sample::{Ending, Sampling, TokenSampler};
use serde_json::{Value, json};

use super::{
    fields::Fields,
    refusal::Refusal,
    served::{NEXT_QUESTION, PromptTokens, Served},
};

/// By which path a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedFor {
    /// The texts after some prompts: `/v1/completions`.
    Completion,
    /// The answer to the last message of a conversation: `/v1/chat/completions`.
    Chat,
}

/// How the answer of a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendAs {
    /// At once, when everything is written.
    Whole,
    /// In parts, as server-sent events, and at the end the counts of tokens if they are wanted.
    /// They come in a part without choices, which a client that did not ask for them need not
    /// understand.
    Stream { usage: bool },
}

/// A request that can be answered. All bounds of this file hold for it, so that those who work on
/// it check nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) asked: AskedFor,
    /// At least one, and none of them without a token. A chat has one.
    pub(super) prompts: Vec<PromptTokens>,
    /// How many texts are written after each prompt, from 1 to [`CHOICES_MAX`].
    pub(super) choices: usize,
    /// How tokens are drawn, and how many at most for each text.
    pub(super) sampling: Sampling,
    /// Strings at which a text ends. They are not shown.
    pub(super) stops: Vec<String>,
    /// Whether the prompt stands before the answer.
    pub(super) echo: bool,
    /// How many of the likeliest tokens are listed at each place, if log-probabilities are wanted.
    pub(super) logprobs: Option<usize>,
    pub(super) send: SendAs,
}

impl Order {
    /// Reads the body of a request. Where it names no seed, `seed` is used. One seed serves the
    /// whole request: the texts after one prompt draw from it by their numbers.
    ///
    /// # Errors
    /// The first mistake that is found, with the field and the remedy. The order of the checks
    /// decides which one that is.
    pub(super) fn read(
        body: &[u8],
        asked: AskedFor,
        served: &Served,
        seed: u64,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::of(body)?;
        expect_model(&mut fields, served)?;
        let (field, prompts) = match asked {
            AskedFor::Completion => ("prompt", prompts(&mut fields, served)?),
            AskedFor::Chat => ("messages", vec![chat(&mut fields, served)?]),
        };
        if prompts.iter().any(|prompt| prompt.tokens.is_empty()) {
            return Err(Refusal::field(field, format!("{field}: {NO_TOKENS}")));
        }
        let choices = fields.count("n", 1, CHOICES_MAX)?.unwrap_or(1);
        if prompts.len() * choices > TEXTS_MAX {
            let message =
                format!("n: a request has at most {TEXTS_MAX} texts in all: send fewer prompts");
            return Err(Refusal::field("n", message));
        }
        let (echo, logprobs) = match asked {
            AskedFor::Completion => {
                (fields.flag("echo")?, fields.count("logprobs", 0, LOGPROBS_MAX)?)
            }
            AskedFor::Chat => {
                fields.without("logprobs", |value| value == &json!(false))?;
                fields.without("top_logprobs", |value| value == &json!(0))?;
                (false, None)
            }
        };
        let sampling = Sampling {
            temperature: fields.number("temperature")?.unwrap_or(1.0),
            top_p: fields.number("top_p")?.unwrap_or(1.0),
            seed: fields.seed()?.unwrap_or(seed),
            tokens: tokens(&mut fields, asked, field, &prompts, served)?,
            ending: Ending::Never,
            keep: Keep::default(),
        };
        // The sampler knows which numbers make sense.
        if let Err(error) = TokenSampler::new(sampling, served.known, 0) {
            return Err(Refusal::request(error.to_string()));
        }
        let mut stops = fields.stops()?;
        if asked == AskedFor::Chat && served.chat.is_none() {
            stops.push(NEXT_QUESTION.to_owned());
        }
        let send = send(&mut fields)?;
        refuse(&mut fields, choices)?;
        fields.end()?;
        let order = Self { asked, prompts, choices, sampling, stops, echo, logprobs, send };
        if order.numbers() > NUMBERS_MAX {
            let message =
                format!("logprobs: the answer would have over {NUMBERS_MAX} numbers: ask for less");
            return Err(Refusal::field("logprobs", message));
        }
        Ok(order)
    }

    /// How many log-probabilities the answer may have. With `echo` each choice repeats those of its
    /// prompt, and each token has its own beside the likeliest ones.
    fn numbers(&self) -> usize {
        let Some(listed) = self.logprobs else { return 0 };
        let echoed = if self.echo { self.prompt_tokens() * self.choices } else { 0 };
        (echoed + self.sampling.tokens * self.texts()) * (listed + 1)
    }

    /// How many texts the answer has.
    pub(super) fn texts(&self) -> usize {
        self.prompts.len() * self.choices
    }

    /// How many tokens the prompts have.
    pub(super) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.tokens.len()).sum()
    }
}

/// Only one model is here, which may also remain unnamed. Another name is refused, since its
/// answers would pass for those of the model that was named.
fn expect_model(fields: &mut Fields, served: &Served) -> Result<(), Refusal> {
    match fields.take("model") {
        None => Ok(()),
        Some(Value::String(name)) if name == served.name => Ok(()),
        Some(other) => {
            let asked = other.as_str().unwrap_or("?");
            let asked: String = asked.chars().take(NAME_CHARS).collect();
            Err(Refusal::no_model(&asked, &served.name))
        }
    }
}

/// Reads how the answer is to be sent. Of `stream_options` only the counts are known; parts are
/// never padded, so a client that asks for that is refused.
fn send(fields: &mut Fields) -> Result<SendAs, Refusal> {
    let streams = fields.flag("stream")?;
    let usage = match fields.take("stream_options") {
        None => false,
        Some(_) if !streams => {
            return Err(Refusal::field("stream_options", "stream_options: send it with stream"));
        }
        Some(options) => {
            let known = options.as_object().is_some_and(|options| {
                options.keys().all(|key| key == "include_usage" || key == "include_obfuscation")
            });
            if !known || options["include_obfuscation"] == json!(true) {
                let message = "stream_options: this server knows include_usage only";
                return Err(Refusal::field("stream_options", message));
            }
            options["include_usage"].as_bool().unwrap_or(false)
        }
    };
    Ok(if streams { SendAs::Stream { usage } } else { SendAs::Whole })
}

/// Fields that exist elsewhere and would change the answer. Each is accepted with the value that
/// changes nothing, because some libraries send all their fields.
fn refuse(fields: &mut Fields, choices: usize) -> Result<(), Refusal> {
    // A name that says for whom the request is made changes nothing.
    fields.take("user");
    let best_of = fields.count("best_of", 1, CHOICES_MAX)?;
    if best_of.is_some_and(|best_of| best_of != choices) {
        let message = "best_of: this server writes as many texts as it sends, leave it out";
        return Err(Refusal::field("best_of", message));
    }
    let zero = |value: &Value| value.as_f64() == Some(0.0);
    fields.without("presence_penalty", zero)?;
    fields.without("frequency_penalty", zero)?;
    fields.without("suffix", |value| value == "")?;
    fields
        .without("logit_bias", |value| value.as_object().is_some_and(serde_json::Map::is_empty))?;
    fields.without("response_format", |value| value["type"] == "text")?;
    fields.without("tools", |value| value.as_array().is_some_and(Vec::is_empty))
}

/// The prompts of a completion: a text, texts, tokens, or lists of tokens. Without the field there
/// is one empty text, after which the model begins a document of its own. Tokens are read as they
/// are, without the one that begins a document.
fn prompts(fields: &mut Fields, served: &Served) -> Result<Vec<PromptTokens>, Refusal> {
    let form = || {
        let message = format!(
            "prompt: send a text, a list of tokens, or at most {PROMPTS_MAX} of one of them; a token is a whole \
             number below {}",
            served.known
        );
        Refusal::field("prompt", message)
    };
    let value = fields.take("prompt").unwrap_or_else(|| json!(""));
    let list = match value {
        Value::String(_) => vec![value],
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            vec![Value::Array(list)]
        }
        Value::Array(list) => list,
        _ => return Err(form()),
    };
    if !(1..=PROMPTS_MAX).contains(&list.len()) {
        return Err(form());
    }
    let known = |token: &Value| {
        let token = i32::try_from(token.as_u64()?).ok()?;
        usize::try_from(token).is_ok_and(|token| token < served.known).then_some(token)
    };
    let read = |one: Value| match one {
        Value::String(text) => served.prompt(&text).map_err(|error| {
            Refusal::field("prompt", format!("prompt: {error}; leave the letter out"))
        }),
        Value::Array(tokens) => {
            let tokens: Option<Vec<i32>> = tokens.iter().map(known).collect();
            let tokens = tokens.filter(|tokens| !tokens.is_empty()).ok_or_else(form)?;
            Ok(served.prompt_of(tokens))
        }
        _ => Err(form()),
    };
    list.into_iter().map(read).collect()
}

/// The messages of a chat as a prompt.
///
/// A message must not spell a token of the template: it would become that token, and so a client's
/// text could end its message and begin one of another role.
fn chat(fields: &mut Fields, served: &Served) -> Result<PromptTokens, Refusal> {
    let wrong = |what: &str| Refusal::field("messages", format!("messages: {what}"));
    let messages = fields.take("messages");
    let list = messages.as_ref().and_then(Value::as_array);
    let list = list.filter(|list| (1..=MESSAGES_MAX).contains(&list.len()));
    let list =
        list.ok_or_else(|| wrong(&format!("send a list of 1 to {MESSAGES_MAX} messages")))?;
    let mut read = Vec::with_capacity(list.len());
    for (at, message) in list.iter().enumerate() {
        let role = match message["role"].as_str() {
            // The newer name of the same role.
            Some("developer") => "system",
            Some(role @ ("system" | "user" | "assistant")) => role,
            _ => return Err(wrong(&format!("{at}: the role is system, user or assistant"))),
        };
        let content = content(&message["content"]).ok_or_else(|| {
            wrong(&format!("{at}: the content is a text, or a list of parts of type text"))
        })?;
        if let Some(mark) = served.chat.as_ref().and_then(|_| served.tokenizer.mark_in(&content)) {
            return Err(wrong(&format!(
                "{at}: it spells {mark:?}, a token of the template: leave it out"
            )));
        }
        read.push(json!({ "role": role, "content": content }));
    }
    served.chat_prompt(&read).map_err(|why| wrong(&why))
}

/// The text of a message, which may come in parts; `None` if a part is no text.
fn content(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let text = |part: &Value| {
        if part["type"] == "text" { part["text"].as_str().map(str::to_owned) } else { None }
    };
    value.as_array()?.iter().map(text).collect()
}

/// How many tokens are written at most: as many as are asked for, which have to fit.
///
/// A number that is asked for is never made smaller, since a text that stops early looks like one
/// that the model ended. The default gives way to the room that there is. `field` is where the
/// prompts came from, for messages.
fn tokens(
    fields: &mut Fields,
    asked: AskedFor,
    field: &str,
    prompts: &[PromptTokens],
    served: &Served,
) -> Result<usize, Refusal> {
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    let all: usize = prompts.iter().map(|prompt| prompt.tokens.len()).sum();
    if all > PROMPT_TOKENS_MAX {
        let message = format!(
            "{field}: {all} tokens, and a request has at most {PROMPT_TOKENS_MAX}: send less"
        );
        return Err(Refusal::too_long(field, message));
    }
    // The last token that is written is not read.
    let room = served
        .reach
        .map_or(TOKENS_MAX, |reach| (reach + 1).saturating_sub(longest).min(TOKENS_MAX));
    if room == 0 {
        let reach = served.reach.unwrap_or(TOKENS_MAX);
        let message =
            format!("{field}: {longest} tokens, and this model reads at most {reach}: send fewer");
        return Err(Refusal::too_long(field, message));
    }
    let (newer, default) = match asked {
        AskedFor::Completion => (None, COMPLETION_TOKENS),
        AskedFor::Chat => (fields.count("max_completion_tokens", 0, TOKENS_MAX)?, CHAT_TOKENS),
    };
    let typed = fields.count("max_tokens", 0, TOKENS_MAX)?;
    match newer.or(typed) {
        Some(typed) if typed > room => {
            let message = format!(
                "max_tokens: {typed}, and after a prompt of {longest} tokens there is room for {room}: ask for \
                 fewer, or send a shorter prompt"
            );
            Err(Refusal::too_long("max_tokens", message))
        }
        Some(typed) => Ok(typed),
        None => Ok(default.min(room)),
    }
}

/// Most prompts that one request may have.
const PROMPTS_MAX: usize = 32;
/// Most texts that are written for one prompt.
const CHOICES_MAX: usize = 8;
/// Most texts of one request, over all its prompts. The channel of an answer has room for all of
/// them.
pub(super) const TEXTS_MAX: usize = 64;
/// Most messages of the chat in a request. What they may cost is bounded by their tokens; this
/// bounds the template's work.
const MESSAGES_MAX: usize = 256;
/// Likeliest tokens that are listed at a place.
const LOGPROBS_MAX: usize = 20;
/// Log-probabilities of an answer: each is about 30 bytes of JSON, and all of it is in memory.
const NUMBERS_MAX: usize = 1 << 20;
/// Some tokenizers leave out what they do not know.
const NO_TOKENS: &str = "the tokenizer has no token for this text: send another one";
/// Tokens of all prompts of a request, also where the model could read more: they hold up
/// everything that waits behind.
const PROMPT_TOKENS_MAX: usize = 131_072;
/// Tokens that are written for one text, also where the model has no limit of its own.
const TOKENS_MAX: usize = 16_384;
/// What OpenAI writes if nothing is said.
const COMPLETION_TOKENS: usize = 16;
/// An answer in a chat ends by itself, but not that of every model.
const CHAT_TOKENS: usize = 1_024;
/// Letters of an unknown name that a message shows.
const NAME_CHARS: usize = 60;

#[cfg(test)]
mod tests;
