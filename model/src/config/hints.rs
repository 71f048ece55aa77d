//! What an organiser says of a run's files: their names, and where they are to be had.

use std::path::PathBuf;

use super::WorkError;
use super::table::{Entry, Field, Value};

/// What an organiser says of the files for whoever joins. They are believed by their digests alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// A name for each file, in their order; none if there are none.
    pub names: Vec<String>,
    /// Where they are to be had.
    pub url: Option<String>,
}

/// What a file is called.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Name(String);

impl Value for Name {
    type Bounds = ();
    const NONE: Self = Self(String::new());

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, WorkError> {
        let text = entry.text()?;
        if is_name(text) { Ok(Self(text.to_owned())) } else { Err(entry.wrong(NAME)) }
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Text(self.0.clone()))
    }

    fn told((): &()) -> String {
        NAME.to_owned()
    }
}

/// Where files are to be had.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Url(String);

impl Value for Url {
    type Bounds = ();
    const NONE: Self = Self(String::new());

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, WorkError> {
        let text = entry.text()?;
        if is_url(text) { Ok(Self(text.to_owned())) } else { Err(entry.wrong(URL)) }
    }

    fn field(&self) -> Option<Field> {
        Some(Field::Text(self.0.clone()))
    }

    fn told((): &()) -> String {
        URL.to_owned()
    }
}

impl Hints {
    /// The names of these files, as a line of a shell can take them.
    #[must_use]
    pub fn of(paths: &[PathBuf]) -> Self {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let fits = |letter: char| if fits_name(letter) { letter } else { '_' };
            let name: String = name.chars().map(fits).take(NAME_LETTERS_MAX).collect();
            if is_name(&name) { name } else { format!("_{name}") }
        };
        Self { names: paths.iter().map(name).collect(), url: None }
    }

    /// Of what a manifest says of so many files.
    pub(super) fn read(
        names: Option<Vec<Name>>,
        url: Option<Url>,
        files: usize,
    ) -> Result<Self, WorkError> {
        let Some(names) = names else { return Ok(Self::default()) };
        if names.len() != files {
            let (key, value) = ("data.names", format!("a list of {}", names.len()));
            let need = format!("the run has {files} files: write a name for each");
            return Err(WorkError::Contradiction { key, value, need });
        }
        let names = names.into_iter().map(|name| name.0).collect();
        Ok(Self { names, url: url.map(|url| url.0) })
    }

    /// As a manifest has them.
    pub(super) fn written(&self) -> (Option<Vec<Name>>, Option<Url>) {
        let names: Vec<_> = self.names.iter().cloned().map(Name).collect();
        ((!names.is_empty()).then_some(names), self.url.clone().map(Url))
    }
}

/// A name that stands in a line of a shell as it is, or between quotation marks, and leads nowhere else.
fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    begins && name.chars().count() <= NAME_LETTERS_MAX + 1 && name.chars().all(fits_name)
}

fn fits_name(letter: char) -> bool {
    letter.is_alphanumeric() || "._-+ ".contains(letter)
}

fn is_url(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"'`\\<>".contains(&byte);
    text.len() <= URL_BYTES_MAX && text.contains("://") && text.bytes().all(fits)
}

const NAME: &str = "a file's name of letters, digits, '.', '_', '-', '+' and spaces";
const NAME_LETTERS_MAX: usize = 100;
const URL: &str = "an address like https://example.org/corpus.tokens";
const URL_BYTES_MAX: usize = 500;
