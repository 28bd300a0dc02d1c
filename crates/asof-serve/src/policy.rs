//! Options of the page, and its content security policy.

use axum::http::HeaderValue;
use serde_json::Value;

use crate::options::{ServeError, ServeOptions};

/// The content security policy of the page: nothing beyond this server.
pub(crate) const POLICY: &str = "default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; connect-src 'self' blob: data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Options of the page.
pub(crate) struct PageOptions {
    /// The first layout: JSON, or text that is not JSON.
    pub layout: Value,
    /// The address of map tiles.
    pub tiles: Option<String>,
    /// The content security policy; `None` for [`POLICY`].
    pub policy: Option<HeaderValue>,
}

impl PageOptions {
    pub fn of(options: &ServeOptions) -> Self {
        let layout = options.layout.as_deref().map_or(Value::Null, |text| {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        });
        let origin = options
            .tiles
            .as_deref()
            .and_then(|tiles| origin_of(tiles).ok());
        let policy = origin.and_then(|origin| {
            let more = format!("img-src {origin} ");
            HeaderValue::from_str(&POLICY.replacen("img-src ", &more, 1)).ok()
        });
        PageOptions {
            layout,
            tiles: policy.as_ref().and(options.tiles.clone()),
            policy,
        }
    }
}

/// Refuses an address that cannot be one of tiles.
pub(crate) fn check_tiles(address: &str) -> Result<(), ServeError> {
    let wrong = |reason| ServeError::Tiles {
        address: address.to_owned(),
        reason,
    };
    if !["{z}", "{x}", "{y}"]
        .iter()
        .all(|part| address.contains(part))
    {
        return Err(wrong("it needs {z}, {x} and {y}"));
    }
    origin_of(address).map(drop).map_err(wrong)
}

/// The scheme, host and port of an address, as written in a policy.
fn origin_of(address: &str) -> Result<&str, &'static str> {
    let start = ["https://", "http://"]
        .iter()
        .find(|scheme| address.starts_with(**scheme))
        .ok_or("it does not start with https:// or http://")?
        .len();
    let end = address[start..]
        .find(['/', '?', '#'])
        .map_or(address.len(), |at| start + at);
    let host = &address[start..end];
    // Anything else would be another word of the policy.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err("its host is not a valid name");
    }
    Ok(&address[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_add_their_host_to_the_policy_and_nothing_else() {
        let options = ServeOptions {
            tiles: Some("https://tile.example.org:8443/{z}/{x}/{y}.png?key=1".to_owned()),
            ..ServeOptions::default()
        };
        let page = PageOptions::of(&options);
        let policy = page.policy.expect("a policy");
        let wanted = POLICY.replace(
            "img-src 'self'",
            "img-src https://tile.example.org:8443 'self'",
        );
        assert_eq!(policy, wanted);
        assert!(PageOptions::of(&ServeOptions::default()).policy.is_none());
    }

    #[test]
    fn an_address_that_would_change_the_policy_is_refused() {
        for address in [
            "https://a.example; script-src *//{z}/{x}/{y}",
            "https://*/{z}/{x}/{y}",
            "https://me@a.example/{z}/{x}/{y}",
            "ftp://a.example/{z}/{x}/{y}",
            "https:///{z}/{x}/{y}",
            "https://a.example/{z}/{x}",
        ] {
            assert!(check_tiles(address).is_err(), "{address}");
        }
        assert!(check_tiles("http://127.0.0.1:8000/{z}/{x}/{y}.png").is_ok());
    }
}
