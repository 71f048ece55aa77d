//! `spectrum scan`: which matrices of a model are worth training.
//!
//! A matrix that has learnt much has singular values that noise does not explain. The scan ranks
//! the matrices of each type by that ratio, and lists the best of each as those to train; the rest
//! may be frozen. The measure is in `intellect_model::spectrum`.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use intellect_model::spectrum::{self, SpectrumError};

use crate::{
    cli::merge::SpectrumCommand,
    figures::number_of,
    os::{PathError, cannot},
    tools::{
        models::{OpenModel, OpenModelError},
        pace::ProgressPace,
    },
};

/// Why there is no list of the matrices to train.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpectrumCommandError {
    /// The model at this path cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenModelError),
    /// The model has no matrices, or some of them have no spectrum.
    #[error(transparent)]
    Scan(#[from] SpectrumError),
    /// A file of this name exists already.
    #[error("{} exists and is not overwritten: choose another name, or move it away", .0.display())]
    Exists(PathBuf),
    /// The list cannot be written to that place.
    #[error(transparent)]
    Write(#[from] PathError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

/// Measures the modules of a model, and reports how far it is.
///
/// With `--out` the list goes into that file and standard output gets a summary for people; without
/// it standard output is the list alone, so that it can be piped. Progress goes to standard error
/// in both.
///
/// # Errors
/// An existing file is refused before the scan, which takes minutes. [`SpectrumCommandError`] has
/// the others.
pub(crate) fn run(
    SpectrumCommand::Scan(args): &SpectrumCommand,
    out: &mut dyn Write,
) -> Result<(), SpectrumCommandError> {
    for path in [&args.out, &args.report].into_iter().flatten() {
        // A pipe or a device may be there.
        if path.is_file() {
            return Err(SpectrumCommandError::Exists(path.clone()));
        }
    }
    let opened = OpenModel::open(&args.model)?;
    let mut modules = spectrum::modules(&opened.input, &args.types)?;
    let (all, mut pace) = (modules.len(), ProgressPace::new());
    // Standard output may be the list.
    let mut report = |done: usize| {
        if pace.is_due() {
            let _ = writeln!(io::stderr(), "{done} of {all} matrices done");
        }
    };
    spectrum::scan(&opened.input, &mut modules, &mut report)?;
    let percent = usize::from(args.percent);
    let list = spectrum::select(&modules, percent);
    let yaml = spectrum::yaml(&list);
    if let Some(path) = &args.report {
        let report = spectrum::report(&modules, &list, percent);
        fs::write(path, format!("{report:#}\n")).map_err(cannot("write", path))?;
    }
    let Some(path) = &args.out else { return Ok(write!(out, "{yaml}")?) };
    fs::write(path, yaml).map_err(cannot("write", path))?;
    for kind in modules.chunk_by(|a, b| a.kind == b.kind) {
        let mut ratios: Vec<f64> = kind.iter().map(|module| module.snr).collect();
        ratios.sort_by(|a, b| b.total_cmp(a));
        let (Some(most), Some(least)) = (ratios.first(), ratios.last()) else { continue };
        writeln!(
            out,
            "{:<28} {:>4}  signal to noise {least:.4} to {most:.4}",
            kind[0].kind,
            kind.len()
        )?;
    }
    writeln!(out, "{} in {}", number_of(list.len(), "name"), path.display())?;
    Ok(())
}
