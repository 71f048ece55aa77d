//! The inner learning rate: warmup–stable–decay over the run's tokens, and a ramp for peers that
//! join.
//!
//! The schedule follows the tokens that the *run* has committed, not those of one peer, so that a
//! late peer has the same rate as the others. Let t be the committed tokens plus those that this
//! peer has trained since, and W, S, D the three lengths (Hu et al. 2024, arXiv 2404.06395):
//!
//! ```text
//! f(t) = s + (1 − s)·t / W              t < W, s the share of the peak that it rises from
//!        1                              t < W + S, and always when D = 0
//!        e + (1 − e)·g((t − W − S) / D) t < W + S + D, e the final learning rate over the peak
//!        e                              then
//! ```
//!
//! The manifest chooses the curve g ([`Decay`]): INTELLECT-1 falls with the root (Jaghouar et al.
//! 2024, arXiv 2412.01152), Eagle and Finch with a cosine from the end of the warmup on (S = 0),
//! GoldFinch with a quarter of one.
//!
//! A peer whose Adam moments are cold takes noisy steps of full length, so step n of its first k is
//! limited to n/k of the peak. The smaller of the two factors counts.

use std::f64::consts::{FRAC_PI_2, PI};

use crate::config::{Decay, Train};

/// The learning rate of the step that brings the run to `tokens` tokens and is the `steps`-th since
/// this peer's Adam moments were cold. Both counts include the step itself, so that the first step
/// already learns.
#[must_use]
pub fn lr(train: &Train, tokens: u64, steps: u64) -> f64 {
    train.lr * wsd(train, tokens).min(join(train.join_ramp_steps, steps))
}

/// The rest of the schedule after `tokens` committed tokens, as a schedule of its own:
/// f'(t) = f(tokens + t).
///
/// `None` once the rate falls, since only a linear decay could start in its middle.
#[must_use]
pub fn after(train: &Train, tokens: u64) -> Option<Train> {
    let Train { warmup_tokens: warmup, warmup_start: start, stable_tokens, decay_tokens, .. } =
        *train;
    if tokens < warmup {
        // The same line from a later point: s' = f(tokens), and W' ends where W did.
        let warmup_start = start + (1.0 - start) * tokens as f64 / warmup as f64;
        return Some(Train { warmup_tokens: warmup - tokens, warmup_start, ..train.clone() });
    }
    let over = tokens - warmup;
    // Without a decay the peak never ends.
    let left =
        if decay_tokens == 0 { Some(stable_tokens) } else { stable_tokens.checked_sub(over) };
    Some(Train { warmup_tokens: 0, warmup_start: 0.0, stable_tokens: left?, ..train.clone() })
}

/// f(t), the share of the peak at `tokens` committed tokens.
fn wsd(train: &Train, tokens: u64) -> f64 {
    let (start, warmup) = (train.warmup_start, train.warmup_tokens);
    if tokens < warmup {
        return start + (1.0 - start) * tokens as f64 / warmup as f64;
    }
    let over = (tokens - warmup).saturating_sub(train.stable_tokens);
    if train.decay_tokens == 0 || over == 0 {
        return 1.0;
    }
    let end = train.lr_final / train.lr;
    end + (1.0 - end) * fall(train.decay, (over as f64 / train.decay_tokens as f64).min(1.0))
}

/// n/k, and 1 from step k on; a ramp of 0 has no effect.
fn join(ramp: u64, steps: u64) -> f64 {
    if steps < ramp { steps as f64 / ramp as f64 } else { 1.0 }
}

/// g(x), for x from 0 to 1: from 1 down to 0.
fn fall(curve: Decay, x: f64) -> f64 {
    match curve {
        Decay::OneMinusSqrt => 1.0 - x.sqrt(),
        Decay::Linear => 1.0 - x,
        Decay::Cosine => 0.5 + 0.5 * libm::cos(PI * x),
        Decay::QuarterCosine => libm::cos(FRAC_PI_2 * x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Work;

    fn train() -> Train {
        Train {
            lr: 0.5,
            warmup_tokens: 100,
            warmup_start: 0.0,
            stable_tokens: 300,
            decay_tokens: 400,
            decay: Decay::OneMinusSqrt,
            lr_final: 0.0,
            join_ramp_steps: 4,
            ..Work::synthetic().train
        }
    }

    #[test]
    fn it_warms_up_stays_and_falls() {
        let lr = |tokens| lr(&train(), tokens, 1000);
        assert_eq!([0, 25, 50, 100, 250, 400].map(lr), [0.0, 0.125, 0.25, 0.5, 0.5, 0.5]);
        assert_eq!([500, 625, 800, 801, u64::MAX].map(lr), [0.25, 0.125, 0.0, 0.0, 0.0]);
    }

    /// After a quarter and half of the decay, and at its end, which is a fifth of the peak.
    #[test]
    fn every_curve_falls_to_the_final_rate() {
        let (root, quarter) = (0.5_f64.sqrt(), (PI / 8.0).cos());
        for (decay, [early, half]) in [
            (Decay::OneMinusSqrt, [0.5, 1.0 - root]),
            (Decay::Linear, [0.75, 0.5]),
            (Decay::Cosine, [0.5 + 0.5 * root, 0.5]),
            (Decay::QuarterCosine, [quarter, root]),
        ] {
            let train = Train { decay, lr_final: 0.1, ..train() };
            let expected = [early, half, 0.0, 0.0].map(|g| 0.5 * (0.2 + 0.8 * g));
            for (tokens, expected) in [500, 600, 800, 900].into_iter().zip(expected) {
                let found = lr(&train, tokens, 1000);
                assert!((found - expected).abs() < 1e-12, "{decay:?} at {tokens}: {found}");
            }
        }
    }

    /// RWKV-LM warms up by 0.01 + 0.99·step/warm.
    #[test]
    fn a_warmup_may_start_above_zero() {
        let train = Train { warmup_start: 0.01, ..train() };
        let lr = |tokens| lr(&train, tokens, 1000);
        assert_eq!([0, 50, 100].map(lr), [0.005, 0.5 * 0.505, 0.5]);
    }

    /// In the warmup, at its end, on the peak and at its end.
    #[test]
    fn what_is_left_of_a_schedule_goes_on_as_the_whole_would() {
        let whole = Train { warmup_start: 0.1, ..train() };
        for begin in [0, 40, 100, 250, 400] {
            let rest = after(&whole, begin).unwrap();
            for tokens in [1, 30, 60, 100, 200, 360, 500, 1000] {
                let (found, expected) = (lr(&rest, tokens, 1000), lr(&whole, begin + tokens, 1000));
                assert!((found - expected).abs() < 1e-12, "{begin} + {tokens}: {found} {expected}");
            }
        }
        assert_eq!([401, 900].map(|begin| after(&whole, begin)), [None, None]);
        let level = Train { decay_tokens: 0, ..train() };
        assert_eq!(after(&level, u64::MAX).unwrap().stable_tokens, level.stable_tokens);
    }

    #[test]
    fn without_decay_it_never_falls() {
        let train = Train { decay: Decay::Cosine, decay_tokens: 0, ..train() };
        assert_eq!(lr(&train, u64::MAX, 1000), 0.5);
    }

    #[test]
    fn without_warmup_it_starts_at_the_peak() {
        assert_eq!(lr(&Train { warmup_tokens: 0, ..train() }, 0, 1000), 0.5);
    }

    #[test]
    fn cold_moments_ramp_up() {
        let lr = |ramp, tokens, n| lr(&Train { join_ramp_steps: ramp, ..train() }, tokens, n);
        assert_eq!([1, 2, 3, 4, 5].map(|n| lr(4, 200, n)), [0.125, 0.25, 0.375, 0.5, 0.5]);
        assert_eq!(lr(0, 200, 1), 0.5);
        // In the warmup the smaller factor counts, not the product.
        assert_eq!(lr(4, 50, 3), 0.25);
    }
}
