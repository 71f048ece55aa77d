//! Leaving a series for another one: what is proposed to its voters.

use serde::{Deserialize, Serialize};

use super::record::{Series, Voter};
use super::trust::Admissions;
use crate::base::id::{Digest, PeerId};

/// Why a voter is left out of a Regroup (R12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Absence {
    /// Not present for `minority_grace`.
    Silent,
    /// Said `Leaving`.
    Left,
    /// Answers with another log.
    OtherLog,
    /// Has joined another Regroup.
    Elsewhere,
    /// Delivered nothing of an update that only it holds.
    Mute,
    /// A notice that the Regroup carries has revoked it (T10).
    Revoked,
}

/// Leave the series and go on as the voters of a new one (R12).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "RegroupForm", into = "RegroupForm")]
pub struct Regroup {
    /// The series that is left.
    pub series: Series,
    /// Rises with each Regroup of that series.
    pub number: u64,
    /// Who proposes it.
    pub proposer: PeerId,
    /// The voters to be.
    pub members: Vec<Voter>,
    /// The voters left out.
    pub absent: Vec<(Voter, Absence)>,
    /// Why its members may be (T9), and why voters are left out as revoked (T10). The ledger takes nothing
    /// from it: the next free receipt brings all that again.
    pub trust: Option<Box<Admissions>>,
}

/// The bytes of a [`Regroup`]. The byte behind `parent` says whether there is one before, and a trust part: so in open
/// runs the bytes are as if there were none.
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
