//! Good recipes are read, and of wrong ones the place and the remedy are named.

use super::*;
use crate::mutants::Mutants;

/// What a good recipe is, in the form of the published ones.
const TIES: &str = "
models:
  - model: cpt
    parameters:
      density: 0.75
      weight:
        - filter: mlp
          value: [0.25, 0.5, 0.5, 0.25]
        - value: 1
  - model: instruct
    parameters: {density: 1.0, weight: 0.5}
merge_method: ties
base_model: base
parameters:
  normalize: true
  int8_mask: true
dtype: bfloat16
";

const STACK: &str = "
slices:
  - sources: [{model: a, layer_range: [0, 3]}]
  - sources: [{model: b, layer_range: [1, 3], parameters: {scale: 0.5}}]
merge_method: passthrough
";

#[test]
fn published_recipes_are_read() {
    let recipe = Recipe::parse(TIES).unwrap();
    assert_eq!(recipe.method, Method::Ties);
    assert_eq!(recipe.models(), ["base", "cpt", "instruct"]);
    assert_eq!(recipe.precision, Precision::Bf16);
    let slice = &recipe.slices[0];
    let value = |key, name, t| recipe.value(key, slice, Some(&slice.sources[0]), name, t);
    assert_eq!(value(Key::Weight, "layers.0.mlp.up", 0.5), Some(0.5));
    assert_eq!(value(Key::Weight, "lm_head", 0.0), Some(1.0));
    assert_eq!(value(Key::Normalize, "lm_head", 0.0), Some(1.0));
    assert_eq!(value(Key::Rescale, "lm_head", 0.0), Some(0.0));
    let recipe = Recipe::parse(STACK).unwrap();
    assert_eq!(recipe.slices[1].sources[0].layers, Some(1..3));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (from, to, words) in [
        ("normalize:", "normalise:", ["parameters.normalise", "normalize"]),
        ("dtype: bfloat16", "dtype: float16", ["dtype", "bfloat16"]),
        ("dtype:", "d_type:", ["d_type", "remove it"]),
        ("density: 0.75", "density: 1.5", ["models[0].parameters.density", "from 0 to 1"]),
        ("weight: 0.5", "weight: .nan", ["not YAML", "non-finite"]),
        ("weight: 0.5", "t: 0.5", ["models[1].parameters.t", "weight"]),
        ("weight: 0.5", "lambda: 0.5", ["models[1].parameters.lambda", "only: weight"]),
        ("filter: mlp", "filtre: mlp", ["models[0].parameters.weight", "filtre"]),
        ("base_model: base", "", ["base_model", "name it"]),
        ("ties", "tyes", ["merge_method", "breadcrumbs"]),
        ("model: instruct", "model: cpt", ["models[1].model", "twice"]),
        ("normalize: true", "normalize: 1", ["parameters.normalize", "true or false"]),
        ("models:", "slices:", ["slices[0].model", "sources"]),
        ("dtype: bfloat16", "dtype: [", ["YAML", ""]),
        ("dtype: bfloat16", "dtype: float32\ndtype: float32", ["YAML", "dup"]),
        ("[0.25, 0.5, 0.5, 0.25]", "[[1]]", ["models[0].parameters.weight", "number"]),
    ] {
        let text = TIES.replace(from, to);
        assert_ne!(text, TIES, "{from}");
        let error = Recipe::parse(&text).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{to}: {error}");
    }
    for text in ["", "1", "[]", "a: &x [*x]", "a: b: c"] {
        assert!(Recipe::parse(text).is_err(), "{text}");
    }
    assert!(matches!(Recipe::parse(&" ".repeat(300_000)), Err(RecipeError::Long)));
    let uneven = STACK.replace("[1, 3]", "[3, 1]");
    assert!(Recipe::parse(&uneven).unwrap_err().to_string().contains("layer_range"));
}

/// References that name one another would be more than any memory holds.
#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("a{level}: &a{level} [{before}]\n");
    }
    assert!(Recipe::parse(&text).is_err());
}

/// Small changes of good recipes: each is a recipe or an error, and takes bounded time.
#[test]
fn mutants_are_recipes_or_errors() {
    let mut mutants = Mutants::new(PIECES);
    let mut good = 0;
    for _ in 0..Mutants::count(3000) {
        let mut bytes = [TIES, STACK][mutants.draw(2)].as_bytes().to_vec();
        mutants.change(&mut bytes, 0);
        let text = String::from_utf8_lossy(&bytes);
        match Recipe::parse(&text) {
            Ok(_) => good += 1,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(good > 0, "some changes do no harm");
}

/// The letters of YAML's grammar, and some of its trouble.
const PIECES: &[u8] = b":-[]{},&*!|>'\"%@`#?\n\t .0~e9\\\x00\x85\xef\xbb\xbf";
