//! The rows of one recording.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use asof_core::{Channel, Source, SourceError, Stamp, Summary, TimeRange};
use asof_formats::{FilePiece, OpenOptions, SectionEntry, Store, StoredFile};

use crate::pattern::KeyPattern;
use crate::tables::{
    IndexedRecording, ProblemRow, RecordingRow, SchemaRow, SectionRow, SummaryRow, TopicRow,
    schema_hash,
};

/// The most metadata records that are read of a recording: each may be a request.
const MAX_METADATA_RECORDS: usize = 16;
/// A longer text is not taken as a tag.
const MAX_TAG_BYTES: usize = 256;
const MAX_TAGS: usize = 64;
/// The most problems that are stored of a recording; `asof doctor` lists them all.
const MAX_PROBLEMS: usize = 32;

/// Opens a recording and makes its rows. One that cannot be opened has a row too, with the reason.
pub(crate) fn survey(
    store: &Store,
    file: &StoredFile,
    patterns: &[KeyPattern],
    options: &OpenOptions,
    now: Stamp,
) -> IndexedRecording {
    let mut row = RecordingRow {
        recording: file.path.clone(),
        address: store.shown_address_of(&file.path),
        e_tag: file.e_tag.clone(),
        size: file.size,
        modified: file.modified,
        range: TimeRange::EMPTY,
        from_path: KeyPattern::read_by(patterns, &file.path),
        ..RecordingRow::default()
    };
    match store.open_noting(file, options) {
        Ok((recording, pieces)) => opened(row, &*recording, pieces, now),
        Err(error) => {
            let is_passing = matches!(error, SourceError::Io { .. });
            let kind = if is_passing {
                ProblemRow::UNREAD
            } else {
                row.indexed = Some(now);
                ProblemRow::UNREADABLE
            };
            row.problems.push(ProblemRow {
                kind: kind.to_owned(),
                offset: None,
                topic: None,
                message: error.to_string(),
            });
            row.settle();
            IndexedRecording {
                row,
                topics: Vec::new(),
                schemas: Vec::new(),
                sections: Vec::new(),
                summary: None,
            }
        }
    }
}

fn opened(
    mut row: RecordingRow,
    recording: &dyn Source,
    pieces: Vec<FilePiece>,
    now: Stamp,
) -> IndexedRecording {
    let sections = recording.sections();
    match metadata_of(recording) {
        Ok(said) => {
            row.from_file = said;
            row.indexed = Some(now);
        }
        Err(error) => row.problems.push(ProblemRow {
            kind: ProblemRow::UNREAD.to_owned(),
            offset: None,
            topic: None,
            message: format!("its metadata cannot be read: {error}"),
        }),
    }
    let summary = recording.summary();
    row.format = Some(summary.format.clone());
    row.range = summary.range;
    row.messages = summary.messages;
    let problems = summary.problems.iter().take(MAX_PROBLEMS);
    row.problems.extend(problems.map(ProblemRow::from));
    row.settle();
    // A file whose indexes cannot be read has problems that are met when it is read.
    let sizes = recording.payload_estimates().unwrap_or_default();
    let sizes = sizes
        .iter()
        .map(|(channel, bytes)| (Arc::as_ptr(channel), *bytes));
    let topics = topics_of(&row.recording, &summary, &sections, &sizes.collect());
    let schemas = schemas_of(&summary);
    let sections = sections.into_iter().enumerate();
    let sections = sections.map(|(number, section)| section_row(&row.recording, number, section));
    IndexedRecording {
        topics,
        schemas,
        sections: sections.collect(),
        summary: summary_row(&row, &summary, pieces),
        row,
    }
}

/// The topics of a recording: a row for each combination of topic, type and encoding.
fn topics_of(
    recording: &str,
    summary: &Summary,
    sections: &[SectionEntry],
    sizes: &HashMap<*const Channel, u64>,
) -> Vec<TopicRow> {
    let ranges = ranges_of(sections);
    let mut rows: BTreeMap<(&str, Option<String>, &str), TopicRow> = BTreeMap::new();
    let mut hashes: HashMap<*const asof_core::Schema, String> = HashMap::new();
    for entry in &summary.channels {
        let channel = &*entry.channel;
        let schema = channel.schema.as_ref();
        let hash = schema.map(|schema| {
            let hash = hashes
                .entry(Arc::as_ptr(schema))
                .or_insert_with(|| schema_hash(schema));
            hash.clone()
        });
        let range = match &ranges {
            Some(ranges) => ranges
                .get(&Arc::as_ptr(&entry.channel))
                .copied()
                .unwrap_or(TimeRange::EMPTY),
            None if entry.messages == Some(0) => TimeRange::EMPTY,
            None => summary.range,
        };
        let key = (
            channel.topic.as_str(),
            hash.clone(),
            channel.message_encoding.as_str(),
        );
        let row = rows.entry(key).or_insert_with(|| TopicRow {
            recording: recording.to_owned(),
            topic: channel.topic.clone(),
            type_name: channel.type_name().to_owned(),
            schema_hash: hash,
            encoding: channel.message_encoding.clone(),
            schema_encoding: schema
                .map(|schema| schema.encoding.clone())
                .unwrap_or_default(),
            messages: Some(0),
            bytes: None,
            bytes_estimate: Some(0),
            range: TimeRange::EMPTY,
        });
        let bytes = match entry.messages {
            Some(0) => Some(0),
            _ => sizes.get(&Arc::as_ptr(&entry.channel)).copied(),
        };
        row.bytes_estimate = row
            .bytes_estimate
            .zip(bytes)
            .map(|(a, b)| a.saturating_add(b));
        row.messages = row
            .messages
            .zip(entry.messages)
            .map(|(a, b)| a.saturating_add(b));
        row.range = row.range.cover(range);
    }
    for row in rows.values_mut().filter(|row| row.messages == Some(0)) {
        row.bytes = Some(0);
    }
    rows.into_values().collect()
}

/// The time range of each channel, from the sections that hold it; `None` if a section does not list its channels,
/// or there are no sections.
fn ranges_of(sections: &[SectionEntry]) -> Option<HashMap<*const Channel, TimeRange>> {
    if sections.is_empty() {
        return None;
    }
    let mut ranges: HashMap<*const Channel, TimeRange> = HashMap::new();
    for section in sections {
        for channel in section.channels.as_ref()? {
            let range = ranges
                .entry(Arc::as_ptr(channel))
                .or_insert(TimeRange::EMPTY);
            *range = range.cover(section.range);
        }
    }
    Some(ranges)
}

fn schemas_of(summary: &Summary) -> Vec<SchemaRow> {
    let mut rows: BTreeMap<*const asof_core::Schema, SchemaRow> = BTreeMap::new();
    for schema in summary
        .channels
        .iter()
        .filter_map(|entry| entry.channel.schema.as_ref())
    {
        rows.entry(Arc::as_ptr(schema))
            .or_insert_with(|| SchemaRow::of(schema));
    }
    rows.into_values().collect()
}

fn section_row(recording: &str, number: usize, section: SectionEntry) -> SectionRow {
    let topics = section.channels.map(|channels| {
        let mut topics: Vec<String> = channels
            .iter()
            .map(|channel| channel.topic.clone())
            .collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    });
    SectionRow {
        recording: recording.to_owned(),
        section: number as u64,
        offset: section.offset,
        length: section.length,
        uncompressed: section.uncompressed,
        compression: section.compression,
        range: section.range,
        topics,
    }
}

/// The bytes that opening a recording reads, if it is opened by its own summary. A recording without one is walked
/// each time it is opened, so that its problems are reported again.
fn summary_row(
    row: &RecordingRow,
    summary: &Summary,
    pieces: Vec<FilePiece>,
) -> Option<SummaryRow> {
    let has_summary = ["mcap", "bag"].contains(&summary.format.as_str());
    let is_kept = has_summary && summary.problems.is_empty() && !pieces.is_empty();
    is_kept.then(|| SummaryRow {
        recording: row.recording.clone(),
        pieces,
    })
}

/// The metadata of a recording: robot, site, date, and everything else that is short enough as tags.
fn metadata_of(recording: &dyn Source) -> Result<BTreeMap<String, String>, SourceError> {
    let mut said = BTreeMap::new();
    for entry in recording
        .summary()
        .metadata
        .iter()
        .take(MAX_METADATA_RECORDS)
    {
        let found = match recording.metadata(entry) {
            Ok(found) => found,
            // It is damaged: the recording is indexed without it, and `asof doctor` lists the damage.
            Err(SourceError::Unreadable { .. }) => continue,
            Err(error) => return Err(error),
        };
        for (key, value) in found {
            let value = value.trim();
            if value.is_empty() || value.len() > MAX_TAG_BYTES || value.contains('\n') {
                continue;
            }
            if said.len() >= MAX_TAGS {
                return Ok(said);
            }
            said.entry(name_of(&entry.name, &key))
                .or_insert_with(|| value.to_owned());
        }
    }
    Ok(said)
}

/// The tag name of a metadata entry.
fn name_of(set: &str, key: &str) -> String {
    let (set, key) = (set.trim().to_lowercase(), key.trim().to_lowercase());
    let known: [(&str, &[&str], &[&str]); 3] = [
        (
            "robot",
            &[
                "robot",
                "robot_id",
                "robot_name",
                "vehicle",
                "vehicle_id",
                "vehicle_name",
            ],
            &["robot", "vehicle"],
        ),
        (
            "site",
            &["site", "site_id", "site_name", "location"],
            &["site", "location"],
        ),
        ("date", &["date"], &[]),
    ];
    for (name, keys, sets) in known {
        let is_part = sets.contains(&set.as_str()) && ["id", "name"].contains(&key.as_str());
        if keys.contains(&key.as_str()) || is_part {
            return name.to_owned();
        }
    }
    match set.as_str() {
        "" | "tags" | "asof" => key,
        _ => format!("{set}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_names_robots_sites_and_tags() {
        for (set, key, wanted) in [
            ("run", "Robot_ID", "robot"),
            ("robot", "name", "robot"),
            ("robot", "colour", "robot.colour"),
            ("anything", "site", "site"),
            ("tags", "weather", "weather"),
            (
                "rosbag2",
                "serialized_metadata",
                "rosbag2.serialized_metadata",
            ),
        ] {
            assert_eq!(name_of(set, key), wanted);
        }
    }
}
