//! Parquet: a table with documents in one of its columns.
//!
//! The column is read row by row, so that at most a page of it is in memory; the other columns are
//! not decoded. A column is named as in the schema; names within a structure are joined by points.
//!
//! The file is read twice. The first pass hands all of its bytes to the sink, for the digest of
//! what a token file was made of, and the second one decodes the column. Length and time of the
//! last write are compared before and after both, so that the digest is that of the documents.

use std::fs;
use std::io::Seek;
use std::path::Path;

use parquet::basic::{Compression, Type};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::sink::{Found, Fragment, ReadError, Record, Sink, open};
use crate::data::chunks;
use crate::data::steady::look;

/// Passes the documents of `column` to `sink`.
///
/// # Errors
/// If the file cannot be read, is not a complete Parquet file or has no such column, or the error
/// of `sink`.
pub(super) fn read<S: Sink>(path: &Path, column: &str, sink: &mut S) -> Result<(), S::Error> {
    let refused = ReadError::unreadable(path);
    let mut file = open(path)?;
    let before = look(&file).map_err(&refused)?;
    chunks::each(&mut file, path, |bytes| {
        sink.bytes(bytes);
        Ok::<_, ReadError>(())
    })?;
    // The reader of columns seeks in the file.
    file.rewind().map_err(&refused)?;
    let rows = rows(file.try_clone().map_err(&refused)?, path, column, sink);
    // If the file changed, that is the reason for any damage.
    if look(&file).map_err(&refused)? != before {
        return Err(ReadError::Changed(path.to_owned()).into());
    }
    rows
}

/// Passes the cells of the column, row by row through all groups of rows. A group that has fewer
/// rows than it says is damage.
fn rows<S: Sink>(file: fs::File, path: &Path, column: &str, sink: &mut S) -> Result<(), S::Error> {
    let damaged =
        |why: ParquetError| ReadError::NoParquet { path: path.to_owned(), why: why.to_string() };
    let file = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let columns = schema.columns();
    let index = columns.iter().position(|known| known.path().string() == column && is_text(known));
    let Some(index) = index else {
        let known: Vec<_> = columns
            .iter()
            .map(|column| format!("{} ({})", column.path().string(), column.physical_type()))
            .collect();
        let (path, column, known) = (path.to_owned(), column.to_owned(), known.join(", "));
        return Err(ReadError::NoColumn { path, column, known }.into());
    };
    // A cell below this level is empty.
    let level = columns[index].max_def_level();
    let mut row = 0_u64;
    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group).map_err(damaged)?;
        check_compression(path, group.metadata().column(index).compression())?;
        let reader = group.get_column_reader(index).map_err(damaged)?;
        // `is_text` has checked the type of the column.
        let ColumnReader::ByteArrayColumnReader(mut reader) = reader else { continue };
        let expected = group.metadata().num_rows();
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let mut read = 0;
        loop {
            levels.clear();
            values.clear();
            let levels_out = (level > 0).then_some(&mut levels);
            let (records, ..) =
                reader.read_records(1, levels_out, None, &mut values).map_err(damaged)?;
            if records == 0 {
                break;
            }
            (read, row) = (read + 1, row + 1);
            let present = level == 0 || levels.first() == Some(&level);
            let value = if present { values.first() } else { None };
            sink.found(document(path, row, column, value))?;
        }
        if read != expected {
            let why = format!("a group of {expected} rows has {read}");
            return Err(ReadError::NoParquet { path: path.to_owned(), why }.into());
        }
    }
    Ok(())
}

/// Refuses a compression that this program does not support.
pub(super) fn check_compression(path: &Path, found: Compression) -> Result<(), ReadError> {
    match found {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::ZSTD(_) => Ok(()),
        Compression::BROTLI(_) | Compression::LZO | Compression::LZ4 | Compression::LZ4_RAW => {
            let (path, found) = (path.to_owned(), format!("{found:?}"));
            let found = found.split('(').next().unwrap_or_default().to_owned();
            Err(ReadError::Compression { path, found })
        }
    }
}

/// Whether a column has at most one byte string per row.
fn is_text(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Type::BYTE_ARRAY && column.max_rep_level() == 0
}

/// What a cell is: a document, or a record that is none.
fn document(path: &Path, row: u64, column: &str, value: Option<&ByteArray>) -> Found {
    let damaged = |why: String, bytes: &[u8]| {
        Found::Damaged(Record::new(path, format!("row {row}"), why, bytes))
    };
    let Some(value) = value else { return damaged(format!("column {column:?} is empty"), &[]) };
    match str::from_utf8(value.data()) {
        Ok(text) => Found::Begin(Fragment::Text(text.to_owned())),
        Err(_) => damaged(format!("column {column:?} is not UTF-8"), value.data()),
    }
}
