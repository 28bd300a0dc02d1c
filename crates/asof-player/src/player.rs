//! The player.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, HeadClass, HeadOptions, ReadHead};
use asof_core::{Batch, Query, Row, Source, SourceError, Stamp, TimeRange, Topics};

use crate::feed::{Feed, Request};
use crate::step;

/// Plays a recording: hands out its messages in order, at the pace of a clock that the caller holds.
///
/// Nothing happens by itself: [`Player::tick`] is told the time and returns what has become due. A thread
/// reads ahead meanwhile. See the [crate's page](crate) for an example.
pub struct Player {
    cache: BlockCache,
    head: Arc<ReadHead>,
    feed: Feed,
    topics: Topics,
    speed: Speed,
    state: PlayState,
    is_looping: bool,
    is_following: bool,
    /// The last message that was handed out, or where a seek went: nothing at or before it comes again.
    cursor: Cursor,
    /// When the clock was last set, and where the recording stood then.
    anchor: Option<(Instant, Stamp)>,
    pending: Vec<Event>,
    read_end: Stamp,
    /// What was known of these has been asked for, and not told yet.
    owed: Vec<String>,
}

/// How fast to play.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Times real time, from 0.1 to 10.
    Times(f64),
    /// As fast as the messages can be read.
    Unlimited,
}

/// What a player is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayState {
    /// It stands still.
    Paused,
    /// It plays.
    Playing,
    /// It would play, and waits for the source. It goes on by itself.
    Buffering,
    /// It has come to the end.
    Ended,
}

/// What a player has to say.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// These messages have become due.
    Messages(Batch),
    /// After a seek, or for topics that were added: what was known as of then.
    Backfill(Stamp, Batch),
    /// It does something else now.
    State(PlayState),
    /// It has come to the end and starts over.
    Looped,
    /// The source failed; it is paused, and can be played on to try again.
    Failed(SourceError),
}

/// A place between two messages: behind all that are at or before `time`, or, with an order, behind that
/// one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub time: Stamp,
    pub order: Option<u64>,
}

impl Cursor {
    /// Whether a row lies at or before this place.
    pub fn has_passed(&self, row: &Row) -> bool {
        match self.order {
            Some(order) => (row.log_time, row.order) <= (self.time, order),
            None => row.log_time <= self.time,
        }
    }
}

/// While buffering, this much of playing has to be ready before it goes on.
const RESUME_AFTER: Duration = Duration::from_millis(300);

impl Player {
    /// A player for these topics, paused at the start of the recording. Players may share a cache.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn new(cache: &BlockCache, topics: Topics) -> std::io::Result<Self> {
        let start = start_of(cache);
        let options = HeadOptions {
            class: HeadClass::Playback,
            position: start,
            ..HeadOptions::default()
        };
        let head = Arc::new(cache.head(&topics, options));
        let feed = Feed::start(cache.clone(), Arc::clone(&head))?;
        let mut player = Player {
            cache: cache.clone(),
            head,
            feed,
            topics,
            speed: Speed::Times(1.0),
            state: PlayState::Paused,
            is_looping: false,
            is_following: false,
            // Right before the first message.
            cursor: Cursor {
                time: start.plus_nanos(-1),
                order: None,
            },
            anchor: None,
            pending: Vec::new(),
            read_end: Stamp::MAX,
            owed: Vec::new(),
        };
        player.restart();
        Ok(player)
    }

    /// What it is doing.
    pub fn state(&self) -> PlayState {
        self.state
    }

    /// How fast it plays.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// Where it is: everything before has been handed out.
    pub fn position(&self) -> Stamp {
        self.cursor.time
    }

    /// The topics that it plays.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Starts to play, or goes on. At the end it starts over.
    pub fn play(&mut self) {
        if self.state == PlayState::Ended {
            self.rewind();
        }
        if matches!(self.state, PlayState::Paused | PlayState::Ended) {
            self.anchor = None;
            if self.feed.with(|ahead| ahead.error.take()).is_some() {
                self.restart();
            }
            self.become_state(PlayState::Playing);
        }
    }

    /// Stands still.
    pub fn pause(&mut self) {
        self.anchor = None;
        self.become_state(PlayState::Paused);
    }

    /// Plays this fast from now on; held within 0.1 and 10.
    pub fn set_speed(&mut self, speed: Speed) {
        self.anchor = None;
        self.speed = match speed {
            Speed::Times(times) if times.is_nan() => Speed::Times(1.0),
            Speed::Times(times) => Speed::Times(times.clamp(0.1, 10.0)),
            Speed::Unlimited => Speed::Unlimited,
        };
    }

    /// Whether to start over at the end.
    pub fn set_loop(&mut self, is_looping: bool) {
        self.is_looping = is_looping;
    }

    /// Whether to wait at the end for a recording that still grows.
    pub fn set_follow(&mut self, is_following: bool) {
        if self.is_following != is_following {
            self.is_following = is_following;
            self.restart();
        }
    }

    /// Goes to `at`, held within the recording: the next events are what was known as of then, and then
    /// what comes after it.
    pub fn seek(&mut self, at: Stamp) {
        let range = self.cache.summary().range;
        let at = if range.is_empty() {
            at
        } else {
            at.max(range.start).min(range.end)
        };
        self.cursor = Cursor {
            time: at,
            order: None,
        };
        self.anchor = None;
        self.owed = self.names(&self.topics);
        self.restart();
        if self.state == PlayState::Ended {
            self.become_state(PlayState::Paused);
        }
    }

    /// Plays other topics from here on. Those that are new come with what was known of them.
    pub fn set_topics(&mut self, topics: Topics) {
        let added = self.added(&topics);
        self.head.set_topics(&topics);
        self.topics = topics;
        self.owed.retain(|name| self.topics.contains(name));
        self.owed.extend(added);
        self.restart();
    }

    /// Steps to the next message, and hands it out. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_forward(&mut self) -> Result<Vec<Event>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        if let Some(next) = step::next(&self.cache, &self.topics, self.cursor)? {
            self.stand_at(step::cursor_of(&next));
            events.push(Event::Messages(next));
        }
        Ok(events)
    }

    /// Steps back over the last message, and hands out what was known before it. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_back(&mut self) -> Result<Vec<Event>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let Some(current) = step::previous(&self.cache, &self.topics, self.cursor, true)? else {
            return Ok(events);
        };
        let current = step::cursor_of(&current);
        let cursor = match step::previous(&self.cache, &self.topics, current, false)? {
            Some(previous) => step::cursor_of(&previous),
            // Before the first message nothing was known.
            None => Cursor {
                time: current.time.plus_nanos(-1),
                order: None,
            },
        };
        let known = step::known(&self.cache, &self.topics, cursor)?;
        self.stand_at(cursor);
        events.push(Event::Backfill(cursor.time, known));
        Ok(events)
    }

    /// Steps over so much time, and hands out everything in it. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_forward_by(&mut self, time: Duration) -> Result<Vec<Event>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let end = self.cursor.time.plus_nanos(nanos(time));
        for batch in step::between(&self.cache, &self.topics, self.cursor, end)? {
            events.push(Event::Messages(batch));
        }
        self.stand_at(Cursor {
            time: end,
            order: None,
        });
        Ok(events)
    }

    /// Steps back so much time, and hands out what was known then. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_back_by(&mut self, time: Duration) -> Result<Vec<Event>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let start = start_of(&self.cache);
        let cursor = Cursor {
            time: self.cursor.time.plus_nanos(-nanos(time)).max(start),
            order: None,
        };
        let known = step::known(&self.cache, &self.topics, cursor)?;
        self.stand_at(cursor);
        events.push(Event::Backfill(cursor.time, known));
        Ok(events)
    }

    /// Everything that has become due by `now`. Call it as often as messages should come, and with times
    /// that do not go back.
    pub fn tick(&mut self, now: Instant) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.pending);
        let (at, backfill) = self.feed.with(|ahead| ahead.backfill.take()).unzip();
        if let (Some(at), Some(backfill)) = (at, backfill) {
            self.owed.clear();
            events.push(Event::Backfill(at, backfill));
        }
        self.look_further();
        if matches!(self.state, PlayState::Playing | PlayState::Buffering) {
            self.advance(now, &mut events);
        }
        events.append(&mut self.pending);
        events
    }

    /// Waits until everything is read that should be for now, or for so long; `false` if it is not.
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        self.feed.wait_idle(timeout)
    }

    fn advance(&mut self, now: Instant, events: &mut Vec<Event>) {
        let read = self.feed.with(|ahead| ReadSoFar {
            through: ahead.through,
            is_finished: ahead.is_finished,
            is_full: !ahead.has_room(),
            has_failed: ahead.error.is_some(),
        });
        if self.state == PlayState::Buffering {
            if !self.is_enough(&read) {
                return;
            }
            self.anchor = None;
            self.become_state(PlayState::Playing);
        }
        let (since, from) = *self.anchor.get_or_insert((now, self.cursor.time));
        let target = match self.speed {
            Speed::Times(times) => {
                let passed = now.saturating_duration_since(since).as_nanos() as f64 * times;
                from.plus_nanos(passed as i64)
            }
            Speed::Unlimited => Stamp::MAX,
        };
        let ready = match (read.is_finished && !read.has_failed, read.through) {
            // What has been added to a recording that grows is still to be read.
            (true, _) => self.read_end,
            (false, Some(through)) => through,
            (false, None) => self.cursor.time,
        };
        self.hand_out(target.min(ready), events);
        let is_played = if read.has_failed {
            target > ready
        } else {
            read.is_finished && target >= self.read_end.min(self.last_stamp())
        };
        if is_played {
            self.finish(events);
        } else if target > ready {
            if self.speed != Speed::Unlimited {
                self.become_state(PlayState::Buffering);
            }
            self.anchor = None;
        }
    }

    /// Hands out what lies at or before `until`.
    fn hand_out(&mut self, until: Stamp, events: &mut Vec<Event>) {
        let cursor = self.cursor;
        let due = self.feed.with(|ahead| {
            let mut due = Vec::new();
            while let Some(first) = ahead.batches.front() {
                if first.range().start > until {
                    break;
                }
                let Some(batch) = ahead.batches.pop_front() else {
                    break;
                };
                let count = batch.rows().partition_point(|row| row.log_time <= until);
                if count < batch.len() {
                    ahead
                        .batches
                        .push_front(step::part(&batch, count..batch.len()));
                }
                due.push((batch, count));
            }
            due
        });
        for (batch, count) in due {
            let skipped = batch.rows().partition_point(|row| cursor.has_passed(row));
            let part = if skipped == 0 && count == batch.len() {
                batch
            } else {
                step::part(&batch, skipped..count.max(skipped))
            };
            if let Some(last) = part.rows().last() {
                self.cursor = Cursor {
                    time: last.log_time,
                    order: Some(last.order),
                };
                events.push(Event::Messages(part));
            }
        }
        // Time passes where there is no message, too; but not past the end.
        let reached = until.min(self.last_stamp());
        if reached > self.cursor.time {
            self.cursor = Cursor {
                time: reached,
                order: None,
            };
        }
        self.head.set_position(self.cursor.time);
    }

    fn finish(&mut self, events: &mut Vec<Event>) {
        if let Some(error) = self.feed.with(|ahead| ahead.error.take()) {
            self.become_state(PlayState::Paused);
            self.restart();
            events.append(&mut self.pending);
            events.push(Event::Failed(error));
            return;
        }
        if self.is_following {
            self.follow();
            return;
        }
        if self.is_looping && !self.cache.summary().range.is_empty() {
            self.rewind();
            self.anchor = None;
            events.push(Event::Looped);
            return;
        }
        self.become_state(PlayState::Ended);
    }

    /// Reads on where the recording has grown.
    fn follow(&mut self) {
        let end = self.cache.summary().range.end;
        if end > self.read_end {
            // More messages with the last stamp may have come: those that were handed out are skipped.
            let range = TimeRange::new(self.read_end, end);
            self.read_end = end;
            self.feed.extend(range, self.topics.clone());
        }
        self.anchor = None;
    }

    fn is_enough(&self, read: &ReadSoFar) -> bool {
        if read.is_finished || read.is_full {
            return true;
        }
        let Some(through) = read.through else {
            return false;
        };
        let needed = match self.speed {
            Speed::Times(times) => (RESUME_AFTER.as_nanos() as f64 * times) as i64,
            Speed::Unlimited => 0,
        };
        through.since(self.cursor.time) > needed
    }

    /// Tells the thread how far to read, by the source's bandwidth and the speed.
    fn look_further(&mut self) {
        let position = self.cursor.time;
        let speed = match self.speed {
            Speed::Times(times) => times,
            Speed::Unlimited => 10.0,
        };
        let look_ahead = self.feed.with(|ahead| {
            let nanos = ahead.pace.look_ahead(speed);
            ahead.wanted_through = position.plus_nanos(nanos);
            nanos
        });
        self.head.set_look_ahead(look_ahead);
    }

    /// Before the first message, as at the beginning.
    fn rewind(&mut self) {
        self.stand_at(Cursor {
            time: start_of(&self.cache).plus_nanos(-1),
            order: None,
        });
    }

    fn stand_at(&mut self, cursor: Cursor) {
        self.cursor = cursor;
        self.anchor = None;
        self.restart();
    }

    /// Reads from the cursor on. What is owed from before is asked for again: the answer to an earlier question is
    /// thrown away with the question.
    fn restart(&mut self) {
        self.head.set_position(self.cursor.time);
        let range = self.cache.summary().range;
        // A recording that is complete is read to the end of time: what its summary says about its end
        // may be wrong.
        self.read_end = if self.is_following {
            range.end
        } else {
            Stamp::MAX
        };
        let start = match self.cursor.order {
            // More messages may share the stamp.
            Some(_) => self.cursor.time,
            None => self.cursor.time.plus_nanos(1),
        };
        self.feed.ask(Request {
            topics: self.topics.clone(),
            range: TimeRange::new(start, self.read_end),
            backfill: (!self.owed.is_empty())
                .then(|| (Topics::Named(self.owed.clone()), self.cursor.time)),
        });
        self.look_further();
    }

    fn last_stamp(&self) -> Stamp {
        let range = self.cache.summary().range;
        let queued = self
            .feed
            .with(|ahead| ahead.batches.back().map(|batch| batch.range().end));
        let end = if range.is_empty() {
            self.cursor.time
        } else {
            range.end
        };
        end.max(queued.unwrap_or(end)).max(self.cursor.time)
    }

    fn names(&self, topics: &Topics) -> Vec<String> {
        let summary = self.cache.summary();
        match topics {
            Topics::All => summary.topics().into_iter().map(str::to_owned).collect(),
            Topics::Named(names) => names.clone(),
        }
    }

    fn added(&self, topics: &Topics) -> Vec<String> {
        self.names(topics)
            .into_iter()
            .filter(|name| !self.topics.contains(name))
            .collect()
    }

    fn become_state(&mut self, state: PlayState) {
        if self.state != state {
            tracing::debug!(?state, "player");
            self.state = state;
            self.pending.push(Event::State(state));
        }
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player")
            .field("state", &self.state)
            .field("position", &self.cursor.time)
            .field("speed", &self.speed)
            .finish_non_exhaustive()
    }
}

struct ReadSoFar {
    through: Option<Stamp>,
    is_finished: bool,
    is_full: bool,
    has_failed: bool,
}

fn start_of(cache: &BlockCache) -> Stamp {
    let range = cache.summary().range;
    if range.is_empty() {
        Stamp::EPOCH
    } else {
        range.start
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Everything of a query, for those who step.
pub(crate) fn query(topics: &Topics, range: TimeRange) -> Query {
    Query {
        topics: topics.clone(),
        range,
    }
}
