//! Divides rows into tasks, copies and sums them.
//!
//! Work is divided into fixed chunks, which run on all threads, and partial sums are added in the
//! order of the chunks, so results do not depend on the number of threads. `lanes.rs` explains how
//! the loops become vector code.

use rayon::prelude::*;

use super::clock;
use super::lanes::{each, simd};

/// Rows that one task processes. The number of tasks, and so every sum over tasks, depends on it:
/// another number gives other bits.
pub(super) const ROWS: usize = 64;

/// Elements that one task processes, where rows do not matter: 64 KiB of each slice.
pub(super) const ELEMENTS: usize = 1 << 14;

/// Turns a body for element `i` into a function of whole slices of equal length, inputs before the
/// semicolon and outputs after it, which runs on all threads.
macro_rules! elementwise {
    ($(
        $(#[$doc:meta])*
        fn $name:ident$(<$S:ident>)?($($x:ident),*; $($y:ident),+) |$i:ident| $body:block
    )*) => {$(
        $(#[$doc])*
        fn $name($($x: &[f32],)* $($y: &mut [f32]),+) {
            $crate::ops::lanes::simd! {
                fn chunk<S>($($x: &[f32],)* $($y: &mut [f32]),+) {
                    $crate::ops::lanes::each!($(<$S>)? ($($x),*; $($y),+) |$i| $body);
                }
            }
            let inputs_and_outputs = (
                $($x.par_chunks($crate::ops::rows::ELEMENTS),)*
                $($y.par_chunks_mut($crate::ops::rows::ELEMENTS),)+
            );
            inputs_and_outputs
                .into_par_iter()
                .for_each(|($($x,)* $($y,)+)| chunk($($x,)* $($y),+));
        }
    )*};
}

pub(super) use elementwise;

simd! {
    /// Adds each row of x to y; a row has the length of y.
    fn add_rows<S>(x: &[f32], y: &mut [f32]) {
        let width = y.len();
        for x in x.chunks_exact(width) {
            each!((x; y) |i| { y[i] += x[i] });
        }
    }
}

/// y = x, on all threads. The slices have equal length.
pub(super) fn copy(y: &mut [f32], x: &[f32]) {
    let _timer = clock::start("residual");
    y.par_chunks_mut(ELEMENTS).zip(x.par_chunks(ELEMENTS)).for_each(|(y, x)| y.copy_from_slice(x));
}

/// Sets every row of y to `row`, on all threads.
pub(super) fn repeat(y: &mut [f32], row: &[f32]) {
    y.par_chunks_mut(ROWS * row.len()).for_each(|y| {
        for y in y.chunks_exact_mut(row.len()) {
            y.copy_from_slice(row);
        }
    });
}

/// y = Σ of the rows of x: chunks of rows on all threads, then the chunks in their order.
/// // x [N, D], y `[D]`
pub(super) fn sum_rows(x: &[f32], y: &mut [f32]) {
    let partial = x.par_chunks(ROWS * y.len()).map(|x| {
        let mut sum = vec![0.0; y.len()];
        add_rows(x, &mut sum);
        sum
    });
    add_up(&partial.collect::<Vec<_>>(), y);
}

/// sum = Σ of the parts, in their order. Each part has one or more rows of the sum's length.
pub(super) fn add_up(parts: &[Vec<f32>], sum: &mut [f32]) {
    sum.fill(0.0);
    for part in parts {
        add_rows(part, sum);
    }
}
