//! `invite new`: makes an invite, and prints the line that the invited person types.
//!
//! It needs no network: the organiser's signature is all that an invite is. A bearer invite has a
//! key pair of its own, whose seed is in the code and nowhere else; anyone with the code makes a
//! ticket for any peer with it, up to `--uses` times. With `--for` the organiser signs the ticket
//! of one peer instead. That code is no secret, has no label, and is revoked by revoking the peer.
//!
//! The last line is the whole command of the invited person, with the data that the run needs.

use std::io::Write;

use intellect_protocol::{
    access::admit::code::Code,
    base::{sign::Keypair, time::utc},
    message::{Invite, Terms, Ticket},
};

use super::{AccessError, book::Book};
use crate::{
    access::unix_seconds, cli::access::InviteNewArgs, config, figures::number_of, name::PeerName,
    net::address, os, tools::bootstrap,
};

/// Makes an invite, and prints what it allows and what to do with it. The entry points are parsed
/// first and the invite is noted before its code is printed, so a mistake leaves neither an entry
/// nor a code behind.
pub(super) fn make(args: &InviteNewArgs, out: &mut dyn Write) -> Result<(), AccessError> {
    let bootstrap = config::addresses("bootstrap", &args.bootstrap, address::parse_entry)?;
    let manifest = super::invited(&args.manifest)?;
    let key = super::organiser(&args.key, &manifest)?;
    let code = match &args.peer {
        Some(peer) => {
            let until_epoch = args.until_epoch.map_or(0, Into::into);
            let peer = config::parse_peer("for", peer)?;
            writeln!(out, "{} may join{}", PeerName::from(peer), until(0, until_epoch))?;
            Code::Named(Ticket::named(manifest.id, peer, until_epoch, &key))
        }
        None => {
            let mut book = Book::beside(&args.key)?;
            let (terms, seed) = terms(args, book.label(manifest.id, args.label.as_deref())?)?;
            book.note(manifest.id, &terms)?;
            writeln!(out, "{}", describe(&terms))?;
            writeln!(out, "noted in {}", book.path().display())?;
            writeln!(
                out,
                "anyone who has the next line can join with it: give it only to the person that it is for, where nobody else reads it"
            )?;
            Code::Bearer { invite: Invite::new(manifest.id, terms, &key).into(), seed }
        }
    };
    if bootstrap.is_empty() {
        writeln!(
            out,
            "before it is handed out, MULTIADDR in the next line is to be replaced by the address that the run's \
             bootstrap prints; --bootstrap does so"
        )?;
    }
    let entries: String = bootstrap.iter().map(|at| format!(" --bootstrap {at}")).collect();
    let entries = if entries.is_empty() { " --bootstrap MULTIADDR" } else { &entries };
    let files = bootstrap::data_flag(&manifest);
    Ok(writeln!(out, "intellect-node{entries}{files} --invite {code}")?)
}

/// The terms of a new invite, and the seed of its key. `--expires` counts from the clock of this
/// machine; peers compare with theirs and allow an hour or two (T4).
fn terms(args: &InviteNewArgs, label: String) -> Result<(Terms, [u8; 32]), AccessError> {
    let seed = os::random().map_err(AccessError::Random)?;
    let now = unix_seconds();
    let terms = Terms {
        uses: args.uses,
        until_epoch: args.until_epoch.map_or(0, Into::into),
        expires: args.expires.map_or(0, |seconds| now.saturating_add(seconds)),
        label,
        ..Terms::new(Keypair::from_seed(&seed).peer())
    };
    terms.check()?;
    Ok((terms, seed))
}

/// The terms of an invite as a person reads them.
fn describe(terms: &Terms) -> String {
    let Terms { label, uses, expires, until_epoch, .. } = terms;
    let (uses, until) = (number_of(*uses, "peer"), until(*expires, *until_epoch));
    format!("invite {label}: {uses} may join by it{until}")
}

/// Until when something is valid, as the end of a sentence; empty without a limit. `expires` is in
/// Unix seconds; 0 is no limit for both. Peers allow an hour more (T4).
pub(super) fn until(expires: u64, epoch: u64) -> String {
    let clock = format!(", until {} and up to an hour longer", utc(expires));
    let epochs = format!(", up to epoch {epoch}");
    let limits = [(expires, clock), (epoch, epochs)].into_iter();
    limits.filter(|(limit, _)| *limit > 0).map(|(_, text)| text).collect()
}
