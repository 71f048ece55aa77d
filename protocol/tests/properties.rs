//! Properties of values and functions, over random inputs.
#![allow(clippy::unwrap_used, reason = "a test helper is a test too")]

use intellect_protocol::base::blocks::BLOCK;
use intellect_protocol::base::rng::Rng;
use intellect_protocol::ring::codec::Codec;
use intellect_protocol::ring::codec::reduce::Share;
use intellect_protocol::ring::{Cut, FRAME};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Failures that were found once are tested again: their seeds are in a file next to this one.
fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..ProptestConfig::default() }
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::F32), Just(Codec::Int8)]
}

fn encoded(codec: Codec, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xee; codec.encoded_bytes(values.len())];
    codec.encode(values, &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(config())]

    /// No element moves by more than half a step of its block's scale.
    #[test]
    fn int8_error_is_at_most_half_a_step(
        values in prop::collection::vec(-1e3_f32..1e3, 0..700),
        exponent in -30..30,
    ) {
        let values: Vec<f32> = values.iter().map(|value| value * 2.0_f32.powi(exponent)).collect();
        let bytes = encoded(Codec::Int8, &values);
        let mut back = vec![0.0; values.len()];
        Codec::Int8.decode(&bytes, &mut back).unwrap();
        for (values, back) in values.chunks(BLOCK).zip(back.chunks(BLOCK)) {
            let absmax = values.iter().fold(0.0, |max: f32, value| max.max(value.abs()));
            for (value, back) in values.iter().zip(back) {
                // Half a step, and the rounding of x · (1/scale) at up to 127 steps.
                prop_assert!((value - back).abs() <= absmax / 254.0 * 1.000_1, "{value} {back}");
            }
        }
    }

    #[test]
    fn f32_round_trips_every_finite_bit(bits in prop::collection::vec(any::<u32>(), 0..600)) {
        let finite = |bits: &u32| Some(f32::from_bits(*bits)).filter(|value| value.is_finite());
        let values: Vec<f32> = bits.iter().filter_map(finite).collect();
        let mut back = vec![1.0; values.len()];
        Codec::F32.decode(&encoded(Codec::F32, &values), &mut back).unwrap();
        let bits_of = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits_of(&back), bits_of(&values));
    }

    /// Chunks and frames are slices of one byte string, since blocks are encoded one by one.
    #[test]
    fn blocks_are_encoded_one_by_one(
        codec in codecs(),
        values in prop::collection::vec(-1e3_f32..1e3, 0..1500),
        cut in 0..5_usize,
    ) {
        let cut = (cut * BLOCK).min(values.len());
        let mut parts = encoded(codec, &values[..cut]);
        parts.extend(encoded(codec, &values[cut..]));
        prop_assert_eq!(parts, encoded(codec, &values));
    }

    /// Whatever a peer sends decodes to an error or to finite numbers.
    #[test]
    fn garbage_decodes_to_finite_numbers_or_not_at_all(
        codec in codecs(),
        bytes in prop::collection::vec(any::<u8>(), 0..1100),
        scale in any::<u32>(),
        elements in 0..1100_usize,
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_chunk_mut() {
            *first = scale.to_le_bytes();
        }
        let fits = (0..=bytes.len()).find(|count| codec.encoded_bytes(*count) == bytes.len());
        for elements in fits.into_iter().chain([elements]) {
            let mut values = vec![0.0; elements];
            if codec.decode(&bytes, &mut values).is_ok() {
                prop_assert!(values.iter().all(|value| value.is_finite()));
            }
        }
    }

    /// D3: the chunks partition the fragment, the frames partition each chunk, all at whole blocks.
    #[test]
    fn d3_chunks_and_frames_partition_the_fragment(
        elements in prop_oneof![0..3000_usize, 0..40 * FRAME],
        members in 1..257_usize,
    ) {
        let cut = Cut::new(elements, members);
        let mut next = 0;
        let mut blocks = Vec::new();
        for chunk in 0..members {
            prop_assert_eq!(cut.chunk(chunk).start, next);
            for frame in 0..cut.frame_count(chunk) {
                let range = cut.frame(chunk, frame);
                prop_assert_eq!(range.start, next);
                prop_assert_eq!(range.start % BLOCK, 0);
                prop_assert!(!range.is_empty() && range.len() <= FRAME);
                next = range.end;
            }
            prop_assert_eq!(cut.chunk(chunk).end, next);
            blocks.push(cut.chunk(chunk).len().div_ceil(BLOCK));
        }
        prop_assert_eq!(next, elements);
        let (least, most) = (blocks.iter().min().unwrap(), blocks.iter().max().unwrap());
        prop_assert!(most - least <= 1, "unequal chunks: {:?}", blocks);
    }

    /// D3: on its way a chunk meets every position once, ends at its owner, and from there
    /// meets every other position once more. What one position sends must reach its
    /// successor before the next hop.
    #[test]
    fn d3_every_member_adds_to_each_chunk_once(members in 1..40_usize) {
        let cut = Cut::new(members * BLOCK, members);
        // At hop 0 position `first` sends chunk `first`, and at each hop the chunk before.
        let sent = |first: usize, hop: usize| (first + members - hop) % members;
        for chunk in 0..members {
            let mut added = vec![0; members];
            let mut held = vec![0; members];
            let mut at = chunk;
            added[at] += 1;
            for hop in 0..members - 1 {
                prop_assert_eq!(sent(at, hop), chunk);
                at = (at + 1) % members;
                added[at] += 1;
            }
            prop_assert_eq!(at, cut.owner(chunk));
            held[at] += 1;
            for hop in 0..members - 1 {
                prop_assert_eq!(sent(at + 1, hop), chunk);
                at = (at + 1) % members;
                held[at] += 1;
            }
            prop_assert!(added.iter().chain(&held).all(|count| *count == 1), "{added:?} {held:?}");
        }
    }
}

/// The mean that a ring of `members` computes, by the real cut and schedule.
fn ring_mean(codec: Codec, deltas: &[Vec<f32>], weights: &[u64]) -> Vec<f32> {
    let (elements, members) = (deltas[0].len(), deltas.len());
    let cut = Cut::new(elements, members);
    let mut mean = vec![0.0; elements];
    for chunk in 0..members {
        for frame in 0..cut.frame_count(chunk) {
            let range = cut.frame(chunk, frame);
            let mut bytes = vec![0; codec.encoded_bytes(range.len())];
            let mut out = bytes.clone();
            for hop in 0..members {
                let position = (chunk + hop) % members;
                let delta = &deltas[position][range.clone()];
                let share = Share { codec, weight: weights[position], delta };
                match hop {
                    0 => share.start(&mut out),
                    _ if position == cut.owner(chunk) => {
                        share.finish(&bytes, weights.iter().sum(), &mut out)
                    }
                    _ => share.add(&bytes, &mut out),
                }
                .unwrap();
                std::mem::swap(&mut bytes, &mut out);
            }
            codec.decode(&bytes, &mut mean[range]).unwrap();
        }
    }
    mean
}

/// The target of the project: a ring of eight stays within 2.5 % of the exact mean.
#[test]
fn ring_of_eight_is_near_the_exact_mean() {
    let (members, elements) = (8, 3 * FRAME + 77);
    let mut rng = Rng::new(8);
    let mut gaussian = || -> f32 {
        let (radius, angle) = (1.0 - rng.unit(), std::f64::consts::TAU * rng.unit());
        ((-2.0 * radius.ln()).sqrt() * angle.cos() * 1e-3) as f32
    };
    let deltas: Vec<Vec<f32>> =
        (0..members).map(|_| (0..elements).map(|_| gaussian()).collect()).collect();
    let weights: Vec<u64> = (0..members as u64).map(|index| 10_000 + 700 * index).collect();
    let total: u64 = weights.iter().sum();
    let exact = |index: usize| -> f64 {
        let terms = deltas.iter().zip(&weights).map(|(d, w)| f64::from(d[index]) * *w as f64);
        terms.sum::<f64>() / total as f64
    };
    for (codec, bound) in [(Codec::F32, 1e-6), (Codec::Int8, 0.025)] {
        let mean = ring_mean(codec, &deltas, &weights);
        let (mut error, mut norm) = (0.0, 0.0);
        for (index, value) in mean.iter().enumerate() {
            error += (f64::from(*value) - exact(index)).powi(2);
            norm += exact(index).powi(2);
        }
        let relative = (error / norm).sqrt();
        println!("ring of {members}, {codec:?}: {:.4} % from the exact mean", 100.0 * relative);
        assert!(relative <= bound, "{codec:?}: {relative}");
    }
}
