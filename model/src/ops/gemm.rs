//! Strided matrix views over `f32` slices, and the matrix product on which everything else is
//! built.
//!
//! A view is a window (offset, rows, columns, two strides) into a slice, checked once when it is
//! created. Transposing, taking a range of rows and splitting off columns cost nothing, so no
//! operator packs or copies an operand. Queries, keys and values are read from the packed rows of
//! one projection, and heads are written next to each other. [`MatMut`] can be split into disjoint
//! column windows whose elements interleave in memory. Slices cannot express that; therefore the
//! views contain pointers, and this file has an unsafe implementation behind a safe interface.
//!
//! The product is the crate `gemm` (AVX-512 with its feature `x86-v4`). Its result depends neither
//! on the number of threads nor on the processor (docs/adr/0014): a sum is never split between two
//! threads, and runs over the contraction in a fixed order. `gemm` cuts a contraction longer than
//! [`SLAB`] by instruction set and cache, so it never gets a longer one. For some shapes its
//! kernels sum across the lanes of a register; [`dots`] computes these here.

use std::marker::PhantomData;

use gemm::Parallelism;
use pulp::Simd;
use rayon::prelude::*;

use super::lanes::{BLOCK, dot_lanes, fma, simd, sum_block};

/// A read-only window of `rows` × `cols` elements.
#[derive(Clone, Copy)]
pub(super) struct Mat<'a> {
    /// Element (0, 0); element (i, j) is i·row_stride + j·col_stride behind it.
    start: *const f32,
    rows: usize,
    cols: usize,
    /// Elements from a row to the next one.
    row_stride: usize,
    /// Elements from a column to the next one: 1, but for a transpose.
    col_stride: usize,
    /// The borrow of the slice, by which the pointer stays valid.
    life: PhantomData<&'a [f32]>,
}

/// A writable window of `rows` × `cols` elements, with columns adjacent in memory. No two live
/// views share an element.
pub(super) struct MatMut<'a> {
    /// Element (0, 0); element (i, j) is i·row_stride + j behind it.
    start: *mut f32,
    rows: usize,
    cols: usize,
    /// Elements from a row to the next one, at least `cols`.
    row_stride: usize,
    /// The unique borrow of the slice. Views that were split off share it, by disjoint elements.
    life: PhantomData<&'a mut [f32]>,
}

/// Whether a product replaces its destination or is added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// C = A·B, whatever C held before.
    Replace,
    /// C += A·B, where C holds a sum so far.
    Add,
}

/// Whether a product may use the thread pool, or is itself one task of many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// Cuts the product into tasks for the pool.
    Pool,
    /// Stays on this thread, since the others have tasks of their own.
    Here,
}

#[expect(unsafe_code, reason = "a Mat is a shared borrow of f32s, which may cross threads")]
// SAFETY: as `&[f32]`, which is Send and Sync.
unsafe impl Send for Mat<'_> {}
#[expect(unsafe_code, reason = "a MatMut is a unique borrow of f32s, which may cross threads")]
// SAFETY: as `&mut [f32]`, which is Send; the elements of two views are disjoint by construction.
unsafe impl Send for MatMut<'_> {}

/// Asserts that the last element of a window is inside its slice.
fn assert_inside(len: usize, rows: usize, cols: usize, row_stride: usize) {
    assert!(cols <= row_stride || rows <= 1, "rows of a view overlap");
    if rows > 0 && cols > 0 {
        assert!((rows - 1) * row_stride + cols <= len, "view reaches beyond its slice");
    }
}

impl<'a> Mat<'a> {
    /// A view of `rows` × `cols`, row-major, with adjacent rows.
    pub(super) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// `rows` × `cols` from the start of `data`, one row every `row_stride` elements.
    pub(super) fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert_inside(data.len(), rows, cols, row_stride);
        Self { start: data.as_ptr(), rows, cols, row_stride, col_stride: 1, life: PhantomData }
    }

    /// The numbers of rows and columns.
    pub(super) fn shape(self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The window of columns `start..end`.
    fn cols(self, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= self.cols, "columns out of range");
        let first = self.start.wrapping_add(start * self.col_stride);
        Self { start: first, cols: end - start, ..self }
    }

    /// Copies the elements, row by row.
    fn to_vec(self) -> Vec<f32> {
        let offsets = (0..self.rows)
            .flat_map(|row| (0..self.cols).map(move |col| (row, col)))
            .map(|(row, col)| row * self.row_stride + col * self.col_stride);
        #[expect(unsafe_code, reason = "the elements of a window are not adjacent")]
        // SAFETY: the element is inside the slice that the view was created from and borrows.
        let copy = offsets.map(|at| unsafe { *self.start.add(at) }).collect();
        copy
    }

    /// The transposed view of the same elements.
    pub(super) fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

impl<'a> MatMut<'a> {
    /// A view of `rows` × `cols`, row-major, with adjacent rows.
    pub(super) fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// `rows` × `cols` from the start of `data`, one row every `row_stride` elements.
    pub(super) fn strided(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
    ) -> Self {
        assert_inside(data.len(), rows, cols, row_stride);
        Self { start: data.as_mut_ptr(), rows, cols, row_stride, life: PhantomData }
    }

    /// The first `count` columns and the rest.
    pub(super) fn split_cols(self, count: usize) -> (Self, Self) {
        assert!(count <= self.cols, "split beyond the last column");
        let right = self.start.wrapping_add(count);
        (Self { cols: count, ..self }, Self { start: right, cols: self.cols - count, ..self })
    }

    /// Splits into windows of `width` columns each; the width must divide the number of columns.
    pub(super) fn into_cols(self, width: usize) -> Vec<Self> {
        assert!(width > 0 && self.cols.is_multiple_of(width), "columns do not divide into windows");
        self.chunks(width)
    }

    /// Splits into windows of `width` columns each, of which the last may have fewer.
    fn chunks(self, width: usize) -> Vec<Self> {
        let mut windows = Vec::with_capacity(self.cols.div_ceil(width));
        let mut rest = self;
        while rest.cols > 0 {
            let count = rest.cols.min(width);
            let (window, right) = rest.split_cols(count);
            windows.push(window);
            rest = right;
        }
        windows
    }

    /// The number of rows, as of the window and not of the slice.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The elements of one row, which are adjacent in memory.
    ///
    /// # Panics
    /// If there is no such row.
    pub(super) fn row_mut(&mut self, index: usize) -> &mut [f32] {
        assert!(index < self.rows, "row out of range");
        let first = self.start.wrapping_add(index * self.row_stride);
        #[expect(unsafe_code, reason = "the columns of a row are adjacent in memory")]
        // SAFETY: the row lies inside the slice that the view was made from, and the view borrows
        // it uniquely.
        unsafe {
            std::slice::from_raw_parts_mut(first, self.cols)
        }
    }

    /// Sets all elements of the window to zero.
    pub(super) fn zero(mut self) {
        (0..self.rows).for_each(|row| self.row_mut(row).fill(0.0));
    }

    /// A shorter borrow of rows `start..end`.
    pub(super) fn rows_mut(&mut self, start: usize, end: usize) -> MatMut<'_> {
        assert!(start <= end && end <= self.rows, "rows out of range");
        let first = self.start.wrapping_add(start * self.row_stride);
        MatMut {
            start: first,
            rows: end - start,
            cols: self.cols,
            row_stride: self.row_stride,
            life: PhantomData,
        }
    }
}

/// `dst = a·b` or `dst += a·b`. // [M, N] = [M, K] · [K, N]
pub(super) fn product(
    mut dst: MatMut<'_>,
    mut write: Write,
    a: Mat<'_>,
    b: Mat<'_>,
    threads: Threads,
) {
    let (m, n, k) = (dst.rows, dst.cols, a.cols);
    assert!(
        k == b.rows && m == a.rows && n == b.cols,
        "shapes of a product do not fit: [{m}, {n}] = [{}, {k}] x [{}, {}]",
        a.rows,
        b.rows,
        b.cols
    );
    if k <= 2 || m <= 1 || n <= 1 || m * n <= SMALL {
        return product_of_dots(dst, write, a, b);
    }
    // All slabs but the last have the same length, since `gemm` treats short ones as special
    // shapes.
    let slab = k.div_ceil(k.div_ceil(SLAB));
    for start in (0..k).step_by(slab) {
        let end = k.min(start + slab);
        product_of_slab(&mut dst, write, a.cols(start, end), b.t().cols(start, end).t(), threads);
        write = Write::Add;
    }
}

/// [`product`] with each element computed by [`dot_lanes`].
fn product_of_dots(mut dst: MatMut<'_>, write: Write, a: Mat<'_>, b: Mat<'_>) {
    if a.cols == 0 {
        if write == Write::Replace {
            dst.zero();
        }
        return;
    }
    let (rows, columns) = (a.to_vec(), b.t().to_vec());
    for (row, x) in rows.chunks_exact(a.cols).enumerate() {
        dots(x, &columns, write, dst.row_mut(row));
    }
}

/// [`product`] over a contraction that `gemm` does not cut: consecutive multiply-adds.
fn product_of_slab(dst: &mut MatMut<'_>, write: Write, a: Mat<'_>, b: Mat<'_>, threads: Threads) {
    let parallelism = match threads {
        Threads::Pool => Parallelism::Rayon(0),
        Threads::Here => Parallelism::None,
    };
    // `alpha` scales the former contents of the destination, `beta` the product.
    #[expect(unsafe_code, reason = "the gemm crate takes pointers")]
    // SAFETY: the three windows are inside live slices (checked when they were created), their
    // shapes fit (checked in `product`), and the destination is borrowed uniquely, so it cannot
    // overlap an operand.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.cols,
            a.cols,
            dst.start,
            1,
            stride(dst.row_stride),
            write == Write::Add,
            a.start,
            stride(a.col_stride),
            stride(a.row_stride),
            b.start,
            stride(b.col_stride),
            stride(b.row_stride),
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// A stride never exceeds the length of a slice, and no slice is longer than `isize::MAX` bytes.
fn stride(elements: usize) -> isize {
    elements as isize
}

/// y = x·Wᵀ or y += x·Wᵀ for at most [`FEW`] rows x, as in generation. W is read once, in the order
/// of memory, and a row of y has the same bits whatever the other rows are.
/// // y [N, O], x [N, I], w [O, I]
pub(super) fn product_of_few(y: MatMut<'_>, write: Write, x: &[f32], w: &[f32]) {
    let inputs = x.len() / y.rows;
    let tasks = y.chunks(OUTPUTS).into_par_iter().zip(w.par_chunks(OUTPUTS * inputs));
    tasks.for_each(|(y, w)| few(y, write, x, w));
}

simd! {
    /// The product for some rows of W. Each meets four rows of x at a time, so that it is loaded
    /// once for them; where fewer are left, the last is repeated.
    fn few<S>(y: MatMut<'_>, write: Write, x: &[f32], w: &[f32]) {
        let (inputs, mut y) = (w.len() / y.cols, y);
        for (output, w) in w.chunks_exact(inputs).enumerate() {
            for first in (0..y.rows).step_by(4) {
                let last = y.rows - 1;
                let x = [0, 1, 2, 3].map(|at| &x[(first + at).min(last) * inputs..][..inputs]);
                for (row, dot) in (first..y.rows).zip(dots_of_four::<S>(x, w)) {
                    let y = &mut y.row_mut(row)[output];
                    *y = if write == Write::Add { *y + dot } else { dot };
                }
            }
        }
    }
}

/// The dot products of four rows with one, each in [`BLOCK`] sums. The sums of a row have a name,
/// since the compiler does not keep an array of them in registers. // `[I]` each
#[inline(always)]
fn dots_of_four<S: Simd>(rows: [&[f32]; 4], w: &[f32]) -> [f32; 4] {
    let (blocks, rest) = w.as_chunks::<BLOCK>();
    let [a, b, c, d] = rows.map(|row| &row.as_chunks::<BLOCK>().0[..blocks.len()]);
    let [mut p, mut q, mut r, mut s] = [[0.0; BLOCK]; 4];
    for (at, w) in blocks.iter().enumerate() {
        let [a, b, c, d] = [&a[at], &b[at], &c[at], &d[at]];
        for i in 0..BLOCK {
            p[i] = fma::<S>(a[i], w[i], p[i]);
            q[i] = fma::<S>(b[i], w[i], q[i]);
            r[i] = fma::<S>(c[i], w[i], r[i]);
            s[i] = fma::<S>(d[i], w[i], s[i]);
        }
    }
    let mut dots = [sum_block(&p), sum_block(&q), sum_block(&r), sum_block(&s)];
    for (at, w) in (w.len() - rest.len()..).zip(rest) {
        for (dot, row) in dots.iter_mut().zip(rows) {
            *dot = fma::<S>(row[at], *w, *dot);
        }
    }
    dots
}

simd! {
    /// y = W·x or y += W·x. // `x [I]`, w [O, I], `y [O]`
    fn dots<S>(x: &[f32], w: &[f32], write: Write, y: &mut [f32]) {
        for (y, w) in y.iter_mut().zip(w.chunks_exact(x.len())) {
            let dot = dot_lanes::<S>(x, w);
            *y = if write == Write::Add { *y + dot } else { dot };
        }
    }
}

/// The longest contraction that `gemm` 0.19 never cuts, whatever the processor and its caches.
const SLAB: usize = 512;

/// Elements of a destination up to which `gemm` 0.19 may sum across lanes.
const SMALL: usize = 256;

/// Rows of x up to which [`product_of_few`] is faster than `gemm`, which packs W: 1.5 times with 8.
pub(super) const FEW: usize = 8;

/// Outputs per task, whose rows of W take a few hundred kilobytes.
const OUTPUTS: usize = 64;

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37) % 23) as f32 - 11.0).collect()
    }

    /// Adjacent windows of one buffer, with transposed and strided operands: few elements, many,
    /// and contractions of length zero, a short one, and three slabs.
    #[test]
    fn products_of_windows_are_sums_of_products() {
        let shapes = [(7, 5, 9), (20, 17, 9), (20, 17, 1100), (1, 40, 700), (40, 1, 700)];
        for (m, n, k) in shapes.into_iter().chain([(20, 17, 0), (20, 17, 1), (20, 17, 2)]) {
            assert_sums_of_products(m, n, k);
        }
    }

    fn assert_sums_of_products(m: usize, n: usize, k: usize) {
        let (a, b) = (numbers(k * (m + 3)), numbers(n * (k + 3)));
        let expected = |i: usize, j: usize| -> f32 {
            (0..k).map(|l| a[l * (m + 3) + i] * b[j * (k + 3) + l]).sum()
        };
        let mut buffer = vec![0.5; m * 3 * n];
        let windows = MatMut::new(&mut buffer, m, 3 * n).into_cols(n);
        for (window, write) in windows.into_iter().zip([Write::Replace, Write::Add]) {
            let (a, b) = (Mat::strided(&a, k, m, m + 3).t(), Mat::strided(&b, n, k, k + 3).t());
            product(window, write, a, b, Threads::Here);
        }
        for (i, row) in buffer.chunks_exact(3 * n).enumerate() {
            for j in 0..n {
                let found = [row[j], row[n + j], row[2 * n + j]];
                assert_eq!(found, [expected(i, j), expected(i, j) + 0.5, 0.5], "{m} {n} {k}");
            }
        }
    }

    /// With fewer inputs than a block, with some blocks and a rest, and over the end of a task.
    #[test]
    fn products_of_few_rows_are_sums_of_products() {
        for (inputs, outputs) in [(3, 1), (37, 5), (64, OUTPUTS + 3)] {
            let (x, w) = (numbers(FEW * inputs), numbers(outputs * inputs));
            let product = |rows: usize| {
                let mut y = vec![0.5; rows * outputs];
                for write in [Write::Replace, Write::Add] {
                    let y = MatMut::new(&mut y, rows, outputs);
                    product_of_few(y, write, &x[..rows * inputs], &w);
                }
                y
            };
            let expected = x.chunks(inputs).flat_map(|x| {
                w.chunks(inputs)
                    .map(move |w| 2.0 * x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>())
            });
            let expected: Vec<f32> = expected.collect();
            for rows in 1..=FEW {
                assert_eq!(product(rows), expected[..rows * outputs], "{rows} {inputs} {outputs}");
            }
        }
    }

    /// A text that a seed gives does not depend on who else asks at the same time.
    #[test]
    fn a_row_has_the_same_bits_in_any_company() {
        let (inputs, outputs) = (203, 7);
        let numbers = |count: usize| (0..count).map(|i| (i as f32).sin()).collect::<Vec<_>>();
        let (x, w) = (numbers(FEW * inputs), numbers(outputs * inputs));
        let product = |x: &[f32]| {
            let mut y = vec![0.0; x.len() / inputs * outputs];
            let rows = MatMut::new(&mut y, x.len() / inputs, outputs);
            product_of_few(rows, Write::Replace, x, &w);
            y
        };
        let alone: Vec<f32> = x.chunks(inputs).flat_map(product).collect();
        assert_eq!(product(&x), alone);
    }

    #[test]
    fn only_the_named_rows_are_written() {
        let (a, b) = (numbers(2 * 3), numbers(3 * 2));
        let mut buffer = vec![0.5; 5 * 2];
        let mut whole = MatMut::new(&mut buffer, 5, 2);
        let (a, b) = (Mat::new(&a, 2, 3), Mat::new(&b, 3, 2));
        product(whole.rows_mut(2, 4), Write::Replace, a, b, Threads::Here);
        assert_eq!((&buffer[..4], &buffer[8..]), (&[0.5; 4][..], &[0.5; 2][..]));
        assert!(buffer[4..8].iter().all(|&x| x != 0.5));
    }

    #[test]
    fn views_beyond_their_slice_and_shapes_that_do_not_fit_are_refused() {
        let refused = |f: fn()| catch_unwind(f).is_err();
        assert!(refused(|| _ = Mat::strided(&[0.0; 11], 3, 4, 4)));
        assert!(refused(|| _ = Mat::strided(&[0.0; 20], 3, 4, 3)));
        assert!(refused(|| _ = MatMut::strided(&mut [0.0; 13], 3, 4, 5)));
        assert!(refused(|| _ = MatMut::new(&mut [0.0; 12], 3, 4).into_cols(3)));
        assert!(refused(|| _ = MatMut::new(&mut [0.0; 12], 3, 4).rows_mut(2, 4)));
        assert!(refused(|| {
            let (a, b) = (Mat::new(&[0.0; 6], 2, 3), Mat::new(&[0.0; 6], 2, 3));
            product(MatMut::new(&mut [0.0; 4], 2, 2), Write::Replace, a, b, Threads::Here);
        }));
        assert!(!refused(|| _ = Mat::strided(&[0.0; 14], 3, 4, 5)));
    }
}
