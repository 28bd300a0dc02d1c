//! The contract of a source, on every kind of recording and on how it is stored.
//!
//! Bags, db3 files, PX4 logs and merges run it in their own tests as well, on more shapes of each. Files that grow have
//! theirs in `growing.rs`.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asof_core::testing::assert_source;
use asof_core::{Query, Source};
use asof_formats::{McapFile, Merged, open};
use common::{demo_file, files_below, messages, small_chunks, test_data};

/// The suite reads everything very often: larger recordings are left to the tests that read each once.
const LARGE: u64 = 100 << 10;

/// A short drive as MCAP, in every way that a writer may lay it out.
fn mcaps() -> Vec<(&'static str, Vec<u8>)> {
    let bare = || {
        small_chunks()
            .emit_statistics(false)
            .emit_summary_offsets(false)
            .emit_message_indexes(false)
            .emit_chunk_indexes(false)
    };
    vec![
        (
            "zstd",
            demo_file(
                0.5,
                small_chunks().compression(Some(mcap::Compression::Zstd)),
            ),
        ),
        (
            "lz4",
            demo_file(
                0.5,
                small_chunks().compression(Some(mcap::Compression::Lz4)),
            ),
        ),
        (
            "uncompressed",
            demo_file(0.5, small_chunks().compression(None)),
        ),
        ("one chunk", demo_file(0.5, mcap::WriteOptions::new())),
        (
            "no chunks",
            demo_file(0.5, small_chunks().use_chunks(false)),
        ),
        ("no indexes", demo_file(0.5, bare())),
        ("no messages", demo_file(0.0, small_chunks())),
    ]
}

#[test]
fn an_mcap_file_keeps_it_however_it_was_written() {
    for (name, bytes) in mcaps() {
        let file = McapFile::from_bytes(name, bytes).expect("opens");
        let is_empty = messages(&file, &Query::all()).is_empty();
        assert_eq!(is_empty, name == "no messages", "{name}");
        assert_estimates(&file, name);
        assert_source(&file, name);
    }
}

#[test]
fn an_mcap_file_that_was_cut_keeps_it() {
    let whole = demo_file(0.5, small_chunks());
    for part in [3, 5, 7] {
        let cut = whole[..whole.len() * part / 8].to_vec();
        let file = McapFile::from_bytes("cut.mcap", cut).expect("opens");
        assert!(!file.summary().problems.is_empty());
        assert!(!messages(&file, &Query::all()).is_empty());
        assert_source(&file, "cut.mcap");
    }
}

#[test]
fn several_formats_as_one_recording_keep_it() {
    let mcap = |seconds: f64| -> Box<dyn Source> {
        let bytes = demo_file(seconds, small_chunks());
        Box::new(McapFile::from_bytes("part.mcap", bytes).expect("opens"))
    };
    let log = asof_formats::UlogFile::from_bytes("part.ulg", common::ulogs::flight(100).bytes);
    let parts: Vec<(String, Box<dyn Source>)> = vec![
        ("one".to_owned(), mcap(0.3)),
        ("two".to_owned(), Box::new(log.expect("opens"))),
        ("one again".to_owned(), mcap(0.2)),
    ];
    assert_source(&Merged::new(parts), "merged");
}

#[test]
fn a_file_that_is_compressed_as_a_whole_keeps_it_also_when_it_was_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = demo_file(0.5, small_chunks().compression(None));
    // Many frames: what is before a cut can be decompressed.
    let mut packed = Vec::new();
    for part in whole.chunks(4096) {
        packed.extend(zstd::bulk::compress(part, 3).expect("compresses"));
    }
    for (name, length) in [("whole", packed.len()), ("cut", packed.len() * 2 / 3)] {
        let path = folder.path().join(format!("{name}.mcap.zst"));
        std::fs::write(&path, &packed[..length]).expect("written");
        let file = open(&path).expect("opens");
        assert_eq!(file.summary().problems.is_empty(), name == "whole");
        assert!(!messages(&*file, &Query::all()).is_empty());
        assert_source(&*file, name);
    }
}

/// What is told of the bytes of each topic of a small file is near what they are.
fn assert_estimates(file: &dyn Source, name: &str) {
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for message in messages(file, &Query::all()) {
        *bytes.entry(message.channel.topic.clone()).or_default() += message.payload.len() as u64;
    }
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for (channel, bytes) in file.payload_estimates().expect("readable") {
        *told.entry(channel.topic.clone()).or_default() += bytes;
    }
    for (topic, bytes) in bytes {
        let told = *told
            .get(&topic)
            .unwrap_or_else(|| panic!("{name}: nothing of {topic}"));
        assert!(
            told.abs_diff(bytes) <= 50 + bytes / 2,
            "{name}: {topic} has {bytes}, not {told}"
        );
    }
}

/// Recordings from elsewhere that are small enough, by the end of their names.
fn recordings(kind: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(folder) = test_data() {
        files_below(&folder.join("recordings"), &mut files);
    }
    let is_wanted = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == kind)
            && std::fs::metadata(path).is_ok_and(|file| file.len() < LARGE)
    };
    files.retain(is_wanted);
    files
}

/// Runs the suite on recordings from elsewhere; at least so many of them must open.
fn assert_recordings(kind: &str, least: usize, open: &dyn Fn(&Path) -> Option<Box<dyn Source>>) {
    let files = recordings(kind);
    if files.is_empty() {
        return;
    }
    let mut opened = 0;
    for path in files {
        // What cannot be opened is refused in a sentence: `recordings.rs` sees to it.
        if let Some(file) = open(&path) {
            let name = path.display().to_string();
            assert_source(&*file, &name);
            opened += 1;
        }
    }
    assert!(opened >= least, "{opened} {kind} files of {least}");
}

/// Over a network nothing is told of bytes: it would have to be read.
fn local(path: &Path) -> Option<Box<dyn Source>> {
    let file = open(path).ok()?;
    assert_estimates(&*file, &path.display().to_string());
    Some(file)
}

#[test]
fn mcap_files_from_elsewhere_keep_it() {
    assert_recordings("mcap", 10, &local);
}

#[test]
fn bags_from_elsewhere_keep_it() {
    assert_recordings("bag", 10, &local);
}

#[test]
fn db3_files_from_elsewhere_keep_it() {
    assert_recordings("db3", 5, &local);
}

#[test]
fn logs_from_elsewhere_keep_it() {
    assert_recordings("ulg", 1, &local);
}

#[cfg(feature = "remote")]
mod remote {
    use super::*;
    use common::server::Server;

    /// Opens a file over HTTP. Its server lives as long as the test.
    fn from_server(path: &Path) -> Option<Box<dyn Source>> {
        let bytes = std::fs::read(path).expect("readable");
        let (_, address) = Server::with_file(bytes).start();
        open(&address).ok()
    }

    #[test]
    fn a_remote_mcap_file_keeps_it_however_it_was_written() {
        for (name, bytes) in mcaps() {
            let (server, address) = Server::with_file(bytes).start();
            let file = open(&address).expect("opens");
            assert_source(&*file, name);
            assert!(server.requests() > 0);
        }
    }

    #[test]
    fn a_remote_file_keeps_it_while_requests_fail() {
        let server = Server {
            fails_one_in: 7,
            ..Server::with_file(demo_file(0.3, small_chunks()))
        };
        let (_, address) = server.start();
        assert_source(&*open(&address).expect("opens"), "a server that fails");
    }

    #[test]
    fn remote_files_of_every_format_keep_it() {
        for (kind, least) in [("mcap", 10), ("bag", 10), ("db3", 5), ("ulg", 1)] {
            assert_recordings(kind, least, &from_server);
        }
    }
}
