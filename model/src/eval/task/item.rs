//! One question of a task: as it is written, or made of a document by templates.

use serde::Deserialize;
use serde_json::Value as Json;
use thiserror::Error;

use super::template::{Templates, excerpt};
use super::{Choices, OutputType, Target, TaskFile};

/// A question. What is judged continues its context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Which choice is the likeliest.
    Choice {
        /// What the model reads before it is judged.
        context: String,
        /// What stands between the context and each choice.
        delimiter: String,
        /// At least two of them, none empty.
        choices: Vec<String>,
        /// The number of the right one, from 0, if it is known.
        gold: Option<usize>,
    },
    /// How likely the continuation is.
    Continuation {
        /// What the model reads before it is judged.
        context: String,
        /// What stands between the two in a solved question. As in lm-eval it is not judged.
        delimiter: String,
        /// What is judged; it is not empty.
        continuation: String,
    },
    /// How likely the text is from its begin on.
    Text {
        /// What is judged; it is not empty.
        text: String,
    },
}

/// Why a document is not an item.
#[derive(Debug, Error)]
pub enum ItemError {
    /// It has none of the three forms, for this reason.
    #[error(
        "not an item ({0}): write {{\"context\": …, \"choices\": [… , …], \"gold\": 0}}, {{\"context\": …, \
         \"continuation\": …}} or {{\"text\": …}}"
    )]
    Form(String),
    /// A template fails on the document.
    #[error("{key} fails: {why}")]
    Template {
        /// The key of the template in the task's file.
        key: &'static str,
        /// What is wrong with it, in a line.
        why: String,
    },
    /// So many choices are nothing to choose from, or too much.
    #[error("{0} choices: give 2 to {CHOICES_MAX}")]
    Choices(usize),
    /// What is to be judged is empty: a choice, the continuation or the text.
    #[error("{0} is empty, so there is nothing to judge")]
    Empty(&'static str),
    /// The right answer is none of the choices.
    #[error(
        "the right answer {found} is none of the {choices} choices: give its number from 0, or its text"
    )]
    Label {
        /// The answer that was given as the right one.
        found: String,
        /// How many choices the document has.
        choices: usize,
    },
    /// The task's file has no choices.
    #[error("multiple_choice needs doc_to_choice in the task's file")]
    NoChoices,
    /// It should be solved in front of others, and its answer is not known.
    #[error(
        "its right answer is not known, so it cannot be solved in front of others: choose --shots 0"
    )]
    NoAnswer,
}

/// The three forms of an item in JSON: context and choices, context and continuation, or text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    /// What stands before the answer.
    context: Option<String>,
    /// The answers of a multiple choice, of which one is right.
    choices: Option<Vec<String>>,
    /// The index of the right answer, from 0.
    gold: Option<usize>,
    /// The text whose probability behind the context is measured.
    continuation: Option<String>,
    /// A whole text, whose probability is measured without a context.
    text: Option<String>,
}

/// The right answer of a multiple choice: the number of a choice, or its text.
struct Label {
    /// The answer as the document gives it.
    text: String,
    /// Whether it is a field of the document that holds a text. Then a text of digits is that of a choice first, as in
    /// lm-eval; else it is a number first.
    is_field: bool,
}

impl Item {
    /// Reads an item as it is written.
    ///
    /// # Errors
    /// Any of [`ItemError`].
    pub fn read(doc: &Json) -> Result<Self, ItemError> {
        let Form { context, choices, gold, continuation, text } =
            Form::deserialize(doc).map_err(|error| ItemError::Form(error.to_string()))?;
        match (context, choices, gold, continuation, text) {
            (Some(context), Some(choices), gold, None, None) => {
                let gold = gold.map(|gold| Label { text: gold.to_string(), is_field: false });
                Self::choice(context, String::new(), choices, gold)
            }
            (Some(context), None, None, Some(continuation), None) => {
                Self::continuation(context, String::new(), continuation)
            }
            (None, None, None, None, Some(text)) => Self::text(text),
            _ => Err(ItemError::Form("its keys are of none of the three forms".to_owned())),
        }
    }

    /// Makes an item of a document.
    ///
    /// # Errors
    /// Any of [`ItemError`].
    pub fn make(templates: &Templates, written: &TaskFile, doc: &Json) -> Result<Self, ItemError> {
        let text = |key, template: &str| {
            templates.text(template, doc).map_err(|why| ItemError::Template { key, why })
        };
        let context = text("doc_to_text", &written.doc_to_text)?;
        let target = match &written.doc_to_target {
            Target::Number(number) => number.to_string(),
            Target::Of(template) => text("doc_to_target", template)?,
        };
        let delimiter = written.target_delimiter.clone();
        match written.output_type {
            OutputType::MultipleChoice => {
                let choices = match &written.doc_to_choice {
                    None => return Err(ItemError::NoChoices),
                    Some(Choices::Same(choices)) => choices.clone(),
                    Some(Choices::Of(template)) => templates
                        .list(template, doc)
                        .map_err(|why| ItemError::Template { key: "doc_to_choice", why })?,
                };
                let named = |template| doc.get(template).is_some_and(Json::is_string);
                let is_field = matches!(&written.doc_to_target, Target::Of(of) if named(of));
                Self::choice(context, delimiter, choices, Some(Label { text: target, is_field }))
            }
            OutputType::Loglikelihood => Self::continuation(context, delimiter, target),
            OutputType::LoglikelihoodRolling => Self::text(target),
        }
    }

    /// The same item with a text in front of its context. A text that is judged has no context.
    pub(super) fn after(&self, before: &str) -> Self {
        let mut item = self.clone();
        match &mut item {
            Self::Choice { context, .. } | Self::Continuation { context, .. } => {
                context.insert_str(0, before);
            }
            Self::Text { .. } => {}
        }
        item
    }

    /// The question with the right answer behind it, if that is known.
    pub(super) fn solved(&self) -> Option<String> {
        match self {
            Self::Choice { context, delimiter, choices, gold } => {
                gold.map(|gold| format!("{context}{delimiter}{}", choices[gold]))
            }
            Self::Continuation { context, delimiter, continuation } => {
                Some(format!("{context}{delimiter}{continuation}"))
            }
            Self::Text { text } => Some(text.clone()),
        }
    }

    /// An item whose choices are judged one by one.
    fn choice(
        context: String,
        delimiter: String,
        choices: Vec<String>,
        label: Option<Label>,
    ) -> Result<Self, ItemError> {
        if !(2..=CHOICES_MAX).contains(&choices.len()) {
            return Err(ItemError::Choices(choices.len()));
        }
        if choices.iter().any(String::is_empty) {
            return Err(ItemError::Empty("a choice"));
        }
        let gold = label.map(|Label { text, is_field }| {
            let number = text.trim().parse().ok().filter(|number| *number < choices.len());
            let by_text = choices.iter().position(|choice| *choice == text);
            let found = if is_field { by_text.or(number) } else { number.or(by_text) };
            let wrong = || ItemError::Label { found: excerpt(&text), choices: choices.len() };
            found.ok_or_else(wrong)
        });
        Ok(Self::Choice { context, delimiter, gold: gold.transpose()?, choices })
    }

    /// An item whose continuation is judged, if there is any.
    fn continuation(
        context: String,
        delimiter: String,
        continuation: String,
    ) -> Result<Self, ItemError> {
        if continuation.is_empty() {
            return Err(ItemError::Empty("the continuation"));
        }
        Ok(Self::Continuation { context, delimiter, continuation })
    }

    /// An item whose text is judged, if there is any.
    fn text(text: String) -> Result<Self, ItemError> {
        if text.is_empty() {
            return Err(ItemError::Empty("the text"));
        }
        Ok(Self::Text { text })
    }
}

/// The most choices of an item.
const CHOICES_MAX: usize = 1_000;
