//! Verdicts about the way into the network: entry points, router, and who can dial this machine.
//!
//! Whether others can dial this machine rests on what an entry point or the router says, never on
//! what the machine thinks of itself. With no entry point every check is listed as
//! not tried, so that the table always has the same rows.

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

/// What the router does with connections that leave by it. Only connections with two entry points of different
/// addresses show it.
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

/// All verdicts, in the order of the table.
pub(super) fn checks(findings: &Examined) -> Vec<Check> {
    let mut all: Vec<Check> = findings.attempts.iter().map(|a| entry(a, findings)).collect();
    if met(findings).next().is_none() {
        let found = "no entry point has answered";
        let names = ["nat", "dialable", "router", "cgn", "ipv6", "punch"];
        all.extend(names.map(|name| Check::not_tried(name, found)));
        return all;
    }
    all.push(nat(findings));
    all.push(dialable(findings));
    all.push(router(findings));
    all.push(carrier(findings));
    all.push(ipv6(findings));
    all.push(punch(findings));
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
    match &attempt.result {
        Some(Ok(met)) => {
            let ms = met.took.as_secs_f64() * 1e3;
            Check::new("entry", Grade::Ok, format!("{of} answers in {ms:.0} ms"))
                .measured(ms, "ms")
                .about(of)
        }
        failed => {
            let why = match failed {
                Some(Err(why)) => why,
                Some(Ok(_)) | None => "no answer yet",
            };
            // A node needs one way in; the others are spare.
            let other = met(findings).next().is_some();
            let (verdict, remedy) = if other {
                (
                    Grade::Warning,
                    "a firewall may drop it, here or there; the other way in is enough",
                )
            } else {
                (
                    Grade::Bad,
                    "check that this machine has a network, and that the entry point runs; or ask the \
                     organiser for another address",
                )
            };
            Check::new("entry", verdict, format!("{of} does not answer: {why}"))
                .about(of)
                .remedy(remedy)
        }
    }
}

/// An address without the peer at its end.
fn short(attempt: &Attempt) -> String {
    let text = attempt.address.to_string();
    let text = text.split("/p2p/").next().unwrap_or_default();
    if attempt.typed { text.to_owned() } else { format!("{text} (named by the entry point)") }
}

/// What several entry points see of this machine over IPv4 by one transport.
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
/// so it needs two entry points.
fn nat(findings: &Examined) -> Check {
    let seen = met(findings).find_map(|(_, met)| host(&met.observed).filter(IpAddr::is_ipv4));
    let Some(seen) = seen else {
        return Check::not_tried("nat", "no entry point was reached over IPv4");
    };
    if near(findings) {
        return Check::not_tried("nat", "all entry points are on this machine or network");
    }
    match kind(findings) {
        Router::None => {
            Check::new("nat", Grade::Ok, format!("no router between: others see {seen}, an address of its own"))
        }
        Router::Steady => Check::new(
            "nat",
            Grade::Ok,
            format!("a router, which keeps one port for all peers (outside {seen}): a hole can be punched"),
        ),
        Router::Symmetric if is_open(findings) => Check::new(
            "nat",
            Grade::Ok,
            format!("a router with another port for each peer (symmetric, outside {seen}), but it lets others in"),
        ),
        Router::Symmetric => Check::new(
            "nat",
            Grade::Warning,
            format!("a router with another port for each peer (symmetric, outside {seen}): two such cannot meet"),
        )
        .remedy(FORWARD),
        Router::Unknown => {
            let found = format!("a router (outside {seen}); its kind takes two entry points to see");
            Check::not_tried("nat", found)
                .remedy("name a second entry point with --bootstrap, if the run has one")
        }
    }
}

/// Whether all entry points that answered are on this machine or network.
fn near(findings: &Examined) -> bool {
    met(findings).all(|(attempt, _)| address::scope(&attempt.address) < Some(Scope::Public))
}

/// Whether the router lets others in, by a forwarded port or because a test from outside succeeded.
fn is_open(findings: &Examined) -> bool {
    findings.mapped.is_some() || findings.tested.values().any(Result::is_ok)
}

/// Whether others can dial this machine. A successful test from outside proves it, and a
/// forwarded port is taken for it.
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
        return Check::new(
            "dialable",
            Grade::Ok,
            format!("the router forwards {at} to this machine"),
        );
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
/// otherwise.
fn router(findings: &Examined) -> Check {
    match (&findings.mapped, findings.gateway) {
        (Some(at), _) => Check::new(
            "router",
            Grade::Ok,
            format!("it forwards a port to this machine: {at} (UPnP)"),
        ),
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

/// Whether a provider shares one address among its customers (RFC 6598).
fn carrier(findings: &Examined) -> Check {
    let shared = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]),
        IpAddr::V6(_) => false,
    };
    match findings.own.iter().find(shared) {
        Some(ip) => {
            let found =
                format!("this machine has {ip}: the provider shares an address among customers");
            Check::new("cgn", Grade::Warning, found).remedy(
                "a forwarded port does not help; use IPv6, or ask the provider for an address",
            )
        }
        None => {
            Check::new("cgn", Grade::Ok, "no address here is of a provider's own NAT (100.64/10)")
        }
    }
}

/// Whether IPv6 leads out of this network. It avoids the routers that IPv4 needs.
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

/// To how many members behind routers a hole could be punched.
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

const FORWARD: &str = "forward a port of your router to this machine and start the node with --listen and --external, \
                       or switch on UPnP there";
