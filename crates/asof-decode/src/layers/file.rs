//! Tables of a source's own records.

use std::sync::Arc;

use arrow_array::builder::{LargeBinaryBuilder, MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampNanosecondArray, UInt64Array,
};
use asof_core::{AttachmentEntry, FileParts, Source, SourceError, Stamp, Summary};

use super::{FileLayer, FileTable};

type Columns = Vec<(&'static str, ArrayRef)>;

/// A file layer of this crate, with a small table.
struct BuiltinLayer {
    name: &'static str,
    columns: fn(&Summary, Option<&dyn FileParts>) -> Columns,
}

impl FileLayer for BuiltinLayer {
    fn name(&self) -> &str {
        self.name
    }

    fn table<'a>(
        &'a self,
        source: &'a dyn Source,
        parts: Option<&'a dyn FileParts>,
    ) -> FileTable<'a> {
        let columns = (self.columns)(&source.summary(), parts);
        let is_empty = columns.iter().all(|(_, array)| array.is_empty());
        Box::new((!is_empty).then(|| batch(self.name, columns)).into_iter())
    }
}

/// Recording info, channels with their schemas, statistics, metadata, attachments.
pub(super) fn all() -> Vec<Arc<dyn FileLayer>> {
    let known = |name, columns| Arc::new(BuiltinLayer { name, columns }) as Arc<dyn FileLayer>;
    vec![
        known("recording", |summary, _| recording(summary)),
        known("channels", |summary, _| channels(summary)),
        known("statistics", |summary, _| statistics(summary)),
        known("metadata", metadata),
        Arc::new(Attachments),
    ]
}

fn batch(layer: &str, columns: Columns) -> Result<RecordBatch, SourceError> {
    // Whether a column is nullable must not depend on its values: all batches of a table have one schema.
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).map_err(|error| SourceError::Unreadable {
        place: layer.to_owned(),
        reason: error.to_string(),
    })
}

fn times(stamps: impl Iterator<Item = Option<Stamp>>) -> ArrayRef {
    let nanos: Vec<Option<i64>> = stamps.map(|stamp| stamp.map(Stamp::nanos)).collect();
    Arc::new(TimestampNanosecondArray::from(nanos).with_timezone("UTC"))
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

fn recording(summary: &Summary) -> Columns {
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

fn statistics(summary: &Summary) -> Columns {
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

fn channels(summary: &Summary) -> Columns {
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

/// One row for each metadata record; one that cannot be read has the reason instead.
fn metadata(summary: &Summary, parts: Option<&dyn FileParts>) -> Columns {
    let all = &summary.metadata;
    let mut entries = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    let mut errors = StringBuilder::new();
    for entry in all {
        let contents = parts.map_or_else(
            || Err(no_contents(&entry.name)),
            |parts| parts.metadata(entry),
        );
        for (key, value) in contents.iter().flatten() {
            entries.keys().append_value(key);
            entries.values().append_value(value);
        }
        // Keys and values come in pairs, so this cannot fail.
        let _ = entries.append(contents.is_ok());
        errors.append_option(contents.err().map(|error| error.to_string()));
    }
    vec![
        ("name", texts(all.iter().map(|entry| entry.name.as_str()))),
        ("entries", Arc::new(entries.finish())),
        ("error", Arc::new(errors.finish())),
    ]
}

/// A source that lists what it cannot give.
fn no_contents(name: &str) -> SourceError {
    SourceError::Unreadable {
        place: name.to_owned(),
        reason: "its source does not provide contents".to_owned(),
    }
}

/// The most bytes of attachments in one batch; a larger one has its own batch.
const ATTACHED_BYTES: u64 = 1 << 20;
/// A larger attachment has no contents: a value of a table has to be in memory as a whole, several times over while it
/// is encoded.
const LARGEST_ATTACHMENT: u64 = 64 << 20;

/// One row for each attachment, with its contents as `data`. Only those of one batch are in memory.
struct Attachments;

impl FileLayer for Attachments {
    fn name(&self) -> &'static str {
        "attachments"
    }

    fn table<'a>(
        &'a self,
        source: &'a dyn Source,
        parts: Option<&'a dyn FileParts>,
    ) -> FileTable<'a> {
        let summary = source.summary();
        let mut done = 0;
        Box::new(std::iter::from_fn(move || {
            let rest = summary.attachments.get(done..)?;
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|entry| {
                bytes += entry.size;
                bytes <= ATTACHED_BYTES
            });
            let count = fitting.count().max(1).min(rest.len());
            done += count;
            (count > 0).then(|| batch("attachments", attachments(&rest[..count], parts)))
        }))
    }
}

fn attachments(entries: &[AttachmentEntry], parts: Option<&dyn FileParts>) -> Columns {
    let all = || entries.iter();
    let mut data = LargeBinaryBuilder::new();
    let mut errors = StringBuilder::new();
    for entry in all() {
        let contents = if entry.size > LARGEST_ATTACHMENT {
            Err(format!(
                "{} has {} bytes, more than the limit of {LARGEST_ATTACHMENT} for a table",
                entry.name, entry.size
            ))
        } else {
            let contents = parts.map_or_else(
                || Err(no_contents(&entry.name)),
                |parts| parts.attachment(entry),
            );
            contents.map_err(|error| error.to_string())
        };
        data.append_option(contents.as_ref().ok());
        errors.append_option(contents.err());
    }
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
        ("data", Arc::new(data.finish())),
        ("error", Arc::new(errors.finish())),
    ]
}
