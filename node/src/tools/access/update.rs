//! `invite revoke` and `invite admit`: a membership notice, from the command line until it is in
//! force.
//!
//! The chain of notices is fetched from the run. The next notice is signed, stored beside the
//! manifest, and handed to members, who spread it.
//!
//! What happens to the notice is reported in this order: the run is asked, the notice is stored in
//! a file, members have taken it, and it is in force from some epoch on. The command may be
//! interrupted at any of them. Before the file nothing has happened; after it a bootstrap with that
//! file hands the notice out, and each member that has it passes it on.
//!
//! No answer of a member is proved. So one that says that the notice is in force is not enough:
//! more than half of those that answer have to say so.

use std::{
    io::Write,
    path::Path,
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
    AccessError,
    book::Book,
    list, notices,
    visitor::{Countdown, Visitor, refusal},
};
use crate::{
    cli::access::{AdmitArgs, RevokeArgs, UpdateArgs},
    config,
    figures::number_of,
    manifest::Manifest,
    net::address,
    os::{self, cannot},
    store::{self, links},
};

/// Revokes the peer or invite that was typed, and waits until the notice is in force. The command
/// line names one of the two.
pub(super) fn revoke(args: &RevokeArgs, out: &mut dyn Write) -> Result<(), AccessError> {
    let (manifest, key) = decides(&args.update)?;
    let clause = match &args.peer {
        Some(peer) => {
            let peer = config::parse_peer("peer", peer)?;
            if !args.unseen {
                seen(peer, args, &manifest, out)?;
            }
            Clause::RevokePeer(peer)
        }
        None => {
            let label = args.invite.as_deref().unwrap_or_default();
            let key = invite_key(label, &args.update.key, manifest.id)?;
            Clause::RevokeInvite { key, admitted: args.and_admitted }
        }
    };
    decide(clause, &args.update, &manifest, &key, out)
}

/// Looks for a peer in the receipts of a node's folder: a name with a typing error is that of
/// nobody, and its revocation would be in force all the same. Without receipts it only warns.
///
/// # Errors
/// [`AccessError::Unseen`] if no receipt there names the peer.
fn seen(
    peer: PeerId,
    args: &RevokeArgs,
    manifest: &Manifest,
    out: &mut dyn Write,
) -> Result<(), AccessError> {
    // An organiser without a node may have no such folder at all.
    let data_dir = args.data_dir.clone().or_else(|| config::data_dir().ok()).unwrap_or_default();
    let folder = store::run_folder(&data_dir, manifest.id);
    let lineage = links::lineage(&folder).map_err(cannot("read the receipts in", &folder))?;
    let Some((last, _)) = lineage.last() else {
        return Ok(writeln!(
            out,
            "warning: no receipts of run {} are in {}, so the name of the peer is not checked: name the folder of \
             a node of the run with --data-dir",
            manifest.id,
            data_dir.display()
        )?);
    };
    if list::ledger(&lineage, manifest).peers().contains_key(&peer) {
        return Ok(());
    }
    Err(AccessError::Unseen { folder, peer: peer.into(), last: last.epoch })
}

/// Admits a peer by its name, and waits until the notice is in force. The last line is about the
/// entry points: a peer that was refused hears of the notice only from a file beside their
/// manifest.
pub(super) fn admit(args: &AdmitArgs, out: &mut dyn Write) -> Result<(), AccessError> {
    let (manifest, key) = decides(&args.update)?;
    let clause = Clause::Admit(config::parse_peer("peer", &args.peer)?);
    decide(clause, &args.update, &manifest, &key, out)?;
    let kept = args.update.manifest.with_extension("notices");
    let (kept, name) = (kept.display(), kept.file_name().unwrap_or_default().display());
    writeln!(
        out,
        "a peer that starts for the first time asks the entry points: copy {kept} beside the manifest of each, as {name}"
    )?;
    Ok(())
}

/// The manifest of the run, and the key of its organiser.
fn decides(args: &UpdateArgs) -> Result<(Manifest, Keypair), AccessError> {
    let manifest = super::invited(&args.manifest)?;
    let key = super::organiser(&args.key, &manifest)?;
    Ok((manifest, key))
}

/// Signs a notice with this clause, stores it beside the manifest, and hands it to members. It is
/// stored before any member sees it.
fn decide(
    clause: Clause,
    args: &UpdateArgs,
    manifest: &Manifest,
    key: &Keypair,
    out: &mut dyn Write,
) -> Result<(), AccessError> {
    let bootstrap = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let path = args.manifest.with_extension("notices");
    let kept = notices::read(&path, manifest.id)?;
    writeln!(out, "asking run {} for its notices", manifest.id)?;
    out.flush()?;
    let runtime = os::runtime().map_err(AccessError::Runtime)?;
    let (start, wait) = (Instant::now(), Duration::from_secs(args.wait));
    let decided = runtime.block_on(async {
        let mut visitor = Visitor::start(manifest.id, bootstrap)?;
        let (mut known, why) = visitor.notices(wait, out).await?;
        let served: Vec<u64> = known.iter().map(|notice| notice.number).collect();
        known.extend(kept);
        let chain = notices::chain(&known, manifest);
        // An earlier command found no member, so that these are in the file alone.
        let missing = chain.all().filter(|notice| !served.contains(&notice.number));
        let missing: Vec<Visit> =
            missing.map(|notice| Visit::Hand(notice.as_ref().clone())).collect();
        let body = Body::Membership(vec![clause]);
        let next = Notice::after(manifest.id, chain.last(), body, key);
        next.verify(&key.peer(), &manifest.id)?;
        notices::write(&path, chain.all().map(AsRef::as_ref).chain([&next]))?;
        writeln!(out, "notice {} is kept in {}", next.number, path.display())?;
        let until = start + wait;
        let handed = hand_over(&next, &missing, &path, why, until, &mut visitor, out).await;
        if let Err(AccessError::Overtaken { .. }) = handed {
            // No member takes it any more: the next notice has to follow the other one.
            notices::write(&path, chain.all().map(AsRef::as_ref))?;
        }
        handed
    });
    runtime.shutdown_background();
    decided
}

/// The key of the invite that was typed: by its label in the list, or by its digits. The two cannot
/// be confused, since a label has at most 32 letters and a key 64 digits.
fn invite_key(label: &str, key: &Path, run: RunId) -> Result<PeerId, AccessError> {
    let book = Book::beside(key)?;
    let noted = book.of(run).find(|entry| entry.label == label);
    let known = noted.and_then(super::book::Entry::key).or_else(|| PeerId::from_hex(label));
    known.ok_or_else(|| AccessError::NoInvite {
        label: label.to_owned(),
        path: book.path().to_owned(),
        labels: book.of(run).map(|entry| entry.label.clone()).collect(),
    })
}

/// What members answer about a notice in one round. Peers that it revokes are left out: they are
/// disconnected before they can know it.
struct Round {
    /// What each of them has answered, at most one answer for a member.
    answers: Vec<Reception>,
    /// The greatest epoch among them.
    epoch: u64,
}

impl Round {
    /// The answers that came after `since`. An older one may be of before the notice.
    fn of(visitor: &Visitor, since: Instant, notice: &Notice) -> Self {
        let revoked = |peer: &PeerId| notice.clauses().contains(&Clause::RevokePeer(*peer));
        let others = visitor.answers_since(since).filter(|(peer, _)| !revoked(peer));
        let answers: Vec<_> = others.map(|(_, reception)| reception.clone()).collect();
        let epoch = answers.iter().map(|answer| answer.epoch).max().unwrap_or_default();
        Self { answers, epoch }
    }

    /// Whether any member has taken the notice.
    fn is_taken(&self) -> bool {
        self.answers.iter().any(|answer| answer.outcome == Outcome::Welcome)
    }

    /// The sentence that the notice is in force, once more than half of the members say that it or
    /// a later one is.
    ///
    /// A later notice is enough because a chain has no gaps. Members that answer nothing are not
    /// counted; with no answer at all nothing is in force.
    ///
    /// # Errors
    /// [`AccessError::Overtaken`] if all of these have another notice of this number as their last
    /// one (T8).
    fn in_force(&self, (number, digest): Point) -> Result<Option<String>, AccessError> {
        let known = self.answers.iter().filter_map(|answer| answer.notice);
        let known: Vec<_> = known.filter(|last| last.number >= number).collect();
        if 2 * known.len() <= self.answers.len() {
            return Ok(None);
        }
        let ours = known.iter().find(|last| last.number == number && last.digest == digest);
        if ours.is_none() && known.iter().all(|last| last.number == number) {
            return Err(AccessError::Overtaken { number });
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

    /// Their number as a person reads it.
    fn members(&self) -> String {
        number_of(self.answers.len(), "member")
    }
}

/// Hands the notice in the file at `path` over until `until`, and waits until most members that
/// answer say from which epoch on it is in force. `why` says why no entry point has answered.
///
/// A member that has taken it gets the `missing` notices before it too, without which it does nothing with this one.
///
/// There are two waits in one loop. Until a member has taken the notice it looks for one, for
/// [`ANSWER_PATIENCE`] at most; then it asks until the notice is in force, or until `until`.
///
/// # Errors
/// [`AccessError::Refused`] or [`AccessError::Nobody`] after the first wait,
/// [`AccessError::Waited`] after the second.
async fn hand_over(
    notice: &Notice,
    missing: &[Visit],
    path: &Path,
    why: Option<String>,
    until: Instant,
    visitor: &mut Visitor,
    out: &mut dyn Write,
) -> Result<(), AccessError> {
    let (number, run) = (notice.number, notice.run);
    let (start, hand) = (Instant::now(), Visit::Hand(notice.clone()));
    let (mut taken, mut reported) = (false, None::<Instant>);
    let mut looking =
        Countdown::new(start, ANSWER_PATIENCE.min(until.saturating_duration_since(start)));
    loop {
        // A member that has it already takes it again.
        let asked = Instant::now();
        visitor.say(if taken { &Visit::Ask } else { &hand }).await;
        visitor.listen(OFTEN.min(until.saturating_duration_since(asked)).max(LEAST)).await;
        let round = Round::of(visitor, asked, notice);
        if !taken && round.is_taken() {
            taken = true;
            for visit in missing {
                visitor.say(visit).await;
            }
        }
        if let Some(since) = round.in_force(notice.place())? {
            return Ok(writeln!(out, "{since}")?);
        }
        if taken && reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN) {
            reported = Some(Instant::now());
            let (members, epoch) = (round.members(), round.epoch);
            writeln!(
                out,
                "handed to {members}; the run is at epoch {epoch}, a later epoch will carry it"
            )?;
            out.flush()?;
        }
        match (taken, looking.left().is_none()) {
            (false, true) => {
                return Err(match refusal(&round.answers) {
                    Some(why) => AccessError::Refused { number, why },
                    None => AccessError::Nobody { run, number, why, notices: path.to_owned() },
                });
            }
            (false, false) => looking.report("no member has accepted it", out)?,
            (true, _) if Instant::now() >= until => {
                return Err(AccessError::Waited { number, epoch: round.epoch });
            }
            (true, _) => {}
        }
    }
}

/// How often members are asked: each answers only a few questions of a visitor.
const OFTEN: Duration = Duration::from_secs(3);
/// How long an answer may take at least, even if `--wait` is almost over.
const LEAST: Duration = Duration::from_secs(1);
/// How often it is reported that the notice is not in force yet.
const REPORT_AGAIN: Duration = Duration::from_secs(30);
/// How long it looks for a member that takes the notice. `--wait` makes it shorter, and not longer:
/// a run that goes on answers within seconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
