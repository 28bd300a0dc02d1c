//! Verdicts as text.

use std::io::{self, Write};

use asof::Stamp;
use asof::check::{CheckReport, Ruling};
use asof::text::{counted, shown};

use crate::screen::Palette;

/// How many failures of each expectation text shows.
const SHOWN_FAILURES: usize = 3;

/// For people: what failed, and with `all` what passed.
pub fn write_text(
    report: &CheckReport,
    out: &mut impl Write,
    palette: Palette,
    all: bool,
) -> io::Result<()> {
    let Palette {
        title, good, bad, ..
    } = palette;
    let total = counted(report.expectations.len() as u64, "expectation");
    let (path, passed) = (shown(&report.path), report.passed);
    writeln!(out, "{title}{path}{title:#}: {passed} of {total} hold")?;
    for verdict in &report.expectations {
        let (style, word) = match verdict.outcome {
            Ruling::Passed if !all => continue,
            Ruling::Passed => (good, "ok"),
            Ruling::Failed => (bad, "FAILED"),
            Ruling::Skipped => (palette.label, "skipped"),
        };
        let line = format!("{} {}: {}", verdict.subject, verdict.kind, verdict.message);
        writeln!(out, "  {style}{word}{style:#} {}", shown(&line))?;
        for broken in verdict.failures.iter().take(SHOWN_FAILURES) {
            if let Some(at) = broken.log_time {
                let at = Stamp::from_nanos(at);
                writeln!(out, "      {at}  {}", shown(&broken.message))?;
            } else if broken.message != verdict.message {
                writeln!(out, "      {}", shown(&broken.message))?;
            }
        }
        let hidden = verdict.count.saturating_sub(SHOWN_FAILURES as u64);
        if hidden > 0 {
            writeln!(out, "      and {} more", counted(hidden, "time"))?;
        }
    }
    Ok(())
}
