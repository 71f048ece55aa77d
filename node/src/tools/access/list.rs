//! `invite list`: who was admitted and revoked, by the receipts in a node's folder (T1).
//!
//! It needs no network and no key: the ledger is the fold of all receipts, and the node's folder
//! has them. So the list is what this node has committed. A notice that is not in a receipt yet is
//! not in it, and a peer whose ticket no roster has taken is not admitted yet.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use intellect_protocol::{
    access::{
        admit::EXPIRY_SLACK,
        ledger::{Account, Admitted, Ledger, Revocation, Via},
    },
    base::{base58, id::PeerId, time::utc},
    message::{Head, Link},
};

use super::{
    AccessError,
    book::{Book, Entry},
    invite::until,
};
use crate::{
    access::unix_seconds, cli::access::InviteListArgs, config, figures::number_of,
    manifest::Manifest, os::cannot, store::links, tools::stored,
};

/// Prints a line for each peer, then one for each invite: with `--key` also those that nobody has
/// used. The folder may be that of a running node, for it is only read. The run has to be one of
/// invited peers.
pub(super) fn list(args: &InviteListArgs, out: &mut dyn Write) -> Result<(), AccessError> {
    let data_dir = args.of.data_dir.clone().map_or_else(config::data_dir, Ok)?;
    let run = stored::run_folder(data_dir, args.of.run.as_deref())?;
    let manifest = super::invited(&run.join("run.toml"))?;
    let lineage = links::lineage(&run).map_err(cannot("read the receipts in", &run))?;
    let epoch = lineage.last().map_or(0, |(head, _)| head.epoch);
    let ledger = &ledger(&lineage, &manifest);
    writeln!(out, "run {} after epoch {epoch}, notice {}", manifest.id, ledger.last().0)?;
    let book = args.key.as_deref().map(Book::beside).transpose()?;
    let noted = by_key(book.iter().flat_map(|book| book.of(manifest.id)));
    let list = List { ledger, noted, epoch, now: unix_seconds() };
    out.write_all(list.lines().as_bytes())?;
    Ok(())
}

/// The ledger after the last epoch of a lineage.
pub(super) fn ledger(lineage: &[(Head, Link)], manifest: &Manifest) -> Arc<Ledger> {
    let nobody = Arc::new(Ledger::new(manifest.id, manifest.run.organiser));
    lineage.iter().fold(nobody, |ledger, (_, link)| ledger.after(&link.receipt))
}

/// What the lines of a list are made of.
struct List<'a> {
    ledger: &'a Ledger,
    noted: Noted<'a>,
    /// The last epoch of the folder.
    epoch: u64,
    /// The time by this machine, in Unix seconds.
    now: u64,
}

/// The invites that are noted beside a key, by their own keys.
type Noted<'a> = BTreeMap<PeerId, &'a Entry>;

/// Sorts entries by their keys. An entry with a damaged key is left out.
fn by_key<'a>(entries: impl Iterator<Item = &'a Entry>) -> Noted<'a> {
    entries.filter_map(|entry| Some((entry.key()?, entry))).collect()
}

impl List<'_> {
    /// A line for each peer, one for each invite that a receipt names, and one for each other that
    /// is noted. Only a noted invite has its limits in the line: the ledger does not have them.
    fn lines(&self) -> String {
        let known = self.ledger.invites();
        let peers = self.ledger.peers().iter().map(|(peer, admitted)| self.of_peer(peer, admitted));
        let invites = known.iter().map(|(key, account)| self.of_invite(key, account));
        let others = self.noted.iter().filter(|(key, _)| !known.contains_key(key));
        let others = others.map(|(_, entry)| {
            let may =
                || format!("; {} may join by it{}", number_of(entry.uses, "peer"), limits(entry));
            format!("invite {}  not used{}", entry.label, self.over(entry).unwrap_or_else(may))
        });
        let mut lines = peers.chain(invites).chain(others).collect::<Vec<_>>();
        if lines.is_empty() {
            lines.push("no peer is admitted yet".to_owned());
        }
        lines.join("\n") + "\n"
    }

    /// The line of a peer: how it was admitted, and whether it is revoked. A notice may revoke a
    /// peer that never came.
    fn of_peer(&self, peer: &PeerId, admitted: &Admitted) -> String {
        let by = |via| match via {
            Via::Invite(key) => self.name(&key),
            Via::Name => "name".to_owned(),
            Via::Notice(number) => format!("notice {number}"),
        };
        let came = match admitted.came {
            Some((via, epoch)) => format!("admitted in epoch {epoch} by {}", by(via)),
            None => "never admitted".to_owned(),
        };
        format!("{}  {came}{}", base58::encode(peer), revoked(admitted.revoked))
    }

    /// The line of an invite: how often it was used, and whether it is revoked, or else its limits.
    /// `uses` is 0 where no ticket of it is in the ledger, as for one that was revoked before.
    fn of_invite(&self, key: &PeerId, account: &Account) -> String {
        let used = match account.uses {
            0 => "not used".to_owned(),
            uses => format!("used {} of {}", account.spent, number_of(uses, "time")),
        };
        let end = match (account.revoked, self.noted.get(key)) {
            (None, Some(entry)) => self.over(entry).unwrap_or_else(|| limits(entry)),
            (by, _) => revoked(by),
        };
        format!("{}  {used}{end}", self.name(key))
    }

    /// The end of a line about an invite that admits nobody any more by its limits.
    fn over(&self, entry: &Entry) -> Option<String> {
        let Entry { expires, until_epoch, .. } = *entry;
        if expires > 0 && self.now > expires.saturating_add(EXPIRY_SLACK) {
            return Some(format!("; expired at {}", utc(expires)));
        }
        let over = until_epoch > 0 && self.epoch >= until_epoch;
        over.then(|| format!("; its last epoch was {until_epoch}"))
    }

    /// The label of an invite. Where no peer has come by it, only the list beside the key has that.
    fn name(&self, key: &PeerId) -> String {
        let used = self.ledger.invites().get(key).map(|account| account.label.as_str());
        let noted = || self.noted.get(key).map(|entry| entry.label.as_str());
        match used.filter(|label| !label.is_empty()).or_else(noted) {
            Some(label) => format!("invite {label}"),
            None => format!("invite {}", key.hex()),
        }
    }
}

/// Until when an invite can be used, if there is a limit.
fn limits(entry: &Entry) -> String {
    until(entry.expires, entry.until_epoch)
}

/// The end of a line about somebody or something that was revoked.
fn revoked(by: Option<Revocation>) -> String {
    let text =
        |Revocation { notice, epoch }| format!("; revoked by notice {notice} in epoch {epoch}");
    by.map_or_else(String::new, text)
}

#[cfg(test)]
mod tests {
    use intellect_protocol::{
        base::{id::RunId, sign::Keypair},
        message::{Body, Clause, Invite, Notice, Terms, Ticket},
    };

    use super::*;

    const RUN: RunId = RunId([7; 32]);

    #[test]
    fn a_list_says_how_each_peer_was_admitted_and_who_is_revoked() {
        let [organiser, inviter] = [1, 2].map(|seed| Keypair::from_seed(&[seed; 32]));
        let [one, two] = [3, 4].map(|seed| Keypair::from_seed(&[seed; 32]).peer());
        let terms = Terms { uses: 5, label: "bob".to_owned(), ..Terms::new(inviter.peer()) };
        let invite = Invite::new(RUN, terms, &organiser);
        let mut ledger = Ledger::new(RUN, organiser.peer());
        let said =
            |ledger: &Ledger, noted: Noted<'_>| List { ledger, noted, epoch: 8, now: 0 }.lines();
        assert_eq!(said(&ledger, Noted::new()), "no peer is admitted yet\n");
        let spare = Terms {
            uses: 2,
            label: "carl".to_owned(),
            until_epoch: 9,
            ..Terms::new(organiser.peer())
        };
        let entries = [&invite.terms, &spare].map(|terms| Entry::of(RUN, terms));
        ledger.admit(3, &Ticket::invited(invite, &inviter, one));
        ledger.admit(4, &Ticket::named(RUN, two, 0, &organiser));
        let clauses = vec![Clause::RevokePeer(two)];
        let notice = Notice::after(RUN, ledger.last(), Body::Membership(clauses), &organiser);
        ledger.take(9, &notice);
        let carl = "invite carl  not used; 2 peers may join by it, up to epoch 9\n";
        assert!(!said(&ledger, Noted::new()).contains("carl"));
        let lines = said(&ledger, by_key(entries.iter()));
        assert!(lines.ends_with(carl), "{lines}");
        let [one, two] = [one, two].map(|peer| base58::encode(&peer));
        for line in [
            format!("{one}  admitted in epoch 3 by invite bob\n"),
            format!("{two}  admitted in epoch 4 by name; revoked by notice 1 in epoch 9\n"),
            "invite bob  used 1 of 5 times\n".to_owned(),
        ] {
            assert!(lines.contains(&line), "{line}{lines}");
        }
        let clauses = vec![Clause::RevokeInvite { key: spare.key, admitted: false }];
        let notice = Notice::after(RUN, ledger.last(), Body::Membership(clauses), &organiser);
        ledger.take(9, &notice);
        let lines = said(&ledger, by_key(entries.iter()));
        let carl = "invite carl  not used; revoked by notice 2 in epoch 9\n";
        assert!(lines.contains(carl), "{lines}");
    }

    #[test]
    fn an_invite_is_over_an_hour_after_its_time_or_with_its_last_epoch() {
        let ledger = &Ledger::new(RUN, PeerId([1; 32]));
        let label = "carl".to_owned();
        let terms = Terms { expires: 1_000, until_epoch: 9, label, ..Terms::new(PeerId([2; 32])) };
        let entries = [Entry::of(RUN, &terms)];
        let said = |epoch, now| List { ledger, noted: by_key(entries.iter()), epoch, now }.lines();
        let limits = "until 1970-01-01 00:16 UTC and up to an hour longer, up to epoch 9";
        let carl = format!("invite carl  not used; 1 peer may join by it, {limits}\n");
        assert_eq!(said(8, 1_000 + 3_600), carl);
        let expired = "invite carl  not used; expired at 1970-01-01 00:16 UTC\n";
        assert_eq!(said(8, 1_000 + 3_601), expired);
        assert_eq!(said(9, 0), "invite carl  not used; its last epoch was 9\n");
    }
}
