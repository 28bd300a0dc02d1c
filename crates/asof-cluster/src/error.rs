//! Why a part of a cluster cannot work.

use std::net::SocketAddr;

/// Why a part of a cluster cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// An address is invalid.
    #[error("'{0}' is not a host and a port, such as 10.0.0.5:50050")]
    Address(String),
    /// The scheduler does not answer.
    #[error(
        "cannot reach a scheduler at {address}: {reason}; start one with `asof cluster scheduler`"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// No executor is there to run a query.
    #[error(
        "the scheduler at {0} has no executors; start one with `asof cluster executor --scheduler {0} --root FOLDER`"
    )]
    NoExecutors(String),
    /// The address is taken, or not of this machine.
    #[error("cannot listen on {address}: {cause}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// Everybody who reaches the address could run queries.
    #[error(
        "{0} can be reached from other machines, where only clients with a token may run queries; give all parts of the cluster one with --token-file FILE or in ASOF_CLUSTER_TOKEN, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The cluster wants another token.
    #[error(
        "the scheduler at {0} refuses the token; give the one that it was started with, with --token-file FILE or in ASOF_CLUSTER_TOKEN"
    )]
    Refused(String),
    /// A token is invalid.
    #[error(
        "the token of a cluster has at least {shortest} visible ASCII characters and no blanks; `openssl rand -hex 32` makes one"
    )]
    Token {
        /// How many characters it needs.
        shortest: usize,
    },
    /// A root is invalid.
    #[error("'{root}' cannot be a root: {reason}")]
    Root {
        /// The root as given.
        root: String,
        /// Why not.
        reason: String,
    },
    /// The system refused threads, or a folder.
    #[error("cannot start: {0}")]
    Start(#[source] std::io::Error),
    /// Ballista failed.
    #[error("{0}")]
    Engine(String),
}

/// Ballista's error, in one line.
pub(crate) fn engine(error: impl std::fmt::Display) -> ClusterError {
    ClusterError::Engine(error.to_string())
}
