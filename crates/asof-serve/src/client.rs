//! One client of either protocol, from connect to disconnect.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::ws::WebSocket;

use crate::app::App;
use crate::outbox::Outbox;
use crate::waiting::Connection;
use crate::wire::{Incoming, Wire};

/// A protocol's side of a connection. Whatever it sends goes into its outbox.
pub(crate) trait Client: Send + 'static {
    fn greet(&mut self);

    /// Executes a text message of the client.
    fn obey(&mut self, text: &str);

    /// Executes a binary message of the client.
    fn obey_bytes(&mut self, bytes: &[u8]);

    /// Checks everything that may have changed.
    fn tick(&mut self);

    /// How long until the next check, unless the client sends something.
    fn pause(&self) -> Duration;
}

/// Commands in quick succession are executed before the next check, for at most this long.
const COALESCE_TIME: Duration = Duration::from_millis(16);
/// How often a stalled client is checked.
const STALLED_PAUSE: Duration = Duration::from_millis(25);

/// Serves one client until it disconnects.
pub(crate) async fn serve<C: Client>(
    app: Arc<App>,
    (socket, connection): (WebSocket, Arc<Connection>),
    start: impl FnOnce(&Arc<App>, &Arc<Outbox>) -> std::io::Result<C>,
) {
    let mut over = app.over.subscribe();
    let mut together = app.together.subscribe();
    let outbox = Arc::new(Outbox::new(app.limits.outbox_bytes, &connection));
    app.waiting.register(&outbox);
    let mut client = match start(&app, &outbox) {
        Ok(client) => client,
        Err(error) => {
            tracing::warn!("cannot start a player for a client: {error}");
            return;
        }
    };
    let mut wire = Wire::start(socket, Arc::clone(&outbox), app.limits.clone());
    client.greet();
    // Since when commands were executed without a check.
    let mut obeyed: Option<Instant> = None;
    let mut is_lost = false;
    loop {
        let is_stalled = wire.is_stalled();
        let pause = match obeyed {
            _ if is_stalled => STALLED_PAUSE,
            Some(_) => Duration::ZERO,
            None => client.pause(),
        };
        let is_listening = wire.is_listening() && !outbox.is_congested();
        tokio::select! {
            biased;
            _ = over.changed() => break,
            // A client that does not read its answers is not listened to: they cannot be dropped.
            incoming = wire.next(), if is_listening => {
                match incoming {
                    Incoming::Text(text) => client.obey(&text),
                    Incoming::Binary(bytes) => client.obey_bytes(&bytes),
                    Incoming::Ping => {}
                    Incoming::Broken(refusal) => {
                        app.refusals.note(refusal, "a WebSocket");
                        break;
                    }
                    Incoming::Gone => break,
                }
                if obeyed.get_or_insert_with(Instant::now).elapsed() < COALESCE_TIME {
                    continue;
                }
            }
            _ = together.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
        if wire.is_lost() {
            is_lost = true;
            break;
        }
        if !is_stalled {
            obeyed = None;
            tokio::task::block_in_place(|| client.tick());
        }
    }
    if !is_lost {
        wire.part().await;
    }
    let dropped: u64 = outbox.dropped().values().sum();
    app.dropped.fetch_add(dropped, Ordering::Relaxed);
    // Dropping waits for its thread, which must not block others.
    tokio::task::spawn_blocking(move || drop(client));
}
