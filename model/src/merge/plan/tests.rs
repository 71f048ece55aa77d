//! Small models are merged into a folder, or refused with all that is wrong with them.

use std::fs::{self, File};
use std::path::Path;

use super::*;
use crate::genesis::{Init, Spec};
use crate::hf::input::Numbers as _;
use crate::optim::Group;

/// A model of two numbers in each of three layers, an embedding and a head, which are all `number`
/// plus the index of the layer.
fn model(folder: &Path, name: &str, layers: usize, number: f32) -> Input {
    let spec = |name: String| Spec {
        name,
        shape: vec![1, 2],
        init: Init::Constant(0.0),
        group: Group::DECAYED,
    };
    let layer = |index| spec(format!("model.layers.{index}.mlp.weight"));
    let head = || [spec("lm_head.weight".to_owned()), spec("model.norm.weight".to_owned())];
    let embedding = spec("model.embed_tokens.weight".to_owned());
    let specs: Vec<_> =
        [embedding].into_iter().chain((0..layers).map(layer)).chain(head()).collect();
    let numbers = (0..specs.len()).flat_map(|index| [number + index as f32; 2]);
    let path = folder.join(name);
    fs::write(&path, numbers.flat_map(f32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    Input::flat(path.clone(), File::open(path).unwrap(), 0, &specs)
}

fn merge(text: &str, inputs: &BTreeMap<String, Input>, out: &Path) -> Result<Input, MergeError> {
    let recipe = Recipe::parse(text)?;
    let plan = Plan::new(&recipe, inputs)?;
    let staged = Staged::begin(out)?;
    plan.write(&staged, 1, 20, &mut |_| ())?;
    staged.finish()?;
    Ok(Input::folder(out)?)
}

fn first(input: &Input, name: &str) -> f32 {
    let mut number = [0.0];
    input.numbers(input.tensor(name).unwrap()).read(0, &mut number).unwrap();
    number[0]
}

#[test]
fn layers_are_stacked_and_numbered_anew() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("a", 0.0), ("b", 100.0)]
        .map(|(name, number)| (name.to_owned(), model(folder.path(), name, 3, number)));
    let text = "
slices:
  - sources: [{model: a, layer_range: [0, 2]}]
  - sources: [{model: b, layer_range: [1, 3]}]
merge_method: passthrough
";
    let made = merge(text, &inputs.into(), &folder.path().join("out")).unwrap();
    let layer = |index| first(&made, &format!("model.layers.{index}.mlp.weight"));
    assert_eq!([layer(0), layer(1), layer(2), layer(3)], [1.0, 2.0, 102.0, 103.0]);
    assert_eq!(first(&made, "model.embed_tokens.weight"), 0.0);
    assert_eq!(first(&made, "lm_head.weight"), 104.0);
    assert_eq!(made.tensors().len(), 7);
}

/// Between slices, too, no tensor of a used layer disappears.
#[test]
fn a_tensor_that_only_another_model_has_is_missed_in_the_layers_that_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let bias = |index| format!("model.layers.{index}.mlp.bias");
    let more = {
        let plain = model(folder.path(), "b", 3, 0.0);
        let spec = |name: String| Spec {
            name,
            shape: vec![1, 2],
            init: Init::Constant(0.0),
            group: Group::DECAYED,
        };
        let names = plain.tensors().into_iter().map(|(name, _)| name.to_owned()).chain([bias(2)]);
        let specs: Vec<_> = names.map(spec).collect();
        let path = folder.path().join("more");
        fs::write(&path, vec![0; 8 * specs.len()]).unwrap();
        Input::flat(path.clone(), File::open(path).unwrap(), 0, &specs)
    };
    let inputs =
        [("a".to_owned(), model(folder.path(), "a", 3, 0.0)), ("b".to_owned(), more)].into();
    let text = |end| {
        format!(
            "slices: [{{sources: [{{model: a, layer_range: [0, {end}]}}, \
             {{model: b, layer_range: [0, {end}]}}]}}]\n\
             merge_method: linear\nparameters: {{weight: 1}}"
        )
    };
    merge(&text(2), &inputs, &folder.path().join("out")).unwrap();
    let error = merge(&text(3), &inputs, &folder.path().join("other")).err().unwrap().to_string();
    assert!(error.contains(&format!("a has no {}, which b has", bias(2))), "{error}");
}

/// The embedding has the first value of a gradient, the head the last.
#[test]
fn a_gradient_goes_from_the_embedding_to_the_head() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = ["a", "b"]
        .map(|name| (name.to_owned(), model(folder.path(), name, 3, f32::from(name == "b"))));
    let text =
        "{merge_method: slerp, base_model: a, models: [{model: b}], parameters: {t: [0, 1]}}";
    let made = merge(text, &inputs.into(), &folder.path().join("out")).unwrap();
    let excess = |name: &str, there: f32| first(&made, name) - there;
    assert_eq!(excess("model.embed_tokens.weight", 0.0), 0.0);
    let layers = [0, 1, 2].map(|i| excess(&format!("model.layers.{i}.mlp.weight"), 1.0 + i as f32));
    assert_eq!(layers, [0.0, 0.5, 1.0]);
    assert_eq!([excess("lm_head.weight", 4.0), excess("model.norm.weight", 5.0)], [1.0, 1.0]);
}

#[test]
fn models_that_do_not_fit_are_refused_all_at_once_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let good = model(folder.path(), "a", 3, 0.0);
    let text = "{merge_method: linear, models: [{model: a}, {model: b}], parameters: {weight: 1}}";
    let refused = |b: Input, words: &[&str]| {
        let inputs =
            [("a".to_owned(), model(folder.path(), "a", 3, 0.0)), ("b".to_owned(), b)].into();
        let error = merge(text, &inputs, &out).err().unwrap().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(!out.exists() && !folder.path().join("out.part").exists());
    };
    refused(
        model(folder.path(), "b", 4, 0.0),
        &["a has no model.layers.3.mlp.weight, which b has"],
    );
    refused(
        model(folder.path(), "c", 2, 0.0),
        &["b has no model.layers.2.mlp.weight, which a has"],
    );
    refused(model(folder.path(), "d", 3, f32::NAN), &["lm_head.weight of b has 2 numbers", "norm"]);
    let spec = |name: &str| Spec {
        name: name.to_owned(),
        shape: vec![2, 2],
        init: Init::Constant(0.0),
        group: Group::DECAYED,
    };
    let specs: Vec<_> = good.tensors().iter().map(|(name, _)| spec(name)).collect();
    let zeros = folder.path().join("zeros");
    fs::write(&zeros, vec![0; 1000]).unwrap();
    let other = Input::flat(zeros.clone(), File::open(zeros).unwrap(), 0, &specs);
    refused(other, &["lm_head.weight is [2, 2] in b, and [1, 2] in a", "vocabulary"]);
}

#[test]
fn a_result_beyond_its_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("a".to_owned(), model(folder.path(), "a", 1, 3e38))].into();
    let text = "{merge_method: passthrough, models: [{model: a, parameters: {scale: 2}}]}";
    let error = merge(text, &inputs, &folder.path().join("out")).err().unwrap().to_string();
    assert!(error.contains("would have numbers that are not finite as float32"), "{error}");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_value_that_no_filter_gives_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("a".to_owned(), model(folder.path(), "a", 1, 1.0))].into();
    let text = "{merge_method: linear, models: [{model: a, parameters: {weight: [{filter: mlp, value: 1}]}}]}";
    let error = merge(text, &inputs, &folder.path().join("out")).err().unwrap().to_string();
    assert!(error.contains("weight of a is not set for lm_head.weight"), "{error}");
}
