//! `vouch`: the organiser attests the lineage in a node's folder (G11).
//!
//! An attestation names an epoch, the state after it and its receipt. Nodes on another lineage give
//! that up for the attested one, however many tokens it has. So it must be of a lineage that the
//! organiser has looked at, and the folder of a node is where that lies. Each attestation has to be
//! of the lineage of the one before, which is checked here: two that contradict each other would
//! split the run.
//!
//! Attestations are for all runs, also open ones. They are notices, in the same chain as membership
//! notices.

use std::{
    io::Write,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use intellect_protocol::{
    access::{
        handshake::{Outcome, Visit},
        notices::Notices,
    },
    base::id::RunId,
    message::{Attestation, Body, Head, Link, Notice, wire},
};

use super::{
    AccessError, notices,
    visitor::{Countdown, Visitor, refusal},
};
use crate::{
    cli::access::VouchArgs,
    config,
    figures::number_of,
    manifest::Manifest,
    net::address,
    os::{self, cannot},
    store::{contacts, links},
    tools::{receipts, stored},
};

/// Attests a state, stores the notice, and hands it to members. It is stored beside `--manifest` if
/// one is named; the node of the folder gets it from a member, or from the bootstrap at its next
/// start. Without `--bootstrap` it dials the addresses at which this node has met others.
pub(crate) fn vouch(args: &VouchArgs, out: &mut dyn Write) -> Result<(), AccessError> {
    let data_dir = args.of.data_dir.clone().map_or_else(config::data_dir, Ok)?;
    let run = stored::run_folder(data_dir.clone(), args.of.run.as_deref())?;
    let manifest = Manifest::load(&run.join("run.toml"))?;
    let key = super::organiser(&args.key, &manifest)?;
    let of_run = |path| notices_beside(path, manifest.id);
    let beside = args.manifest.as_deref().map(of_run).transpose()?;
    let lineage = links::lineage(&run).map_err(cannot("read the receipts in", &run))?;
    let named = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let known = contacts::read(&data_dir).map_err(cannot("read", &data_dir))?.addresses;
    let entries = if named.is_empty() { known } else { named };
    let mut kept = notices::read(&run.join("notices"), manifest.id)?;
    if let Some(path) = &beside {
        kept.extend(notices::read(path, manifest.id)?);
    }
    let runtime = os::runtime().map_err(AccessError::Runtime)?;
    let done = runtime.block_on(async {
        let mut visitor = Visitor::start(manifest.id, entries)?;
        writeln!(out, "asking run {} for its notices", manifest.id)?;
        out.flush()?;
        let (mut known, _) = visitor.notices(2 * PATIENCE, out).await?;
        known.extend(kept);
        let mut chain = notices::chain(&known, &manifest);
        let (head, link) = attested(&lineage, args.epoch, &chain, &manifest)?;
        let r = wire::receipt_digest(&manifest.id, &link.receipt);
        let body = Body::Attestation(Attestation { epoch: head.epoch, state: head.state, r });
        let next = Notice::after(manifest.id, chain.last(), body, &key);
        chain.learn(chain.last(), &next)?;
        writeln!(out, "notice {} attests epoch {}, state {}", next.number, head.epoch, head.state)?;
        if let Some(path) = &beside {
            notices::write(path, chain.all().map(AsRef::as_ref))?;
            writeln!(out, "kept in {}", path.display())?;
        }
        hand_over(&mut visitor, next, beside.is_some(), out).await
    });
    runtime.shutdown_background();
    done
}

/// The file of notices beside a manifest, which has to be that of the run: no bootstrap reads the
/// file beside another one for this run.
fn notices_beside(path: &Path, run: RunId) -> Result<PathBuf, AccessError> {
    let of = Manifest::load(path)?.id;
    if of != run {
        return Err(AccessError::OtherManifest { path: path.to_owned(), of, run });
    }
    Ok(path.with_extension("notices"))
}

/// The epoch to attest, if the lineage has it, has the state that was attested before, and the
/// epoch is later than that one.
///
/// # Errors
/// [`AccessError::Behind`], [`AccessError::OtherLineage`], [`AccessError::NotLater`] or
/// [`AccessError::NoEpoch`]; nothing has been signed then.
fn attested<'a>(
    lineage: &'a [(Head, Link)],
    epoch: Option<NonZeroU64>,
    chain: &Notices,
    manifest: &Manifest,
) -> Result<&'a (Head, Link), AccessError> {
    let last = lineage.last().map_or(0, |(head, _)| head.epoch);
    let epoch = epoch.map_or(last, NonZeroU64::get);
    if let Some((number, before)) = chain.attestations().next() {
        let attested = before.epoch;
        if attested > last {
            return Err(AccessError::Behind { last, number, epoch: attested });
        }
        if !receipts::lies_on(before, lineage, &manifest.id) {
            return Err(AccessError::OtherLineage { number, epoch: attested });
        }
        if epoch <= attested {
            return Err(AccessError::NotLater { number, epoch: attested });
        }
    }
    let found = lineage.iter().find(|(head, _)| head.epoch == epoch);
    found.ok_or(AccessError::NoEpoch { epoch, last })
}

/// Hands the notice to members until one takes it. That it is in force is not waited for, unlike
/// with a membership notice: each node follows the attestation as soon as it has it. `kept` says
/// whether a file has the notice, so that it is not lost if no member answers.
///
/// # Errors
/// [`AccessError::Refused`] or [`AccessError::Lost`] after [`PATIENCE`].
async fn hand_over(
    visitor: &mut Visitor,
    notice: Notice,
    kept: bool,
    out: &mut dyn Write,
) -> Result<(), AccessError> {
    let (number, start) = (notice.number, Instant::now());
    visitor.say(&Visit::Hand(notice)).await;
    let mut refused = None;
    let mut looking = Countdown::new(start, PATIENCE);
    while looking.left().is_some() {
        visitor.listen(MOMENT).await;
        let answers: Vec<_> = visitor.answers_since(start).map(|(_, answer)| answer).collect();
        let takes = answers.iter().filter(|answer| answer.outcome == Outcome::Welcome).count();
        if takes > 0 {
            let of = number_of(takes, "member");
            return Ok(writeln!(out, "{of} of the run accepted it and will pass it on")?);
        }
        refused = refusal(answers);
        looking.report("no member has accepted it", out)?;
    }
    match refused {
        Some(why) => Err(AccessError::Refused { number, why }),
        None if kept => Ok(writeln!(
            out,
            "no member accepted it now: each fetches it from the bootstrap at its next start"
        )?),
        None => Err(AccessError::Lost { number }),
    }
}

/// How long it looks for a member that takes the notice.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two checks for answers.
const MOMENT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use intellect_protocol::{
        access::admit::Level,
        base::{id::Digest, sign::Keypair},
    };

    use super::*;
    use crate::tools::receipts::tests::{lineage, manifest};

    #[test]
    fn an_attestation_is_of_a_later_epoch_on_the_lineage_of_the_one_before() {
        let manifest = manifest(Level::Open);
        let lineage = lineage(&manifest, None);
        let (Head { epoch, state, .. }, link) = &lineage[2];
        let r = wire::receipt_digest(&manifest.id, &link.receipt);
        let body = Body::Attestation(Attestation { epoch: *epoch, state: *state, r });
        let organiser = Keypair::from_seed(&[9; 32]);
        let third = Notice::after(manifest.id, (0, Digest::ZERO), body, &organiser);
        let chain = notices::chain(&[third], &manifest);
        let try_epoch = |lineage: &[(Head, Link)], epoch| {
            let found = attested(lineage, NonZeroU64::new(epoch), &chain, &manifest);
            found.map(|(head, _)| head.epoch).map_err(|error| error.to_string())
        };
        assert_eq!((try_epoch(&lineage, 0), try_epoch(&lineage, 4)), (Ok(4), Ok(4)));
        let mut other = lineage.clone();
        other[2].0.state = Digest([1; 32]);
        for (lineage, epoch, words) in [
            (&lineage[..], 2, "notice 1 attests epoch 3: choose a later epoch"),
            (&lineage[..], 3, "notice 1 attests epoch 3: choose a later epoch"),
            (&lineage[..], 5, "the folder has the epochs up to 4"),
            (&lineage[..2], 0, "the folder ends at epoch 2, and notice 1 attests epoch 3"),
            (&lineage[..2], 3, "so that it catches up first"),
            (&other[..], 4, "notice 1 attests another state after epoch 3 than this folder has"),
        ] {
            let why = try_epoch(lineage, epoch).unwrap_err();
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
