//! The key of an entry point, stored in its data folder. Every join line that was ever handed out
//! names the peer id, so a restart must not change it.
//!
//! The file holds the ed25519 seed: 64 hex digits and a newline. Nobody else may be able to read
//! it, because anyone who has the seed can impersonate this entry point.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use libp2p::identity::Keypair;

/// Why the key cannot be used. The owner of the machine can repair each of these.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or its folder cannot be read or written.
    #[error(
        "cannot {what} {path}: {cause}; choose a folder that you may write with --data-dir",
        path = path.display()
    )]
    Io {
        /// The failed action, a verb that precedes the path.
        what: &'static str,
        /// The file of the key, inside the data folder.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Another process has locked the file: two programs with one peer id disturb each other.
    #[error(
        "another intellect-bootstrap uses {path}: stop it, or give this one a folder of its own \
         with --data-dir",
        path = path.display()
    )]
    Held {
        /// The file of the key, inside the data folder.
        path: PathBuf,
    },
    /// The permission bits let the group or others read the file.
    #[error(
        "{path} can be read by others (mode {mode:03o}); if nobody has read it, run: chmod 600 \
         {path}; else delete it and hand out new join lines",
        path = path.display()
    )]
    Exposed {
        /// The file of the key, inside the data folder.
        path: PathBuf,
        /// The permission bits of the file, shown in octal.
        mode: u32,
    },
    /// The file does not hold 64 hex digits.
    #[error(
        "{path} is not a key (64 hex digits); restore it, or delete it and hand out new join lines",
        path = path.display()
    )]
    Malformed {
        /// The file of the key, inside the data folder.
        path: PathBuf,
    },
}

/// The key, with a lock on its file that keeps other processes out until this is dropped.
#[derive(Debug)]
pub struct Key {
    /// The key pair, from which the peer id of the entry point follows.
    pub pair: Keypair,
    _lock: File,
}

/// Reads the key in `folder`, or creates it on first use.
///
/// # Errors
/// See [`KeyError`].
pub fn load_or_create(folder: &Path) -> Result<Key, KeyError> {
    let path = folder.join("bootstrap.key");
    let failed = |what| {
        let path = path.clone();
        move |cause| KeyError::Io { what, path, cause }
    };
    fs::create_dir_all(folder).map_err(failed("create the folder of"))?;
    let (pair, file) = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)
    {
        Ok(file) => {
            let pair = create(&file).inspect_err(|_| {
                // The file is ours, and without a whole key the next start would refuse it.
                let _ = fs::remove_file(&path);
            });
            (pair.map_err(failed("write"))?, file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => load(&path)?,
        Err(error) => return Err(failed("create")(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Key { pair, _lock: file }),
        Err(TryLockError::WouldBlock) => Err(KeyError::Held { path }),
        Err(TryLockError::Error(cause)) => Err(failed("lock")(cause)),
    }
}

/// Writes a fresh key and flushes it. Only then may the peer id be handed out, or a crash could
/// leave join lines to a peer that nobody is.
fn create(mut file: &File) -> io::Result<Keypair> {
    let key = Keypair::generate_ed25519();
    let seed = key.clone().try_into_ed25519().map_err(io::Error::other)?.secret();
    let hex: String = seed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{hex}")?;
    file.sync_all()?;
    Ok(key)
}

/// Reads the key of an earlier start. The permissions are checked before the bytes, so a key that
/// others may have read is never used.
fn load(path: &Path) -> Result<(Keypair, File), KeyError> {
    let failed = |cause| KeyError::Io { what: "read", path: path.into(), cause };
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.into(), mode });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let pair = parse(&text).ok_or_else(|| KeyError::Malformed { path: path.into() })?;
    Ok((pair, file))
}

/// The key from 64 hex digits; surrounding white space is allowed, since people edit such files.
fn parse(text: &[u8]) -> Option<Keypair> {
    let hex = std::str::from_utf8(text).ok()?.trim();
    if hex.len() != 64 || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut seed = [0_u8; 32];
    for (byte, at) in seed.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Keypair::ed25519_from_bytes(seed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_survives_a_restart_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        let first = load_or_create(&inner).unwrap();
        let error = load_or_create(&inner).unwrap_err();
        assert!(matches!(error, KeyError::Held { .. }), "{error}");
        let public = first.pair.public();
        drop(first);
        assert_eq!(load_or_create(&inner).unwrap().pair.public(), public);
        let mode = fs::metadata(inner.join("bootstrap.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        load_or_create(folder.path()).unwrap();
        let path = folder.path().join("bootstrap.key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = load_or_create(folder.path()).unwrap_err().to_string();
        assert!(error.contains("mode 644") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_damaged_key_is_named() {
        let folder = tempfile::tempdir().unwrap();
        load_or_create(folder.path()).unwrap();
        let path = folder.path().join("bootstrap.key");
        for text in [&b""[..], b"12", &[0xff; 64], "é".repeat(32).as_bytes()] {
            fs::write(&path, text).unwrap();
            let error = load_or_create(folder.path()).unwrap_err();
            assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
        }
        let error = load_or_create(&path.join("under-a-file")).unwrap_err();
        assert!(matches!(error, KeyError::Io { .. }), "{error}");
    }
}
