//! Which notices are accepted, and which of two that contradict each other stays.

use super::*;

const RUN: RunId = RunId([2; 32]);
const NONE: Point = (0, Digest::ZERO);

fn organiser() -> Keypair {
    Keypair::from_seed(&[1; 32])
}

fn attestation(epoch: u64, state: u8) -> Body {
    Body::Attestation(Attestation { epoch, state: Digest([state; 32]), r: Digest([9; 32]) })
}

fn revokes(peer: u8) -> Body {
    Body::Membership(vec![Clause::RevokePeer(PeerId([peer; 32]))])
}

fn after(before: Point, body: Body) -> Notice {
    Notice::after(RUN, before, body, &organiser())
}

fn notices() -> Notices {
    Notices::new(RUN, organiser().peer(), Level::Invited)
}

#[test]
fn a_notice_has_its_golden_bytes_and_is_signed_whole() {
    let bytes = after(NONE, attestation(300, 5)).to_bytes();
    let signed = [&[1], &[0; 32][..], &[0], &[0xfb, 0x2c, 0x01], &[5; 32], &[9; 32]].concat();
    assert_eq!(bytes[..bytes.len() - 64], [&[2; 32][..], &signed].concat());
    let signature = Signature(bytes[bytes.len() - 64..].try_into().unwrap());
    assert!(verify(&organiser().peer(), "notice", &RUN, &signed, &signature));
    let holds = |bytes: &[u8]| {
        let notice = Notice::from_bytes(bytes);
        notice.is_some_and(|notice| notice.verify(&organiser().peer(), &RUN).is_ok())
    };
    assert!(holds(&bytes));
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!holds(&flipped), "bit {bit}");
    }
    assert!(!holds(&bytes[..bytes.len() - 1]) && !holds(&[&bytes[..], &[0]].concat()));
    assert_eq!(Notice::from_bytes(&[0; NOTICE_BYTES_MAX + 1]), None);
}

#[test]
fn only_the_organiser_says_what_can_be_and_for_one_run() {
    let good = after(NONE, revokes(20));
    let told = |notice: &Notice| notices().check(notice).unwrap_err().to_string();
    assert_eq!(notices().check(&good), Ok(()));
    assert!(
        told(&Notice::after(RUN, NONE, revokes(20), &Keypair::from_seed(&[8; 32])))
            .contains("not signed")
    );
    assert!(told(&Notice { body: revokes(21), ..good.clone() }).contains("notice 1 is not signed"));
    assert!(
        told(&Notice { run: RunId([4; 32]), ..good.clone() }).contains("use a notice of this run")
    );
    for (notice, why) in [
        (Notice { number: 0, ..good.clone() }, "wrong number"),
        (Notice { number: 2, ..good.clone() }, "wrong number"),
        (Notice { before: Digest([1; 32]), ..good.clone() }, "wrong number"),
        (after(NONE, attestation(0, 1)), "attests genesis"),
        (after(NONE, Body::Membership(Vec::new())), "add one"),
        (after(NONE, Body::Membership(vec![Clause::Admit(PeerId([1; 32])); 256])), "split it"),
    ] {
        assert!(told(&notice).contains(why), "{}", told(&notice));
    }
    let open = Notices::new(RUN, organiser().peer(), Level::Open);
    assert_eq!(open.check(&good), Err(NoticeError::Open));
    assert_eq!(open.check(&after(NONE, attestation(3, 5))), Ok(()));
}

#[test]
fn t8_each_notice_follows_on_the_one_before_and_any_may_come_first() {
    let one = after(NONE, attestation(3, 5));
    let two = after(one.place(), revokes(20));
    let three = after(two.place(), attestation(9, 8));
    for order in [[&one, &two, &three], [&three, &one, &two], [&two, &three, &one]] {
        let mut known = notices();
        for notice in order {
            assert_eq!(known.learn(NONE, notice), Ok(true));
            assert_eq!(known.learn(NONE, notice), Ok(false));
        }
        assert_eq!(known.last(), three.place());
        assert_eq!(known.after(NONE, 2).len(), 2);
        assert_eq!(known.between(one.place(), three.place()).len(), 2);
        assert_eq!(known.attestations().map(|(number, _)| number).collect::<Vec<_>>(), [3, 1]);
    }
    let mut known = notices();
    known.learn(NONE, &after(NONE, attestation(3, 6))).unwrap();
    assert_eq!(known.learn(NONE, &two), Err(NoticeError::Follows { number: 2, known: 1 }));
    assert_eq!(known.learn(NONE, &three), Ok(true), "what lies between is not known");
    // A notice that does not follow from the beginning gives way to one that does.
    let mut astray = notices().with([&two]);
    assert_eq!(astray.learn(NONE, &after(NONE, attestation(3, 6))), Ok(true));
    assert_eq!(astray.last().0, 1);
    let back = after(three.place(), attestation(9, 1));
    assert_eq!(known.learn(NONE, &back), Err(NoticeError::Follows { number: 4, known: 3 }));
}

/// An organiser that signs two of one number has made a mistake; all peers keep the same one.
#[test]
fn t8_of_two_with_one_number_the_smaller_digest_stays_unless_the_lineage_has_another() {
    let (a, b) = (after(NONE, revokes(1)), after(NONE, revokes(2)));
    let (less, more) = if a.place().1 < b.place().1 { (&a, &b) } else { (&b, &a) };
    for order in [[&a, &b], [&b, &a]] {
        let mut known = notices();
        order.iter().for_each(|notice| assert!(known.learn(NONE, notice).is_ok()));
        assert_eq!(known.last(), less.place());
    }
    // A lineage has carried the other one: the next notice has to follow that.
    let mut known = notices().with([less, &after(less.place(), revokes(3))]);
    let next = after(more.place(), revokes(4));
    known.settle(more.place());
    assert_eq!(known.all().count(), 0);
    let refused = NoticeError::Follows { number: 1, known: 1 };
    assert_eq!(known.learn(more.place(), less), Err(refused));
    assert_eq!(known.learn(more.place(), &next), Ok(true));
    assert_eq!(known.after(more.place(), 4).len(), 1);
}

#[test]
fn d1_few_notices_are_kept() {
    let (mut known, mut last) = (notices(), after(NONE, revokes(1)));
    let first = last.clone();
    for _ in 0..2 * NOTICES_KEPT {
        known.learn(NONE, &last).unwrap();
        last = after(last.place(), revokes(1));
    }
    assert_eq!(known.all().count(), NOTICES_KEPT);
    assert_eq!(known.learn(NONE, &first), Ok(false));
    assert_eq!(known.last().0, 2 * NOTICES_KEPT as u64);
}
