//! Paths as people type them, checked where a slip would give away a secret.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::identity::Identity;

/// The file that was named as data holds a secret key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "it is a secret key, and every peer gets the data: name a text, token files, or a folder of them"
)]
struct KeyAsData;

/// Parses a file or folder of data. Since others get these files, no file that holds a key is accepted.
pub(super) fn data() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new()
        .try_map(|path| if Identity::is_in(&path) { Err(KeyAsData) } else { Ok(path) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use crate::{cli::Cli, identity::Identity};

    /// The line for contributors would name the key as a file that they need.
    #[test]
    fn a_key_is_no_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        Identity::random().unwrap().create(&folder.path().join("organiser.key")).unwrap();
        fs::write(path("bootstrap.key"), "ab".repeat(32)).unwrap();
        fs::write(path("text.txt"), "seed of the matter").unwrap();
        let typed = |verb: &[&str], file: &str| {
            let line = ["intellect-node"].into_iter().chain(verb.iter().copied());
            let line: Vec<_> = line.map(str::to_owned).chain([path(file)]).collect();
            Cli::try_parse_from(line).map(drop).map_err(|error| error.to_string())
        };
        let new = ["manifest", "new", "--out", "run.toml", "--data"];
        let verbs: [&[&str]; 5] = [
            &new,
            &["--data"],
            &["sim", "--data"],
            &["eval", "--data"],
            &["data", "tokenize", "--out", "x"],
        ];
        for verb in verbs {
            for key in ["organiser.key", "bootstrap.key"] {
                let refused = typed(verb, key).unwrap_err();
                assert!(
                    refused.contains(key) && refused.contains("it is a secret key"),
                    "{refused}"
                );
            }
            assert_eq!(typed(verb, "text.txt"), Ok(()), "{verb:?}");
            assert_eq!(typed(verb, "absent"), Ok(()), "{verb:?}: refused where it is opened");
        }
    }
}
