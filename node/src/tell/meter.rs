//! The progress of a transfer: a sentence with a bar, and the event `sync` or `data`.
//!
//! On a terminal the sentence is one line that is overwritten four times a second. Elsewhere, as in a log, it comes
//! at the beginning, every ten seconds, and at the end. The rate is that of the last seconds; what was on disk before
//! does not count.
//!
//! Work that does not know how far it is gets a sentence once it takes long.

use std::pin::pin;
use std::time::{Duration, Instant};

use intellect_model::config::Fingerprint;
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::machine::wait::Wait;
use tokio::time::timeout;

use super::events;
use super::screen;
use super::{Console, Reason};
use crate::figures::{bytes, length, number_of};
use crate::name::Hex;

/// How often the line is overwritten and the event written.
const OFTEN: Duration = Duration::from_millis(250);

/// How often a line is added where it cannot be overwritten.
const SELDOM: Duration = Duration::from_secs(10);

/// How long work may take without a sentence.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The length of the bar, in characters.
const CELLS: u64 = 20;

/// How much of a state or file has arrived.
pub(crate) struct Progress {
    /// Bytes that were fetched and verified so far.
    pub(crate) have_bytes: u64,
    /// The size of the whole, in bytes.
    pub(crate) want_bytes: u64,
    /// Peers that serve it; none for a web server.
    pub(crate) donors: Vec<PeerId>,
}

/// What a transfer brings, as its sentences name it.
#[derive(Clone, Debug)]
enum Subject {
    /// The state of the second epoch, while the node has that of the first.
    State(u64, u64),
    /// A file of the run's data: its digest and its name.
    Data(Hex, String),
}

/// Reports the progress of one transfer.
pub(crate) struct Meter {
    /// Where sentences and events go. Errors of the transfer are reported there too.
    pub(crate) console: Console,
    /// What is fetched, as sentences name it.
    subject: Subject,
    rate: Rate,
    /// When an event was written last.
    shown: Option<Instant>,
    /// When a sentence was printed last.
    said: Option<Instant>,
}

impl Console {
    /// Reports the progress of a fetched state.
    pub(crate) fn meter(&self, from_epoch: u64, to_epoch: u64) -> Meter {
        Meter::new(self.clone(), Subject::State(from_epoch, to_epoch))
    }

    /// The same for a file of the run's data, which sentences call `name`.
    pub(crate) fn meter_of_data(&self, name: &str, file: &Fingerprint) -> Meter {
        Meter::new(self.clone(), Subject::Data(Digest(file.digest).into(), name.to_owned()))
    }

    /// Why a node waits that fetches a later state, with what is left of it once bytes come in.
    pub(crate) fn fetching(&self) -> Reason {
        let fetched = self.sink().stage().and_then(|stage| stage.fetched());
        match fetched.filter(|(have, want)| have < want) {
            Some((have, want)) => Reason::Behind { have, want },
            None => Reason::Run(Wait::Behind),
        }
    }

    /// Awaits work that does not know how far it is. If it takes over two seconds, the sentence is printed.
    pub(crate) async fn announced<T>(&self, sentence: &str, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(done) = timeout(SILENCE_MAX, work.as_mut()).await {
            return done;
        }
        self.say(sentence);
        work.await
    }
}

impl Meter {
    /// Nothing was reported yet, so the first call reports.
    fn new(console: Console, subject: Subject) -> Self {
        Self { console, subject, rate: Rate::default(), shown: None, said: None }
    }

    /// More bytes have arrived; the last call has all of them.
    pub(crate) fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        let end = progress.have_bytes >= progress.want_bytes;
        let due = |last: Option<Instant>, every| {
            end || last.is_none_or(|last| now.duration_since(last) >= every)
        };
        if !due(self.shown, OFTEN) {
            return;
        }
        self.shown = Some(now);
        let rate = self.rate.note(now, progress.have_bytes);
        let terminal = screen::can_draw();
        if due(self.said, if terminal { OFTEN } else { SELDOM }) {
            self.said = Some(now);
            let sentences = sentences(&self.subject, &progress, rate);
            // A line that wraps cannot be overwritten.
            let columns = screen::columns().saturating_sub(1);
            let sentence = fitting(&sentences, if terminal { columns } else { usize::MAX });
            if terminal && !end {
                self.console.say_over(&sentence);
            } else {
                self.console.say(&sentence);
            }
        }
        let Progress { have_bytes, want_bytes, donors } = progress;
        let donors = donors.into_iter().map(Into::into).collect();
        let event = match self.subject.clone() {
            Subject::State(from_epoch, to_epoch) => {
                events::Event::Sync { from_epoch, to_epoch, have_bytes, want_bytes, donors, rate }
            }
            Subject::Data(file, _) => {
                events::Event::Data { file, have_bytes, want_bytes, donors, rate }
            }
        };
        self.console.emit(None, event);
    }
}

/// Bytes per second, smoothed over about five samples.
#[derive(Debug, Default)]
struct Rate {
    /// The last sample: when, and how many bytes there were.
    last: Option<(Instant, u64)>,
    /// The smoothed rate; `None` before the second sample.
    smooth: Option<f64>,
}

impl Rate {
    /// Takes a sample. Bytes that were there before the first one do not count, since they were not
    /// fetched now.
    fn note(&mut self, now: Instant, have_bytes: u64) -> f64 {
        if let Some((at, before)) = self.last.replace((now, have_bytes)) {
            let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = have_bytes.saturating_sub(before) as f64 / seconds;
            self.smooth = Some(self.smooth.map_or(rate, |smooth| 0.8 * smooth + 0.2 * rate));
        }
        self.smooth.unwrap_or(0.0)
    }
}

/// The progress in full, without bar and donors, and shortest.
fn sentences(subject: &Subject, progress: &Progress, rate: f64) -> [String; 3] {
    let (what, short) = match subject {
        Subject::State(_, epoch) => (format!("weights of epoch {epoch}"), format!("epoch {epoch}")),
        Subject::Data(_, name) => (name.clone(), name.clone()),
    };
    let Progress { have_bytes, want_bytes, donors } = progress;
    let share = |of: u64| {
        u64::try_from(u128::from(*have_bytes) * u128::from(of) / u128::from((*want_bytes).max(1)))
            .unwrap_or(of)
    };
    let full = usize::try_from(share(CELLS).min(CELLS)).unwrap_or(0);
    let empty = usize::try_from(CELLS).unwrap_or(0).saturating_sub(full);
    let bar = format!("[{}{}] ", "#".repeat(full), ".".repeat(empty));
    let have = format!("{} % of {}", share(100), bytes(*want_bytes));
    // A web server is no donor, so that there may be none.
    let donors = match donors.len() {
        0 => String::new(),
        count => format!(" from {}", number_of(count, "donor")),
    };
    let pace = (rate >= 1.0).then(|| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time for people; the rate is positive"
        )]
        let (per_s, left) =
            (rate as u64, (want_bytes.saturating_sub(*have_bytes) as f64 / rate).ceil() as u64);
        (format!(", {}/s", bytes(per_s)), format!(", {} left", length(left)))
    });
    let (per_s, left) = pace.unwrap_or_default();
    [
        format!("fetching {what}: {bar}{have}{donors}{per_s}{left}"),
        format!("fetching {what}: {have}{per_s}{left}"),
        format!("{short}: {have}{left}"),
    ]
}

/// The first sentence of at most `columns` characters, else the beginning of the shortest.
fn fitting(sentences: &[String; 3], columns: usize) -> String {
    let fits = sentences.iter().find(|sentence| sentence.chars().count() <= columns);
    let [.., shortest] = sentences;
    fits.unwrap_or(shortest).chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_bar_percent_donors_rate_and_time_left() {
        let donors = vec![PeerId([1; 32]); 5];
        let progress = Progress { have_bytes: 516_000_000, want_bytes: 1_200_000_000, donors };
        let [full, ..] = sentences(&Subject::State(0, 118), &progress, 12e6);
        assert_eq!(
            full,
            "fetching weights of epoch 118: [########............] 43 % of 1.2 GB from 5 donors, \
             12 MB/s, 57 s left"
        );
        let begun = Progress { have_bytes: 0, want_bytes: 8, donors: vec![PeerId([1; 32])] };
        let [full, ..] = sentences(&Subject::State(0, 2), &begun, 0.0);
        assert_eq!(
            full,
            "fetching weights of epoch 2: [....................] 0 % of 8 B from 1 donor"
        );
        assert_eq!(
            (length(99), length(600), length(7_300)),
            ("99 s".into(), "10 min".into(), "2 h".into())
        );
    }

    #[test]
    fn a_file_of_data_goes_by_its_name() {
        let progress = Progress { have_bytes: 3 << 20, want_bytes: 4 << 20, donors: Vec::new() };
        let subject = Subject::Data(Digest([1; 32]).into(), "corpus.txt".to_owned());
        let [full, middle, short] = sentences(&subject, &progress, 1e6);
        assert!(full.ends_with("75 % of 4.2 MB, 1.0 MB/s, 2 s left"), "{full}");
        assert_eq!(middle, "fetching corpus.txt: 75 % of 4.2 MB, 1.0 MB/s, 2 s left");
        assert_eq!(short, "corpus.txt: 75 % of 4.2 MB, 2 s left");
    }

    /// The rest of a line that wraps stays when the next sentence overwrites it.
    #[test]
    fn a_line_that_is_overwritten_fits_the_terminal() {
        let donors = vec![PeerId([1; 32]); 2];
        let progress = Progress { have_bytes: 330_000_000, want_bytes: 756_000_000, donors };
        let sentences = sentences(&Subject::State(198, 199), &progress, 181e3);
        assert!(fitting(&sentences, 120).contains("[####"));
        assert_eq!(
            fitting(&sentences, 79),
            "fetching weights of epoch 199: 43 % of 756 MB, 181 kB/s, 39 min left"
        );
        for columns in 0..120 {
            assert!(fitting(&sentences, columns).chars().count() <= columns);
        }
    }

    #[test]
    fn what_was_there_before_is_no_rate() {
        let (mut rate, now) = (Rate::default(), Instant::now());
        assert_eq!(rate.note(now, 1_000), 0.0);
        assert_eq!(rate.note(now + Duration::from_secs(2), 1_400), 200.0);
    }
}
