//! How numbers and errors are written for a person to read.
//!
//! Events have the numbers themselves. These forms are for sentences, where a reader compares sizes
//! and not digits. They are in English whatever the locale, as all sentences are.

/// A number in groups of three digits: 1 234 567.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: 1 peer, 2 peers.
/// The noun is one whose plural has an s.
pub(crate) fn number_of(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A number of bytes in the unit that leaves one to three digits before the point.
///
/// Units are powers of 1,000, as those of disks and lines: 1 kB is 1,000 bytes. Below ten units it
/// has a decimal. The bounds are where rounding would give one digit more.
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            let digits = usize::from(value < 9.95 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1_000.0;
    }
    format!("{value:.1} TB")
}

/// The time of day of a time in Unix seconds, in UTC: 18:13:07.
pub(crate) fn clock(seconds: u64) -> String {
    let seconds = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A length of time in the unit that suits it.
/// It is cut and not rounded: seconds up to 99, minutes up to 99, then hours.
pub(crate) fn length(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// An error and its causes, joined by `joint`. A cause that the text contains already is not repeated.
/// Errors that are transparent say what their source says, which would else be read twice.
pub(crate) fn explain(error: &dyn std::error::Error, joint: &str) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let why = cause.to_string();
        if !text.contains(&why) {
            text = text + joint + &why;
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_clock() {
        assert_eq!((clock(0), clock(1_763_839_502)), ("00:00:00".into(), "19:25:02".into()));
    }
}
