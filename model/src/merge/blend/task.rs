//! Formulas that add task vectors to the base, after some of their entries were dropped.
//!
//! Passes over the inputs, of which each formula has those that it needs: two for the borders of
//! the largest entries, one for sums of magnitudes, and the last one for the result.
//!
//! | method | what stays of a task vector | passes |
//! |---|---|---|
//! | task arithmetic | all | 1 |
//! | ties, breadcrumbs | what lies between two borders of magnitude | 3 |
//! | dare | what chance leaves | 1 |
//!
//! With `rescale` there is one more. An input is read from disk again in each pass, since the
//! models need not fit in memory. The passes agree on what stays, because borders are exact and
//! chance is a function of the index alone.

use super::{Masks, NotFinite, Operand, Settings, Sink, Streams, TensorMerge};
use crate::merge::select::{Coarse, Fine, Threshold};
use crate::merge::{MergeError, Method};

/// Makes a tensor: passes for what stays of each task vector, where that has to be found, and one
/// for the result.
pub(super) fn blend(
    merge: &TensorMerge<'_>,
    out: &mut Sink<'_>,
) -> Result<Vec<NotFinite>, MergeError> {
    assert!(merge.base.is_some(), "task vectors begin at a base");
    let mut streams = Streams::of(merge);
    if streams.count() == 0 {
        return Ok(Vec::new());
    }
    let mut filters = filters(merge, &mut streams)?;
    if merge.settings.rescale.is_yes() {
        rescale(merge.masks, &mut filters, &mut streams)?;
    }
    let (mut found, mut sum, mut mix) = (Vec::new(), Sum::default(), Vec::new());
    let bases = streams.bases;
    streams.pass(|at, blocks| {
        Streams::examine(bases, at, blocks, &mut found);
        Streams::subtract_base(blocks);
        let [base, deltas @ ..] = blocks else { return Ok(()) };
        for ((delta, filter), model) in deltas.iter_mut().zip(&mut filters).zip(&merge.models) {
            filter.apply(merge.masks, at, delta);
            let factor = model.weight as f32 * filter.factor;
            delta.iter_mut().for_each(|delta| *delta *= factor);
        }
        mix.clear();
        mix.extend_from_slice(base);
        sum.add(merge, deltas, &mut mix);
        out(&mix)
    })?;
    Ok(found)
}

/// Memory for the sums of one block.
#[derive(Default)]
struct Sum {
    /// Σ of all weighted deltas, whose sign is elected.
    all: Vec<f32>,
    /// Σ of those that have the elected sign.
    agreed: Vec<f32>,
    /// Σ of the weights of those that agree.
    divisor: Vec<f32>,
}

impl Sum {
    /// Adds the weighted deltas to the numbers of the base: base + λ·Σ δ, divided by the sum of the
    /// weights if the recipe normalises.
    ///
    /// With an election, both sums are over the deltas that have the sign of Σ δ in their place.
    fn add(&mut self, merge: &TensorMerge<'_>, deltas: &[Vec<f32>], base: &mut [f32]) {
        let Settings { lambda, normalize, .. } = merge.settings;
        let lambda = lambda as f32;
        reset(&mut self.all, base.len());
        for delta in deltas {
            self.all.iter_mut().zip(delta).for_each(|(all, delta)| *all += delta);
        }
        if !merge.method.elects() {
            let weights: f32 = merge.models.iter().map(|model| model.weight as f32).sum();
            let divided = normalize.is_yes() && weights.abs() >= 1e-8;
            let divisor = if divided { weights } else { 1.0 };
            let pairs = base.iter_mut().zip(&self.all);
            pairs.for_each(|(base, all)| *base += lambda * (all / divisor));
            return;
        }
        reset(&mut self.agreed, base.len());
        reset(&mut self.divisor, base.len());
        for (delta, Operand { weight, .. }) in deltas.iter().zip(&merge.models) {
            let weight = *weight as f32;
            let places = self.agreed.iter_mut().zip(&mut self.divisor);
            for ((agreed, divisor), (delta, all)) in places.zip(delta.iter().zip(&self.all)) {
                let sign = if *all >= 0.0 { *delta } else { -*delta };
                let agrees = sign > 0.0;
                *agreed += if agrees { *delta } else { 0.0 };
                *divisor += if agrees { weight } else { 0.0 };
            }
        }
        let divided = normalize.is_yes();
        let places = self.agreed.iter().zip(&self.divisor);
        for (base, (agreed, divisor)) in base.iter_mut().zip(places) {
            let divisor = if divided && *divisor != 0.0 { *divisor } else { 1.0 };
            *base += lambda * (agreed / divisor);
        }
    }
}

/// `count` zeros, in memory that is there.
fn reset(numbers: &mut Vec<f32>, count: usize) {
    numbers.clear();
    numbers.resize(count, 0.0);
}

/// What stays of one task vector.
struct Filter {
    /// Which entries of the vector stay.
    kept: Kept,
    /// What stays is multiplied by this.
    factor: f32,
    /// Memory for the marks of one block.
    marks: Vec<u32>,
}

/// Which entries of a task vector stay.
enum Kept {
    All,
    /// Those within the first border, but not within the second.
    Between([Border; 2]),
    /// Those that chance keeps, each with probability `density`.
    Drawn {
        model: usize,
        density: f64,
    },
}

/// A border, and how many entries on it the current pass has seen.
struct Border {
    /// The magnitude of the border, and how many entries on it are within.
    threshold: Threshold,
    /// Entries on the border in the blocks so far, by which ties are cut in order.
    seen: usize,
}

impl Filter {
    /// A filter that scales nothing.
    fn new(kept: Kept) -> Self {
        Self { kept, factor: 1.0, marks: Vec::new() }
    }

    /// Sets the entries of the block that begins at `at` to zero that do not stay. Blocks come in
    /// the order of the tensor, and a block at 0 begins a new pass: then the entries on a border
    /// are counted anew. Entries are masked by their bits, without a branch, so that the loop is
    /// vector code; what drops out becomes +0.
    #[inline(always)]
    fn apply(&mut self, masks: &dyn Masks, at: usize, delta: &mut [f32]) {
        let marks = &mut self.marks;
        marks.resize(delta.len(), 0);
        let keep = |delta: &mut [f32], marks: &[u32], flip: u32| {
            for (delta, mark) in delta.iter_mut().zip(marks) {
                *delta = f32::from_bits(delta.to_bits() & (mark ^ flip));
            }
        };
        match &mut self.kept {
            Kept::All => {}
            Kept::Between([outer, inner]) => {
                if at == 0 {
                    (outer.seen, inner.seen) = (0, 0);
                }
                outer.threshold.mark(delta, &mut outer.seen, marks);
                if inner.threshold != Threshold::NONE {
                    let mut top = vec![0; delta.len()];
                    inner.threshold.mark(delta, &mut inner.seen, &mut top);
                    keep(delta, &top, u32::MAX);
                }
                keep(delta, marks, 0);
            }
            Kept::Drawn { model, density } => {
                masks.mark(*model, *density, at, marks);
                keep(delta, marks, 0);
            }
        }
    }
}

/// Finds what stays of each task vector: ⌊p·n⌋ entries, below the ⌊γ·n⌋ largest. With a density of
/// 1 everything stays, also the largest entries that breadcrumbs would drop.
fn filters(merge: &TensorMerge<'_>, streams: &mut Streams<'_>) -> Result<Vec<Filter>, MergeError> {
    let count = streams.count();
    let share = |share: f64| ((share * count as f64) as usize).min(count);
    let borders = |(model, operand): (usize, &Operand<'_>)| {
        let stay = share(operand.density);
        if operand.density >= 1.0 {
            return Wanted::Kept(Kept::All);
        }
        match merge.method {
            Method::DareLinear | Method::DareTies => {
                Wanted::Kept(Kept::Drawn { model, density: operand.density })
            }
            Method::Ties => Wanted::Borders([stay, 0]),
            Method::Breadcrumbs | Method::BreadcrumbsTies => {
                // If the largest alone are too many, fewer of them drop out.
                let top = share(operand.gamma).min(count - stay);
                Wanted::Borders([top + stay, top])
            }
            Method::TaskArithmetic
            | Method::Linear
            | Method::Slerp
            | Method::NuSlerp
            | Method::ModelStock
            | Method::Passthrough => Wanted::Kept(Kept::All),
        }
    };
    let wanted: Vec<Wanted> = merge.models.iter().enumerate().map(borders).collect();
    let thresholds = thresholds(streams, &wanted)?;
    let kept = wanted.into_iter().zip(thresholds).map(|(wanted, thresholds)| match wanted {
        Wanted::Kept(kept) => kept,
        Wanted::Borders(_) => {
            Kept::Between(thresholds.map(|threshold| Border { threshold, seen: 0 }))
        }
    });
    Ok(kept.map(Filter::new).collect())
}

/// What has to be found out about a task vector.
enum Wanted {
    /// Nothing: its numbers have no influence on what stays.
    Kept(Kept),
    /// The borders of its so many largest entries.
    Borders([usize; 2]),
}

/// Finds the thresholds of all task vectors, in two passes; without a pass if none is wanted. The
/// counters of a vector take 32 KiB in the first pass, and 1 MiB for each border in the second.
fn thresholds(
    streams: &mut Streams<'_>,
    wanted: &[Wanted],
) -> Result<Vec<[Threshold; 2]>, MergeError> {
    let is_wanted = |wanted: &Wanted| matches!(wanted, Wanted::Borders(_));
    if !wanted.iter().any(is_wanted) {
        return Ok(vec![[Threshold::NONE; 2]; wanted.len()]);
    }
    // The first pass counts by the upper bits, which say in which bucket each border is.
    let mut coarse: Vec<_> = wanted.iter().map(|w| is_wanted(w).then(Coarse::new)).collect();
    streams.pass(|_, blocks| {
        Streams::subtract_base(blocks);
        let pairs = coarse.iter_mut().zip(&blocks[1..]);
        pairs.for_each(|(coarse, delta)| coarse.iter_mut().for_each(|coarse| coarse.add(delta)));
        Ok(())
    })?;
    let refine = |(coarse, wanted): (&Option<Coarse>, &Wanted)| match (coarse, wanted) {
        (Some(coarse), Wanted::Borders(ranks)) => ranks.map(|k| (k > 0).then(|| coarse.refine(k))),
        (None, _) | (_, Wanted::Kept(_)) => [None, None],
    };
    // The second pass counts by the lower bits, in the buckets of the borders alone.
    let mut fine: Vec<[Option<Fine>; 2]> = coarse.iter().zip(wanted).map(refine).collect();
    streams.pass(|_, blocks| {
        Streams::subtract_base(blocks);
        for (fine, delta) in fine.iter_mut().zip(&blocks[1..]) {
            fine.iter_mut().flatten().for_each(|fine| fine.add(delta));
        }
        Ok(())
    })?;
    let found = |fine: &Option<Fine>| fine.as_ref().map_or(Threshold::NONE, Fine::threshold);
    Ok(fine.iter().map(|[outer, inner]| [found(outer), found(inner)]).collect())
}

/// Finds the factors that keep the sums of magnitudes; 1 where nothing, or all, is left.
fn rescale(
    masks: &dyn Masks,
    filters: &mut [Filter],
    streams: &mut Streams<'_>,
) -> Result<(), MergeError> {
    let mut sums = vec![[0.0_f64; 2]; filters.len()];
    streams.pass(|at, blocks| {
        Streams::subtract_base(blocks);
        let deltas = blocks[1..].iter_mut().zip(&mut *filters);
        for ((delta, filter), [all, stays]) in deltas.zip(&mut sums) {
            *all += magnitudes(delta);
            filter.apply(masks, at, delta);
            *stays += magnitudes(delta);
        }
        Ok(())
    })?;
    for (filter, [all, stays]) in filters.iter_mut().zip(sums) {
        // Where nothing was dropped the sums are equal but for rounding, and the factor stays 1.
        let complete = matches!(filter.kept, Kept::All);
        if !complete && all >= 1e-7 && stays >= 1e-7 {
            filter.factor = (all / stays) as f32;
        }
    }
    Ok(())
}

/// Σ |xᵢ|, in eight sums, since one would wait for itself at each number.
#[inline(always)]
fn magnitudes(x: &[f32]) -> f64 {
    let (blocks, rest) = x.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for block in blocks {
        for i in 0..8 {
            sums[i] += f64::from(block[i].abs());
        }
    }
    sums.into_iter().chain(rest.iter().map(|x| f64::from(x.abs()))).sum()
}
