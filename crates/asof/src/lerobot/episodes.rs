//! Where episodes begin and end.

use asof_core::{Message, Query, Source, Stamp, TimeRange};
use asof_decode::Decoders;

use super::map::Episodes;
use super::{DatasetMap, LerobotError};

/// A time range of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) range: TimeRange,
    /// The robot's task, if recorded.
    pub(super) task: Option<String>,
}

/// The time ranges of a recording that are episodes.
pub(super) fn stretches(
    source: &dyn Source,
    map: &DatasetMap,
) -> Result<Vec<Stretch>, LerobotError> {
    let whole = source.summary().range;
    if whole.is_empty() {
        return Ok(Vec::new());
    }
    match &map.episodes {
        Episodes::Recording => Ok(vec![Stretch {
            range: whole,
            task: None,
        }]),
        Episodes::Every(length) => {
            let length = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
            let starts = std::iter::successors(Some(whole.start), |start| {
                let next = start.plus_nanos(length);
                (next > *start && next <= whole.end).then_some(next)
            });
            Ok(starts
                .map(|start| part(whole, start, start.plus_nanos(length - 1), None))
                .collect())
        }
        Episodes::Topic(topic) => by_topic(source, topic, whole),
    }
}

fn by_topic(
    source: &dyn Source,
    topic: &str,
    whole: TimeRange,
) -> Result<Vec<Stretch>, LerobotError> {
    super::known(source, topic)?;
    let mut decoders = Decoders::default();
    let mut found: Vec<Stretch> = Vec::new();
    let mut open: Option<(Stamp, Option<String>)> = None;
    for batch in source.read(&Query::topics([topic]))? {
        let batch = batch?;
        for message in batch.iter() {
            let message = message.to_message();
            let before = message.log_time.plus_nanos(-1);
            if let Some((start, task)) = open.take() {
                found.push(part(whole, start, before, task));
            }
            open = match said(&mut decoders, &message) {
                Mark::Ends => None,
                Mark::Begins(task) => Some((message.log_time, task)),
            };
        }
    }
    if let Some((start, task)) = open {
        found.push(part(whole, start, whole.end, task));
    }
    Ok(found)
}

fn part(whole: TimeRange, start: Stamp, end: Stamp, task: Option<String>) -> Stretch {
    Stretch {
        range: TimeRange::new(start, end.min(whole.end)),
        task,
    }
}

/// The meaning of a message for episodes.
enum Mark {
    Begins(Option<String>),
    Ends,
}

fn said(decoders: &mut Decoders, message: &Message) -> Mark {
    // One that cannot be decoded still begins an episode.
    let Ok(record) = decoders.record(message) else {
        return Mark::Begins(None);
    };
    let is_truth = record
        .array("data")
        .is_some_and(|data| *data.data_type() == arrow_schema::DataType::Boolean);
    if is_truth && record.number("data") == Some(0.0) {
        return Mark::Ends;
    }
    Mark::Begins(record.text("data").filter(|text| !text.is_empty()))
}
