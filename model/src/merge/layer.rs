//! The layers of a model, as the names of its tensors tell them.
//!
//! No configuration is read: of whatever architecture a model is, a number behind `layers`,
//! `blocks` or `h` is that of a layer. The first such word of a name counts; a name in which
//! something else than a number follows it is of no layer.

use std::ops::Range;

use crate::hf::input::Input;

/// The name of a tensor of a layer, such as `model.layers.3.mlp.up_proj.weight`.
pub(crate) struct Layer<'a> {
    /// The whole name, of which `digits` are a part.
    name: &'a str,
    /// Where the number is in the name.
    digits: Range<usize>,
    /// The number of the layer, from 0.
    pub(crate) index: usize,
}

impl<'a> Layer<'a> {
    /// Finds the number of the layer in a name; none if it is of no layer.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let mut begin = 0;
        let mut before = "";
        for part in name.split('.') {
            let digits = begin..begin + part.len();
            if ["layers", "blocks", "h"].contains(&before) {
                let index = part.parse().ok().filter(|index| *index < LAYERS_MAX)?;
                return Some(Self { name, digits, index });
            }
            begin = digits.end + 1;
            before = part;
        }
        None
    }

    /// The name of the same tensor in another layer.
    pub(super) fn renamed(&self, index: usize) -> String {
        format!("{}{index}{}", &self.name[..self.digits.start], &self.name[self.digits.end..])
    }

    /// What follows the number, as in `mlp.up_proj.weight`.
    pub(crate) fn kind(&self) -> &'a str {
        self.name[self.digits.end..].trim_start_matches('.')
    }
}

/// The number of layers of a model.
pub(super) fn layers(input: &Input) -> usize {
    let names = input.tensors();
    names.iter().filter_map(|(name, _)| Some(Layer::of(name)?.index + 1)).max().unwrap_or(0)
}

/// More layers than any model has: a larger number in a name is not one of a layer.
const LAYERS_MAX: usize = 1 << 20;
