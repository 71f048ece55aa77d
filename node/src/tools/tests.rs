//! What the tests of commands share: lines that are typed, folders that they name, and words of answers.

use std::{fs, path::Path};

use clap::Parser as _;
use intellect_protocol::{
    base::id::Digest,
    history::checkpoint::{Header, Table},
};

use crate::{
    cli::{Cli, Verb},
    manifest::Manifest,
    store,
    tools::manifest,
};

/// The command of a line that is typed behind the program's name.
pub(crate) fn verb(arguments: &[&str]) -> Verb {
    let line = std::iter::once("intellect-node").chain(arguments.iter().copied());
    Cli::try_parse_from(line).unwrap().command.unwrap()
}

/// Checks that the output of a command has these words.
pub(crate) fn has(said: &str, words: &[&str]) {
    for words in words {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

/// A folder whose files can be named in a line.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder with the keys of two people, a and b.
    pub(crate) fn with_keys() -> Self {
        let folder = Self::new();
        for name in ["a", "b"] {
            manifest::keygen(Path::new(&folder.path(name)), &mut Vec::new()).unwrap();
        }
        folder
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
}

/// Writes the state of an epoch into the data folder of a node, as that node would.
pub(crate) fn write_state(
    data_dir: &Path,
    manifest: &Manifest,
    epoch: u64,
    tokens: u64,
    theta: &[f32],
    v: &[f32],
) {
    let home = store::run_folder(data_dir, manifest.id);
    fs::create_dir_all(home.join("checkpoints")).unwrap();
    fs::write(home.join("run.toml"), &manifest.text).unwrap();
    let parameters = theta.len() as u64;
    let header = Header { run: manifest.id, epoch, tokens, r: Digest::ZERO, parameters };
    let mut bytes = Table::of(header, theta, v).unwrap().to_bytes();
    bytes.extend(theta.iter().chain(v).flat_map(|x| x.to_le_bytes()));
    fs::write(home.join(format!("checkpoints/{epoch}.ckpt")), bytes).unwrap();
}
