//! What a person should read of an event, and what only the reader's own machine should see of it.
//!
//! The kinds are `start`, `join`, `loss`, `wait`, `fork`, `bad` and `info`; views choose a colour
//! by them. A sentence is made once, when the event is taken, so every view shows the same one.

use crate::record::Event;

/// The kind of a notice and its sentence, without a full stop. Most events are numbers and have
/// none.
///
/// Every event is named in the match, so that a new one is a compile error here until somebody has
/// decided whether people read it.
pub(super) fn notice(event: &Event) -> Option<(&'static str, String)> {
    Some(match event {
        Event::Started { version, device, .. } => {
            ("start", format!("started, version {version}, on {device}"))
        }
        Event::Watching { version } => {
            ("start", format!("the run is watched from outside, by version {version}"))
        }
        Event::PeerFound { who, .. } => ("join", format!("{} is here", who.short())),
        Event::PeerLost { who, cause } => ("loss", format!("{} is gone: {cause}", who.short())),
        Event::Strangers { count } => ("info", format!("{count} other keys came within a minute")),
        Event::Waiting { cure, .. } => ("wait", cure.to_string()),
        Event::Woke { slept_ms } => {
            ("wait", format!("this process did not run for {} s", slept_ms / 1_000))
        }
        Event::Path { step, who, error } => {
            let who = who.as_ref().map_or_else(String::new, |who| format!(" with {}", who.short()));
            let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            ("info", format!("path {step}{who}{error}"))
        }
        Event::CaughtUp { .. } => ("start", "caught up with the run".to_owned()),
        Event::Regroup { number, members, absent } => {
            let (on, gone) = (members.0.len(), absent.0.len());
            ("fork", format!("regroup {number}: {on} voters go on, {gone} are absent"))
        }
        Event::Aborted { attempt, phase, reason } => {
            ("wait", format!("attempt {attempt} ended in {phase}: {reason}"))
        }
        Event::LeftOut { carried_tokens } => {
            ("wait", format!("committed without this node; {carried_tokens} tokens are carried"))
        }
        Event::Diverged { who, .. } => ("bad", format!("{} has another state", who.short())),
        Event::Fork { first_epoch, undone, held } => {
            let held = if *held { "; a person has to decide" } else { "" };
            ("fork", format!("two lineages since epoch {first_epoch}, {undone} undone{held}"))
        }
        Event::ForkExcluded { first_epoch } => {
            ("info", format!("no fork since epoch {first_epoch} is possible any more"))
        }
        Event::Attested { number } => {
            ("info", format!("the organiser attests this state ({number})"))
        }
        Event::Admitted { who } => ("join", format!("{} is admitted", who.short())),
        Event::Revoked { who } => ("loss", format!("{} is revoked", who.short())),
        Event::Fault { who, why } => ("bad", format!("{} was dropped: {why}", who.short())),
        Event::Disk { error } => ("bad", format!("cannot write: {error}")),
        Event::Stuck { attempts } => ("bad", format!("{attempts} attempts at one epoch")),
        Event::Incompatible { who, version } => {
            ("bad", format!("{} speaks version {version}", who.short()))
        }
        Event::Refused { who, why } => ("info", format!("{} is refused: {why}", who.short())),
        Event::DuplicateIdentity { who } => {
            ("bad", format!("two programs run with the key of {}", who.short()))
        }
        Event::Leaving {} => ("loss", "this node leaves".to_owned()),
        Event::Stopped { code } => ("loss", format!("stopped with exit code {code}")),
        Event::Reachability { state, .. } => ("info", format!("others reach this node: {state}")),
        Event::Listening { .. }
        | Event::Member(_)
        | Event::Ring(_)
        | Event::Manifest(_)
        | Event::Sync { .. }
        | Event::Data { .. }
        | Event::Ready { .. }
        | Event::Roster { .. }
        | Event::Committed(_)
        | Event::Evaluated { .. }
        | Event::Other => return None,
    })
}

/// Whether a text has an address in it, which is nobody's business on another machine.
///
/// It finds multiaddresses (`/ip4/`, `/ip6/`, `/dns`), and bare IPv4 and IPv6 addresses with or
/// without a port. Host names without such a mark are not found. A version of four numbers counts
/// as an address: a false alarm hides one notice, and a miss would publish where a person lives.
pub(crate) fn names_an_address(text: &str) -> bool {
    let bare = text.split(|c: char| !(c.is_ascii_hexdigit() || c == '.' || c == ':' || c == '['));
    let is_ip = |word: &str| {
        let word = word.trim_matches([':', '[', '.']);
        let host = word.rsplit_once(':').map_or(word, |(host, _)| host);
        word.parse::<std::net::IpAddr>().is_ok() || host.parse::<std::net::Ipv4Addr>().is_ok()
    };
    ["/ip4/", "/ip6/", "/dns"].iter().any(|mark| text.contains(mark)) || bare.into_iter().any(is_ip)
}
