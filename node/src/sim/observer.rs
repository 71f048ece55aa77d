//! Measures committed states while the simulation runs, from checkpoint files.
//!
//! What a node reports about its own loss does not decide whether a simulation succeeds. The observer measures at a
//! lower priority than the nodes train with, on all cores that they leave idle, and one state at a time. A request
//! that comes meanwhile is refused, and that epoch stays unmeasured.

use std::{
    io,
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread::JoinHandle,
    time::Duration,
};

use intellect_model::{data::Entropies, eval::Evaluation};

use crate::{
    evaluation::{EvaluationError, Evaluator},
    name::Hex,
    os::{self, Priority},
};

use super::stop::Stop;

/// A state that is to be measured.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Its epoch; 0 for the weights that the run begins with.
    pub(super) epoch: u64,
    /// The path of its checkpoint; absent: the weights are drawn from the seed.
    pub(super) path: Option<PathBuf>,
    /// How many held-out tokens to measure on.
    pub(super) tokens: usize,
}

/// The answer to one request, which names the request again.
#[derive(Debug)]
pub(super) struct Answer {
    /// The epoch of the request; 0 for the first weights.
    pub(super) epoch: u64,
    /// The number of tokens of the request.
    pub(super) tokens: usize,
    /// The measurement, or why there is none.
    pub(super) result: Result<Measurement, EvaluationError>,
}

/// How good a state is, as it was measured.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    /// The state's digest; absent for weights that were drawn.
    pub(super) state: Option<Hex>,
    /// The losses, in nats per token.
    pub(super) evaluation: Evaluation,
}

/// Held-out losses before and after the run, and what they are compared with.
#[derive(Debug)]
pub(super) struct Measured {
    /// Evaluation of the weights that the run began with.
    pub(super) before: Option<Evaluation>,
    /// Evaluation of the weights that were committed last.
    pub(super) after: Option<Evaluation>,
    /// What guesses without a model would cost.
    pub(super) entropies: Entropies,
}

impl Measured {
    /// Why the measurement fails the simulation, if it does. A model that has not become better
    /// fails it, however well the replicas agree: they could all apply nothing.
    pub(super) fn complaint(&self) -> Option<String> {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if after.loss < before.loss => None,
            (Some(before), Some(after)) => Some(format!(
                "the held-out loss did not fall: {:.4} before, {:.4} after",
                before.loss, after.loss
            )),
            (None, _) => Some("the first weights could not be measured".to_owned()),
            (_, None) => Some("there is no checkpoint of the last epoch to measure".to_owned()),
        }
    }
}

/// The handle of the observer's thread. When it is dropped, the thread ends after its current request.
#[derive(Debug)]
pub(super) struct Observer {
    /// Requests for the thread; `None` once it is to end.
    requests: Option<SyncSender<Request>>,
    /// Its answers, at most one of which waits.
    answers: Receiver<Answer>,
    /// The thread, which is waited for when this is dropped.
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Starts the thread, which owns `evaluator`. From now on this process computes only there, and on threads that it
    /// starts.
    pub(super) fn start(mut evaluator: Evaluator) -> io::Result<Self> {
        // No queue: an idle thread takes a request, a busy one refuses it.
        let (requests, inbox) = mpsc::sync_channel::<Request>(0);
        let (outbox, answers) = mpsc::sync_channel(1);
        let work = move || {
            os::lower_thread_priority(Priority::Watch);
            intellect_model::use_threads(os::cores());
            for Request { epoch, path, tokens } in inbox {
                let result = match path {
                    None => evaluator.drawn(tokens).map(|evaluation| (None, evaluation)),
                    Some(path) => evaluator.load(&path).and_then(|checkpoint| {
                        Ok((Some(checkpoint.state.into()), evaluator.evaluate(tokens)?))
                    }),
                };
                let result = result.map(|(state, evaluation)| Measurement { state, evaluation });
                if outbox.send(Answer { epoch, tokens, result }).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("observer".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Asks for a measurement; `false` while another one is in progress. It never waits.
    pub(super) fn ask(&self, request: Request) -> bool {
        self.requests.as_ref().is_some_and(|requests| requests.try_send(request).is_ok())
    }

    /// The next answer, if there is one.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    /// Measures now and discards other answers; `None` if it takes longer than `patience`, or the user asks the simulation
    /// to end.
    pub(super) fn measure(
        &self,
        request: Request,
        patience: Duration,
        stop: &mut Stop,
    ) -> Option<Evaluation> {
        let wanted = (request.epoch, request.tokens);
        let mut waiting = Some(request);
        let start = std::time::Instant::now();
        while start.elapsed() < patience && !stop.is_wanted_within(Duration::from_millis(1)) {
            waiting = waiting.filter(|request| !self.ask(request.clone()));
            match self.answers.recv_timeout(Duration::from_millis(50)) {
                // The same state may be in progress already, on fewer tokens.
                Ok(answer) if (answer.epoch, answer.tokens) == wanted => {
                    return answer.result.ok().map(|measured| measured.evaluation);
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        drop(self.requests.take());
        while self.answers.try_recv().is_ok() {}
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed, and there is nothing to undo.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use intellect_model::{Device, config::Work, eval::GLANCE_TOKENS};
    use intellect_protocol::manifest::Run;

    use super::*;
    use crate::{identity::Identity, manifest::Draft};

    const PATIENCE: Duration = Duration::from_secs(120);

    /// Without this, a model that takes longer to measure than to train would be measured without a pause.
    #[test]
    fn one_state_at_a_time_is_measured() {
        let organiser = Identity::simulated(1, 0).keypair();
        let draft = Draft::new(&Run::new(organiser.peer(), 1), &Work::synthetic()).unwrap();
        let manifest = draft.sign(&organiser).unwrap();
        let observer =
            Observer::start(Evaluator::open(manifest, &[], Device::Cpu).unwrap()).unwrap();
        let request = |epoch| Request { epoch, path: None, tokens: GLANCE_TOKENS };
        for epoch in 0..2 {
            let start = std::time::Instant::now();
            while !observer.ask(request(epoch)) {
                assert!(start.elapsed() < PATIENCE, "it is never idle");
                std::thread::yield_now();
            }
            assert!(!observer.ask(request(9)));
            let answer = observer.answers.recv_timeout(PATIENCE).unwrap();
            assert_eq!((answer.epoch, answer.result.is_ok()), (epoch, true));
        }
    }
}
