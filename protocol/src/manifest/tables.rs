//! The tables of a manifest that belong to the protocol: one line for each key, what must hold between the keys,
//! and the canonical bytes.
//!
//! The order of the lines is that of the canonical bytes, and docs/FORMATS.md has the lines as a table. A number
//! that stands for a name is hashed, so it is never used for another name.

use std::time::Duration;

use intellect_table::{
    Description, Entry, Error, Field, Keys, List, Named, Pattern, Table, Value, table,
};

use super::{Budget, FORMAT, Level, Quorum, Run, TABLES, Tolerate};
use crate::base::base58;
use crate::base::fault::require;
use crate::base::id::{self, Digest, LogId, PeerId};
use crate::base::sign::Signature;
use crate::message::{MEMBERS_MAX, Voter, wire};
use crate::ring::codec::Codec;

table! {
    /// The keys that stand above all tables.
    pub(super) struct Top in "" {
        format: u64, FORMAT..=FORMAT, "a greater one was made by a newer program";
        name: String, NAME, "for people";
        organiser: PeerId, (), "ed25519 public key of the peer that signs the manifest";
        seed: u64, 0..=INTEGER_MAX, "weights, data and everything drawn come from it";
        stop_tokens: u64, 0..=TOKENS_MAX, "committed tokens at which the run is finished; 0: never";
        genesis: Option<Digest>, (), "state digest of [published weights](#state-and-checkpoint) that the run begins with; absent: they are drawn from the seed";
        signature: Option<Signature>, (), "the organiser's, over RunId and content; not hashed";
    }
}

table! {
    /// How long an epoch is, and how long its phases may take.
    #[derive(Copy, Eq)]
    pub struct Epoch in "epoch" {
        budget: Budget, (), "what is counted of a peer's training in an epoch";
        amount: u64, 1..=TOKENS_MAX, "how much of it each peer does; of steps at most 1,000,000, of seconds a day";
        fragments: u64, 1..=INTEGER_MAX, "of the parameters; more than 1 is not supported yet";
        overlap_steps: u64, 0..=INTEGER_MAX, "inner steps during a ring; more than 0 is not supported yet";
        tokens_max: Option<u64>, 1..=TOKENS_MAX, "tokens that a peer may have learnt from in any epoch; absent: before the first commit anything is possible";
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
    /// How deltas travel in the ring.
    #[derive(Copy, Eq)]
    pub struct Ring in "ring" {
        codec: Codec, (), "how the numbers of a delta become bytes";
    }
}

table! {
    /// The peers that take part, and when others go on without one.
    #[derive(Eq)]
    pub struct Members in "members" {
        min_peers: u64, 1..=MEMBERS_MAX as u64, "peers needed to found the run; later the last survivor goes on";
        quorum: Quorum, (), "without a majority survivors regroup and may fork the run, or they wait";
        founders: Vec<Voter>, List(MEMBERS_MAX, ()), "the voters of genesis, none twice, in the order that breaks ties";
        tolerate: Tolerate, (), "what the voters outlast: peers that die, or, in a run of invited peers with a min_peers of 4 or more, liars that are fewer than a third";
        heartbeat as heartbeat_ms: Duration, 100..=10_000, "between two heartbeats; longer notices deaths later, shorter costs traffic";
        ready_grace as ready_grace_ms: Duration, 100..=DAY_MS, "the longest wait for peers that are not Ready, at least a heartbeat";
        minority_grace as minority_grace_ms: Duration, 100..=DAY_MS, "silence after which survivors regroup, at least 12 heartbeats; short forks the run on a hiccup, long makes survivors wait";
    }
}

table! {
    /// Which peers are admitted, and how much a greater head may undo (G11).
    #[derive(Copy, Eq)]
    pub struct Trust in "trust" {
        level: Level, (), "whether a new peer needs an invite of the organiser; a run never changes it";
        undo_max: u64, 1..=1 << 32, "epochs older than ten minutes that a greater head undoes by itself, where a third of the last common voters signed it or only genesis is common; few ask a person after each longer partition, many let two keys undo as much";
    }
}

impl Table for Top {
    const OTHERS: &'static [&'static str] = &TABLES;
}

impl Table for Epoch {
    fn only(key: &str) -> Option<String> {
        (key == "tokens_max").then(|| "budget = \"seconds\"".to_owned())
    }

    fn applies(&self, key: &str) -> bool {
        key != "tokens_max" || self.budget == Budget::Seconds
    }

    /// What an amount may be depends on what is counted. `fragments` and `overlap_steps` have one
    /// lawful value in this version: a manifest that needs more is refused, never misread.
    fn check(&self) -> Result<(), Error> {
        let amount_max = match self.budget {
            Budget::Steps => 1_000_000,
            Budget::Tokens => TOKENS_MAX,
            Budget::Seconds => DAY_MS / 1000,
        };
        if self.amount > amount_max {
            return Err(Error::outside("epoch.amount", self.amount, &(1..=amount_max)));
        }
        for (key, value, most) in [
            ("epoch.fragments", self.fragments, FRAGMENTS),
            ("epoch.overlap_steps", self.overlap_steps, OVERLAP_STEPS),
        ] {
            let need = format!("more than {most} is not supported yet, set it to {most}");
            require(value <= most, Error::value(key, value, need))?;
        }
        Ok(())
    }
}

impl Table for Outer {}

impl Table for Ring {}

impl Table for Members {
    fn only(key: &str) -> Option<String> {
        (key == "founders").then(|| "quorum = \"majority\"".to_owned())
    }

    fn applies(&self, key: &str) -> bool {
        key != "founders" || self.quorum == Quorum::Majority
    }

    /// A founder that stood there twice would count twice in a majority. The graces are bounded
    /// from below by the heartbeat, since a shorter one could end before a live peer is heard.
    fn check(&self) -> Result<(), Error> {
        let founders = &self.founders;
        if let Some(at) = (1..founders.len()).find(|at| founders[..*at].contains(&founders[*at])) {
            let need = "it stands there twice: name each founder once";
            return Err(Error::value("members.founders", written(&founders[at]), need));
        }
        for (key, grace, least) in [
            ("members.ready_grace_ms", self.ready_grace, self.heartbeat),
            ("members.minority_grace_ms", self.minority_grace, GRACE_HEARTBEATS * self.heartbeat),
        ] {
            let bounds = least.as_millis()..=DAY_MS.into();
            require(grace >= least, Error::outside(key, grace.as_millis(), &bounds))?;
        }
        Ok(())
    }
}

impl Table for Trust {}

impl Named for Budget {
    const NAMES: &'static [(Self, &'static str, u64)] =
        &[(Self::Steps, "steps", 1), (Self::Tokens, "tokens", 2), (Self::Seconds, "seconds", 3)];
}

impl Named for Codec {
    const NAMES: &'static [(Self, &'static str, u64)] =
        &[(Self::F32, "f32", Self::F32 as u64), (Self::Int8, "int8", Self::Int8 as u64)];
}

impl Named for Quorum {
    const NAMES: &'static [(Self, &'static str, u64)] =
        &[(Self::Available, "available", 1), (Self::Majority, "majority", 2)];
}

impl Named for Tolerate {
    const NAMES: &'static [(Self, &'static str, u64)] =
        &[(Self::Crash, "crash", 1), (Self::Liars, "liars", 2)];
}

impl Named for Level {
    const NAMES: &'static [(Self, &'static str, u64)] = &[
        (Self::Open, "open", Self::Open as u64),
        (Self::Invited, "invited", Self::Invited as u64),
    ];
}

/// Bytes of a fixed length, which a manifest writes as hex digits.
macro_rules! hex {
    ($($type:ident: $bytes:literal, $form:literal;)*) => {$(
        impl Value for $type {
            type Bounds = ();
            const NONE: Self = Self([0; $bytes]);

            fn read(entry: Entry<'_>, (): &()) -> Result<Self, Error> {
                entry.parse($form, |text| id::unhex(text).map(Self))
            }

            fn field(&self) -> Field {
                Field::Bytes(self.0.to_vec(), id::hex(&self.0))
            }

            fn describe((): &()) -> String {
                $form.to_owned()
            }
        }
    )*};
}

hex! {
    PeerId: 32, "64 lower-case hex digits";
    Digest: 32, "64 lower-case hex digits";
    Signature: 64, "128 lower-case hex digits";
}

impl Value for Voter {
    type Bounds = ();
    const NONE: Self = Self { peer: PeerId::NONE, log: LogId([0; 16]) };

    fn read(entry: Entry<'_>, (): &()) -> Result<Self, Error> {
        let parse = |text: &str| {
            let (peer, log) = text.split_once('/')?;
            Some(Self { peer: base58::decode(peer)?, log: LogId(id::unhex(log)?) })
        };
        entry.parse(VOTER, parse)
    }

    fn field(&self) -> Field {
        Field::Bytes(wire::canonical(self), written(self))
    }

    fn describe((): &()) -> String {
        VOTER.to_owned()
    }
}

/// A voter as a manifest names it.
fn written(voter: &Voter) -> String {
    format!("{}/{}", base58::encode(&voter.peer), voter.log.hex())
}

impl Top {
    /// The top of the manifest of this run; unsigned without a signature.
    fn of(run: &Run, signature: Option<&Signature>) -> Self {
        Self {
            format: FORMAT,
            name: run.name.clone(),
            organiser: run.organiser,
            seed: run.seed,
            stop_tokens: run.stop_tokens,
            genesis: run.genesis,
            signature: signature.copied(),
        }
    }
}

impl Epoch {
    /// An epoch of so much work, without a bound on what a peer learns from in it.
    #[must_use]
    pub fn new(budget: Budget, amount: u64) -> Self {
        let (fragments, overlap_steps) = (FRAGMENTS, OVERLAP_STEPS);
        Self { budget, amount, fragments, overlap_steps, tokens_max: None }
    }
}

/// The settings and the signature of a manifest. Each table is checked by itself first, then what
/// must hold between two of them. The error is the first one found.
pub(super) fn read(manifest: &toml::Table) -> Result<(Run, Option<Signature>), Error> {
    let top = Top::parse(manifest)?;
    let run = Run {
        name: top.name,
        organiser: top.organiser,
        seed: top.seed,
        stop_tokens: top.stop_tokens,
        genesis: top.genesis,
        epoch: Epoch::parse(manifest)?,
        outer: Outer::parse(manifest)?,
        ring: Ring::parse(manifest)?,
        members: Members::parse(manifest)?,
        trust: Trust::parse(manifest)?,
    };
    check_tolerate(&run)?;
    Ok((run, top.signature))
}

/// Checks that a run which outlasts liars has keys that not anybody can make, and four voters or more: of fewer
/// none may lie.
fn check_tolerate(run: &Run) -> Result<(), Error> {
    let Members { tolerate, min_peers, .. } = run.members;
    if tolerate == Tolerate::Crash {
        return Ok(());
    }
    if run.trust.level == Level::Open {
        let need = "anybody can make keys in an open run: \
                    set trust.level = \"invited\", or members.tolerate = \"crash\"";
        return Err(Error::value("members.tolerate", "\"liars\"", need));
    }
    let bounds = LIARS_PEERS_MIN..=MEMBERS_MAX as u64;
    let few = Error::outside("members.min_peers", min_peers, &bounds);
    require(min_peers >= LIARS_PEERS_MIN, few)
}

/// The manifest of `run` as text; `work` holds the tables of the model crate.
pub(super) fn to_text(run: &Run, work: &toml::Table, signature: Option<&Signature>) -> String {
    let Run { epoch, outer, ring, members, trust, .. } = run;
    let mut text = Top::of(run, signature).to_text();
    for name in WORK_TABLES {
        if let Some(table) = work.get(name).and_then(toml::Value::as_table) {
            text.push_str(&format!("\n[{name}]\n{table}"));
        }
    }
    let tables =
        [epoch.to_text(), outer.to_text(), ring.to_text(), members.to_text(), trust.to_text()];
    text + &tables.concat()
}

/// Describes every key of these tables, with the values of `run`.
pub(super) fn described(run: &Run) -> Vec<Description> {
    let Run { epoch, outer, ring, members, trust, .. } = run;
    let tables = [
        Top::of(run, None).described(),
        epoch.described(),
        outer.described(),
        ring.described(),
        members.described(),
        trust.described(),
    ];
    tables.into_iter().flatten().collect()
}

/// The bytes that are hashed: every key but the signature, in the order of the tables. The bytes of `work` stand
/// in the place of the tables of the model crate.
pub(super) fn canonical(run: &Run, work: &[u8]) -> Vec<u8> {
    let Run { epoch, outer, ring, members, trust, .. } = run;
    let top = Top::of(run, None).row().into_iter().filter(|(key, _)| *key != "signature");
    let work = [("work", Field::Bytes(wire::canonical(&work), String::new()))];
    let rows = [epoch.row(), outer.row(), ring.row(), members.row(), trust.row()];
    let fields = top.chain(work).chain(rows.into_iter().flatten());
    fields.flat_map(|(_, field)| hashed(&field)).collect()
}

/// A value in bincode 2's `standard()` form, a number as its `f32` bits. The bytes fix the run's id
/// for good: another form of one kind of value would change the id of every run that has it.
fn hashed(field: &Field) -> Vec<u8> {
    match field {
        Field::Integer(number) | Field::Name(_, number) => wire::canonical(number),
        Field::Float(number) => wire::canonical(&(*number as f32).to_bits()),
        Field::Text(text) => wire::canonical(text),
        Field::Bytes(bytes, _) => bytes.clone(),
        Field::Switch(on) => wire::canonical(on),
        Field::List(items) => {
            let count = wire::canonical(&(items.len() as u64));
            count.into_iter().chain(items.iter().flat_map(hashed)).collect()
        }
        Field::Option(None) => vec![0],
        Field::Option(Some(value)) => [vec![1], hashed(value)].concat(),
    }
}

/// The form of a run's name, which is for people.
const NAME: Pattern = Pattern {
    form: "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'",
    fits: |text| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(known)
    },
};

/// The form in which a voter is written.
const VOTER: &str = "\"peer/log id\", as `keygen` prints it";

/// The least `min_peers` of a run that outlasts liars.
const LIARS_PEERS_MIN: u64 = 4;

/// The tables that the model crate reads.
const WORK_TABLES: [&str; 3] = ["model", "data", "train"];

/// Fragments of the parameters: one until more are built.
const FRAGMENTS: u64 = 1;

/// Inner steps during a ring: none until that is built.
const OVERLAP_STEPS: u64 = 0;

/// The largest integer of TOML.
const INTEGER_MAX: u64 = i64::MAX.cast_unsigned();

/// The most tokens of a run: 2^53, which is exact in an `f64` too.
const TOKENS_MAX: u64 = 1 << 53;

/// The longest grace, and the longest epoch that is bounded by seconds, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// The largest momentum: at 1 the outer velocity would never forget.
const MOMENTUM_MAX: f64 = 0.999;

/// Heartbeats of the least grace: "silent after" is 4 of them and some round trips, and this is three times that.
const GRACE_HEARTBEATS: u32 = 12;
