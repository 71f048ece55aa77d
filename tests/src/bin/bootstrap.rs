//! `intellect-bootstrap`, built with the stories so that cargo gives them its path.

use std::process::ExitCode;

fn main() -> ExitCode {
    intellect_node::bootstrap_main()
}
