//! Tests of reading documents, whole and damaged.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::basic::{BrotliLevel, Compression, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use tempfile::TempDir;

use super::sink::{Found, Fragment, LINE_BYTES_MAX};
use super::*;

const BYTES: ReadOptions<'_> = ReadOptions { field: "text", tokens: 257, bos: 256 };

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    }

    /// A table of two columns in groups of rows.
    fn parquet(&self, name: &str, groups: &[&[Option<&str>]], compression: Compression) -> PathBuf {
        let path = self.0.path().join(name);
        let schema = "message rows { REQUIRED INT64 id; OPTIONAL BYTE_ARRAY text (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).expect("a schema"));
        let settings = WriterProperties::builder().set_compression(compression).build();
        let file = File::create(&path).expect("created");
        let mut writer =
            SerializedFileWriter::new(file, schema, Arc::new(settings)).expect("a writer");
        for rows in groups {
            let mut group = writer.next_row_group().expect("a group");
            let mut ids = group.next_column().expect("a column").expect("the first");
            let numbers: Vec<i64> = (0..rows.len() as i64).collect();
            ids.typed::<Int64Type>().write_batch(&numbers, None, None).expect("written");
            ids.close().expect("closed");
            let mut texts = group.next_column().expect("a column").expect("the second");
            let there: Vec<_> = rows
                .iter()
                .flatten()
                .map(|text| ByteArray::from(text.as_bytes().to_vec()))
                .collect();
            let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
            texts
                .typed::<ByteArrayType>()
                .write_batch(&there, Some(&levels), None)
                .expect("written");
            texts.close().expect("closed");
            group.close().expect("closed");
        }
        writer.close().expect("closed");
        path
    }
}

/// Everything that a reader passes on. What it found is text: `+` begins a document, `.` continues
/// it, `!` is a damaged record.
#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    found: Vec<String>,
}

impl Sink for Collected {
    type Error = ReadError;

    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn found(&mut self, found: Found) -> Result<(), ReadError> {
        let part = |part| match part {
            Fragment::Text(text) => text,
            Fragment::Tokens(tokens) => format!("{tokens:?}"),
        };
        self.found.push(match found {
            Found::Begin(begin) => format!("+{}", part(begin)),
            Found::More(more) => format!(".{}", part(more)),
            Found::Damaged(record) => format!("!{record}"),
        });
        Ok(())
    }
}

/// Everything found in a file; checks that every byte is passed on once.
fn all(path: &Path, format: Format, options: ReadOptions<'_>) -> Result<Vec<String>, ReadError> {
    let mut collected = Collected::default();
    read(path, format, options, &mut collected)?;
    assert!(collected.bytes == fs::read(path).expect("readable"));
    Ok(collected.found)
}

fn refusal(path: &Path, format: Format, options: ReadOptions<'_>) -> String {
    all(path, format, options).expect_err("refused").to_string()
}

#[test]
fn a_name_tells_the_format() {
    let of = |name: &str| Format::of(Path::new(name)).map_err(|error| error.to_string());
    assert_eq!(of("a.txt"), Ok(Format::Text));
    assert_eq!(of("a.b.JSONL"), Ok(Format::JsonLines));
    assert_eq!(of("a.parquet"), Ok(Format::Parquet));
    let message = of("tokens.bin").expect_err("refused");
    assert!(message.starts_with("what kind of file is tokens.bin?"), "{message}");
    assert_eq!("u16".parse(), Ok(Format::Tokens(Width::Two)));
    assert_eq!("u32".parse(), Ok(Format::Tokens(Width::Four)));
    assert!("csv".parse::<Format>().expect_err("refused").contains("choose text, jsonl"));
}

/// Nothing is lost between parts, and no line or character is cut in two.
#[test]
fn a_long_text_comes_in_parts() {
    let folder = Folder::new();
    let lines: String = (0..200_000).map(|i| format!("line {i} é\n")).collect();
    let line = "€".repeat(1_000_000);
    for (text, at_lines) in [(lines, true), (line, false)] {
        let path = folder.file("a.txt", &text);
        let parts = all(&path, Format::Text, BYTES).expect("read");
        assert!(parts.len() >= 3, "{}", parts.len());
        let marks: String = parts.iter().map(|part| &part[..1]).collect();
        assert_eq!(marks.trim_start_matches('+'), ".".repeat(parts.len() - 1));
        assert_eq!(parts.iter().map(|part| &part[1..]).collect::<String>(), text);
        assert!(!at_lines || parts.iter().all(|part| part.ends_with('\n')));
    }
    let path = folder.file("a.txt", "short");
    assert_eq!(all(&path, Format::Text, BYTES).expect("read"), ["+short"]);
}

#[test]
fn a_text_of_other_letters_is_refused_with_the_place() {
    let folder = Folder::new();
    let mut text = "long enough to be in a later part\n".repeat(50_000).into_bytes();
    text[1_234_567] = 0xff;
    let message = refusal(&folder.file("a.txt", text), Format::Text, BYTES);
    assert!(message.contains("a.txt is not UTF-8 text: byte 1234567 is not"), "{message}");
    // The text is cut off in the middle of a character.
    let message = refusal(&folder.file("b.txt", b"ab\xe2\x82"), Format::Text, BYTES);
    assert!(message.contains("byte 2 is not"), "{message}");
}

#[test]
fn a_json_line_is_a_document() {
    let folder = Folder::new();
    let lines = "{\"text\": \"one\\n\", \"id\": 1}\n\n  \r\n{\"id\": 2, \"text\": \"\"}\r\n{\"text\":\"é\"}";
    let path = folder.file("a.jsonl", lines);
    assert_eq!(all(&path, Format::JsonLines, BYTES).expect("read"), ["+one\n", "+", "+é"]);
    let id = ReadOptions { field: "id", ..BYTES };
    let found = all(&path, Format::JsonLines, id).expect("read");
    assert!(found[0].contains("line 1: its field \"id\" is not text"), "{found:?}");
    assert!(found[2].contains("line 5: it has no field \"id\""), "{found:?}");
}

/// If several fields have the name, the last one counts; other fields do not matter.
#[test]
fn other_fields_are_read_over() {
    let folder = Folder::new();
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let lines = [
        format!("{{\"a\": {deep}, \"text\": \"one\", \"b\": {{\"text\": 1}}}}"),
        "{\"text\": 1, \"text\": \"\\u0074wo\"}".to_owned(),
        format!("{{\"text\": \"three\", \"text\": {deep}}}"),
        "{\"text\": {\"text\": \"four\"}}".to_owned(),
        "{\"text\": \"five\"} {}".to_owned(),
    ];
    let path = folder.file("a.jsonl", lines.join("\n"));
    let found = all(&path, Format::JsonLines, BYTES).expect("read");
    assert_eq!(found[..2], ["+one", "+two"]);
    for (line, message) in found.iter().zip(1..).skip(2).take(2).map(|(found, line)| (line, found))
    {
        assert!(
            message.contains(&format!("line {line}: its field \"text\" is not text")),
            "{message}"
        );
    }
    assert!(found[4].contains("line 5: it is not a JSON object (trailing characters"), "{found:?}");
}

/// The record names file, line and excerpt, and the following lines are read.
#[test]
fn a_line_that_is_no_json_is_reported() {
    let folder = Folder::new();
    let lines =
        format!("{{\"text\": \"a\"}}\nnonsense {}\n[1]\n{{\"text\": \"b\"}}\n", "x".repeat(99));
    let path = folder.file("a.jsonl", lines);
    let found = all(&path, Format::JsonLines, BYTES).expect("read");
    assert_eq!((found.len(), &*found[0], &*found[3]), (4, "+a", "+b"));
    assert!(found[1].contains("a.jsonl, line 2: it is not a JSON object ("), "{found:?}");
    assert!(found[1].ends_with(&format!(": \"nonsense {}\"", "x".repeat(51))), "{found:?}");
    assert!(found[2].contains("line 3: it is not a JSON object ("), "{found:?}");
}

#[test]
fn a_line_without_an_end_is_refused() {
    let folder = Folder::new();
    let path = folder.file("a.jsonl", vec![b' '; LINE_BYTES_MAX as usize + 1]);
    let message = refusal(&path, Format::JsonLines, BYTES);
    assert!(message.contains("line 1 has more than 67108864 bytes"), "{message}");
}

#[test]
fn a_parquet_column_is_read_row_by_row() {
    let folder = Folder::new();
    let first: Vec<_> = (0..600).map(|row| format!("row {row}")).collect();
    let mut rows: Vec<_> = first.iter().map(|text| Some(text.as_str())).collect();
    rows[300] = None;
    let zstd = ZstdLevel::try_new(3).expect("a level");
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(zstd)] {
        let path = folder.parquet("a.parquet", &[&rows, &[Some("é"), Some("")]], compression);
        let found = all(&path, Format::Parquet, BYTES).expect("read");
        assert_eq!(found.len(), 602, "{compression}");
        assert_eq!(found[599..], ["+row 599", "+é", "+"]);
        assert!(
            found[300].ends_with("a.parquet, row 301: column \"text\" is empty"),
            "{}",
            found[300]
        );
        assert_eq!(found[301], "+row 301");
    }
}

#[test]
fn a_compression_that_was_not_built_in_is_named() {
    let brotli = Compression::BROTLI(BrotliLevel::default());
    for (found, name) in [(brotli, "BROTLI,"), (Compression::LZ4_RAW, "LZ4_RAW,")] {
        let message =
            parquet::check_compression(Path::new("a"), found).expect_err("refused").to_string();
        assert!(message.contains(name) && message.contains("Zstandard"), "{message}");
    }
}

/// At most a page is read at a time, and a single text may fill a page.
#[test]
fn rows_come_before_the_next_page_is_read() {
    let folder = Folder::new();
    let path = folder.0.path().join("a.parquet");
    let schema = parse_message_type("message rows { REQUIRED BYTE_ARRAY text (UTF8); }");
    let settings = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_row_count_limit(1)
        .set_write_batch_size(1)
        .build();
    let file = File::create(&path).expect("created");
    let schema = Arc::new(schema.expect("a schema"));
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(settings)).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut texts = group.next_column().expect("a column").expect("the first");
    let rows = ["first", "second"].map(ByteArray::from);
    texts.typed::<ByteArrayType>().write_batch(&rows, None, None).expect("written");
    texts.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
    // The second text seems to be longer than its page.
    let mut bytes = fs::read(&path).expect("readable");
    let second = bytes.windows(6).position(|window| window == b"second").expect("there");
    bytes[second - 1] = 0x7f;
    fs::write(&path, bytes).expect("written");
    let mut collected = Collected::default();
    let message = read(&path, Format::Parquet, BYTES, &mut collected).expect_err("damaged");
    assert!(message.to_string().contains("a.parquet is not a complete Parquet file"), "{message}");
    assert_eq!(collected.found, ["+first"]);
}

/// Writes to the file when all its bytes have been handed over.
struct Rewriting(PathBuf);

impl Sink for Rewriting {
    type Error = ReadError;

    fn bytes(&mut self, _: &[u8]) {
        let file = File::options().append(true).open(&self.0).expect("open");
        file.set_modified(std::time::UNIX_EPOCH).expect("changed");
    }

    fn found(&mut self, _: Found) -> Result<(), ReadError> {
        Ok(())
    }
}

/// Otherwise the digest would not match the documents that were read.
#[test]
fn a_table_that_is_changed_while_it_is_read_is_refused() {
    let folder = Folder::new();
    let path = folder.parquet("a.parquet", &[&[Some("a")]], Compression::UNCOMPRESSED);
    let read = read(&path, Format::Parquet, BYTES, &mut Rewriting(path.clone()));
    let message = read.expect_err("refused").to_string();
    assert!(message.contains("a.parquet was changed while it was read"), "{message}");
}

#[test]
fn an_empty_or_truncated_file_is_refused() {
    let folder = Folder::new();
    let path = folder.parquet("a.parquet", &[&[Some("a"), Some("b")]], Compression::UNCOMPRESSED);
    let whole = fs::read(&path).expect("readable");
    for length in [1, 4, 8, 11, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).expect("written");
        let message = refusal(&path, Format::Parquet, BYTES);
        assert!(
            message.contains("a.parquet is not a complete Parquet file, perhaps it was cut off"),
            "{message}"
        );
    }
    for format in [Format::Parquet, Format::JsonLines, Format::Text, Format::Tokens(Width::Two)] {
        let message = refusal(&folder.file("b", b""), format, BYTES);
        assert!(message.ends_with("b is empty"), "{message}");
    }
    let message = refusal(&folder.0.path().join("absent"), Format::Parquet, BYTES);
    assert!(message.contains("absent: No such file"), "{message}");
}

#[test]
fn a_missing_column_is_reported_with_those_that_exist() {
    let folder = Folder::new();
    let path = folder.parquet("a.parquet", &[&[Some("a")]], Compression::UNCOMPRESSED);
    for field in ["body", "id"] {
        let message = refusal(&path, Format::Parquet, ReadOptions { field, ..BYTES });
        let known = "its columns are id (INT64), text (BYTE_ARRAY)";
        assert!(message.contains(&format!("named \"{field}\": {known}")), "{message}");
    }
}

fn bytes_of<const N: usize>(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()[..N].to_vec()).collect()
}

#[test]
fn tokens_of_another_program_are_taken_as_they_are() {
    let folder = Folder::new();
    let tokens = [256, 104, 105, 256, 0];
    for (format, bytes) in [
        (Format::Tokens(Width::Two), bytes_of::<2>(&tokens)),
        (Format::Tokens(Width::Four), bytes_of::<4>(&tokens)),
    ] {
        // The first document begins with its begin token, whether or not that is written.
        let path = folder.file("a.bin", &bytes);
        assert_eq!(all(&path, format, BYTES).expect("read"), ["+[104, 105, 256, 0]"]);
        let path = folder.file("a.bin", &bytes[bytes.len() / 5..]);
        assert_eq!(all(&path, format, BYTES).expect("read"), ["+[104, 105, 256, 0]"]);
    }
    let many = bytes_of::<2>(&vec![7; BUFFER_TOKENS + 3]);
    let found = all(&folder.file("a.bin", many), Format::Tokens(Width::Two), BYTES).expect("read");
    assert_eq!((found.len(), &*found[1]), (2, ".[7, 7, 7]"));
}

/// Each sign that reveals a wrong width.
#[test]
fn tokens_of_the_wrong_width_are_refused() {
    let folder = Folder::new();
    let message = |bytes: &[u8], width, tokens| {
        let path = folder.file("a.bin", bytes);
        refusal(&path, Format::Tokens(width), ReadOptions { tokens, ..BYTES })
    };
    let tokens: Vec<u32> = (1..41).collect();
    let (two, four) = (bytes_of::<2>(&tokens), bytes_of::<4>(&tokens));
    let narrow = message(&two, Width::Four, 257);
    assert!(narrow.contains("a.bin holds no tokens of 4 bytes for this tokenizer"), "{narrow}");
    assert!(narrow.contains("token 0 is 131073, and the tokenizer has 257"), "{narrow}");
    let wide = message(&four, Width::Two, 257);
    assert!(wide.contains("every second one is 0: they look like tokens of 4 bytes"), "{wide}");
    let part = message(&two[..79], Width::Two, 257);
    assert!(part.contains("its 79 bytes are not a whole number of them"), "{part}");
    let many = message(&two, Width::Two, 65_537);
    assert!(many.contains("it has 65537 tokens, too many for this width"), "{many}");
    let other = message(&bytes_of::<2>(&[5, 257]), Width::Two, 257);
    assert!(other.contains("token 1 is 257, and the tokenizer has 257"), "{other}");
}

/// Number of two-byte tokens that are read at a time.
const BUFFER_TOKENS: usize = 1 << 17;
