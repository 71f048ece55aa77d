//! The `tokenizer.json` of a tokenizer of bytes, in which the id of a token is the byte's value. In
//! a source of documents one more token begins each document.
//!
//! The tokenizers library writes a byte as a letter: as itself if it is a printable letter of
//! Latin-1, else as the next unused letter from U+0100 on. `byte_letters` is this table, from GPT-2
//! (Radford et al. 2019). With these 256 letters and no merges, every byte is a token.
//!
//! The file has nothing of the run in it. So `text.rs` knows that of a source of documents by
//! comparing it with what is written here, and such a model needs no tokenizers library.

use serde_json::{Map, Value, json};

/// The contents of `tokenizer.json`; `bos` is the token that begins a document, if there are
/// documents.
#[must_use]
pub fn describe(bos: Option<u32>) -> Value {
    let letters = byte_letters().zip(0..).map(|(letter, byte)| (letter.to_string(), json!(byte)));
    let vocabulary: Map<String, Value> = letters.collect();
    // Nothing is split off, added or trimmed: a text is exactly its bytes.
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
    // The token stands before a single text, and once before a pair.
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

/// The contents of `tokenizer_config.json` for a model that reads `context` tokens. `bos` is the text of the token that
/// begins a document, and so ends the one before.
#[must_use]
pub fn settings(context: usize, bos: Option<&str>) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": bos,
        "model_max_length": context,
        "clean_up_tokenization_spaces": false,
        "model_input_names": ["input_ids", "attention_mask"],
    })
}

/// The text of a token in a file of Hugging Face's tokenizers, if the file names it.
pub(super) fn text_of(file: &[u8], token: u32) -> Option<String> {
    let file: Value = serde_json::from_slice(file).ok()?;
    let added = file["added_tokens"].as_array().into_iter().flatten();
    if let Some(added) = added.into_iter().find(|added| added["id"] == token) {
        return Some(added["content"].as_str()?.to_owned());
    }
    match &file["model"]["vocab"] {
        Value::Object(all) => {
            all.iter().find(|(_, id)| **id == token).map(|(text, _)| text.clone())
        }
        // A unigram model lists each token with its score.
        list => Some(list.get(usize::try_from(token).ok()?)?.get(0)?.as_str()?.to_owned()),
    }
}

/// The name of the token that begins a document.
pub(super) const BOS: &str = "<s>";

/// The letter of each byte, in the order of bytes.
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

    #[test]
    fn a_token_is_named_wherever_its_file_does() {
        let added =
            br#"{"added_tokens": [{"id": 7, "content": "<end>"}], "model": {"vocab": {"a": 1}}}"#;
        assert_eq!(text_of(added, 7).as_deref(), Some("<end>"));
        assert_eq!((text_of(added, 1).as_deref(), text_of(added, 2)), (Some("a"), None));
        let unigram = br#"{"model": {"vocab": [["<unk>", 0.0], ["a", -1.5]]}}"#;
        assert_eq!((text_of(unigram, 1).as_deref(), text_of(unigram, 2)), (Some("a"), None));
        assert_eq!(text_of(b"no json", 1), None);
    }

    /// In GPT-2's published vocabulary a space is Ġ, a line break Ċ, and a zero Ā.
    #[test]
    fn bytes_have_the_letters_of_gpt_2() {
        let letters: Vec<_> = byte_letters().collect();
        let some =
            [b' ', b'\n', 0, b'a', 0x7f, 0xa0, 0xad, 0xff].map(|byte| letters[byte as usize]);
        assert_eq!(some, ['Ġ', 'Ċ', 'Ā', 'a', 'ġ', 'ł', 'Ń', 'ÿ']);
        assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), 256);
    }
}
