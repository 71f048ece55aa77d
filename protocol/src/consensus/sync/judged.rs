//! A lineage that is being judged, link by link: whatever its length, little of it is in memory (G11, G12).
//!
//! Of each link an [`Entry`] stays, and of the last ones as many as fit [`LINKS_BYTES_MAX`]. Whoever follows
//! a longer lineage is served its earlier links again, and knows them by their digests (`arrive`).

use super::pursuit::{Before, Judged};
use super::{Digest, Entry, Head, LINKS_BYTES_MAX, Link, Opening, Series, State};
use crate::base::fault::{CertificateFault, Fault};
use crate::base::rule::Rule;
use crate::machine::output::Output;
use crate::machine::step::Step;
use crate::message::wire;

impl State {
    /// Checks the next link of a lineage, and adds it. `ours` are the Regroups of our open epoch.
    pub(super) fn judge(
        &self,
        judged: &mut Judged,
        link: &Link,
        ours: &[Opening],
    ) -> Result<(), Fault> {
        let Some(before) = &judged.before else { return Ok(()) };
        let first = judged.entries.is_empty();
        // What its voters signed; the first link is held against the state of the base.
        let epoch = judged.reached().saturating_add(1);
        let parent = if first { judged.base.state } else { link.receipt.series.parent };
        let weight_max = match self.law.keeps(Rule::G11) {
            true => self.law.capacity.weight_max(before.median),
            false => u64::MAX,
        };
        let series = Series { epoch, parent, regroup: None };
        self.law.check_link(series, &before.voters, before.ledger.as_ref(), weight_max, link)?;
        let ledger = before.ledger.as_ref().map(|ledger| ledger.after(&link.receipt));
        let tokens = judged.tokens().checked_add(link.receipt.tokens());
        let tokens = tokens.ok_or(Fault::Certificate(CertificateFault::TooManyTokens))?;
        if first {
            judged.unsigned.clone_from(&before.voters);
        }
        if !judged.is_signed() {
            let unsigned = judged.unsigned.len();
            judged.unsigned.retain(|voter| !self.law.has_signed(voter, link));
            judged.signed_count += unsigned - judged.unsigned.len();
        }
        let mine = self.link(epoch).map_or(ours, |mine| &mine.openings);
        let known = |opening| mine.iter().any(|o| self.law.opened(o) == self.law.opened(opening));
        judged.is_regrouped |= !link.openings.iter().all(known);
        judged.spent = judged.spent.and(&self.spent(&link.receipt));
        judged.end_at(parent);
        let r = wire::receipt_digest(&self.law.run, &link.receipt);
        judged.entries.push_back(Entry { r, state: Digest::ZERO, tokens });
        judged.admitting.extend(link.receipt.trust.is_some().then(|| link.receipt.clone()));
        judged.before = Some(Before::of(&link.receipt, ledger));
        self.keep_link(judged, link);
        Ok(())
    }

    /// Keeps a link in memory, and as many before it as there is room for.
    fn keep_link(&self, judged: &mut Judged, link: &Link) {
        let bytes = wire::canonical(link).len();
        judged.bytes = judged.bytes.saturating_add(bytes);
        judged.came = judged.came.saturating_add(bytes as u64);
        judged.links.push_back(link.clone());
        while judged.bytes > LINKS_BYTES_MAX && judged.links.len() > 1 && self.law.keeps(Rule::G12)
        {
            let first = judged.links.pop_front();
            let bytes = first.map_or(0, |first| wire::canonical(&first).len());
            judged.bytes = judged.bytes.saturating_sub(bytes);
        }
    }

    /// Drops what we have taken ourselves since we asked.
    pub(super) fn skip_ours(&self, judged: &mut Judged) -> usize {
        let mut count = 0;
        while let Some(first) = judged.entries.front() {
            let epoch = judged.base.epoch.saturating_add(1);
            if self.entry(epoch).is_none_or(|mine| mine.r != first.r) {
                break;
            }
            if judged.links.len() == judged.entries.len() {
                judged.links.pop_front();
            }
            judged.base = Head { epoch, tokens: first.tokens, state: first.state };
            judged.entries.pop_front();
            count += 1;
        }
        count
    }

    /// Notes when our head is where, now and then.
    pub(super) fn mark(&mut self, step: &mut Step<'_>) {
        if let Some(mark) = self.marks.mark(step.now, self.head.epoch) {
            step.put(Output::Log(mark));
        }
    }
}
