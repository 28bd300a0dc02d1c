//! A scheduler and two executors on loopback, against one process.
#![cfg(feature = "engine")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use asof_cluster::{ClusterClient, ClusterError};
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, SqlError};

use common::{Fixture, free_port, write_demo};

fn table(database: &Database, sql: &str) -> String {
    let rows = database.collect(sql);
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&rows).expect("text").to_string()
}

#[test]
fn two_executors_answer_as_one_process_does() {
    let fixture = Fixture::new(2);
    // More slices than executors: one that reads more than it was given counts twice.
    let paths: Vec<PathBuf> = (1..=5)
        .map(|n| fixture.path(&format!("{n}.mcap")))
        .collect();
    for (path, seed) in paths.iter().zip(1..) {
        write_demo(path, seed);
    }
    let (here, there) = fixture.databases(&paths);
    for sql in [
        "SELECT count(*) FROM imu",
        "SELECT count(*) FROM imu WHERE angular_velocity.z > -1000",
        "SELECT recording, count(*), max(stamp) FROM odom GROUP BY 1 ORDER BY 1",
        "SELECT s.recording, s.stamp, o.pose.pose.position.x FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) ORDER BY 1, 2",
        "SELECT o.recording, count(i.stamp) FROM window_join(o => odom, i => imu, '-20ms', '0s') GROUP BY 1 ORDER BY 1",
        "SELECT recording, count(*) FROM points(scan, 10) GROUP BY 1 ORDER BY 1",
        "SELECT recording, topic, count(*) FROM transforms GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT recording, stamp, tf('odom', 'base_link', stamp, recording) FROM scan ORDER BY 1, 2 LIMIT 7",
        "SELECT r.recording, r.time, odom.stamp FROM resample(odom, 2) r ORDER BY 1, 2",
        "SELECT count(*) FROM odom WHERE twist.twist.linear.x > (SELECT avg(twist.twist.linear.x) FROM odom)",
        "SELECT topic, sum(messages) FROM topics GROUP BY 1 ORDER BY 1",
    ] {
        assert_eq!(table(&there, sql), table(&here, sql), "{sql}");
    }
    assert!(there.messages_read() > 0, "executors tell what they read");
}

#[test]
fn what_lies_elsewhere_is_refused_and_what_changed_is_told() {
    let fixture = Fixture::new(1);
    let outside = tempfile::tempdir().expect("a folder");
    let (good, secret) = (
        fixture.path("good.mcap"),
        outside.path().join("secret.mcap"),
    );
    write_demo(&good, 1);
    write_demo(&secret, 2);
    let sql = "SELECT sum(angular_velocity.z) FROM imu";
    let failure = |database: &Database| database.collect(sql).expect_err("a refusal").to_string();
    let (_, there) = fixture.databases(&[good.clone(), secret]);
    let refused = failure(&there);
    assert!(refused.contains("under its roots"), "{refused}");
    assert!(refused.contains("secret.mcap"), "{refused}");
    let (_, there) = fixture.databases(std::slice::from_ref(&good));
    assert!(there.collect(sql).is_ok());
    let (_, there) = fixture.databases(std::slice::from_ref(&good));
    write_longer(&good);
    let changed = failure(&there);
    assert!(
        changed.contains("has changed since the query was planned"),
        "{changed}"
    );
    std::fs::remove_file(&good).expect("a file");
    let gone = failure(&there);
    assert!(gone.contains("good.mcap"), "{gone}");
}

fn write_longer(path: &Path) {
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("a file");
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(4),
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        writer.write(&message).expect("a message");
    }
    writer.finish().expect("a file");
}

#[test]
fn a_cluster_without_executors_says_so() {
    let fixture = Fixture::new(0);
    let none = ClusterClient::connect(&fixture.address(), None).expect_err("none");
    assert!(matches!(none, ClusterError::NoExecutors(_)), "{none}");
    let nobody = ClusterClient::connect(&free_port().to_string(), None).expect_err("nobody");
    assert!(
        matches!(nobody, ClusterError::Unreachable { .. }),
        "{nobody}"
    );
    let nonsense = ClusterClient::connect("nonsense", None).expect_err("nonsense");
    assert!(matches!(nonsense, ClusterError::Address(_)), "{nonsense}");
}

#[test]
fn a_query_that_is_wrong_has_the_same_sentence() {
    let fixture = Fixture::new(1);
    let path = fixture.path("a.mcap");
    write_demo(&path, 1);
    let (here, there) = fixture.databases(&[path]);
    for sql in ["SELECT nothing FROM imu", "SELECT FROM", "DROP TABLE imu"] {
        let sentence = |database: &Database| match database.collect(sql) {
            Ok(_) => panic!("{sql} has an answer"),
            Err(error) => error.to_string(),
        };
        assert_eq!(sentence(&there), sentence(&here), "{sql}");
    }
    let analyzed = there.collect("EXPLAIN ANALYZE SELECT count(*) FROM imu");
    assert!(
        matches!(analyzed, Err(SqlError::Query { .. })),
        "{analyzed:?}"
    );
}
