//! The first weights of a run: a pure function of the manifest's seed, equal on every machine.
//!
//! Nobody sends the first state around; every peer computes it, so it must be the same bits on any
//! processor and operating system. Each parameter has a random stream of its own, keyed by its name
//! and the seed, so that no parameter's weights depend on another's size or place:
//!
//! ```text
//! key    = BLAKE3::derive_key("intellect-node 1 genesis", seed as u64 LE ‖ name)
//! stream = BLAKE3 keyed by key, in its counter mode (the output of any length)
//! u1     = (⌊a / 2^11⌋ + 1) / 2^53, u2 = ⌊b / 2^11⌋ / 2^53      a, b: the next two u64 LE
//! z0, z1 = √(−2 ln u1) · cos 2πu2, √(−2 ln u1) · sin 2πu2       (Box and Muller 1958)
//! weight = (std · z) rounded to f32 once
//! ```
//!
//! All arithmetic is f64; `ln`, `cos`, `sin` come from the crate `libm`, since std's call the
//! platform's. A truncated normal skips what lies outside and takes the next number.
//!
//! Which parameter starts how is decided by the architecture, not here.

use std::f64::consts::TAU;

/// One parameter as its architecture declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Unique in the model; keys the random stream.
    pub name: String,
    /// Row-major sizes.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
}

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one: the gain of a norm.
    Ones,
    /// Normal of mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Normal of mean 0 without what lies beyond `cut` standard deviations.
    TruncatedNormal {
        /// Standard deviation before the cut.
        std: f64,
        /// Largest distance from 0, in standard deviations.
        cut: f64,
    },
}

impl Spec {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// All parameters of a model, one after the other in the order of `specs`.
#[must_use]
pub fn weights(seed: u64, specs: &[Spec]) -> Vec<f32> {
    let mut all = Vec::with_capacity(specs.iter().map(Spec::len).sum());
    for spec in specs {
        let stream = Normals::new(seed, &spec.name);
        match spec.init {
            Init::Zeros => all.extend(std::iter::repeat_n(0.0_f32, spec.len())),
            Init::Ones => all.extend(std::iter::repeat_n(1.0_f32, spec.len())),
            Init::Normal { std } => {
                all.extend(stream.take(spec.len()).map(|z| (std * z) as f32));
            }
            Init::TruncatedNormal { std, cut } => {
                let inside = stream.filter(|z| z.abs() <= cut);
                all.extend(inside.take(spec.len()).map(|z| (std * z) as f32));
            }
        }
    }
    all
}

/// Standard normal numbers without end, keyed by a seed and a name.
struct Normals {
    stream: blake3::OutputReader,
    second: Option<f64>,
}

impl Normals {
    fn new(seed: u64, name: &str) -> Self {
        let mut material = seed.to_le_bytes().to_vec();
        material.extend_from_slice(name.as_bytes());
        let key = blake3::derive_key(CONTEXT, &material);
        Self { stream: blake3::Hasher::new_keyed(&key).finalize_xof(), second: None }
    }

    /// The next 53 random bits as a whole number.
    fn bits(&mut self) -> f64 {
        let mut word = [0; 8];
        self.stream.fill(&mut word);
        (u64::from_le_bytes(word) >> 11) as f64
    }
}

impl Iterator for Normals {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        let u1 = (self.bits() + 1.0) * UNIT;
        let u2 = self.bits() * UNIT;
        let radius = libm::sqrt(-2.0 * libm::log(u1));
        self.second = Some(radius * libm::sin(TAU * u2));
        Some(radius * libm::cos(TAU * u2))
    }
}

const CONTEXT: &str = "intellect-node 1 genesis";
/// 2^−53: the distance of neighbouring uniform numbers.
const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::config::Work;

    fn spec(name: &str, length: usize, init: Init) -> Spec {
        Spec { name: name.to_owned(), shape: vec![length], init }
    }

    fn moments(numbers: &[f32]) -> [f64; 4] {
        let mean = |power: i32| {
            numbers.iter().map(|z| f64::from(*z).powi(power)).sum::<f64>() / numbers.len() as f64
        };
        [1, 2, 3, 4].map(mean)
    }

    /// The first four moments of a normal of deviation 2 are 0, 4, 0, 48.
    #[test]
    fn weights_are_normal() {
        let all = weights(1, &[spec("a", 1 << 18, Init::Normal { std: 2.0 })]);
        let [m1, m2, m3, m4] = moments(&all);
        assert!(m1.abs() < 0.02 && (m2 - 4.0).abs() < 0.06, "{m1} {m2}");
        assert!(m3.abs() < 0.3 && (m4 - 48.0).abs() < 2.0, "{m3} {m4}");
        // Both halves of each pair, and neighbours, are independent.
        let lag =
            |by: usize| all.iter().zip(&all[by..]).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        assert!([1, 2].iter().all(|by| (lag(*by) / all.len() as f64).abs() < 0.04));
    }

    /// Of a normal cut at one deviation the variance is 1 − 2φ(1)/(Φ(1) − Φ(−1)) = 0.29112.
    #[test]
    fn a_truncated_normal_is_cut_and_not_clamped() {
        let cut = Init::TruncatedNormal { std: 0.5, cut: 1.0 };
        let all = weights(1, &[spec("a", 1 << 17, cut)]);
        assert!(all.iter().all(|z| z.abs() <= 0.5));
        assert!(!all.contains(&0.5));
        let [_, variance, ..] = moments(&all);
        assert!((variance - 0.25 * 0.291_12).abs() < 1e-3, "{variance}");
    }

    #[test]
    fn a_parameter_depends_on_its_name_and_the_seed_alone() {
        let normal = Init::Normal { std: 1.0 };
        let alone = weights(7, &[spec("b", 5, normal)]);
        let among = weights(7, &[spec("a", 3, normal), spec("b", 5, normal)]);
        assert_eq!(among[3..], alone);
        assert_ne!(among[..3], alone[..3]);
        assert_ne!(weights(8, &[spec("b", 5, normal)]), alone);
        // A longer one begins with the shorter one, whatever its shape.
        let square = Spec { name: "b".to_owned(), shape: vec![2, 4], init: normal };
        assert_eq!(weights(7, &[square])[..5], alone);
    }

    #[test]
    fn gains_are_one_and_zeros_zero() {
        let specs = [spec("a", 2, Init::Ones), spec("b", 3, Init::Zeros)];
        assert_eq!(weights(1, &specs), [1.0, 1.0, 0.0, 0.0, 0.0]);
    }

    /// Replicas begin with these bits on every machine for ever. The model is spelled out, so that
    /// other defaults leave it alone. A program of 40 lines in Python gave the same digest.
    #[test]
    fn the_small_model_s_genesis_is_golden() {
        let mut model = Work::synthetic().model;
        (model.layers, model.width, model.heads, model.kv_heads) = (2, 64, 4, 2);
        (model.ffn, model.vocab) = (176, 16);
        let weights = weights(1, &arch::specs(&model));
        assert_eq!(weights.len() as u64, model.parameter_count());
        let bytes: Vec<_> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "125a5c914eeafb5e25bdab9d71aa30ecc445ad477d877d44d1592c5214dfad6a"
        );
    }
}
