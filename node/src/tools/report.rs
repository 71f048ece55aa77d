//! `report`: several simulations over one another, on one page.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use intellect_view::report::{self, REPORT_BYTES, Report};

use crate::{
    cli::report::ReportArgs,
    figures::{bytes, number_of},
    os::{PathError, cannot},
};

/// Why there is no page of these folders.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The folder has no report, or nobody may read it.
    #[error("{} has no report.json: name a folder that `sim --out` has written", folder.display())]
    Read {
        folder: PathBuf,
        /// What the system said about it.
        source: io::Error,
    },
    /// The report is not of this program, or of an older one.
    #[error("the report.json of {} is not one of this program: simulate anew with `sim --out`", folder.display())]
    Foreign {
        folder: PathBuf,
        /// The place at which it stops to be one.
        source: serde_json::Error,
    },
    /// The report is too long to be shown.
    #[error("the report.json of {} is longer than {}: it is not shown", .0.display(), bytes(REPORT_BYTES))]
    Long(PathBuf),
    /// The folders hold different runs, whose mean would mean nothing.
    #[error(
        "{} is of another run than {}: `{key}` differs; only the seed may, so make a page of each",
        other.display(), first.display()
    )]
    Different { first: PathBuf, other: PathBuf, key: String },
    /// The same folder was named twice.
    #[error("{} is there twice: its mean with itself would seem certain", .0.display())]
    Twice(PathBuf),
    /// The page cannot be written to that place.
    #[error(transparent)]
    Write(#[from] PathError),
    /// Standard output is gone or full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl From<report::ReportError> for ReportError {
    fn from(error: report::ReportError) -> Self {
        match error {
            report::ReportError::Read(folder, source) => Self::Read { folder, source },
            report::ReportError::Foreign(folder, source) => Self::Foreign { folder, source },
            report::ReportError::Long(folder) => Self::Long(folder),
            report::ReportError::Different { first, other, key } => {
                Self::Different { first, other, key }
            }
            report::ReportError::Twice(folder) => Self::Twice(folder),
        }
    }
}

/// Writes the page of all folders.
pub(crate) fn run(args: &ReportArgs, out: &mut dyn Write) -> Result<(), ReportError> {
    write(&args.folders, &args.html)?;
    let runs = number_of(args.folders.len(), "run");
    writeln!(out, "{runs} in {}: open it in a browser", args.html.display())?;
    Ok(())
}

/// Writes the page of these folders into a file.
pub(crate) fn write(folders: &[PathBuf], html: &Path) -> Result<(), ReportError> {
    let open = |folder: &PathBuf| Report::open(folder);
    let reports = folders.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let page = report::html(&reports)?;
    Ok(fs::write(html, page).map_err(cannot("write", html))?)
}
