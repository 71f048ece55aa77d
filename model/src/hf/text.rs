//! Reads the tokenizer of a folder: how its model's tokens are text.
//!
//! The token that begins a document is the `bos_token_id` of `config.json`, where it is a number,
//! else what the tokenizer's file says. The tokenizer of bytes that an export writes is known by its
//! contents, and has no file for token files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::{CONFIG, RWKV_VOCABULARY, TOKENIZER, tokenizer};
use crate::config::Vocabulary;
use crate::tokenizer::{self as tokens, OpenError, Tokenizer};

/// A tokenizer, and the token files that a model with it can read.
#[derive(Clone, Debug)]
pub struct Texts {
    /// Turns texts into tokens, and back.
    pub tokenizer: Tokenizer,
    /// The tokenizer as token files name it; `None` where no token begins a document.
    pub vocabulary: Option<Vocabulary>,
}

/// Opens the tokenizer of the model at `place`, or the file that was `named` for it. That of a `.pth`
/// file is looked for beside it.
///
/// # Errors
/// If there is none, or it cannot be used.
pub fn open(place: &Path, named: Option<&Path>) -> Result<Texts, OpenError> {
    let parent = if place.is_file() { place.parent() } else { None };
    let folder = parent.unwrap_or(place);
    let inside = [TOKENIZER, RWKV_VOCABULARY].map(|name| folder.join(name));
    let inside = inside.iter().find(|path| path.is_file());
    let path = named.or_else(|| inside.map(AsRef::as_ref));
    let path = path.ok_or_else(|| OpenError::NoneIn(place.to_owned()))?;
    let file = tokens::File::open(path)?;
    let bytes = tokenizer::describe(Some(Vocabulary::BYTES.bos));
    if serde_json::from_slice(&file.bytes).is_ok_and(|json: Value| json == bytes) {
        let vocabulary = Some(Vocabulary::BYTES);
        return Ok(Texts { tokenizer: Tokenizer::bytes(), vocabulary });
    }
    let wrong = |why| OpenError::Wrong { path: path.to_owned(), why };
    let mut tokenizer = Tokenizer::read(file.scheme, &file.bytes).map_err(wrong)?;
    if let Some(bos) = bos(folder) {
        tokenizer = tokenizer.beginning_with_id(bos).map_err(wrong)?;
    }
    let (scheme, digest, tokens) = (file.scheme, file.digest(), tokenizer.tokens());
    let vocabulary = |bos| Vocabulary { scheme, digest, tokens, bos };
    Ok(Texts { vocabulary: tokenizer.bos().map(vocabulary), tokenizer })
}

/// The token that begins a document, if the configuration says so by a number; a list or a text is not taken. A
/// configuration that cannot be read is complained of where the model is read.
fn bos(folder: &Path) -> Option<u32> {
    let bos = read(&folder.join(CONFIG))?["bos_token_id"].as_u64()?;
    u32::try_from(bos).ok()
}

/// A configuration, of which as much is read as any has; `None` if it cannot be read.
fn read(path: &Path) -> Option<Value> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(CONFIG_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The tokens that end a text of this model, as far as its folder names any.
#[must_use]
pub fn ends(folder: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    for name in [CONFIG, GENERATION] {
        let config = read(&folder.join(name)).unwrap_or_default();
        let named = &config["eos_token_id"];
        let one = std::slice::from_ref(named);
        let ids = named.as_array().map_or(one, Vec::as_slice).iter();
        found.extend(ids.filter_map(|id| i32::try_from(id.as_i64()?).ok()));
    }
    found
}

/// The file of the options with which a model writes.
const GENERATION: &str = "generation_config.json";
/// More than any `config.json` has.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Scheme;

    #[test]
    fn the_configuration_decides_which_token_begins_a_document() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(matches!(open(folder.path(), None), Err(OpenError::NoneIn(_))));
        let write = |bos| fs::write(path(TOKENIZER), tokenizer::describe(bos).to_string()).unwrap();
        write(Some(256));
        let texts = open(folder.path(), None).unwrap();
        assert_eq!(texts.vocabulary, Some(Vocabulary::BYTES));
        assert_eq!(texts.tokenizer.encode("ab").unwrap(), [256, 97, 98]);
        fs::write(path("model.pth"), "").unwrap();
        let beside = open(&path("model.pth"), None).unwrap();
        assert_eq!(beside.vocabulary, texts.vocabulary);
        write(None);
        let texts = open(folder.path(), None).unwrap();
        assert_eq!((texts.vocabulary, texts.tokenizer.encode("ab").unwrap()), (None, vec![97, 98]));
        fs::write(path(CONFIG), r#"{"bos_token_id": 10}"#).unwrap();
        let texts = open(folder.path(), None).unwrap();
        assert_eq!(texts.tokenizer.encode("ab").unwrap(), [10, 97, 98]);
        assert_eq!(texts.vocabulary.unwrap().scheme, Scheme::HuggingFace);
        fs::write(path(CONFIG), r#"{"bos_token_id": 256}"#).unwrap();
        let refused = open(folder.path(), None).unwrap_err().to_string();
        assert!(refused.contains("256"), "{refused}");
        fs::write(path(TOKENIZER), "{}").unwrap();
        assert!(matches!(open(folder.path(), None), Err(OpenError::Wrong { .. })));
    }
}
