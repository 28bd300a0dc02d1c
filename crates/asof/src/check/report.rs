//! Verdicts as JSON and JUnit XML.

use std::fmt::Write as _;

use asof_core::Stamp;
use serde::Serialize;

use super::judge::{Ruling, Verdict};

/// The result of one recording; an object of `check --json`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// The recording.
    pub path: String,
    /// Expectations that hold.
    pub passed: usize,
    /// Those that do not.
    pub failed: usize,
    /// Those that this build cannot check.
    pub skipped: usize,
    /// All of them.
    pub expectations: Vec<Verdict>,
    /// Messages that could not be decoded.
    #[serde(skip)]
    pub undecoded: u64,
}

impl CheckReport {
    pub(crate) fn new(path: String, expectations: Vec<Verdict>, undecoded: u64) -> Self {
        let count = |ruling| {
            let those = expectations.iter().filter(|one| one.outcome == ruling);
            those.count()
        };
        CheckReport {
            path,
            passed: count(Ruling::Passed),
            failed: count(Ruling::Failed),
            skipped: count(Ruling::Skipped),
            expectations,
            undecoded,
        }
    }
}

/// All reports as one JUnit file.
pub fn junit(reports: &[CheckReport]) -> String {
    let sum = |of: fn(&CheckReport) -> usize| reports.iter().map(of).sum::<usize>();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let total = sum(|report| report.expectations.len());
    // Writing to a string cannot fail.
    let _ = writeln!(
        xml,
        "<testsuites name=\"asof check\" tests=\"{total}\" failures=\"{}\" skipped=\"{}\">",
        sum(|report| report.failed),
        sum(|report| report.skipped)
    );
    for report in reports {
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">",
            escaped(&report.path),
            report.expectations.len(),
            report.failed,
            report.skipped
        );
        for verdict in &report.expectations {
            write_case(&mut xml, verdict);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_case(xml: &mut String, verdict: &Verdict) {
    let name = escaped(&format!("{} {}", verdict.subject, verdict.kind));
    let class = escaped(verdict.kind);
    let message = escaped(&verdict.message);
    let _ = write!(xml, "    <testcase classname=\"{class}\" name=\"{name}\"");
    match verdict.outcome {
        Ruling::Passed => xml.push_str("/>\n"),
        Ruling::Skipped => {
            let _ = writeln!(xml, "><skipped message=\"{message}\"/></testcase>");
        }
        Ruling::Failed => {
            let _ = writeln!(xml, ">\n      <failure message=\"{message}\">");
            for broken in &verdict.failures {
                let at = broken
                    .log_time
                    .map(|at| format!("{}  ", Stamp::from_nanos(at)));
                let line = format!("{}{}", at.unwrap_or_default(), broken.message);
                let _ = writeln!(xml, "{}", escaped(&line));
            }
            let hidden = verdict.count.saturating_sub(verdict.failures.len() as u64);
            if hidden > 0 {
                let _ = writeln!(xml, "and {hidden} more");
            }
            xml.push_str("      </failure>\n    </testcase>\n");
        }
    }
}

/// Text escaped for XML; characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_has_each_expectation_and_escapes_what_xml_means() {
        let mut failed = Verdict::new("/a<b>", "gap", "1s, \"expected\" less\x1b".to_owned());
        failed.breaks(Some(1_700_000_000_000_000_000), || "a & b".to_owned());
        let passed = Verdict::new("/c", "rate", String::new());
        let report = CheckReport::new("run.mcap".to_owned(), vec![failed, passed], 0);
        let xml = junit(&[report]);
        assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
        assert!(xml.contains("name=\"/a&lt;b&gt; gap\""), "{xml}");
        assert!(
            xml.contains("message=\"1s, &quot;expected&quot; less\""),
            "{xml}"
        );
        assert!(xml.contains("2023-11-14T22:13:20Z  a &amp; b"), "{xml}");
    }
}
