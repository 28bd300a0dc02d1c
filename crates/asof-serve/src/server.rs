//! The server: a port, and its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::Source;
use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::App;
use crate::changes::{Changes, Opener};
use crate::guard::{Guard, Refusal};
use crate::options::{ServeError, ServeOptions};
use crate::policy::check_tiles;
use crate::routes;
use crate::stream::WatchedStream;

/// A running server. It ends when this is dropped.
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

/// How many ports are tried where any will do.
const PORTS_TO_TRY: u16 = 20;
/// How long clients may take to answer that the server ends.
const PARTING: Duration = Duration::from_secs(1);
/// How long to wait for a place that is about to become free, or for a refused client to receive the reason.
const PLACE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may take to send its request header.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

impl Server {
    /// Starts serving `source` under the title `name`: a recording, or a source that grows, such as a running robot or
    /// a file that is being written.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use asof_serve::{ServeOptions, Server};
    /// use asof_window::Recent;
    ///
    /// // What hears the robot pushes its messages into this.
    /// let recent = Recent::default();
    /// let server = Server::start(Arc::new(recent.clone()), "my robot", &ServeOptions::default())?;
    /// assert_eq!(server.status()["window"]["messages"], 0);
    /// # Ok::<(), asof_serve::ServeError>(())
    /// ```
    ///
    /// # Errors
    /// When the address cannot be bound, or threads cannot be started.
    pub fn start(
        source: Arc<dyn Source>,
        name: &str,
        options: &ServeOptions,
    ) -> Result<Self, ServeError> {
        Self::start_with(source, name, options, None)
    }

    /// The same, with an `opener` for files that are dropped onto the page. Where the server does not listen on this
    /// machine alone, clients need the token for that as for everything else.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        source: Arc<dyn Source>,
        name: &str,
        options: &ServeOptions,
        opener: Option<Arc<dyn Opener>>,
    ) -> Result<Self, ServeError> {
        if let Some(tiles) = &options.tiles {
            check_tiles(tiles)?;
        }
        let listener = bind(options)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = match &options.token {
            Some(token) => Some(token.clone()),
            None if address.ip().is_loopback() => None,
            None => Some(make_token()?),
        };
        let guard = Guard::new(address, token, &options.hosts, &options.origins);
        let guard = Arc::new(guard);
        let connections = options.limits.connections;
        let changes = Changes::new(options, opener);
        let app = Arc::new(App::new(source, name, guard, changes, options));
        let runtime = Builder::new_multi_thread()
            .thread_name("asof-serve")
            .enable_all()
            .build()?;
        if app.is_live {
            runtime.spawn(take_in_frames(Arc::clone(&app)));
        }
        runtime.spawn(let_go(Arc::clone(&app)));
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

    /// The address that it listens on.
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

    /// Statistics of the block cache.
    pub fn cache_stats(&self) -> asof_blocks::CacheStats {
        self.app.cache.stats()
    }

    /// Writes cached blocks to the folder of [`ServeOptions::disk`], as far as they are not there yet, and those of the recordings
    /// that are open beside it to theirs. Dropping the server does this too.
    pub fn keep_on_disk(&self) {
        self.app.cache.keep_on_disk();
        if let Some(opened) = &self.app.opened {
            opened.keep_on_disk();
        }
    }

    /// The state of the server, as in `/api/status`.
    pub fn status(&self) -> serde_json::Value {
        self.app.status()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.over.send_replace(true);
        if let Some(opened) = &self.app.opened {
            opened.close_all();
        }
        if let Some(runtime) = self.runtime.take() {
            let app = Arc::clone(&self.app);
            let shut_down = move || {
                // Clients are told, and have a moment to answer.
                let told = async { tokio::time::timeout(PARTING, app.over.closed()).await };
                drop(runtime.block_on(told));
                runtime.shutdown_timeout(Duration::from_secs(2));
            };
            // On a thread of its own: a task of another server may be what drops this one, and must not block.
            drop(std::thread::spawn(shut_down).join());
        }
        if let Some(snapshots) = &self.app.snapshots {
            snapshots.finish();
        }
        self.keep_on_disk();
    }
}

/// Loads the transforms of a growing source even without clients: it may evict them.
pub(crate) async fn take_in_frames(app: Arc<App>) {
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

/// Generates an unguessable secret for [`ServeOptions::token`].
///
/// # Errors
/// When the system has no random bytes.
pub fn make_token() -> Result<String, ServeError> {
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
                // Too many open files, most likely: others have to end first.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small messages are sent at once; where that cannot be set they are sent later.
        drop(stream.set_nodelay(true));
        let (app, router) = (Arc::clone(app), router.clone());
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            tokio::spawn(serve(app, router, stream, place));
        } else if app.waiting.make_place(Instant::now()) {
            // A useless connection is ended, and this one takes its place as soon as it is gone.
            let places = Arc::clone(&places);
            tokio::spawn(async move {
                match tokio::time::timeout(PLACE_TIMEOUT, places.acquire_owned()).await {
                    Ok(Ok(place)) => serve(app, router, stream, place).await,
                    _ => turn_away(&app, stream).await,
                }
            });
        } else {
            tokio::spawn(async move { turn_away(&app, stream).await });
        }
    }
}

/// Serves one connection until it ends.
async fn serve(app: Arc<App>, router: Router, stream: TcpStream, place: OwnedSemaphorePermit) {
    let connection = app.waiting.connect();
    let stream = WatchedStream::new(stream, Arc::clone(&connection));
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        let connection = Arc::clone(&connection);
        connection.note_asked(true);
        request.extensions_mut().insert(Arc::clone(&connection));
        let answered = router.call(request);
        async move {
            let answer = answered.await;
            connection.note_asked(false);
            answer
        }
    });
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
}

async fn turn_away(app: &App, mut stream: TcpStream) {
    app.refusals.note(Refusal::Crowded, "a connection");
    let mut answer = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n".to_owned();
    for (name, value) in routes::SAFE_HEADERS {
        answer.extend([name.as_str(), ": ", value, "\r\n"]);
    }
    answer.push_str("\r\n");
    let said = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Read the request first: closing the socket before would discard the response.
        let mut asked = [0; 4096];
        for _ in 0..16 {
            if stream.read(&mut asked).await? == 0 {
                break;
            }
        }
        std::io::Result::Ok(())
    };
    // Whether it receives that or not, it has to go.
    drop(tokio::time::timeout(PLACE_TIMEOUT, said).await);
}

/// Ends connections that have read nothing for too long.
async fn let_go(app: Arc<App>) {
    let mut over = app.over.subscribe();
    while !*over.borrow_and_update() {
        app.waiting
            .end_blocked(app.limits.dropped_after, Instant::now());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
            _ = over.changed() => {}
        }
    }
}
