//! What the picture of this node shows that no event says: sampled a few times a second.

use std::time::{Duration, Instant};

use intellect_protocol::manifest::{Budget, Epoch};
use intellect_view::picture::gauge::{Gauge, Life, Training};

use super::events::unix_ms;
use super::times::ms;

/// The steps of the epoch that is being trained.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    /// The number of the epoch, which is 0 before the first step.
    epoch: u64,
    /// When this epoch's first step came.
    began: Instant,
    steps: u64,
    /// Their tokens, those of the first step included.
    tokens: u64,
    /// Tokens of the first step, whose length is not known.
    first_tokens: u64,
    /// When the first step ended, and when the last one did.
    stepped: Option<(Instant, Instant)>,
    /// Its mean over about the last ten steps.
    loss: f64,
    /// When a sample was taken last.
    sampled: Option<Instant>,
}

impl Sampler {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            epoch: 0,
            began,
            steps: 0,
            tokens: 0,
            first_tokens: 0,
            stepped: None,
            loss: 0.0,
            sampled: None,
        }
    }

    /// Counts one more step of this epoch.
    pub(super) fn step(&mut self, now: Instant, epoch: u64, loss: f64, tokens: u64) {
        if self.epoch != epoch || self.steps == 0 {
            let sampled = self.sampled;
            *self = Self { epoch, first_tokens: tokens, loss, sampled, ..Self::new(now) };
        }
        self.steps += 1;
        self.tokens += tokens;
        self.loss += (loss - self.loss) / 10.0;
        self.stepped = Some((self.stepped.map_or(now, |(first, _)| first), now));
    }

    /// The steps of this epoch are undone.
    pub(super) fn forget_steps(&mut self) {
        self.steps = 0;
    }

    /// Whether steps of this epoch were counted.
    pub(super) fn trains(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.steps > 0
    }

    /// Whether the last sample is old enough, and notes that one is taken.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.sampled.is_none_or(|at| now.saturating_duration_since(at) >= EVERY);
        if due {
            self.sampled = Some(now);
        }
        due
    }

    /// A sample for the picture while `epoch` is open, which may have no step yet; `silence` is the time since the
    /// last heartbeat of another peer.
    pub(super) fn gauge(
        &self,
        now: Instant,
        epoch: u64,
        rules: Epoch,
        grace: Duration,
        silence: Option<Duration>,
    ) -> Gauge {
        let t_ms = unix_ms();
        let stepped = self.stepped.map(|(_, last)| now.saturating_duration_since(last));
        let quiet = [silence, stepped].into_iter().flatten().min();
        let quiet = quiet.unwrap_or_else(|| now.saturating_duration_since(self.began));
        let life = Life { heard_ms: t_ms.saturating_sub(ms(quiet)), grace_ms: ms(grace) };
        let training = (self.epoch == epoch).then(|| self.training(now, rules));
        Gauge { t_ms, training, life, waits: false }
    }

    /// How far the epoch is by the run's own measure, and how fast it goes. The first step has no
    /// length, so its tokens do not count for the rate.
    #[expect(clippy::cast_precision_loss, reason = "a share and a rate for people")]
    fn training(&self, now: Instant, rules: Epoch) -> Training {
        let used = match rules.budget {
            Budget::Steps => self.steps,
            Budget::Tokens => self.tokens,
            Budget::Seconds => now.saturating_duration_since(self.began).as_secs(),
        };
        let share = (used as f64 / rules.amount.max(1) as f64).min(1.0);
        let seconds = self.stepped.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let counted = self.tokens.saturating_sub(self.first_tokens) as f64;
        let tokens_per_s = (seconds > 0.0).then(|| counted / seconds);
        let loss = self.loss.is_finite().then_some(self.loss);
        Training { tokens: self.tokens, share, loss, tokens_per_s }
    }
}

/// The time between two samples, at least.
const EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_one_epoch_and_knows_the_share_and_the_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let rules = Epoch {
            budget: Budget::Steps,
            amount: 10,
            ..intellect_protocol::manifest::Run::new(
                intellect_protocol::base::id::PeerId([1; 32]),
                1,
            )
            .epoch
        };
        let mut sampler = Sampler::new(start);
        let grace = Duration::from_secs(8);
        assert_eq!(sampler.gauge(at(0), 4, rules, grace, None).training, None);
        sampler.step(at(1_000), 4, 3.0, 100);
        sampler.step(at(2_000), 4, 3.0, 100);
        sampler.step(at(3_000), 4, 2.0, 100);
        let gauge = sampler.gauge(at(3_500), 4, rules, grace, Some(Duration::from_secs(1)));
        let training = gauge.training.unwrap();
        assert_eq!((training.tokens, training.share), (300, 0.3));
        assert_eq!((training.tokens_per_s, training.loss), (Some(100.0), Some(2.9)));
        assert_eq!(gauge.t_ms - gauge.life.heard_ms, 500, "the last step is the last sign");
        let next = sampler.gauge(at(3_900), 5, rules, grace, None);
        assert_eq!(next.training, None, "the steps of the epoch before do not count");
        assert_eq!(next.t_ms - next.life.heard_ms, 900, "but they are a sign of life");
        sampler.step(at(4_000), 5, 1.0, 100);
        let training = sampler.gauge(at(4_000), 5, rules, grace, None).training.unwrap();
        assert_eq!((training.tokens, training.tokens_per_s), (100, None));
        assert!(
            sampler.is_due(at(4_000)) && !sampler.is_due(at(4_200)) && sampler.is_due(at(4_250))
        );
    }
}
