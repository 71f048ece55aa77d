//! `data tokenize` and `data show`: make and explain token files.
//!
//! The work is in `intellect_model::data`: this file opens what was named, reports how far it is,
//! and describes the result. A token file has the digest of its tokenizer and of its sources, so a
//! person can tell later what it was made of. Its own digest is what a manifest names.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_model::{
    config::Scheme,
    data::{
        DataError,
        tokenize::{self, Damage, Job, Report, TokenizeError},
        tokens::{self, header::Header},
    },
    tokenizer::{File, FileError, OpenError, Tokenizer},
};
use intellect_protocol::base::id::Digest;

use crate::cli::data::{DataCommand, TokenizeArgs};
use crate::figures::{bytes, count};
use crate::tools::pace::{ProgressPace, announced};

/// Why one of these commands failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataCommandError {
    /// The tokenizer cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The tokenizer does not have the token that `--bos` names.
    #[error("the tokenizer cannot be used: {0}")]
    Bos(#[from] FileError),
    /// The documents could not be tokenized. Nothing has been written.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// The token file cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Runs `data tokenize` or `data show`. `out` gets progress and the description.
pub(crate) fn run(command: &DataCommand, out: &mut dyn Write) -> Result<(), DataCommandError> {
    match command {
        DataCommand::Tokenize(args) => make(args, out),
        DataCommand::Show { file, tokenizer } => show(file, tokenizer.as_deref(), out),
    }
}

/// `data tokenize`: reads documents, and writes a token file. A reader of the output that has gone
/// stops no work: the file is written to its end, and only then that error is returned.
///
/// Documents without text and records that are none are left out and counted, unless `--strict`
/// refuses them.
fn make(args: &TokenizeArgs, out: &mut dyn Write) -> Result<(), DataCommandError> {
    let (file, mut tokenizer) = open(args.tokenizer.as_deref())?;
    if let Some(name) = &args.bos {
        tokenizer = tokenizer.beginning_with(name)?;
    }
    // As in many programs, `-` means standard input.
    let stdin =
        |path: &PathBuf| if path.as_os_str() == "-" { "/dev/stdin".into() } else { path.clone() };
    let inputs: Vec<PathBuf> = args.inputs.iter().map(stdin).collect();
    let job = Job {
        inputs: &inputs,
        format: args.format,
        field: &args.field,
        damage: if args.strict { Damage::Refuse } else { Damage::Skip },
        out: &args.out,
    };
    let (mut pace, mut written) = (ProgressPace::new(), Ok(()));
    let mut report = |done: u64| {
        if written.is_ok() && pace.is_due() {
            let per_s = pace.per_second(done);
            written = writeln!(out, "{} of documents done, {} a second", bytes(done), bytes(per_s))
                .and_then(|()| out.flush());
        }
    };
    let made = tokenize::tokenize(job, &tokenizer, &file, &mut report)?;
    written?;
    let Report { header, empty, skipped, examples, lost } = made;
    writeln!(out, "wrote {}", args.out.display())?;
    describe(&header, out)?;
    if empty > 0 {
        writeln!(out, "left out   {} empty documents", count(empty))?;
    }
    if skipped > 0 {
        writeln!(out, "skipped    {} records that are no documents; the first:", count(skipped))?;
        examples.iter().try_for_each(|record| writeln!(out, "  {record}"))?;
    }
    if lost.count > 0 {
        writeln!(out, "lost       {lost}")?;
    }
    Ok(())
}

/// `data show`: prints what a token file has. Without a tokenizer its text is not shown. The whole
/// file is read, since its digest is checked. A tokenizer that was named must be the one of the
/// file; a file of bytes needs none.
fn show(
    path: &Path,
    tokenizer: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), DataCommandError> {
    let (header, file) = announced("reading the file", || tokens::describe(path))?;
    // The tokenizer comes before any output, since a file that was named has to be right.
    let tokenizer = match Tokenizer::of_documents(&header.vocabulary, tokenizer) {
        Err(OpenError::NoFile { .. }) => None,
        opened => Some(opened?),
    };
    writeln!(out, "file       {}, BLAKE3 {}", bytes(file.bytes), Digest(file.digest).hex())?;
    describe(&header, out)?;
    writeln!(out, "made of    files with BLAKE3 {}", Digest(header.source).hex())?;
    if header.vocabulary.scheme != Scheme::Bytes {
        writeln!(out, "tokenizer  file with BLAKE3 {}", Digest(header.vocabulary.digest).hex())?;
    }
    let Some(tokenizer) = tokenizer else { return Ok(()) };
    let mut decoder = tokenizer.decoder();
    let begin = tokens::begin(path, BEGIN_TOKENS)?;
    let text: String = begin.into_iter().map(|token| decoder.push(token)).collect();
    writeln!(out, "begins     {:?}", text.trim_start())?;
    Ok(())
}

/// Prints the lines that both commands have in common. The tokens that begin documents are not
/// counted as text: the last number is bytes per token of the rest.
fn describe(header: &Header, out: &mut dyn Write) -> io::Result<()> {
    let Header { width, vocabulary, count: tokens, documents, text_bytes, .. } = header;
    writeln!(
        out,
        "tokens     {} of {} bytes, by {} with {} different ones, {} begins a document",
        count(*tokens),
        *width as u8,
        vocabulary.scheme.name(),
        count(vocabulary.tokens as u64),
        vocabulary.bos
    )?;
    let each = *tokens as f64 / (*documents).max(1) as f64;
    let each = if each < 100.0 { format!("{each:.1}") } else { count(each.round() as u64) };
    writeln!(
        out,
        "documents  {}, of {each} tokens each; a token is {:.2} bytes of text",
        count(*documents),
        *text_bytes as f64 / tokens.saturating_sub(*documents).max(1) as f64
    )
}

/// A tokenizer and its file; the tokenizer of bytes has none.
fn open(path: Option<&Path>) -> Result<(File, Tokenizer), DataCommandError> {
    let Some(path) = path else { return Ok((File::none(), Tokenizer::bytes())) };
    let file = File::open(path)?;
    let tokenizer = Tokenizer::read(file.scheme, &file.bytes)
        .map_err(|why| OpenError::Wrong { path: path.to_owned(), why })?;
    Ok((file, tokenizer))
}

/// How many tokens of a file are shown.
const BEGIN_TOKENS: usize = 64;

#[cfg(test)]
mod tests;
