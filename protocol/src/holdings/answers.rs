//! What other peers ask for: it is served at once, refused at once, or waits for our ring or disk.

use super::{Inquiry, Location, Output, State};
use crate::base::time::Time;
use crate::message::Request;

impl State {
    /// Answers a request, or says at once that it cannot be. One for a chunk may wait for our ring,
    /// and one for the state that is being written until it is on disk.
    pub(super) fn on_asked(
        &mut self,
        now: Time,
        ticket: Inquiry,
        request: &Request,
        out: &mut Vec<Output>,
    ) {
        let place = match *request {
            Request::Ask(_) | Request::Picture => Some(Location::Now),
            Request::Update { update, .. } => self.updates.location(&update),
            Request::Chunk { roster, chunk, .. } => {
                let part = self.repairs.part(self.codec, (roster, chunk));
                if part.is_none() && self.repairs.wait(now, ticket, (roster, chunk)) {
                    return;
                }
                part.map(Location::Memory)
            }
            Request::File { file, .. } => (self.file == Some(file)).then_some(Location::File),
            Request::Tree { file, .. } | Request::Data { file, .. } => {
                self.data.contains(&file).then_some(Location::Data)
            }
            Request::Table { state, .. } | Request::Piece { state, .. } => {
                let place = self.checkpoints.ask(now, state);
                if place.is_none() && self.checkpoints.wait(now, ticket, state) {
                    return;
                }
                place
            }
        };
        out.push(answer(ticket, place));
    }

    /// Answers the requests whose wait has ended.
    pub(super) fn answer_waiting(&mut self, now: Time, out: &mut Vec<Output>) {
        let chunks = self.repairs.answered(now, self.codec).into_iter();
        out.extend(chunks.map(|(ticket, part)| answer(ticket, part.map(Location::Memory))));
        let states = self.checkpoints.answered(now).into_iter();
        out.extend(states.map(|(ticket, place)| answer(ticket, place)));
    }
}

fn answer(ticket: Inquiry, place: Option<Location>) -> Output {
    place.map_or(Output::Refuse(ticket), |place| Output::Serve(ticket, place))
}
