//! The suite `align`: the as-of engine beside polars, on the same columns of stamps.
//!
//! Figures are CPU milliseconds of all threads. polars joins columns that are marked as sorted; it runs in a process of its own, and
//! is there if `peers/sql.sh` could install it. Loading the columns is part of neither.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use asof_align::{Align, AlignedRow, Rule, Track};

use crate::harness::{Bench, Contender, contender};
use crate::python;

const ROUNDS: usize = 7;

const START: i64 = 1_700_000_000_000_000_000;
/// Between two messages that are looked up: 1 kHz.
const PERIOD: i64 = 1_000_000;
const TOLERANCE: i64 = 2 * PERIOD;
/// Late messages are late by at most this much.
const LATENESS: i64 = 20 * PERIOD;

pub fn run(bench: &mut Bench) {
    let python = python::with_polars();
    stream_nearest(bench, python.as_deref());
    slices_last(bench, python.as_deref());
}

/// 100,000 anchors against 1,000,000 messages, of which five percent come up to 20 places late.
fn stream_nearest(bench: &Bench, python: Option<&Path>) {
    const CASE: &str = "stream_nearest_100000";
    if !bench.wants(CASE) {
        return;
    }
    let mut random = Random(5);
    // When it arrives, its stamp, and whether it is an anchor.
    let mut arrivals: Vec<(i64, i64, bool)> = Vec::with_capacity(1_100_000);
    for at in 0..1_000_000 {
        let stamp = START + at * PERIOD + random.below(PERIOD / 10);
        let late = if random.below(20) == 0 {
            random.below(LATENESS)
        } else {
            0
        };
        arrivals.push((stamp + late, stamp, false));
    }
    for at in 0..100_000 {
        let stamp = START + at * 10 * PERIOD + random.below(PERIOD);
        arrivals.push((stamp, stamp, true));
    }
    arrivals.sort_unstable();
    let sorted = |wants_anchors: bool| {
        let own = arrivals.iter().filter(|(.., is)| *is == wants_anchors);
        let mut stamps: Vec<i64> = own.map(|(_, stamp, _)| *stamp).collect();
        stamps.sort_unstable();
        stamps
    };
    let columns = Columns::write(&sorted(true), &sorted(false));
    let ours = || {
        let rule = Rule::nearest().within(Duration::from_nanos(TOLERANCE as u64));
        let lateness = Duration::from_nanos(LATENESS as u64);
        let mut align = Align::new(vec![rule], 10_000).with_lateness(lateness);
        let mut found = Vec::with_capacity(100_000);
        let mut emit = |row: AlignedRow<i64>| {
            found.push(row.matches[0].found().map(|message| message.value));
        };
        for &(_, stamp, is_anchor) in &arrivals {
            if is_anchor {
                align.add_anchor(stamp.into(), stamp, &mut emit);
            } else {
                align.add(0, stamp.into(), stamp, &mut emit);
            }
        }
        align.finish(&mut emit);
        assert_eq!(found.len(), 100_000);
        black_box(found);
    };
    columns.case(bench, CASE, python, ("nearest", Some(TOLERANCE)), ours);
}

/// The last or equal one, of two sorted columns of a million.
fn slices_last(bench: &Bench, python: Option<&Path>) {
    const CASE: &str = "slices_last_1000000";
    if !bench.wants(CASE) {
        return;
    }
    let mut random = Random(7);
    let mut column = |jitter: i64| -> Vec<i64> {
        let stamps = (0..1_000_000).map(|at| START + at * PERIOD + random.below(jitter));
        stamps.collect()
    };
    let (anchors, others) = (column(PERIOD), column(PERIOD / 10));
    let columns = Columns::write(&anchors, &others);
    let ours = || {
        let track: Track<i64> = others.iter().map(|&stamp| (stamp.into(), stamp)).collect();
        let mut cursor = track.cursor();
        let found: Vec<Option<i64>> = anchors
            .iter()
            .map(|&at| {
                let matched = cursor.pick(at.into(), Rule::last());
                matched.found().map(|message| *message.value)
            })
            .collect();
        black_box(found);
    };
    columns.case(bench, CASE, python, ("backward", None), ours);
}

/// Two columns of stamps in files, as the peer reads them.
struct Columns(tempfile::TempDir);

impl Columns {
    fn write(anchors: &[i64], others: &[i64]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, stamps) in [("anchors", anchors), ("others", others)] {
            let bytes: Vec<u8> = stamps
                .iter()
                .flat_map(|stamp| stamp.to_le_bytes())
                .collect();
            std::fs::write(folder.path().join(name), bytes).expect("room on the disk");
        }
        Columns(folder)
    }

    fn case(
        &self,
        bench: &Bench,
        name: &str,
        python: Option<&Path>,
        (strategy, tolerance): (&str, Option<i64>),
        mut ours: impl FnMut(),
    ) {
        let mut contenders: Vec<Contender<'_>> = vec![contender("asof", || {
            let start = cpu_millis();
            ours();
            cpu_millis() - start
        })];
        if let Some(python) = python {
            contenders.push(contender("polars_join_asof", move || {
                self.polars(python, strategy, tolerance)
            }));
        }
        bench.case(name, "CPU ms", ROUNDS, contenders);
    }

    fn polars(&self, python: &Path, strategy: &str, tolerance: Option<i64>) -> f64 {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers/align_peer.py");
        let output = Command::new(python)
            .arg(script)
            .arg(self.0.path())
            .arg(strategy)
            .args(tolerance.map(|most| most.to_string()))
            .output()
            .expect("python runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.trim().lines().last();
        last.and_then(|line| line.parse().ok())
            .unwrap_or_else(|| panic!("polars: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as i64
    }
}

fn cpu_millis() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec, and this clock exists on every system that has processes.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 * 1e-6
}
