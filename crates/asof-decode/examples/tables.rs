//! Decodes recordings into tables and prints what each channel became.
//!
//! `cargo run --release -p asof-decode --example tables -- run.mcap`

use std::collections::BTreeMap;

use asof_core::Query;
use asof_decode::{TableOptions, Tables};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let file = asof_formats::open(&path)?;
        let mut tables = Tables::read(&file, &Query::all(), TableOptions::default())?;
        let mut rows: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
        for batch in &mut tables {
            let batch = batch?;
            let entry = rows.entry(batch.channel.topic.clone()).or_default();
            entry.0 += 1;
            entry.1 += batch.batch.num_rows();
            entry.2 = batch.batch.num_columns();
        }
        println!("{path}");
        for report in tables.report() {
            let topic = &report.assignment.channel.topic;
            let (batches, rows, columns) = rows.get(topic).copied().unwrap_or_default();
            println!(
                "  {topic}: {rows} rows of {columns} columns in {batches} batches by {}, since {}; {} not decoded",
                report.assignment.layer.as_deref().unwrap_or("no layer"),
                report.assignment.reason,
                report.failed,
            );
        }
    }
    Ok(())
}
