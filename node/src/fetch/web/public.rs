//! Which IP addresses belong to the internet, for addresses that may come from a stranger.
//!
//! The owner of a host name can have it mean any address: this machine, a router at home, the metadata service of a
//! cloud. So a node asks only addresses that are public (the registries of special addresses: RFC 6890, with the
//! blocks that were added since).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use intellect_bootstrap::address::{Scope, scope_of};

/// Whether this address means the same machine everywhere on the internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// The same for IPv4. [`Scope`] alone is not enough, since it knows only loopback and private networks.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let special = match ip.octets() {
        // This network, multicast and reserved addresses.
        [0 | 224..=255, ..] => true,
        // Protocols of the IETF, the old 6to4 relays, benchmarks of networks.
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => true,
        _ => ip.is_documentation(),
    };
    scope_of(ip.into()) == Scope::Public && !special
}

/// The same for IPv6, by a list of what is allowed: new special blocks are refused by default.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // NAT64 (RFC 6052): an address of IPv4, on a network that has none.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Protocols of the IETF with Teredo, documentation, and 6to4, which may contain any IPv4 address.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // All other addresses of single machines: not ::ffff:0:0/96, fc00::/7, fe80::/10, ff00::/8 and the like.
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_asked() {
        let is = |text: &str| is_public(text.parse().unwrap());
        for ip in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "223.255.255.254",
            "2606:4700::1",
            "2a00:1450:4001::1",
            "2001:200::1",
            "64:ff9b::101:101",
        ] {
            assert!(is(ip), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:1.1.1.1",
            "::ffff:10.0.0.1",
            "::1.1.1.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::101:101",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
        ] {
            assert!(!is(ip), "{ip}");
        }
    }
}
