//! The player.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, HeadClass, HeadOptions, ReadHead};
use asof_core::{FollowEnd, Source, SourceError, Stamp, TimeRange, Topics};

use crate::cursor::Cursor;
use crate::event::{PlayState, PlayerEvent, Speed};
use crate::feed::{Feed, Request};
use crate::queue::Piece;
use crate::step::{self, Between};

/// Plays a source: hands out its messages in order, at the pace of a clock that the caller holds.
///
/// Nothing happens by itself: [`Player::tick`] is told the time and returns what has become due. A thread
/// reads ahead meanwhile. See the [crate's page](crate) for an example.
///
/// # Sources that grow
///
/// Over a [growing](asof_core::Growth::Growing) source it plays what is held, and when it has caught up with the end
/// it is [`Following`](PlayState::Following): it hands out messages as they come, each once, however it got there.
/// [`Player::follow`] goes to the end at once. A pause or a seek leaves it behind the end; it plays on from there, and
/// catches up where it plays faster than the source grows. What the source lets go of meanwhile is skipped, and told
/// by [`PlayerEvent::Skipped`]. When the source ends, [`PlayerEvent::Over`] says why.
#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
pub struct Player {
    cache: BlockCache,
    head: Arc<ReadHead>,
    feed: Feed,
    topics: Topics,
    speed: Speed,
    state: PlayState,
    is_looping: bool,
    /// What is being read may grow.
    grows: bool,
    /// The last message that was handed out, or where a seek went.
    cursor: Cursor,
    /// When the clock was last set, and where the recording stood then.
    anchor: Option<(Instant, Stamp)>,
    pending: Vec<PlayerEvent>,
    /// What was known of these has been asked for, and not told yet.
    owed: Vec<String>,
    /// That is all topics, after a seek.
    owes_all: bool,
    /// Reading has failed, and what has to be read has not been asked for again.
    has_failed: bool,
    /// How often it has started over.
    passes: u64,
    pass_began: Option<Instant>,
    /// At the end of a short recording it rests until then.
    rests_until: Option<Instant>,
}

/// While buffering, this much of playing has to be ready before it goes on.
const RESUME_AFTER: Duration = Duration::from_millis(300);
/// A player that is less than this behind the end of a growing source has caught up with it.
const CAUGHT_UP: Duration = Duration::from_millis(300);
/// A pass of a loop that was shorter than this is followed by a rest of this length: a recording of one message
/// would come as often as the machine can send it.
const REST: Duration = Duration::from_secs(2);

impl Player {
    /// A player for these topics, paused at the start of what the source holds. Players may share a cache.
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
            grows: false,
            cursor: Cursor::before(start),
            anchor: None,
            pending: Vec::new(),
            owed: Vec::new(),
            owes_all: false,
            has_failed: false,
            passes: 0,
            pass_began: None,
            rests_until: None,
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

    /// How often it has started over: the number of the pass that it plays.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Starts to play, or goes on. At the end it starts over; at the end of a source that grows it
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

    /// Stands still.
    pub fn pause(&mut self) {
        self.anchor = None;
        self.become_state(PlayState::Paused);
    }

    /// Goes to the end of what the source holds, and on with what comes. The next event is what is known by now.
    ///
    /// Over a source that does not grow, this is a seek to its end.
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

    /// Plays this fast from now on; held within 0.1 and 10.
    pub fn set_speed(&mut self, speed: Speed) {
        self.anchor = None;
        self.speed = match speed {
            Speed::Times(times) if times.is_nan() => Speed::Times(1.0),
            Speed::Times(times) => Speed::Times(times.clamp(0.1, 10.0)),
            Speed::Unlimited => Speed::Unlimited,
        };
    }

    /// Whether to start over at the end. After a pass of less than two seconds it rests for two seconds.
    pub fn set_loop(&mut self, is_looping: bool) {
        self.is_looping = is_looping;
    }

    /// Goes to `at`, held within the recording: the next events are what was known as of then, and then
    /// what comes after it.
    ///
    /// It does not wait for a read that is under way. Where what was known cannot be found out, the next event is
    /// [`PlayerEvent::Failed`], whatever the state.
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
        match self.state {
            PlayState::Ended => self.become_state(PlayState::Paused),
            PlayState::Following => self.become_state(PlayState::Playing),
            _ => {}
        }
    }

    /// Plays other topics from here on. Those that are new come with what was known of them.
    pub fn set_topics(&mut self, topics: Topics) {
        if self.state == PlayState::Following {
            // What has come is due: some of it may lie before the cursor, and would not be read again.
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

    /// Steps to the next message, and hands it out. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_forward(&mut self) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        if let Some(next) = step::next(&self.cache, &self.topics, self.cursor)? {
            self.stand_at(Cursor::after_last_of(&next));
            events.push(PlayerEvent::Messages(next));
        }
        Ok(events)
    }

    /// Steps back over the last message, and hands out what was known before it. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
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
        events.push(PlayerEvent::Backfill(cursor.time, known));
        Ok(events)
    }

    /// Steps over so much time, and hands out everything in it; not past the end. Pauses.
    ///
    /// Where that would be more than 8 MiB, it hands out what was known at the end of the step, as a seek does, and
    /// says what it [skipped](PlayerEvent::Skipped).
    ///
    /// # Errors
    /// When the source cannot be read.
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
                events.push(PlayerEvent::Backfill(end, known));
            }
        }
        self.stand_at(Cursor::after(end));
        Ok(events)
    }

    /// Steps back so much time, and hands out what was known then. Pauses.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn step_back_by(&mut self, time: Duration) -> Result<Vec<PlayerEvent>, SourceError> {
        self.pause();
        let mut events = std::mem::take(&mut self.pending);
        let start = start_of(&self.cache);
        let cursor = Cursor::after(self.cursor.time.plus_nanos(-nanos(time)).max(start));
        let known = step::known(&self.cache, &self.topics, cursor)?;
        self.stand_at(cursor);
        events.push(PlayerEvent::Backfill(cursor.time, known));
        Ok(events)
    }

    /// Everything that has become due by `now`. Call it as often as messages should come, and with times
    /// that do not go back.
    pub fn tick(&mut self, now: Instant) -> Vec<PlayerEvent> {
        self.feed.unstick();
        let mut events = std::mem::take(&mut self.pending);
        let told = self
            .feed
            .with(|ahead| (ahead.backfill.take(), ahead.backfill_error.take()));
        match told {
            (Some((at, backfill)), _) => {
                self.owed.clear();
                self.owes_all = false;
                events.push(PlayerEvent::Backfill(at, backfill));
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

    /// Waits until everything is read that should be for now, or for so long; `false` if it is not.
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

    /// Whether there is nothing left to play but what comes.
    fn has_caught_up(&self, target: Stamp, read: &ReadSoFar) -> bool {
        let speed = match self.speed {
            Speed::Times(times) => times,
            Speed::Unlimited => 1.0,
        };
        let near = (CAUGHT_UP.as_nanos() as f64 * speed) as i64;
        let left = self.feed.with(|ahead| ahead.queue.end());
        self.grows
            && read.is_whole
            && !read.is_finished
            && left.is_none_or(|end| end.since(target) < near)
    }

    /// Hands out everything that was there when it was called, and perhaps more.
    fn hand_out_all(&mut self, events: &mut Vec<PlayerEvent>) {
        for _ in 0..=self.feed.with(|ahead| ahead.queue.len()) {
            self.hand_out(Stamp::MAX, events);
        }
    }

    /// Hands out what lies at or before `until`, up to the next thing that is not a message.
    fn hand_out(&mut self, until: Stamp, events: &mut Vec<PlayerEvent>) {
        // How far was read is of the same moment: a batch that is put in the queue between two looks would be passed
        // over by the time that it reaches.
        let (due, through) = self
            .feed
            .with(|ahead| (ahead.take_due(until), ahead.through));
        for piece in due {
            match piece {
                Piece::Batch(batch) => {
                    let last = Cursor::after_last_of(&batch);
                    // What comes late does not take the player back.
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
        // Time passes where there is no message, too; but not past the end.
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
            if pass.is_none_or(|pass| pass < REST) {
                self.rests_until = Some(now + REST);
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

    /// Says that reading has failed, and waits to be told to try again.
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

    /// Tells the thread how far to read, by the source's bandwidth and the speed.
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

    /// Before the first message, as at the beginning.
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

    /// What was known of all topics is to be told.
    fn owe_all(&mut self) {
        self.anchor = None;
        self.owed = self.names(&self.topics);
        self.owes_all = true;
    }

    /// Reads from the cursor on. What is owed from before is asked for again: the answer to an earlier question is
    /// thrown away with the question.
    fn restart(&mut self) {
        self.head.set_position(self.cursor.time);
        self.has_failed = false;
        self.rests_until = None;
        self.grows = self.cache.growth().is_growing();
        self.feed.ask(Request {
            topics: self.topics.clone(),
            after: self.cursor,
            backfill: (!self.owed.is_empty())
                .then(|| (Topics::Named(self.owed.clone()), self.cursor.time)),
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

#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
struct ReadSoFar {
    through: Option<Stamp>,
    /// All that there is so far was read.
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
