//! Verdicts about the way into the network: entry points, router, and who can dial this machine.
//!
//! Whether others can dial this machine rests on what an entry point or the router says, never on
//! what the machine thinks of itself. With no entry point every check is listed as
//! not tried, so that the table always has the same rows.
//!
//! Each check is a function of [`Examined`] alone: `net/exam.rs` looks, and nothing here waits or
//! sends. Two views are compared for most of them: the address that an entry point sees a
//! connection come from, and the addresses that this machine has itself. An entry point on this
//! machine or in this network sees no router, so it proves nothing about one ([`near`]).
//!
//! The checks overlap on purpose. A machine behind a symmetric router is well off if it forwards a
//! port, and a machine without UPnP if it needs none; so a verdict looks at what the others have
//! found before it advises anything.

use std::{collections::BTreeSet, net::IpAddr};

use intellect_bootstrap::{
    address::{self, Scope},
    discovery::Gateway,
};

use super::check::{Check, Grade};
use crate::{
    figures::number_of,
    net::{
        address::host,
        exam::{Attempt, Examined, Met, port},
    },
};

/// What the router does with connections that leave by it. Only connections with two entry points
/// of different addresses show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Router {
    /// Others see an address of this machine itself.
    None,
    /// One outside port for all peers: a hole can be punched.
    Steady,
    /// Another outside port for each peer: no hole can be punched to a second such router.
    Symmetric,
    /// There is one, but a single entry point cannot tell which.
    Unknown,
}

/// All verdicts, in the order of the table. There is one row for each dialled address of an entry
/// point, and then one for each subject.
pub(super) fn checks(findings: &Examined) -> Vec<Check> {
    let mut all: Vec<Check> = findings.attempts.iter().map(|a| entry(a, findings)).collect();
    if met(findings).next().is_none() {
        let found = "no entry point has answered";
        let names = ["nat", "dialable", "router", "cgn", "ipv6", "punch"];
        all.extend(names.map(|name| Check::not_tried(name, found)));
        return all;
    }
    let verdicts: [fn(&Examined) -> Check; 6] = [nat, dialable, router, carrier, ipv6, punch];
    all.extend(verdicts.map(|verdict| verdict(findings)));
    all
}

/// The entry points that have answered.
fn met(findings: &Examined) -> impl Iterator<Item = (&Attempt, &Met)> {
    findings.attempts.iter().filter_map(|attempt| match &attempt.result {
        Some(Ok(met)) => Some((attempt, met)),
        Some(Err(_)) | None => None,
    })
}

/// Whether one address of an entry point answers. A failure is bad only if no other address
/// answers.
fn entry(attempt: &Attempt, findings: &Examined) -> Check {
    let of = short(attempt);
    let why = match &attempt.result {
        Some(Ok(met)) => {
            let ms = met.took.as_secs_f64() * 1e3;
            return Check::new("entry", Grade::Ok, format!("{of} answers in {ms:.0} ms"))
                .measured(ms, "ms")
                .about(of);
        }
        Some(Err(why)) => why.as_str(),
        None => "no answer yet",
    };
    // A node needs one way in; the others are spare.
    let (verdict, remedy) = if met(findings).next().is_some() {
        (Grade::Warning, "a firewall may drop it, here or there; the other way in is enough")
    } else {
        (
            Grade::Bad,
            "check that this machine has a network, and that the entry point runs; or ask the \
             organiser for another address",
        )
    };
    Check::new("entry", verdict, format!("{of} does not answer: {why}")).about(of).remedy(remedy)
}

/// An address without the peer at its end. Rows are about ways to one entry point, and its name
/// would fill the line.
fn short(attempt: &Attempt) -> String {
    let text = attempt.address.to_string();
    let text = text.split("/p2p/").next().unwrap_or_default();
    if attempt.typed { text.to_owned() } else { format!("{text} (named by the entry point)") }
}

/// What several entry points see of this machine over IPv4 by one transport. Both transports are
/// looked at, and what QUIC shows counts where it shows anything: TCP may take another port for
/// each connection without any router. Two servers at one address are one, since a symmetric router
/// maps them alike.
fn kind(findings: &Examined) -> Router {
    let of = |tcp: bool| {
        let all = met(findings).filter(|(attempt, met)| {
            address::is_tcp(&attempt.address) == tcp
                && host(&met.observed).is_some_and(|ip| ip.is_ipv4())
        });
        let seen = all.map(|(a, met)| (host(&a.address), host(&met.observed), port(&met.observed)));
        seen.collect::<BTreeSet<_>>()
    };
    let mut router = Router::Unknown;
    // QUIC sends all from one port; of TCP some systems do not.
    for seen in [of(true), of(false)] {
        let Some((_, Some(outside), _)) = seen.first() else { continue };
        if findings.own.contains(outside) {
            return Router::None;
        }
        let servers: BTreeSet<Option<IpAddr>> = seen.iter().map(|(server, ..)| *server).collect();
        if servers.len() >= 2 {
            let outsides: BTreeSet<_> = seen.iter().map(|(_, ip, port)| (ip, port)).collect();
            router = if outsides.len() == 1 { Router::Steady } else { Router::Symmetric };
        }
    }
    router
}

/// What stands between this machine and others. It is a matter of how routers number connections,
/// so it needs two entry points. A symmetric router is a warning only if nobody can come in: two
/// peers behind such routers cannot meet, but each can reach a peer that is dialable.
fn nat(findings: &Examined) -> Check {
    let seen = met(findings).find_map(|(_, met)| host(&met.observed).filter(IpAddr::is_ipv4));
    let Some(seen) = seen else {
        return Check::not_tried("nat", "no entry point was reached over IPv4");
    };
    if near(findings) {
        return Check::not_tried("nat", "all entry points are on this machine or network");
    }
    let found = match kind(findings) {
        Router::None => format!("no router between: others see {seen}, an address of its own"),
        Router::Steady => format!(
            "a router, which keeps one port for all peers (outside {seen}): a hole can be punched"
        ),
        Router::Symmetric if is_open(findings) => format!(
            "a router with another port for each peer (symmetric, outside {seen}), but it lets others in"
        ),
        Router::Symmetric => {
            let found = format!(
                "a router with another port for each peer (symmetric, outside {seen}): two such cannot meet"
            );
            return Check::new("nat", Grade::Warning, found).remedy(FORWARD);
        }
        Router::Unknown => {
            let found =
                format!("a router (outside {seen}); its kind takes two entry points to see");
            return Check::not_tried("nat", found)
                .remedy("name a second entry point with --bootstrap, if the run has one");
        }
    };
    Check::new("nat", Grade::Ok, found)
}

/// Whether all entry points that answered are on this machine or network. It is also true if none
/// has answered, where no check asks it.
fn near(findings: &Examined) -> bool {
    met(findings).all(|(attempt, _)| address::scope(&attempt.address) < Some(Scope::Public))
}

/// Whether the router lets others in, by a forwarded port or because a test from outside succeeded.
fn is_open(findings: &Examined) -> bool {
    findings.mapped.is_some() || findings.tested.values().any(Result::is_ok)
}

/// Whether others can dial this machine. A successful test from outside proves it, and a forwarded
/// port is taken for it. That nobody can dial this machine is a warning and not bad: such a node
/// reaches all that can be dialled, and others by a punched hole.
fn dialable(findings: &Examined) -> Check {
    if near(findings) {
        let found =
            "all entry points are on this machine or network, whose peers can reach one another";
        return Check::not_tried("dialable", found);
    }
    let open: Vec<String> =
        findings.tested.iter().filter(|(_, r)| r.is_ok()).map(|(at, _)| at.to_string()).collect();
    if !open.is_empty() {
        let found = format!("an entry point has dialled this machine at {}", open.join(" and "));
        return Check::new("dialable", Grade::Ok, found).measured(open.len() as f64, "addresses");
    }
    if let Some(at) = &findings.mapped {
        let found = format!("the router forwards {at} to this machine");
        return Check::new("dialable", Grade::Ok, found);
    }
    let tests = findings.tested.len();
    if tests == 0 {
        return Check::not_tried("dialable", "no entry point has tested an address in time")
            .remedy("try again, or watch what the node says: it goes on testing");
    }
    let found = format!(
        "nobody can dial this machine: {tests} {} tested; others meet it where a hole is punched",
        if tests == 1 { "address" } else { "addresses" }
    );
    Check::new("dialable", Grade::Warning, found).measured(0.0, "addresses").remedy(FORWARD)
}

/// Whether the router forwards a port by UPnP. It matters only to a machine that cannot be dialled
/// otherwise. So the advice to forward a port is left out where a test from outside has succeeded,
/// or where no router is between.
fn router(findings: &Examined) -> Check {
    match (&findings.mapped, findings.gateway) {
        (Some(at), _) => {
            let found = format!("it forwards a port to this machine: {at} (UPnP)");
            Check::new("router", Grade::Ok, found)
        }
        (None, Some(Gateway::Nested)) => {
            Check::new("router", Grade::Warning, Gateway::Nested.to_string())
                .remedy("ask the provider for an address of your own, or use IPv6")
        }
        (None, Some(Gateway::Silent)) => {
            let check = Check::not_tried("router", Gateway::Silent.to_string());
            let needed = !is_open(findings) && !near(findings) && kind(findings) != Router::None;
            if needed { check.remedy(FORWARD) } else { check }
        }
        (None, None) => Check::not_tried("router", "no router has answered in time (UPnP)"),
    }
}

/// Whether a provider shares one address among its customers (RFC 6598). An own address in
/// 100.64.0.0/10 shows it. A router at home hides such an address from this machine; then
/// [`Gateway::Nested`] may tell.
fn carrier(findings: &Examined) -> Check {
    let shared = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]),
        IpAddr::V6(_) => false,
    };
    let Some(ip) = findings.own.iter().find(shared) else {
        let found = "no address here is of a provider's own NAT (100.64/10)";
        return Check::new("cgn", Grade::Ok, found);
    };
    let found = format!("this machine has {ip}: the provider shares an address among customers");
    Check::new("cgn", Grade::Warning, found)
        .remedy("a forwarded port does not help; use IPv6, or ask the provider for an address")
}

/// Whether IPv6 leads out of this network. It avoids the routers that IPv4 needs. To have no
/// address of IPv6 is no fault, and so it is not tried then.
fn ipv6(findings: &Examined) -> Check {
    let global = |ip: &&IpAddr| ip.is_ipv6() && address::scope_of(**ip) == Scope::Public;
    let Some(own) = findings.own.iter().find(global) else {
        return Check::not_tried("ipv6", "this machine has no IPv6 address of the internet");
    };
    let v6 = |attempt: &Attempt| host(&attempt.address).is_some_and(|ip| ip.is_ipv6());
    if met(findings).any(|(attempt, _)| v6(attempt)) {
        return Check::new("ipv6", Grade::Ok, format!("{own} reaches an entry point"));
    }
    if findings.attempts.iter().any(v6) {
        return Check::new("ipv6", Grade::Warning, format!("{own} reaches no entry point"))
            .remedy("nothing, if IPv4 works; else ask the provider why IPv6 does not");
    }
    Check::not_tried("ipv6", format!("{own} is here, but no entry point has IPv6"))
}

/// To how many members behind routers a hole could be punched. One success proves that this router
/// can take part; a failure may be the fault of the other side. Without members behind a relay
/// there is nothing to try.
fn punch(findings: &Examined) -> Check {
    let all = findings.relayed.len();
    if all == 0 {
        return Check::not_tried("punch", "no member of the run is reached by a relay now");
    }
    let good = findings.relayed.values().filter(|result| matches!(result, Some(Ok(())))).count();
    let found =
        format!("a hole is punched to {good} of {} behind routers", number_of(all, "member"));
    let verdict = if good > 0 { Grade::Ok } else { Grade::Warning };
    Check::new("punch", verdict, found).measured(good as f64, "members").remedy_if_wrong(FORWARD)
}

/// The remedy of a machine that nobody can dial.
const FORWARD: &str = "forward a port of your router to this machine and start the node with --listen and --external, \
                       or switch on UPnP there";
