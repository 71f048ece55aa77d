//! Formulas that are a sum of their inputs with factors that all numbers share, or all of a row.
//!
//! The factors of slerp, nuslerp and model stock follow from angles, and these from the products of
//! all pairs of vectors, which a pass of their own sums up in f64. The parent module has the
//! formulas.
//!
//! A *group* is a set of numbers that have the same factors: the whole tensor, or a row where the
//! recipe asks for angles of rows. In memory are one block of each input, and for each group the
//! products of its pairs of vectors, then its factors.

use super::{NotFinite, Sink, Streams, TensorMerge};
use crate::merge::{MergeError, Method};

/// Makes a tensor: first the factors, which may need a pass of their own, then the sum. It is taken
/// in f32 in the order of the inputs, beginning with the base where there is one.
pub(super) fn blend(
    merge: &TensorMerge<'_>,
    out: &mut Sink<'_>,
) -> Result<Vec<NotFinite>, MergeError> {
    let mut streams = Streams::of(merge);
    let by_angles = matches!(merge.method, Method::NuSlerp | Method::ModelStock);
    let by_row = by_angles && merge.settings.by_row.is_yes();
    let group = if by_row { merge.row.max(1) } else { streams.count().max(1) };
    let factors = factors(merge, &mut streams, group)?;
    let (mut sum, mut found, bases) = (Vec::new(), Vec::new(), streams.bases);
    streams.pass(|at, blocks| {
        Streams::examine(bases, at, blocks, &mut found);
        sum.clear();
        sum.resize(blocks[0].len(), 0.0);
        for (run, group) in runs(at, sum.len(), group) {
            for (block, factor) in blocks.iter().zip(&factors[group]) {
                let pairs = sum[run.clone()].iter_mut().zip(&block[run.clone()]);
                pairs.for_each(|(sum, number)| *sum += factor * number);
            }
        }
        out(&sum)
    })?;
    Ok(found)
}

/// The parts of a block that belong to one group each, and the index of that group. The block
/// begins at number `at` of the tensor. Rows do not end where blocks do, so the first and the last
/// part may be pieces of a group.
fn runs(
    at: usize,
    length: usize,
    group: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, usize)> {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let index = (at + begin) / group;
        let end = length.min((index + 1) * group - at);
        let run = begin..end;
        begin = end;
        (!run.is_empty()).then_some((run, index))
    })
}

/// The factors of the inputs, for each group of `group` numbers. A base is the first input.
///
/// They are computed in f64 and rounded to f32 once. Where no angle is asked for there is one list
/// of factors, and `group` is the whole tensor. A recipe has two models where the method is
/// nuslerp, and at least two where it is model stock, so the products that are read here exist.
fn factors(
    merge: &TensorMerge<'_>,
    streams: &mut Streams<'_>,
    group: usize,
) -> Result<Vec<Vec<f32>>, MergeError> {
    let weights: Vec<f64> = merge.models.iter().map(|model| model.weight).collect();
    let sum: f64 = weights.iter().sum();
    let single = |factors: Vec<f64>| vec![factors.into_iter().map(|x| x as f32).collect()];
    let of_angles = |factors: &dyn Fn(&[f64]) -> Vec<f64>, products: &[Vec<f64>]| {
        let group = |products: &Vec<f64>| factors(products).into_iter().map(|x| x as f32).collect();
        products.iter().map(group).collect()
    };
    Ok(match merge.method {
        Method::Linear => {
            let divisor =
                if merge.settings.normalize.is_yes() && sum.abs() >= 1e-8 { sum } else { 1.0 };
            let base = merge.base.map(|_| 0.0);
            single(base.into_iter().chain(weights.iter().map(|weight| weight / divisor)).collect())
        }
        Method::Slerp => {
            let t = merge.settings.t;
            let products = products(streams, Origin::Zero, group)?;
            of_angles(&|p| slerp(t, cosine(p, 1e-8)), &products)
        }
        Method::NuSlerp => {
            // Weights whose sum vanishes say nothing, so both vectors count alike.
            let t = if sum.abs() < 1e-6 { 0.5 } else { weights[1] / sum };
            if merge.base.is_none() {
                let products = products(streams, Origin::Zero, group)?;
                return Ok(of_angles(&|p| nuslerp(t, p).to_vec(), &products));
            }
            let products = products(streams, Origin::Base, group)?;
            let factors = |p: &[f64]| {
                let [zero, one] = nuslerp(t, p);
                vec![1.0 - zero - one, zero, one]
            };
            of_angles(&factors, &products)
        }
        Method::ModelStock => {
            let products = products(streams, Origin::Base, group)?;
            of_angles(&|p| stock(weights.len(), p), &products)
        }
        Method::Passthrough
        | Method::TaskArithmetic
        | Method::Ties
        | Method::DareLinear
        | Method::DareTies
        | Method::Breadcrumbs
        | Method::BreadcrumbsTies => single(weights),
    })
}

/// From where vectors are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// From zero: the inputs as they are.
    Zero,
    /// From the base: the task vectors.
    Base,
}

/// The products of each pair of vectors, in each group: (0,0), (0,1), (1,1), (0,2), …. It reads all
/// inputs once, and costs N(N + 1)/2 multiplications for each number of N vectors.
fn products(
    streams: &mut Streams<'_>,
    origin: Origin,
    group: usize,
) -> Result<Vec<Vec<f64>>, MergeError> {
    let vectors = streams.inputs.len() - usize::from(origin == Origin::Base);
    let groups = streams.count().div_ceil(group);
    let mut products = vec![vec![0.0; vectors * (vectors + 1) / 2]; groups];
    streams.pass(|at, blocks| {
        let vectors = match origin {
            Origin::Zero => &*blocks,
            Origin::Base => {
                Streams::subtract_base(blocks);
                &blocks[1..]
            }
        };
        for (run, group) in runs(at, vectors[0].len(), group) {
            // The products of one group, in the order of `pair`.
            let mut place = products[group].iter_mut();
            for (index, b) in vectors.iter().enumerate() {
                for (a, product) in vectors[..=index].iter().zip(&mut place) {
                    *product += dot(&a[run.clone()], &b[run.clone()]);
                }
            }
        }
        Ok(())
    })?;
    Ok(products)
}

/// The place of the product of vectors a ≤ b in the order of `products`.
fn pair(a: usize, b: usize) -> usize {
    b * (b + 1) / 2 + a
}

/// Σ aᵢ·bᵢ in f64, in eight sums.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += f64::from(*a) * f64::from(*b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b));
    lanes.iter().sum::<f64>() + rest.sum::<f64>()
}

/// The cosine between two vectors; one that is shorter than `least` keeps its length.
fn cosine(products: &[f64], least: f64) -> f64 {
    let length = |square: f64| if square.sqrt() > least { square.sqrt() } else { 1.0 };
    products[1] / (length(products[0]) * length(products[2]))
}

/// Shoemake (1985); almost parallel vectors are on a straight line, for sin θ is the divisor. The
/// factors are those of unit vectors, and are used for the vectors as they are.
fn slerp(t: f64, cosine: f64) -> Vec<f64> {
    if cosine.abs() > 0.9995 { vec![1.0 - t, t] } else { arc(t, cosine.acos()).to_vec() }
}

/// The same from the products of two vectors, straight only where the sine vanishes. A length below
/// 1e-7 counts as 1e-7.
fn nuslerp(t: f64, products: &[f64]) -> [f64; 2] {
    let length = |square: f64| square.sqrt().max(1e-7);
    let cosine = products[1] / (length(products[0]) * length(products[2]));
    let angle = cosine.clamp(-1.0, 1.0).acos();
    if angle.sin().abs() < 1e-8 { [1.0 - t, t] } else { arc(t, angle) }
}

/// The factors of two vectors at t on the arc between them.
fn arc(t: f64, angle: f64) -> [f64; 2] {
    [((1.0 - t) * angle).sin() / angle.sin(), (t * angle).sin() / angle.sin()]
}

/// Jang et al. (2024), eq. of t for N models: the factor of the base, then that of each model.
fn stock(models: usize, products: &[f64]) -> Vec<f64> {
    let length = |i| products[pair(i, i)].sqrt();
    let pairs = (0..models).flat_map(|j| (0..j).map(move |i| (i, j)));
    let cosines = pairs
        .map(|(i, j)| (products[pair(i, j)] / (length(i) * length(j)).max(1e-6)).clamp(-1.0, 1.0));
    let count = models as f64;
    let cosine = cosines.sum::<f64>() / (count * (count - 1.0) / 2.0);
    let divisor = 1.0 + (count - 1.0) * cosine;
    // Task vectors that cancel one another say nothing, so the base stays.
    let t = if divisor.abs() < 1e-12 { 0.0 } else { count * cosine / divisor };
    let mut factors = vec![t / count; models + 1];
    factors[0] = 1.0 - t;
    factors
}
