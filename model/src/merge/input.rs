//! A stored model as tensors that are read in pieces.
//!
//! A folder is trusted no more than by the import: each header has to describe its file to the last
//! byte. But its `config.json` is not read: tensors are merged by their names, of any architecture.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use burn_backend::{bf16, f16};
use safetensors::Dtype;

use crate::genesis::Spec;
use crate::hf::import::{ANGLES, ImportError, Shard, TensorProblem, file_names};

/// The numbers of one tensor, which are read in pieces.
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
#[derive(Debug)]
pub struct Input {
    files: Vec<Store>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Debug)]
struct Store {
    path: PathBuf,
    file: File,
    /// Offset of the tensors in the file.
    begin: u64,
}

/// The shape of a tensor, and the place of its numbers in the files.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The size of each dimension; the last one is that of a row.
    pub shape: Vec<usize>,
    format: Format,
    file: usize,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    F32,
    Bf16,
    F16,
}

impl Format {
    fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::BF16 => Some(Self::Bf16),
            Dtype::F16 => Some(Self::F16),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

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
        let mut input = Self { files: Vec::new(), tensors: BTreeMap::new() };
        let mut problems = Vec::new();
        for name in file_names(folder)? {
            let (Shard { name: here, path, file, begin }, metadata) = Shard::open(folder, name)?;
            for (name, info) in metadata.tensors() {
                if ANGLES.iter().any(|angles| name.ends_with(angles)) {
                    continue;
                }
                let Some(format) = Format::of(info.dtype) else {
                    problems.push(TensorProblem::Kind { name, found: info.dtype });
                    continue;
                };
                let (shape, (offset, end)) = (info.shape.clone(), info.data_offsets);
                let bytes =
                    shape.iter().try_fold(format.bytes(), |all, size| all.checked_mul(*size));
                if bytes != end.checked_sub(offset) {
                    let why = format!("the place of {name} has not the size of its shape");
                    return Err(ImportError::Header { path, why });
                }
                let tensor =
                    Tensor { shape, format, file: input.files.len(), offset: offset as u64 };
                if let Some(first) = input.tensors.insert(name.clone(), tensor) {
                    let first = input.files.get(first.file).map(|file| file.path.clone());
                    let first = first.as_deref().and_then(Path::file_name).unwrap_or_default();
                    let (first, second) = (first.to_string_lossy().into_owned(), here.clone());
                    problems.push(TensorProblem::Twice { name, first, second });
                }
            }
            input.files.push(Store { path, file, begin });
        }
        if problems.is_empty() {
            return Ok(input);
        }
        problems.sort_by_key(ToString::to_string);
        Err(ImportError::Tensors { folder: folder.to_owned(), problems })
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
        Self { files: vec![Store { path, file, begin }], tensors }
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
    store: &'a Store,
    begin: u64,
    count: usize,
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
