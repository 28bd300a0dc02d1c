//! Recordings from other people's robots, held against the `mcap` crate's own reader.

mod common;

use std::path::PathBuf;

use asof_core::{Message, Query, Source, SourceError, Stamp, Topics};
use asof_formats::{MappedFile, McapFile, OpenOptions};

fn recordings() -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    common::files_below(&common::test_data()?.join("recordings"), &mut files);
    Some(files)
}

fn mcaps() -> Option<Vec<PathBuf>> {
    Some(
        recordings()?
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "mcap"))
            .collect(),
    )
}

/// What the `mcap` crate reads, in log-time order with ties in file order; up to its first error.
fn reference(bytes: &[u8]) -> Vec<(String, u64, u64, u32, Vec<u8>)> {
    let Ok(stream) = mcap::MessageStream::new(bytes) else {
        return Vec::new();
    };
    let mut messages: Vec<_> = stream
        .map_while(Result::ok)
        .map(|m| {
            (
                m.channel.topic.clone(),
                m.log_time,
                m.publish_time,
                m.sequence,
                unpacked(m.data.into_owned()),
            )
        })
        .collect();
    messages.sort_by_key(|message| message.1);
    messages
}

/// What ROS 2 compressed message by message comes out decompressed.
fn unpacked(payload: Vec<u8>) -> Vec<u8> {
    if payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return zstd::stream::decode_all(&payload[..]).expect("decompresses");
    }
    payload
}

fn plain(message: &Message) -> (String, u64, u64, u32, Vec<u8>) {
    let nanos = |stamp: Stamp| stamp.to_unsigned_nanos().expect("after 1970");
    (
        message.channel.topic.clone(),
        nanos(message.log_time),
        nanos(message.publish_time),
        message.sequence,
        message.payload.to_vec(),
    )
}

#[test]
fn every_message_is_the_one_that_the_mcap_crate_reads() {
    let Some(files) = mcaps() else { return };
    assert!(!files.is_empty());
    for path in files {
        let bytes = std::fs::read(&path).expect("readable");
        let wanted = reference(&bytes);
        for threads in [1, 3] {
            let storage = Box::new(MappedFile::open(&path).expect("maps"));
            let file = McapFile::from_storage(
                storage,
                &OpenOptions {
                    threads,
                    ..OpenOptions::default()
                },
            )
            .expect("opens");
            let found: Vec<_> = common::messages(&file, &Query::all())
                .iter()
                .map(plain)
                .collect();
            let has_problems = !file.summary().problems.is_empty();
            assert!(
                found.len() >= wanted.len(),
                "{}: {} of {}",
                path.display(),
                found.len(),
                wanted.len()
            );
            if has_problems {
                // The reference stops at the first damage; what it read before must be here too.
                assert!(
                    wanted.iter().all(|message| found.contains(message)),
                    "{}",
                    path.display()
                );
            } else {
                assert!(found == wanted, "{}: messages differ", path.display());
                assert_eq!(
                    file.summary().messages,
                    Some(found.len() as u64),
                    "{}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn latest_at_is_what_a_scan_from_the_start_finds() {
    let Some(files) = mcaps() else { return };
    for path in files {
        let file = McapFile::open(&path).expect("opens");
        let all = common::messages(&file, &Query::all());
        let range = file.summary().range;
        for part in 0..=6 {
            let at = range.start.plus_nanos(range.duration_nanos() / 6 * part);
            let wanted = common::scan_latest(&all, &Topics::All, at);
            let batch = file.latest_at(&Topics::All, at).expect("reads");
            let found: Vec<_> = batch.iter().map(|m| plain(&m.to_message())).collect();
            assert!(
                found == wanted.iter().map(plain).collect::<Vec<_>>(),
                "{} at {at}",
                path.display()
            );
        }
    }
}

#[test]
fn every_file_opens_or_is_refused_in_a_sentence() {
    let Some(files) = recordings() else { return };
    let (mut opened, mut refused) = (0, 0);
    for path in &files {
        match asof_formats::open(path) {
            Ok(_) => opened += 1,
            Err(error @ (SourceError::Unreadable { .. } | SourceError::Io { .. })) => {
                refused += 1;
                assert!(
                    error.to_string().contains(&path.display().to_string()),
                    "{error}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    println!("{opened} files opened, {refused} refused");
    assert!(opened > 20);
}

#[test]
fn the_doctor_finds_the_whole_files_whole() {
    let Some(files) = mcaps() else { return };
    for path in files {
        let file = McapFile::open(&path).expect("opens");
        let problems = file.check(&mut |_, _| Ok(())).expect("reads");
        for problem in problems {
            println!("{}: {problem}", path.display());
        }
    }
}
