//! `asof tf --follow` and `--monitor`: transforms as they come, of a running robot or along a recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use asof_core::{Batch, Follow, Followed, MessageRef, Query, Source, Stamp};
use asof_tf::{Latest, LookupError, TransformBuffer};
use serde_json::json;

use super::numbers::{hertz, shown};
use super::screen::{Screen, output};

/// So long a look at what comes may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// Updates of one message; more than any has.
const UPDATES: usize = 100_000;
/// Stamps that go back by more than this are those of a clock that was set back.
const RESTART_AFTER: i64 = 1_000_000_000;

/// Prints where a frame is in another, whenever so many nanoseconds have passed by the stamps of the transforms.
pub fn follow(
    source: &dyn Source,
    (from, to): (&str, &str),
    step: i64,
    screen: &Screen,
    mut print: impl FnMut(&Latest) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let buffer = TransformBuffer::new();
    let mut last: Option<Stamp> = None;
    let mut has_found = false;
    let mut reason = None;
    let mut told = Instant::now();
    each_message(source, screen, |message| {
        if let Some(message) = message {
            buffer.absorb(&alone(message));
        }
        match buffer.lookup_latest(from, to) {
            Ok(found) => {
                let is_back = found
                    .stamp
                    .zip(last)
                    .is_some_and(|(at, last)| last.since(at) > RESTART_AFTER);
                if is_back {
                    screen.note("the clock of the transforms was set back: they start anew");
                    last = None;
                }
                let is_due = match (found.stamp, last) {
                    (Some(at), Some(last)) => at.since(last) >= step,
                    // Where only static edges are on the way, once is enough.
                    (None, _) => !has_found,
                    (Some(_), None) => true,
                };
                if is_due {
                    last = found.stamp;
                    has_found = true;
                    print(&found)?;
                }
                reason = None;
            }
            Err(error) => {
                if told.elapsed() >= Duration::from_secs(2) {
                    screen.note(format_args!("no answer yet: {error}"));
                    told = Instant::now();
                }
                reason = Some(error);
            }
        }
        Ok(true)
    })?;
    match reason.filter(|_| !has_found) {
        Some(error) => Err(LookupError::into(error)),
        None => Ok(has_found),
    }
}

/// How an edge is doing.
#[derive(Default)]
struct Edge {
    parent: String,
    is_static: bool,
    samples: u64,
    first: Option<Stamp>,
    newest: Option<Stamp>,
    /// The longest time between two stamps, in nanoseconds.
    gap: i64,
    /// How long after their stamps transforms came, in all and at most.
    delay: i64,
    worst_delay: i64,
    /// Stamps that were not after the newest.
    disordered: u64,
}

/// Notes every transform, and prints how the edges are doing: once a second, and at the end.
pub fn monitor(source: &dyn Source, json: bool, screen: &Screen) -> anyhow::Result<()> {
    let buffer = TransformBuffer::new();
    let mut observer = buffer.observe(UPDATES);
    let mut edges: BTreeMap<String, Edge> = BTreeMap::new();
    let mut due = Instant::now() + Duration::from_secs(1);
    let is_growing = source.growth().is_growing();
    each_message(source, screen, |message| {
        if let Some(message) = message {
            buffer.absorb(&alone(message));
            for update in observer.drain() {
                let edge = edges.entry(update.child.to_string()).or_default();
                edge.parent = update.parent.to_string();
                edge.note(update.stamp, message.log_time);
            }
        }
        if is_growing && Instant::now() >= due {
            due += Duration::from_secs(1);
            tell(&edges, json)?;
        }
        Ok(true)
    })?;
    if observer.missed() > 0 {
        screen.warning(format_args!(
            "{} transforms were not counted",
            observer.missed()
        ));
    }
    Ok(tell(&edges, json)?)
}

impl Edge {
    fn note(&mut self, stamp: Option<Stamp>, came: Stamp) {
        self.samples += 1;
        let Some(stamp) = stamp else {
            self.is_static = true;
            return;
        };
        self.first.get_or_insert(stamp);
        let delay = came.since(stamp);
        self.delay = self.delay.saturating_add(delay);
        self.worst_delay = self.worst_delay.max(delay);
        match self.newest {
            Some(newest) if stamp <= newest => self.disordered += 1,
            Some(newest) => {
                self.gap = self.gap.max(stamp.since(newest));
                self.newest = Some(stamp);
            }
            None => self.newest = Some(stamp),
        }
    }

    /// Transforms a second, by their stamps.
    fn rate(&self) -> f64 {
        let span = self
            .first
            .zip(self.newest)
            .map_or(0, |(first, newest)| newest.since(first));
        if span > 0 {
            (self.samples - self.disordered).saturating_sub(1) as f64 / (span as f64 * 1e-9)
        } else {
            0.0
        }
    }

    /// Seconds, on average.
    fn mean_delay(&self) -> f64 {
        self.delay as f64 * 1e-9 / self.samples.max(1) as f64
    }
}

fn tell(edges: &BTreeMap<String, Edge>, json: bool) -> io::Result<()> {
    let mut out = output();
    if json {
        for (child, edge) in edges {
            let line = json!({
                "parent": edge.parent, "child": child, "static": edge.is_static, "samples": edge.samples,
                "hz": edge.rate(), "delay": edge.mean_delay(), "worst_delay": edge.worst_delay as f64 * 1e-9,
                "longest_gap": edge.gap as f64 * 1e-9, "disordered": edge.disordered,
                "newest": edge.newest.map(Stamp::nanos),
            });
            writeln!(out, "{line}")?;
        }
        return out.flush();
    }
    let head = [
        "edge",
        "samples",
        "Hz",
        "delay",
        "worst",
        "gap",
        "disordered",
    ]
    .map(str::to_owned);
    let millis = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let row = |(child, edge): (&String, &Edge)| {
        let name = shown(&format!("{} -> {child}", edge.parent)).into_owned();
        let samples = edge.samples.to_string();
        if edge.is_static {
            let dash = || "-".to_owned();
            return [
                name,
                samples,
                "static".to_owned(),
                dash(),
                dash(),
                dash(),
                dash(),
            ];
        }
        [
            name,
            samples,
            hertz(edge.rate()),
            millis(edge.mean_delay()),
            millis(edge.worst_delay as f64 * 1e-9),
            millis(edge.gap as f64 * 1e-9),
            edge.disordered.to_string(),
        ]
    };
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(edges.iter().map(row)).collect();
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count()).min(80);
        }
    }
    for [name, cells @ ..] in &rows {
        let mut line = format!("{name:<width$}", width = widths[0]);
        for (cell, width) in cells.iter().zip(&widths[1..]) {
            let _ = write!(line, "  {cell:>width$}");
        }
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    out.flush()
}

/// Calls `take` with every message that has transforms, and without one whenever nothing has come for a while; until it
/// is false, or nothing comes any more.
fn each_message(
    source: &dyn Source,
    screen: &Screen,
    mut take: impl FnMut(Option<MessageRef<'_>>) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let summary = source.summary();
    let topics = summary.channels.iter().map(|entry| &entry.channel);
    let topics = topics.filter(|channel| asof_tf::has_transforms(channel));
    // Of a running robot nothing else is heard, and its topics may come later.
    let query = if summary.recent.is_some() {
        Query::all()
    } else {
        Query::topics(topics.map(|channel| channel.topic.clone()))
    };
    let mut follow: Box<dyn Follow> = source.follow(&query)?;
    loop {
        match follow.next(Instant::now() + PATIENCE)? {
            Followed::Batch(batch) => {
                for message in batch.iter() {
                    if asof_tf::has_transforms(message.channel) && !take(Some(message))? {
                        return Ok(());
                    }
                }
            }
            Followed::CaughtUp => {
                if !take(None)? {
                    return Ok(());
                }
            }
            Followed::Restarted => screen.note("the clock was set back"),
            Followed::End(_) => return Ok(()),
        }
    }
}

/// A message in a batch of its own.
fn alone(message: MessageRef<'_>) -> Batch {
    std::iter::once(message.to_message()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_has_its_rate_its_delay_and_its_gaps() {
        let mut edge = Edge::default();
        let tenth = 100_000_000;
        for at in [0, 1, 2, 5, 4, 6] {
            edge.note(Some((at * tenth).into()), (at * tenth + 5_000_000).into());
        }
        assert!((edge.rate() - 4.0 / 0.6).abs() < 1e-9, "{}", edge.rate());
        assert!((edge.mean_delay() - 0.005).abs() < 1e-9);
        assert_eq!((edge.gap, edge.disordered, edge.samples), (3 * tenth, 1, 6));
        edge.note(None, 0.into());
        assert!(edge.is_static);
    }
}
