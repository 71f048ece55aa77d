//! An invite code as a person gives it: the code, a file that holds it, or standard input. A file keeps it off the
//! command line, which `ps` shows to everybody on the machine.
//!
//! The code itself is parsed and checked by `protocol` (`access::admit::code`). This file only
//! finds it, and says where it looked.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use intellect_protocol::access::admit::code::{Code, CodeError, PREFIX};

use crate::os::{PathError, cannot};

/// Why what was given contains no invite code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GivenError {
    /// The text, or what the file contains, is no code that can be used.
    #[error("{from}: {why}")]
    Wrong {
        /// The flag, the variable or the file.
        from: String,
        /// What is wrong with the code.
        why: CodeError,
    },
    /// The text is no code, and no file has that name.
    #[error(
        "{from}: {} is neither a file nor an invite code, which begins with {PREFIX}: paste the whole line",
        path.display()
    )]
    Neither { from: String, path: PathBuf },
    /// The file exists but cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// Reads the code from `text`: the code itself, the name of a file, or `-` for standard input. `from` names the flag or
/// variable that gave it. A file may contain the whole command line.
///
/// # Errors
/// The user's: the text is neither, the file cannot be read, or the code is cut off or changed.
/// Nothing is created, and no run is asked.
pub(crate) fn read(from: &str, text: &str) -> Result<Code, GivenError> {
    if let Some(code) = word(text) {
        return code.parse().map_err(|why| GivenError::Wrong { from: from.to_owned(), why });
    }
    let path = Path::new(if text == "-" { "/dev/stdin" } else { text });
    let mut contents = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut contents));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(GivenError::Neither { from: from.to_owned(), path: path.to_owned() })
        }
        Err(error) => Err(cannot("read the invite code in", path)(error).into()),
        Ok(_) => {
            let code = word(&contents).unwrap_or_default();
            code.parse().map_err(|why| GivenError::Wrong { from: path.display().to_string(), why })
        }
    }
}

/// The last word that may be a code.
/// The last, since a command line may have an older one before it that was replaced.
fn word(text: &str) -> Option<&str> {
    text.split_whitespace().rfind(|word| word.starts_with(PREFIX))
}

/// Far more than a code and a command line around it.
const BYTES_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use intellect_protocol::{
        access::admit::code::CodeError,
        base::{id::RunId, sign::Keypair},
        message::{Invite, Terms},
    };

    use super::*;

    fn code() -> Code {
        let seed = [3; 32];
        let terms = Terms::new(Keypair::from_seed(&seed).peer());
        Code::Bearer {
            invite: Invite::new(RunId([9; 32]), terms, &Keypair::from_seed(&seed)).into(),
            seed,
        }
    }

    #[test]
    fn a_code_is_given_itself_or_as_a_file_with_the_line() {
        let text = code().to_string();
        assert_eq!(read("--invite", &text).unwrap(), code());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bob");
        for contents in [
            text.clone(),
            format!("{text}\n"),
            format!("intellect-node --bootstrap /ip4/192.0.2.1 --invite {text}\n"),
        ] {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(read("--invite", path.to_str().unwrap()).unwrap(), code());
        }
        let why = read("--invite", &text[..text.len() - 1]).unwrap_err().to_string();
        assert!(why.starts_with("--invite: ") && why.contains("missing or wrong"), "{why}");
        std::fs::write(&path, "nothing of the kind").unwrap();
        let why = read("--invite", path.to_str().unwrap()).unwrap_err();
        assert!(matches!(why, GivenError::Wrong { why: CodeError::Prefix, .. }), "{why}");
        let why = read("INTELLECT_INVITE", "/absent").unwrap_err().to_string();
        assert!(why.contains("INTELLECT_INVITE") && why.contains("begins with ii1"), "{why}");
    }
}
