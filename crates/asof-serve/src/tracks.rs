//! Rows and states of a topic over the whole recording, few enough for a page.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Message, Query, Stamp, TimeRange, Topics};
use asof_decode::{Decoder, Projection};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

/// Which answer is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    /// Some fields of a topic, evenly thinned out.
    Rows { topic: String, paths: Vec<String> },
    /// When a field changed, and to what.
    States { topic: String, path: String },
}

/// Answers that were worked out, within a budget.
pub(crate) struct Tracks {
    cache: BlockCache,
    start: Stamp,
    known: Mutex<Known>,
    turns: Semaphore,
    most_bytes: usize,
    /// What goes on has another answer each time.
    is_live: bool,
}

#[derive(Default)]
struct Known {
    tracks: HashMap<Track, Arc<OnceCell<Bytes>>>,
    order: VecDeque<Track>,
}

/// Rows of a track, at the most.
const MOST_ROWS: usize = 4000;
const MOST_CHANGES: usize = 20_000;

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

    /// The answer in JSON, worked out once.
    pub async fn get(&self, track: Track) -> Bytes {
        let cell = if self.is_live {
            Arc::default()
        } else {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.trim(self.most_bytes);
            if !known.tracks.contains_key(&track) {
                known.order.push_back(track.clone());
            }
            Arc::clone(known.tracks.entry(track.clone()).or_default())
        };
        let work = || async {
            let _turn = self.turns.acquire().await;
            let (cache, start) = (self.cache.clone(), self.start);
            let done = tokio::task::spawn_blocking(move || work_out(&cache, start, &track)).await;
            let value = match done {
                Ok(Ok(value)) => value,
                Ok(Err(error)) => json!({ "error": error }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            Bytes::from(value.to_string())
        };
        cell.get_or_init(work).await.clone()
    }
}

impl Known {
    fn trim(&mut self, most_bytes: usize) {
        let len = |cell: &Arc<OnceCell<Bytes>>| cell.get().map_or(0, Bytes::len) + 256;
        let mut bytes: usize = self.tracks.values().map(len).sum();
        while bytes > most_bytes {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            if let Some(cell) = self.tracks.remove(&oldest) {
                bytes -= len(&cell);
            }
        }
    }
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

/// Some fields of the messages of a topic; the decoder is made for the first of them.
struct Fields<'a> {
    paths: &'a [String],
    decoder: Option<Decoder>,
}

impl<'a> Fields<'a> {
    fn new(paths: &'a [String]) -> Self {
        let decoder = None;
        Fields { paths, decoder }
    }

    /// The value at each path, null where there is none; `None` for a message that cannot be decoded.
    fn of(&mut self, message: &Message) -> Result<Option<Vec<Value>>, String> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => {
                let fields = self.paths.iter();
                let fields = fields.map(|path| path.split('[').next().unwrap_or(path));
                let projection = Projection::paths(fields);
                let made = Decoder::new(&message.channel, &projection, &[&message.payload]);
                none.insert(made.map_err(|error| error.to_string())?)
            }
        };
        let Ok(text) = decoder.json(&message.payload) else {
            return Ok(None);
        };
        let data: Value = serde_json::from_str(&text).unwrap_or_default();
        let value = |path: &String| at(&data, path).cloned().unwrap_or_default();
        Ok(Some(self.paths.iter().map(value).collect()))
    }
}

/// `{"rows": [[t, value, …], …]}`. Of `n` messages, every `k`-th, with `k` a power of two.
fn rows(cache: &BlockCache, start: Stamp, topic: &str, paths: &[String]) -> Result<Value, String> {
    let mut rows: VecDeque<Value> = VecDeque::new();
    let (mut every, mut count) = (1_u64, 0_u64);
    let mut fields = Fields::new(paths);
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
    let mut fields = Fields::new(&paths);
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

/// The value at a path: `pose.position.x`, `status[0].level`.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = value;
    for part in path.split('.') {
        let mut names = part.split('[');
        value = value.get(names.next()?)?;
        for index in names {
            value = value.get(index.strip_suffix(']')?.parse::<usize>().ok()?)?;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_path() {
        let value = json!({ "a": { "b": [1, { "c": 2 }] } });
        assert_eq!(at(&value, "a.b[1].c"), Some(&json!(2)));
        assert_eq!(at(&value, "a.b[7]"), None);
        assert_eq!(at(&value, "a.b[x]"), None);
    }
}
