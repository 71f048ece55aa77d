//! The checks against a file of vectors that all families share: logits, loss, the gradient of
//! every parameter, the initial weights, the groups of the optimiser and a trace of training.
//!
//! Checks of a single family are in its own file, which also reads the configuration in the format
//! of the program that made the vectors.

use anyhow::{Context, Result, bail, ensure};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Backend, TensorData, TensorMetadata};
use burn_flex::Flex;
use intellect_model::arch::{Arch, Rows};
use intellect_model::config::{Family, Train, Work};
use intellect_model::genesis::{self, Init, Spec};
use intellect_model::ops::{CrossEntropy, FusedOps, ZForm, ZLoss};
use intellect_model::optim::Optimizer;
use intellect_model::params;
use serde_json::Value;

use crate::llama;
use crate::rwkv;
use crate::vectors::{Tensor, Vectors, number};

/// The hand-written operators, each with its own backward pass.
type Fused = Autodiff<Flex>;
/// The operators written with burn tensors and differentiated by burn.
type Plain = Autodiff<Flex, BalancedCheckpointing>;

/// A backend that trains with one form of the operators.
pub(crate) trait Form: FusedOps + AutodiffBackend<InnerBackend: FusedOps> {}
impl<A: FusedOps + AutodiffBackend<InnerBackend: FusedOps>> Form for A {}

/// The backend of a form without gradients.
pub(crate) type Inner<A> = <A as AutodiffBackend>::InnerBackend;

/// The result of one comparison.
#[derive(Debug)]
pub(crate) struct Check {
    #[allow(dead_code, reason = "some programs that include this file only print it")]
    pub(crate) name: String,
    pub(crate) error: f64,
    pub(crate) bound: f64,
}

impl Check {
    /// An error of NaN does not pass.
    pub(crate) fn passes(&self) -> bool {
        self.error <= self.bound
    }
}

/// All checks that a file allows for one form of the operators on its default device.
#[allow(dead_code, reason = "not every test that includes this file has a device")]
pub(crate) fn checks_of<A: Form>(vectors: &Vectors) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    Subject::new(vectors)?.check_form::<A>("on the device:", &mut checks)?;
    Ok(checks)
}

/// All checks that a file allows on the CPU, with both forms of the operators.
#[allow(dead_code, reason = "not every test that includes this file checks the CPU")]
pub(crate) fn checks(vectors: &Vectors) -> Result<Vec<Check>> {
    let subject = Subject::new(vectors)?;
    let mut checks = Vec::new();
    subject.check_form::<Fused>("fused", &mut checks)?;
    subject.check_form::<Plain>("plain", &mut checks)?;
    subject.check_start(&mut checks)?;
    subject.check_groups(&mut checks)?;
    Ok(checks)
}

/// The model and the batch of a file.
pub(crate) struct Subject<'a> {
    pub(crate) vectors: &'a Vectors,
    pub(crate) arch: Arch,
    specs: Vec<Spec>,
    pub(crate) rows: Rows,
}

/// The results of one forward and backward pass.
pub(crate) struct Pass {
    pub(crate) logits: Vec<f32>,
    pub(crate) loss: f32,
    /// The gradients of all parameters, one after another in canonical order.
    pub(crate) gradient: Vec<f32>,
}

impl<'a> Subject<'a> {
    fn new(vectors: &'a Vectors) -> Result<Self> {
        let model = match vectors.family()? {
            "llama" => llama::model(vectors)?,
            "rwkv5" => rwkv::model(vectors, Family::Eagle)?,
            "rwkv6" => rwkv::model(vectors, Family::Finch)?,
            "goldfinch" => rwkv::model(vectors, Family::GoldFinch)?,
            other => bail!(
                "unknown family \"{other}\": known are \"llama\", \"rwkv5\", \"rwkv6\", \"goldfinch\""
            ),
        };
        let arch = Arch::new(&model);
        let [sequences, length] = vectors.ints("in/ids")?.shape[..] else {
            bail!("in/ids is not of shape [B, T]");
        };
        let specs = arch.specs();
        let wrong = |spec: &&Spec| {
            let found = vectors.floats(&format!("param/{}", spec.name));
            !found.is_ok_and(|found| found.values.len() == spec.len())
        };
        let wrong: Vec<_> = specs.iter().filter(wrong).map(|spec| &spec.name).collect();
        ensure!(wrong.is_empty(), "missing or misshaped parameters: {wrong:?}");
        let extra = |name: &&str| !specs.iter().any(|spec| spec.name == *name);
        let extra: Vec<_> = vectors.names("param/").filter(extra).collect();
        ensure!(extra.is_empty(), "parameters that the model does not have: {extra:?}");
        Ok(Self { vectors, arch, specs, rows: Rows::whole(sequences, length) })
    }

    fn check_form<A: Form>(&self, form: &str, checks: &mut Vec<Check>) -> Result<()> {
        let parameters = self.parameters::<Inner<A>>()?;
        let pass = self.pass::<A>(&parameters, &self.rows, NO_Z)?;
        let mut add = |name: &str, error, bound| {
            checks.push(Check { name: format!("{form} {name}"), error, bound });
        };
        add("logits", difference(&pass.logits, &self.floats("out/logits")?.values)?, LOGITS);
        add("loss", difference(&[pass.loss], &self.floats("out/loss")?.values)?, LOSS);
        for (spec, found) in self.named(&pass.gradient) {
            let expected = &self.floats(&format!("grad/{}", spec.name))?.values;
            let (error, bound) = distance(found, expected)?;
            add(&format!("gradient of {}", spec.name), error, bound);
        }
        if self.vectors.family()? == "llama" {
            llama::check::<A>(self, &parameters, &pass, &mut add)?;
        } else {
            rwkv::check::<A>(self, &parameters, &mut add)?;
        }
        self.check_training::<A>(&mut add)
    }

    /// Compares the losses and gradient norms of AdamW steps on the one batch with `train.json`,
    /// which is next to the file.
    fn check_training<A: Form>(&self, add: &mut dyn FnMut(&str, f64, f64)) -> Result<()> {
        let Some(trace) = self.vectors.beside("train.json")? else { return Ok(()) };
        let Some(expected) = trace.get(self.vectors.stem()) else { return Ok(()) };
        let beta = |i: usize| trace["betas"][i].as_f64().context("train.json has no betas");
        let train = Train {
            beta1: beta(0)?,
            beta2: beta(1)?,
            eps: number(&trace, "eps")?,
            weight_decay: number(&trace, "weight_decay")?,
            clip: number(&trace, "clip_global_norm")?,
            ..Work::synthetic().train
        };
        let lr = number(&trace, "lr")?;
        let curve = |key: &str| {
            let values = expected[key].as_array().context("train.json lacks a curve")?;
            values.iter().map(|v| v.as_f64().context("not a number")).collect::<Result<Vec<_>>>()
        };
        let mut optimizer = Optimizer::<Inner<A>>::new(&train, self.arch.groups());
        let mut parameters = self.parameters::<Inner<A>>()?;
        let (mut losses, mut norms) = (0.0_f64, 0.0_f64);
        for (loss, norm) in curve("loss")?.into_iter().zip(curve("grad_norm")?) {
            let pass = self.pass::<A>(&parameters, &self.rows, NO_Z)?;
            let gradients = self.upload::<Inner<A>>(&pass.gradient)?;
            let found = optimizer.step(&mut parameters, gradients, lr)?;
            losses = losses.max((f64::from(pass.loss) - loss).abs());
            norms = norms.max((found - norm).abs() / norm.max(1.0));
        }
        add("loss of every training step", losses, CURVE);
        add("gradient norm of every training step", norms, NORM);
        Ok(())
    }

    /// Compares the initial weights that are not random with those of the reference, and the
    /// singular values of those that are.
    fn check_start(&self, checks: &mut Vec<Check>) -> Result<()> {
        let start = genesis::weights(1, &self.specs);
        for (spec, found) in self.named(&start) {
            let name = format!("init/{}", spec.name);
            if self.vectors.has(&name) {
                let error = difference(found, &self.floats(&name)?.values)?;
                checks.push(Check { name: format!("start of {}", spec.name), error, bound: START });
            }
            if let Some(gain) = self.gain(&spec.name)? {
                let error = match spec.init {
                    Init::Constant(0.0) => gain,
                    Init::Orthogonal { gain: ours } => (gain - ours).abs(),
                    // An embedding has a gain too, but it means nothing.
                    _ => continue,
                };
                checks.push(Check { name: format!("gain of {}", spec.name), error, bound: START });
            }
        }
        Ok(())
    }

    /// The gain of an orthogonal matrix in the initial weights of the reference.
    fn gain(&self, name: &str) -> Result<Option<f64>> {
        let Some(file) = self.groups_file()? else { return Ok(None) };
        let measured = file["orthogonal_init"]["values"][name][0].as_f64();
        Ok(measured.or_else(|| file["orthogonal_init_gain"][name].as_f64()))
    }

    fn groups_file(&self) -> Result<Option<Value>> {
        self.vectors.beside(&format!("{}.groups.json", self.vectors.stem()))
    }

    /// Counts the parameters whose optimiser group differs from that of the reference.
    fn check_groups(&self, checks: &mut Vec<Check>) -> Result<()> {
        let Some(file) = self.groups_file()? else { return Ok(()) };
        let groups = file["optimizer_groups"].as_array().context("no optimizer_groups")?;
        let wrong = |spec: &&Spec| {
            let has = |group: &&Value| {
                group["params"].as_array().is_some_and(|p| p.iter().any(|name| *name == spec.name))
            };
            let same = |group: &Value| {
                group["lr_scale"].as_f64() == Some(spec.group.lr_factor)
                    && group["weight_decay"]
                        .as_f64()
                        .is_some_and(|d| (d > 0.0) == spec.group.decays)
            };
            !groups.iter().find(has).is_some_and(same)
        };
        let error = self.specs.iter().filter(wrong).count() as f64;
        checks.push(Check { name: "parameters in a wrong group".to_owned(), error, bound: 0.0 });
        Ok(())
    }

    /// One forward and backward pass over the batch of the file.
    pub(crate) fn pass<A: Form>(
        &self,
        parameters: &[FloatTensor<Inner<A>>],
        rows: &Rows,
        z_loss: ZLoss,
    ) -> Result<Pass> {
        let leaf =
            |p: &FloatTensor<Inner<A>>| A::float_set_require_grad(A::from_inner(p.clone()), true);
        let leaves: Vec<_> = parameters.iter().map(leaf).collect();
        let logits = self.arch.logits::<A>(&leaves, self.ids::<A>()?, rows);
        let seen = values::<Inner<A>>(&[A::inner(logits.clone())])?;
        let targets = self.vectors.ints("in/targets")?.values.as_slice().into();
        let loss = A::run(CrossEntropy { targets, z_loss }, [logits]);
        let loss_seen = values::<Inner<A>>(&[A::inner(loss.clone())])?[0];
        let mut gradients = A::backward(loss);
        // A parameter that the pass does not use has no gradient.
        let none = |p: &FloatTensor<Inner<A>>| {
            Inner::<A>::float_zeros(p.shape(), &Default::default(), p.dtype().into())
        };
        let gradient = leaves.iter().zip(parameters);
        let gradient = gradient
            .map(|(leaf, p)| A::grad_remove(leaf, &mut gradients).unwrap_or_else(|| none(p)));
        Ok(Pass {
            logits: seen,
            loss: loss_seen,
            gradient: values::<Inner<A>>(&gradient.collect::<Vec<_>>())?,
        })
    }

    fn parameters<B: FusedOps>(&self) -> Result<Vec<FloatTensor<B>>> {
        let mut theta = Vec::new();
        for spec in &self.specs {
            theta.extend_from_slice(&self.floats(&format!("param/{}", spec.name))?.values);
        }
        self.upload::<B>(&theta)
    }

    fn upload<B: FusedOps>(&self, theta: &[f32]) -> Result<Vec<FloatTensor<B>>> {
        Ok(params::upload::<B>(&self.arch.shapes(), theta, &Default::default())?)
    }

    /// Splits a slice in canonical order into the parts of the parameters.
    pub(crate) fn named<'b>(
        &'b self,
        flat: &'b [f32],
    ) -> impl Iterator<Item = (&'b Spec, &'b [f32])> {
        let mut rest = flat;
        self.specs.iter().map(move |spec| {
            let (part, later) = rest.split_at(spec.len());
            rest = later;
            (spec, part)
        })
    }

    fn floats(&self, name: &str) -> Result<&Tensor<f32>> {
        self.vectors.floats(name)
    }

    fn ids<B: Backend>(&self) -> Result<IntTensor<B>> {
        let ids = self.vectors.ints("in/ids")?.values.clone();
        let count = ids.len();
        Ok(B::int_from_data(TensorData::new(ids, [count]), &Default::default()))
    }
}

pub(crate) fn values<B: FusedOps>(tensors: &[FloatTensor<B>]) -> Result<Vec<f32>> {
    let count = tensors.iter().map(|tensor| tensor.shape().num_elements()).sum();
    let mut values = vec![0.0; count];
    params::download::<B>(tensors, &mut values)?;
    Ok(values)
}

/// The largest absolute difference.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> Result<f64> {
    ensure!(found.len() == expected.len(), "{} values, not {}", found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(a, b)| f64::from((a - b).abs()));
    // A NaN becomes the result and so fails the check; `max` would drop it.
    Ok(differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most }))
}

/// The largest difference divided by the largest value, and its bound; for a gradient that is
/// nothing but rounding, the absolute difference and its bound.
pub(crate) fn distance(found: &[f32], expected: &[f32]) -> Result<(f64, f64)> {
    let largest = expected.iter().fold(0.0, |most, x| f64::from(x.abs()).max(most));
    let difference = difference(found, expected)?;
    Ok(if largest < NOTHING { (difference, NOTHING) } else { (difference / largest, GRADIENT) })
}

pub(crate) const NO_Z: ZLoss = ZLoss { weight: 0.0, form: ZForm::Max };

/// The bounds of the README of the vectors: ten times the difference between references in f32 and
/// in f64.
pub(crate) const LOGITS: f64 = 1e-4;
pub(crate) const LOSS: f64 = 1e-5;
const GRADIENT: f64 = 1e-4;
const CURVE: f64 = 1e-3;
/// Adam divides by the size of a gradient even where the gradient is rounding, so norms vary more
/// than losses. Measured over ten steps of Finch in f32 (2026-11): 0.8 % with hand-written
/// operators, 1.2 % with plain ones, 4.2 % with the CUDA source on a CPU. If each weight changes by
/// up to one rounding (a relative 1.2e-7), 4.9 % and 7.8 % on the CPU.
const NORM: f64 = 0.15;
const NOTHING: f64 = 1e-6;
/// The formulas reproduce the initial weights of the reference to 5e-7.
const START: f64 = 1e-6;
