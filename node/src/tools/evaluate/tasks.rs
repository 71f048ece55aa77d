//! Tasks of `eval`: opens them all before the weights are read, then measures one after the other.
//!
//! Every item is a question with known answers, which the model judges; `intellect_model::eval` has
//! the method. Here the answers are counted, written and printed. They stay in memory until their
//! task is done, for the metrics need all of them.
//!
//! The file of `--details` has one line for each item, in order. While it is written it has the
//! ending `.part`, and it is removed if the command fails: a file under its own name is whole.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use intellect_model::{
    eval::task::{
        Task, TaskError, Wishes,
        measure::{Answer, Examiner, MeasureError},
        score::{self, Metric},
    },
    tokenizer::Tokenizer,
};
use serde::Serialize;

use super::{Subject, write};
use crate::{
    cli::eval::EvalArgs,
    figures::count,
    os::{PathError, cannot},
    tools::pace::ProgressPace,
};

/// Why a task was not measured, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TasksError {
    /// A task cannot be read. Nothing was measured. The file, or a line of its documents, is named.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// An item of a task cannot be measured. Tasks before it were printed; of its own task nothing
    /// is.
    #[error("task {task}, item {item}: {why}")]
    Item {
        /// The name of the task that it is of.
        task: String,
        /// Number of the item, counted from 1.
        item: usize,
        /// What is wrong with it, in a line.
        #[source]
        why: Box<MeasureError>,
    },
    /// The file of `--details` exists.
    #[error("--details {}: it exists and is not overwritten: name another file", .0.display())]
    Exists(PathBuf),
    /// Another program writes that file, or was ended while it did. It is not removed here, since
    /// the other program may still write it.
    #[error("{} is there: another eval writes it, or one was ended; remove it in that case", .0.display())]
    Unfinished(PathBuf),
    /// The file of `--details` cannot be written.
    #[error(transparent)]
    Details(#[from] PathError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// What is written about an item.
#[derive(Serialize)]
struct Line<'a> {
    task: &'a str,
    item: usize,
    /// What the model chose, and whether that was right.
    #[serde(flatten)]
    answer: &'a Answer,
}

/// The file of `--details`, which gets its name once everything is written.
struct Details {
    path: PathBuf,
    /// The name that it has until then.
    part: PathBuf,
    out: BufWriter<File>,
}

/// Opens all tasks that were named. That `--details` is there already is found here as well, before
/// minutes are spent.
pub(super) fn open(args: &EvalArgs) -> Result<Vec<Task>, TasksError> {
    let limit = args.limit.map(usize::from);
    let wishes = Wishes { shots: args.shots, seed: args.seed, limit };
    if let Some(path) = args.details.as_ref().filter(|path| path.exists()) {
        return Err(TasksError::Exists(path.clone()));
    }
    args.tasks.iter().map(|path| Ok(Task::open(path, wishes)?)).collect()
}

/// Measures the tasks and prints what they amount to.
///
/// # Errors
/// The first item that cannot be measured ends it; the file of `--details` is then removed.
pub(super) fn measure(
    tasks: &[Task],
    subject: &Subject,
    tokenizer: &Tokenizer,
    details: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), TasksError> {
    let mut details = details.map(Details::create).transpose()?;
    let mut examiner = Examiner::new(subject.model.as_ref(), &subject.work, tokenizer);
    for task in tasks {
        let mut answers = Vec::with_capacity(task.count());
        let mut pace = ProgressPace::new();
        for at in 0..task.count() {
            let wrong = |why| TasksError::Item {
                task: task.name.clone(),
                item: at + 1,
                why: Box::new(why),
            };
            let answer = examiner.measure(&task.item(at)).map_err(wrong)?;
            if let Some(details) = &mut details {
                details.write(&Line { task: &task.name, item: at + 1, answer: &answer })?;
            }
            answers.push(answer);
            if pace.is_due() {
                let (done, all) = (count(at as u64 + 1), count(task.count() as u64));
                write(out, &[format!("{done} of {all} items of {} done", task.name)])?;
            }
        }
        write(out, &lines(task, subject, &answers))?;
    }
    details.map_or(Ok(()), |details| details.finish(out))
}

/// What was measured on a task, in lines.
fn lines(task: &Task, subject: &Subject, answers: &[Answer]) -> Vec<String> {
    let outcomes: Vec<_> = answers.iter().map(|answer| &answer.outcome).collect();
    let metrics = score::metrics(&outcomes);
    let items = count(answers.len() as u64);
    let shots = match task.shots {
        0 => String::new(),
        shots => format!(", {shots} solved in front of each"),
    };
    let mut lines =
        vec![String::new(), format!("task           {}: {items} items{shots}", task.name)];
    lines.extend(metrics.iter().map(|Metric { name, value, error }| {
        let error = error.map_or_else(String::new, |error| format!(" ± {}", figure(error)));
        format!("{name:<14} {}{error}", figure(*value))
    }));
    if metrics.is_empty() {
        lines.push(
            "no answer      no item has its right answer: --details FILE writes what the model chose".into(),
        );
    }
    let truncated = answers.iter().filter(|answer| answer.truncated).count() as u64;
    if truncated > 0 {
        lines.push(format!(
            "truncated      {} items without the begin of their context: {} tokens are read at once",
            count(truncated),
            subject.work.model.context
        ));
    }
    lines
}

/// Four digits behind the point, or of a great number four digits in all. Perplexities of words may
/// be great.
fn figure(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value:.4}") } else { format!("{value:.3e}") }
}

impl Details {
    /// Creates the file, which must not exist yet, under a name for what is not whole.
    fn create(path: &Path) -> Result<Self, TasksError> {
        if path.exists() {
            return Err(TasksError::Exists(path.to_owned()));
        }
        let part = path.with_added_extension("part");
        let file = File::create_new(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => TasksError::Unfinished(part.clone()),
            _ => cannot("write", &part)(error).into(),
        })?;
        Ok(Self { path: path.to_owned(), part, out: BufWriter::new(file) })
    }

    /// Adds a line, as one object of JSON.
    fn write(&mut self, line: &Line<'_>) -> Result<(), TasksError> {
        let written = serde_json::to_writer(&mut self.out, line).map_err(io::Error::from);
        let written = written.and_then(|()| self.out.write_all(b"\n"));
        Ok(written.map_err(cannot("write", &self.part))?)
    }

    /// Ends the file, gives it its name, and prints that.
    fn finish(mut self, out: &mut dyn Write) -> Result<(), TasksError> {
        self.out.flush().map_err(cannot("write", &self.part))?;
        if self.path.exists() {
            return Err(TasksError::Exists(self.path.clone()));
        }
        fs::rename(&self.part, &self.path).map_err(cannot("write", &self.path))?;
        Ok(write(out, &[String::new(), format!("wrote          {}", self.path.display())])?)
    }
}

impl Drop for Details {
    fn drop(&mut self) {
        // It has this name only while it is not whole.
        let _ = fs::remove_file(&self.part);
    }
}
