//! What an organiser says about a run's files: their names, and where they can be fetched.
//!
//! They are for convenience and prove nothing: a file from any place is taken if its digest is
//! right. But names come to a shell, to a file system and into an address, so their letters are
//! bounded here.

use std::path::PathBuf;

use intellect_table::{Error, Pattern};

use super::data::Fingerprint;
use super::digest::hex;

/// What an organiser says about the files to peers that join. Only its digest proves a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// A name for each file, in their order; empty where the manifest has no `names`.
    pub names: Vec<String>,
    /// The https address of the one file, or, with a '/' at its end, of the folder in which each file
    /// lies under its name.
    pub url: Option<String>,
}

impl Hints {
    /// The names of these files, in letters that a shell takes without quoting trouble.
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

    /// Checks the two keys of a manifest for so many files.
    ///
    /// # Errors
    /// If there is not one name for each file, or an address of several files that is no folder.
    pub(super) fn read(
        names: Option<Vec<String>>,
        url: Option<String>,
        files: usize,
    ) -> Result<Self, Error> {
        let Some(names) = names else { return Ok(Self::default()) };
        if names.len() != files {
            let value = format!("a list of {}", names.len());
            let need = format!("the run has {files} files: write a name for each");
            return Err(Error::value("data.names", value, need));
        }
        if let Some(url) = url.as_ref().filter(|url| files > 1 && !url.ends_with('/')) {
            let need = format!(
                "the run has {files} files: name the folder that holds all of them, with a '/' at its end"
            );
            return Err(Error::value("data.url", url, need));
        }
        Ok(Self { names, url })
    }

    /// The two keys as a manifest writes them.
    pub(super) fn written(&self) -> (Option<Vec<String>>, Option<String>) {
        ((!self.names.is_empty()).then(|| self.names.clone()), self.url.clone())
    }

    /// The address of file `index`, where the manifest has one.
    #[must_use]
    pub fn address(&self, index: usize) -> Option<String> {
        let (url, name) = (self.url.as_ref()?, self.names.get(index)?);
        Some(if url.ends_with('/') { format!("{url}{}", escaped(name)) } else { url.clone() })
    }

    /// Describes file `index` by its name or else its kind: "text.txt (311 688 bytes, BLAKE3 …)".
    #[must_use]
    pub fn described(&self, index: usize, kind: &str, file: Fingerprint) -> String {
        let name = self.names.get(index).cloned().unwrap_or_else(|| format!("a {kind} file"));
        format!("{name} ({} bytes, BLAKE3 {})", spaced(file.bytes), hex(&file.digest))
    }

    /// The first half of what to do about a file that is missing: where to get it.
    pub(crate) fn remedy(&self) -> String {
        match &self.url {
            Some(url) => format!("get it: {url}, then"),
            None => "get it from where its organiser says, then".to_owned(),
        }
    }
}

/// A number with a space between groups of three digits.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(" ")
}

/// A name with the escapes that an address needs.
fn escaped(name: &str) -> String {
    let letter = |byte: u8| match byte {
        _ if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(letter).collect()
}

/// Whether a shell takes this name for one file of the folder at hand, as it is or in quotation
/// marks. So it has no '/', and begins neither with '-' nor with '.'.
fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    begins && name.chars().count() <= NAME_LETTERS_MAX + 1 && name.chars().all(fits_name)
}

/// Whether a name may have this letter.
fn fits_name(letter: char) -> bool {
    letter.is_alphanumeric() || "._-+ ".contains(letter)
}

/// Whether this is an https address whose part before the path is a host, with or without a port.
/// It has no user name, and nothing that ends a quotation in a shell.
fn is_url(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"'`\\<>#".contains(&byte);
    let Some(rest) = text.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    text.len() <= URL_BYTES_MAX
        && text.bytes().all(fits)
        && host.bytes().all(in_host)
        && host.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '[')
}

/// The form of a file's name in `data.names`.
pub(super) const NAME: Pattern = Pattern {
    form: "a file's name of letters, digits, '.', '_', '-', '+' and spaces",
    fits: is_name,
};
/// The form of an address of files.
pub(super) const URL: Pattern = Pattern {
    form: "an address like https://example.org/corpus.tokens, of https and at most 500 bytes",
    fits: is_url,
};
/// Letters of a name; [`Hints::of`] may put one more in front.
const NAME_LETTERS_MAX: usize = 100;
/// The longest address, in bytes.
const URL_BYTES_MAX: usize = 500;
