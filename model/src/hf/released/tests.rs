//! Tests of reading RWKV-5 and RWKV-6 as they are released.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;
use crate::arch::Arch;
use crate::config::Work;
use crate::genesis;
use crate::hf::error::ImportError;
use crate::hf::export::Export;
use crate::hf::import::{self, Imported};
use crate::hf::pth::tests::{Form, Saving, archive, members, pickled};
use crate::hf::{CONFIG, Precision, WHOLE};
use crate::mutants::Mutants;

/// A model of two blocks, in which all sizes differ.
fn model(family: Family) -> Model {
    let ranks = if family == Family::Finch { (3, 5) } else { (0, 0) };
    Model {
        family,
        layers: 2,
        width: 48,
        heads: 6,
        ffn: 40,
        context: CONTEXT,
        vocab: 24,
        mix_rank: ranks.0,
        decay_rank: ranks.1,
        ..Model::NONE
    }
}

fn theta(model: &Model) -> Vec<f32> {
    let mut specs = Arch::new(model).specs();
    specs.iter_mut().for_each(|spec| spec.init = genesis::Init::Normal { std: 0.3 });
    genesis::weights(5, &specs)
}

/// The parameters as tensors of f32 with names by this convention.
fn tensors(model: &Model, words: Words) -> Vec<Saving> {
    let theta = theta(model);
    let mut rest = &theta[..];
    let tensor = |spec: genesis::Spec| {
        let (part, later) = rest.split_at(spec.len());
        rest = later;
        let bytes: Vec<u8> = part.iter().flat_map(|number| number.to_le_bytes()).collect();
        (words.name(&spec.name), Dtype::F32, spec.shape, bytes)
    };
    Arch::new(model).specs().into_iter().map(tensor).collect()
}

/// Writes a `.pth` file with these tensors.
fn pth(folder: &Path, name: &str, tensors: &[Saving]) -> PathBuf {
    let path = folder.join(name);
    let file = archive(Form::Large, &members(pickled(tensors), tensors));
    fs::write(&path, file).unwrap();
    path
}

/// Writes a safetensors file with these tensors.
fn whole(folder: &Path, tensors: &[Saving]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.join(WHOLE)).unwrap();
}

fn refused(tensors: &[Saving]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = pth(folder.path(), "m.pth", tensors);
    import::read(&path).unwrap_err().to_string()
}

#[test]
fn all_names_and_files_are_the_same_parameters() {
    for (family, kind) in [(Family::Eagle, "rwkv5"), (Family::Finch, "rwkv6")] {
        let model = model(family);
        let expected = Imported { theta: theta(&model), model, untied: false };
        let check = |path: &Path| {
            assert_eq!(import::sizes(path).unwrap(), expected.model);
            assert!(import::read(path).unwrap() == expected, "{kind}: {}", path.display());
        };
        for words in [Words::Blink, Words::Transformers] {
            let tensors = tensors(&expected.model, words);
            let folder = tempfile::tempdir().unwrap();
            check(&pth(folder.path(), "m.pth", &tensors));
            check(folder.path());
            whole(folder.path(), &tensors);
            check(folder.path());
            fs::write(folder.path().join(CONFIG), format!("{{\"model_type\": \"{kind}\"}}"))
                .unwrap();
            check(folder.path());
            fs::remove_file(folder.path().join(WHOLE)).unwrap();
            fs::rename(folder.path().join("m.pth"), folder.path().join("pytorch_model.bin"))
                .unwrap();
            check(folder.path());
        }
    }
}

#[test]
fn transformers_names_are_those_of_its_classes() {
    for (ours, theirs) in [
        ("emb.weight", "rwkv.embeddings.weight"),
        ("blocks.0.ln0.bias", "rwkv.blocks.0.pre_ln.bias"),
        ("blocks.3.ln2.weight", "rwkv.blocks.3.ln2.weight"),
        ("blocks.3.att.time_mix_g", "rwkv.blocks.3.attention.time_mix_gate"),
        ("blocks.3.att.time_maa_g", "rwkv.blocks.3.attention.time_maa_g"),
        ("blocks.3.att.ln_x.weight", "rwkv.blocks.3.attention.ln_x.weight"),
        ("blocks.3.ffn.time_mix_r", "rwkv.blocks.3.feed_forward.time_mix_receptance"),
        ("blocks.3.ffn.key.weight", "rwkv.blocks.3.feed_forward.key.weight"),
        ("ln_out.weight", "rwkv.ln_out.weight"),
        ("head.weight", "head.weight"),
    ] {
        assert_eq!(Words::Transformers.name(ours), theirs);
        assert_eq!(Words::Blink.name(ours), ours);
    }
}

/// Half precision, other shapes of the same numbers, and the older name of the bonus.
#[test]
fn shapes_and_names_of_other_releases_are_the_same_numbers() {
    for family in [Family::Eagle, Family::Finch] {
        let model = model(family);
        let mut all = tensors(&model, Words::Blink);
        for (name, dtype, shape, bytes) in &mut all {
            if name.contains("time_m") && !name.contains("_w") {
                *shape = vec![48];
            }
            if name.ends_with("time_decay") {
                *shape = if family == Family::Eagle { vec![1, 1, 48] } else { vec![6, 8] };
            }
            if name.ends_with("time_faaaa") {
                *name = name.replace("time_faaaa", "time_first");
            }
            *dtype = Dtype::BF16;
            *bytes = bytes.chunks(4).flat_map(|number| number[2..].to_vec()).collect();
        }
        let folder = tempfile::tempdir().unwrap();
        let found = import::read(&pth(folder.path(), "m.pth", &all)).unwrap();
        assert_eq!(found.model, model);
        let cut = |number: &f32| f32::from_bits(number.to_bits() & 0xffff_0000);
        assert!(found.theta == theta(&model).iter().map(cut).collect::<Vec<_>>());
    }
}

#[test]
fn only_rows_of_channels_may_have_another_shape() {
    let check = |name: &str, found: &[usize], expected: &[usize], same: bool| {
        assert_eq!(same_order(name, found, expected), same, "{name}");
    };
    check("att.time_decay", &[4, 8], &[1, 1, 32], true);
    check("att.time_decay", &[1, 1, 32], &[4, 8], true);
    check("att.time_decay", &[8, 4], &[4, 8], false);
    check("att.time_maa_w2", &[5, 3, 8], &[5, 8, 3], false);
    check("att.key.weight", &[64], &[8, 8], false);
    check("ln_out.bias", &[1, 8], &[8], false);
    check("att.time_mix_k", &[1, 1, 9], &[1, 1, 8], false);
}

#[test]
fn what_was_imported_is_exported_and_read_again() {
    for family in [Family::Eagle, Family::Finch] {
        let folder = tempfile::tempdir().unwrap();
        let tensors = tensors(&model(family), Words::Transformers);
        let once = import::read(&pth(folder.path(), "m.pth", &tensors)).unwrap();
        let work = Work { model: once.model.clone(), ..Work::synthetic() };
        let (precision, out) = (Precision::F32, folder.path().join("out"));
        let export = Export {
            work: &work,
            theta: &once.theta,
            tokenizer: None,
            precision,
            shard_bytes: 5_000,
        };
        export.write(&out).unwrap();
        assert!(import::read(&out).unwrap() == once);
    }
}

#[test]
fn other_generations_are_refused_by_name() {
    let [eagle, finch] = [Family::Eagle, Family::Finch].map(|f| tensors(&model(f), Words::Blink));
    let without = |end: &str| -> Vec<Saving> {
        eagle.iter().filter(|(name, ..)| !name.contains(end)).cloned().collect()
    };
    let said = refused(&without("att.ln_x"));
    assert!(said.contains("it is RWKV-4") && said.contains("5.2, as World v2 is"), "{said}");
    assert!(refused(&without("gate")).contains("it is RWKV-5.0"));
    let mut one = eagle.clone();
    for (name, _, shape, bytes) in &mut one {
        if name.ends_with("time_decay") {
            *shape = vec![6];
            bytes.truncate(24);
        }
    }
    assert!(refused(&one).contains("it is RWKV-5.1"));
    let with =
        |name: &str| [&finch[..], &[(name.to_owned(), Dtype::F32, vec![1], vec![0; 4])]].concat();
    assert!(refused(&with("blocks.0.att.r_k")).contains("it is RWKV-7"));
    assert!(refused(&with("model.layers.0.attn.x")).contains("flash-linear-attention"));
    let extra = refused(&with("blocks.0.att.time_state"));
    assert!(extra.contains("not of this model: blocks.0.att.time_state in m.pth"), "{extra}");
    let missing = refused(&without("blocks.1.ffn.value"));
    assert!(missing.contains("missing: blocks.1.ffn.value.weight"), "{missing}");
    assert!(refused(&without("emb")).contains("has no emb.weight"));
    let many = refused(&with("blocks.600.ln1.weight"));
    assert!(many.contains("model.layers"), "{many}");
}

#[test]
fn a_folder_without_one_model_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let read = || import::read(folder.path()).unwrap_err();
    assert!(read().to_string().contains(CONFIG));
    fs::write(folder.path().join(CONFIG), r#"{"model_type": "rwkv6"}"#).unwrap();
    assert!(matches!(read(), ImportError::NoTensors(_)));
    for name in ["a.pth", "b.pth"] {
        pth(folder.path(), name, &tensors(&model(Family::Finch), Words::Blink));
    }
    assert!(matches!(read(), ImportError::Several(_)));
    assert!(import::read(&folder.path().join("b.pth")).is_ok());
    let text = folder.path().join("text");
    fs::write(&text, "no model").unwrap();
    assert!(import::sizes(&text).unwrap_err().to_string().contains("no .pth of PyTorch"));
}

/// Small changes of a good file and of its pickle: each is a model or an error.
#[test]
fn mutants_are_models_or_errors() {
    let mut mutants = Mutants::new(PIECES);
    let small = Model { layers: 1, width: 8, heads: 2, ffn: 8, vocab: 3, ..model(Family::Eagle) };
    let tensors = tensors(&small, Words::Blink);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.pth");
    let pickle = pickled(&tensors);
    let forms = [Form::Small, Form::Large];
    let files = forms.map(|form| archive(form, &members(pickle.clone(), &tensors)));
    let mut good = 0;
    for _ in 0..Mutants::count(20_000) {
        let (form, in_pickle) = (mutants.draw(2), mutants.draw(2) == 0);
        let mut bytes = if in_pickle { pickle.clone() } else { files[form].clone() };
        // Most of what can be wrong with an archive stands at its end.
        let is_anywhere = in_pickle || mutants.draw(4) == 0;
        let begin = if is_anywhere { 0 } else { bytes.len() - bytes.len() / 4 };
        mutants.change(&mut bytes, begin);
        let file = if in_pickle { archive(forms[form], &members(bytes, &tensors)) } else { bytes };
        fs::write(&path, file).unwrap();
        match import::read(&path) {
            Ok(_) => good += 1,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(good > 0, "some changes do no harm");
}

/// The instructions that are known, some that are not, and numbers at the ends of their ranges.
const PIECES: &[u8] =
    b"(NKMJXc)}sutqrhjQRb.]aeilo0128G\x00\x01\x7f\x80\x85\x86\x87\x88\x89\x8a\xff";
