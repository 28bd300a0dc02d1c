//! The executors of a scheduler, from Ballista's REST interface.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use serde_json::Value;

use crate::{ClusterError, Token};

/// How long a scheduler may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer: a thousand executors are a megabyte.
const MOST_BYTES: u64 = 64 << 20;

/// An executor, as reported by its scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorState {
    /// Its name.
    pub id: String,
    /// Its host.
    pub host: String,
    /// The port at which it serves rows.
    pub port: u16,
    /// How many slices it reads at once.
    pub cores: usize,
}

/// The executors of a scheduler.
///
/// # Errors
/// When there is no scheduler at that address, or it has another token.
pub fn executors(
    scheduler: &str,
    token: Option<&Token>,
) -> Result<Vec<ExecutorState>, ClusterError> {
    let unreachable = |reason: String| ClusterError::Unreachable {
        address: scheduler.to_owned(),
        reason,
    };
    let answer = get(scheduler, "/api/executors", token);
    let body = answer.map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => ClusterError::Refused(scheduler.to_owned()),
        _ => unreachable(error.to_string()),
    })?;
    let all: Value = serde_json::from_slice(&body)
        .map_err(|_| unreachable("the answer is not from a scheduler".to_owned()))?;
    let all = all.as_array().cloned().unwrap_or_default();
    let state = |one: &Value| {
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let cores = &one["specification"]["vcores"];
        ExecutorState {
            id: text("id"),
            host: text("host"),
            port: one["port"].as_u64().unwrap_or_default() as u16,
            cores: cores.as_u64().unwrap_or(1).max(1) as usize,
        }
    };
    Ok(all.iter().map(state).collect())
}

/// The body of the answer of a plain HTTP server.
fn get(host: &str, path: &str, token: Option<&Token>) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::other("it has no address");
    for address in host.to_socket_addrs()? {
        match get_from(address, host, path, token) {
            Ok(body) => return Ok(body),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn get_from(
    address: std::net::SocketAddr,
    host: &str,
    path: &str,
    token: Option<&Token>,
) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    // HTTP/1.0: the body ends with the connection, and is in one piece.
    let authorization = token.map(Token::authorization).unwrap_or_default();
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n{authorization}\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let is_http = answer.starts_with(b"HTTP/1.");
    match (end, answer.get(9..12)) {
        (Some(end), Some(b"200")) if is_http => Ok(answer.split_off(end + 4)),
        (_, Some(b"401")) if is_http => Err(std::io::ErrorKind::PermissionDenied.into()),
        _ => Err(std::io::Error::other("the answer is not from a scheduler")),
    }
}
