//! Blocks that had to leave memory come back from disk, or from the source if anything is wrong.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asof_blocks::{BlockCache, CacheOptions, DiskOptions, fingerprint_of_file};
use asof_core::{
    Batch, Batches, Problem, ProblemKind, Query, Source, SourceError, Stamp, Summary, Topics,
};
use common::{Recording, Shared, assert_sound, query, read_all};

fn cache(recording: &Arc<Recording>, folder: &Path, fingerprint: &str, budget: u64) -> BlockCache {
    let options = CacheOptions {
        budget: 20_000,
        block_bytes: 2_000,
        disk: Some(DiskOptions {
            folder: folder.to_owned(),
            budget,
            fingerprint: fingerprint.into(),
        }),
    };
    BlockCache::new(Shared(Arc::clone(recording)), options)
}

fn blocks_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(blocks_in(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "block")
        {
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
    cache.flush();
    assert!(cache.stats().disk_blocks > 10);
    for _ in 0..3 {
        assert_eq!(read_all(&cache, &everything), expected);
        cache.flush();
        assert_sound(&cache);
    }
    assert!(cache.stats().disk_reads > 10);
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
    assert!(second.stats().disk_blocks > 5);
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
    assert_eq!(after.stats().disk_blocks, 0);
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
        assert_eq!(cache.stats().disk_reads, 0, "nothing damaged was used");
    }
}

#[test]
fn the_disk_has_a_budget_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 400, 100);
    let cache = cache(&recording, folder.path(), "a", 30_000);
    for _ in 0..2 {
        read_all(&cache, &Query::all());
        cache.flush();
        let on_disk: u64 = blocks_in(folder.path())
            .iter()
            .map(|file| fs::metadata(file).expect("a file").len())
            .sum();
        assert_eq!(on_disk, cache.stats().disk_bytes);
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

#[test]
fn caches_that_share_a_folder_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 400, 100);
    let caches = [(); 2].map(|()| cache(&recording, folder.path(), "a", PLENTY));
    // Both evict, each from places of its own, and both read what the other has written.
    let parts = [(0, 1_999), (2_000, 4_000), (500, 2_500), (0, 4_000)];
    for (turn, (start, end)) in parts.into_iter().enumerate() {
        for (number, cache) in caches.iter().enumerate() {
            let topics: &[usize] = if (turn + number) % 2 == 0 {
                &[0, 1]
            } else {
                &[1]
            };
            let asked = query(topics, start, end);
            assert_eq!(read_all(cache, &asked), recording.naive(&asked));
        }
    }
    let everything = Query::all();
    for cache in &caches {
        assert_eq!(read_all(cache, &everything).len(), 800);
        assert_sound(cache);
    }
    // What one has written, the next one finds, and no file is there that nobody knows of.
    let third = cache(&recording, folder.path(), "a", PLENTY);
    assert_eq!(third.stats().disk_blocks, blocks_in(folder.path()).len());
    assert_eq!(read_all(&third, &everything), recording.naive(&everything));
}

#[test]
fn threads_with_caches_of_their_own_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(3, 200, 100);
    std::thread::scope(|scope| {
        for thread in 0..3i64 {
            let (recording, folder) = (&recording, folder.path());
            scope.spawn(move || {
                let cache = cache(recording, folder, "a", 60_000);
                for turn in 0..12 {
                    let start = (turn * 331 + thread * 97) % 1_500;
                    let asked = query(&[0, (turn % 3) as usize], start, start + 600);
                    assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
                }
                assert_sound(&cache);
            });
        }
    });
    let on_disk: u64 = blocks_in(folder.path())
        .iter()
        .map(|file| fs::metadata(file).expect("a file").len())
        .sum();
    assert!(on_disk <= 60_000, "{on_disk}");
}

#[test]
fn a_file_that_holds_another_range_than_its_place_says_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(1, 400, 100);
    let cache = cache(&recording, folder.path(), "a", PLENTY);
    let everything = Query::all();
    let expected = recording.naive(&everything);
    assert_eq!(read_all(&cache, &everything), expected);
    // The files change places behind the cache's back: each is whole, and none is what it was.
    let files = blocks_in(folder.path());
    assert!(files.len() > 5);
    let contents: Vec<Vec<u8>> = files
        .iter()
        .map(|file| fs::read(file).expect("reads"))
        .collect();
    for (number, file) in files.iter().enumerate() {
        fs::write(file, &contents[(number + 1) % contents.len()]).expect("writes");
    }
    assert_eq!(read_all(&cache, &everything), expected);
}

#[test]
fn what_fitted_into_memory_is_on_disk_when_the_cache_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 100, 100);
    let open = || {
        let options = CacheOptions {
            block_bytes: 2_000,
            disk: Some(DiskOptions {
                folder: folder.path().to_owned(),
                budget: PLENTY,
                fingerprint: "a".into(),
            }),
            ..CacheOptions::default()
        };
        BlockCache::new(Shared(Arc::clone(&recording)), options)
    };
    let everything = Query::all();
    let first = open();
    read_all(&first, &everything);
    assert_eq!(first.stats().evictions, 0);
    drop(first);
    let (reads, expected) = (recording.reads(), recording.naive(&everything));
    let second = open();
    assert_eq!(read_all(&second, &everything), expected);
    assert_eq!(
        recording.reads(),
        reads,
        "nothing is read from the source again"
    );
    // It was written once: closing again changes nothing.
    let files = blocks_in(folder.path());
    second.keep_on_disk();
    drop(second);
    assert_eq!(blocks_in(folder.path()), files);
}

#[test]
fn sources_that_share_a_folder_share_its_budget_and_the_oldest_blocks_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let budget = 30_000;
    for name in ["a", "b", "c"] {
        let recording = Recording::regular(2, 200, 100);
        let everything = Query::all();
        let cache = cache(&recording, folder.path(), name, budget);
        read_all(&cache, &everything);
        drop(cache);
        let on_disk: u64 = blocks_in(folder.path())
            .iter()
            .map(|file| fs::metadata(file).expect("a file").len())
            .sum();
        assert!((budget / 2..=budget).contains(&on_disk), "{on_disk}");
    }
}

#[test]
fn what_is_used_stays_on_disk_and_a_source_without_blocks_has_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 200, 100);
    let fill = |name: &str, budget: u64| {
        let cache = cache(&recording, folder.path(), name, budget);
        read_all(&cache, &Query::all());
    };
    fill("used", PLENTY);
    fill("unused", PLENTY);
    let blocks = blocks_in(folder.path());
    // Written long ago, but one of them is read again.
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(1_000_000);
    for (at, file) in blocks.iter().enumerate() {
        let file = fs::File::options()
            .append(true)
            .open(file)
            .expect("a block");
        let at = long_ago + std::time::Duration::from_secs(at as u64);
        file.set_modified(at).expect("a time");
    }
    let all: u64 = blocks
        .iter()
        .map(|file| fs::metadata(file).expect("a file").len())
        .sum();
    fill("used", PLENTY);
    // Room for about half of it.
    fill("new", all);
    let folders = |folder: &Path| {
        fs::read_dir(folder)
            .expect("listed")
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .count()
    };
    assert_eq!(
        folders(folder.path()),
        2,
        "the unused one is gone, and its folder"
    );
    let cache = cache(&recording, folder.path(), "used", PLENTY);
    read_all(&cache, &Query::all());
    assert!(cache.stats().disk_reads > 0);
}

#[test]
fn a_lock_that_another_process_holds_costs_time_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(3, 400, 100);
    let cache = cache(&recording, folder.path(), "a", PLENTY);
    let lock = fs::File::options()
        .write(true)
        .open(folder.path().join("asof-blocks.lock"))
        .expect("the lock");
    lock.lock().expect("locked");
    for _ in 0..3 {
        assert_eq!(
            read_all(&cache, &Query::all()),
            recording.naive(&Query::all())
        );
    }
    cache.flush();
    let stats = cache.stats();
    assert!(
        stats.disk_failures > 20,
        "each block would wait for half a second: {stats:?}"
    );
    assert_eq!(stats.disk_blocks, 0);
}

/// A recording with a damaged chunk, which is noticed when it is read.
struct Damaged(Arc<Recording>);

impl Source for Damaged {
    fn summary(&self) -> Arc<Summary> {
        let mut summary = (*Shared(Arc::clone(&self.0)).summary()).clone();
        summary.problems = vec![problem(0)];
        if self.0.reads() > 0 {
            summary.problems.push(problem(7));
        }
        Arc::new(summary)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        Shared(Arc::clone(&self.0)).read(query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        Shared(Arc::clone(&self.0)).latest_at(topics, at)
    }
}

fn problem(number: u64) -> Problem {
    Problem::at(ProblemKind::BadChecksum, number, "a bad checksum").on_topic("/t0")
}

#[test]
fn problems_are_kept_with_the_blocks_and_go_with_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::regular(2, 200, 100);
    let open = |name: &str, budget: u64| {
        let disk = DiskOptions {
            folder: folder.path().into(),
            budget,
            fingerprint: name.into(),
        };
        let options = CacheOptions {
            disk: Some(disk),
            ..CacheOptions::default()
        };
        let fresh = Recording::regular(2, 200, 100);
        (Arc::clone(&fresh), BlockCache::new(Damaged(fresh), options))
    };
    {
        let (_, cold) = open("damaged", PLENTY);
        assert_eq!(cold.summary().problems, [problem(0)]);
        read_all(&cold, &Query::all());
        assert_eq!(cold.summary().problems, [problem(0), problem(7)]);
    }
    for _ in 0..2 {
        let (source, warm) = open("damaged", PLENTY);
        assert_eq!(warm.summary().problems, [problem(0), problem(7)]);
        assert_eq!(
            read_all(&warm, &Query::all()),
            recording.naive(&Query::all())
        );
        assert_eq!(source.reads(), 0, "everything is on disk");
        assert_eq!(warm.summary().problems, [problem(0), problem(7)]);
    }
    let (_, other) = open("other", PLENTY);
    assert_eq!(other.summary().problems, [problem(0)]);
    drop(other);
    let (_, small) = open("small", 20_000);
    read_all(&small, &Query::all());
    drop(small);
    let folders = fs::read_dir(folder.path()).expect("listed").flatten();
    let folders = folders.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(folders, 1, "those without blocks are gone");
}

/// The part of another process in the next test.
#[test]
fn a_process_reads_through_the_folder_that_it_is_told() {
    let Some(folder) = std::env::var_os("ASOF_BLOCKS_TEST_FOLDER") else {
        return;
    };
    let recording = Recording::regular(2, 400, 100);
    let cache = cache(&recording, Path::new(&folder), "a", 200_000);
    for turn in 0..8 {
        let asked = query(&[0, 1], turn * 311 % 2_000, 4_000);
        assert_eq!(read_all(&cache, &asked), recording.naive(&asked));
    }
}

#[test]
fn processes_that_share_a_folder_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = "a_process_reads_through_the_folder_that_it_is_told";
    let program = std::env::current_exe().expect("this test");
    let start = || {
        std::process::Command::new(&program)
            .args(["--exact", test])
            .env("ASOF_BLOCKS_TEST_FOLDER", folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starts")
    };
    let processes = [(); 3].map(|()| start());
    for mut process in processes {
        assert!(process.wait().expect("ends").success());
    }
    let recording = Recording::regular(2, 400, 100);
    let cache = cache(&recording, folder.path(), "a", 200_000);
    assert!(cache.stats().disk_blocks > 0);
    assert_eq!(cache.stats().disk_failures, 0);
    let everything = Query::all();
    assert_eq!(read_all(&cache, &everything), recording.naive(&everything));
}
