//! Rows and states of a topic over a whole recording, thinned out for a page.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Message, Query, Stamp, TimeRange, Topics};
use asof_decode::{Decoder, FieldPath, Projection};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::show::{LARGEST_SHOWN, shortened};
use crate::waiting::Client;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    /// Some fields of a topic, evenly thinned out.
    Rows { topic: String, paths: Vec<String> },
    /// When a field changed, and to what.
    States { topic: String, path: String },
}

/// Cached responses, within a budget.
pub(crate) struct Tracks {
    cache: BlockCache,
    start: Stamp,
    known: Mutex<Known>,
    turns: Arc<Semaphore>,
    most_bytes: usize,
    /// A growing source has another answer each time.
    is_live: bool,
}

#[derive(Default)]
struct Known {
    tracks: HashMap<Track, Entry>,
    order: VecDeque<Track>,
}

enum Entry {
    Ready(Bytes),
    /// Gone when no client waits for it any more.
    Working(Weak<Work>),
}

/// A response that is being computed, for the clients that hold this. It stops when there are none.
struct Work {
    ready: watch::Receiver<Option<Bytes>>,
    _here: Arc<()>,
}

/// The most rows of a response.
const MOST_ROWS: usize = 4000;
const MOST_CHANGES: usize = 20_000;
/// Of longer arrays, this many values are in a response.
const MOST_ITEMS: usize = 200;
/// The error of a response that no client waits for.
const ABANDONED: &str = "cancelled: no client was waiting for it";
/// The most responses that are cached, however small they are.
const MOST_KEPT: usize = 1024;
/// The start of a response that is an error.
const FAILED: &[u8] = b"{\"error\":";

impl Tracks {
    pub fn new(cache: &BlockCache, start: Stamp, most_bytes: usize, is_live: bool) -> Self {
        Tracks {
            cache: cache.clone(),
            start,
            known: Mutex::default(),
            turns: Arc::new(Semaphore::new(2)),
            most_bytes,
            is_live,
        }
    }

    /// The response in JSON, of about `most_bytes` at most. It is computed once, for all clients that wait for it.
    pub async fn get(&self, track: Track, most_bytes: usize) -> Bytes {
        let work = match self.known(&track, most_bytes) {
            Ok(answer) => return answer,
            Err(work) => work,
        };
        let mut ready = work.ready.clone();
        let answer = match ready.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or_default(),
            Err(_) => Bytes::from_static(b"{\"error\":\"reading failed\"}"),
        };
        let mut known = self.lock();
        if self.is_live || answer.starts_with(FAILED) {
            // There is no limit to the requests that fail, so they are not cached.
            known.forget(&track);
        } else {
            known.put(&track, Entry::Ready(answer.clone()));
        }
        known.trim(self.most_bytes);
        answer
    }

    /// The cached response, or the work on it, which starts now if it has not yet.
    fn known(&self, track: &Track, most_bytes: usize) -> Result<Bytes, Arc<Work>> {
        let mut known = self.lock();
        let working = match known.tracks.get(track) {
            Some(Entry::Ready(answer)) => return Ok(answer.clone()),
            Some(Entry::Working(work)) => work.upgrade(),
            None => None,
        };
        Err(working.unwrap_or_else(|| {
            let work = Arc::new(self.start(track.clone(), most_bytes));
            known.put(track, Entry::Working(Arc::downgrade(&work)));
            work
        }))
    }

    fn start(&self, track: Track, most_bytes: usize) -> Work {
        let (here, client) = Client::new();
        let (done, ready) = watch::channel(None);
        let (cache, start, turns) = (self.cache.clone(), self.start, Arc::clone(&self.turns));
        tokio::spawn(async move {
            let Ok(turn) = turns.acquire_owned().await else {
                return;
            };
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let value = match &track {
                    Track::Rows { topic, paths } => {
                        rows(&cache, &client, start, topic, paths, most_bytes)
                    }
                    Track::States { topic, path } => {
                        states(&cache, &client, start, topic, path, most_bytes)
                    }
                };
                let value = value.unwrap_or_else(|error| json!({ "error": error }));
                done.send_replace(Some(Bytes::from(value.to_string())));
            });
        });
        Work { ready, _here: here }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn put(&mut self, track: &Track, entry: Entry) {
        if self.tracks.insert(track.clone(), entry).is_none() {
            self.order.push_back(track.clone());
        }
    }

    fn forget(&mut self, track: &Track) {
        if self.tracks.remove(track).is_some() {
            self.order.retain(|known| known != track);
        }
    }

    /// Evicts the oldest responses. Requests count as well as responses.
    fn trim(&mut self, most_bytes: usize) {
        let mut bytes: usize = self.tracks.iter().map(weight).sum();
        while bytes > most_bytes || self.tracks.len() > MOST_KEPT {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(entry) = self.tracks.remove(&oldest) {
                bytes -= weight((&oldest, &entry));
            }
        }
    }
}

/// The size of a cache entry: its response, and its request twice.
fn weight((track, entry): (&Track, &Entry)) -> usize {
    let words = match track {
        Track::Rows { topic, paths } => {
            let paths = paths.iter().map(|path| path.len() + size_of::<String>());
            topic.len() + paths.sum::<usize>()
        }
        Track::States { topic, path } => topic.len() + path.len(),
    };
    let answer = match entry {
        Entry::Ready(answer) => answer.len(),
        Entry::Working(_) => size_of::<Work>(),
    };
    answer + 2 * (words + size_of::<Track>()) + 256
}

fn query(topic: &str) -> Query {
    Query {
        topics: Topics::named([topic]),
        range: TimeRange::ALL,
    }
}

/// Some fields of a topic's messages; the decoder is made for the first message.
struct Fields {
    paths: Vec<FieldPath>,
    decoder: Option<Decoder>,
}

impl Fields {
    fn new(paths: &[String]) -> Result<Self, String> {
        let paths = paths.iter().map(|path| FieldPath::parse(path));
        let paths = paths.collect::<Result<_, _>>();
        Ok(Fields {
            paths: paths.map_err(|error| error.to_string())?,
            decoder: None,
        })
    }

    /// Calls `take` with each message of a topic until it returns false, or until the client is gone.
    fn each(
        &mut self,
        cache: &BlockCache,
        client: &Client,
        topic: &str,
        mut take: impl FnMut(&mut Self, &Message) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut end = Ok(());
        crate::series::each(cache, &query(topic), HeadClass::Scan, |message| {
            if !client.is_waiting() {
                end = Err(ABANDONED.to_owned());
                return false;
            }
            take(self, &message).unwrap_or_else(|error| {
                end = Err(error);
                false
            })
        })?;
        end
    }

    /// The value at each path, null where there is none; `None` for a message that cannot be decoded.
    fn of(&mut self, message: &Message) -> Result<Option<Vec<Value>>, String> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => {
                let projection = Projection::paths(self.paths.iter().map(FieldPath::fields));
                let made = Decoder::new(&message.channel, &projection, &[&message.payload]);
                none.insert(made.map_err(|error| error.to_string())?)
            }
        };
        if message.payload.len() > LARGEST_SHOWN {
            return Ok(None);
        }
        let Ok(text) = decoder.json(&message.payload) else {
            return Ok(None);
        };
        let data = shortened(text.as_bytes(), MOST_ITEMS).unwrap_or_default();
        let value = |path: &FieldPath| path.value(&data).cloned().unwrap_or_default();
        Ok(Some(self.paths.iter().map(value).collect()))
    }
}

/// `{"rows": [[t, value, …], …]}`. Of `n` messages, every `k`-th, with `k` a power of two: so many that there are neither
/// too many rows nor too many bytes.
fn rows(
    cache: &BlockCache,
    client: &Client,
    start: Stamp,
    topic: &str,
    paths: &[String],
    most_bytes: usize,
) -> Result<Value, String> {
    let mut rows: VecDeque<(usize, Value)> = VecDeque::new();
    let (mut every, mut count, mut bytes) = (1_u64, 0_u64, 0);
    let mut fields = Fields::new(paths)?;
    fields.each(cache, client, topic, |fields, message| {
        count += 1;
        if !(count - 1).is_multiple_of(every) {
            return Ok(true);
        }
        let Some(values) = fields.of(message)? else {
            return Ok(true);
        };
        let mut row = vec![json!(message.log_time.since(start))];
        row.extend(values);
        let row = Value::from(row);
        let size = size_of_value(&row);
        bytes += size;
        rows.push_back((size, row));
        while rows.len() > MOST_ROWS || (bytes > most_bytes && rows.len() > 1) {
            every *= 2;
            let mut index = 0;
            rows.retain(|(size, _)| {
                index += 1;
                let is_kept = index % 2 == 1;
                bytes -= if is_kept { 0 } else { *size };
                is_kept
            });
        }
        Ok(true)
    })?;
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    Ok(json!({ "rows": rows, "messages": count, "every": every }))
}

/// `{"changes": [[t, value], …]}`: the first value, and each that differs from the one before.
fn states(
    cache: &BlockCache,
    client: &Client,
    start: Stamp,
    topic: &str,
    path: &str,
    most_bytes: usize,
) -> Result<Value, String> {
    let mut changes: Vec<Value> = Vec::new();
    let mut last: Option<Value> = None;
    let (mut is_cut, mut bytes) = (false, 0);
    let mut fields = Fields::new(&[path.to_owned()])?;
    fields.each(cache, client, topic, |fields, message| {
        let values = fields.of(message)?;
        let Some(mut value) = values.and_then(|values| values.into_iter().next()) else {
            return Ok(true);
        };
        if let Value::String(text) = &mut value {
            *text = text.chars().take(200).collect();
        }
        if last.as_ref() != Some(&value) {
            bytes += size_of_value(&value);
            if changes.len() >= MOST_CHANGES || bytes > most_bytes {
                is_cut = true;
                return Ok(false);
            }
            changes.push(json!([message.log_time.since(start), value]));
            last = Some(value);
        }
        Ok(true)
    })?;
    Ok(json!({ "changes": changes, "cut": is_cut }))
}

/// The memory that a value takes, approximately; its text is about as long.
fn size_of_value(value: &Value) -> usize {
    let within = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size_of_value).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| name.len() + 64 + size_of_value(field))
            .sum(),
        _ => 0,
    };
    size_of::<Value>() + within
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_count_as_well_as_answers_and_there_is_an_end_to_their_number() {
        let mut known = Known::default();
        let ask = |known: &mut Known, path: String| {
            let topic = "/odom".to_owned();
            known.put(&Track::States { topic, path }, Entry::Ready(Bytes::new()));
        };
        for number in 0..100 {
            ask(&mut known, format!("{number}{}", "x".repeat(10_000)));
            known.trim(100_000);
        }
        assert!(known.tracks.len() < 5, "{}", known.tracks.len());
        for number in 0..3 * MOST_KEPT {
            ask(&mut known, number.to_string());
            known.trim(usize::MAX);
        }
        assert_eq!(
            (known.tracks.len(), known.order.len()),
            (MOST_KEPT, MOST_KEPT)
        );
    }
}
