//! What a request needs to know of the model that answers it: its name, its tokens, and how much it can read.
//!
//! All requests share one [`Served`], which never changes: weights that are replaced belong to the
//! same run, and so have the same tokenizer and the same sizes. The weights themselves are the
//! engine's.

use intellect_model::{
    hf::chat::ChatTemplate,
    tokenizer::{EncodeError, Tokenizer},
};
use serde_json::Value;

/// The model that answers, without its weights.
#[derive(Debug)]
pub(super) struct Served {
    /// The name by which clients ask for it.
    pub(super) name: String,
    /// Turns texts into tokens, and tokens into texts, as in the model's training.
    pub(super) tokenizer: Tokenizer,
    /// Tokens that there are; the model's vocabulary may have more rows.
    pub(super) known: usize,
    /// The most tokens that the model can read, where its family has positions.
    pub(super) reach: Option<usize>,
    /// The tokens after which a text ends. They are no part of it; it may have none, and then ends
    /// by its length.
    pub(super) ends: Vec<i32>,
    /// The template of a chat, if the model has one.
    pub(super) chat: Option<ChatTemplate>,
    /// Unix seconds at which it began to answer.
    pub(super) began: u64,
}

/// A prompt, ready to be read by the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PromptTokens {
    pub(super) tokens: Vec<i32>,
    /// How many of them the client did not send: the one that begins a document.
    pub(super) hidden: usize,
    /// The prompt as an echo shows it.
    pub(super) text: String,
}

impl Served {
    /// A text as a prompt: behind the token that begins a document, since the model was trained with it.
    pub(super) fn prompt(&self, text: &str) -> Result<PromptTokens, EncodeError> {
        let tokens = self.tokenizer.encode(text)?;
        let hidden = usize::from(self.tokenizer.bos().is_some() || text.is_empty());
        Ok(PromptTokens { tokens, hidden, text: text.to_owned() })
    }

    /// Tokens as a prompt, as they are. Its text is only for an echo, and may lose bytes that are
    /// no letters.
    pub(super) fn prompt_of(&self, tokens: Vec<i32>) -> PromptTokens {
        let mut decoder = self.tokenizer.decoder();
        let mut text: String = tokens.iter().map(|token| decoder.push(*token)).collect();
        text += &decoder.finish();
        PromptTokens { tokens, hidden: 0, text }
    }

    /// The messages of a chat as a prompt, up to where the answer begins. With a template its
    /// tokens are all hidden, because the client sent none of them as they are.
    ///
    /// # Errors
    /// A sentence for the client: the template refuses the messages, or the tokenizer has no token
    /// for a letter.
    pub(super) fn chat_prompt(&self, messages: &[Value]) -> Result<PromptTokens, String> {
        let Some(template) = &self.chat else {
            return self.prompt(&plain(messages)).map_err(|error| error.to_string());
        };
        let text = template.text(messages)?;
        let mut tokens: Vec<u32> = self.tokenizer.bos().into_iter().collect();
        self.tokenizer.append_marked(&text, &mut tokens).map_err(|error| error.to_string())?;
        // Some templates begin with this token themselves.
        if tokens.len() > 1 && tokens.first() == tokens.get(1) && self.tokenizer.bos().is_some() {
            tokens.remove(0);
        }
        // The casts are exact, since tokens are below 2^20.
        let tokens: Vec<i32> = tokens.into_iter().map(|token| token as i32).collect();
        Ok(PromptTokens { hidden: tokens.len(), tokens, text })
    }

    /// A token as lists of log-probabilities name it: its text, or its number where it is no text of its own.
    pub(super) fn spelled(&self, token: i32) -> String {
        let mut decoder = self.tokenizer.decoder();
        let text = decoder.push(token) + &decoder.finish();
        let is_begin = self.tokenizer.bos().is_some_and(|bos| i64::from(bos) == i64::from(token));
        if is_begin || text.is_empty() || text.contains(char::REPLACEMENT_CHARACTER) {
            return format!("token_id:{token}");
        }
        text
    }
}

/// The form of a chat where the model has no template: a transcript, which a model that never saw a
/// chat can go on with.
fn plain(messages: &[Value]) -> String {
    let mut text = String::new();
    for message in messages {
        let name = match message["role"].as_str() {
            Some("assistant") => "Assistant",
            Some("user") => "User",
            _ => "System",
        };
        // An answer in this form begins with a space, and comes back with it.
        text += &format!("{name}: {}\n\n", message["content"].as_str().unwrap_or_default().trim());
    }
    text + "Assistant:"
}

/// What ends an answer in the plain form, because the model goes on with the next question.
pub(super) const NEXT_QUESTION: &str = "\n\nUser:";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_without_a_template_have_the_plain_form() {
        let messages = [
            json!({ "role": "system", "content": "Be brief." }),
            json!({ "role": "user", "content": "Who?" }),
            json!({ "role": "assistant", "content": " I." }),
            json!({ "role": "user", "content": "Why?" }),
        ];
        let expected =
            "System: Be brief.\n\nUser: Who?\n\nAssistant: I.\n\nUser: Why?\n\nAssistant:";
        assert_eq!(plain(&messages), expected);
    }
}
