//! What every method does with tensors of several blocks.

use super::*;

fn numbers(seed: u64, count: usize, scale: f32) -> Vec<f32> {
    let mut stream = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; 4 * count];
    stream.fill(&mut bytes);
    let words = bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word));
    words.map(|word| word as f32 * scale / i32::MAX as f32).collect()
}

const PLAIN: Settings = Settings {
    lambda: 1.0,
    t: 0.5,
    normalize: Choice::No,
    rescale: Choice::No,
    by_row: Choice::No,
};

fn run(
    method: Method,
    base: Option<&[f32]>,
    models: &[(&[f32], f64, f64)],
    settings: Settings,
) -> (Vec<f32>, Vec<NotFinite>) {
    let base = base.as_ref().map(|base| base as &dyn Numbers);
    let models = models.iter().map(|(numbers, weight, density)| Operand {
        numbers,
        weight: *weight,
        density: *density,
        gamma: 0.1,
    });
    let masks = Chance { seed: 7, tensor: "x".to_owned() };
    let models = models.collect();
    let merge = TensorMerge { method, base, models, row: 10, settings, masks: &masks };
    let mut made = Vec::new();
    let found = blend(&merge, &mut |numbers| {
        made.extend_from_slice(numbers);
        Ok(())
    });
    (made, found.unwrap())
}

/// More numbers than a block has, so that borders of blocks are inside.
const COUNT: usize = 2 * BLOCK + 1230;

#[test]
fn a_model_merged_with_itself_stays() {
    let (base, model) = (numbers(1, COUNT, 1.0), numbers(2, COUNT, 1.0));
    let same = [(&model[..], 0.5, 1.0), (&model[..], 0.5, 1.0)];
    for (method, _) in Method::NAMES {
        let models = if matches!(method, Method::Slerp | Method::Passthrough) {
            vec![(&model[..], 1.0, 1.0)]
        } else {
            same.to_vec()
        };
        let base = match method {
            Method::Linear | Method::Passthrough | Method::NuSlerp => None,
            Method::Slerp => Some(&model[..]),
            _ => Some(&base[..]),
        };
        let (made, found) = run(method, base, &models, Settings { by_row: Choice::Yes, ..PLAIN });
        let worst = made.iter().zip(&model).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(made.len() == COUNT && worst < 5e-7 && found.is_empty(), "{method:?}: {worst}");
    }
}

#[test]
fn a_passing_tensor_keeps_its_bits() {
    let model = numbers(3, COUNT, 1e-30);
    let (made, _) = run(Method::Passthrough, None, &[(&model, 1.0, 1.0)], PLAIN);
    assert!(made.iter().zip(&model).all(|(a, b)| a.to_bits() == b.to_bits()));
}

/// Of equally large entries the first stay, over borders of blocks too.
#[test]
fn ties_of_magnitude_go_to_the_first() {
    let (base, model) = (vec![0.0; COUNT], vec![0.5; COUNT]);
    let (made, _) = run(Method::Ties, Some(&base), &[(&model, 1.0, 0.75)], PLAIN);
    let stay = (0.75 * COUNT as f64) as usize;
    assert!(made[..stay].iter().all(|x| *x == 0.5) && made[stay..].iter().all(|x| *x == 0.0));
}

/// The share that chance keeps is within five standard deviations of its probability, the same
/// seed keeps the same, and what stays has the sum of magnitudes that all had.
#[test]
fn chance_keeps_its_share_and_is_repeatable() {
    let (base, model) = (vec![0.0; COUNT], numbers(4, COUNT, 1.0));
    for density in [0.0, 0.01, 0.3, 0.5, 0.99] {
        let dare =
            |settings| run(Method::DareLinear, Some(&base), &[(&model, 1.0, density)], settings).0;
        let made = dare(PLAIN);
        assert_eq!(made, dare(PLAIN));
        let kept = made.iter().filter(|x| **x != 0.0).count() as f64;
        let n = COUNT as f64;
        let sigma = (n * density * (1.0 - density)).sqrt();
        assert!((kept - n * density).abs() <= 5.0 * sigma, "{density}: {kept}");
        let rescaled = dare(Settings { rescale: Choice::Yes, ..PLAIN });
        let sum = |x: &[f32]| x.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        assert!(density == 0.0 || (sum(&rescaled) / sum(&model) - 1.0).abs() < 1e-6, "{density}");
    }
}

#[test]
fn what_is_not_finite_is_counted_for_each_input() {
    let (mut base, mut model) = (numbers(5, COUNT, 1.0), numbers(6, COUNT, 1.0));
    (model[3], model[BLOCK + 1]) = (f32::NAN, f32::INFINITY);
    base[COUNT - 1] = f32::NEG_INFINITY;
    for method in [Method::TaskArithmetic, Method::Ties, Method::DareTies, Method::Slerp] {
        let (_, found) = run(method, Some(&base), &[(&model, 1.0, 0.5)], PLAIN);
        let of = |model| *found.iter().find(|found| found.model == model).unwrap();
        assert_eq!((of(Some(0)).count, of(Some(0)).first), (2, 3));
        assert_eq!((of(None).count, of(None).first), (1, COUNT - 1));
    }
}

/// Rows end inside of blocks, and each has its own angle.
#[test]
fn rows_are_merged_by_themselves() {
    let (base, a, b) = (numbers(7, 1000, 1.0), numbers(8, 1000, 1.0), numbers(9, 1000, 1.0));
    let by_row = Settings { by_row: Choice::Yes, ..PLAIN };
    let models: [(&[f32], f64, f64); 2] = [(&a, 0.6, 1.0), (&b, 0.4, 1.0)];
    for method in [Method::NuSlerp, Method::ModelStock] {
        let (all, _) = run(method, Some(&base), &models, by_row);
        let row = 330..340;
        let models: [(&[f32], f64, f64); 2] =
            [(&a[row.clone()], 0.6, 1.0), (&b[row.clone()], 0.4, 1.0)];
        let (one, _) = run(method, Some(&base[row.clone()]), &models, PLAIN);
        assert_eq!(all[row], one, "{method:?}");
    }
}
