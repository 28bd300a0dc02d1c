//! A whole source as tables, in one pass.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Field, Fields};
use asof_core::{
    Batch, Batches, Channel, Query, Row, Source, SourceError, Stamp, Summary, read_through,
};
use rustc_hash::FxHashMap;

use crate::layers::{Assignment, Layers, Table};
use crate::{Payload, PayloadError, Projection, Survey, Timed};

/// Options for decoding a source.
#[derive(Clone)]
pub struct TableOptions {
    /// The layers, in order.
    pub layers: Layers,
    /// The selected fields of each message.
    pub projection: Projection,
    /// The selected times of each message; they are the first columns of a table, in their usual order.
    pub timelines: Vec<Timeline>,
    /// A batch is closed at this many rows.
    pub rows: usize,
    /// A batch is closed at this many bytes; earlier where there are many tables, so that all together hold at most
    /// half as much again.
    pub bytes: usize,
    /// Whether large byte fields stay in their buffers, which hold whole chunks of a file. Good for a batch that is
    /// read and dropped; not for one whose buffers are written out or kept.
    pub shares_buffers: bool,
    /// Whether messages that arrive meanwhile are rows too, until the source ends or the range of the query has passed.
    pub follow: bool,
    /// Decoder threads; with 1, decoding runs on the reader's thread. The result is the same.
    pub threads: usize,
}

impl Default for TableOptions {
    /// Every layer, field and time, 64k rows or 8 MB, as many threads as cores up to eight.
    fn default() -> Self {
        TableOptions {
            layers: Layers::standard(),
            projection: Projection::All,
            timelines: vec![Timeline::LogTime, Timeline::PublishTime, Timeline::Stamp],
            rows: 64 << 10,
            bytes: 8 << 20,
            shares_buffers: true,
            follow: false,
            threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(8),
        }
    }
}

/// A time of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timeline {
    /// When it was recorded: column `log_time`.
    LogTime,
    /// When it was published: column `publish_time`.
    PublishTime,
    /// When it was measured, from the message itself: column `stamp`, where it has a header or a timestamp.
    Stamp,
}

impl Timeline {
    /// The name of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Timeline::LogTime => "log_time",
            Timeline::PublishTime => "publish_time",
            Timeline::Stamp => "stamp",
        }
    }
}

/// Rows of one table: of a channel, or of several of one topic with the same encoding and schema.
#[derive(Debug, Clone)]
pub struct TopicBatch {
    /// The channel; of several, the first.
    pub channel: Arc<Channel>,
    /// The layer that made them.
    pub layer: Arc<str>,
    /// The rows.
    pub batch: RecordBatch,
}

/// The counts of decoded and failed messages, for one channel, or for several of one topic with the same encoding and
/// schema.
#[derive(Debug, Clone)]
pub struct ChannelReport {
    /// The channel's layer, and why; of several channels, the first.
    pub assignment: Assignment,
    /// Messages in total.
    pub messages: u64,
    /// Messages that could not be decoded.
    pub failed: u64,
    /// The first failures: their log times, and why they failed.
    pub failures: Vec<(Stamp, PayloadError)>,
}

/// The most failures that are kept per channel; the rest are counted.
const FAILURES_KEPT: usize = 8;
/// A table's batch is not closed below this, however many tables there are.
const BYTES_AT_LEAST: usize = 256 << 10;
/// Rows from which the size of a whole batch is estimated.
const ROWS_TO_JUDGE_BY: usize = 16;
/// The most columns of all tables, with those within others. A file of a few megabytes may have sixty thousand channels of a
/// type with thousands of fields; those beyond have their payloads as they are.
const COLUMNS_IN_ALL: usize = 2_000_000;
/// To read this many bytes of a definition counts as a column.
const BYTES_OF_A_COLUMN: usize = 64;
/// The least work that is worth a thread.
const MIN_BYTES_FOR_THREAD: u64 = 256 << 10;

/// Why decoding cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A batch could not be built, which is a bug in its layer.
    #[error("cannot build a table of {topic}: {cause}")]
    Arrow {
        /// The topic.
        topic: String,
        /// The error of Arrow.
        #[source]
        cause: ArrowError,
    },
}

/// Batches of rows, of all channels of a source, in the order in which they fill.
///
/// The source is read once, however many channels, encodings and layers there are. Only messages without a schema,
/// such as JSON, are read beforehand to infer their types: see [`Survey`]. A message that cannot be decoded costs only
/// its own row: see [`Tables::report`].
///
/// The rows of a table are in the order of the source, which is by log time. Channels of one topic with the same
/// encoding and the same schema share a table; those that differ have one each.
///
/// ```
/// use asof_core::Query;
/// use asof_decode::{TableOptions, Tables};
/// # use std::io::Cursor;
/// # let mut writer = asof_formats::McapWriter::new(Cursor::new(Vec::new()), Default::default())?;
/// # let demo = asof_demo::Demo::new(asof_demo::DemoOptions { duration: std::time::Duration::from_secs(1), ..Default::default() });
/// # for message in demo.messages() { writer.write(&message)?; }
/// # let recording = asof_formats::McapFile::from_bytes("demo", writer.finish()?.into_inner())?;
/// let mut tables = Tables::read(&recording, &Query::topics(["/odom"]), TableOptions::default())?;
/// let odometry = tables.next().expect("a batch")?;
/// assert_eq!(&*odometry.layer, "semantic");
/// assert!(odometry.batch.column_by_name("position").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tables {
    batches: Batches,
    options: TableOptions,
    states: Vec<State>,
    /// States by the address of their channels, which are kept so that their addresses are not reused.
    places: FxHashMap<usize, (usize, Arc<Channel>)>,
    /// The states of each topic.
    topics: FxHashMap<String, Vec<usize>>,
    survey: Arc<Survey>,
    ready: VecDeque<TopicBatch>,
    /// By channel, its run in the current batch; [`NO_RUN`] between batches.
    run_of: Vec<usize>,
    /// The number of messages of each channel, by its address, where the source provides it.
    expected: FxHashMap<usize, Option<u64>>,
    /// Keeps those addresses from being reused.
    _summary: Arc<Summary>,
    is_finished: bool,
    /// The columns of all tables, and what reading their definitions was worth.
    columns: usize,
}

struct State {
    report: ChannelReport,
    layer: Arc<str>,
    table: Option<Box<dyn Table>>,
    /// Messages that are still to come, where the source provides it.
    expected: Option<u64>,
    /// Whether memory for a whole batch is reserved.
    has_room: bool,
}

impl Tables {
    /// Starts decoding the messages of a query.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn read(
        source: &dyn Source,
        query: &Query,
        options: TableOptions,
    ) -> Result<Self, SourceError> {
        let survey = Survey::of(source, query)?;
        Tables::read_surveyed(source, query, options, Arc::new(survey))
    }

    /// The same with the types that a survey found before, of this source or of all that it is merged with.
    pub(crate) fn read_surveyed(
        source: &dyn Source,
        query: &Query,
        options: TableOptions,
        survey: Arc<Survey>,
    ) -> Result<Self, SourceError> {
        let summary = source.summary();
        let channels = summary.channels.iter();
        Ok(Tables {
            expected: channels
                .map(|entry| (Arc::as_ptr(&entry.channel) as usize, entry.messages))
                .collect(),
            survey,
            batches: read_through(source, query, options.follow)?,
            _summary: summary,
            options,
            states: Vec::new(),
            places: FxHashMap::default(),
            topics: FxHashMap::default(),
            ready: VecDeque::new(),
            run_of: Vec::new(),
            is_finished: false,
            columns: 0,
        })
    }

    /// The counts of decoded and failed messages so far, for each channel with a message.
    pub fn report(&self) -> Vec<ChannelReport> {
        self.states
            .iter()
            .map(|state| state.report.clone())
            .collect()
    }

    fn place_of(&mut self, channel: &Arc<Channel>, sample: &[u8]) -> usize {
        let key = Arc::as_ptr(channel) as usize;
        if let Some((place, _)) = self.places.get(&key) {
            return *place;
        }
        let expected = self.expected.get(&key).copied().flatten();
        let alike = self.topics.get(&channel.topic).and_then(|places| {
            let is_alike = |place: &&usize| self.states[**place].is_alike(channel);
            places.iter().find(is_alike).copied()
        });
        let place = if let Some(place) = alike {
            let known = &mut self.states[place].expected;
            *known = known.zip(expected).map(|(a, b)| a.saturating_add(b));
            place
        } else {
            let place = self.states.len();
            let state = self.new_state(channel, sample, expected);
            self.states.push(state);
            let places = self.topics.entry(channel.topic.clone()).or_default();
            places.push(place);
            place
        };
        self.places.insert(key, (place, Arc::clone(channel)));
        place
    }

    fn new_state(&mut self, channel: &Arc<Channel>, sample: &[u8], expected: Option<u64>) -> State {
        let surveyed = self.survey.samples(channel);
        let first = [sample];
        let samples = surveyed.as_ref().map_or(&first[..], |both| &both[..]);
        let TableOptions {
            layers, projection, ..
        } = &self.options;
        let (mut assignment, table) = if self.columns <= COLUMNS_IN_ALL {
            layers.assign(channel, projection, samples)
        } else {
            let raw = layers.clone().only("raw");
            raw.assign(channel, projection, samples)
        };
        if self.columns > COLUMNS_IN_ALL {
            let reason = format!("the tables before have more than {COLUMNS_IN_ALL} columns");
            assignment.declined.push(("reflection".into(), reason));
        }
        let columns = table
            .as_ref()
            .map_or(0, |table| columns_of(table.schema().fields()));
        let definition = channel
            .schema
            .as_ref()
            .map_or(0, |schema| schema.data.len());
        self.columns += columns + definition / BYTES_OF_A_COLUMN;
        State {
            expected,
            has_room: false,
            layer: assignment.layer.clone().unwrap_or_else(|| "none".into()),
            report: ChannelReport {
                assignment,
                messages: 0,
                failed: 0,
                failures: Vec::new(),
            },
            table,
        }
    }

    fn decode(&mut self, batch: &Batch) -> Result<(), TableError> {
        let runs = self.runs_of(batch);
        let payload_bytes: u64 = batch.rows().iter().map(|row| row.len).sum();
        let limits = Limits {
            rows: self.options.rows.max(1),
            bytes: self
                .options
                .bytes
                .min((self.options.bytes + self.options.bytes / 2) / self.states.len().max(1))
                .max(BYTES_AT_LEAST),
        };
        let threads = if payload_bytes < MIN_BYTES_FOR_THREAD {
            1
        } else {
            self.options.threads.min(runs.len()).max(1)
        };
        let results = decode_runs(&mut self.states, &runs, limits, threads);
        for result in results {
            for batch in result? {
                let batch = self.with_timelines(batch)?;
                self.ready.push_back(batch);
            }
        }
        Ok(())
    }

    /// The messages of a batch by state, in the order of the states.
    ///
    /// The cost grows with the messages and not with the channels: a file may have a channel for each message, and
    /// return them one by one.
    fn runs_of<'a>(&mut self, batch: &'a Batch) -> Vec<Run<'a>> {
        let channels = batch.channels();
        let mut run_of = std::mem::take(&mut self.run_of);
        if run_of.len() < channels.len() {
            run_of.resize(channels.len(), NO_RUN);
        }
        let bytes_of = |row: &Row| {
            let buffer = &batch.buffers()[row.buffer as usize];
            let start = row.offset as usize;
            (buffer, start, &buffer[start..start + row.len as usize])
        };
        let (mut places, mut counts) = (Vec::new(), Vec::new());
        let mut by_place = FxHashMap::default();
        let mut met = Vec::new();
        for row in batch.rows() {
            let channel = row.channel as usize;
            if run_of[channel] == NO_RUN {
                let place = self.place_of(&channels[channel], bytes_of(row).2);
                run_of[channel] = *by_place.entry(place).or_insert_with(|| {
                    places.push(place);
                    counts.push(0);
                    places.len() - 1
                });
                met.push(channel);
            }
            counts[run_of[channel]] += 1;
        }
        let room = counts.into_iter().map(Vec::with_capacity);
        let mut runs: Vec<Run<'a>> = places.into_iter().zip(room).collect();
        let shares_buffers = self.options.shares_buffers;
        for row in batch.rows() {
            let (buffer, start, bytes) = bytes_of(row);
            let payload = Payload {
                bytes,
                owner: shares_buffers.then_some((buffer, start)),
            };
            let (_, run) = &mut runs[run_of[row.channel as usize]];
            run.push((row.log_time, row.publish_time, payload));
        }
        for channel in met {
            run_of[channel] = NO_RUN;
        }
        self.run_of = run_of;
        runs.sort_unstable_by_key(|(place, _)| *place);
        runs
    }

    fn finish(&mut self) -> Result<(), TableError> {
        self.is_finished = true;
        for at in 0..self.states.len() {
            if let Some(batch) = self.states[at].take()? {
                let batch = self.with_timelines(batch)?;
                self.ready.push_back(batch);
            }
        }
        Ok(())
    }

    /// The batch with the selected times.
    fn with_timelines(&self, mut batch: TopicBatch) -> Result<TopicBatch, TableError> {
        let all = [Timeline::LogTime, Timeline::PublishTime, Timeline::Stamp];
        let unwanted = |name: &str| {
            all.iter()
                .any(|time| time.name() == name && !self.options.timelines.contains(time))
        };
        let is_time = |field: &Field| matches!(field.data_type(), DataType::Timestamp(..));
        let fields = batch.batch.schema();
        // Times are the first columns, so a field of the message is never meant.
        let times = fields.fields().iter().take(3);
        let dropped = times.take_while(|field| is_time(field));
        if !dropped.clone().any(|field| unwanted(field.name())) {
            return Ok(batch);
        }
        let count = dropped.count();
        let kept: Vec<usize> = (0..fields.fields().len())
            .filter(|&at| at >= count || !unwanted(fields.field(at).name()))
            .collect();
        batch.batch = batch
            .batch
            .project(&kept)
            .map_err(|cause| TableError::Arrow {
                topic: batch.channel.topic.clone(),
                cause,
            })?;
        Ok(batch)
    }
}

/// The index of a state, and messages for it.
type Run<'a> = (usize, Vec<Timed<'a>>);

/// Rows that are decoded before their true size is looked at: lists may have elements that take no bytes of a payload.
const ROWS_AT_ONCE: usize = 4096;
/// The first rows of a batch: a message without any bytes may have thousands of fields.
const FIRST_ROWS: usize = 64;

const NO_RUN: usize = usize::MAX;

#[derive(Clone, Copy)]
struct Limits {
    rows: usize,
    bytes: usize,
}

type Decoded = Result<Vec<TopicBatch>, TableError>;

/// The columns of a table, with those within others.
pub(crate) fn columns_of(fields: &Fields) -> usize {
    let within = |field: &Arc<Field>| match field.data_type() {
        DataType::Struct(fields) => 1 + columns_of(fields),
        DataType::List(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            1 + columns_of(&Fields::from(vec![Arc::clone(item)]))
        }
        _ => 1,
    };
    fields.iter().map(within).sum()
}

/// Decodes each channel's run, on several threads if requested. A channel's rows, and where its batches end, depend
/// only on its own messages, so the number of threads changes nothing.
fn decode_runs(
    states: &mut [State],
    runs: &[Run<'_>],
    limits: Limits,
    threads: usize,
) -> Vec<Decoded> {
    if threads <= 1 {
        return runs
            .iter()
            .map(|(place, run)| states[*place].append(run, limits))
            .collect();
    }
    let mut wanted = runs.iter().peekable();
    let mut jobs: Vec<(usize, &mut State, &Vec<Timed<'_>>)> = states
        .iter_mut()
        .enumerate()
        .filter_map(|(at, state)| {
            let (_, run) = wanted.next_if(|(place, _)| *place == at)?;
            Some((at, state, run))
        })
        .collect();
    // The largest first, each to the thread with the least work so far.
    let weight = |run: &Vec<Timed<'_>>| {
        run.iter()
            .map(|(_, _, p)| p.bytes.len() + 64)
            .sum::<usize>()
    };
    jobs.sort_by_key(|(_, _, run)| std::cmp::Reverse(weight(run)));
    let mut shares: Vec<(usize, Vec<_>)> = (0..threads).map(|_| (0, Vec::new())).collect();
    for job in jobs {
        if let Some(share) = shares.iter_mut().min_by_key(|(sum, _)| *sum) {
            share.0 += weight(job.2);
            share.1.push(job);
        }
    }
    let work = |jobs: Vec<(usize, &mut State, &Vec<Timed<'_>>)>| -> Vec<(usize, Decoded)> {
        let each = |(at, state, run): (usize, &mut State, &Vec<Timed<'_>>)| {
            (at, state.append(run, limits))
        };
        jobs.into_iter().map(each).collect()
    };
    let mut results = Vec::new();
    std::thread::scope(|scope| {
        let mut shares = shares.into_iter().map(|(_, jobs)| jobs);
        let own = shares.next();
        let others: Vec<_> = shares.map(|jobs| scope.spawn(move || work(jobs))).collect();
        results.extend(own.map(work).into_iter().flatten());
        for other in others {
            match other.join() {
                Ok(done) => results.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

impl State {
    /// Whether the messages of another channel of its topic belong in the same table.
    fn is_alike(&self, channel: &Channel) -> bool {
        let own = &self.report.assignment.channel;
        own.message_encoding == channel.message_encoding && own.schema == channel.schema
    }

    fn append(&mut self, run: &[Timed<'_>], limits: Limits) -> Decoded {
        let report = &mut self.report;
        report.messages += run.len() as u64;
        let mut full = Vec::new();
        let Some(table) = &mut self.table else {
            return Ok(full);
        };
        let mut rest = run;
        while !rest.is_empty() {
            // As many as fit by rows, and by bytes as estimated from the rows before and from payloads.
            let room = limits.rows.saturating_sub(table.rows());
            let room = room
                .min(rows_that_fit(&**table, limits))
                .clamp(1, ROWS_AT_ONCE);
            let mut bytes = 0;
            let count = rest
                .iter()
                .take(room)
                .take_while(|(_, _, payload)| {
                    let fits = bytes < limits.bytes;
                    bytes += payload.bytes.len();
                    fits
                })
                .count()
                .max(1);
            let (now, later) = rest.split_at(count);
            table.append(now, &mut |at, error| {
                report.failed += 1;
                if report.failures.len() < FAILURES_KEPT {
                    report.failures.push((now[at].0, error));
                }
            });
            rest = later;
            self.expected = self
                .expected
                .map(|expected| expected.saturating_sub(count as u64));
            let (rows, bytes) = (table.rows(), table.bytes());
            if rows >= limits.rows || bytes >= limits.bytes {
                full.extend(take(table, &report.assignment.channel, &self.layer)?);
            } else if !self.has_room && rows >= ROWS_TO_JUDGE_BY {
                // The first batch is reserved at its full size; the next ones reuse that size.
                self.has_room = true;
                let most = (limits.bytes as u64 * rows as u64 / bytes.max(1) as u64)
                    .min(limits.rows as u64)
                    .saturating_sub(rows as u64);
                table.reserve(most.min(self.expected.unwrap_or(0)) as usize);
            }
        }
        Ok(full)
    }

    fn take(&mut self) -> Result<Option<TopicBatch>, TableError> {
        match &mut self.table {
            Some(table) => take(table, &self.report.assignment.channel, &self.layer),
            None => Ok(None),
        }
    }
}

/// About how many more rows like those before fit into a batch.
fn rows_that_fit(table: &dyn Table, limits: Limits) -> usize {
    let (rows, bytes) = (table.rows(), table.bytes());
    if rows == 0 {
        return FIRST_ROWS;
    }
    let left = limits.bytes.saturating_sub(bytes) as u128;
    usize::try_from(left * rows as u128 / bytes.max(1) as u128).unwrap_or(usize::MAX)
}

fn take(
    table: &mut Box<dyn Table>,
    channel: &Arc<Channel>,
    layer: &Arc<str>,
) -> Result<Option<TopicBatch>, TableError> {
    let batch = table.take().map_err(|cause| TableError::Arrow {
        topic: channel.topic.clone(),
        cause,
    })?;
    Ok(batch.map(|batch| TopicBatch {
        channel: Arc::clone(channel),
        layer: Arc::clone(layer),
        batch,
    }))
}

impl Iterator for Tables {
    type Item = Result<TopicBatch, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            if self.is_finished {
                return None;
            }
            let result = match self.batches.next() {
                Some(Ok(batch)) => self.decode(&batch),
                Some(Err(error)) => Err(error.into()),
                None => self.finish(),
            };
            if let Err(error) = result {
                self.is_finished = true;
                return Some(Err(error));
            }
        }
    }
}
