//! The server: a port, and the threads behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Source, Stamp};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::app::{App, What};
use crate::guard::{Guard, Refusal};
use crate::options::{ServeError, ServeOptions};
use crate::retained::Retained;
use crate::routes;

/// A running server. It ends when this is dropped.
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

/// So many ports are tried where any will do.
const PORTS_TO_TRY: u16 = 20;
/// A client that does not finish its request's head in this time is let go.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

impl Server {
    /// Starts to serve `source`, which people know by `name`.
    ///
    /// # Errors
    /// When the address cannot be had, or the system has no threads to give.
    pub fn start(
        source: Arc<dyn Source>,
        name: &str,
        options: &ServeOptions,
    ) -> Result<Self, ServeError> {
        Server::serve(What::Recorded(source), name, options)
    }

    /// Starts to serve a running robot: what is retained of it now, and what will be. Times are counted from `start`.
    ///
    /// ```
    /// use asof_core::Stamp;
    /// use asof_serve::{Retained, Retention, ServeOptions, Server};
    ///
    /// let retained = Retained::new(Retention::default());
    /// let now = Stamp::try_from(std::time::SystemTime::now())?;
    /// let server = Server::start_live(&retained, "my robot", now, &ServeOptions::default())?;
    /// // From here on, whoever hears the robot calls `retained.push`.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the address cannot be had, or the system has no threads to give.
    pub fn start_live(
        retained: &Retained,
        name: &str,
        start: Stamp,
        options: &ServeOptions,
    ) -> Result<Self, ServeError> {
        Server::serve(What::Live(retained.clone(), start), name, options)
    }

    fn serve(what: What, name: &str, options: &ServeOptions) -> Result<Self, ServeError> {
        let listener = bind(options)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = match &options.token {
            Some(token) => Some(token.clone()),
            None if address.ip().is_loopback() => None,
            None => Some(make_token()?),
        };
        let guard = Guard::new(address, token, &options.hosts, &options.origins);
        let limits = options.limits.clone();
        let connections = limits.connections;
        let app = Arc::new(App::new(what, name, guard, limits, options.cache_bytes));
        let runtime = Builder::new_multi_thread()
            .thread_name("asof-serve")
            .enable_all()
            .build()?;
        if app.retained.is_some() {
            runtime.spawn(take_in_frames(Arc::clone(&app)));
        }
        let serving = Arc::clone(&app);
        runtime.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(&serving, &listener, connections).await,
                Err(error) => tracing::error!("cannot listen: {error}"),
            }
        });
        Ok(Server {
            app,
            address,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address to open in a browser, with the token where one is needed.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // A browser on this machine finds it here; elsewhere the machine's own name is needed.
            let local: std::net::IpAddr = match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            };
            address.set_ip(local);
        }
        match &self.app.guard.token {
            Some(token) => format!("http://{address}/?token={token}"),
            None => format!("http://{address}/"),
        }
    }

    /// The address for Foxglove and Lichtblick.
    pub fn foxglove_url(&self) -> String {
        self.url().replacen("http://", "ws://", 1)
    }

    /// What the cache has done so far.
    pub fn cache_statistics(&self) -> asof_blocks::Statistics {
        self.app.cache.statistics()
    }

    /// How the server is doing, as `/api/status` tells it.
    pub fn status(&self) -> serde_json::Value {
        self.app.status()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.over.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

/// A robot's transforms are taken in whether anybody looks or not.
async fn take_in_frames(app: Arc<App>) {
    let mut over = app.over.subscribe();
    while !*over.borrow_and_update() {
        tokio::task::block_in_place(|| app.frames.catch_up());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            _ = over.changed() => {}
        }
    }
}

fn bind(options: &ServeOptions) -> Result<std::net::TcpListener, ServeError> {
    let mut address = options.listen;
    let first = std::net::TcpListener::bind(address);
    let cause = match first {
        Ok(listener) => return Ok(listener),
        Err(cause) => cause,
    };
    if options.any_port && cause.kind() == std::io::ErrorKind::AddrInUse {
        for _ in 1..PORTS_TO_TRY {
            address.set_port(address.port().wrapping_add(1));
            if let Ok(listener) = std::net::TcpListener::bind(address) {
                return Ok(listener);
            }
        }
    }
    let address = options.listen;
    Err(ServeError::Bind { address, cause })
}

fn make_token() -> Result<String, ServeError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ServeError::Random(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

async fn accept(app: &Arc<App>, listener: &TcpListener, connections: usize) {
    let router = routes::router(app);
    let places = Arc::new(Semaphore::new(connections));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, most likely: others have to go first.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            app.refusals.note(Refusal::Crowded, "a connection");
            tokio::spawn(turn_away(stream));
            continue;
        };
        // Small messages go out at once; where that cannot be set they go out later.
        drop(stream.set_nodelay(true));
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(64 << 10);
            let serving = http
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            if let Err(error) = serving.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

async fn turn_away(mut stream: TcpStream) {
    let answer =
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    // Whether it hears that or not, it has to go.
    drop(tokio::time::timeout(Duration::from_secs(1), stream.write_all(answer)).await);
}
