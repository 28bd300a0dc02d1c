//! The contract suite passes a source that keeps its promises, and finds each one that is broken.
#![cfg(feature = "testing")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use asof_core::testing::{growing_violations, violations};
use asof_core::{
    Batch, Batches, Channel, ChannelSummary, FileOrder, Follow, FollowEnd, Followed, Growth, Index,
    Message, Portion, Query, Row, SectionEntry, Source, SourceError, Stamp, Summary, TimeRange,
    Topics,
};

/// The ways in which a source can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    EmptyBatch,
    Unsorted,
    OneRepeated,
    EndLeftOut,
    TopicIgnored,
    UnknownTopicFound,
    TieTakesTheFirst,
    LatestAtIsLeftOut,
    LatestTwice,
    SummaryTooShort,
    SummaryCountsWrong,
    TopicNotListed,
    FollowSkipsTheLast,
    FollowNeverEnds,
    FollowIgnoresTheQuery,
    ReadersShareTheirPlace,
    SummaryMadeAgain,
    OutlineMiscounts,
    OutlineIgnoresTheRange,
    LogTimesOfAll,
    SectionsOfNothing,
    FileOrderLosesOne,
}

struct FaultySource {
    fault: Fault,
    messages: Mutex<Vec<Message>>,
    growth: Growth,
    shared_place: Arc<Mutex<usize>>,
    summary: Mutex<Arc<Summary>>,
}

impl FaultySource {
    fn new(fault: Fault, growth: Growth) -> Arc<Self> {
        let topics = ["/a", "/b", "/c"];
        let messages = (0..60).map(|n| message(topics[n % 3], (n / 2) as i64 * 10, n as u32));
        Arc::new(FaultySource {
            fault,
            messages: Mutex::new(messages.collect()),
            growth,
            shared_place: Arc::default(),
            summary: Mutex::new(Arc::new(Summary::empty("none"))),
        })
    }

    fn batch(messages: &[(usize, Message)]) -> Batch {
        let channels: Vec<_> = messages
            .iter()
            .map(|(_, one)| Arc::clone(&one.channel))
            .collect();
        let buffers = messages
            .iter()
            .map(|(_, one)| one.payload.clone())
            .collect();
        let row = |(at, (order, one)): (usize, &(usize, Message))| Row {
            log_time: one.log_time,
            publish_time: one.publish_time,
            order: *order as u64,
            offset: 0,
            len: one.payload.len() as u64,
            sequence: one.sequence,
            channel: at as u32,
            buffer: at as u32,
        };
        let rows = messages.iter().enumerate().map(row).collect();
        Batch::new(channels.into(), buffers, rows)
    }

    fn matching(&self, query: &Query) -> Vec<(usize, Message)> {
        let messages = self.messages.lock().expect("a lock");
        let is_in = |(_, one): &(usize, Message)| {
            let topic = &one.channel.topic;
            let has_topic = match self.fault {
                Fault::TopicIgnored => query.topics != Topics::none(),
                Fault::UnknownTopicFound => {
                    query.topics.contains(topic)
                        || matches!(&query.topics, Topics::Named(names) if names.len() == 1 && !names.contains(topic))
                }
                _ => query.topics.contains(topic),
            };
            let is_end = one.log_time == query.range.end && self.fault == Fault::EndLeftOut;
            has_topic && query.range.contains(one.log_time) && !is_end
        };
        let all = messages.iter().cloned().enumerate();
        all.filter(is_in).collect()
    }
}

impl Source for FaultySource {
    fn summary(&self) -> Arc<Summary> {
        let messages = self.messages.lock().expect("a lock");
        let mut counts: BTreeMap<String, (Arc<Channel>, u64)> = BTreeMap::new();
        for one in messages.iter() {
            let entry = counts.entry(one.channel.topic.clone());
            entry.or_insert((Arc::clone(&one.channel), 0)).1 += 1;
        }
        if self.fault == Fault::TopicNotListed {
            counts.remove("/b");
        }
        let first = messages.first().map_or(Stamp::MAX, |one| one.log_time);
        let last = messages.last().map_or(Stamp::MIN, |one| one.log_time);
        let short = i64::from(self.fault == Fault::SummaryTooShort);
        let wrong = u64::from(self.fault == Fault::SummaryCountsWrong);
        let made = Summary {
            range: TimeRange::new(first, last.plus_nanos(-short)),
            messages: Some(messages.len() as u64 + wrong),
            channels: counts
                .into_values()
                .map(|(channel, messages)| ChannelSummary {
                    channel,
                    messages: Some(messages),
                })
                .collect(),
            ..Summary::empty("held")
        };
        let mut summary = self.summary.lock().expect("a lock");
        if *summary.as_ref() != made || self.fault == Fault::SummaryMadeAgain {
            *summary = Arc::new(made);
        }
        Arc::clone(&summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        let found = self.matching(query);
        let mut batches: Vec<Batch> = found.chunks(7).map(FaultySource::batch).collect();
        match self.fault {
            Fault::EmptyBatch => batches.push(Batch::default()),
            Fault::Unsorted if batches.len() > 2 => batches.swap(0, 1),
            Fault::OneRepeated => {
                if let Some(last) = batches.last().cloned() {
                    batches.push(last);
                }
            }
            Fault::ReadersShareTheirPlace => {
                let place = Arc::clone(&self.shared_place);
                *place.lock().expect("a lock") = 0;
                return Ok(Box::new(std::iter::from_fn(move || {
                    let mut place = place.lock().expect("a lock");
                    *place += 1;
                    batches.get(*place - 1).cloned().map(Ok)
                })));
            }
            _ => {}
        }
        Ok(Box::new(batches.into_iter().map(Ok)))
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        let at = match self.fault {
            Fault::LatestAtIsLeftOut => at.plus_nanos(-1),
            _ => at,
        };
        let query = Query {
            topics: topics.clone(),
            range: (..=at).into(),
        };
        let mut known: BTreeMap<String, (usize, Message)> = BTreeMap::new();
        for (order, one) in self.matching(&query) {
            let topic = one.channel.topic.clone();
            let is_tie = known
                .get(&topic)
                .is_some_and(|(_, known)| known.log_time == one.log_time);
            if !(is_tie && self.fault == Fault::TieTakesTheFirst) {
                known.insert(topic, (order, one));
            }
        }
        let mut found: Vec<_> = known.into_values().collect();
        if self.fault == Fault::LatestTwice {
            found.extend(found.first().cloned());
        }
        Ok(FaultySource::batch(&found))
    }

    fn growth(&self) -> Growth {
        self.growth
    }

    fn index(&self) -> Option<&dyn Index> {
        Some(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        Some(self)
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        let own = FaultySource {
            fault: self.fault,
            messages: Mutex::new(self.messages.lock().expect("a lock").clone()),
            growth: self.growth,
            shared_place: Arc::default(),
            summary: Mutex::new(Arc::new(Summary::empty("none"))),
        };
        let everything = Query::all();
        let query = match self.fault {
            Fault::FollowIgnoresTheQuery => &everything,
            _ => query,
        };
        Ok(Box::new(Following {
            held: own.matching(query),
            place: 0,
            fault: self.fault,
            growth: self.growth,
        }))
    }
}

impl Index for FaultySource {
    /// Each message is a portion.
    fn outline(&self, range: TimeRange, _: u64) -> Result<Option<Vec<Portion>>, SourceError> {
        let range = match self.fault {
            Fault::OutlineIgnoresTheRange => TimeRange::ALL,
            _ => range,
        };
        let portion = |(_, one): (usize, Message)| Portion {
            channel: one.channel,
            range: TimeRange::new(one.log_time, one.log_time),
            messages: 1 + u64::from(self.fault == Fault::OutlineMiscounts),
        };
        let found = self.matching(&Query::all().between(range)).into_iter();
        Ok(Some(found.map(portion).collect()))
    }

    fn log_times(&self, topic: &str, range: TimeRange) -> Result<Option<Vec<Stamp>>, SourceError> {
        let topics = match self.fault {
            Fault::LogTimesOfAll => Topics::All,
            _ => Topics::named([topic]),
        };
        let found = self.matching(&Query { topics, range }).into_iter();
        Ok(Some(found.map(|(_, one)| one.log_time).collect()))
    }

    fn sections(&self) -> Vec<SectionEntry> {
        let range = match self.fault {
            Fault::SectionsOfNothing => TimeRange::EMPTY,
            _ => TimeRange::ALL,
        };
        vec![SectionEntry {
            offset: 0,
            length: 1,
            uncompressed: 1,
            compression: String::new(),
            range,
            channels: None,
        }]
    }
}

impl FileOrder for FaultySource {
    fn read_in_file_order(&self, query: &Query) -> Result<Batches, SourceError> {
        let skipped = usize::from(self.fault == Fault::FileOrderLosesOne);
        let found = self.matching(query);
        let found = found.into_iter().skip(skipped).rev();
        Ok(Box::new(found.map(|one| Ok(FaultySource::batch(&[one])))))
    }

    fn bytes_held_by_order(&self, _: &Query) -> u64 {
        0
    }
}

/// Hands out what was there; never sees what comes, which is a fault of its own for one that grows.
struct Following {
    held: Vec<(usize, Message)>,
    place: usize,
    fault: Fault,
    growth: Growth,
}

impl Follow for Following {
    fn next(&mut self, deadline: Instant) -> Result<Followed, SourceError> {
        let skipped = usize::from(self.fault == Fault::FollowSkipsTheLast);
        let held = self.held.len().saturating_sub(skipped);
        if self.place < held {
            let end = (self.place + 5).min(held);
            let batch = FaultySource::batch(&self.held[self.place..end]);
            self.place = end;
            return Ok(Followed::Batch(batch));
        }
        if self.growth.is_growing() {
            let _ = deadline;
            return Ok(Followed::CaughtUp);
        }
        match self.fault {
            Fault::FollowNeverEnds => Ok(Followed::CaughtUp),
            _ => Ok(Followed::End(FollowEnd::Complete)),
        }
    }
}

fn message(topic: &str, at: i64, sequence: u32) -> Message {
    Message {
        channel: Arc::new(Channel {
            topic: topic.to_owned(),
            ..Channel::default()
        }),
        log_time: at.into(),
        publish_time: at.into(),
        sequence,
        payload: sequence.to_string().into(),
    }
}

/// Ties within one topic: `/a` at one instant twice.
fn with_ties(fault: Fault) -> Arc<FaultySource> {
    let held = FaultySource::new(fault, Growth::Finished);
    {
        let mut messages = held.messages.lock().expect("a lock");
        let last = messages.last().expect("one").log_time;
        messages.push(message("/a", last.nanos() + 1, 100));
        messages.push(message("/a", last.nanos() + 1, 101));
    }
    held
}

#[test]
fn a_source_that_keeps_its_promises_passes() {
    let broken = violations(&*with_ties(Fault::None));
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn an_empty_source_passes() {
    let held = FaultySource::new(Fault::None, Growth::Finished);
    held.messages.lock().expect("a lock").clear();
    let broken = violations(&*held);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn each_broken_promise_is_found() {
    for fault in [
        Fault::EmptyBatch,
        Fault::Unsorted,
        Fault::OneRepeated,
        Fault::EndLeftOut,
        Fault::TopicIgnored,
        Fault::UnknownTopicFound,
        Fault::TieTakesTheFirst,
        Fault::LatestAtIsLeftOut,
        Fault::LatestTwice,
        Fault::SummaryTooShort,
        Fault::SummaryCountsWrong,
        Fault::TopicNotListed,
        Fault::FollowSkipsTheLast,
        Fault::FollowNeverEnds,
        Fault::FollowIgnoresTheQuery,
        Fault::ReadersShareTheirPlace,
        Fault::SummaryMadeAgain,
        Fault::OutlineMiscounts,
        Fault::OutlineIgnoresTheRange,
        Fault::LogTimesOfAll,
        Fault::SectionsOfNothing,
        Fault::FileOrderLosesOne,
    ] {
        let broken = violations(&*with_ties(fault));
        assert!(!broken.is_empty(), "{fault:?} passes");
    }
}

#[test]
fn a_growing_source_that_says_it_is_finished_is_found() {
    let held = FaultySource::new(Fault::None, Growth::Finished);
    let broken = growing_violations(&*held, &mut || Vec::new());
    assert!(
        broken.iter().any(|one| one.contains("finished")),
        "{broken:#?}"
    );
}

#[test]
fn a_growing_source_whose_followers_see_nothing_new_is_found() {
    let held = FaultySource::new(Fault::None, Growth::Growing);
    let mut next = 1000;
    let broken = growing_violations(&*held, &mut || {
        next += 10;
        let one = message("/a", next, 7);
        held.messages.lock().expect("a lock").push(one.clone());
        vec![one]
    });
    assert!(
        broken.iter().any(|one| one.contains("were added")),
        "{broken:#?}"
    );
}
