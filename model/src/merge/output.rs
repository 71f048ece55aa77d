//! The files of a merged model, whose tensors are written in pieces.
//!
//! The files of tensors have their full length from the start, and blocks of zeros are left as
//! holes. [`Staged`] owns the folder, and [`TensorWriter`] its tensors.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};

use crate::hf::RWKV_VOCABULARY;
use crate::hf::error::ImportError;
use crate::hf::export::{shard_name, shards};
use crate::hf::input::read_json;
use crate::hf::staged::{Staged, StagedError, failed};
use crate::hf::{CONFIG, INDEX, Precision};

/// The tensors of a folder, which are written one behind the other.
pub(super) struct TensorWriter {
    /// The format of all numbers that are written.
    precision: Precision,
    /// The files of tensors, in their order.
    shards: Vec<Shard>,
    /// The index of the current shard, and where its next byte goes.
    at: (usize, u64),
    /// Memory for the encoded numbers of one call.
    bytes: Vec<u8>,
}

/// One file of tensors, which is open.
struct Shard {
    /// The path of the file, for messages.
    path: PathBuf,
    /// The file, which has its whole length from the start.
    file: File,
    /// Where its tensors begin, behind the header.
    begin: u64,
    /// The length of the file in bytes.
    end: u64,
}

/// The name of a tensor to write, and its shape.
#[derive(Clone)]
pub(super) struct Named {
    /// The name of the tensor in the result.
    pub(super) name: String,
    /// Its shape, of which the last dimension is along a row.
    pub(super) shape: Vec<usize>,
}

impl Named {
    /// Bytes of the tensor in this format.
    fn bytes(&self, precision: Precision) -> u64 {
        (self.shape.iter().product::<usize>() * precision.bytes()) as u64
    }
}

impl TensorWriter {
    /// Creates the files of these tensors, with at most `shard_bytes` in each where that is
    /// possible, and the index if there are several files.
    pub(super) fn create(
        staged: &Staged,
        tensors: &[Named],
        precision: Precision,
        shard_bytes: u64,
    ) -> Result<Self, StagedError> {
        let groups = shards(tensors, shard_bytes, |tensor| tensor.bytes(precision));
        let (mut shards, mut places) = (Vec::new(), Map::new());
        for (index, group) in groups.iter().enumerate() {
            let name = shard_name(index, groups.len());
            places.extend(group.iter().map(|tensor| (tensor.name.clone(), json!(name))));
            shards.push(Shard::create(staged.folder.join(name), group, precision)?);
        }
        if groups.len() > 1 {
            let total: u64 = tensors.iter().map(|tensor| tensor.bytes(precision)).sum();
            let index = json!({ "metadata": { "total_size": total }, "weight_map": places });
            staged.put(INDEX, format!("{index:#}\n").as_bytes())?;
        }
        let begin = shards.first().map_or(0, |shard: &Shard| shard.begin);
        Ok(Self { precision, shards, at: (0, begin), bytes: Vec::new() })
    }

    /// Writes the next numbers, which are all of one tensor. Calls follow the order of the tensors
    /// that [`Self::create`] was given.
    pub(super) fn write(&mut self, numbers: &[f32]) -> Result<(), StagedError> {
        let (mut index, mut at) = self.at;
        while at == self.shards[index].end && index + 1 < self.shards.len() {
            index += 1;
            at = self.shards[index].begin;
        }
        let shard = &self.shards[index];
        self.at = (index, at + (numbers.len() * self.precision.bytes()) as u64);
        assert!(self.at.1 <= shard.end, "no more numbers than the tensors have");
        // The file has been made of zeros, so these are there already.
        if numbers.iter().all(|number| number.to_bits() == 0) {
            return Ok(());
        }
        self.precision.encode(numbers, &mut self.bytes);
        shard.file.write_all_at(&self.bytes, at).map_err(failed(&shard.path))
    }

    /// Writes the files of tensors through to the disk, before the folder gets its name.
    pub(super) fn sync(&self) -> Result<(), StagedError> {
        for Shard { path, file, .. } in &self.shards {
            file.sync_all().map_err(failed(path))?;
        }
        Ok(())
    }

    /// Names of the files, and bytes of all of them.
    pub(super) fn files(&self) -> (Vec<String>, u64) {
        let name = |shard: &Shard| {
            shard.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        };
        (self.shards.iter().map(name).collect(), self.shards.iter().map(|shard| shard.end).sum())
    }
}

impl Shard {
    /// Creates a file of its full length, and writes its header.
    fn create(path: PathBuf, tensors: &[Named], precision: Precision) -> Result<Self, StagedError> {
        let failed = |source| StagedError::Write { path: path.clone(), source };
        let (dtype, mut end) = (precision.dtype(), 0);
        let infos = tensors.iter().map(|tensor| {
            let begin = end;
            end += tensor.bytes(precision) as usize;
            let info =
                TensorInfo { dtype, shape: tensor.shape.clone(), data_offsets: (begin, end) };
            (tensor.name.clone(), info)
        });
        let infos = infos.collect();
        // Readers ask for the framework that wrote a file; the layout is PyTorch's.
        let format = [("format".to_owned(), "pt".to_owned())].into();
        let metadata =
            Metadata::new(Some(format), infos).map_err(|error| failed(io::Error::other(error)))?;
        let mut header = serde_json::to_vec(&metadata).map_err(|error| failed(error.into()))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let file = File::create_new(&path).map_err(failed)?;
        let begin = 8 + header.len() as u64;
        let front = [&(header.len() as u64).to_le_bytes()[..], &header].concat();
        let end = begin + end as u64;
        file.write_all_at(&front, 0).and_then(|()| file.set_len(end)).map_err(failed)?;
        Ok(Self { path, file, begin, end })
    }
}

/// The small files that a merge keeps of a folder: its configuration, with the format and number of
/// layers of the result, and its tokenizer.
///
/// # Errors
/// If one of them cannot be read.
pub fn settings_of(
    folder: &Path,
    precision: Precision,
    layers: usize,
) -> Result<Vec<(String, Vec<u8>)>, ImportError> {
    let mut config = read_json(&folder.join(CONFIG))?;
    if let Value::Object(keys) = &mut config {
        for key in ["torch_dtype", "dtype"] {
            if keys.contains_key(key) {
                keys.insert(key.to_owned(), precision.name().into());
            }
        }
        let names = ["num_hidden_layers", "n_layer"];
        let known: Vec<_> = names.into_iter().filter(|name| keys.contains_key(*name)).collect();
        for name in if known.is_empty() { &names[..1] } else { &known } {
            keys.insert((*name).to_owned(), layers.into());
        }
    }
    let mut files = Vec::new();
    for name in KEPT {
        let path = folder.join(name);
        let fits = |found: fs::Metadata| found.is_file() && found.len() <= KEPT_BYTES_MAX;
        if fs::metadata(&path).is_ok_and(fits) {
            let bytes = fs::read(&path);
            let bytes = bytes.map_err(|source| ImportError::Io { path, source })?;
            files.push((name.to_owned(), bytes));
        }
    }
    files.push((CONFIG.to_owned(), format!("{config:#}\n").into_bytes()));
    Ok(files)
}

/// Names of the small files that are copied, if they are there.
const KEPT: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    RWKV_VOCABULARY,
];
/// The largest of them that is copied.
const KEPT_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_how_many_layers_the_result_has() {
        let folder = tempfile::tempdir().unwrap();
        for (said, name) in [
            (r#"{"num_hidden_layers": 3}"#, "num_hidden_layers"),
            (r#"{"n_layer": 3}"#, "n_layer"),
            ("{}", "num_hidden_layers"),
        ] {
            fs::write(folder.path().join(CONFIG), said).unwrap();
            let files = settings_of(folder.path(), Precision::F32, 5).unwrap();
            let config: Value = serde_json::from_slice(&files.last().unwrap().1).unwrap();
            assert_eq!(config, serde_json::json!({ name: 5 }));
        }
    }
}
