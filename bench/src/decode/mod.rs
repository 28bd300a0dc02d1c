//! Suite `decode`: MCAP to Arrow, in CPU seconds of one thread.
//!
//! `decompress` is what any reader must spend: every chunk decompressed, and nothing done with it. `rerun_decode`
//! is `McapReader` of the newest rerun-sdk, its chunks dropped; `rerun_convert` its command `rerun mcap convert`.
//! Both run in a process of their own, and are there if `bench/peers/rerun` could be set up.

pub mod files;
mod memory;
mod proto;

use std::hint::black_box;
use std::path::Path;

use asof_core::Query;
use asof_decode::{Layers, TableOptions, Tables};
use asof_formats::{MappedFile, McapFile, OpenOptions};

use crate::chunks::{cpu, decompress};
use crate::harness::{Bench, Contender, contender};
use crate::rerun::Rerun;
use files::Files;

pub fn run(bench: &mut Bench) {
    if memory::is_child() {
        return;
    }
    let files = Files::prepare(|part| {
        CASES
            .iter()
            .any(|case| case.starts_with(part) && bench.wants(case))
    });
    let rerun = Rerun::prepare();
    let all = Query::all();
    whole(bench, "a_small_cdr", &files.a, &all, &rerun, true);
    whole(bench, "b_large_cdr", &files.b, &all, &rerun, false);
    whole(bench, "c_custom_reflection", &files.c, &all, &rerun, true);
    whole(
        bench,
        "d1_foxglove_protobuf_small",
        &files.d1,
        &all,
        &rerun,
        true,
    );
    whole(
        bench,
        "d2_foxglove_protobuf_large",
        &files.d2,
        &all,
        &rerun,
        false,
    );
    whole(bench, "e_mixed_all_topics", &files.e, &all, &rerun, false);
    let two = Query::topics(["/imu/front", "/odom/wheels"]);
    whole(bench, "e_mixed_two_topics", &files.e, &two, &rerun, false);
    let events = Query::topics(["/events"]);
    whole(bench, "e2_sparse_topic", &files.e2, &events, &rerun, false);
    whole(
        bench,
        "e3_sparse_topic_uncompressed",
        &files.e3,
        &events,
        &rerun,
        false,
    );
    semantic_over_reflection(bench, &files.a);
    if bench.wants("peak_memory") {
        memory::peak_memory(bench, &files.large);
    }
}

const CASES: [&str; 11] = [
    "a_small_cdr",
    "b_large_cdr",
    "c_custom_reflection",
    "d1_foxglove_protobuf_small",
    "d2_foxglove_protobuf_large",
    "e_mixed_all_topics",
    "e_mixed_two_topics",
    "e2_sparse_topic",
    "e3_sparse_topic_uncompressed",
    "semantic_over_reflection",
    "peak_memory",
];

const ROUNDS: usize = 5;

fn whole(bench: &Bench, case: &str, path: &Path, query: &Query, rerun: &Rerun, has_convert: bool) {
    if !bench.wants(case) {
        return;
    }
    let mut contenders: Vec<Contender<'_>> = vec![
        contender("asof", || cpu(|| decode(path, query, &Layers::standard()))),
        contender("decompress", || cpu(|| decompress(path, None))),
    ];
    if rerun.is_there() {
        contenders.push(contender("rerun_decode", || rerun.decode(path, query)));
        if has_convert {
            contenders.push(contender("rerun_convert", || rerun.convert(path)));
        }
    }
    bench.case(case, "CPU s", ROUNDS, contenders);
}

fn semantic_over_reflection(bench: &Bench, path: &Path) {
    let all = Query::all();
    let contenders = vec![
        contender("asof", || cpu(|| decode(path, &all, &Layers::standard()))),
        contender("reflection", || {
            cpu(|| decode(path, &all, &Layers::standard().without("semantic")))
        }),
    ];
    bench.case("semantic_over_reflection", "CPU s", ROUNDS, contenders);
}

/// Everything decoded, batch by batch, on one thread.
fn decode(path: &Path, query: &Query, layers: &Layers) -> usize {
    let mapped = MappedFile::open(path).expect("a file");
    let options = OpenOptions {
        threads: 1,
        ..OpenOptions::default()
    };
    let file = McapFile::from_storage(Box::new(mapped), &options).expect("an MCAP file");
    let options = TableOptions {
        layers: layers.clone(),
        threads: 1,
        ..TableOptions::default()
    };
    let mut tables = Tables::read(&file, query, options).expect("reads");
    let rows = tables
        .by_ref()
        .map(|batch| black_box(batch.expect("a batch")).batch.num_rows())
        .sum();
    assert!(tables.report().iter().all(|channel| channel.failed == 0));
    rows
}
