//! Rows and states of a topic over a whole recording, thinned out for a page.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Message, Query, Stamp, TimeRange, Topics};
use asof_decode::{Decoder, FieldPath, Projection};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

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
    turns: Semaphore,
    most_bytes: usize,
    /// A growing source has another answer each time.
    is_live: bool,
}

#[derive(Default)]
struct Known {
    tracks: HashMap<Track, Arc<OnceCell<Bytes>>>,
    order: VecDeque<Track>,
}

/// The most rows of a response.
const MOST_ROWS: usize = 4000;
const MOST_CHANGES: usize = 20_000;
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
            turns: Semaphore::new(2),
            most_bytes,
            is_live,
        }
    }

    /// The response in JSON, computed once.
    pub async fn get(&self, track: Track) -> Bytes {
        let cell = if self.is_live {
            Arc::default()
        } else {
            self.lock().cell(&track)
        };
        let work = || async {
            let _turn = self.turns.acquire().await;
            let (cache, start, track) = (self.cache.clone(), self.start, track.clone());
            let done = tokio::task::spawn_blocking(move || work_out(&cache, start, &track)).await;
            let value = match done {
                Ok(Ok(value)) => value,
                Ok(Err(error)) => json!({ "error": error }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            Bytes::from(value.to_string())
        };
        let answer = cell.get_or_init(work).await.clone();
        let mut known = self.lock();
        if answer.starts_with(FAILED) {
            // There is no limit to the requests that fail, so they are not cached.
            known.forget(&track);
        }
        known.trim(self.most_bytes);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn cell(&mut self, track: &Track) -> Arc<OnceCell<Bytes>> {
        if !self.tracks.contains_key(track) {
            self.order.push_back(track.clone());
        }
        Arc::clone(self.tracks.entry(track.clone()).or_default())
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
            if let Some(cell) = self.tracks.remove(&oldest) {
                bytes -= weight((&oldest, &cell));
            }
        }
    }
}

/// The size of a cache entry: its response, and its request twice.
fn weight((track, cell): (&Track, &Arc<OnceCell<Bytes>>)) -> usize {
    let words = match track {
        Track::Rows { topic, paths } => {
            let paths = paths.iter().map(|path| path.len() + size_of::<String>());
            topic.len() + paths.sum::<usize>()
        }
        Track::States { topic, path } => topic.len() + path.len(),
    };
    cell.get().map_or(0, Bytes::len) + 2 * (words + size_of::<Track>()) + 256
}

fn work_out(cache: &BlockCache, start: Stamp, track: &Track) -> Result<Value, String> {
    match track {
        Track::Rows { topic, paths } => rows(cache, start, topic, paths),
        Track::States { topic, path } => states(cache, start, topic, path),
    }
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
        let Ok(text) = decoder.json(&message.payload) else {
            return Ok(None);
        };
        let data: Value = serde_json::from_str(&text).unwrap_or_default();
        let value = |path: &FieldPath| path.value(&data).cloned().unwrap_or_default();
        Ok(Some(self.paths.iter().map(value).collect()))
    }
}

/// `{"rows": [[t, value, …], …]}`. Of `n` messages, every `k`-th, with `k` a power of two.
fn rows(cache: &BlockCache, start: Stamp, topic: &str, paths: &[String]) -> Result<Value, String> {
    let mut rows: VecDeque<Value> = VecDeque::new();
    let (mut every, mut count) = (1_u64, 0_u64);
    let mut fields = Fields::new(paths)?;
    let mut failure = None;
    crate::series::each(cache, &query(topic), HeadClass::Scan, |message| {
        count += 1;
        if !(count - 1).is_multiple_of(every) {
            return true;
        }
        let values = match fields.of(&message) {
            Ok(Some(values)) => values,
            Ok(None) => return true,
            Err(error) => {
                failure = Some(error);
                return false;
            }
        };
        let mut row = vec![json!(message.log_time.since(start))];
        row.extend(values);
        rows.push_back(row.into());
        if rows.len() > MOST_ROWS {
            every *= 2;
            let mut index = 0;
            rows.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        true
    })?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(json!({ "rows": rows, "messages": count, "every": every })),
    }
}

/// `{"changes": [[t, value], …]}`: the first value, and each that differs from the one before.
fn states(cache: &BlockCache, start: Stamp, topic: &str, path: &str) -> Result<Value, String> {
    let mut changes: Vec<Value> = Vec::new();
    let mut last: Option<Value> = None;
    let paths = [path.to_owned()];
    let mut fields = Fields::new(&paths)?;
    let mut failure = None;
    let mut is_cut = false;
    crate::series::each(cache, &query(topic), HeadClass::Scan, |message| {
        let values = match fields.of(&message) {
            Ok(values) => values,
            Err(error) => {
                failure = Some(error);
                return false;
            }
        };
        let Some(mut value) = values.and_then(|values| values.into_iter().next()) else {
            return true;
        };
        if let Value::String(text) = &mut value {
            *text = text.chars().take(200).collect();
        }
        if last.as_ref() != Some(&value) {
            if changes.len() >= MOST_CHANGES {
                is_cut = true;
                return false;
            }
            changes.push(json!([message.log_time.since(start), value]));
            last = Some(value);
        }
        true
    })?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(json!({ "changes": changes, "cut": is_cut })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_count_as_well_as_answers_and_there_is_an_end_to_their_number() {
        let mut known = Known::default();
        let ask = |known: &mut Known, path: String| {
            let topic = "/odom".to_owned();
            known.cell(&Track::States { topic, path });
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
