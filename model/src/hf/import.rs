//! Reads a model from a folder.
//!
//! Nothing in the folder is trusted: sizes have the bounds of a manifest, a header must describe
//! its file to the last byte, and every parameter must occur once, in its shape, with finite
//! numbers. All problems of the tensors are reported at once, so that a conversion can be repaired
//! in one go.
//!
//! Numbers may be f32, bf16 or f16, which convert to f32 exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use burn_backend::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;
use thiserror::Error;

use super::config::Described;
use super::conversion::Problem;
use super::{CONFIG, INDEX, WHOLE, config};
use crate::arch::Arch;
use crate::arch::llama::layout::{self, Pairs};
use crate::config::{Family, Model};
use crate::genesis::Spec;

/// A complete model that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The architecture and its sizes.
    pub model: Model,
    /// The parameters in canonical order, all finite.
    pub theta: Vec<f32>,
    /// Whether the head was tied to the embedding. It is a copy now, and is trained separately.
    pub untied: bool,
}

/// Why a folder is not a model that can be trained here. Its maker must change it.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The operating system refuses to read a file or folder.
    #[error("cannot read {}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A configuration or an index does not parse.
    #[error("{} is not JSON", path.display())]
    Json {
        /// Path of the configuration or index.
        path: PathBuf,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// The configuration is wrong, incomplete, or of a model that is not implemented here.
    #[error("{} cannot be used:{}", path.display(), lines(problems))]
    Config {
        /// Path of the configuration.
        path: PathBuf,
        /// All problems of the configuration.
        problems: Vec<Problem>,
    },
    /// The folder has no file of tensors.
    #[error("{} holds neither {WHOLE} nor {INDEX}", .0.display())]
    NoTensors(PathBuf),
    /// The index does not name a file of its own folder.
    #[error("{} does not name the file in its folder that holds {tensor}", path.display())]
    Index {
        /// Path of the index.
        path: PathBuf,
        /// Name of the tensor without a valid file.
        tensor: String,
    },
    /// The header of a file of tensors is wrong.
    #[error("{} is damaged or not a safetensors file: {why}", path.display())]
    Header {
        /// Path of the file of tensors.
        path: PathBuf,
        /// What is wrong with the header.
        why: String,
    },
    /// The tensors are not those of the configured model.
    #[error("{} does not hold this model:{}", folder.display(), lines(problems))]
    Tensors {
        /// Path of the folder that was read.
        folder: PathBuf,
        /// All problems: those of parameters in canonical order, then superfluous tensors.
        problems: Vec<TensorProblem>,
    },
    /// The model needs more memory than this machine can allocate.
    #[error("{parameters} parameters do not fit into the memory of this machine")]
    Memory {
        /// Number of parameters, each of 4 bytes.
        parameters: usize,
    },
}

/// A problem of one tensor.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TensorProblem {
    /// No file has a tensor that the model needs.
    #[error("missing: {name} {shape:?}")]
    Missing {
        /// Name of the missing parameter.
        name: String,
        /// The shape that the model needs.
        shape: Vec<usize>,
    },
    /// A file has a tensor that the model does not need.
    #[error("not of this model: {name} in {file}")]
    Extra {
        /// Name of the tensor in the folder.
        name: String,
        /// Name of the file that holds it.
        file: String,
    },
    /// Two files have a tensor of the same name.
    #[error("twice: {name} in {first} and {second}")]
    Twice {
        /// Name of the tensor in the folder.
        name: String,
        /// Name of the first file with it.
        first: String,
        /// Name of the second file with it.
        second: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("wrong shape: {name} is {found:?} instead of {expected:?}")]
    Shape {
        /// Name of the parameter.
        name: String,
        /// The shape that it has in the folder.
        found: Vec<usize>,
        /// The shape that the model needs.
        expected: Vec<usize>,
    },
    /// A tensor has numbers of an unsupported type.
    #[error("wrong numbers: {name} is made of {found:?} instead of F32, BF16 or F16")]
    Kind {
        /// Name of the parameter in this folder.
        name: String,
        /// The type of the numbers in the file.
        found: Dtype,
    },
    /// Some numbers of a tensor are infinite or NaN.
    #[error("not finite: {name}, {count} of its numbers, the first at {first}")]
    NotFinite {
        /// Name of the parameter.
        name: String,
        /// How many of its numbers are not finite.
        count: usize,
        /// Index of the first of them in the tensor, counted from 0.
        first: usize,
    },
}

/// The sizes of the model in `folder`; its tensors are not read.
///
/// # Errors
/// [`ImportError::Io`], [`ImportError::Json`], [`ImportError::Config`]
pub fn sizes(folder: &Path) -> Result<Model, ImportError> {
    described(folder).map(|described| described.model)
}

fn described(folder: &Path) -> Result<Described, ImportError> {
    let path = folder.join(CONFIG);
    let config = read_json(&path)?;
    config::parse(&config).map_err(|problems| ImportError::Config { path, problems })
}

/// Reads the model in `folder`.
///
/// # Errors
/// Any of [`ImportError`].
pub fn read(folder: &Path) -> Result<Imported, ImportError> {
    let Described { model, tied } = described(folder)?;
    let mut problems = Vec::new();
    let mut tensors = Tensors::open(folder, &mut problems)?;
    let dialect = tensors.dialect(model.family);
    if tied {
        tensors.share(&dialect.name(EMBEDDING), dialect.name(HEAD));
    }
    let specs = Arch::new(&model).specs();
    let parameters = specs.iter().map(Spec::len).sum();
    let mut theta = Vec::new();
    theta.try_reserve_exact(parameters).map_err(|_| ImportError::Memory { parameters })?;
    for spec in &specs {
        if let Err(problem) = tensors.append(dialect.name(&spec.name), spec, &mut theta)? {
            problems.push(problem);
        }
    }
    problems.extend(tensors.rest());
    if !problems.is_empty() {
        return Err(ImportError::Tensors { folder: folder.to_owned(), problems });
    }
    assert_eq!(theta.len(), parameters, "every parameter once");
    if dialect == Dialect::Meta {
        layout::relayout(&model, &mut theta, Pairs::Interleaved, Pairs::Half);
    }
    Ok(Imported { model, theta, untied: tied })
}

/// The convention by which the tensors of a folder are named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// The names of [`Arch::specs`].
    Public,
    /// Those of Meta and PRIME, which also pair other rows of queries and keys.
    Meta,
}

impl Dialect {
    /// The name of the parameter with this public name.
    fn name(self, public: &str) -> String {
        match self {
            Self::Public => public.to_owned(),
            Self::Meta => layout::meta_name(public).unwrap_or_default(),
        }
    }
}

/// The files of tensors of one folder.
struct Tensors {
    files: Vec<Shard>,
    /// The file and the description of each tensor that was not taken yet, by name.
    found: BTreeMap<String, (usize, TensorInfo)>,
}

/// A file of tensors whose header was read.
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Offset of the numbers in the file.
    pub(crate) begin: u64,
}

impl Tensors {
    /// Reads the header of every file.
    fn open(folder: &Path, problems: &mut Vec<TensorProblem>) -> Result<Self, ImportError> {
        let mut tensors = Self { files: Vec::new(), found: BTreeMap::new() };
        for name in file_names(folder)? {
            let (shard, metadata) = Shard::open(folder, name)?;
            for (name, info) in metadata.tensors() {
                let here = (tensors.files.len(), info.clone());
                if let Some((first, _)) = tensors.found.insert(name.clone(), here) {
                    let first = tensors.files[first].name.clone();
                    let second = shard.name.clone();
                    problems.push(TensorProblem::Twice { name, first, second });
                }
            }
            tensors.files.push(shard);
        }
        problems.sort_by_key(ToString::to_string);
        Ok(tensors)
    }

    /// Gives a tensor a second name, replacing the tensor that had it.
    fn share(&mut self, name: &str, second: String) {
        if let Some(tensor) = self.found.get(name).cloned() {
            self.found.insert(second, tensor);
        }
    }

    fn dialect(&self, family: Family) -> Dialect {
        let meta = self.found.contains_key(&Dialect::Meta.name(EMBEDDING));
        if meta && family == Family::Llama { Dialect::Meta } else { Dialect::Public }
    }

    /// Takes the parameter `spec`, which has this name here, and appends its numbers to `theta`.
    fn append(
        &mut self,
        name: String,
        spec: &Spec,
        theta: &mut Vec<f32>,
    ) -> Result<Result<(), TensorProblem>, ImportError> {
        let Some((file, info)) = self.found.remove(&name) else {
            return Ok(Err(TensorProblem::Missing { name, shape: spec.shape.clone() }));
        };
        if info.shape != spec.shape {
            let (found, expected) = (info.shape, spec.shape.clone());
            return Ok(Err(TensorProblem::Shape { name, found, expected }));
        }
        let Some((size, decode)) = decoder(info.dtype) else {
            return Ok(Err(TensorProblem::Kind { name, found: info.dtype }));
        };
        let begin = theta.len();
        self.files[file].read(info.data_offsets.0, size, decode, spec.len(), theta)?;
        let bad = || theta[begin..].iter().enumerate().filter(|(_, x)| !x.is_finite());
        Ok(match bad().next() {
            None => Ok(()),
            Some((first, _)) => Err(TensorProblem::NotFinite { name, count: bad().count(), first }),
        })
    }

    /// The superfluous tensors. Angles of positions, which some Llamas carry, are ignored, since
    /// they follow from the sizes.
    fn rest(self) -> impl Iterator<Item = TensorProblem> {
        let Self { files, found } = self;
        let too_many = found
            .into_iter()
            .filter(|(name, _)| !ANGLES.iter().any(|angles| name.ends_with(angles)));
        too_many.map(move |(name, (file, _))| TensorProblem::Extra {
            name,
            file: files[file].name.clone(),
        })
    }
}

impl Shard {
    /// Reads the header: its length as u64 LE, then JSON; the tensors must fill the rest of the
    /// file.
    pub(crate) fn open(folder: &Path, name: String) -> Result<(Self, Metadata), ImportError> {
        let path = folder.join(&name);
        let io_error = |source| ImportError::Io { path: path.clone(), source };
        let damaged = |why: String| ImportError::Header { path: path.clone(), why };
        let mut file = File::open(&path).map_err(io_error)?;
        let bytes = file.metadata().map_err(io_error)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(io_error)?;
        let length = u64::from_le_bytes(length);
        if length > bytes.min(HEADER_BYTES_MAX) {
            return Err(damaged(format!("its header says it has {length} bytes")));
        }
        let mut header = Vec::new();
        (&mut file).take(length).read_to_end(&mut header).map_err(io_error)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| damaged(error.to_string()))?;
        let (begin, data) = (8 + length, metadata.data_len() as u64);
        if begin + data != bytes {
            return Err(damaged(format!("{bytes} bytes instead of {}", begin + data)));
        }
        Ok((Self { name, path: path.clone(), file, begin }, metadata))
    }

    /// Appends `count` numbers from byte `offset` on to `theta`.
    fn read(
        &mut self,
        offset: usize,
        size: usize,
        decode: Decode,
        count: usize,
        theta: &mut Vec<f32>,
    ) -> Result<(), ImportError> {
        let io_error = |source| ImportError::Io { path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(self.begin + offset as u64)).map_err(io_error)?;
        let mut bytes = vec![0; BUFFER_BYTES.min(count * size)];
        let mut left = count * size;
        while left > 0 {
            let part = &mut bytes[..left.min(BUFFER_BYTES)];
            self.file.read_exact(part).map_err(io_error)?;
            theta.extend(part.chunks_exact(size).map(decode));
            left -= part.len();
        }
        Ok(())
    }
}

/// Decodes one number from its bytes, little endian.
type Decode = fn(&[u8]) -> f32;

/// The bytes of a number of this type and its decoder; `None` if the type is not supported.
fn decoder(dtype: Dtype) -> Option<(usize, Decode)> {
    match dtype {
        Dtype::F32 => {
            Some((4, |bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
        }
        Dtype::BF16 => Some((2, |bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32())),
        Dtype::F16 => Some((2, |bytes| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32())),
        _ => None,
    }
}

/// The names of the files of tensors.
pub(crate) fn file_names(folder: &Path) -> Result<BTreeSet<String>, ImportError> {
    if folder.join(WHOLE).is_file() {
        return Ok([WHOLE.to_owned()].into());
    }
    let path = folder.join(INDEX);
    if !path.is_file() {
        return Err(ImportError::NoTensors(folder.to_owned()));
    }
    let index = read_json(&path)?;
    let wrong = |tensor: &str| ImportError::Index { path: path.clone(), tensor: tensor.to_owned() };
    let places = index["weight_map"].as_object().ok_or_else(|| wrong("weight_map"))?;
    let name = |(tensor, file): (&String, &Value)| {
        let file = file.as_str().filter(|file| is_plain_name(file));
        file.map(ToOwned::to_owned).ok_or_else(|| wrong(tensor))
    };
    places.iter().map(name).collect()
}

/// Whether this is the name of a file in the same folder, without any path.
fn is_plain_name(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == file)
}

pub(crate) fn read_json(path: &Path) -> Result<Value, ImportError> {
    let text = fs::read(path);
    let text = text.map_err(|source| ImportError::Io { path: path.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| ImportError::Json { path: path.to_owned(), source })
}

/// Lists problems, each on a line of its own.
fn lines(problems: &[impl fmt::Display]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

/// Names of a Llama's first and last matrix.
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";
/// Ends of the names of buffers that Llamas had before transformers 4.32, and have at PRIME.
pub(crate) const ANGLES: [&str; 2] = ["rotary_emb.inv_freq", "freqs_cis"];
/// The longest header that the format allows.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The most bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
