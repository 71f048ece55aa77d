//! Why a model cannot be read, and what is wrong with its tensors.

use std::fmt;
use std::io;
use std::path::PathBuf;

use safetensors::Dtype;
use thiserror::Error;

use super::conversion::Problem;
use super::pth::PthError;
use super::{INDEX, WHOLE};

/// Why a folder is not a model that can be trained here. Its maker must change it.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The operating system refuses to read a file or folder.
    #[error("cannot read {path}")]
    Io {
        /// Path of the file or folder, as it was named.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A configuration or an index does not parse.
    #[error("{path} is not JSON")]
    Json {
        /// Path of the configuration or index.
        path: PathBuf,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// The configuration is wrong, incomplete, or of a model that is not implemented here.
    #[error("{path} cannot be used:{}", lines(problems))]
    Config {
        /// Path of the configuration that was read.
        path: PathBuf,
        /// All problems of the configuration.
        problems: Vec<Problem>,
    },
    /// The folder has no file of tensors.
    #[error("{0} holds neither {WHOLE} nor {INDEX} nor a .pth file")]
    NoTensors(PathBuf),
    /// The index does not name a file of its own folder.
    #[error("{path} does not name the file in its folder that holds {tensor}")]
    Index {
        /// Path of the index that was read.
        path: PathBuf,
        /// Name of the tensor without a valid file.
        tensor: String,
    },
    /// The header of a file of tensors is wrong.
    #[error("{path} is damaged or not a safetensors file: {why}")]
    Header {
        /// Path of the file of tensors.
        path: PathBuf,
        /// What is wrong with the header.
        why: String,
    },
    /// A `.pth` file cannot be read, or has something else than tensors.
    #[error("{path}: {why}")]
    Pth {
        /// Path of the file, as it was named.
        path: PathBuf,
        /// Why nothing of it is read here.
        why: PthError,
    },
    /// The folder has several `.pth` files, and nothing says which is meant.
    #[error("{0} holds several .pth files: name one of them instead of the folder")]
    Several(PathBuf),
    /// The tensors are not those of a released RWKV that is read here.
    #[error("{path}: {why}")]
    Released {
        /// Path of the file or folder, as it was named.
        path: PathBuf,
        /// Why its tensors are no such model.
        why: ReleasedError,
    },
    /// The tensors are not those of the configured model.
    #[error("{folder} does not hold this model:{}", lines(problems))]
    Tensors {
        /// Path of the folder or file that was read.
        folder: PathBuf,
        /// All problems: those of parameters in canonical order, then superfluous tensors.
        problems: Vec<TensorProblem>,
    },
    /// The model has so many parameters, each of 4 bytes, that this machine cannot allocate them.
    #[error("{0} parameters do not fit into the memory of this machine")]
    Memory(usize),
}

/// Why tensors are not those of a released model that can be read here.
#[derive(Debug, Error)]
pub enum ReleasedError {
    /// The names or shapes are those of another generation.
    #[error("it is {0}: of the released RWKVs, RWKV-5 (5.2, as World v2 is) and RWKV-6 are read")]
    Generation(&'static str),
    /// A tensor from which a size follows is missing.
    #[error(
        "it is no RWKV: it has no {0}, and no config.json beside it names another architecture"
    )]
    Missing(String),
    /// A tensor from which a size follows has another shape than in RWKV-5 and RWKV-6.
    #[error("{name} is {shape:?}, from which {size} does not follow: fetch the released file")]
    Shape {
        /// Name of the tensor, as it is in the file.
        name: String,
        /// The shape that it has in the file.
        shape: Vec<usize>,
        /// What should follow from it, in words.
        size: &'static str,
    },
    /// A size is outside the bounds of a manifest.
    #[error(transparent)]
    Bounds(intellect_table::Error),
}

/// A problem of one tensor, in one line.
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
        /// Name of the parameter in this folder.
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
        /// Name of the parameter in this folder.
        name: String,
        /// How many of its numbers are not finite.
        count: usize,
        /// Index of the first of them in the tensor, counted from 0.
        first: usize,
    },
}

/// Lists problems, each on a line of its own.
fn lines(problems: &[impl fmt::Display]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
