//! `merge`: makes one model of several, by a recipe in mergekit's YAML.
//!
//! All inputs are opened and the plan is made before anything is written: a recipe that names a
//! missing tensor fails at once. Then tensors are merged one at a time and in pieces, so the memory
//! does not grow with the models. The result gets its name only when it is whole ([`Staged`]).

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Write},
    path::Path,
};

use intellect_model::{
    hf::staged::{Staged, StagedError},
    merge::{
        MergeError,
        plan::Plan,
        recipe::{Recipe, TEXT_BYTES_MAX},
    },
};

use crate::{
    cli::merge::MergeArgs,
    figures::bytes,
    os::{PathError, cannot},
    tools::{
        models::{OpenModel, OpenModelError},
        pace::{ProgressPace, announced},
    },
};

/// Why there is no merged model. Nothing has been left behind, but for [`Self::Output`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum MergeCommandError {
    /// The file of the recipe cannot be read.
    #[error(transparent)]
    Read(#[from] PathError),
    /// One of its models cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenModelError),
    /// The recipe is wrong, the models do not fit together, or a tensor cannot be written.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The folder cannot be written, or has files.
    #[error(transparent)]
    Write(#[from] StagedError),
    /// Standard output is closed, or its disk is full. The merged model is there.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
}

/// Merges the models of a recipe into a new folder. Settings and tokenizer are those of the
/// recipe's base, or else of its first model, with the layers of the plan.
pub(crate) fn run(args: &MergeArgs, out: &mut dyn Write) -> Result<(), MergeCommandError> {
    let recipe = read(&args.recipe)?;
    let (mut inputs, mut sources) = (BTreeMap::new(), Vec::new());
    for name in recipe.models() {
        let opened = announced("checking a model", || OpenModel::open(Path::new(name)));
        let OpenModel { input, source } = opened?;
        inputs.insert(name.to_owned(), input);
        sources.push(source);
    }
    let plan = Plan::new(&recipe, &inputs)?;
    // The recipe names its base first, or else its first model.
    let folder = sources.first().map(|source| source.settings(recipe.precision, plan.layers()));
    let folder = folder.transpose()?;
    let staged = Staged::begin(&args.out)?;
    let mut pace = ProgressPace::new();
    let mut report = |done: usize| {
        if pace.is_due() {
            // The merge is worth more than a reader of its progress.
            let _ = writeln!(out, "{done} of {} tensors merged", plan.tensors());
            let _ = out.flush();
        }
    };
    let written = plan.write(&staged, args.seed, args.shard_bytes, &mut report)?;
    for (name, bytes) in folder.iter().flat_map(|folder| &folder.files) {
        staged.put(name, bytes)?;
    }
    staged.finish()?;
    let models = recipe.models();
    let lines = [
        format!("merged  {} by {}", models.join(", "), recipe.method.name()),
        format!(
            "model   {} tensors, {} layers, as {}",
            written.tensors,
            plan.layers(),
            recipe.precision.name()
        ),
        format!(
            "wrote   {} in {}: {}",
            bytes(written.bytes),
            args.out.display(),
            written.files.join(", ")
        ),
    ];
    let missing = folder.as_ref().and_then(|folder| folder.missing.as_ref());
    let mut lines = lines.iter().chain(missing);
    lines.try_for_each(|line| writeln!(out, "{line}")).map_err(MergeCommandError::Output)
}

/// Reads a recipe, and of a longer file no more than a recipe may have. One byte more is read, by
/// which the parser sees that it is too long.
fn read(path: &Path) -> Result<Recipe, MergeCommandError> {
    let (file, mut text) = (File::open(path), String::new());
    let most = TEXT_BYTES_MAX as u64 + 1;
    let read = file.and_then(|file| file.take(most).read_to_string(&mut text));
    read.map_err(cannot("read the recipe", path))?;
    Ok(Recipe::parse(&text).map_err(MergeError::from)?)
}
