//! What a signature is good for, and what a code survives.

use super::code::{Code, CodeError};
use super::*;

const RUN: RunId = RunId([9; 32]);

fn key(seed: u8) -> Keypair {
    Keypair::from_seed(&[seed; 32])
}

fn peer(seed: u8) -> PeerId {
    key(seed).peer()
}

/// Keys 1, 2 and 3 are the authorities.
fn authorities(threshold: usize) -> Authorities {
    Authorities { keys: vec![peer(1), peer(2), peer(3)], threshold }
}

/// The invite of key 10, signed by the first authority.
fn invite() -> Invite {
    Invite::new(RUN, Terms { uses: 5, label: "bob".to_owned(), ..Terms::new(peer(10)) })
        .signed(&key(1))
}

fn ticket() -> Ticket {
    Ticket::invited(invite(), &key(10), peer(20))
}

fn verify(ticket: &Ticket, threshold: usize) -> Result<(), Denied> {
    ticket.verify(&key(99), &RUN, &authorities(threshold), &peer(20))
}

#[test]
fn t3_a_ticket_is_good_for_one_run_one_peer_and_by_its_own_invite() {
    assert_eq!(verify(&ticket(), 1), Ok(()));
    let other = RunId([8; 32]);
    let of = ticket().verify(&key(99), &other, &authorities(1), &peer(20));
    assert_eq!(of, Err(Denied::AnotherRun { run: other, of: RUN }));
    let thief = ticket().verify(&key(99), &RUN, &authorities(1), &peer(21));
    assert_eq!(thief, Err(Denied::AnotherPeer { peer: peer(20) }));
    // A stolen ticket with another name in it.
    let Ticket::Invited { invite, signature, .. } = ticket() else { unreachable!() };
    let renamed = Ticket::Invited { invite, peer: peer(21), signature };
    let renamed = renamed.verify(&key(99), &RUN, &authorities(1), &peer(21));
    assert_eq!(renamed, Err(Denied::NotByTheInvite));
    let self_made = Ticket::invited(self::invite(), &key(11), peer(20));
    assert_eq!(verify(&self_made, 1), Err(Denied::NotByTheInvite));
    // More uses than were signed.
    let mut grown = self::invite();
    grown.terms.uses = 6;
    let grown = Ticket::invited(grown, &key(10), peer(20));
    assert_eq!(verify(&grown, 1), Err(Denied::Unsigned { found: 0, needed: 1 }));
    // What is signed for one run is nothing in another, also with its name changed.
    let moved = Invite { run: other, ..self::invite() };
    let moved = Ticket::invited(moved, &key(10), peer(20));
    let moved = moved.verify(&key(99), &other, &authorities(1), &peer(20));
    assert_eq!(moved, Err(Denied::Unsigned { found: 0, needed: 1 }));
}

#[test]
fn as_many_authorities_sign_as_the_threshold_says_each_once() {
    let twice = invite().signed(&key(1)).signed(&key(4));
    let short = Ticket::invited(twice.clone(), &key(10), peer(20));
    assert_eq!(verify(&short, 2), Err(Denied::Unsigned { found: 1, needed: 2 }));
    let mut doubled = twice.clone();
    doubled.signatures = vec![doubled.signatures[0]; 2];
    let doubled = Ticket::invited(doubled, &key(10), peer(20));
    assert_eq!(verify(&doubled, 2), Err(Denied::Unsigned { found: 1, needed: 2 }));
    let enough = Ticket::invited(twice.signed(&key(3)), &key(10), peer(20));
    assert_eq!(verify(&enough, 2), Ok(()));
    let named = Ticket::named(RUN, peer(20), 7).signed(&key(2));
    assert_eq!(verify(&named, 1), Ok(()));
    assert_eq!(verify(&named, 2), Err(Denied::Unsigned { found: 1, needed: 2 }));
    assert_eq!(verify(&named.clone().signed(&key(1)), 2), Ok(()));
    let Ticket::Named { run, peer, signatures, .. } = named else { unreachable!() };
    let longer = Ticket::Named { run, peer, until_epoch: 8, signatures };
    assert_eq!(verify(&longer, 1), Err(Denied::Unsigned { found: 0, needed: 1 }));
}

#[test]
fn t13_who_may_invite_does_so_one_level_deep() {
    let terms = Terms { may_invite: true, ..invite().terms };
    let root = Invite::new(RUN, terms).signed(&key(1));
    let below = Terms::new(peer(11));
    let branched = root.branched(&key(10), below.clone()).unwrap();
    assert_eq!(verify(&Ticket::invited(branched.clone(), &key(11), peer(20)), 1), Ok(()));
    // The ticket is by the branch's key, the branch by the root's.
    let by_root = Ticket::invited(branched.clone(), &key(10), peer(20));
    assert_eq!(verify(&by_root, 1), Err(Denied::NotByTheInvite));
    assert_eq!(root.branched(&key(12), below.clone()), Err(Denied::NotByTheInvite));
    let deeper = Terms { may_invite: true, ..below.clone() };
    let refused = root.branched(&key(10), deeper).unwrap_err().to_string();
    assert!(refused.contains("under another one may not invite"), "{refused}");
    let refused = invite().branched(&key(10), below).unwrap_err().to_string();
    assert!(refused.contains("under one that may not invite"), "{refused}");
    let mut grown = branched;
    if let Some(branch) = &mut grown.branch {
        branch.terms.uses = 2;
    }
    let grown = Ticket::invited(grown, &key(11), peer(20));
    assert_eq!(verify(&grown, 1), Err(Denied::NotByTheInvite));
}

#[test]
fn t4_the_clock_has_an_hour_of_slack() {
    let terms = Terms { expires: 1_000, ..Terms::new(peer(10)) };
    assert_eq!(terms.check_clock(1_000 + EXPIRY_SLACK), Ok(()));
    let expires = 1_000;
    assert_eq!(terms.check_clock(1_001 + EXPIRY_SLACK), Err(Denied::Expired { expires }));
    assert_eq!(Terms { expires: 0, ..terms }.check_clock(u64::MAX), Ok(()));
}

#[test]
fn d1_what_is_too_long_or_too_much_is_refused() {
    let of =
        |terms| Invite::new(RUN, terms).signed(&key(1)).verify(&key(99), &RUN, &authorities(1));
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
    // The longest ticket that there can be, and the usual one.
    let full = Terms {
        uses: 1_000,
        until_epoch: u64::MAX,
        expires: u64::MAX,
        may_invite: true,
        label: "x".repeat(32),
        ..terms()
    };
    let eight: Vec<Keypair> = (1..=8).map(key).collect();
    let root = eight.iter().fold(Invite::new(RUN, full.clone()), |invite, key| invite.signed(key));
    let below = Terms { may_invite: false, key: peer(11), ..full.clone() };
    let longest = Ticket::invited(root.branched(&key(10), below).unwrap(), &key(11), peer(20));
    assert!(longest.bytes() <= TICKET_BYTES_MAX, "{}", longest.bytes());
    let usual = Invite::new(RUN, full).signed(&key(1));
    assert!(Ticket::invited(usual, &key(10), peer(20)).bytes() <= 400);
}

fn decree(clauses: Vec<Clause>) -> Decree {
    Decree::after(RUN, (6, Digest([6; 32])), clauses).signed(&key(1))
}

#[test]
fn a_decree_is_signed_whole() {
    let check = |decree: &Decree, threshold| {
        decree.verify(&key(99), &RUN, &authorities(threshold)).map_err(|error| error.to_string())
    };
    let good = decree(vec![Clause::RevokePeer(peer(20))]);
    assert_eq!((good.number, check(&good, 1)), (7, Ok(())));
    let short = check(&good, 2).unwrap_err();
    assert!(short.contains("1 of the run's authorities have signed decree 7, 2 must"), "{short}");
    assert_eq!(check(&good.clone().signed(&key(2)), 2), Ok(()));
    assert_eq!(good.digest(), good.clone().signed(&key(2)).digest());
    for changed in [
        Decree { number: 8, ..good.clone() },
        Decree { before: Digest::ZERO, ..good.clone() },
        Decree { clauses: vec![Clause::RevokePeer(peer(21))], ..good.clone() },
    ] {
        assert!(check(&changed, 1).is_err());
        assert_ne!(changed.digest(), good.digest());
    }
    let other = Decree { run: RunId([8; 32]), ..good };
    assert!(check(&other, 1).unwrap_err().contains("sign one for this run"));
    for (clause, why) in [
        (Clause::Authorities { keys: vec![peer(1); 2], threshold: 1 }, "name it once"),
        (Clause::Authorities { keys: vec![peer(1)], threshold: 2 }, "1 to all"),
        (Clause::Authorities { keys: (1..=9).map(peer).collect(), threshold: 1 }, "1 to 8"),
        (Clause::Rescue { epoch: 1, parent: Digest::ZERO, voters: Vec::new() }, "no voters"),
    ] {
        let told = check(&decree(vec![clause]), 1).unwrap_err();
        assert!(told.contains(why), "{told}");
    }
    assert!(check(&decree(Vec::new()), 1).unwrap_err().contains("give it a clause"));
    let long = decree(vec![Clause::Admit(peer(20)); 256]);
    assert!(check(&long, 1).unwrap_err().contains("split it"));
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
    let named = Code::Named(Ticket::named(RUN, peer(20), 0).signed(&key(1)));
    assert_eq!(named.to_string().parse::<Code>(), Ok(named.clone()));
    assert_eq!(named.ticket(&peer(21)), Err(Denied::AnotherPeer { peer: peer(20) }));
}

/// A code outlives the program that printed it.
#[test]
fn the_bytes_of_a_code_are_golden() {
    let code = Code::Bearer { invite: Box::new(invite()), seed: [10; 32] };
    let digest = Digest::derive("golden", code.to_string().as_bytes());
    assert_eq!(digest.to_string(), "51696d34");
    let digest = decree(vec![Clause::RevokePeer(peer(20))]).digest();
    assert_eq!(digest.to_string(), "ee5b6e84");
}
