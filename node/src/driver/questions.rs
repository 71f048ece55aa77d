//! Questions of other peers that are not answered yet.

use std::collections::BTreeMap;

use intellect_protocol::holdings::Inquiry;
use intellect_protocol::message::Request;

use crate::net::Reply;

/// Questions that are not answered yet.
#[derive(Default)]
pub(super) struct Questions {
    asked: u64,
    open: BTreeMap<Inquiry, (Request, Reply)>,
}

impl Questions {
    pub(super) fn ask(&mut self, request: Request, reply: Reply) -> Inquiry {
        self.asked += 1;
        let ticket = Inquiry(self.asked);
        self.open.insert(ticket, (request, reply));
        ticket
    }

    /// Dropping the reply refuses it.
    pub(super) fn take(&mut self, ticket: Inquiry) -> Option<(Request, Reply)> {
        self.open.remove(&ticket)
    }
}
