//! The contract of [`Source`] as a test suite (feature `testing`).
//!
//! [`violations`] checks everything that the trait promises and returns a sentence for each broken promise.
//! [`assert_source`] panics with them. [`growing_violations`] and [`assert_growing`] do the same for a source that
//! grows while it is followed. Every source of asof passes them. Run them on yours:
//!
//! ```
//! # use std::sync::Arc;
//! # use asof_core::{Batch, Batches, Query, Source, SourceError, Stamp, Summary, Topics};
//! struct Empty(Arc<Summary>);
//!
//! impl Source for Empty {
//!     fn summary(&self) -> Arc<Summary> {
//!         Arc::clone(&self.0)
//!     }
//!
//!     fn read(&self, _: &Query) -> Result<Batches, SourceError> {
//!         Ok(Box::new(std::iter::empty()))
//!     }
//!
//!     fn latest_at(&self, _: &Topics, _: Stamp) -> Result<Batch, SourceError> {
//!         Ok(Batch::default())
//!     }
//! }
//!
//! let empty = Empty(Arc::new(Summary::empty("none")));
//! asof_core::testing::assert_source(&empty, "nothing at all");
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{
    Batch, Follow, FollowEnd, Followed, Message, Query, SectionEntry, Source, Stamp, TimeRange,
    Topics,
};

/// How long a test waits for what has to happen, on however busy a machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until a condition holds: a test neither sleeps for a time nor asserts one.
///
/// # Panics
/// If it does not hold after two minutes.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How much longer than 16 times as long 16 times the work may take: what is quadratic takes 256 times as long.
const MARGIN: u32 = 5;
/// Shorter times say nothing.
const LEAST: Duration = Duration::from_millis(20);

/// Asserts that work grows with its input, not with the square of it: does it at one size, and at 16 times that.
/// The two times, each the better of two, are compared with a wide margin, so a busy machine changes nothing.
///
/// # Panics
/// If it grows much faster.
#[track_caller]
pub fn assert_linear<T: Clone>(what: &str, make: impl Fn(usize) -> T, work: impl Fn(T)) {
    let time = |scale: usize| {
        let input = make(scale);
        let once = || {
            let input = input.clone();
            let start = Instant::now();
            work(input);
            start.elapsed()
        };
        once().min(once())
    };
    let small = time(1).max(LEAST);
    let large = time(16);
    assert!(
        large <= small * 16 * MARGIN,
        "{what}: {small:?}, then {large:?} for 16 times as much"
    );
}

/// Numbers that look random and are the same in every run (SplitMix64), for tests that damage files.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than the limit; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// A message with its position in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    order: u64,
    message: Message,
}

/// How long a growing source may be silent before the check fails.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// A topic that no recording has.
const UNKNOWN: &str = "/asof/testing/there is no such topic";

/// Reports that a test skips something, and why. Printed even for a test that passes, whose output is captured.
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write;
    // Not `eprintln!`: the test harness captures that.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Panics with every promise that `source` breaks.
///
/// The source must not change meanwhile: a growing one is checked against what it holds now. Everything is read into
/// memory, several times.
///
/// # Panics
/// When a promise is broken.
pub fn assert_source(source: &dyn Source, name: &str) {
    let broken = violations(source);
    assert!(broken.is_empty(), "{name}: {}", broken.join("\n  and "));
}

/// Panics with every promise that a growing source breaks; see [`growing_violations`].
///
/// # Panics
/// When a promise is broken.
pub fn assert_growing(source: &dyn Source, name: &str, grow: &mut dyn FnMut() -> Vec<Message>) {
    let broken = growing_violations(source, grow);
    assert!(broken.is_empty(), "{name}: {}", broken.join("\n  and "));
}

/// The promises that a source breaks, one sentence each; empty if it keeps them all.
pub fn violations(source: &dyn Source) -> Vec<String> {
    let mut suite = Suite {
        source,
        broken: Vec::new(),
    };
    let Some(all) = suite.read(&Query::all()) else {
        return suite.broken;
    };
    suite.order(&all);
    suite.summary(&all);
    suite.index(&all);
    suite.file_order(&all);
    suite.topics(&all);
    suite.times(&all);
    suite.latest(&all);
    suite.readers(&all);
    suite.follower(&all);
    suite.followers_of_a_part(&all);
    suite.broken
}

/// The promises that a growing source breaks, one sentence each.
///
/// `grow` adds at least one message to the source and returns what it added, with the log times that the source gives
/// them; it is called a few times. The source must not change between the calls.
pub fn growing_violations(
    source: &dyn Source,
    grow: &mut dyn FnMut() -> Vec<Message>,
) -> Vec<String> {
    let mut broken = violations(source);
    let mut say = |text: String| broken.push(text);
    if !source.growth().is_growing() {
        say("a growing source reports that it is finished".to_owned());
    }
    let followed = source.follow(&Query::all()).and_then(|mut follower| {
        let before = drain(&mut *follower, 0)?;
        Ok((follower, before))
    });
    let (mut follower, before) = match followed {
        Ok(followed) => followed,
        Err(error) => {
            say(format!("it cannot be followed: {error}"));
            return broken;
        }
    };
    // Asked before anything arrived: the empty answer must not be cached.
    let _ = source.latest_at(&Topics::All, Stamp::MAX);
    let mut held: Vec<Message> = before.messages;
    for round in 1..=3 {
        let added = grow();
        let came = match drain(&mut *follower, added.len()) {
            Ok(came) => came,
            Err(error) => {
                say(format!("following it failed in round {round}: {error}"));
                return broken;
            }
        };
        if let Some(end) = came.end {
            say(format!("it ended in round {round}: {end:?}"));
            return broken;
        }
        if sorted(&came.messages) != sorted(&added) {
            say(format!(
                "{} messages were added in round {round}, and {} different ones were returned",
                added.len(),
                came.messages.len()
            ));
        }
        held.extend(added.iter().cloned());
        let read = Suite {
            source,
            broken: Vec::new(),
        }
        .read(&Query::all())
        .unwrap_or_default();
        let is_there = |message: &&Message| read.iter().any(|one| one.message == **message);
        let missing = added.iter().filter(|one| !is_there(one)).count();
        if missing > 0 {
            say(format!(
                "{missing} messages that a follower returned cannot be read"
            ));
        }
        for message in &added {
            let topics = Topics::named([&message.channel.topic]);
            let known = source.latest_at(&topics, Stamp::MAX);
            let newest = known
                .ok()
                .and_then(|batch| batch.get(0).map(|m| m.log_time));
            if newest < Some(message.log_time) {
                let topic = &message.channel.topic;
                say(format!("latest_at lacks the newest message of {topic}"));
            }
        }
        if source.summary().range.end < added.iter().map(|m| m.log_time).max().unwrap_or_default() {
            say("the range of its summary does not grow with it".to_owned());
        }
    }
    // A follower that starts later gets everything that is held, in order.
    match source
        .follow(&Query::all())
        .and_then(|mut late| drain(&mut *late, 0))
    {
        Ok(late) => {
            let held = sorted(&held);
            let unknown = late.messages.iter().filter(|one| !held.contains(one));
            if unknown.count() > 0 {
                say("a later follower returns messages that never came".to_owned());
            }
            if !late.messages.is_sorted_by_key(|one| one.log_time) {
                say("a later follower returns messages out of order".to_owned());
            }
        }
        Err(error) => say(format!("it cannot be followed again: {error}")),
    }
    broken
}

struct Suite<'a> {
    source: &'a dyn Source,
    broken: Vec<String>,
}

impl Suite<'_> {
    fn say(&mut self, text: impl Into<String>) {
        self.broken.push(text.into());
    }

    /// Everything that matches. Faults of single batches are reported.
    fn read(&mut self, query: &Query) -> Option<Vec<Position>> {
        let batches = match self.source.read(query) {
            Ok(batches) => batches,
            Err(error) => {
                self.say(format!("it cannot be read: {error}"));
                return None;
            }
        };
        let mut all = Vec::new();
        for batch in batches {
            match batch {
                Ok(batch) => {
                    if batch.is_empty() {
                        self.say("a batch is empty");
                    }
                    all.extend(placed(&batch));
                }
                Err(error) => {
                    self.say(format!("reading failed: {error}"));
                    return None;
                }
            }
        }
        let is_asked =
            |one: &Position| query.matches(&one.message.channel.topic, one.message.log_time);
        if !all.iter().all(is_asked) {
            self.say(format!("a message does not match {query:?}"));
        }
        Some(all)
    }

    fn order(&mut self, all: &[Position]) {
        if !all.is_sorted_by_key(key) {
            self.say("messages are not in order of log time, then position");
        }
        if !all.windows(2).all(|two| key(&two[0]) != key(&two[1])) {
            self.say("two messages have the same time and order");
        }
    }

    fn summary(&mut self, all: &[Position]) {
        let summary = self.source.summary();
        let range = match (all.first(), all.last()) {
            (Some(first), Some(last)) => {
                TimeRange::new(first.message.log_time, last.message.log_time)
            }
            _ => TimeRange::EMPTY,
        };
        // The summary of a damaged file may claim more than can be read.
        let is_whole = summary.problems.is_empty();
        if is_whole && summary.range != range && !(summary.range.is_empty() && range.is_empty()) {
            self.say(format!(
                "its summary spans {:?}, its messages {range:?}",
                summary.range
            ));
        }
        if let Some(messages) = summary.messages.filter(|_| is_whole)
            && messages != all.len() as u64
        {
            let read = all.len();
            self.say(format!(
                "its summary counts {messages} messages, {read} can be read"
            ));
        }
        let topics = summary.topics();
        if let Some(one) = all
            .iter()
            .find(|one| !topics.contains(&one.message.channel.topic.as_str()))
        {
            let topic = &one.message.channel.topic;
            self.say(format!("its summary does not list {topic}"));
        }
    }

    /// What the index says without reading is what reading finds.
    fn index(&mut self, all: &[Position]) {
        let (source, summary) = (self.source, self.source.summary());
        if !Arc::ptr_eq(&summary, &source.summary()) {
            self.say("its summary is made again although nothing changed");
        }
        // The index of a damaged file may claim more than can be read.
        let is_whole = summary.problems.is_empty() && !source.growth().is_growing();
        let Some(index) = source.index().filter(|_| is_whole) else {
            return;
        };
        let mut times: BTreeMap<&str, Vec<Stamp>> = BTreeMap::from([(UNKNOWN, Vec::new())]);
        for one in all {
            let topic = times.entry(&one.message.channel.topic).or_default();
            topic.push(one.message.log_time);
        }
        let sections = index.sections();
        let holds = |section: &SectionEntry, topic: &str, at: &Stamp| {
            let channels = section.channels.as_ref();
            let has = channels.is_none_or(|all| all.iter().any(|one| one.topic == topic));
            has && section.range.contains(*at)
        };
        for (topic, times) in &times {
            let is_held = |at: &Stamp| sections.iter().any(|one| holds(one, topic, at));
            if !sections.is_empty() && !times.iter().all(is_held) {
                self.say(format!("a message of {topic} is in none of its sections"));
            }
        }
        let ranges = moments(all).into_iter().step_by(4).flat_map(|at| {
            let short = TimeRange::new(at, at.plus_nanos(1_000_000));
            [short, (..=at).into(), TimeRange::EMPTY]
        });
        for range in ranges.chain([TimeRange::ALL]) {
            let within = |times: &[Stamp]| -> Vec<Stamp> {
                let times = times.iter().copied();
                times.filter(|at| range.contains(*at)).collect()
            };
            for (topic, times) in &times {
                match index.log_times(topic, range) {
                    Ok(Some(found)) if found != within(times) => self.say(format!(
                        "the index has other log times of {topic} in {range:?} than its messages"
                    )),
                    Ok(_) => {}
                    Err(error) => self.say(format!("log times of {topic}: {error}")),
                }
            }
            for grain in [1, 1_000_000_000, u64::MAX] {
                let portions = match index.outline(range, grain) {
                    Ok(portions) => portions,
                    Err(error) => return self.say(format!("its outline: {error}")),
                };
                let Some(portions) = portions else { continue };
                if !portions.iter().all(|one| one.range.overlaps(range)) {
                    self.say(format!("its outline of {range:?} has more than that"));
                }
                let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
                for one in &portions {
                    *counts.entry(&one.channel.topic).or_default() += one.messages;
                }
                let count = |topic: &str| counts.get(topic).copied().unwrap_or(0);
                let is_wrong = times.iter().any(|(topic, times)| {
                    let (least, most) = (within(times).len() as u64, times.len() as u64);
                    !(least..=most).contains(&count(topic))
                });
                if is_wrong || counts.keys().any(|topic| !times.contains_key(topic)) {
                    self.say(format!(
                        "its outline of {range:?} does not count its messages"
                    ));
                }
            }
        }
    }

    /// The order of the file has the same messages.
    fn file_order(&mut self, all: &[Position]) {
        let middle = all.get(all.len() / 2).map(|one| &one.message);
        let mut queries = vec![Query::all(), Query::topics([UNKNOWN])];
        queries.extend(
            middle.map(|one| Query::topics([one.channel.topic.as_str()]).between(..=one.log_time)),
        );
        for query in queries {
            let batches = self.source.read_in_file_order(&query);
            let found = batches.and_then(|batches| {
                let batches: Vec<Batch> = batches.collect::<Result<_, _>>()?;
                Ok(batches.iter().flat_map(placed).collect::<Vec<_>>())
            });
            let Ok(found) = found.map_err(|error| self.say(format!("in file order: {error}")))
            else {
                continue;
            };
            let plain = |one: &Position| one.message.clone();
            let matches = |one: &Message| query.matches(&one.channel.topic, one.log_time);
            let found: Vec<Message> = found.iter().map(plain).collect();
            let wanted: Vec<Message> = all.iter().map(plain).filter(matches).collect();
            if sorted(&found) != sorted(&wanted) {
                self.say(format!(
                    "{query:?} has other messages in the order of the file"
                ));
            }
        }
    }

    fn topics(&mut self, all: &[Position]) {
        let mut topics: Vec<&str> = all
            .iter()
            .map(|one| one.message.channel.topic.as_str())
            .collect();
        topics.sort_unstable();
        topics.dedup();
        for topic in &topics {
            let wanted = all
                .iter()
                .filter(|one| one.message.channel.topic == **topic);
            let wanted: Vec<Position> = wanted.cloned().collect();
            // A duplicate name and an unknown one change nothing.
            let query = Query::topics([*topic, UNKNOWN, *topic]);
            if self.read(&query).is_some_and(|found| found != wanted) {
                self.say(format!(
                    "{topic} alone is not what it is among all messages"
                ));
            }
        }
        if self
            .read(&Query::topics([UNKNOWN]))
            .is_some_and(|found| !found.is_empty())
        {
            self.say("a topic that does not exist has messages");
        }
        if self
            .read(&Query::topics(Vec::<String>::new()))
            .is_some_and(|found| !found.is_empty())
        {
            self.say("no topics at all have messages");
        }
    }

    fn times(&mut self, all: &[Position]) {
        let mut ranges = vec![TimeRange::EMPTY, TimeRange::new(Stamp::MAX, Stamp::MIN)];
        for at in moments(all) {
            ranges.push((..=at).into());
            ranges.push(TimeRange::new(at, at));
            ranges.push(TimeRange::new(at, Stamp::MAX));
            ranges.push(TimeRange::new(at.plus_nanos(1), at.plus_nanos(1_000_000)));
        }
        for range in ranges {
            let wanted = all
                .iter()
                .filter(|one| range.contains(one.message.log_time));
            let wanted: Vec<Position> = wanted.cloned().collect();
            let query = Query::all().between(range);
            if self.read(&query).is_some_and(|found| found != wanted) {
                self.say(format!("{range:?} is not what it is among all messages"));
            }
        }
    }

    fn latest(&mut self, all: &[Position]) {
        let mut moments = moments(all);
        moments.extend([Stamp::MIN, Stamp::MAX]);
        if let Some(first) = all.first() {
            moments.push(first.message.log_time.plus_nanos(-1));
        }
        let some = all
            .iter()
            .step_by(3)
            .take(5)
            .map(|one| one.message.channel.topic.clone())
            .chain([UNKNOWN.to_owned()]);
        let some = Topics::named(some);
        for at in moments {
            for topics in [Topics::All, some.clone(), Topics::none()] {
                self.latest_at(all, &topics, at);
            }
        }
    }

    fn latest_at(&mut self, all: &[Position], topics: &Topics, at: Stamp) {
        let found = match self.source.latest_at(topics, at) {
            Ok(found) => placed(&found),
            Err(error) => {
                self.say(format!("latest_at {at} failed: {error}"));
                return;
            }
        };
        if !found.is_sorted_by_key(key) {
            self.say(format!("latest_at {at} is not in order of time"));
        }
        let mut known: BTreeMap<&str, &Position> = BTreeMap::new();
        for one in &found {
            if known.insert(&one.message.channel.topic, one).is_some() {
                self.say(format!(
                    "latest_at {at} has two messages of {}",
                    one.message.channel.topic
                ));
            }
        }
        let mut wanted: BTreeMap<&str, &Position> = BTreeMap::new();
        for one in all {
            if one.message.log_time <= at && topics.contains(&one.message.channel.topic) {
                wanted.insert(&one.message.channel.topic, one);
            }
        }
        // A store of recent messages may keep the last message of a topic longer than it can be read.
        let start = all.first().map_or(Stamp::MAX, |one| one.message.log_time);
        if self.source.growth().is_growing() {
            known.retain(|topic, one| wanted.contains_key(topic) || one.message.log_time > start);
        }
        if known != wanted {
            self.say(format!(
                "latest_at {at} of {} topics is not what a look at all messages gives",
                wanted.len()
            ));
        }
    }

    /// Two readers, one of which stops half way, do not disturb each other.
    fn readers(&mut self, all: &[Position]) {
        let (Ok(mut one), Ok(two)) = (
            self.source.read(&Query::all()),
            self.source.read(&Query::all()),
        ) else {
            self.say("two readers cannot read at once");
            return;
        };
        let mut seen = Vec::new();
        for batch in two {
            let _ = one.next();
            seen.extend(batch.iter().flat_map(placed));
        }
        drop(one);
        if seen != all {
            self.say("two readers at once do not read the same");
        }
    }

    /// A follower gets exactly what can be read.
    fn follower(&mut self, all: &[Position]) {
        let followed = self.source.follow(&Query::all());
        let mut follower = match followed {
            Ok(follower) => follower,
            Err(error) => {
                self.say(format!("it cannot be followed: {error}"));
                return;
            }
        };
        let held = match drain(&mut *follower, 0) {
            Ok(held) => held,
            Err(error) => {
                self.say(format!("following it failed: {error}"));
                return;
            }
        };
        if !held.messages.iter().eq(all.iter().map(|one| &one.message)) {
            self.say("a follower does not return what can be read");
        }
        if self.source.growth().is_growing() {
            if held.end.is_some() {
                self.say("it grows, but its follower has ended");
            }
            return;
        }
        if held.end != Some(FollowEnd::Complete) {
            self.say("the follower of a finished source does not end as complete");
        }
        let again = follower.next(Instant::now());
        if !matches!(again, Ok(Followed::End(_))) {
            self.say("a follower goes on after its end");
        }
    }

    /// A follower of a topic, or of a range, gets that part of what can be read.
    fn followers_of_a_part(&mut self, all: &[Position]) {
        let (Some(first), Some(middle)) = (all.first(), all.get(all.len() / 2)) else {
            return;
        };
        let until = TimeRange::new(Stamp::MIN, middle.message.log_time);
        let queries = [
            Query::topics([middle.message.channel.topic.as_str(), UNKNOWN]),
            Query::all().between(until),
            Query::topics([first.message.channel.topic.as_str()]).between(until),
            Query::topics([UNKNOWN]),
        ];
        for query in queries {
            let followed = self
                .source
                .follow(&query)
                .and_then(|mut follower| drain(&mut *follower, 0));
            let wanted = all
                .iter()
                .map(|one| &one.message)
                .filter(|one| query.matches(&one.channel.topic, one.log_time));
            match followed {
                Ok(held) if held.messages.iter().eq(wanted) => {}
                Ok(_) => self.say(format!(
                    "a follower of {query:?} does not return what can be read"
                )),
                Err(error) => self.say(format!("following {query:?} failed: {error}")),
            }
        }
    }
}

/// What a follower returned.
struct Arrivals {
    messages: Vec<Message>,
    end: Option<FollowEnd>,
}

/// Takes what is there; waits patiently until `at_least` messages have come.
fn drain(follower: &mut dyn Follow, at_least: usize) -> Result<Arrivals, crate::SourceError> {
    let patience = Instant::now() + SILENCE_TIMEOUT;
    let mut messages = Vec::new();
    loop {
        let deadline = if messages.len() < at_least {
            patience
        } else {
            Instant::now()
        };
        match follower.next(deadline)? {
            Followed::Batch(batch) => messages.extend(batch.iter().map(|one| one.to_message())),
            Followed::Restarted => {}
            Followed::CaughtUp => {
                return Ok(Arrivals {
                    messages,
                    end: None,
                });
            }
            Followed::End(end) => {
                return Ok(Arrivals {
                    messages,
                    end: Some(end),
                });
            }
        }
    }
}

fn placed(batch: &Batch) -> Vec<Position> {
    let one = |message: crate::MessageRef<'_>| Position {
        order: message.order,
        message: message.to_message(),
    };
    batch.iter().map(one).collect()
}

fn key(one: &Position) -> (Stamp, u64) {
    (one.message.log_time, one.order)
}

/// Messages in an arbitrary fixed order, to be compared as a set.
fn sorted(messages: &[Message]) -> Vec<Message> {
    let mut sorted = messages.to_vec();
    sorted.sort_by(|a, b| {
        let key = |one: &Message| (one.log_time, one.publish_time, one.sequence);
        let topics = a.channel.topic.cmp(&b.channel.topic);
        key(a)
            .cmp(&key(b))
            .then(topics)
            .then(a.payload.cmp(&b.payload))
    });
    sorted
}

/// Instants in a recording: of messages, between them, and where several share one.
fn moments(all: &[Position]) -> Vec<Stamp> {
    let mut moments = Vec::new();
    for part in 0..=8 {
        let at = all.len().saturating_sub(1) * part / 8;
        if let Some(one) = all.get(at) {
            moments.push(one.message.log_time);
            moments.push(one.message.log_time.plus_nanos(1));
        }
    }
    let tie = all
        .windows(2)
        .find(|two| two[0].message.log_time == two[1].message.log_time);
    moments.extend(tie.map(|two| two[0].message.log_time));
    moments.dedup();
    moments
}
