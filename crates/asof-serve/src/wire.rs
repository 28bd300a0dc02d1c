//! One WebSocket: a task that sends the outbox, and the incoming messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::task::JoinHandle;

use crate::guard::Refusal;
use crate::options::ServeLimits;
use crate::outbox::{Key, Outbox, Outgoing};

/// A message of a client.
pub(crate) enum Incoming {
    Text(String),
    Binary(Bytes),
    /// Several pings in a row.
    Ping,
    /// It violated the WebSocket protocol, or sent too much.
    Broken(Refusal),
    Gone,
}

pub(crate) struct Wire {
    stream: SplitStream<WebSocket>,
    sender: JoinHandle<()>,
    outbox: Arc<Outbox>,
    limits: ServeLimits,
    heard: Instant,
    asked: Instant,
    /// Pings of the client since it was last known to read.
    pings: u32,
}

/// How long a client may take to answer that the connection is closed.
const CLOSE: Duration = Duration::from_millis(500);

/// How many pings of a client are answered before it has to read the answers. They wait outside of the outbox.
const MOST_PINGS: u32 = 16;

impl Wire {
    pub fn start(socket: WebSocket, outbox: Arc<Outbox>, limits: ServeLimits) -> Self {
        let (sink, stream) = socket.split();
        let sender = tokio::spawn(send(sink, Arc::clone(&outbox)));
        let now = Instant::now();
        Wire {
            stream,
            sender,
            outbox,
            limits,
            heard: now,
            asked: now,
            pings: 0,
        }
    }

    /// Whether the client is listened to: not while it sends pings and does not read the answers.
    pub fn is_listening(&mut self) -> bool {
        if self.pings >= MOST_PINGS {
            if self.outbox.owes_pong() {
                return false;
            }
            self.pings = 0;
        }
        true
    }

    /// The client's next message. Cancel-safe.
    pub async fn next(&mut self) -> Incoming {
        loop {
            let message = self.stream.next().await;
            self.heard = Instant::now();
            match message {
                Some(Ok(Message::Text(text))) => return Incoming::Text(text.to_string()),
                Some(Ok(Message::Binary(bytes))) => return Incoming::Binary(bytes),
                // Answered by the WebSocket library.
                Some(Ok(Message::Ping(_))) => {
                    self.pings += 1;
                    if self.pings >= MOST_PINGS {
                        self.outbox.say(Key::Pong, Message::Pong(Bytes::new()));
                        return Incoming::Ping;
                    }
                }
                Some(Ok(Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Incoming::Gone,
                Some(Err(error)) => {
                    let text = error.to_string();
                    let is_long = text.contains("too long") || text.contains("too large");
                    let is_gone = text.starts_with("IO error") || text.contains("closed");
                    return match (is_gone, is_long) {
                        (true, _) => Incoming::Gone,
                        (_, true) => Incoming::Broken(Refusal::Oversized),
                        _ => Incoming::Broken(Refusal::Malformed),
                    };
                }
            }
        }
    }

    /// Whether the client has not read anything for a while: nothing more is made for it until it does.
    pub fn is_stalled(&self) -> bool {
        self.outbox.stalled_for(Instant::now()) > self.limits.stalled_after
    }

    /// Whether the client is gone. Sends a ping now and then.
    pub fn is_lost(&mut self) -> bool {
        let now = Instant::now();
        if self.sender.is_finished() || self.outbox.stalled_for(now) > self.limits.dropped_after {
            return true;
        }
        let silence = now.duration_since(self.heard);
        if silence > self.limits.dropped_after * 2 {
            return true;
        }
        if silence > self.limits.dropped_after / 2
            && now.duration_since(self.asked) > self.limits.dropped_after / 2
        {
            self.asked = now;
            self.outbox.say(Key::None, Message::Ping(Bytes::new()));
        }
        false
    }
}

impl Wire {
    /// Ends the handshake of closing, whoever began it, so that neither side sees the connection break off: says what is
    /// left to say, and waits a moment for the client's word.
    pub async fn part(mut self) {
        self.outbox.close();
        let handshake = async {
            drop((&mut self.sender).await);
            while let Some(Ok(_)) = self.stream.next().await {}
        };
        drop(tokio::time::timeout(CLOSE, handshake).await);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.outbox.close();
        self.sender.abort();
    }
}

async fn send(mut sink: SplitSink<WebSocket, Message>, outbox: Arc<Outbox>) {
    while let Some(outgoing) = outbox.next().await {
        // The frame that is being sent waits too: its bytes count until it has left.
        let Outgoing { frame, room } = outgoing;
        let sent = sink.send(frame).await;
        drop(room);
        if sent.is_err() {
            return;
        }
    }
    // The other side may be gone already.
    drop(sink.close().await);
}
