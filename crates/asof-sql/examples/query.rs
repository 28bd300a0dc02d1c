//! Asks recordings a question in SQL and prints the rows; without arguments, one about a drive of the demo robot.
//!
//! `cargo run --release -p asof-sql --features engine --example query -- 'SELECT * FROM topics' RECORDING...`

use std::sync::Arc;
use std::time::Duration;

use asof_core::Source;
use asof_demo::{Demo, DemoOptions};
use asof_formats::{McapWriter, McapWriterOptions};
use asof_sql::arrow::util::pretty::pretty_format_batches;
use asof_sql::{Database, SqlOptions};

/// Where the robot was at each scan: the last odometry as of the scan's stamp.
const QUESTION: &str = "SELECT s.stamp, o.pose.pose.position.x, o.pose.pose.position.y \
    FROM scan s ASOF JOIN odom o MATCH_CONDITION (s.stamp >= o.stamp) LIMIT 10";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let question = arguments.next().unwrap_or_else(|| QUESTION.into());
    let mut paths: Vec<String> = arguments.collect();
    let folder = tempfile::tempdir()?;
    if paths.is_empty() {
        let path = folder.path().join("drive.mcap");
        let mut writer = McapWriter::create(&path, McapWriterOptions::default())?;
        let demo = Demo::new(DemoOptions {
            duration: Duration::from_secs(3),
            ..DemoOptions::default()
        });
        for message in demo.messages() {
            writer.write(&message)?;
        }
        writer.finish()?;
        paths.push(path.display().to_string());
    }
    let mut recordings: Vec<(String, Arc<dyn Source>)> = Vec::new();
    for path in paths {
        let recording = Arc::from(asof_formats::open(&path)?);
        recordings.push((path, recording));
    }
    let database = Database::new(recordings, SqlOptions::default())?;
    println!("{}", pretty_format_batches(&database.collect(&question)?)?);
    Ok(())
}
