//! The program `intellect-node`.

use std::process::ExitCode;

fn main() -> ExitCode {
    intellect_node::main()
}
