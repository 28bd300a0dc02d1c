//! A player by a clock that the test holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::testing::eventually;
use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Query, Row, Source, SourceError, Stamp, Summary,
    TimeRange, Topics,
};
use asof_player::{PlayState, Player, PlayerEvent, Speed};

const MS: i64 = 1_000_000;

/// A recording whose reader can be held up.
#[derive(Clone)]
struct Tape {
    inner: Arc<Inner>,
    /// Bytes of a message.
    payload: usize,
}

struct Inner {
    channels: Arc<[Arc<Channel>]>,
    /// Topic and time, in order.
    messages: Mutex<Vec<(u32, i64)>>,
    /// Batches that may still be read.
    allowed: Mutex<usize>,
    changed: Condvar,
    fails: Mutex<bool>,
    fails_latest: Mutex<bool>,
}

impl Tape {
    fn new(topics: usize, messages: Vec<(u32, i64)>) -> Self {
        let channel = |number| {
            Arc::new(Channel {
                topic: format!("/t{number}"),
                ..Channel::default()
            })
        };
        let inner = Arc::new(Inner {
            channels: (0..topics).map(channel).collect(),
            messages: Mutex::new(messages),
            allowed: Mutex::new(usize::MAX),
            changed: Condvar::new(),
            fails: Mutex::new(false),
            fails_latest: Mutex::new(false),
        });
        Tape { inner, payload: 8 }
    }

    /// Ten messages a second on each of two topics, the second one a little later.
    fn regular(seconds: i64) -> Self {
        let messages = (0..seconds * 10).flat_map(|tenth| {
            let at = tenth * 100 * MS;
            [(0, at), (1, at + 10 * MS)]
        });
        Tape::new(2, messages.collect())
    }

    fn allow(&self, batches: usize) {
        *self.inner.allowed.lock().expect("allowed") = batches;
        self.inner.changed.notify_all();
    }

    fn allow_one_more(&self) {
        *self.inner.allowed.lock().expect("allowed") += 1;
        self.inner.changed.notify_all();
    }

    fn rows(&self, query: &Query) -> Vec<Row> {
        let messages = self.inner.messages.lock().expect("messages");
        let row = |(order, &(channel, time)): (usize, &(u32, i64))| Row {
            log_time: time.into(),
            publish_time: time.into(),
            order: order as u64,
            offset: 0,
            len: self.payload as u64,
            sequence: order as u32,
            channel,
            buffer: 0,
        };
        let is_asked = |row: &Row| {
            query.matches(
                &self.inner.channels[row.channel as usize].topic,
                row.log_time,
            )
        };
        messages
            .iter()
            .enumerate()
            .map(row)
            .filter(is_asked)
            .collect()
    }

    fn batch(&self, rows: Vec<Row>) -> Batch {
        Batch::new(
            Arc::clone(&self.inner.channels),
            vec![vec![0u8; self.payload].into()],
            rows,
        )
    }

    fn all(&self) -> Vec<u64> {
        self.rows(&Query::all())
            .iter()
            .map(|row| row.order)
            .collect()
    }
}

fn torn() -> SourceError {
    SourceError::Unreadable {
        place: "tape".into(),
        reason: "torn".into(),
    }
}

impl Source for Tape {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::empty("tape");
        for row in self.rows(&Query::all()) {
            summary.range = summary.range.cover_stamp(row.log_time);
        }
        let channels = self.inner.channels.iter().map(Arc::clone);
        summary.channels = channels
            .map(|channel| ChannelSummary {
                channel,
                messages: None,
            })
            .collect();
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let tape = self.clone();
        let mut rows = self.rows(query);
        Ok(Box::new(std::iter::from_fn(move || {
            if rows.is_empty() {
                return None;
            }
            if std::mem::take(&mut *tape.inner.fails.lock().expect("fails")) {
                rows.clear();
                return Some(Err(torn()));
            }
            let mut allowed = tape.inner.allowed.lock().expect("allowed");
            while *allowed == 0 {
                allowed = tape.inner.changed.wait(allowed).expect("allowed");
            }
            *allowed -= 1;
            let rest = rows.split_off(rows.len().min(4));
            let part = std::mem::replace(&mut rows, rest);
            Some(Ok(tape.batch(part)))
        })))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        if std::mem::take(&mut *self.inner.fails_latest.lock().expect("fails")) {
            return Err(torn());
        }
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(Stamp::MIN, at),
        };
        let mut last = BTreeMap::new();
        for row in self.rows(&query) {
            last.insert(row.channel, row);
        }
        Ok(self.batch(last.into_values().collect()))
    }
}

/// A player and its clock.
struct Desk {
    player: Player,
    start: Instant,
    now: Duration,
    /// The orders of the messages that came.
    seen: Vec<u64>,
    lookups: Vec<(i64, Vec<u64>)>,
    states: Vec<PlayState>,
    loops: usize,
    failures: usize,
}

fn orders(batch: &Batch) -> Vec<u64> {
    batch.iter().map(|message| message.order).collect()
}

impl Desk {
    fn new(cache: &BlockCache, topics: Topics) -> Self {
        Desk {
            player: Player::new(cache, topics).expect("a thread"),
            start: Instant::now(),
            now: Duration::ZERO,
            seen: Vec::new(),
            lookups: Vec::new(),
            states: Vec::new(),
            loops: 0,
            failures: 0,
        }
    }

    fn take(&mut self, events: Vec<PlayerEvent>) {
        for event in events {
            match event {
                PlayerEvent::Messages(batch) => self.seen.extend(orders(&batch)),
                PlayerEvent::Latest(at, batch) => {
                    self.lookups.push((at.nanos() / MS, orders(&batch)));
                }
                PlayerEvent::State(state) => self.states.push(state),
                PlayerEvent::Looped(pass) => {
                    self.loops += 1;
                    assert_eq!(pass, self.loops as u64);
                }
                PlayerEvent::Failed(_) => self.failures += 1,
                _ => {}
            }
        }
    }

    /// Lets the thread come to rest, and time pass, in ticks of 20 ms.
    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..=milliseconds / 20 {
            self.settle();
            let events = self.player.tick(self.start + self.now);
            self.take(events);
            self.now += Duration::from_millis(20);
        }
    }

    fn settle(&self) {
        assert!(
            self.player.wait_ready(Duration::from_mins(2)),
            "the reader is stuck"
        );
    }
}

fn cache(tape: &Tape) -> BlockCache {
    BlockCache::new(tape.clone(), CacheOptions::default())
}

#[test]
fn messages_come_when_they_are_due_and_all_of_them() {
    let tape = Tape::regular(5);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.pass(200);
    assert!(desk.seen.is_empty(), "it is paused at first");
    desk.player.play();
    desk.pass(1_000);
    assert_eq!(desk.seen, tape.all()[..20]);
    desk.pass(6_000);
    assert_eq!(desk.seen, tape.all());
    assert_eq!(desk.states, [PlayState::Playing, PlayState::Ended]);
}

#[test]
fn pausing_stops_and_playing_goes_on_without_a_jump() {
    let tape = Tape::regular(5);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.play();
    desk.pass(500);
    desk.player.pause();
    let before = desk.seen.len();
    desk.pass(2_000);
    assert_eq!(desk.seen.len(), before);
    desk.player.play();
    desk.pass(500);
    assert!(
        (before + 8..=before + 12).contains(&desk.seen.len()),
        "{}",
        desk.seen.len()
    );
    desk.pass(6_000);
    assert_eq!(desk.seen, tape.all());
}

#[test]
fn speed_is_held_within_bounds_and_scales_time() {
    let tape = Tape::regular(20);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.set_speed(Speed::Times(1_000.0));
    assert_eq!(desk.player.speed(), Speed::Times(10.0));
    desk.player.play();
    desk.pass(1_000);
    assert!(
        (195..=210).contains(&desk.seen.len()),
        "{}",
        desk.seen.len()
    );
    desk.player.set_speed(Speed::Times(0.0));
    assert_eq!(desk.player.speed(), Speed::Times(0.1));
    let before = desk.seen.len();
    desk.pass(2_000);
    assert!((before + 2..=before + 6).contains(&desk.seen.len()));
}

#[test]
fn as_fast_as_possible_skips_nothing() {
    let tape = Tape::regular(60);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.set_speed(Speed::Unlimited);
    desk.player.play();
    desk.pass(400);
    assert_eq!(desk.seen, tape.all());
}

#[test]
fn a_seek_says_what_was_known_and_goes_on_behind_it() {
    let tape = Tape::regular(10);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.play();
    desk.pass(300);
    desk.seen.clear();
    desk.player.seek((5_000 * MS + 5 * MS).into());
    desk.pass(400);
    // As of 5.005 s: the first topic's message at 5.0 s and the second one's at 4.91 s.
    assert_eq!(desk.lookups, [(5_005, vec![99, 100])]);
    assert_eq!(desk.seen[..4], [101, 102, 103, 104]);
    desk.pass(10_000);
    assert_eq!(desk.seen, tape.all()[101..]);
}

#[test]
fn what_is_at_the_time_of_a_seek_before_it_is_played_after_it_also_at_the_start_and_again() {
    let tape = Tape::regular(10);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.seek_before((5_000 * MS).into());
    desk.player.play();
    desk.pass(10_000);
    assert_eq!(desk.lookups, [(4_999, vec![98, 99])]);
    assert_eq!(desk.seen, tape.all()[100..]);
    assert_eq!(desk.player.state(), PlayState::Ended);
    for start in [0, -1_000] {
        desk.seen.clear();
        desk.lookups.clear();
        desk.player.seek_before((start * MS).into());
        assert_eq!(desk.player.state(), PlayState::Paused);
        desk.player.play();
        desk.pass(12_000);
        assert_eq!(desk.seen, tape.all(), "from {start}");
        assert!(desk.lookups.is_empty(), "{:?}", desk.lookups);
    }
}

#[test]
fn a_seek_outside_of_the_recording_is_held_within_it() {
    let tape = Tape::regular(2);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.seek((-50_000 * MS).into());
    desk.pass(100);
    desk.player.seek((50_000 * MS).into());
    desk.pass(100);
    assert_eq!(desk.lookups, [(0, vec![0]), (1_910, vec![38, 39])]);
}

#[test]
fn what_was_known_is_told_of_every_topic_however_fast_they_are_added() {
    let tape = Tape::regular(5);
    let mut desk = Desk::new(&cache(&tape), Topics::named(["/none"]));
    desk.player.seek((2_000 * MS).into());
    desk.pass(100);
    desk.lookups.clear();
    // The second comes before the answer for the first.
    desk.player.set_topics(Topics::named(["/none", "/t0"]));
    desk.player
        .set_topics(Topics::named(["/none", "/t0", "/t1"]));
    desk.pass(100);
    let told: usize = desk.lookups.iter().map(|(_, orders)| orders.len()).sum();
    assert_eq!(told, 2, "{:?}", desk.lookups);
}

#[test]
fn a_topic_added_while_playing_comes_with_what_was_known_of_it() {
    let tape = Tape::regular(5);
    let mut desk = Desk::new(&cache(&tape), Topics::named(["/t0"]));
    desk.player.play();
    desk.pass(1_040);
    let position = desk.player.position().nanos() / MS;
    desk.player.set_topics(Topics::All);
    desk.pass(5_000);
    let added = desk.lookups[0].clone();
    assert_eq!((added.0, added.1.len()), (position, 1));
    let first = desk
        .seen
        .iter()
        .position(|order| order % 2 == 1)
        .expect("the new topic");
    // Nothing of the new topic is missing between its latest message and its first one.
    assert_eq!(desk.seen[first], added.1[0] + 2);
    let of_first: Vec<u64> = desk
        .seen
        .iter()
        .copied()
        .filter(|order| order % 2 == 0)
        .collect();
    assert_eq!(of_first, (0..50).map(|n| n * 2).collect::<Vec<u64>>());
}

#[test]
fn at_the_end_it_loops_if_it_is_to() {
    let tape = Tape::regular(3);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.set_loop(true);
    desk.player.play();
    desk.pass(9_500);
    assert!(desk.loops >= 3, "{}", desk.loops);
    assert_eq!(desk.player.passes(), desk.loops as u64);
    assert_eq!(desk.seen[..60], tape.all());
    assert_eq!(desk.seen[60..120], tape.all());
}

#[test]
fn a_short_recording_rests_at_its_end_before_it_starts_over() {
    // One message: without a rest it would come with every tick.
    let tape = Tape::new(1, vec![(0, 5 * MS)]);
    for speed in [Speed::Times(1.0), Speed::Unlimited] {
        let mut desk = Desk::new(&cache(&tape), Topics::All);
        desk.player.set_loop(true);
        desk.player.set_speed(speed);
        desk.player.play();
        desk.pass(10_000);
        assert!((4..=6).contains(&desk.seen.len()), "{}", desk.seen.len());
        // It can be stopped while it rests, and played on.
        desk.player.pause();
        let before = desk.seen.len();
        desk.pass(5_000);
        assert_eq!(desk.seen.len(), before);
        desk.player.play();
        desk.pass(2_500);
        assert!(desk.seen.len() > before);
    }
}

#[test]
fn a_seek_that_fails_while_paused_says_so_once_and_playing_tries_again() {
    let tape = Tape::regular(2);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    // Nothing is in memory yet that could answer.
    tape.allow(0);
    *tape.inner.fails_latest.lock().expect("fails") = true;
    desk.player.seek((1_050 * MS).into());
    eventually("the failure", || {
        let events = desk.player.tick(desk.start + desk.now);
        desk.take(events);
        desk.failures > 0
    });
    tape.allow(usize::MAX);
    desk.pass(200);
    assert_eq!((desk.failures, desk.lookups.len()), (1, 0));
    assert_eq!(desk.player.state(), PlayState::Paused);
    desk.player.play();
    desk.pass(4_000);
    // What was known is told after all, and then the rest.
    assert_eq!(desk.lookups, [(1_050, vec![20, 21])]);
    assert_eq!(desk.seen, tape.all()[22..]);
    assert_eq!(desk.failures, 1);
}

#[test]
fn a_seek_does_not_wait_for_a_read_that_is_stuck() {
    let tape = Tape::regular(60);
    let cache = cache(&tape);
    tape.allow(1);
    let mut desk = Desk::new(&cache, Topics::All);
    // The thread is stuck in the second batch, and nothing will ever come of it.
    eventually("the first batch", || {
        *tape.inner.allowed.lock().expect("allowed") == 0
    });
    desk.player.seek((30_000 * MS).into());
    eventually("what was known", || {
        let events = desk.player.tick(desk.start + desk.now);
        desk.take(events);
        !desk.lookups.is_empty()
    });
    assert_eq!(desk.lookups[0].0, 30_000);
    // Neither does its end wait.
    drop(desk);
    tape.allow(usize::MAX);
}

#[test]
fn a_slow_source_makes_it_buffer_and_it_goes_on_by_itself() {
    let tape = Tape::regular(4);
    let cache = cache(&tape);
    tape.allow(3);
    let mut desk = Desk::new(&cache, Topics::All);
    desk.player.play();
    // The source is stuck after three batches, so that the thread never comes to rest.
    for _ in 0..100 {
        let events = desk.player.tick(desk.start + desk.now);
        desk.take(events);
        desk.now += Duration::from_millis(20);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(desk.player.state(), PlayState::Buffering);
    assert!(desk.seen.len() <= 12, "{}", desk.seen.len());
    tape.allow(usize::MAX);
    desk.pass(6_000);
    assert_eq!(desk.seen, tape.all(), "nothing was skipped");
    assert_eq!(desk.player.state(), PlayState::Ended);
    assert!(desk.states.contains(&PlayState::Buffering));
}

#[test]
fn a_source_at_a_third_of_the_speed_is_waited_for_again_and_again_and_nothing_is_skipped() {
    let tape = Tape::regular(60);
    let cache = cache(&tape);
    tape.allow(0);
    let mut desk = Desk::new(&cache, Topics::All);
    desk.player.set_speed(Speed::Times(10.0));
    desk.player.play();
    // A tick plays 200 ms of the recording, and a batch has 200 ms of it.
    for tick in 0..100_000 {
        if tick % 3 == 0 {
            tape.allow_one_more();
        }
        let events = desk.player.tick(desk.start + desk.now);
        desk.take(events);
        if desk.player.state() == PlayState::Ended {
            break;
        }
        desk.now += Duration::from_millis(20);
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(desk.seen, tape.all(), "all of it, in order");
    assert_eq!(desk.player.state(), PlayState::Ended);
    let waits = desk
        .states
        .iter()
        .filter(|&&state| state == PlayState::Buffering);
    assert!(waits.count() >= 3, "{:?}", desk.states);
}

#[test]
fn stepping_forward_and_back_by_message_meets_every_one_even_of_one_stamp() {
    let times = [0, 10, 10, 10, 20].map(|ms| ms * MS);
    let messages = times
        .iter()
        .enumerate()
        .map(|(n, &time)| (n as u32 % 2, time));
    let tape = Tape::new(2, messages.collect());
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    for _ in 0..6 {
        let events = desk.player.step_forward().expect("steps");
        desk.take(events);
    }
    assert_eq!(desk.seen, [0, 1, 2, 3, 4]);
    for _ in 0..6 {
        let events = desk.player.step_back().expect("steps");
        desk.take(events);
    }
    let known: Vec<Vec<i64>> = desk
        .lookups
        .iter()
        .map(|(at, orders)| std::iter::once(*at).chain([orders.len() as i64]).collect())
        .collect();
    // Behind message 3, 2, 1, 0, and before all of them.
    assert_eq!(
        known,
        [[10, 2], [10, 2], [10, 2], [0, 1], [0, 0]].map(|k| k.to_vec())
    );
    desk.seen.clear();
    desk.player.play();
    desk.pass(200);
    assert_eq!(desk.seen, [0, 1, 2, 3, 4]);
}

#[test]
fn a_step_does_not_go_past_the_end() {
    let tape = Tape::regular(2);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    for _ in 0..3 {
        let events = desk.player.step_forward_by(Duration::from_hours(1));
        desk.take(events.expect("steps"));
        assert_eq!(desk.player.position(), (1_910 * MS).into());
    }
    assert_eq!(desk.seen, tape.all());
    desk.player.play();
    desk.pass(100);
    assert_eq!(desk.player.state(), PlayState::Ended);
}

#[test]
fn a_step_over_too_much_hands_out_what_is_known_after_it_and_says_what_it_skipped() {
    let mut tape = Tape::regular(100);
    tape.payload = 100_000;
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    let events = desk.player.step_forward_by(Duration::from_hours(1));
    let events = events.expect("steps");
    let bytes: u64 = events
        .iter()
        .map(|event| match event {
            PlayerEvent::Messages(batch) | PlayerEvent::Latest(_, batch) => batch.held_bytes(),
            _ => 0,
        })
        .sum();
    assert!(bytes < 9 << 20, "{bytes}");
    let skipped = events.iter().find_map(|event| match event {
        PlayerEvent::Skipped { range, .. } => Some(*range),
        _ => None,
    });
    let end = 99_910 * MS;
    assert_eq!(skipped, Some(TimeRange::new(0.into(), end.into())));
    desk.take(events);
    assert_eq!(desk.lookups, [(99_910, vec![1_998, 1_999])]);
    assert_eq!(desk.player.position(), end.into());
}

#[test]
fn stepping_by_time_goes_both_ways() {
    let tape = Tape::regular(5);
    let mut desk = Desk::new(&cache(&tape), Topics::All);
    desk.player.seek((1_000 * MS).into());
    desk.pass(60);
    let events = desk
        .player
        .step_forward_by(Duration::from_millis(250))
        .expect("steps");
    desk.take(events);
    assert_eq!(desk.seen, [21, 22, 23, 24, 25]);
    let events = desk
        .player
        .step_back_by(Duration::from_millis(200))
        .expect("steps");
    desk.take(events);
    assert_eq!(desk.lookups.last(), Some(&(1_050, vec![20, 21])));
}

#[test]
fn a_failure_pauses_and_playing_on_tries_again() {
    let tape = Tape::regular(2);
    *tape.inner.fails.lock().expect("fails") = true;
    let cold = cache(&tape);
    let mut desk = Desk::new(&cold, Topics::All);
    desk.player.play();
    desk.pass(500);
    assert_eq!(desk.failures, 1);
    assert_eq!(desk.player.state(), PlayState::Paused);
    desk.player.play();
    desk.pass(4_000);
    assert_eq!(desk.seen, tape.all());
}

#[test]
fn players_share_what_one_of_them_has_read() {
    let tape = Tape::regular(5);
    let cache = cache(&tape);
    let mut first = Desk::new(&cache, Topics::All);
    let mut second = Desk::new(&cache, Topics::All);
    for desk in [&mut first, &mut second] {
        desk.player.play();
        desk.pass(7_000);
        assert_eq!(desk.seen, tape.all());
    }
    assert_eq!(cache.stats().source_messages, 100);
}
