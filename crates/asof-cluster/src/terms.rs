//! The limits, the scheduling policy, the threads and the addresses that all parts of a cluster share.

use std::net::SocketAddr;

use ballista_core::config::TaskSchedulingPolicy;
use tokio::runtime::Runtime;

use crate::{ClusterError, Token};

/// The largest message, which holds a plan over 400,000 recordings.
pub(crate) const MESSAGE_BYTES: u32 = 64 << 20;
/// Executors pull work. A scheduler that pushes it counts free cores, and those of an executor that died while it had
/// tasks stay taken: its work would wait for ever.
pub(crate) const SCHEDULING: TaskSchedulingPolicy = TaskSchedulingPolicy::PullStaged;

/// Threads for one part of a cluster. Plans are deep, and are processed recursively.
pub(crate) fn runtime(name: &str) -> Result<Runtime, ClusterError> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name(name)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .map_err(ClusterError::Start)
}

/// Whether an address may be listened on: this machine alone, unless there is a token.
pub(crate) fn admitted(address: SocketAddr, token: Option<&Token>) -> Result<(), ClusterError> {
    if address.ip().is_loopback() || token.is_some() {
        return Ok(());
    }
    Err(ClusterError::Open(address))
}

/// A host and a port.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), ClusterError> {
    let wrong = || ClusterError::Address(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let is_good = |c: char| c.is_alphanumeric() || ".-_:[]".contains(c);
    if host.is_empty() || port == 0 || !host.chars().all(is_good) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        assert_eq!(host_and_port("a.b:1").expect("good").0, "a.b");
        assert_eq!(host_and_port("[::1]:50050").expect("good").1, 50050);
        for bad in [
            "",
            "host",
            ":1",
            "host:",
            "host:0",
            "host:70000",
            "http://h:1/x",
            "a b:1",
        ] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
