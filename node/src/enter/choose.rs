//! Which run to take part in: the one that this folder holds, or one that the network offers.
//!
//! A node that comes back has the signed manifest in its folder and needs nobody to hand it out. That is so if no entry
//! point is typed, if `--run` names a run of the folder, and if no entry point answers. A node that comes for the first
//! time asks the entry points for a minute. Where the file is gone or damaged, the entry points that an earlier start
//! stored hand it out again. Every manifest is verified, whichever peer offers it; its RunId is computed from it.
//!
//! Anybody can make a run and sign its manifest. So without `--run` only what the entry points of the command line hand
//! out counts. The beginning of a RunId can be found by trying keys; so where runs of more than one organiser are
//! offered, `--run` must be long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use intellect_model::Device;
use intellect_protocol::base::id::RunId;
use tokio::time::sleep;

use super::EnterError;
use super::needs::{Needs, fetched_bytes, update_bytes};
use crate::config::{Local, RunPrefix};
use crate::figures;
use crate::manifest::Manifest;
use crate::name::Hex;
use crate::net::{self, Net};
use crate::os::cannot;
use crate::store::{self, StoreError};
use crate::tell::{Console, events};

/// Manifests by run, each with the address or file that it comes from.
type Found = BTreeMap<RunId, (Manifest, String)>;

/// Whether the entry points that were typed answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// One has answered, or none was needed.
    One,
    /// None of those that were typed has answered, so they may be wrong and are not stored.
    None,
}

/// The manifest of the run. `before` is the only run of the folder that fits, if an earlier start stored its entry
/// points.
///
/// # Errors
/// Nothing fits, more than one run fits, what fits is too short to be sure of, or no entry point
/// answers within [`PATIENCE`]. The folder is as it was; the user chooses by `--run`, or gives
/// another `--bootstrap`.
pub(crate) async fn manifest(
    net: &Net,
    local: &Local,
    before: Option<RunId>,
    console: &Console,
) -> Result<(Manifest, Reached), EnterError> {
    let prefix = local.run.as_ref();
    let (stored, wrong) = stored(local, console)?;
    let named = prefix.is_some() && pick_fits(&stored, prefix) == 1;
    let mut reached = Reached::One;
    let (manifest, from) = if local.options.bootstrap.is_empty() || named {
        match (pick(stored, prefix), before, wrong) {
            (Err(EnterError::Offers(_)), Some(run), _) => {
                let whole = RunPrefix::from(run);
                pick(offered(net, Some(&whole), PATIENCE, console).await?, Some(&whole))?
            }
            // The user meant the run of this folder.
            (Err(EnterError::Offers(_)), None, Some(wrong)) => return Err(wrong),
            (picked, ..) => picked?,
        }
    } else {
        let spare = pick_fits(&stored, prefix) > 0;
        let patience = if spare { Duration::ZERO } else { PATIENCE };
        match offered(net, prefix, patience, console).await {
            Ok(found) => pick(found, prefix)?,
            Err(EnterError::Offers(error)) if spare => {
                reached = Reached::None;
                console.say(&format!("{error}"));
                console.say("continuing with this folder's run and the peers that it knows");
                pick(stored, prefix)?
            }
            Err(error) => return Err(error),
        }
    };
    report(&manifest, from, console);
    Ok((manifest, reached))
}

/// The manifest of the run that entry points offer, and which one does, for a program that has no
/// folder for one. It asks once and does not wait for an entry point that is starting.
pub(crate) async fn from_network(
    net: &Net,
    prefix: Option<&RunPrefix>,
    console: &Console,
) -> Result<(Manifest, String), EnterError> {
    pick(offered(net, prefix, Duration::ZERO, console).await?, prefix)
}

/// Reports the chosen run, with the key that signed it: a person compares it with what the
/// organiser said.
pub(crate) fn report(manifest: &Manifest, from: String, console: &Console) {
    let Manifest { run, work, id, .. } = manifest;
    let signed = &run.organiser.hex()[..8];
    console.say(&format!("run {id} \"{}\", signed by {signed}", run.name));
    let (name, organiser) = (run.name.clone(), Hex::from(run.organiser));
    let stop_tokens = (run.stop_tokens > 0).then_some(run.stop_tokens);
    // Of a machine that joins nothing is known: what most take, as `manifest new` says it.
    let needs = Needs::of(run, work, work.train.batch, Device::Cpu);
    let event = events::Event::Manifest {
        name,
        organiser,
        from,
        parameters: work.model.parameter_count(),
        stop_tokens,
        step_tokens: work.tokens_per_step(),
        memory_bytes: needs.memory,
        disk_bytes: needs.disk.saturating_add(fetched_bytes(work)),
        // A ring of n moves 2(n − 1)/n of an update through each line.
        epoch_bytes: update_bytes(run, work).saturating_mul(2),
    };
    console.emit(None, event);
}

/// Whether a run begins with what was typed; without a prefix every run does.
fn fits(prefix: Option<&RunPrefix>, run: &RunId) -> bool {
    prefix.is_none_or(|prefix| prefix.matches(run))
}

/// How many of the manifests fit what was typed.
fn pick_fits(found: &Found, prefix: Option<&RunPrefix>) -> usize {
    found.keys().filter(|run| fits(prefix, run)).count()
}

/// The manifests in the folder. A damaged one is skipped, and the last such error is returned.
/// An error that the folder cannot be read at all comes as the `Err` of the result.
fn stored(local: &Local, console: &Console) -> Result<(Found, Option<EnterError>), EnterError> {
    let folder = &local.data_dir;
    let runs = store::runs(folder).map_err(cannot("read", folder)).map_err(StoreError::from)?;
    let (mut found, mut wrong) = (Found::new(), None);
    for run in runs {
        let path = store::manifest_path(folder, run);
        let from = path.display().to_string();
        match Manifest::load(&path) {
            Ok(manifest) if manifest.id == run => drop(found.insert(run, (manifest, from))),
            Ok(_) => console.say(&format!("ignored: {from} is the manifest of another run")),
            Err(error) => {
                let why = figures::explain(&error, ": ");
                console.say(&format!("ignored: {why}; delete the file, and it is fetched again"));
                wrong = Some(error.into());
            }
        }
    }
    Ok((found, wrong))
}

/// The manifests that the network offers. Those that cannot be used are reported, or returned as an error where there
/// is nothing else.
/// Where several peers offer one run, the first offer counts: the id says that all of them are the
/// same.
async fn offered(
    net: &Net,
    prefix: Option<&RunPrefix>,
    patience: Duration,
    console: &Console,
) -> Result<Found, EnterError> {
    let (mut found, mut wrong) = (Found::new(), Vec::new());
    for net::Offer { from, bytes } in asked(net, prefix, patience, console).await? {
        match Manifest::parse(&String::from_utf8_lossy(&bytes)) {
            Ok(manifest) => drop(found.entry(manifest.id).or_insert((manifest, from))),
            Err(why) => wrong.push(EnterError::Manifest { from, why: Box::new(why) }),
        }
    }
    match wrong.pop() {
        Some(wrong) if found.is_empty() => Err(wrong),
        last => {
            for error in wrong.iter().chain(&last) {
                console.say(&format!("ignored: {}", figures::explain(error, ": ")));
            }
            is_sure(&found, prefix)?;
            Ok(found)
        }
    }
}

/// Asks the peers that may hand out the run. Where no bootstrap can be reached it asks again while `patience` lasts,
/// since the bootstrap may be starting or busy, or the connection may be down for a moment.
///
/// After [`SILENCE`] it says that it still waits, and after a failure for how long it tries again.
async fn asked(
    net: &Net,
    prefix: Option<&RunPrefix>,
    patience: Duration,
    console: &Console,
) -> Result<Vec<net::Offer>, net::OfferError> {
    let of = if prefix.is_some() { net::Offerers::Everybody } else { net::Offerers::Named };
    // With `--unlisted` an entry point hands out a run only to a peer that names it.
    let named = prefix.and_then(RunPrefix::whole);
    let (began, mut reported) = (Instant::now(), false);
    loop {
        let asking = net.handle.manifests(named, of);
        tokio::pin!(asking);
        let soon = tokio::time::timeout(SILENCE, &mut asking).await;
        let answer = match soon {
            Ok(answer) => answer,
            Err(_) => {
                if !reported {
                    console.say("no entry point has answered yet: still trying");
                }
                asking.await
            }
        };
        let left = patience.saturating_sub(began.elapsed());
        match answer {
            Err(error @ net::OfferError::Unreachable(_)) if left >= AGAIN => {
                if !reported {
                    reported = true;
                    console.say(&error.to_string());
                }
                let left = left.as_secs();
                console.say(&format!("trying again for {left} s, then this node ends"));
            }
            answer => return answer,
        }
        sleep(AGAIN).await;
    }
}

/// How long a node without a run asks for one where no bootstrap answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wait for the first answer is reported after this time.
const SILENCE: Duration = Duration::from_secs(2);

/// Time between two tries to reach a bootstrap.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether the prefix is too long for another organiser to have found a run that begins with it.
/// An organiser can make any number of keys, and with each another RunId, until one begins as
/// wished.
fn is_sure(found: &Found, prefix: Option<&RunPrefix>) -> Result<(), EnterError> {
    let organisers: BTreeSet<_> = found.values().map(|(m, _)| m.run.organiser).collect();
    let is_ambiguous = organisers.len() > 1;
    match prefix {
        Some(prefix) if is_ambiguous && prefix.0.len() < SURE_DIGITS => {
            let (prefix, offered) = (prefix.0.clone(), list(found));
            Err(EnterError::Unsure { prefix, digits: SURE_DIGITS, offered })
        }
        _ => Ok(()),
    }
}

/// 64 bits: too many keys for anybody to try.
pub(crate) const SURE_DIGITS: usize = 16;

/// The runs on a line each, as errors list them.
fn list(found: &Found) -> String {
    let lines = found.iter().map(|(id, (m, _))| format!("  {} {}", id.hex(), m.run.name));
    lines.collect::<Vec<_>>().join("\n")
}

/// The only run that fits the prefix.
///
/// # Errors
/// `Several` and `NoSuchRun` list what there is, for the user to choose from. Nothing at all is the
/// error of a network without an entry point.
fn pick(mut found: Found, prefix: Option<&RunPrefix>) -> Result<(Manifest, String), EnterError> {
    let all = list(&found);
    found.retain(|run, _| fits(prefix, run));
    if found.len() > 1 {
        return Err(EnterError::Several { offered: list(&found) });
    }
    match (found.pop_first(), prefix) {
        (Some((_, chosen)), _) => Ok(chosen),
        (None, Some(prefix)) if !all.is_empty() => {
            let prefix = prefix.0.clone();
            Err(EnterError::NoSuchRun { prefix, offered: format!("\n{all}") })
        }
        (None, _) => Err(EnterError::Offers(net::OfferError::NoEntry)),
    }
}

#[cfg(test)]
mod tests {
    use intellect_model::config::Work;
    use intellect_protocol::manifest::Run;

    use super::*;
    use crate::identity::Identity;
    use crate::manifest::Draft;

    fn run(organiser: u64, seed: u64) -> (RunId, (Manifest, String)) {
        let key = Identity::simulated(organiser, 0);
        let draft = Draft::new(&Run::new(key.peer(), seed), &Work::synthetic()).unwrap();
        let manifest = draft.sign(&key.keypair()).unwrap();
        (manifest.id, (manifest, String::new()))
    }

    /// Another organiser tries keys until the first few digits are the same.
    #[test]
    fn a_short_prefix_is_not_enough_where_several_organisers_offer_runs() {
        let prefix = |digits: usize, (run, _): &(RunId, _)| -> RunPrefix {
            let run: &RunId = run;
            run.hex()[..digits].parse().unwrap()
        };
        let (first, second, other) = (run(1, 1), run(1, 2), run(2, 1));
        let short = prefix(8, &first);
        let long = prefix(16, &first);
        let of_one = Found::from([first.clone(), second]);
        let of_two = Found::from([first, other]);
        assert!(is_sure(&of_one, Some(&short)).is_ok() && is_sure(&of_two, None).is_ok());
        assert!(is_sure(&of_two, Some(&long)).is_ok());
        let error = is_sure(&of_two, Some(&short)).unwrap_err().to_string();
        assert!(error.contains("16 digits") && error.contains(&short.0), "{error}");
    }
}
