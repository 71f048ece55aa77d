//! `tokenizer.json` where a token is a byte: the number of a token is the byte's value. Of
//! documents one token more begins each.
//!
//! The tokenizers library writes a byte as a letter: itself where it is a printable one of Latin-1,
//! else the next unused one from U+0100 on (GPT-2, Radford et al. 2019, whose table `byte_letters`
//! is). A vocabulary of these 256 letters without a single merge leaves every byte a token.

use serde_json::{Map, Value, json};

/// What `tokenizer.json` says; `bos` is the token that begins a document, where there are
/// documents.
#[must_use]
pub fn describe(bos: Option<u32>) -> Value {
    let letters = byte_letters().zip(0..).map(|(letter, byte)| (letter.to_string(), json!(byte)));
    let vocabulary: Map<String, Value> = letters.collect();
    let bytes = json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": false,
        "use_regex": false,
    });
    let begin = |id| {
        json!({
            "id": id,
            "content": BOS,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": true,
        })
    };
    let begins = |id| {
        let [begin, text, second] = [
            json!({ "SpecialToken": { "id": BOS, "type_id": 0 } }),
            json!({ "Sequence": { "id": "A", "type_id": 0 } }),
            json!({ "Sequence": { "id": "B", "type_id": 1 } }),
        ];
        json!({
            "type": "TemplateProcessing",
            "single": [begin, text],
            "pair": [begin, text, second],
            "special_tokens": { BOS: { "id": BOS, "ids": [id], "tokens": [BOS] } },
        })
    };
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": bos.map(begin).into_iter().collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": bytes.clone(),
        "post_processor": bos.map(begins),
        "decoder": bytes,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocabulary,
            "merges": [],
        },
    })
}

/// What `tokenizer_config.json` says of a model that reads `context` tokens, and of [`describe`]'s
/// files.
#[must_use]
pub fn settings(context: usize, bos: Option<u32>) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos.map(|_| BOS),
        "model_max_length": context,
        "clean_up_tokenization_spaces": false,
        "model_input_names": ["input_ids", "attention_mask"],
    })
}

/// How what begins a document is written.
const BOS: &str = "<s>";

/// The letter of each byte.
fn byte_letters() -> impl Iterator<Item = char> {
    let mut unused = '\u{100}'..='\u{200}';
    (0..=u8::MAX).map(move |byte| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => unused.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Values of GPT-2's published vocabulary: a space is Ġ, a line break Ċ, a zero Ā.
    #[test]
    fn bytes_have_the_letters_of_gpt_2() {
        let letters: Vec<_> = byte_letters().collect();
        let some =
            [b' ', b'\n', 0, b'a', 0x7f, 0xa0, 0xad, 0xff].map(|byte| letters[byte as usize]);
        assert_eq!(some, ['Ġ', 'Ċ', 'Ā', 'a', 'ġ', 'ł', 'Ń', 'ÿ']);
        assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), 256);
    }
}
