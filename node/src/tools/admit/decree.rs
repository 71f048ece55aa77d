//! `invite revoke`: a decree, from what is typed to the epoch from which on it holds.
//!
//! The chain of decrees is learnt from the run; the next one is signed, kept beside the manifest, and handed
//! to members, who spread it. Where more authorities must sign, it is kept in a file for the next of them.

use std::{
    fs,
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use intellect_bootstrap::manifest::PAPER_BYTES_MAX;
use intellect_protocol::{
    admit::DecreeError,
    id::{Digest, PeerId, RunId},
    lobby::{Outcome, Paper, Reception, Visit},
    message::{Clause, Decree},
    sign::Keypair,
};

use super::{
    AdmitError,
    book::Book,
    chain::Chain,
    papers,
    visitor::{Countdown, Visitor},
};
use crate::{
    cli::admit::{DecreeArgs, RevokeArgs},
    config,
    figures::number_of,
    identity::Identity,
    manifest::Manifest,
    net::address,
    os::cannot,
};

/// What is to be decided.
enum Wish {
    /// This, by the next decree.
    Clause(Clause),
    /// What another authority has begun.
    Begun(PathBuf),
}

/// Decides what was typed, and waits until the run has it.
pub(super) fn revoke(args: &RevokeArgs, out: &mut dyn Write) -> Result<(), AdmitError> {
    let DecreeArgs { key: key_path, manifest: path, bootstrap, wait } = &args.decree;
    let (manifest, authorities) = super::invited(path)?;
    let bootstrap = config::addresses("bootstrap", bootstrap, address::parse_entry)?;
    let key = Identity::load(key_path)?.keypair();
    let wish = wish(args, key_path, manifest.id)?;
    let papers = path.with_extension("papers");
    let kept = papers::read(&papers)?;
    writeln!(out, "asking run {} for its decrees", manifest.id)?;
    out.flush()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(AdmitError::Runtime)?;
    let (start, wait) = (Instant::now(), Duration::from_secs(*wait));
    let decided = runtime.block_on(async {
        let mut visitor = Visitor::start(manifest.id, bootstrap)?;
        let (mut known, why) = visitor.papers(wait, out).await?;
        known.extend(kept);
        let (decrees, vouch) = papers::sorted(known, &manifest);
        let chain = Chain::of(decrees, &key, &manifest.id, authorities);
        if !chain.authorities.keys.contains(&key.peer()) {
            return Err(no_authority(key_path, &key, &chain, &manifest));
        }
        let next = signed(wish, &chain, &key, manifest.id)?;
        match next.verify(&key, &manifest.id, &chain.authorities) {
            Err(DecreeError::Unsigned { found, needed, .. }) => {
                return begun(next, (found, needed), path, out);
            }
            verified => verified?,
        }
        papers::write(&papers, chain.decrees.iter().chain([&next]), vouch.as_ref())?;
        writeln!(out, "decree {} is kept in {}", next.number, papers.display())?;
        let handing = Handing { decree: next, papers, why, until: start + wait };
        handing.hand_over(&mut visitor, out).await
    });
    runtime.shutdown_background();
    decided
}

/// Keeps a decree that more authorities have to sign, beside the manifest at `path`.
fn begun(
    decree: Decree,
    (found, needed): (usize, usize),
    path: &Path,
    out: &mut dyn Write,
) -> Result<(), AdmitError> {
    let number = decree.number;
    let file = path.with_extension(format!("decree-{number}"));
    papers::replace(&file, &Paper::Decree(decree).to_bytes())?;
    writeln!(out, "decree {number} is kept in {}", file.display())?;
    writeln!(
        out,
        "{found} of {needed} have signed it; the next authority types, with its own key"
    )?;
    let line = "intellect-node invite revoke --key KEY --manifest";
    writeln!(out, "{line} {} --sign {} --bootstrap …", path.display(), file.display())?;
    Ok(())
}

fn wish(args: &RevokeArgs, key: &Path, run: RunId) -> Result<Wish, AdmitError> {
    let clause = match (&args.sign, &args.peer, &args.invite) {
        (Some(file), ..) => return Ok(Wish::Begun(file.clone())),
        (None, Some(peer), _) => {
            let peer = config::parse_peer("peer", peer)?;
            match () {
                () if args.lift => Clause::Lift(peer),
                () if args.forget => Clause::Forget(peer),
                () => Clause::RevokePeer(peer),
            }
        }
        (None, None, invite) => {
            let key = invite_key(invite.as_deref().unwrap_or_default(), key, run)?;
            match () {
                () if args.lift => Clause::Lift(key),
                () => Clause::RevokeInvite { key, admitted: args.and_admitted },
            }
        }
    };
    Ok(Wish::Clause(clause))
}

/// The key of the invite that is meant: by its label in the book, or written out.
fn invite_key(label: &str, key: &Path, run: RunId) -> Result<PeerId, AdmitError> {
    let book = Book::beside(key)?;
    let noted = book.of(run).find(|entry| entry.label == label);
    let known = noted.and_then(super::book::Entry::key).or_else(|| PeerId::from_hex(label));
    known.ok_or_else(|| AdmitError::NoInvite {
        label: label.to_owned(),
        path: book.path().to_owned(),
        labels: book.of(run).map(|entry| entry.label.clone()).collect(),
    })
}

/// The decree that comes next, with our signature.
fn signed(wish: Wish, chain: &Chain, key: &Keypair, run: RunId) -> Result<Decree, AdmitError> {
    let next = match wish {
        Wish::Clause(clause) => Decree::after(run, chain.last, vec![clause]),
        Wish::Begun(path) => {
            let bytes = read_paper(&path).map_err(cannot("read", &path))?;
            let Some(Paper::Decree(begun)) = Paper::from_bytes(&bytes) else {
                return Err(AdmitError::NoDecree { path });
            };
            let number = begun.number;
            if begun.run != run {
                return Err(DecreeError::AnotherRun { run, of: begun.run }.into());
            }
            if number != chain.last.0 + 1 {
                return Err(DecreeError::Number { found: number, next: chain.last.0 + 1 }.into());
            }
            if begun.before != chain.last.1 {
                return Err(DecreeError::Before { number }.into());
            }
            begun
        }
    };
    Ok(next.signed(key))
}

/// What a file holds, and no more than the longest paper.
fn read_paper(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(PAPER_BYTES_MAX.into()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn no_authority(path: &Path, key: &Keypair, chain: &Chain, manifest: &Manifest) -> AdmitError {
    AdmitError::NoAuthority {
        path: path.to_owned(),
        key: key.peer().hex(),
        count: chain.authorities.keys.len(),
        run: manifest.id,
    }
}

/// A decree on its way into the run.
struct Handing {
    decree: Decree,
    papers: PathBuf,
    /// Why the entry points have said nothing.
    why: Option<String>,
    /// When --wait is over.
    until: Instant,
}

/// What the members say of a decree who have answered in one round, without those whom it revokes: they
/// are closed out before they can know it.
struct Round {
    answers: Vec<Reception>,
    /// The greatest epoch that any of them is at.
    epoch: u64,
}

impl Round {
    fn of(visitor: &Visitor, since: Instant, decree: &Decree) -> Self {
        let revoked = |peer: &PeerId| decree.clauses.contains(&Clause::RevokePeer(*peer));
        let others = visitor.answers_since(since).filter(|(peer, _)| !revoked(peer));
        let answers: Vec<_> = others.map(|(_, reception)| reception.clone()).collect();
        let epoch = answers.iter().map(|answer| answer.epoch).max().unwrap_or_default();
        Self { answers, epoch }
    }

    fn is_taken(&self) -> bool {
        self.answers.iter().any(|answer| answer.outcome == Outcome::Welcome)
    }

    fn refusal(&self) -> Option<String> {
        self.answers.iter().find_map(|answer| match &answer.outcome {
            Outcome::Welcome => None,
            Outcome::Refused(why) => Some(why.clone()),
        })
    }

    /// Since when it holds, once more than half say that it or a later one does.
    fn in_force(&self, number: u64, digest: Digest) -> Result<Option<String>, AdmitError> {
        let known = self.answers.iter().filter_map(|answer| answer.decree);
        let known: Vec<_> = known.filter(|last| last.number >= number).collect();
        if 2 * known.len() <= self.answers.len() {
            return Ok(None);
        }
        let ours = known.iter().find(|last| last.number == number && last.digest == digest);
        if ours.is_none() && known.iter().all(|last| last.number == number) {
            return Err(AdmitError::Overtaken { number });
        }
        let since = ours.map_or_else(
            || "in force, and so is a later one".to_owned(),
            |ours| format!("in force from epoch {}", ours.since),
        );
        Ok(Some(format!(
            "decree {number} is {since}, as {} of {} say",
            known.len(),
            self.members()
        )))
    }

    fn members(&self) -> String {
        number_of(self.answers.len(), "member")
    }
}

impl Handing {
    /// Hands it over, and waits until most members who answer say from when on it holds.
    async fn hand_over(self, visitor: &mut Visitor, out: &mut dyn Write) -> Result<(), AdmitError> {
        let Self { decree, papers, why, until } = self;
        let (number, digest) = (decree.number, decree.digest());
        let (start, hand) = (Instant::now(), Visit::Hand(Paper::Decree(decree.clone())));
        let (mut taken, mut told) = (false, None::<Instant>);
        let mut looking =
            Countdown::new(start, ANSWER_PATIENCE.min(until.saturating_duration_since(start)));
        loop {
            // Who has it already takes it again.
            let asked = Instant::now();
            visitor.say(if taken { &Visit::Ask } else { &hand }).await;
            visitor.listen(OFTEN.min(until.saturating_duration_since(asked)).max(LEAST)).await;
            let round = Round::of(visitor, asked, &decree);
            taken |= round.is_taken();
            if let Some(since) = round.in_force(number, digest)? {
                return Ok(writeln!(out, "{since}")?);
            }
            if taken && told.is_none_or(|at| at.elapsed() >= TOLD_AGAIN) {
                told = Some(Instant::now());
                let (members, epoch) = (round.members(), round.epoch);
                writeln!(
                    out,
                    "handed to {members}; the run is at epoch {epoch}, a later one carries it"
                )?;
                out.flush()?;
            }
            match (taken, looking.left().is_none()) {
                (false, true) => {
                    return Err(match round.refusal() {
                        Some(why) => AdmitError::Refused { number, why },
                        None => AdmitError::Nobody { run: decree.run, number, why, papers },
                    });
                }
                (false, false) => looking.tell("no member has taken it", out)?,
                (true, _) if Instant::now() >= until => {
                    return Err(AdmitError::Waited { number, epoch: round.epoch });
                }
                (true, _) => {}
            }
        }
    }
}

/// How often members are asked: each listens to a few questions of a visitor only.
const OFTEN: Duration = Duration::from_secs(3);
/// An answer gets so long, also where --wait is all but over.
const LEAST: Duration = Duration::from_secs(1);
/// How often it is told that it is not in force yet.
const TOLD_AGAIN: Duration = Duration::from_secs(30);
/// How long somebody is looked for who takes it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
