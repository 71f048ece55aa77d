//! JSON lines: an object per line, with a document in one of its fields.
//!
//! The reader keeps only that field of a line: small JSON values take many times their bytes when
//! they are parsed.
//!
//! A line is read whole, up to a bound, and then parsed by a visitor that passes over every other
//! field without storing it. Where a name occurs twice, the last one counts, as in Python. A line
//! that is no object, or lacks the field, is handed on as damaged with its number: the caller
//! decides whether to skip it. A line over the bound ends the reading: such a file is hardly one of
//! JSON lines, and its rest would be taken for a line.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::sink::{Found, Fragment, LINE_BYTES_MAX, ReadError, Record, Sink, open};

/// Passes the documents in `field` to `sink`, skipping empty lines.
///
/// # Errors
/// If the file cannot be read or has an endless line, or the error of `sink`.
pub(super) fn read<S: Sink>(path: &Path, field: &str, sink: &mut S) -> Result<(), S::Error> {
    let mut file = BufReader::new(open(path)?);
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        number += 1;
        let mut bounded = (&mut file).take(LINE_BYTES_MAX + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(ReadError::unreadable(path))?;
        if read == 0 {
            return Ok(());
        }
        sink.bytes(&line);
        if read as u64 > LINE_BYTES_MAX {
            return Err(ReadError::LongLine { path: path.to_owned(), line: number }.into());
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            sink.found(document(text, field).map_or_else(
                |why| {
                    let position = format!("line {number}");
                    Found::Damaged(Record::new(path, position, why, text))
                },
                |text| Found::Begin(Fragment::Text(text)),
            ))?;
        }
    }
}

/// The document of a line, or why there is none. The reason is for a person, without the line's
/// number.
fn document(line: &[u8], field: &str) -> Result<String, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = json.deserialize_map(Object { field }).and_then(|found| json.end().map(|()| found));
    // The library reports a line number, which is useless for a single line.
    let why = |error: serde_json::Error| {
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or_default();
        format!("it is not a JSON object ({what} at character {})", error.column())
    };
    match found.map_err(why)? {
        Some(FieldValue::Text(text)) => Ok(text),
        Some(FieldValue::Other) => Err(format!("its field {field:?} is not text")),
        None => Err(format!("it has no field {field:?}")),
    }
}

/// An object of which one field is kept: the last one of its name.
struct Object<'a> {
    /// The name of the field with the document.
    field: &'a str,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Option<FieldValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.field {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The value of a field: text is kept, everything else is skipped.
enum FieldValue {
    /// A text, which is the document.
    Text(String),
    /// Anything else, of which nothing is kept.
    Other,
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// Reads a value of any kind to its end, and keeps it only if it is text.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FieldValue, E> {
        Ok(FieldValue::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<FieldValue, E> {
        Ok(FieldValue::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<FieldValue, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other)
    }
}
