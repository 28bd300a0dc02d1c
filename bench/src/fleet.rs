//! Suite `fleet`: a thousand recordings as one database.
//!
//! The recordings are made by the demo generator, a second each, one after the other in time. What a catalogue saves is held
//! against the same without one: opening all of them, and indexing them for the first time. How many requests a recording
//! costs is counted by a server that speaks as much S3 as an indexer asks for.
//!
//! What planning costs is the CPU time of the whole command over the catalogue of 4,000 recordings of 33 topics: of a query that
//! reads nothing, and of one that counts a topic of one recording.
//!
//! What a cluster costs is the same query on two executors of a core each and in one process of two threads, both through the
//! command. Ballista takes half an hour to compile, so a command that was built with it is named: ASOF_CLUSTER=PROGRAM, from
//! `cargo build --release -p asof-cli --features full`. Without it these cases are left out.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asof_catalogue::{Catalogue, IndexOptions, IndexRun, Indexer, Search};
use asof_core::{Channel, Message, Query, Source as _, Stamp, TimeRange};
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapWriter, McapWriterOptions, Store};

use crate::harness::{Bench, contender};

const RECORDINGS: i64 = 1_000;
/// The recording that the searches look for.
const WANTED: i64 = 567;
/// Recordings that are large enough to be read in parts.
const LARGE: i64 = 20;

pub fn run(bench: &mut Bench) {
    let folder = tempfile::tempdir().expect("a folder");
    prune(bench, folder.path());
    index_again(bench, folder.path());
    requests(bench);
    sql_of_many(bench, folder.path());
    two_executors(bench, folder.path());
}

/// The recordings, once for all cases.
fn recordings(folder: &Path) -> PathBuf {
    let root = folder.join("fleet");
    if root.exists() {
        return root;
    }
    fs::create_dir(&root).expect("a folder");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(1),
        ..DemoOptions::default()
    });
    let is_small = |message: &Message| message.payload.len() < 10_000;
    let messages: Vec<Message> = demo.messages().filter(is_small).collect();
    for number in 0..RECORDINGS {
        let path = root.join(format!("{number:04}.mcap"));
        let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
        for message in &messages {
            let at = message.log_time.plus_nanos(number * 2_000_000_000);
            let message = Message {
                log_time: at,
                publish_time: at,
                ..message.clone()
            };
            writer.write(&message).expect("a message");
        }
        writer.finish().expect("a file");
    }
    root
}

fn catalogue(root: &Path, elsewhere: &Path) -> Catalogue {
    let store = |path: &Path| Store::at(path).expect("a folder");
    Catalogue::elsewhere(store(root), store(elsewhere))
}

fn index(catalogue: &Catalogue) -> IndexRun {
    let indexer = Indexer::new(catalogue, IndexOptions::default());
    indexer.run(Stamp::now(), &|_| {}).expect("it runs")
}

fn wall<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_secs_f64() * 1e3
}

/// The messages of a topic in a second of which one recording has a part.
fn prune(bench: &Bench, folder: &Path) {
    let case = "prune_to_one_of_1000";
    if !bench.wants(case) {
        return;
    }
    let root = recordings(folder);
    let kept = folder.join("catalogue");
    index(&catalogue(&root, &kept));
    let first = asof_formats::open(root.join(format!("{WANTED:04}.mcap"))).expect("opens");
    let range = first.summary().range;
    let answer = count(&*first, range);
    assert!(answer > 0, "there is something to find");
    let contenders = vec![
        contender("asof", || {
            wall(|| {
                // Anew each time, as a process that was just started.
                let catalogue = catalogue(&root, &kept);
                let search = Search {
                    topics: vec!["/scan".parse().expect("a name")],
                    range,
                    ..Search::default()
                };
                let found = catalogue.find(&search).expect("a catalogue").recordings;
                assert_eq!(found.len(), 1, "one has it");
                let place = catalogue.root().address_of(&found[0].row.recording);
                let recording = asof_formats::open(place).expect("opens");
                assert_eq!(count(&*recording, range), answer);
            })
        }),
        contender("open_all", || {
            wall(|| {
                let mut messages = 0;
                for entry in fs::read_dir(&root).expect("a folder") {
                    let path = entry.expect("a file").path();
                    let recording = asof_formats::open(path).expect("opens");
                    if recording.summary().range.overlaps(range) {
                        messages += count(&*recording, range);
                    }
                }
                assert_eq!(messages, answer);
            })
        }),
    ];
    bench.case(case, "ms", 9, contenders);
}

fn count(recording: &dyn asof_core::Source, range: TimeRange) -> usize {
    let query = Query::topics(["/scan"]).between(range.start..=range.end);
    let batches = recording.read(&query).expect("reads");
    batches.map(|batch| batch.expect("a batch").len()).sum()
}

fn index_again(bench: &Bench, folder: &Path) {
    let case = "index_again_unchanged_1000";
    if !bench.wants(case) {
        return;
    }
    let root = recordings(folder);
    let kept = folder.join("catalogue");
    index(&catalogue(&root, &kept));
    let contenders = vec![
        contender("asof", || {
            wall(|| {
                let run = index(&catalogue(&root, &kept));
                assert_eq!(run.opened, 0, "nothing has changed");
            })
        }),
        contender("index_first_1000", || {
            let fresh = tempfile::tempdir().expect("a folder");
            wall(|| {
                let run = index(&catalogue(&root, fresh.path()));
                assert_eq!(run.opened, RECORDINGS as u64);
            })
        }),
    ];
    bench.case(case, "ms", 5, contenders);
}

/// Requests for each recording, of those that are larger than what is fetched at once.
fn requests(bench: &Bench) {
    let case = "requests_per_recording";
    if !bench.wants(case) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.mcap");
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
    for message in asof_demo::large_messages(1, 8_000_000) {
        writer.write(&message).expect("a message");
    }
    writer.finish().expect("a file");
    let file = fs::read(&path).expect("a file");
    let bucket = Bucket::start(file);
    let settings = [
        ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", bucket.port)),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_SKIP_SIGNATURE", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    for (name, value) in settings {
        // SAFETY: the suite's own thread and the server, which reads no setting, are the only ones yet.
        unsafe { std::env::set_var(name, value) };
    }
    let measure = || {
        let kept = tempfile::tempdir().expect("a folder");
        let store = |place: &Path| Store::at(place).expect("a place");
        let catalogue = Catalogue::elsewhere(store(Path::new("s3://bench")), store(kept.path()));
        bucket.gets.store(0, Ordering::Relaxed);
        let run = index(&catalogue);
        assert_eq!((run.opened, run.failed), (LARGE as u64, 0));
        bucket.gets.load(Ordering::Relaxed) as f64 / LARGE as f64
    };
    bench.case(case, "requests", 3, vec![contender("asof", measure)]);
}

/// Recordings of the catalogue that queries are planned over, and topics of each.
const PLANNED: usize = 4_000;
const TOPICS: usize = 33;

/// The command with all features, if there is one.
fn command_of(case: &str) -> Option<OsString> {
    let asof = std::env::var_os("ASOF_CLUSTER");
    if asof.is_none() {
        eprintln!("{case} is left out: set ASOF_CLUSTER to an asof with all features");
    }
    asof
}

/// The CPU time of processes that have ended, in milliseconds.
fn children_millis() -> f64 {
    // SAFETY: an all-zero rusage is valid, and the call writes into it and nothing else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let millis = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    millis(usage.ru_utime) + millis(usage.ru_stime)
}

fn sql_of_many(bench: &Bench, folder: &Path) {
    let cases = ["sql_select_1_of_4000", "sql_one_recording_of_4000"];
    if !cases.iter().any(|case| bench.wants(case)) {
        return;
    }
    let Some(asof) = command_of(cases[0]) else {
        return;
    };
    let root = folder.join("planned");
    fs::create_dir(&root).expect("a folder");
    let one = folder.join("one.mcap");
    let messages = write_with_topics(&one);
    for number in 0..PLANNED {
        fs::hard_link(&one, root.join(format!("{number:04}.mcap"))).expect("a link");
    }
    let store = Store::at(&root).expect("a folder");
    index(&Catalogue::beside(store).expect("a folder"));
    let ask = |query: &str| {
        let mut command = Command::new(&asof);
        command.args(["sql", "-q", "--csv"]).arg(&root).arg(query);
        let before = children_millis();
        let answer = command.output().expect("it runs");
        let told = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{told}");
        let last = String::from_utf8_lossy(&answer.stdout);
        let last = last.lines().last().unwrap_or_default().to_owned();
        (children_millis() - before, last)
    };
    let name = root.join("2345.mcap");
    let counted = format!(
        "SELECT count(*) FROM topic_07 WHERE recording = '{}'",
        name.display()
    );
    let queries = [("SELECT 1".to_owned(), 1), (counted, messages)];
    for (case, (query, wanted)) in cases.into_iter().zip(queries) {
        let measure = || {
            let (millis, answer) = ask(&query);
            assert_eq!(answer, wanted.to_string(), "{query}");
            millis
        };
        bench.case(case, "CPU ms", 9, vec![contender("asof", measure)]);
    }
}

/// Writes a recording of so many topics; returns the messages of each.
fn write_with_topics(path: &Path) -> usize {
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(1),
        ..DemoOptions::default()
    });
    let odometry: Vec<Message> = demo
        .messages()
        .filter(|message| message.channel.topic == "/odom")
        .collect();
    let channel_of = |number: usize| {
        let first = odometry.first().expect("the demo has odometry");
        Arc::new(Channel {
            topic: format!("/topic_{number:02}"),
            ..Channel::clone(&first.channel)
        })
    };
    let channels: Vec<Arc<Channel>> = (0..TOPICS).map(channel_of).collect();
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    for message in &odometry {
        for channel in &channels {
            let message = Message {
                channel: Arc::clone(channel),
                ..message.clone()
            };
            writer.write(&message).expect("a message");
        }
    }
    writer.finish().expect("a file");
    odometry.len()
}

/// Recordings of the cluster's case, and how many seconds each is.
const CLUSTERED: u64 = 16;
const SECONDS: u64 = 60;
/// Every number of every scan is decoded, and little comes out.
const QUERY: &str =
    "SELECT recording, count(*), avg(x), max(range) FROM points(scan) GROUP BY 1 ORDER BY 1";

/// A query on two executors against the same in one process, on the same two cores.
fn two_executors(bench: &Bench, folder: &Path) {
    let case = "two_executors_over_one_process";
    if !bench.wants(case) {
        return;
    }
    let Some(asof) = command_of(case) else {
        return;
    };
    let root = folder.join("clustered");
    fs::create_dir(&root).expect("a folder");
    let mut places = Vec::new();
    for seed in 1..=CLUSTERED {
        let path = root.join(format!("{seed}.mcap"));
        let mut writer = McapWriter::create(&path, McapWriterOptions::default()).expect("a file");
        let demo = Demo::new(DemoOptions {
            duration: Duration::from_secs(SECONDS),
            seed,
            ..DemoOptions::default()
        });
        let is_small = |message: &Message| message.payload.len() < 10_000;
        for message in demo.messages().filter(is_small) {
            writer.write(&message).expect("a message");
        }
        writer.finish().expect("a file");
        places.push(path);
    }
    let ask = |words: &[&str]| {
        let mut command = Command::new(&asof);
        command.args(["sql", "-q", "--csv"]).args(words);
        let answer = command.args(&places).arg(QUERY).output().expect("it runs");
        assert!(
            answer.status.success(),
            "{}",
            String::from_utf8_lossy(&answer.stderr)
        );
        answer.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    let cluster = Processes::start(&asof, &root);
    let there = ["--cluster", cluster.scheduler.as_str()];
    let lines = CLUSTERED as usize + 1;
    let contenders = vec![
        contender("asof", || wall(|| assert_eq!(ask(&there), lines))),
        contender("one_process", || wall(|| assert_eq!(ask(&[]), lines))),
    ];
    bench.case(case, "ms", 5, contenders);
}

/// A scheduler and two executors, which end with this.
struct Processes {
    scheduler: String,
    running: Vec<Child>,
}

impl Processes {
    fn start(asof: &OsStr, root: &Path) -> Self {
        let scheduler = format!("127.0.0.1:{}", free_port());
        let start = |words: &[&str]| {
            let mut command = Command::new(asof);
            command.arg("cluster").args(words).stderr(Stdio::null());
            command.spawn().expect("it starts")
        };
        let mut running = vec![start(&["scheduler", "--listen", &scheduler])];
        let root = root.to_str().expect("a path");
        for executors in 1..=2 {
            let listen = format!("127.0.0.1:{}", free_port());
            let to: [&str; 5] = ["executor", "--scheduler", &scheduler, "--listen", &listen];
            let of: [&str; 4] = ["--cores", "1", "--root", root];
            running.push(start(&[&to[..], &of[..]].concat()));
            let count = || {
                let status = Command::new(asof)
                    .args(["cluster", "status", &scheduler])
                    .output();
                let status = status.expect("it runs").stdout;
                status.iter().filter(|byte| **byte == b'\n').count()
            };
            let until = Instant::now() + Duration::from_secs(60);
            while count() < executors {
                assert!(Instant::now() < until, "the cluster does not come up");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Processes { scheduler, running }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.running {
            // It may have ended already.
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A server that lists recordings and hands out ranges of them, and counts what it is asked for.
struct Bucket {
    port: u16,
    gets: Arc<AtomicU64>,
}

impl Bucket {
    fn start(file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let gets = Arc::new(AtomicU64::new(0));
        let (counted, file) = (Arc::clone(&gets), Arc::new(file));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, file) = (Arc::clone(&counted), Arc::clone(&file));
                // A client that hangs up ends its thread.
                std::thread::spawn(move || answer_all(stream, &file, &counted));
            }
        });
        Bucket { port, gets }
    }
}

fn answer_all(stream: TcpStream, file: &[u8], gets: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        if line.contains("list-type=2") {
            answer(&mut stream, "200 OK", "", listing(file.len()).as_bytes())?;
            continue;
        }
        gets.fetch_add(1, Ordering::Relaxed);
        let range = headers.get("range").and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
        });
        let (first, last) = range.unwrap_or((0, file.len() - 1));
        let last = last.min(file.len() - 1);
        let about = format!(
            "Content-Range: bytes {first}-{last}/{}\r\nETag: \"1\"\r\nLast-Modified: Wed, 01 May 2024 12:00:00 GMT\r\n",
            file.len()
        );
        answer(
            &mut stream,
            "206 Partial Content",
            &about,
            &file[first..=last],
        )?;
    }
}

fn answer(stream: &mut TcpStream, status: &str, about: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{about}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn listing(size: usize) -> String {
    let object = |number: i64| {
        format!(
            "<Contents><Key>{number:04}.mcap</Key><LastModified>2024-05-01T12:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    };
    let objects: String = (0..LARGE).map(object).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bench</Name><KeyCount>{LARGE}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>"
    )
}
