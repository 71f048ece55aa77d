//! The first weights of a run: a pure function of the manifest's seed, equal on every machine.
//!
//! The first state is not sent. Every peer computes it, so it must be the same bits on any
//! processor and operating system. Each parameter has a random stream of its own, keyed by its name
//! and the seed, so that no parameter's weights depend on another's size or position:
//!
//! ```text
//! key    = BLAKE3::derive_key("intellect-node 1 genesis", seed as u64 LE ‖ name)
//! stream = BLAKE3 keyed by key, in its counter mode (the output of any length)
//! u1     = (⌊a / 2^11⌋ + 1) / 2^53, u2 = ⌊b / 2^11⌋ / 2^53      a, b: the next two u64 LE
//! z0, z1 = √(−2 ln u1) · cos 2πu2, √(−2 ln u1) · sin 2πu2       (Box and Muller 1958)
//! weight = (std · z) rounded to f32 once
//! ```
//!
//! All arithmetic is f64; `ln`, `cos`, `sin`, `pow` come from the crate `libm`, since std's call
//! the platform's. A truncated normal skips numbers outside the cut and takes the next; a uniform
//! number is 2u2 − 1 times its bound; orthogonal matrices are in `orthogonal.rs`.
//!
//! The architecture decides how each parameter starts.

mod orthogonal;

use std::f64::consts::TAU;

use rayon::prelude::*;

use crate::data::draw::{Draw, UNIT};
use crate::optim::Group;

/// One parameter as its architecture declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Unique in the model; keys the random stream, so another name gives other weights.
    pub name: String,
    /// Size of each dimension, in row-major order. A matrix is [out, in], if its family does not
    /// say otherwise.
    pub shape: Vec<usize>,
    /// Where its first numbers come from.
    pub init: Init,
    /// How the optimiser treats it.
    pub group: Group,
}

/// Where the first numbers of a parameter come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element is this number.
    Constant(f64),
    /// Normal numbers of mean 0, not truncated.
    Normal {
        /// Standard deviation, above 0.
        std: f64,
    },
    /// Normal numbers of mean 0, without those beyond `cut` standard deviations.
    TruncatedNormal {
        /// Standard deviation before the cut.
        std: f64,
        /// Largest distance from 0, in standard deviations.
        cut: f64,
    },
    /// Numbers uniform between −bound and bound.
    Uniform {
        /// Largest distance from 0, which the numbers approach.
        bound: f64,
    },
    /// A random matrix [out, in] whose rows, or columns where those are fewer, are orthogonal and
    /// `gain` long (Saxe et al. 2013).
    Orthogonal {
        /// Every singular value of the matrix.
        gain: f64,
    },
    /// Not drawn: element i is offset + scale·(i/over)^exponent + zigzag·((i + 1) mod 3 − 1), which
    /// is how RWKV spreads its channels from slow to fast (Peng et al. 2024, arXiv 2404.05892).
    Curve(Curve),
}

/// The numbers of [`Init::Curve`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// The number that is added to every element.
    pub offset: f64,
    /// The factor by which the power is multiplied.
    pub scale: f64,
    /// The divisor of an element's index in its tensor.
    pub over: f64,
    /// The power to which the quotient is raised.
    pub exponent: f64,
    /// The factor of −1, 0 and 1, which alternate from element 2 on.
    pub zigzag: f64,
}

impl Spec {
    /// Number of elements, the product of the sizes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether a size is 0, so that there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Curve {
    /// The element of index i, which counts from 0 through all of the tensor.
    fn at(&self, i: usize) -> f64 {
        let power = libm::pow(i as f64 / self.over, self.exponent);
        let turn = ((i + 1) % 3) as f64 - 1.0;
        self.offset + self.scale * power + self.zigzag * turn
    }
}

/// All parameters of a model, concatenated in the order of `specs`. Threads divide parameters among
/// them; the stream of each is read in order.
#[must_use]
pub fn weights(seed: u64, specs: &[Spec]) -> Vec<f32> {
    let mut all = vec![0.0; specs.iter().map(Spec::len).sum()];
    let mut rest = all.as_mut_slice();
    let slice = |spec: &Spec| rest.split_off_mut(..spec.len()).unwrap_or_default();
    let slices: Vec<_> = specs.iter().map(slice).collect();
    specs.par_iter().zip(slices).for_each(|(spec, slice)| fill(seed, spec, slice));
    all
}

/// Draws one parameter into its slice, and rounds each number to f32 once.
fn fill(seed: u64, spec: &Spec, slice: &mut [f32]) {
    let mut stream = stream(seed, &spec.name);
    let mut put = |numbers: &mut dyn Iterator<Item = f64>| {
        for (element, number) in slice.iter_mut().zip(numbers) {
            *element = number as f32;
        }
    };
    match spec.init {
        Init::Constant(number) => slice.fill(number as f32),
        Init::Normal { std } => put(&mut normals(&mut stream).map(|z| std * z)),
        // The next number takes the place of one beyond the cut, so that none piles up at the cut.
        Init::TruncatedNormal { std, cut } => {
            put(&mut normals(&mut stream).filter(|z| z.abs() <= cut).map(|z| std * z));
        }
        Init::Uniform { bound } => {
            put(&mut std::iter::repeat_with(|| (2.0 * stream.unit() - 1.0) * bound));
        }
        Init::Orthogonal { gain } => {
            let columns = spec.shape.last().copied().unwrap_or(1);
            put(&mut orthogonal::matrix(normals(&mut stream), spec.len() / columns, columns)
                .map(|q| gain * q));
        }
        Init::Curve(curve) => put(&mut (0..).map(|i| curve.at(i))),
    }
}

/// The random numbers of the parameter of this name.
fn stream(seed: u64, name: &str) -> Draw {
    let mut material = seed.to_le_bytes().to_vec();
    material.extend_from_slice(name.as_bytes());
    Draw::keyed(&blake3::derive_key(CONTEXT, &material))
}

/// Standard normal numbers, two from each pair of uniform ones.
fn normals(stream: &mut Draw) -> impl Iterator<Item = f64> {
    let pair = || {
        // u1 lies above 0 and is at most 1; the sum is exact.
        let (u1, u2) = (stream.unit() + UNIT, stream.unit());
        let radius = libm::sqrt(-2.0 * libm::log(u1));
        [radius * libm::cos(TAU * u2), radius * libm::sin(TAU * u2)]
    };
    std::iter::repeat_with(pair).flatten()
}

/// Keeps these streams apart from all others of the program. It is part of every run's genesis:
/// another text would give other weights.
const CONTEXT: &str = "intellect-node 1 genesis";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::config::Work;

    fn spec(name: &str, length: usize, init: Init) -> Spec {
        Spec { name: name.to_owned(), shape: vec![length], init, group: Group::DECAYED }
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

    /// A normal cut at one deviation has the variance 1 − 2φ(1)/(Φ(1) − Φ(−1)) = 0.29112.
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
        // A longer parameter begins with the numbers of a shorter one, whatever its shape.
        let square = Spec { shape: vec![2, 4], ..spec("b", 8, normal) };
        assert_eq!(weights(7, &[square])[..5], alone);
    }

    #[test]
    fn a_constant_is_the_same_everywhere() {
        let specs = [spec("a", 2, Init::Constant(0.25)), spec("b", 3, Init::Constant(0.0))];
        assert_eq!(weights(1, &specs), [0.25, 0.25, 0.0, 0.0, 0.0]);
    }

    /// Worked by hand: 2 + 3·(i/4)² − 0.5, 0 or 0.5.
    #[test]
    fn a_curve_is_its_formula() {
        let curve = Curve { offset: 2.0, scale: 3.0, over: 4.0, exponent: 2.0, zigzag: 0.5 };
        let found = weights(1, &[spec("a", 5, Init::Curve(curve))]);
        assert_eq!(found, [2.0, 2.1875 + 0.5, 2.75 - 0.5, 3.6875, 5.0 + 0.5]);
    }

    /// Mean 0 and variance bound²/3, and nothing outside.
    #[test]
    fn a_uniform_parameter_stays_within_its_bound() {
        let all = weights(1, &[spec("a", 1 << 17, Init::Uniform { bound: 0.3 })]);
        let [mean, variance, ..] = moments(&all);
        assert!(mean.abs() < 1e-3 && (variance - 0.03).abs() < 3e-4, "{mean} {variance}");
        assert!(all.iter().all(|x| x.abs() <= 0.3) && all.iter().any(|x| x.abs() > 0.2999));
    }

    /// Replicas begin with these bits on every machine, so they must never change. The model is
    /// spelled out so that new defaults do not affect it. A 40-line Python program gave the same
    /// digest.
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
