//! What the node of the data folder says of itself, where one runs there.
//!
//! It is asked over its socket, as `status` asks it, and judged by the same rule. So its log, its
//! views, `status` and this check name one reason.

use std::path::Path;

use serde_json::Value;

use super::check::{Check, Grade};
use crate::{
    figures,
    tell::screen::printable,
    tools::status::{self, StatusError},
};

/// The name of the check, by which the exit code finds it.
pub(super) const NAME: &str = "node";

/// Whether the node of this folder is in its run. Where none runs, or none answers, it was not tried.
pub(super) fn node(folder: &Path) -> Check {
    match status::ask(folder, "/status") {
        Ok(answer) => said(&answer).unwrap_or_else(|| {
            Check::not_tried(NAME, StatusError::NoAnswer(folder.to_owned()).to_string())
        }),
        Err(StatusError::NoFolder(_) | StatusError::NoNode(_)) => {
            Check::not_tried(NAME, format!("no node runs in {}", folder.display()))
        }
        Err(error) => Check::not_tried(NAME, figures::explain(&error, ": ")),
    }
}

/// The check of what a node answers at `/status`; `None` if that is something else.
fn said(answer: &str) -> Option<Check> {
    let status: Value = serde_json::from_str(answer).ok()?;
    let verdict = &status["verdict"];
    let sentence = verdict["sentence"].as_str()?.trim_end_matches('.');
    if status::is_in_run(&status) {
        return Some(Check::new(NAME, Grade::Ok, sentence));
    }
    let of = status["waiting"]["reason"].as_str().map(str::to_owned);
    let remedy = verdict["cure"].as_str().map(printable);
    Some(Check { of, remedy, ..Check::new(NAME, Grade::Warning, sentence) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::socket::Socket;

    /// The check of a node that gives this answer at its socket.
    fn of(answer: &str) -> Check {
        let folder = tempfile::tempdir().unwrap();
        let (_socket, listener) = Socket::listen(folder.path()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let answer = format!("HTTP/1.0 200 OK\r\n\r\n{answer}");
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let check = node(folder.path());
        answers.join().unwrap();
        check
    }

    #[test]
    fn a_node_that_waits_is_a_warning_with_its_own_reason_and_cure() {
        let waits = of(r#"{"verdict":{"mood":"wait","sentence":"Waiting: 1 is here.",
            "cure":"others join"},"waiting":{"reason":"founders"}}"#);
        assert_eq!((waits.verdict, waits.found.as_str()), (Grade::Warning, "Waiting: 1 is here"));
        assert_eq!(waits.of.as_deref(), Some("founders"));
        assert_eq!(waits.remedy.as_deref(), Some("others join"));
        let trains =
            of(r#"{"verdict":{"mood":"good","sentence":"Training epoch 3.","cure":null}}"#);
        assert_eq!((trains.verdict, trains.of, trains.remedy), (Grade::Ok, None, None));
        let forked = of(r#"{"verdict":{"mood":"bad","sentence":"Fork: x.","cure":"decide"}}"#);
        assert_eq!(forked.verdict, Grade::Warning, "the machine is as good as before");
    }

    #[test]
    fn without_a_node_that_answers_it_is_not_tried() {
        let other = of("no object");
        assert_eq!(other.verdict, Grade::NotTried);
        assert!(other.found.contains("gives no answer that this program understands"), "{other}");
        let folder = tempfile::tempdir().unwrap();
        for folder in [folder.path(), &folder.path().join("missing")] {
            let none = node(folder);
            assert_eq!((none.verdict, none.remedy), (Grade::NotTried, None));
            assert!(none.found.starts_with("no node runs in "), "{}", none.found);
        }
    }
}
