//! Overviews of a whole recording, in columns: computed once, shared, and sent while they are computed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use asof_blocks::{BlockCache, HeadClass};
use asof_core::{Channel, Message, MessageRef, Portion, Query, Source, Stamp, TimeRange};
use asof_decode::{Decoders, FieldPath, Payload};
use tokio::sync::{Semaphore, watch};

/// What is computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// The minimum and maximum of a field in each column: two lanes.
    MinMax { topic: String, path: String },
    /// Messages in each column: a lane for every topic, in this order.
    Density { topics: Vec<String> },
}

/// What is computed, over which time, in how many columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub what: What,
    pub start: Stamp,
    pub end: Stamp,
    pub columns: usize,
}

/// One overview, finished or in progress.
pub(crate) struct Look {
    pub lanes: usize,
    pub columns: usize,
    values: Mutex<Values>,
    /// The number of complete columns; more than there are when all is done.
    ready: watch::Sender<usize>,
    /// Its size in bytes, with its plan.
    bytes: usize,
    /// Bytes of all overviews that are still in use.
    held: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Values {
    /// Lane by lane; NaN where there is no message.
    lanes: Vec<f64>,
    error: Option<String>,
}

/// The values of a field, by time, so that to zoom into a plot decodes nothing.
struct Curve {
    topic: String,
    path: String,
    /// All values of this range are there.
    range: TimeRange,
    points: Vec<(Stamp, f64)>,
}

/// The overviews that are cached, within a budget.
pub(crate) struct Looks {
    cache: BlockCache,
    known: Arc<Mutex<LookCache>>,
    /// Limits how many overviews are computed at once; the others wait.
    turns: Arc<Semaphore>,
    /// Of the cached overviews. Half as much is for curves.
    most_bytes: usize,
    held: Arc<AtomicUsize>,
    /// A growing source has another answer each time.
    is_live: bool,
}

#[derive(Default)]
struct LookCache {
    looks: HashMap<Plan, Arc<Look>>,
    /// From the least recently used.
    order: VecDeque<Plan>,
    bytes: usize,
    /// From the least recently used.
    curves: VecDeque<Arc<Curve>>,
}

/// The most columns: a page has no more pixels.
pub(crate) const MOST_COLUMNS: usize = 4096;
const MAX_CONCURRENT_SERIES: usize = 2;
/// A curve may take this part of what is for all of them; those that are being collected may take half of it.
const LARGEST_CURVE: usize = 4;
/// The most overviews that are cached, however small they are.
const MOST_KEPT: usize = 1024;

impl Looks {
    pub fn new(cache: &BlockCache, most_bytes: usize, is_live: bool) -> Self {
        Looks {
            cache: cache.clone(),
            known: Arc::default(),
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_SERIES)),
            most_bytes: most_bytes / 2,
            held: Arc::default(),
            is_live,
        }
    }

    /// The overview of a plan: a cached one, or a new one that starts now. `None` where those in progress take the
    /// whole budget.
    pub fn get(&self, plan: &Plan) -> Option<(Arc<Look>, watch::Receiver<usize>)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_live {
            known.forget(plan);
        } else if let Some(look) = known.looks.get(plan) {
            let look = Arc::clone(look);
            // An overview without receivers has been cancelled.
            let is_alive = *look.ready.borrow() > look.columns || look.ready.receiver_count() > 0;
            if is_alive {
                known.order.retain(|other| other != plan);
                known.order.push_back(plan.clone());
                let receiver = look.ready.subscribe();
                return Some((look, receiver));
            }
            known.forget(plan);
        }
        let lanes = match plan.what {
            What::MinMax { .. } => 2,
            What::Density { ref topics } => topics.len(),
        };
        let bytes = bytes_of(plan, lanes);
        if self.held.load(Ordering::Relaxed) + bytes > 2 * self.most_bytes {
            return None;
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let (ready, receiver) = watch::channel(0);
        let look = Arc::new(Look {
            lanes,
            columns: plan.columns,
            values: Mutex::new(Values {
                lanes: vec![f64::NAN; lanes * plan.columns],
                error: None,
            }),
            ready,
            bytes,
            held: Arc::clone(&self.held),
        });
        known.add(plan.clone(), Arc::clone(&look), self.most_bytes);
        let curve = known.curve(plan);
        drop(known);
        self.start(plan.clone(), Arc::clone(&look), curve);
        Some((look, receiver))
    }

    fn start(&self, plan: Plan, look: Arc<Look>, curve: Option<Arc<Curve>>) {
        let (cache, turns) = (self.cache.clone(), Arc::clone(&self.turns));
        let known = (!self.is_live).then(|| Arc::clone(&self.known));
        let curve_bytes = self.most_bytes / 2;
        tokio::spawn(async move {
            let turn = match curve {
                // Nothing is read.
                Some(_) => None,
                None => Some(turns.acquire_owned().await),
            };
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let done = match (&plan.what, curve) {
                    (_, Some(curve)) => {
                        look.take(&plan, curve.points.iter().copied());
                        Ok(())
                    }
                    (What::MinMax { topic, path }, None) => {
                        let largest = known.as_ref().map_or(0, |_| curve_bytes / LARGEST_CURVE);
                        min_max(&cache, &plan, topic, path, &look, largest).map(|curve| {
                            if let (Some(known), Some(curve)) = (known, curve) {
                                let mut known =
                                    known.lock().unwrap_or_else(PoisonError::into_inner);
                                known.keep(curve, curve_bytes);
                            }
                        })
                    }
                    (What::Density { topics }, None) => density(&cache, &plan, topics, &look),
                };
                if let Err(error) = done {
                    look.lock().error = Some(error);
                }
                look.ready.send_replace(look.columns + 1);
            });
        });
    }
}

impl Curve {
    fn bytes(&self) -> usize {
        let names = self.topic.len() + self.path.len();
        self.points.capacity() * size_of::<(Stamp, f64)>() + names + size_of::<Self>()
    }

    fn is_of(&self, topic: &str, path: &str) -> bool {
        self.topic == topic && self.path == path
    }

    /// Adds values, as long as that takes at most this much memory; returns whether it did.
    fn extend(&mut self, values: impl Iterator<Item = (Stamp, f64)>, most_bytes: usize) -> bool {
        for value in values {
            let len = self.points.len();
            let is_full = len == self.points.capacity();
            // Vectors grow to twice their size.
            if is_full && 2 * len.max(64) * size_of::<(Stamp, f64)>() > most_bytes {
                return false;
            }
            self.points.push(value);
        }
        true
    }
}

impl LookCache {
    /// The curve that has all values of a plan.
    fn curve(&mut self, plan: &Plan) -> Option<Arc<Curve>> {
        let What::MinMax { topic, path } = &plan.what else {
            return None;
        };
        let range = TimeRange::new(plan.start, plan.end);
        let place = self.curves.iter().position(|curve| {
            curve.is_of(topic, path) && curve.range.cover(range) == curve.range
        })?;
        let curve = self.curves.remove(place)?;
        self.curves.push_back(Arc::clone(&curve));
        Some(curve)
    }

    fn keep(&mut self, curve: Curve, most_bytes: usize) {
        self.curves.retain(|other| {
            !(other.is_of(&curve.topic, &curve.path)
                && curve.range.cover(other.range) == curve.range)
        });
        self.curves.push_back(Arc::new(curve));
        let bytes = |curves: &VecDeque<Arc<Curve>>| -> usize {
            curves.iter().map(|curve| curve.bytes()).sum()
        };
        while bytes(&self.curves) > most_bytes || self.curves.len() > MOST_KEPT {
            self.curves.pop_front();
        }
    }

    fn add(&mut self, plan: Plan, look: Arc<Look>, most_bytes: usize) {
        self.bytes += look.bytes;
        self.looks.insert(plan.clone(), look);
        self.order.push_back(plan);
        while (self.bytes > most_bytes || self.order.len() > MOST_KEPT) && self.order.len() > 1 {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, plan: &Plan) {
        if let Some(look) = self.looks.remove(plan) {
            self.bytes -= look.bytes;
        }
        self.order.retain(|other| other != plan);
    }
}

impl Look {
    /// The columns from `from` to before `to`, of all lanes, as bytes: the first column, their number, and the values
    /// in float64, lane by lane.
    pub fn part(&self, from: usize, to: usize) -> Vec<u8> {
        let values = self.lock();
        let mut bytes = Vec::with_capacity(8 + (to - from) * self.lanes * 8);
        bytes.extend((from as u32).to_le_bytes());
        bytes.extend(((to - from) as u32).to_le_bytes());
        for lane in 0..self.lanes {
            let lane = &values.lanes[lane * self.columns..][from..to];
            bytes.extend(lane.iter().flat_map(|value| value.to_le_bytes()));
        }
        bytes
    }

    pub fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds values that are within its time to its columns.
    fn take(&self, plan: &Plan, values: impl Iterator<Item = (Stamp, f64)>) {
        let range = TimeRange::new(plan.start, plan.end);
        let mut lanes = self.lock();
        for (at, value) in values.filter(|(at, _)| range.contains(*at)) {
            let column = plan.column(at);
            let least = &mut lanes.lanes[column];
            // NaN is replaced by any number.
            *least = least.min(value);
            let most = &mut lanes.lanes[self.columns + column];
            *most = most.max(value);
        }
    }

    /// Whether it still has a receiver.
    fn is_wanted(&self) -> bool {
        self.ready.receiver_count() > 0
    }

    /// Marks all columns before this one as complete.
    fn reached(&self, column: usize) {
        self.ready.send_if_modified(|ready| {
            let is_further = column > *ready;
            *ready = column.max(*ready);
            is_further
        });
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The size of an overview: its values, and its plan, which is stored three times.
fn bytes_of(plan: &Plan, lanes: usize) -> usize {
    let words = match &plan.what {
        What::MinMax { topic, path } => topic.len() + path.len(),
        What::Density { topics } => {
            let topics = topics.iter().map(|topic| topic.len() + size_of::<String>());
            topics.sum()
        }
    };
    lanes * plan.columns * 8 + 3 * (words + size_of::<Plan>()) + 256
}

impl Plan {
    fn column(&self, at: Stamp) -> usize {
        let whole = i128::from(self.end.since(self.start)) + 1;
        let part = i128::from(at.since(self.start)) * self.columns as i128 / whole;
        (part.max(0) as usize).min(self.columns - 1)
    }

    /// The time that is known after all messages of the plan: also that beyond the ends of the recording.
    fn knows(&self, recording: TimeRange) -> TimeRange {
        let is_from_start = self.start <= recording.start;
        let start = if is_from_start {
            Stamp::MIN
        } else {
            self.start
        };
        let is_to_end = self.end >= recording.end;
        TimeRange::new(start, if is_to_end { Stamp::MAX } else { self.end })
    }

    fn query(&self, topics: asof_core::Topics) -> Query {
        Query {
            topics,
            range: TimeRange::new(self.start, self.end),
        }
    }
}

/// The error of an overview that was cancelled because it had no receivers.
const GIVEN_UP: &str = "cancelled: no client was waiting for it";

fn density(cache: &BlockCache, plan: &Plan, topics: &[String], look: &Look) -> Result<(), String> {
    look.lock().lanes.fill(0.0);
    let places: HashMap<&str, usize> = topics
        .iter()
        .enumerate()
        .map(|(lane, topic)| (topic.as_str(), lane))
        .collect();
    // Where indexes have the counts, no message is read.
    let grain = (plan.end.since(plan.start) / plan.columns as i64).unsigned_abs();
    let range = TimeRange::new(plan.start, plan.end);
    let outline = (cache as &dyn Source).outline(range, grain);
    if let Some(portions) = outline.map_err(|error| error.to_string())? {
        let mut values = look.lock();
        for portion in &portions {
            if let Some(&lane) = places.get(portion.channel.topic.as_str()) {
                let lane = &mut values.lanes[lane * look.columns..][..look.columns];
                spread(plan, portion, lane);
            }
        }
        return Ok(());
    }
    let query = plan.query(asof_core::Topics::named(topics));
    for batch in cache.read_as(&query, HeadClass::Scan) {
        let batch = batch.map_err(|error| error.to_string())?;
        if !look.is_wanted() {
            return Err(GIVEN_UP.to_owned());
        }
        let lane = |channel: &Arc<Channel>| places.get(channel.topic.as_str()).copied();
        let lanes: Vec<Option<usize>> = batch.channels().iter().map(lane).collect();
        let mut values = look.lock();
        for row in batch.rows() {
            if let Some(lane) = lanes[row.channel as usize] {
                values.lanes[lane * look.columns + plan.column(row.log_time)] += 1.0;
            }
        }
        drop(values);
        look.reached(plan.column(batch.range().end));
    }
    Ok(())
}

/// Spreads the messages of a portion over the columns that it overlaps, in proportion.
fn spread(plan: &Plan, portion: &Portion, lane: &mut [f64]) {
    let within = TimeRange::new(plan.start, plan.end).intersect(portion.range);
    if within.is_empty() {
        return;
    }
    let (first, last) = (plan.column(within.start), plan.column(within.end));
    let whole = portion.range.duration_nanos() as f64 + 1.0;
    let width = (plan.end.since(plan.start) as f64 + 1.0) / plan.columns as f64;
    let offset = within.start.since(plan.start) as f64;
    let end = offset + within.duration_nanos() as f64 + 1.0;
    for (column, count) in lane.iter_mut().enumerate().take(last + 1).skip(first) {
        let from = (column as f64 * width).max(offset);
        let to = ((column + 1) as f64 * width).min(end);
        // A column at the edge gets at least what rounding leaves of it.
        *count += portion.messages as f64 * ((to - from).max(0.0) / whole);
    }
}

/// Fills an overview; returns all values of its range, if they take at most this much memory.
fn min_max(
    cache: &BlockCache,
    plan: &Plan,
    topic: &str,
    path: &str,
    look: &Look,
    largest_curve: usize,
) -> Result<Option<Curve>, String> {
    let wanted = FieldPath::parse(path).map_err(|error| error.to_string())?;
    let mut times = Vec::new();
    let mut curve = Some(Curve {
        topic: topic.to_owned(),
        path: path.to_owned(),
        range: plan.knows(cache.summary().range),
        points: Vec::new(),
    });
    scan(
        cache,
        &plan.query(asof_core::Topics::named([topic])),
        &wanted,
        &mut times,
        |times, batch| {
            if !look.is_wanted() {
                return Err(GIVEN_UP.to_owned());
            }
            let numbers = wanted.numbers(batch);
            let numbers = numbers.map_err(|error| format!("{topic}: {error}"))?;
            let values = || times.iter().copied().zip(numbers.iter().copied());
            look.take(plan, values());
            curve.take_if(|curve| !curve.extend(values(), largest_curve));
            if let Some(last) = times.last() {
                look.reached(plan.column(*last));
            }
            Ok(())
        },
    )?;
    Ok(curve)
}

/// Decodes a field of all matching messages, and passes values on in runs with their times.
pub(crate) fn scan(
    cache: &BlockCache,
    query: &Query,
    path: &FieldPath,
    times: &mut Vec<Stamp>,
    mut take: impl FnMut(&[Stamp], &RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    let mut decoders = Decoders::new(path.projection());
    let mut failed_channels: BTreeMap<usize, String> = BTreeMap::new();
    for batch in cache.read_as(query, HeadClass::Scan) {
        let batch = batch.map_err(|error| error.to_string())?;
        // A file may have tens of thousands of channels on a topic: only those with messages are looked at.
        let mut runs: BTreeMap<u32, Vec<MessageRef<'_>>> = BTreeMap::new();
        for (row, message) in batch.rows().iter().zip(batch.iter()) {
            runs.entry(row.channel).or_default().push(message);
        }
        for run in runs.values() {
            let Some(first) = run.first() else {
                continue;
            };
            let channel = first.channel;
            let payloads: Vec<&[u8]> = run.iter().map(|message| message.payload).collect();
            let key = Arc::as_ptr(channel) as usize;
            let decoder = match decoders.of(channel, &payloads) {
                Ok(decoder) => decoder,
                Err(error) => {
                    failed_channels.insert(key, error.to_string());
                    continue;
                }
            };
            // Without a schema, later messages may have what the first ones lack.
            failed_channels.remove(&key);
            let timed: Vec<_> = run
                .iter()
                .map(|message| {
                    (
                        message.log_time,
                        message.publish_time,
                        Payload::from(message.payload),
                    )
                })
                .collect();
            let mut failed = Vec::new();
            decoder.append(&timed, |at, _| failed.push(at));
            times.clear();
            times.extend(
                run.iter()
                    .enumerate()
                    .filter(|(at, _)| failed.binary_search(at).is_err())
                    .map(|(_, message)| message.log_time),
            );
            if let Some(decoded) = decoder.take().map_err(|error| error.to_string())? {
                take(times, &decoded)?;
            }
        }
    }
    failed_channels
        .pop_first()
        .map_or(Ok(()), |(_, why)| Err(why))
}

/// The messages of a topic between two times, one at a time.
pub(crate) fn each(
    cache: &BlockCache,
    query: &Query,
    class: HeadClass,
    mut take: impl FnMut(Message) -> bool,
) -> Result<(), String> {
    for batch in cache.read_as(query, class) {
        let batch = batch.map_err(|error| error.to_string())?;
        for message in batch.iter() {
            if !take(message.to_message()) {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_at(path: String) -> (Plan, Arc<Look>) {
        let topic = "/odom".to_owned();
        let plan = Plan {
            what: What::MinMax { topic, path },
            start: Stamp::EPOCH,
            end: Stamp::MAX,
            columns: 1,
        };
        let look = Look {
            lanes: 2,
            columns: 1,
            values: Mutex::default(),
            ready: watch::Sender::new(0),
            bytes: bytes_of(&plan, 2),
            held: Arc::new(AtomicUsize::new(usize::MAX / 2)),
        };
        (plan, Arc::new(look))
    }

    #[test]
    fn plans_count_as_well_as_values_and_there_is_an_end_to_their_number() {
        let mut known = LookCache::default();
        for number in 0..100 {
            let (plan, look) = look_at(format!("{number}{}", "x".repeat(10_000)));
            known.add(plan, look, 100_000);
        }
        assert!(known.looks.len() < 5, "{}", known.looks.len());
        for number in 0..MOST_KEPT + 100 {
            let (plan, look) = look_at(number.to_string());
            known.add(plan, look, usize::MAX);
        }
        assert_eq!(
            (known.looks.len(), known.order.len()),
            (MOST_KEPT, MOST_KEPT)
        );
    }

    #[test]
    fn messages_of_a_portion_are_shared_out_among_the_columns_that_it_lies_in() {
        let plan = Plan {
            what: What::Density { topics: Vec::new() },
            start: Stamp::from_nanos(1000),
            end: Stamp::from_nanos(1999),
            columns: 10,
        };
        let portion = |start, end, messages| Portion {
            channel: Arc::default(),
            range: TimeRange::new(Stamp::from_nanos(start), Stamp::from_nanos(end)),
            messages,
        };
        let mut lane = [0.0; 10];
        spread(&plan, &portion(1000, 1099, 4), &mut lane);
        spread(&plan, &portion(1150, 1349, 20), &mut lane);
        // Half of it is before the plan begins.
        spread(&plan, &portion(900, 1099, 2), &mut lane);
        spread(&plan, &portion(1999, 1999, 7), &mut lane);
        spread(&plan, &portion(5000, 6000, 9), &mut lane);
        let rounded = lane.map(|count| count.round() as i64);
        assert_eq!(rounded, [5, 5, 10, 5, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn the_first_and_the_last_instant_lie_in_the_first_and_the_last_column() {
        let plan = Plan {
            what: What::Density { topics: Vec::new() },
            start: Stamp::from_nanos(1000),
            end: Stamp::from_nanos(1999),
            columns: 10,
        };
        assert_eq!(plan.column(Stamp::from_nanos(1000)), 0);
        assert_eq!(plan.column(Stamp::from_nanos(1999)), 9);
        assert_eq!(plan.column(Stamp::from_nanos(1100)), 1);
        assert_eq!(plan.column(Stamp::MIN), 0);
        assert_eq!(plan.column(Stamp::MAX), 9);
    }
}
