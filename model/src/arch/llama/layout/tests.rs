//! The rows of a Llama in the order of Meta and back, and tests that both orders are one model.

use super::super::specs;
use super::*;
use crate::config::{self, Work};
use crate::genesis::{self, Spec};

/// The rows of a head that the rotation pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// i and i + K/2: Hugging Face, and this crate.
    Half,
    /// 2i and 2i + 1: Meta, torchtitan, PRIME.
    Interleaved,
}

/// Reorders the rows of all queries and keys of a Llama from one layout into the other, and nothing
/// else. `theta` is in canonical order.
///
/// # Panics
/// If `theta` does not have one number per parameter.
pub(crate) fn relayout(model: &config::Model, theta: &mut [f32], from: Pairs, to: Pairs) {
    if from == to {
        return;
    }
    let head = model.head_size() * model.width;
    let mut rest = theta;
    for spec in specs(model) {
        let (part, later) = rest.split_at_mut(spec.len());
        if is_rotated(&spec.name) {
            part.chunks_mut(head).for_each(|rows| move_rows(rows, model.width, to));
        }
        rest = later;
    }
    assert!(rest.is_empty(), "one number per parameter");
}

/// Moves the rows of one head to their new positions. // rows [K, D]
fn move_rows(rows: &mut [f32], width: usize, to: Pairs) {
    let old = rows.to_vec();
    let size = old.len() / width;
    for half in 0..size {
        let interleaved = interleaved_row(half, size);
        let (from, to) = match to {
            Pairs::Interleaved => (half, interleaved),
            Pairs::Half => (interleaved, half),
        };
        rows[to * width..][..width].copy_from_slice(&old[from * width..][..width]);
    }
}

fn model() -> config::Model {
    let mut model = Work::synthetic().model;
    (model.layers, model.width, model.heads, model.kv_heads) = (2, 48, 6, 2);
    model
}

#[test]
fn there_and_back_is_the_same_model() {
    let model = model();
    let theta = genesis::weights(1, &specs(&model));
    let mut moved = theta.clone();
    relayout(&model, &mut moved, Pairs::Half, Pairs::Interleaved);
    assert_ne!(moved, theta);
    relayout(&model, &mut moved, Pairs::Interleaved, Pairs::Half);
    assert_eq!(moved, theta);
    relayout(&model, &mut moved, Pairs::Half, Pairs::Half);
    assert_eq!(moved, theta);
}

/// Each head's channels, rotated in their own layout, are the same numbers in another order;
/// and only queries and keys move.
#[test]
fn both_layouts_rotate_to_the_same_numbers() {
    let model = model();
    let (width, size) = (model.width, model.head_size());
    let theta = genesis::weights(1, &specs(&model));
    let mut moved = theta.clone();
    relayout(&model, &mut moved, Pairs::Half, Pairs::Interleaved);
    let turn = |[a, b]: [f32; 2], i: usize| {
        let (sin, cos) = (0.7 * (i + 1) as f32).sin_cos();
        [a * cos - b * sin, a * sin + b * cos]
    };
    let project = |rows: &[f32]| -> Vec<f32> {
        let x = |j: usize| (j as f32 * 0.37).sin();
        rows.chunks(width).map(|row| (0..width).map(|j| row[j] * x(j)).sum()).collect()
    };
    let mut at = 0;
    for Spec { name, shape, .. } in specs(&model) {
        let part = at..at + shape.iter().product::<usize>();
        at = part.end;
        if !(name.contains("q_proj") || name.contains("k_proj")) {
            assert_eq!(theta[part.clone()], moved[part], "{name}");
            continue;
        }
        let heads = theta[part.clone()].chunks(size * width);
        for (half, interleaved) in heads.zip(moved[part].chunks(size * width)) {
            let (half, interleaved) = (project(half), project(interleaved));
            for i in 0..size / 2 {
                let ours = turn([half[i], half[i + size / 2]], i);
                assert_eq!(ours, turn([interleaved[2 * i], interleaved[2 * i + 1]], i));
            }
        }
    }
}

#[test]
fn every_parameter_has_one_name_elsewhere() {
    let specs = specs(&model());
    let names: std::collections::BTreeSet<_> =
        specs.iter().map(|spec| meta_name(&spec.name).unwrap()).collect();
    assert_eq!(names.len(), specs.len());
    assert!(names.contains("layers.1.feed_forward.w3.weight"));
    assert!(names.contains("tok_embeddings.weight"));
    for unknown in ["lm_head", "model.layers.0.self_attn.q_proj.bias", "blocks.0.ln1.weight"] {
        assert_eq!(meta_name(unknown), None);
    }
}
