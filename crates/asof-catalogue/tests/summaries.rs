//! Recordings on a server that are opened by what the catalogue has of them.

mod served;

use asof_catalogue::{Changes, SummaryRow};
use asof_core::{Index as _, Source as _};
use asof_formats::FilePiece;
use served::fleet::{Fleet, now, write};
use served::{NAMES, Served, counted, surveyed};

/// Opens all recordings, and says how many requests that took.
fn requests_to_open(served: &Served) -> u64 {
    let before = served.server.requests();
    let all = served.recordings();
    assert_eq!(all.len(), NAMES.len());
    for recording in &all {
        assert!(!recording.sections().is_empty());
        assert!(recording.is_open());
    }
    served.server.requests() - before
}

#[test]
fn a_recording_is_opened_without_a_request_for_its_summary() {
    let served = Served::new();
    assert_eq!(requests_to_open(&served), 0);
    for recording in &served.recordings() {
        assert_eq!(counted(recording), Ok(4));
    }
    assert_eq!(requests_to_open(&served), 0);
}

#[test]
fn summaries_outlive_labels_compaction_and_the_recordings_beside_them() {
    let served = Served::new();
    let catalogue = &served.catalogue;
    for number in 0..8 {
        write(
            catalogue,
            vec![Fleet::surveyed(&format!("{number}.bag"), 200)],
        );
    }
    catalogue.compact(now()).expect("it is put together");
    assert_eq!(catalogue.existing_head().expect("a head").parts.len(), 1);
    let gone = (0..8).map(|number| format!("{number}.bag"));
    let changes = Changes {
        vanished: gone.collect(),
        ..Changes::default()
    };
    catalogue.commit(&changes, now()).expect("it is written");
    assert_eq!(requests_to_open(&served), 0);

    let changes = Changes {
        vanished: vec!["b.mcap".to_owned()],
        ..Changes::default()
    };
    catalogue.commit(&changes, now()).expect("it is written");
    let head = catalogue.existing_head().expect("a head");
    let kept = head.parts[0].summaries.as_ref().map(|file| file.rows);
    assert_eq!(kept, Some(2), "what is gone has no summary any more");
    assert_eq!(head.tables.summaries.len(), 1);
}

/// Bytes that do not get smaller.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(byte).take(count).collect()
}

#[test]
fn recordings_that_go_one_by_one_do_not_rewrite_the_large_files_each_time() {
    let fleet = Fleet::in_memory();
    let catalogue = fleet.catalogue();
    let name = |part: u64, number: u64| format!("{part}-{number}.mcap");
    for part in 0..8 {
        let recording = |number| {
            let mut indexed = Fleet::surveyed(&name(part, number), 10);
            let size = if part == 0 { 2_200_000 } else { 100 };
            let bytes = noise(part * 4 + number, size).into();
            let pieces = vec![FilePiece { offset: 0, bytes }];
            let recording = name(part, number);
            indexed.summary = Some(SummaryRow { recording, pieces });
            indexed
        };
        write(&catalogue, (0..4).map(recording).collect());
    }
    let mut summaries = Vec::new();
    for number in 0..3 {
        let changes = Changes {
            vanished: vec![name(0, number)],
            ..Changes::default()
        };
        let head = catalogue.commit(&changes, now()).expect("it is written");
        assert_eq!(head.parts[0].topics.rows, 3 - number);
        let file = head.parts[0].summaries.clone().expect("summaries");
        summaries.push((file.rows, file.file));
    }
    assert_eq!((summaries[0].0, summaries[1].0), (3, 2));
    assert_eq!(summaries[1], summaries[2], "the large file stays");

    let head = catalogue.compact(now()).expect("it is put together");
    let [only] = &head.parts[..] else {
        panic!("{:?}", head.parts);
    };
    let rows = only.summaries.as_ref().map(|file| file.rows);
    assert_eq!((only.recordings.rows, rows), (32, Some(29)));
}

#[test]
fn a_recording_that_is_not_what_was_indexed_is_told_when_it_is_read() {
    let served = Served::new();
    let all = served.recordings();
    served.put("/a.mcap", Some(vec![0; all[0].summary().size as usize]));
    served.put("/b.mcap", None);
    for (recording, why) in all.iter().zip(["has changed since", "no such file"]) {
        let told = counted(recording).expect_err("it is not there any more");
        assert!(told.contains(why), "{told}");
        assert!(told.contains("asof index"), "{told}");
    }
    assert_eq!(counted(&all[2]), Ok(4));
}

#[test]
fn without_a_summary_in_the_catalogue_the_recording_is_asked() {
    let served = Served::new();
    let size = served.bytes_of("/a.mcap").len() as u64;
    let mut indexed = surveyed(served.catalogue.root(), "a.mcap", size);
    indexed.summary = None;
    indexed.row.modified = Some(now());
    write(&served.catalogue, vec![indexed]);
    assert!(requests_to_open(&served) > 0);
}
