//! `export`: writes the parameters of a state as a folder that other programs load.
//!
//! What is written depends on the state, its manifest, the tokenizer and the options alone, so two
//! people who export one state get the same folder. It has the parameters only: the momentum of the
//! outer step and the votes are of no use outside a run.

use std::io::{self, Write};

use intellect_model::hf::{
    Precision,
    export::{self, Export},
};

use crate::{
    checkpoint::Front,
    cli::{ExportArgs, NumberFormat},
    figures::bytes,
    tools::{
        pace::announced,
        stored::{self, StoredError},
    },
};

/// Why a state was not exported. The state is unchanged, and no part of a model is left behind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// There is no such state in the folder, or it cannot be read.
    #[error(transparent)]
    Find(#[from] StoredError),
    /// The folder cannot be written.
    #[error(transparent)]
    Write(#[from] export::ExportError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Writes the parameters of a state into a folder, with the run's tokenizer if it is there.
///
/// A tokenizer that was named has to be right, and is checked before the parameters are read, which
/// takes long. One that is merely missing is a line at the end. All parameters are in memory at
/// once, 4 bytes each.
pub(crate) fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<(), ExportError> {
    let found = stored::find(&args.state)?;
    let manifest = found.manifest.clone();
    let work = &manifest.work;
    let tokenizer = stored::checked_tokenizer(args.tokenizer.as_deref(), &found.path, &manifest);
    let (tokenizer, missing) = match tokenizer {
        Ok(file) => (file, None),
        Err(error) if args.tokenizer.is_some() => return Err(StoredError::from(error).into()),
        // A model can be used without a tokenizer.
        Err(error) => (None, Some(format!("lacks    a tokenizer: {}", stored::remedied(&error)))),
    };
    let (table, theta) = announced("reading the parameters", || found.read(Front::theta))?;
    let precision = match args.format {
        NumberFormat::F32 => Precision::F32,
        NumberFormat::Bf16 => Precision::Bf16,
    };
    let (tokenizer, shard_bytes) = (tokenizer.as_ref(), args.shard_bytes);
    let export = Export { work, theta: &theta, tokenizer, precision, shard_bytes };
    let written = announced("writing the model", || export.write(&args.to))?;
    let lines = [
        format!("run      {} ({})", manifest.id, manifest.run.name),
        format!("state    {} of epoch {}", table.state().hex(), table.header().epoch),
        format!("weights  {}", stored::weights(&theta)?),
        format!(
            "wrote    {} in {} as {}: {}",
            bytes(written.bytes),
            args.to.display(),
            precision.name(),
            written.files.join(", ")
        ),
    ];
    let mut lines = lines.iter().chain(&missing);
    lines.try_for_each(|line| writeln!(out, "{line}")).map_err(ExportError::Output)
}
