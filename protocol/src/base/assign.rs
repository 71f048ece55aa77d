//! Which data a peer trains on: the seed of its stream for one epoch.
//!
//! `seed = BLAKE3::derive_key("intellect-node 1 data", run ‖ epoch u64 LE ‖ peer)`. The model turns
//! (seed, step) into a batch. A pure function, so that anyone can repeat anyone's batches, and two
//! peers, or one peer in two epochs, never draw the same stream. It knows nothing about sources.

use crate::base::id::{Digest, PeerId, RunId};

/// The seed of `peer`'s stream in `epoch`, the epoch that it is about to train: its head + 1. A
/// peer that trains the same epoch again, as after a restart or on another lineage, draws the same
/// data again.
pub fn stream_seed(run: &RunId, epoch: u64, peer: &PeerId) -> [u8; 32] {
    let bytes = [&run.0[..], &epoch.to_le_bytes(), &peer.0].concat();
    Digest::derive("intellect-node 1 data", &bytes).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay must draw the same data, so the bytes are part of the format.
    #[test]
    fn seeds_are_golden_and_differ() {
        let seed = |run, epoch, peer| {
            Digest(stream_seed(&RunId([run; 32]), epoch, &PeerId([peer; 32]))).to_string()
        };
        assert_eq!(seed(1, 2, 3), "521f84a8");
        let others = [seed(2, 2, 3), seed(1, 3, 3), seed(1, 2, 4), seed(1, 2 << 32, 3)];
        assert!(others.iter().all(|other| *other != seed(1, 2, 3)), "{others:?}");
    }
}
