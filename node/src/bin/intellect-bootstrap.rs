//! The program `intellect-bootstrap`: the public entry point of runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    intellect_node::bootstrap_main()
}
