//! A manifest's settings out of TOML and back into it, and their canonical bytes: the tables, and what must
//! hold between their keys.

use std::time::Duration;

use toml::{Table, Value as Toml};

use super::table::{Fields, Keys, Text, Value as _, missing, named, outside, table};
use super::{
    Budget, Epoch, FORMAT, Level, ManifestError, Members, Quorum, Run, Tolerate, Trust, UNDO_MAX,
};
use crate::base::base58;
use crate::base::id::{self, Digest, LogId, PeerId};
use crate::base::sign::Signature;
use crate::message::wire;
use crate::message::{MEMBERS_MAX, Voter};
use crate::ring::codec::Codec;

table! {
    /// The keys above all tables that are hashed where they stand.
    pub(super) struct Top in "" {
        format: u64, FORMAT..=FORMAT, "a greater one was made by a newer program";
        name: String, (), "for people";
        organiser: PeerId, (), "ed25519 public key of who signs the manifest";
        seed: u64, 0..=INTEGER_MAX, "weights, data and everything drawn come from it";
        stop_tokens: u64, 0..=TOKENS_MAX, "committed tokens at which the run is finished; 0: never";
        genesis: Option<Digest>, (), "state digest of [published weights](#state-and-checkpoint) that the run begins with; absent: they are drawn from the seed";
        signature: Option<Signature>, (), "the organiser's, over RunId and content; not hashed";
    }
}

table! {
    /// How long an epoch is.
    struct EpochTable in "epoch" {
        budget: Budget, (), "what is counted of a peer's training in an epoch";
        amount: u64, 1..=TOKENS_MAX, "how much of it; of steps at most 1,000,000, of seconds a day";
        fragments: u64, 1..=INTEGER_MAX, "of the parameters; more than 1 is not supported yet";
        overlap_steps: u64, 0..=INTEGER_MAX, "inner steps during a ring; more than 0 is not supported yet";
        tokens_max: Option<u64>, 1..=TOKENS_MAX, "budget = \"seconds\" only: tokens that a peer may have learnt from in any epoch; absent: before the first commit anything is possible";
    }
}

table! {
    /// The outer optimiser: Nesterov momentum on the averaged delta.
    #[derive(Copy)]
    pub struct Outer in "outer" {
        lr: f32, 0.0..=10.0, "η; 1 without momentum is the identity";
        momentum: f32, 0.0..=MOMENTUM_MAX, "μ";
        momentum_ramp_epochs: u64, 0..=1_000_000, "epochs over which μ rises from zero; 0: at once";
    }
}

table! {
    /// How deltas travel.
    struct RingTable in "ring" {
        codec: Codec, (), "how the numbers of a delta become bytes";
    }
}

table! {
    /// Who takes part, and when others go on without one.
    struct MembersTable in "members" {
        min_peers: u64, 1..=MEMBERS_MAX as u64, "peers needed to found the run; later the last survivor goes on";
        quorum: Rule, (), "without a majority survivors regroup, or they wait";
        founders: Vec<Voter>, 1..=MEMBERS_MAX, "quorum = \"majority\" only: the voters of genesis, in the order that breaks ties";
        tolerate: Option<Tolerate>, (), "what voters outlast: \"liars\", in a run of invited peers with min_peers of 4 or more, goes on while fewer than a third of the voters lie; absent: \"crash\"";
        heartbeat_ms: u64, 100..=10_000, "between two heartbeats";
        ready_grace_ms: u64, 100..=DAY_MS, "the longest wait for those who are not Ready, at least a heartbeat";
        minority_grace_ms: u64, 100..=DAY_MS, "silence after which survivors regroup, at least 12 heartbeats";
    }
}

table! {
    /// Whom peers believe.
    struct TrustTable in "trust" {
        level: Option<Level>, (), "whether who comes needs an invite of the organiser; absent: nobody does";
        undo_max: Option<u64>, 1..=1 << 32, "epochs older than ten minutes that a greater head undoes by itself, where a third of the last common voters signed it or only genesis is common; absent: 64";
    }
}

/// A quorum without its founders.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Available,
    Majority,
}

named!(Rule: Available = 1 "available", Majority = 2 "majority");
named!(Budget: Steps = 1 "steps", Tokens = 2 "tokens", Seconds = 3 "seconds");
named!(Codec: F32 = 1 "f32", Int8 = 2 "int8");

impl Text for String {
    const FORM: &'static str = "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'";

    fn parse(text: &str) -> Option<Self> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=64).contains(&text.len()) && text.bytes().all(known)).then(|| text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }

    fn bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }
}

impl Text for Tolerate {
    const FORM: &'static str = "\"crash\" or \"liars\"";

    fn parse(text: &str) -> Option<Self> {
        [Self::Crash, Self::Liars].into_iter().find(|tolerate| tolerate.text() == text)
    }

    fn text(&self) -> String {
        match self {
            Self::Crash => "crash".to_owned(),
            Self::Liars => "liars".to_owned(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        wire::canonical(&(*self as u64))
    }
}

impl Text for Level {
    const FORM: &'static str = "\"open\" or \"invited\"";

    fn parse(text: &str) -> Option<Self> {
        [Self::Open, Self::Invited].into_iter().find(|level| level.text() == text)
    }

    fn text(&self) -> String {
        match self {
            Self::Open => "open".to_owned(),
            Self::Invited => "invited".to_owned(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        wire::canonical(&(*self as u64))
    }
}

/// Bytes that are written as hex.
macro_rules! hex {
    ($($type:ident: $form:literal;)*) => {$(
        impl Text for $type {
            const FORM: &'static str = $form;

            fn parse(text: &str) -> Option<Self> {
                id::unhex(text).map(Self)
            }

            fn text(&self) -> String {
                id::hex(&self.0)
            }

            fn bytes(&self) -> Vec<u8> {
                self.0.to_vec()
            }
        }
    )*};
}

hex! {
    PeerId: "64 lower-case hex digits";
    Digest: "64 lower-case hex digits";
    Signature: "128 lower-case hex digits";
}

impl Text for Voter {
    const FORM: &'static str =
        "a list of 1 to 256 different \"peer/log id\", as `keygen` prints them";

    fn parse(text: &str) -> Option<Self> {
        let (peer, log) = text.split_once('/')?;
        Some(Self { peer: base58::decode(peer)?, log: LogId(id::unhex(log)?) })
    }

    fn text(&self) -> String {
        format!("{}/{}", base58::encode(&self.peer), self.log.hex())
    }

    fn bytes(&self) -> Vec<u8> {
        wire::canonical(self)
    }
}

/// A run's settings as they are written.
pub(super) struct Tables {
    top: Top,
    epoch: EpochTable,
    outer: Outer,
    ring: RingTable,
    members: MembersTable,
    trust: TrustTable,
}

impl Tables {
    pub(super) fn of(run: &Run, signature: Option<&Signature>) -> Self {
        let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let (quorum, founders) = match &run.members.quorum {
            Quorum::Available => (Rule::Available, Vec::new()),
            Quorum::Majority { founders } => (Rule::Majority, founders.clone()),
        };
        Self {
            top: Top {
                format: FORMAT,
                name: run.name.clone(),
                organiser: run.organiser,
                seed: run.seed,
                stop_tokens: run.stop_tokens,
                genesis: run.genesis,
                signature: signature.cloned(),
            },
            epoch: EpochTable {
                budget: run.epoch.budget,
                amount: run.epoch.amount,
                fragments: FRAGMENTS,
                overlap_steps: OVERLAP_STEPS,
                tokens_max: run.epoch.tokens_max,
            },
            outer: run.outer,
            ring: RingTable { codec: run.codec },
            members: MembersTable {
                min_peers: run.members.min_peers,
                quorum,
                founders,
                tolerate: Some(run.members.tolerate).filter(|said| *said != Tolerate::Crash),
                heartbeat_ms: millis(run.members.heartbeat),
                ready_grace_ms: millis(run.members.ready_grace),
                minority_grace_ms: millis(run.members.minority_grace),
            },
            trust: TrustTable::of(&run.trust),
        }
    }

    /// The manifest as text; `others` holds the tables that are not ours.
    pub(super) fn to_toml(&self, others: &Table) -> String {
        let mut text = self.top.to_toml();
        for name in WORK_TABLES {
            if let Some(table) = others.get(name).and_then(Toml::as_table) {
                text.push_str(&format!("\n[{name}]\n{table}"));
            }
        }
        let Self { epoch, outer, ring, members, trust, .. } = self;
        let older = [epoch.to_toml(), outer.to_toml(), ring.to_toml(), members.to_toml()];
        let trust = Some(trust).filter(|trust| **trust != TrustTable::of(&Trust::default()));
        text + &older.concat() + &trust.map(Keys::to_toml).unwrap_or_default()
    }

    /// What is hashed, `work` in the place of the tables that are not ours; what is younger last, each with a
    /// number before it that no other one has, where it is there.
    pub(super) fn canonical(&self, work: &[u8]) -> Vec<u8> {
        let Self { top, epoch, outer, ring, members, trust } = self;
        let older = Top { genesis: None, signature: None, ..top.clone() }.canonical();
        let EpochTable { tokens_max, .. } = *epoch;
        let epoch = EpochTable { tokens_max: None, ..epoch.clone() };
        let tolerate = members.tolerate;
        let members = MembersTable { tolerate: None, ..members.clone() };
        let tables = [epoch.canonical(), outer.canonical(), ring.canonical(), members.canonical()];
        let tagged = |tag: u8, value: Option<Vec<u8>>| {
            value.map(|value| [vec![tag], value].concat()).unwrap_or_default()
        };
        let hashed = |value: Option<u64>| value.map(|value| value.hashed());
        let TrustTable { level, undo_max } = trust;
        let younger = [
            top.genesis.hashed(),
            tagged(2, level.map(|level| level.bytes())),
            tagged(3, hashed(*undo_max)),
            tagged(4, hashed(tokens_max)),
            tagged(5, tolerate.map(|tolerate| tolerate.bytes())),
        ];
        [older, wire::canonical(&work), tables.concat(), younger.concat()].concat()
    }

    /// The rows of [`keys`](super::keys).
    pub(super) fn described(&self) -> Vec<[String; 4]> {
        let Self { top, epoch, outer, ring, members, trust } = self;
        let tables = [epoch.described(), outer.described(), ring.described(), members.described()];
        [top.described(), tables.concat(), trust.described()].concat()
    }
}

/// The settings and the signature of a manifest.
pub(super) fn read(manifest: &Table) -> Result<(Run, Option<Signature>), ManifestError> {
    let top = Top::parse(manifest)?;
    let epoch = read_epoch(&EpochTable::parse(manifest)?)?;
    let run = Run {
        name: top.name,
        organiser: top.organiser,
        seed: top.seed,
        stop_tokens: top.stop_tokens,
        genesis: top.genesis,
        epoch,
        outer: Outer::parse(manifest)?,
        codec: RingTable::parse(manifest)?.codec,
        members: read_members(&Fields::of::<MembersTable>(manifest)?)?,
        trust: read_trust(manifest)?,
    };
    check_tolerate(&run)?;
    Ok((run, top.signature))
}

/// A third of the keys is nothing where anybody can make keys, and of fewer than four voters none may lie.
fn check_tolerate(run: &Run) -> Result<(), ManifestError> {
    let Members { tolerate, min_peers, .. } = run.members;
    if tolerate == Tolerate::Crash {
        return Ok(());
    }
    if run.trust.level == Level::Open {
        let key = "members.tolerate".to_owned();
        return Err(ManifestError::NotApplicable { key, only: "trust.level = \"invited\"" });
    }
    if min_peers < LIARS_PEERS_MIN {
        let most = MEMBERS_MAX as u64;
        return Err(outside("members.min_peers", min_peers, &(LIARS_PEERS_MIN..=most)));
    }
    Ok(())
}

fn read_epoch(table: &EpochTable) -> Result<Epoch, ManifestError> {
    let EpochTable { budget, amount, fragments, overlap_steps, tokens_max } = *table;
    let amount_max = match budget {
        Budget::Steps => 1_000_000,
        Budget::Tokens => TOKENS_MAX,
        Budget::Seconds => DAY_MS / 1000,
    };
    if amount > amount_max {
        return Err(outside("epoch.amount", amount, &(1..=amount_max)));
    }
    for (key, value, supported) in [
        ("epoch.fragments", fragments, FRAGMENTS),
        ("epoch.overlap_steps", overlap_steps, OVERLAP_STEPS),
    ] {
        if value > supported {
            return Err(ManifestError::NotYet { key, value, supported });
        }
    }
    if tokens_max.is_some() && budget != Budget::Seconds {
        let key = "epoch.tokens_max".to_owned();
        return Err(ManifestError::NotApplicable { key, only: "budget = \"seconds\"" });
    }
    Ok(Epoch { budget, amount, tokens_max })
}

impl TrustTable {
    /// What is not as in a run that says nothing about it.
    fn of(trust: &Trust) -> Self {
        Self {
            level: Some(trust.level).filter(|level| *level != Level::Open),
            undo_max: Some(trust.undo_max).filter(|most| *most != UNDO_MAX),
        }
    }
}

/// A table that older manifests do not have.
fn read_trust(manifest: &Table) -> Result<Trust, ManifestError> {
    if !manifest.contains_key(TrustTable::TABLE) {
        return Ok(Trust::default());
    }
    let TrustTable { level, undo_max } = TrustTable::parse(manifest)?;
    Ok(Trust { level: level.unwrap_or(Level::Open), undo_max: undo_max.unwrap_or(UNDO_MAX) })
}

fn read_members(fields: &Fields<'_>) -> Result<Members, ManifestError> {
    let key = || "members.founders".to_owned();
    let rule: Rule = fields.read("quorum", &())?;
    if rule == Rule::Available && fields.has("founders") {
        return Err(ManifestError::NotApplicable { key: key(), only: "quorum = \"majority\"" });
    }
    let table = MembersTable::read(fields)?;
    let quorum = match (rule, table.founders) {
        (Rule::Available, _) => Quorum::Available,
        (Rule::Majority, founders) if founders.is_empty() => {
            return Err(missing(key(), MembersTable::KEYS, "founders"));
        }
        (Rule::Majority, founders) => Quorum::Majority { founders },
    };
    let MembersTable {
        min_peers, tolerate, heartbeat_ms, ready_grace_ms, minority_grace_ms, ..
    } = table;
    let tolerate = tolerate.unwrap_or_default();
    for (key, value, least) in [
        ("members.ready_grace_ms", ready_grace_ms, heartbeat_ms),
        ("members.minority_grace_ms", minority_grace_ms, GRACE_HEARTBEATS * heartbeat_ms),
    ] {
        if value < least {
            return Err(outside(key, value, &(least..=DAY_MS)));
        }
    }
    let [heartbeat, ready_grace, minority_grace] =
        [heartbeat_ms, ready_grace_ms, minority_grace_ms].map(Duration::from_millis);
    Ok(Members { min_peers, quorum, tolerate, heartbeat, ready_grace, minority_grace })
}

/// The least `min_peers` of a run that outlasts liars.
const LIARS_PEERS_MIN: u64 = 4;

/// The tables that others read.
const WORK_TABLES: [&str; 3] = ["model", "data", "train"];

/// Fragments of the parameters: one until more are built.
const FRAGMENTS: u64 = 1;

/// Inner steps during a ring: none until that is built.
const OVERLAP_STEPS: u64 = 0;

/// The largest integer of TOML.
const INTEGER_MAX: u64 = i64::MAX.cast_unsigned();

/// 2^53: exact in an `f64` too.
const TOKENS_MAX: u64 = 1 << 53;

const DAY_MS: u64 = 86_400_000;

/// The largest momentum: below 1, or the outer velocity never forgets.
const MOMENTUM_MAX: f64 = 0.999;

/// "Silent after" is 4 heartbeats and some round trips; three times that is the least grace.
const GRACE_HEARTBEATS: u64 = 12;
