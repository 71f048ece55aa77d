//! The WKV recurrence of Eagle and Finch, forward and backward, token by token on states in
//! registers (the equations of ops/wkv.rs). A cube owns a part of one head of one sequence; each of
//! its units owns one column of the state (forward, dv) or one row (the rest), K numbers each. No
//! exponent is above zero, so any decay is allowed. There are no atomics, and time and memory are
//! linear in T.
//!
//! The forward pass keeps the state before each chunk. The backward pass goes over the chunks from
//! the last to the first. In each it runs forward once more for S_{t−1}·g_t and the state after
//! each span, then backward with G. It computes p (see ops/wkv.rs) afresh from both after each
//! span. dv needs only G by columns, so it has its own kernel, which keeps nothing.

use cubecl::prelude::*;

use super::super::super::cube::exp_of;

/// The sizes for which a kernel is compiled.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct Cut {
    /// K, the width of a head, a multiple of 8.
    pub(super) size: usize,
    /// Columns or rows of a state per cube, one for each unit: a divisor of K and a multiple of 8.
    pub(super) units: usize,
    /// Tokens between kept states, a multiple of `span`.
    pub(super) chunk: usize,
    /// Tokens that are loaded at once and over which p is carried.
    pub(super) span: usize,
    /// Whether the decay depends on the token.
    pub(super) by_token: bool,
}

impl Cut {
    /// Vectors of four numbers in a row of a head.
    fn vectors(&self) -> usize {
        self.size / 4
    }

    /// Distance between rows in shared memory, in vectors, chosen so that the elements of a column
    /// lie in different banks.
    fn stride(&self) -> usize {
        self.size / 4 + 1
    }
}

/// Four channels, which are loaded at once.
type Four = Vector<f32, Const<4>>;

/// The largest w that is used. exp(−exp w) is 0 in f32 long before it, and exp of a far larger w
/// would be infinite.
const LARGEST: f32 = 10.0;

/// A log decay below this leaves no trace of the state in f32, so its slope counts as 0; as on the
/// CPU.
const LOST: f32 = -17.0;

/// Loads `count` tokens of one head, beginning with `token`. // to [span, K/4 + 1]
#[cube]
fn load<E: Float>(
    from: &Tensor<Vector<E, Const<4>>>,
    to: &mut SharedMemory<Four>,
    token: usize,
    count: usize,
    #[comptime] cut: Cut,
) {
    let row = CUBE_COUNT_X as usize * cut.vectors();
    let first = token * row + CUBE_POS_X as usize * cut.vectors();
    let mut i = UNIT_POS as usize;
    while i < count * cut.vectors() {
        let (t, c) = (i / cut.vectors(), i % cut.vectors());
        to[t * comptime!(cut.stride()) + c] = Vector::cast_from(from[first + t * row + c]);
        i += cut.units;
    }
}

/// Loads the decays of `count` tokens, computed from w: two exponentials for each channel, which
/// the units of a cube share. A constant w has one row, which all tokens read. // to [span, K/4 +
/// 1]
#[cube]
fn load_decays(
    w: &Tensor<Four>,
    to: &mut SharedMemory<Four>,
    token: usize,
    count: usize,
    #[comptime] cut: Cut,
) {
    let row = CUBE_COUNT_X as usize * cut.vectors();
    let mut first = CUBE_POS_X as usize * cut.vectors();
    let mut step = 0usize;
    if comptime!(cut.by_token) {
        first += token * row;
        step += row;
    }
    let mut i = UNIT_POS as usize;
    while i < count * cut.vectors() {
        let (t, c) = (i / cut.vectors(), i % cut.vectors());
        let raw = min(w[first + t * step + c], Four::new(LARGEST.runtime()));
        let log = raw.exp();
        let mut decays = Four::empty();
        #[unroll]
        for e in 0..4usize {
            decays[e] = exp_of(0.0f32 - log[e]);
        }
        to[t * comptime!(cut.stride()) + c] = decays;
        i += cut.units;
    }
}

/// An array of `count` zeros in registers.
#[cube]
fn zeros(#[comptime] count: usize) -> Array<f32> {
    let mut x = Array::<f32>::new(count);
    #[unroll]
    for i in 0..count {
        x[i] = 0.0f32;
    }
    x
}

/// ⟨read, S⟩, then S decays by `decays` and rows·lane is added: for a unit that owns a column, in
/// which each row has its own decay. The product is read before the update, as in y_t, which sees
/// S_{t−1}. It is summed in four partial sums, one for each element of a vector.
#[cube]
fn step_column(
    s: &mut Array<f32>,
    read: &SharedMemory<Four>,
    rows: &SharedMemory<Four>,
    decays: &SharedMemory<Four>,
    t: usize,
    lane: f32,
    #[comptime] cut: Cut,
) -> f32 {
    let at = t * comptime!(cut.stride());
    let mut sums = Four::new(0.0f32);
    #[unroll]
    for i in 0..comptime!(cut.vectors()) {
        let (read, rows, decays) = (read[at + i], rows[at + i], decays[at + i]);
        let mut part = Four::empty();
        #[unroll]
        for e in 0..4usize {
            part[e] = s[4 * i + e];
            s[4 * i + e] = s[4 * i + e] * decays[e] + rows[e] * lane;
        }
        sums += read * part;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// The same for a unit that owns a row, which has one decay.
#[cube]
fn step_row(
    s: &mut Array<f32>,
    read: &SharedMemory<Four>,
    lanes: &SharedMemory<Four>,
    t: usize,
    decay: f32,
    row: f32,
    #[comptime] cut: Cut,
) -> f32 {
    let at = t * comptime!(cut.stride());
    let mut sums = Four::new(0.0f32);
    #[unroll]
    for i in 0..comptime!(cut.vectors()) {
        let (read, lanes) = (read[at + i], lanes[at + i]);
        let mut part = Four::empty();
        #[unroll]
        for e in 0..4usize {
            part[e] = s[4 * i + e];
            s[4 * i + e] = s[4 * i + e] * decay + lanes[e] * row;
        }
        sums += read * part;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// ⟨r∘u, k⟩ of each token, the weight of its own value; waits until all loads are done, and until
/// the weights are there. A unit computes whole tokens, and the others of the cube read the result.
#[cube]
fn weigh(
    r: &SharedMemory<Four>,
    k: &SharedMemory<Four>,
    u: &Tensor<Four>,
    weights: &mut SharedMemory<f32>,
    count: usize,
    #[comptime] cut: Cut,
) {
    sync_cube();
    let mut t = UNIT_POS as usize;
    while t < count {
        let mut sums = Four::new(0.0f32);
        for i in 0..comptime!(cut.vectors()) {
            let at = t * comptime!(cut.stride()) + i;
            sums += r[at] * k[at] * u[CUBE_POS_X as usize * cut.vectors() + i];
        }
        weights[t] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        t += cut.units;
    }
    sync_cube();
}

/// y, the states before the chunks, the last state.
/// // state, last [B, H, K, K], kept [B, H, chunks, K, K]; cubes (H, B, K/units)
#[cube(launch, launch_unchecked)]
pub(super) fn forward<E: Float>(
    r: &Tensor<Vector<E, Const<4>>>,
    k: &Tensor<Vector<E, Const<4>>>,
    v: &Tensor<E>,
    w: &Tensor<Four>,
    u: &Tensor<Four>,
    state: &Tensor<f32>,
    y: &mut Tensor<E>,
    kept: &mut Tensor<f32>,
    last: &mut Tensor<f32>,
    tokens: usize,
    #[comptime] cut: Cut,
) {
    let (heads, unit) =
        (CUBE_COUNT_X as usize, CUBE_POS_Z as usize * cut.units + UNIT_POS as usize);
    let head = CUBE_POS_Y as usize * heads + CUBE_POS_X as usize;
    let before = CUBE_POS_Y as usize * tokens;
    let row = heads * cut.size;
    let channel = CUBE_POS_X as usize * cut.size + unit;
    let mut rs = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut ks = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut ds = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut weights = SharedMemory::<f32>::new(cut.span);
    let mut s = Array::<f32>::new(cut.size);
    #[unroll]
    for i in 0..cut.size {
        s[i] = state[(head * cut.size + i) * cut.size + unit];
    }
    let mut start = 0usize;
    while start < tokens {
        // The backward pass begins each chunk with the state before it.
        if start % cut.chunk == 0 {
            let first = (head * tokens.div_ceil(cut.chunk) + start / cut.chunk)
                * comptime!(cut.size * cut.size);
            #[unroll]
            for i in 0..cut.size {
                kept[first + i * cut.size + unit] = s[i];
            }
        }
        // The units of a cube share r, k and the decays of one span at a time.
        let count = min(tokens - start, cut.span);
        load::<E>(r, &mut rs, before + start, count, cut);
        load::<E>(k, &mut ks, before + start, count, cut);
        load_decays(w, &mut ds, before + start, count, cut);
        weigh(&rs, &ks, u, &mut weights, count, cut);
        for t in 0..count {
            let at = (before + start + t) * row + channel;
            let value = f32::cast_from(v[at]);
            let of_state = step_column(&mut s, &rs, &ks, &ds, t, value, cut);
            y[at] = E::cast_from(of_state + weights[t] * value);
        }
        sync_cube();
        start += cut.span;
    }
    #[unroll]
    for i in 0..cut.size {
        last[(head * cut.size + i) * cut.size + unit] = s[i];
    }
}

/// dv, from the last token to the first: G by columns takes the part of S, with r and k exchanged.
/// // cubes (H, B, K/units)
#[cube(launch, launch_unchecked)]
pub(super) fn backward_values<E: Float>(
    r: &Tensor<Vector<E, Const<4>>>,
    k: &Tensor<Vector<E, Const<4>>>,
    w: &Tensor<Four>,
    u: &Tensor<Four>,
    g: &Tensor<E>,
    dv: &mut Tensor<E>,
    tokens: usize,
    #[comptime] cut: Cut,
) {
    let before = CUBE_POS_Y as usize * tokens;
    let row = CUBE_COUNT_X as usize * cut.size;
    let channel =
        CUBE_POS_X as usize * cut.size + CUBE_POS_Z as usize * cut.units + UNIT_POS as usize;
    let mut rs = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut ks = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut ds = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut weights = SharedMemory::<f32>::new(cut.span);
    let mut of = zeros(cut.size);
    let spans = tokens.div_ceil(cut.span);
    for back in 0..spans {
        let start = (spans - 1 - back) * cut.span;
        let count = min(tokens - start, cut.span);
        load::<E>(r, &mut rs, before + start, count, cut);
        load::<E>(k, &mut ks, before + start, count, cut);
        load_decays(w, &mut ds, before + start, count, cut);
        weigh(&rs, &ks, u, &mut weights, count, cut);
        for i in 0..count {
            let t = count - 1 - i;
            let at = (before + start + t) * row + channel;
            let gradient = f32::cast_from(g[at]);
            // The step reads G before it adds r_t·g_t, so G_t has the gradients of later tokens
            // alone.
            let of_state = step_column(&mut of, &ks, &rs, &ds, t, gradient, cut);
            dv[at] = E::cast_from(of_state + weights[t] * gradient);
        }
        sync_cube();
    }
}

/// The other gradients; those of u, and of a constant w, have one row per sequence.
/// // scratch [B, H, chunk/span, K, K], dw [B·T, D] or [B, D], du [B, D], dstate [B, H, K, K];
/// // cubes (H, B, K/units)
#[cube(launch, launch_unchecked)]
pub(super) fn backward_keys<E: Float>(
    r: &Tensor<E>,
    k: &Tensor<E>,
    v: &Tensor<Vector<E, Const<4>>>,
    w: &Tensor<f32>,
    u: &Tensor<f32>,
    g: &Tensor<Vector<E, Const<4>>>,
    kept: &Tensor<Four>,
    scratch: &mut Tensor<f32>,
    dr: &mut Tensor<E>,
    dk: &mut Tensor<E>,
    dw: &mut Tensor<f32>,
    du: &mut Tensor<f32>,
    dstate: &mut Tensor<f32>,
    tokens: usize,
    #[comptime] cut: Cut,
) {
    let (heads, unit) =
        (CUBE_COUNT_X as usize, CUBE_POS_Z as usize * cut.units + UNIT_POS as usize);
    let head = CUBE_POS_Y as usize * heads + CUBE_POS_X as usize;
    let before = CUBE_POS_Y as usize * tokens;
    let row = heads * cut.size;
    let channel = CUBE_POS_X as usize * cut.size + unit;
    let bonus = u[channel];
    let mut vs = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    let mut gs = SharedMemory::<Four>::new_aligned(comptime!(cut.span * cut.stride()), 16usize);
    // S_{t−1}·g_t of the tokens of a chunk, one column per unit; ⟨v_t, g_t⟩ of a span.
    let mut of_states = SharedMemory::<f32>::new(comptime!(cut.chunk * cut.units));
    let mut weights = SharedMemory::<f32>::new(cut.span);
    let mut of = zeros(cut.size);
    let mut s = zeros(cut.size);
    let mut of_bonus = 0.0f32;
    let mut of_decay = 0.0f32;
    let chunks = tokens.div_ceil(cut.chunk);
    let states = head * comptime!(cut.chunk / cut.span);
    for back in 0..chunks {
        let chunk = chunks - 1 - back;
        let first = chunk * cut.chunk;
        let spans = min(tokens - first, cut.chunk).div_ceil(cut.span);
        #[unroll]
        for i in 0..comptime!(cut.vectors()) {
            let four = kept[((head * chunks + chunk) * cut.size + unit) * cut.vectors() + i];
            #[unroll]
            for e in 0..4usize {
                s[4 * i + e] = four[e];
            }
        }
        // Forth: S_{t−1}·g_t, dr, and the state behind each span.
        for span in 0..spans {
            let start = first + span * cut.span;
            let count = min(tokens - start, cut.span);
            load::<E>(v, &mut vs, before + start, count, cut);
            load::<E>(g, &mut gs, before + start, count, cut);
            products(&vs, &gs, &mut weights, count, cut);
            for t in 0..count {
                let at = (before + start + t) * row + channel;
                let key = f32::cast_from(k[at]);
                let (decay, _) = decay_of(w, at, channel, cut);
                let of_state = step_row(&mut s, &gs, &vs, t, decay, key, cut);
                of_states[(span * cut.span + t) * cut.units + UNIT_POS as usize] = of_state;
                dr[at] = E::cast_from(of_state + bonus * key * weights[t]);
            }
            #[unroll]
            for i in 0..cut.size {
                scratch[((states + span) * cut.size + i) * cut.size + unit] = s[i];
            }
            sync_cube();
        }
        // Back: G_t·v_t, dk, du and dw.
        for span_back in 0..spans {
            let span = spans - 1 - span_back;
            let start = first + span * cut.span;
            let count = min(tokens - start, cut.span);
            load::<E>(v, &mut vs, before + start, count, cut);
            load::<E>(g, &mut gs, before + start, count, cut);
            products(&vs, &gs, &mut weights, count, cut);
            // p of this unit's key after the span, from G and from S, which the first pass left.
            let mut p = 0.0f32;
            #[unroll]
            for i in 0..cut.size {
                p += of[i] * scratch[((states + span) * cut.size + i) * cut.size + unit];
            }
            for i in 0..count {
                let t = count - 1 - i;
                let at = (before + start + t) * row + channel;
                let (read, key) = (f32::cast_from(r[at]), f32::cast_from(k[at]));
                let (decay, slope) = decay_of(w, at, channel, cut);
                let of_gradient = step_row(&mut of, &vs, &gs, t, decay, read, cut);
                dk[at] = E::cast_from(of_gradient + bonus * read * weights[t]);
                of_bonus += read * key * weights[t];
                let q = p - key * of_gradient;
                p = q + read * of_states[(span * cut.span + t) * cut.units + UNIT_POS as usize];
                if comptime!(cut.by_token) {
                    dw[at] = slope * q;
                } else {
                    of_decay += slope * q;
                }
            }
            sync_cube();
        }
    }
    du[CUBE_POS_Y as usize * row + channel] = of_bonus;
    if comptime!(!cut.by_token) {
        dw[CUBE_POS_Y as usize * row + channel] = of_decay;
    }
    #[unroll]
    for i in 0..cut.size {
        dstate[(head * cut.size + unit) * cut.size + i] = of[i];
    }
}

/// d and d ln d/dw of this unit's channel; `at` is the element of its token.
#[cube]
fn decay_of(w: &Tensor<f32>, at: usize, channel: usize, #[comptime] cut: Cut) -> (f32, f32) {
    let mut from = channel;
    if comptime!(cut.by_token) {
        from += at - channel;
    }
    let log = 0.0f32 - min(w[from], LARGEST.runtime()).exp();
    (exp_of(log), select(log < LOST, 0.0f32, log))
}

/// ⟨a, b⟩ of each token; waits until all loads are done, and until the products are there.
#[cube]
fn products(
    a: &SharedMemory<Four>,
    b: &SharedMemory<Four>,
    weights: &mut SharedMemory<f32>,
    count: usize,
    #[comptime] cut: Cut,
) {
    sync_cube();
    let mut t = UNIT_POS as usize;
    while t < count {
        let mut sums = Four::new(0.0f32);
        for i in 0..comptime!(cut.vectors()) {
            sums += a[t * comptime!(cut.stride()) + i] * b[t * comptime!(cut.stride()) + i];
        }
        weights[t] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        t += cut.units;
    }
    sync_cube();
}
