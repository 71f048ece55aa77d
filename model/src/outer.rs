//! The outer optimiser: what one agreed update does to the agreed parameters.
//!
//! DiLoCo (Douillard et al. 2023, arXiv 2311.08105): peers train independently. Each has a delta,
//! which it would subtract from the common parameters. The mean delta is treated as a gradient, and
//! SGD with Nesterov momentum takes one step on it:
//!
//! ```text
//! v ← μ_e·v + Δ                    Δ  the mean of the peers' deltas, as everyone decoded it
//! θ ← θ − η·(Δ + μ_e·v)            θ  the agreed parameters, v the outer momentum
//! μ_e = μ · min(e, N) / N          e  the epoch, N the ramp; N = 0: μ_e = μ
//! ```
//!
//! The ramp exists because v starts at zero, and a μ near 1 overshoots while few epochs have been
//! averaged. Every peer computes the step itself, and all must get the same bits on any hardware:
//! f32, the operations in the written order, none fused, element by element. With η = 1, μ = 0 and
//! one peer, θ becomes that peer's local parameters (up to rounding).
//!
//! This file does not average, and knows no peer and no device.

/// The outer optimiser's settings, the manifest's `[outer]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outer {
    /// η, the outer learning rate; 1 applies the whole mean delta, 0 none of it.
    pub lr: f32,
    /// μ, the outer momentum, from 0 to below 1. At 1 no update ever fades.
    pub momentum: f32,
    /// N, the epochs over which the momentum rises to μ; 0 means from the start.
    pub momentum_ramp_epochs: u64,
}

impl Outer {
    /// μ_e, the momentum in `epoch`; the first commit is epoch 1.
    #[must_use]
    pub fn momentum_in(&self, epoch: u64) -> f32 {
        if epoch >= self.momentum_ramp_epochs {
            return self.momentum;
        }
        self.momentum * epoch as f32 / self.momentum_ramp_epochs as f32
    }

    /// η/(1 − μ), the steady gain: how far an epoch moves θ for each unit of a constant Δ, once the
    /// ramp and the start are over. Infinite where μ is 1.
    #[must_use]
    pub fn gain(&self) -> f64 {
        f64::from(self.lr) / (1.0 - f64::from(self.momentum))
    }

    /// Takes one outer step in place: commits `delta` as `epoch`.
    ///
    /// It saturates: no update, however large, leads out of the finite numbers. What a member sends
    /// may spoil the weights, but must not end every node.
    ///
    /// # Panics
    /// If the three slices, which belong to the same parameters, differ in length.
    pub fn step(&self, epoch: u64, delta: &[f32], theta: &mut [f32], momentum: &mut [f32]) {
        assert_eq!(theta.len(), delta.len(), "a delta for every parameter");
        assert_eq!(theta.len(), momentum.len(), "a momentum for every parameter");
        let (eta, mu) = (self.lr, self.momentum_in(epoch));
        for ((theta, v), &d) in theta.iter_mut().zip(momentum).zip(delta) {
            *v = finite(mu * *v + d);
            *theta = finite(*theta - eta * finite(d + mu * *v));
        }
    }
}

/// The finite number that is closest to an infinite one.
fn finite(x: f32) -> f32 {
    x.clamp(f32::MIN, f32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers in −1 … 1 with many bits set, from integers alone.
    fn numbers(seed: u32, count: usize) -> Vec<f32> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn digest(slices: [&[f32]; 2]) -> String {
        let mut hasher = blake3::Hasher::new();
        for number in slices.into_iter().flatten() {
            hasher.update(&number.to_le_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Three steps from fixed numbers. Replicas depend on these bits, so they must never change.
    /// A Python program that rounds each operation explicitly gave the same digests.
    #[test]
    fn three_outer_steps_are_golden() {
        let outer = Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 };
        let (mut theta, mut v) = (numbers(1, 1000), vec![0.0; 1000]);
        let golden = [
            "c5725e181cd00bf2677e232fe6ba2f46a11c6f41b311d869cd27ff11bdee2212",
            "b28ed1e10c3357f60e1fb37a11df9ad09bf1a50ace711ca50cc3347c608a12a3",
            "bd2e68f94f21489509d5ce7b396b6457dca55a93b864d0c298f968cacab11855",
        ];
        for (epoch, golden) in (1..).zip(golden) {
            let delta = numbers(100 + epoch as u32, 1000);
            outer.step(epoch, &delta, &mut theta, &mut v);
            assert_eq!(digest([&theta, &v]), golden, "after step {epoch}");
        }
    }

    /// Computed by hand in the same order: v = 0.5·2 + 4 = 5, θ = 10 − 0.25·(4 + 0.5·5) = 8.375.
    #[test]
    fn one_step_by_hand() {
        let outer = Outer { lr: 0.25, momentum: 0.5, momentum_ramp_epochs: 0 };
        let (mut theta, mut v) = ([10.0], [2.0]);
        outer.step(1, &[4.0], &mut theta, &mut v);
        assert_eq!((theta, v), ([8.375], [5.0]));
    }

    #[test]
    fn no_update_leads_out_of_the_finite_numbers() {
        for (lr, momentum) in [(0.7, 0.6), (10.0, 0.999), (0.0, 0.9)] {
            let outer = Outer { lr, momentum, momentum_ramp_epochs: 10 };
            let (mut theta, mut v) = ([1.0, -1.0], [0.0, 0.0]);
            for epoch in 1..=30 {
                let d = if epoch < 20 { f32::MAX } else { f32::MIN };
                outer.step(epoch, &[d, -d], &mut theta, &mut v);
                assert!(theta.iter().chain(&v).all(|x| x.is_finite()), "{outer:?} in {epoch}");
            }
        }
    }

    #[test]
    fn momentum_rises_over_the_ramp_and_stays() {
        let outer = Outer { lr: 0.7, momentum: 0.6, momentum_ramp_epochs: 10 };
        assert_eq!(outer.momentum_in(1).to_bits(), (0.6_f32 * 1.0 / 10.0).to_bits());
        assert_eq!(outer.momentum_in(9).to_bits(), (0.6_f32 * 9.0 / 10.0).to_bits());
        assert_eq!([10, 11, u64::MAX].map(|e| outer.momentum_in(e)), [0.6; 3]);
        let none = Outer { momentum_ramp_epochs: 0, ..outer };
        assert_eq!([0, 1].map(|e| none.momentum_in(e)), [0.6; 2]);
    }

    /// A delta that is the same in every epoch moves θ by the gain, here 1.75, 7 and 1.
    #[test]
    fn the_gain_is_what_a_steady_delta_leads_to() {
        for (lr, momentum, gain) in [(0.7, 0.6, 1.75), (0.7, 0.9, 7.0), (0.1, 0.9, 1.0)] {
            let outer = Outer { lr, momentum, momentum_ramp_epochs: 10 };
            let (mut theta, mut v, mut before) = ([0.0], [0.0], 0.0);
            for epoch in 1..=300 {
                before = theta[0];
                outer.step(epoch, &[1.0], &mut theta, &mut v);
            }
            let moved = f64::from(before - theta[0]);
            assert!((moved - gain).abs() < 1e-3, "{outer:?} moves {moved}");
            assert!((outer.gain() - gain).abs() < 1e-5, "{outer:?} has {}", outer.gain());
        }
    }

    proptest! {
        /// An element's result depends on that element alone, wherever a slice is cut.
        #[test]
        fn a_step_may_be_cut_anywhere(seed: u32, count in 1_usize..300, cut in 0_usize..300) {
            let cut = cut.min(count);
            let outer = Outer { lr: 0.7, momentum: 0.9, momentum_ramp_epochs: 3 };
            let delta = numbers(seed, count);
            let (mut theta, mut v) = (numbers(seed ^ 1, count), numbers(seed ^ 2, count));
            let (mut left, mut right) = (theta.clone(), v.clone());
            outer.step(2, &delta, &mut theta, &mut v);
            outer.step(2, &delta[..cut], &mut left[..cut], &mut right[..cut]);
            outer.step(2, &delta[cut..], &mut left[cut..], &mut right[cut..]);
            prop_assert_eq!((left, right), (theta, v));
        }

        /// With η = 1 and μ = 0 a single peer's outer step leads to its own local parameters.
        #[test]
        fn the_identity_step_leads_to_the_local_parameters(seed: u32) {
            let identity = Outer { lr: 1.0, momentum: 0.0, momentum_ramp_epochs: 0 };
            let (anchor, local) = (numbers(seed, 64), numbers(seed ^ 9, 64));
            let delta: Vec<f32> = anchor.iter().zip(&local).map(|(a, l)| a - l).collect();
            let (mut theta, mut v) = (anchor, vec![0.5; 64]);
            identity.step(1, &delta, &mut theta, &mut v);
            for (theta, local) in theta.iter().zip(&local) {
                prop_assert!((theta - local).abs() <= 3e-7);
            }
        }
    }
}
