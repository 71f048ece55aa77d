//! Numbers as people type them: what is accepted, and the message about anything else.

use std::{num::NonZeroUsize, str::FromStr};

use intellect_protocol::{access::admit::USES_MAX, message::MEMBERS_MAX};

/// Parses a whole number from 1 on.
pub(super) fn from_one<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "type a whole number, 1 or more".to_owned())
}

/// Parses a whole number from 0 on.
pub(super) fn from_zero(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "type a whole number, 0 or more".to_owned())
}

/// Parses a number of peers: at most as many as a run can have.
pub(super) fn peers(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MEMBERS_MAX);
    number.ok_or_else(|| format!("type a whole number from 1 to {MEMBERS_MAX}"))
}

/// Takes a number with its unit apart: the number, and what `units` say of the unit.
pub(crate) fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<(u64, u64)> {
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let (number, unit) = text.split_at(digits.len());
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    Some((number.parse().ok()?, *size))
}

/// Parses a number of bytes, with k, M or G for a thousand, a million or a thousand million.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let bytes = with_unit(text, BYTES).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| "type a number of bytes, as in 500000, 500k, 10M or 2G".to_owned())
}

/// Parses the size limit of a file. A smaller one than this would make thousands of files.
pub(super) fn file_bytes(text: &str) -> Result<u64, String> {
    let number = bytes(text).ok().filter(|number| *number >= 1_000_000);
    number.ok_or_else(|| "type a number of bytes from 1M on, as in 500M or 2G".to_owned())
}

/// Parses a length of time with its unit, from seconds to weeks.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let typed = with_unit(text, SECONDS).filter(|(number, _)| (1..=9_999).contains(number));
    let seconds = typed.map(|(number, unit)| number * unit);
    seconds.ok_or_else(|| "type a length of time, as in 30m, 12h, 7d or 2w".to_owned())
}

/// Parses how often an invite can be used.
pub(super) fn uses(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=USES_MAX).contains(number));
    number.ok_or_else(|| format!("type a whole number from 1 to {USES_MAX}"))
}

const BYTES: &[(&str, u64)] =
    &[("", 1), ("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
const SECONDS: &[(&str, u64)] =
    &[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 7 * 86_400)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_typed_with_and_without_a_unit() {
        let expected = [
            ("0", 0),
            ("5000", 5_000),
            ("500k", 500_000),
            ("10M", 10_000_000),
            ("2G", 2_000_000_000),
        ];
        for (text, number) in expected {
            assert_eq!(bytes(text), Ok(number), "{text}");
        }
        for text in ["", "M", "-1", "1.5M", "10MM", "10m", "ten", "99999999999999G"] {
            assert!(bytes(text).is_err_and(|why| why.contains("10M")), "{text}");
        }
    }

    #[test]
    fn a_number_that_makes_no_sense_is_refused_in_plain_words() {
        for text in ["0", "-1", "x", "99999999999999999999999"] {
            assert!(from_one::<NonZeroUsize>(text).is_err_and(|why| why.contains("1 or more")));
            assert!(peers(text).is_err_and(|why| why.contains("1 to 256")), "{text}");
        }
        assert_eq!(from_zero("0"), Ok(0));
        assert!(from_zero("-1").is_err_and(|why| why.contains("0 or more")));
        assert_eq!(peers("256").map(NonZeroUsize::get), Ok(256));
        assert!(peers("257").is_err());
        assert_eq!(file_bytes("1M"), Ok(1_000_000));
        assert!(file_bytes("0").is_err() && file_bytes("999999").is_err());
    }

    #[test]
    fn a_length_of_time_has_a_unit() {
        for (text, expected) in
            [("5s", 5), ("30m", 1_800), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "7", "d", "0d", "-1d", "1.5h", "7dd", "7D", "10000w", "7 d"] {
            assert!(seconds(text).is_err_and(|why| why.contains("7d")), "{text}");
        }
        assert_eq!((uses("1"), uses("1000")), (Ok(1), Ok(1_000)));
        assert!(uses("0").is_err() && uses("1001").is_err() && uses("x").is_err());
    }
}
