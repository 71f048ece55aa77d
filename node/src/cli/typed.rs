//! The words of a command line, before `clap` reads them.
//!
//! An address without an option before it is meant as an entry point. A negative number is a value and not an option,
//! so that the option before it can say which numbers it takes.

use std::{env, ffi::OsString};

use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;

/// Reads the command line of this process. A wrong one, like `--help`, ends the process.
pub(crate) fn parse() -> Cli {
    read(env::args_os()).unwrap_or_else(|error| error.exit())
}

fn read(words: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(with_entries_named(words))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The same command, in which each option takes a negative number as its value.
fn with_negative_numbers(command: Command) -> Command {
    let takes_value = |arg: &clap::Arg| arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// The same words, with `--bootstrap` before each address that belongs to no option. Only `run` is read so: a path may
/// look like an address elsewhere.
fn with_entries_named(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
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
