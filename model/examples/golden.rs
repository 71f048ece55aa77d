//! Compares a model of this crate with files of trusted vectors.
//!
//! ```text
//! cargo run --release -p intellect-model --example golden -- FILE…
//! cargo run --release -p intellect-model --features cuda --example golden -- --on cuda FILE…
//! ```
//!
//! `--on` takes `cpu`, `cuda` or, of a build with `--features wgpu`, `gpu`: the first device of
//! that kind.
//!
//! A file is safetensors: `param/*`, `in/ids`, `in/targets`, `out/*`, `grad/*`, and in its metadata
//! the family and the configuration, of any shape. Files beside it that bear its name are read too:
//! `train.json`, a trace of training, and `NAME.groups.json`, the optimiser's groups. Prints one
//! line per check; exits 1 when an error is past its bound or a file cannot be used.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

#[path = "../tests/golden/checks.rs"]
mod checks;
#[path = "../tests/golden/llama.rs"]
mod llama;
#[path = "../tests/golden/rwkv.rs"]
mod rwkv;
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
        println!("name at least one file of vectors");
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
    println!("{failed} of all checks FAIL");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of checks that fail.
fn check(file: &Path, on: &str) -> Result<usize> {
    let checks = checks_on(on, &Vectors::read(file)?)?;
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
            bail!("nothing is called {on} here: cpu, and of a build with these features cuda, gpu")
        }
    }
}
