//! What several tests need.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::PathBuf;

use asof_core::{Message, Query, Source, Stamp, Topics};

/// The folder with recordings from elsewhere, if it is there; says so where it is not.
pub fn test_data() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let folder =
        std::env::var_os("ASOF_TEST_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: no recordings in {} (set ASOF_TEST_DATA)",
        folder.display()
    );
    None
}

/// All files in a folder and the folders in it.
pub fn files_below(folder: &std::path::Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Everything that matches, as owned messages.
pub fn messages(source: &dyn Source, query: &Query) -> Vec<Message> {
    let batches = source.read(query).expect("reads");
    batches
        .flat_map(|batch| {
            batch
                .expect("a batch")
                .iter()
                .map(|m| m.to_message())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The last message of each topic at or before a time, by looking at them all.
pub fn scan_backfill(all: &[Message], topics: &Topics, at: Stamp) -> Vec<Message> {
    let mut last: Vec<&Message> = Vec::new();
    for message in all
        .iter()
        .filter(|m| m.log_time <= at && topics.contains(&m.channel.topic))
    {
        last.retain(|known| known.channel.topic != message.channel.topic);
        last.push(message);
    }
    last.into_iter().cloned().collect()
}
