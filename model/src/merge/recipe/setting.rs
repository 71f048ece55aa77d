//! A parameter of a recipe: a number, one per depth, or one per kind of tensor.
//!
//! | in YAML | what it is |
//! |---|---|
//! | `0.5`, or `true` for a switch | the same for every tensor |
//! | `[0, 0.5, 1]` | a gradient: values at equal distances of depth, with lines between them |
//! | `[{filter: mlp, value: 0.5}, {value: 1}]` | the first entry whose filter is in the name |
//!
//! A value outside of the bounds of its key is refused when the recipe is read, so no formula meets
//! one. The text of an error does not name the parameter: the recipe puts the path to it in front.

use serde_json::Value;

use super::super::Method;

/// A parameter that a recipe may set. Which of them there are depends on the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// a, the factor of a model or its task vector.
    Weight,
    /// p, the share of a task vector's entries that stays.
    Density,
    /// γ, the share of the largest entries that breadcrumbs drop.
    Gamma,
    /// λ, the factor of the merged task vector.
    Lambda,
    /// t, how far slerp goes from the base.
    T,
    /// The factor of a tensor that passes through.
    Scale,
    /// Whether the sum is divided by the sum of weights.
    Normalize,
    /// Whether the entries that stay are scaled to the sum of all magnitudes.
    Rescale,
    /// How mergekit stores its masks. It has no effect on a result.
    Int8Mask,
    /// Whether model stock takes the angle of each row, not of the whole tensor.
    FilterWise,
    /// Whether nuslerp takes the angle of the whole tensor, not of each row.
    NuslerpFlatten,
}

impl Key {
    /// The name of this parameter in a recipe.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Density => "density",
            Self::Gamma => "gamma",
            Self::Lambda => "lambda",
            Self::T => "t",
            Self::Scale => "scale",
            Self::Normalize => "normalize",
            Self::Rescale => "rescale",
            Self::Int8Mask => "int8_mask",
            Self::FilterWise => "filter_wise",
            Self::NuslerpFlatten => "nuslerp_flatten",
        }
    }

    /// The parameters that a method has.
    pub(crate) fn of(method: Method) -> &'static [Self] {
        const SPARSE: [Key; 7] = [
            Key::Weight,
            Key::Lambda,
            Key::Normalize,
            Key::Int8Mask,
            Key::Density,
            Key::Rescale,
            Key::Gamma,
        ];
        match method {
            Method::Linear => &[Self::Weight, Self::Normalize],
            Method::Slerp => &[Self::T],
            Method::NuSlerp => &[Self::Weight, Self::NuslerpFlatten],
            Method::TaskArithmetic => &SPARSE[..4],
            Method::Ties | Method::DareLinear | Method::DareTies => &SPARSE[..6],
            Method::Breadcrumbs | Method::BreadcrumbsTies => &SPARSE,
            Method::ModelStock => &[Self::FilterWise],
            Method::Passthrough => &[Self::Scale],
        }
    }

    /// The value without a setting; `None` where a recipe has to say it.
    pub(crate) fn default(self, method: Method) -> Option<f64> {
        match self {
            Self::Weight | Self::T => None,
            Self::Density | Self::Lambda | Self::Scale | Self::NuslerpFlatten => Some(1.0),
            Self::Gamma => Some(0.01),
            Self::Normalize => Some(f64::from(matches!(method, Method::Linear | Method::Ties))),
            Self::Rescale => {
                Some(f64::from(matches!(method, Method::DareLinear | Method::DareTies)))
            }
            Self::Int8Mask | Self::FilterWise => Some(0.0),
        }
    }

    /// Whether each model may have its own value.
    pub(crate) fn is_of_a_model(self) -> bool {
        matches!(self, Self::Weight | Self::Density | Self::Gamma | Self::Scale)
    }

    /// What values the parameter may have.
    fn kind(self) -> Kind {
        match self {
            Self::Weight | Self::Lambda | Self::Scale => Kind::Number,
            Self::Density | Self::Gamma | Self::T => Kind::Share,
            Self::Normalize
            | Self::Rescale
            | Self::Int8Mask
            | Self::FilterWise
            | Self::NuslerpFlatten => Kind::Switch,
        }
    }
}

/// What a parameter may be: a number of at most [`FACTOR_MAX`] in magnitude, one from 0 to 1, or a
/// boolean.
enum Kind {
    Number,
    Share,
    Switch,
}

/// The value of a parameter, for any tensor at any depth.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    /// One number; a switch is 0 or 1.
    Number(f64),
    /// Numbers at equal distances of depth, with straight lines between them.
    Gradient(Vec<f64>),
    /// The first whose filter is in the tensor's name.
    Conditions(Vec<Condition>),
}

/// An entry of a list of conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    /// The text that the names of these tensors contain; none for all.
    pub(crate) filter: Option<String>,
    /// A number or a gradient, for the tensors that it is for.
    pub(crate) value: Setting,
}

impl Setting {
    /// The value for the tensor `name` at depth `t`, 0 for the first layer and 1 for the last. None
    /// if no condition is met.
    pub(crate) fn at(&self, name: &str, t: f64) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Gradient(numbers) => {
                let last = numbers.len().checked_sub(1)?;
                let place = t * last as f64;
                let low = (place as usize).min(last);
                let share = place - low as f64;
                Some((1.0 - share) * numbers[low] + share * numbers[last.min(low + 1)])
            }
            Self::Conditions(conditions) => conditions
                .iter()
                .find(|condition| condition.filter.as_ref().is_none_or(|f| name.contains(f)))
                .and_then(|condition| condition.value.at(name, t)),
        }
    }

    /// Reads the value of `key`. An error says what is expected.
    pub(super) fn parse(key: Key, value: &Value) -> Result<Self, String> {
        let list = match value {
            Value::Array(list) => list,
            value => return plain(key, value).map(Self::Number),
        };
        if list.is_empty() || list.len() > LIST_MAX {
            return Err(format!("a list has 1 to {LIST_MAX} entries, not {}", list.len()));
        }
        if list.iter().any(Value::is_object) {
            let conditions = list.iter().map(|entry| condition(key, entry));
            return conditions.collect::<Result<_, _>>().map(Self::Conditions);
        }
        gradient(key, list)
    }
}

/// Reads a list of numbers, which a switch cannot be.
fn gradient(key: Key, list: &[Value]) -> Result<Setting, String> {
    if let Kind::Switch = key.kind() {
        return Err("true or false is expected, not a list of numbers".to_owned());
    }
    let numbers = list.iter().map(|entry| plain(key, entry));
    numbers.collect::<Result<_, _>>().map(Setting::Gradient)
}

/// Reads `{filter, value}`, which may contain a gradient but no further condition. Without a
/// filter, or with `*`, it holds for every tensor, so no entry behind it has an effect.
fn condition(key: Key, entry: &Value) -> Result<Condition, String> {
    let Value::Object(entry) = entry else {
        return Err("numbers and conditions cannot be in one list".to_owned());
    };
    if let Some(unknown) = entry.keys().find(|name| !["filter", "value"].contains(&name.as_str())) {
        return Err(format!("a condition has filter and value, not {unknown:?}"));
    }
    let filter = match entry.get("filter") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text == "*" => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => return Err("a filter is a part of a tensor's name".to_owned()),
    };
    let value = match entry.get("value") {
        None => return Err("a condition has no value".to_owned()),
        Some(Value::Array(list)) if list.len() <= LIST_MAX && !list.is_empty() => {
            gradient(key, list)?
        }
        Some(value) => Setting::Number(plain(key, value)?),
    };
    Ok(Condition { filter, value })
}

/// Reads one number, or a boolean for a switch.
fn plain(key: Key, value: &Value) -> Result<f64, String> {
    let within = |most: f64, least: f64, expected: String| match value.as_f64() {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{expected} is expected, not {}", short(value))),
    };
    match key.kind() {
        Kind::Number => {
            within(FACTOR_MAX, -FACTOR_MAX, format!("a number of at most {FACTOR_MAX:e}"))
        }
        Kind::Share => within(1.0, 0.0, "a number from 0 to 1".to_owned()),
        Kind::Switch => match value {
            Value::Bool(on) => Ok(f64::from(*on)),
            value => Err(format!("true or false is expected, not {}", short(value))),
        },
    }
}

/// The beginning of a wrong value, for a message.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The largest factor. Beyond it a merge of usual weights has no finite numbers.
const FACTOR_MAX: f64 = 1e6;
/// The most numbers of a gradient, or conditions of a parameter.
const LIST_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gradient_is_straight_between_its_numbers() {
        let weight = Setting::parse(Key::Weight, &json!([0.25, 0.5, 0.5, 0.0])).unwrap();
        let at = |t| weight.at("x", t).unwrap();
        assert_eq!([at(0.0), at(1.0 / 6.0), at(0.5), at(1.0)], [0.25, 0.375, 0.5, 0.0]);
        assert_eq!(Setting::Gradient(vec![3.0]).at("x", 1.0), Some(3.0));
    }

    #[test]
    fn the_first_filter_in_the_name_wins() {
        let text = json!([{ "filter": "mlp", "value": 1 }, { "filter": "q", "value": [2, 3] }]);
        let weight = Setting::parse(Key::Weight, &text).unwrap();
        assert_eq!(weight.at("layers.0.mlp.q", 1.0), Some(1.0));
        assert_eq!(weight.at("layers.0.q", 1.0), Some(3.0));
        assert_eq!(weight.at("layers.0.k", 1.0), None);
    }
}
