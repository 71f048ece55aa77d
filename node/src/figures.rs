//! How numbers and errors are written where a person reads them.

use intellect_protocol::codec::Codec;

/// As a manifest writes it.
pub(crate) fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::F32 => "f32",
        Codec::Int8 => "int8",
    }
}

/// A number with thin groups of three: 1 234 567.
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

/// Things and how many: 1 peer, 2 peers.
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

/// An error and what lies behind it, joined by `joint`; what has been said already is not said
/// again.
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
