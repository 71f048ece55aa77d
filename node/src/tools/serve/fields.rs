//! The fields of a request: each is taken once, and what nobody takes is refused.
//!
//! Every method names the field in its message, and says what to send instead. A field that is null
//! counts as missing, since the libraries of OpenAI send null for what is not set. The types of the
//! values are checked here; what they mean together is checked in `order`.

use std::slice;

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// The fields that were not taken yet.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body, which has to be a JSON object. Of a key that occurs twice the last value
    /// counts.
    pub(super) fn of(body: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Refusal::request("the body is no JSON object: send one")),
            Err(error) => {
                Err(Refusal::request(format!("the body is no JSON: {error}; send a JSON object")))
            }
        }
    }

    /// The value of a field; `None` if it is missing or null.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| !value.is_null())
    }

    /// A field as `read` understands its value; `None` if it is missing. The message says to send
    /// `what` instead.
    fn read<T>(
        &mut self,
        key: &str,
        what: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| Refusal::field(key, format!("{key}: send {what}")))
    }

    /// A whole number of this range, both ends included; `None` if it is missing. `1.0` is no whole
    /// number.
    pub(super) fn count(
        &mut self,
        key: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, Refusal> {
        let what = format!("a whole number from {least} to {most}");
        self.read(key, &what, |value| {
            let number = usize::try_from(value.as_u64()?).ok()?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    /// A number, which may have a fraction. Its range is left to the sampler, which knows what it
    /// can do.
    pub(super) fn number(&mut self, key: &str) -> Result<Option<f64>, Refusal> {
        self.read(key, "a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// Whether a switch is on; off if it is missing.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, Refusal> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// The seed of the draws. A negative number is another seed than its positive.
    pub(super) fn seed(&mut self) -> Result<Option<u64>, Refusal> {
        self.read("seed", "a whole number of at most 64 bits", |value| {
            value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned))
        })
    }

    /// The strings that end a text: one, or a list of at most [`STOPS_MAX`]. An empty one would end
    /// each text at once.
    pub(super) fn stops(&mut self) -> Result<Vec<String>, Refusal> {
        let is_good = |text: &&str| (1..=STOP_BYTES_MAX).contains(&text.len());
        let stop = |one: &Value| one.as_str().filter(is_good).map(str::to_owned);
        let most = format!("at most {STOPS_MAX} strings of 1 to {STOP_BYTES_MAX} bytes");
        let stops = self.read("stop", &format!("a string, or {most}"), |value| {
            let list = value.as_array().map_or_else(|| slice::from_ref(value), Vec::as_slice);
            let stops = list.iter().map(stop).collect::<Option<Vec<_>>>();
            stops.filter(|stops| stops.len() <= STOPS_MAX)
        });
        Ok(stops?.unwrap_or_default())
    }

    /// A field that is accepted only with the value that has no effect.
    pub(super) fn without(
        &mut self,
        key: &str,
        is_default: fn(&Value) -> bool,
    ) -> Result<(), Refusal> {
        if self.take(key).is_none_or(|value| is_default(&value)) {
            return Ok(());
        }
        Err(Refusal::field(key, format!("{key}: this server does not have it, leave it out")))
    }

    /// Refuses the request if a field was not taken. It has to be the last call, so that each known
    /// field is taken.
    pub(super) fn end(self) -> Result<(), Refusal> {
        let unknown = self.0.into_iter().find(|(_, value)| !value.is_null());
        let Some((key, _)) = unknown else { return Ok(()) };
        let shown: String = key.chars().take(KEY_CHARS).collect();
        let message = format!("{shown:?}: this server does not know it, leave it out");
        Err(Refusal::field(&shown, message))
    }
}

/// As many stop strings as OpenAI takes.
const STOPS_MAX: usize = 4;
/// The longest stop string, in bytes.
const STOP_BYTES_MAX: usize = 256;
/// Letters of an unknown key that a message shows.
const KEY_CHARS: usize = 60;
