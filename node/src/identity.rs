//! The identity of this node: the file `identity.key`.
//!
//! It contains the 32-byte seed of the peer's ed25519 key, and the id of the vote log by which a
//! manifest may name the peer as a founder. It is a small TOML file that only its owner may read:
//!
//! ```toml
//! seed = "…64 hex digits…"
//! log_id = "…32 hex digits…"
//! ```
//!
//! It is made on first use. The keys of simulated peers follow from the seed of the simulation, so
//! they are not secret: their files say `simulated = true`, and only `sim` accepts such a file.
//!
//! A key is written once, and a node with another key is another peer. The transport derives its
//! own key from the same seed, so the name of a node on the network is the name in rosters and
//! receipts. A copy of the file is the same peer: a node that finds another one with its key in the
//! run ends with exit code 4.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use intellect_protocol::base::{
    id::{LogId, PeerId},
    sign::Keypair,
};
use serde::Deserialize;

use crate::{
    name::PeerName,
    os::{self, LockError, PathError, cannot},
};

/// The key of one peer, and what names it as a founder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The secret seed; the transport derives its own key from it.
    pub(crate) seed: [u8; 32],
    /// The id of the first vote log in a run whose manifest names this peer with it, or that is
    /// simulated. In every other run the id is drawn for the data folder, since a key may be
    /// copied.
    pub(crate) log_id: LogId,
    /// Whether the seed is a secret. Only simulated nodes accept one that is not.
    pub(crate) origin: Origin,
}

/// Where a key comes from, and so what it may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the system's random numbers: a secret.
    Random,
    /// From the seed of a simulation: anybody can compute it.
    Simulated,
}

/// Why there is no identity. Nothing on disk has changed; if one was to be made, nothing of it is
/// left. Each message names the file, and says what its owner can do with it. No message quotes a
/// byte of the file, since that may be the seed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// Other users can read the file, and may have copied it.
    #[error(
        "{} can be read by others (mode {mode:03o}), and with it anyone can act as this peer: \
         if nobody has copied it, type `chmod 600 {}`; else delete it",
        path.display(), path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    /// The file is not in the form that this program writes.
    #[error(
        "{} is not an identity ({reason}): restore it from a copy, or delete it to become a new \
         peer",
        path.display()
    )]
    Malformed { path: PathBuf, reason: String },
    /// The file is a manifest; `--manifest` or nothing was meant. It is looked for first, since the
    /// other messages advise to delete the file or to change its mode.
    #[error(
        "{} is a manifest, not a key: name the file that `intellect-node keygen` wrote", path.display()
    )]
    Manifest { path: PathBuf },
    /// The key of a simulated peer was to be used on a real network. Anybody could sign as that
    /// peer.
    #[error(
        "{} belongs to a simulated peer, whose key anybody can compute: use another --data-dir",
        path.display()
    )]
    Simulated { path: PathBuf },
    /// The node's folder cannot be made.
    #[error("cannot create {}: choose a folder that you may write with --data-dir", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// A file of that name exists, and a key is never overwritten.
    #[error(
        "{} exists and is not overwritten: choose another name, or move it away", path.display()
    )]
    Exists { path: PathBuf },
    /// Another process uses the folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The system refused to read or write a file. A key that is missing comes as this, with
    /// `NotFound` as its source.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// A data folder that only this process uses, and the identity in it. The lock is what keeps two
/// nodes of one machine from one key and one log of votes: with both they would vote twice (S5).
#[derive(Debug)]
pub(crate) struct Home {
    /// The identity, as the file had it or as it was made.
    pub(crate) identity: Identity,
    /// The lock on the folder, for as long as the node lives.
    _lock: File,
}

impl Home {
    /// Creates `folder` if it is missing, locks it, and reads or makes the identity in it. The lock
    /// comes before the key, so two nodes that start at once cannot make two keys.
    ///
    /// # Errors
    /// [`IdentityError::Lock`] if another process has the folder; else what [`Identity::load`] and
    /// [`Identity::create`] say.
    pub(crate) fn open(folder: &Path, origin: Origin) -> Result<Self, IdentityError> {
        let unusable = |source| IdentityError::Folder { path: folder.to_owned(), source };
        os::create_folder(folder).map_err(unusable)?;
        let lock = os::lock_folder(folder)?;
        let identity = Identity::load_or_create(folder, origin)?;
        Ok(Self { identity, _lock: lock })
    }
}

/// The file, before its fields are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    /// 64 hex digits, or the file is malformed.
    seed: String,
    /// 32 hex digits, or the file is malformed.
    log_id: String,
    /// Absent in the file of a real peer.
    #[serde(default)]
    simulated: bool,
}

impl Identity {
    /// A new identity from the system's random numbers.
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Self { seed: os::random()?, log_id: LogId(os::random()?), origin: Origin::Random })
    }

    /// The identity of peer `index` in the simulation with `seed`. Equal arguments give the same
    /// peer on every machine, so a report of a simulation can be repeated with equal names.
    pub(crate) fn simulated(seed: u64, index: u64) -> Self {
        let mut material = blake3::Hasher::new_derive_key("intellect-node 1 simulated peer")
            .update(&seed.to_le_bytes())
            .update(&index.to_le_bytes())
            .finalize_xof();
        let (mut seed, mut log_id) = ([0; 32], [0; 16]);
        material.fill(&mut seed);
        material.fill(&mut log_id);
        Self { seed, log_id: LogId(log_id), origin: Origin::Simulated }
    }

    /// Reads the identity at `path`, whatever its origin. No more than [`KEY_FILE_BYTES_MAX`] bytes
    /// are read.
    ///
    /// # Errors
    /// A manifest, a file that others can read and a malformed file are recognised, in this order;
    /// see [`IdentityError`].
    pub(crate) fn load(path: &Path) -> Result<Self, IdentityError> {
        let unreadable = cannot("read", path);
        let file = File::open(path).map_err(&unreadable)?;
        // The mode of the opened file, not of the file that has the name a moment later.
        let mode = file.metadata().map_err(&unreadable)?.mode() & 0o777;
        let mut text = String::new();
        match file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => text.clear(),
            Err(error) => return Err(unreadable(error).into()),
        }
        // This comes first: no error may advise to delete a manifest, which everybody may read.
        if is_manifest(&text) {
            return Err(IdentityError::Manifest { path: path.to_owned() });
        }
        if is_exposed(mode) {
            return Err(IdentityError::Exposed { path: path.to_owned(), mode });
        }
        Self::parse(&text)
            .map_err(|reason| IdentityError::Malformed { path: path.to_owned(), reason })
    }

    /// Reads the identity of `folder`, or makes both. The folder is not locked: its node may be
    /// running. `manifest new` signs with it.
    pub(crate) fn of_folder(folder: &Path, expected: Origin) -> Result<Self, IdentityError> {
        os::create_folder(folder).map_err(cannot("create", folder))?;
        Self::load_or_create(folder, expected)
    }

    /// Reads the identity of `folder`, or makes one if there is none.
    ///
    /// `expected` is the origin that the caller can use. A simulated key is refused on a real
    /// network, but a simulation takes a real one.
    fn load_or_create(folder: &Path, expected: Origin) -> Result<Self, IdentityError> {
        let path = folder.join(FILE_NAME);
        let identity = match (Self::load(&path), expected) {
            (Err(IdentityError::Io(error)), Origin::Random)
                if error.source.kind() == io::ErrorKind::NotFound =>
            {
                let identity = Self::random().map_err(cannot("write", &path))?;
                identity.create(&path)?;
                identity
            }
            (result, _) => result?,
        };
        if identity.origin == Origin::Simulated && expected == Origin::Random {
            return Err(IdentityError::Simulated { path });
        }
        Ok(identity)
    }

    /// Writes the identity to `path`, which must not exist and which only the owner may read. It is
    /// written whole or not at all, also in a power cut.
    ///
    /// The bytes are flushed under another name first, then the file gets its own name by a link,
    /// and the folder is flushed.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if there is something at `path`, be it a link that leads nowhere.
    pub(crate) fn create(&self, path: &Path) -> Result<(), IdentityError> {
        if path.symlink_metadata().is_ok() {
            return Err(IdentityError::Exists { path: path.to_owned() });
        }
        let temporary = path.with_added_extension("tmp");
        let written = self.write(&temporary).and_then(|()| {
            // Unlike a rename, a link never replaces a file that another process has just made; but
            // not every file system has links.
            match fs::hard_link(&temporary, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    fs::rename(&temporary, path)
                }
                linked => linked,
            }
            .and_then(|()| os::sync_parent(path))
        });
        // The temporary file is ours, or left by a crash; the key has its own name, or there is
        // none.
        let _ = fs::remove_file(&temporary);
        match written {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(IdentityError::Exists { path: path.to_owned() })
            }
            other => Ok(other.map_err(cannot("write", path))?),
        }
    }

    /// Writes a file that only its owner may read, from its first byte on, and flushes it. What a
    /// crash has left under this name is removed before: its mode is not ours to trust.
    fn write(&self, path: &Path) -> io::Result<()> {
        os::unless_missing(fs::remove_file(path))?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        if is_exposed(file.metadata()?.mode()) {
            return Err(io::Error::other(EXPOSING));
        }
        file.write_all(self.to_text().as_bytes())?;
        file.sync_all()
    }

    /// The key pair that signs for this peer.
    pub(crate) fn keypair(&self) -> Keypair {
        Keypair::from_seed(&self.seed)
    }

    /// The id of this peer: its public key.
    pub(crate) fn peer(&self) -> PeerId {
        self.keypair().peer()
    }

    /// "peer/log id", as `members.founders` lists it. With the log id a founder is known before its
    /// first message: a copy of its key with another log is another voter.
    pub(crate) fn founder(&self) -> String {
        format!("{}/{}", PeerName::from(self.peer()), self.log_id.hex())
    }

    /// Whether a text is a secret key, whole or damaged: that of a node or of a bootstrap. The
    /// first has the two words of its file at the beginning of lines, the second is 64 hex digits
    /// and nothing else. It would rather take a text for a key than print or hand out a key.
    pub(crate) fn is_meant(text: &str) -> bool {
        begins(text, "log_id") && begins(text, "seed")
            || blake3::Hash::from_hex(text.trim()).is_ok()
    }

    /// Whether a file contains a secret key, as far as it can be read. Only plain files are read,
    /// since reading from a pipe would take its bytes away.
    pub(crate) fn is_in(path: &Path) -> bool {
        let about = fs::metadata(path).ok();
        let small = about.is_some_and(|about| about.is_file() && about.len() <= KEY_FILE_BYTES_MAX);
        small && fs::read_to_string(path).is_ok_and(|text| Self::is_meant(&text))
    }

    /// The identity in the text of a file. The error says which field is wrong, and quotes nothing
    /// of it.
    fn parse(text: &str) -> Result<Self, String> {
        let file: KeyFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let seed = *blake3::Hash::from_hex(&file.seed)
            .map_err(|_| "seed is not 64 hex digits")?
            .as_bytes();
        let log_id = LogId::from_hex(&file.log_id).ok_or("log_id is not 32 hex digits")?;
        let origin = if file.simulated { Origin::Simulated } else { Origin::Random };
        Ok(Self { seed, log_id, origin })
    }

    /// The text of the file. A comment at its head says what the file is good for.
    fn to_text(&self) -> String {
        let note = match self.origin {
            Origin::Random => {
                "# The identity of an intellect-node. With this file anyone can act as this peer:\n\
                 # keep a copy, and give it to nobody.\n"
            }
            Origin::Simulated => {
                "# The identity of a simulated peer, which is not secret.\nsimulated = true\n"
            }
        };
        let seed = blake3::Hash::from_bytes(self.seed).to_hex();
        let log_id = self.log_id.hex();
        format!("{note}seed = \"{seed}\"\nlog_id = \"{log_id}\"\n")
    }
}

impl std::fmt::Debug for Identity {
    /// Leaves out the seed, since this may end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("peer", &PeerName::from(self.peer()).as_str())
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Whether a text is a manifest, or the beginning of one: it has a key of a run that no key file
/// has.
fn is_manifest(text: &str) -> bool {
    begins(text, "organiser") && !begins(text, "log_id")
}

/// Whether a line of the text begins with the word.
fn begins(text: &str, word: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(word))
}

/// Whether others than the owner may do anything with a file of this mode.
fn is_exposed(mode: u32) -> bool {
    mode & 0o077 != 0
}

/// FAT and its relatives have no owners: each file has the mode of the mount, whatever was asked for.
const EXPOSING: &str = "others may read each file there, and the key must stay secret: choose a folder on another \
                        file system, or mount this one with umask=077";

/// Name of the key in a data folder. Backups and service files name it, so it never changes.
pub(crate) const FILE_NAME: &str = "identity.key";

/// A file that we write has about 300 bytes. The limit leaves room for comments of its owner, and
/// keeps a path to an endless device from filling the memory.
const KEY_FILE_BYTES_MAX: u64 = 4_096;

#[cfg(test)]
mod tests;
