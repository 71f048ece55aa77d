//! A lineage is verified link by link: whatever its length, little of it is in memory (G11, G12).
//!
//! Each link leaves an [`Entry`], and the last links themselves stay, as many as fit
//! [`LINKS_BYTES_MAX`]. A peer that follows a longer lineage fetches its earlier links again, and
//! knows them by their digests (`apply`).

use crate::base::fault::{CertificateFault, Fault};
use crate::base::id::Digest;
use crate::base::rule::Rule;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::wire;
use crate::message::{Head, Link, Opening, Series};

use super::catch_up::{Candidate, NextEpoch};
use super::{Entry, LINKS_BYTES_MAX, State};

impl State {
    /// Checks the next link of a lineage, and adds it. `ours` are the Regroups of our open epoch.
    pub(super) fn verify_link(
        &self,
        candidate: &mut Candidate,
        link: &Link,
        ours: &[Opening],
    ) -> Result<(), Fault> {
        let Some(next) = &candidate.next else { return Ok(()) };
        let first = candidate.entries.is_empty();
        // The voters signed this; the first link is compared with the state of the base.
        let epoch = candidate.reached().saturating_add(1);
        let parent = if first { candidate.base.state } else { link.receipt.series.parent };
        let weight_max = match self.validator.keeps(Rule::G11) {
            true => self.validator.capacity.weight_max(next.median),
            false => u64::MAX,
        };
        let series = Series { epoch, parent, regroup: None };
        self.validator.check_link(series, &next.voters, next.ledger.as_ref(), weight_max, link)?;
        let ledger = next.ledger.as_ref().map(|ledger| ledger.after(&link.receipt));
        let tokens = candidate.tokens().checked_add(link.receipt.tokens());
        let tokens = tokens.ok_or(Fault::Certificate(CertificateFault::TooManyTokens))?;
        if first {
            candidate.unsigned.clone_from(&next.voters);
        }
        if !candidate.is_signed() {
            let unsigned = candidate.unsigned.len();
            candidate.unsigned.retain(|voter| !self.validator.has_signed(voter, link));
            candidate.signed_count += unsigned - candidate.unsigned.len();
        }
        let mine = self.link(epoch).map_or(ours, |mine| &mine.openings);
        let known = |opening| {
            mine.iter().any(|o| self.validator.opened(o) == self.validator.opened(opening))
        };
        candidate.is_regrouped |= !link.openings.iter().all(known);
        candidate.spent = candidate.spent.and(&self.spent(&link.receipt));
        candidate.end_at(parent);
        let r = wire::receipt_digest(&self.validator.run, &link.receipt);
        candidate.entries.push_back(Entry { r, state: Digest::ZERO, tokens });
        candidate.admitting.extend(link.receipt.trust.is_some().then(|| link.receipt.clone()));
        candidate.next = Some(NextEpoch::of(&link.receipt, ledger));
        self.keep_link(candidate, link);
        Ok(())
    }

    /// Adds a link to those in memory, and drops the oldest ones beyond the bound.
    fn keep_link(&self, candidate: &mut Candidate, link: &Link) {
        let bytes = wire::length(link);
        candidate.bytes = candidate.bytes.saturating_add(bytes);
        candidate.came = candidate.came.saturating_add(bytes as u64);
        candidate.links.push_back(link.clone());
        while candidate.bytes > LINKS_BYTES_MAX
            && candidate.links.len() > 1
            && self.validator.keeps(Rule::G12)
        {
            let first = candidate.links.pop_front();
            let bytes = first.map_or(0, |first| wire::length(&first));
            candidate.bytes = candidate.bytes.saturating_sub(bytes);
        }
    }

    /// Drops the epochs that we have taken ourselves since we asked, and counts them.
    pub(super) fn skip_ours(&self, candidate: &mut Candidate) -> usize {
        let mut count = 0;
        while let Some(first) = candidate.entries.front() {
            let epoch = candidate.base.epoch.saturating_add(1);
            if self.entry(epoch).is_none_or(|mine| mine.r != first.r) {
                break;
            }
            if candidate.links.len() == candidate.entries.len() {
                candidate.links.pop_front();
            }
            candidate.base = Head { epoch, tokens: first.tokens, state: first.state };
            candidate.entries.pop_front();
            count += 1;
        }
        count
    }

    /// Notes where our head is, if the last mark is old enough.
    pub(super) fn mark(&mut self, step: &mut Step<'_>) {
        if let Some(mark) = self.marks.mark(step.now, self.head.epoch) {
            step.put(Output::Log(mark));
        }
    }
}
