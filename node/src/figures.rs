//! How numbers and errors are written for a person to read.

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
pub(crate) fn number_of(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A number of bytes in the unit that leaves one to three digits before the point.
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

/// A time in Unix seconds as a date: 2026-11-30 18:13 UTC.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last one; 400 of them are an era. (H. Hinnant,
    // "chrono-compatible low-level date algorithms", 2021.)
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month < 3);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3_600, rest / 60 % 60)
}

/// The time of day of a time in Unix seconds, in UTC: 18:13:07.
pub(crate) fn clock(seconds: u64) -> String {
    let seconds = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A length of time in the unit that suits it.
pub(crate) fn length(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// An error and its causes, joined by `joint`. A cause that the text contains already is not repeated.
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
    fn a_time_is_a_date_and_a_clock() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (1_796_062_380, "2026-11-30 18:13 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
        assert!(utc(u64::MAX).ends_with("UTC"));
        assert_eq!((clock(0), clock(1_763_839_502)), ("00:00:00".into(), "19:25:02".into()));
    }
}
