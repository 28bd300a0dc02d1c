//! Failures of requests, and whether they are worth retrying.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use super::SILENCE_TIMEOUT;
use crate::without_secrets;

/// Why a request failed.
pub(super) enum Fault {
    /// Transient: a retry may succeed.
    Passing(io::Error),
    /// Nothing listens there. A short retry is worth it.
    Unreachable(io::Error),
    /// The server does not answer, although the client has retried for a while.
    Unanswered(io::Error),
    Final(io::Error),
}

impl Fault {
    pub fn of(error: &Error) -> Self {
        let told = || io::Error::other(explained(error));
        match error {
            Error::Precondition { .. } => Fault::Final(changed()),
            Error::NotFound { .. } => {
                Fault::Final(io::Error::new(io::ErrorKind::NotFound, explained(error)))
            }
            Error::NotSupported { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. } => Fault::Final(told()),
            _ if is_refusal(error) => Fault::Final(told()),
            _ if has_kind(error, HttpErrorKind::Connect) => Fault::Unreachable(told()),
            _ if has_kind(error, HttpErrorKind::Timeout) => Fault::Unanswered(told()),
            _ => Fault::Passing(told()),
        }
    }

    pub fn into_error(self) -> io::Error {
        match self {
            Fault::Passing(error)
            | Fault::Unreachable(error)
            | Fault::Unanswered(error)
            | Fault::Final(error) => error,
        }
    }
}

pub(super) fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::StaleNetworkFileHandle,
        "the file was changed while it was being read; open it again",
    )
}

/// The server sent nothing for too long.
pub(super) fn silent() -> io::Error {
    let message = format!(
        "the server sent nothing for {} seconds",
        SILENCE_TIMEOUT.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The answer came too slowly to wait for the rest.
pub(super) fn too_slow(waited: Duration) -> io::Error {
    let message = format!(
        "the server did not finish its answer within {} seconds",
        waited.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

pub(super) fn is_denied(error: &Error) -> bool {
    matches!(
        error,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. }
    )
}

/// Whether the server refused, so that a retry would be refused too.
pub(super) fn is_refusal(error: &Error) -> bool {
    match status_of(error) {
        // Too slow, and too many requests.
        Some((408 | 429, _)) => false,
        Some((code, _)) => (400..500).contains(&code),
        None => matches!(error, Error::NotFound { .. }) || is_denied(error),
    }
}

/// Whether a request failed in this way.
fn has_kind(error: &Error, wanted: HttpErrorKind) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(found) = cause {
        let kind = found.downcast_ref::<HttpError>().map(HttpError::kind);
        if kind == Some(wanted) {
            return true;
        }
        cause = found.source();
    }
    false
}

/// The status of the server's answer, as number and text. The client has it only in its message.
fn status_of(error: &Error) -> Option<(u16, String)> {
    let cause = first_cause(error);
    let status = cause.strip_prefix("Server returned non-2xx status code: ")?;
    let status = status.split(':').next()?.trim();
    let code = status.split(' ').next()?.parse().ok()?;
    Some((code, status.to_owned()))
}

/// A failure, explained to the user who gave the address.
pub(super) fn explained(error: &Error) -> String {
    without_secrets(&in_words(error))
}

fn in_words(error: &Error) -> String {
    match error {
        Error::NotFound { .. } => "there is no such file there; check the address".to_owned(),
        Error::NotSupported { .. } => {
            "the server does not hand out ranges of a file (HTTP 206), which reading in place needs; download the file, or serve it with a server that does".to_owned()
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            "access was denied".to_owned()
        }
        other => match status_of(other) {
            Some((400..500, status)) if is_refusal(other) => {
                format!("the server refuses to hand it out ({status}); check the address")
            }
            Some((_, status)) => {
                format!("the server cannot hand it out now ({status}); try again later")
            }
            None if has_kind(other, HttpErrorKind::Connect) => format!(
                "the server cannot be reached: {}; check the address and the network",
                first_cause(other)
            ),
            None => format!(
                "the server cannot be read: {}; check the address and the network, or try again later",
                first_cause(other)
            ),
        },
    }
}

/// The root cause: the rest of the chain only passes it on.
fn first_cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_by_what_started_it() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let told = explained(&Error::Generic {
            store: "HTTP",
            source: Box::new(io::Error::other(refused)),
        });
        let expected = "the server cannot be read: connection refused; check the address and the network, or try again later";
        assert_eq!(told, expected);
    }
}
