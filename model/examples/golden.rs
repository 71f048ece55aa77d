//! Compares a model of this crate with files of trusted vectors.
//!
//! ```text
//! cargo run --release -p intellect-model --example golden -- FILE…
//! cargo run --release -p intellect-model --features cuda --example golden -- --on cuda FILE…
//! ```
//!
//! `--on` takes `cpu`, `cuda` (in a build with `--features cuda`) or `gpu` (with `--features wgpu`)
//! and uses the first device of that kind.
//!
//! A file is in the safetensors format. It holds `param/*`, `in/ids`, `in/targets`, `out/*` and
//! `grad/*`, and in its metadata the family and the configuration of the model, which may have any
//! shape. Files of merges and of Spectrum have other contents, of any shape too. Two files next to it are read if they exist: `train.json`, a trace of training, and
//! `NAME.groups.json`, the groups of the optimiser. The example prints one line per check and exits
//! with 1 if an error is beyond its bound or a file cannot be used.

#![expect(clippy::print_stdout, reason = "an example prints for the person who runs it")]

#[path = "../tests/golden/checks.rs"]
mod checks;
#[path = "../tests/golden/llama.rs"]
mod llama;
#[path = "../tests/golden/merge.rs"]
mod merge;
#[path = "../tests/golden/rwkv.rs"]
mod rwkv;
#[path = "../tests/golden/spectrum.rs"]
mod spectrum;
#[path = "../tests/golden/vectors.rs"]
mod vectors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

use checks::Check;
use vectors::Vectors;

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let mut on = "cpu".to_owned();
    if arguments.len() > 1 && arguments[0] == "--on" {
        on = arguments.drain(..2).nth(1).and_then(|on| on.into_string().ok()).unwrap_or_default();
    }
    let files: Vec<PathBuf> = arguments.into_iter().map(PathBuf::from).collect();
    if files.is_empty() {
        println!("usage: golden [--on cpu|cuda|gpu] FILE…");
        return ExitCode::from(2);
    }
    let mut failed = 0;
    for file in &files {
        println!("{}", file.display());
        failed += check(file, &on).unwrap_or_else(|error| {
            println!("  cannot be used: {error:#}  FAIL");
            1
        });
    }
    println!("{failed} checks FAIL");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the checks of one file and returns how many fail.
fn check(file: &Path, on: &str) -> Result<usize> {
    let vectors = Vectors::read(file)?;
    let checks = match merge::checks(&vectors)?.or(spectrum::checks(&vectors)?) {
        Some(checks) => checks,
        None => checks_on(on, &vectors)?,
    };
    for check @ Check { name, error, bound } in &checks {
        let verdict = if check.passes() { "pass" } else { "FAIL" };
        println!("  {name:<68} {error:>9.2e}  bound {bound:.0e}  {verdict}");
    }
    Ok(checks.iter().filter(|check| !check.passes()).count())
}

fn checks_on(on: &str, vectors: &Vectors) -> Result<Vec<Check>> {
    match on {
        "cpu" => checks::checks(vectors),
        #[cfg(feature = "cuda")]
        "cuda" => checks::checks_of::<burn_autodiff::Autodiff<burn_cuda::Cuda<f32, i32>>>(vectors),
        #[cfg(feature = "wgpu")]
        "gpu" => checks::checks_of::<burn_autodiff::Autodiff<burn_wgpu::Wgpu<f32, i32>>>(vectors),
        _ => {
            bail!("unknown device {on}: use cpu, or cuda or gpu in a build with that feature")
        }
    }
}
