//! `export`: the parameters of a state as a folder that other programs load.

use std::io::{self, Write};

use intellect_model::hf::{
    Format,
    export::{self, Export},
};

use crate::{
    checkpoint::{CheckpointError, Front},
    cli::{ExportArgs, NumberFormat},
    offline::stored::{self, StoredError},
};

/// Why a state was not exported. It is unchanged; the folder may hold a part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    /// No such state.
    #[error(transparent)]
    Find(#[from] StoredError),
    /// The state cannot be read.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// The folder cannot be written.
    #[error(transparent)]
    Write(#[from] export::ExportError),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Writes the parameters of a state into a folder.
pub(crate) fn export(args: &ExportArgs, out: &mut dyn Write) -> Result<(), ExportError> {
    let (path, manifest) = stored::find(&args.state)?;
    let work = &manifest.work;
    let front = Front::of(&path, &manifest)?;
    let (epoch, state) = (front.table.header().epoch, front.table.state());
    let theta = front.theta()?;
    let format = match args.format {
        NumberFormat::F32 => Format::F32,
        NumberFormat::Bf16 => Format::Bf16,
    };
    let export = Export { work, theta: &theta, format, shard_bytes: args.shard_bytes };
    let written = export.write(&args.to)?;
    let lines = [
        format!("run    {} ({})", manifest.id, manifest.run.name),
        format!("state  {} of epoch {epoch}", state.hex()),
        format!(
            "wrote  {} in {} as {}: {}",
            super::bytes(written.bytes),
            args.to.display(),
            format.name(),
            written.files.join(", ")
        ),
    ];
    lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(ExportError::Output)
}
