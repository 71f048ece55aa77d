//! `data …`: the command line for making and explaining token files.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use intellect_model::data::documents::Format;

use super::path;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Turns texts, JSON lines, Parquet or tokens of another program into one token file
    Tokenize(TokenizeArgs),
    /// Checks a token file and says what is in it
    Show {
        /// The token file that is checked and explained
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Its tokenizer, to show how the text begins
        #[arg(long, value_name = "FILE")]
        tokenizer: Option<PathBuf>,
    },
}

/// The arguments of `data tokenize`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// Files of documents, in this order
    #[arg(value_name = "FILE", required = true, value_parser = path::data())]
    pub(crate) inputs: Vec<PathBuf>,
    /// The new file; an existing one is never overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// A vocabulary of RWKV World, or a tokenizer.json [default: the bytes themselves]
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Token of a tokenizer.json that begins each document [default: what the file says]
    #[arg(long, value_name = "TOKEN", requires = "tokenizer")]
    pub(crate) bos: Option<String>,
    /// text, jsonl, parquet, u16 or u32 [default: by the file's name]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// The JSON field or the Parquet column that is a document
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub(crate) field: String,
    /// Refuse a record that is no document, instead of leaving it out
    #[arg(long)]
    pub(crate) strict: bool,
}
