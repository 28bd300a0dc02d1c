//! `asof index`

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use asof::Fleet;
use asof::catalogue::{IndexOptions, IndexRun, KeyPattern, PatternError};
use clap::Args;
use serde_json::json;

use super::CataloguePlace;
use crate::Outcome;
use crate::length::parse_time;
use crate::screen::{Screen, output};
use crate::signals::clean_up_on_interrupt;
use asof::text::{counted, grouped};

/// Index a folder or a bucket of recordings as one database
///
/// Writes a catalogue beside the recordings (.asof/), in plain Parquet: recordings, topics, definitions, chunks. `asof find`
/// answers from it without opening a recording, and DuckDB, Spark and pandas read it too. The next run opens only what is
/// new or changed. Concurrent runs, and one that is killed, lose nothing.
///
/// Damaged recordings are indexed with their problems, and make the exit code 3. With --json, one object per run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof index s3://bucket/fleet --pattern '{robot}/{date}/…'
  asof index /data/fleet --watch")]
pub struct Index {
    /// The folder or bucket
    #[arg(value_name = "PLACE")]
    place: PathBuf,

    #[command(flatten)]
    catalogue: CataloguePlace,

    /// The layout of paths: {robot}, {site} and {date} become columns, other names tags; * matches anything within a name, …
    /// anything at all. Several are tried in turn. The pattern is kept for later runs; '' removes it
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pattern: Vec<PatternChange>,

    /// Index again and again, until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// How long to wait between two runs: seconds, or with a unit such as 500ms, 5m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time, requires = "watch")]
    every: Duration,

    /// Print JSON, one object per run
    #[arg(long)]
    json: bool,
}

/// A pattern, or a request to remove it.
#[derive(Debug, Clone)]
struct PatternChange(Option<KeyPattern>);

fn parse_pattern(text: &str) -> Result<PatternChange, String> {
    if text.is_empty() {
        return Ok(PatternChange(None));
    }
    let pattern = text
        .parse()
        .map_err(|error: PatternError| error.to_string())?;
    Ok(PatternChange(Some(pattern)))
}

const BAR: &str = "{bar:30} {pos}/{len} recordings  {eta} left";

impl Index {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        // Formats that cannot be read in place are downloaded to temporary files.
        clean_up_on_interrupt();
        let fleet = self.catalogue.of(&self.place)?;
        let fleet = fleet.with_progress(screen.reports(BAR));
        let options = IndexOptions {
            patterns: (!self.pattern.is_empty()).then(|| {
                let given = self.pattern.iter();
                given.filter_map(|given| given.0.clone()).collect()
            }),
            ..IndexOptions::default()
        };
        let run = fleet.index(&options)?;
        self.tell(&fleet, &run, screen)?;
        if self.watch {
            return self.go_on(&fleet, &options, screen);
        }
        let is_whole = run.damaged == 0 && run.failed == 0 && run.not_listed == 0;
        Ok(if is_whole {
            Outcome::Done
        } else {
            Outcome::Damaged
        })
    }

    /// Indexes again and again, until a signal, which leaves the catalogue intact.
    fn go_on(
        &self,
        fleet: &Fleet,
        options: &IndexOptions,
        screen: &Screen,
    ) -> anyhow::Result<Outcome> {
        let mut told = Ok(());
        fleet.watch(options, self.every, |run| {
            match run {
                Ok(run) if run.opened > 0 || run.vanished > 0 => {
                    told = self.tell(fleet, &run, screen);
                }
                Ok(_) => {}
                // A lost network may come back.
                Err(error) => screen.warning(format_args!("{error:#}; trying again later")),
            }
            if told.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        told.map(|()| Outcome::Done)
    }

    fn tell(&self, fleet: &Fleet, run: &IndexRun, screen: &Screen) -> anyhow::Result<()> {
        let mut out = output();
        if self.json {
            let line = json!({
                "catalogue": fleet.catalogue_place(),
                "generation": run.generation,
                "recordings": run.recordings,
                "opened": run.opened,
                "unchanged": run.unchanged,
                "vanished": run.vanished,
                "damaged": run.damaged,
                "failed": run.failed,
                "reasons": run.reasons,
                "not_listed": run.not_listed,
                "without_pattern": run.without_pattern,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", in_words(run))?;
        }
        out.flush()?;
        if run.recordings == 0 {
            screen.note("no file there is named like a recording (.mcap, .bag, .db3, .ulg)");
        }
        if run.without_pattern > 0 {
            let paths = counted(run.without_pattern, "recording");
            screen.note(format_args!(
                "the pattern does not match the path of {paths}"
            ));
        }
        Ok(())
    }
}

/// The result of a run, in a line.
fn in_words(run: &IndexRun) -> String {
    let mut words = vec![
        format!(
            "{}: {} opened",
            counted(run.recordings, "recording"),
            grouped(run.opened)
        ),
        format!("{} unchanged", grouped(run.unchanged)),
    ];
    let others = [
        (run.vanished, "vanished"),
        (run.damaged, "damaged"),
        (run.failed, "failed"),
    ];
    words.extend(
        others
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", grouped(*count))),
    );
    let mut line = words.join(", ");
    if !run.reasons.is_empty() {
        let reasons: Vec<String> = run
            .reasons
            .iter()
            .map(|(kind, count)| format!("{} {kind}", grouped(*count)))
            .collect();
        // Writing to a string cannot fail.
        let _ = write!(line, " ({})", reasons.join(", "));
    }
    line
}
