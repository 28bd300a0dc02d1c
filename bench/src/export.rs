//! Suite `export`: MCAP to Parquet by the command, in CPU seconds of all threads.
//!
//! The peers are those of the suite `decode`: `decompress`, which any reader must spend, and `rerun_convert`, the command
//! `rerun mcap convert` of the newest rerun-sdk in a process of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::chunks::{cpu, decompress};
use crate::decode::files::Files;
use crate::harness::{Bench, contender};
use crate::rerun::Rerun;

const CASE: &str = "parquet_small_cdr";

pub fn run(bench: &mut Bench) {
    if !bench.wants(CASE) {
        return;
    }
    let path = Files::prepare(|part| part == "a_").a;
    let rerun = Rerun::prepare();
    let mut contenders = vec![
        contender("asof", || cpu(|| export(&path))),
        contender("decompress", || cpu(|| decompress(&path, None))),
    ];
    if rerun.is_there() {
        contenders.push(contender("rerun_convert", || rerun.convert(&path)));
    }
    bench.case(CASE, "CPU s", 5, contenders);
}

fn export(path: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    export_topics(path, &folder.path().join("tables"), &[]);
}

/// What `asof export --format parquet` does, within this process; of all topics where none are named.
pub fn export_topics(path: &Path, tables: &Path, topics: &[&str]) {
    let words = ["asof", "--quiet", "export", "--format", "parquet", "-o"];
    let mut words: Vec<OsString> = words.map(OsString::from).into();
    words.push(tables.into());
    if !topics.is_empty() {
        words.extend(["--topics".into(), topics.join(",").into()]);
        // Columns as the tables of `asof sql` have them.
        words.extend(["--layer".into(), "reflection".into()]);
    }
    words.push(path.into());
    let code = asof::cli::main_with(words);
    assert_eq!(code, ExitCode::SUCCESS, "the export failed");
}
