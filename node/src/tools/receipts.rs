//! `receipts …`: what a peer has done for a run, in a file that anybody can check without a
//! network.
//!
//! A receipt says whose work an epoch took, and a quorum of the voters has signed it. The receipt
//! before it names these voters. So a file has both for each epoch that names the peer (`file`),
//! and `proof` checks them by the rules of the protocol. Anybody can let voters of their own sign,
//! in a run that nobody else has seen. Therefore a file is compared with a chain of the run, from a
//! source that the reader trusts (`chain`).
//!
//! An export reads a folder and needs a key, only to sign the file: so a reader knows who made it,
//! and that nobody changed it. A check reads the file once, front to back, with one item in memory
//! at a time, and believes nothing before its end. What it cannot prove it says in lines of their
//! own: that the run is the real one, and that the work was honest.

mod chain;
mod file;
mod proof;
mod wrong;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    num::NonZeroU64,
    path::{Path, PathBuf},
};

use intellect_bootstrap::manifest::read_notices;
use intellect_protocol::{
    base::id::{PeerId, RunId},
    message::{Attestation, Head, Link, Notice, wire},
};

use crate::{
    cli::receipts::{ReceiptsCommand, ReceiptsExportArgs, RunFolderArgs},
    config::{self, LocalError},
    figures::{bytes, number_of},
    identity::{self, Identity, IdentityError},
    manifest::{LoadError, Manifest},
    name::PeerName,
    os::{PathError, cannot},
    store::links,
    tools::stored::{self, StoredError},
};
use chain::{Broken, Chain};
use file::{Cover, Item, Reader, Writer};
use proof::{Deeds, Proof};
use wrong::Wrong;

/// Why one of these commands failed. No file is left half written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiptsError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The folder has no run that fits.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The manifest of that run cannot be used.
    #[error(transparent)]
    Manifest(#[from] LoadError),
    /// The folder's key cannot be read, so nothing can be signed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The folder has no committed epoch yet. A node writes the first receipt with the first
    /// committed epoch.
    #[error("{} holds no receipt yet: wait for the first committed epoch", folder.display())]
    NoReceipt {
        /// The folder of the run, where they would be.
        folder: PathBuf,
    },
    /// The peer has taken part in no epoch that was asked for.
    #[error(
        "no receipt in {} names {peer}: name another peer with --peer, or an earlier epoch with --since",
        folder.display()
    )]
    Unnamed {
        /// The folder of the run, where they would be.
        folder: PathBuf,
        peer: PeerName,
    },
    /// What was typed is no whole name, and no name in the receipts ends in it.
    #[error(
        "no receipt in {} names a peer whose name ends in {text}: give the last letters as `status` shows them, or \
         the whole name",
        folder.display()
    )]
    Unknown {
        /// The folder of the run, where they would be.
        folder: PathBuf,
        text: String,
    },
    /// What was typed is the end of several names.
    #[error("the names of several peers end in {text}, as {} and {}: give more letters", names[0], names[1])]
    Ambiguous { text: String, names: [PeerName; 2] },
    /// An existing file is never overwritten: it may be older than what the folder still has.
    #[error(
        "{} exists and is not overwritten: name another file with --out, or move it away", path.display()
    )]
    Exists { path: PathBuf },
    /// The new file would be longer than one may be. It was removed again.
    #[error(
        "the receipts of {peer} take more than {}: leave out old epochs with --since",
        bytes(file::BYTES_MAX)
    )]
    TooMany { peer: PeerName },
    /// The file is something else, or far too long.
    #[error("{} has {}, and a file of receipts at most {}: name another file", path.display(), bytes(*length), bytes(file::BYTES_MAX))]
    TooLong {
        path: PathBuf,
        /// The length of the file in bytes.
        length: u64,
    },
    /// The name is that of a folder or of a device. Such a file could have no end.
    #[error("{} is no plain file: name a file of receipts", path.display())]
    NoFile { path: PathBuf },
    /// The file of receipts is wrong, or does not stand in the chain.
    #[error("{} proves nothing: {why}", path.display())]
    Wrong {
        path: PathBuf,
        /// What is wrong with that file.
        why: Box<Wrong>,
    },
    /// The file behind `--chain` is no chain.
    #[error("{} {why}: name a file that `intellect-node receipts chain` wrote", path.display())]
    NoChain { path: PathBuf, why: Broken },
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Runs a subcommand of `receipts`.
pub(crate) fn run(command: &ReceiptsCommand, out: &mut dyn Write) -> Result<(), ReceiptsError> {
    match command {
        ReceiptsCommand::Export(args) => export(args, out),
        ReceiptsCommand::Verify { file, chain } => verify(file, chain.as_deref(), out),
        ReceiptsCommand::Chain { of, out: path } => chain(of, path.as_deref(), out),
    }
}

/// The committed epochs of a run in a data folder. All of its lineage is in memory. Its node may be
/// running, for the log is only read.
struct Kept {
    /// The data folder, which has the key that signs.
    data_dir: PathBuf,
    /// The folder of the run in it.
    folder: PathBuf,
    manifest: Manifest,
    /// The committed epochs of the lineage, in order.
    lineage: Vec<(Head, Link)>,
}

impl Kept {
    /// Reads the folder that was typed. An empty lineage is an error. The manifest is verified,
    /// since the file will have it.
    fn read(args: &RunFolderArgs) -> Result<Self, ReceiptsError> {
        let data_dir = args.data_dir.clone().map_or_else(config::data_dir, Ok)?;
        let folder = stored::run_folder(data_dir.clone(), args.run.as_deref())?;
        let manifest = Manifest::load(&folder.join("run.toml"))?;
        let lineage = links::lineage(&folder).map_err(cannot("read the receipts in", &folder))?;
        if lineage.is_empty() {
            return Err(ReceiptsError::NoReceipt { folder });
        }
        Ok(Self { data_dir, folder, manifest, lineage })
    }

    /// What the receipts from epoch `since` on say of a peer. It decides which epochs go into the
    /// file.
    fn deeds(&self, peer: &PeerId, since: u64) -> Deeds {
        let mut deeds = Deeds::default();
        for (_, Link { receipt, .. }) in &self.lineage {
            if receipt.series.epoch >= since {
                deeds.add(receipt, peer);
            }
        }
        deeds
    }

    /// The peer that was typed: by its whole name, by its key, or by the last letters of a name in the receipts.
    fn peer(&self, text: &str) -> Result<PeerId, ReceiptsError> {
        if let Ok(peer) = config::parse_peer("peer", text) {
            return Ok(peer);
        }
        let all: BTreeSet<PeerId> =
            self.lineage.iter().flat_map(|(_, link)| proof::named(&link.receipt)).collect();
        let ends = |peer: &PeerId| PeerName::from(*peer).as_str().ends_with(text);
        let found: Vec<PeerId> = all.into_iter().filter(ends).collect();
        let text = text.to_owned();
        match found.as_slice() {
            [peer] => Ok(*peer),
            [] => Err(ReceiptsError::Unknown { folder: self.folder.clone(), text }),
            [one, other, ..] => {
                let names = [one, other].map(|peer| PeerName::from(*peer));
                Err(ReceiptsError::Ambiguous { text, names })
            }
        }
    }

    /// The newest attestation of the organiser that this lineage lies on. A reader who has a chain
    /// learns from it that this epoch of the chain is the run's.
    fn attestation(&self) -> Result<Option<Notice>, ReceiptsError> {
        let path = self.folder.join("notices");
        let kept = read_notices(&path).map_err(cannot("read", &path))?;
        let (run, organiser) = (&self.manifest.id, &self.manifest.run.organiser);
        let lies_here = |notice: &Notice| {
            notice.attests().is_some_and(|attested| lies_on(attested, &self.lineage, run))
        };
        let notices = kept.iter().filter_map(|bytes| Notice::from_bytes(bytes));
        let signed = notices.filter(|notice| notice.verify(organiser, run).is_ok());
        Ok(signed.filter(lies_here).max_by_key(|notice| notice.number))
    }
}

/// Whether a lineage has the epoch that is attested, with the same receipt and state.
pub(super) fn lies_on(attested: &Attestation, lineage: &[(Head, Link)], run: &RunId) -> bool {
    let found = lineage.iter().find(|(head, _)| head.epoch == attested.epoch);
    found.is_some_and(|(head, link)| {
        attested.names(&wire::receipt_digest(run, &link.receipt), &head.state)
    })
}

/// `receipts export`: writes a file of receipts. The key of the folder signs, also if the receipts
/// are of another peer: the signature says who made the file and nothing about the work.
fn export(args: &ReceiptsExportArgs, out: &mut dyn Write) -> Result<(), ReceiptsError> {
    let kept = Kept::read(&args.of)?;
    let peer = args.peer.as_ref().map(|text| kept.peer(text)).transpose()?;
    let identity = Identity::load(&kept.data_dir.join(identity::FILE_NAME))?;
    let (exporter, run) = (identity.peer(), kept.manifest.id);
    let cover = Cover { peer: peer.unwrap_or(exporter), exporter };
    let name = PeerName::from(cover.peer);
    let deeds = kept.deeds(&cover.peer, args.since.map_or(0, NonZeroU64::get));
    if deeds.epochs.is_empty() {
        return Err(ReceiptsError::Unnamed { folder: kept.folder, peer: name });
    }
    let usual = || PathBuf::from(format!("{run}-{}.receipts", name.short()));
    let path = args.out.clone().unwrap_or_else(usual);
    let attestation = kept.attestation()?.map(Item::Notice);
    let length = write_new(&path, |file| {
        let mut writer = Writer::new(file, &kept.manifest.text, &cover)?;
        let items = kept.lineage.iter().filter_map(|(_, link)| item(link, &deeds.epochs));
        attestation.into_iter().chain(items).try_for_each(|item| writer.put(&item))?;
        writer.sign(&identity.keypair(), &run)
    })?;
    if length > file::BYTES_MAX {
        fs::remove_file(&path).map_err(cannot("remove", &path))?;
        return Err(ReceiptsError::TooMany { peer: name });
    }
    let path = path.display();
    writeln!(out, "wrote {path}: {} {name}, for {}", deeds.span(), deeds.work())?;
    writeln!(out, "anybody can check it: intellect-node receipts verify {path}")?;
    Ok(())
}

/// The part of an epoch that a file needs: all of it if it is one of `epochs`, its receipt if the
/// next one names its voters by it or if it changes the ledger, or nothing. Behind the last epoch
/// of the peer nothing is needed.
fn item(link: &Link, epochs: &BTreeSet<u64>) -> Option<Item> {
    let epoch = link.receipt.series.epoch;
    let goes_on = epochs.last().is_some_and(|last| epoch < *last);
    if epochs.contains(&epoch) {
        Some(Item::Link(Box::new(link.clone())))
    } else if epochs.contains(&(epoch + 1)) || (goes_on && link.receipt.trust.is_some()) {
        Some(Item::Receipt(link.receipt.clone()))
    } else {
        None
    }
}

/// `receipts verify`: checks a file of receipts.
///
/// # Errors
/// [`ReceiptsError::Wrong`] with the first mistake; nothing has been printed then.
fn verify(path: &Path, chain: Option<&Path>, out: &mut dyn Write) -> Result<(), ReceiptsError> {
    let chain = chain.map(open_chain).transpose()?;
    let file = open(path)?;
    let wrong = |why: Wrong| ReceiptsError::Wrong { path: path.to_owned(), why: Box::new(why) };
    let mut reader = Reader::new(BufReader::new(file));
    let (text, cover) = reader.head().map_err(wrong)?;
    let manifest = Manifest::parse(&text).map_err(|why| wrong(why.into()))?;
    let mut proof = Proof::new(&manifest, cover.peer, chain.as_ref()).map_err(wrong)?;
    while let Some(item) = reader.item().map_err(wrong)? {
        proof.take(item).map_err(wrong)?;
    }
    reader.end(&cover.exporter, &manifest.id).map_err(wrong)?;
    let deeds = proof.end().map_err(wrong)?;
    told(&manifest, &cover, &deeds, chain.as_ref(), out)?;
    Ok(())
}

/// Says what a file proves, and what it does not.
fn told(
    manifest: &Manifest,
    cover: &Cover,
    deeds: &Deeds,
    chain: Option<&Chain>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let exporter = PeerName::from(cover.exporter);
    let by = if cover.exporter == cover.peer { "the peer itself" } else { exporter.as_str() };
    writeln!(out, "run         {} ({})", manifest.id.hex(), manifest.run.name)?;
    writeln!(out, "organiser   {}", manifest.run.organiser.hex())?;
    writeln!(out, "peer        {}", PeerName::from(cover.peer))?;
    writeln!(out, "made by     {by}, whose signature covers the whole file")?;
    writeln!(out, "proved      {} it, each signed by a quorum of its voters", deeds.span())?;
    writeln!(out, "work        {}", deeds.work())?;
    let stands = "every receipt stands in";
    match chain {
        Some(chain) => writeln!(out, "chain       {stands} {chain}, of {}", chain.span()),
        None => writeln!(out, "chain       none was named: --chain compares the receipts with one"),
    }?;
    if let Some((number, attested)) = deeds.attested {
        let state = attested.state;
        writeln!(
            out,
            "attested    by the organiser: state {state} after epoch {}, in notice {number}",
            attested.epoch
        )?;
    }
    let unproved = match (chain, deeds.is_anchored) {
        (None, _) => {
            "that these epochs are the run's: anybody can make voters and let them sign; compare it with the \
             chain of a node that you trust"
        }
        (Some(_), false) => {
            "that the chain is the run's: nobody signs a chain, so it is worth as much as the node that you have \
             it from"
        }
        (Some(_), true) => {
            "the epochs of the chain other than the attested one: nobody signs them, so they are worth as much as \
             the node that you have them from"
        }
    };
    writeln!(out, "not proved  {unproved}")?;
    writeln!(
        out,
        "not proved  that the tokens were trained honestly: voters count them, and repeat no training"
    )?;
    writeln!(out, "not proved  who the person is: only that this key took part")
}

/// `receipts chain`: writes the chain of a run.
fn chain(
    of: &RunFolderArgs,
    typed: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), ReceiptsError> {
    let kept = Kept::read(of)?;
    let run = kept.manifest.id;
    let path = typed.map_or_else(|| format!("{run}.chain").into(), Path::to_path_buf);
    write_new(&path, |file| chain::write(file, &run, &kept.lineage))?;
    let epochs = number_of(kept.lineage.len() as u64, "epoch");
    writeln!(out, "wrote {}: {epochs} of run {run}", path.display())?;
    Ok(())
}

/// Writes a new file, and returns its length. After an error there is none. It is flushed to the
/// disk before its name is printed.
fn write_new(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<u64>,
) -> Result<u64, ReceiptsError> {
    let file = match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(ReceiptsError::Exists { path: path.to_owned() });
        }
        made => made.map_err(cannot("write", path))?,
    };
    let mut file = BufWriter::new(file);
    let written = write(&mut file).and_then(|length| {
        file.flush()?;
        file.get_ref().sync_all()?;
        Ok(length)
    });
    if written.is_err() {
        // It is ours, and half written; the error of the writing is the one that matters.
        let _ = fs::remove_file(path);
    }
    Ok(written.map_err(cannot("write", path))?)
}

/// Opens the file behind `--chain`.
fn open_chain(path: &Path) -> Result<Chain, ReceiptsError> {
    let opened = Chain::open(path, open(path)?).map_err(cannot("read", path))?;
    opened.map_err(|why| ReceiptsError::NoChain { path: path.to_owned(), why })
}

/// Opens a plain file that is not longer than one may be.
fn open(path: &Path) -> Result<File, ReceiptsError> {
    // To open a pipe would wait for its writer.
    let about = fs::metadata(path).map_err(cannot("read", path))?;
    if !about.is_file() {
        return Err(ReceiptsError::NoFile { path: path.to_owned() });
    }
    if about.len() > file::BYTES_MAX {
        return Err(ReceiptsError::TooLong { path: path.to_owned(), length: about.len() });
    }
    Ok(File::open(path).map_err(cannot("read", path))?)
}

#[cfg(test)]
pub(super) mod tests;
