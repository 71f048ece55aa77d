//! Whatever bytes come from a peer or a file, every decoder returns, without a panic and within the
//! memory that is stated for it.
//!
//! Each decoder gets mutants of examples that it accepts: bits flipped, numbers made large, ranges
//! cut, repeated and moved, two examples spliced. The ordinary test uses [`INPUTS`] of them; by
//! hand any number is possible:
//!
//! ```text
//! DECODER_INPUTS=100000000 cargo test --release -p intellect-protocol --test decoders -- --nocapture
//! ```
#![expect(clippy::unwrap_used, reason = "a test helper is a test too")]
#![expect(clippy::print_stdout, reason = "what was tried is what a reader of the log wants")]

mod memory;
mod mutant;

// One example of every message, shared with the golden bytes.
#[path = "../golden_wire/examples.rs"]
mod examples;

use intellect_protocol::access::admit::code::Code;
use intellect_protocol::base::base58;
use intellect_protocol::base::blocks::Blocks;
use intellect_protocol::base::id::{Digest, RunId};
use intellect_protocol::base::rng::Rng;
use intellect_protocol::base::sign::Keypair;
use intellect_protocol::base::tree::Tree;
use intellect_protocol::history::checkpoint::{Header, Table};
use intellect_protocol::manifest::{self, Run};
use intellect_protocol::message::seal::Seal;
use intellect_protocol::message::wire::{self, DIRECT_BYTES_MAX};
use intellect_protocol::message::{
    Answer, Attestation, Body, Clause, Invite, Link, Message, Notice, Roster, Terms, Ticket,
};
use intellect_protocol::ring::Half;
use intellect_protocol::ring::codec::Codec;
use intellect_protocol::ring::codec::reduce::Share;
use intellect_protocol::ring::exchange::frame::{
    Kind, LABEL_BYTES, Label, PREAMBLE_BYTES, Preamble,
};

/// Mutants that each decoder gets in the ordinary test.
const INPUTS: u64 = 1_000_000;

/// The bytes that a call may hold for `bytes` of a bincode value: the value, whose
/// numbers and peers take less on the wire than in memory, its canonical form, and at
/// most a MiB for each list that is open.
fn of_values(bytes: usize) -> usize {
    (2 << 20) + 24 * bytes
}

const RUN: RunId = RunId([0x52; 32]);

fn key() -> Keypair {
    Keypair::from_seed(&[0x4b; 32])
}

fn envelopes() -> Vec<Vec<u8>> {
    let sealed = |(_, message)| wire::envelope(&wire::seal(&key(), &RUN, message));
    examples::messages().into_iter().map(sealed).collect()
}

fn links() -> Vec<Vec<u8>> {
    let links = examples::answers().into_iter().filter_map(|(_, answer)| match answer {
        Answer::Lineage { links, .. } => Some(links),
        Answer::Chain(_) | Answer::Picture(_) => None,
    });
    links.flatten().map(|link| wire::canonical(&link)).collect()
}

fn numbers() -> Vec<f32> {
    (0..700).map(|index| (index as f32 * 0.37).sin()).collect()
}

fn encoded(codec: Codec) -> Vec<Vec<u8>> {
    let values = numbers();
    let lengths = [1, 255, 256, 257, values.len()];
    let encode = |length: usize| {
        let mut bytes = vec![0; codec.encoded_bytes(length)];
        codec.encode(&values[..length], &mut bytes).unwrap();
        bytes
    };
    lengths.map(encode).to_vec()
}

/// Decodes, adds, validates and reduces a frame: everything that is
/// done with a predecessor's bytes.
fn take_frame(codec: Codec, bytes: &[u8]) -> bool {
    let fits = |elements: &usize| codec.encoded_bytes(*elements) == bytes.len();
    // Other lengths too: the caller's numbers are as many as the roster says, not the sender.
    let elements = (0..=bytes.len()).rev().find(fits).unwrap_or(bytes.len());
    let (mut values, mut out) = (vec![0.5; elements], vec![0; codec.encoded_bytes(elements)]);
    let delta = vec![0.25; elements];
    let share = Share { codec, weight: 300, delta: &delta };
    let valid = codec.validate(bytes, elements).is_ok();
    let decoded = codec.decode(bytes, &mut values).is_ok();
    assert_eq!(valid, decoded, "what is passed on is what can be decoded");
    assert!(!decoded || values.iter().all(|value| value.is_finite()));
    let _added = codec.decode_add(bytes, &mut values);
    let _sum = share.add(bytes, &mut out);
    let _mean = share.finish(bytes, 600, &mut out);
    decoded
}

fn table() -> Table {
    let values = numbers();
    let (run, r) = (RUN, Digest([2; 32]));
    let header = Header { run, epoch: 3, tokens: 4, r, parameters: values.len() as u64 };
    Table::of(header, &values, &values).unwrap()
}

fn label() -> Label {
    let (roster, payload) = (Digest([1; 32]), Digest([2; 32]));
    Label { length: 96, roster, kind: Kind::Frame(Half::Gather), chunk: 1, frame: 2, payload }
}

fn preamble() -> Preamble {
    Preamble { run: RUN, roster: Digest([1; 32]), index: 1, count: 2 }
}

fn texts() -> Vec<Vec<u8>> {
    let work =
        "[model]\nkind = \"llama\"\ngroups = [[[[1, 2], [3.5]]], { a = { b = [0x7f, nan] } }]"
            .parse();
    let work: toml::Table = work.unwrap();
    let run = Run::new(key().peer(), 7);
    let signed = run.to_toml(&work, Some(&run.sign(b"work", &key())));
    [run.to_toml(&work, None), signed].map(String::into_bytes).to_vec()
}

fn take_manifest(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| manifest::parse(text).is_ok())
}

#[expect(clippy::disallowed_methods, reason = "how many is asked for by hand")]
fn inputs() -> u64 {
    std::env::var("DECODER_INPUTS").map_or(INPUTS, |count| count.parse().unwrap())
}

/// Gives mutants of `examples` to `decode`, which says whether it accepted the bytes. A call may
/// hold `memory` bytes at once, for an input of that many.
fn attack(examples: &[Vec<u8>], decode: fn(&[u8]) -> bool, memory: fn(usize) -> usize) {
    assert!(!examples.is_empty() && examples.iter().all(|example| decode(example)));
    let (mut taken, mut longest, mut most) = (0, 0, 0);
    let (mut rng, inputs) = (Rng::new(1), inputs());
    for _ in 0..inputs {
        let bytes = mutant::draw(examples, &mut rng);
        let (took, held) = memory::held(|| decode(&bytes));
        let bound = memory(bytes.len());
        assert!(
            held <= bound,
            "{held} bytes held for {}, at most {bound}: {bytes:x?}",
            bytes.len()
        );
        (longest, most) = (longest.max(bytes.len()), most.max(held));
        taken += u64::from(took);
    }
    println!("{inputs} mutants, {taken} taken; the longest {longest} bytes, at most {most} held");
}

#[test]
fn envelopes_sent_directly() {
    attack(&envelopes(), |bytes| wire::open(&RUN, bytes, DIRECT_BYTES_MAX).is_ok(), of_values);
}

#[test]
fn envelopes_gossiped() {
    let gossiped = |envelope: Vec<u8>| [&[1, 0, 0, 0], &envelope[..]].concat();
    let examples: Vec<_> = envelopes().into_iter().map(gossiped).collect();
    attack(&examples, |bytes| wire::open_gossip(&RUN, bytes).is_ok(), of_values);
}

/// The content behind a valid signature of a lying sender, which mutants of envelopes do not have.
#[test]
fn messages() {
    let messages = examples::messages();
    let examples: Vec<_> = messages.iter().map(|(_, message)| wire::canonical(message)).collect();
    attack(&examples, |bytes| wire::open_record::<Message>(bytes).is_some(), of_values);
}

#[test]
fn authors() {
    attack(&envelopes(), |bytes| wire::claimed_author(bytes).is_some(), |_| 0);
}

#[test]
fn requests() {
    let requests = examples::requests();
    let examples: Vec<_> = requests.iter().map(|(_, request)| wire::request(request)).collect();
    attack(&examples, |bytes| wire::open_request(bytes).is_some(), of_values);
}

#[test]
fn answers() {
    let answers = examples::answers();
    let examples: Vec<_> = answers.iter().map(|(_, answer)| wire::answer(answer)).collect();
    attack(&examples, |bytes| wire::open_answer(bytes).is_some(), of_values);
}

#[test]
fn records() {
    attack(&links(), |bytes| wire::open_record::<Link>(bytes).is_some(), of_values);
}

#[test]
fn frames_of_f32() {
    attack(&encoded(Codec::F32), |bytes| take_frame(Codec::F32, bytes), |bytes| 16 * bytes + 64);
}

#[test]
fn frames_of_int8() {
    attack(&encoded(Codec::Int8), |bytes| take_frame(Codec::Int8, bytes), |bytes| 16 * bytes + 64);
}

#[test]
fn labels() {
    let take = |bytes: &[u8]| {
        let label: Option<&[u8; LABEL_BYTES]> = bytes.first_chunk();
        label.is_some_and(|label| Label::from_bytes(label).is_ok())
    };
    attack(&[label().to_bytes().to_vec()], take, |_| 0);
}

#[test]
fn preambles() {
    let take = |bytes: &[u8]| {
        let preamble: Option<&[u8; PREAMBLE_BYTES]> = bytes.first_chunk();
        preamble.is_some_and(|preamble| Preamble::from_bytes(preamble).to_bytes() == *preamble)
    };
    attack(&[preamble().to_bytes().to_vec()], take, |_| 0);
}

#[test]
fn seals() {
    let seal = Seal::new(&key(), &RUN, &Digest([1; 32]), 2, Digest([3; 32]));
    attack(&[seal.to_bytes().to_vec()], |bytes| Seal::from_bytes(bytes).is_some(), |_| 0);
}

/// A mutant is tested as the table of the state that its own bytes hash to.
#[test]
fn tables() {
    let take = |bytes: &[u8]| Table::from_bytes(bytes, &Table::digest_of(bytes)).is_ok();
    attack(&[table().to_bytes()], take, |bytes| 2 * bytes + 64);
}

/// The values of a file's pieces: those of another file, or of another length, are refused.
#[test]
fn trees() {
    fn tree() -> Tree {
        Tree::new(5 << 20, (0..5).map(|seed| Digest([seed; 32])).collect()).unwrap()
    }
    let take = |bytes: &[u8]| {
        let taken = Tree::from_bytes(bytes, 5 << 20, &tree().digest());
        taken.is_some_and(|taken| taken.to_bytes() == bytes)
    };
    assert!(!take(&tree().to_bytes()[1..]));
    attack(&[tree().to_bytes()], take, |bytes| 4 * bytes + 1_024);
}

#[test]
fn manifests() {
    attack(&texts(), take_manifest, |bytes| 256 * bytes + (64 << 10));
}

#[test]
fn names_of_peers() {
    let take =
        |bytes: &[u8]| str::from_utf8(bytes).is_ok_and(|text| base58::decode(text).is_some());
    attack(&[base58::encode(&key().peer()).into_bytes()], take, |_| 1 << 10);
}

fn invite() -> Invite {
    let terms = Terms { uses: 5, label: "bob".to_owned(), ..Terms::new(key().peer()) };
    Invite::new(RUN, terms, &key())
}

#[test]
fn tickets() {
    let invited = Ticket::invited(invite(), &key(), key().peer());
    let named = Ticket::named(RUN, key().peer(), 9, &key());
    let take = |bytes: &[u8]| {
        let ticket: Option<Ticket> = wire::from_canonical(bytes);
        ticket.is_some_and(|ticket| ticket.verify(&key().peer(), &RUN, &key().peer()).is_ok())
    };
    attack(&[invited, named].map(|ticket| wire::canonical(&ticket)), take, of_values);
}

#[test]
fn notices() {
    let clauses = vec![
        Clause::RevokePeer(key().peer()),
        Clause::RevokeInvite { key: key().peer(), admitted: true },
        Clause::Admit(key().peer()),
    ];
    let state = Attestation { epoch: 3, state: Digest([1; 32]), r: Digest([2; 32]) };
    let all = [Body::Membership(clauses), Body::Attestation(state)]
        .map(|body| Notice::after(RUN, (1, Digest([2; 32])), body, &key()).to_bytes());
    let take = |bytes: &[u8]| {
        let notice = Notice::from_bytes(bytes);
        notice.is_some_and(|notice| notice.verify(&key().peer(), &RUN).is_ok())
    };
    attack(&all, take, of_values);
}

#[test]
fn codes() {
    let bearer = Code::Bearer { invite: Box::new(invite()), seed: [0x4b; 32] };
    let named = Code::Named(Ticket::named(RUN, key().peer(), 9, &key()));
    let take = |bytes: &[u8]| str::from_utf8(bytes).is_ok_and(|text| text.parse::<Code>().is_ok());
    attack(&[bearer, named].map(|code| code.to_string().into_bytes()), take, of_values);
}

/// The longest possible message, filled with numbers that take one byte each on the wire.
#[test]
fn the_longest_list_of_the_least_numbers_takes_no_more_than_stated() {
    let ranges = DIRECT_BYTES_MAX / 2 - 1_000;
    let kept = |roster: &Roster| roster.keep.iter().any(|keep| !keep.chunks.is_empty());
    let mut examples = examples::messages().into_iter().map(|(_, message)| message);
    let example =
        examples.find(|message| matches!(message, Message::Roster(roster) if kept(roster)));
    let body = wire::canonical(&example.unwrap());
    let blocks = wire::canonical(&Blocks::of([2..4, 6..7]));
    let at = body.windows(blocks.len()).position(|window| window == blocks).unwrap();
    let count = u32::try_from(ranges).unwrap();
    let many = [&[0xfc][..], &count.to_le_bytes(), &[7].repeat(2 * ranges)].concat();
    let long = [&body[..at], &many, &body[at + blocks.len()..]].concat();
    assert!(long.len() < DIRECT_BYTES_MAX);
    let (message, held) = memory::held(|| wire::open_record::<Message>(&long));
    assert!(message.is_some());
    println!("{held} bytes held for {}", long.len());
    assert!(held > 8 * long.len() && held <= of_values(long.len()), "{held} bytes");
}
