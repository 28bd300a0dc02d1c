//! One client, whatever protocol it speaks, from its first word to its last.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::extract::ws::WebSocket;

use crate::app::App;
use crate::outbox::Outbox;
use crate::waiting::Connection;
use crate::wire::{Incoming, Wire};

/// A protocol's side of a conversation. Whatever it has to say goes into its outbox.
pub(crate) trait Client: Send + 'static {
    fn greet(&mut self);

    /// Does what the client asks for in text,
    fn obey(&mut self, text: &str);

    /// or in bytes.
    fn obey_bytes(&mut self, bytes: &[u8]);

    /// Looks at everything that may have changed.
    fn tick(&mut self);

    /// How long nothing has to be looked at, unless the client says something.
    fn pause(&self) -> Duration;
}

/// Commands that come one right after the other are obeyed before anything is looked at, for no longer than this.
const COALESCE_TIME: Duration = Duration::from_millis(16);
/// How often one is looked at that takes nothing.
const STALLED_PAUSE: Duration = Duration::from_millis(25);

/// Serves one client until it goes.
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
            tracing::warn!("no player for a client: {error}");
            return;
        }
    };
    let mut wire = Wire::start(socket, Arc::clone(&outbox), app.limits.clone());
    client.greet();
    // Since when the client has been obeyed, and nothing was looked at.
    let mut obeyed: Option<Instant> = None;
    loop {
        let is_stalled = wire.is_stalled();
        let pause = match obeyed {
            _ if is_stalled => STALLED_PAUSE,
            Some(_) => Duration::ZERO,
            None => client.pause(),
        };
        tokio::select! {
            biased;
            _ = over.changed() => break,
            // One that asks and takes no answers is not listened to: what it is owed cannot give way.
            incoming = wire.next(), if !outbox.is_congested() => {
                match incoming {
                    Incoming::Text(text) => client.obey(&text),
                    Incoming::Binary(bytes) => client.obey_bytes(&bytes),
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
            break;
        }
        if !is_stalled {
            obeyed = None;
            tokio::task::block_in_place(|| client.tick());
        }
    }
    let dropped: u64 = outbox.dropped().values().sum();
    app.dropped.fetch_add(dropped, Ordering::Relaxed);
    // Its thread is waited for, which must not hold up the others.
    tokio::task::spawn_blocking(move || drop(client));
}
