//! Which tensors of which models become which, and what is wrong with them.
//!
//! Everything that headers tell is checked before a byte is written, and all of it at once. Numbers
//! that are not finite show only while they are read: then the whole merge ends without a result.

mod planner;

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use super::MergeError;
use super::blend::{Chance, NotFinite, Operand, Settings, TensorMerge, blend};
use super::output::{Named, TensorWriter};
use super::recipe::Recipe;
use crate::hf::Precision;
use crate::hf::input::{Input, Tensor};
use crate::hf::staged::Staged;
use planner::Planner;

/// What is wrong with the models of a merge, as a list of lines. There is at least one.
#[derive(Debug)]
pub struct MergeProblems(Vec<MergeProblem>);

/// Lists the first problems, each on a line of its own, and says how many follow.
impl fmt::Display for MergeProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problems) = self;
        problems.iter().take(LINES_MAX).try_for_each(|problem| write!(f, "\n  {problem}"))?;
        if problems.len() > LINES_MAX {
            write!(f, "\n  and {} more of this kind", problems.len() - LINES_MAX)?;
        }
        Ok(())
    }
}

/// A problem of one tensor or model; what to do about it is in its text.
#[derive(Debug, Error)]
enum MergeProblem {
    /// A model lacks a tensor that another one has.
    #[error("{model} has no {name}, which {reference} has: merge models of one architecture")]
    Missing { name: String, model: String, reference: String },
    /// A tensor has another shape than that of the same name.
    #[error(
        "{name} is {found:?} in {model}, and {expected:?} in {reference}: merge models of one size \
         and vocabulary"
    )]
    Shape {
        name: String,
        /// The model whose tensor differs from the others.
        model: String,
        found: Vec<usize>,
        /// The model that says which shape all must have.
        reference: String,
        expected: Vec<usize>,
    },
    /// A tensor is too large for the counters of magnitudes.
    #[error("{name} has {count} numbers, and fewer than 2^32 can be merged: no method is able to")]
    Large { name: String, count: usize },
    /// A recipe asks for layers that are not there.
    #[error("{model} has {there} layers, and layer_range ends at {end}: lower it")]
    Layers { model: String, end: usize, there: usize },
    /// No setting tells a value that the method needs.
    #[error(
        "{key} of {model} is not set for {name}: add it to the parameters, with a last entry without filter"
    )]
    Unset { key: &'static str, name: String, model: String },
    /// Some numbers of an input are infinite or NaN.
    #[error(
        "{name} of {model} has {count} numbers that are not finite, the first at {first}: its \
         training has diverged, or its file is damaged; take an earlier state"
    )]
    NotFinite { name: String, model: String, count: usize, first: usize },
    /// Numbers of the result are too large.
    #[error(
        "{name} would have numbers that are not finite as {}: choose smaller weights",
        precision.name()
    )]
    Overflow { name: String, precision: Precision },
}

/// A merge whose tensors fit together. Nothing was written for it yet.
pub struct Plan<'a> {
    /// The recipe, which says the method.
    recipe: &'a Recipe,
    /// The tensors of the result, in the order in which they are written.
    targets: Vec<Target<'a>>,
    /// The number of layers of the result.
    layers: usize,
}

/// A tensor of the result, and what it is made of.
struct Target<'a> {
    /// Its name and shape in the result.
    named: Named,
    /// The tensor of the base, if the formula begins at one.
    base: Option<Part<'a>>,
    /// The tensors of the other models, in the order of the recipe.
    models: Vec<Part<'a>>,
    /// What the recipe says for this tensor, at its depth.
    settings: Settings,
}

/// A tensor of a model, and its factors.
struct Part<'a> {
    /// The model, as the recipe names it.
    model: &'a str,
    /// The open files of this model.
    input: &'a Input,
    /// Where the tensor is in them.
    tensor: &'a Tensor,
    /// The factor of the model, or of a tensor that passes through.
    weight: f64,
    /// The share of the entries that stays, from 0 to 1.
    density: f64,
    /// The share of the largest entries that is left out, from 0 to 1.
    gamma: f64,
}

/// The files of tensors that a merge has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedFiles {
    /// Names of the files in their folder.
    pub files: Vec<String>,
    /// Bytes of all of them, with their headers.
    pub bytes: u64,
    /// Number of tensors in all of them.
    pub tensors: usize,
}

impl<'a> Plan<'a> {
    /// Plans the merge of these inputs, which are all that the recipe names.
    ///
    /// # Errors
    /// All problems that show without reading a number.
    ///
    /// # Panics
    /// If an input is missing.
    pub fn new(
        recipe: &'a Recipe,
        inputs: &'a BTreeMap<String, Input>,
    ) -> Result<Self, MergeError> {
        let mut planner = Planner { recipe, inputs, problems: Vec::new(), targets: Vec::new() };
        let layers = planner.all();
        let Planner { problems, targets, .. } = planner;
        if problems.is_empty() {
            Ok(Self { recipe, targets, layers })
        } else {
            Err(MergeError::Problems(MergeProblems(problems)))
        }
    }

    /// The number of layers of the result.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// The number of tensors of the result.
    #[must_use]
    pub fn tensors(&self) -> usize {
        self.targets.len()
    }

    /// Merges one tensor after the other. Their problems are collected, and the merge goes on, so
    /// that a person sees all at once.
    ///
    /// # Errors
    /// If a file cannot be read or written, or numbers are not finite.
    pub fn write(
        &self,
        staged: &Staged,
        seed: u64,
        shard_bytes: u64,
        report: &mut dyn FnMut(usize),
    ) -> Result<MergedFiles, MergeError> {
        let precision = self.recipe.precision;
        let names: Vec<_> = self.targets.iter().map(|target| target.named.clone()).collect();
        let mut writer = TensorWriter::create(staged, &names, precision, shard_bytes)?;
        let mut problems = Vec::new();
        for (target, done) in self.targets.iter().zip(1..) {
            target.write(self.recipe, seed, &mut writer, &mut problems)?;
            report(done);
        }
        if !problems.is_empty() {
            return Err(MergeError::Problems(MergeProblems(problems)));
        }
        writer.sync()?;
        let (files, bytes) = writer.files();
        Ok(MergedFiles { files, bytes, tensors: names.len() })
    }
}

impl Target<'_> {
    /// Merges the tensor block by block into `writer`, and adds to `problems` what is not finite.
    fn write(
        &self,
        recipe: &Recipe,
        seed: u64,
        writer: &mut TensorWriter,
        problems: &mut Vec<MergeProblem>,
    ) -> Result<(), MergeError> {
        let name = &self.named.name;
        let base = self.base.as_ref().map(|part| part.input.numbers(part.tensor));
        let stored: Vec<_> =
            self.models.iter().map(|part| part.input.numbers(part.tensor)).collect();
        let operand = |(part, numbers): (&Part<'_>, _)| {
            let Part { weight, density, gamma, .. } = *part;
            Operand { numbers, weight, density, gamma }
        };
        let masks = Chance { seed, tensor: name.clone() };
        let merge = TensorMerge {
            method: recipe.method,
            base: base.as_ref().map(|base| base as _),
            models: self.models.iter().zip(stored.iter().map(|x| x as _)).map(operand).collect(),
            row: self.named.shape.last().copied().unwrap_or(1),
            settings: self.settings,
            masks: &masks,
        };
        let mut overflows = false;
        let limit = largest(recipe.precision);
        // After the first problem there will be no result: only further problems are looked for.
        let broken = !problems.is_empty();
        let found = blend(&merge, &mut |numbers| {
            let over = |over, number: &f32| over | number.is_nan() | (number.abs() > limit);
            overflows |= numbers.iter().fold(false, over);
            if broken || overflows {
                return Ok(());
            }
            writer.write(numbers).map_err(MergeError::from)
        })?;
        for NotFinite { model, count, first } in &found {
            let part = model.map_or(self.base.as_ref(), |index| self.models.get(index));
            let model = part.map_or("", |part| part.model).to_owned();
            let (name, count, first) = (name.clone(), *count, *first);
            problems.push(MergeProblem::NotFinite { name, model, count, first });
        }
        if overflows && found.is_empty() {
            problems
                .push(MergeProblem::Overflow { name: name.clone(), precision: recipe.precision });
        }
        Ok(())
    }
}

/// The largest number of a format, or of those that round to it.
fn largest(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => f32::MAX,
        // The number halfway between the largest bf16 and infinity rounds up.
        Precision::Bf16 => f32::from_bits(0x7f7f_7fff),
    }
}

/// The most problems that are printed at once: a page of a terminal.
const LINES_MAX: usize = 40;

#[cfg(test)]
mod tests;
