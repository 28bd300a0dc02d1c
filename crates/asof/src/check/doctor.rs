//! A recording that is read completely, and whose parts must agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch};
use asof_core::{Channel, ChannelSummary, Problem, ProblemKind, Query, Stamp, StampHealth};
use asof_decode::{ChannelReport, Decoders, Layers, SchemaError, TableOptions, Tables};
use serde::{Serialize, Serializer};

use super::survey::times;
use crate::problems::problems_as_json;
use crate::text::counted;
use crate::{Error, Recording};

/// How a recording is examined.
#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// Whether every message is decoded, too.
    pub decode: bool,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        DoctorOptions { decode: true }
    }
}

/// What was found in a recording.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The recording.
    pub path: String,
    /// Whether nothing is wrong, and everything was decoded.
    pub healthy: bool,
    /// Whether something is wrong with the recording itself; messages that cannot be decoded are none of that.
    #[serde(rename = "damaged")]
    pub is_damaged: bool,
    /// Messages that can be read.
    pub messages: u64,
    /// Messages that can be read but not decoded; `None` where that was not tried.
    pub undecoded: Option<u64>,
    /// Those of them without a decoder.
    pub unknown: Vec<UnknownMessages>,
    /// The topics whose stamps are far from the times at which their messages were logged, zero, or jump; empty where the
    /// messages were not decoded.
    #[serde(serialize_with = "stamps_as_json")]
    pub stamps: BTreeMap<String, StampHealth>,
    #[serde(serialize_with = "problems_as_json")]
    /// What is wrong.
    pub problems: Vec<Problem>,
    #[serde(skip)]
    /// The size of the recording, in bytes.
    pub size: u64,
    #[serde(skip)]
    /// Its chunks.
    pub chunks: u64,
}

/// Messages of one channel without a decoder.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct UnknownMessages {
    /// The topic.
    pub topic: String,
    /// Messages that can be read.
    pub messages: u64,
    /// Why there is no decoder.
    pub reason: String,
}

impl Recording {
    /// Reads all of it and verifies that its parts agree: records, checksums, chunks, indexes, statistics, and every message.
    ///
    /// # Errors
    /// When it cannot be read at all, or the work is cancelled. What is wrong with it is in the result.
    pub fn doctor(&self, options: &DoctorOptions) -> Result<Diagnosis, Error> {
        let total = self.summary().size;
        let problems = self.source().check(&mut |done, _| {
            self.progress().done(done, total);
            self.progress().refuse_if_cancelled()
        })?;
        let mut diagnosis = diagnosis(self, problems)?;
        if options.decode {
            diagnosis.decode(self)?;
        }
        Ok(diagnosis)
    }
}

fn diagnosis(file: &Recording, problems: Vec<Problem>) -> Result<Diagnosis, Error> {
    let summary = file.summary();
    let messages = match summary.messages {
        Some(messages) if problems.is_empty() => messages,
        // What a damaged file declares about itself is not reliable.
        _ => readable_messages(file)?,
    };
    Ok(Diagnosis {
        path: file.place_names().into_iter().next().unwrap_or_default(),
        healthy: problems.is_empty(),
        is_damaged: !problems.is_empty(),
        messages,
        undecoded: None,
        unknown: Vec::new(),
        stamps: BTreeMap::new(),
        problems,
        size: summary.size,
        chunks: summary.chunks,
    })
}

impl Diagnosis {
    /// Decodes every message, and adds those that fail to the problems, or to the unknown ones.
    fn decode(&mut self, file: &Recording) -> Result<(), Error> {
        let options = TableOptions {
            layers: Layers::standard().only("reflection"),
            ..TableOptions::default()
        };
        let mut tables = Tables::read(file, &Query::all(), options)?;
        for batch in &mut tables {
            let batch = batch?;
            let stamps = self.stamps.entry(batch.channel.topic.clone()).or_default();
            see_stamps(stamps, &batch.batch);
        }
        self.stamps.retain(|_, stamps| !stamps.is_good());
        let reports = tables.report();
        // Channels of one type have one definition, which is read once.
        let mut decoders = Decoders::default();
        let undecoded = reports
            .iter()
            .map(|report| self.take_note(report, &mut decoders));
        let undecoded = undecoded.sum();
        self.undecoded = Some(undecoded);
        self.check_unused_schemas(file, &mut decoders);
        self.healthy = self.problems.is_empty() && undecoded == 0;
        Ok(())
    }

    /// Adds what is wrong with a channel's messages; returns how many of them could not be decoded.
    fn take_note(&mut self, report: &ChannelReport, decoders: &mut Decoders) -> u64 {
        let channel = &report.assignment.channel;
        let (count, reason) = match report.failures.first() {
            Some((at, error)) => (report.failed, format!("the first: at {at}, {error}")),
            None if report.assignment.layer.is_none() => {
                let declined = report.assignment.declined.last();
                let reason = declined.map_or("", |(_, reason)| reason);
                (report.messages, reason.to_owned())
            }
            None => return 0,
        };
        let is_unknown =
            report.assignment.layer.is_none() && schema_fault(channel, decoders).is_none();
        if is_unknown {
            self.unknown.push(UnknownMessages {
                topic: channel.topic.clone(),
                messages: count,
                reason,
            });
            return count;
        }
        let what = counted(count, "message");
        self.problems.push(Problem {
            kind: ProblemKind::BadRecord,
            offset: None,
            topic: Some(channel.topic.clone()),
            message: format!("{what} cannot be decoded; {reason}"),
        });
        count
    }

    /// A channel without messages has a schema, too.
    fn check_unused_schemas(&mut self, file: &Recording, decoders: &mut Decoders) {
        let summary = file.summary();
        let unused = |entry: &&ChannelSummary| entry.messages == Some(0);
        for entry in summary.channels.iter().filter(unused) {
            let channel = &entry.channel;
            if let Some(fault) = schema_fault(channel, decoders) {
                self.problems.push(Problem {
                    kind: ProblemKind::BadRecord,
                    offset: None,
                    topic: Some(channel.topic.clone()),
                    message: format!("its schema cannot be read: {fault}"),
                });
            }
        }
    }
}

/// Takes in the stamps of some messages, the one in the header first.
fn see_stamps(health: &mut StampHealth, batch: &RecordBatch) {
    let Some(logged) = times(batch, "log_time") else {
        return;
    };
    let columns = ["stamp", "publish_time"].map(|name| times(batch, name));
    for row in 0..batch.num_rows() {
        let stamps = columns.iter().flatten();
        let stamps = stamps.filter(|stamps| stamps.is_valid(row));
        let stamps = stamps.map(|stamps| Stamp::from_nanos(stamps.value(row)));
        health.note(stamps, Stamp::from_nanos(logged.value(row)));
    }
}

fn stamps_as_json<S: Serializer>(
    stamps: &BTreeMap<String, StampHealth>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let topics = stamps.iter().map(|(topic, stamps)| {
        let StampHealth {
            off,
            offset,
            zero,
            jumps,
            ..
        } = *stamps;
        let counts = [("off", off as i64), ("offset", offset)];
        let counts = counts
            .into_iter()
            .chain([("zero", zero as i64), ("jumps", jumps as i64)]);
        (topic, counts.collect::<BTreeMap<_, _>>())
    });
    serializer.collect_map(topics)
}

/// What is wrong with a channel's schema; `None` where its encoding is unknown, or where it has no schema.
fn schema_fault(channel: &Arc<Channel>, decoders: &mut Decoders) -> Option<SchemaError> {
    let has_schema = channel
        .schema
        .as_ref()
        .is_some_and(|schema| !schema.data.is_empty());
    match decoders.of(channel, &[]).err()? {
        SchemaError::UnknownEncoding { .. } | SchemaError::NoDefinition { .. } => None,
        error => has_schema.then_some(error),
    }
}

fn readable_messages(file: &Recording) -> Result<u64, Error> {
    let mut messages = 0;
    for batch in file.read(&Query::all())? {
        messages += batch?.len() as u64;
    }
    Ok(messages)
}
