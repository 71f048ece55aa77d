//! Spectrum (Hartford et al. 2024): which matrices of a model are worth training.
//!
//! With the singular values S of a matrix of n × m numbers, noise alone would have none above the
//! edge of Marchenko and Pastur:
//!
//! ```text
//! σ = (quantile(S, ¾) − quantile(S, ¼)) / 1.349      ε = σ (1 + √(min(n, m) / max(n, m)))
//! SNR = Σ S>ε / Σ S≤ε / max S
//! ```
//!
//! Of each type, which is the name behind the number of the layer, the matrices with the highest
//! ratios are trained. A vector is a matrix of one row: its ratio is 1, so that layers keep their
//! order.
//!
//! Singular values are the roots of the eigenvalues of the smaller Gram matrix, in f64; a large
//! matrix is read in pieces, and only the Gram matrix is kept.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::hf::error::ImportError;
use crate::hf::input::{Input, Numbers};
use crate::merge::layer::Layer;

/// The singular values of a matrix, and what they say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    /// S, the singular values, the largest first.
    pub values: Vec<f64>,
    /// σ, the standard deviation of the noise.
    pub sigma: f64,
    /// ε, the edge above which there is signal.
    pub edge: f64,
    /// The ratio of signal to noise.
    pub snr: f64,
}

/// A matrix of a model, and its ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Its name, without `.weight`.
    pub name: String,
    /// The name behind the number of the layer.
    pub kind: String,
    /// The number of its layer, which begins at 0.
    pub layer: usize,
    /// Rows of the matrix; a vector has one.
    pub rows: usize,
    /// Columns of the matrix: the length of a row.
    pub columns: usize,
    /// The ratio of signal to noise.
    pub snr: f64,
}

/// Why there is no list of the matrices to train.
#[derive(Debug, Error)]
pub enum SpectrumError {
    /// The model cannot be read, or one of its files is damaged.
    #[error(transparent)]
    Input(#[from] ImportError),
    /// Some matrices have no spectrum.
    #[error(
        "not finite: {}: the training has diverged, or the file is damaged; take an earlier state",
        .0.join(", ")
    )]
    NotFinite(Vec<String>),
    /// The model has no layers with weights.
    #[error("the model has no layers with matrices: name a folder of a language model")]
    NoLayers,
    /// A type was asked for that the model does not have.
    #[error("the model has no type {asked}: it has {}", there.join(", "))]
    NoKind {
        /// The type that was asked for.
        asked: String,
        /// All types that the model has.
        there: Vec<String>,
    },
}

/// Computes the spectrum of a matrix. `None` if some of its numbers are infinite or NaN. It costs
/// the square of the smaller side times the larger one, and the cube of the smaller.
///
/// # Errors
/// If the numbers cannot be read.
pub fn spectrum(
    numbers: &dyn Numbers,
    rows: usize,
    columns: usize,
) -> Result<Option<Spectrum>, ImportError> {
    let gram = gram(numbers, rows, columns)?;
    let finite = (0..gram.ncols()).all(|j| (0..gram.nrows()).all(|i| gram[(i, j)].is_finite()));
    let Some(eigenvalues) =
        finite.then(|| gram.self_adjoint_eigenvalues(Side::Lower).ok()).flatten()
    else {
        return Ok(None);
    };
    let mut values: Vec<f64> = eigenvalues.into_iter().map(|value| value.max(0.0).sqrt()).collect();
    values.sort_by(|a, b| b.total_cmp(a));
    Ok(Some(judge(values, rows, columns)))
}

/// The product of the matrix with its transpose, over its longer side.
/// // [s, s], s the shorter side
fn gram(numbers: &dyn Numbers, rows: usize, columns: usize) -> Result<Mat<f64>, ImportError> {
    let side = rows.min(columns);
    let mut gram = Mat::zeros(side, side);
    let (mut read, mut block) = (Vec::new(), Vec::new());
    // Rows or columns at a time, so that a block has as many numbers whatever the shape is.
    let at_once = (BLOCK / side.max(1)).max(1);
    let longer = rows.max(columns);
    for begin in (0..longer).step_by(at_once) {
        let count = at_once.min(longer - begin);
        block.clear();
        if rows < columns {
            read.resize(count, 0.0);
            for row in 0..rows {
                numbers.read(row * columns + begin, &mut read)?;
                block.extend(read.iter().map(|number| f64::from(*number)));
            }
            let part = MatRef::from_row_major_slice(&block, rows, count);
            matmul(&mut gram, Accum::Add, part, part.transpose(), 1.0, Par::rayon(0));
        } else {
            read.resize(count * columns, 0.0);
            numbers.read(begin * columns, &mut read)?;
            block.extend(read.iter().map(|number| f64::from(*number)));
            let part = MatRef::from_row_major_slice(&block, count, columns);
            matmul(&mut gram, Accum::Add, part.transpose(), part, 1.0, Par::rayon(0));
        }
    }
    Ok(gram)
}

/// Separates signal and noise of these singular values, which are in descending order.
fn judge(values: Vec<f64>, rows: usize, columns: usize) -> Spectrum {
    let sigma = (quantile(&values, 0.75) - quantile(&values, 0.25)) / 1.349;
    let (least, most) = (rows.min(columns) as f64, rows.max(columns) as f64);
    let edge = sigma * (1.0 + (least / most).sqrt());
    let border = values.iter().position(|value| *value <= edge).unwrap_or(values.len());
    let (above, below) = values.split_at(border);
    let (signal, largest) = (above.iter().sum::<f64>(), values.first().copied().unwrap_or(0.0));
    let noise = if below.is_empty() { 1.0 } else { below.iter().sum::<f64>() };
    // A matrix of zeros has nothing to teach.
    let snr = if largest == 0.0 { 0.0 } else { signal / noise / largest };
    Spectrum { values, sigma, edge, snr }
}

/// The quantile of values in descending order, with a straight line between neighbours; 0 of none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let place = (1.0 - share) * last as f64;
    let low = (place as usize).min(last);
    let (a, b) = (values[low], values[last.min(low + 1)]);
    a + (place - low as f64) * (b - a)
}

/// The matrices of the layers of a model, by type and layer, without their ratios. `kinds` limits
/// them to some types, if it is not empty.
///
/// # Errors
/// If there are none, or a type is not there.
pub fn modules(input: &Input, kinds: &[String]) -> Result<Vec<Module>, SpectrumError> {
    let module = |(name, shape): (&str, &[usize])| {
        let layer = Layer::of(name)?;
        let kind = layer.kind().strip_suffix(".weight")?.to_owned();
        let (rows, columns) = match *shape {
            [columns] => (1, columns),
            [rows, columns] => (rows, columns),
            _ => return None,
        };
        let name = name.strip_suffix(".weight")?.to_owned();
        let layer = layer.index;
        (rows * columns > 0).then_some(Module { name, kind, layer, rows, columns, snr: 0.0 })
    };
    let tensors = input.tensors();
    let mut modules: Vec<_> =
        tensors.iter().filter_map(|(name, tensor)| module((name, &tensor.shape))).collect();
    modules.sort_by(|a, b| (&a.kind, a.layer).cmp(&(&b.kind, b.layer)));
    if modules.is_empty() {
        return Err(SpectrumError::NoLayers);
    }
    if let Some(asked) =
        kinds.iter().find(|kind| modules.iter().all(|module| module.kind != **kind))
    {
        let mut there: Vec<_> = modules.into_iter().map(|module| module.kind).collect();
        there.dedup();
        return Err(SpectrumError::NoKind { asked: asked.clone(), there });
    }
    modules.retain(|module| kinds.is_empty() || kinds.contains(&module.kind));
    Ok(modules)
}

/// Finds the ratio of each of these matrices of a model. `report` hears after each matrix how many are
/// done.
///
/// # Errors
/// If numbers cannot be read, or are not finite.
pub fn scan(
    input: &Input,
    modules: &mut [Module],
    report: &mut dyn FnMut(usize),
) -> Result<(), SpectrumError> {
    let mut bad = Vec::new();
    for (module, done) in modules.iter_mut().zip(1..) {
        let name = format!("{}.weight", module.name);
        let Some(tensor) = input.tensor(&name) else { continue };
        match spectrum(&input.numbers(tensor), module.rows, module.columns)? {
            Some(spectrum) => module.snr = spectrum.snr,
            None => bad.push(name),
        }
        report(done);
    }
    if bad.is_empty() { Ok(()) } else { Err(SpectrumError::NotFinite(bad)) }
}

/// What to train: the head and the embedding, and of each type the `percent` of matrices with the
/// highest ratios, rounded down. The modules are in the order of [`modules`]. The first two are
/// regular expressions, the others names.
#[must_use]
pub fn select(modules: &[Module], percent: usize) -> Vec<String> {
    let rwkv = modules.first().is_some_and(|module| module.name.starts_with("blocks."));
    let [head, embedding] = if rwkv { ["head", "emb"] } else { ["lm_head", "model.embed_tokens"] };
    let mut list = vec![format!("^{head}.weight$"), format!("^{embedding}.weight$")];
    for kind in modules.chunk_by(|a, b| a.kind == b.kind) {
        let mut best: Vec<_> = kind.iter().collect();
        best.sort_by(|a, b| b.snr.total_cmp(&a.snr));
        best.truncate(kind.len() * percent / 100);
        list.extend(best.into_iter().map(|module| module.name.clone()));
    }
    list
}

/// The list in the form that other programs of fine-tuning read.
#[must_use]
pub fn yaml(list: &[String]) -> String {
    let lines = list.iter().map(|name| format!("- {name}\n"));
    ["unfrozen_parameters:\n".to_owned()].into_iter().chain(lines).collect()
}

/// The list, and the ratio of every matrix. An infinite ratio, of a matrix without noise, is null.
#[must_use]
pub fn report(modules: &[Module], list: &[String], percent: usize) -> Value {
    let entry = |module: &Module| {
        let Module { kind, rows, columns, snr, .. } = module;
        let entry = json!({ "snr": snr, "type": kind, "shape": [rows, columns] });
        (module.name.clone(), entry)
    };
    let all: Map<String, Value> = modules.iter().map(entry).collect();
    json!({ "percent": percent, "unfrozen_parameters": list, "modules": all })
}

/// Numbers of a matrix that are converted at once.
const BLOCK: usize = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f32], rows: usize, columns: usize) -> Option<Spectrum> {
        spectrum(&numbers, rows, columns).unwrap()
    }

    /// The values of a diagonal matrix are known, on either side.
    #[test]
    fn a_diagonal_has_its_own_values() {
        let mut numbers = vec![0.0; 3 * 5];
        (numbers[0], numbers[6], numbers[12]) = (1.0, -4.0, 2.0);
        let wide = of(&numbers, 3, 5).unwrap();
        let mut turned = vec![0.0; 15];
        (turned[0], turned[4], turned[8]) = (1.0, -4.0, 2.0);
        for found in [&wide, &of(&turned, 5, 3).unwrap()] {
            assert!(found.values.iter().zip([4.0, 2.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-12));
        }
        let sigma = (3.0 - 1.5) / 1.349;
        assert!((wide.sigma - sigma).abs() < 1e-12);
        // ε is 1.97: 4 and 2 are above.
        assert!((wide.snr - 6.0 / 1.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_vector_has_the_ratio_of_one_and_zeros_have_none() {
        assert_eq!(of(&[0.3, 7.0, -1.1], 1, 3).unwrap().snr, 1.0);
        assert_eq!(of(&[0.0; 12], 3, 4).unwrap().snr, 0.0);
        assert_eq!(of(&[1.0, f32::NAN], 1, 2), None);
        assert_eq!(of(&[1.0, f32::INFINITY, 0.0, 1.0], 2, 2), None);
    }

    /// Equal ratios leave layers in their order, and the tenth is not before the second.
    #[test]
    fn layers_keep_their_order() {
        let module = |layer: usize, snr| Module {
            name: format!("model.layers.{layer}.a"),
            kind: "a".to_owned(),
            layer,
            rows: 1,
            columns: 1,
            snr,
        };
        let modules: Vec<_> = (0..12).map(|layer| module(layer, f64::from(layer == 10))).collect();
        let list = select(&modules, 25);
        assert_eq!(list[2..], ["model.layers.10.a", "model.layers.0.a", "model.layers.1.a"]);
        assert_eq!(select(&modules, 100).len(), 14);
        assert!(yaml(&list).starts_with("unfrozen_parameters:\n- ^lm_head.weight$\n- ^model."));
    }
}
