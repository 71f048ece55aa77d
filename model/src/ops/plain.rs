//! Every operator in plain burn tensors, for any backend: the definition, the test oracle, and what
//! CUDA runs.

use burn::tensor::activation::{log_softmax, silu, softmax};
use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, TensorMetadata};

use super::{AdamW, Documents, Heads, Rope, ZForm, ZLoss};

pub(super) fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

pub(super) fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

pub(super) fn rms_norm<B: Backend>(
    x: FloatTensor<B>,
    w: FloatTensor<B>,
    eps: f32,
) -> FloatTensor<B> {
    let (x, w) = (tensor::<B, 2>(x), tensor::<B, 1>(w));
    let mean = (x.clone() * x.clone()).mean_dim(1); // [N, 1]
    primitive(x / (mean + eps).sqrt() * w.unsqueeze())
}

pub(super) fn project<B: Backend>(x: FloatTensor<B>, w: FloatTensor<B>) -> FloatTensor<B> {
    primitive(tensor::<B, 2>(x).matmul(tensor::<B, 2>(w).transpose()))
}

pub(super) fn project_add<B: Backend>(
    x: FloatTensor<B>,
    w: FloatTensor<B>,
    r: FloatTensor<B>,
) -> FloatTensor<B> {
    primitive(tensor::<B, 2>(r) + tensor(project::<B>(x, w)))
}

/// Heads `first..first + count` of packed rows. // [B, T, count, K]
fn heads_of<B: Backend>(
    qkv: &Tensor<B, 2>,
    heads: Heads,
    first: usize,
    count: usize,
) -> Tensor<B, 4> {
    let columns = qkv.clone().narrow(1, first * heads.size, count * heads.size);
    columns.reshape([heads.sequences, heads.tokens, count, heads.size])
}

pub(super) fn rotate<B: Backend>(qkv: FloatTensor<B>, heads: Heads, rope: &Rope) -> FloatTensor<B> {
    let qkv = tensor::<B, 2>(qkv);
    let turned = heads.query + heads.kv;
    let table = |values: &[f32]| {
        let data = TensorData::new(values.to_vec(), [1, heads.tokens, 1, rope.half]);
        Tensor::<B, 4>::from_data(data, &qkv.device())
    };
    let [cos, sin] = rope.angles(heads.tokens).map(table); // [1, T, 1, K/2]
    let x = heads_of(&qkv, heads, 0, turned); // [B, T, H + G, K]
    let (a, b) = (x.clone().narrow(3, 0, rope.half), x.narrow(3, rope.half, rope.half));
    let first = a.clone() * cos.clone() - b.clone() * sin.clone();
    let second = a * sin + b * cos;
    let rows = heads.sequences * heads.tokens;
    let turned = Tensor::cat(vec![first, second], 3).reshape([rows, turned * heads.size]);
    let values = qkv.narrow(1, (heads.query + heads.kv) * heads.size, heads.kv * heads.size);
    primitive(Tensor::cat(vec![turned, values], 1))
}

pub(super) fn causal_attention<B: Backend>(
    qkv: FloatTensor<B>,
    heads: Heads,
    documents: &Documents,
) -> FloatTensor<B> {
    let Heads { sequences, tokens, query, kv, size } = heads;
    let qkv = tensor::<B, 2>(qkv);
    let q = heads_of(&qkv, heads, 0, query).swap_dims(1, 2); // [B, H, T, K]
    // Each key-value head once for every query head of its group.
    let shared = |first: usize| {
        let x = heads_of(&qkv, heads, first, kv).swap_dims(1, 2); // [B, G, T, K]
        let x = x.reshape([sequences, kv, 1, tokens, size]).repeat_dim(2, heads.group());
        x.reshape([sequences, query, tokens, size])
    };
    let (k, v) = (shared(query), shared(query + kv));
    let scores = q.matmul(k.swap_dims(2, 3)) * heads.scale(); // [B, H, T, T]
    let later = Tensor::<B, 2, Bool>::tril_mask([tokens, tokens], 0, &qkv.device());
    let scores = scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY);
    let starts: Vec<i32> = documents.starts.iter().map(|start| *start as i32).collect();
    let starts = TensorData::new(starts, [sequences, 1, tokens, 1]);
    let starts = Tensor::<B, 4, Int>::from_data(starts, &qkv.device()).repeat_dim(3, tokens);
    let keys = Tensor::<B, 1, Int>::arange(0..tokens as i64, &qkv.device());
    let earlier = keys.reshape([1, 1, 1, tokens as i32]).lower(starts); // [B, 1, T, T]
    let weights = softmax(scores.mask_fill(earlier, f32::NEG_INFINITY), 3);
    primitive(weights.matmul(v).swap_dims(1, 2).reshape([sequences * tokens, query * size]))
}

pub(super) fn attend<B: Backend>([q, k, v]: [FloatTensor<B>; 3], heads: Heads) -> FloatTensor<B> {
    let Heads { sequences, tokens, query, kv, size } = heads;
    let q = tensor::<B, 2>(q);
    let [rows, width] = q.dims();
    let new = rows / sequences;
    let q = q.reshape([sequences, new, query, size]).swap_dims(1, 2); // [B, H, S, K]
    let shared = |x| {
        let x = tensor::<B, 2>(x).reshape([sequences, tokens, kv, size]).swap_dims(1, 2);
        let x = x.reshape([sequences, kv, 1, tokens, size]).repeat_dim(2, heads.group());
        x.reshape([sequences, query, tokens, size]) // [B, H, T, K]
    };
    let scores = q.matmul(shared(k).swap_dims(2, 3)) * heads.scale(); // [B, H, S, T]
    let past = (tokens - new) as i64;
    let later = Tensor::<B, 2, Bool>::tril_mask([new, tokens], past, &scores.device());
    let weights = softmax(scores.mask_fill(later.unsqueeze::<4>(), f32::NEG_INFINITY), 3);
    primitive(weights.matmul(shared(v)).swap_dims(1, 2).reshape([rows, width]))
}

pub(super) fn swiglu<B: Backend>(gate_up: FloatTensor<B>) -> FloatTensor<B> {
    let gate_up = tensor::<B, 2>(gate_up);
    let width = gate_up.dims()[1] / 2;
    let gate = gate_up.clone().narrow(1, 0, width);
    primitive(silu(gate) * gate_up.narrow(1, width, width))
}

pub(super) fn cross_entropy<B: Backend>(
    logits: FloatTensor<B>,
    targets: IntTensor<B>,
    z_loss: ZLoss,
) -> FloatTensor<B> {
    let logits = tensor::<B, 2>(logits);
    let targets = Tensor::<B, 1, Int>::from_primitive(targets).unsqueeze_dim(1); // [N, 1]
    let log_p = log_softmax(logits.clone(), 1);
    let loss = log_p.clone().gather(1, targets).mean().neg();
    if z_loss.weight == 0.0 {
        return primitive(loss);
    }
    let z = match z_loss.form {
        ZForm::Max => {
            let at = logits.clone().detach().argmax(1); // [N, 1]
            logits.gather(1, at)
        }
        // log softmax(x) = x − lse, in any column.
        ZForm::LogSumExp => logits.narrow(1, 0, 1) - log_p.narrow(1, 0, 1),
    };
    primitive(loss + (z.clone() * z).mean() * z_loss.weight)
}

pub(super) fn square_sum<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let x = tensor::<B, 1>(flat::<B>(x));
    primitive((x.clone() * x).sum())
}

pub(super) fn adamw<B: Backend>(
    parameter: &mut FloatTensor<B>,
    gradient: FloatTensor<B>,
    moments: &mut [FloatTensor<B>; 2],
    step: AdamW,
) {
    let shape = parameter.shape();
    let [m, v] = moments.clone();
    let [p, g, m, v] = [parameter.clone(), gradient, m, v].map(|x| tensor::<B, 1>(flat::<B>(x)));
    let g = g * step.gradient_scale;
    let m = m * step.beta1 + g.clone() * (1.0 - step.beta1);
    let v = v * step.beta2 + g.clone() * g * (1.0 - step.beta2);
    let root = (v.clone() / step.correction2).sqrt();
    let update = m.clone() / step.correction1 / (root + step.eps);
    let p = p * (1.0 - step.learning_rate * step.weight_decay) - update * step.learning_rate;
    let shaped = |x: Tensor<B, 1>| B::float_reshape(primitive(x), shape.clone());
    *parameter = shaped(p);
    *moments = [shaped(m), shaped(v)];
}

/// The elements in one dimension.
fn flat<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let count = x.shape().num_elements();
    B::float_reshape(x, [count].into())
}
