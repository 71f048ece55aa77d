//! A stored model as tensors that are read in pieces.
//!
//! Nothing in the files is trusted: each header has to describe its file to the last byte. But no
//! `config.json` is read here: tensors are found by their names, of any architecture.
//!
//! Numbers may be f32, bf16 or f16, which convert to f32 exactly. Tensors of other numbers are kept
//! apart: a caller that needs one of them refuses it. Reading does not move a cursor (`pread`), so
//! several tensors of one file can be read in turns.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use burn_backend::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;

use super::error::{ImportError, TensorProblem};
use super::pth::{self, PthError};
use super::{INDEX, WHOLE};
use crate::genesis::Spec;

/// The numbers of one tensor, which are read in pieces: those of a file ([`Stored`]), or a slice in
/// memory. A merge and a spectrum read a tensor several times, so nothing is used up by reading.
pub trait Numbers {
    /// How many numbers the tensor has.
    fn count(&self) -> usize;

    /// Fills `into` with the numbers from index `at` on.
    ///
    /// # Errors
    /// If the system does not return them.
    fn read(&self, at: usize, into: &mut [f32]) -> Result<(), ImportError>;
}

impl Numbers for &[f32] {
    fn count(&self) -> usize {
        self.len()
    }

    fn read(&self, at: usize, into: &mut [f32]) -> Result<(), ImportError> {
        into.copy_from_slice(&self[at..at + into.len()]);
        Ok(())
    }
}

/// A model whose files are open.
#[derive(Debug, Default)]
pub struct Input {
    /// The open files, which a tensor names by index.
    files: Vec<Store>,
    /// The tensors of numbers that are read here, by name.
    tensors: BTreeMap<String, Tensor>,
    /// The tensors that are made of something else: of what, and in which file.
    odd: BTreeMap<String, (Dtype, usize)>,
}

/// A file of tensors, open for reading.
#[derive(Debug)]
struct Store {
    /// The path of the file, for messages.
    path: PathBuf,
    /// The open file, which is read at offsets.
    file: File,
    /// Offset of the tensors in the file.
    begin: u64,
}

impl Store {
    /// Reads the header of a file: its length as u64 LE, then JSON; the tensors must fill the rest
    /// of the file.
    fn open(path: PathBuf) -> Result<(Self, Metadata), ImportError> {
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
        if begin.checked_add(data) != Some(bytes) {
            let expected = begin.saturating_add(data);
            return Err(damaged(format!("{bytes} bytes instead of {expected}")));
        }
        Ok((Self { path, file, begin }, metadata))
    }

    /// The name of the file, without its folder.
    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The shape of a tensor, and the place of its numbers in the files.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The size of each dimension; the last one is that of a row.
    pub shape: Vec<usize>,
    /// What its numbers are in the file.
    format: Format,
    /// The index of the file that has it.
    file: usize,
    /// Where it begins, behind the header.
    offset: u64,
}

/// The numbers of a tensor, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// IEEE 754 binary32, four bytes each.
    F32,
    /// The upper half of an f32, two bytes each.
    Bf16,
    /// IEEE 754 binary16, two bytes each.
    F16,
}

impl Format {
    /// The format of a type of safetensors; `None` if it is not read here.
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }

    /// Bytes that one number takes.
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// Converts the numbers, each exactly.
    #[inline(always)]
    fn decode(self, bytes: &[u8], into: &mut [f32]) {
        match self {
            Self::F32 => {
                for (number, word) in into.iter_mut().zip(bytes.as_chunks().0) {
                    *number = f32::from_le_bytes(*word);
                }
            }
            Self::Bf16 => {
                for (number, word) in into.iter_mut().zip(bytes.as_chunks().0) {
                    *number = bf16::from_le_bytes(*word).to_f32();
                }
            }
            Self::F16 => {
                for (number, word) in into.iter_mut().zip(bytes.as_chunks().0) {
                    *number = f16::from_le_bytes(*word).to_f32();
                }
            }
        }
    }
}

impl Input {
    /// Opens the files of tensors of a folder.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, or has tensors that are not made of numbers.
    pub fn folder(folder: &Path) -> Result<Self, ImportError> {
        let (input, mut problems) = Self::scan(folder)?;
        let odd = input.odd.iter();
        problems.extend(
            odd.map(|(name, (found, _))| TensorProblem::Kind { name: name.clone(), found: *found }),
        );
        if problems.is_empty() {
            return Ok(input);
        }
        problems.sort_by_key(ToString::to_string);
        Err(ImportError::Tensors { folder: folder.to_owned(), problems })
    }

    /// The same, with tensors of other numbers, and a list of those that several files have.
    pub(super) fn scan(folder: &Path) -> Result<(Self, Vec<TensorProblem>), ImportError> {
        let (mut input, mut twice) = (Self::default(), Vec::new());
        for name in file_names(folder)? {
            let (store, metadata) = Store::open(folder.join(&name))?;
            for (name, info) in metadata.tensors() {
                if ANGLES.iter().any(|angles| name.ends_with(angles)) {
                    continue;
                }
                let first = input.file_of(&name);
                input.add(name.clone(), info, &store.path)?;
                if let Some(first) = first {
                    twice.push(TensorProblem::Twice { name, first, second: store.name() });
                }
            }
            input.files.push(store);
        }
        twice.sort_by_key(ToString::to_string);
        Ok((input, twice))
    }

    /// Adds a tensor of the file that is opened, `path`. It replaces an earlier one of the same name.
    ///
    /// # Errors
    /// If its place does not have the size of its shape.
    fn add(&mut self, name: String, info: &TensorInfo, path: &Path) -> Result<(), ImportError> {
        let file = self.files.len();
        let Some(format) = Format::of(info.dtype) else {
            self.tensors.remove(&name);
            self.odd.insert(name, (info.dtype, file));
            return Ok(());
        };
        let (shape, (offset, end)) = (info.shape.clone(), info.data_offsets);
        let bytes = shape.iter().try_fold(format.bytes(), |all, size| all.checked_mul(*size));
        if bytes != end.checked_sub(offset) {
            let why = format!("the place of {name} has not the size of its shape");
            return Err(ImportError::Header { path: path.to_owned(), why });
        }
        self.odd.remove(&name);
        self.tensors.insert(name, Tensor { shape, format, file, offset: offset as u64 });
        Ok(())
    }

    /// Opens a `.pth` file of PyTorch.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or has anything but tensors.
    pub fn pth(path: &Path) -> Result<Self, ImportError> {
        let (file, found) = pth::open(path).map_err(|error| match error {
            PthError::Io(source) => ImportError::Io { path: path.to_owned(), source },
            why => ImportError::Pth { path: path.to_owned(), why },
        })?;
        let mut input = Self::default();
        for (name, info) in found {
            // As in Python, the last tensor of a name counts.
            input.add(name, &info, path)?;
        }
        input.files.push(Store { path: path.to_owned(), file, begin: 0 });
        Ok(input)
    }

    /// The parameters `specs` in a file of f32, one behind the other from byte `begin` on.
    #[must_use]
    pub fn flat(path: PathBuf, file: File, begin: u64, specs: &[Spec]) -> Self {
        let mut offset = 0;
        let tensor = |spec: &Spec| {
            let at = offset;
            offset += 4 * spec.len() as u64;
            let shape = spec.shape.clone();
            (spec.name.clone(), Tensor { shape, format: Format::F32, file: 0, offset: at })
        };
        let tensors = specs.iter().map(tensor).collect();
        Self { files: vec![Store { path, file, begin }], tensors, ..Self::default() }
    }

    /// Names and places of all tensors, in the order in which they are stored.
    #[must_use]
    pub fn tensors(&self) -> Vec<(&str, &Tensor)> {
        let mut tensors: Vec<_> =
            self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        tensors.sort_by_key(|(_, tensor)| (tensor.file, tensor.offset));
        tensors
    }

    /// The tensor of this name, if the model has one.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// What a tensor is made of, if it is none of the numbers that are read here.
    pub(super) fn odd(&self, name: &str) -> Option<Dtype> {
        self.odd.get(name).map(|(dtype, _)| *dtype)
    }

    /// The names of all tensors, also of those that are made of something else.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.tensors.keys().chain(self.odd.keys()).map(String::as_str).collect()
    }

    /// The name of the file that has the tensor of this name.
    pub(super) fn file_of(&self, name: &str) -> Option<String> {
        let file = self.tensors.get(name).map(|tensor| tensor.file);
        let file = file.or_else(|| self.odd.get(name).map(|(_, file)| *file))?;
        self.files.get(file).map(Store::name)
    }

    /// The numbers of a tensor of this input.
    ///
    /// # Panics
    /// If the tensor is of another input.
    #[must_use]
    pub fn numbers(&self, tensor: &Tensor) -> Stored<'_> {
        let store = &self.files[tensor.file];
        let begin = store.begin + tensor.offset;
        let (count, format) = (tensor.shape.iter().product(), tensor.format);
        Stored { store, begin, count, format, bytes: RefCell::default() }
    }
}

/// The numbers of one tensor, on disk.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The file that has the tensor.
    store: &'a Store,
    /// Where its first number is in the file.
    begin: u64,
    /// How many numbers the tensor has.
    count: usize,
    /// What its numbers are in the file.
    format: Format,
    /// What was read last, so that its memory serves again.
    bytes: RefCell<Vec<u8>>,
}

impl Numbers for Stored<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn read(&self, at: usize, into: &mut [f32]) -> Result<(), ImportError> {
        assert!(at + into.len() <= self.count, "a place in the tensor");
        let mut bytes = self.bytes.borrow_mut();
        let size = self.format.bytes();
        bytes.resize(into.len() * size, 0);
        let place = self.begin + (at * size) as u64;
        let read = self.store.file.read_exact_at(&mut bytes, place);
        read.map_err(|source| ImportError::Io { path: self.store.path.clone(), source })?;
        pulp::Arch::new().dispatch(|| self.format.decode(&bytes, into));
        Ok(())
    }
}

/// The names of the files of tensors.
pub(super) fn file_names(folder: &Path) -> Result<BTreeSet<String>, ImportError> {
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

/// Whether this is the name of a file in the same folder, without any path: an index must not lead
/// elsewhere.
fn is_plain_name(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == file)
}

/// Reads a file of JSON as a whole.
pub(crate) fn read_json(path: &Path) -> Result<Value, ImportError> {
    let text = fs::read(path);
    let text = text.map_err(|source| ImportError::Io { path: path.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| ImportError::Json { path: path.to_owned(), source })
}

/// Ends of the names of buffers that Llamas had before transformers 4.32, and have at PRIME.
const ANGLES: [&str; 2] = ["rotary_emb.inv_freq", "freqs_cis"];
/// The longest header that the format allows.
const HEADER_BYTES_MAX: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks bits and values of IEEE 754 binary16.
    #[test]
    fn f16_is_decoded_exactly() {
        let from_half = |bits: u16| {
            let mut number = [0.0];
            Format::F16.decode(&bits.to_le_bytes(), &mut number);
            number[0]
        };
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65_504.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x7c00, f32::INFINITY),
            (0x0000, 0.0),
        ] {
            assert_eq!(from_half(bits), value, "{bits:#x}");
        }
        assert!(from_half(0x7e00).is_nan());
        assert_eq!(from_half(0x8000).to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn a_header_of_more_bytes_than_can_be_is_damage() {
        const MOST: u64 = (1 << 61) - 1;
        let tensor = |number: u64, bytes: u64| {
            let begin = number * MOST;
            let end = begin + bytes;
            format!(
                r#""{number}":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[{begin},{end}]}}"#
            )
        };
        let all: Vec<_> = (0..8).map(|number| tensor(number, MOST)).chain([tensor(8, 7)]).collect();
        let header = format!("{{{}}}", all.join(","));
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        fs::write(file.path(), bytes).unwrap();
        let refused = Store::open(file.path().to_owned()).unwrap_err().to_string();
        assert!(refused.contains("bytes instead of"), "{refused}");
    }
}
