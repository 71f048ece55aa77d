//! The bytes of a file of receipts (FORMATS.md): head, items, signature.
//!
//! A stranger may have written the file. So every length is compared with a limit before bytes are
//! read, one item is in memory at a time, and nothing of the head counts before the signature at
//! the end was checked.

use std::io::{self, Read, Write};

use intellect_protocol::{
    base::{
        id::{PeerId, RunId},
        sign::{self, Keypair, Signature},
    },
    manifest::TEXT_BYTES_MAX,
    message::{Link, Notice, Receipt, wire},
};
use serde::{Deserialize, Serialize};

use super::wrong::Wrong;

/// What a file says of its own origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    /// The peer that the receipts name.
    pub(super) peer: PeerId,
    /// The peer that made the file and signed it.
    pub(super) exporter: PeerId,
}

/// One part of a file, in the order of their epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Item {
    /// A receipt that need not name the peer: it names the voters of the next epoch, or changes the
    /// ledger.
    Receipt(Receipt),
    /// An epoch that names the peer, with what proves it.
    Link(Box<Link>),
    /// An attestation of the organiser; it stands before all epochs.
    Notice(Notice),
}

/// Writes a file, and hashes what it writes. Nothing of it stays in memory.
pub(super) struct Writer<W> {
    to: W,
    /// The hash of all that was written, for the signature.
    hasher: blake3::Hasher,
    /// The bytes that were written so far.
    length: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file with the text of the run's manifest.
    pub(super) fn new(to: W, manifest: &str, cover: &Cover) -> io::Result<Self> {
        let mut writer = Self { to, hasher: blake3::Hasher::new(), length: 0 };
        writer.write(&MAGIC)?;
        writer.write_part(manifest.as_bytes())?;
        writer.write(cover.peer.as_bytes())?;
        writer.write(cover.exporter.as_bytes())?;
        Ok(writer)
    }

    /// Adds the next item, in the order of epochs.
    pub(super) fn put(&mut self, item: &Item) -> io::Result<()> {
        self.write_part(&wire::canonical(item))
    }

    /// Ends the file with the exporter's signature, and returns its length. An empty part marks the
    /// end of the items. The caller compares the length with [`BYTES_MAX`] and flushes the file.
    pub(super) fn sign(mut self, key: &Keypair, run: &RunId) -> io::Result<u64> {
        self.write_part(&[])?;
        let signature = key.sign(TAG, run, self.hasher.finalize().as_bytes());
        self.write(&signature.0)?;
        Ok(self.length)
    }

    /// Writes a length, and as many bytes.
    fn write_part(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.write(&length.to_le_bytes())?;
        self.write(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a file, and hashes what it reads. The methods are called in the order of the file:
/// [`Self::head`], [`Self::item`] until it gives `None`, [`Self::end`]. A caller that stops before
/// the end has believed bytes that nobody has signed.
pub(super) struct Reader<R> {
    from: R,
    /// The hash of all that was read, for the signature.
    hasher: blake3::Hasher,
    /// How many bytes were read so far.
    at: u64,
}

impl<R: Read> Reader<R> {
    /// A reader at the beginning of a file.
    pub(super) fn new(from: R) -> Self {
        Self { from, hasher: blake3::Hasher::new(), at: 0 }
    }

    /// Reads the head: the text of the manifest, and the cover.
    ///
    /// # Errors
    /// [`Wrong::Foreign`] and [`Wrong::Version`] by the first bytes. Of the text it is only checked
    /// here that it is text.
    pub(super) fn head(&mut self) -> Result<(String, Cover), Wrong> {
        let magic: [u8; MAGIC.len()] = self.array().map_err(|why| match why {
            Wrong::Cut => Wrong::Foreign,
            why => why,
        })?;
        let ([known @ .., _], [name @ .., version]) = (MAGIC, magic);
        if name != known {
            return Err(Wrong::Foreign);
        }
        if magic != MAGIC {
            return Err(Wrong::Version { version });
        }
        let text = String::from_utf8(self.part(TEXT_BYTES_MAX)?);
        let text = text.map_err(|_| Wrong::Senseless { at: self.at })?;
        let [peer, exporter] = [self.array()?, self.array()?].map(PeerId);
        Ok((text, Cover { peer, exporter }))
    }

    /// Reads the next item; `None` at the end of the items. A length above that of the longest
    /// record is refused before memory is taken (D1).
    pub(super) fn item(&mut self) -> Result<Option<Item>, Wrong> {
        let at = self.at;
        let bytes = self.part(wire::RECORD_BYTES_MAX)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        wire::open_record(&bytes).map(Some).ok_or(Wrong::Senseless { at })
    }

    /// Reads the signature behind the last item. It has to be the exporter's over all that was
    /// read, and the file has to end with it.
    pub(super) fn end(mut self, exporter: &PeerId, run: &RunId) -> Result<(), Wrong> {
        let digest = self.hasher.finalize();
        let signature = Signature(self.array()?);
        if self.from.read(&mut [0])? > 0 {
            return Err(Wrong::Senseless { at: self.at });
        }
        let signed = sign::verify(exporter, TAG, run, digest.as_bytes(), &signature);
        if signed { Ok(()) } else { Err(Wrong::Changed { exporter: (*exporter).into() }) }
    }

    /// Reads a length, and as many bytes, at most `most`.
    fn part(&mut self, most: usize) -> Result<Vec<u8>, Wrong> {
        let at = self.at;
        let length = usize::try_from(u32::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        if length > most {
            return Err(Wrong::Senseless { at });
        }
        // Memory is taken as bytes come, so a length that is a lie costs nothing.
        let mut bytes = Vec::new();
        (&mut self.from).take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(Wrong::Cut);
        }
        self.count(&bytes);
        Ok(bytes)
    }

    /// Reads exactly `N` bytes; fewer are a cut file.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let mut bytes = [0; N];
        match self.from.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Wrong::Cut),
            read => read?,
        }
        self.count(&bytes);
        Ok(bytes)
    }

    /// Takes bytes that were read into the hash and the offset.
    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
    }
}

/// Seven letters and the version of the format.
const MAGIC: [u8; 8] = *b"irecpts\x01";

/// What the exporter's signature is made for. No message has this tag, so a signature of a file is
/// none of a message.
const TAG: &str = "receipts";

/// The longest file: a peer's receipts of 10,000 epochs with 200 members. A longer one is refused
/// before it is read.
pub(super) const BYTES_MAX: u64 = 512 << 20;
