//! Plans that went through bytes, and read their recordings by address, answer as those that did not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::common::{Row, write};
use asof_core::{Source, SourceError};
use asof_sql::arrow::array::RecordBatch;
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{
    Cluster, ClusterRows, ClusterStats, Database, OwnTable, PlanCodec, RecordingAddress,
    RecordingOpener, SqlOptions,
};
use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::physical_plan::{AsExecutionPlan as _, DefaultPhysicalExtensionCodec};
use datafusion_proto::protobuf::PhysicalPlanNode;

/// Opens files, and notes which.
#[derive(Debug, Default)]
struct Opener(Mutex<Vec<String>>);

impl RecordingOpener for Opener {
    fn open(
        &self,
        recording: &RecordingAddress,
    ) -> std::result::Result<Arc<dyn Source>, SourceError> {
        self.0
            .lock()
            .expect("a list")
            .push(recording.address.clone());
        asof_formats::open(&recording.address).map(Arc::from)
    }
}

/// A cluster of this process alone: all that crosses it is bytes.
#[derive(Debug)]
struct Loopback {
    cores: usize,
    opener: Arc<Opener>,
    plans: Mutex<Vec<String>>,
}

impl Cluster for Loopback {
    fn parallelism(&self) -> usize {
        self.cores
    }

    fn prepared(&self, state: SessionState) -> Result<SessionState> {
        Ok(state)
    }

    fn execute(&self, plan: Arc<dyn ExecutionPlan>, _: SessionConfig) -> Result<ClusterRows> {
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        self.plans.lock().expect("a list").push(shown);
        let others = || Arc::new(DefaultPhysicalExtensionCodec {});
        let context = SessionContext::new().task_ctx();
        let opener: Arc<dyn RecordingOpener> = self.opener.clone();
        // From whoever asks to a scheduler, which hands it on to an executor.
        let asker = PlanCodec::handing_on(others());
        let scheduler = PlanCodec::handing_on(others());
        let executor = PlanCodec::new(opener, others());
        let mut plan = plan;
        for (sender, receiver) in [(&asker, &scheduler), (&scheduler, &executor)] {
            let mut bytes = Vec::new();
            PhysicalPlanNode::try_from_physical_plan(plan, sender)?.try_encode(&mut bytes)?;
            let message = PhysicalPlanNode::try_decode(&bytes)?;
            plan = message.try_into_physical_plan(&context, receiver)?;
        }
        Ok(ClusterRows {
            rows: execute_stream(plan, context)?,
            cancel: Box::new(|| {}),
        })
    }

    fn stats(&self) -> ClusterStats {
        ClusterStats::default()
    }
}

struct Fixture {
    here: Database,
    there: Database,
    cluster: Arc<Loopback>,
    folder: tempfile::TempDir,
}

fn fixture(recordings: usize, cores: usize) -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<PathBuf> = (0..recordings)
        .map(|number| {
            let path = folder.path().join(format!("{number:03}.mcap"));
            let first = number as i64 * 1000;
            let rows: Vec<Row> = (0..50).map(|n| (first + n * 7, first + n * 7, n)).collect();
            let other: Vec<Row> = (0..70).map(|n| (first + n * 5, first + n * 5, n)).collect();
            // Stamps that go back: a join by them finds out when it is under way.
            let back: Vec<Row> = (0..70)
                .map(|n| (first + n * 5, first + (n ^ 1) * 5, n))
                .collect();
            write(
                &path,
                &[("/x", &rows), ("/y", &other), ("/back", &back)],
                10,
            );
            path
        })
        .collect();
    let open = |path: &Path| -> Arc<dyn Source> {
        Arc::from(asof_formats::open(path).expect("a recording"))
    };
    let name = |path: &Path| path.file_name().expect("a name").display().to_string();
    let here = paths.iter().map(|path| (name(path), open(path)));
    let options = || SqlOptions {
        threads: cores,
        ..SqlOptions::default()
    };
    let here = Database::new(here.collect(), options()).expect("a database");
    let cluster = Arc::new(Loopback {
        cores,
        opener: Arc::default(),
        plans: Mutex::default(),
    });
    let there = paths.iter().map(|path| {
        let recording = open(path);
        let address = RecordingAddress {
            name: name(path),
            address: path.display().to_string(),
            size: Some(recording.summary().size),
            version: None,
        };
        (address, recording)
    });
    let sent: Arc<dyn Cluster> = cluster.clone();
    let there = Database::on_cluster(there.collect(), options(), sent).expect("a database");
    Fixture {
        here,
        there,
        cluster,
        folder,
    }
}

impl Fixture {
    /// Asks both, and holds the answers against each other.
    fn compare(&self, sql: &str) {
        let table = |database: &Database| {
            let rows = database.collect(sql);
            let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
            pretty_format_batches(&rows).expect("text").to_string()
        };
        assert_eq!(table(&self.there), table(&self.here), "{sql}");
    }

    fn last_plan(&self) -> String {
        let plans = self.cluster.plans.lock().expect("a list");
        plans.last().cloned().unwrap_or_default()
    }
}

#[test]
fn every_kind_of_leaf_goes_through_bytes() {
    let fixture = fixture(3, 2);
    for sql in [
        "SELECT count(*), sum(n) FROM x WHERE n > 3",
        "SELECT recording, header.stamp.nanosec, n FROM x ORDER BY recording, log_time",
        "SELECT recording, max(n) FROM x WHERE log_time > '+0.1s' GROUP BY 1 ORDER BY 1",
        "SELECT x.recording, x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (x.log_time >= y.log_time) ORDER BY 1, 2",
        "SELECT x.recording, x.n, y.n FROM x ASOF JOIN y MATCH_CONDITION (nearest(x.stamp, y.stamp, INTERVAL '2 ms')) ORDER BY 1, 2",
        "SELECT x.recording, x.n, b.n FROM x ASOF JOIN back b MATCH_CONDITION (x.stamp >= b.stamp) ORDER BY 1, 2",
        "SELECT x.recording, x.n, count(y.n) FROM window_join(x, y, '-12ms', '0s') GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT r.recording, r.time, x.n FROM resample(x, 20) r ORDER BY 1, 2",
        "SELECT n FROM x ORDER BY log_time LIMIT 5",
        "SELECT recording, count(*) FROM x WHERE tf('a', 'b', stamp, recording) IS NULL GROUP BY 1 ORDER BY 1",
    ] {
        fixture.compare(sql);
    }
    let plan = fixture.last_plan();
    assert!(plan.contains("SliceExec: /x"), "{plan}");
}

#[test]
fn what_reads_no_recording_stays_here() {
    let fixture = fixture(2, 2);
    for sql in [
        "SELECT count(*) FROM x",
        "SELECT topic, sum(messages) FROM topics GROUP BY 1 ORDER BY 1",
        "SELECT 1",
    ] {
        fixture.compare(sql);
    }
    assert_eq!(fixture.last_plan(), "");
    assert!(fixture.cluster.opener.0.lock().expect("a list").is_empty());
}

#[test]
fn a_table_of_ones_own_is_not_for_a_cluster() {
    let schema = fixture(1, 2).here.columns("x").expect("columns");
    let options = SqlOptions {
        tables: BTreeMap::from([("mine".to_owned(), OwnTable::of_rows(schema, Vec::new()))]),
        ..SqlOptions::default()
    };
    let cluster = fixture(1, 2).cluster;
    let refused = Database::on_cluster(Vec::new(), options, cluster);
    let error = refused.expect_err("it is refused").to_string();
    assert!(error.contains("does not read 'mine'"), "{error}");
}

#[test]
fn many_slices_share_partitions_where_no_order_is_asked_for() {
    let fixture = fixture(40, 1);
    fixture.compare("SELECT count(*), sum(n) FROM x WHERE n > 3");
    let plan = fixture.last_plan();
    assert!(plan.contains("SliceExec: /x, 8 slices of time"), "{plan}");
    fixture.compare("SELECT recording, n FROM x WHERE n > 3 ORDER BY log_time");
    let plan = fixture.last_plan();
    assert!(plan.contains("SliceExec: /x, 40 slices of time"), "{plan}");
}

#[test]
fn rows_arrive_before_all_slices_are_read() {
    let fixture = fixture(20, 1);
    let plans = || fixture.cluster.plans.lock().expect("a list").len();
    for (sql, wanted) in [
        // A slice, two, and the five that are left.
        ("SELECT recording, n + 1 FROM x WHERE n > 3", 3),
        // All slices are needed for a row, or for the first one.
        ("SELECT sum(n) FROM x WHERE n > 3", 1),
        ("SELECT n FROM x WHERE n > 3 ORDER BY n", 1),
        ("SELECT n FROM x WHERE n > 3 LIMIT 2", 1),
        (
            "SELECT x.n FROM x ASOF JOIN y MATCH_CONDITION (x.stamp >= y.stamp)",
            1,
        ),
    ] {
        let before = plans();
        let count = |database: &Database| {
            let rows = database.collect(sql).expect(sql);
            rows.iter().map(RecordBatch::num_rows).sum::<usize>()
        };
        assert_eq!(count(&fixture.there), count(&fixture.here), "{sql}");
        assert_eq!(plans() - before, wanted, "{sql}");
    }
    // The last recording is gone: what the others hold has arrived by then.
    std::fs::remove_file(fixture.folder.path().join("019.mcap")).expect("a file");
    let rows = fixture
        .there
        .query("SELECT n FROM x WHERE n > 3")
        .expect("it starts");
    let (good, bad): (Vec<_>, Vec<_>) = rows.partition(Result::is_ok);
    assert!(!good.is_empty());
    assert_eq!(bad.len(), 1, "{bad:?}");
}

#[test]
fn a_recording_is_opened_for_its_slices_alone_and_what_changed_is_told() {
    let fixture = fixture(3, 2);
    let sql = "SELECT sum(n) FROM x WHERE recording = '001.mcap'";
    fixture.compare(sql);
    let opened = fixture.cluster.opener.0.lock().expect("a list").clone();
    assert!(!opened.is_empty());
    assert!(
        opened.iter().all(|path| path.ends_with("001.mcap")),
        "{opened:?}"
    );
    write(Path::new(&opened[0]), &[("/x", &[(1, 1, 1)])], 10);
    let changed = fixture
        .there
        .collect(sql)
        .expect_err("it changed")
        .to_string();
    assert!(
        changed.contains("has changed since the query was planned"),
        "{changed}"
    );
}

#[test]
fn damaged_plans_are_refused() {
    use datafusion_proto::physical_plan::{DefaultPhysicalProtoConverter, PhysicalExtensionCodec};

    let codec = PlanCodec::handing_on(Arc::new(DefaultPhysicalExtensionCodec {}));
    let context = SessionContext::new().task_ctx();
    let mark = b"asof-plan-3\0".as_slice();
    for bytes in [
        &b""[..],
        b"\xff\xff\xff",
        b"\x0a\x00",
        b"\x12\x00",
        b"\x0a\x04\x0a\x02\x0a\x00",
    ] {
        let message = [mark, bytes].concat();
        let decoded = codec.try_decode(&message, &[], &context, &DefaultPhysicalProtoConverter {});
        assert!(decoded.is_err(), "{bytes:?}");
    }
    assert!(
        codec
            .try_decode_udf("tf", &[mark, b"\xff"].concat())
            .is_err()
    );
    assert!(codec.try_decode_udf("rm", mark).is_err());
}
