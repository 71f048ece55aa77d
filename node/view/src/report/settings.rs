//! The settings of a run as a flat list, and where two runs differ in them.
//!
//! The manifest comes as JSON from a file, so this module knows no key but those that a seed
//! changes.

use serde_json::Value;

use crate::record::Text;

/// Every key with its value, a table's name before a point. Arrays and deeper tables are one value,
/// as JSON.
pub(super) fn list(manifest: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in manifest.as_object().into_iter().flatten().take(KEYS_MAX) {
        match value {
            Value::Object(table) => {
                let rows = table.iter().take(KEYS_MAX);
                all.extend(
                    rows.map(|(name, value)| (shown(&format!("{key}.{name}")), said(value))),
                );
            }
            value => all.push((shown(key), said(value))),
        }
    }
    all
}

/// The first setting in which two runs differ. Each seed has its own keys, so these may differ.
pub(super) fn difference(first: &Value, other: &Value) -> Option<String> {
    let kept = |manifest| {
        let mut settings = list(manifest);
        settings.retain(|(key, _)| !OF_A_SEED.contains(&key.as_str()));
        settings
    };
    let (first, other) = (kept(first), kept(other));
    lacking(&first, &other).or_else(|| lacking(&other, &first))
}

/// The key of the first setting that the other list does not have.
fn lacking(here: &[(String, String)], there: &[(String, String)]) -> Option<String> {
    here.iter().find(|setting| !there.contains(setting)).map(|(key, _)| key.clone())
}

/// A value as a person reads it: a text without its quotation marks.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        value => shown(&value.to_string()),
    }
}

/// A text of a stranger's file, cut and cleaned as [`Text`] does it.
fn shown(text: &str) -> String {
    Text::new(text).to_string()
}

/// What follows from the seed of a simulation: keys are drawn from it, and with them signatures.
const OF_A_SEED: [&str; 4] = ["seed", "organiser", "signature", "members.founders"];
/// Keys that are shown of a table, and of the manifest. A manifest has about 50.
const KEYS_MAX: usize = 256;
