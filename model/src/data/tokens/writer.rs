//! Writes a token file, token by token.
//!
//! Everything goes to a temporary file in the same folder, which is renamed when all of it is on
//! disk: a token file is complete or absent. An existing file is not overwritten, since runs may
//! train on it.

use std::fs;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::header::{HEADER_BYTES, Header};
use crate::config::{Vocabulary, Width};

/// A file that is being written. If it is dropped before [`Writer::finish`], nothing remains.
#[derive(Debug)]
pub struct Writer {
    /// The temporary file, behind a buffer.
    out: BufWriter<fs::File>,
    /// The name that the file gets at the end.
    path: PathBuf,
    /// The name of the temporary file: `path` with `.part`.
    part: PathBuf,
    /// The header, whose counts grow with each token and are written at the end.
    header: Header,
    /// Whether the file has its name; if not, dropping removes the temporary one.
    finished: bool,
}

/// Why a token file could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A file of this name exists already.
    #[error("{0} exists and is not overwritten: choose another name, or move it away")]
    Exists(PathBuf),
    /// Another program writes this file, or was ended while it did.
    #[error("{0} is there: another command writes it, or one was ended; remove it in that case")]
    Unfinished(PathBuf),
    /// The operating system refuses to create, write or rename it.
    #[error("cannot write {path}: {cause}")]
    Io {
        /// Path of the temporary or the final file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
}

impl Writer {
    /// Creates the temporary file of a token file.
    ///
    /// # Errors
    /// If the token file exists, or the operating system refuses.
    pub fn create(path: &Path, vocabulary: Vocabulary) -> Result<Self, WriteError> {
        if path.exists() {
            return Err(WriteError::Exists(path.to_owned()));
        }
        let part = path.with_added_extension("part");
        let (width, source) = (Width::of(vocabulary.tokens), [0; 32]);
        let header = Header { width, vocabulary, count: 0, documents: 0, text_bytes: 0, source };
        let io_error = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Unfinished(part.clone()),
            _ => WriteError::Io { path: part.clone(), cause },
        };
        let mut out = BufWriter::new(fs::File::create_new(&part).map_err(io_error)?);
        // The header is known only at the end.
        out.write_all(&[0; HEADER_BYTES]).map_err(io_error)?;
        Ok(Self { out, path: path.to_owned(), part, header, finished: false })
    }

    /// Writes the token that begins a document.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        self.tokens(&[self.header.vocabulary.bos], 0)
    }

    /// Appends these tokens, which represent `text_bytes` bytes of text.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn tokens(&mut self, tokens: &[u32], text_bytes: u64) -> Result<(), WriteError> {
        let Vocabulary { tokens: count, bos, .. } = self.header.vocabulary;
        let width = self.header.width as usize;
        for token in tokens {
            assert!((*token as usize) < count, "a token of the vocabulary");
            self.header.documents += u64::from(*token == bos);
            self.out.write_all(&token.to_le_bytes()[..width]).map_err(|cause| self.error(cause))?;
        }
        self.header.count += tokens.len() as u64;
        self.header.text_bytes += text_bytes;
        Ok(())
    }

    /// Whether no token was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.count == 0
    }

    /// Completes and renames the file; `source` is BLAKE3 of the files that it was made of.
    ///
    /// # Errors
    /// If the operating system refuses, or the name was taken meanwhile.
    pub fn finish(mut self, source: [u8; 32]) -> Result<Header, WriteError> {
        self.header.source = source;
        let header = self.header.encode();
        let mut write = || {
            self.out.seek(SeekFrom::Start(0))?;
            self.out.write_all(&header)?;
            self.out.flush()?;
            self.out.get_ref().sync_all()
        };
        write().map_err(|cause| self.error(cause))?;
        if self.path.exists() {
            return Err(WriteError::Exists(self.path.clone()));
        }
        let renamed = fs::rename(&self.part, &self.path);
        renamed.map_err(|cause| WriteError::Io { path: self.path.clone(), cause })?;
        self.finished = true;
        Ok(self.header)
    }

    /// An error of the temporary file.
    fn error(&self, cause: io::Error) -> WriteError {
        WriteError::Io { path: self.part.clone(), cause }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // If it cannot be removed, the next attempt names it.
            let _ = fs::remove_file(&self.part);
        }
    }
}
