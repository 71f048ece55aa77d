//! Options that one start stores for the next: entry points, data, limits. They are in the file `node.toml` of the run's
//! folder, which a person may read and edit. An option that is typed replaces the stored one.
//!
//! Nothing in the file can stop a node from starting. An entry that makes no sense is ignored, reported in a sentence
//! that names the file, and left in place until a typed option replaces it.
//!
//! Only what concerns this machine for good is stored. What is for one start (a device, an invite,
//! a page, `--epochs`) is not, so that a node does not end or show something because of a flag of
//! last month.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use super::{Address, LISTEN_DEFAULT, LocalError, address, threads};
use crate::{
    figures,
    store::{self, StoreError},
};

/// The options that are stored from one start to the next.
/// Each field is empty or `None` where nothing was typed or stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Entry points of the run, each with the peer that must answer.
    pub(crate) bootstrap: Vec<Address>,
    /// The run's data files, or folders that hold them.
    /// They are stored as absolute paths, since the next start may come from another folder.
    pub(crate) data: Vec<PathBuf>,
    /// Limit on all bulk that this node sends, in bytes a second; 0 for none.
    /// Votes and heartbeats are not limited. A low limit makes the others wait for this node's
    /// updates in every epoch.
    pub(crate) rate: Option<u64>,
    /// Threads that compute, at most four for each core.
    pub(crate) threads: Option<NonZeroUsize>,
    /// Addresses to listen at. Empty means the default, a free port of every interface.
    pub(crate) listen: Vec<Address>,
}

impl Options {
    /// These options, with those of `kept` where these have none.
    #[must_use]
    pub(crate) fn or(&self, stored: &Self) -> Self {
        let list = |mine: &Vec<Address>, stored: &Vec<Address>| {
            if mine.is_empty() { stored.clone() } else { mine.clone() }
        };
        Self {
            bootstrap: list(&self.bootstrap, &stored.bootstrap),
            data: if self.data.is_empty() { stored.data.clone() } else { self.data.clone() },
            rate: self.rate.or(stored.rate),
            threads: self.threads.or(stored.threads),
            listen: list(&self.listen, &stored.listen),
        }
    }

    /// Addresses to listen at; without any, a free port of every interface.
    pub(crate) fn listen(&self) -> Vec<Address> {
        if self.listen.is_empty() {
            return LISTEN_DEFAULT.iter().filter_map(|text| text.parse().ok()).collect();
        }
        self.listen.clone()
    }

    /// Threads that compute; as many as cores if nothing is set.
    pub(crate) fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(super::cores)
    }

    /// The options as keys of the file. A path that is not UTF-8 is not stored.
    /// A key without a value is left out, so that it removes no entry of the file.
    fn table(&self) -> Table {
        let list = |all: Vec<String>| (!all.is_empty()).then(|| Value::from(all));
        let addresses = |all: &[Address]| list(all.iter().map(ToString::to_string).collect());
        let absolute = |path: &PathBuf| Some(std::path::absolute(path).ok()?.to_str()?.to_owned());
        let data: Option<Vec<String>> = self.data.iter().map(absolute).collect();
        let number = |number: u64| i64::try_from(number).ok().map(Value::from);
        let values = [
            addresses(&self.bootstrap),
            data.and_then(list),
            addresses(&self.listen),
            self.rate.and_then(number),
            self.threads.and_then(|threads| number(threads.get() as u64)),
        ];
        let named = KEYS.into_iter().zip(values);
        named.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    /// Sets the option `key` to the value in the file.
    /// The error is a clause for people, which says what to write in its stead; the option stays as
    /// it was.
    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            "bootstrap" => self.bootstrap = addresses(value, address::parse_entry)?,
            "listen" => self.listen = addresses(value, address::parse_listen)?,
            "data" => self.data = texts(value)?.into_iter().map(PathBuf::from).collect(),
            "rate" => {
                let rate = value.as_integer().and_then(|rate| u64::try_from(rate).ok());
                self.rate = Some(rate.ok_or("give a number of bytes a second, or 0 for no limit")?);
            }
            "threads" => {
                let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
                let number = number.and_then(NonZeroUsize::new).ok_or("give 1 or more")?;
                self.threads = Some(threads(number).map_err(|error| without_flag(&error))?);
            }
            _ => return Err(format!("there is no such option; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }
}

/// The contents of a file of options, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredOptions {
    /// The options in it that can be used.
    pub(crate) options: Options,
    /// A sentence for each entry that cannot be used.
    pub(crate) ignored: Vec<String>,
    /// All entries, including those that this program does not know.
    table: Table,
    /// Whether the file could not be read at all.
    unreadable: bool,
}

impl StoredOptions {
    /// Reads the file of the run in `folder`; a missing file is an empty one.
    ///
    /// A file that is not readable, not TOML, or longer than [`store::OPTIONS_BYTES_MAX`] counts
    /// for nothing, and the one sentence in `ignored` says so.
    pub(crate) fn read(folder: &Path) -> Self {
        let path = folder.join(store::OPTIONS);
        let unreadable = |why: String| Self {
            ignored: vec![format!(
                "ignored: {} {why}: repair or delete it; until then only typed options count",
                path.display()
            )],
            unreadable: true,
            ..Self::default()
        };
        let text = match store::options(folder) {
            Ok(Some(bytes)) if bytes.len() > store::OPTIONS_BYTES_MAX => {
                let most = figures::bytes(store::OPTIONS_BYTES_MAX as u64);
                return unreadable(format!("is longer than {most}"));
            }
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(None) => return Self::default(),
            Err(error) => return unreadable(format!("cannot be read ({error})")),
        };
        match text.parse::<Table>() {
            Ok(table) => Self::of(table, &path),
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = 1 + before.unwrap_or_default().matches('\n').count();
                unreadable(format!("is not TOML (line {line}: {})", error.message()))
            }
        }
    }

    /// Reads every entry. One that is wrong is reported and skipped; the others count.
    fn of(table: Table, path: &Path) -> Self {
        let mut stored = Self::default();
        for (key, value) in &table {
            if let Err(why) = stored.options.take(key, value) {
                let path = path.display();
                stored.ignored.push(format!("ignored: {key} in {path}: {why}; correct it there"));
            }
        }
        Self { table, ..stored }
    }

    /// Stores what was typed in the place of the file's entries. A file that could not be read is set aside
    /// first.
    ///
    /// Entries that this program does not know stay in it, as those of a newer program. Where
    /// nothing changes nothing is written, so comments of a person survive most starts.
    pub(crate) fn save(&self, typed: &Options, store: &store::Store) -> Result<(), StoreError> {
        let mut table = self.table.clone();
        table.extend(typed.table());
        if table == self.table {
            return Ok(());
        }
        if self.unreadable {
            store.set_aside(&store.options_path())?;
        }
        store.save_options(&format!("{HEADER}\n{table}"))
    }
}

/// The value as a list of texts; a single text is a list of one.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let one = value.as_str().map(|text| vec![text.to_owned()]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let many = || value.as_array()?.iter().map(text).collect();
    one.or_else(many).ok_or_else(|| "give a list of texts, as in [\"…\", \"…\"]".to_owned())
}

/// The addresses in a list. One wrong address makes the whole entry wrong, so that no half of a
/// list is used.
fn addresses(
    value: &Value,
    parse: fn(&str) -> Result<Address, address::AddressError>,
) -> Result<Vec<Address>, String> {
    texts(value)?.iter().map(|text| parse(text).map_err(|error| error.to_string())).collect()
}

/// The error without the name of the flag, which was not typed.
fn without_flag(error: &LocalError) -> String {
    let text = error.to_string();
    text.split_once(": ").map(|(_, why)| why.to_owned()).unwrap_or(text)
}

/// The keys of the file, in the order of [`Options::table`].
const KEYS: [&str; 5] = ["bootstrap", "data", "listen", "rate", "threads"];

/// The comment at the head of the file.
const HEADER: &str = "\
# How this machine takes part in the run of this folder: what was typed last of --bootstrap, --data,
# --listen, --rate and --threads. Edit it as you like; an option that is typed takes the place of its line
# here, and such a start writes the file anew, without your comments.
";

#[cfg(test)]
mod tests;
