//! What a node is told once and goes on with: where its run is entered, its data, its limits. The file `node.toml`
//! in the run's folder keeps it, for a person to read and to edit. What is typed at a start wins, and takes the
//! place of what was kept.
//!
//! Nothing in the file can keep a node from starting. What makes no sense is left out, told in a sentence that
//! names the file, and left where it is until a start is typed that replaces it.

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

/// What is kept from one start to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Where the run is entered, each with the peer that must answer.
    pub(crate) bootstrap: Vec<Address>,
    /// The run's files of data, or folders that hold them.
    pub(crate) data: Vec<PathBuf>,
    /// Limit on all bulk that this node sends, in bytes a second; 0 is none.
    pub(crate) rate: Option<u64>,
    /// Threads that compute, at most four for each core.
    pub(crate) threads: Option<NonZeroUsize>,
    /// Where to listen.
    pub(crate) listen: Vec<Address>,
}

impl Options {
    /// These, and what `kept` says of what they do not say.
    #[must_use]
    pub(crate) fn or(&self, kept: &Self) -> Self {
        let list = |mine: &Vec<Address>, kept: &Vec<Address>| {
            if mine.is_empty() { kept.clone() } else { mine.clone() }
        };
        Self {
            bootstrap: list(&self.bootstrap, &kept.bootstrap),
            data: if self.data.is_empty() { kept.data.clone() } else { self.data.clone() },
            rate: self.rate.or(kept.rate),
            threads: self.threads.or(kept.threads),
            listen: list(&self.listen, &kept.listen),
        }
    }

    /// Where to listen: on any free port, unless it is said.
    pub(crate) fn listen(&self) -> Vec<Address> {
        if self.listen.is_empty() {
            return LISTEN_DEFAULT.iter().filter_map(|text| text.parse().ok()).collect();
        }
        self.listen.clone()
    }

    /// Threads that compute: as many as there are cores, unless it is said.
    pub(crate) fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(super::cores)
    }

    /// What is said of each key, as the file has it. A path that is no text is not kept.
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

    /// Takes what the file says of `key`.
    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        match key {
            "bootstrap" => self.bootstrap = addresses(value, address::parse_entry)?,
            "listen" => self.listen = addresses(value, address::parse_listen)?,
            "data" => self.data = texts(value)?.into_iter().map(PathBuf::from).collect(),
            "rate" => {
                let rate = value.as_integer().and_then(|rate| u64::try_from(rate).ok());
                self.rate =
                    Some(rate.ok_or("a number of bytes a second is wanted, 0 for no limit")?);
            }
            "threads" => {
                let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
                let number = number.and_then(NonZeroUsize::new).ok_or("1 or more are wanted")?;
                self.threads = Some(threads(number).map_err(|error| told(&error))?);
            }
            _ => return Err(format!("nobody knows this key; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }
}

/// What a file said, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// What can be used of it.
    pub(crate) options: Options,
    /// A sentence for each thing that cannot.
    pub(crate) ignored: Vec<String>,
    /// All that it says, also what this program does not know.
    table: Table,
    /// Whether nothing of it could be read.
    spoilt: bool,
}

impl Kept {
    /// Reads the file of the run in `folder`; none says nothing.
    pub(crate) fn read(folder: &Path) -> Self {
        let path = folder.join(store::OPTIONS);
        let spoilt = |why: String| Self {
            ignored: vec![format!(
                "ignored: {} {why}: mend or delete it; until then only what is typed counts",
                path.display()
            )],
            spoilt: true,
            ..Self::default()
        };
        let text = match store::options(folder) {
            Ok(Some(bytes)) if bytes.len() > store::OPTIONS_BYTES_MAX => {
                let most = figures::bytes(store::OPTIONS_BYTES_MAX as u64);
                return spoilt(format!("is longer than {most}"));
            }
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(None) => return Self::default(),
            Err(error) => return spoilt(format!("cannot be read ({error})")),
        };
        match text.parse::<Table>() {
            Ok(table) => Self::of(table, &path),
            Err(error) => {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = 1 + before.unwrap_or_default().matches('\n').count();
                spoilt(format!("is no TOML (line {line}: {})", error.message()))
            }
        }
    }

    fn of(table: Table, path: &Path) -> Self {
        let mut kept = Self::default();
        for (key, value) in &table {
            if let Err(why) = kept.options.take(key, value) {
                let path = path.display();
                kept.ignored.push(format!("ignored: {key} in {path}: {why}; mend it there"));
            }
        }
        Self { table, ..kept }
    }

    /// Keeps what was typed, each key in the place of what the file said of it. A file of which nothing could be
    /// read is set aside first.
    pub(crate) fn keep(&self, typed: &Options, store: &store::Store) -> Result<(), StoreError> {
        let mut table = self.table.clone();
        table.extend(typed.table());
        if table == self.table {
            return Ok(());
        }
        if self.spoilt {
            store.set_aside(&store.options_path())?;
        }
        store.save_options(&format!("{HEADER}\n{table}"))
    }
}

/// One text, or several.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let one = value.as_str().map(|text| vec![text.to_owned()]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let many = || value.as_array()?.iter().map(text).collect();
    one.or_else(many).ok_or_else(|| "a list of texts is wanted, as in [\"…\", \"…\"]".to_owned())
}

fn addresses(
    value: &Value,
    parse: fn(&str) -> Result<Address, address::AddressError>,
) -> Result<Vec<Address>, String> {
    texts(value)?.iter().map(|text| parse(text).map_err(|error| error.to_string())).collect()
}

/// What is wrong, without the flag, which nobody has typed.
fn told(error: &LocalError) -> String {
    let text = error.to_string();
    text.split_once(": ").map(|(_, why)| why.to_owned()).unwrap_or(text)
}

/// In the order of [`Options::table`].
const KEYS: [&str; 5] = ["bootstrap", "data", "listen", "rate", "threads"];

/// What a person reads first.
const HEADER: &str = "\
# How this machine takes part in the run of this folder: what was typed last of --bootstrap, --data,
# --listen, --rate and --threads. Edit it as you like; an option that is typed takes the place of its line
# here, and such a start writes the file anew, without your comments.
";

#[cfg(test)]
mod tests;
