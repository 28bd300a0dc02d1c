//! Addresses of robots: `zenoh://host:port?mode=client&domain=0`, `foxglove://host:port`, `rosbridge://host:port`,
//! `dds://?domain=0`.

mod dds;

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

pub use dds::DdsAddress;

/// The address of a robot, and the transport to reach it.
///
/// - `zenoh://host:7447`: a robot on Zenoh; see [`ZenohAddress`].
/// - `foxglove://host:8765`, or `ws://host:8765`: a Foxglove WebSocket server; see [`SocketAddress`].
/// - `rosbridge://host:9090`: a rosbridge server, of ROS 1 or ROS 2.
/// - `dds://?domain=0`: robots on DDS, found by discovery; see [`DdsAddress`].
///
/// ```
/// use asof_live::Address;
///
/// let address: Address = "foxglove://192.168.1.5".parse()?;
/// assert_eq!(address.to_string(), "foxglove://192.168.1.5:8765");
/// # Ok::<(), asof_live::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A robot on Zenoh.
    Zenoh(ZenohAddress),
    /// A Foxglove WebSocket server.
    Foxglove(SocketAddress),
    /// A rosbridge server.
    Rosbridge(SocketAddress),
    /// A DDS domain. Opening it needs the feature `dds`.
    Dds(DdsAddress),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("zenoh") => Ok(Address::Zenoh(text.parse()?)),
            Some("foxglove" | "ws") => Ok(Address::Foxglove(SocketAddress::parse(text, 8765)?)),
            Some("rosbridge") => Ok(Address::Rosbridge(SocketAddress::parse(text, 9090)?)),
            Some("dds") => Ok(Address::Dds(text.parse()?)),
            _ => Err(AddressError::Scheme(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Zenoh(address) => address.fmt(f),
            Address::Foxglove(address) => write!(f, "foxglove://{address}"),
            Address::Rosbridge(address) => write!(f, "rosbridge://{address}"),
            Address::Dds(address) => address.fmt(f),
        }
    }
}

/// The address of a WebSocket server: `host`, `host:port`, `[::1]:port`, and a path and query that are passed on to
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketAddress {
    /// Its name or IP address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path with its leading slash, and the query, such as a token.
    pub path: String,
}

impl SocketAddress {
    fn parse(text: &str, port: u16) -> Result<Self, AddressError> {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(at);
        let wrong = || AddressError::Socket(place.to_owned());
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (place, port),
        };
        let host = if host.is_empty() { "localhost" } else { host };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(version_six) => version_six.parse::<Ipv6Addr>().is_ok(),
            None => host
                .chars()
                .all(|letter| is_of_a_name(letter) && letter != '*'),
        };
        let is_path = path.chars().all(|letter| letter.is_ascii_graphic());
        if !is_host || !is_path || port == 0 {
            return Err(wrong());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(SocketAddress {
            host: bare.unwrap_or(host).to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }

    /// The URL that the WebSocket connects to.
    pub fn url(&self) -> String {
        format!("ws://{}{}", self.authority(), self.path)
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        let path = path.trim_end_matches('/');
        write!(f, "{}{path}", self.authority())
    }
}

/// The address of a robot on Zenoh.
///
/// `zenoh://` alone is a peer of the router on this machine, the default of rmw_zenoh. Parameters: `mode` (`peer`,
/// `client`, `router`), `domain` (the ROS domain), `listen` (an endpoint such as `tcp/127.0.0.1:7448`), and
/// `multicast` (`true` to discover peers by multicast).
///
/// ```
/// use asof_live::{Mode, ZenohAddress};
///
/// let address: ZenohAddress = "zenoh://192.168.1.5:7447?mode=client&domain=3".parse()?;
/// assert_eq!(address.connect, ["tcp/192.168.1.5:7447"]);
/// assert_eq!((address.mode, address.domain), (Mode::Client, 3));
/// # Ok::<(), asof_live::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZenohAddress {
    /// The endpoints to connect to.
    pub connect: Vec<String>,
    /// The endpoints to listen on.
    pub listen: Vec<String>,
    /// The session's role in the network.
    pub mode: Mode,
    /// The ROS domain.
    pub domain: u32,
    /// Whether peers are discovered by multicast.
    pub multicast: bool,
}

/// The role of a session in the Zenoh network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Connects to other peers directly.
    #[default]
    Peer,
    /// Connects to one router.
    Client,
    /// Is itself a router.
    Router,
}

impl Mode {
    /// Its name in a Zenoh configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Peer => "peer",
            Mode::Client => "client",
            Mode::Router => "router",
        }
    }
}

/// Why text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The scheme is unknown.
    #[error(
        "'{0}' is not a robot's address: it should look like zenoh://host:7447, foxglove://host:8765 (or ws://), rosbridge://host:9090 or dds://?domain=0"
    )]
    Scheme(String),
    /// The host is malformed.
    #[error(
        "'{0}' is not a host: it should look like robot, 192.168.1.5:7447, [::1]:7447 or udp/robot:7447"
    )]
    Host(String),
    /// The host of a WebSocket is malformed.
    #[error(
        "'{0}' is not a host: it should look like robot, robot:8765, 192.168.1.5:8765 or [::1]:8765"
    )]
    Socket(String),
    /// A parameter is unknown, or its value is invalid.
    #[error(
        "'{0}' is not a valid parameter: parameters are mode=peer|client|router, domain=N, listen=tcp/host:port, multicast=true|false"
    )]
    Parameter(String),
    /// A part of a DDS address is invalid.
    #[error(
        "'{0}' is not a valid part of a DDS address: it should look like dds://?domain=N with N from 0 to 232, or dds://INTERFACE?domain=N with the \
         name or IP address of a network interface of this machine"
    )]
    Dds(String),
}

const ROUTER: &str = "tcp/localhost:7447";

impl FromStr for ZenohAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text
            .strip_prefix("zenoh://")
            .ok_or_else(|| AddressError::Scheme(text.to_owned()))?;
        let (hosts, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = ZenohAddress {
            connect: Vec::new(),
            listen: Vec::new(),
            mode: Mode::Peer,
            domain: 0,
            multicast: false,
        };
        let hosts = hosts.trim_end_matches('/');
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            address.connect.push(endpoint(host)?);
        }
        for parameter in parameters.split('&').filter(|part| !part.is_empty()) {
            address.set(parameter)?;
        }
        let is_alone = address.connect.is_empty() && address.listen.is_empty();
        if is_alone && address.mode != Mode::Router {
            address.connect.push(ROUTER.to_owned());
        }
        Ok(address)
    }
}

/// Lists the endpoints.
impl fmt::Display for ZenohAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = if self.connect.is_empty() {
            &self.listen
        } else {
            &self.connect
        };
        f.write_str(&endpoints.join(", "))
    }
}

impl ZenohAddress {
    fn set(&mut self, parameter: &str) -> Result<(), AddressError> {
        let unknown = || AddressError::Parameter(parameter.to_owned());
        let (name, value) = parameter.split_once('=').ok_or_else(unknown)?;
        match (name, value) {
            ("mode", "peer") => self.mode = Mode::Peer,
            ("mode", "client") => self.mode = Mode::Client,
            ("mode", "router") => self.mode = Mode::Router,
            ("domain", number) => self.domain = number.parse().map_err(|_| unknown())?,
            ("listen", host) if !host.is_empty() => self.listen.push(endpoint(host)?),
            ("multicast", flag) => self.multicast = flag.parse().map_err(|_| unknown())?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

/// `host`, `host:port`, `[v6]:port` or `tcp/host:port` as an endpoint.
fn endpoint(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Host(text.to_owned());
    let (protocol, place) = text.split_once('/').unwrap_or(("tcp", text));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place, "7447"),
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(version_six) => version_six.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(is_of_a_name),
    };
    let is_known = matches!(protocol, "tcp" | "udp");
    if !is_known || !is_host || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(format!("{protocol}/{host}:{port}"))
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_but_the_scheme_means_the_router_on_this_machine() {
        let address: ZenohAddress = "zenoh://".parse().expect("an address");
        assert_eq!(
            (address.connect, address.mode),
            (vec![ROUTER.to_owned()], Mode::Peer)
        );
    }

    #[test]
    fn a_peer_that_only_listens_connects_to_nobody() {
        let address: ZenohAddress = "zenoh://?listen=127.0.0.1:7448"
            .parse()
            .expect("an address");
        assert_eq!(
            (address.connect.len(), address.listen),
            (0, vec!["tcp/127.0.0.1:7448".to_owned()])
        );
    }

    #[test]
    fn several_hosts_and_version_six_are_read() {
        let address: ZenohAddress = "zenoh://a,b:1,[::1]:5,udp/c:9".parse().expect("an address");
        assert_eq!(
            address.connect,
            ["tcp/a:7447", "tcp/b:1", "tcp/[::1]:5", "udp/c:9"]
        );
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for text in [
            "http://x",
            "zenoh://x?mode=boss",
            "zenoh://x?speed=9",
            "zenoh://x?domain=-1",
            "zenoh://:::::",
            "zenoh://a b",
            "zenoh://x:port",
            "zenoh://ftp/x:1",
            "zenoh://[robot]:1",
            "zenoh://x?listen=:7",
            "wss://x",
            "ws://a b",
            "ws://x:port",
            "ws://x:0",
            "ws://[robot]:1",
            "foxglove://x/ö",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_websocket_has_its_port_and_its_path() {
        let parsed = |text: &str| match text.parse() {
            Ok(Address::Foxglove(address)) => address.url(),
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("foxglove://"), "ws://localhost:8765/");
        assert_eq!(parsed("ws://robot:9/a?token=b"), "ws://robot:9/a?token=b");
        assert_eq!(parsed("ws://[::1]:9?token=b"), "ws://[::1]:9/?token=b");
        let shown: Address = "ws://robot/?token=secret".parse().expect("an address");
        assert_eq!(shown.to_string(), "foxglove://robot:8765");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(zenoh://|ws://|foxglove://|rosbridge://)?.{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
