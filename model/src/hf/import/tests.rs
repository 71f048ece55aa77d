//! Tests of reading a model from a folder.

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;
use crate::arch::llama::layout::tests::{Pairs, relayout};
use crate::config::{Family, Work};
use crate::genesis;
use crate::hf::Precision;
use crate::hf::export::Export;
use crate::hf::input::file_names;

/// A model of two blocks, in which all sizes differ, with all fields of its family.
fn model(family: Family) -> Model {
    let sizes = Model {
        family,
        layers: 2,
        width: 48,
        heads: 6,
        ffn: 40,
        context: 32,
        vocab: 24,
        ..Model::NONE
    };
    match family {
        Family::Llama => Model { kv_heads: 2, rope_theta: 12_345.5, norm_eps: 1e-6, ..sizes },
        Family::Eagle => sizes,
        Family::Finch => Model { mix_rank: 3, decay_rank: 5, ..sizes },
        Family::GoldFinch => Model {
            mix_rank: 3,
            decay_rank: 5,
            gold_layers: 1,
            value_rank: 7,
            compression: 4,
            ..sizes
        },
    }
}

fn theta(model: &Model) -> Vec<f32> {
    let mut specs = Arch::new(model).specs();
    specs.iter_mut().for_each(|spec| spec.init = genesis::Init::Normal { std: 0.3 });
    genesis::weights(5, &specs)
}

fn export(
    model: &Model,
    theta: &[f32],
    precision: Precision,
    shard_bytes: u64,
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let work = Work { model: model.clone(), ..Work::synthetic() };
    Export { work: &work, theta, tokenizer: None, precision, shard_bytes }
        .write(folder.path())
        .unwrap();
    folder
}

fn llama() -> tempfile::TempDir {
    let model = model(Family::Llama);
    export(&model, &theta(&model), Precision::F32, 1 << 20)
}

/// Rewrites the only file of tensors, each as the closure changes it; `false` removes it.
fn rewrite(
    folder: &Path,
    change: impl Fn(&str, &mut Dtype, &mut Vec<usize>, &mut Vec<u8>) -> bool,
) {
    let path = folder.join(WHOLE);
    let bytes = fs::read(&path).unwrap();
    let mut kept = Vec::new();
    for (name, tensor) in safetensors::SafeTensors::deserialize(&bytes).unwrap().iter() {
        let (mut dtype, mut shape) = (tensor.dtype(), tensor.shape().to_vec());
        let mut data = tensor.data().to_vec();
        if change(name, &mut dtype, &mut shape, &mut data) {
            kept.push((name.to_owned(), dtype, shape, data));
        }
    }
    let views = kept.iter().map(|(name, dtype, shape, data)| {
        (name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    });
    safetensors::serialize_to_file(views, None, &path).unwrap();
}

fn problems(folder: &Path) -> Vec<TensorProblem> {
    match read(folder) {
        Err(ImportError::Tensors { problems, .. }) => problems,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_exported_comes_back_bit_by_bit() {
    for family in Family::ALL {
        let model = model(family);
        let theta = theta(&model);
        for shard_bytes in [1 << 20, 5_000] {
            let folder = export(&model, &theta, Precision::F32, shard_bytes);
            let imported = read(folder.path()).unwrap();
            assert_eq!(imported.model, model);
            let bits = |theta: &[f32]| theta.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&imported.theta), bits(&theta), "{}", family.name());
        }
    }
}

/// A tensor of the head in a tied model is ignored.
#[test]
fn a_tied_head_is_a_copy_of_the_embedding() {
    let folder = llama();
    let path = folder.path().join(CONFIG);
    let mut config = read_json(&path).unwrap();
    config["tie_word_embeddings"] = true.into();
    fs::write(&path, config.to_string()).unwrap();
    for keep in [true, false] {
        rewrite(folder.path(), |name, _, _, _| keep || name != HEAD);
        let Imported { model, theta, untied } = read(folder.path()).unwrap();
        let size = model.vocab * model.width;
        assert!(untied);
        assert_eq!(theta[..size], theta[theta.len() - size..]);
    }
}

/// PRIME's names, and its order of the rows that a rotation pairs.
#[test]
fn a_llama_in_meta_s_words_is_the_same_model() {
    let folder = llama();
    let Imported { model, mut theta, .. } = read(folder.path()).unwrap();
    let ours = theta.clone();
    relayout(&model, &mut theta, Pairs::Half, Pairs::Interleaved);
    let mut rest = &theta[..];
    let mut tensors = Vec::new();
    for spec in Arch::new(&model).specs() {
        let (part, later) = rest.split_at(spec.len());
        let bytes: Vec<u8> = part.iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push((layout::meta_name(&spec.name).unwrap(), spec.shape, bytes));
        rest = later;
    }
    tensors.push(("freqs_cis".to_owned(), vec![1], vec![0; 4]));
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.path().join(WHOLE)).unwrap();
    assert_eq!(read(folder.path()).unwrap().theta, ours);
}

/// The rounded model is within half a step of 2^−8 of each number, and is not rounded again.
#[test]
fn bf16_comes_back_rounded_once() {
    let model = model(Family::Llama);
    let theta = theta(&model);
    let once = read(export(&model, &theta, Precision::Bf16, 1 << 20).path()).unwrap().theta;
    assert!(theta.iter().zip(&once).all(|(x, y)| (x - y).abs() <= x.abs() / 256.0));
    assert_ne!(once, theta);
    let twice = read(export(&model, &once, Precision::Bf16, 1 << 20).path()).unwrap().theta;
    assert_eq!(twice, once);
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let folder = llama();
    rewrite(folder.path(), |name, dtype, shape, data| {
        match name {
            "model.norm.weight" => return false,
            "model.layers.1.mlp.up_proj.weight" => shape.reverse(),
            "model.layers.0.self_attn.k_proj.weight" => {
                data[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
                data[40..44].copy_from_slice(&f32::INFINITY.to_le_bytes());
            }
            "lm_head.weight" => *dtype = Dtype::I32,
            _ => {}
        }
        true
    });
    let path = folder.path().join(WHOLE);
    let bytes = fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let bias = [0; 4 * 48];
    let bias = TensorView::new(Dtype::F32, vec![48], &bias).unwrap();
    let angles = bias.clone();
    let more = [
        ("model.layers.0.self_attn.q_proj.bias".to_owned(), bias),
        ("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), angles),
    ];
    let all = tensors.tensors().into_iter().chain(more);
    fs::write(&path, safetensors::serialize(all, None).unwrap()).unwrap();

    let found = problems(folder.path());
    let expected = [
        TensorProblem::NotFinite {
            name: "model.layers.0.self_attn.k_proj.weight".to_owned(),
            count: 2,
            first: 2,
        },
        TensorProblem::Shape {
            name: "model.layers.1.mlp.up_proj.weight".to_owned(),
            found: vec![48, 40],
            expected: vec![40, 48],
        },
        TensorProblem::Missing { name: "model.norm.weight".to_owned(), shape: vec![48] },
        TensorProblem::Kind { name: "lm_head.weight".to_owned(), found: Dtype::I32 },
        TensorProblem::Extra {
            name: "model.layers.0.self_attn.q_proj.bias".to_owned(),
            file: WHOLE.to_owned(),
        },
    ];
    assert_eq!(found, expected);
    let text = read(folder.path()).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1 + expected.len(), "{text}");
}

#[test]
fn a_tensor_in_two_files_is_named_with_both() {
    let model = model(Family::Llama);
    // The first file has room for the embedding's 4,608 bytes alone.
    let folder = export(&model, &theta(&model), Precision::F32, 4_700);
    let files = file_names(folder.path()).unwrap();
    let file = files.first().unwrap();
    let bytes = fs::read(folder.path().join(file)).unwrap();
    fs::write(folder.path().join("copy.safetensors"), bytes).unwrap();
    let index = folder.path().join(INDEX);
    let mut json = read_json(&index).unwrap();
    json["weight_map"]["copy"] = "copy.safetensors".into();
    fs::write(&index, json.to_string()).unwrap();
    let [TensorProblem::Twice { name, first, second }] = &problems(folder.path())[..] else {
        panic!("{:?}", problems(folder.path()))
    };
    assert_eq!(name, "model.embed_tokens.weight");
    assert_eq!((&first[..], second), ("copy.safetensors", file));
}

#[test]
fn a_file_that_is_cut_or_overlong_or_lies_about_its_header_is_damaged() {
    let folder = llama();
    let path = folder.path().join(WHOLE);
    let good = fs::read(&path).unwrap();
    let mut long_header = good.clone();
    long_header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let mut no_json = good.clone();
    no_json[8] = b'?';
    let longer = [&good[..], &[0]].concat();
    for bad in [&good[..good.len() - 1], &longer, &long_header, &no_json] {
        fs::write(&path, bad).unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(matches!(error, ImportError::Header { .. }), "{error}");
    }
    fs::write(&path, &good[..5]).unwrap();
    assert!(matches!(read(folder.path()), Err(ImportError::Io { .. })));
}

/// An index is not trusted: it may only name files in its folder.
#[test]
fn an_index_does_not_lead_out_of_the_folder() {
    let model = model(Family::Llama);
    let folder = export(&model, &theta(&model), Precision::F32, 5_000);
    let index = folder.path().join(INDEX);
    for file in ["../model.safetensors", "/etc/passwd", "a/b", "..", ""] {
        let text = serde_json::json!({ "weight_map": { "lm_head.weight": file } }).to_string();
        fs::write(&index, text).unwrap();
        let error = read(folder.path()).unwrap_err();
        assert!(matches!(error, ImportError::Index { .. }), "{file}: {error}");
        assert!(error.to_string().contains("lm_head.weight"), "{error}");
    }
    fs::write(&index, "{}").unwrap();
    assert!(matches!(read(folder.path()), Err(ImportError::Index { .. })));
    fs::remove_file(&index).unwrap();
    assert!(matches!(read(folder.path()), Err(ImportError::NoTensors(_))));
    fs::remove_file(folder.path().join(CONFIG)).unwrap();
    let error = read(folder.path()).unwrap_err();
    assert!(matches!(error, ImportError::Io { .. }) && error.to_string().contains(CONFIG));
}

#[test]
fn f16_is_read_as_the_number_that_it_is() {
    let folder = llama();
    rewrite(folder.path(), |_, dtype, _, data| {
        *dtype = Dtype::F16;
        *data = 0x3555_u16.to_le_bytes().repeat(data.len() / 4);
        true
    });
    assert!(read(folder.path()).unwrap().theta.iter().all(|x| *x == 0.333_251_95));
}

/// A piece is a megabyte or a row, so a model of any size needs no more memory.
#[test]
fn a_model_is_handed_over_in_pieces_until_something_is_wrong() {
    let sizes = Model { width: 512, heads: 16, vocab: 600, layers: 1, ..model(Family::Eagle) };
    let theta = theta(&sizes);
    let folder = export(&sizes, &theta, Precision::F32, 1 << 30);
    let stored = StoredModel::open(folder.path()).unwrap();
    assert_eq!((stored.model(), stored.is_untied()), (&sizes, false));
    let (mut all, mut longest) = (Vec::new(), 0);
    let taken = stored.stream(&mut |numbers: &[f32]| {
        longest = longest.max(numbers.len());
        all.extend_from_slice(numbers);
        Ok::<_, ImportError>(())
    });
    taken.unwrap();
    assert_eq!(longest, PIECE_NUMBERS);
    assert!(all == theta);
    rewrite(folder.path(), |name, _, _, data| {
        if name == "blocks.0.ln0.weight" {
            data[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        true
    });
    let mut count = 0;
    let refused = StoredModel::open(folder.path()).unwrap().stream(&mut |numbers: &[f32]| {
        count += numbers.len();
        Ok::<_, ImportError>(())
    });
    assert!(refused.unwrap_err().to_string().contains("not finite: blocks.0.ln0.weight, 1 of"));
    assert_eq!(count, 600 * 512, "nothing behind the embedding");
}
