//! What lets this node into a run of invited peers: a ticket, or a notice that names it.
//!
//! A ticket comes from an invite code once, and is stored for later starts. A notice comes from the
//! organiser, who can admit a peer after the manifest was signed. In an open run none of this
//! happens.
//!
//! Here a node is refused only for what it can see itself, before anything large is fetched.
//! Whether the others admit it shows later, by their replies (`crate::access`).

use std::sync::Arc;

use intellect_protocol::access::admit::Denied;
use intellect_protocol::access::notices::Notices;
use intellect_protocol::message::{Notice, Ticket};

use super::EnterError;
use crate::access::Admission;
use crate::config::Local;
use crate::driver::DriverError;
use crate::identity::{Home, Identity};
use crate::manifest::Manifest;
use crate::net::Net;
use crate::store::Store;

/// Tells the network which peers are admitted, and what this node shows to be admitted itself.
/// A node that has receipts has taken part already; its ledger, which is read later, says more than
/// its ticket.
pub(super) async fn seek(
    admission: &Admission,
    manifest: &Manifest,
    home: &Home,
    net: &Net,
    store: &Store,
) -> Result<(), EnterError> {
    if !store.has_receipts() {
        check_ticket(admission, manifest, home, net, store).await?;
    }
    net.handle.allow(admission.allowed());
    let shown = net.handle.set_admit_request(&admission.request()).await;
    Ok(shown.map_err(|_| DriverError::Network)?)
}

/// Whether a peer can admit this node, which has not taken part yet.
///
/// # Errors
/// The ticket is not valid, or there is none and no notice that the entry points hand out names
/// this peer. Entry points that do not answer count as having none.
async fn check_ticket(
    admission: &Admission,
    manifest: &Manifest,
    home: &Home,
    net: &Net,
    store: &Store,
) -> Result<(), EnterError> {
    let denied = match admission.check() {
        Err(denied) if admission.ticket().is_none() => denied,
        checked => return Ok(checked?),
    };
    // Without a ticket, a notice may still admit this peer.
    let offers = net.handle.entry_notices(manifest.id).await.unwrap_or_default();
    let offered: Vec<_> =
        offers.iter().filter_map(|offer| Notice::from_bytes(&offer.bytes)).collect();
    let run = &manifest.run;
    let notices = Notices::new(manifest.id, run.organiser, run.trust.level).with(&offered);
    if !notices.admit(&home.identity.peer()) {
        return Err(denied.into());
    }
    let bytes: Vec<Arc<[u8]>> = notices.all().map(|notice| notice.to_bytes().into()).collect();
    Ok(store.save_notices(&bytes)?)
}

/// What admits this node to a run of invited peers: a ticket that is made from the given invite and stored, or the
/// one that an earlier start stored.
///
/// A ticket that is made from the code replaces the stored one: the user may have been given
/// another invite because the first one has expired.
pub(super) fn ticket(
    local: &Local,
    identity: &Identity,
    manifest: &Manifest,
    store: &Store,
) -> Result<Option<Ticket>, EnterError> {
    let me = identity.peer();
    let Some(code) = &local.invite else { return Ok(store.ticket(&me)?) };
    if code.run() != manifest.id {
        return Err(Denied::AnotherRun { run: manifest.id, of: code.run() }.into());
    }
    let ticket = code.ticket(&me)?;
    store.save_ticket(&ticket)?;
    Ok(Some(ticket))
}
