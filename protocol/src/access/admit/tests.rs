//! What a signature proves, and which damage to a code is noticed.

use super::code::{Code, CodeError};
use super::*;
use crate::base::id::Digest;

const RUN: RunId = RunId([9; 32]);

fn key(seed: u8) -> Keypair {
    Keypair::from_seed(&[seed; 32])
}

fn peer(seed: u8) -> PeerId {
    key(seed).peer()
}

/// The invite of key 10, by the organiser, whose key is 1.
fn invite() -> Invite {
    let terms = Terms { uses: 5, label: "bob".to_owned(), ..Terms::new(peer(10)) };
    Invite::new(RUN, terms, &key(1))
}

fn ticket() -> Ticket {
    Ticket::invited(invite(), &key(10), peer(20))
}

fn verify(ticket: &Ticket) -> Result<(), Denied> {
    ticket.verify(&peer(1), &RUN, &peer(20))
}

fn unsigned() -> Denied {
    Denied::Unsigned { organiser: peer(1) }
}

#[test]
fn t3_a_ticket_is_good_for_one_run_one_peer_and_by_its_own_invite() {
    assert_eq!(verify(&ticket()), Ok(()));
    let other = RunId([8; 32]);
    let of = ticket().verify(&peer(1), &other, &peer(20));
    assert_eq!(of, Err(Denied::AnotherRun { run: other, of: RUN }));
    let thief = ticket().verify(&peer(1), &RUN, &peer(21));
    assert_eq!(thief, Err(Denied::AnotherPeer { peer: peer(20) }));
    let Ticket::Invited { invite, signature, .. } = ticket() else { unreachable!() };
    let renamed = Ticket::Invited { invite, peer: peer(21), signature };
    let renamed = renamed.verify(&peer(1), &RUN, &peer(21));
    assert_eq!(renamed, Err(Denied::NotByTheInvite));
    let self_made = Ticket::invited(self::invite(), &key(11), peer(20));
    assert_eq!(verify(&self_made), Err(Denied::NotByTheInvite));
    // An invite for more uses than were signed.
    let mut grown = self::invite();
    grown.terms.uses = 6;
    let grown = Ticket::invited(grown, &key(10), peer(20));
    assert_eq!(verify(&grown), Err(unsigned()));
    // A signature for one run is invalid in another, even if its run is changed too.
    let moved = Invite { run: other, ..self::invite() };
    let moved = Ticket::invited(moved, &key(10), peer(20));
    let moved = moved.verify(&peer(1), &other, &peer(20));
    assert_eq!(moved, Err(unsigned()));
}

#[test]
fn the_organiser_alone_signs_for_a_named_peer() {
    assert_eq!(verify(&Ticket::named(RUN, peer(20), 7, &key(2))), Err(unsigned()));
    let named = Ticket::named(RUN, peer(20), 7, &key(1));
    assert_eq!(verify(&named), Ok(()));
    let Ticket::Named { run, peer, signature, .. } = named else { unreachable!() };
    let longer = Ticket::Named { run, peer, until_epoch: 8, signature };
    assert_eq!(verify(&longer), Err(unsigned()));
}

/// Two clocks that differ by less than an hour never disagree: one that names gives an
/// hour, one that judges gives two.
#[test]
fn t4_the_clock_has_an_hour_of_slack_and_another_one_for_others() {
    let of = |expires| {
        let terms = Terms { expires, ..Terms::new(peer(10)) };
        Ticket::invited(Invite::new(RUN, terms, &key(1)), &key(10), peer(20))
    };
    let (ticket, over) = (of(1_000), Err(Denied::Expired { expires: 1_000 }));
    for (judge, slack) in [(Judge::Own, EXPIRY_SLACK), (Judge::Second, 2 * EXPIRY_SLACK)] {
        assert_eq!(ticket.check_clock(1_000 + slack, judge), Ok(()));
        assert_eq!(ticket.check_clock(1_001 + slack, judge), over);
        assert_eq!(of(0).check_clock(u64::MAX, judge), Ok(()));
    }
    assert_eq!(of(u64::MAX).check_clock(u64::MAX, Judge::Own), Ok(()));
}

#[test]
fn d1_what_is_too_long_or_too_much_is_refused() {
    let of = |terms| Invite::new(RUN, terms, &key(1)).verify(&peer(1), &RUN);
    let terms = || Terms::new(peer(10));
    for (terms, why) in [
        (Terms { uses: 0, ..terms() }, "no uses"),
        (Terms { uses: 1_001, ..terms() }, "more than 1,000"),
        (Terms { label: "x".repeat(33), ..terms() }, "more than 32 bytes"),
        (Terms { label: "a b".to_owned(), ..terms() }, "A-Za-z0-9._-"),
    ] {
        let told = of(terms).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    let longest = Terms {
        uses: 1_000,
        until_epoch: u64::MAX,
        expires: u64::MAX,
        label: "x".repeat(32),
        ..terms()
    };
    let longest = Ticket::invited(Invite::new(RUN, longest, &key(1)), &key(10), peer(20));
    assert_eq!(verify(&longest), Ok(()));
    assert!(longest.bytes() <= TICKET_BYTES_MAX, "{}", longest.bytes());
}

#[test]
fn a_code_reads_back_and_notices_a_slip() {
    let code = Code::Bearer { invite: Box::new(invite()), seed: [10; 32] };
    let text = code.to_string();
    assert!(text.starts_with("ii1"));
    assert_eq!(text.parse::<Code>(), Ok(code.clone()));
    assert_eq!(format!("  {text}\n").parse::<Code>(), Ok(code.clone()));
    assert_eq!(code.ticket(&peer(20)), Ok(ticket()));
    assert!(!format!("{code:?}").contains("10"), "a code is a secret");
    for at in 3..text.len() {
        let mut slip = text.clone().into_bytes();
        slip[at] = if slip[at] == b'z' { b'y' } else { b'z' };
        let slip = String::from_utf8(slip).unwrap();
        assert!(slip.parse::<Code>().is_err(), "{slip}");
    }
    let error = |text: &str| text.parse::<Code>().unwrap_err();
    assert_eq!(error(&text[1..]), CodeError::Prefix);
    assert_eq!(error(&text[..text.len() - 1]), CodeError::Check);
    assert_eq!(error("ii10OIl"), CodeError::Digits);
    assert_eq!(error("ii1"), CodeError::Check);
    assert_eq!(error(&format!("ii1{}", "z".repeat(1 << 16))), CodeError::Digits);
    let false_key = Code::Bearer { invite: Box::new(invite()), seed: [11; 32] };
    assert_eq!(error(&false_key.to_string()), CodeError::Key);
    let named = Code::Named(Ticket::named(RUN, peer(20), 0, &key(1)));
    assert_eq!(named.to_string().parse::<Code>(), Ok(named.clone()));
    assert_eq!(named.ticket(&peer(21)), Err(Denied::AnotherPeer { peer: peer(20) }));
}

/// A code outlives the program that printed it.
#[test]
fn the_bytes_of_a_code_are_golden() {
    let code = Code::Bearer { invite: Box::new(invite()), seed: [10; 32] };
    let digest = Digest::derive("golden", code.to_string().as_bytes());
    assert_eq!(digest.to_string(), "fdf82175");
}
