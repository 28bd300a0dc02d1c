//! Files that grow while they are read.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use asof_core::{Follow, FollowEnd, Followed, Message, Query, Source};
use asof_formats::{GrowingMcapFile, McapFile, OpenOptions};
use common::{demo_file, messages, small_chunks};

fn open(path: &Path) -> GrowingMcapFile {
    GrowingMcapFile::open(path, &OpenOptions::default()).expect("opens")
}

fn follow(file: &GrowingMcapFile) -> Box<dyn Follow> {
    file.follow(&Query::all()).expect("follows")
}

/// What is there by now, and the end if there is one.
fn drain(follower: &mut dyn Follow) -> (Vec<Message>, Option<FollowEnd>) {
    let mut found = Vec::new();
    loop {
        match follower.next(Instant::now()).expect("reads") {
            Followed::Batch(batch) => found.extend(batch.iter().map(|one| one.to_message())),
            Followed::End(end) => return (found, Some(end)),
            Followed::CaughtUp | Followed::Restarted => return (found, None),
        }
    }
}

/// Writes a file in pieces of this size and follows it after each.
fn followed(bytes: &[u8], piece: usize, path: &Path) -> Vec<Message> {
    let mut file = File::create(path).expect("creates");
    let source = open(path);
    let mut follower = follow(&source);
    let (mut found, mut end) = drain(&mut *follower);
    for part in bytes.chunks(piece) {
        file.write_all(part).expect("writes");
        let (more, ended) = drain(&mut *follower);
        found.extend(more);
        end = ended;
    }
    assert_eq!(end, Some(FollowEnd::Complete));
    assert_eq!(source.summary().problems, []);
    found
}

#[test]
fn a_file_in_pieces_of_any_size_gives_every_message_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = [
        small_chunks(),
        small_chunks().compression(Some(mcap::Compression::Lz4)),
        small_chunks().use_chunks(false),
    ];
    for options in kinds {
        let bytes = demo_file(0.4, options);
        let whole = McapFile::from_bytes("whole", bytes.clone()).expect("opens");
        let wanted = messages(&whole, &Query::all());
        for piece in [7, 1000, 65_536, bytes.len()] {
            let mut found = followed(&bytes, piece, &folder.path().join("run.mcap"));
            found.sort_by_key(|message| message.log_time);
            assert_eq!(found.len(), wanted.len());
            let times = |all: &[Message]| all.iter().map(|m| m.log_time).collect::<Vec<_>>();
            assert_eq!(times(&found), times(&wanted));
        }
    }
}

#[test]
fn a_chunk_whose_length_is_filled_in_later_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let bytes = demo_file(0.2, small_chunks());
    let chunk = 8 + 9 + u64::from_le_bytes(bytes[9..17].try_into().expect("eight")) as usize;
    assert_eq!(bytes[chunk], 6, "a chunk follows the header");
    let len = u64::from_le_bytes(bytes[chunk + 1..chunk + 9].try_into().expect("eight")) as usize;
    let mut unfinished = bytes[..chunk + 9 + len].to_vec();
    unfinished[chunk + 1..chunk + 9].fill(0xff);
    fs::write(&path, &unfinished).expect("writes");
    let mut follower = follow(&open(&path));
    assert_eq!(drain(&mut *follower).0.len(), 0);
    fs::write(&path, &bytes).expect("writes");
    assert!(drain(&mut *follower).0.len() > 10);
}

#[test]
fn other_files_and_shrinking_ones_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    fs::write(&path, "no recording").expect("writes");
    let refused = GrowingMcapFile::open(&path, &OpenOptions::default()).expect_err("is refused");
    assert!(
        refused.to_string().contains("only an MCAP file"),
        "{refused}"
    );
    let bytes = demo_file(0.2, small_chunks());
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    let mut follower = follow(&open(&path));
    assert!(!drain(&mut *follower).0.is_empty());
    fs::write(&path, &bytes[..100]).expect("writes");
    let lost = drain(&mut *follower).1;
    assert!(
        matches!(&lost, Some(FollowEnd::Lost(reason)) if reason.contains("shorter")),
        "{lost:?}"
    );
}

#[test]
fn damage_that_a_follower_meets_is_told_by_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let bytes = demo_file(0.4, small_chunks().compression(None));
    let half = bytes.len() / 2;
    fs::write(&path, &bytes[..half]).expect("writes");
    let file = open(&path);
    let mut follower = follow(&file);
    drain(&mut *follower);
    assert_eq!(file.summary().problems, []);
    // A byte of a payload in a chunk that nobody has read yet: its checksum does not hold any more.
    let mut damaged = bytes;
    let at = half + (damaged.len() - half) / 4;
    damaged[at] ^= 0x55;
    fs::write(&path, &damaged).expect("writes");
    let (found, end) = drain(&mut *follower);
    assert!(!found.is_empty());
    assert_eq!(end, Some(FollowEnd::Complete));
    let told = file.summary().problems.clone();
    assert!(!told.is_empty());
    // Told once, although a check meets it again.
    let checked = file.check(&mut |_, _| Ok(())).expect("reads");
    let places: Vec<_> = checked.iter().map(|one| (one.kind, one.offset)).collect();
    let mut once = places.clone();
    once.dedup();
    assert_eq!(places, once);
}

/// What happens to a file, and what is told of it.
type Change<'a> = (&'a dyn Fn(), &'a str);

#[test]
fn a_file_that_was_replaced_or_removed_is_no_endless_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, other) = (folder.path().join("run.mcap"), folder.path().join("new"));
    let bytes = demo_file(0.2, small_chunks());
    let half = &bytes[..bytes.len() / 2];
    let replace = || {
        fs::write(&other, half).expect("writes");
        fs::rename(&other, &path).expect("renames");
    };
    let remove = || fs::remove_file(&path).expect("removes");
    let changes: [Change<'_>; 2] = [(&replace, "took its place"), (&remove, "was removed")];
    for (change, told) in changes {
        fs::write(&path, half).expect("writes");
        let mut follower = follow(&open(&path));
        assert!(!drain(&mut *follower).0.is_empty());
        change();
        let lost = drain(&mut *follower).1;
        assert!(
            matches!(&lost, Some(FollowEnd::Lost(reason)) if reason.contains(told)),
            "{lost:?}"
        );
    }
}

#[test]
fn a_file_that_was_closed_is_finished_wherever_it_went() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    fs::write(&path, demo_file(0.2, small_chunks())).expect("writes");
    let mut follower = follow(&open(&path));
    fs::remove_file(&path).expect("removes");
    let (found, end) = drain(&mut *follower);
    assert!(!found.is_empty());
    assert_eq!(end, Some(FollowEnd::Complete));
}

#[test]
fn a_file_that_grew_is_what_a_new_look_at_it_finds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    let kinds = [
        small_chunks(),
        // Nothing but the chunks themselves says what is in them.
        small_chunks().emit_message_indexes(false),
        small_chunks().use_chunks(false),
    ];
    for options in kinds {
        let bytes = demo_file(0.4, options);
        for piece in [20_011, 150_001] {
            let mut file = File::create(&path).expect("creates");
            let grown = open(&path);
            for part in bytes.chunks(piece) {
                file.write_all(part).expect("writes");
                let (grown_summary, new) = (grown.summary(), open(&path));
                let new_summary = new.summary();
                assert_eq!(grown_summary.messages, new_summary.messages);
                assert_eq!(grown_summary.range, new_summary.range);
                assert_eq!(grown_summary.problems, new_summary.problems);
                assert_eq!(grown_summary.metadata, new_summary.metadata);
                let counts = |summary: &asof_core::Summary| {
                    let entries = summary.channels.iter();
                    let mut all: Vec<_> = entries
                        .map(|entry| (entry.channel.topic.clone(), entry.messages))
                        .collect();
                    all.sort();
                    all
                };
                assert_eq!(counts(&grown_summary), counts(&new_summary));
                if part.len() > 100_000 {
                    let all = Query::all();
                    assert_eq!(messages(&grown, &all), messages(&new, &all));
                }
            }
        }
    }
}
