//! Stored models as tensors, wherever they are: a folder in Hugging Face's layout, a checkpoint, or
//! the newest one of a node's folder.
//!
//! `merge` and `spectrum` take models of any of these three kinds and see tensors by name
//! ([`Input`]), read in pieces. Nothing is loaded as a whole. Of a checkpoint the parameters are
//! checked once, when it is opened, since it has a digest for each piece.

use std::path::{Path, PathBuf};

use intellect_model::{
    arch::Arch,
    hf::{
        Precision,
        error::ImportError,
        export::{Export, SHARD_BYTES},
        input::Input,
    },
    merge::output,
};

use crate::{
    cli::StateArgs,
    manifest::Manifest,
    tools::stored::{self, StoredError},
};

/// A model whose files are open.
pub(crate) struct OpenModel {
    /// The tensors of the model, in its open files.
    pub(crate) input: Input,
    /// Where its settings and its tokenizer are.
    pub(crate) source: ModelSource,
}

/// Where the settings and the tokenizer of a model are.
pub(crate) enum ModelSource {
    /// A folder in Hugging Face's layout.
    Folder(PathBuf),
    /// A checkpoint, and the manifest of its run.
    Run { checkpoint: PathBuf, manifest: Box<Manifest> },
}

/// The small files of a folder with a model: their names, and what is in them.
pub(crate) struct SettingsFiles {
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// A line that says what the folder will lack.
    pub(crate) missing: Option<String>,
}

/// Why a model cannot be opened. It is not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenModelError {
    /// There is nothing of this name that is a model.
    #[error(
        "{} is no model: name a folder with a config.json, a checkpoint (.ckpt), or the folder of a node",
        .0.display()
    )]
    NoModel(PathBuf),
    /// The folder has no tensors, or damaged ones.
    #[error(transparent)]
    Folder(#[from] ImportError),
    /// The checkpoint has no manifest or cannot be read, or the node has no state.
    #[error(transparent)]
    Find(#[from] StoredError),
}

impl OpenModel {
    /// Opens the model at this path. The parameters of a checkpoint are checked against their
    /// digests. The kind is decided by what is there: a `config.json`, a folder `runs`, or a file.
    ///
    /// # Errors
    /// [`OpenModelError::NoModel`] if it is none of these. The folder of a node must have one run
    /// only.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenModelError> {
        if path.join("config.json").is_file() {
            return Ok(Self {
                input: Input::folder(path)?,
                source: ModelSource::Folder(path.to_owned()),
            });
        }
        let found = if path.join("runs").is_dir() {
            stored::newest(path.to_owned(), None)?
        } else if path.is_file() {
            let checkpoint = Some(path.to_owned());
            stored::find(&StateArgs { checkpoint, manifest: None, data_dir: None, run: None })?
        } else {
            return Err(OpenModelError::NoModel(path.to_owned()));
        };
        let manifest = found.manifest.clone();
        let (_, (checkpoint, (file, begin))) = found.read(|front| {
            let path = front.path.clone();
            Ok((path, front.checked_theta()?))
        })?;
        let specs = Arch::new(&manifest.work.model).specs();
        let input = Input::flat(checkpoint.clone(), file, begin, &specs);
        Ok(Self { input, source: ModelSource::Run { checkpoint, manifest: Box::new(manifest) } })
    }
}

impl ModelSource {
    /// The small files of a folder with a model like this one, of so many layers; `config.json`
    /// comes last. Programs take a folder with that file for a model, so a folder that was not
    /// written to its end is none.
    pub(crate) fn settings(
        &self,
        precision: Precision,
        layers: usize,
    ) -> Result<SettingsFiles, OpenModelError> {
        let (checkpoint, manifest) = match self {
            Self::Folder(folder) => {
                let files = output::settings_of(folder, precision, layers)?;
                return Ok(SettingsFiles { files, missing: None });
            }
            Self::Run { checkpoint, manifest } => (checkpoint, manifest),
        };
        let mut work = manifest.work.clone();
        work.model.layers = layers;
        let (tokenizer, missing) = match stored::checked_tokenizer(None, checkpoint, manifest) {
            Ok(tokenizer) => (tokenizer, None),
            Err(error) => {
                (None, Some(format!("lacks   a tokenizer: {}", stored::remedied(&error))))
            }
        };
        let (tokenizer, shard_bytes) = (tokenizer.as_ref(), SHARD_BYTES);
        let export = Export { work: &work, theta: &[], tokenizer, precision, shard_bytes };
        let files = export.settings().into_iter();
        let files = files.map(|(name, bytes)| (name.to_owned(), bytes.into_owned())).collect();
        Ok(SettingsFiles { files, missing })
    }
}
