//! What is being fetched: its parts, which of them are missing, and which donor sent the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Bytes, Length, Want};
use crate::base::fault::{AnswerFault, require};
use crate::base::id::{Digest, PeerId};

/// The parts that are here, each with the donor that sent it and its digest.
type Kept = BTreeMap<usize, (PeerId, Digest)>;

/// What is wanted, and how much of it is here.
#[derive(Clone, Debug)]
pub(super) struct Task {
    want: Want,
    part_bytes: u32,
    /// Parts that are missing and not requested from any donor.
    pub(super) waiting: VecDeque<usize>,
    /// Parts that are missing: those in `waiting`, and those that are requested.
    missing: BTreeSet<usize>,
    /// The one donor that is asked for all of it, by index; `None` while all donors are asked.
    pub(super) one: Option<usize>,
    /// The donors that were asked for all of it, by index.
    pub(super) tried: BTreeSet<usize>,
    /// The parts of a whole that are here, from all donors or from the one.
    kept: Kept,
    /// The parts that came from many donors and had the wrong digest together.
    rejected: Kept,
    /// Bytes of a whole that are here.
    length: u64,
}

impl Task {
    /// A task for which no part is here, apart from the pieces that `want`
    /// names if the task `resumes`.
    pub(super) fn new(want: Want, part_bytes: u32, resumes: bool) -> Self {
        let mut task = Self {
            want,
            part_bytes,
            waiting: VecDeque::new(),
            missing: BTreeSet::new(),
            one: None,
            tried: BTreeSet::new(),
            kept: Kept::new(),
            rejected: Kept::new(),
            length: 0,
        };
        task.begin();
        if let (Want::Pieces(_, held), true) = (&task.want, resumes) {
            task.missing.retain(|part| !held.contains(part));
            task.waiting.retain(|part| !held.contains(part));
        }
        task
    }

    /// Plans every part of what is wanted, as if none had arrived. Of a whole of unknown length
    /// only the first part is planned.
    fn begin(&mut self) {
        let count = match &self.want {
            Want::Pieces(pieces, _) => pieces.len(),
            Want::Whole(_, Length::Exactly(length)) => {
                usize::try_from(length.div_ceil(self.part_bytes.into())).unwrap_or(usize::MAX)
            }
            Want::Whole(_, Length::AtMost(_)) => 1,
        };
        (self.waiting, self.missing) = ((0..count).collect(), (0..count).collect());
        self.length = 0;
    }

    /// Begins again with one donor, which is asked for all of it. What many donors sent together
    /// with the wrong digest is remembered, so that the right bytes show later which of them lied.
    pub(super) fn begin_with(&mut self, one: usize) {
        let kept = std::mem::take(&mut self.kept);
        if self.one.is_none() {
            self.rejected = kept;
        }
        self.one = Some(one);
        self.tried.insert(one);
        self.begin();
    }

    /// Whether a part of a whole is here. Always false for pieces.
    pub(super) fn has_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The request for this part has ended, and the part is still missing.
    pub(super) fn ask_again(&mut self, part: usize) {
        if self.lacks(part) {
            self.waiting.push_back(part);
        }
    }

    /// Whether this part must still arrive.
    pub(super) fn lacks(&self, part: usize) -> bool {
        self.missing.contains(&part)
    }

    /// Whether all parts are here; a whole must still be hashed.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Digest of a whole, and its bytes so far; `None` for pieces.
    pub(super) fn whole(&self) -> Option<(Digest, u64)> {
        match self.want {
            Want::Whole(digest, _) => Some((digest, self.length)),
            Want::Pieces(..) => None,
        }
    }

    /// Offset and length of a part; in a whole of unknown length it may be shorter.
    pub(super) fn range(&self, part: usize) -> (u64, u32) {
        let offset = part as u64 * u64::from(self.part_bytes);
        match &self.want {
            Want::Pieces(pieces, _) => {
                pieces.get(part).map_or((0, 0), |piece| (piece.offset, piece.length))
            }
            Want::Whole(_, Length::Exactly(length)) => {
                let rest = u32::try_from(length.saturating_sub(offset)).unwrap_or(u32::MAX);
                (offset, rest.min(self.part_bytes))
            }
            Want::Whole(_, Length::AtMost(_)) => (offset, self.part_bytes),
        }
    }

    /// Checks a part that was missing, takes it if it is right, and returns its offset. In a whole
    /// of unknown length a full part means that another one follows. Without `checks`, which only a
    /// test asks for, the digest of a piece is not compared.
    pub(super) fn take(
        &mut self,
        part: usize,
        of: PeerId,
        bytes: Bytes,
        checks: bool,
    ) -> Result<u64, AnswerFault> {
        let (offset, length) = self.range(part);
        let (length, end) = (u64::from(length), offset + bytes.length);
        match &self.want {
            Want::Whole(_, Length::AtMost(most)) if bytes.length <= length && end <= *most => {
                if bytes.length == length {
                    self.missing.insert(part + 1);
                    self.waiting.push_back(part + 1);
                }
            }
            Want::Whole(_, Length::AtMost(_)) => return Err(AnswerFault::TooMuch),
            _ if bytes.length != length => return Err(AnswerFault::Length),
            Want::Pieces(pieces, _) => {
                let same = pieces.get(part).is_some_and(|piece| piece.digest == bytes.digest);
                require(same || !checks, AnswerFault::OtherPiece)?;
            }
            Want::Whole(_, Length::Exactly(_)) => {}
        }
        if self.whole().is_some() {
            self.kept.insert(part, (of, bytes.digest));
            self.length += bytes.length;
        }
        self.missing.remove(&part);
        Ok(offset)
    }

    /// The peer that sent everything that is here, if it was only one.
    pub(super) fn author(&self) -> Option<PeerId> {
        let mut authors = self.kept.values().map(|(author, _)| *author);
        let first = authors.next()?;
        authors.all(|other| other == first).then_some(first)
    }

    /// The peers that sent wrong parts before, now that the right ones are here. A peer is named
    /// once for each wrong part.
    pub(super) fn liars(&self) -> Vec<PeerId> {
        let lies = |(part, (_, digest)): &(&usize, &(PeerId, Digest))| {
            self.kept.get(part).is_none_or(|(_, right)| right != digest)
        };
        self.rejected.iter().filter(lies).map(|(_, (author, _))| *author).collect()
    }
}
