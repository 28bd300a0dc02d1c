//! ROS 1 bags cut among the index records behind their chunks, as a crash leaves them: every way of asking gives what a
//! reading of the whole gives.

mod common;

use std::sync::Arc;

use asof_core::testing::assert_source;

use asof_core::{Query, Source};
use asof_formats::BagFile;
use common::bags::BagMaker;
use common::messages;

/// Where each index record of a bag starts and ends.
fn index_records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .expect("a line")
        + 1;
    let word = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    while let Some(header_len) = word(at) {
        let Some(data_len) = word(at + 4 + header_len) else {
            break;
        };
        let end = at + 8 + header_len + data_len;
        let header = &bytes[at + 4..at + 4 + header_len];
        let is_index = header.windows(8).any(|field| field == b"\x04\0\0\0op=\x04");
        if is_index {
            found.push((at, end));
        }
        at = end;
    }
    found
}

/// Cuts at each record's start, within its header, within its data, and right behind it.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let places = |(start, end): (usize, usize)| [start, start + 9, end - 5, end];
    let mut cuts: Vec<usize> = index_records(bytes).into_iter().flat_map(places).collect();
    cuts.dedup();
    cuts
}

fn check(bytes: &[u8], name: &str) {
    let bag = BagFile::from_bytes(name, bytes.to_vec()).expect("opens");
    let all = messages(&bag, &Query::all());
    let summary = bag.summary();
    assert_eq!(summary.messages, Some(all.len() as u64), "{name}");
    for entry in &summary.channels {
        let there = all
            .iter()
            .filter(|message| Arc::ptr_eq(&message.channel, &entry.channel));
        let there = there.count() as u64;
        assert!(
            entry.messages == Some(there),
            "{name}: {}",
            entry.channel.topic
        );
    }
    assert!(!summary.problems.is_empty(), "{name}: nothing is said");
    assert_source(&bag, name);
    bag.check(&mut |_, _| Ok(())).expect("reads");
}

fn made(compression: &'static str) -> Vec<u8> {
    let mut maker = BagMaker::new(compression);
    for (id, topic) in ["/a", "/b", "/c"].into_iter().enumerate() {
        maker.connect(id as u32, topic, "std_msgs/String", "string data\n", false);
    }
    for chunk in 0..3 {
        let said: Vec<(u32, (u32, u32), Vec<u8>)> = (0..30u32)
            .map(|n| (n % 3, (chunk * 100 + n, 0), vec![n as u8; 40]))
            .collect();
        let said: Vec<_> = said
            .iter()
            .map(|(id, at, data)| (*id, *at, &data[..]))
            .collect();
        maker.chunk(&said);
    }
    maker.finish()
}

#[test]
fn a_bag_that_was_cut_among_its_index_records_is_answered_from_its_chunks() {
    for compression in ["none", "bz2", "lz4"] {
        let bytes = made(compression);
        let cuts = cuts(&bytes);
        assert!(cuts.len() >= 18, "{}", cuts.len());
        for cut in cuts {
            check(&bytes[..cut], &format!("{compression} cut at {cut}"));
        }
    }
}

#[test]
fn a_damaged_index_record_is_not_taken_for_the_end_of_them() {
    let bytes = made("lz4");
    for (start, end) in index_records(&bytes) {
        let mut damaged = bytes.clone();
        // The bag's index goes too, so that the file is walked.
        damaged.truncate(bytes.len() - 10);
        damaged[start + 4..(start + 40).min(end)].fill(0xff);
        check(&damaged, &format!("damaged at {start}"));
    }
}

#[test]
fn every_bag_of_the_data_folder_is_answered_the_same_however_it_was_cut() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "bag"));
    let mut tried = 0;
    for path in files {
        let bytes = std::fs::read(&path).expect("reads");
        // Everything is read very often; `ci/files/cuts` asks the command about all of them.
        if bytes.len() > 40_000 {
            continue;
        }
        let cuts = cuts(&bytes);
        // A large one takes long, and its chunks are all alike.
        let step = (cuts.len() * bytes.len() / (1 << 20)).max(1);
        for cut in cuts.into_iter().step_by(step) {
            let name = format!("{} cut at {cut}", path.display());
            if BagFile::from_bytes("whole", bytes.clone()).is_ok() {
                check(&bytes[..cut], &name);
                tried += 1;
            }
        }
    }
    println!("{tried} cuts");
}
