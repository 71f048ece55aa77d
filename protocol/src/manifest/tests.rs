//! What a manifest accepts, refuses, and hashes to.

use super::*;
use crate::base::base58;
use crate::base::id::LogId;

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
        "47e2b09b6ae6508bfa33d3e34dd836530f5c77f9c95467cdc36be054ed14c1de"
    );
    let majority = Quorum::Majority { founders: vec![voter(1), voter(2)] };
    let members = Members { quorum: majority, ..run().members };
    let other = Run { codec: Codec::F32, members, ..run() };
    assert_eq!(
        other.id(WORK).hex(),
        "6ea8146c8290b1f63782a495dcbcbb125112e3b1a01eeafecd950cf270ab0c9b"
    );
}

/// The canonical bytes by hand: bincode's variable integers up to 250 are one byte, then 251 and a
/// `u16`, 252 and a `u32`.
#[test]
fn canonical_bytes_are_those_of_the_format() {
    let mut bytes = vec![1, 4];
    bytes.extend(b"demo");
    bytes.extend(key().peer().0);
    bytes.extend([42, 0, WORK.len().to_le_bytes()[0]]);
    bytes.extend(WORK);
    bytes.extend([1, 15, 1, 0]);
    for float in [0.7_f32, 0.6] {
        bytes.push(252);
        bytes.extend(float.to_bits().to_le_bytes());
    }
    bytes.extend([10, 2, 2, 1, 0]);
    for millis in [500_u16, 30_000, 8_000] {
        bytes.push(251);
        bytes.extend(millis.to_le_bytes());
    }
    assert_eq!(run().identify(WORK).1, bytes);
}

/// A run that begins with published weights hashes their digest behind all else, with a 1 before it.
#[test]
fn published_weights_are_hashed_last() {
    let published = Run { genesis: Some(Digest([5; 32])), ..run() };
    let mut bytes = run().identify(WORK).1;
    bytes.push(1);
    bytes.extend([5; 32]);
    assert_eq!(published.identify(WORK).1, bytes);
    let read = parse(&text_of(&published)).unwrap();
    assert_eq!(read.run(), &published);
    assert_eq!(read.verify(WORK).unwrap().id(), published.id(WORK));
    let hint = message("stop_tokens = 0", "stop_tokens = 0\ngenesis = \"AB\"");
    assert_eq!(hint, "genesis is \"AB\": it must be 64 lower-case hex digits");
}

/// What is younger than the first manifests stands behind all else, and is nothing where it says nothing new.
#[test]
fn younger_fields_are_hashed_last_with_a_number_each() {
    let epoch = Epoch { budget: Budget::Seconds, amount: 60, tokens_max: None };
    let older = Run { epoch, genesis: Some(Digest([5; 32])), ..run() };
    let epoch = Epoch { tokens_max: Some(1 << 20), ..epoch };
    let younger =
        Run { epoch, trust: Trust { undo_max: 300, ..Trust::default() }, ..older.clone() };
    let mut bytes = older.identify(WORK).1;
    bytes.extend([3, 251, 44, 1]);
    bytes.extend([4, 252, 0, 0, 16, 0]);
    assert_eq!(younger.identify(WORK).1, bytes);
    let read = parse(&text_of(&younger)).unwrap();
    assert_eq!(read.run(), &younger);
    assert_eq!(read.verify(WORK).unwrap().id(), younger.id(WORK));
    // To write out what holds anyway is no other run.
    let same = format!("{}\n[trust]\nundo_max = 64\n", text_of(&older));
    assert_eq!(parse(&same).unwrap().verify(WORK).unwrap().id(), older.id(WORK));
    let told = parse(&format!("{}\n[trust]\nundo_max = 0\n", text_of(&older))).unwrap_err();
    assert_eq!(told.to_string(), "trust.undo_max is 0: choose 1 to 4294967296");
    let told = message("amount = 15", "amount = 15\ntokens_max = 9");
    assert_eq!(told, "epoch.tokens_max belongs to budget = \"seconds\" only: remove it");
}

/// What voters outlast is hashed where it is liars, in a run of four or more invited peers.
#[test]
fn a_run_that_outlasts_liars_is_one_of_four_invited_peers_or_more() {
    let trust = Trust { level: Level::Invited, ..Trust::default() };
    let with = |tolerate, min_peers, trust: &Trust| {
        let members = Members { min_peers, tolerate, ..run().members };
        Run { members, trust: trust.clone(), ..run() }
    };
    let [liars, crash] = [Tolerate::Liars, Tolerate::Crash].map(|said| with(said, 4, &trust));
    assert_eq!(parse(&text_of(&liars)).unwrap().run(), &liars);
    let mut bytes = crash.identify(WORK).1;
    bytes.extend([5, 2]);
    assert_eq!(liars.identify(WORK).1, bytes);
    assert_eq!(
        (liars.members.rule(), crash.members.rule()),
        (QuorumRule::Byzantine, QuorumRule::Available)
    );
    let told = |run: &Run| parse(&text_of(run)).unwrap_err().to_string();
    let few = "members.min_peers is 3: choose 4 to 256";
    assert_eq!(told(&with(Tolerate::Liars, 3, &trust)), few);
    let open = "members.tolerate belongs to trust.level = \"invited\" only: remove it";
    assert_eq!(told(&with(Tolerate::Liars, 4, &Trust::default())), open);
}

/// Who may take part is hashed where it is not everybody: level and bound of undoing, each with its number.
#[test]
fn a_run_of_invited_peers_says_so() {
    let trust = Trust { undo_max: 300, level: Level::Invited };
    let invited = Run { trust, ..run() };
    let mut bytes = run().identify(WORK).1;
    bytes.extend([2, 2, 3, 251, 44, 1]);
    assert_eq!(invited.identify(WORK).1, bytes);
    let read = parse(&text_of(&invited)).unwrap();
    assert_eq!(read.run(), &invited);
    assert_eq!(read.verify(WORK).unwrap().id(), invited.id(WORK));
    let trust = Trust { level: Level::Open, ..invited.trust.clone() };
    assert_ne!(Run { trust, ..run() }.id(WORK), invited.id(WORK));
    let same = format!("{}\n[trust]\nlevel = \"open\"\n", text_of(&run()));
    assert_eq!(parse(&same).unwrap().verify(WORK).unwrap().id(), run().id(WORK));
    let told = |lines: &str| {
        parse(&format!("{}\n[trust]\n{lines}\n", text_of(&run()))).unwrap_err().to_string()
    };
    let found = told("level = \"closed\"");
    assert!(found.contains("it must be \"open\" or \"invited\""), "{found}");
    let found = told("level = \"invited\"\nthreshold = 1");
    assert!(found.contains("threshold"), "{found}");
}

#[test]
fn every_field_is_hashed() {
    let changes: [(&str, &str); 13] = [
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
        let members = Members { quorum: Quorum::Majority { founders }, ..run().members };
        Run { members, ..run() }.id(WORK)
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
        let Err(ManifestError::MissingKey { key: missing, told }) = result else {
            panic!("{line}")
        };
        assert!(missing == key && !told.is_empty(), "{line}");
    }
}

#[test]
fn founders_are_read_as_keygen_prints_them() {
    let one = voter(1);
    let text = format!("{}/{}", base58::encode(&one.peer), one.log.hex());
    let lines = |list: &str| format!("quorum = \"majority\"\nfounders = [{list}]");
    let read = with("quorum = \"available\"", &lines(&format!("\"{text}\""))).unwrap();
    assert_eq!(read.run().members.quorum, Quorum::Majority { founders: vec![one] });
    assert_eq!(parse(&text_of(read.run())).unwrap().run(), read.run());
    for bad in [&format!("\"{text}\", \"{text}\""), "\"x/y\"", "3", "", &format!("\"{text}0\"")] {
        let error = message("quorum = \"available\"", &lines(bad));
        assert!(error.contains("members.founders is") && error.contains("keygen"), "{error}");
    }
    let needless = message("min_peers = 2", "min_peers = 2\nfounders = []");
    let expected = "members.founders belongs to quorum = \"majority\" only: remove it";
    assert_eq!(needless, expected);
}

/// Key, value, bound, remedy.
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
    let told = parse("a = 1\n\nb = 0x\n").unwrap_err().to_string();
    assert!(told.starts_with("line 3 of the manifest is not TOML: "), "{told}");
    let large = "members.heartbeat_ms is 99999999999999999999: choose 100 to 10000";
    assert_eq!(message("heartbeat_ms = 500", "heartbeat_ms = \"99999999999999999999\""), large);
    assert!(matches!(parse("epoch = 3\nformat = 1"), Err(ManifestError::MissingKey { .. })));
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
    assert!(matches!(parse(&upper), Err(ManifestError::WrongType { .. })));
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
    let of = |budget, amount| {
        let epoch = Epoch { budget, amount, tokens_max: None };
        Run { epoch, ..run() }.epoch_tokens(512)
    };
    assert_eq!(of(Budget::Steps, 15), Some(7_680));
    assert_eq!(of(Budget::Tokens, 15), Some(15));
    assert_eq!(of(Budget::Seconds, 15), None);
    assert_eq!(of(Budget::Steps, u64::MAX), Some(u64::MAX));
}
