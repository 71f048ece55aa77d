//! `eval`: measures any weights on the run's held-out data, on any file, or on tasks.
//!
//! Everything that was named is opened and checked before the weights are read, which takes long.
//! Nothing is written.
//!
//! There are two ways through this file. Without `--on` and `--tasks` a checkpoint is measured on
//! the data that its run holds out, by the same code as every node measures at the end of a run, so
//! the numbers can be compared. With them any weights are measured on files and tasks, which need a
//! tokenizer. In both the weights come from [`subject`].

pub(super) mod subject;
mod tasks;

use std::{
    io::{self, Write},
    path::Path,
};

use intellect_model::{
    Device,
    config::Work,
    data::{
        DataError, Dataset, Entropies,
        corpus::{Corpus, CorpusError, Reads},
    },
    eval::{self, EvalError, Evaluation, OnFile},
    hf::error::ImportError,
    tokenizer::{OpenError, Tokenizer},
    train::TrainError,
};

use crate::{
    cli::eval::EvalArgs,
    config::{self, LocalError},
    evaluation::EvaluationError,
    figures::count,
    tools::stored::{self, FoundState, StoredError},
};
use subject::{Candidate, Subject};
pub(crate) use tasks::TasksError;

/// Why nothing was measured, or no more. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] LocalError),
    /// The checkpoint, its manifest, its tokenizer or the run's data cannot be used, or the measurement failed.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// `--hf` without anything to measure on.
    #[error("--hf: a model in a folder has no held-out data: name files with --on, or --tasks")]
    NothingToMeasure,
    /// The model of `--hf` cannot be used.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// More tokens are to be read at once than the model can.
    #[error("--context {typed}: this model reads at most {most} tokens at once")]
    Context {
        /// The number of tokens that was typed.
        typed: usize,
        /// What the positions of the model allow.
        most: usize,
    },
    /// A file of `--on` cannot be used.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A task cannot be used, or an item of it.
    #[error(transparent)]
    Tasks(#[from] TasksError),
    /// Standard output is closed, or its disk is full.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl From<OpenError> for EvaluateError {
    fn from(error: OpenError) -> Self {
        StoredError::from(error).into()
    }
}

/// Errors of a measurement come as a [`StoredError`].
macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for EvaluateError {
            fn from(error: $error) -> Self {
                StoredError::from(EvaluationError::from(error)).into()
            }
        }
    )*};
}

from!(DataError, TrainError, EvalError);

/// Measures what was typed, and prints what was found.
///
/// # Errors
/// See [`EvaluateError`]. What was printed before an error is right: files and tasks are measured
/// one after the other.
pub(crate) fn run(args: &EvalArgs, out: &mut dyn Write) -> Result<(), EvaluateError> {
    let device = config::parse_device(&args.checkpoint.device)?;
    let origin = Candidate::find(args.hf.as_deref(), &args.checkpoint.state)?;
    let sizes = origin.sizes(args.context)?;
    if args.on.is_empty() && args.tasks.is_empty() {
        return on_held_out(args, origin, sizes, device, out);
    }
    let texts = origin.texts(args.checkpoint.tokenizer.as_deref())?;
    let (tokenizer, vocab) = (&texts.tokenizer, sizes.model.vocab);
    let reads = Reads { tokenizer, vocabulary: texts.vocabulary, vocab };
    let open = |path| Corpus::open(path, reads);
    let corpora = args.on.iter().map(|path| open(path)).collect::<Result<Vec<_>, _>>()?;
    let tasks = tasks::open(args)?;
    let subject = Subject::load(origin, sizes, device)?;
    write(out, &subject.lines)?;
    for (path, corpus) in args.on.iter().zip(&corpora) {
        let tokens = args.tokens.get() as u64;
        let Subject { model, work, .. } = &subject;
        let measured = eval::on_file(model.as_ref(), corpus, work, tokenizer, tokens)?;
        write(out, &file_lines(path, corpus, work.model.context, measured))?;
    }
    Ok(tasks::measure(&tasks, &subject, tokenizer, args.details.as_deref(), out)?)
}

/// Measures a checkpoint on the data that its run holds out. The files are those of `--data`, or
/// what the node of the checkpoint's folder was given or has fetched.
fn on_held_out(
    args: &EvalArgs,
    origin: Candidate,
    sizes: Work,
    device: Device,
    out: &mut dyn Write,
) -> Result<(), EvaluateError> {
    let Candidate::State(found) = &origin else {
        return Err(EvaluateError::NothingToMeasure);
    };
    let FoundState { path, manifest, .. } = &**found;
    // All but the bits per byte is measured without a tokenizer. But a tokenizer that was named has
    // to be right, which is checked before the rest, which takes long.
    let tokenizer = match stored::tokenizer(&args.checkpoint, path, manifest) {
        Err(error) if args.checkpoint.tokenizer.is_some() => return Err(error.into()),
        found => found,
    };
    let files = match args.data.as_slice() {
        [] => stored::stored_data(path, manifest),
        named => named.to_vec(),
    };
    let source = Dataset::open(&sizes, manifest.run.seed, &files)?;
    let subject = Subject::load(origin, sizes, device)?;
    let Subject { model, work, lines } = &subject;
    // What is measured is shown first, since measuring may take minutes.
    write(out, lines)?;
    let evaluation = eval::evaluate(model.as_ref(), &source, work, args.tokens.get())?;
    write(out, &held_out_lines(&source, &subject, evaluation, &tokenizer)?)?;
    Ok(())
}

/// What was measured on the held-out data, in lines. Without a tokenizer the bits per byte are
/// missing, and a warning says why. The excess over the entropy is known for a synthetic source
/// only; for other data simple models are compared instead.
fn held_out_lines(
    source: &Dataset,
    subject: &Subject,
    evaluation: Evaluation,
    tokenizer: &Result<Tokenizer, OpenError>,
) -> Result<Vec<String>, EvaluateError> {
    let bytes =
        |tokenizer| eval::bytes_per_token(source, &subject.work, tokenizer, evaluation.tokens);
    let (bytes, missing) = match tokenizer {
        Ok(tokenizer) => (bytes(tokenizer)?, None),
        Err(error) => {
            let warning = format!("warning        no bits per byte: {}", stored::remedied(error));
            (None, Some(warning))
        }
    };
    let mut lines = vec![
        format!("held-out loss  {}", loss(&evaluation)),
        perplexity(&evaluation, bytes),
        match (evaluation.excess, source.entropies().yardsticks()) {
            (Some(excess), Some(yardsticks)) => format!(
                "excess         {excess:.4} (uniform {:.4}, unigram {:.4}, bigram {:.4})",
                yardsticks.uniform, yardsticks.unigram, yardsticks.bigram
            ),
            _ => compare(&source.entropies()),
        },
    ];
    lines.extend(missing);
    Ok(lines)
}

/// What was measured on a file, in lines. An empty line comes first, since several files may follow
/// one another.
fn file_lines(path: &Path, corpus: &Corpus, context: usize, measured: OnFile) -> Vec<String> {
    let OnFile { evaluation, bytes_per_token } = measured;
    vec![
        String::new(),
        format!(
            "file           {}: {} tokens, read in rows of at most {context}",
            path.display(),
            count(corpus.tokens())
        ),
        format!("loss           {}", loss(&evaluation)),
        perplexity(&evaluation, bytes_per_token),
        compare(&corpus.entropies()),
    ]
}

/// A loss with its standard error, and how many tokens it is the mean of.
fn loss(evaluation: &Evaluation) -> String {
    let error = evaluation.error.map_or_else(String::new, |error| format!(" ± {error:.4}"));
    let tokens = count(evaluation.tokens as u64);
    format!("{:.4}{error} nats per token, over {tokens} tokens", evaluation.loss)
}

/// The perplexity, with the bits per byte if the bytes per token are known.
fn perplexity(evaluation: &Evaluation, bytes_per_token: Option<f64>) -> String {
    let bits = bytes_per_token.map_or_else(String::new, |bytes| {
        format!(", {:.4} bits per byte", evaluation.bits_per_byte(bytes))
    });
    format!("perplexity     {:.4}{bits}", evaluation.perplexity())
}

/// What simple models reach on the same text, for comparison.
fn compare(entropies: &Entropies) -> String {
    let bigram =
        entropies.bigram.map_or_else(String::new, |bigram| format!(", bigram {bigram:.4}"));
    format!(
        "compare        uniform {:.4}, unigram {:.4}{bigram}",
        entropies.uniform, entropies.unigram
    )
}

/// Prints lines, and flushes them, since the next ones may take long. The tasks use it too.
fn write(out: &mut dyn Write, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}
