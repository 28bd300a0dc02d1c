//! Suite `export`: MCAP to Parquet by the command, in CPU seconds of all threads.
//!
//! The peers are those of the suite `decode`: `decompress`, which any reader must spend, and `rerun_convert`, the command
//! `rerun mcap convert` of the newest rerun-sdk in a process of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::decode::files::Files;
use crate::decode::rerun::Rerun;
use crate::decode::{cpu, decompress};
use crate::harness::{Bench, contender};

const CASE: &str = "parquet_small_cdr";

pub fn run(bench: &mut Bench) {
    if !bench.wants(CASE) {
        return;
    }
    let path = Files::prepare(|part| part == "a_").a;
    let rerun = Rerun::prepare();
    let mut contenders = vec![
        contender("asof", || cpu(|| export(&path))),
        contender("decompress", || cpu(|| decompress(&path))),
    ];
    if rerun.is_there() {
        contenders.push(contender("rerun_convert", || rerun.convert(&path)));
    }
    bench.case(CASE, "CPU s", 5, contenders);
}

/// What `asof export --format parquet` does, within this process.
fn export(path: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["asof", "--quiet", "export", "--format", "parquet", "-o"];
    let mut words: Vec<OsString> = words.map(OsString::from).into();
    words.push(folder.path().join("tables").into());
    words.push(path.into());
    let code = asof::cli::main_with(words);
    assert_eq!(code, ExitCode::SUCCESS, "the export failed");
}
