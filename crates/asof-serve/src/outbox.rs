//! The queue of one client's outgoing messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ws::Message;
use tokio::sync::Notify;

use crate::foxglove::time_frame;
use crate::waiting::{Connection, Reservation};

/// What an entry is about: a later entry replaces an earlier one of the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Never replaced: responses, and messages of subscriptions to every message.
    None,
    /// The playback state.
    State,
    /// The poses of the frames.
    Frames,
    /// The times that are in memory.
    Loaded,
    /// The problems of the recording.
    Problems,
    /// The window of a running robot.
    Window,
    /// The list of topics.
    Topics,
    /// The time. It comes after everything that was known by then.
    Time,
    /// Shows that the client reads: what it sends is only listened to when this has left.
    Pong,
    /// The latest message of a topic, in one form.
    Topic(u32),
}

/// A queue with a byte limit, in which the latest message of a topic wins.
///
/// Adding never waits. The sender takes entries in order. When there is no room, messages of topics are dropped, and
/// counted. Entries about channels, playback and the like are never dropped: a client that missed one could not
/// interpret the rest. Their producers are held up instead, see [`Outbox::is_congested`].
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
    most_bytes: usize,
    connection: Arc<Connection>,
}

/// An entry that is being sent. Its bytes count until this is dropped.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub frame: Message,
    pub room: Option<Reservation>,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Entry>,
    bytes: usize,
    /// Bytes of entries that are never dropped.
    bytes_said: usize,
    /// Dropped messages by topic.
    dropped: BTreeMap<String, u64>,
    /// Since when one entry is being sent, and whether it is [`Key::Pong`].
    sending: Option<(Instant, bool)>,
    /// The time that was sent last.
    told_time: Option<u64>,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// The topic whose counter is incremented when this is dropped; an entry without one is never dropped.
    topic: Option<String>,
    /// The client's clock when the frame arrives.
    time: Option<u64>,
    frame: Option<Message>,
    bytes: usize,
    room: Reservation,
}

/// The size of an entry without its frame.
const OVERHEAD: usize = size_of::<Entry>() + 64;

impl Outbox {
    pub fn new(most_bytes: usize, connection: &Arc<Connection>) -> Self {
        Outbox {
            inner: Mutex::default(),
            filled: Notify::new(),
            most_bytes,
            connection: Arc::clone(connection),
        }
    }

    /// Reserves room for a message of about this many bytes, before it is made. Where there is none, the message
    /// counts as dropped.
    pub fn room(&self, topic: &str, bytes: usize) -> Option<Reservation> {
        loop {
            if let Some(room) = self.connection.try_reserve(bytes + OVERHEAD) {
                return Some(room);
            }
            // Older messages of this client are dropped before newer ones.
            if !self.lock().give_way() {
                self.missed(topic, 1);
                return None;
            }
        }
    }

    /// Adds a message of a topic; it replaces a waiting one of the same key, at its place in the queue.
    pub fn push(&self, key: Key, topic: &str, frame: Message, room: Reservation) {
        self.add(key, Some(topic), None, Some(frame), Some(room));
    }

    /// Adds a message of a topic for this time of the client's clock.
    pub fn push_at(&self, time: u64, topic: &str, frame: Message, room: Reservation) {
        self.add(Key::None, Some(topic), Some(time), Some(frame), Some(room));
    }

    /// Adds an entry that is never dropped.
    pub fn say(&self, key: Key, frame: Message) {
        self.add(key, None, None, Some(frame), None);
    }

    /// Reserves room for a response without a topic, which the client can request again.
    pub fn room_for_answer(&self, bytes: usize) -> Option<Reservation> {
        self.connection.try_reserve(bytes + OVERHEAD)
    }

    /// Adds a response, or another entry that room was reserved for.
    pub fn answer(&self, key: Key, frame: Message, room: Option<Reservation>) {
        self.add(key, None, None, Some(frame), room);
    }

    /// Adds the time of the client's clock.
    pub fn tell_time(&self, time: u64) {
        self.add(Key::Time, None, Some(time), None, None);
    }

    fn add(
        &self,
        key: Key,
        topic: Option<&str>,
        time: Option<u64>,
        frame: Option<Message>,
        room: Option<Reservation>,
    ) {
        let bytes = frame.as_ref().map_or(0, len) + OVERHEAD;
        let mut room = room.unwrap_or_else(|| self.connection.reserve_anyway(bytes));
        room.resize(bytes);
        let entry = Entry {
            topic: topic.map(str::to_owned),
            time,
            frame,
            bytes,
            key,
            room,
        };
        let mut inner = self.lock();
        if inner.is_closed {
            return;
        }
        let waiting = match entry.key {
            Key::None => None,
            _ => inner.queue.iter().position(|known| known.key == entry.key),
        };
        inner.count(&entry);
        match waiting {
            // A time that is sent too early would give later messages a wrong time.
            Some(at) if entry.key == Key::Time => {
                inner.take_out(at);
                inner.queue.push_back(entry);
            }
            Some(at) => {
                let old = std::mem::replace(&mut inner.queue[at], entry);
                inner.gave_way(&old);
            }
            None => inner.queue.push_back(entry),
        }
        inner.trim(self.most_bytes, 1);
        drop(inner);
        self.filled.notify_one();
    }

    /// The next entry, as soon as there is one; `None` when the outbox is closed.
    pub async fn next(&self) -> Option<Outgoing> {
        loop {
            {
                let mut inner = self.lock();
                inner.sending = None;
                if let Some(outgoing) = inner.next() {
                    let is_pong = matches!(outgoing.frame, Message::Pong(_));
                    inner.sending = Some((Instant::now(), is_pong));
                    return Some(outgoing);
                }
                if inner.is_closed {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// How long the client has not read what was sent.
    pub fn stalled_for(&self, now: Instant) -> Duration {
        let since = self.lock().sending;
        since.map_or(Duration::ZERO, |(since, _)| {
            now.saturating_duration_since(since)
        })
    }

    /// Whether an entry of [`Key::Pong`] has not left yet.
    pub fn owes_pong(&self) -> bool {
        let inner = self.lock();
        inner.sending.is_some_and(|(_, is_pong)| is_pong)
            || inner.queue.iter().any(|entry| entry.key == Key::Pong)
    }

    /// Whether so much waits that cannot be dropped that the client should not be listened to until it has read some.
    pub fn is_congested(&self) -> bool {
        self.lock().bytes_said > self.most_bytes
    }

    /// Counts messages that were dropped before they were added, because too many came at once.
    pub fn missed(&self, topic: &str, count: u64) {
        self.lock().miss(topic, count);
    }

    /// Dropped messages by topic.
    pub fn dropped(&self) -> BTreeMap<String, u64> {
        self.lock().dropped.clone()
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Removes the waiting entry of this key, which is no longer wanted.
    pub fn forget(&self, key: &Key) {
        let mut inner = self.lock();
        if let Some(at) = inner.queue.iter().position(|known| known.key == *key) {
            inner.take_out(at);
        }
    }

    /// Drops messages of topics, from the oldest, until at most this many bytes wait.
    pub fn trim(&self, most_bytes: usize) {
        self.lock().trim(most_bytes, 0);
    }

    pub fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        drop(inner);
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next(&mut self) -> Option<Outgoing> {
        loop {
            let first = self.queue.front_mut()?;
            if let Some(time) = first.time.take()
                && self.told_time != Some(time)
            {
                self.told_time = Some(time);
                return Some(Outgoing {
                    frame: time_frame(time),
                    room: None,
                });
            }
            let entry = self.take_out(0)?;
            if let Some(frame) = entry.frame {
                return Some(Outgoing {
                    frame,
                    room: Some(entry.room),
                });
            }
        }
    }

    /// Drops the oldest messages of topics; the last `spared` of the queue always stay.
    fn trim(&mut self, most_bytes: usize, spared: usize) {
        while self.bytes > most_bytes {
            let end = self.queue.len().saturating_sub(spared);
            let Some(at) = (0..end).find(|&at| self.queue[at].topic.is_some()) else {
                return;
            };
            if let Some(old) = self.take_out(at) {
                self.count_dropped(&old);
            }
        }
    }

    /// Drops the oldest message of a topic; returns whether there was one.
    fn give_way(&mut self) -> bool {
        let oldest = self.queue.iter().position(|entry| entry.topic.is_some());
        let old = oldest.and_then(|at| self.take_out(at));
        if let Some(old) = &old {
            self.count_dropped(old);
        }
        old.is_some()
    }

    fn take_out(&mut self, at: usize) -> Option<Entry> {
        let entry = self.queue.remove(at)?;
        self.uncount(&entry);
        Some(entry)
    }

    fn gave_way(&mut self, old: &Entry) {
        self.uncount(old);
        self.count_dropped(old);
    }

    fn count_dropped(&mut self, old: &Entry) {
        if let Some(topic) = &old.topic {
            self.miss(topic, 1);
        }
    }

    fn miss(&mut self, topic: &str, count: u64) {
        match self.dropped.get_mut(topic) {
            Some(known) => *known += count,
            None => {
                self.dropped.insert(topic.to_owned(), count);
            }
        }
    }

    fn count(&mut self, entry: &Entry) {
        self.bytes += entry.bytes;
        if entry.topic.is_none() {
            self.bytes_said += entry.bytes;
        }
    }

    fn uncount(&mut self, entry: &Entry) {
        self.bytes -= entry.bytes;
        if entry.topic.is_none() {
            self.bytes_said -= entry.bytes;
        }
    }
}

fn len(frame: &Message) -> usize {
    match frame {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::Waiting;

    fn text(text: &str) -> Message {
        Message::Text(text.into())
    }

    fn outbox(most_bytes: usize) -> Outbox {
        let waiting = Waiting::new(usize::MAX, Duration::MAX);
        Outbox::new(most_bytes, &waiting.connect())
    }

    fn push(outbox: &Outbox, key: Key, topic: &str, said: &str) {
        if let Some(room) = outbox.room(topic, said.len()) {
            outbox.push(key, topic, text(said), room);
        }
    }

    fn all(outbox: &Outbox) -> Vec<Message> {
        outbox.close();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut all = Vec::new();
            while let Some(outgoing) = outbox.next().await {
                all.push(outgoing.frame);
            }
            all
        })
    }

    #[test]
    fn the_latest_of_a_topic_wins_and_keeps_its_place() {
        let outbox = outbox(10_000);
        push(&outbox, Key::Topic(1), "/a", "a1");
        push(&outbox, Key::Topic(2), "/b", "b1");
        push(&outbox, Key::Topic(1), "/a", "a2");
        assert_eq!(outbox.dropped(), BTreeMap::from([("/a".to_owned(), 1)]));
        assert_eq!(all(&outbox), [text("a2"), text("b1")]);
    }

    #[test]
    fn what_is_older_gives_way_when_there_is_no_room() {
        let two = 2 * (OVERHEAD + 5);
        let outbox = outbox(two);
        for round in 0..5 {
            push(&outbox, Key::None, "/a", &format!("msg {round}"));
        }
        assert_eq!(outbox.bytes(), two);
        assert_eq!(outbox.dropped(), BTreeMap::from([("/a".to_owned(), 3)]));
        assert_eq!(all(&outbox), [text("msg 3"), text("msg 4")]);
    }

    #[test]
    fn one_message_that_is_too_large_is_sent_all_the_same() {
        let outbox = outbox(4);
        push(&outbox, Key::None, "/a", "too large");
        assert_eq!(all(&outbox), [text("too large")]);
    }

    #[test]
    fn what_has_no_topic_never_gives_way() {
        let outbox = outbox(4);
        outbox.say(Key::None, text("advertise"));
        push(&outbox, Key::None, "/a", "one");
        outbox.say(Key::State, text("playing"));
        push(&outbox, Key::None, "/a", "two");
        outbox.say(Key::None, text("unadvertise"));
        let expected = ["advertise", "playing", "unadvertise"].map(text);
        assert_eq!(outbox.dropped(), BTreeMap::from([("/a".to_owned(), 2)]));
        assert!(outbox.is_congested());
        assert_eq!(all(&outbox), expected);
        assert!(!outbox.is_congested());
    }

    #[test]
    fn what_gives_way_for_others_is_the_messages_from_the_oldest() {
        let outbox = outbox(100_000);
        outbox.say(Key::None, text("advertise"));
        push(&outbox, Key::None, "/a", "one");
        push(&outbox, Key::None, "/a", "two");
        outbox.trim(2 * OVERHEAD + 100);
        assert_eq!(all(&outbox), ["advertise", "two"].map(text));
    }

    #[test]
    fn a_client_makes_room_for_its_own_newest_and_counts_what_has_none() {
        let waiting = Waiting::new(OVERHEAD + 20, Duration::MAX);
        let outbox = Outbox::new(usize::MAX, &waiting.connect());
        push(&outbox, Key::None, "/a", "one");
        push(&outbox, Key::None, "/a", "two");
        push(&outbox, Key::None, "/large", &"-".repeat(21));
        let dropped = [("/a".to_owned(), 2), ("/large".to_owned(), 1)];
        assert_eq!(outbox.dropped(), BTreeMap::from(dropped));
    }

    #[test]
    fn a_frame_counts_until_it_is_sent() {
        let waiting = Waiting::new(10_000, Duration::MAX);
        let outbox = Outbox::new(usize::MAX, &waiting.connect());
        push(&outbox, Key::None, "/a", "one");
        let sending = outbox.lock().next();
        assert_eq!(outbox.bytes(), 0);
        assert_eq!(waiting.status()["bytes"], OVERHEAD + 3);
        drop(sending);
        assert_eq!(waiting.status()["bytes"], 0);
    }

    #[test]
    fn the_clock_is_set_before_a_message_and_only_when_it_has_moved() {
        let outbox = outbox(100_000);
        for (time, said) in [(7, "a"), (7, "b"), (9, "c")] {
            let room = outbox.room("/a", 1).expect("room");
            outbox.push_at(time, "/a", text(said), room);
        }
        outbox.tell_time(10);
        outbox.tell_time(11);
        let room = outbox.room("/a", 1).expect("room");
        outbox.push_at(12, "/a", text("d"), room);
        outbox.tell_time(12);
        let expected = [
            time_frame(7),
            text("a"),
            text("b"),
            time_frame(9),
            text("c"),
            time_frame(12),
            text("d"),
        ];
        assert_eq!(all(&outbox), expected);
    }

    #[test]
    fn a_message_that_gives_way_takes_its_time_along() {
        let outbox = outbox(OVERHEAD + 1);
        for (time, said) in [(7, "a"), (9, "b")] {
            let room = outbox.room("/a", 1).expect("room");
            outbox.push_at(time, "/a", text(said), room);
        }
        assert_eq!(all(&outbox), [time_frame(9), text("b")]);
    }
}
