//! Work that is cancelled ends with that, at whatever point, and leaves nothing half-written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use asof::align::AlignOptions;
use asof::check::DoctorOptions;
use asof::export::{ExportFormat, ExportOptions};
use asof::files::{ConvertOptions, Cut, RecoverOptions, SplitOptions};
use asof::formats::{ConvertOptions as Conversion, McapWriterOptions};
use asof::{Error, Progress, Recording, Table};
use tempfile::TempDir;

use crate::facade::demo;

/// Two seconds of the demo robot in many small chunks, so that reading it takes many steps.
fn in_small_chunks() -> (TempDir, Recording) {
    let (folder, whole) = demo();
    let path = folder.path().join("small.mcap");
    let options = ConvertOptions {
        writer: McapWriterOptions {
            chunk_size: 20_000,
            ..McapWriterOptions::default()
        },
        ..ConvertOptions::default()
    };
    whole.convert(&path, &options).expect("converted");
    (folder, asof::open(path).expect("a recording"))
}

/// Cancelled from so many questions on.
fn cancelled_after(questions: u64) -> Progress {
    let asked = AtomicU64::new(0);
    Progress::default().cancelled_when(move || asked.fetch_add(1, Ordering::Relaxed) >= questions)
}

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// Does something with a recording, cancelled at one point after another until it is done before that, with a folder to write
/// to. Each time it must end with that error, and `is_whole` accept each file that is left.
fn cancelled_anywhere(
    what: &str,
    recording: &Recording,
    is_whole: impl Fn(&Path) -> bool,
    work: impl Fn(Recording, &Path) -> Result<(), Error>,
) {
    let points = (0..40).map(|power| 1 << power);
    for questions in std::iter::once(0).chain(points) {
        let folder = tempfile::tempdir().expect("a folder");
        let recording = recording.clone().with_progress(cancelled_after(questions));
        let Err(error) = work(recording, folder.path()) else {
            assert!(questions > 1, "{what} hardly asks");
            return;
        };
        assert!(error.is_cancelled(), "{what}, after {questions}: {error}");
        assert!(error.to_string().contains("cancelled"), "{what}: {error}");
        for file in files_below(folder.path()) {
            assert!(is_whole(&file), "{what} left {}", file.display());
        }
    }
    panic!("{what} never ends");
}

fn nothing(_: &Path) -> bool {
    false
}

/// Whether a file is a complete recording.
fn is_recording(path: &Path) -> bool {
    let recording = asof::open(path).expect("readable");
    let found = recording.doctor(&DoctorOptions { decode: false });
    found.expect("a diagnosis").healthy
}

/// All rows of a table.
fn rows(table: Result<Table, Error>) -> Result<(), Error> {
    table?.collect().map(drop)
}

#[test]
fn new_recordings_are_complete_or_not_there() {
    let (_folder, recording) = in_small_chunks();
    cancelled_anywhere("convert", &recording, nothing, |recording, folder| {
        let options = ConvertOptions::default();
        recording.convert(folder.join("new.mcap"), &options)?;
        Ok(())
    });
    // Sorted on disk.
    cancelled_anywhere(
        "convert by disk",
        &recording,
        nothing,
        |recording, folder| {
            let options = ConvertOptions {
                conversion: Conversion {
                    memory: 1,
                    ..Conversion::default()
                },
                ..ConvertOptions::default()
            };
            recording.convert(folder.join("new.mcap"), &options)?;
            Ok(())
        },
    );
    cancelled_anywhere("recover", &recording, nothing, |recording, folder| {
        recording.recover(folder.join("new.mcap"), &RecoverOptions::default())?;
        Ok(())
    });
    for cut in [Cut::Duration(500_000_000), Cut::Size(100_000)] {
        cancelled_anywhere("split", &recording, is_recording, |recording, folder| {
            recording.split(folder.join("new.mcap"), &SplitOptions::new(cut))?;
            Ok(())
        });
    }
}

#[test]
fn exported_files_are_complete_or_not_there() {
    let (_folder, recording) = in_small_chunks();
    for format in [
        ExportFormat::Parquet,
        ExportFormat::Arrow,
        ExportFormat::Csv,
        ExportFormat::Ndjson,
    ] {
        let what = format!("export {format:?}");
        cancelled_anywhere(&what, &recording, nothing, |recording, folder| {
            let options = ExportOptions {
                format,
                ..ExportOptions::default()
            };
            recording.export(folder, &options).map(drop)
        });
    }
    let is_picture = |path: &Path| {
        let bytes = fs::read(path).expect("readable");
        let is_png = bytes.starts_with(b"\x89PNG") && bytes.ends_with(b"IEND\xaeB`\x82");
        let is_jpeg = bytes.starts_with(&[0xff, 0xd8]) && bytes.ends_with(&[0xff, 0xd9]);
        is_png || is_jpeg
    };
    cancelled_anywhere(
        "export images",
        &recording,
        is_picture,
        |recording, folder| {
            let options = ExportOptions {
                format: ExportFormat::Images,
                ..ExportOptions::default()
            };
            recording.export(folder, &options).map(drop)
        },
    );
}

#[test]
fn a_recording_that_is_examined_is_not_examined_further() {
    let (_folder, recording) = in_small_chunks();
    for decode in [false, true] {
        cancelled_anywhere("doctor", &recording, nothing, |recording, _| {
            recording.doctor(&DoctorOptions { decode }).map(drop)
        });
    }
    let proposed = recording.expectations().expect("expectations");
    cancelled_anywhere("check", &recording, nothing, |recording, _| {
        recording.check(&proposed).map(drop)
    });
    cancelled_anywhere("expectations", &recording, nothing, |recording, _| {
        recording.expectations().map(drop)
    });
    let other = recording.clone();
    cancelled_anywhere("diff", &recording, nothing, |recording, _| {
        recording.diff(&other).map(drop)
    });
    cancelled_anywhere("diff with", &recording, nothing, |recording, _| {
        other.diff(&recording).map(drop)
    });
}

#[test]
fn rows_end_with_the_work() {
    let (_folder, recording) = in_small_chunks();
    cancelled_anywhere("read", &recording, nothing, |recording, _| {
        rows(recording.topic("/imu")?.read())
    });
    cancelled_anywhere("join", &recording, nothing, |recording, _| {
        rows(recording.join("/odom", &["/imu"], AlignOptions::default()))
    });
    cancelled_anywhere("resample", &recording, nothing, |recording, _| {
        rows(recording.resample(&["/odom"], 50.0, AlignOptions::default()))
    });
    cancelled_anywhere("tf", &recording, nothing, |recording, _| {
        recording.tf()?;
        Ok(())
    });
}

#[cfg(feature = "sql")]
#[test]
fn a_query_ends_with_the_work() {
    let (_folder, recording) = in_small_chunks();
    cancelled_anywhere("sql", &recording, nothing, |recording, _| {
        rows(recording.sql("SELECT stamp FROM imu ORDER BY stamp"))
    });
    let text = "[[sql]]\nquery = \"SELECT stamp FROM imu WHERE stamp IS NULL\"\n";
    let expectations =
        asof::check::Expectations::from_toml("own.toml", text).expect("expectations");
    cancelled_anywhere("check of a query", &recording, nothing, |recording, _| {
        recording.check(&expectations).map(drop)
    });
}

#[cfg(feature = "lerobot")]
#[test]
fn a_dataset_is_complete_or_not_there() {
    let (_folder, recording) = in_small_chunks();
    let map = asof::lerobot::DatasetMap::from_toml(
        "hz = 10\n[features]\n\"observation.state\" = [\"/odom.pose.pose.position.x\"]\n",
    );
    let map = map.expect("a map");
    cancelled_anywhere("lerobot", &recording, nothing, |recording, folder| {
        recording.lerobot(folder.join("dataset"), &map).map(drop)
    });
}

#[cfg(feature = "fleet")]
#[test]
fn an_index_is_valid_whenever_the_run_ended_by_a_condition() {
    use asof::catalogue::{IndexOptions, Search};
    let (folder, recording) = demo();
    let path = &recording.places()[0];
    for number in 0..20 {
        fs::copy(path, folder.path().join(format!("{number}.mcap"))).expect("copied");
    }
    let fleet = asof::fleet(folder.path()).expect("a fleet");
    let options = IndexOptions {
        at_once: Some(1),
        ..IndexOptions::default()
    };
    let mut opened = 0;
    for questions in [0, 1, 4, 9] {
        let run = fleet.clone().with_progress(cancelled_after(questions));
        let error = run.index(&options).expect_err("it is cancelled");
        assert!(error.is_cancelled(), "{error}");
        let is_there = fleet.is_indexed().expect("readable");
        let kept = if is_there {
            let found = fleet.find(&Search::default());
            found.expect("a catalogue").recordings.len() as u64
        } else {
            0
        };
        assert!((opened..21).contains(&kept), "{kept}");
        opened = kept;
    }
    let run = fleet.index(&options).expect("a run");
    assert_eq!(run.opened + opened, 21);
}
