//! What cannot be read in place on a web server, and bags of several files there.

mod common;

use std::sync::{Arc, Mutex};

use asof_core::{Query, Source};
use asof_formats::{Notices, OpenOptions, open, open_with};
use common::bags::BagMaker;
use common::messages;
use common::server::Server;

/// A part of a ROS 2 bag, with a message each second.
fn db3(seconds: std::ops::Range<i64>) -> Vec<u8> {
    db3_of(seconds, 5000)
}

fn db3_of(seconds: std::ops::Range<i64>, bytes: i64) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("part.db3");
    let database = rusqlite::Connection::open(&path).expect("opens");
    database
        .execute_batch(
            "BEGIN; CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);
             INSERT INTO topics VALUES (1, '/a', 'std_msgs/msg/String', 'cdr');
             CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB);",
        )
        .expect("creates");
    for second in seconds {
        database
            .execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?1 * 1000000000, zeroblob(?2))",
                [second, bytes],
            )
            .expect("inserts");
    }
    database.execute_batch("COMMIT").expect("commits");
    drop(database);
    std::fs::read(path).expect("reads")
}

fn description(names: &[&str]) -> Vec<u8> {
    let list = names.join(", ");
    format!("rosbag2_bagfile_information:\n  relative_file_paths: [{list}]\n").into_bytes()
}

fn seconds(recording: &dyn Source) -> Vec<i64> {
    let found = messages(recording, &Query::all());
    let seconds = found
        .iter()
        .map(|message| message.log_time.nanos() / 1_000_000_000);
    seconds.collect()
}

#[test]
fn an_sqlite_file_is_brought_here_and_told_of_by_its_address() {
    let (server, address) = Server::with_file(db3(0..3000)).start();
    let recording = open(&address).expect("opens");
    assert_eq!(seconds(&*recording), (0..3000).collect::<Vec<_>>());
    assert!(server.requests() < 12, "{} requests", server.requests());
    drop(recording);
    let (_, address) = Server::with_file(db3(0..3)[..4000].to_vec()).start();
    let error = open(&address).map(|_| ()).expect_err("is cut");
    assert!(error.to_string().starts_with(&address), "{error}");
}

#[test]
fn a_file_that_is_swapped_while_it_is_brought_here_is_an_error() {
    let server = Server {
        latency: std::time::Duration::from_millis(40),
        ..Server::with_file(db3(0..6000))
    };
    let (server, address) = server.start();
    let (other, swapped) = (Arc::clone(&server), db3(0..6001));
    std::thread::spawn(move || {
        while other.requests() < 4 {
            std::thread::yield_now();
        }
        other.swap_file(swapped);
    });
    let error = open(&address).map(|_| ()).expect_err("has changed");
    assert!(error.to_string().contains("changed while"), "{error}");
}

#[test]
fn a_file_that_was_compressed_as_a_whole_is_brought_here_and_unpacked() {
    let mut maker = BagMaker::new("none");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    maker.chunk(&[(0, (1, 0), b"here"), (0, (2, 0), b"there")]);
    let packed = zstd::encode_all(&maker.finish()[..], 3).expect("packs");
    let (_, address) = Server::with_file(packed).start();
    let recording = open(&address).expect("opens");
    assert_eq!(seconds(&*recording), [1, 2]);
}

#[test]
fn the_description_of_a_bag_opens_its_parts_and_tells_which_are_missing() {
    let (_, address) = Server::with_files([
        (
            "/bag/metadata.yaml",
            description(&["bag_0.db3", "bag/bag_1.db3", "bag_2.db3"]),
        ),
        ("/bag/bag_0.db3", db3(0..3)),
        (
            "/bag/bag_1.db3.zstd",
            zstd::encode_all(&db3(3..5)[..], 3).expect("packs"),
        ),
    ])
    .start();
    for place in ["/bag/metadata.yaml", "/bag/"] {
        let recording = open(address.replace("/run", place)).expect("opens");
        assert_eq!(seconds(&*recording), [0, 1, 2, 3, 4]);
        let problems = recording.summary().problems.clone();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.contains("bag_2.db3"), "{problems:?}");
    }
}

#[test]
fn a_part_that_cannot_be_read_is_told_as_that_and_not_as_missing() {
    let mut server = Server::with_files([
        (
            "/bag/metadata.yaml",
            description(&["bag_0.db3", "bag_1.db3"]),
        ),
        ("/bag/bag_0.db3", db3(0..3)),
    ]);
    server.keeps = Some("/bag/bag_1.db3");
    let (_, address) = server.start();
    let recording = open(address.replace("/run", "/bag/")).expect("opens");
    assert_eq!(seconds(&*recording), [0, 1, 2]);
    let problems = recording.summary().problems.clone();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = &problems[0].message;
    assert!(
        told.contains("bag_1.db3") && told.contains("denied"),
        "{told}"
    );
}

#[test]
fn a_description_that_lists_itself_is_no_way_in() {
    let files = [("/bag/metadata.yaml", description(&["metadata.yaml"]))];
    let (_, address) = Server::with_files(files).start();
    let opened = open(address.replace("/run", "/bag/")).map(|_| ());
    let told = opened.expect_err("is refused").to_string();
    assert!(told.contains("/bag/metadata.yaml"), "{told}");
}

#[test]
fn a_folder_of_a_web_server_without_a_description_is_told_of() {
    let (_, address) = Server::with_files([("/bag/a.mcap", Vec::new())]).start();
    let folder = address.replace("/run", "/bag/");
    let error = open(&folder).map(|_| ()).expect_err("is refused");
    assert!(error.to_string().starts_with(&folder), "{error}");
    assert!(error.to_string().contains("name a recording"), "{error}");
}

#[test]
fn what_takes_long_is_told_before_it_begins() {
    let (_, address) = Server::with_file(db3_of(0..7, 10_000_000)).start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let options = OpenOptions {
        notices: Notices::to(move |sentence| {
            heard.lock().expect("no panic").push(sentence.to_owned());
        }),
        ..OpenOptions::default()
    };
    open_with(&address, &options).expect("opens");
    let told = told.lock().expect("no panic");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with(&format!("fetching all of {address}")),
        "{told:?}"
    );
}
