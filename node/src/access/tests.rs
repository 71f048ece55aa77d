//! Which peers are admitted, and when a node that is refused ends.

use std::collections::BTreeSet;

use intellect_model::config::Work;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::manifest::{Run, Trust};
use intellect_protocol::message::{Admissions, Body, Clause, Invite, Notice, Terms};

use super::*;
use crate::manifest::Draft;

fn key(seed: u8) -> Keypair {
    Keypair::from_seed(&[seed; 32])
}

fn manifest() -> Manifest {
    let trust = Trust { level: Level::Invited, ..Trust::default() };
    let run = Run { trust, ..Run::new(key(1).peer(), 7) };
    Draft::new(&run, &Work::synthetic()).unwrap().sign(&key(1)).unwrap()
}

fn named(manifest: &Manifest, seed: u8) -> Ticket {
    Ticket::named(manifest.id, key(seed).peer(), 0, &key(1))
}

/// A ticket by an invite for `uses` peers that expires then.
fn invited(manifest: &Manifest, seed: u8, uses: u32, expires: u64) -> Ticket {
    let terms = Terms { uses, expires, ..Terms::new(key(50).peer()) };
    let invite = Invite::new(manifest.id, terms, &key(1));
    Ticket::invited(invite, &key(50), key(seed).peer())
}

fn admission(manifest: &Manifest, ticket: Option<Ticket>) -> Admission {
    Admission::new(manifest, key(2).peer(), ticket).unwrap()
}

/// The ledger after tickets and notices of one epoch.
fn ledger(
    before: &Admission,
    epoch: u64,
    notices: Vec<Notice>,
    tickets: Vec<Ticket>,
) -> Arc<Ledger> {
    let members: BTreeSet<_> = tickets.iter().map(Ticket::peer).collect();
    let trust = Admissions { notices, tickets };
    before.ledger.with(epoch, &members, Some(&trust)).unwrap()
}

fn welcome(here: &mut Admission, now: Instant, peer: &PeerId) {
    let welcome = here.reply(Outcome::Welcome);
    here.answered(now, peer, welcome);
}

fn refusal(why: &str) -> Reception {
    Reception { outcome: Outcome::refused(&why), epoch: 9, notice: None }
}

#[test]
fn an_open_run_has_no_admission_and_a_node_without_a_ticket_does_not_begin() {
    let open = Draft::new(&Run::new(key(1).peer(), 7), &Work::synthetic()).unwrap();
    assert!(Admission::new(&open.sign(&key(1)).unwrap(), key(2).peer(), None).is_none());
    let manifest = manifest();
    let text = admission(&manifest, None).check().unwrap_err().to_string();
    assert!(text.contains("takes invited peers only") && text.contains("--invite CODE"), "{text}");
    assert!(admission(&manifest, Some(named(&manifest, 2))).check().is_ok());
    assert!(admission(&manifest, Some(named(&manifest, 3))).check().is_err(), "somebody else's");
    let late = invited(&manifest, 2, 1, 1_000_000);
    assert!(matches!(admission(&manifest, Some(late)).check(), Err(Denied::Expired { .. })));
}

/// An invite may expire while its node waits for members; once they have admitted it, it counts no more.
#[test]
fn only_an_invite_that_is_needed_can_have_expired() {
    let manifest = manifest();
    let late = invited(&manifest, 2, 1, 1_000_000);
    let mut here = admission(&manifest, Some(late.clone()));
    assert_eq!(here.expired(), Some(1_000_000));
    here.follow(&ledger(&here, 1, Vec::new(), vec![late]), 2);
    assert_eq!(here.expired(), None);
    for ticket in [None, Some(named(&manifest, 2)), Some(invited(&manifest, 2, 1, u64::MAX))] {
        assert_eq!(admission(&manifest, ticket).expired(), None);
    }
}

#[test]
fn peers_in_the_ledger_or_with_a_ticket_are_admitted_until_a_notice_revokes_them() {
    let manifest = manifest();
    let mut here = admission(&manifest, Some(named(&manifest, 2)));
    let peers = [3, 4, 5].map(|seed| key(seed).peer());
    assert!(here.enter(peers[0], None).is_err());
    assert_eq!(here.enter(peers[0], Some(named(&manifest, 3))), Ok(true));
    assert_eq!(here.enter(peers[0], Some(named(&manifest, 3))), Ok(false));
    assert!(here.enter(peers[1], Some(named(&manifest, 3))).is_err(), "a stolen one");
    assert_eq!(here.allowed(), [peers[0]].into());
    let mut tickets = vec![named(&manifest, 3), named(&manifest, 4)];
    tickets.sort_by_key(Ticket::peer);
    let both = ledger(&here, 1, Vec::new(), tickets);
    assert!(here.follow(&both, 2) && !here.follow(&both, 2));
    assert_eq!(here.allowed(), [peers[0], peers[1]].into());
    assert!(here.tickets.is_empty() && here.enter(peers[1], None) == Ok(false));
    assert_eq!(here.enter(peers[2], Some(named(&manifest, 5))), Ok(true));
    let clauses = vec![Clause::RevokePeer(peers[0]), Clause::RevokePeer(peers[2])];
    let notice = Notice::after(manifest.id, both.last(), Body::Membership(clauses), &key(1));
    assert!(here.follow(&ledger(&here, 2, vec![notice.clone()], Vec::new()), 3));
    assert_eq!(here.allowed(), [peers[1]].into());
    let text = here.enter(peers[0], Some(named(&manifest, 3))).unwrap_err().to_string();
    assert!(text.contains("revoked by notice 1 in epoch 2"), "{text}");
    let reply = here.reply(Outcome::Welcome);
    let since = InForce { number: 1, digest: notice.place().1, since: 3 };
    assert_eq!((reply.epoch, reply.notice), (2, Some(since)));
}

/// A node that was away does not know which peers came by an invite before that expired.
#[test]
fn a_node_that_comes_back_admits_peers_that_came_meanwhile() {
    let manifest = manifest();
    let mut here = admission(&manifest, Some(named(&manifest, 2)));
    let both = ledger(&here, 1, Vec::new(), vec![named(&manifest, 2)]);
    here.resume(&both, 8);
    let late = || Some(invited(&manifest, 3, 1, 1_000_000));
    assert_eq!(here.enter(key(3).peer(), late()), Ok(true));
    here.follow(&both, 9);
    assert!(here.allowed() == [key(2).peer()].into(), "the lineage has moved without it");
    assert!(matches!(here.enter(key(3).peer(), late()), Err(Denied::Expired { .. })));
}

#[test]
fn only_refusals_of_admitted_peers_end_a_node_and_one_welcome_is_enough() {
    let (manifest, now) = (manifest(), Instant::now());
    let end = now + REFUSED_FOR;
    let mut here = admission(&manifest, Some(named(&manifest, 2)));
    let member = key(3).peer();
    assert!(!here.is_turned_away());
    assert!(!here.answered(now, &key(9).peer(), refusal("a peer that is not admitted refuses")));
    assert_eq!(here.refused(now + 2 * REFUSED_FOR, false), None);
    assert!(here.is_turned_away(), "people read of it at once");
    here.enter(member, Some(named(&manifest, 3))).unwrap();
    let used = || refusal("this invite has been used 1 of 1 times");
    assert!(here.answered(now, &member, used()), "the first one is reported at once");
    assert!(!here.answered(now, &member, used()));
    assert_eq!(here.refused(now, false), None, "others may say something else");
    let text = here.refused(end, false).unwrap();
    assert!(text.contains("used 1 of 1"), "{text}");
    welcome(&mut here, now, &key(9).peer());
    assert!(here.refused(end, false).is_some(), "a stranger keeps nobody");
    assert!(!here.is_turned_away());
    here.enter(key(9).peer(), Some(named(&manifest, 9))).unwrap();
    assert_eq!(here.refused(end, false), None, "it counts from its ticket on");
    here.answered(now, &member, refusal("this peer was revoked"));
    assert_eq!(here.refused(end, false), None, "one still lets it in");
    // A peer that no longer admits us closes the connection, and gives the reason at the next
    // request.
    here.unlinked(&key(9).peer());
    assert_eq!(here.refused(end, false), None);
    here.answered(now, &member, refusal("this peer was revoked"));
    assert!(here.refused(end, false).unwrap().contains("was revoked"));
    // Strangers with many keys fill the table, and members still count.
    welcome(&mut here, now, &member);
    for seed in 0..2_000_u16 {
        let stranger = PeerId([seed.to_le_bytes(); 16].as_flattened().try_into().unwrap());
        welcome(&mut here, now, &stranger);
    }
    assert!(here.answers.welcome.len() <= TICKETS_MAX);
    assert_eq!(here.refused(end, false), None, "the member has not left its room to them");
    here.answered(now, &member, refusal("this peer was revoked"));
    assert!(here.refused(end, false).is_some());
    let late = key(8).peer();
    welcome(&mut here, now, &late);
    here.enter(late, Some(named(&manifest, 8))).unwrap();
    assert_eq!(here.refused(end, false), None, "strangers leave room for the next one");
    here.unlinked(&late);
    here.answered(now, &member, refusal("this peer was revoked"));
    assert!(here.refused(end, false).is_some());
    welcome(&mut here, now, &member);
    assert_eq!(here.refused(end, false), None);
    // A revocation in its own lineage needs no reply.
    let in_ledger = ledger(&here, 1, Vec::new(), vec![named(&manifest, 2)]);
    here.follow(&in_ledger, 2);
    let clauses = vec![Clause::RevokePeer(key(2).peer())];
    let notice = Notice::after(manifest.id, in_ledger.last(), Body::Membership(clauses), &key(1));
    here.follow(&ledger(&here, 2, vec![notice], Vec::new()), 3);
    assert!(here.refused(now, false).unwrap().contains("revoked by notice 1 in epoch 2"));
}
