//! Reads a model from a folder, or from a `.pth` file.
//!
//! Nothing in the folder is trusted: sizes have the bounds of a manifest, a header must describe
//! its file to the last byte, and every parameter must occur once, in its shape, with finite
//! numbers. All problems of the tensors are reported at once, so that a conversion can be repaired
//! in one go.
//!
//! Names and shapes are checked when a model is opened. Its numbers are then handed over in
//! canonical order and in pieces of at most a megabyte, so that no copy of it has to fit in memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::config::Described;
use super::error::{ImportError, TensorProblem};
use super::input::{Input, Numbers as _, Tensor, read_json};
use super::released::{self, Words};
use super::{CONFIG, INDEX, WHOLE, config};
use crate::arch::Arch;
use crate::arch::llama::layout;
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

/// The sizes of the model at `path`; its numbers are not read.
///
/// # Errors
/// If there is no model, or none of a family that is known here.
pub fn sizes(path: &Path) -> Result<Model, ImportError> {
    Found::at(path).map(|found| found.described.model)
}

/// Reads the model at `path` into memory.
///
/// # Errors
/// Any of [`ImportError`].
pub fn read(path: &Path) -> Result<Imported, ImportError> {
    let stored = StoredModel::open(path)?;
    let parameters = stored.parts.iter().map(|part| part.spec.len()).sum();
    let mut theta = Vec::new();
    if stored.fits() {
        theta.try_reserve_exact(parameters).map_err(|_| ImportError::Memory(parameters))?;
    }
    stored.stream(&mut |numbers: &[f32]| {
        theta.extend_from_slice(numbers);
        Ok::<_, ImportError>(())
    })?;
    assert_eq!(theta.len(), parameters, "every parameter once");
    let StoredModel { model, untied, .. } = stored;
    Ok(Imported { model, theta, untied })
}

/// A model whose sizes are known, and where its tensors are.
struct Found {
    /// The sizes, and whether the head is the embedding.
    described: Described,
    /// Its tensors, where they were opened to learn the sizes, and how they are named.
    released: Option<(Input, Vec<TensorProblem>, Words)>,
}

impl Found {
    /// Finds the model at `path`. A released RWKV has no `config.json`, or one of transformers'
    /// classes for it, and its sizes follow from its shapes.
    fn at(path: &Path) -> Result<Self, ImportError> {
        let config = path.join(CONFIG);
        if config.is_file() {
            let json = read_json(&config)?;
            if !RELEASED.iter().any(|name| json["model_type"] == *name) {
                let described = config::parse(&json)
                    .map_err(|problems| ImportError::Config { path: config, problems })?;
                return Ok(Self { described, released: None });
            }
        }
        let (input, twice) = if path.is_file() {
            (Input::pth(path)?, Vec::new())
        } else if [WHOLE, INDEX].iter().any(|name| path.join(name).is_file()) {
            Input::scan(path)?
        } else if let Some(pth) = only_pth(path)? {
            (Input::pth(&pth)?, Vec::new())
        } else if config.is_file() {
            return Err(ImportError::NoTensors(path.to_owned()));
        } else {
            return Err(ImportError::Io { path: config, source: io::ErrorKind::NotFound.into() });
        };
        let sizes = released::sizes(&input);
        let (model, words) =
            sizes.map_err(|why| ImportError::Released { path: path.to_owned(), why })?;
        let described = Described { model, tied: false };
        Ok(Self { described, released: Some((input, twice, words)) })
    }
}

/// The only `.pth` file of a folder, or what transformers calls it.
fn only_pth(folder: &Path) -> Result<Option<PathBuf>, ImportError> {
    let io_error = |source| ImportError::Io { path: folder.to_owned(), source };
    let mut found = None;
    for entry in fs::read_dir(folder).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let named = path.extension().is_some_and(|end| end == "pth")
            || path.file_name().is_some_and(|name| name == PICKLED);
        if named && found.replace(path).is_some() {
            return Err(ImportError::Several(folder.to_owned()));
        }
    }
    Ok(found)
}

/// A model whose names and shapes were checked, and whose numbers are still on disk.
#[derive(Debug)]
pub struct StoredModel {
    /// The architecture and its sizes.
    model: Model,
    /// Whether the head was tied to the embedding, and is handed over as a copy.
    untied: bool,
    /// Where it was found, for messages.
    path: PathBuf,
    /// The open files of its tensors.
    input: Input,
    /// The parameters in canonical order.
    parts: Vec<ModelPart>,
    /// Tensors that several files have: it is not known which one is meant.
    twice: Vec<TensorProblem>,
    /// Tensors that are no parameter of the architecture.
    extra: Vec<TensorProblem>,
}

/// One parameter, and its tensor if there is a right one.
#[derive(Debug)]
struct ModelPart {
    /// The parameter, as its architecture declares it.
    spec: Spec,
    /// The name of its tensor here.
    name: String,
    /// Its tensor, or why there is no right one.
    tensor: Result<Tensor, TensorProblem>,
    /// The rows of a head, where the tensor has them in the order in which a rotation pairs them in Meta's way. All
    /// other numbers are stored in canonical order.
    interleaved: Option<usize>,
}

impl StoredModel {
    /// Opens the model at `path`, and compares its tensors with the parameters. Tensors that do not
    /// fit are reported by [`stream`](Self::stream), together with numbers that do not.
    ///
    /// # Errors
    /// If there is no model, a file of it is damaged, or it is of no family that is known here.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let Found { described: Described { model, tied }, released } = Found::at(path)?;
        let (input, twice, dialect) = match released {
            Some((input, twice, words)) => (input, twice, Dialect::Released(words)),
            None => {
                let (input, twice) = Input::scan(path)?;
                let dialect = Dialect::of(&input, model.family);
                (input, twice, dialect)
            }
        };
        let embedding = tied.then(|| dialect.name(&input, EMBEDDING));
        let embedding = embedding.filter(|name| input.tensor(name).is_some());
        let mut taken = BTreeSet::new();
        let mut parts = Vec::new();
        for spec in Arch::new(&model).specs() {
            let own = dialect.name(&input, &spec.name);
            taken.insert(own.clone());
            let name = match &embedding {
                Some(embedding) if spec.name == HEAD => embedding.clone(),
                Some(_) | None => own,
            };
            let tensor = dialect.tensor(&input, &name, &spec);
            let interleaved = dialect.interleaved(&model, &spec);
            parts.push(ModelPart { spec, name, tensor, interleaved });
        }
        let extra = input.names().into_iter().filter(|name| !taken.contains(*name));
        let extra = extra.map(|name| TensorProblem::Extra {
            name: name.to_owned(),
            file: input.file_of(name).unwrap_or_default(),
        });
        let extra = extra.collect();
        Ok(Self { model, untied: tied, path: path.to_owned(), input, parts, twice, extra })
    }

    /// The architecture and its sizes.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the head was tied to the embedding. It is handed over as a copy.
    #[must_use]
    pub fn is_untied(&self) -> bool {
        self.untied
    }

    /// Whether the tensors are those of the model, so that it is no larger than its files.
    fn fits(&self) -> bool {
        let parts = self.parts.iter().all(|part| part.tensor.is_ok());
        parts && self.twice.is_empty() && self.extra.is_empty()
    }

    /// Hands over all parameters in canonical order and in pieces, all finite. After the first
    /// problem no more is handed over, but the rest is still checked.
    ///
    /// # Errors
    /// All problems of the tensors, or the first error of a file or of `take`.
    pub fn stream<E: From<ImportError>>(
        &self,
        take: &mut dyn FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut problems = self.twice.clone();
        let mut good = self.fits();
        for part in &self.parts {
            let found = match &part.tensor {
                Ok(tensor) => part.read(&self.input, tensor, &mut |numbers: &[f32]| {
                    if good { take(numbers) } else { Ok(()) }
                })?,
                Err(problem) => Some(problem.clone()),
            };
            good &= found.is_none();
            problems.extend(found);
        }
        problems.extend(self.extra.iter().cloned());
        if problems.is_empty() {
            return Ok(());
        }
        Err(ImportError::Tensors { folder: self.path.clone(), problems }.into())
    }
}

impl ModelPart {
    /// Hands over the numbers of the tensor until one of them is not finite, and counts those.
    fn read<E: From<ImportError>>(
        &self,
        input: &Input,
        tensor: &Tensor,
        take: &mut dyn FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<Option<TensorProblem>, E> {
        let numbers = input.numbers(tensor);
        let mut piece: Vec<f32> = Vec::new();
        let (mut count, mut first) = (0, usize::MAX);
        for run in self.pieces() {
            piece.resize(run.len(), 0.0);
            numbers.read(run.start, &mut piece)?;
            let bad = piece.iter().enumerate().filter(|(_, number)| !number.is_finite());
            for (at, _) in bad {
                count += 1;
                first = first.min(run.start + at);
            }
            // Behind a bad number nothing is handed over any more, and the rest is only counted.
            if count == 0 {
                take(&piece)?;
            }
        }
        let name = self.name.clone();
        Ok((count > 0).then_some(TensorProblem::NotFinite { name, count, first }))
    }

    /// The places in the tensor that are read at once, in canonical order.
    fn pieces(&self) -> Box<dyn Iterator<Item = Range<usize>>> {
        let count = self.spec.len();
        match self.interleaved {
            None => Box::new(
                (0..count).step_by(PIECE_NUMBERS).map(move |at| at..count.min(at + PIECE_NUMBERS)),
            ),
            Some(head) => {
                let width = self.spec.shape.last().copied().unwrap_or(1);
                Box::new((0..count / width).map(move |row| {
                    let at = layout::interleaved_row(row, head) * width;
                    at..at + width
                }))
            }
        }
    }
}

/// The convention by which the tensors of a model are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// The names of [`Arch::specs`].
    Public,
    /// Those of Meta and PRIME, which also pair other rows of queries and keys.
    Meta,
    /// Those of a released RWKV, whose shapes differ by sizes of 1.
    Released(Words),
}

impl Dialect {
    /// The convention of a model with a `config.json`, by the name of the embedding. Both
    /// conventions occur under one `model_type`, so the configuration does not say which it is.
    fn of(input: &Input, family: Family) -> Self {
        let name = layout::meta_name(EMBEDDING).unwrap_or_default();
        let meta = family == Family::Llama && input.names().contains(name.as_str());
        if meta { Self::Meta } else { Self::Public }
    }

    /// The name of the parameter with this public name.
    fn name(self, input: &Input, public: &str) -> String {
        match self {
            Self::Public => public.to_owned(),
            Self::Meta => layout::meta_name(public).unwrap_or_default(),
            Self::Released(words) => words.name_in(input, public),
        }
    }

    /// The tensor of a parameter, or what is wrong with it.
    fn tensor(self, input: &Input, name: &str, spec: &Spec) -> Result<Tensor, TensorProblem> {
        let named = name.to_owned();
        if let Some(found) = input.odd(name) {
            return Err(TensorProblem::Kind { name: named, found });
        }
        let expected = spec.shape.clone();
        let Some(tensor) = input.tensor(name) else {
            return Err(TensorProblem::Missing { name: named, shape: expected });
        };
        let fits = match self {
            Self::Public | Self::Meta => tensor.shape == expected,
            Self::Released(_) => released::same_order(name, &tensor.shape, &expected),
        };
        if fits {
            return Ok(tensor.clone());
        }
        Err(TensorProblem::Shape { name: named, found: tensor.shape.clone(), expected })
    }

    /// The rows of a head, if a parameter's rows are interleaved in its tensor. Only a Llama of Meta has another order
    /// than ours, in its queries and keys, so that a row is read at a time there.
    fn interleaved(self, model: &Model, spec: &Spec) -> Option<usize> {
        (self == Self::Meta && layout::is_rotated(&spec.name)).then(|| model.head_size())
    }
}

/// Names of a Llama's first and last matrix.
const EMBEDDING: &str = "model.embed_tokens.weight";
/// The matrix that makes the scores. A folder lacks it if it is tied to the embedding.
const HEAD: &str = "lm_head.weight";
/// What transformers' classes for RWKV-4 to RWKV-7 call themselves in a `config.json`.
const RELEASED: [&str; 4] = ["rwkv", "rwkv5", "rwkv6", "rwkv7"];
/// The name of a `.pth` file in a folder of transformers.
const PICKLED: &str = "pytorch_model.bin";
/// The most numbers that are read at once: a megabyte of f32.
const PIECE_NUMBERS: usize = 1 << 18;

#[cfg(test)]
mod tests;
