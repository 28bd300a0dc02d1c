//! `asof tf --follow` and `--monitor`: transforms as they arrive, from a running robot or along a recording.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use asof::tf::{
    BufferOptions, Conflicts, EdgeStats, LatestTransform, LoaderOptions, LookupError,
    TransformBuffer, TransformLoader, TransformLoaders, TransformMonitor, transform_topics,
};
use asof::{Batch, Follow, Followed, MessageRef, Query, Source, Stamp, Topics};
use serde_json::json;

use super::failure::Usage;
use super::screen::{Screen, output};
use asof::text::{hertz, shown};

/// How long to wait for messages at a time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Frames without a transform for this long make room for others, when there are very many.
const FORGET_AFTER: Duration = Duration::from_mins(1);
/// Stamps that go back by more than this mean that the clock was set back.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Prints the transform between two frames whenever this many nanoseconds have passed by the stamps of the transforms.
pub fn follow(
    coming: Coming<'_>,
    (from, to): (&str, &str),
    step: i64,
    screen: &Screen,
    mut print: impl FnMut(&LatestTransform) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut last: Option<Stamp> = None;
    let mut has_found = false;
    let mut reason = None;
    let mut told = Instant::now();
    coming.each(false, screen, |came| {
        if came.has_restarted {
            last = None;
        }
        match came.buffer((from, to))?.lookup_latest(from, to) {
            Ok(found) => {
                let is_due = match (found.stamp, last) {
                    (Some(at), Some(last)) => at.since(last) >= step,
                    // If there are only static edges on the way, once is enough.
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
        Ok(())
    })?;
    match reason.filter(|_| !has_found) {
        Some(error) => Err(LookupError::into(error)),
        None => Ok(has_found),
    }
}

/// Records every transform, and prints statistics of the edges: once a second, and at the end.
pub fn monitor(coming: Coming<'_>, json: bool, screen: &Screen) -> anyhow::Result<()> {
    let mut due = Instant::now() + Duration::from_secs(1);
    let is_growing = coming.source.growth().is_growing();
    let loaders = coming.each(true, screen, |came| {
        if is_growing && Instant::now() >= due {
            due += Duration::from_secs(1);
            tell(came.loaders, json)?;
        }
        Ok(())
    })?;
    let ignored: u64 = monitors(&loaders).map(TransformMonitor::ignored).sum();
    if ignored > 0 {
        screen.warning(format_args!("{ignored} transforms were not counted"));
    }
    Ok(tell(&loaders, json)?)
}

/// The origin of transforms: a source, and its selected topics.
#[derive(Clone, Copy)]
pub struct Coming<'a> {
    pub source: &'a dyn Source,
    pub topics: &'a Topics,
    /// Whether several robots share a buffer, in which frames have their namespace before their names.
    pub is_joined: bool,
}

/// What has arrived.
struct Came<'a> {
    loaders: &'a TransformLoaders,
    /// Whether the clock was set back, and the buffer was restarted.
    has_restarted: bool,
}

impl Came<'_> {
    /// The buffer with both frames; an empty one if there is none yet.
    fn buffer(&self, (from, to): (&str, &str)) -> anyhow::Result<TransformBuffer> {
        let buffers = || {
            let all = self.loaders.iter();
            all.map(|(name, loader)| (name, loader.buffer()))
        };
        let has_both = |(_, one): &(&str, &TransformBuffer)| {
            one.find(from).is_some() && one.find(to).is_some()
        };
        let with_both: Vec<_> = buffers().filter(has_both).collect();
        match &*with_both {
            [] => Ok(buffers()
                .next()
                .map_or_else(TransformBuffer::new, |(_, one)| one.clone())),
            [(_, one)] => Ok((*one).clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
                Err(ambiguous((from, to), &names))
            }
        }
    }
}

/// The error for frames that several robots have.
pub fn ambiguous((from, to): (&str, &str), namespaces: &[&str]) -> anyhow::Error {
    let shown: Vec<String> = namespaces.iter().map(|name| format!("{name}/tf")).collect();
    let last = namespaces.last().copied().unwrap_or_default();
    Usage::error(format!(
        "'{from}' and '{to}' are frames of {}: choose one with --tf-topics '{last}/*', or name both robots' frames apart with --tf-prefix",
        shown.join(" and of ")
    ))
}

fn monitors(loaders: &TransformLoaders) -> impl Iterator<Item = &TransformMonitor> {
    loaders.iter().filter_map(|(_, loader)| loader.monitor())
}

impl Coming<'_> {
    /// Calls `look` after every message with transforms, and whenever nothing has arrived for a while; until
    /// the source ends.
    fn each(
        self,
        is_monitored: bool,
        screen: &Screen,
        mut look: impl FnMut(Came<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<TransformLoaders> {
        let is_growing = self.source.growth().is_growing();
        let options = LoaderOptions {
            // In a recording, times that go back are in its order.
            jump_back: is_growing.then_some(RESTART_AFTER),
            monitor: is_monitored,
            forget_after: Some(FORGET_AFTER),
        };
        let of_tf2 = BufferOptions::default().conflicts(Conflicts::LastWins);
        let shared = self
            .is_joined
            .then(|| TransformBuffer::with_options(of_tf2));
        let mut loaders = TransformLoaders::new(move |namespace| match &shared {
            Some(shared) => {
                TransformLoader::with_options(shared.clone(), options).with_prefix(namespace)
            }
            None => TransformLoader::with_options(TransformBuffer::with_options(of_tf2), options),
        });
        for entry in &self.source.summary().channels {
            if self.topics.contains(&entry.channel.topic) {
                loaders.learn(&entry.channel);
            }
        }
        let mut follow: Box<dyn Follow> = self.source.follow(&self.query(is_growing))?;
        loop {
            match follow.next(Instant::now() + POLL_INTERVAL)? {
                Followed::Batch(batch) => {
                    for message in batch.iter() {
                        let absorbed = loaders.absorb(&alone(message));
                        for moved in &absorbed.moved {
                            screen.note(moved);
                        }
                        if let Some(jump) = &absorbed.jump {
                            screen.note(jump);
                        }
                        let came = Came {
                            loaders: &loaders,
                            has_restarted: absorbed.jump.is_some(),
                        };
                        look(came)?;
                    }
                }
                Followed::CaughtUp => look(Came {
                    loaders: &loaders,
                    has_restarted: false,
                })?,
                Followed::Restarted => screen.note("the clock was set back"),
                Followed::End(_) => return Ok(loaders),
            }
        }
    }

    fn query(self, is_growing: bool) -> Query {
        // A growing source was opened with only these topics, and more of them may appear later.
        if is_growing {
            return Query::all();
        }
        let topics = transform_topics(&self.source.summary());
        Query::topics(
            topics
                .into_iter()
                .filter(|topic| self.topics.contains(topic)),
        )
    }
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
    let head = [
        "edge",
        "samples",
        "Hz",
        "delay",
        "worst",
        "longest gap",
        "gaps",
        "disordered",
    ]
    .map(str::to_owned);
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
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(edges.iter().map(row)).collect();
    let mut widths = [0; 8];
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

/// A message in a batch of its own.
fn alone(message: MessageRef<'_>) -> Batch {
    std::iter::once(message.to_message()).collect()
}
