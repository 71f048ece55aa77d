//! A merge as its author writes it: the part of mergekit's YAML that is carried out here.
//!
//! A recipe comes from elsewhere, so it is bounded in every way, and a key that would have no
//! effect is refused by its name: its author expects an effect. Parameters stand at three levels,
//! the merge, a slice and a model, of which the nearest to the model counts ([`Recipe::value`]).

pub(crate) mod setting;

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};
use thiserror::Error;

use super::{BaseRole, Method};
use crate::hf::Precision;
use setting::{Key, Setting, short};

/// A merge, checked as far as that is possible without its models.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The formula that makes each tensor.
    pub method: Method,
    /// The model at which the formula begins, and whose tokenizer and configuration are kept.
    pub(crate) base: Option<String>,
    /// The parts of the result, from the first layer to the last.
    pub(crate) slices: Vec<Slice>,
    /// Parameters of the whole merge.
    pub(crate) parameters: Parameters,
    /// The format of the numbers in the result.
    pub precision: Precision,
}

/// Layers of the result that are made of equally many layers of each source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    /// The models, each with its layers; at least one.
    pub(crate) sources: Vec<SliceSource>,
    /// Parameters of this slice alone.
    pub(crate) parameters: Parameters,
}

/// A model, or some of its layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceSource {
    /// The model, as the recipe names it.
    pub(crate) model: String,
    /// Its layers; none stands for all of them.
    pub(crate) layers: Option<Range<usize>>,
    /// Parameters of this model in this slice.
    pub(crate) parameters: Parameters,
}

/// Settings by the name of their parameter.
pub(crate) type Parameters = BTreeMap<Key, Setting>;

/// Why a text is no recipe. Its author must change it.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum RecipeError {
    /// The text is too long to be one.
    #[error("the recipe has more than {TEXT_BYTES_MAX} bytes: name a merge's YAML file")]
    Long,
    /// The text is not YAML, for this reason of its parser.
    #[error("the recipe is not YAML: {0}")]
    Yaml(String),
    /// A key has a wrong value, is missing, or unknown.
    #[error("{place}: {why}")]
    At {
        /// The key, with those that lead to it.
        place: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}

impl Recipe {
    /// Reads a recipe, and checks what shows without its models.
    ///
    /// # Errors
    /// The first thing in it that is wrong.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(RecipeError::Long);
        }
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let text = error.to_string();
            RecipeError::Yaml(text.lines().next().unwrap_or_default().to_owned())
        })?;
        let top = Node::of(String::new(), &value)?;
        top.only(&TOP)?;
        let method = method(&top)?;
        let slices = match (top.list("models", MODELS_MAX)?, top.list("slices", SLICES_MAX)?) {
            (Some(models), None) => vec![Slice {
                sources: sources(method, models, Form::Models)?,
                parameters: Parameters::new(),
            }],
            (None, Some(slices)) => {
                slices.iter().map(|entry| slice(method, entry)).collect::<Result<_, _>>()?
            }
            (Some(_), Some(_)) => {
                return Err(
                    top.wrong("models", "models and slices exclude each other: leave one out")
                );
            }
            (None, None) => {
                return Err(top.wrong("models", "it is missing: list the models, or slices"));
            }
        };
        if top.text("tokenizer_source")?.is_some_and(|source| source != "base") {
            let why =
                "the tokenizer of the base, or of the first model, is copied: remove this key";
            return Err(top.wrong("tokenizer_source", why));
        }
        let recipe = Self {
            method,
            base: top.text("base_model")?.map(ToOwned::to_owned),
            slices,
            parameters: parameters(method, &top, Level::All)?,
            precision: precision(&top)?,
        };
        recipe.check()?;
        Ok(recipe)
    }

    /// Every model that is named, once, in the order in which they are named.
    #[must_use]
    pub fn models(&self) -> Vec<&str> {
        let sources = self.slices.iter().flat_map(|slice| &slice.sources);
        let mut names = Vec::new();
        for name in self.base.iter().chain(sources.map(|source| &source.model)) {
            if !names.contains(&name.as_str()) {
                names.push(name.as_str());
            }
        }
        names
    }

    /// The value of a parameter for the tensor `name` at depth `t`: the one that is nearest to the
    /// model wins. `None` if none is set, and the method has no default.
    pub(crate) fn value(
        &self,
        key: Key,
        slice: &Slice,
        source: Option<&SliceSource>,
        name: &str,
        t: f64,
    ) -> Option<f64> {
        let source = source.map(|source| &source.parameters);
        let levels = source.into_iter().chain([&slice.parameters, &self.parameters]);
        let mut found = levels.filter_map(|level| level.get(&key)?.at(name, t));
        found.next().or_else(|| key.default(self.method))
    }

    /// Checks the number of models, and the base: what the method needs of both. The first problem
    /// is returned. Whether the models exist and fit together shows only when they are planned.
    fn check(&self) -> Result<(), RecipeError> {
        let wrong = |place: &str, why: &str| {
            Err(RecipeError::At { place: place.to_owned(), why: why.to_owned() })
        };
        let (method, base) = (self.method.name(), self.base.as_deref());
        if self.method.base() == BaseRole::Needed && base.is_none() {
            return wrong("base_model", &format!("{method} needs one: name it"));
        }
        for (index, slice) in self.slices.iter().enumerate() {
            let place = || {
                if self.slices[0].sources[0].layers.is_some() {
                    format!("slices[{index}]")
                } else {
                    "models".to_owned()
                }
            };
            let has_base = slice.sources.iter().any(|source| Some(source.model.as_str()) == base);
            let ranged = slice.sources[0].layers.is_some();
            let role = self.method.base();
            // A base that is no more than one of the models counts only if it is listed with a
            // weight.
            if role == BaseRole::Member && base.is_some() && !has_base && !ranged {
                let why = "list it under models with its weight, or remove it";
                return wrong("base_model", &format!("{method} has no base: {why}"));
            }
            // Slices take layers by number, so those of the base have to be named as well.
            if role != BaseRole::Member && base.is_some() && ranged && !has_base {
                let why =
                    "the base model is not among its sources: say which of its layers to take";
                return wrong(&place(), why);
            }
            // Where the formula begins at the base, the base is not one of the models that are
            // merged.
            let merged = slice.sources.len() - usize::from(has_base && role != BaseRole::Member);
            let needed = match self.method {
                Method::Slerp | Method::Passthrough => 1..=1,
                Method::NuSlerp => 2..=2,
                Method::ModelStock => 2..=MODELS_MAX,
                Method::Linear
                | Method::TaskArithmetic
                | Method::Ties
                | Method::DareLinear
                | Method::DareTies
                | Method::Breadcrumbs
                | Method::BreadcrumbsTies => 1..=MODELS_MAX,
            };
            if !needed.contains(&merged) {
                let (least, most) = needed.into_inner();
                let range =
                    if least == most { least.to_string() } else { format!("{least} to {most}") };
                let beside = if role == BaseRole::Member { "" } else { " beside the base" };
                let why = format!("{method} takes {range} models{beside}, and here are {merged}");
                return wrong(&place(), &why);
            }
        }
        Ok(())
    }
}

/// Whether sources are whole models, or layers of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Whole models, under `models`.
    Models,
    /// Some layers of each, under `slices`.
    Slices,
}

/// What the parameters of a table apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// For one model: only its own ones have an effect there.
    Model,
    /// For the whole merge, or a slice of it.
    All,
}

/// Reads one entry of `slices`, whose sources have equally many layers. They may be
/// different ones: layers 0 to 8 of one model can be merged with layers 16 to 24 of another.
fn slice(method: Method, slice: &Node<'_>) -> Result<Slice, RecipeError> {
    slice.only(&["sources", "parameters"])?;
    let listed = slice.list("sources", MODELS_MAX)?.ok_or_else(|| {
        slice.wrong("sources", "it is missing: list models with their layer_range")
    })?;
    let sources = sources(method, listed, Form::Slices)?;
    let count = |source: &SliceSource| source.layers.as_ref().map_or(0, ExactSizeIterator::len);
    if sources.iter().any(|source| count(source) != count(&sources[0])) {
        return Err(
            slice.wrong("sources", "each layer_range has to have the same number of layers")
        );
    }
    Ok(Slice { sources, parameters: parameters(method, slice, Level::All)? })
}

/// Reads the models of a merge or a slice, none twice.
fn sources(
    method: Method,
    list: Vec<Node<'_>>,
    form: Form,
) -> Result<Vec<SliceSource>, RecipeError> {
    let read = |source: &Node<'_>| {
        let (keys, most) =
            (["model", "parameters", "layer_range"], if form == Form::Models { 2 } else { 3 });
        source.only(&keys[..most])?;
        let model = source
            .text("model")?
            .ok_or_else(|| source.wrong("model", "it is missing: name a folder or a checkpoint"))?;
        let layers = match form {
            Form::Models => None,
            Form::Slices => Some(source.layers()?),
        };
        Ok(SliceSource {
            model: model.to_owned(),
            layers,
            parameters: parameters(method, source, Level::Model)?,
        })
    };
    let sources: Vec<SliceSource> = list.iter().map(read).collect::<Result<_, _>>()?;
    for (index, source) in sources.iter().enumerate() {
        if sources[..index].iter().any(|other| other.model == source.model) {
            return Err(list[index].wrong("model", "it is listed twice: add the weights up"));
        }
    }
    Ok(sources)
}

/// Reads `parameters`, and refuses those that the method or the level does not have.
fn parameters(method: Method, node: &Node<'_>, level: Level) -> Result<Parameters, RecipeError> {
    let Some(table) = node.table("parameters")? else { return Ok(Parameters::new()) };
    let mut known = Key::of(method).to_vec();
    if level == Level::Model {
        known.retain(|key| key.is_of_a_model());
    }
    let read = |(name, value): (&String, &Value)| {
        let key = known.iter().find(|key| key.name() == name).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|key| key.name()).collect();
            let (method, names) = (method.name(), names.join(", "));
            table.wrong(name, &format!("{method} has no such parameter here, only: {names}"))
        })?;
        let setting = Setting::parse(*key, value).map_err(|why| table.wrong(name, &why))?;
        Ok((*key, setting))
    };
    table.map.iter().map(read).collect()
}

/// A table of the recipe, and the keys that lead to it.
struct Node<'a> {
    /// The keys that lead here, for messages; empty at the top.
    place: String,
    /// The keys of the table with their values.
    map: &'a Map<String, Value>,
}

impl<'a> Node<'a> {
    /// Reads a value that has to be a table.
    ///
    /// # Errors
    /// If it is anything else.
    fn of(place: String, value: &'a Value) -> Result<Self, RecipeError> {
        match value {
            Value::Object(map) => Ok(Self { place, map }),
            value => {
                let place = if place.is_empty() { "the recipe".to_owned() } else { place };
                Err(RecipeError::At {
                    place,
                    why: format!("keys with values are expected, not {}", short(value)),
                })
            }
        }
    }

    /// The place of a key of this table, cut where the key is long.
    fn path(&self, key: &str) -> String {
        let key: String = key.chars().take(40).collect();
        if self.place.is_empty() { key } else { format!("{}.{key}", self.place) }
    }

    /// An error about a key of this table.
    fn wrong(&self, key: &str, why: &str) -> RecipeError {
        RecipeError::At { place: self.path(key), why: why.to_owned() }
    }

    /// Refuses a key that is none of these: a key that is misspelt or not done here would change
    /// nothing, and its author expects that it does.
    fn only(&self, keys: &[&str]) -> Result<(), RecipeError> {
        match self.map.keys().find(|key| !keys.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(self.wrong(
                key,
                &format!("this key is not known here, only {}: remove it", keys.join(", ")),
            )),
        }
    }

    /// The value of a key; null is as good as none.
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The text of a key, which is not empty; `None` without the key.
    fn text(&self, key: &str) -> Result<Option<&'a str>, RecipeError> {
        let text = |value: &'a Value| {
            let text =
                value.as_str().filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX);
            text.ok_or_else(|| {
                self.wrong(key, &format!("a text is expected, not {}", short(value)))
            })
        };
        self.value(key).map(text).transpose()
    }

    /// The table of a key; `None` without the key.
    fn table(&self, key: &str) -> Result<Option<Self>, RecipeError> {
        self.value(key).map(|value| Self::of(self.path(key), value)).transpose()
    }

    /// The tables that a key lists, 1 to `most`; `None` without the key.
    fn list(&self, key: &str, most: usize) -> Result<Option<Vec<Self>>, RecipeError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let list = value.as_array().filter(|list| (1..=most).contains(&list.len()));
        let list = list.ok_or_else(|| {
            self.wrong(key, &format!("a list of 1 to {most} entries is expected"))
        })?;
        let entry = |(index, value): (usize, &'a Value)| {
            Self::of(format!("{}[{index}]", self.path(key)), value)
        };
        list.iter().enumerate().map(entry).collect::<Result<_, _>>().map(Some)
    }

    /// Reads the half-open `layer_range`.
    fn layers(&self) -> Result<Range<usize>, RecipeError> {
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        let range =
            self.value("layer_range").and_then(|value| match value.as_array()?.as_slice() {
                [begin, end] => Some(number(begin)?..number(end)?),
                _ => None,
            });
        let good = range.filter(|range| range.start < range.end && range.end <= LAYERS_MAX);
        good.ok_or_else(|| {
            self.wrong("layer_range", &format!("two numbers are expected, the first layer and the one behind the last, of at most {LAYERS_MAX}"))
        })
    }
}

/// Reads `merge_method`, which has no default.
fn method(top: &Node<'_>) -> Result<Method, RecipeError> {
    let names = || Method::NAMES.map(|(_, name)| name).join(", ");
    let name = top.text("merge_method")?.ok_or_else(|| {
        top.wrong("merge_method", &format!("it is missing: write one of {}", names()))
    })?;
    let found = Method::NAMES.into_iter().find(|(_, known)| *known == name);
    found.map(|(method, _)| method).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        top.wrong("merge_method", &format!("{name:?} is not known here: write one of {}", names()))
    })
}

/// Reads `dtype`; float32 without it, which loses nothing.
fn precision(top: &Node<'_>) -> Result<Precision, RecipeError> {
    match top.text("dtype")? {
        None => Ok(Precision::F32),
        Some(name) => [Precision::F32, Precision::Bf16]
            .into_iter()
            .find(|precision| precision.name() == name)
            .ok_or_else(|| top.wrong("dtype", "write float32 or bfloat16")),
    }
}

/// The keys at the top of a recipe.
const TOP: [&str; 7] =
    ["merge_method", "base_model", "models", "slices", "parameters", "dtype", "tokenizer_source"];
/// The longest recipe. One that lists every layer of a large model has some ten kilobytes.
pub const TEXT_BYTES_MAX: usize = 256 << 10;
/// The longest name of a model.
const NAME_BYTES_MAX: usize = 4096;
/// The most models of a merge or slice.
const MODELS_MAX: usize = 64;
/// The most slices of a recipe.
const SLICES_MAX: usize = 1024;
/// The greatest end of a `layer_range`.
const LAYERS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
