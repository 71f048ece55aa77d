//! Mutants: bytes that were an example and have been changed.

use intellect_protocol::base::rng::Rng;

/// Longest mutant in bytes: a longer one only repeats the cases of shorter ones.
const BYTES_MAX: usize = 64 << 10;

/// The marks that bincode writes before numbers of 2, 4, 8 and 16 bytes,
/// and the ends of a byte's range.
const MARKS: [u8; 8] = [0, 1, 0x7f, 0x80, 0xfb, 0xfc, 0xfd, 0xff];

/// One of `examples`, changed in one to eight positions.
pub(crate) fn draw(examples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| rng.pick(examples).cloned().unwrap_or_default();
    let mut bytes = pick(rng);
    for _ in 0..=rng.below(8).min(rng.below(8)) {
        change(&mut bytes, &pick(rng), rng);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = below(rng, bytes.len() + 1);
    let range = at..(at + below(rng, 40)).min(bytes.len());
    match rng.below(9) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = mark(rng)),
        2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = mark(rng)),
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(range)),
        5 => bytes.insert(at, mark(rng)),
        // A range is repeated, rarely so often that a list gets long.
        6 => {
            let times = if rng.below(500) == 0 { 2_000 } else { 2 };
            let again = bytes.get(range.clone()).unwrap_or_default().repeat(times);
            bytes.splice(at..at, again.into_iter().take(BYTES_MAX));
        }
        // The number before it may be the length of a list.
        7 => {
            let great = [0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
            bytes.splice(at..(at + 1).min(bytes.len()), great.into_iter().take(1 + below(rng, 9)));
        }
        _ => {
            let from = below(rng, other.len() + 1);
            bytes.splice(at.., other.iter().copied().skip(from));
        }
    }
}

fn mark(rng: &mut Rng) -> u8 {
    let byte = u8::try_from(rng.below(256)).unwrap_or_default();
    if rng.chance(0.5) { rng.pick(&MARKS).copied().unwrap_or(byte) } else { byte }
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or_default()
}
