//! The bytes of every control message, request and answer, and what happens to damaged ones.
//!
//! The golden bytes pin the order of variants and fields, the length of numbers, and
//! the domain tags (by the signatures). A change of any of them makes another protocol,
//! with another `wire::VERSION`.
#![expect(clippy::unwrap_used, reason = "a test helper is a test too")]

mod examples;
mod vectors;

use intellect_protocol::base::id::RunId;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::message::wire::{self, DIRECT_BYTES_MAX, GOSSIP_BYTES_MAX, OpenError};
use intellect_protocol::message::{Message, Phase};

use examples::{answers, messages, requests};
use vectors::{ANSWERS, MESSAGES, REQUESTS, TAGS};

const RUN: RunId = RunId([0x52; 32]);

fn key() -> Keypair {
    Keypair::from_seed(&[0x4b; 32])
}

/// The bytes of golden text: hex, in which `07*32` is the byte 07 thirty-two times.
fn read(text: &str) -> Vec<u8> {
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    let token = |token: &str| match token.split_once('*') {
        Some((digits, count)) => vec![byte(digits.as_bytes()); count.parse().unwrap()],
        None => token.as_bytes().chunks(2).map(byte).collect(),
    };
    text.split_whitespace().flat_map(token).collect()
}

/// The golden text of these bytes.
fn write(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b);
    let text = runs.map(|run| match run.len() {
        count @ 0..4 => vec![format!("{:02x}", run[0]); count].join(" "),
        count => format!("{:02x}*{count}", run[0]),
    });
    text.collect::<Vec<_>>().join(" ")
}

fn envelope(body: &[u8], signature: &[u8]) -> Vec<u8> {
    [&[wire::VERSION], key().peer().as_bytes().as_slice(), body, signature].concat()
}

/// An envelope with a valid signature, whatever its body is: what a lying member can send.
fn signed(body: &[u8]) -> Vec<u8> {
    let kind = body.first().copied().unwrap_or(u8::MAX);
    let tag = TAGS.get(usize::from(kind)).copied().unwrap_or("none");
    envelope(body, &key().sign(tag, &RUN, body).0)
}

fn open(envelope: &[u8]) -> Result<Message, OpenError> {
    wire::open(&RUN, envelope, DIRECT_BYTES_MAX).map(|message| message.body().clone())
}

fn bodies() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    MESSAGES.iter().map(|(name, body, _)| (*name, read(body)))
}

/// Flips each bit of `bytes` in turn.
fn flips(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..8 * bytes.len()).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

/// Replaces each byte of `bytes` by the greatest number in turn, so that
/// every length claims too much.
fn claims(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let greatest = [0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    (0..bytes.len()).map(move |at| [&bytes[..at], &greatest, &bytes[at + 1..]].concat())
}

#[test]
fn every_message_has_its_golden_bytes() {
    let examples = messages();
    assert_eq!(examples.len(), MESSAGES.len());
    for ((name, message), (golden, body, signature)) in examples.into_iter().zip(MESSAGES) {
        assert_eq!(name, *golden);
        let sealed = wire::seal(&key(), &RUN, message);
        assert_eq!(write(&wire::canonical(sealed.body())), *body, "{name}");
        let whole = envelope(&read(body), &read(signature));
        assert_eq!(write(&wire::envelope(&sealed)), write(&whole), "{name}");
        assert_eq!(wire::open(&RUN, &whole, DIRECT_BYTES_MAX), Ok(sealed.clone()), "{name}");
        let gossiped = [&[2, 1, 0, 0], whole.as_slice()].concat();
        assert_eq!(wire::gossip(258, &sealed), gossiped, "{name}");
        assert_eq!(wire::open_gossip(&RUN, &gossiped), Ok(sealed), "{name}");
    }
}

#[test]
fn every_variant_has_its_golden_number() {
    let mut kinds: Vec<_> = bodies().map(|(_, body)| body[0]).collect();
    kinds.dedup();
    assert_eq!(kinds, (0..18).collect::<Vec<_>>(), "a message without an example");
    for ((_, message), (_, body)) in messages().into_iter().zip(bodies()) {
        assert_eq!(message.tag(), TAGS[usize::from(body[0])]);
    }
    let phases = [
        Phase::Behind,
        Phase::Train,
        Phase::Ready,
        Phase::Accepted,
        Phase::Reduce,
        Phase::Finished,
        Phase::Recover,
        Phase::Regrouping,
    ];
    for (number, phase) in (0..).zip(phases) {
        assert_eq!(wire::canonical(&phase), [number], "{phase:?}");
    }
}

#[test]
fn requests_and_answers_have_their_golden_bytes() {
    for ((name, request), (golden, bytes)) in requests().into_iter().zip(REQUESTS) {
        assert_eq!((name, write(&wire::request(&request)).as_str()), (*golden, *bytes));
        assert_eq!(wire::open_request(&read(bytes)), Some(request));
    }
    for ((name, answer), (golden, bytes)) in answers().into_iter().zip(ANSWERS) {
        assert_eq!((name, write(&wire::answer(&answer)).as_str()), (*golden, *bytes));
        assert_eq!(wire::open_answer(&read(bytes)), Some(answer));
    }
    assert_eq!((requests().len(), answers().len()), (REQUESTS.len(), ANSWERS.len()));
}

/// A prefix of a message is refused, whether its author signed it or not.
#[test]
fn a_message_that_is_cut_short_is_refused() {
    for (name, body) in bodies() {
        let whole = signed(&body);
        for end in 0..whole.len() {
            let why = open(&whole[..end]).unwrap_err();
            assert!(why == OpenError::Short || end >= 97, "{name} at {end}: {why}");
        }
        for end in 0..body.len() {
            assert_eq!(open(&signed(&body[..end])), Err(OpenError::Malformed), "{name} at {end}");
        }
    }
}

#[test]
fn a_message_with_a_flipped_bit_is_refused() {
    for (name, body) in bodies() {
        for flipped in flips(&signed(&body)) {
            assert!(open(&flipped).is_err(), "{name}: {}", write(&flipped));
        }
    }
}

/// A signed body that makes no sense is refused, or is another message in its canonical form.
#[test]
fn a_signed_body_is_canonical_or_refused() {
    let mut refused = 0;
    for (name, body) in bodies() {
        for other in flips(&body).chain(claims(&body)) {
            match open(&signed(&other)) {
                Ok(message) => assert_eq!(wire::canonical(&message), other, "{name}"),
                Err(why) => {
                    assert_eq!(why, OpenError::Malformed, "{name}: {}", write(&other));
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn trailing_bytes_and_long_forms_of_numbers_are_refused() {
    for (name, body) in bodies() {
        let longer = [body.as_slice(), &[0]].concat();
        assert_eq!(open(&signed(&longer)), Err(OpenError::Malformed), "{name}");
    }
    let leaving = |epoch: &[u8]| [&[0x0d], epoch, &read("03 e4*32 01")].concat();
    assert!(open(&signed(&leaving(&[4]))).is_ok());
    for epoch in ["fb 04 00", "fc 04 00 00 00", "fd 04 00*7"] {
        assert_eq!(open(&signed(&leaving(&read(epoch)))), Err(OpenError::Malformed), "{epoch}");
    }
}

/// D1: a length is compared with the bytes that are there, and with the limit, before it is used.
#[test]
fn a_length_beyond_the_message_is_refused() {
    let report = |length: &str| read(&["04 05 e4*32 00 02 00 00", length, "0b*32"].join(" "));
    assert!(open(&signed(&report("01"))).is_ok());
    for length in ["02", "fa", "fb ff ff", "fc ff*4", "fd ff*8", "fd 00*7 80"] {
        assert_eq!(open(&signed(&report(length))), Err(OpenError::Malformed), "{length}");
    }
}

#[test]
fn another_run_version_author_or_kind_is_refused() {
    for (name, body) in bodies() {
        let whole = signed(&body);
        let other = wire::open(&RunId([0x53; 32]), &whole, DIRECT_BYTES_MAX);
        assert_eq!(other, Err(OpenError::Signature), "{name}");
        let version = [&[1], &whole[1..]].concat();
        assert_eq!(open(&version), Err(OpenError::Version(1)), "{name}");
        let author = Keypair::from_seed(&[1; 32]).peer();
        let author = [&whole[..1], author.as_bytes(), &whole[33..]].concat();
        assert_eq!(open(&author), Err(OpenError::Signature), "{name}");
        for (_, tag) in (0..).zip(TAGS).filter(|(kind, _)| *kind != body[0]) {
            let kind = envelope(&body, &key().sign(tag, &RUN, &body).0);
            assert_eq!(open(&kind), Err(OpenError::Signature), "{name} as {tag}");
        }
    }
}

#[test]
fn a_message_above_its_limit_is_refused_unread() {
    let gossip = vec![0; 4 + GOSSIP_BYTES_MAX + 1];
    let (bytes, limit) = (GOSSIP_BYTES_MAX + 1, GOSSIP_BYTES_MAX);
    assert_eq!(wire::open_gossip(&RUN, &gossip), Err(OpenError::Oversize { bytes, limit }));
    let (bytes, limit) = (DIRECT_BYTES_MAX + 1, usize::MAX);
    let direct = vec![0; bytes];
    assert_eq!(wire::open(&RUN, &direct, limit), Err(OpenError::Oversize { bytes, limit }));
    assert_eq!(wire::open_answer(&direct), None);
    assert_eq!(wire::open_request(&[0; wire::REQUEST_BYTES_MAX + 1]), None);
}

/// D1: a ground is read up to the limit of a message, and not beyond. One of that length has more
/// signatures than a roster has members: `history/lineage/tests.rs` sees that it proves nothing.
#[test]
fn a_ground_of_a_mebibyte_is_read_and_a_longer_one_is_not() {
    let envelopes = [10_900, 10_923].map(|count| {
        let ground = messages().into_iter().find(|(name, _)| *name == "ground").unwrap().1;
        let Message::Ground(mut ground) = ground else { unreachable!() };
        ground.voted.accepts = vec![ground.voted.accepts[0]; count];
        wire::envelope(&wire::seal(&key(), &RUN, Message::Ground(ground)))
    });
    let [long, longer] = envelopes;
    assert!(long.len() > DIRECT_BYTES_MAX - 4_096 && open(&long).is_ok(), "{}", long.len());
    let (bytes, limit) = (longer.len(), DIRECT_BYTES_MAX);
    assert_eq!(open(&longer), Err(OpenError::Oversize { bytes, limit }));
}

#[test]
fn damaged_requests_and_answers_are_canonical_or_refused() {
    for (name, text) in REQUESTS {
        let bytes = read(text);
        assert!((0..bytes.len()).all(|end| wire::open_request(&bytes[..end]).is_none()), "{name}");
        assert_eq!(wire::open_request(&[bytes.as_slice(), &[0]].concat()), None, "{name}");
        for other in flips(&bytes).chain(claims(&bytes)) {
            let opened = wire::open_request(&other);
            assert!(opened.is_none_or(|request| wire::request(&request) == other), "{name}");
        }
    }
    for (name, text) in ANSWERS {
        let bytes = read(text);
        assert!((0..bytes.len()).all(|end| wire::open_answer(&bytes[..end]).is_none()), "{name}");
        assert_eq!(wire::open_answer(&[bytes.as_slice(), &[0]].concat()), None, "{name}");
        for other in flips(&bytes).chain(claims(&bytes)) {
            let opened = wire::open_answer(&other);
            assert!(opened.is_none_or(|answer| wire::answer(&answer) == other), "{name}");
        }
    }
}
