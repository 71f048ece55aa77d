//! How a plain loop becomes vector code: run-time dispatch, and the primitives of kernels.
//!
//! A kernel is a loop, compiled once per instruction set and selected at run time by `pulp`
//! ([`simd!`]). Four rules make the compiler vectorise it. Slices are cut to one length
//! ([`each!`]), or to arrays of [`BLOCK`] elements (`as_chunks`), so that no bounds check is left
//! inside. The innermost loop uses indices instead of zipped iterators. A reduction runs in
//! [`LANES`] independent sums, since the compiler may not reorder float additions. `exp` is a
//! polynomial, since a call into the C library prevents vectorisation. Each rule was worth a factor
//! between two and ten.

use pulp::Simd;

/// Independent partial sums of a reduction: four AVX-512 registers, which hide the latency of an
/// addition.
pub(super) const LANES: usize = 64;

/// Elements of one AVX-512 register. Loops over arrays of this length need no scalar remainder.
pub(super) const BLOCK: usize = 16;

/// Makes functions dispatch at run time. The body sees the instruction set as the type `S`.
///
/// `pulp` inlines a struct's `with_simd` into a function compiled for the instruction set; a
/// closure or a function value is not inlined, and every `mul_add` in it would become a call into
/// the C library.
macro_rules! simd {
    ($(
        $(#[$doc:meta])*
        $vis:vis fn $name:ident<$S:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            struct Kernel<T>(T);
            impl pulp::WithSimd for Kernel<($($ty,)*)> {
                type Output = $crate::ops::lanes::simd!(@output $($ret)?);
                #[inline(always)]
                fn with_simd<$S: pulp::Simd>(self, _: $S) -> Self::Output {
                    let Self(($($arg,)*)) = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Kernel(($($arg,)*)))
        }
    )*};
    (@output) => { () };
    (@output $ret:ty) => { $ret };
}

pub(crate) use simd;

/// Runs a body for element `i` of some slices. Arguments: inputs, then outputs, all cut to the
/// length of the first output, then values that are the same for all elements; `<S>` where the
/// instruction set matters. It expands to a separate function, because the compiler assumes only of
/// arguments that they do not overlap, and omits bounds checks of slices of equal length. (A small
/// function that was called for one register after the other was vectorised across registers, with
/// gathers, and was three times slower.)
macro_rules! each {
    ($(<$S:ident>)? ($($x:ident),*; $($y:ident),+ $(; $($z:ident: $type:ty),+)?) |$i:ident| $body:block) => {{
        #[inline(always)]
        fn block$(<$S: pulp::Simd>)?(
            $($x: &[f32],)* $($y: &mut [f32],)+ $($($z: $type),+)?
        ) {
            for $i in 0..[$($y.len()),+][0] $body
        }
        let count = [$($y.len()),+][0];
        block$(::<$S>)?($(&$x[..count],)* $(&mut $y[..count],)+ $($($z),+)?);
    }};
}

pub(super) use each;

/// `a·b + c`, fused where the processor supports it.
#[inline(always)]
pub(super) fn fma<S: Simd>(a: f32, b: f32, c: f32) -> f32 {
    if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
}

/// `eˣ` within 1e-7 relative; 0 below −87.3, saturated above 88.3. Cephes `expf`: x = n·ln 2 + r, a
/// polynomial in r.
#[inline(always)]
pub(super) fn exp<S: Simd>(x: f32) -> f32 {
    /// Adding and subtracting 1.5·2²³ rounds to the nearest integer and leaves it in the low
    /// mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    let tiny = x < -87.3;
    let x = x.clamp(-87.3, 88.3);
    let shifted = fma::<S>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, so that n times the first is exact.
    let r = fma::<S>(n, -0.693_359_4, x);
    let r = fma::<S>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = fma::<S>(p, r, coefficient);
    }
    let e = fma::<S>(p, r * r, r) + 1.0;
    // 2ⁿ is built from its exponent bits.
    let e = e * f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    if tiny { 0.0 } else { e }
}

/// `tanh x` within 2e-7 relative (Cephes `tanhf`): a polynomial near zero, where the exponential
/// would cancel.
#[inline(always)]
pub(super) fn tanh<S: Simd>(x: f32) -> f32 {
    let square = x * x;
    let mut p = -5.704_988_7e-3;
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = fma::<S>(p, square, coefficient);
    }
    let near = fma::<S>(p * square, x, x);
    let far = 1.0 - 2.0 / (exp::<S>(2.0 * x) + 1.0);
    if x.abs() < 0.625 { near } else { far }
}

/// σ(x) = 1/(1 + e⁻ˣ), 0 and 1 at the ends of f32.
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// Combines the lanes with `f` in a tree, unrolled so that it stays in registers.
#[inline(always)]
fn fold(lanes: &[f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0; BLOCK];
    for i in 0..BLOCK {
        sums[i] = f(f(lanes[i], lanes[i + 16]), f(lanes[i + 32], lanes[i + 48]));
    }
    fold_block(&sums, f)
}

/// Combines the lanes of one block, as [`fold`] does.
#[inline(always)]
fn fold_block(sums: &[f32; BLOCK], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut four = [0.0; 4];
    for i in 0..4 {
        four[i] = f(f(sums[i], sums[i + 4]), f(sums[i + 8], sums[i + 12]));
    }
    f(f(four[0], four[1]), f(four[2], four[3]))
}

/// Σ xᵢ of one block, added in the order of [`fold`].
#[inline(always)]
pub(super) fn sum_block(x: &[f32; BLOCK]) -> f32 {
    fold_block(x, |a, b| a + b)
}

/// Σ aᵢ·bᵢ in [`LANES`] sums. The order is fixed by the length alone, so the bits are the same on
/// every processor that fuses multiply and add.
#[inline(always)]
pub(super) fn dot_lanes<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for i in 0..LANES {
            lanes[i] = fma::<S>(a[i], b[i], lanes[i]);
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = fma::<S>(a, b, *lane);
    }
    fold(&lanes, |a, b| a + b)
}

/// Σ xᵢ in [`LANES`] sums, in the order of [`fold`].
#[inline(always)]
pub(super) fn sum_lanes(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for x in blocks {
        for i in 0..LANES {
            lanes[i] += x[i];
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += x;
    }
    fold(&lanes, |a, b| a + b)
}

/// The largest element; −∞ for an empty slice.
#[inline(always)]
pub(super) fn max_lanes(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for x in blocks {
        for i in 0..LANES {
            lanes[i] = larger(x[i], lanes[i]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = larger(x, *lane);
    }
    fold(&lanes, larger)
}

/// Replaces x by exp(scale·x − shift), and returns the sum. With shift = scale·max x, as a softmax
/// passes it, no exponent is above zero.
#[inline(always)]
pub(super) fn exp_lanes<S: Simd>(x: &mut [f32], scale: f32, shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (blocks, rest) = x.as_chunks_mut::<BLOCK>();
    for x in blocks {
        for i in 0..BLOCK {
            x[i] = exp::<S>(fma::<S>(x[i], scale, -shift));
            lanes[i] += x[i];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *x = exp::<S>(fma::<S>(*x, scale, -shift));
        *lane += *x;
    }
    fold(&lanes, |a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    simd! {
        fn exp_all<S>(x: &mut [f32]) {
            for x in x {
                *x = exp::<S>(*x);
            }
        }

        fn tanh_all<S>(x: &mut [f32]) {
            for x in x {
                *x = tanh::<S>(*x);
            }
        }

        fn sum_of_exp<S>(x: &mut [f32]) -> f32 {
            exp_lanes::<S>(x, 1.0, 0.0)
        }

        fn dot_max_and_sum<S>(a: &[f32], b: &[f32]) -> [f32; 3] {
            [dot_lanes::<S>(a, b), max_lanes(a), sum_lanes(a)]
        }
    }

    #[test]
    fn tanh_is_within_3e_7_of_tanh() {
        let inputs: Vec<f32> = (-20_000..20_000).map(|i| (i as f32 + 0.3) * 1e-3).collect();
        let mut outputs: Vec<f32> =
            inputs.iter().chain(&[0.0, 1e-20, 1e9, -1e9]).copied().collect();
        tanh_all(&mut outputs);
        for (x, y) in inputs.iter().zip(&outputs) {
            let expected = f64::from(*x).tanh();
            assert!(
                (f64::from(*y) / expected - 1.0).abs() < 3e-7,
                "tanh({x}) = {y}, not {expected}"
            );
        }
        assert_eq!(outputs[inputs.len()..], [0.0, 1e-20, 1.0, -1.0]);
    }

    #[test]
    fn exp_is_within_2e_7_of_exp_and_exact_at_the_ends() {
        let inputs: Vec<f32> = (-87_000..88_000).map(|i| i as f32 * 1e-3).collect();
        let mut outputs = inputs.clone();
        exp_all(&mut outputs);
        for (x, y) in inputs.into_iter().zip(outputs) {
            let expected = f64::from(x).exp();
            assert!((f64::from(y) / expected - 1.0).abs() < 2e-7, "exp({x}) = {y}, not {expected}");
        }
        let mut ends = [0.0, -88.0, f32::NEG_INFINITY, 1e9, f32::INFINITY, f32::NAN];
        exp_all(&mut ends);
        assert_eq!(ends[..3], [1.0, 0.0, 0.0]);
        assert!(ends[3] > 1e38 && ends[4].is_finite() && ends[5].is_nan());
    }

    /// Tests lengths around every block boundary: no element is omitted or counted twice.
    #[test]
    fn reductions_cover_any_length() {
        for length in (0..70).chain([127, 128, 129, 200]) {
            let a: Vec<f32> = (0..length).map(|i| ((i * 37) % 23) as f32 - 11.0).collect();
            let b: Vec<f32> = (0..length).map(|i| ((i * 17) % 19) as f32 - 9.0).collect();
            let dot: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            let max = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum = a.iter().sum();
            assert_eq!(dot_max_and_sum(&a, &b), [dot, max, sum], "{length}");
            let sum: f64 = a.iter().map(|&x| f64::from(x).exp()).sum();
            let found = f64::from(sum_of_exp(&mut a.clone()));
            assert!((found - sum).abs() <= 1e-6 * sum, "{length}: {found} {sum}");
        }
    }
}
