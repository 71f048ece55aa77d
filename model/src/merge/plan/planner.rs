//! Finds the tensors of a plan: those before all layers, those of each slice, and those behind.
//!
//! The depth of a tensor is 0 before the layers, 1 behind them, and rises from 0 to 1 within each
//! slice. A gradient of a recipe is read at that depth.
//!
//! Names decide everything: no configuration is read, so models of any architecture can be planned.
//! A tensor of the result has the name that it has in the first model of its slice, with the number
//! that its layer has in the result. What the models do not have alike is a problem, and planning
//! goes on, so that one attempt shows all of them.

use std::collections::BTreeMap;

use super::{MergeProblem, Part, Target};
use crate::hf::input::{Input, Tensor};
use crate::merge::BaseRole;
use crate::merge::blend::{Choice, Settings};
use crate::merge::layer::{Layer, layers};
use crate::merge::output::Named;
use crate::merge::recipe::setting::Key;
use crate::merge::recipe::{Recipe, Slice, SliceSource};

/// What a plan is made from, and what has been found so far.
pub(super) struct Planner<'a> {
    /// The merge that was asked for.
    pub(super) recipe: &'a Recipe,
    /// Every model that the recipe names, by that name.
    pub(super) inputs: &'a BTreeMap<String, Input>,
    /// All that is wrong so far; planning goes on after each.
    pub(super) problems: Vec<MergeProblem>,
    /// The tensors of the result so far.
    pub(super) targets: Vec<Target<'a>>,
}

/// A model that takes part in a slice.
#[derive(Clone, Copy)]
struct Side<'a> {
    /// The model, as the recipe names it.
    model: &'a str,
    /// The open files of this model.
    input: &'a Input,
    /// The layer that becomes the first one of the slice.
    first: usize,
    /// The parameters; none if only the base's place says that this model takes part.
    source: Option<&'a SliceSource>,
    /// Whether the formula begins at this model.
    role: Role,
}

/// What a model is in a formula.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The formula begins there, and its weights are not asked for.
    Base,
    /// One of the models with factors.
    Merged,
}

impl<'a> Planner<'a> {
    /// Plans all tensors, and returns the number of layers. The first slice says what is before
    /// all layers, the last one what is behind.
    pub(super) fn all(&mut self) -> usize {
        let slices = &self.recipe.slices;
        let (Some(first), Some(last)) = (slices.first(), slices.last()) else { return 0 };
        let sides = self.sides(first);
        self.outer(first, &sides, Place::Before);
        let mut layers = 0;
        for slice in slices {
            layers += self.slice(slice, layers);
        }
        let sides = self.sides(last);
        self.outer(last, &sides, Place::Behind);
        self.compare_layers();
        layers
    }

    /// The models of a slice; the first one has the tensors that all must have. It is the base,
    /// where the formula has one; the others keep their order, by which their chance is drawn.
    ///
    /// A base that the slice does not list is put in front, without parameters of its own. A recipe
    /// in slices has to list it, so this occurs for whole models only, and its layers begin at 0.
    fn sides(&self, slice: &'a Slice) -> Vec<Side<'a>> {
        let has_base = self.recipe.method.base() != BaseRole::Member;
        let base = if has_base { self.recipe.base.as_deref() } else { None };
        let side = |source: &'a SliceSource| Side {
            model: &source.model,
            input: &self.inputs[&source.model],
            first: source.layers.as_ref().map_or(0, |layers| layers.start),
            source: Some(source),
            role: if Some(source.model.as_str()) == base { Role::Base } else { Role::Merged },
        };
        let mut sides: Vec<_> = slice.sources.iter().map(side).collect();
        let place = sides.iter().position(|side| side.role == Role::Base);
        match (place, base) {
            (Some(place), _) => sides[..=place].rotate_right(1),
            (None, Some(model)) => {
                let input = &self.inputs[model];
                sides.insert(0, Side { model, input, first: 0, source: None, role: Role::Base });
            }
            (None, None) => {}
        }
        sides
    }

    /// Plans the tensors of no layer that are at this place.
    fn outer(&mut self, slice: &'a Slice, sides: &[Side<'a>], place: Place) {
        for (name, _) in sides[0].input.tensors() {
            if Layer::of(name).is_none() && Place::of(name) == place {
                let names = vec![name.to_owned(); sides.len()];
                self.target(slice, sides, name.to_owned(), &names, place.depth());
            }
        }
        self.find_extra(sides, |_, name| {
            (Layer::of(name).is_none() && Place::of(name) == place).then(|| name.to_owned())
        });
    }

    /// Plans the layers of a slice, which are `begin` and following in the result, and returns how
    /// many they are. A slice without ranges has all layers of its first side. The ranges of a
    /// slice are equally long, as the recipe has checked. A range beyond the last layer is a
    /// problem, and nothing of the slice is planned then.
    fn slice(&mut self, slice: &'a Slice, begin: usize) -> usize {
        let sides = self.sides(slice);
        let mut count = layers(sides[0].input);
        for side in &sides {
            let Some(range) = side.source.and_then(|source| source.layers.clone()) else {
                continue;
            };
            let there = layers(side.input);
            count = range.len();
            if range.end > there {
                let (model, end) = (side.model.to_owned(), range.end);
                self.problems.push(MergeProblem::Layers { model, end, there });
                return count;
            }
        }
        let own = sides[0].first..sides[0].first + count;
        for (name, _) in sides[0].input.tensors() {
            let Some(layer) = Layer::of(name).filter(|layer| own.contains(&layer.index)) else {
                continue;
            };
            let index = layer.index - own.start;
            // A slice of one layer is at the end of a gradient.
            let depth = if count > 1 { index as f64 / (count - 1) as f64 } else { 1.0 };
            let names: Vec<_> =
                sides.iter().map(|side| layer.renamed(side.first + index)).collect();
            self.target(slice, &sides, layer.renamed(begin + index), &names, depth);
        }
        self.find_extra(&sides, |side, name| {
            let layer = Layer::of(name)?;
            let index = layer.index.checked_sub(side.first)?;
            let is_whole = side.source.is_some_and(|source| source.layers.is_none());
            (is_whole || index < count).then(|| layer.renamed(own.start + index))
        });
        count
    }

    /// Plans the tensor `name` of the tensors `names` of each side. The first side says which shape
    /// all must have. Tensors of 2³² numbers or more are refused, as `select` counts in 32 bits. If
    /// a side lacks the tensor the target is planned without it; with a problem there is no merge.
    fn target(
        &mut self,
        slice: &'a Slice,
        sides: &[Side<'a>],
        name: String,
        names: &[String],
        depth: f64,
    ) {
        let reference = sides[0];
        let Some(shape) = reference.input.tensor(&names[0]).map(|tensor| tensor.shape.clone())
        else {
            return;
        };
        let count: usize = shape.iter().product();
        if count >= 1 << 32 {
            self.problems.push(MergeProblem::Large { name, count });
            return;
        }
        let (mut base, mut models, keys) = (None, Vec::new(), Key::of(self.recipe.method));
        for (side, there) in sides.iter().zip(names) {
            let Some(tensor) = self.fitting(*side, there, reference, &shape) else { continue };
            let Side { model, input, .. } = *side;
            let mut part = Part { model, input, tensor, weight: 0.0, density: 1.0, gamma: 0.0 };
            if side.role == Role::Base {
                base = Some(part);
                continue;
            }
            let mut value = |key| self.value(key, slice, Some(*side), there, depth);
            for key in keys {
                match key {
                    Key::Weight | Key::Scale => part.weight = value(*key),
                    Key::Density => part.density = value(*key),
                    Key::Gamma => part.gamma = value(*key),
                    Key::Lambda
                    | Key::T
                    | Key::Normalize
                    | Key::Rescale
                    | Key::Int8Mask
                    | Key::FilterWise
                    | Key::NuslerpFlatten => {}
                }
            }
            models.push(part);
        }
        let settings = self.settings(slice, &name, depth);
        self.targets.push(Target { named: Named { name, shape }, base, models, settings });
    }

    /// The tensor of a side, if it is there and has this shape.
    fn fitting(
        &mut self,
        side: Side<'a>,
        name: &str,
        reference: Side<'a>,
        shape: &[usize],
    ) -> Option<&'a Tensor> {
        let (name, model, reference) =
            (name.to_owned(), side.model.to_owned(), reference.model.to_owned());
        match side.input.tensor(&name) {
            Some(tensor) if tensor.shape == shape => Some(tensor),
            Some(tensor) => {
                let (found, expected) = (tensor.shape.clone(), shape.to_vec());
                self.problems.push(MergeProblem::Shape { name, model, found, reference, expected });
                None
            }
            None => {
                self.problems.push(MergeProblem::Missing { name, model, reference });
                None
            }
        }
    }

    /// The value of a parameter. Where none is set, that is a problem, and the 0 that stands for
    /// the value is never used.
    fn value(
        &mut self,
        key: Key,
        slice: &Slice,
        side: Option<Side<'_>>,
        name: &str,
        depth: f64,
    ) -> f64 {
        let source = side.and_then(|side| side.source);
        self.recipe.value(key, slice, source, name, depth).unwrap_or_else(|| {
            let model = side.map_or("the merge", |side| side.model).to_owned();
            let (key, name) = (key.name(), name.to_owned());
            self.problems.push(MergeProblem::Unset { key, name, model });
            0.0
        })
    }

    /// What the recipe says for a tensor of this name at this depth; keys that its method lacks
    /// have no effect.
    fn settings(&mut self, slice: &Slice, name: &str, depth: f64) -> Settings {
        let mut settings = Settings {
            lambda: 1.0,
            t: 0.0,
            normalize: Choice::No,
            rescale: Choice::No,
            by_row: Choice::No,
        };
        for key in Key::of(self.recipe.method).iter().filter(|key| !key.is_of_a_model()) {
            let value = self.value(*key, slice, None, name, depth);
            let (yes, no) = (Choice::Yes, Choice::No);
            let choice = if value == 0.0 { no } else { yes };
            match key {
                Key::Lambda => settings.lambda = value,
                Key::T => settings.t = value,
                Key::Normalize => settings.normalize = choice,
                Key::Rescale => settings.rescale = choice,
                Key::FilterWise => settings.by_row = choice,
                Key::NuslerpFlatten => settings.by_row = if value == 0.0 { yes } else { no },
                Key::Int8Mask | Key::Weight | Key::Density | Key::Gamma | Key::Scale => {}
            }
        }
        settings
    }

    /// Finds tensors that the first side does not have. `reference` says under which name it would have a
    /// tensor of another one, if that one is used.
    fn find_extra(
        &mut self,
        sides: &[Side<'a>],
        reference: impl Fn(&Side<'a>, &str) -> Option<String>,
    ) {
        let [first, others @ ..] = sides else { return };
        for side in others {
            for (name, _) in side.input.tensors() {
                let expected = reference(side, name);
                if let Some(name) = expected.filter(|name| first.input.tensor(name).is_none()) {
                    let (model, reference) = (first.model.to_owned(), side.model.to_owned());
                    self.problems.push(MergeProblem::Missing { name, model, reference });
                }
            }
        }
    }

    /// Compares the shapes of layers that were stacked. They may come from different models, or
    /// from different slices of one, while a program that loads the result expects one shape for
    /// each kind of tensor. The first layer says which.
    fn compare_layers(&mut self) {
        let mut shapes: BTreeMap<String, (&Vec<usize>, &str)> = BTreeMap::new();
        for target in &self.targets {
            let Some(layer) = Layer::of(&target.named.name) else { continue };
            let part = target.base.iter().chain(&target.models).next();
            let model = part.map_or("", |part| part.model);
            let here = (&target.named.shape, model);
            let (expected, reference) = *shapes.entry(layer.renamed(0)).or_insert(here);
            if expected != here.0 {
                self.problems.push(MergeProblem::Shape {
                    name: target.named.name.clone(),
                    model: model.to_owned(),
                    found: here.0.clone(),
                    reference: reference.to_owned(),
                    expected: expected.clone(),
                });
            }
        }
    }
}

/// Where a tensor of no layer is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first layer: it has the parameters of depth 0.
    Before,
    /// Behind the last one: it has those of depth 1.
    Behind,
}

impl Place {
    /// Where a tensor is used, by its name: embeddings before the layers, all others behind.
    fn of(name: &str) -> Self {
        let embeds = name
            .split('.')
            .any(|part| ["embed_tokens", "emb", "embeddings", "wte"].contains(&part));
        if embeds { Self::Before } else { Self::Behind }
    }

    /// The depth at which gradients of the recipe are read.
    fn depth(self) -> f64 {
        match self {
            Self::Before => 0.0,
            Self::Behind => 1.0,
        }
    }
}
