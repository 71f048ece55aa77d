//! What is made of trained models: merged ones, and lists of what to train further.

use std::fs;

use crate::evaluate::{number, trained};
use crate::story;

/// One story, since the model takes longest.
#[test]
fn stored_models_are_merged_wherever_they_are_and_scanned() {
    let story = story();
    let (data, model, merged) = (trained(&story), story.text("model"), story.text("merged"));
    let line = ["export", "--data-dir", &data, "--to", &model];
    story.node(&line).unwrap().expect_success().unwrap();
    let recipe = |text: &str| fs::write(story.path("recipe.yaml"), text).unwrap();
    let path = story.text("recipe.yaml");
    let merge = |out: &str| story.node(&["merge", &path, "--out", out]).unwrap();

    // The same weights, in a node's folder and in an export: whatever is merged of them is they.
    let ties = format!(
        "models:\n- model: {model}\n  parameters: {{density: 1.0, weight: 0.5}}\n\
         merge_method: ties\nbase_model: {data}\nparameters: {{normalize: true}}\ndtype: float32\n"
    );
    recipe(&ties);
    let said = merge(&merged).expect_success().unwrap().out;
    assert!(said.contains("by ties") && said.contains("model.safetensors"), "{said}");
    let tensors = |folder: &str| fs::read(story.path(folder).join("model.safetensors")).unwrap();
    let (one, other) = (tensors("model"), tensors("merged"));
    assert_eq!(one.len(), other.len());
    let other_text = story.text("other.tokens");
    let loss = |folder: &str| {
        let done = story.node(&["eval", "--hf", folder, "--on", &other_text]).unwrap();
        number(&done.expect_success().unwrap().out, "loss")
    };
    assert_eq!(loss(&model), loss(&merged));

    // A layer twice: the folder says so, and is a model.
    let stacked = story.text("stacked");
    recipe(&format!(
        "slices:\n- sources: [{{model: {merged}, layer_range: [0, 1]}}]\n\
         - sources: [{{model: {merged}, layer_range: [0, 1]}}]\nmerge_method: passthrough\n"
    ));
    assert!(merge(&stacked).expect_success().unwrap().out.contains("2 layers"));
    assert!(loss(&stacked).is_finite());

    // Nothing is overwritten, and what is wrong leaves nothing behind.
    merge(&stacked).expect_failure(1, &["stacked is not empty", "name another folder"]).unwrap();
    let absent = story.text("absent");
    recipe(&ties.replace("ties", "tyes"));
    merge(&absent).expect_failure(1, &["merge_method", "breadcrumbs"]).unwrap();
    recipe(&ties.replace(&data, &stacked));
    merge(&absent).expect_failure(1, &["cannot be merged", "layers.1"]).unwrap();
    recipe(&ties.replace(&data, &absent));
    merge(&absent).expect_failure(1, &["absent is no model"]).unwrap();
    assert!(!story.path("absent").exists());

    let list = story.node(&["spectrum", "scan", &data, "--percent", "100"]).unwrap();
    let list = list.expect_success().unwrap().out;
    let begin = "unfrozen_parameters:\n- ^lm_head.weight$\n- ^model.embed_tokens.weight$\n";
    assert!(list.starts_with(begin) && list.contains("\n- model.layers.0."), "{list}");
    let (yaml, report) = (story.text("train.yaml"), story.text("train.json"));
    let line =
        ["spectrum", "scan", &model, "--percent", "100", "--out", &yaml, "--report", &report];
    let said = story.node(&line).unwrap().expect_success().unwrap().out;
    assert!(said.contains("signal to noise"), "{said}");
    assert_eq!(fs::read_to_string(&yaml).unwrap(), list);
    assert!(fs::read_to_string(&report).unwrap().contains("snr"));
    let line = ["spectrum", "scan", &model, "--types", "mlp.up"];
    story.node(&line).unwrap().expect_failure(1, &["mlp.up", "mlp.up_proj"]).unwrap();
}
