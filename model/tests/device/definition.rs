//! Attention and the recurrence computed by definition in f64, as the reference for the kernels.

use intellect_model::ops::Heads;

/// y, and the gradient of the packed rows for the gradient of y. `starts` holds the position where
/// the document of each position begins.
pub(crate) fn attention(heads: Heads, starts: &[u32], qkv: &[f32], dy: &[f32]) -> [Vec<f64>; 2] {
    let Heads { sequences, tokens, query, kv, size } = heads;
    let (row, scale) = (heads.row(), 1.0 / (size as f64).sqrt());
    let mut y = vec![0.0; dy.len()];
    let mut dqkv = vec![0.0; qkv.len()];
    let x = |i: usize| f64::from(qkv[i]);
    let dot = |a: usize, b: usize| (0..size).map(|i| x(a + i) * x(b + i)).sum::<f64>();
    for (b, head, t) in triples([sequences, query, tokens]) {
        let at = |t: usize, head: usize| (b * tokens + t) * row + head * size;
        let (key, value) = (query + head * kv / query, query + kv + head * kv / query);
        let (q, out) = (at(t, head), ((b * tokens + t) * query + head) * size);
        let seen = starts[b * tokens + t] as usize..=t;
        let scores: Vec<_> = seen.clone().map(|j| scale * dot(q, at(j, key))).collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum = scores.iter().map(|s| (s - most).exp()).sum::<f64>();
        let p: Vec<_> = scores.iter().map(|s| (s - most).exp() / sum).collect();
        let g = |i: usize| f64::from(dy[out + i]);
        for (j, p) in seen.clone().zip(&p) {
            let v = at(j, value);
            for i in 0..size {
                y[out + i] += p * x(v + i);
                dqkv[v + i] += p * g(i);
            }
        }
        let d: f64 = (0..size).map(|i| g(i) * y[out + i]).sum();
        for (j, p) in seen.zip(&p) {
            let (k, v) = (at(j, key), at(j, value));
            let dp: f64 = (0..size).map(|i| g(i) * x(v + i)).sum();
            let ds = p * (dp - d) * scale;
            for i in 0..size {
                dqkv[q + i] += ds * x(k + i);
                dqkv[k + i] += ds * x(q + i);
            }
        }
    }
    [y, dqkv]
}

/// The sizes of the recurrence: sequences, tokens, heads, channels per head.
pub(crate) type Sizes = [usize; 4];

/// y, and the gradients of r, k, v, w, u and the initial state for the gradient of y.
pub(crate) fn wkv(
    [sequences, tokens, heads, size]: Sizes,
    [r, k, v, w, u, state]: [&[f32]; 6],
    dy: &[f32],
) -> [Vec<f64>; 7] {
    let width = heads * size;
    let f = |x: &[f32], i: usize| f64::from(x[i]);
    let zeros = |like: &[f32]| vec![0.0; like.len()];
    let (mut y, mut dr, mut dk, mut dv) = (zeros(r), zeros(r), zeros(r), zeros(r));
    let (mut dw, mut du, mut dstate) = (zeros(w), zeros(u), zeros(state));
    for (b, head, _) in triples([sequences, heads, 1]) {
        let from = (b * heads + head) * size * size;
        let at = |t: usize, i: usize| (b * tokens + t) * width + head * size + i;
        let of_w = |t: usize, i: usize| at(t, i) % w.len();
        let first = &state[from..from + size * size];
        let mut states: Vec<Vec<f64>> = vec![first.iter().map(|x| f64::from(*x)).collect()];
        for t in 0..tokens {
            let mut next = states[t].clone();
            for i in 0..size {
                let (bonus, x) = (f(u, head * size + i), at(t, i));
                let decay = (-f(w, of_w(t, i)).exp()).exp();
                for j in 0..size {
                    let (z, s) = (at(t, j), states[t][i * size + j]);
                    let kv = f(k, x) * f(v, z);
                    y[z] += f(r, x) * (s + bonus * kv);
                    dr[x] += (s + bonus * kv) * f(dy, z);
                    du[head * size + i] += f(r, x) * kv * f(dy, z);
                    next[i * size + j] = decay * s + kv;
                }
            }
            states.push(next);
        }
        let ds = &mut dstate[from..from + size * size];
        for t in (0..tokens).rev() {
            for i in 0..size {
                let (bonus, x) = (f(u, head * size + i), at(t, i));
                let log = -f(w, of_w(t, i)).exp();
                let decay = log.exp();
                for j in 0..size {
                    let (z, g) = (at(t, j), &mut ds[i * size + j]);
                    dk[x] += (*g + bonus * f(r, x) * f(dy, z)) * f(v, z);
                    dv[z] += (*g + bonus * f(r, x) * f(dy, z)) * f(k, x);
                    let slope = if decay > 0.0 { log * decay } else { 0.0 };
                    dw[of_w(t, i)] += *g * states[t][i * size + j] * slope;
                    *g = decay * *g + f(r, x) * f(dy, z);
                }
            }
        }
    }
    [y, dr, dk, dv, dw, du, dstate]
}

fn triples([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}
