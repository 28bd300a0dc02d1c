//! One budget for what is made for clients, and waits to be sent to them.
//!
//! Every such byte is reserved here first: what a request decodes and computes, HTTP responses, the outboxes, and the frame
//! that is being sent. When there is no room, connections that have read nothing for a while are ended, the longest stalled first. So clients
//! that send requests and never read cost a bounded number of bytes, and do not lock out the others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::outbox::Outbox;

/// The budget, and its connections.
#[derive(Debug)]
pub(crate) struct Waiting {
    most: usize,
    stalled_after: Duration,
    used: AtomicUsize,
    peak: AtomicUsize,
    /// Connections that were ended because they did not read while there was no room.
    let_go: AtomicU64,
    /// Responses that were refused because there was no room.
    refused: AtomicU64,
    freed: Notify,
    connections: Mutex<Vec<Weak<Connection>>>,
    outboxes: Mutex<Vec<Weak<Outbox>>>,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    waiting: Arc<Waiting>,
    held: AtomicUsize,
    progress: Mutex<Progress>,
    is_ended: AtomicBool,
    /// Wakes the tasks that wait for the socket when the connection is ended.
    pub reader: AtomicWaker,
    pub writer: AtomicWaker,
}

#[derive(Debug, Default)]
struct Progress {
    /// Since when the socket accepts nothing, although there is data to send.
    blocked: Option<Instant>,
    /// Since when a request is waited for. A WebSocket may be silent for any time.
    silent: Option<Instant>,
    is_socket: bool,
}

/// Bytes of the budget; released when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    connection: Arc<Connection>,
    bytes: usize,
}

/// Whether the client of a request is still there, for the thread that works for it.
#[derive(Debug, Clone)]
pub(crate) struct Client(Weak<()>);

impl Client {
    /// The request keeps the first while it waits.
    pub fn new() -> (Arc<()>, Self) {
        let here = Arc::new(());
        let client = Client(Arc::downgrade(&here));
        (here, client)
    }

    pub fn is_waiting(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// How often a waiting reservation is retried: memory is freed a little after a connection has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Waiting {
    pub fn new(most: usize, stalled_after: Duration) -> Arc<Self> {
        Arc::new(Waiting {
            most,
            stalled_after,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            let_go: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            freed: Notify::new(),
            connections: Mutex::default(),
            outboxes: Mutex::default(),
        })
    }

    /// Adds a connection.
    pub fn connect(self: &Arc<Self>) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            waiting: Arc::clone(self),
            held: AtomicUsize::new(0),
            progress: Mutex::new(Progress {
                silent: Some(Instant::now()),
                ..Progress::default()
            }),
            is_ended: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        });
        let mut all = lock(&self.connections);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        connection
    }

    /// The part of some bytes that one piece of work may take.
    pub fn share(&self, bytes: usize) -> usize {
        bytes.min(self.most / 4)
    }

    /// A connection of the server's own, for work that several clients wait for. It is never ended.
    pub fn own(self: &Arc<Self>) -> Arc<Connection> {
        let own = self.connect();
        own.note_socket();
        own
    }

    /// Adds an outbox that drops messages when there is no room.
    pub fn register(&self, outbox: &Arc<Outbox>) {
        let mut all = lock(&self.outboxes);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(outbox));
    }

    /// Ends connections that have read nothing for this long.
    pub fn end_blocked(&self, dropped_after: Duration, now: Instant) {
        for connection in self.connections() {
            let blocked = connection.progress().blocked;
            if blocked.is_some_and(|since| now.saturating_duration_since(since) > dropped_after) {
                connection.end();
            }
        }
    }

    /// Ends the connection that has been useless for longest, for a new one. Returns whether there was one.
    pub fn make_place(&self, now: Instant) -> bool {
        let idle = |connection: &Arc<Connection>| {
            let progress = connection.progress();
            let silent = progress.silent.filter(|_| !progress.is_socket);
            progress.blocked.or(silent)
        };
        self.end_longest(now, idle, 1) > 0
    }

    /// The counts for `/api/status`.
    pub fn status(&self) -> Value {
        json!({
            "budget": self.most,
            "bytes": self.used.load(Ordering::Relaxed),
            "peak": self.peak.load(Ordering::Relaxed),
            "let_go": self.let_go.load(Ordering::Relaxed),
            "refused": self.refused.load(Ordering::Relaxed),
        })
    }

    /// Makes outboxes drop what exceeds their share, and ends connections that do not read.
    fn make_room(&self, bytes: usize) {
        let outboxes: Vec<Arc<Outbox>> = lock(&self.outboxes)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let share = self.most / outboxes.len().max(1);
        for outbox in outboxes {
            outbox.trim(share);
        }
        if !self.has_room(bytes) {
            self.end_longest(Instant::now(), |one| one.progress().blocked, bytes);
        }
    }

    /// Ends connections, the longest stalled first, until they held this many bytes. Returns their number.
    fn end_longest(
        &self,
        now: Instant,
        since: impl Fn(&Arc<Connection>) -> Option<Instant>,
        bytes: usize,
    ) -> usize {
        let mut idle: Vec<(Instant, Arc<Connection>)> = self
            .connections()
            .into_iter()
            .filter(|connection| !connection.is_ended())
            .filter_map(|connection| Some((since(&connection)?, connection)))
            .filter(|(since, _)| now.saturating_duration_since(*since) >= self.stalled_after)
            .collect();
        idle.sort_by_key(|(since, _)| *since);
        let (mut count, mut freed) = (0, 0);
        for (_, connection) in idle {
            if freed >= bytes {
                break;
            }
            freed += connection.held.load(Ordering::Relaxed).max(1);
            count += 1;
            self.let_go.fetch_add(1, Ordering::Relaxed);
            connection.end();
        }
        count
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.most
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        let all = lock(&self.connections);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Connection {
    /// Reserves bytes, if there is room now.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let taken = self.take(bytes);
        if taken.is_none() {
            self.waiting.make_room(bytes);
            return self.take(bytes);
        }
        taken
    }

    /// Reserves bytes beyond the budget, for what must be sent in any case.
    pub fn reserve_anyway(self: &Arc<Self>, bytes: usize) -> Reservation {
        let used = self.waiting.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.hold(bytes, used)
    }

    /// Reserves bytes, as soon as there is room; `None` where there is none even after stalled connections were ended.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let deadline = Instant::now() + self.waiting.stalled_after * 2 + Duration::from_secs(2);
        loop {
            let freed = self.waiting.freed.notified();
            if let Some(reservation) = self.try_reserve(bytes) {
                return Some(reservation);
            }
            if bytes > self.waiting.most || Instant::now() > deadline || self.is_ended() {
                self.waiting.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            drop(tokio::time::timeout(POLL_INTERVAL, freed).await);
        }
    }

    /// The socket accepted data.
    pub fn note_sent(&self) {
        let mut progress = self.progress();
        progress.blocked = None;
        if let Some(silent) = &mut progress.silent {
            *silent = Instant::now();
        }
    }

    /// The socket accepts nothing now.
    pub fn note_blocked(&self) {
        self.progress().blocked.get_or_insert_with(Instant::now);
    }

    /// A request is being answered, or one is waited for.
    pub fn note_asked(&self, is_asked: bool) {
        self.progress().silent = (!is_asked).then(Instant::now);
    }

    /// The connection is a WebSocket from now on.
    pub fn note_socket(&self) {
        self.progress().is_socket = true;
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.reader.wake();
        self.writer.wake();
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let most = self.waiting.most;
        let taken = self
            .waiting
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= most)
            });
        taken.ok().map(|before| self.hold(bytes, before + bytes))
    }

    fn hold(self: &Arc<Self>, bytes: usize, used: usize) -> Reservation {
        self.waiting.peak.fetch_max(used, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Reservation {
            connection: Arc::clone(self),
            bytes,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }
}

impl Reservation {
    /// Bytes that count until their last handle is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ReservedBytes {
            bytes,
            _reservation: self,
        })
    }

    /// Adds the bytes of another reservation of the same connection.
    pub fn join(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Adjusts the reservation to the actual size.
    pub fn resize(&mut self, bytes: usize) {
        let (connection, more) = (&self.connection, bytes.saturating_sub(self.bytes));
        if more > 0 {
            let used = connection.waiting.used.fetch_add(more, Ordering::Relaxed) + more;
            connection.waiting.peak.fetch_max(used, Ordering::Relaxed);
            connection.held.fetch_add(more, Ordering::Relaxed);
        } else {
            self.release(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    fn release(&self, bytes: usize) {
        self.connection.held.fetch_sub(bytes, Ordering::Relaxed);
        let waiting = &self.connection.waiting;
        waiting.used.fetch_sub(bytes, Ordering::Relaxed);
        waiting.freed.notify_waiters();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[test]
    fn what_is_reserved_is_free_again_when_the_last_handle_is_gone() {
        let waiting = Waiting::new(100, LONG);
        let connection = waiting.connect();
        let reservation = connection.try_reserve(80).expect("room");
        assert!(connection.try_reserve(21).is_none());
        let bytes = reservation.hold(Bytes::from(vec![7; 80]));
        let part = bytes.slice(79..);
        drop(bytes);
        assert!(
            connection.try_reserve(21).is_none(),
            "a part keeps all of it"
        );
        drop(part);
        assert!(connection.try_reserve(100).is_some());
        assert_eq!(waiting.status()["peak"], 100);
    }

    #[test]
    fn one_that_takes_nothing_gives_way_to_one_that_may() {
        let waiting = Waiting::new(100, Duration::ZERO);
        let (deaf, other) = (waiting.connect(), waiting.connect());
        let held = deaf.try_reserve(100).expect("room");
        // It is being sent: no connection has to be ended.
        assert!(other.try_reserve(1).is_none());
        assert!(!deaf.is_ended());
        deaf.note_blocked();
        assert!(other.try_reserve(1).is_none());
        assert!(deaf.is_ended() && !other.is_ended());
        drop(held);
        assert!(other.try_reserve(1).is_some());
        assert_eq!(waiting.status()["let_go"], 1);
    }

    #[test]
    fn one_that_takes_something_is_kept() {
        let waiting = Waiting::new(100, Duration::ZERO);
        let (slow, other) = (waiting.connect(), waiting.connect());
        let _held = slow.try_reserve(100).expect("room");
        slow.note_blocked();
        slow.note_sent();
        assert!(other.try_reserve(1).is_none());
        assert!(!slow.is_ended());
    }

    #[test]
    fn a_silent_connection_makes_place_and_a_silent_websocket_does_not() {
        let waiting = Waiting::new(100, Duration::ZERO);
        let (socket, busy) = (waiting.connect(), waiting.connect());
        socket.note_socket();
        busy.note_asked(true);
        assert!(!waiting.make_place(Instant::now()));
        let silent = waiting.connect();
        assert!(waiting.make_place(Instant::now()));
        assert!(silent.is_ended() && !socket.is_ended() && !busy.is_ended());
    }

    #[test]
    fn a_reservation_follows_what_it_is_for() {
        let waiting = Waiting::new(100, LONG);
        let connection = waiting.connect();
        let mut reservation = connection.try_reserve(10).expect("room");
        reservation.resize(60);
        assert_eq!(waiting.status()["bytes"], 60);
        reservation.resize(5);
        assert_eq!(waiting.status()["bytes"], 5);
        drop(reservation);
        assert_eq!(waiting.status()["bytes"], 0);
    }
}
