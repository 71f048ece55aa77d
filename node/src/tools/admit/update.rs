//! `invite revoke` and `invite admit`: a membership update, from what is typed to the epoch from which on it holds.
//!
//! The chain of notices is learnt from the run; the next one is signed, kept beside the manifest, and handed
//! to members, who spread it.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use intellect_protocol::{
    access::{
        handshake::{Outcome, Reception, Visit},
        notices::Point,
    },
    base::{
        id::{PeerId, RunId},
        sign::Keypair,
    },
    message::{Body, Clause, Notice},
};

use super::{
    AdmitError,
    book::Book,
    notices,
    visitor::{Countdown, Visitor},
};
use crate::{
    cli::admit::{AdmitArgs, RevokeArgs, UpdateArgs},
    config,
    figures::number_of,
    manifest::Manifest,
    net::address,
};

/// Revokes what was typed, and waits until the run has it.
pub(super) fn revoke(args: &RevokeArgs, out: &mut dyn Write) -> Result<(), AdmitError> {
    let (manifest, key) = decides(&args.update)?;
    let clause = match &args.peer {
        Some(peer) => Clause::RevokePeer(config::parse_peer("peer", peer)?),
        None => {
            let label = args.invite.as_deref().unwrap_or_default();
            let key = invite_key(label, &args.update.key, manifest.id)?;
            Clause::RevokeInvite { key, admitted: args.and_admitted }
        }
    };
    decide(clause, &args.update, (&manifest, &key), out)
}

/// Lets a peer in by its name, and waits until the run has it.
pub(super) fn admit(args: &AdmitArgs, out: &mut dyn Write) -> Result<(), AdmitError> {
    let (manifest, key) = decides(&args.update)?;
    let clause = Clause::Admit(config::parse_peer("peer", &args.peer)?);
    decide(clause, &args.update, (&manifest, &key), out)
}

/// The run, and the key of its organiser.
fn decides(args: &UpdateArgs) -> Result<(Manifest, Keypair), AdmitError> {
    let manifest = super::invited(&args.manifest)?;
    let key = super::organiser(&args.key, &manifest)?;
    Ok((manifest, key))
}

fn decide(
    clause: Clause,
    args: &UpdateArgs,
    (manifest, key): (&Manifest, &Keypair),
    out: &mut dyn Write,
) -> Result<(), AdmitError> {
    let bootstrap = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let path = args.manifest.with_extension("notices");
    let kept = notices::read(&path)?;
    writeln!(out, "asking run {} for its notices", manifest.id)?;
    out.flush()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(AdmitError::Runtime)?;
    let (start, wait) = (Instant::now(), Duration::from_secs(args.wait));
    let decided = runtime.block_on(async {
        let mut visitor = Visitor::start(manifest.id, bootstrap)?;
        let (mut known, why) = visitor.notices(wait, out).await?;
        known.extend(kept);
        let chain = notices::chain(&known, manifest);
        let body = Body::Membership(vec![clause]);
        let next = Notice::after(manifest.id, chain.last(), body, key);
        next.verify(&key.peer(), &manifest.id)?;
        notices::write(&path, chain.all().map(AsRef::as_ref).chain([&next]))?;
        writeln!(out, "notice {} is kept in {}", next.number, path.display())?;
        let handing = Handing { notice: next, path: path.clone(), why, until: start + wait };
        let handed = handing.hand_over(&mut visitor, out).await;
        if let Err(AdmitError::Overtaken { .. }) = handed {
            // Nobody takes it any more: the next one follows on the other one.
            notices::write(&path, chain.all().map(AsRef::as_ref))?;
        }
        handed
    });
    runtime.shutdown_background();
    decided
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

/// A notice on its way into the run.
struct Handing {
    notice: Notice,
    path: PathBuf,
    /// Why the entry points have said nothing.
    why: Option<String>,
    /// When --wait is over.
    until: Instant,
}

/// What the members say of a notice who have answered in one round, without those whom it revokes: they
/// are closed out before they can know it.
struct Round {
    answers: Vec<Reception>,
    /// The greatest epoch that any of them is at.
    epoch: u64,
}

impl Round {
    fn of(visitor: &Visitor, since: Instant, notice: &Notice) -> Self {
        let revoked = |peer: &PeerId| notice.clauses().contains(&Clause::RevokePeer(*peer));
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
    fn in_force(&self, (number, digest): Point) -> Result<Option<String>, AdmitError> {
        let known = self.answers.iter().filter_map(|answer| answer.notice);
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
            "notice {number} is {since}, as {} of {} say",
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
        let Self { notice, path, why, until } = self;
        let (number, run) = (notice.number, notice.run);
        let (start, hand) = (Instant::now(), Visit::Hand(notice.clone()));
        let (mut taken, mut told) = (false, None::<Instant>);
        let mut looking =
            Countdown::new(start, ANSWER_PATIENCE.min(until.saturating_duration_since(start)));
        loop {
            // Who has it already takes it again.
            let asked = Instant::now();
            visitor.say(if taken { &Visit::Ask } else { &hand }).await;
            visitor.listen(OFTEN.min(until.saturating_duration_since(asked)).max(LEAST)).await;
            let round = Round::of(visitor, asked, &notice);
            taken |= round.is_taken();
            if let Some(since) = round.in_force(notice.place())? {
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
                        None => AdmitError::Nobody { run, number, why, notices: path },
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
