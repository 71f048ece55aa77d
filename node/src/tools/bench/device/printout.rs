//! Prints the results of `bench device`: sentences for people, or JSON lines for programs.
//!
//! A person sees the name of a task when it begins, a dot every few seconds while it runs, and its
//! result on the same line. A program gets two objects for each task, and one at the end.
//! Everything is flushed at once: if the device takes the machine down, the last line says which
//! task did it.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::BenchError;
use super::tasks::{Finding, Judgement};
use crate::cli::device::DevicePart;

/// Prints a line for each task, and collects what the last line says.
pub(super) struct Printout<'a> {
    out: &'a mut dyn Write,
    /// Whether lines are JSON objects, for programs.
    as_json: bool,
    /// The part of the task that is running.
    part: String,
    /// The name of that task within its part.
    of: String,
    /// The tasks that found something wrong, by name.
    wrong: Vec<String>,
    /// The tasks that were left out, by name.
    left_out: Vec<String>,
}

impl<'a> Printout<'a> {
    /// Nothing has been printed, and no task has begun.
    pub(super) fn new(out: &'a mut dyn Write, as_json: bool) -> Self {
        let (wrong, left_out) = (Vec::new(), Vec::new());
        Self { out, as_json, part: String::new(), of: String::new(), wrong, left_out }
    }

    /// Prints the name of a task that begins. A person's line stays open for its result.
    pub(super) fn begins(&mut self, part: DevicePart, of: &str) -> io::Result<()> {
        (self.part, self.of) = (part.name(), of.to_owned());
        if self.as_json {
            return self.line(&json!({"part": self.part, "of": of, "begins": true}));
        }
        self.print(&format!("{} {of}: ", self.part))
    }

    /// Shows a person that the task is still running.
    pub(super) fn waits(&mut self) -> io::Result<()> {
        if self.as_json { Ok(()) } else { self.print(".") }
    }

    /// Reports the result of the task that began last. In JSON, `right` is null for a task that was
    /// left out, and the figures are keys beside it.
    pub(super) fn ends(&mut self, found: Finding) -> io::Result<()> {
        let Finding { words, figures, judgement } = found;
        let (right, why) = match judgement {
            Judgement::Right => (Some(true), None),
            Judgement::Wrong(why) => {
                self.wrong.push(format!("{} {}: {why}", self.part, self.of));
                (Some(false), Some(why))
            }
            Judgement::LeftOut(why) => {
                self.left_out.push(format!("{} {}", self.part, self.of));
                (None, Some(why))
            }
        };
        if self.as_json {
            let mut line = json!({"part": self.part, "of": self.of, "right": right});
            if let (Value::Object(line), Value::Object(figures)) = (&mut line, figures) {
                line.extend(figures);
                line.extend(why.map(|why| ("why".to_owned(), why.into())));
            }
            return self.line(&line);
        }
        let head = if right.is_none() { "left out: " } else { "WRONG: " };
        let why = why.map(|why| format!("{head}{why}"));
        let parts = [words, why.unwrap_or_default()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        self.print(&(parts.join("; ") + "\n"))
    }

    /// Prints the last line, which names all that was wrong or left out.
    ///
    /// # Errors
    /// [`BenchError::Wrong`] with all that was wrong.
    pub(super) fn finish(mut self) -> Result<(), BenchError> {
        let (wrong, left_out) = (self.wrong.join("; "), self.left_out.join(", "));
        if self.as_json {
            let Self { wrong, left_out, .. } = &self;
            let right = wrong.is_empty();
            self.line(
                &json!({"part": "end", "right": right, "wrong": wrong, "left_out": left_out}),
            )?;
        } else if !wrong.is_empty() {
            writeln!(self.out, "wrong: {wrong}")?;
        } else if !left_out.is_empty() {
            writeln!(self.out, "nothing is wrong; left out: {left_out}")?;
        } else {
            writeln!(self.out, "all is right")?;
        }
        self.out.flush()?;
        if wrong.is_empty() { Ok(()) } else { Err(BenchError::Wrong { what: wrong }) }
    }

    /// One JSON object as a whole line.
    fn line(&mut self, line: &Value) -> io::Result<()> {
        self.print(&format!("{line}\n"))
    }

    /// A text that a person, and a reader of a pipe, sees at once.
    fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}
