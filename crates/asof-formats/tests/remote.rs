//! Recordings on a web server: a small one, which is slow, fails, changes its files, or knows no ranges.

mod common;

use std::io::{Cursor, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asof_core::{Channel, Message, Query, Source, Stamp, Topics};
use asof_formats::{
    Compression, MappedFile, McapFile, McapWriter, McapWriterOptions, OpenOptions, Storage, Store,
    StoredFile, open,
};
use common::bags::BagMaker;
use common::messages;
use common::server::Server;

/// 8 MB on two topics, in 500 chunks; `/rare` is in the first of them only.
fn recording() -> Vec<u8> {
    let options = McapWriterOptions {
        compression: Compression::None,
        chunk_size: 16 << 10,
        chunk_age: None,
        ..McapWriterOptions::default()
    };
    let mut writer = McapWriter::new(Cursor::new(Vec::new()), options).expect("a writer");
    let channel = |topic: &str| {
        Arc::new(Channel {
            topic: topic.into(),
            ..Channel::default()
        })
    };
    let (often, rare) = (channel("/often"), channel("/rare"));
    for index in 0..8000i64 {
        let channel = if index == 3 { &rare } else { &often };
        writer
            .write(&Message {
                channel: Arc::clone(channel),
                log_time: Stamp::from_nanos(index * 1_000_000),
                publish_time: Stamp::from_nanos(index),
                sequence: index as u32,
                payload: vec![index as u8; 1000].into(),
            })
            .expect("writes");
    }
    writer.finish().expect("finishes").into_inner()
}

fn local(bytes: &[u8]) -> McapFile {
    McapFile::from_bytes("local", bytes.to_vec()).expect("opens")
}

#[test]
fn a_remote_recording_reads_as_the_local_one() {
    let bytes = recording();
    let (_, address) = Server::with_file(bytes.clone()).start();
    let remote = open(&address).expect("opens");
    assert_eq!(remote.summary().messages, Some(8000));
    assert!(messages(&*remote, &Query::all()) == messages(&local(&bytes), &Query::all()));
    assert_eq!(remote.summary().problems, []);
}

#[test]
fn opening_makes_at_most_four_requests() {
    let (server, address) = Server::with_file(recording()).start();
    let remote = open(&address).expect("opens");
    assert_eq!(remote.summary().channels.len(), 2);
    assert!(server.requests() <= 4, "{} requests", server.requests());
}

#[test]
fn a_look_at_a_moment_fetches_a_small_part() {
    let bytes = recording();
    let (server, address) = Server::with_file(bytes.clone()).start();
    let remote = open(&address).expect("opens");
    let at = Stamp::from_nanos(4_000_000_000);
    let found = remote.latest_at(&Topics::All, at).expect("reads");
    let wanted = local(&bytes).latest_at(&Topics::All, at).expect("reads");
    let plain = |batch: &asof_core::Batch| -> Vec<Message> {
        batch.iter().map(|message| message.to_message()).collect()
    };
    assert!(plain(&found) == plain(&wanted));
    let second = at..=at.plus_nanos(1_000_000_000);
    assert_eq!(
        messages(&*remote, &Query::all().between(second)).len(),
        1001
    );
    let fetched = server.bytes.load(Ordering::Relaxed);
    assert!(
        fetched < bytes.len() as u64 / 2,
        "{fetched} of {}",
        bytes.len()
    );
}

#[test]
fn a_slow_server_that_fails_now_and_then_costs_patience_and_nothing_else() {
    let bytes = recording();
    let server = Server {
        latency: Duration::from_millis(50),
        fails_one_in: 5,
        ..Server::with_file(bytes.clone())
    };
    let (_, address) = server.start();
    let remote = open(&address).expect("opens");
    let at = Stamp::from_nanos(7_000_000_000);
    assert_eq!(remote.latest_at(&Topics::All, at).expect("reads").len(), 2);
    assert!(messages(&*remote, &Query::all()) == messages(&local(&bytes), &Query::all()));
}

#[test]
fn a_file_that_is_swapped_while_it_is_read_is_an_error() {
    let (server, address) = Server::with_file(recording()).start();
    let remote = open(&address).expect("opens");
    let mut batches = remote.read(&Query::all()).expect("reads");
    assert!(batches.next().expect("a batch").is_ok());
    let mut other = recording();
    other.rotate_left(100);
    server.swap_file(other);
    let error = batches.find_map(Result::err).expect("an error");
    assert!(
        error
            .to_string()
            .contains("changed while it was being read"),
        "{error}"
    );
}

#[test]
fn a_server_without_ranges_is_told_of() {
    let server = Server {
        knows_no_ranges: true,
        ..Server::with_file(recording())
    };
    let (_, address) = server.start();
    let error = open(&address).map(|_| ()).expect_err("is refused");
    assert!(
        error.to_string().contains("does not hand out ranges"),
        "{error}"
    );
}

#[test]
fn an_address_without_a_file_is_told_of() {
    let (_, address) = Server::with_file(recording()).start();
    let error = open(address.replace("/run", "/other"))
        .map(|_| ())
        .expect_err("is refused");
    assert!(error.to_string().contains("no such file there"), "{error}");
}

#[test]
fn a_tag_that_only_some_answers_have_or_that_is_weak_is_no_change() {
    let behaviours: [fn(&str) -> Option<&'static str>; 4] = [
        |method| (method == "HEAD").then_some(""),
        |method| (method == "GET").then_some(""),
        |_| None,
        |method| Some(if method == "HEAD" { "W/" } else { "" }),
    ];
    for tags in behaviours {
        let server = Server {
            tags: Some(tags),
            ..Server::with_file(recording())
        };
        let (_, address) = server.start();
        let remote = open(&address).expect("opens");
        assert_eq!(messages(&*remote, &Query::all()).len(), 8000);
    }
}

#[test]
fn without_tags_another_size_is_a_change() {
    let server = Server {
        tags: Some(|_| None),
        ..Server::with_file(recording())
    };
    let (server, address) = server.start();
    let remote = open(&address).expect("opens");
    let mut other = recording();
    other.push(0);
    server.swap_file(other);
    let mut batches = remote.read(&Query::all()).expect("reads");
    let error = batches.find_map(Result::err).expect("an error");
    let told = error.to_string();
    assert!(told.contains("changed while it was being read"), "{told}");
}

#[test]
fn a_server_that_hands_out_and_answers_no_questions_is_read() {
    for status in ["405 Never", "403 Not signed for that"] {
        let server = Server {
            answers_head: Some(status),
            ..Server::with_file(recording())
        };
        let (server, address) = server.start();
        let remote = open(&address).expect("opens");
        assert!(server.requests() <= 4, "{} requests", server.requests());
        assert_eq!(messages(&*remote, &Query::all()).len(), 8000);
    }
}

#[test]
fn a_signed_address_is_asked_with_its_signature() {
    let server = Server::with_file(recording());
    let signed = {
        let mut files = server.files.lock().expect("no panic");
        let file = files.remove("/run").expect("a file");
        files.insert("/run?signature=a%2Fb&until=5".to_owned(), file);
        "?signature=a%2Fb&until=5"
    };
    let (_, address) = server.start();
    assert!(open(&address).is_err());
    let remote = open(format!("{address}{signed}")).expect("opens");
    assert_eq!(remote.summary().messages, Some(8000));
}

#[test]
fn a_refusal_is_told_and_not_asked_for_again() {
    for (status, told) in [
        ("401 Who", "access was denied"),
        ("403 No", "access was denied"),
        ("400 Bad", "refuses to hand it out (400"),
        ("410 Gone", "refuses to hand it out (410"),
    ] {
        let server = Server {
            answers: Some(status),
            ..Server::default()
        };
        let (server, address) = server.start();
        let error = open(&address).map(|_| ()).expect_err("is refused");
        assert!(error.to_string().contains(told), "{error}");
        assert!(server.requests() <= 2, "{} requests", server.requests());
    }
}

#[test]
fn a_port_that_nobody_listens_at_is_told_of() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = format!("http://{}/run", listener.local_addr().expect("an address"));
    drop(listener);
    let error = open(&address).map(|_| ()).expect_err("is refused");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

#[test]
fn a_page_that_is_no_recording_is_told_what_could_be_read() {
    let page = b"<!doctype html><title>Index of /</title>".to_vec();
    let (_, address) = Server::with_file(page).start();
    let error = open(&address).map(|_| ()).expect_err("is refused");
    assert!(error.to_string().contains("not those of MCAP"), "{error}");
}

/// A bag of 100 messages in 50 chunks.
fn bag() -> Vec<u8> {
    let mut maker = BagMaker::new("lz4");
    maker.connect(0, "/odom", "nav_msgs/Odometry", "float64 x\n", false);
    for second in 0..50 {
        maker.chunk(&[(0, (second, 0), b"here"), (0, (second, 5), b"there")]);
    }
    maker.finish()
}

#[test]
fn a_bag_is_read_in_place_too() {
    let (server, address) = Server::with_file(bag()).start();
    let remote = open(&address).expect("opens");
    assert!(server.requests() <= 4, "{} requests", server.requests());
    assert_eq!(messages(&*remote, &Query::all()).len(), 100);
    assert_eq!(remote.summary().problems, []);
}

/// A record of MCAP: its kind, its length, its contents.
fn record(kind: u8, contents: &[u8]) -> Vec<u8> {
    [
        &[kind][..],
        &(contents.len() as u64).to_le_bytes(),
        contents,
    ]
    .concat()
}

/// A whole and healthy recording of about 2 GB, of which the disk holds little: 512 chunks without compression, each
/// with one message of 4 MiB, which is a hole in the file.
fn two_gigabytes(path: &std::path::Path) {
    const CHUNKS: u64 = 512;
    const PAYLOAD: u64 = 4 << 20;
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = std::fs::File::create(path).expect("creates");
    let header = [
        mcap::MAGIC,
        &record(1, &[text(""), text("test")].concat())[..],
    ]
    .concat();
    file.write_all(&header).expect("writes");
    let mut at = header.len() as u64;
    let channel = [&[1, 0, 0, 0][..], &text("/large"), &text(""), &[0; 4]].concat();
    let mut indexes = Vec::new();
    for chunk in 0..CHUNKS {
        let time = chunk.to_le_bytes();
        let records = 9 + 22 + PAYLOAD;
        let head = [&time[..], &time, &records.to_le_bytes(), &[0; 4], &[0; 4]].concat();
        let chunk_len = head.len() as u64 + 8 + records;
        let message_len = (22 + PAYLOAD).to_le_bytes();
        let message = [&[5][..], &message_len, &[1, 0], &[0; 4], &time, &time].concat();
        let front = [
            &[6][..],
            &chunk_len.to_le_bytes(),
            &head,
            &records.to_le_bytes(),
            &message,
        ];
        file.write_all(&front.concat()).expect("writes");
        file.seek(SeekFrom::Current(PAYLOAD as i64)).expect("seeks");
        let index = [&[1, 0, 16, 0, 0, 0][..], &time, &[0; 8]].concat();
        let index = record(7, &index);
        file.write_all(&index).expect("writes");
        let index_at = at + 9 + chunk_len;
        indexes.push(record(
            8,
            &[
                &time[..],
                &time,
                &at.to_le_bytes(),
                &(9 + chunk_len).to_le_bytes(),
                &[10, 0, 0, 0, 1, 0],
                &index_at.to_le_bytes(),
                &(index.len() as u64).to_le_bytes(),
                &[0; 4],
                &records.to_le_bytes(),
                &records.to_le_bytes(),
            ]
            .concat(),
        ));
        at = index_at + index.len() as u64;
    }
    let end = record(15, &[0; 4]);
    let statistics = [
        &CHUNKS.to_le_bytes()[..],
        &[0, 0, 1, 0, 0, 0],
        &[0; 8],
        &(CHUNKS as u32).to_le_bytes(),
        &[0; 8],
        &(CHUNKS - 1).to_le_bytes(),
        &[10, 0, 0, 0, 1, 0],
        &CHUNKS.to_le_bytes(),
    ];
    let statistics = record(11, &statistics.concat());
    let summary = [record(4, &channel), statistics, indexes.concat()].concat();
    let start = at + end.len() as u64;
    let footer = record(2, &[&start.to_le_bytes()[..], &[0; 8], &[0; 4]].concat());
    file.write_all(&[end, summary, footer, mcap::MAGIC.to_vec()].concat())
        .expect("writes");
}

#[test]
fn opening_two_gigabytes_makes_at_most_four_requests_and_fetches_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.mcap");
    two_gigabytes(&path);
    let file = MappedFile::open(&path).expect("opens");
    assert!(file.size() > 2 << 30);
    let (server, address) = Server::with(file).start();
    let remote = open(&address).expect("opens");
    assert_eq!(remote.summary().messages, Some(512));
    assert_eq!(remote.summary().problems, []);
    let (requests, bytes) = (server.requests(), server.bytes.load(Ordering::Relaxed));
    println!(
        "{requests} requests, {bytes} bytes of {}",
        remote.summary().size
    );
    assert!(requests <= 4, "{requests} requests");
    assert!(bytes < 2 << 20, "{bytes} bytes");
    let known = remote
        .latest_at(&Topics::All, Stamp::from_nanos(300))
        .expect("reads");
    assert_eq!(
        known.get(0).map(|message| message.payload.len()),
        Some(4 << 20)
    );
    let bytes = server.bytes.load(Ordering::Relaxed);
    assert!(bytes < 32 << 20, "{bytes} bytes for one message of 4 MiB");
}

#[test]
fn buckets_without_keys_or_names_are_refused_in_a_sentence() {
    for address in ["gs://", "s3://", "az://", "http://"] {
        let error = open(address)
            .map(|_| ())
            .expect_err("is refused")
            .to_string();
        assert!(error.starts_with(address), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn the_version_of_a_file_changes_with_it_and_costs_no_byte_of_it() {
    let (server, address) = Server::with_file(recording()).start();
    let first = asof_formats::version_at(&address).expect("a version");
    assert_eq!(asof_formats::version_at(&address).expect("again"), first);
    assert_eq!(server.bytes.load(Ordering::Relaxed), 0);
    server.swap_file(recording());
    assert_ne!(asof_formats::version_at(&address).expect("another"), first);
    assert!(asof_formats::version_at(&format!("{address}.none")).is_err());
}

/// The store that a server is, and its file.
fn stored(address: &str, size: usize) -> (Store, StoredFile) {
    let store = Store::at(address.trim_end_matches("run")).expect("an address");
    let file = StoredFile {
        path: "run".into(),
        size: size as u64,
        modified: None,
        e_tag: Some("\"1\"".into()),
    };
    (store, file)
}

#[test]
fn with_what_opening_took_before_nothing_is_asked_for_until_messages_are() {
    for bytes in [recording(), bag()] {
        let (server, address) = Server::with_file(bytes.clone()).start();
        let (store, file) = stored(&address, bytes.len());
        let options = OpenOptions::default();
        let (first, pieces) = store.open_noting(&file, &options).expect("opens");
        let kept: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
        // Of a small bag, opening reads everything.
        let most = (64 << 10).max(bytes.len() / 10);
        assert!(kept > 0 && kept <= most, "{kept} of {}", bytes.len());
        let asked = server.requests();
        assert!(asked > 0);

        let again = store.open_known(&file, pieces, &options).expect("opens");
        assert_eq!(server.requests(), asked, "opening asked for something");
        assert_eq!(again.summary(), first.summary());
        assert_eq!(again.sections().len(), first.sections().len());
        assert!(messages(&*again, &Query::all()) == messages(&*first, &Query::all()));
    }
}

#[test]
fn a_file_that_was_changed_since_its_pieces_were_kept_is_an_error_and_not_a_mixture() {
    let bytes = recording();
    let (server, address) = Server::with_file(bytes.clone()).start();
    let (store, file) = stored(&address, bytes.len());
    let options = OpenOptions::default();
    let (_, pieces) = store.open_noting(&file, &options).expect("opens");
    server.swap_file(bytes);
    let known = store.open_known(&file, pieces, &options).expect("opens");
    let mut read = known.read(&Query::all()).expect("begins");
    let error = read.find_map(Result::err).expect("an error");
    let asof_core::SourceError::Io { cause, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(cause.kind(), std::io::ErrorKind::StaleNetworkFileHandle);
}
