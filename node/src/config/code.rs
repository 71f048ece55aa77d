//! An invite code as a person gives it: itself, or the file that holds it, or standard input, so that it
//! need not stand on a command line, which `ps` shows to everybody on the machine.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use intellect_protocol::access::admit::code::{Code, CodeError, PREFIX};

use crate::os::{PathError, cannot};

/// Why there is no code in what was given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GivenError {
    /// It, or what the file holds, is no code that can be used.
    #[error("{from}: {why}")]
    Wrong {
        /// The flag, the variable or the file.
        from: String,
        /// What is wrong.
        why: CodeError,
    },
    /// No such file.
    #[error(
        "{from}: {} is no file, and no invite code, which begins with {PREFIX}: paste the whole line",
        path.display()
    )]
    Neither {
        /// The flag or the variable.
        from: String,
        /// What was given.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// The code that is given as `text`: it, the name of a file, or `-` for standard input. `from` says by what it
/// was given. A file may hold the whole line of which it is a part.
pub(crate) fn read(from: &str, text: &str) -> Result<Code, GivenError> {
    if let Some(code) = word(text) {
        return code.parse().map_err(|why| GivenError::Wrong { from: from.to_owned(), why });
    }
    let path = Path::new(if text == "-" { "/dev/stdin" } else { text });
    let mut held = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut held));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(GivenError::Neither { from: from.to_owned(), path: path.to_owned() })
        }
        Err(error) => Err(cannot("read the invite code in", path)(error).into()),
        Ok(_) => {
            let code = word(&held).unwrap_or_default();
            code.parse().map_err(|why| GivenError::Wrong { from: path.display().to_string(), why })
        }
    }
}

/// The last word that may be a code.
fn word(text: &str) -> Option<&str> {
    text.split_whitespace().rfind(|word| word.starts_with(PREFIX))
}

/// Far more than a code and what may stand before it.
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
        for held in [
            text.clone(),
            format!("{text}\n"),
            format!("intellect-node --bootstrap /ip4/192.0.2.1 --invite {text}\n"),
        ] {
            std::fs::write(&path, held).unwrap();
            assert_eq!(read("--invite", path.to_str().unwrap()).unwrap(), code());
        }
        let told = read("--invite", &text[..text.len() - 1]).unwrap_err().to_string();
        assert!(told.starts_with("--invite: ") && told.contains("missing or wrong"), "{told}");
        std::fs::write(&path, "nothing of the kind").unwrap();
        let told = read("--invite", path.to_str().unwrap()).unwrap_err();
        assert!(matches!(told, GivenError::Wrong { why: CodeError::Prefix, .. }), "{told}");
        let told = read("INTELLECT_INVITE", "/absent").unwrap_err().to_string();
        assert!(told.contains("INTELLECT_INVITE") && told.contains("begins with ii1"), "{told}");
    }
}
