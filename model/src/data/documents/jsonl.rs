//! JSON lines: an object per line, one of whose fields is a document.
//!
//! Of a line nothing but that field is kept: small values take many times their bytes as values.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::sink::{Found, Fragment, LINE_BYTES_MAX, ReadError, Record, Sink, open};

/// Hands the documents in `field` to `sink`; empty lines are none.
///
/// # Errors
/// If the file cannot be read or holds an endless line, or what `sink` says.
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
                    let place = format!("line {number}");
                    Found::Damaged(Record::new(path, place, why, text))
                },
                |text| Found::Begin(Fragment::Text(text)),
            ))?;
        }
    }
}

/// The document of a line, or what is wrong.
fn document(line: &[u8], field: &str) -> Result<String, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = json.deserialize_map(Object { field }).and_then(|found| json.end().map(|()| found));
    // The library counts lines of what it was given, which is one.
    let why = |error: serde_json::Error| {
        let told = error.to_string();
        let what = told.split(" at line ").next().unwrap_or_default();
        format!("it is no JSON object ({what} at character {})", error.column())
    };
    match found.map_err(why)? {
        Some(Place::Text(text)) => Ok(text),
        Some(Place::Other) => Err(format!("its field {field:?} is no text")),
        None => Err(format!("it has no field {field:?}")),
    }
}

/// An object of which one field is kept: of several with its name the last one.
struct Object<'a> {
    field: &'a str,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Option<Place>;

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

/// The value of a field: a text is kept, and all else is skipped.
enum Place {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(place: D) -> Result<Self, D::Error> {
        place.deserialize_any(AnyPlace)
    }
}

struct AnyPlace;

impl<'de> Visitor<'de> for AnyPlace {
    type Value = Place;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Place, E> {
        Ok(Place::Text(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Place, E> {
        Ok(Place::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Place, E> {
        Ok(Place::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Place, E> {
        Ok(Place::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Place, E> {
        Ok(Place::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Place, E> {
        Ok(Place::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Place, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Place::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Place, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Place::Other)
    }
}
