//! A player over sources that grow.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::{
    Batch, Batches, Channel, ChannelSummary, Follow, FollowEnd, Followed, Growth, Query, Row,
    Source, SourceError, Stamp, Summary, TimeRange, Topics,
};
use asof_player::{PlayState, Player, PlayerEvent, Speed};

const MS: i64 = 1_000_000;

/// Something that is being recorded: messages arrive, in whatever order of time, and the oldest may leave.
#[derive(Clone)]
struct Growing(Arc<Inner>);

struct Inner {
    channels: Arc<[Arc<Channel>]>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Topic and time, in the order of arrival: the number is the place.
    arrived: Vec<(u32, i64)>,
    /// So many of the first have left.
    gone: usize,
    end: Option<FollowEnd>,
    /// The clock was set back when so many had arrived.
    restarts: Vec<usize>,
}

impl Growing {
    fn new(topics: usize) -> Self {
        let channel = |number| {
            Arc::new(Channel {
                topic: format!("/t{number}"),
                ..Channel::default()
            })
        };
        Growing(Arc::new(Inner {
            channels: (0..topics).map(channel).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.state.lock().expect("state"));
        self.0.changed.notify_all();
    }

    fn arrive(&self, messages: &[(u32, i64)]) {
        self.change(|state| {
            state
                .arrived
                .extend(messages.iter().map(|&(t, at)| (t, at * MS)));
        });
    }

    fn leave(&self, count: usize) {
        self.change(|state| state.gone += count);
    }

    fn row(order: usize, (channel, time): (u32, i64)) -> Row {
        Row {
            log_time: time.into(),
            publish_time: time.into(),
            order: order as u64,
            offset: 0,
            len: 8,
            sequence: order as u32,
            channel,
            buffer: 0,
        }
    }

    fn rows(&self, query: &Query, from: usize) -> Vec<Row> {
        let state = self.0.state.lock().expect("state");
        let held = state.arrived.iter().enumerate().skip(from.max(state.gone));
        held.map(|(order, &message)| Growing::row(order, message))
            .filter(|row| query.matches(&self.0.channels[row.channel as usize].topic, row.log_time))
            .collect()
    }

    fn batch(&self, rows: Vec<Row>) -> Batch {
        Batch::new(
            Arc::clone(&self.0.channels),
            vec![vec![0u8; 8].into()],
            rows,
        )
    }
}

impl Source for Growing {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = Summary::empty("growing");
        for row in self.rows(&Query::all(), 0) {
            summary.range = summary.range.cover_stamp(row.log_time);
        }
        let channels = self.0.channels.iter().map(Arc::clone);
        summary.channels = channels
            .map(|channel| ChannelSummary {
                channel,
                messages: None,
            })
            .collect();
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let rows = self.rows(query, 0);
        let batch = (!rows.is_empty()).then(|| Ok(self.batch(rows)));
        Ok(Box::new(batch.into_iter()))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let query = Query {
            topics: topics.clone(),
            range: TimeRange::new(Stamp::MIN, at),
        };
        let mut rows = self.rows(&query, 0);
        rows.sort_by_key(|row| (row.log_time, row.order));
        let last: BTreeMap<u32, Row> = rows.into_iter().map(|row| (row.channel, row)).collect();
        Ok(self.batch(last.into_values().collect()))
    }

    fn growth(&self) -> Growth {
        match self.0.state.lock().expect("state").end {
            None => Growth::Growing,
            Some(_) => Growth::Finished,
        }
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        Ok(Box::new(Follower {
            source: self.clone(),
            query: query.clone(),
            next: None,
            held: Vec::new(),
            missed: BTreeMap::new(),
        }))
    }
}

struct Follower {
    source: Growing,
    query: Query,
    /// The place of the next arrival; `None` before what was held is handed out.
    next: Option<usize>,
    /// What was held at first, in order, the last first.
    held: Vec<Row>,
    missed: BTreeMap<String, u64>,
}

impl Follow for Follower {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        let source = self.source.clone();
        if self.next.is_none() {
            self.held = source.rows(&self.query, 0);
            self.held.sort_by_key(|row| (row.log_time, row.order));
            self.held.reverse();
            self.next = Some(source.0.state.lock().expect("state").arrived.len());
        }
        // Three at a time, as far as they have not left meanwhile.
        let gone = source.0.state.lock().expect("state").gone;
        let mut rows = Vec::new();
        while rows.len() < 3
            && let Some(row) = self.held.pop()
        {
            if (row.order as usize) < gone {
                *self.missed.entry(topic(&row)).or_default() += 1;
            } else {
                rows.push(row);
            }
        }
        if !rows.is_empty() {
            return Ok(Followed::Batch(source.batch(rows)));
        }
        let mut state = source.0.state.lock().expect("state");
        loop {
            let next = self.next.unwrap_or(0);
            if state.restarts.first() == Some(&next) {
                state.restarts.remove(0);
                return Ok(Followed::Restarted);
            }
            let until = state.restarts.first().copied().unwrap_or(usize::MAX);
            let until = until.min(state.arrived.len());
            let mut rows = Vec::new();
            for place in next..until {
                let row = Growing::row(place, state.arrived[place]);
                let name = topic(&row);
                if !self.query.matches(&name, row.log_time) {
                    continue;
                }
                if place < state.gone {
                    *self.missed.entry(name).or_default() += 1;
                } else {
                    rows.push(row);
                }
            }
            self.next = Some(until.max(next));
            if !rows.is_empty() {
                return Ok(Followed::Batch(source.batch(rows)));
            }
            if let Some(end) = &state.end {
                return Ok(Followed::End(end.clone()));
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(Followed::CaughtUp);
            };
            state = source.0.changed.wait_timeout(state, left).expect("waits").0;
        }
    }

    fn missed(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.missed)
    }
}

fn topic(row: &Row) -> String {
    format!("/t{}", row.channel)
}

/// A player and its clock.
struct Desk {
    player: Player,
    start: Instant,
    now: Duration,
    seen: Vec<u64>,
    lookups: Vec<Vec<u64>>,
    skipped: Vec<(TimeRange, u64)>,
    restarts: usize,
    over: Vec<FollowEnd>,
}

impl Desk {
    fn new(source: &Growing, topics: Topics) -> Self {
        let cache = BlockCache::new(source.clone(), CacheOptions::default());
        Desk {
            player: Player::new(&cache, topics).expect("a thread"),
            start: Instant::now(),
            now: Duration::ZERO,
            seen: Vec::new(),
            lookups: Vec::new(),
            skipped: Vec::new(),
            restarts: 0,
            over: Vec::new(),
        }
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..=milliseconds / 50 {
            assert!(self.player.wait_ready(Duration::from_mins(2)), "stuck");
            for event in self.player.tick(self.start + self.now) {
                match event {
                    PlayerEvent::Messages(batch) => {
                        self.seen.extend(batch.iter().map(|message| message.order));
                    }
                    PlayerEvent::Latest(_, batch) => {
                        self.lookups
                            .push(batch.iter().map(|message| message.order).collect());
                    }
                    PlayerEvent::Skipped { range, missed } => {
                        self.skipped.push((range, missed.values().sum()));
                    }
                    PlayerEvent::Restarted => self.restarts += 1,
                    PlayerEvent::Over(end) => self.over.push(end),
                    PlayerEvent::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            }
            self.now += Duration::from_millis(50);
        }
    }
}

fn tenths(range: std::ops::Range<i64>) -> Vec<(u32, i64)> {
    range.map(|tenth| (0, tenth * 100)).collect()
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn it_plays_what_is_held_catches_up_and_follows_each_message_once() {
    let source = Growing::new(1);
    source.arrive(&tenths(0..10));
    let mut desk = Desk::new(&source, Topics::All);
    desk.pass(50);
    assert!(desk.seen.is_empty(), "it is paused at first");
    desk.player.play();
    desk.pass(300);
    assert_eq!(desk.player.state(), PlayState::Playing);
    // More comes while it plays, another one with the last stamp among it.
    source.arrive(&[(0, 900), (0, 1_000)]);
    desk.pass(1_200);
    assert_eq!(desk.player.state(), PlayState::Following);
    assert_eq!(desk.seen, numbers(0..12));
    // At the end messages come at once, whatever their stamps, and late ones too.
    source.arrive(&[(0, 1_000), (0, 60_000), (0, 59_000)]);
    desk.pass(50);
    assert_eq!(desk.seen[..13], numbers(0..13));
    assert_eq!(
        desk.seen[13..],
        [14, 13],
        "in order within what came together"
    );
    assert_eq!(desk.player.position(), (60_000 * MS).into());
}

#[test]
fn a_pause_leaves_it_behind_and_playing_faster_catches_up_again() {
    let source = Growing::new(1);
    source.arrive(&tenths(0..3));
    let mut desk = Desk::new(&source, Topics::All);
    desk.player.play();
    desk.pass(500);
    assert_eq!(desk.player.state(), PlayState::Following);
    desk.player.pause();
    source.arrive(&tenths(3..40));
    desk.pass(100);
    assert_eq!(desk.seen, numbers(0..3));
    desk.player.play();
    desk.pass(500);
    assert_eq!(desk.player.state(), PlayState::Playing, "it is behind");
    assert!(desk.seen.len() < 12, "{:?}", desk.seen);
    desk.player.set_speed(Speed::Times(10.0));
    desk.pass(500);
    assert_eq!(desk.player.state(), PlayState::Following);
    assert_eq!(desk.seen, numbers(0..40));
}

#[test]
fn going_to_the_end_tells_what_is_known_and_then_what_comes() {
    let source = Growing::new(2);
    source.arrive(&[(0, 0), (1, 100), (0, 200)]);
    let mut desk = Desk::new(&source, Topics::All);
    desk.player.follow();
    assert_eq!(desk.player.state(), PlayState::Following);
    desk.pass(50);
    assert_eq!(desk.lookups, [vec![1, 2]]);
    // One with the stamp of the last, one that is new.
    source.arrive(&[(1, 200), (0, 300)]);
    desk.pass(50);
    assert_eq!(desk.seen, [3, 4]);
    desk.player.seek(Stamp::from_nanos(100 * MS));
    assert_eq!(desk.player.state(), PlayState::Playing);
    desk.pass(1_000);
    assert_eq!(desk.lookups.last(), Some(&vec![0, 1]));
    assert_eq!(desk.seen, [3, 4, 2, 3, 4]);
}

#[test]
fn topics_that_are_added_while_it_follows_cost_no_message_of_the_others() {
    let source = Growing::new(2);
    source.arrive(&[(0, 0), (1, 10)]);
    let mut desk = Desk::new(&source, Topics::named(["/t0"]));
    desk.player.follow();
    desk.pass(50);
    for round in 0..10 {
        source.arrive(&[(0, 100 + round * 10), (1, 105 + round * 10)]);
        let topics = if round % 2 == 0 {
            Topics::named(["/t0", "/t1"])
        } else {
            Topics::named(["/t0"])
        };
        desk.player.set_topics(topics);
        desk.pass(50);
    }
    let of_first: Vec<u64> = desk.seen.iter().copied().filter(|o| o % 2 == 0).collect();
    assert_eq!(of_first, (1..=10).map(|n| n * 2).collect::<Vec<u64>>());
}

#[test]
fn time_passes_at_the_end_although_nothing_comes_on_its_topics() {
    let source = Growing::new(2);
    source.arrive(&[(0, 0)]);
    let mut desk = Desk::new(&source, Topics::named(["/t0"]));
    desk.player.follow();
    desk.pass(50);
    source.arrive(&[(1, 5_000)]);
    desk.pass(150);
    let behind = Stamp::from_nanos(5_000 * MS).since(desk.player.position());
    assert!((0..=1).contains(&behind), "{behind}");
    // And yet a message of its own with that very stamp is not passed over.
    desk.player.pause();
    source.arrive(&[(0, 5_000)]);
    desk.player.play();
    desk.pass(100);
    assert_eq!(desk.seen, [2]);
}

#[test]
fn what_has_left_before_it_was_played_is_skipped_and_told() {
    let source = Growing::new(1);
    source.arrive(&tenths(0..1_000));
    let mut desk = Desk::new(&source, Topics::All);
    desk.player.play();
    desk.pass(200);
    desk.player.pause();
    desk.pass(50);
    source.leave(900);
    desk.player.play();
    desk.pass(30_000);
    let missed: u64 = desk.skipped.iter().map(|(_, missed)| missed).sum();
    assert_eq!(desk.seen.len() as u64 + missed, 1_000);
    assert!(missed > 0 && desk.skipped.len() == 1, "{:?}", desk.skipped);
    let (range, _) = desk.skipped[0];
    assert_eq!(range.end, Stamp::from_nanos(90_000 * MS - 1));
    assert_eq!(*desk.seen.last().expect("some"), 999);
    assert_eq!(desk.player.state(), PlayState::Following);
}

#[test]
fn a_clock_that_is_set_back_is_told_and_followed() {
    let source = Growing::new(1);
    source.arrive(&tenths(100..103));
    let mut desk = Desk::new(&source, Topics::All);
    desk.player.follow();
    desk.pass(50);
    source.change(|state| {
        state.restarts.push(3);
        state.gone = 3;
    });
    source.arrive(&[(0, 0), (0, 100)]);
    desk.pass(100);
    assert_eq!((desk.restarts, desk.seen.clone()), (1, vec![3, 4]));
    assert_eq!(desk.player.position(), (100 * MS).into());
}

#[test]
fn the_end_of_a_source_is_told_after_its_last_message() {
    let ends = [
        FollowEnd::Complete,
        FollowEnd::Closed,
        FollowEnd::Lost("the robot is gone".into()),
    ];
    for end in ends {
        let source = Growing::new(1);
        source.arrive(&tenths(0..3));
        let mut desk = Desk::new(&source, Topics::All);
        desk.player.play();
        desk.pass(400);
        source.arrive(&[(0, 400)]);
        source.change(|state| state.end = Some(end.clone()));
        desk.pass(200);
        assert_eq!(desk.seen, numbers(0..4));
        assert_eq!(desk.over, [end]);
        assert_eq!(desk.player.state(), PlayState::Ended);
        // It can be played once more, from memory or not.
        desk.player.play();
        desk.pass(1_000);
        assert_eq!(desk.seen[4..], numbers(0..4));
        assert_eq!(desk.player.state(), PlayState::Ended);
    }
}

#[test]
fn a_source_without_any_message_is_followed_from_its_first_one_on() {
    let source = Growing::new(1);
    let mut desk = Desk::new(&source, Topics::All);
    desk.player.play();
    desk.pass(100);
    assert_eq!(desk.player.state(), PlayState::Following);
    source.arrive(&tenths(5..8));
    desk.pass(50);
    assert_eq!(desk.seen, numbers(0..3));
}
