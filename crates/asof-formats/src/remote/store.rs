//! The client of a web server or a bucket.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpResponse, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreScheme, RetryConfig};
use url::{Position, Url};

use super::faults::silent;
use super::{RETRY_TIME, SILENCE_TIMEOUT};

/// The client for an address, and the path in it.
pub(super) fn store_of(
    url: &Url,
    options: impl IntoIterator<Item = (String, String)>,
) -> object_store::Result<(Arc<dyn ObjectStore>, ObjectPath)> {
    macro_rules! built {
        ($builder:ty, $address:expr) => {{
            let builder = <$builder>::new()
                .with_url($address)
                .with_http_connector(Prompt)
                .with_client_options(client_options())
                .with_retry(retries());
            let builder =
                options
                    .into_iter()
                    .fold(builder, |builder, (name, value)| match name.parse() {
                        Ok(name) => builder.with_config(name, value),
                        Err(_) => builder,
                    });
            Arc::new(builder.build()?)
        }};
    }
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    // A signed address is used as it is, wherever it points.
    let (scheme, path) = match (url.scheme(), url.query()) {
        ("http" | "https", Some(_)) => (
            ObjectStoreScheme::Http,
            ObjectPath::from_url_path(url.path())?,
        ),
        _ => (scheme, path),
    };
    let store: Arc<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder, url.as_str()),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder, url.as_str()),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder, url.as_str()),
        _ => {
            let mut server = url[..Position::BeforePath].to_owned();
            if let Some(query) = url.query() {
                server = format!("{server}/?{query}");
            }
            built!(HttpBuilder, server)
        }
    };
    Ok((store, path))
}

/// The duration of a request is not limited, since networks may be slow. The time without any data is.
fn client_options() -> ClientOptions {
    ClientOptions::new().with_timeout_disabled()
}

fn retries() -> RetryConfig {
    RetryConfig {
        retry_timeout: RETRY_TIME,
        ..RetryConfig::default()
    }
}

/// The provider of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Amazon,
    Google,
    Azure,
}

impl Provider {
    pub fn of(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" | "s3a" => Some(Provider::Amazon),
            "gs" => Some(Provider::Google),
            "az" | "azure" | "abfs" | "abfss" => Some(Provider::Azure),
            _ => None,
        }
    }

    /// The option for unsigned requests, if nothing in the environment can sign them. Asking the machine's own cloud
    /// for keys instead takes minutes outside of one, so that must be requested.
    pub fn unsigned(self, known: &[(String, String)]) -> Option<&'static str> {
        let (option, keys): (_, &[&str]) = match self {
            Provider::Amazon => (
                "aws_skip_signature",
                &[
                    "AWS_ACCESS_KEY_ID",
                    "AWS_WEB_IDENTITY_TOKEN_FILE",
                    "AWS_CONTAINER_",
                    "AWS_METADATA_ENDPOINT",
                    "AWS_SKIP_SIGNATURE",
                ],
            ),
            Provider::Google => (
                "google_skip_signature",
                &[
                    "GOOGLE_SERVICE_ACCOUNT",
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    "GOOGLE_SKIP_SIGNATURE",
                ],
            ),
            Provider::Azure => (
                "azure_skip_signature",
                &[
                    "AZURE_STORAGE_ACCOUNT_KEY",
                    "AZURE_STORAGE_ACCESS_KEY",
                    "AZURE_STORAGE_SAS",
                    "AZURE_STORAGE_CLIENT",
                    "AZURE_STORAGE_TOKEN",
                    "AZURE_CLIENT_",
                    "AZURE_FEDERATED_TOKEN_FILE",
                    "AZURE_USE_AZURE_CLI",
                    "AZURE_STORAGE_USE_EMULATOR",
                    "AZURE_MSI_ENDPOINT",
                    "AZURE_SKIP_SIGNATURE",
                ],
            ),
        };
        let is_key = |name: &str| keys.iter().any(|key| name.starts_with(key));
        let can_sign = known.iter().any(|(name, _)| is_key(name));
        (!can_sign).then_some(option)
    }

    /// What to set.
    pub fn hint(self) -> &'static str {
        match self {
            Provider::Amazon => {
                "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION (on a machine of that cloud, AWS_METADATA_ENDPOINT)"
            }
            Provider::Google => "set GOOGLE_APPLICATION_CREDENTIALS to a file with keys",
            Provider::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY where the container is not open to all"
            }
        }
    }
}

/// Makes clients that fail at once if nothing listens, and soon if nothing answers. Otherwise a request is retried
/// for seconds before a mistyped address is reported.
#[derive(Debug)]
struct Prompt;

impl HttpConnector for Prompt {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = client_of(options).map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(PromptClient(HttpClient::new(client))))
    }
}

/// How long connecting to a server may take.
const CONNECTING: Duration = Duration::from_secs(5);

/// Like the library's own, but without a referrer on redirects: an address may contain a signature that gives access
/// to the file.
fn client_of(options: &ClientOptions) -> reqwest::Result<reqwest::Client> {
    let said = |key: ClientConfigKey| options.get_config_value(&key);
    let is_set = |key: ClientConfigKey| said(key).is_some_and(|value| value == "true");
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("asof/", env!("CARGO_PKG_VERSION")))
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECTING)
        // Compressed in transit, a file has another length.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(!is_set(ClientConfigKey::AllowHttp))
        .danger_accept_invalid_certs(is_set(ClientConfigKey::AllowInvalidCertificates));
    if let Some(address) = said(ClientConfigKey::ProxyUrl) {
        let mut proxy = reqwest::Proxy::all(address)?;
        if let Some(excluded) = said(ClientConfigKey::ProxyExcludes) {
            proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&excluded));
        }
        builder = builder.proxy(proxy);
        if let Some(certificate) = said(ClientConfigKey::ProxyCaCertificate) {
            let certificate = reqwest::Certificate::from_pem(certificate.as_bytes())?;
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build()
}

#[derive(Debug)]
struct PromptClient(HttpClient);

impl HttpService for PromptClient {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let told = |error: HttpError| {
            if error.kind() == HttpErrorKind::Connect && !is_passing(&error) {
                // Errors of this kind are not retried.
                HttpError::new(HttpErrorKind::Unknown, error)
            } else {
                error
            }
        };
        Box::pin(async move {
            match tokio::time::timeout(SILENCE_TIMEOUT, self.0.execute(request)).await {
                Ok(answer) => answer.map_err(told),
                Err(_) => Err(HttpError::new(HttpErrorKind::Timeout, silent())),
            }
        })
    }
}

/// Whether a retry may connect: not if it is refused, or the host's name or certificate is wrong.
fn is_passing(error: &HttpError) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, UnexpectedEof,
    };
    let passing = [
        BrokenPipe,
        ConnectionAborted,
        ConnectionReset,
        Interrupted,
        TimedOut,
        UnexpectedEof,
    ];
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        let failure = found.downcast_ref::<io::Error>();
        if failure.is_some_and(|failure| passing.contains(&failure.kind())) {
            return true;
        }
        // A system error skips its inner error when asked for its source.
        let inner = failure.and_then(|failure| failure.get_ref());
        cause = match inner {
            Some(inner) => Some(inner),
            None => found.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_signed_only_where_there_is_something_to_sign_with() {
        let known = |names: &[&str]| -> Vec<(String, String)> {
            let pair = |name: &&str| ((*name).to_owned(), "x".to_owned());
            names.iter().map(pair).collect()
        };
        let amazon = Provider::of("s3").expect("a provider");
        assert_eq!(
            amazon.unsigned(&known(&["PATH"])),
            Some("aws_skip_signature")
        );
        assert_eq!(
            amazon.unsigned(&known(&["AWS_REGION"])),
            Some("aws_skip_signature")
        );
        assert_eq!(amazon.unsigned(&known(&["AWS_ACCESS_KEY_ID"])), None);
        let azure = Provider::of("az").expect("a provider");
        assert_eq!(azure.unsigned(&known(&["AZURE_STORAGE_ACCOUNT_KEY"])), None);
        assert_eq!(Provider::of("https"), None);
    }

    #[test]
    fn only_what_may_pass_is_worth_another_connection() {
        let failed = |kind: io::ErrorKind| {
            let cause = io::Error::other(io::Error::from(kind));
            HttpError::new(HttpErrorKind::Connect, cause)
        };
        assert!(is_passing(&failed(io::ErrorKind::ConnectionReset)));
        assert!(is_passing(&failed(io::ErrorKind::TimedOut)));
        assert!(!is_passing(&failed(io::ErrorKind::ConnectionRefused)));
        let unknown_host = io::Error::other("failed to lookup address information");
        assert!(!is_passing(&HttpError::new(
            HttpErrorKind::Connect,
            unknown_host
        )));
    }

    #[test]
    fn an_address_with_a_signature_is_asked_as_it_is() {
        for address in [
            "https://bucket.s3.amazonaws.com/day/run.mcap?X-Amz-Signature=abc",
            "https://example.com/day/run.mcap?token=abc",
        ] {
            let url = Url::parse(address).expect("an address");
            let (store, path) = store_of(&url, []).expect("a client");
            assert_eq!(path.as_ref(), "day/run.mcap");
            assert!(store.to_string().contains("HttpStore"), "{store}");
        }
        let url = Url::parse("https://bucket.s3.amazonaws.com/run.mcap").expect("an address");
        let (store, _) = store_of(&url, []).expect("a client");
        assert!(store.to_string().contains("AmazonS3"), "{store}");
    }
}
