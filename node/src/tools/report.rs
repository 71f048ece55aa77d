//! `report`: several simulations over one another, on one page.
//!
//! The page is one file with everything in it, so it can be sent and opened without a network. `sim
//! --out` writes one of its own folder by the same function.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_view::report::{self, Report};

use crate::{
    cli::report::ReportArgs,
    figures::number_of,
    os::{PathError, cannot},
    store,
};

/// Why there is no page of these folders.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The folders have no reports of one run with several seeds.
    #[error(transparent)]
    Reports(#[from] report::ReportError),
    /// The page cannot be written to that place.
    #[error(transparent)]
    Write(#[from] PathError),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Writes the page of all folders. An existing page is replaced.
pub(crate) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), ReportError> {
    write(&args.folders, &args.html)?;
    let runs = number_of(args.folders.len(), "run");
    writeln!(out, "{runs} in {}: open it in a browser", args.html.display())?;
    Ok(())
}

/// Writes the page of these folders into a file, which has a page as a whole or the one before. A
/// link or a device is written through.
pub(crate) fn write(folders: &[PathBuf], html: &Path) -> Result<(), ReportError> {
    let open = |folder: &PathBuf| Report::open(folder);
    let reports = folders.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let page = report::html(&reports)?;
    let part = html.with_added_extension("part");
    let written = if fs::symlink_metadata(html).is_ok_and(|found| !found.is_file()) {
        fs::write(html, page)
    } else {
        store::write_by(&part, html, page.as_bytes())
    };
    written.map_err(|error| {
        // It has this name only while it is not whole.
        let _ = fs::remove_file(&part);
        cannot("write", html)(error).into()
    })
}
