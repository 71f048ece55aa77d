//! What an organiser says of a run's files: their names, and where they are to be had.

use std::path::PathBuf;

use super::error::WorkError;
use super::table::Pattern;

/// What an organiser tells those who join about the files. A file is believed by its digest alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// A name for each file, in their order; none if there are none.
    pub names: Vec<String>,
    /// Where they are to be had.
    pub url: Option<String>,
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

    /// Reads what a manifest says of so many files.
    pub(super) fn read(
        names: Option<Vec<String>>,
        url: Option<String>,
        files: usize,
    ) -> Result<Self, WorkError> {
        let Some(names) = names else { return Ok(Self::default()) };
        if names.len() != files {
            let value = format!("a list of {}", names.len());
            let need = format!("the run has {files} files: write a name for each");
            return Err(WorkError::value("data.names", value, need));
        }
        Ok(Self { names, url })
    }

    /// The two keys as a manifest writes them.
    pub(super) fn written(&self) -> (Option<Vec<String>>, Option<String>) {
        ((!self.names.is_empty()).then(|| self.names.clone()), self.url.clone())
    }

    /// What an error adds about file `index`, which is missing, after its digest; empty if the file
    /// has no name.
    pub(crate) fn told(&self, index: usize) -> String {
        let Some(name) = self.names.get(index) else { return String::new() };
        let url = self.url.as_ref().map(|url| format!(" and offers at {url}")).unwrap_or_default();
        format!(", which its organiser calls {name}{url}")
    }
}

/// Whether a shell takes this name for one file of the folder at hand, as it is or in quotation
/// marks.
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

/// What a file may be called.
pub(super) const NAME: Pattern = Pattern {
    told: "a file's name of letters, digits, '.', '_', '-', '+' and spaces",
    wanted: "a file's name of letters, digits, '.', '_', '-', '+' and spaces",
    fits: is_name,
};
/// Where files are to be had.
pub(super) const URL: Pattern = Pattern {
    told: "an address like https://example.org/corpus.tokens",
    wanted: "an address like https://example.org/corpus.tokens",
    fits: is_url,
};
const NAME_LETTERS_MAX: usize = 100;
const URL_BYTES_MAX: usize = 500;
