//! The checks against vectors of Spectrum: singular values, thresholds and ratios of every matrix,
//! and the lists of what to train.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use intellect_model::spectrum::{self, Module};

use crate::checks::Check;
use crate::vectors::Vectors;

/// The checks of a file of Spectrum; none if it is a file of something else.
pub(crate) fn checks(vectors: &Vectors) -> Result<Option<Vec<Check>>> {
    if vectors.family()? != "spectrum" {
        return Ok(None);
    }
    let types: BTreeMap<String, Vec<String>> = serde_json::from_str(vectors.text("types")?)?;
    let lists: BTreeMap<String, Vec<String>> = serde_json::from_str(vectors.text("unfrozen")?)?;
    let (mut checks, mut modules) = (Vec::new(), Vec::new());
    for (kind, names) in types {
        for (layer, name) in names.into_iter().enumerate() {
            let snr = module(vectors, &name, &mut checks)?;
            modules.push(Module { name, kind: kind.clone(), layer, rows: 1, columns: 1, snr });
        }
    }
    for (percent, expected) in lists {
        let list = spectrum::select(&modules, percent.parse()?);
        let error = if list == expected { 0.0 } else { f64::INFINITY };
        checks.push(Check { name: format!("spectrum list of {percent}"), error, bound: 0.0 });
    }
    Ok(Some(checks))
}

/// Checks one matrix, and returns its ratio.
fn module(vectors: &Vectors, name: &str, checks: &mut Vec<Check>) -> Result<f64> {
    let weights = vectors.floats(&format!("in/{name}.weight"))?;
    let (rows, columns) = match weights.shape[..] {
        [columns] => (1, columns),
        [rows, columns] => (rows, columns),
        _ => bail!("{name} is no matrix"),
    };
    let found = spectrum::spectrum(&&weights.values[..], rows, columns)?.context("not finite")?;
    let out = |what: &str| vectors.floats(&format!("out/{name}.{what}"));
    let expected = &out("singular_values")?.values;
    ensure!(expected.len() == found.values.len(), "{name} has other singular values");
    let largest = found.values[0];
    let pairs = found.values.iter().zip(expected);
    let error = pairs.map(|(a, b)| (a - f64::from(*b)).abs() / largest).fold(0.0, f64::max);
    let check =
        |what: &str, error, bound| Check { name: format!("spectrum {what} {name}"), error, bound };
    checks.push(check("values", error, 1e-5));
    let relative = |a: f64, b: f64| if a == b { 0.0 } else { ((a - b) / b).abs() };
    let [sigma, edge] = out("sigma_threshold")?.values[..] else { bail!("no threshold") };
    checks.push(check("sigma", relative(found.sigma, sigma.into()), 1e-4));
    checks.push(check("edge", relative(found.edge, edge.into()), 1e-4));
    let snr = out("snr")?.values[0];
    checks.push(check("snr", relative(found.snr, snr.into()), 1e-4));
    Ok(found.snr)
}
