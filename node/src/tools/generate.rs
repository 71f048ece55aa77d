//! `generate`: completions for shells and pages for `man`, made of the command line's own
//! definition.
//!
//! Packages call it. None of these files is in the repository, so none falls behind the options
//! that there are.

use std::{io::Write, path::Path};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{
    cli::{BOOTSTRAP, BootstrapArgs, Cli, NODE},
    os::{self, PathError, cannot},
};

/// Writes `completions/` and `man/` into `folder`, in place of files of the same names. Both
/// folders are made if they are missing.
pub(crate) fn run(folder: &Path, out: &mut dyn Write) -> Result<(), PathError> {
    let [completions, man] = ["completions", "man"].map(|name| folder.join(name));
    for folder in [&completions, &man] {
        os::create_folder(folder).map_err(cannot("create", folder))?;
    }
    for (name, command) in [(NODE, Cli::command()), (BOOTSTRAP, BootstrapArgs::command())] {
        // Pages come of the definition before anything is added to it, such as `help` for each
        // subcommand.
        let mut completed = command.clone();
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            clap_complete::generate_to(shell, &mut completed, name, &completions)
                .map_err(cannot("write", &completions))?;
        }
        clap_mangen::generate_to(command, &man).map_err(cannot("write", &man))?;
    }
    writeln!(out, "wrote {} and {}", completions.display(), man.display())
        .map_err(cannot("write to", Path::new("standard output")))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    /// Runs a program on a file, and returns what it printed; `None` where there is no such
    /// program.
    fn said(program: &str, arguments: &[&str], path: &Path) -> Option<String> {
        let done = Command::new(program).args(arguments).arg(path).output().ok()?;
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(done.status.success() || !said.is_empty(), "{program} {}", path.display());
        Some(said)
    }

    fn files(folder: &Path) -> Vec<std::path::PathBuf> {
        let mut files: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn shells_and_man_can_read_what_is_generated() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &mut Vec::new()).unwrap();
        let shells = [("intellect-node.bash", "bash"), ("_intellect-node", "zsh")];
        for (name, shell) in shells.into_iter().chain([("intellect-bootstrap.bash", "bash")]) {
            let path = folder.path().join("completions").join(name);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("--listen"), "{name}");
            match said(shell, &["-n"], &path) {
                Some(complaints) => assert_eq!(complaints, "", "{name}"),
                None => println!("skipped: no {shell} is here to read {name}"),
            }
        }
        let pages = files(&folder.path().join("man"));
        let named = |name: &str| pages.iter().any(|page| page.ends_with(name));
        for name in ["intellect-node.1", "intellect-node-manifest-new.1", "intellect-bootstrap.1"] {
            assert!(named(name), "{name} in {pages:?}");
        }
        let is_help = |page: &&std::path::PathBuf| page.to_string_lossy().contains("-help");
        assert_eq!(pages.iter().find(is_help), None, "help is no page of its own");
        assert!(!named("intellect-node-bootstrap.1") && !named("intellect-node-generate.1"));
        for page in &pages {
            // Warnings are about style: a date that no page has, since it would change with each
            // build.
            match said("mandoc", &["-T", "lint", "-W", "error"], page) {
                Some(complaints) => assert_eq!(complaints, "", "{}", page.display()),
                None => println!("skipped: no mandoc is here to read {}", page.display()),
            }
        }
    }
}
