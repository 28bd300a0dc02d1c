//! Files that grow while they are read.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use asof_core::{Message, Query};
use asof_formats::{McapFile, McapFollower};
use common::{demo_file, messages, small_chunks};

fn drain(follower: &mut McapFollower) -> Vec<Message> {
    let mut found = Vec::new();
    while let Some(batch) = follower.poll().expect("reads") {
        found.extend(batch.iter().map(|message| message.to_message()));
    }
    found
}

/// Writes a file in pieces of this size and follows it after each.
fn followed(bytes: &[u8], piece: usize, path: &Path) -> Vec<Message> {
    let mut file = File::create(path).expect("creates");
    let mut follower = McapFollower::open(path).expect("opens");
    let mut found = drain(&mut follower);
    for part in bytes.chunks(piece) {
        file.write_all(part).expect("writes");
        found.extend(drain(&mut follower));
    }
    assert!(follower.is_finished());
    assert_eq!(follower.problems(), []);
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
    let mut open = bytes[..chunk + 9 + len].to_vec();
    open[chunk + 1..chunk + 9].fill(0xff);
    fs::write(&path, &open).expect("writes");
    let mut follower = McapFollower::open(&path).expect("opens");
    assert_eq!(drain(&mut follower).len(), 0);
    fs::write(&path, &bytes).expect("writes");
    assert!(drain(&mut follower).len() > 10);
}

#[test]
fn other_files_and_shrinking_ones_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    fs::write(&path, "no recording").expect("writes");
    let mut follower = McapFollower::open(&path).expect("opens");
    assert!(
        follower
            .poll()
            .expect_err("refused")
            .to_string()
            .contains("only an MCAP file")
    );
    let bytes = demo_file(0.2, small_chunks());
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
    let mut follower = McapFollower::open(&path).expect("opens");
    assert!(!drain(&mut follower).is_empty());
    fs::write(&path, &bytes[..100]).expect("writes");
    assert!(
        follower
            .poll()
            .expect_err("refused")
            .to_string()
            .contains("shorter")
    );
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
        let mut follower = McapFollower::open(&path).expect("opens");
        let before = drain(&mut follower).len();
        assert!(before > 0);
        change();
        let error = follower.poll().expect_err("is refused").to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn a_file_that_was_closed_is_finished_wherever_it_went() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.mcap");
    fs::write(&path, demo_file(0.2, small_chunks())).expect("writes");
    let mut follower = McapFollower::open(&path).expect("opens");
    fs::remove_file(&path).expect("removes");
    assert!(!drain(&mut follower).is_empty());
    assert!(follower.is_finished());
}
