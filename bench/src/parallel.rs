//! Suite `parallel`: all messages of a recording on two threads, against the same on one.
//!
//! The recording is cut in two by time, where half of its messages lie before. Each thread reads its slice by itself,
//! from one source that both share; `one_thread` reads one slice after the other. So the ratio is what sharing costs: half
//! is the best that there is.

use std::path::Path;
use std::thread;

use asof_core::{Query, Source, Stamp};
use asof_formats::McapFile;

use crate::harness::{Bench, contender};
use crate::mcap_suite::{Files, look, open, wall};

pub fn run(bench: &mut Bench) {
    let files = Files::prepare();
    scan(bench, "scan_small_two_threads", &files.small);
    scan(bench, "scan_large_two_threads", &files.large);
}

fn scan(bench: &Bench, case: &str, path: &Path) {
    if !bench.wants(case) {
        return;
    }
    let slices = halves(path);
    let answer: u64 = slices.iter().map(|slice| read(&open(path, 1), slice)).sum();
    let contenders = vec![
        contender("asof", || {
            wall(|| {
                let file = &open(path, 1);
                let sum: u64 = thread::scope(|scope| {
                    let readers = slices
                        .each_ref()
                        .map(|slice| scope.spawn(|| read(file, slice)));
                    let sums = readers.map(|reader| reader.join().expect("no panic"));
                    sums.iter().sum()
                });
                assert_eq!(sum, answer, "something else was read");
            })
        }),
        contender("one_thread", || {
            wall(|| {
                let file = open(path, 1);
                let sum: u64 = slices.iter().map(|slice| read(&file, slice)).sum();
                assert_eq!(sum, answer, "something else was read");
            })
        }),
    ];
    bench.case(case, "ms", 9, contenders);
}

fn read(file: &McapFile, slice: &Query) -> u64 {
    let batches = file.read(slice).expect("reads");
    let sums = batches.map(|batch| {
        let batch = batch.expect("a batch");
        batch
            .iter()
            .map(|message| look(message.payload))
            .sum::<u64>()
    });
    sums.sum()
}

/// Two slices of time with about as many bytes each.
fn halves(path: &Path) -> [Query; 2] {
    let file = open(path, 1);
    let mut times: Vec<(Stamp, u64)> = Vec::new();
    for batch in file.read(&Query::all()).expect("reads") {
        let batch = batch.expect("a batch");
        let bytes = batch
            .iter()
            .map(|message| message.payload.len() as u64)
            .sum();
        times.push((batch.range().start, bytes));
    }
    let total: u64 = times.iter().map(|(_, bytes)| bytes).sum();
    let mut before = 0;
    let middle = times.iter().find(|(_, bytes)| {
        before += bytes;
        before > total / 2
    });
    let middle = middle.map_or(Stamp::MAX, |(start, _)| *start);
    let end = middle.plus_nanos(-1);
    [Query::all().between(..=end), Query::all().between(middle..)]
}
