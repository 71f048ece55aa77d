//! The program `intellect-bootstrap`, where it is not a link: it becomes the `intellect-node` that lies beside it.
//!
//! One program is enough, since an entry point verifies manifests by the code of a node. So this one links nothing.
//! The other program sees by the name it is called by that it is to be an entry point.

use std::{
    env,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let error = become_node();
    // Standard error may be closed too; then nobody can read it.
    let _ = writeln!(
        io::stderr(),
        "error: intellect-node, which does the work, does not start ({error}): it has to lie in the folder of this program"
    );
    ExitCode::FAILURE
}

/// Replaces this process; it returns only if that fails.
fn become_node() -> io::Error {
    let beside = env::current_exe().map(|program| program.with_file_name("intellect-node"));
    match beside {
        Ok(node) => {
            Command::new(node).arg0("intellect-bootstrap").args(env::args_os().skip(1)).exec()
        }
        Err(error) => error,
    }
}
