//! Rows and states of a topic over a whole recording, thinned out for a page.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Message, Query, Stamp, TimeRange, Topics};
use asof_decode::{Decoders, FieldPath, Projection};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::guard::Refusal;
use crate::options::ServeLimits;
use crate::reply::BYTES_DECODED;
use crate::show::{LARGEST_SHOWN, shortened};
use crate::waiting::{Client, Connection, Reservation, Waiting};

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
    known: Mutex<TrackCache>,
    turns: Arc<Semaphore>,
    most_bytes: usize,
    /// About the most bytes of a response.
    answer_bytes: usize,
    /// Room for what is computed.
    room: Arc<Connection>,
    /// A growing source has another answer each time.
    is_live: bool,
}

#[derive(Default)]
struct TrackCache {
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
/// Messages of at most this many bytes are decoded within the room of the scan itself.
const SMALL_BYTES: usize = 64 << 10;
/// The error of a response that no client waits for.
const ABANDONED: &str = "cancelled: no client was waiting for it";
/// The most responses that are cached, however small they are.
const MOST_KEPT: usize = 1024;
/// The start of a response that is an error.
const FAILED: &[u8] = b"{\"error\":";

impl Tracks {
    pub fn new(
        cache: &BlockCache,
        start: Stamp,
        limits: &ServeLimits,
        waiting: &Arc<Waiting>,
        is_live: bool,
    ) -> Self {
        Tracks {
            cache: cache.clone(),
            start,
            known: Mutex::default(),
            turns: Arc::new(Semaphore::new(2)),
            most_bytes: limits.series_bytes / 2,
            answer_bytes: waiting.share(limits.answer_bytes),
            room: waiting.own(),
            is_live,
        }
    }

    /// The response in JSON. It is computed once, for all clients that wait for it.
    pub async fn get(&self, track: Track) -> Bytes {
        let work = match self.known(&track) {
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
    fn known(&self, track: &Track) -> Result<Bytes, Arc<Work>> {
        let mut known = self.lock();
        let working = match known.tracks.get(track) {
            Some(Entry::Ready(answer)) => return Ok(answer.clone()),
            Some(Entry::Working(work)) => work.upgrade(),
            None => None,
        };
        Err(working.unwrap_or_else(|| {
            let work = Arc::new(self.start(track.clone()));
            known.put(track, Entry::Working(Arc::downgrade(&work)));
            // Requests whose clients are gone are forgotten here.
            known.trim(self.most_bytes);
            work
        }))
    }

    fn start(&self, track: Track) -> Work {
        let (here, client) = Client::new();
        let (done, ready) = watch::channel(None);
        let (cache, turns) = (self.cache.clone(), Arc::clone(&self.turns));
        let scan = Scan {
            start: self.start,
            most_bytes: self.answer_bytes,
            client,
            room: Arc::clone(&self.room),
            runtime: Handle::current(),
        };
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = turns.acquire_owned() => turn,
                () = done.closed() => return,
            };
            let Ok(turn) = turn else {
                return;
            };
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let text = scan.answer(&cache, &track);
                let text =
                    text.unwrap_or_else(|error| json!({ "error": error }).to_string().into());
                done.send_replace(Some(text));
            });
        });
        Work { ready, _here: here }
    }

    fn lock(&self) -> MutexGuard<'_, TrackCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackCache {
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

/// One scan of a topic.
struct Scan {
    start: Stamp,
    most_bytes: usize,
    client: Client,
    room: Arc<Connection>,
    runtime: Handle,
}

impl Scan {
    fn answer(&self, cache: &BlockCache, track: &Track) -> Result<Bytes, String> {
        // The values, and then their text.
        let _room = self.reserve(2 * self.most_bytes)?;
        let value = match track {
            Track::Rows { topic, paths } => rows(cache, self, topic, paths),
            Track::States { topic, path } => states(cache, self, topic, path),
        };
        Ok(value?.to_string().into())
    }

    fn reserve(&self, bytes: usize) -> Result<Reservation, String> {
        let room = self.runtime.block_on(self.room.reserve(bytes));
        room.ok_or_else(|| Refusal::NoRoom.text().to_owned())
    }
}

/// Some fields of a topic's messages, which may be of several types.
struct Fields {
    paths: Vec<FieldPath>,
    decoders: Decoders,
    /// Without a schema, a message may lack some.
    of_some: Decoders,
    /// Whether a message could be decoded, and why the first one could not.
    is_decoded: bool,
    error: Option<String>,
}

impl Fields {
    fn new(paths: &[String]) -> Result<Self, String> {
        let paths = paths.iter().map(|path| FieldPath::parse(path));
        let paths = paths.collect::<Result<Vec<_>, _>>();
        let paths = paths.map_err(|error| error.to_string())?;
        let fields = || paths.iter().map(FieldPath::fields);
        Ok(Fields {
            decoders: Decoders::new(Projection::paths(fields())),
            of_some: Decoders::new(Projection::any_of(fields())),
            paths,
            is_decoded: false,
            error: None,
        })
    }

    /// Calls `take` with each message of a topic until it returns false, or until the client is gone.
    fn each(
        &mut self,
        cache: &BlockCache,
        scan: &Scan,
        topic: &str,
        mut take: impl FnMut(&mut Self, &Message) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut end = Ok(());
        crate::series::each(cache, &query(topic), HeadClass::Scan, |message| {
            if !scan.client.is_waiting() {
                end = Err(ABANDONED.to_owned());
                return false;
            }
            take(self, &message).unwrap_or_else(|error| {
                end = Err(error);
                false
            })
        })?;
        match self.error.take() {
            Some(error) if !self.is_decoded => Err(error),
            _ => end,
        }
    }

    /// The value at each path, null where there is none; `None` for a message that cannot be decoded.
    fn of(&mut self, scan: &Scan, message: &Message) -> Result<Option<Vec<Value>>, String> {
        let schema = message.channel.schema.as_ref();
        let decoders = if schema.is_none_or(|schema| schema.data.is_empty()) {
            &mut self.of_some
        } else {
            &mut self.decoders
        };
        let decoder = match decoders.of(&message.channel, &[&message.payload]) {
            Ok(decoder) => decoder,
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
                return Ok(None);
            }
        };
        self.is_decoded = true;
        if message.payload.len() > LARGEST_SHOWN {
            return Ok(None);
        }
        let len = message.payload.len();
        let _room = (len > SMALL_BYTES)
            .then(|| scan.reserve(BYTES_DECODED * len))
            .transpose()?;
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
fn rows(cache: &BlockCache, scan: &Scan, topic: &str, paths: &[String]) -> Result<Value, String> {
    let mut rows: VecDeque<(usize, Value)> = VecDeque::new();
    let (mut every, mut count, mut bytes) = (1_u64, 0_u64, 0);
    let mut fields = Fields::new(paths)?;
    fields.each(cache, scan, topic, |fields, message| {
        count += 1;
        if !(count - 1).is_multiple_of(every) {
            return Ok(true);
        }
        let Some(values) = fields.of(scan, message)? else {
            return Ok(true);
        };
        let mut row = vec![json!(message.log_time.since(scan.start))];
        row.extend(values);
        let row = Value::from(row);
        let size = size_of_value(&row);
        bytes += size;
        rows.push_back((size, row));
        while rows.len() > MOST_ROWS || (bytes > scan.most_bytes && rows.len() > 1) {
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
fn states(cache: &BlockCache, scan: &Scan, topic: &str, path: &str) -> Result<Value, String> {
    let mut changes: Vec<Value> = Vec::new();
    let mut last: Option<Value> = None;
    let (mut is_cut, mut bytes) = (false, 0);
    let mut fields = Fields::new(&[path.to_owned()])?;
    fields.each(cache, scan, topic, |fields, message| {
        let values = fields.of(scan, message)?;
        let Some(mut value) = values.and_then(|values| values.into_iter().next()) else {
            return Ok(true);
        };
        if let Value::String(text) = &mut value {
            *text = text.chars().take(200).collect();
        }
        if last.as_ref() != Some(&value) {
            bytes += size_of_value(&value);
            if changes.len() >= MOST_CHANGES || bytes > scan.most_bytes {
                is_cut = true;
                return Ok(false);
            }
            changes.push(json!([message.log_time.since(scan.start), value]));
            last = Some(value);
        }
        Ok(true)
    })?;
    Ok(json!({ "changes": changes, "cut": is_cut }))
}

/// The memory that a value takes, approximately; its text is about as long.
pub(crate) fn size_of_value(value: &Value) -> usize {
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
    fn requests_whose_clients_are_gone_are_forgotten() {
        let mut known = TrackCache::default();
        for number in 0..3 * MOST_KEPT {
            let track = Track::States {
                topic: "/odom".to_owned(),
                path: number.to_string(),
            };
            known.put(&track, Entry::Working(Weak::new()));
            known.trim(100_000);
        }
        assert!(known.tracks.len() < 500, "{}", known.tracks.len());
        assert_eq!(known.tracks.len(), known.order.len());
    }

    #[test]
    fn questions_count_as_well_as_answers_and_there_is_an_end_to_their_number() {
        let mut known = TrackCache::default();
        let ask = |known: &mut TrackCache, path: String| {
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
