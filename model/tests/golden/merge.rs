//! The checks against vectors of merges: single tensors of each method, and whole models by the
//! text of their recipe.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use intellect_model::hf::input::{Input, Numbers};
use intellect_model::hf::staged::Staged;
use intellect_model::merge::Method;
use intellect_model::merge::blend::{Chance, Choice, Masks, Operand, Settings, TensorMerge, blend};
use intellect_model::merge::plan::Plan;
use intellect_model::merge::recipe::Recipe;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::checks::Check;
use crate::vectors::Vectors;

/// The checks of a file of merges; none if it is a file of something else.
pub(crate) fn checks(vectors: &Vectors) -> Result<Option<Vec<Check>>> {
    match vectors.family()? {
        "merges" => tensors(vectors).map(Some),
        "ties merge, end to end" => whole(vectors).map(Some),
        _ => Ok(None),
    }
}

/// Masks that a file gives, one for each model.
struct Given<'a>(Vec<&'a [f32]>);

impl Masks for Given<'_> {
    fn mark(&self, model: usize, _density: f64, at: usize, marks: &mut [u32]) {
        for (mark, given) in marks.iter_mut().zip(&self.0[model][at..]) {
            *mark = if *given == 0.0 { 0 } else { u32::MAX };
        }
    }
}

fn choice(value: &Value, default: bool) -> Choice {
    if value.as_bool().unwrap_or(default) { Choice::Yes } else { Choice::No }
}

/// The checks of single tensors, some by every method.
fn tensors(vectors: &Vectors) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let cases: Vec<Value> = serde_json::from_str(vectors.text("cases")?)?;
    for case in &cases {
        let name = case["name"].as_str().context("a case without a name")?;
        checks.push(compare(vectors, &format!("out/{name}"), &tensor(vectors, case, name)?)?);
    }
    for name in vectors.names("out/slerp_") {
        let (kind, t) = name.rsplit_once('_').unwrap_or(("", name));
        let other = match kind {
            "" => "in/b",
            "colinear" => "in/near",
            "flipped" => "in/flipped",
            other => bail!("an unknown case of slerp: {other}"),
        };
        let models = [(other, 1.0, 1.0, 0.0)];
        let settings = Settings { t: t.parse()?, ..plain() };
        let got = made(vectors, Method::Slerp, Some("in/base"), &models, settings, &none())?;
        checks.push(compare(vectors, &format!("out/slerp_{name}"), &got)?);
    }
    for name in vectors.names("op/magnitude_") {
        let rescale = if name.starts_with("l1_") { Choice::Yes } else { Choice::No };
        let density: f64 = name.trim_start_matches("l1_").parse()?;
        let zeros = vec![0.0; vectors.floats("op/delta")?.values.len()];
        let delta = &vectors.floats("op/delta")?.values[..];
        let operand = Operand { numbers: &delta, weight: 1.0, density, gamma: 0.0 };
        let base: &dyn Numbers = &&zeros[..];
        let merge = TensorMerge {
            method: Method::Ties,
            base: Some(base),
            models: vec![operand],
            row: 1,
            settings: Settings { rescale, ..plain() },
            masks: &none(),
        };
        checks.push(compare(vectors, &format!("op/magnitude_{name}"), &run(&merge)?)?);
    }
    Ok(checks)
}

/// Makes the tensor of one case by its method.
fn tensor(vectors: &Vectors, case: &Value, name: &str) -> Result<Vec<f32>> {
    let method = case["method"].as_str().unwrap_or_default();
    let method = Method::NAMES.into_iter().find(|(_, known)| *known == method);
    let (method, _) = method.context("a case of an unknown method")?;
    let ids = case["models"].as_array().context("a case without models")?;
    let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
    let names: Vec<String> = ids.iter().map(|id| format!("in/{id}")).collect();
    let params = &case["params"];
    let model = |(id, name): (&&str, &'_ String)| {
        let own = |key: &str, default| case["per_model"][id][key].as_f64().unwrap_or(default);
        let factor = if method == Method::Passthrough { "scale" } else { "weight" };
        (name.clone(), own(factor, 1.0), own("density", 1.0), own("gamma", 0.01))
    };
    let models: Vec<_> = ids.iter().zip(&names).map(model).collect();
    let models: Vec<_> = models.iter().map(|(n, w, d, g)| (n.as_str(), *w, *d, *g)).collect();
    let base = match method {
        Method::Linear | Method::Passthrough => None,
        Method::NuSlerp => name.contains("task").then_some("in/base"),
        _ => Some("in/base"),
    };
    let normal = matches!(method, Method::Linear | Method::Ties);
    let dare = matches!(method, Method::DareLinear | Method::DareTies);
    let settings = Settings {
        lambda: params["lambda"].as_f64().unwrap_or(1.0),
        normalize: choice(&params["normalize"], normal),
        rescale: choice(&params["rescale"], dare),
        by_row: choice(&params["filter_wise"], false),
        ..plain()
    };
    if !dare {
        return made(vectors, method, base, &models, settings, &none());
    }
    let mask = |id| Ok(&vectors.floats(&format!("in/mask_{name}_{id}"))?.values[..]);
    let masks = Given(ids.iter().map(mask).collect::<Result<_>>()?);
    made(vectors, method, base, &models, settings, &masks)
}

fn plain() -> Settings {
    let (normalize, rescale, by_row) = (Choice::No, Choice::No, Choice::No);
    Settings { lambda: 1.0, t: 0.0, normalize, rescale, by_row }
}

fn none() -> Chance {
    Chance { seed: 0, tensor: String::new() }
}

/// Merges tensors of the file: name, weight, density and gamma of each.
fn made(
    vectors: &Vectors,
    method: Method,
    base: Option<&str>,
    models: &[(&str, f64, f64, f64)],
    settings: Settings,
    masks: &dyn Masks,
) -> Result<Vec<f32>> {
    let slice = |name: &str| Ok::<_, anyhow::Error>(&vectors.floats(name)?.values[..]);
    let base = base.map(slice).transpose()?;
    let slices = models.iter().map(|(name, ..)| slice(name)).collect::<Result<Vec<_>>>()?;
    let operand = |((_, weight, density, gamma), numbers): (&(_, f64, f64, f64), _)| {
        let (weight, density, gamma) = (*weight, *density, *gamma);
        Operand { numbers, weight, density, gamma }
    };
    let row = vectors.floats(models[0].0)?.shape.last().copied().unwrap_or(1);
    run(&TensorMerge {
        method,
        base: base.as_ref().map(|base| base as &dyn Numbers),
        models: models.iter().zip(slices.iter().map(|slice| slice as _)).map(operand).collect(),
        row,
        settings,
        masks,
    })
}

fn run(merge: &TensorMerge<'_>) -> Result<Vec<f32>> {
    let mut made = Vec::new();
    let wrong = blend(merge, &mut |numbers| {
        made.extend_from_slice(numbers);
        Ok(())
    })?;
    anyhow::ensure!(wrong.is_empty(), "inputs that are not finite: {wrong:?}");
    Ok(made)
}

fn compare(vectors: &Vectors, name: &str, got: &[f32]) -> Result<Check> {
    let expected = &vectors.floats(name)?.values;
    anyhow::ensure!(expected.len() == got.len(), "{name} has another length");
    Ok(Check { name: format!("merge {name}"), error: error(got, expected), bound: BOUND })
}

/// The largest difference, in units of the largest output if that is above 1.
fn error(got: &[f32], expected: &[f32]) -> f64 {
    let pairs = got.iter().zip(expected).map(|(a, b)| f64::from((a - b).abs()));
    let largest = expected.iter().fold(1.0, |max: f64, x| max.max(f64::from(x.abs())));
    pairs.fold(0.0, |max: f64, x| if x.is_nan() { f64::NAN } else { max.max(x) }) / largest
}

/// Whole models, by the text of their recipe, from folders into a folder.
fn whole(vectors: &Vectors) -> Result<Vec<Check>> {
    let recipe = Recipe::parse(vectors.text("config")?)?;
    let work = tempfile::tempdir()?;
    let mut inputs = BTreeMap::new();
    for model in recipe.models() {
        let folder = work.path().join(model);
        store(vectors, &format!("{model}/"), &folder)?;
        inputs.insert(model.to_owned(), Input::folder(&folder)?);
    }
    let out = work.path().join("merged");
    let staged = Staged::begin(&out)?;
    let written = Plan::new(&recipe, &inputs)?.write(&staged, 1, 1 << 14, &mut |_| ())?;
    staged.finish()?;
    let merged = Input::folder(&out)?;
    let mut checks = Vec::new();
    for name in vectors.names("merged/") {
        let tensor = merged.tensor(name).with_context(|| format!("{name} was not made"))?;
        let expected = vectors.floats(&format!("merged/{name}"))?;
        anyhow::ensure!(tensor.shape == expected.shape, "{name} has another shape");
        let mut got = vec![0.0; expected.values.len()];
        merged.numbers(tensor).read(0, &mut got)?;
        let error = error(&got, &expected.values);
        checks.push(Check { name: format!("whole merge {name}"), error, bound: BOUND });
    }
    anyhow::ensure!(written.tensors == checks.len(), "{} tensors were made", written.tensors);
    Ok(checks)
}

/// Writes the tensors that begin with `prefix` as a folder.
fn store(vectors: &Vectors, prefix: &str, folder: &Path) -> Result<()> {
    std::fs::create_dir(folder)?;
    let names: Vec<&str> = vectors.names(prefix).collect();
    let bytes = |name: &&str| {
        let tensor = vectors.floats(&format!("{prefix}{name}"))?;
        Ok(tensor.values.iter().flat_map(|number| number.to_le_bytes()).collect())
    };
    let bytes = names.iter().map(bytes).collect::<Result<Vec<Vec<u8>>>>()?;
    let views = names.iter().zip(&bytes).map(|(name, bytes)| {
        let shape = vectors.floats(&format!("{prefix}{name}"))?.shape.clone();
        Ok((*name, TensorView::new(Dtype::F32, shape, bytes)?))
    });
    let views = views.collect::<Result<Vec<_>>>()?;
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors"))?;
    Ok(())
}

/// The references compute in f32 themselves.
const BOUND: f64 = 2e-6;
