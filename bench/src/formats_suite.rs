//! Suite `formats`: reading bags and db3 files, beside ROS 1's own C++ reader and Python's rosbags.
//!
//! The recordings are written by rosbags, so that neither of the readers under test chose their layout. Each contender
//! opens the file, reads all messages in order of time, and looks at the length of each payload; figures are
//! nanoseconds a message.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use asof_core::Query;
use asof_formats::{ConvertOptions, McapWriter, McapWriterOptions};

use crate::harness::{Bench, Contender, contender, timed};

pub fn run(bench: &mut Bench) {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let Some(python) = python(&target) else {
        eprintln!(
            "formats: Python's rosbags cannot be installed, so there are no recordings to read"
        );
        return;
    };
    let folder = target.join("data/formats-1");
    if !folder.join("run/metadata.yaml").exists() {
        let _ = std::fs::remove_dir_all(&folder);
        run_peer(Command::new(&python).arg(script()).arg("make").arg(&folder));
    }
    let (bag, db3) = (folder.join("run.bag"), folder.join("run"));
    let counted = count(&bag);
    assert_eq!(counted, count(&db3), "both recordings hold the same");

    let library = librosbag(&target);
    let mut contenders = vec![
        timed("asof", counted.0, || assert_eq!(count(&bag), counted)),
        rosbags(&python, "bag", &bag, counted),
    ];
    if let Some(library) = &library {
        contenders.push(by_librosbag(library, &bag, counted));
    } else {
        eprintln!("formats: librosbag-storage cannot be built here; see bench/peers/librosbag.sh");
    }
    bench.case("bag_iterate", "ns/message", 9, contenders);
    let contenders = vec![
        timed("asof", counted.0, || assert_eq!(count(&db3), counted)),
        timed("sqlite", counted.0, || assert_eq!(by_sqlite(&db3), counted)),
        rosbags(&python, "db3", &db3, counted),
    ];
    bench.case("db3_iterate", "ns/message", 9, contenders);
    let convert = || convert(&bag, &folder.join("converted.mcap"));
    bench.case(
        "convert_bag_to_mcap",
        "ns/message",
        5,
        vec![timed("asof", counted.0, convert)],
    );
}

/// Messages, and bytes of payload.
fn count(place: &Path) -> (u64, u64) {
    let recording = asof_formats::open(place).expect("opens");
    let (mut messages, mut bytes) = (0, 0);
    for batch in recording.read(&Query::all()).expect("reads") {
        for message in batch.expect("reads").iter() {
            messages += 1;
            bytes += message.payload.len() as u64;
        }
    }
    (messages, bytes)
}

/// The same by SQLite alone, at its fastest: from a mapped file, in the order of the index, without copying payloads.
fn by_sqlite(folder: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let (mut messages, mut bytes) = (0, 0);
    for file in files.filter(|file| file.extension().is_some_and(|found| found == "db3")) {
        let flags =
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = rusqlite::Connection::open_with_flags(&file, flags).expect("opens");
        let mapped = i64::from(u32::MAX);
        database
            .pragma_update(None, "mmap_size", mapped)
            .expect("is set");
        let query = "SELECT topic_id, timestamp, data FROM messages ORDER BY timestamp";
        let mut statement = database.prepare(query).expect("a query");
        let mut rows = statement.query([]).expect("runs");
        while let Some(row) = rows.next().expect("a row") {
            let (topic, time): (i64, i64) = (row.get_unwrap(0), row.get_unwrap(1));
            std::hint::black_box((topic, time));
            messages += 1;
            bytes += row.get_ref_unwrap(2).as_blob().expect("a blob").len() as u64;
        }
    }
    (messages, bytes)
}

fn convert(place: &Path, output: &Path) {
    let recording = asof_formats::open(place).expect("opens");
    let mut writer = McapWriter::create(output, McapWriterOptions::default()).expect("creates");
    asof_formats::convert(
        &*recording,
        &mut writer,
        &ConvertOptions::default(),
        &mut |_| {},
    )
    .expect("converts");
    writer.finish().expect("finishes");
}

/// A Python that has rosbags.
fn python(target: &Path) -> Option<PathBuf> {
    let venv = target.join("venv-rosbags");
    let python = venv.join("bin/python");
    if !python.exists() {
        run_peer(Command::new(peers().join("rosbags.sh")).arg(&venv));
    }
    python.exists().then_some(python)
}

fn librosbag(target: &Path) -> Option<libloading::Library> {
    let path = target.join("librosbag_peer.so");
    if !path.exists() {
        run_peer(Command::new(peers().join("librosbag.sh")).arg(&path));
    }
    // SAFETY: the library is the one that the script beside this file builds; loading it runs the
    // initializers of the system's own libraries and nothing else.
    unsafe { libloading::Library::new(&path) }.ok()
}

fn by_librosbag<'a>(
    library: &'a libloading::Library,
    bag: &Path,
    wanted: (u64, u64),
) -> Contender<'a> {
    type Iterate = unsafe extern "C" fn(*const std::ffi::c_char, *mut u64, *mut u64) -> i32;
    // SAFETY: the symbol has this signature in librosbag.cpp.
    let iterate = unsafe { library.get::<Iterate>(b"librosbag_iterate\0") }.expect("its function");
    let path = CString::new(bag.to_str().expect("a path in UTF-8")).expect("a path without NUL");
    contender("librosbag", move || {
        let mut found = (0, 0);
        let start = Instant::now();
        // SAFETY: the path ends in NUL, and both numbers outlive the call.
        let code = unsafe { iterate(path.as_ptr(), &raw mut found.0, &raw mut found.1) };
        let time = start.elapsed();
        assert_eq!((code, found), (0, wanted), "librosbag reads the same");
        time.as_nanos() as f64 / wanted.0 as f64
    })
}

/// Python reads in a process of its own, which is started once and measures itself.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rosbags<'a>(
    python: &Path,
    kind: &'static str,
    place: &Path,
    wanted: (u64, u64),
) -> Contender<'a> {
    let mut child = Command::new(python)
        .arg(script())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    let input = child.stdin.take().expect("its input");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let mut peer = Peer {
        child,
        input,
        output,
    };
    let question = format!("{kind} {}\n", place.display());
    contender("rosbags", move || {
        peer.input.write_all(question.as_bytes()).expect("asks");
        let mut answer = String::new();
        peer.output.read_line(&mut answer).expect("answers");
        let numbers: Vec<u64> = answer
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let &[nanos, messages, bytes] = &numbers[..] else {
            panic!("rosbags answered '{answer}'");
        };
        assert_eq!((messages, bytes), wanted, "rosbags reads the same");
        nanos as f64 / messages as f64
    })
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

fn script() -> PathBuf {
    peers().join("rosbags_peer.py")
}

fn run_peer(command: &mut Command) {
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("formats: {command:?} ended with {status}"),
        Err(error) => eprintln!("formats: {command:?} cannot be run: {error}"),
    }
}
