//! `asof tf --follow` and `--monitor`: statistics of transforms as they arrive.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use asof::TransformStream;
use asof::tf::{EdgeStats, TransformLoaders, TransformMonitor};
use serde_json::json;

use super::screen::{Screen, output};
use asof::rows::{Column, Columns};
use asof::text::{hertz, shown};

const COLUMNS: [(&str, Column); 8] = [
    ("edge", Column::LEFT),
    ("samples", Column::RIGHT),
    ("Hz", Column::RIGHT),
    ("delay", Column::RIGHT),
    ("worst", Column::RIGHT),
    ("longest gap", Column::RIGHT),
    ("gaps", Column::RIGHT),
    ("disordered", Column::RIGHT),
];
/// One edge with very long names does not push the numbers of all others out of sight.
const MAX_COLUMN_WIDTH: usize = 80;

/// Records every transform, and prints statistics of the edges: once a second, and at the end.
pub fn monitor(stream: TransformStream<'_>, json: bool, screen: &Screen) -> anyhow::Result<()> {
    let mut due = Instant::now() + Duration::from_secs(1);
    let is_growing = stream.source.growth().is_growing();
    let loaders = stream.each(true, &screen.reports(""), |came| {
        if is_growing && Instant::now() >= due {
            due += Duration::from_secs(1);
            tell(came.loaders, json)?;
        }
        anyhow::Ok(())
    })?;
    let ignored: u64 = monitors(&loaders).map(TransformMonitor::ignored).sum();
    if ignored > 0 {
        screen.warning(format_args!("{ignored} transforms were not counted"));
    }
    Ok(tell(&loaders, json)?)
}

fn monitors(loaders: &TransformLoaders) -> impl Iterator<Item = &TransformMonitor> {
    loaders.iter().filter_map(|(_, loader)| loader.monitor())
}

fn tell(loaders: &TransformLoaders, json: bool) -> io::Result<()> {
    let mut out = output();
    let edges: Vec<EdgeStats> = monitors(loaders)
        .flat_map(TransformMonitor::edges)
        .collect();
    if json {
        for edge in &edges {
            let line = json!({
                "parent": edge.parent, "child": edge.child, "static": edge.is_static, "topic": edge.topic,
                "samples": edge.samples, "hz": edge.rate.unwrap_or(0.0), "delay": edge.mean_delay,
                "worst_delay": edge.max_delay, "longest_gap": edge.longest_gap.as_secs_f64(), "gaps": edge.gaps,
                "disordered": edge.out_of_order, "last": edge.last.nanos(),
            });
            writeln!(out, "{line}")?;
        }
        return out.flush();
    }
    let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let row = |edge: &EdgeStats| {
        let name = shown(&format!("{} -> {}", edge.parent, edge.child)).into_owned();
        let samples = edge.samples.to_string();
        let dash = || "-".to_owned();
        if edge.is_static {
            let mut row = std::array::from_fn(|_| dash());
            (row[0], row[1], row[2]) = (name, samples, "static".to_owned());
            return row;
        }
        [
            name,
            samples,
            edge.rate.map_or_else(dash, hertz),
            millis(edge.mean_delay),
            millis(edge.max_delay),
            millis(edge.longest_gap.as_secs_f64()),
            edge.gaps.to_string(),
            edge.out_of_order.to_string(),
        ]
    };
    let rows: Vec<[String; 8]> = edges.iter().map(row).collect();
    let mut columns = Columns::new(COLUMNS, MAX_COLUMN_WIDTH);
    columns.measure(&rows);
    columns.write_names(&mut out, &"")?;
    for row in &rows {
        columns.write(&mut out, row)?;
    }
    writeln!(out)?;
    out.flush()
}
