//! The download of one thing from several peers: sends its requests and gives it the answers.
//!
//! The state machine chooses the peer and judges the bytes; this type owns the requests and the
//! clock. It ends all requests when it is dropped, so a caller that loses patience leaves nothing
//! under way.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use intellect_protocol::base::id::{Digest, PeerId};
use intellect_protocol::base::rule::Rules;
use intellect_protocol::base::time::Time;
use intellect_protocol::download::{Bytes, Config, Failure, Input, Output, State};
use intellect_protocol::message::{Request, wire};
use tokio::time::{Instant, sleep_until};

use super::PART_BYTES;
use crate::net::Handle;

/// The answer to a request: the request's number, the part that it is about, and the bytes.
type Answered<'a> = BoxFuture<'a, (u64, usize, Result<Vec<u8>, Failure>)>;

/// Computes the digest that names a part, from its number and its bytes.
type Hash = Box<dyn Fn(usize, &[u8]) -> Digest + Send>;

/// A download and its open requests. `D` returns the peers that may have the bytes at this moment.
pub(super) struct PeerDownload<'a, D> {
    /// Sends the requests and knows whether the link is full.
    net: &'a Handle,
    /// Asked again at each tick, since peers come and go.
    donors: D,
    /// Decides which peer is asked for which part.
    state: State,
    /// The zero of the download's clock.
    began: Instant,
    /// Requests without an answer yet. The download bounds how many there are.
    open: FuturesUnordered<Answered<'a>>,
    /// Outputs of the download that are not carried out yet.
    out: VecDeque<Output>,
    /// The bytes of the last answer.
    answer: Vec<u8>,
    /// How a part's digest is computed.
    hash: Hash,
}

impl<'a, D: Fn() -> Vec<PeerId>> PeerDownload<'a, D> {
    /// Begins with the peers that may have the bytes now; nothing is asked for yet.
    pub(super) fn new(net: &'a Handle, donors: D) -> Self {
        let part_bytes = u32::try_from(PART_BYTES).unwrap_or(u32::MAX);
        let config = Config { part_bytes, rules: Rules::ALL };
        let (open, out, answer) = (FuturesUnordered::new(), VecDeque::new(), Vec::new());
        let (state, began) = (State::new(config), Instant::now());
        let hash: Hash = Box::new(|_, bytes| super::blake3_of(bytes));
        let mut download = Self { net, donors, state, began, open, out, answer, hash };
        download.input(Input::Donors((download.donors)()));
        download
    }

    /// From now on `hash`, of a part's number and bytes, names a part instead of their BLAKE3.
    pub(super) fn hash_by(&mut self, hash: impl Fn(usize, &[u8]) -> Digest + Send + 'static) {
        self.hash = Box::new(hash);
    }

    /// Gives one input to the download.
    pub(super) fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.state.handle(Time(elapsed), input, &mut out);
        self.out.extend(out);
    }

    /// The bytes that the last [`Output::Keep`] is about.
    pub(super) fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// The peers that may have the bytes.
    pub(super) fn donors(&self) -> Vec<PeerId> {
        (self.donors)()
    }

    /// The peers that have delivered a part.
    pub(super) fn active(&self) -> Vec<PeerId> {
        self.state.active().collect()
    }

    /// The next output for the caller. Requests are sent here: `request` makes one from the number of a part and its
    /// first byte.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self, request: &impl Fn(usize, u64) -> Request) -> Output {
        loop {
            while let Some(output) = self.out.pop_front() {
                let Output::Ask { number, peer, part, offset, .. } = output else { return output };
                let answer = self.net.fetch(peer, wire::request(&request(part, offset)));
                self.open.push(answer.map(move |answer| (number, part, answer)).boxed());
            }
            let due = self.state.deadline().unwrap_or_default().since(Time::ZERO);
            tokio::select! {
                Some((number, part, answer)) = self.open.next() => {
                    self.on_answer(number, part, answer);
                }
                () = sleep_until(self.began + due + MOMENT) => {
                    self.input(Input::Donors((self.donors)()));
                    self.input(Input::Tick { line_full: self.net.is_link_full() });
                }
            }
        }
    }

    /// Takes an answer, and names its bytes by their digest: the download sees only that and the
    /// length.
    fn on_answer(&mut self, number: u64, part: usize, answer: Result<Vec<u8>, Failure>) {
        let answer = answer.map(|bytes| {
            let digest = (self.hash)(part, &bytes);
            self.answer = bytes;
            Bytes { length: self.answer.len() as u64, digest }
        });
        self.input(Input::Answer(number, answer));
    }
}

/// Less than a millisecond would not move the clock of the download.
const MOMENT: Duration = Duration::from_millis(1);
