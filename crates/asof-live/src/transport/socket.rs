//! A WebSocket to a robot: connected, kept alive, and reconnected until it is dropped.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use asof_core::Problem;
use bytes::Bytes;
use parking_lot::Mutex;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use super::Losses;
use crate::{LiveError, SocketAddress};

/// A protocol on a WebSocket: receives messages, and produces those to send.
pub(crate) trait Conversation: Send + 'static {
    /// The offered subprotocols, best first, separated by commas.
    const SUBPROTOCOLS: Option<&'static str>;

    /// Called when a connection is open.
    fn opened(&mut self, subprotocol: &str, out: &mut Vec<Message>);
    /// Called with a text message; returns whether it was valid.
    fn text(&mut self, text: &str, out: &mut Vec<Message>, losses: &Losses) -> bool;
    /// Called with a binary message; returns whether it was valid.
    fn binary(&mut self, bytes: Bytes, out: &mut Vec<Message>, losses: &Losses) -> bool;
    /// Called at regular intervals.
    fn tick(&mut self, now: Instant, out: &mut Vec<Message>);
    /// Called when the connection is gone.
    fn closed(&mut self);
}

/// The connection's shared state.
#[derive(Debug, Default)]
pub(crate) struct Line {
    is_connected: AtomicBool,
    is_over: AtomicBool,
    /// Why there is no connection now.
    failure: Mutex<Option<String>>,
    pub losses: Losses,
}

impl Line {
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    /// Problems so far, and those of the current connection.
    pub fn problems(&self, place: &str) -> Vec<Problem> {
        let mut problems = self.losses.problems(place);
        if let Some(reason) = &*self.failure.lock() {
            let text = format!("cannot connect to {place}: {reason}; retrying");
            problems.push(super::incomplete(text));
        }
        problems
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Ends the connection when it is dropped.
pub(crate) struct Caller(pub Arc<Line>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// The largest message that is accepted: more than any sensor's.
const MOST_BYTES: usize = 256 << 20;
/// The most bytes that may wait to be sent.
const MOST_UNSENT: usize = 16 << 20;
/// How long connecting and the handshake may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a peer may take to answer that the connection is closed.
const CLOSE: Duration = Duration::from_millis(500);
/// How often the protocol's `tick` runs.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A silent peer is pinged after the first time, and given up after the second.
const PING_AFTER: Duration = Duration::from_secs(5);
const LOST_AFTER: Duration = Duration::from_secs(15);
/// The time between two attempts grows from the first to the second.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Runs a protocol on its own thread.
pub(crate) fn call<C: Conversation>(
    address: &SocketAddress,
    conversation: C,
) -> Result<Caller, LiveError> {
    let line = Arc::new(Line::default());
    let (shared, address) = (Arc::clone(&line), address.clone());
    thread::Builder::new()
        .name("asof-live socket".to_owned())
        .spawn(move || keep_calling(&address, conversation, &shared))
        .map_err(LiveError::Thread)?;
    Ok(Caller(line))
}

fn keep_calling<C: Conversation>(address: &SocketAddress, mut conversation: C, line: &Line) {
    let mut pause = RETRY;
    while !line.is_over() {
        match connect::<C>(address) {
            Ok((socket, subprotocol)) => {
                *line.failure.lock() = None;
                line.is_connected.store(true, Ordering::Release);
                let began = Instant::now();
                let end = converse(socket, &subprotocol, &mut conversation, line);
                // The peer's channels are removed before the connection is reported lost, so that both are seen in
                // this order.
                conversation.closed();
                line.is_connected.store(false, Ordering::Release);
                if line.is_over() {
                    return;
                }
                Losses::count(&line.losses.reconnects);
                tracing::warn!("{address}: the connection is lost ({end}); trying again");
                // A peer that disconnects at once is not called in a tight loop.
                if began.elapsed() > LONGEST_RETRY {
                    pause = RETRY;
                }
            }
            Err(reason) => {
                let before = line.failure.lock().replace(reason.clone());
                if before.is_none_or(|before| before != reason) {
                    tracing::debug!("{address}: {reason}; trying again");
                }
            }
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && !line.is_over() {
            thread::sleep(POLL_INTERVAL.min(pause));
        }
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

fn connect<C: Conversation>(
    address: &SocketAddress,
) -> Result<(WebSocket<TcpStream>, String), String> {
    let places = (address.host.as_str(), address.port).to_socket_addrs();
    let places = places.map_err(|cause| format!("its name cannot be resolved: {cause}"))?;
    let mut failed = "its name has no address".to_owned();
    for place in places {
        let stream = match TcpStream::connect_timeout(&place, CONNECT) {
            Ok(stream) => stream,
            Err(cause) => {
                failed = cause.to_string();
                continue;
            }
        };
        let arranged = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(CONNECT)))
            .and_then(|()| stream.set_write_timeout(Some(CONNECT)));
        arranged.map_err(|cause| cause.to_string())?;
        let mut request = address
            .url()
            .into_client_request()
            .map_err(|cause| cause.to_string())?;
        if let Some(offered) = C::SUBPROTOCOLS {
            let headers = request.headers_mut();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MOST_BYTES))
            .max_frame_size(Some(MOST_BYTES))
            .max_write_buffer_size(MOST_UNSENT);
        let greeted = tungstenite::client::client_with_config(request, stream, Some(config));
        let (socket, response) = greeted.map_err(|cause| cause.to_string())?;
        let chosen = response.headers().get(SEC_WEBSOCKET_PROTOCOL);
        let chosen = chosen.and_then(|value| value.to_str().ok());
        return Ok((socket, chosen.unwrap_or_default().to_owned()));
    }
    Err(failed)
}

/// Exchanges messages until either side ends the connection; returns why it ended.
fn converse<C: Conversation>(
    mut socket: WebSocket<TcpStream>,
    subprotocol: &str,
    conversation: &mut C,
    line: &Line,
) -> String {
    if let Err(cause) = socket.get_ref().set_read_timeout(Some(POLL_INTERVAL)) {
        return cause.to_string();
    }
    let mut out = Vec::new();
    conversation.opened(subprotocol, &mut out);
    let (mut heard, mut asked) = (Instant::now(), Instant::now());
    let mut ticked = Instant::now();
    while !line.is_over() {
        let mut is_of_it = true;
        match socket.read() {
            Ok(message) => {
                heard = Instant::now();
                match message {
                    Message::Text(text) => {
                        is_of_it = conversation.text(&text, &mut out, &line.losses);
                    }
                    Message::Binary(bytes) => {
                        is_of_it = conversation.binary(bytes, &mut out, &line.losses);
                    }
                    Message::Close(_) => {
                        // The answer to it is queued.
                        part(&mut socket);
                        return "it closed the connection".to_owned();
                    }
                    Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                }
            }
            Err(Error::Io(cause)) if is_timeout(cause.kind()) => {}
            Err(Error::Capacity(cause)) => {
                Losses::count(&line.losses.oversized);
                return cause.to_string();
            }
            Err(Error::Utf8(cause)) => {
                Losses::count(&line.losses.malformed);
                return format!("its text is not UTF-8: {cause}");
            }
            Err(cause) => return cause.to_string(),
        }
        if !is_of_it && Losses::count(&line.losses.malformed) {
            tracing::warn!(
                "a message violates the protocol; it is skipped, and so are further ones"
            );
        }
        let now = Instant::now();
        if now.duration_since(ticked) >= POLL_INTERVAL {
            ticked = now;
            conversation.tick(now, &mut out);
        }
        if now.duration_since(heard) > LOST_AFTER {
            return "it no longer responds".to_owned();
        }
        if now.duration_since(heard) > PING_AFTER && now.duration_since(asked) > PING_AFTER {
            asked = now;
            out.push(Message::Ping(Bytes::new()));
        }
        for message in out.drain(..) {
            if let Err(cause) = socket.send(message) {
                return cause.to_string();
            }
        }
    }
    drop(socket.close(None));
    part(&mut socket);
    "it is no longer needed".to_owned()
}

/// Ends the handshake of closing: sends what is queued, and waits a moment for the peer's word, so that neither side sees the
/// connection break off.
fn part(socket: &mut WebSocket<TcpStream>) {
    let until = Instant::now() + CLOSE;
    while Instant::now() < until {
        let gone = socket.flush().and_then(|()| socket.read().map(drop));
        match gone {
            Ok(()) => {}
            Err(Error::Io(cause)) if is_timeout(cause.kind()) => {}
            Err(_) => return,
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
