//! The player.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, HeadClass, HeadOptions, ReadHead};
use asof_core::{FollowEnd, Source, SourceError, Stamp, TimeRange, Topics};

use crate::cursor::Cursor;
use crate::event::{PlayState, PlayerEvent, Speed};
use crate::feed::{Feed, Request};
use crate::queue::Piece;
use crate::step::{self, Between};

/// Plays a source: hands out its messages in order, at the pace of the caller's clock.
///
/// Nothing happens by itself: [`Player::tick`] takes the time and returns what has become due. A thread reads ahead.
/// The [crate's page](crate) has an example.
///
/// # Growing sources
///
/// Over a [growing](asof_core::Growth::Growing) source the player plays what the source holds. Once it reaches the end
/// it is [`Following`](PlayState::Following): it hands out messages as they arrive, each exactly once.
/// [`Player::follow`] goes to the end at once. After a pause or a seek it plays on from there, and catches up if it
/// plays faster than the source grows. Messages that the source drops in the meantime are skipped and reported by
/// [`PlayerEvent::Skipped`]. When the source ends, [`PlayerEvent::Over`] has the reason.
#[allow(clippy::struct_excessive_bools)] // Each is independent of the others.
pub struct Player {
    cache: BlockCache,
    head: Arc<ReadHead>,
    feed: Feed,
    topics: Topics,
    speed: Speed,
    state: PlayState,
    is_looping: bool,
    /// The source may grow.
    grows: bool,
    /// After the last message that was handed out, or where a seek went.
    cursor: Cursor,
    /// When the clock was last set, and the recorded time then.
    anchor: Option<(Instant, Stamp)>,
    pending: Vec<PlayerEvent>,
    /// Topics whose latest messages were requested and not handed out yet.
    owed: BTreeSet<String>,
    /// The latest messages of all topics are due, after a seek.
    owes_all: bool,
    /// Reading has failed and was not requested again.
    has_failed: bool,
    /// How often playback has started over.
    passes: u64,
    pass_began: Option<Instant>,
    /// Rests until then after a short pass of a loop.
    rests_until: Option<Instant>,
}

/// While buffering, this much playback time has to be ready before playback resumes.
const RESUME_AFTER: Duration = Duration::from_millis(300);
/// A player within this distance of the end of a growing source has caught up with it.
const CAUGHT_UP_WITHIN: Duration = Duration::from_millis(300);
/// A pass of a loop shorter than this is followed by a rest of this length. Otherwise a recording of one message would
/// be repeated as fast as the machine can send it.
const LOOP_REST: Duration = Duration::from_secs(2);

impl Player {
    /// Creates a player for these topics, paused at the start of the source. Players can share a cache.
    ///
    /// # Errors
    /// If no thread can be started.
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
            grows: false,
            cursor: Cursor::before(start),
            anchor: None,
            pending: Vec::new(),
            owed: BTreeSet::new(),
            owes_all: false,
            has_failed: false,
            passes: 0,
            pass_began: None,
            rests_until: None,
        };
        player.restart();
        Ok(player)
    }

    /// The current state.
    pub fn state(&self) -> PlayState {
        self.state
    }

    /// The playback speed.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The current position: everything before it has been handed out.
    pub fn position(&self) -> Stamp {
        self.cursor.time
    }

    /// The topics being played.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// How often playback has started over: the number of the current pass.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Starts or resumes playback. At the end it starts over; at the end of a growing source it
    /// [follows](PlayState::Following).
    pub fn play(&mut self) {
        if self.state == PlayState::Ended {
            self.rewind();
        }
        if matches!(self.state, PlayState::Paused | PlayState::Ended) {
            self.anchor = None;
            let has_failed = self.feed.with(|ahead| ahead.error.take()).is_some();
            if has_failed || self.has_failed {
                self.restart();
            }
            self.become_state(PlayState::Playing);
        }
    }

    /// Pauses playback.
    pub fn pause(&mut self) {
        self.anchor = None;
        self.become_state(PlayState::Paused);
    }

    /// Goes to the end of the source and continues with new messages. The next event is what is known at the end.
    ///
    /// For a source that does not grow, this is a seek to its end.
    pub fn follow(&mut self) {
        let range = self.cache.summary().range;
        if !range.is_empty() {
            self.cursor = Cursor::after(range.end);
        }
        self.owe_all();
        self.restart();
        if self.grows {
            self.become_state(PlayState::Following);
            self.look_further();
        }
    }

    /// Sets the playback speed, clamped to 0.1 to 10.
    pub fn set_speed(&mut self, speed: Speed) {
        self.anchor = None;
        self.speed = match speed {
            Speed::Times(times) if times.is_nan() => Speed::Times(1.0),
            Speed::Times(times) => Speed::Times(times.clamp(0.1, 10.0)),
            Speed::Unlimited => Speed::Unlimited,
        };
    }

    /// Sets whether to start over at the end. After a pass of less than two seconds the player rests for two seconds.
    pub fn set_loop(&mut self, is_looping: bool) {
        self.is_looping = is_looping;
    }

    /// Seeks to `at`, clamped to the recording. The next events are what was known as of then, then what comes after
    /// it.
    ///
    /// A seek does not wait for a read in progress. If what was known cannot be read, the next event is [`PlayerEvent::Failed`],
    /// whatever the state.
    pub fn seek(&mut self, at: Stamp) {
        let range = self.cache.summary().range;
        let at = if range.is_empty() {
            at
        } else {
            at.max(range.start).min(range.end)
        };
        self.cursor = Cursor::after(at);
        self.anchor = None;
        self.owe_all();
        self.restart();
        self.leave_the_end();
    }

    /// Seeks to just before `at`: the next events are what was known until then, if anything was, then what is at that time and
    /// after it.
    pub fn seek_before(&mut self, at: Stamp) {
        if at > start_of(&self.cache) {
            self.seek(at.plus_nanos(-1));
        } else {
            self.owed.clear();
            self.owes_all = false;
            self.rewind();
            self.leave_the_end();
        }
    }

    fn leave_the_end(&mut self) {
        match self.state {
            PlayState::Ended => self.become_state(PlayState::Paused),
            PlayState::Following => self.become_state(PlayState::Playing),
            _ => {}
        }
    }

    /// Plays other topics from here on. New topics come with their latest messages.
    pub fn set_topics(&mut self, topics: Topics) {
        if self.state == PlayState::Following {
            // Hand out what was read: some of it may be before the cursor and would not be read again.
            let mut events = Vec::new();
            self.hand_out_all(&mut events);
            self.pending.append(&mut events);
        }
        let added = self.added(&topics);
        self.head.set_topics(&topics);
        self.topics = topics;
        self.owed.retain(|name| self.topics.contains(name));
        self.owed.extend(added);
        self.restart();
    }

    /// Steps to the next message and hands it out. Pauses.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn step_forward(&mut self) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        if let Some(next) = step::next(&self.cache, &self.topics, self.cursor)? {
            self.stand_at(Cursor::after_last_of(&next));
            events.push(PlayerEvent::Messages(next));
        }
        Ok(events)
    }

    /// Steps back over the last message and hands out what was known before it. Pauses.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn step_back(&mut self) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let Some(current) = step::previous(&self.cache, &self.topics, self.cursor, true)? else {
            return Ok(events);
        };
        let current = Cursor::after_last_of(&current);
        let cursor = match step::previous(&self.cache, &self.topics, current, false)? {
            Some(previous) => Cursor::after_last_of(&previous),
            // Before the first message nothing was known.
            None => Cursor::before(current.time),
        };
        let known = step::known(&self.cache, &self.topics, cursor)?;
        self.stand_at(cursor);
        events.push(PlayerEvent::Latest(cursor.time, known));
        Ok(events)
    }

    /// Steps forward by `time` and hands out everything in between; not past the end. Pauses.
    ///
    /// If that is more than 8 MiB, it hands out what was known at the end of the step, like a seek, and reports what
    /// was [skipped](PlayerEvent::Skipped).
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn step_forward_by(&mut self, time: Duration) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let end = self.cursor.time.plus_nanos(nanos(time));
        let end = end.min(self.last_stamp()).max(self.cursor.time);
        match step::between(&self.cache, &self.topics, self.cursor, end)? {
            Between::All(batches) => events.extend(batches.into_iter().map(PlayerEvent::Messages)),
            Between::TooMuch => {
                let known = step::known(&self.cache, &self.topics, Cursor::after(end))?;
                events.push(PlayerEvent::Skipped {
                    range: TimeRange::new(self.cursor.next(), end),
                    missed: std::collections::BTreeMap::new(),
                });
                events.push(PlayerEvent::Latest(end, known));
            }
        }
        self.stand_at(Cursor::after(end));
        Ok(events)
    }

    /// Steps back by `time` and hands out what was known then. Pauses.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn step_back_by(&mut self, time: Duration) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let start = start_of(&self.cache);
        let cursor = Cursor::after(self.cursor.time.plus_nanos(-nanos(time)).max(start));
        let known = step::known(&self.cache, &self.topics, cursor)?;
        self.stand_at(cursor);
        events.push(PlayerEvent::Latest(cursor.time, known));
        Ok(events)
    }

    /// Returns everything that has become due by `now`. Call it as often as messages should come, with times that do
    /// not decrease.
    pub fn tick(&mut self, now: Instant) -> Vec<PlayerEvent> {
        self.feed.unstick();
        let mut events = std::mem::take(&mut self.pending);
        let told = self
            .feed
            .with(|ahead| (ahead.latest.take(), ahead.latest_error.take()));
        match told {
            (Some((at, latest)), _) => {
                self.owed.clear();
                self.owes_all = false;
                events.push(PlayerEvent::Latest(at, latest));
            }
            (None, Some(error)) => self.fail(error, &mut events),
            (None, None) => {}
        }
        self.look_further();
        if self.state.is_running() {
            self.advance(now, &mut events);
        }
        events.append(&mut self.pending);
        events
    }

    /// Waits until the read-ahead is complete for now; `false` after the timeout.
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        self.feed.wait_idle(timeout)
    }

    fn advance(&mut self, now: Instant, events: &mut Vec<PlayerEvent>) {
        if let Some(until) = self.rests_until {
            if now < until {
                return;
            }
            self.start_over(events);
        }
        let read = self.feed.with(|ahead| ReadSoFar {
            through: ahead.through,
            // Before the clock of the source was set back, everything was read.
            is_whole: ahead.is_caught_up || ahead.queue.has_restart(),
            is_finished: ahead.is_finished,
            is_full: !ahead.queue.has_room(),
            has_failed: ahead.error.is_some(),
        });
        if self.state == PlayState::Following {
            self.hand_out_all(events);
            if read.is_finished {
                self.finish(now, events);
            }
            return;
        }
        if self.state == PlayState::Buffering {
            if !self.is_enough(&read) {
                return;
            }
            self.anchor = None;
            self.become_state(PlayState::Playing);
        }
        self.pass_began.get_or_insert(now);
        let (since, from) = *self.anchor.get_or_insert((now, self.cursor.time));
        let target = match self.speed {
            Speed::Times(times) => {
                let passed = now.saturating_duration_since(since).as_nanos() as f64 * times;
                from.plus_nanos(passed as i64)
            }
            Speed::Unlimited => Stamp::MAX,
        };
        let ready = match read.through {
            _ if read.is_whole || read.is_finished && !read.has_failed => Stamp::MAX,
            Some(through) => through,
            None => self.cursor.time,
        };
        self.hand_out(target.min(ready), events);
        if self.has_caught_up(target, &read) {
            self.hand_out_all(events);
            self.anchor = None;
            self.become_state(PlayState::Following);
            return;
        }
        let is_played = if read.has_failed {
            target > ready
        } else {
            read.is_finished && target >= self.last_stamp()
        };
        if is_played {
            self.finish(now, events);
        } else if target > ready {
            if self.speed != Speed::Unlimited {
                self.become_state(PlayState::Buffering);
            }
            self.anchor = None;
        }
    }

    /// Whether there is nothing left to play but new messages.
    fn has_caught_up(&self, target: Stamp, read: &ReadSoFar) -> bool {
        let speed = match self.speed {
            Speed::Times(times) => times,
            Speed::Unlimited => 1.0,
        };
        let near = (CAUGHT_UP_WITHIN.as_nanos() as f64 * speed) as i64;
        let left = self.feed.with(|ahead| ahead.queue.end());
        self.grows
            && read.is_whole
            && !read.is_finished
            && left.is_none_or(|end| end.since(target) < near)
    }

    /// Hands out everything that was queued when it was called, and perhaps more.
    fn hand_out_all(&mut self, events: &mut Vec<PlayerEvent>) {
        for _ in 0..=self.feed.with(|ahead| ahead.queue.len()) {
            self.hand_out(Stamp::MAX, events);
        }
    }

    /// Hands out what is at or before `until`, up to the next piece that is not messages.
    fn hand_out(&mut self, until: Stamp, events: &mut Vec<PlayerEvent>) {
        // `through` is read under the same lock: the cursor would move past a batch that is queued in between.
        let (due, through) = self
            .feed
            .with(|ahead| (ahead.take_due(until), ahead.through));
        for piece in due {
            match piece {
                Piece::Batch(batch) => {
                    let last = Cursor::after_last_of(&batch);
                    // Late messages do not move the player back.
                    if last.time > self.cursor.time
                        || last.time == self.cursor.time && last.order > self.cursor.order
                    {
                        self.cursor = last;
                    }
                    events.push(PlayerEvent::Messages(batch));
                }
                Piece::Missed(missed) => {
                    let next = self.feed.with(|ahead| ahead.queue.start());
                    let from = self.cursor;
                    if let Some(next) = next.filter(|&next| next > from.time) {
                        // There is nothing to play until then.
                        self.cursor = Cursor::before(next);
                        self.anchor = None;
                    }
                    let range = TimeRange::new(from.next(), self.cursor.time);
                    events.push(PlayerEvent::Skipped { range, missed });
                    return;
                }
                Piece::Restarted => {
                    let start = start_of(&self.cache);
                    let next = self.feed.with(|ahead| {
                        ahead.skip = Cursor::START;
                        ahead.queue.start()
                    });
                    self.cursor = Cursor::before(next.unwrap_or(start));
                    self.anchor = None;
                    events.push(PlayerEvent::Restarted);
                    return;
                }
            }
        }
        // Time also passes where there is no message, but not past the end.
        let last = if self.grows {
            through.unwrap_or(self.cursor.time)
        } else {
            self.last_stamp()
        };
        let reached = until.min(last);
        if reached > self.cursor.time {
            self.cursor = Cursor::after(reached);
        }
        self.head.set_position(self.cursor.time);
    }

    fn finish(&mut self, now: Instant, events: &mut Vec<PlayerEvent>) {
        let (error, end) = self
            .feed
            .with(|ahead| (ahead.error.take(), ahead.end.take()));
        if let Some(error) = error {
            self.fail(error, events);
            return;
        }
        let is_complete = end.as_ref().is_none_or(|end| *end == FollowEnd::Complete);
        events.extend(end.map(PlayerEvent::Over));
        if self.is_looping && is_complete && !self.cache.summary().range.is_empty() {
            let pass = self
                .pass_began
                .map(|began| now.saturating_duration_since(began));
            if pass.is_none_or(|pass| pass < LOOP_REST) {
                self.rests_until = Some(now + LOOP_REST);
            } else {
                self.start_over(events);
            }
            return;
        }
        self.become_state(PlayState::Ended);
    }

    /// Begins another pass.
    fn start_over(&mut self, events: &mut Vec<PlayerEvent>) {
        self.rewind();
        if self.state == PlayState::Following {
            self.become_state(PlayState::Playing);
        }
        self.passes += 1;
        events.append(&mut self.pending);
        events.push(PlayerEvent::Looped(self.passes));
    }

    /// Reports that reading has failed and pauses until told to try again.
    fn fail(&mut self, error: SourceError, events: &mut Vec<PlayerEvent>) {
        self.anchor = None;
        self.has_failed = true;
        self.become_state(PlayState::Paused);
        events.append(&mut self.pending);
        events.push(PlayerEvent::Failed(error));
    }

    fn is_enough(&self, read: &ReadSoFar) -> bool {
        if read.is_finished || read.is_full || read.is_whole {
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

    /// Sets how far the thread reads, by the source's bandwidth and the speed.
    fn look_further(&mut self) {
        let position = self.cursor.time;
        let is_following = self.state == PlayState::Following;
        let speed = match self.speed {
            Speed::Times(times) => times,
            Speed::Unlimited => 10.0,
        };
        let look_ahead = self.feed.with(|ahead| {
            let nanos = ahead.pace.look_ahead(speed);
            ahead.wanted_through = if is_following {
                Stamp::MAX
            } else {
                position.plus_nanos(nanos)
            };
            nanos
        });
        let look_ahead = Duration::from_nanos(look_ahead.unsigned_abs());
        self.head.set_look_ahead(look_ahead);
    }

    /// Goes before the first message, as at the beginning.
    fn rewind(&mut self) {
        self.rests_until = None;
        self.pass_began = None;
        self.stand_at(Cursor::before(start_of(&self.cache)));
    }

    fn stand_at(&mut self, cursor: Cursor) {
        self.cursor = cursor;
        self.anchor = None;
        self.restart();
    }

    /// Records that the latest messages of all topics are due.
    fn owe_all(&mut self) {
        self.anchor = None;
        self.owed = self.names(&self.topics);
        self.owes_all = true;
    }

    /// Reads from the cursor on. Latest messages that are still due are requested again: the result of an earlier request is
    /// discarded with it.
    fn restart(&mut self) {
        self.head.set_position(self.cursor.time);
        self.has_failed = false;
        self.rests_until = None;
        self.grows = self.cache.growth().is_growing();
        self.feed.ask(Request {
            topics: self.topics.clone(),
            after: self.cursor,
            latest: (!self.owed.is_empty()).then(|| (Topics::named(&self.owed), self.cursor.time)),
            is_seek: self.owes_all && self.cursor.order.is_none(),
            grows: self.grows,
        });
        self.look_further();
    }

    fn last_stamp(&self) -> Stamp {
        let range = self.cache.summary().range;
        let queued = self.feed.with(|ahead| ahead.queue.end());
        let end = if range.is_empty() {
            self.cursor.time
        } else {
            range.end
        };
        end.max(queued.unwrap_or(end)).max(self.cursor.time)
    }

    fn names(&self, topics: &Topics) -> BTreeSet<String> {
        let summary = self.cache.summary();
        match topics {
            Topics::All => summary.topics().into_iter().map(str::to_owned).collect(),
            Topics::Named(names) => names.as_ref().clone(),
        }
    }

    fn added(&self, topics: &Topics) -> BTreeSet<String> {
        self.names(topics)
            .into_iter()
            .filter(|name| !self.topics.contains(name))
            .collect()
    }

    fn become_state(&mut self, state: PlayState) {
        if self.state != state {
            tracing::debug!(?state, "player");
            self.state = state;
            self.pending.push(PlayerEvent::State(state));
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

#[allow(clippy::struct_excessive_bools)] // Each is independent of the others.
struct ReadSoFar {
    through: Option<Stamp>,
    /// Everything so far was read.
    is_whole: bool,
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
