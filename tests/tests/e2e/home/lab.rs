//! Small internets in network namespaces: a street (a bridge), machines on it,
//! and machines behind routers.
//!
//! A router keeps the state it should, and *drops* unsolicited packets: a reset would end the
//! attempt of two peers that open a connection at the same time. Everything is made with `ip`,
//! `nft` and `tc`, and removed when the lab is dropped.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result, bail};

/// How a machine is connected to the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With a public IPv4 address of its own.
    Public,
    /// With a public IPv6 address only.
    V6,
    /// With a public address of each kind.
    Dual,
    /// Behind a router that accepts packets from every peer, and keeps ports.
    FullCone,
    /// Behind a router that accepts packets only from peers the machine has sent
    /// to, and keeps ports if it can.
    PortRestricted,
    /// Behind a router that uses another port for each peer.
    Symmetric,
    /// Behind two routers, the outer one of which is its provider's.
    Double,
    /// Behind a router that forwards a port on request.
    Upnp,
}

/// The addresses of the entry point.
pub(crate) const ENTRY_V4: &str = "5.5.0.10";
pub(crate) const ENTRY_V6: &str = "2a00:1::10";

/// One internet, with everything that runs in it apart from our programs.
#[derive(Debug)]
pub(crate) struct Lab {
    prefix: String,
    spaces: Vec<String>,
    daemons: Vec<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // Fails only for a process that has already ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for space in &self.spaces {
            // A namespace takes its interfaces with it.
            let _ = run(&["ip", "netns", "del", space]);
        }
    }
}

/// Why no lab can be made here; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let probe = || -> Result<()> {
        let mut lab = Lab::new()?;
        lab.space("probe")?;
        lab.router("probe", Kind::Symmetric, "192.168.0.2", "5.5.1.1")
    };
    probe().err().map(|why| format!("{why:#}"))
}

/// Whether the daemon that forwards ports is installed.
pub(crate) fn has_upnp() -> bool {
    let there = |folder| Path::new(folder).join("miniupnpd").exists();
    ["/usr/sbin", "/usr/bin", "/sbin"].into_iter().any(there)
}

impl Lab {
    /// An internet with a street and the machine `boot` of an entry point.
    pub(crate) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("reach-{}-{number}-", std::process::id());
        let mut lab = Self { prefix, spaces: Vec::new(), daemons: Vec::new() };
        lab.space("street")?;
        lab.ip("street", "link add street type bridge")?;
        lab.ip("street", "link set street up")?;
        lab.space("boot")?;
        lab.on_street("boot", "eth0", Some(&format!("{ENTRY_V4}/16")))?;
        lab.ip("boot", &format!("addr add {ENTRY_V6}/32 dev eth0 nodad"))?;
        Ok(lab)
    }

    /// Adds the machine number `index`, named `name`.
    pub(crate) fn machine(
        &mut self,
        name: &str,
        index: usize,
        kind: Kind,
        folder: &Path,
    ) -> Result<()> {
        self.space(name)?;
        let own = format!("5.5.0.{}/16", 20 + index);
        let wan = format!("5.5.1.{}", 1 + index);
        let (inside, gate) = (format!("192.168.{index}.2"), format!("192.168.{index}.1"));
        match kind {
            Kind::Public => self.on_street(name, "eth0", Some(&own))?,
            Kind::Dual | Kind::V6 => {
                self.on_street(name, "eth0", (kind == Kind::Dual).then_some(&own))?;
                self.ip(name, &format!("addr add 2a00:1:2:{index}::2/32 dev eth0 nodad"))?;
            }
            Kind::FullCone | Kind::PortRestricted | Kind::Symmetric | Kind::Upnp => {
                let router = format!("{name}-router");
                self.space(&router)?;
                self.on_street(&router, "wan", Some(&format!("{wan}/16")))?;
                self.behind(name, "eth0", &inside, &router, &gate)?;
                self.router(&router, kind, &inside, &wan)?;
                if kind == Kind::Upnp {
                    self.forward_ports(name, &router, index, folder)?;
                }
            }
            Kind::Double => {
                let (outer, inner) = (format!("{name}-provider"), format!("{name}-router"));
                self.space(&outer)?;
                self.space(&inner)?;
                self.on_street(&outer, "wan", Some(&format!("{wan}/16")))?;
                let (middle, gate_out) = (format!("100.64.{index}.2"), format!("100.64.{index}.1"));
                self.behind(&inner, "wan", &middle, &outer, &gate_out)?;
                self.behind(name, "eth0", &inside, &inner, &gate)?;
                self.router(&outer, Kind::PortRestricted, &middle, &wan)?;
                self.router(&inner, Kind::PortRestricted, &inside, &middle)?;
            }
        }
        Ok(())
    }

    /// Adds a bridge to a machine, as container engines do.
    pub(crate) fn bridge(&self, name: &str, bridge: &str, address: &str) -> Result<()> {
        self.ip(name, &format!("link add {bridge} type bridge"))?;
        self.ip(name, &format!("addr add {address} dev {bridge}"))?;
        self.ip(name, &format!("link set {bridge} up"))
    }

    /// Takes a machine away from its router, and connects it behind another one, number `index`, that forwards nothing.
    pub(crate) fn moves(&mut self, name: &str, index: usize) -> Result<()> {
        self.ip(name, "link del eth0")?;
        let (router, wan) = (format!("{name}-elsewhere"), format!("5.5.1.{}", 1 + index));
        let (inside, gate) = (format!("192.168.{index}.2"), format!("192.168.{index}.1"));
        self.space(&router)?;
        self.on_street(&router, "wan", Some(&format!("{wan}/16")))?;
        self.behind(name, "eth0", &inside, &router, &gate)?;
        self.router(&router, Kind::PortRestricted, &inside, &wan)
    }

    /// The namespace of a machine, for `ip netns exec`.
    pub(crate) fn name(&self, space: &str) -> String {
        format!("{}{space}", self.prefix)
    }

    fn space(&mut self, space: &str) -> Result<()> {
        let name = self.name(space);
        run(&["ip", "netns", "add", &name])?;
        self.spaces.push(name);
        self.ip(space, "link set lo up")
    }

    fn ip(&self, space: &str, words: &str) -> Result<()> {
        let name = self.name(space);
        let all: Vec<&str> = ["ip", "-n", &name].into_iter().chain(words.split(' ')).collect();
        run(&all)
    }

    /// A link from a machine to the street, with 10 ms of delay if the kernel has netem.
    fn on_street(&self, space: &str, interface: &str, address: Option<&String>) -> Result<()> {
        let (here, street) = (self.name(space), self.name("street"));
        let port = format!("p{}", self.spaces.len());
        let add = ["ip", "link", "add", interface, "netns", &here, "type", "veth"];
        run(&[&add[..], &["peer", "name", &port, "netns", &street]].concat())?;
        self.ip("street", &format!("link set {port} master street"))?;
        self.ip("street", &format!("link set {port} up"))?;
        if let Some(address) = address {
            self.ip(space, &format!("addr add {address} dev {interface}"))?;
        }
        self.ip(space, &format!("link set {interface} up"))?;
        // Without netem everything works in the same way, only faster.
        let delay = ["tc", "-n", &here, "qdisc", "add", "dev", interface, "root", "netem"];
        let _ = run(&[&delay[..], &["delay", "10ms"]].concat());
        Ok(())
    }

    /// A link from a machine to its router, which is its way out.
    fn behind(
        &self,
        space: &str,
        interface: &str,
        address: &str,
        router: &str,
        gate: &str,
    ) -> Result<()> {
        let (here, there) = (self.name(space), self.name(router));
        let add = ["ip", "link", "add", interface, "netns", &here, "type", "veth"];
        run(&[&add[..], &["peer", "name", "lan", "netns", &there]].concat())?;
        self.ip(router, &format!("addr add {gate}/24 dev lan"))?;
        self.ip(router, "link set lan up")?;
        self.ip(space, &format!("addr add {address}/24 dev {interface}"))?;
        self.ip(space, &format!("link set {interface} up"))?;
        self.ip(space, &format!("route add default via {gate}"))
    }

    fn router(&self, router: &str, kind: Kind, inside: &str, outside: &str) -> Result<()> {
        let name = self.name(router);
        run(&["ip", "netns", "exec", &name, "sysctl", "-qw", "net.ipv4.ip_forward=1"])?;
        let source = match kind {
            Kind::FullCone => format!("snat to {outside}"),
            Kind::Symmetric => "masquerade fully-random".to_owned(),
            _ => "masquerade".to_owned(),
        };
        let cone = kind == Kind::FullCone;
        let target = if cone { format!("iifname wan dnat to {inside}") } else { String::new() };
        let asked = match kind {
            Kind::FullCone => "iifname wan accept",
            Kind::Upnp => "ct status dnat accept",
            _ => "",
        };
        self.nft(
            router,
            &format!(
                "table ip nat {{\n\
                 chain pre {{ type nat hook prerouting priority -100; {target}\n}}\n\
                 chain post {{ type nat hook postrouting priority 100; oifname wan {source}\n}}\n}}\n\
                 table inet filter {{\n\
                 chain in {{ type filter hook input priority 0; \
                 iifname wan ct state established,related accept; iifname wan drop; }}\n\
                 chain pass {{ type filter hook forward priority 0; policy drop; \
                 ct state established,related accept; iifname lan accept; {asked}\n}}\n}}\n"
            ),
        )
    }

    fn nft(&self, space: &str, rules: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(space), "nft", "-f", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("nft")?;
        child.stdin.take().context("its input")?.write_all(rules.as_bytes())?;
        let done = child.wait_with_output()?;
        if !done.status.success() {
            bail!("nft: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(())
    }

    /// Starts a daemon on the router that forwards ports; its chains must exist before.
    fn forward_ports(
        &mut self,
        machine: &str,
        router: &str,
        index: usize,
        folder: &Path,
    ) -> Result<()> {
        self.nft(
            router,
            "table inet miniupnpd {\n\
             chain forward { type filter hook forward priority -1; policy accept; }\n\
             chain prerouting { type nat hook prerouting priority -100; policy accept; }\n\
             chain postrouting { type nat hook postrouting priority 99; policy accept; }\n}\n",
        )?;
        // Requests go to a multicast address.
        self.ip(machine, "route add 239.0.0.0/8 dev eth0")?;
        let path = folder.join(format!("upnp-{index}.conf"));
        let settings = format!(
            "ext_ifname=wan\nlistening_ip=lan\nport=5000\nenable_upnp=yes\nsecure_mode=no\n\
             uuid=00000000-0000-0000-0000-00000000000{index}\n\
             allow 1024-65535 192.168.{index}.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n\
             upnp_table_name=miniupnpd\nupnp_nat_table_name=miniupnpd\n\
             upnp_forward_chain=forward\nupnp_nat_chain=prerouting\n\
             upnp_nat_postrouting_chain=postrouting\n"
        );
        fs::write(&path, settings)?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(router), "miniupnpd", "-d", "-f"]).arg(&path);
        command.arg("-P").arg(folder.join(format!("upnp-{index}.pid")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().context("miniupnpd")?);
        Ok(())
    }
}

/// Runs a command to its end, and fails with its error output.
fn run(words: &[&str]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no command")?;
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot run {program}"))?;
    if !done.status.success() {
        bail!("{}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
