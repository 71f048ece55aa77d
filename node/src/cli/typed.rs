//! The words of a command line, before `clap` reads them.
//!
//! An address without an option before it is meant as an entry point. A negative number is a value and not an option,
//! so that the option before it can say which numbers it takes. A word such as `join` is no command, and the error
//! names the line that is meant.

use std::{env, ffi::OsString};

use clap::{
    Command, CommandFactory as _, FromArgMatches as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Cli, NODE};

/// Reads the command line of this process. A wrong one, like `--help`, ends the process.
pub(crate) fn parse() -> Cli {
    read(env::args_os()).unwrap_or_else(|error| error.exit())
}

fn read(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let words: Vec<OsString> = words.collect();
    let matches = command
        .try_get_matches_from_mut(with_entries_named(words.clone()))
        .map_err(|error| with_way_in(error, &words))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The same error, with the line to type where the first word is a guess at the way into a run.
fn with_way_in(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let is_guess = words.get(1).is_some_and(|word| GUESSES.iter().any(|guess| word == *guess));
    if is_guess && error.kind() == ErrorKind::InvalidSubcommand {
        let address = words.get(2).filter(|word| is_address(word)).and_then(|word| word.to_str());
        let line = format!("{NODE} --bootstrap {}", address.unwrap_or("ADDRESS"));
        let tip = format!("to take part in a run, type `{line}`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Words that other programs have for what the option `--bootstrap` does here.
const GUESSES: [&str; 6] = ["join", "connect", "enter", "start", "train", "node"];

/// The same command, in which each option takes a negative number as its value.
fn with_negative_numbers(command: Command) -> Command {
    let takes_value = |arg: &clap::Arg| arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// The same words, with `--bootstrap` before each address that belongs to no option. Only `run` is read so: a path may
/// look like an address elsewhere.
fn with_entries_named(words: Vec<OsString>) -> Vec<OsString> {
    let begins_run = |word: &OsString| is_address(word) || word == "run" || is_option(word);
    if !words.get(1).is_some_and(begins_run) {
        return words;
    }
    let (mut named, mut belongs) = (Vec::new(), false);
    for word in words {
        if !is_address(&word) {
            belongs = TAKE_ADDRESSES.iter().any(|option| word == *option);
        } else if !belongs {
            named.push("--bootstrap".into());
        }
        named.push(word);
    }
    named
}

/// The options with addresses as their values.
const TAKE_ADDRESSES: [&str; 3] = ["--bootstrap", "--listen", "--external"];

fn is_option(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.starts_with('-'))
}

fn is_address(word: &OsString) -> bool {
    const BEGINNINGS: [&str; 6] = ["/ip4/", "/ip6/", "/dns/", "/dns4/", "/dns6/", "/dnsaddr/"];
    word.to_str().is_some_and(|word| BEGINNINGS.iter().any(|begin| word.starts_with(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Cli, String> {
        let words = ["intellect-node"].into_iter().chain(line.split_whitespace());
        read(words.map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_alone_is_an_entry_point() {
        let entries = |line: &str| typed(line).unwrap().run.bootstrap;
        assert_eq!(entries("/ip4/a /dns/b"), ["/ip4/a", "/dns/b"]);
        assert_eq!(entries("--data-dir one /ip4/a --quiet"), ["/ip4/a"]);
        assert_eq!(entries("--bootstrap /ip4/a"), ["/ip4/a"]);
        let both = typed("--listen /ip4/x /ip4/y --quiet /ip4/a").unwrap().run;
        assert_eq!((both.listen.len(), both.bootstrap), (2, vec!["/ip4/a".to_owned()]));
        assert!(typed("run /ip4/a").is_ok());
        assert!(typed("keygen /ip4/a").is_err() && typed("/home/a").is_err());
    }

    #[test]
    fn a_guess_at_the_way_in_is_told_the_line() {
        for (line, told) in [
            ("join /ip4/a/tcp/1", "`intellect-node --bootstrap /ip4/a/tcp/1`"),
            ("join", "`intellect-node --bootstrap ADDRESS`"),
            ("start 5c61@host", "`intellect-node --bootstrap ADDRESS`"),
        ] {
            let error = typed(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
        assert!(!typed("manifest join").unwrap_err().contains("take part"));
        assert!(!typed("frobnicate").unwrap_err().contains("take part"));
    }

    #[test]
    fn a_negative_number_is_refused_in_the_words_of_its_option() {
        for (line, words) in [
            ("--threads -1", "1 or more"),
            ("--rate -5", "500k"),
            ("sim --seed -1", "0 or more"),
            ("sim --peers -1", "1 to 256"),
            ("sample --seed -1", "0 or more"),
        ] {
            let error = typed(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(typed("--threads --quiet").is_err());
    }
}
