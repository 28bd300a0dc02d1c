//! The secret that a scheduler, its executors and their clients share.

use std::fmt;
use std::sync::Arc;

use asof_core::is_same_secret;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ballista_core::extension::EndpointOverrideFn;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, StatusCode, header};

use crate::ClusterError;

/// The shortest secret: 16 characters are 64 bits even where they are hexadecimal.
const SHORTEST: usize = 16;
/// What the secret is marked with where gRPC carries it. Ballista connects in a dozen places, and lets others change only the
/// endpoint of a connection; a name of the client is what an endpoint adds to each request.
const MARK: &str = "asof-token/";
/// What a scheduler answers everybody: whether it is alive. Probes have no secrets.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// A secret that whoever connects must know.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A secret of at least 16 visible ASCII characters; blanks and line breaks around it are left out.
    ///
    /// # Errors
    /// When it is shorter, or has other characters.
    pub fn new(text: &str) -> Result<Self, ClusterError> {
        let text = text.trim();
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClusterError::Token { shortest: SHORTEST });
        }
        Ok(Token(text.into()))
    }

    /// The header with which it is sent to a REST interface.
    pub(crate) fn authorization(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.0)
    }

    /// Makes a connection send it.
    pub(crate) fn sending(&self) -> EndpointOverrideFn {
        let name = format!("{MARK}{}", self.0);
        Arc::new(move |endpoint| Ok(endpoint.user_agent(name.clone())?))
    }

    /// Whether a request has it.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name)?.to_str().ok();
        let bearer = text(header::AUTHORIZATION).and_then(|given| {
            let (kind, secret) = given.split_once(' ')?;
            kind.eq_ignore_ascii_case("bearer").then_some(secret)
        });
        let marked = text(header::USER_AGENT).and_then(|given| {
            let first = given.split(' ').next()?;
            first.strip_prefix(MARK)
        });
        let given = bearer.or(marked);
        given.is_some_and(|given| is_same_secret(given.trim(), &self.0))
    }
}

/// The answer to a client without the secret.
pub(crate) fn unknown() -> Status {
    Status::unauthenticated("the token of the cluster is missing or wrong")
}

/// Whether a request may pass: it has the secret, or none is required.
pub(crate) fn is_known(token: Option<&Token>, headers: &HeaderMap) -> bool {
    token.is_none_or(|token| token.is_in(headers))
}

/// Lets those requests to a scheduler pass that have the secret.
pub(crate) async fn admit(
    State(token): State<Option<Token>>,
    request: Request,
    next: Next,
) -> Response {
    if PROBES.contains(&request.uri().path()) || is_known(token.as_ref(), request.headers()) {
        return next.run(request).await;
    }
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return unknown().into_http();
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    let text = unknown().message().to_owned();
    (StatusCode::UNAUTHORIZED, challenge, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_long_and_visible_and_never_shown() {
        let token = Token::new(&format!(" {SECRET}\n")).unwrap();
        assert_eq!(token, Token::new(SECRET).unwrap());
        assert!(!format!("{token:?}").contains(SECRET));
        for bad in [
            "",
            "short",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdéf",
        ] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn it_is_known_by_either_header() {
        let token = Token::new(SECRET).unwrap();
        let known = |pairs: &[(header::HeaderName, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.clone(), value.parse().unwrap()));
            is_known(Some(&token), &pairs.collect())
        };
        let (bearer, agent) = (header::AUTHORIZATION, header::USER_AGENT);
        assert!(known(&[(bearer.clone(), "Bearer 0123456789abcdef")]));
        assert!(known(&[(
            agent.clone(),
            "asof-token/0123456789abcdef tonic/0.14"
        )]));
        assert!(!known(&[]));
        for bad in [
            "0123456789abcdef",
            "Bearer 0123456789abcdeg",
            "Basic 0123456789abcdef",
            "Bearer ",
        ] {
            assert!(!known(&[(bearer.clone(), bad)]), "{bad}");
        }
        for bad in [
            "tonic/0.14",
            "asof-token/",
            "asof-token/0123456789abcdef0 tonic",
            "tonic asof-token/0123456789abcdef",
        ] {
            assert!(!known(&[(agent.clone(), bad)]), "{bad}");
        }
        assert!(is_known(None, &HeaderMap::new()));
    }
}
