//! A Regroup, the reconfiguration that replaces the voters of a series.
//!
//! But for the founding, it takes the place of a majority that is gone. So it can fork a run: the
//! voters that it leaves out may go on elsewhere. The lineage shows that for good, in
//! [`Regroup::absent`] (R14).

use serde::{Deserialize, Serialize};

use super::record::{Series, Voter};
use super::trust::Admissions;
use crate::base::id::{Digest, PeerId};

/// The reason for which a Regroup leaves out a voter (R12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Absence {
    /// It was not heard in this series for `minority_grace`.
    Silent,
    /// It has said `Leaving`, in its newest incarnation.
    Left,
    /// It has another log of votes, so it is another voter (R19).
    OtherLog,
    /// It has joined another Regroup, or is in another series.
    Elsewhere,
    /// It withholds an update that it voted for (R8), or does not answer (G9).
    Mute,
    /// A notice that the Regroup carries revokes it (T10).
    Revoked,
}

/// A proposal to leave the series and go on as the voters of a new one (R12).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "RegroupForm", into = "RegroupForm")]
pub struct Regroup {
    /// The series that its members leave.
    pub series: Series,
    /// Its number, which rises with each Regroup of that series. A member follows only a higher
    /// number than the one that it joined before. A number over 1,024 above the highest seen is not
    /// read, so that one peer cannot use the numbers up.
    pub number: u64,
    /// The peer that proposes it, and signs it.
    pub proposer: PeerId,
    /// The voters of the new series. Each of them must join before the series opens; a founding has
    /// at least `min_peers`.
    pub members: Vec<Voter>,
    /// The voters of the old series that are left out. All of them, in the order of the old voters:
    /// a Regroup that hides one is its proposer's fault.
    pub absent: Vec<(Voter, Absence)>,
    /// The tickets of its members (T9), and the notices that revoke voters (T10). The ledger takes nothing
    /// from it: the next free receipt brings them again.
    pub trust: Option<Box<Admissions>>,
}

/// The bytes of a [`Regroup`]. One byte after `parent` says whether there is a Regroup before it, and a trust part. So
/// in open runs the bytes are as if there were no trust part.
#[derive(Serialize, Deserialize)]
struct RegroupForm {
    epoch: u64,
    parent: Digest,
    before: Before,
    number: u64,
    proposer: PeerId,
    members: Vec<Voter>,
    absent: Vec<(Voter, Absence)>,
}

/// The Regroup before, if any, and the trust part, if any.
#[derive(Serialize, Deserialize)]
enum Before {
    None,
    Regroup(Digest),
    NoneWith(Box<Admissions>),
    RegroupWith(Digest, Box<Admissions>),
}

impl From<Regroup> for RegroupForm {
    fn from(regroup: Regroup) -> Self {
        let Regroup { series, number, proposer, members, absent, trust } = regroup;
        let Series { epoch, parent, regroup } = series;
        let before = match (regroup, trust) {
            (None, None) => Before::None,
            (Some(before), None) => Before::Regroup(before),
            (None, Some(trust)) => Before::NoneWith(trust),
            (Some(before), Some(trust)) => Before::RegroupWith(before, trust),
        };
        Self { epoch, parent, before, number, proposer, members, absent }
    }
}

impl From<RegroupForm> for Regroup {
    fn from(form: RegroupForm) -> Self {
        let RegroupForm { epoch, parent, before, number, proposer, members, absent } = form;
        let (regroup, trust) = match before {
            Before::None => (None, None),
            Before::Regroup(before) => (Some(before), None),
            Before::NoneWith(trust) => (None, Some(trust)),
            Before::RegroupWith(before, trust) => (Some(before), Some(trust)),
        };
        let series = Series { epoch, parent, regroup };
        Self { series, number, proposer, members, absent, trust }
    }
}
