//! A random matrix with orthonormal rows or columns, the same bits on every machine.
//!
//! Normal vectors are made orthonormal one after the other (Gram and Schmidt; for independent
//! normal vectors the result is uniform over all such matrices):
//!
//! ```text
//! q_j = v_j / ‖v_j‖,   v_i ← v_i − ⟨q_j, v_i⟩ q_j   for all i > j
//! ```
//!
//! [`PANEL`] vectors are finished before they are subtracted from all later ones, a stretch of
//! [`STRETCH`] elements at a time, so that the data stays in a cache. That costs 2·k²·n operations
//! for k vectors of length n. All arithmetic is f64; a scalar product is [`LANES`] partial sums in
//! a fixed order, no operation is fused, and threads divide vectors among them, never a sum. So the
//! result depends neither on the processor nor on the number of threads. The error that rounding
//! leaves in the orthogonality is far below one unit of f32.

use rayon::prelude::*;

use crate::ops::lanes::simd;

/// The elements of a [rows, columns] matrix, row by row. It takes as many normal numbers as it has
/// elements.
pub(super) fn matrix(
    normals: impl Iterator<Item = f64>,
    rows: usize,
    columns: usize,
) -> impl Iterator<Item = f64> {
    let (count, length) = (rows.min(columns), rows.max(columns));
    let mut vectors: Vec<f64> = normals.take(count * length).collect();
    orthonormalise(&mut vectors, length);
    // Vectors are the rows of a wide matrix and the columns of a tall one.
    let (row, column) = if rows <= columns { (length, 1) } else { (1, length) };
    (0..rows * columns).map(move |i| vectors[i / columns * row + i % columns * column])
}

/// Makes vectors of this length orthonormal in their order. There are at most as many as they are
/// long.
fn orthonormalise(vectors: &mut [f64], length: usize) {
    let mut rest = vectors;
    while !rest.is_empty() {
        let (panel, later) = rest.split_at_mut(rest.len().min(PANEL * length));
        for end in (length..=panel.len()).step_by(length) {
            let (done, after) = panel.split_at_mut(end);
            let newest = &mut done[end - length..];
            scale(newest, 1.0 / dot(newest, newest).sqrt());
            after.par_chunks_mut(length).for_each(|vector| project_out(vector, newest, length));
        }
        later
            .par_chunks_mut(GROUP * length)
            .for_each(|vectors| project_out(vectors, panel, length));
        rest = later;
    }
}

/// Subtracts from `vectors` their projection onto the orthonormal `basis`. All products are taken
/// before anything is subtracted.
fn project_out(vectors: &mut [f64], basis: &[f64], length: usize) {
    let stretches = || (0..length).step_by(STRETCH).map(|at| at..length.min(at + STRETCH));
    let count = basis.len() / length;
    let mut shares = vec![0.0; vectors.len() / length * count];
    for stretch in stretches() {
        for (vector, shares) in vectors.chunks(length).zip(shares.chunks_mut(count)) {
            for (q, share) in basis.chunks(length).zip(shares) {
                *share += dot(&q[stretch.clone()], &vector[stretch.clone()]);
            }
        }
    }
    for stretch in stretches() {
        for (vector, shares) in vectors.chunks_mut(length).zip(shares.chunks(count)) {
            for (q, share) in basis.chunks(length).zip(shares) {
                subtract(&mut vector[stretch.clone()], *share, &q[stretch.clone()]);
            }
        }
    }
}

/// Multiplies each element by the factor.
fn scale(vector: &mut [f64], factor: f64) {
    for x in vector {
        *x *= factor;
    }
}

simd! {
    /// Σ aᵢ·bᵢ in 32 partial sums. Nothing is fused: multiply and add round apart.
    fn dot<S>(a: &[f64], b: &[f64]) -> f64 {
        let mut lanes = [0.0; LANES];
        let (a_blocks, a_rest) = a.as_chunks::<LANES>();
        let (b_blocks, b_rest) = b.as_chunks::<LANES>();
        for (a, b) in a_blocks.iter().zip(b_blocks) {
            for i in 0..LANES {
                lanes[i] += a[i] * b[i];
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane += a * b;
        }
        let mut sum = 0.0;
        for lane in lanes {
            sum += lane;
        }
        sum
    }

    /// a ← a − s·b, without fusing the two.
    fn subtract<S>(a: &mut [f64], s: f64, b: &[f64]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a -= s * b;
        }
    }
}

/// Partial sums of a scalar product: four AVX-512 registers.
const LANES: usize = 32;
/// Vectors that are finished together.
const PANEL: usize = 32;
/// Elements of each vector that are processed at a time: those of a panel take 256 KiB, a share of
/// the L2 cache.
const STRETCH: usize = 1024;
/// Later vectors that one task takes, so that one read of a panel serves several.
const GROUP: usize = 8;

#[cfg(test)]
mod tests {
    use crate::genesis::{Init, Spec, weights};
    use crate::optim::Group;

    fn draw(rows: usize, columns: usize, gain: f64) -> Vec<f32> {
        let (name, shape) = ("q".to_owned(), vec![rows, columns]);
        let spec = Spec { name, shape, init: Init::Orthogonal { gain }, group: Group::DECAYED };
        weights(3, &[spec])
    }

    /// Largest distance of the smaller Gram matrix from gain²·I, over gain².
    fn error(matrix: &[f32], rows: usize, columns: usize, gain: f64) -> f64 {
        let (count, length) = (rows.min(columns), rows.max(columns));
        let at = |vector: usize, i: usize| {
            let place = if rows <= columns { vector * columns + i } else { i * columns + vector };
            f64::from(matrix[place])
        };
        let distance = |a: usize, b: usize| {
            let product: f64 = (0..length).map(|i| at(a, i) * at(b, i)).sum();
            (product / (gain * gain) - f64::from(u8::from(a == b))).abs()
        };
        let pairs = (0..count).flat_map(|a| (0..=a).map(move |b| (a, b)));
        pairs.map(|(a, b)| distance(a, b)).fold(0.0, f64::max)
    }

    #[test]
    fn the_smaller_gram_matrix_is_gain_squared() {
        for (rows, columns) in [(1, 1), (1, 5), (5, 1), (64, 64), (33, 100), (1100, 70), (70, 1100)]
        {
            for gain in [1.0, 0.1] {
                let error = error(&draw(rows, columns, gain), rows, columns, gain);
                assert!(error < 1e-6, "[{rows}, {columns}] times {gain}: {error}");
            }
        }
    }

    /// Replicas begin with these bits on every machine, so they must never change. Householder
    /// reflections of the same draws (numpy, LAPACK) gave the same digest.
    #[test]
    fn an_orthogonal_matrix_is_golden_on_any_number_of_threads() {
        let digest = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let matrix = pool.install(|| draw(90, 1200, 0.5));
            let bytes: Vec<_> = matrix.iter().flat_map(|x| x.to_le_bytes()).collect();
            blake3::hash(&bytes).to_hex().to_string()
        };
        let golden = "1d556ee4cdbaf24e2ecf459bc813a622c0c58bf9c774edb6d6bc998156428318";
        assert_eq!([1, 2, 3].map(digest), [golden; 3]);
    }
}
