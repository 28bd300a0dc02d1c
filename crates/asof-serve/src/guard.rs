//! Access control: checks of `Host`, `Origin` and token.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use asof_core::is_same_secret;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::page;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is for another host name: possibly DNS rebinding.
    Host,
    /// It comes from a page of another origin.
    Origin,
    /// It comes from a page of another site, without an `Origin`.
    Site,
    /// The token is missing or wrong.
    Token,
    /// Too many clients are connected.
    Crowded,
    /// Too much data is waiting to be sent.
    NoRoom,
    /// The message is malformed.
    Malformed,
    /// The message is too long.
    Oversized,
    /// There is nothing at this path.
    Path,
}

impl Refusal {
    const ALL: [(Refusal, &'static str); 9] = [
        (Refusal::Host, "host"),
        (Refusal::Origin, "origin"),
        (Refusal::Site, "site"),
        (Refusal::Token, "token"),
        (Refusal::Crowded, "crowded"),
        (Refusal::NoRoom, "no_room"),
        (Refusal::Malformed, "malformed"),
        (Refusal::Oversized, "oversized"),
        (Refusal::Path, "path"),
    ];

    pub fn status(self) -> StatusCode {
        match self {
            Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
            Refusal::Origin | Refusal::Site => StatusCode::FORBIDDEN,
            Refusal::Token => StatusCode::UNAUTHORIZED,
            Refusal::Crowded | Refusal::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Malformed => StatusCode::BAD_REQUEST,
            Refusal::Oversized => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Path => StatusCode::NOT_FOUND,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Refusal::Host => {
                "the host name is not allowed; open the address that `asof serve` printed, or allow the name with --allow-host"
            }
            Refusal::Origin => {
                "pages of other sites may not connect; allow one with --allow-origin"
            }
            Refusal::Site => "pages of other sites may not send requests to this server",
            Refusal::Token => {
                "the token is missing or wrong; open the address that `asof serve` printed"
            }
            Refusal::Crowded => "too many clients are connected; try again later",
            Refusal::NoRoom => {
                "too much data is waiting to be sent to clients, or this response alone is too large; try again later"
            }
            Refusal::Malformed => "the message is malformed",
            Refusal::Oversized => "the message is longer than allowed",
            Refusal::Path => "there is nothing here",
        }
    }
}

/// Counts of refused requests. Each kind is logged once, and each of the first few origins; further ones are only
/// counted.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; Refusal::ALL.len()],
    origins: Mutex<BTreeSet<String>>,
}

/// The most origins that are logged.
const MOST_ORIGINS: usize = 8;

impl Refusals {
    pub fn note(&self, refusal: Refusal, what: &str) {
        if self.count(refusal) == 0 {
            let what: String = what.chars().take(200).collect();
            tracing::warn!(
                "refused: {} ({what:?}); further ones are counted but not logged",
                refusal.text()
            );
        }
    }

    /// Counts a request from a page of another origin; returns how to allow it.
    pub fn note_origin(&self, headers: &HeaderMap) -> String {
        self.count(Refusal::Origin);
        let all: Vec<&HeaderValue> = headers.get_all(header::ORIGIN).iter().collect();
        let text = match all.as_slice() {
            [one] => match one.to_str().ok().filter(|origin| is_origin(origin)) {
                Some(origin) => format!(
                    "pages of {origin} may not connect; allow them with --allow-origin {origin}"
                ),
                // A page without an address, such as a sandboxed page or a file, cannot be told from any other.
                None => format!("pages of {one:?} may not connect, and cannot be allowed"),
            },
            _ => "the request has several Origin headers".to_owned(),
        };
        let text: String = text.chars().take(600).collect();
        let mut known = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST_ORIGINS && known.insert(text.clone()) {
            tracing::warn!("refused: {text}");
        }
        text
    }

    /// How often this was refused before.
    fn count(&self, refusal: Refusal) -> u64 {
        let at = Refusal::ALL.iter().position(|(known, _)| *known == refusal);
        at.map_or(1, |at| self.counts[at].fetch_add(1, Ordering::Relaxed))
    }

    pub fn counts(&self) -> serde_json::Value {
        let count = |at: usize| self.counts[at].load(Ordering::Relaxed);
        let entries = Refusal::ALL.iter().enumerate();
        entries
            .map(|(at, (_, name))| ((*name).to_owned(), count(at).into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// Whether text is nothing but an origin: it is printed, to be copied into a command.
fn is_origin(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !rest.is_empty() && rest.len() <= 253 && rest.chars().all(is_plain)
    })
}

/// What a request needs to be accepted.
#[derive(Debug)]
pub(crate) struct Guard {
    pub token: Option<String>,
    /// The server's own names, in lower case.
    hosts: Vec<String>,
    origins: Vec<String>,
    port: u16,
    is_local: bool,
}

/// How a request carries its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// None was needed, or it came in a header.
    Held,
    /// It came in the address: a page keeps it in a cookie from now on.
    InAddress,
}

impl Guard {
    pub fn new(
        address: SocketAddr,
        token: Option<String>,
        hosts: &[String],
        origins: &[String],
    ) -> Self {
        let mut own = vec!["localhost".to_owned()];
        own.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        Guard {
            token,
            hosts: own,
            origins: origins
                .iter()
                .map(|origin| origin.trim_end_matches('/').to_ascii_lowercase())
                .collect(),
            port: address.port(),
            is_local: address.ip().is_loopback(),
        }
    }

    /// The name of the token's cookie, which includes the port: browsers share cookies between ports.
    pub fn cookie_name(&self) -> String {
        format!("asof_{}", self.port)
    }

    /// `path` is that within the recording, which is at a path of its own where it was opened from the page.
    pub fn check(&self, headers: &HeaderMap, uri: &Uri, path: &str) -> Result<Credential, Refusal> {
        self.check_host(headers, uri)?;
        if headers.contains_key(header::ORIGIN) {
            self.check_origin(headers)?;
        } else {
            check_site(headers, path)?;
        }
        self.check_token(headers, uri)
    }

    fn check_host(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        let named = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let named = named.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
        let authority: axum::http::uri::Authority = named
            .and_then(|named| named.parse().ok())
            .ok_or(Refusal::Host)?;
        if headers.get_all(header::HOST).iter().count() > 1 {
            return Err(Refusal::Host);
        }
        let host = authority.host().to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // An IP address cannot be rebound; a name can, unless it is one of ours.
        let is_address = bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| !self.is_local || address.is_loopback());
        if is_address || self.hosts.contains(&host) {
            Ok(())
        } else {
            Err(Refusal::Host)
        }
    }

    /// Browsers send the origin of the page. For our own page it is the server's address.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return Err(Refusal::Origin);
        };
        let origin = origin.to_str().map_err(|_| Refusal::Origin)?;
        let origin = origin.to_ascii_lowercase();
        if is_own(&origin, headers) || self.origins.contains(&origin) {
            Ok(())
        } else {
            Err(Refusal::Origin)
        }
    }

    /// Whether a checked request may change something: from a page, only from the server's own, even if other origins
    /// may read.
    pub fn may_change(headers: &HeaderMap) -> bool {
        headers.get_all(header::ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            is_own(&origin.to_ascii_lowercase(), headers)
        })
    }

    fn check_token(&self, headers: &HeaderMap, uri: &Uri) -> Result<Credential, Refusal> {
        let Some(token) = &self.token else {
            return Ok(Credential::Held);
        };
        let cookies = headers.get_all(header::COOKIE).iter();
        let name = self.cookie_name();
        let in_cookie = cookies
            .filter_map(|cookies| cookies.to_str().ok())
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .any(|(key, value)| key == name && is_same_secret(value, token));
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if in_cookie || bearer.is_some_and(|bearer| is_same_secret(bearer, token)) {
            return Ok(Credential::Held);
        }
        let asked = uri.query().unwrap_or_default().split('&');
        let in_address = asked
            .filter_map(|pair| pair.strip_prefix("token="))
            .any(|value| is_same_secret(value, token));
        if in_address {
            Ok(Credential::InAddress)
        } else {
            Err(Refusal::Token)
        }
    }
}

/// Browsers omit `Origin` where a page may not read the response, but mark the request as cross-site. The work would
/// be done all the same. The page itself may be opened from anywhere.
fn check_site(headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
    let is_own = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let is_page = page::file(path).is_some() && !headers.contains_key(header::UPGRADE);
    if is_page || sites.all(is_own) {
        Ok(())
    } else {
        Err(Refusal::Site)
    }
}

/// Whether an origin is the address of the request itself.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    host.is_some_and(|host| {
        let host = host.to_ascii_lowercase();
        origin.strip_prefix("http://") == Some(&host)
            || origin.strip_prefix("https://") == Some(&host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(token: Option<&str>) -> Guard {
        let address = SocketAddr::from(([127, 0, 0, 1], 8765));
        let origins = ["https://app.example".to_owned()];
        Guard::new(address, token.map(str::to_owned), &[], &origins)
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: header::HeaderName = name.parse().expect("a name");
            (name, value.parse().expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_the_servers_own_page_may_change_something() {
        let own = [
            ("host", "localhost:8765"),
            ("origin", "http://localhost:8765"),
        ];
        assert!(Guard::may_change(&headers(&own)));
        assert!(Guard::may_change(&headers(&[("host", "localhost:8765")])));
        // It may look, and no more.
        let other = [
            ("host", "localhost:8765"),
            ("origin", "https://app.example"),
        ];
        assert!(check(&other).is_ok());
        assert!(!Guard::may_change(&headers(&other)));
    }

    fn check(pairs: &[(&str, &str)]) -> Result<Credential, Refusal> {
        guard(None).check(&headers(pairs), &Uri::from_static("/"), "/")
    }

    #[test]
    fn only_the_servers_own_names_are_served() {
        for host in [
            "localhost:8765",
            "127.0.0.1:8765",
            "[::1]:8765",
            "LOCALHOST",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(Credential::Held), "{host}");
        }
        for host in [
            "evil.example",
            "10.0.0.1:8765",
            "localhost.evil.example",
            "",
        ] {
            assert_eq!(check(&[("host", host)]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(check(&[]), Err(Refusal::Host));
    }

    #[test]
    fn only_pages_of_the_server_and_of_allowed_sites_may_ask() {
        let with = |origin| check(&[("host", "localhost:8765"), ("origin", origin)]);
        assert!(with("http://localhost:8765").is_ok());
        assert!(with("https://app.example").is_ok());
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:9999",
            "file://",
        ] {
            assert_eq!(with(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn a_request_with_two_origins_is_refused_whatever_they_are() {
        for second in ["http://localhost:8765", "https://evil.example"] {
            let own = ("origin", "http://localhost:8765");
            let mut all = headers(&[("host", "localhost:8765"), own]);
            all.append("origin", second.parse().expect("a value"));
            let checked = guard(None).check(&all, &Uri::from_static("/"), "/");
            assert_eq!(checked, Err(Refusal::Origin), "{second}");
        }
    }

    #[test]
    fn a_page_of_another_site_that_does_not_name_itself_may_not_ask_for_work() {
        let ask = |path: &'static str, more: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:8765")];
            all.extend(more);
            let uri = Uri::from_static(path);
            guard(None).check(&headers(&all), &uri, uri.path())
        };
        let site = |site| ("sec-fetch-site", site);
        for path in ["/api/rows?topic=/odom", "/api/summary", "/ws", "/no/such"] {
            for other in ["cross-site", "same-site", "anything"] {
                assert_eq!(ask(path, &[site(other)]), Err(Refusal::Site), "{path}");
            }
            for own in ["same-origin", "none"] {
                assert!(ask(path, &[site(own)]).is_ok(), "{path}");
            }
            let two = [site("none"), site("cross-site")];
            assert_eq!(ask(path, &two), Err(Refusal::Site), "{path}");
            // Not a browser.
            assert!(ask(path, &[]).is_ok(), "{path}");
        }
        // A link on another site opens the page, which does no work by itself.
        assert!(ask("/", &[site("cross-site")]).is_ok());
        let upgrade = ("upgrade", "websocket");
        assert_eq!(ask("/", &[site("cross-site"), upgrade]), Err(Refusal::Site));
        // A site that was allowed names itself.
        let allowed = ("origin", "https://app.example");
        assert!(ask("/ws", &[site("cross-site"), allowed]).is_ok());
    }

    #[test]
    fn the_flag_that_would_allow_an_origin_is_told_and_nothing_else_is_repeated() {
        let told = |origin: &str| Refusals::default().note_origin(&headers(&[("origin", origin)]));
        let expected = "pages of http://192.168.1.7:8080 may not connect; allow them with --allow-origin http://192.168.1.7:8080";
        assert_eq!(told("http://192.168.1.7:8080"), expected);
        for origin in ["null", "file://", "http://a;rm -rf", "http://a\u{7f}b"] {
            if let Ok(value) = origin.parse::<HeaderValue>() {
                let mut all = HeaderMap::new();
                all.insert(header::ORIGIN, value);
                let text = Refusals::default().note_origin(&all);
                assert!(!text.contains("--allow-origin"), "{text}");
            }
        }
    }

    #[test]
    fn the_token_may_come_in_the_address_in_a_cookie_or_in_a_header() {
        let guard = guard(Some("secret"));
        let ask = |path: &'static str, more: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:8765")];
            all.extend(more);
            let uri = Uri::from_static(path);
            guard.check(&headers(&all), &uri, uri.path())
        };
        assert_eq!(ask("/", &[]), Err(Refusal::Token));
        assert_eq!(ask("/?token=secreT", &[]), Err(Refusal::Token));
        assert_eq!(ask("/?token=", &[]), Err(Refusal::Token));
        assert_eq!(ask("/?token=secret", &[]), Ok(Credential::InAddress));
        assert_eq!(
            ask("/", &[("cookie", "a=b; asof_8765=secret")]),
            Ok(Credential::Held)
        );
        assert_eq!(
            ask("/", &[("cookie", "asof_1=secret")]),
            Err(Refusal::Token)
        );
        assert_eq!(
            ask("/", &[("authorization", "Bearer secret")]),
            Ok(Credential::Held)
        );
    }
}
