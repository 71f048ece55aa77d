//! What one examination has found: a verdict, a number with its unit, a sentence, and what to do.
//!
//! A check is data, so that the same result is a row for people and an object for programs. The
//! names and units are part of the format that docs/FORMATS.md lists: programs compare them letter
//! by letter.

use std::fmt;

use serde::Serialize;

use crate::tell::screen::printable;

/// How good it is. The order is that of severity. The worst grade of all checks is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Grade {
    /// It could not be tried, or there was no need; the sentence says why.
    NotTried,
    /// It is as good as a node needs.
    Ok,
    /// A node works, but slower or with fewer others than it could.
    Warning,
    /// A node does not work with it, or only by luck.
    Bad,
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotTried => "not tried",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Bad => "bad",
        })
    }
}

/// One examination and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    /// What was examined; docs/FORMATS.md lists the names.
    pub(super) check: &'static str,
    /// The address or peer that it is about, if there may be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    /// How good it is; the worst of all checks is the program's verdict.
    pub(super) verdict: Grade,
    /// What was measured, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<f64>,
    /// The unit of `value`, such as `bytes` or `ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit: Option<&'static str>,
    /// What was found, as a clause for people. It may quote what a stranger sent. `Display` makes
    /// that harmless for a terminal; the JSON object has it as it came.
    pub(super) found: String,
    /// The remedy, where one is needed. It is an order to the reader that can be typed or done as
    /// it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    /// A result without a number, a subject or a remedy.
    pub(super) fn new(check: &'static str, verdict: Grade, found: impl Into<String>) -> Self {
        let found = found.into();
        Self { check, of: None, verdict, value: None, unit: None, found, remedy: None }
    }

    /// The result of what could not be tried, or had no need to be; `found` says why.
    pub(super) fn not_tried(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Grade::NotTried, found)
    }

    /// The same result, about one of several addresses or peers.
    #[must_use]
    pub(super) fn about(self, of: impl fmt::Display) -> Self {
        Self { of: Some(of.to_string()), ..self }
    }

    /// The same result, with the number that was measured.
    #[must_use]
    pub(super) fn measured(self, value: f64, unit: &'static str) -> Self {
        Self { value: Some(value), unit: Some(unit), ..self }
    }

    /// The same result, with what a person can do.
    #[must_use]
    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// The same, with the remedy only where something is wrong.
    #[must_use]
    pub(super) fn remedy_if_wrong(self, remedy: impl Into<String>) -> Self {
        if self.verdict >= Grade::Warning { self.remedy(remedy) } else { self }
    }
}

/// The table's row, and below it the remedy.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An entry point names addresses, which may have any characters.
        write!(f, "{:<10}{:<11}{}", self.check, self.verdict, printable(&self.found))?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n{:<21}→ {remedy}", ""),
            None => Ok(()),
        }
    }
}

/// A verdict about a number of which more is better. From `good` on it is ok, from `bearable` on a
/// warning, and bad below. With `bearable` 0 no number is bad, which is for what only makes a node
/// slow.
pub(super) fn at_least(value: f64, good: f64, bearable: f64) -> Grade {
    match value {
        value if value >= good => Grade::Ok,
        value if value >= bearable => Grade::Warning,
        _ => Grade::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_stranger_moves_no_cursor() {
        let found = "/dns4/\u{1b}[2J\u{202e}x/udp/1/quic-v1 does not answer";
        let said = Check::new("entry", Grade::Warning, found).to_string();
        assert!(
            !said.contains(['\u{1b}', '\u{202e}']) && said.contains("does not answer"),
            "{said}"
        );
    }
}
