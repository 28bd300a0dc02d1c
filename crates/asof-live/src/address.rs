//! Where a robot is: `zenoh://host:port?mode=client&domain=0`.

/// Where a robot is, and how to speak to it.
///
/// `zenoh://` alone is a peer of the router on this machine, as rmw_zenoh has it. Parameters: `mode` (`peer`,
/// `client`, `router`), `domain` (the ROS domain), `listen` (an endpoint such as `tcp/127.0.0.1:7448`), and
/// `multicast` (`true` to look for peers by multicast).
///
/// ```
/// use asof_live::{Address, Mode};
///
/// let address: Address = "zenoh://192.168.1.5:7447?mode=client&domain=3".parse()?;
/// assert_eq!(address.connect, ["tcp/192.168.1.5:7447"]);
/// assert_eq!((address.mode, address.domain), (Mode::Client, 3));
/// # Ok::<(), asof_live::AddressError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The endpoints to connect to.
    pub connect: Vec<String>,
    /// The endpoints to listen on.
    pub listen: Vec<String>,
    /// What to be in the network.
    pub mode: Mode,
    /// The ROS domain.
    pub domain: u32,
    /// Whether to look for peers by multicast.
    pub multicast: bool,
}

/// What a session is in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Speaks to others directly.
    #[default]
    Peer,
    /// Speaks to one router.
    Client,
    /// Is a router itself.
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

/// Why text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It starts with something else.
    #[error("'{0}' is no address of a robot: it should look like zenoh://host:7447")]
    Scheme(String),
    /// A host is none.
    #[error(
        "'{0}' is no host: it should look like robot, 192.168.1.5:7447, [::1]:7447 or udp/robot:7447"
    )]
    Host(String),
    /// A parameter is unknown, or its value is.
    #[error(
        "'{0}' is not understood: parameters are mode=peer|client|router, domain=N, listen=tcp/host:port, multicast=true|false"
    )]
    Parameter(String),
}

const ROUTER: &str = "tcp/localhost:7447";

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text
            .strip_prefix("zenoh://")
            .ok_or_else(|| AddressError::Scheme(text.to_owned()))?;
        let (hosts, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Address {
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

impl Address {
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
        Some(version_six) => version_six.parse::<std::net::Ipv6Addr>().is_ok(),
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
        let address: Address = "zenoh://".parse().expect("an address");
        assert_eq!(
            (address.connect, address.mode),
            (vec![ROUTER.to_owned()], Mode::Peer)
        );
    }

    #[test]
    fn a_peer_that_only_listens_connects_to_nobody() {
        let address: Address = "zenoh://?listen=127.0.0.1:7448"
            .parse()
            .expect("an address");
        assert_eq!(
            (address.connect.len(), address.listen),
            (0, vec!["tcp/127.0.0.1:7448".to_owned()])
        );
    }

    #[test]
    fn several_hosts_and_version_six_are_read() {
        let address: Address = "zenoh://a,b:1,[::1]:5,udp/c:9".parse().expect("an address");
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
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(zenoh://)?.{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
