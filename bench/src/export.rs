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
    export_with(path, &folder.path().join("tables"), &[]);
}

/// The export of topics, of all where none are named, with columns as the tables of `asof sql` have them.
#[cfg(feature = "sql")]
pub fn export_topics(path: &Path, tables: &Path, topics: &[&str]) {
    let topics = topics.join(",");
    let named = ["--layer", "reflection", "--topics", &topics];
    let words = if topics.is_empty() {
        &named[..2]
    } else {
        &named
    };
    export_with(path, tables, words);
}

/// What `asof export --format parquet` does, within this process.
fn export_with(path: &Path, tables: &Path, more: &[&str]) {
    let words = ["asof", "--quiet", "export", "--format", "parquet", "-o"];
    let mut words: Vec<OsString> = words.map(OsString::from).into();
    words.push(tables.into());
    words.extend(more.iter().map(OsString::from));
    words.push(path.into());
    let code = asof_cli::main_with(words);
    assert_eq!(code, ExitCode::SUCCESS, "the export failed");
}
