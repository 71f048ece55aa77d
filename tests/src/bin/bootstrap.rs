//! `intellect-bootstrap`, built beside the stories so that cargo tells them where it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    intellect_node::bootstrap_main()
}
