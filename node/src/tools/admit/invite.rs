//! `invite new`: an invite, and the line that whoever is invited types.

use std::{
    io::Write,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use intellect_protocol::{
    admit::{Authorities, Denied, code::Code},
    id::RunId,
    message::{Invite, Terms, Ticket},
    sign::Keypair,
};

use super::{AdmitError, book::Book};
use crate::{
    cli::admit::InviteNewArgs,
    config::{self, code},
    figures::{number_of, utc},
    name::PeerName,
    net::address,
    os,
    tools::bootstrap,
};

/// Makes one, and says what it allows and what to do with it.
pub(super) fn make(args: &InviteNewArgs, out: &mut dyn Write) -> Result<(), AdmitError> {
    let bootstrap = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let Made { code, told, next, files } = match (&args.key, &args.manifest) {
        (Some(key), Some(manifest)) => by_authority(args, key, manifest)?,
        _ => below(args)?,
    };
    for line in told {
        writeln!(out, "{line}")?;
    }
    match &code {
        _ if next.is_some() => {}
        Code::Bearer { .. } => writeln!(
            out,
            "whoever has the next line can join by it: hand it to whom it is for, where nobody else reads it"
        )?,
        Code::Named(_) => {}
    }
    let line = next.unwrap_or_else(|| {
        let entries: String = bootstrap.iter().map(|at| format!(" --bootstrap {at}")).collect();
        let entries = if entries.is_empty() { " --bootstrap MULTIADDR" } else { &entries };
        format!("intellect-node{entries}{files} --invite")
    });
    Ok(writeln!(out, "{line} {code}")?)
}

/// A code, and what is said of it.
struct Made {
    code: Code,
    told: Vec<String>,
    /// What another authority types before the code, where more of them must sign.
    next: Option<String>,
    /// What the line says of the run's files.
    files: String,
}

fn by_authority(args: &InviteNewArgs, path: &Path, manifest: &Path) -> Result<Made, AdmitError> {
    let (manifest_path, (manifest, authorities)) = (manifest, super::invited(manifest)?);
    let key = super::authority(path, &manifest, &authorities)?;
    let mut book = Book::beside(path)?;
    let code = match (&args.sign, &args.peer) {
        (Some(begun), _) => signed(code::read("--sign", begun)?, &key, manifest.id)?,
        (None, Some(peer)) => {
            let until_epoch = args.until_epoch.map_or(0, Into::into);
            Code::Named(
                Ticket::named(manifest.id, config::parse_peer("for", peer)?, until_epoch)
                    .signed(&key),
            )
        }
        (None, None) => {
            let (terms, seed) = terms(args, book.label(manifest.id, args.label.as_deref())?)?;
            Code::Bearer { invite: Invite::new(manifest.id, terms).signed(&key).into(), seed }
        }
    };
    let mut told = describe(&code);
    if let Code::Bearer { invite, .. } = &code {
        book.note(manifest.id, &invite.terms)?;
        told.push(format!("noted in {}", book.path().display()));
    }
    let missing = missing(&code, &key, &authorities)?;
    let next = missing.map(|(found, needed)| {
        let authorities = number_of(needed, "authority").replace("ys", "ies");
        told.push(format!(
            "{found} of {authorities} have signed; the next one types, with its own key"
        ));
        format!("intellect-node invite new --key KEY --manifest {} --sign", manifest_path.display())
    });
    Ok(Made { code, told, next, files: bootstrap::data_flag(&manifest) })
}

/// An invite under the one that is given (T13).
fn below(args: &InviteNewArgs) -> Result<Made, AdmitError> {
    let root = code::read("--under", args.under.as_deref().unwrap_or("-"))?;
    let Code::Bearer { invite, seed } = root else {
        return Err(Denied::Malformed { why: "it is made out to one peer" }.into());
    };
    if invite.branch.is_some() {
        return Err(Denied::Malformed { why: "one under another may not invite" }.into());
    }
    let label = args.label.clone().unwrap_or_default();
    let (terms, below) = terms(args, label)?;
    let code = Code::Bearer {
        invite: invite.branched(&Keypair::from_seed(&seed), terms)?.into(),
        seed: below,
    };
    let files = args.manifest.as_deref().map(crate::manifest::Manifest::load).transpose()?;
    let files = files.map_or_else(String::new, |manifest| bootstrap::data_flag(&manifest));
    let mut told = describe(&code);
    told.push(format!("its uses are of those of {}: the run counts both", name(&invite.terms)));
    Ok(Made { code, told, next: None, files })
}

/// What an invite is to allow, and the seed of its key.
fn terms(args: &InviteNewArgs, label: String) -> Result<(Terms, [u8; 32]), AdmitError> {
    let seed = os::random().map_err(AdmitError::Random)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let terms = Terms {
        uses: args.uses,
        until_epoch: args.until_epoch.map_or(0, Into::into),
        expires: args.expires.map_or(0, |seconds| now.saturating_add(seconds)),
        may_invite: args.may_invite,
        label,
        ..Terms::new(Keypair::from_seed(&seed).peer())
    };
    terms.check()?;
    Ok((terms, seed))
}

/// The same with one more signature.
fn signed(code: Code, key: &Keypair, run: RunId) -> Result<Code, AdmitError> {
    if code.run() != run {
        return Err(Denied::AnotherRun { run, of: code.run() }.into());
    }
    Ok(match code {
        Code::Bearer { invite, seed } => Code::Bearer { invite: invite.signed(key).into(), seed },
        Code::Named(ticket) => Code::Named(ticket.signed(key)),
    })
}

/// How many have signed of how many that must, where they are too few.
fn missing(
    code: &Code,
    key: &Keypair,
    authorities: &Authorities,
) -> Result<Option<(usize, usize)>, AdmitError> {
    let verified = match code {
        Code::Bearer { invite, .. } => invite.verify(key, &invite.run, authorities),
        Code::Named(ticket) => ticket.verify(key, &ticket.run(), authorities, &ticket.peer()),
    };
    match verified {
        Ok(()) => Ok(None),
        Err(Denied::Unsigned { found, needed }) => Ok(Some((found, needed))),
        Err(denied) => Err(denied.into()),
    }
}

/// What a code allows, in words.
fn describe(code: &Code) -> Vec<String> {
    match code {
        Code::Named(ticket) => {
            let Ticket::Named { until_epoch, .. } = ticket else { return Vec::new() };
            let until = until(0, *until_epoch);
            vec![format!("{} may join{until}", PeerName::from(ticket.peer()))]
        }
        Code::Bearer { invite, .. } => {
            let terms = invite.innermost();
            let until = until(terms.expires, terms.until_epoch);
            let uses = number_of(terms.uses, "peer");
            let may = if terms.may_invite { ", and invite others" } else { "" };
            vec![format!("{}: {uses} may join by it{until}{may}", name(terms))]
        }
    }
}

fn until(expires: u64, epoch: u64) -> String {
    let clock = if expires > 0 { format!(", until {}", utc(expires)) } else { String::new() };
    let epoch = if epoch > 0 { format!(", up to epoch {epoch}") } else { String::new() };
    clock + &epoch
}

/// The label of an invite, or the beginning of its key.
fn name(terms: &Terms) -> String {
    match terms.label.as_str() {
        "" => format!("invite {}", &terms.key.hex()[..8]),
        label => format!("invite {label}"),
    }
}
