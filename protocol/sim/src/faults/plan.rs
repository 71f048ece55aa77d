//! Which faults a class has, and how one is drawn: its kind, epoch, moment and target.

use crate::Faults;
use crate::disk::Damage;
use crate::report::Moment;
use intellect_protocol::base::rng::Rng;

/// The first epoch in which faults strike; the epoch before it founds the run.
const FIRST_EPOCH: u64 = 2;
/// In how many epochs faults wait for their moments. One whose epoch has passed strikes in a later
/// one.
const EPOCHS: u64 = 5;

/// A kind of fault; times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A peer dies, unless it is one of the last two. Only a start may bring it back.
    Kill,
    /// A peer dies and comes back within seconds, with this damage to its disk.
    Restart(Damage),
    /// A peer comes back without its log of votes, and soon once more without the next one.
    LoseTwice,
    /// The power of a peer fails around a flush or between two outputs; then as with a restart.
    Crash(Damage),
    /// A peer starts on a host where none runs, if there is such a host.
    Start,
    /// A peer leaves with a goodbye, unless it is one of the last two.
    Leave,
    /// Half of the peers die, and only a start may bring one back.
    Half,
    /// Half of the peers die, and half of those come back.
    HalfBack,
    /// All peers die at once, and each comes back within seconds.
    All,
    /// A process stands still for so long.
    Pause(u64),
    /// A clock leaps ahead by so much, and by a few heartbeats more.
    Leap(u64),
    /// Something is done to the network for this long.
    Disturb(Trouble, u64),
    /// All peers leave or die, and all come back.
    Evening,
}

/// What is wrong with the network for a while.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// The peers are partitioned into so many sides. Halfway one of them may be `nested`, cut in
    /// two again; later some may have `met` before all do.
    Split { sides: u64, nested: bool, met: bool },
    /// All messages from and to a peer take 0.2 to 1.7 s longer.
    Slow,
    /// Most messages from and to a peer are lost.
    Deaf,
    /// Half of a peer's links carry nothing away from it, and their streams close.
    OneWay,
    /// Links swallow what is sent, and their streams stay open.
    Swallow(Links),
    /// Half of a peer's direct connections are gone.
    Unlink,
}

/// Which links of a peer become a black hole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Links {
    /// One of its links, from the peer to another one.
    One,
    /// Half of its links, in both directions.
    Half,
    /// All links towards the peer: it hears nothing.
    In,
    /// All links from the peer: nobody hears it.
    Out,
    /// All of its links, in both directions.
    All,
}

/// One fault of a seed: what it does, and at which moment of which epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// What it does when it strikes.
    pub(super) kind: Kind,
    /// The epoch in which it waits for its moment.
    pub(super) epoch: u64,
    /// The moment that some peer has to reach.
    pub(super) moment: Moment,
    /// How many such moments pass before it strikes.
    pub(super) skip: u64,
    /// How long after its moment it strikes, in milliseconds.
    pub(super) delay_ms: u64,
    /// Whether it strikes the peer that has reached the moment.
    pub(super) aimed: bool,
    /// Whether its moment has come: then it is in the agenda, or has struck.
    pub(super) armed: bool,
}

impl Kind {
    /// A fault of this class, drawn at random; [`Faults::Clean`] has none.
    fn draw(faults: Faults, rng: &mut Rng) -> Option<Self> {
        let kind = match faults {
            Faults::Clean => return None,
            Faults::Lossy => match rng.below(3) {
                0 => Self::Disturb(Trouble::Slow, 1_000 + rng.below(4_000)),
                1 => Self::Disturb(Trouble::Deaf, 1_000 + rng.below(4_000)),
                _ => Self::Disturb(Trouble::OneWay, 1_000 + rng.below(8_000)),
            },
            Faults::Churn => match rng.below(15) {
                0 | 1 => Self::Kill,
                2 | 3 => Self::Restart(Damage::None),
                4 => Self::Restart(Damage::Votes),
                5 => Self::Restart(Damage::All),
                6 => Self::Restart(*rng.pick(&[Damage::Checkpoint, Damage::Updates])?),
                7 => Self::LoseTwice,
                8 | 9 => Self::Crash(Damage::None),
                10 => Self::Crash(Damage::Votes),
                11 => Self::Start,
                12 => *rng.pick(&[Self::Leave, Self::HalfBack])?,
                13 => Self::Half,
                _ => Self::All,
            },
            Faults::Blackhole => {
                let all = [Links::One, Links::Half, Links::In, Links::Out, Links::All];
                Self::Disturb(Trouble::Swallow(*rng.pick(&all)?), 1_000 + rng.below(14_000))
            }
            Faults::Partition => {
                let (sides, nested) = (2 + rng.below(2), rng.chance(0.4));
                let length_ms = 3_000 + rng.below(22_000);
                let met = rng.chance(0.4);
                Self::Disturb(Trouble::Split { sides, nested, met }, length_ms)
            }
            Faults::Evening => Self::Evening,
            Faults::Invited => match rng.below(2) {
                0 => Self::draw(Faults::Churn, rng)?,
                _ => Self::draw(Faults::Partition, rng)?,
            },
            Faults::Liars | Faults::Half => match rng.below(4) {
                0 => Self::Restart(Damage::None),
                1 => Self::Crash(Damage::None),
                _ => Self::draw(Faults::Lossy, rng)?,
            },
            Faults::Nat => match rng.below(4) {
                0 => Self::Restart(Damage::None),
                1 => Self::Disturb(Trouble::Slow, 1_000 + rng.below(4_000)),
                _ => Self::Disturb(Trouble::Unlink, 500 + rng.below(12_000)),
            },
            Faults::Mixed => match rng.below(8) {
                0 => Self::Pause(500 + rng.below(12_000)),
                1 => Self::Leap(rng.below(15_000)),
                2 => Self::draw(Faults::Lossy, rng)?,
                3 => Self::draw(Faults::Blackhole, rng)?,
                4 | 5 => Self::draw(Faults::Partition, rng)?,
                _ => Self::draw(Faults::Churn, rng)?,
            },
        };
        Some(kind)
    }
}

impl Planned {
    /// A fault of this class at a moment of an early epoch.
    pub(super) fn draw(faults: Faults, rng: &mut Rng) -> Option<Self> {
        let kind = Kind::draw(faults, rng)?;
        let epoch = FIRST_EPOCH + rng.below(EPOCHS);
        let splits = matches!(kind, Kind::Disturb(Trouble::Split { .. }, _));
        let (moment, skip, delay_ms, aimed) = if splits && rng.chance(0.2) {
            // While a Regroup is being joined: some peers have heard of it, some will not.
            (Moment::Regrouping, 0, rng.below(100), true)
        } else if rng.chance(0.3) {
            // The first vote of an epoch and its author: the value must be
            // adopted, and may be forgotten.
            (Moment::Finished, 0, 0, true)
        } else {
            let moment = *rng.pick(&Moment::REGULAR)?;
            let skip = if rng.chance(0.5) { 0 } else { rng.below(8) };
            let delay_ms = if rng.chance(0.5) { 0 } else { rng.below(300) };
            (moment, skip, delay_ms, rng.chance(0.5))
        };
        Some(Self { kind, epoch, moment, skip, delay_ms, aimed, armed: false })
    }
}
