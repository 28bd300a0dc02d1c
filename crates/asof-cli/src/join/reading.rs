//! Reads a source and makes rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof::align::{LATENESS, On, Stamps, topic_without_stamp};
use asof::window::sync::{Align, AlignedRow};
use asof::{
    Batch, Batches, FollowEnd, Followed, Growth, Item, JoinedWriter, Message, MessageRef, Query,
    Source, Stamp, TimeRange, Topics,
};

use super::Join;
use crate::failure::Usage;
use crate::screen::Screen;
use asof::text::{counted, shown};

/// How many messages of one topic, and anchors, may wait.
const MOST_WAITING: usize = 20_000;
/// How many bytes all waiting messages may take.
const MOST_BYTES: u64 = 64 << 20;
/// From this many waiting rows on, the next message of a topic is looked up ahead.
const LOOK_AHEAD_WAITING: usize = 64;
const LOOK_AHEAD_BYTES: u64 = 8 << 20;
/// How long a row of a running robot waits for something nearer.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// How often output is flushed while nothing arrives.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Reads a source, and emits rows as soon as they are final.
pub(super) struct Reading<'a> {
    join: &'a Join,
    on: On,
    /// The range of log times of the anchors.
    range: TimeRange,
    lateness: Duration,
    growth: Growth,
    align: Align<Item>,
    stamps: Stamps,
    /// Messages without a stamp, by topic.
    unstamped: BTreeMap<String, u64>,
    lanes: Vec<Lane>,
    rows: Vec<AlignedRow<Item>>,
    lost: Option<String>,
    restarts: u64,
}

/// One of the topics that are looked up.
#[derive(Default)]
struct Lane {
    /// The time and order of the last message that was taken.
    last: Option<(Stamp, u64)>,
    /// The log time of its very last message, if known.
    end: Option<Stamp>,
    has_ended: bool,
    /// Its own reader, once rows had to wait for it.
    ahead: Option<Ahead>,
}

/// A reader of one topic that runs ahead of the others.
struct Ahead {
    batches: Batches,
    batch: Batch,
    next: usize,
}

impl<'a> Reading<'a> {
    pub(super) fn new(join: &'a Join, file: &dyn Source, screen: &Screen) -> anyhow::Result<Self> {
        let range = join.span.range(file, screen);
        let growth = file.growth();
        let topics = Query::topics(join.with.iter().chain([&join.anchor]).cloned()).topics;
        let samples = file.latest_at(&topics, Stamp::MAX)?;
        let on = choose(join, file, &samples, screen)?;
        let is_in_order = on == On::LogTime && growth == Growth::Finished;
        let default = if is_in_order {
            Duration::ZERO
        } else {
            LATENESS
        };
        let lateness = join.lateness.unwrap_or(default);
        let lane = |topic: &String| Lane {
            end: samples
                .iter()
                .find(|message| message.channel.topic == *topic)
                .map(|message| message.log_time)
                .or(Some(Stamp::MIN))
                .filter(|_| growth == Growth::Finished),
            ..Lane::default()
        };
        Ok(Reading {
            join,
            on,
            range,
            lateness,
            growth,
            align: new_align(join, lateness, growth),
            stamps: Stamps::default(),
            unstamped: BTreeMap::new(),
            lanes: join.with.iter().map(lane).collect(),
            rows: Vec::new(),
            lost: None,
            restarts: 0,
        })
    }

    pub(super) fn on(&self) -> On {
        self.on
    }

    pub(super) fn read(
        &mut self,
        file: &dyn Source,
        sink: &mut JoinedWriter,
    ) -> anyhow::Result<()> {
        if self.range.is_empty() {
            return Ok(());
        }
        // A message that is late for the first anchors was logged before them, or was known by then.
        let late = i64::try_from(self.lateness.as_nanos()).unwrap_or(i64::MAX);
        let start = self.range.start.plus_nanos(-late);
        if start > file.summary().range.start {
            let topics = Query::topics(self.join.with.iter().cloned()).topics;
            let known = file.latest_at(&topics, start.plus_nanos(-1))?;
            for message in known.iter() {
                self.take_other(message);
            }
        }
        let wanted = self.join.with.iter().chain([&self.join.anchor]);
        let query = Query {
            range: TimeRange::new(start, Stamp::MAX),
            ..Query::topics(wanted.cloned())
        };
        let mut follow = file.follow(&query)?;
        loop {
            match follow.next(Instant::now() + FLUSH_INTERVAL)? {
                Followed::Batch(batch) => {
                    if self.take(&batch, file, sink)? {
                        break;
                    }
                }
                Followed::CaughtUp => sink.flush()?,
                Followed::Restarted => {
                    self.finish(sink)?;
                    self.restarts += 1;
                    self.align = new_align(self.join, self.lateness, self.growth);
                }
                Followed::End(end) => {
                    if let FollowEnd::Lost(reason) = end {
                        self.lost = Some(reason);
                    }
                    break;
                }
            }
        }
        self.finish(sink)
    }

    /// Reports what was left out; returns whether there was any.
    pub(super) fn tell(&self, screen: &Screen) -> bool {
        for (topic, count) in &self.unstamped {
            screen.warning(format_args!(
                "{} on {} left out: without a stamp; --on log_time includes them",
                counted(*count, "message"),
                shown(topic)
            ));
        }
        if self.restarts > 0 {
            screen
                .warning("the clock was set back; rows before and after are from different times");
        }
        if let Some(reason) = &self.lost {
            screen.warning(format_args!("the source is gone: {reason}"));
        }
        let counters = self.align.stats();
        let late: u64 = counters.late.iter().sum();
        if late + counters.late_anchors > 0 {
            screen.warning(format_args!(
                "{} came more than {} s late and may be missing from rows; --lateness waits longer",
                counted(late + counters.late_anchors, "message"),
                self.lateness.as_secs_f64()
            ));
        }
        if counters.early > 0 {
            screen.warning(format_args!(
                "{} written before all messages near them had arrived",
                counted(counters.early, "row")
            ));
        }
        !self.unstamped.is_empty()
    }

    /// Takes a batch; returns whether nothing more is wanted.
    fn take(
        &mut self,
        batch: &Batch,
        file: &dyn Source,
        sink: &mut JoinedWriter,
    ) -> anyhow::Result<bool> {
        for message in batch.iter() {
            self.end_lanes(message.log_time);
            let is_past = message.log_time > self.range.end;
            let is_early = message.log_time < self.range.start;
            if message.channel.topic == self.join.anchor && !is_past && !is_early {
                self.take_anchor(message);
            }
            self.take_other(message);
            if self.growth == Growth::Finished {
                self.look_ahead(file)?;
            }
            self.write(sink)?;
            if is_past && self.align.waiting() == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_anchor(&mut self, message: MessageRef<'_>) {
        if let Some(at) = self.time_of(message) {
            // Waiting messages must not keep their chunk alive.
            let item = Arc::new(message.to_message().detached());
            self.align
                .add_anchor(at, item, &mut |row| self.rows.push(row));
        }
    }

    fn take_other(&mut self, message: MessageRef<'_>) {
        let place = (message.log_time, message.order);
        let is_wanted = |(index, topic): (usize, &String)| {
            let lane = &self.lanes[index];
            // Some of these messages were looked up before.
            let is_known = lane.ahead.is_some() && lane.last.is_some_and(|last| place <= last);
            (*topic == message.channel.topic && !is_known).then_some(index)
        };
        let lanes: Vec<usize> = self
            .join
            .with
            .iter()
            .enumerate()
            .filter_map(is_wanted)
            .collect();
        if lanes.is_empty() {
            return;
        }
        let Some(at) = self.time_of(message) else {
            return;
        };
        let item = Arc::new(message.to_message().detached());
        for lane in lanes {
            self.lanes[lane].last = Some(place);
            let item = Arc::clone(&item);
            self.align
                .add(lane, at, item, &mut |row| self.rows.push(row));
        }
    }

    /// The time by which a message is joined.
    fn time_of(&mut self, message: MessageRef<'_>) -> Option<Stamp> {
        if self.on == On::LogTime {
            return Some(message.log_time);
        }
        let stamp = self.stamps.of(message);
        if stamp.is_none() {
            let topic = message.channel.topic.clone();
            *self.unstamped.entry(topic).or_default() += 1;
        }
        stamp
    }

    /// Marks topics that have ended, so that no row waits for them.
    fn end_lanes(&mut self, now: Stamp) {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if !lane.has_ended && lane.end.is_some_and(|end| now > end) {
                lane.has_ended = true;
                self.align.end(number, &mut |row| self.rows.push(row));
            }
        }
    }

    /// Looks up the next messages of topics that rows wait for, when too much waits: a map that comes once a minute
    /// must not hold back the pictures of a minute.
    fn look_ahead(&mut self, file: &dyn Source) -> anyhow::Result<()> {
        while self.align.waiting() > LOOK_AHEAD_WAITING || self.align.bytes() > LOOK_AHEAD_BYTES {
            let behind: Vec<usize> = self.align.waits_for().collect();
            let behind = behind
                .into_iter()
                .filter(|&lane| !self.lanes[lane].has_ended);
            let behind: Vec<usize> = behind.collect();
            if behind.is_empty() {
                return Ok(());
            }
            for lane in behind {
                self.look_ahead_on(lane, file)?;
            }
        }
        Ok(())
    }

    fn look_ahead_on(&mut self, number: usize, file: &dyn Source) -> anyhow::Result<()> {
        let lane = &mut self.lanes[number];
        let last = lane.last;
        let ahead = match &mut lane.ahead {
            Some(ahead) => ahead,
            none => {
                let start = last.map_or(self.range.start, |(time, _)| time);
                let query = Query {
                    range: TimeRange::new(start, Stamp::MAX),
                    topics: Topics::named([self.join.with[number].as_str()]),
                };
                none.insert(Ahead {
                    batches: file.read(&query)?,
                    batch: Batch::default(),
                    next: 0,
                })
            }
        };
        loop {
            let Some(message) = ahead.batch.get(ahead.next) else {
                if let Some(batch) = ahead.batches.next() {
                    ahead.batch = batch?;
                    ahead.next = 0;
                    continue;
                }
                lane.has_ended = true;
                self.align.end(number, &mut |row| self.rows.push(row));
                return Ok(());
            };
            ahead.next += 1;
            if last.is_some_and(|last| (message.log_time, message.order) <= last) {
                continue;
            }
            lane.last = Some((message.log_time, message.order));
            let item: Message = message.to_message().detached();
            let batch: Batch = [item.clone()].into_iter().collect();
            let at = batch.get(0).and_then(|message| self.time_of(message));
            if let Some(at) = at {
                let item = Arc::new(item);
                self.align
                    .add_ahead(number, at, item, &mut |row| self.rows.push(row));
            }
            return Ok(());
        }
    }

    fn write(&mut self, sink: &mut JoinedWriter) -> anyhow::Result<()> {
        Ok((self.rows.drain(..)).try_for_each(|row| sink.write(&row))?)
    }

    fn finish(&mut self, sink: &mut JoinedWriter) -> anyhow::Result<()> {
        self.align.finish(&mut |row| self.rows.push(row));
        self.write(sink)
    }
}

fn new_align(join: &Join, lateness: Duration, growth: Growth) -> Align<Item> {
    let rules = vec![join.rule(); join.with.len()];
    let weigh = |item: &Item| (item.payload.len() + size_of::<Message>() + 64) as u64;
    let align = Align::new(rules, MOST_WAITING)
        .with_lateness(lateness)
        .with_max_bytes(MOST_BYTES, weigh);
    match growth {
        Growth::Finished => align,
        Growth::Growing => align.with_max_wait(MOST_WAIT.max(lateness * 2)),
    }
}

/// The time to join by, with a note.
fn choose(join: &Join, file: &dyn Source, samples: &Batch, screen: &Screen) -> anyhow::Result<On> {
    if join.on == Some(On::LogTime) {
        return Ok(On::LogTime);
    }
    let topics = join.with.iter().chain([&join.anchor]);
    let without = topic_without_stamp(file, samples, topics.map(String::as_str));
    match (join.on, without) {
        (None, None) => {
            screen.note("joined on the stamps in the messages; --on log_time joins on log times");
            Ok(On::Stamp)
        }
        (None, Some(topic)) => {
            screen.note(format_args!(
                "joined on log times: messages on {} have no stamp",
                shown(topic)
            ));
            Ok(On::LogTime)
        }
        (_, Some(topic)) => Err(Usage::error(format!(
            "messages on '{topic}' have no stamp; join on log times: --on log_time"
        ))),
        (_, None) => Ok(On::Stamp),
    }
}
