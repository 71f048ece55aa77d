//! Writes a model into a folder that other programs can load.
//!
//! Everything that can be wrong with the numbers is found before the first file is written. Then
//! the tensors are written, one converted copy of a tensor in memory at a time, then the index if
//! there are several files, and the other small files. The folder gets its name only when it
//! is complete ([`Staged`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensorError, View};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::staged::{Staged, StagedError};
use super::{CONFIG, INDEX, Precision, RWKV_VOCABULARY, TOKENIZER, WHOLE, config, tokenizer};
use crate::arch::Arch;
use crate::config::{Scheme, Source, Vocabulary, Work};
use crate::genesis::Spec;
use crate::tokenizer::File;

/// The model to write, and how.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// Architecture, sizes and data of its run.
    pub work: &'a Work,
    /// The parameters in canonical order.
    pub theta: &'a [f32],
    /// The file of the tokenizer, if it has one that is available. Without it, none is written.
    pub tokenizer: Option<&'a File>,
    /// The format of the numbers; f32 loses nothing, bf16 takes half the space.
    pub precision: Precision,
    /// The most bytes of tensors in one file; a larger tensor has a file of its own.
    pub shard_bytes: u64,
}

/// The result of an export, for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Names of the written files, those of tensors first.
    pub files: Vec<String>,
    /// Bytes of all tensors together.
    pub bytes: u64,
}

/// Why a model was not written. Nothing was left behind, but for what
/// [`StagedError::Unfinished`] names.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The number of parameters does not fit the model.
    #[error("{found} parameters given, the model has {expected}")]
    Length {
        /// How many numbers the caller gave.
        found: usize,
        /// How many parameters the model has.
        expected: usize,
    },
    /// Some tensors have numbers that are infinite or NaN in the chosen format.
    #[error("not finite as {}: {}", precision.name(), tensors.join(", "))]
    NotFinite {
        /// The format in which the numbers were to be written.
        precision: Precision,
        /// Names of all tensors with such a number.
        tensors: Vec<String>,
    },
    /// The folder cannot be written, or has files.
    #[error(transparent)]
    Folder(#[from] StagedError),
    /// A file of tensors cannot be written.
    #[error("cannot write {path}")]
    Tensors {
        /// Path of the file of tensors.
        path: PathBuf,
        /// The error of the crate `safetensors`.
        source: SafeTensorError,
    },
}

/// The size at which transformers starts a new file: 5 GB.
pub const SHARD_BYTES: u64 = 5_000_000_000;

impl Export<'_> {
    /// Writes all files into `folder`, which is created, or must be empty.
    ///
    /// # Errors
    /// Any of [`ExportError`].
    pub fn write(&self, folder: &Path) -> Result<Written, ExportError> {
        let specs = Arch::new(&self.work.model).specs();
        let tensors = self.tensors(&specs)?;
        let staged = Staged::begin(folder)?;
        let shards = shards(&tensors, self.shard_bytes, |(_, tensor)| tensor.data_len() as u64);
        let mut files = Vec::new();
        let mut places = Map::new();
        for (index, shard) in shards.iter().enumerate() {
            let file = shard_name(index, shards.len());
            places.extend(shard.iter().map(|(name, _)| ((*name).to_owned(), json!(file))));
            let path = staged.folder.join(&file);
            // Readers ask for the framework that wrote a file; the layout is PyTorch's.
            let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
            safetensors::serialize_to_file(shard.iter().copied(), Some(metadata), &path)
                .and_then(|()| Ok(fs::File::open(&path)?.sync_all()?))
                .map_err(|source| ExportError::Tensors { path, source })?;
            files.push(file);
        }
        let bytes = (self.theta.len() * self.precision.bytes()) as u64;
        let index = json!({ "metadata": { "total_size": bytes }, "weight_map": places });
        let index = (shards.len() > 1).then(|| (INDEX, text(&index)));
        for (file, bytes) in index.into_iter().chain(self.settings()) {
            staged.put(file, &bytes)?;
            files.push(file.to_owned());
        }
        staged.finish()?;
        Ok(Written { files, bytes })
    }

    /// All parameters as tensors, if they are finite.
    fn tensors<'a>(&'a self, specs: &'a [Spec]) -> Result<Vec<(&'a str, Tensor<'a>)>, ExportError> {
        let (found, expected) = (self.theta.len(), specs.iter().map(Spec::len).sum());
        if found != expected {
            return Err(ExportError::Length { found, expected });
        }
        let (mut rest, precision) = (self.theta, self.precision);
        let tensor = |spec: &'a Spec| {
            let (values, later) = rest.split_at(spec.len());
            rest = later;
            (spec.name.as_str(), Tensor { shape: &spec.shape, values, precision })
        };
        let tensors: Vec<_> = specs.iter().map(tensor).collect();
        let bad = |tensor: &Tensor<'_>| tensor.values.iter().any(|x| !precision.holds(*x));
        let bad = tensors.iter().filter(|(_, tensor)| bad(tensor));
        let bad: Vec<_> = bad.map(|(name, _)| (*name).to_owned()).collect();
        if bad.is_empty() {
            Ok(tensors)
        } else {
            Err(ExportError::NotFinite { precision, tensors: bad })
        }
    }

    /// The small files; `config.json` comes last.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, Cow<'_, [u8]>)> {
        let mut files = vec![("generation_config.json", text(&config::generation(self.work)))];
        files.extend(self.tokenizer());
        files.push((CONFIG, text(&config::describe(self.work, self.precision))));
        files
    }

    /// The files of the tokenizer. There are none for symbols, which are not text, or if the
    /// tokenizer's file is missing.
    fn tokenizer(&self) -> Vec<(&'static str, Cow<'_, [u8]>)> {
        let bytes = |bos: Option<u32>| {
            (text(&tokenizer::describe(bos)), bos.map(|_| tokenizer::BOS.to_owned()))
        };
        let (json, bos) = match (&self.work.data.source, self.tokenizer) {
            (Source::Synthetic { .. }, _) => return Vec::new(),
            (Source::Text(_), _) => bytes(None),
            (Source::Tokens { vocabulary, .. } | Source::Mix { vocabulary, .. }, file) => {
                match (vocabulary.scheme, file) {
                    (Scheme::Bytes, _) => bytes(Some(Vocabulary::BYTES.bos)),
                    (Scheme::Rwkv | Scheme::HuggingFace, None) => return Vec::new(),
                    (Scheme::Rwkv, Some(file)) => {
                        return vec![(RWKV_VOCABULARY, Cow::Borrowed(&file.bytes))];
                    }
                    (Scheme::HuggingFace, Some(file)) => {
                        let bos = tokenizer::text_of(&file.bytes, vocabulary.bos);
                        (Cow::Borrowed(&file.bytes[..]), bos)
                    }
                }
            }
        };
        let settings = tokenizer::settings(self.work.model.context, bos.as_deref());
        vec![(TOKENIZER, json), ("tokenizer_config.json", text(&settings))]
    }
}

/// A tensor that is converted to bytes only when it is written.
#[derive(Clone, Copy, Debug)]
struct Tensor<'a> {
    /// The sizes of its dimensions.
    shape: &'a [usize],
    /// Its slice of the parameters.
    values: &'a [f32],
    /// The format in which it is written.
    precision: Precision,
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        self.precision.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::new();
        self.precision.encode(self.values, &mut bytes);
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.values.len() * self.precision.bytes()
    }
}

/// The tensors that each file holds, in their order: at most `most` bytes in a file where that is possible. A tensor
/// that is larger has a file of its own.
pub(crate) fn shards<T>(tensors: &[T], most: u64, bytes: impl Fn(&T) -> u64) -> Vec<&[T]> {
    let (mut shards, mut rest) = (Vec::new(), tensors);
    while !rest.is_empty() {
        let mut room = most;
        let fits = rest.iter().map_while(|tensor| {
            room = room.checked_sub(bytes(tensor))?;
            Some(())
        });
        let (shard, later) = rest.split_at(fits.count().max(1));
        shards.push(shard);
        rest = later;
    }
    shards
}

/// The name of file `index` of `count` in transformers.
pub(crate) fn shard_name(index: usize, count: usize) -> String {
    match count {
        0 | 1 => WHOLE.to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
    }
}

/// JSON as a file, with a line break at its end.
fn text(value: &Value) -> Cow<'static, [u8]> {
    Cow::Owned(format!("{value:#}\n").into_bytes())
}

#[cfg(test)]
mod tests;
