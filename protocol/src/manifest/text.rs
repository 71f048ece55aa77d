//! A manifest's settings out of TOML and back into it: keys, names and bounds.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::fields::Fields;
use super::{
    Budget, Epoch, FORMAT, FRAGMENTS, ManifestError, Members, OVERLAP_STEPS, Outer, Quorum, Run,
};
use crate::base58;
use crate::codec::Codec;
use crate::id::{Digest, LogId, PeerId};
use crate::message::{MEMBERS_MAX, Voter};
use crate::sign::Signature;

/// The settings and the signature of a manifest.
pub(super) fn read(manifest: &Table) -> Result<(Run, Option<Signature>), ManifestError> {
    let top = Fields::new("", manifest, &KEYS)?;
    top.integer("format", FORMAT, FORMAT)?;
    let run = Run {
        name: top.read("name", "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'", read_name)?,
        organiser: top.read("organiser", "64 lower-case hex digits", read_key)?,
        seed: top.integer("seed", 0, INTEGER_MAX)?,
        stop_tokens: top.integer("stop_tokens", 0, TOKENS_MAX)?,
        genesis: top.optional("genesis", "64 lower-case hex digits", read_digest)?,
        epoch: read_epoch(&top.table("epoch", "epoch.", &EPOCH_KEYS)?)?,
        outer: read_outer(&top.table("outer", "outer.", &OUTER_KEYS)?)?,
        codec: top.table("ring", "ring.", &["codec"])?.choice("codec", &CODECS)?,
        members: read_members(&top.table("members", "members.", &MEMBERS_KEYS)?)?,
    };
    Ok((run, top.optional("signature", "128 lower-case hex digits", read_signature)?))
}

/// The same as text; `tables` holds those that are not ours.
pub(super) fn write(run: &Run, tables: &Table, signature: Option<&Signature>) -> String {
    let top = [
        ("format", FORMAT.to_string()),
        ("name", quoted(&run.name)),
        ("organiser", quoted(&run.organiser.hex())),
        ("seed", run.seed.to_string()),
        ("stop_tokens", run.stop_tokens.to_string()),
    ];
    let epoch = [
        ("budget", named(&BUDGETS, &run.epoch.budget)),
        ("amount", run.epoch.amount.to_string()),
        ("fragments", FRAGMENTS.to_string()),
        ("overlap_steps", OVERLAP_STEPS.to_string()),
    ];
    let outer = [
        ("lr", decimal(run.outer.lr)),
        ("momentum", decimal(run.outer.momentum)),
        ("momentum_ramp_epochs", run.outer.momentum_ramp_epochs.to_string()),
    ];
    let mut text = String::new();
    push(&mut text, &top);
    if let Some(genesis) = run.genesis {
        push(&mut text, &[("genesis", quoted(&genesis.hex()))]);
    }
    if let Some(signature) = signature {
        push(&mut text, &[("signature", quoted(&hex(&signature.0)))]);
    }
    for name in WORK_TABLES {
        if let Some(table) = tables.get(name).and_then(Value::as_table) {
            push_header(&mut text, name);
            text.push_str(&table.to_string());
        }
    }
    push_header(&mut text, "epoch");
    push(&mut text, &epoch);
    push_header(&mut text, "outer");
    push(&mut text, &outer);
    push_header(&mut text, "ring");
    push(&mut text, &[("codec", named(&CODECS, &run.codec))]);
    push_header(&mut text, "members");
    push_members(&mut text, &run.members);
    text
}

fn push_members(text: &mut String, members: &Members) {
    push(text, &[("min_peers", members.min_peers.to_string())]);
    match &members.quorum {
        Quorum::Available => push(text, &[("quorum", quoted(AVAILABLE))]),
        Quorum::Majority { founders } => {
            let list: Vec<_> =
                founders.iter().map(|founder| quoted(&founder_text(founder))).collect();
            let list = format!("[{}]", list.join(", "));
            push(text, &[("quorum", quoted(MAJORITY)), ("founders", list)]);
        }
    }
    let millis = |length: std::time::Duration| length.as_millis().to_string();
    push(
        text,
        &[
            ("heartbeat_ms", millis(members.heartbeat)),
            ("ready_grace_ms", millis(members.ready_grace)),
            ("minority_grace_ms", millis(members.minority_grace)),
        ],
    );
}

fn push_header(text: &mut String, table: &str) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\n[{table}]\n");
}

fn push(text: &mut String, fields: &[(&str, String)]) {
    for (key, value) in fields {
        let _ = writeln!(text, "{key} = {value}");
    }
}

fn read_epoch(fields: &Fields<'_>) -> Result<Epoch, ManifestError> {
    let budget = fields.choice("budget", &BUDGETS)?;
    let amount_max = match budget {
        Budget::Steps => 1_000_000,
        Budget::Tokens => TOKENS_MAX,
        Budget::Seconds => DAY_SECONDS,
    };
    let amount = fields.integer("amount", 1, amount_max)?;
    let fragments = fields.integer("fragments", 1, INTEGER_MAX)?;
    if fragments > FRAGMENTS {
        let (value, supported) = (fragments, FRAGMENTS);
        return Err(ManifestError::NotYet { key: "epoch.fragments", value, supported });
    }
    let overlap_steps = fields.integer("overlap_steps", 0, INTEGER_MAX)?;
    if overlap_steps > OVERLAP_STEPS {
        let (value, supported) = (overlap_steps, OVERLAP_STEPS);
        return Err(ManifestError::NotYet { key: "epoch.overlap_steps", value, supported });
    }
    Ok(Epoch { budget, amount })
}

fn read_outer(fields: &Fields<'_>) -> Result<Outer, ManifestError> {
    Ok(Outer {
        lr: fields.float("lr", 0.0, 10.0)?,
        momentum: fields.float("momentum", 0.0, MOMENTUM_MAX)?,
        momentum_ramp_epochs: fields.integer("momentum_ramp_epochs", 0, 1_000_000)?,
    })
}

fn read_members(fields: &Fields<'_>) -> Result<Members, ManifestError> {
    let min_peers = fields.integer("min_peers", 1, MEMBERS_MAX as u64)?;
    let quorum = if fields.choice("quorum", &[(AVAILABLE, false), (MAJORITY, true)])? {
        Quorum::Majority { founders: fields.list("founders", FOUNDERS, MEMBERS_MAX, read_founder)? }
    } else {
        fields.absent("founders", "quorum = \"majority\"")?;
        Quorum::Available
    };
    let heartbeat_ms = fields.integer("heartbeat_ms", 100, 10_000)?;
    Ok(Members {
        min_peers,
        quorum,
        heartbeat: fields.millis("heartbeat_ms", 100, 10_000)?,
        ready_grace: fields.millis("ready_grace_ms", heartbeat_ms, DAY_SECONDS * 1000)?,
        minority_grace: fields.millis(
            "minority_grace_ms",
            GRACE_HEARTBEATS * heartbeat_ms,
            DAY_SECONDS * 1000,
        )?,
    })
}

fn read_name(text: &str) -> Option<String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    ((1..=64).contains(&text.len()) && text.bytes().all(known)).then(|| text.to_owned())
}

fn read_key(text: &str) -> Option<PeerId> {
    unhex(text).map(PeerId)
}

fn read_digest(text: &str) -> Option<Digest> {
    unhex(text).map(Digest)
}

fn read_signature(text: &str) -> Option<Signature> {
    unhex(text).map(Signature)
}

fn read_founder(text: &str) -> Option<Voter> {
    let (peer, log) = text.split_once('/')?;
    Some(Voter { peer: base58::decode(peer)?, log: LogId(unhex(log)?) })
}

fn founder_text(founder: &Voter) -> String {
    format!("{}/{}", base58::encode(&founder.peer), founder.log.hex())
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn named<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> String {
    names
        .iter()
        .find(|(_, known)| known == value)
        .map_or_else(String::new, |(name, _)| quoted(name))
}

/// A number that reads back as the same `f32`: the shortest that does, or the exact one where the
/// way through `f64` would round twice.
fn decimal(value: f32) -> String {
    let shortest = format!("{value:?}");
    match shortest.parse::<f64>() {
        Ok(read) if read as f32 == value => shortest,
        _ => format!("{:?}", f64::from(value)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// The tables that others read.
const WORK_TABLES: [&str; 3] = ["model", "data", "train"];

const KEYS: [&str; 14] = [
    "format",
    "name",
    "organiser",
    "seed",
    "stop_tokens",
    "genesis",
    "model",
    "data",
    "train",
    "epoch",
    "outer",
    "ring",
    "members",
    "signature",
];

const EPOCH_KEYS: [&str; 4] = ["budget", "amount", "fragments", "overlap_steps"];

const OUTER_KEYS: [&str; 3] = ["lr", "momentum", "momentum_ramp_epochs"];

const MEMBERS_KEYS: [&str; 6] =
    ["min_peers", "quorum", "founders", "heartbeat_ms", "ready_grace_ms", "minority_grace_ms"];

const BUDGETS: [(&str, Budget); 3] =
    [("steps", Budget::Steps), ("tokens", Budget::Tokens), ("seconds", Budget::Seconds)];

const CODECS: [(&str, Codec); 2] = [("f32", Codec::F32), ("int8", Codec::Int8)];

const AVAILABLE: &str = "available";

const MAJORITY: &str = "majority";

const FOUNDERS: &str = "a list of 1 to 256 different \"peer/log id\", as `keygen` prints them";

/// The largest integer of TOML.
const INTEGER_MAX: u64 = i64::MAX.cast_unsigned();

/// 2^53: exact in an `f64` too.
const TOKENS_MAX: u64 = 1 << 53;

const DAY_SECONDS: u64 = 86_400;

/// The largest momentum: below 1, or the outer velocity never forgets.
const MOMENTUM_MAX: f64 = 0.999;

/// "Silent after" is 4 heartbeats and some round trips; three times that is the least grace.
const GRACE_HEARTBEATS: u64 = 12;
