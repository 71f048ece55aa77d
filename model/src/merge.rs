//! Makes one model of several, tensor by tensor and in pieces, without training.
//!
//! With the tensors of one name in the base B and the models Mᵢ, the task vectors are dᵢ = Mᵢ − B
//! (Ilharco et al. 2023). Each [`Method`] is one formula over them; [`blend`](mod@blend) has the
//! equations and their papers.
//!
//! | module | owns |
//! |---|---|
//! | [`recipe`] | a merge as its author writes it: mergekit's YAML, without what is not done here |
//! | `layer` | the numbers of layers in names |
//! | [`plan`] | which tensors become which, checked before a byte is written |
//! | [`blend`](mod@blend) | the formula of each method for one tensor |
//! | [`select`] | the k-th largest magnitude of a stream |
//! | [`output`] | files of tensors that are written in pieces |
//!
//! No tensor is ever whole in memory: a formula first reads all of its inputs for a few sums or
//! thresholds, where it has any, and then once more for the result. Sums are f64, numbers f32.

pub mod blend;
pub(crate) mod layer;
pub mod output;
pub mod plan;
pub mod recipe;
pub mod select;

use thiserror::Error;

use crate::hf::error::ImportError;
use crate::hf::staged::StagedError;

/// The formula that makes one tensor of several, under mergekit's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The sum of the models by their weights, or their mean.
    Linear,
    /// The way on a sphere from the base to one other model.
    Slerp,
    /// The same by the weights of two models, of their task vectors if there is a base.
    NuSlerp,
    /// The base plus a weighted sum of task vectors.
    TaskArithmetic,
    /// The same of their largest entries, where these agree with the elected sign.
    Ties,
    /// Task arithmetic with entries that chance keeps.
    DareLinear,
    /// TIES with entries that chance keeps.
    DareTies,
    /// Task arithmetic without the largest and the smallest entries.
    Breadcrumbs,
    /// TIES without the largest and the smallest entries.
    BreadcrumbsTies,
    /// A point between the base and the mean, by the angle between task vectors.
    ModelStock,
    /// One model as it is, perhaps scaled: for stacking layers.
    Passthrough,
}

impl Method {
    /// All methods with their names in a recipe, in the order in which they are documented.
    pub const NAMES: [(Self, &'static str); 11] = [
        (Self::Linear, "linear"),
        (Self::Slerp, "slerp"),
        (Self::NuSlerp, "nuslerp"),
        (Self::TaskArithmetic, "task_arithmetic"),
        (Self::Ties, "ties"),
        (Self::DareLinear, "dare_linear"),
        (Self::DareTies, "dare_ties"),
        (Self::Breadcrumbs, "breadcrumbs"),
        (Self::BreadcrumbsTies, "breadcrumbs_ties"),
        (Self::ModelStock, "model_stock"),
        (Self::Passthrough, "passthrough"),
    ];

    /// The name of this method in a recipe.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.into_iter().find(|(method, _)| *method == self);
        named.map_or("", |(_, name)| name)
    }

    /// What this method does with a base model.
    pub(crate) fn base(self) -> BaseRole {
        match self {
            Self::Linear | Self::Passthrough => BaseRole::Member,
            Self::NuSlerp => BaseRole::Optional,
            Self::Slerp
            | Self::TaskArithmetic
            | Self::Ties
            | Self::DareLinear
            | Self::DareTies
            | Self::Breadcrumbs
            | Self::BreadcrumbsTies
            | Self::ModelStock => BaseRole::Needed,
        }
    }

    /// Whether entries count only where they agree with the elected sign.
    fn elects(self) -> bool {
        matches!(self, Self::Ties | Self::DareTies | Self::BreadcrumbsTies)
    }
}

/// What a method does with a base model, which decides what a recipe must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseRole {
    /// The formula has none: a base that is named is one of the models.
    Member,
    /// The formula is another one if there is a base.
    Optional,
    /// The formula begins at the base.
    Needed,
}

/// Why a merge was not made; no folder has been left behind, but for what
/// [`StagedError::Unfinished`] names.
#[derive(Debug, Error)]
pub enum MergeError {
    /// The recipe is wrong. Its author must change it.
    #[error(transparent)]
    Recipe(#[from] recipe::RecipeError),
    /// A model cannot be read, or one of its files is damaged.
    #[error(transparent)]
    Input(#[from] ImportError),
    /// The models do not fit together, or cannot be merged.
    #[error("the models cannot be merged:{0}")]
    Problems(plan::MergeProblems),
    /// The folder cannot be written, or has files.
    #[error(transparent)]
    Write(#[from] StagedError),
}
