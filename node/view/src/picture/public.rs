//! The picture as other machines may see it: without addresses.
//!
//! An address says where a person lives. A node names its own ones, and errors of connections name those of others.
//!
//! It works on a copy, because readers on the node's own machine see everything. A new field of the
//! picture that may have an address has to be handled here.

use super::{Picture, notice::names_an_address};
use crate::record::Text;

impl Picture {
    /// The picture without addresses. A text that names one is replaced as a whole.
    pub(crate) fn without_addresses(&self) -> Self {
        let mut picture = self.clone();
        picture.node.addresses.clear();
        picture.node.entrance = None;
        for notice in &mut picture.notices {
            if names_an_address(&notice.text) {
                notice.text = HIDDEN.to_owned();
            }
        }
        let error = picture.node.path.iter_mut().filter_map(|(_, error)| error.as_mut());
        let waiting =
            picture.waiting.iter_mut().flat_map(|waiting| [&mut waiting.text, &mut waiting.cure]);
        let causes = picture.peers.values_mut().filter_map(|peer| peer.cause.as_mut());
        for text in error.chain(waiting).chain(causes) {
            if names_an_address(text.as_str()) {
                *text = Text::new(HIDDEN);
            }
        }
        picture
    }
}

/// It says that something is left out, so that nobody takes the rest for all of it.
const HIDDEN: &str = "names an address, which only this machine sees";
