//! Peak memory of decoding a file of more than a gigabyte, in a process of its own.

use std::path::Path;
use std::process::Command;

use asof_core::{Query, Source};
use asof_decode::{TableOptions, Tables};
use asof_formats::OpenOptions;

use crate::harness::{Bench, contender};

/// The environment variable that names the file to decode.
const FILE: &str = "ASOF_DECODE_MEMORY";
const MB: f64 = (1 << 20) as f64;
/// The chunks of the file, before they are compressed.
pub const CHUNK_SIZE: u64 = 4 << 20;

/// In a process that was started for it: decodes, and says what that took at most.
pub fn is_child() -> bool {
    let Some(path) = std::env::var_os(FILE) else {
        return false;
    };
    // Not mapped: pages of the file would count as memory of the process.
    let options = OpenOptions {
        map: false,
        ..OpenOptions::default()
    };
    let file = asof_formats::open_with(Path::new(&path), &options).expect("a recording");
    let mut rows = 0;
    for batch in Tables::read(&file, &Query::all(), TableOptions::default()).expect("reads") {
        rows += batch.expect("a batch").batch.num_rows();
    }
    assert!(file.summary().problems.is_empty());
    println!("{rows} rows");
    println!("{}", peak_bytes());
    true
}

/// `asof` beside `allowed`, which is 64 MB and two chunks for each thread.
pub fn peak_memory(bench: &Bench, path: &Path) {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(8);
    let allowed = (64 << 20) as f64 + 2.0 * threads as f64 * CHUNK_SIZE as f64;
    let measure = || {
        let program = std::env::current_exe().expect("a program");
        let output = Command::new(program)
            .arg("decode")
            .env(FILE, path)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text
            .lines()
            .last()
            .and_then(|line| line.parse::<f64>().ok());
        peak.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr))) / MB
    };
    let contenders = vec![
        contender("asof", measure),
        contender("allowed", || allowed / MB),
    ];
    bench.case("peak_memory", "MB", 1, contenders);
}

/// The most memory that this process ever had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    let kilobytes = line.trim().trim_end_matches(" kB").trim();
    kilobytes.parse::<u64>().expect("a number") * 1024
}
