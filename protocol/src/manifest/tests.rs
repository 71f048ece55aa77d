//! What a manifest accepts, refuses, and hashes to.

use intellect_table::Error;

use super::*;
use crate::base::base58;
use crate::base::id::LogId;
use crate::message::Voter;

const WORK: &[u8] = b"the bytes of [model], [data], [train]";

fn key() -> Keypair {
    Keypair::from_seed(&[7; 32])
}

fn tables() -> Table {
    "[model]\nlayers = 2\n[data]\nsource = \"synthetic\"\n[train]\nbatch = 8\n".parse().unwrap()
}

fn run() -> Run {
    Run::new(key().peer(), 42)
}

fn text_of(run: &Run) -> String {
    run.to_toml(&tables(), Some(&run.sign(WORK, &key())))
}

/// The proposed manifest with one line replaced.
fn with(line: &str, replacement: &str) -> Result<Unverified, ManifestError> {
    let text = text_of(&run());
    assert!(text.contains(&format!("{line}\n")), "no line {line} in\n{text}");
    parse(&text.replace(&format!("{line}\n"), &format!("{replacement}\n")))
}

fn message(line: &str, replacement: &str) -> String {
    with(line, replacement).unwrap_err().to_string()
}

fn voter(seed: u8) -> Voter {
    Voter { peer: Keypair::from_seed(&[seed; 32]).peer(), log: LogId([seed; 16]) }
}

fn founded_by(founders: Vec<Voter>) -> Members {
    Members { quorum: Quorum::Majority, founders, ..run().members }
}

#[test]
fn what_is_proposed_reads_back_and_verifies() {
    let read = parse(&text_of(&run())).unwrap();
    assert_eq!(read.run(), &run());
    for table in ["model", "data", "train"] {
        assert_eq!(read.table()[table], tables()[table]);
    }
    let manifest = read.verify(WORK).unwrap();
    assert_eq!((manifest.run(), manifest.id()), (&run(), run().id(WORK)));
}

/// Another id here is another run for every peer: it changes with `FORMAT` only.
#[test]
fn the_run_id_is_golden() {
    assert_eq!(
        run().id(WORK).hex(),
        "6e49b74dba0531dd1fc30b6a5b3a53f0c239a0d5ea70f8c834727dddc7e2406a"
    );
    let ring = Ring { codec: Codec::F32 };
    let other = Run { ring, members: founded_by(vec![voter(1), voter(2)]), ..run() };
    assert_eq!(
        other.id(WORK).hex(),
        "c65cd11191df9ae9348faceff80a8a7d7041d76faa8119a8fe7ad9c4a6b196bd"
    );
}

/// The canonical bytes by hand: bincode's variable integers up to 250 are one byte, then 251 and a
/// `u16`, 252 and a `u32`.
#[test]
fn canonical_bytes_are_those_of_the_format() {
    let mut bytes = vec![1, 4];
    bytes.extend(b"demo");
    bytes.extend(key().peer().0);
    bytes.extend([42, 0, 0, WORK.len().to_le_bytes()[0]]);
    bytes.extend(WORK);
    bytes.extend([1, 15, 1, 0, 0]);
    for float in [0.7_f32, 0.6] {
        bytes.push(252);
        bytes.extend(float.to_bits().to_le_bytes());
    }
    bytes.extend([10, 2, 2, 1, 0, 1]);
    for millis in [500_u16, 30_000, 8_000] {
        bytes.push(251);
        bytes.extend(millis.to_le_bytes());
    }
    bytes.extend([1, 64]);
    assert_eq!(run().identify(WORK).1, bytes);
}

/// The canonical bytes of the proposed run, with these in the place of `range`.
fn bytes_with(range: std::ops::Range<usize>, replacement: &[u8]) -> Vec<u8> {
    let mut bytes = run().identify(WORK).1;
    bytes.splice(range, replacement.iter().copied());
    bytes
}

/// Where a key may be absent, a 0 or a 1 and its value is hashed in its place.
#[test]
fn published_weights_are_hashed_and_signed() {
    let published = Run { genesis: Some(Digest([5; 32])), ..run() };
    let at = 1 + 5 + 32 + 2;
    assert_eq!(published.identify(WORK).1, bytes_with(at..at + 1, &[&[1][..], &[5; 32]].concat()));
    let read = parse(&text_of(&published)).unwrap();
    assert_eq!(read.run(), &published);
    assert_eq!(read.verify(WORK).unwrap().id(), published.id(WORK));
    let hint = message("stop_tokens = 0", "stop_tokens = 0\ngenesis = \"AB\"");
    assert_eq!(hint, "genesis is \"AB\": it must be 64 lower-case hex digits");
}

#[test]
fn an_epoch_of_seconds_may_bound_its_tokens() {
    let of = |tokens_max| Run {
        epoch: Epoch { tokens_max, ..Epoch::new(Budget::Seconds, 60) },
        ..run()
    };
    let at = 1 + 5 + 32 + 3 + 1 + WORK.len();
    let bounded = bytes_with(at..at + 5, &[3, 60, 1, 0, 1, 252, 0, 0, 16, 0]);
    assert_eq!(of(Some(1 << 20)).identify(WORK).1, bounded);
    assert_eq!(of(None).identify(WORK).1, bytes_with(at..at + 5, &[3, 60, 1, 0, 0]));
    for run in [of(None), of(Some(1 << 20))] {
        assert_eq!(parse(&text_of(&run)).unwrap().run(), &run);
    }
    let refusal = message("amount = 15", "amount = 15\ntokens_max = 9");
    assert_eq!(refusal, "epoch.tokens_max belongs to budget = \"seconds\" only: remove it");
}

#[test]
fn a_run_that_outlasts_liars_is_one_of_four_invited_peers_or_more() {
    let trust = Trust { level: Level::Invited, ..Trust::default() };
    let with = |tolerate, min_peers, trust| {
        let members = Members { min_peers, tolerate, ..run().members };
        Run { members, trust, ..run() }
    };
    let [liars, crash] = [Tolerate::Liars, Tolerate::Crash].map(|said| with(said, 4, trust));
    assert_eq!(parse(&text_of(&liars)).unwrap().run(), &liars);
    assert_ne!(liars.id(WORK), crash.id(WORK));
    assert_eq!(
        (liars.members.rule(), crash.members.rule()),
        (QuorumRule::Byzantine, QuorumRule::Available)
    );
    let refusal = |run: &Run| parse(&text_of(run)).unwrap_err().to_string();
    let few = "members.min_peers is 3: choose 4 to 256";
    assert_eq!(refusal(&with(Tolerate::Liars, 3, trust)), few);
    let open = "members.tolerate is \"liars\": anybody can make keys in an open run: \
                set trust.level = \"invited\", or members.tolerate = \"crash\"";
    assert_eq!(refusal(&with(Tolerate::Liars, 4, Trust::default())), open);
}

#[test]
fn a_run_of_invited_peers_says_so() {
    let invited = Run { trust: Trust { undo_max: 300, level: Level::Invited }, ..run() };
    let end = run().identify(WORK).1.len();
    assert_eq!(invited.identify(WORK).1, bytes_with(end - 2..end, &[2, 251, 44, 1]));
    let read = parse(&text_of(&invited)).unwrap();
    assert_eq!(read.run(), &invited);
    assert_eq!(read.verify(WORK).unwrap().id(), invited.id(WORK));
    let closed = message("level = \"open\"", "level = \"closed\"");
    assert_eq!(closed, "trust.level is \"closed\": known are \"open\", \"invited\"");
    let none = message("undo_max = 64", "undo_max = 0");
    assert_eq!(none, "trust.undo_max is 0: choose 1 to 4294967296");
    assert!(message("undo_max = 64", "undo_max = 64\nthreshold = 1").contains("threshold"));
}

#[test]
fn every_field_is_hashed() {
    let changes: [(&str, &str); 14] = [
        ("name = \"demo\"", "name = \"demp\""),
        ("seed = 42", "seed = 43"),
        ("stop_tokens = 0", "stop_tokens = 1"),
        ("budget = \"steps\"", "budget = \"tokens\""),
        ("amount = 15", "amount = 16"),
        ("lr = 0.7", "lr = 0.70001"),
        ("momentum = 0.6", "momentum = 0.60001"),
        ("momentum_ramp_epochs = 10", "momentum_ramp_epochs = 11"),
        ("codec = \"int8\"", "codec = \"f32\""),
        ("min_peers = 2", "min_peers = 3"),
        ("heartbeat_ms = 500", "heartbeat_ms = 501"),
        ("ready_grace_ms = 30000", "ready_grace_ms = 30001"),
        ("minority_grace_ms = 8000", "minority_grace_ms = 8001"),
        ("undo_max = 64", "undo_max = 65"),
    ];
    for (line, replacement) in changes {
        let changed = with(line, replacement).unwrap();
        assert_ne!(changed.run().id(WORK), run().id(WORK), "{line}");
        assert_eq!(changed.verify(WORK), Err(ManifestError::Signature), "{line}");
    }
    assert_ne!(run().id(b"other work"), run().id(WORK));
    assert_ne!(Run { organiser: PeerId([1; 32]), ..run() }.id(WORK), run().id(WORK));
    let founders = |seeds: &[u8]| {
        let founders = seeds.iter().map(|seed| voter(*seed)).collect();
        Run { members: founded_by(founders), ..run() }.id(WORK)
    };
    // Their order breaks ties, so it is hashed too.
    let ids = [founders(&[]), founders(&[1, 2]), founders(&[2, 1]), run().id(WORK)];
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id), "{ids:?}");
    }
}

#[test]
fn every_field_is_required() {
    let text = text_of(&run());
    let mut table = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            table = format!("{}.", line.trim_matches(['[', ']']));
        }
        let ours = !["model.", "data.", "train."].contains(&table.as_str());
        let key = line.split(" = ").next().unwrap();
        if !line.contains(" = ") || !ours || key == "signature" {
            continue;
        }
        let key = format!("{table}{key}");
        let result = parse(&text.replacen(&format!("{line}\n"), "", 1));
        let Err(ManifestError::Table(Error::MissingKey { key: missing, wanted })) = result else {
            panic!("{line}")
        };
        assert!(missing == key && !wanted.is_empty(), "{line}");
    }
}

#[test]
fn founders_are_read_as_keygen_prints_them() {
    let one = voter(1);
    let text = format!("{}/{}", base58::encode(&one.peer), one.log.hex());
    let lines = |list: &str| format!("quorum = \"majority\"\nfounders = [{list}]");
    let read = with("quorum = \"available\"", &lines(&format!("\"{text}\""))).unwrap();
    assert_eq!(read.run().members, founded_by(vec![one]));
    assert_eq!(parse(&text_of(read.run())).unwrap().run(), read.run());
    let form = "it must be \"peer/log id\", as `keygen` prints it";
    for (bad, reason) in [
        (format!("\"{text}\", \"{text}\""), "it stands there twice: name each founder once"),
        ("\"x/y\"".to_owned(), form),
        (format!("\"{text}0\""), form),
        ("3".to_owned(), form),
        (String::new(), "choose 1 to 256"),
    ] {
        let error = message("quorum = \"available\"", &lines(&bad));
        assert!(error.starts_with("members.founders is ") && error.ends_with(reason), "{error}");
    }
    let needless = message("min_peers = 2", "min_peers = 2\nfounders = []");
    let expected = "members.founders belongs to quorum = \"majority\" only: remove it";
    assert_eq!(needless, expected);
}

/// Each message has the key, the value, the bounds and the remedy.
#[test]
fn errors_say_what_to_write_instead() {
    let cases = [
        ("seed = 42", "sed = 42", "unknown key sed"),
        ("heartbeat_ms = 500", "hartbeat_ms = 500", "unknown key members.hartbeat_ms"),
        (
            "codec = \"int8\"",
            "codec = \"int4\"",
            "ring.codec is \"int4\": known are \"f32\", \"int8\"",
        ),
        (
            "heartbeat_ms = 500",
            "heartbeat_ms = 99",
            "members.heartbeat_ms is 99: choose 100 to 10000",
        ),
        ("seed = 42", "seed = -1", "seed is -1: choose 0 to 9223372036854775807"),
        ("seed = 42", "seed = \"x\"", "seed is \"x\": it must be a whole number"),
        ("lr = 0.7", "lr = nan", "outer.lr is NaN: choose 0 to 10"),
        ("lr = 0.7", "lr = inf", "outer.lr is inf: choose 0 to 10"),
        ("momentum = 0.6", "momentum = 1.0", "outer.momentum is 1: choose 0 to 0.999"),
        (
            "minority_grace_ms = 8000",
            "minority_grace_ms = 5999",
            "members.minority_grace_ms is 5999: choose 6000 to 86400000",
        ),
        (
            "fragments = 1",
            "fragments = 2",
            "epoch.fragments is 2: more than 1 is not supported yet, set it to 1",
        ),
        (
            "overlap_steps = 0",
            "overlap_steps = 4",
            "epoch.overlap_steps is 4: more than 0 is not supported yet, set it to 0",
        ),
        ("fragments = 1", "fragments = 0", "epoch.fragments is 0: choose 1 to 9223372036854775807"),
        (
            "format = 1",
            "format = 2\nnews = 1",
            "the manifest has format 2, this program reads 1: it was made by a newer version, \
             update intellect-node",
        ),
        ("format = 1", "format = 0", "format is 0: choose 1 to 1"),
    ];
    for (line, replacement, expected) in cases {
        assert_eq!(message(line, replacement), expected);
    }
    for bad in ["", "with space", "ü", &"x".repeat(65)] {
        let error = message("name = \"demo\"", &format!("name = \"{bad}\""));
        assert!(error.starts_with("name is ") && error.contains("1 to 64 of"), "{error}");
    }
    let syntax = parse("a = 1\n\nb = 0x\n").unwrap_err().to_string();
    assert!(syntax.starts_with("line 3 of the manifest is not TOML: "), "{syntax}");
    let large = "members.heartbeat_ms is 99999999999999999999: choose 100 to 10000";
    assert_eq!(message("heartbeat_ms = 500", "heartbeat_ms = \"99999999999999999999\""), large);
    let table = parse(&text_of(&run()).replace("[epoch]", "[[epoch]]")).unwrap_err().to_string();
    assert_eq!(table, "the manifest has no table [epoch]: `manifest new` writes every one");
    let long = format!("{}#{}", text_of(&run()), " ".repeat(TEXT_BYTES_MAX));
    assert!(matches!(parse(&long), Err(ManifestError::TooLong)));
}

#[test]
fn only_the_organiser_can_sign() {
    let forged = run().to_toml(&tables(), Some(&run().sign(WORK, &Keypair::from_seed(&[8; 32]))));
    assert_eq!(parse(&forged).unwrap().verify(WORK), Err(ManifestError::Signature));
    let unsigned = parse(&run().to_toml(&tables(), None)).unwrap();
    assert_eq!(unsigned.verify(WORK), Err(ManifestError::Unsigned));
    let good = parse(&text_of(&run())).unwrap();
    assert_eq!(good.clone().verify(b"other work"), Err(ManifestError::Signature));
    let bytes = WORK_BYTES_MAX + 1;
    assert_eq!(good.verify(&vec![0; bytes]), Err(ManifestError::Work { bytes }));
    let upper = text_of(&run()).replace("signature = \"", "signature = \"A");
    let form = "it must be 128 lower-case hex digits";
    assert!(parse(&upper).unwrap_err().to_string().ends_with(form));
}

/// −0 and 0 are one number, and a float is rounded once, so that equal settings are one run.
#[test]
fn equal_settings_are_one_run() {
    let zero = with("momentum = 0.6", "momentum = 0").unwrap();
    let minus = with("momentum = 0.6", "momentum = -0.0").unwrap();
    assert_eq!(zero.run().id(WORK), minus.run().id(WORK));
    assert_eq!(minus.run().outer.momentum.to_bits(), 0);
    let long = with("lr = 0.7", "lr = 0.69999999999").unwrap();
    assert_eq!(long.run().id(WORK), run().id(WORK));
}

#[test]
fn the_budget_of_an_epoch_in_tokens() {
    let of = |budget, amount| Run { epoch: Epoch::new(budget, amount), ..run() }.epoch_tokens(512);
    assert_eq!(of(Budget::Steps, 15), Some(7_680));
    assert_eq!(of(Budget::Tokens, 15), Some(15));
    assert_eq!(of(Budget::Seconds, 15), None);
    assert_eq!(of(Budget::Steps, u64::MAX), Some(u64::MAX));
}
