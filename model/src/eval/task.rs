//! Tasks: questions with known answers, on which models are compared.
//!
//! Names and counting are those of lm-eval, so that a number here and there means the same. A task
//! is a file of JSON lines, one document each. Either the documents are [items](item::Item) as they
//! are, or a TOML file says by templates how a document becomes one:
//!
//! | `output_type` | what is measured of the model |
//! |---|---|
//! | `multiple_choice` | which of the choices is the likeliest after the context |
//! | `loglikelihood` | how likely the continuation is, and whether it would be written word for word |
//! | `loglikelihood_rolling` | how likely a text is |
//!
//! Files are untrusted: lines, templates, items and the work of a template are bounded, and all
//! items are made before the first is measured.

pub mod file;
pub mod item;
pub mod measure;
pub mod score;
pub mod template;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::data::draw::Draw;
use file::{Docs, DocsError};
use item::{Item, ItemError};
use template::Templates;

/// A task whose items were made.
#[derive(Debug)]
pub struct Task {
    /// The name by which people know it.
    pub name: String,
    /// How many solved items stand before each.
    pub shots: usize,
    /// The items, in the order of the file, at most so many as were asked for.
    items: Vec<Item>,
    /// What stands before every item, once.
    description: String,
    /// The solved items to choose from: one more than are needed, where they are items themselves.
    solved: Vec<Shot>,
}

/// An item that is solved in front of others.
#[derive(Debug)]
struct Shot {
    /// Its number, if it is one of the task's items.
    at: Option<usize>,
    /// The question, its answer, and what stands after it.
    text: String,
}

/// A task as its TOML file writes it, under the names of lm-eval.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// The name by which people know it.
    pub task: String,
    /// The file of the documents, from the folder of the task's file.
    pub test_file: PathBuf,
    /// The file of the documents that are solved in front of an item [the same one].
    pub fewshot_file: Option<PathBuf>,
    /// What is measured of the model.
    pub output_type: OutputType,
    /// What stands before every item, once.
    #[serde(default)]
    pub description: String,
    /// The question: a template, or the name of a field.
    #[serde(default)]
    pub doc_to_text: String,
    /// The answers: a template or field that is a list, or the list itself.
    pub doc_to_choice: Option<Choices>,
    /// The right answer: its number or itself; the continuation; or the text.
    pub doc_to_target: Target,
    /// What stands between a question and its answer.
    #[serde(default = "space")]
    pub target_delimiter: String,
    /// What stands after every solved item.
    #[serde(default = "blank_line")]
    pub fewshot_delimiter: String,
    /// How many solved items stand before each.
    #[serde(default)]
    pub num_fewshot: usize,
    /// Which documents are solved in front of an item.
    #[serde(default)]
    pub fewshot_sampler: Sampler,
}

/// What is measured of the model.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OutputType {
    /// Which choice is the likeliest.
    MultipleChoice,
    /// How likely a continuation is.
    Loglikelihood,
    /// How likely a text is from its begin on.
    LoglikelihoodRolling,
}

/// The choices of all documents.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Choices {
    /// A template or a field that gives a list.
    Of(String),
    /// The same for every document.
    Same(Vec<String>),
}

/// The right answer of a document.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Target {
    /// The number of a choice, from 0, for every document.
    Number(usize),
    /// A template, or the name of a field.
    Of(String),
}

/// Which documents are solved in front of an item.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// Some that are drawn by the seed.
    #[default]
    Default,
    /// The first documents of the file.
    FirstN,
}

/// What a person may change of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// How many solved items stand before each, instead of the task's number.
    pub shots: Option<usize>,
    /// Selects the documents that are solved.
    pub seed: u64,
    /// Only so many items, the first ones.
    pub limit: Option<usize>,
}

/// Why a task cannot be measured. Nothing was measured yet.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A file cannot be read, or a line of it is not JSON.
    #[error(transparent)]
    File(#[from] DocsError),
    /// The task's file is not a task.
    #[error("{path} is not a task: {}", why.trim_end())]
    Toml {
        /// The file that should be a task.
        path: PathBuf,
        /// What the parser of TOML says, with the line.
        why: String,
    },
    /// A line is not an item, or a template fails on it.
    #[error("{path}, line {line}: {why}")]
    Item {
        /// The file of the documents, by its path.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// What keeps it from being an item.
        why: ItemError,
    },
    /// There are too few documents to solve some in front of an item.
    #[error(
        "{path} has {found} documents, and {needed} are needed to solve {shots} in front of each: ask for fewer \
         with --shots ({SHOTS_MAX} at most), or name a longer fewshot_file"
    )]
    Shots {
        /// The file of the documents that are solved.
        path: PathBuf,
        /// How many documents there are in it.
        found: usize,
        /// How many documents it needs.
        needed: usize,
        /// How many documents are to be solved.
        shots: usize,
    },
}

impl TaskFile {
    /// Reads the text of a task's file.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

impl Task {
    /// Reads a task: a file of TOML, or of items as JSON lines.
    ///
    /// # Errors
    /// Any of [`TaskError`].
    pub fn open(path: &Path, wishes: Wishes) -> Result<Self, TaskError> {
        if path.extension().is_some_and(|ending| ending == "toml") {
            let text = file::text(path)?;
            let wrong = |why| TaskError::Toml { path: path.to_owned(), why };
            let written = TaskFile::parse(&text).map_err(wrong)?;
            return Self::of(&written, path.parent().unwrap_or_else(|| Path::new("")), wishes);
        }
        let docs = Docs::read(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let items = docs.each(Item::read)?;
        let kit = Kit { description: "", between: BLANK_LINE, sampler: Sampler::Default };
        Self::assemble(name, Pool { docs, items }, None, wishes.shots.unwrap_or(0), kit, wishes)
    }

    /// Makes a task of its TOML file; the files that it names are in `folder`.
    fn of(written: &TaskFile, folder: &Path, wishes: Wishes) -> Result<Self, TaskError> {
        let templates = Templates::new();
        let read = |file: &Path| -> Result<Pool, TaskError> {
            let docs = Docs::read(&folder.join(file))?;
            let items = docs.each(|doc| Item::make(&templates, written, doc))?;
            Ok(Pool { docs, items })
        };
        let asked = read(&written.test_file)?;
        let apart = written.fewshot_file.as_deref().map(read).transpose()?;
        let kit = Kit {
            description: &written.description,
            between: &written.fewshot_delimiter,
            sampler: written.fewshot_sampler,
        };
        let shots = wishes.shots.unwrap_or(written.num_fewshot);
        Self::assemble(written.task.clone(), asked, apart, shots, kit, wishes)
    }

    /// How many items the task has in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// Item `at` with what stands before it. It is made when it is needed, for what stands before
    /// many items may be long.
    ///
    /// # Panics
    /// If there are not so many items.
    #[must_use]
    pub fn item(&self, at: usize) -> Item {
        let others = self.solved.iter().filter(|shot| shot.at != Some(at)).take(self.shots);
        let before: String = others.map(|shot| shot.text.as_str()).collect();
        self.items[at].after(&format!("{}{before}", self.description))
    }

    /// Chooses the solved items that stand before each item. They are chosen from the items that are
    /// `asked` themselves, or from those of a file of their own, `apart`.
    fn assemble(
        name: String,
        asked: Pool,
        apart: Option<Pool>,
        shots: usize,
        kit: Kit<'_>,
        wishes: Wishes,
    ) -> Result<Self, TaskError> {
        let Pool { docs: from, items: candidates } = apart.as_ref().unwrap_or(&asked);
        // An item is not solved in front of itself.
        let needed = match shots {
            0 => 0,
            shots => shots.saturating_add(usize::from(apart.is_none())),
        };
        let found = candidates.len();
        if found < needed || shots > SHOTS_MAX {
            return Err(TaskError::Shots { path: from.path.clone(), found, needed, shots });
        }
        let shot = |at: usize| {
            let (path, line) = (from.path.clone(), from.lines[at].number);
            let no_answer = || TaskError::Item { path, line, why: ItemError::NoAnswer };
            let answered = candidates[at].solved().ok_or_else(no_answer)?;
            let text = answered + kit.between;
            Ok(Shot { at: apart.is_none().then_some(at), text })
        };
        let chosen = chosen(kit.sampler, wishes.seed, needed, found);
        let solved = chosen.into_iter().map(shot).collect::<Result<_, TaskError>>()?;
        // The limit is on what is asked: items are solved in front from the whole file.
        let mut items = asked.items;
        items.truncate(wishes.limit.unwrap_or(usize::MAX));
        Ok(Self { name, shots, items, description: kit.description.to_owned(), solved })
    }
}

/// The documents of a file, and the items that they are.
struct Pool {
    /// The documents, with their lines.
    docs: Docs,
    /// What they became, in the same order.
    items: Vec<Item>,
}

/// What stands around solved items.
#[derive(Clone, Copy)]
struct Kit<'a> {
    /// What stands before every item, once.
    description: &'a str,
    /// What stands behind each solved item.
    between: &'a str,
    /// Which documents are solved in front.
    sampler: Sampler,
}

/// The numbers of the documents that are solved, drawn without repetition.
fn chosen(sampler: Sampler, seed: u64, needed: usize, of: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..of).collect();
    if sampler == Sampler::Default {
        let mut draw = Draw::new(&blake3::derive_key(CONTEXT, &seed.to_le_bytes()), 0, 0);
        for at in 0..needed {
            let other = at + draw.below((of - at) as u64) as usize;
            all.swap(at, other);
        }
    }
    all.truncate(needed);
    all
}

/// The default of `target_delimiter`, as in lm-eval.
fn space() -> String {
    " ".to_owned()
}

/// The default of `fewshot_delimiter`, as in lm-eval.
fn blank_line() -> String {
    BLANK_LINE.to_owned()
}

/// More than any task puts before an item.
const SHOTS_MAX: usize = 1_000;
/// What stands behind a solved item if the task says nothing else.
const BLANK_LINE: &str = "\n\n";
/// Keeps these draws apart from those of other uses.
const CONTEXT: &str = "intellect-node 1 few-shot";

#[cfg(test)]
mod tests;
