//! Blocks that had to leave memory come back from disk, or from the source if anything is wrong.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_blocks::{BlockCache, DiskOptions, Options, fingerprint_of_file};
use asof_core::Query;
use common::{Recording, Shared, assert_sound, query, read_all};

fn cache(recording: &Arc<Recording>, folder: &Path, fingerprint: &str, budget: u64) -> BlockCache {
    let options = Options {
        budget: 20_000,
        block_bytes: 2_000,
        disk: Some(DiskOptions {
            folder: folder.to_owned(),
            budget,
            fingerprint: fingerprint.into(),
        }),
        ..Options::default()
    };
    BlockCache::new(Shared(Arc::clone(recording)), options)
}

fn blocks_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(blocks_in(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

const PLENTY: u64 = 10_000_000;

#[test]
fn what_was_evicted_comes_back_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(3, 200, 100);
    let cache = cache(&recording, folder.path(), "a", PLENTY);
    let everything = Query::all();
    let expected = recording.naive(&everything);
    assert_eq!(read_all(&cache, &everything), expected);
    let delivered = recording.delivered();
    assert!(cache.statistics().disk_blocks > 10);
    for _ in 0..3 {
        assert_eq!(read_all(&cache, &everything), expected);
        assert_sound(&cache);
    }
    assert!(cache.statistics().disk_reads > 10);
    let again = recording.delivered() - delivered;
    assert!(again < 60, "{again} of 600 messages were read again");
    // Topics are taken apart, and times too.
    let part = query(&[2, 0], 303, 1_307);
    assert_eq!(read_all(&cache, &part), recording.naive(&part));
}

#[test]
fn a_new_cache_over_the_same_source_finds_the_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 200, 100);
    let everything = Query::all();
    let first = cache(&recording, folder.path(), "a", PLENTY);
    read_all(&first, &everything);
    drop(first);
    let delivered = recording.delivered();
    let second = cache(&recording, folder.path(), "a", PLENTY);
    assert!(second.statistics().disk_blocks > 5);
    assert_eq!(read_all(&second, &everything), recording.naive(&everything));
    assert!(recording.delivered() - delivered < 400);
}

#[test]
fn a_source_that_has_changed_finds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 200, 100);
    read_all(
        &cache(&recording, folder.path(), "before", PLENTY),
        &Query::all(),
    );
    let after = cache(&recording, folder.path(), "after", PLENTY);
    assert_eq!(after.statistics().disk_blocks, 0);
}

#[test]
fn damaged_blocks_are_removed_and_read_from_the_source() {
    let recording = Recording::regular(2, 200, 100);
    let everything = Query::all();
    let expected = recording.naive(&everything);
    // A byte changed at the front, in the middle, at the end; cut short; nothing left.
    let damages: [fn(&mut Vec<u8>); 5] = [
        |bytes| bytes[9] ^= 0x40,
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        |bytes| {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        },
        |bytes| bytes.truncate(bytes.len() / 3),
        Vec::clear,
    ];
    for damage in damages {
        let folder = tempfile::tempdir().expect("a folder");
        read_all(&cache(&recording, folder.path(), "a", PLENTY), &everything);
        let files = blocks_in(folder.path());
        assert!(files.len() > 5);
        for file in &files {
            let mut bytes = fs::read(file).expect("a block");
            damage(&mut bytes);
            fs::write(file, bytes).expect("writes");
        }
        let cache = cache(&recording, folder.path(), "a", PLENTY);
        assert_eq!(read_all(&cache, &everything), expected);
        assert_eq!(cache.statistics().disk_reads, 0, "nothing damaged was used");
    }
}

#[test]
fn the_disk_has_a_budget_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 400, 100);
    let cache = cache(&recording, folder.path(), "a", 30_000);
    for _ in 0..2 {
        read_all(&cache, &Query::all());
        let on_disk: u64 = blocks_in(folder.path())
            .iter()
            .map(|file| fs::metadata(file).expect("a file").len())
            .sum();
        assert_eq!(on_disk, cache.statistics().disk_bytes);
        assert!((1..=30_000).contains(&on_disk), "{on_disk}");
    }
}

#[test]
fn a_fingerprint_changes_with_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, b"one").expect("writes");
    let one = fingerprint_of_file(&path).expect("reads");
    assert_eq!(fingerprint_of_file(&path).expect("reads"), one);
    fs::write(&path, b"two").expect("writes");
    assert_ne!(fingerprint_of_file(&path).expect("reads"), one);
}
