//! Checking a source by reading all of it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Channel, Problem, ProblemKind, Progress, Query, Source, SourceError, Stamp};

/// Reads every message, for formats whose reader finds all damage, and compares the summary's counts with what was
/// read: [`Source::check`] of a source that has nothing else to check.
///
/// # Errors
/// When the source cannot be read at all, or the callback ends the work.
pub fn check_by_reading<S: Source + ?Sized>(
    source: &S,
    progress: Progress<'_>,
) -> Result<Vec<Problem>, SourceError> {
    let before = source.summary();
    let mut messages = 0;
    let mut bytes = 0;
    let mut by_channel: HashMap<*const Channel, u64> = HashMap::new();
    let mut before_epoch = 0u64;
    let batches = match source.file_order() {
        Some(file) => file.read_in_file_order(&Query::all())?,
        None => source.read(&Query::all())?,
    };
    for batch in batches {
        let batch = batch?;
        messages += batch.len() as u64;
        bytes += batch.payload_bytes();
        for row in batch.rows() {
            let channel = Arc::as_ptr(&batch.channels()[row.channel as usize]);
            *by_channel.entry(channel).or_default() += 1;
            before_epoch += u64::from(row.log_time.min(row.publish_time) < Stamp::EPOCH);
        }
        progress(bytes.min(before.size), before.size)?;
    }
    progress(before.size, before.size)?;
    let mut problems = source.summary().problems.clone();
    if before_epoch > 0 {
        let message = format!(
            "{before_epoch} messages have a time before 1970: the clock was not set, or the file is damaged; MCAP cannot hold such times"
        );
        problems.push(Problem::whole(ProblemKind::BadTime, message));
    }
    if let Some(declared) = before.messages.filter(|&declared| declared != messages) {
        let message = format!("the index counts {declared} messages, but {messages} can be read");
        problems.push(Problem::whole(ProblemKind::BadStatistics, message));
        return Ok(problems);
    }
    for entry in &before.channels {
        let read = by_channel.get(&Arc::as_ptr(&entry.channel)).copied();
        let read = read.unwrap_or(0);
        if let Some(declared) = entry.messages.filter(|&declared| declared != read) {
            let message =
                format!("the index counts {declared} messages on it, but {read} can be read");
            let problem = Problem::whole(ProblemKind::BadStatistics, message);
            problems.push(problem.on_topic(&entry.channel.topic));
        }
    }
    Ok(problems)
}
