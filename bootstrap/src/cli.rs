//! The command line of the entry point, also for `intellect-node`, which carries it as a hidden
//! subcommand so that a simulation needs one program only.
//!
//! Standard output gets one line per address, ready to be pasted, and nothing else.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use libp2p::Multiaddr;

use crate::{interrupts::Interrupts, key, manifest, server};

/// Public entry point of training runs: lets nodes find one another and hands out the signed
/// manifests of the runs that they can join.
#[derive(Debug, clap::Parser)]
#[command(version)]
pub struct Args {
    /// Signed manifests to hand out, as `intellect-node manifest new` writes them.
    #[arg(long = "manifest", value_name = "FILE", required = true, num_args = 1..)]
    pub manifests: Vec<PathBuf>,
    /// Where to listen, such as /ip4/0.0.0.0/tcp/4001; port 0 lets the system choose.
    #[arg(long, value_name = "MULTIADDR", required = true, num_args = 1..)]
    pub listen: Vec<Multiaddr>,
    /// Addresses under which others reach this machine, if it cannot see them itself.
    #[arg(long, value_name = "MULTIADDR", num_args = 1..)]
    pub external: Vec<Multiaddr>,
    /// Where the key is kept [default: $XDG_DATA_HOME/intellect-bootstrap].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The line of a process of `sim`
    #[arg(long, hide = true)]
    pub line: Option<PathBuf>,
}

/// Runs until Ctrl-C, SIGTERM or a closed terminal: 0 then, 1 if it could not start.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    // Fails where the caller has set up its own, which is as good.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(io::stderr)
        // Its own complaint about a closed terminal would be a panic.
        .log_internal_errors(false)
        .try_init();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error leaves only the exit code to tell.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    let manifests = read_manifests(&args.manifests)?;
    let folder = args.data_dir.map_or_else(default_folder, Ok)?;
    let key = key::load_or_create(&folder)?;
    let config = server::Config {
        key,
        listen: args.listen,
        external: args.external,
        manifests,
        line: args.line,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut interrupts = Interrupts::new()?;
        server::serve(config, print_join_line, interrupts.next()).await?;
        Ok(())
    })
}

/// One line per address. Whoever closed the pipe does not want to read it.
fn print_join_line(address: Multiaddr) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "intellect-node --bootstrap {address}").and_then(|()| out.flush());
}

/// Why a manifest cannot be handed out. Whoever chose the file can mend it.
#[derive(Debug, thiserror::Error)]
enum ManifestError {
    #[error("cannot read the manifest {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error(
        "{path} is not a manifest: it is empty; make one with: intellect-node manifest new --out {path}",
        path = path.display()
    )]
    Empty { path: PathBuf },
    #[error(
        "{path} is not a manifest: it has more than {limit} bytes; make one with: intellect-node manifest new",
        path = path.display(), limit = manifest::FILE_BYTES_MAX
    )]
    TooLong { path: PathBuf },
    #[error(
        "{count} manifests, but at most {} can be handed out; start a second bootstrap for the rest",
        manifest::FILES_MAX
    )]
    TooMany { count: usize },
}

fn read_manifests(paths: &[PathBuf]) -> Result<Vec<manifest::File>, ManifestError> {
    if paths.len() > manifest::FILES_MAX {
        return Err(ManifestError::TooMany { count: paths.len() });
    }
    paths.iter().map(|path| read_manifest(path)).collect()
}

fn read_manifest(path: &Path) -> Result<manifest::File, ManifestError> {
    let limit = u64::from(manifest::FILE_BYTES_MAX);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    match read {
        Err(cause) => Err(ManifestError::Unreadable { path: path.into(), cause }),
        Ok(0) => Err(ManifestError::Empty { path: path.into() }),
        Ok(read) if u64::try_from(read).is_ok_and(|read| read <= limit) => Ok(bytes.into()),
        Ok(_) => Err(ManifestError::TooLong { path: path.into() }),
    }
}

fn default_folder() -> anyhow::Result<PathBuf> {
    data_home(env::var_os("XDG_DATA_HOME"), env::var_os("HOME"))
        .map(|home| home.join("intellect-bootstrap"))
        .ok_or_else(|| anyhow::anyhow!("neither XDG_DATA_HOME nor HOME is set: use --data-dir"))
}

/// The XDG rule: an unset, empty or relative XDG_DATA_HOME counts as ~/.local/share.
fn data_home(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    xdg.and_then(absolute).or_else(|| home.and_then(absolute).map(|home| home.join(".local/share")))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    #[test]
    fn the_command_line_is_what_the_documents_say() {
        Args::command().debug_assert();
        let line = "x --manifest a b --listen /ip4/0.0.0.0/tcp/0 /ip4/0.0.0.0/udp/0/quic-v1";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        assert_eq!((args.manifests.len(), args.listen.len()), (2, 2));
        let error = Args::try_parse_from(["x", "--manifest", "a"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_bad_manifest_file_is_named_with_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, length: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![b'x'; length]).unwrap();
            path
        };
        let largest = write("largest", 65_536);
        assert_eq!(read_manifest(&largest).unwrap().len(), 65_536);
        for (path, cause) in [
            (write("long", 65_537), "more than 65536 bytes"),
            (write("empty", 0), "it is empty"),
            (folder.path().join("absent"), "No such file"),
            (folder.path().into(), "Is a directory"),
        ] {
            let error = read_manifest(&path).unwrap_err().to_string();
            assert!(error.contains(cause) && error.contains(path.to_str().unwrap()), "{error}");
        }
        assert!(matches!(
            read_manifests(&vec![largest; 17]),
            Err(ManifestError::TooMany { count: 17 })
        ));
    }

    #[test]
    fn the_data_folder_follows_the_xdg_rule() {
        let found = |xdg: &str, home: &str| data_home(Some(xdg.into()), Some(home.into()));
        assert_eq!(found("/x", "/h"), Some("/x".into()));
        assert_eq!(found("relative", "/h"), Some("/h/.local/share".into()));
        assert_eq!(found("", ""), None);
    }
}
