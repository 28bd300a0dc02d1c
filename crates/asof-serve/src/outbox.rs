//! What waits to be sent to one client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ws::Message;
use tokio::sync::Notify;

/// What an entry is about: of two with one key, the later replaces the earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// Never replaced: answers, and messages of those who want every one.
    None,
    /// The state of playing.
    State,
    /// Where the frames are.
    Frames,
    /// What is held in memory.
    Loaded,
    /// What is wrong with the recording.
    Problems,
    /// What is held of a running robot.
    Window,
    /// Which topics there are.
    Topics,
    /// What is known on a topic, in the form that was asked for.
    Topic(u32),
}

/// A queue that never grows beyond its bytes: the latest wins, per topic.
///
/// The side that fills it never waits. The side that sends takes what is there, in order.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Entry>,
    bytes: usize,
    /// Messages that gave way to later ones, by topic.
    dropped: BTreeMap<String, u64>,
    /// Since when one entry is being sent.
    sending: Option<Instant>,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// Whose counter goes up when this gives way.
    topic: Option<String>,
    frame: Message,
    bytes: usize,
}

impl Outbox {
    pub fn new(most_bytes: usize) -> Self {
        Outbox {
            inner: Mutex::default(),
            filled: Notify::new(),
            most_bytes,
        }
    }

    /// Adds an entry; one with the same key that still waits gives way, and keeps its place in the queue.
    pub fn push(&self, key: Key, topic: Option<&str>, frame: Message) {
        let bytes = len(&frame);
        let mut inner = self.lock();
        if inner.is_closed {
            return;
        }
        let entry = Entry {
            topic: topic.map(str::to_owned),
            frame,
            bytes,
            key,
        };
        let waiting = match entry.key {
            Key::None => None,
            _ => inner.queue.iter().position(|known| known.key == entry.key),
        };
        inner.bytes += bytes;
        if let Some(at) = waiting {
            let old = std::mem::replace(&mut inner.queue[at], entry);
            inner.gave_way(&old);
        } else {
            inner.queue.push_back(entry);
        }
        while inner.bytes > self.most_bytes && inner.queue.len() > 1 {
            let Some(old) = inner.queue.pop_front() else {
                break;
            };
            inner.gave_way(&old);
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// The next entry, as soon as there is one; `None` when the outbox is closed.
    pub async fn next(&self) -> Option<Message> {
        loop {
            {
                let mut inner = self.lock();
                inner.sending = None;
                if let Some(entry) = inner.queue.pop_front() {
                    inner.bytes -= entry.bytes;
                    inner.sending = Some(Instant::now());
                    return Some(entry.frame);
                }
                if inner.is_closed {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// How long the client has not taken what was sent.
    pub fn stalled_for(&self, now: Instant) -> Duration {
        let since = self.lock().sending;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Counts messages that were not even put in: so many came at once.
    pub fn missed(&self, topic: &str, count: u64) {
        *self.lock().dropped.entry(topic.to_owned()).or_default() += count;
    }

    /// Messages that gave way to later ones, by topic.
    pub fn dropped(&self) -> BTreeMap<String, u64> {
        self.lock().dropped.clone()
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Forgets what waits for this key, which nobody wants any more.
    pub fn forget(&self, key: &Key) {
        let mut inner = self.lock();
        if let Some(at) = inner.queue.iter().position(|known| known.key == *key)
            && let Some(old) = inner.queue.remove(at)
        {
            inner.bytes -= old.bytes;
        }
    }

    pub fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn gave_way(&mut self, old: &Entry) {
        self.bytes -= old.bytes;
        if let Some(topic) = &old.topic {
            match self.dropped.get_mut(topic) {
                Some(count) => *count += 1,
                None => {
                    self.dropped.insert(topic.clone(), 1);
                }
            }
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

    fn text(text: &str) -> Message {
        Message::Text(text.into())
    }

    fn all(outbox: &Outbox) -> Vec<Message> {
        outbox.close();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut all = Vec::new();
            while let Some(message) = outbox.next().await {
                all.push(message);
            }
            all
        })
    }

    #[test]
    fn the_latest_of_a_topic_wins_and_keeps_its_place() {
        let outbox = Outbox::new(1000);
        outbox.push(Key::Topic(1), Some("/a"), text("a1"));
        outbox.push(Key::Topic(2), Some("/b"), text("b1"));
        outbox.push(Key::Topic(1), Some("/a"), text("a2"));
        assert_eq!(outbox.dropped(), BTreeMap::from([("/a".to_owned(), 1)]));
        assert_eq!(all(&outbox), [text("a2"), text("b1")]);
    }

    #[test]
    fn what_is_older_gives_way_when_there_is_no_room() {
        let outbox = Outbox::new(10);
        for round in 0..5 {
            outbox.push(Key::None, Some("/a"), text(&format!("msg {round}")));
        }
        assert_eq!(outbox.bytes(), 10);
        assert_eq!(outbox.dropped(), BTreeMap::from([("/a".to_owned(), 3)]));
        assert_eq!(all(&outbox), [text("msg 3"), text("msg 4")]);
    }

    #[test]
    fn one_message_that_is_too_large_is_sent_all_the_same() {
        let outbox = Outbox::new(4);
        outbox.push(Key::None, None, text("too large"));
        assert_eq!(all(&outbox), [text("too large")]);
    }
}
