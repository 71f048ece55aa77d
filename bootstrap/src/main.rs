//! `intellect-bootstrap`: the public entry point of a run, on its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    intellect_bootstrap::main()
}
