//! JSON lines: an object per line, one of whose fields is a document.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::{Found, LINE_BYTES_MAX, Part, ReadError, Record, Sink, open, unreadable};

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
        let read = bounded.read_until(b'\n', &mut line).map_err(|cause| unreadable(path, cause))?;
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
                |text| Found::Begin(Part::Text(text)),
            ))?;
        }
    }
}

/// The document of a line, or what is wrong.
fn document(line: &[u8], field: &str) -> Result<String, String> {
    let object: Result<Map<String, Value>, _> = serde_json::from_slice(line);
    let mut object = object.map_err(|error| format!("it is no JSON object ({error})"))?;
    match object.remove(field) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("its field {field:?} is no text")),
        None => Err(format!("it has no field {field:?}")),
    }
}
