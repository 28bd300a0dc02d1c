//! Authentication.

use std::sync::Arc;

use asof_core::is_same_secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

/// Checks clients: those with the token, or all where there is none.
#[derive(Debug, Clone)]
pub struct Guard(Option<Arc<str>>);

impl Guard {
    pub fn new(token: Option<&str>) -> Self {
        Guard(token.map(Arc::from))
    }

    /// The token; empty where none is required.
    pub fn token(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn check(&self, request: Request<()>) -> Result<Request<()>, Status> {
        if self.is_known(request.metadata()) {
            return Ok(request);
        }
        Err(Status::unauthenticated(
            "the token is missing or wrong; give the one that `asof serve` printed as a bearer token, or as the password of \
             any user",
        ))
    }

    fn is_known(&self, metadata: &MetadataMap) -> bool {
        let Some(token) = &self.0 else {
            return true;
        };
        let given = metadata.get("authorization");
        let Some(given) = given.and_then(|given| given.to_str().ok()) else {
            return false;
        };
        let (kind, secret) = given.split_once(' ').unwrap_or((given, ""));
        if kind.eq_ignore_ascii_case("bearer") {
            return is_same_secret(secret.trim(), token);
        }
        let decoded = STANDARD.decode(secret.trim()).unwrap_or_default();
        let pair = String::from_utf8(decoded).unwrap_or_default();
        let password = pair.split_once(':').map(|(_, password)| password);
        kind.eq_ignore_ascii_case("basic")
            && password.is_some_and(|found| is_same_secret(found, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(token: Option<&str>, given: Option<&str>) -> bool {
        let mut metadata = MetadataMap::new();
        if let Some(given) = given {
            metadata.insert("authorization", given.parse().unwrap());
        }
        Guard::new(token).is_known(&metadata)
    }

    #[test]
    fn the_token_is_a_bearer_token_or_a_password() {
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for good in [
            "Bearer secret".to_owned(),
            "bearer secret".to_owned(),
            basic("anyone:secret"),
            basic(":secret"),
        ] {
            assert!(is_known(Some("secret"), Some(&good)), "{good}");
        }
        for bad in [
            "Bearer secreT".to_owned(),
            "Bearer secret2".to_owned(),
            "Bearer ".to_owned(),
            "Bearer".to_owned(),
            "secret".to_owned(),
            "Digest secret".to_owned(),
            "Basic secret".to_owned(),
            basic("secret"),
            basic("secret:"),
            basic("anyone:"),
        ] {
            assert!(!is_known(Some("secret"), Some(&bad)), "{bad}");
        }
        assert!(!is_known(Some("secret"), None));
        assert!(is_known(None, None));
        assert!(is_known(None, Some("Bearer anything")));
    }
}
