//! What a source says about itself, as tables.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array,
};
use asof_core::{Source, SourceError, Stamp, Summary};

use super::FileLayer;

/// A file layer that needs the summary alone.
struct FromSummary {
    name: &'static str,
    columns: fn(&Summary) -> Vec<(&'static str, ArrayRef)>,
}

impl FileLayer for FromSummary {
    fn name(&self) -> &str {
        self.name
    }

    fn table(&self, source: &dyn Source) -> Result<Option<RecordBatch>, SourceError> {
        let columns = (self.columns)(&source.summary());
        if columns.iter().all(|(_, array)| array.is_empty()) {
            return Ok(None);
        }
        RecordBatch::try_from_iter(columns)
            .map(Some)
            .map_err(|error| SourceError::Unreadable {
                place: self.name.to_owned(),
                reason: error.to_string(),
            })
    }
}

/// Recording info, channels with their schemas, statistics, metadata, attachments, problems.
pub(super) fn all() -> Vec<Arc<dyn FileLayer>> {
    [
        FromSummary {
            name: "recording",
            columns: recording,
        },
        FromSummary {
            name: "channels",
            columns: channels,
        },
        FromSummary {
            name: "statistics",
            columns: statistics,
        },
        FromSummary {
            name: "metadata",
            columns: metadata,
        },
        FromSummary {
            name: "attachments",
            columns: attachments,
        },
    ]
    .into_iter()
    .map(|layer| Arc::new(layer) as Arc<dyn FileLayer>)
    .collect()
}

fn times(stamps: impl Iterator<Item = Option<Stamp>>) -> ArrayRef {
    let nanos: Vec<Option<i64>> = stamps.map(|stamp| stamp.map(Stamp::nanos)).collect();
    Arc::new(TimestampNanosecondArray::from(nanos).with_timezone("UTC"))
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

fn recording(summary: &Summary) -> Vec<(&'static str, ArrayRef)> {
    let ends = (summary.range.start <= summary.range.end).then_some(summary.range);
    vec![
        ("format", texts([summary.format.as_str()].into_iter())),
        ("library", texts([summary.library.as_str()].into_iter())),
        ("profile", texts([summary.profile.as_str()].into_iter())),
        ("start", times([ends.map(|ends| ends.start)].into_iter())),
        ("end", times([ends.map(|ends| ends.end)].into_iter())),
        ("size", Arc::new(UInt64Array::from(vec![summary.size]))),
    ]
}

fn statistics(summary: &Summary) -> Vec<(&'static str, ArrayRef)> {
    let count = |count: usize| -> ArrayRef { Arc::new(UInt64Array::from(vec![count as u64])) };
    vec![
        (
            "messages",
            Arc::new(UInt64Array::from(vec![summary.messages])),
        ),
        ("chunks", Arc::new(UInt64Array::from(vec![summary.chunks]))),
        ("channels", count(summary.channels.len())),
        ("attachments", count(summary.attachments.len())),
        ("metadata", count(summary.metadata.len())),
        ("problems", count(summary.problems.len())),
    ]
}

fn channels(summary: &Summary) -> Vec<(&'static str, ArrayRef)> {
    let all = || summary.channels.iter().map(|entry| &entry.channel);
    let schema = |part: fn(&asof_core::Schema) -> &str| {
        texts(all().map(move |channel| channel.schema.as_deref().map_or("", part)))
    };
    let metadata: Vec<String> = all()
        .map(|channel| {
            let pairs = channel.metadata.iter();
            let map: serde_json::Map<_, _> = pairs
                .map(|(key, value)| (key.clone(), value.clone().into()))
                .collect();
            serde_json::Value::from(map).to_string()
        })
        .collect();
    let data = all().map(|channel| channel.schema.as_ref().map(|schema| &schema.data[..]));
    let counts = summary.channels.iter().map(|entry| entry.messages);
    vec![
        ("topic", texts(all().map(|channel| channel.topic.as_str()))),
        (
            "message_encoding",
            texts(all().map(|channel| channel.message_encoding.as_str())),
        ),
        ("schema_name", schema(|schema| &schema.name)),
        ("schema_encoding", schema(|schema| &schema.encoding)),
        ("schema_data", Arc::new(data.collect::<BinaryArray>())),
        ("metadata", texts(metadata.iter().map(String::as_str))),
        ("messages", Arc::new(counts.collect::<UInt64Array>())),
    ]
}

fn metadata(summary: &Summary) -> Vec<(&'static str, ArrayRef)> {
    let all = || summary.metadata.iter();
    vec![
        ("name", texts(all().map(|entry| entry.name.as_str()))),
        (
            "offset",
            Arc::new(UInt64Array::from_iter_values(all().map(|e| e.offset))),
        ),
    ]
}

fn attachments(summary: &Summary) -> Vec<(&'static str, ArrayRef)> {
    let all = || summary.attachments.iter();
    vec![
        ("name", texts(all().map(|entry| entry.name.as_str()))),
        (
            "media_type",
            texts(all().map(|entry| entry.media_type.as_str())),
        ),
        ("log_time", times(all().map(|entry| entry.log_time))),
        ("create_time", times(all().map(|entry| entry.create_time))),
        (
            "size",
            Arc::new(UInt64Array::from_iter_values(all().map(|e| e.size))),
        ),
        (
            "offset",
            Arc::new(UInt64Array::from_iter_values(all().map(|e| e.offset))),
        ),
    ]
}
