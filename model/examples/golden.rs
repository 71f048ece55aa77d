//! Compares a model of this crate with files of trusted vectors.
//!
//! ```text
//! cargo run --release -p intellect-model --example golden -- FILE…
//! ```
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

use anyhow::Result;

use checks::Check;
use vectors::Vectors;

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        println!("name at least one file of vectors");
        return ExitCode::from(2);
    }
    let mut failed = 0;
    for file in &files {
        println!("{}", file.display());
        failed += check(file).unwrap_or_else(|error| {
            println!("  cannot be used: {error:#}  FAIL");
            1
        });
    }
    println!("{failed} of all checks FAIL");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The number of checks that fail.
fn check(file: &Path) -> Result<usize> {
    let checks = checks::checks(&Vectors::read(file)?)?;
    for check @ Check { name, error, bound } in &checks {
        let verdict = if check.passes() { "pass" } else { "FAIL" };
        println!("  {name:<68} {error:>9.2e}  bound {bound:.0e}  {verdict}");
    }
    Ok(checks.iter().filter(|check| !check.passes()).count())
}
