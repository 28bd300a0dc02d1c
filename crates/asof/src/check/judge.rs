//! Checks expectations against a recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use arrow_array::RecordBatch;
use asof_core::{Query, Stamp, TimeRange};
use asof_decode::{FieldPath, Projection};
use asof_tf::{EdgeFacts, TransformBuffer};
use serde::Serialize;

use super::expectations::{Bounds, Expectations, OfTopic, OfTransform, Span};
use super::survey::{Depth, Survey, Times, TopicSurvey, each_batch, each_stamp, values};
use crate::{Error, Recording};

/// How many failures of one expectation are kept; all are counted.
pub const KEPT_FAILURES: usize = 20;

/// The result of one expectation.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Its subject: a topic, two frames, or a query.
    pub subject: String,
    /// What is expected of it: `rate`, `gap`, `range` and so on.
    pub kind: &'static str,
    /// Whether it holds.
    pub outcome: Ruling,
    /// What was found, and what was expected.
    pub message: String,
    /// The first few violations.
    pub failures: Vec<ExpectationFailure>,
    /// How many there are.
    pub count: u64,
}

/// Whether an expectation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ruling {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// This build cannot check it.
    Skipped,
}

/// A violation of an expectation in a recording.
#[derive(Debug, Clone, Serialize)]
pub struct ExpectationFailure {
    /// Nanoseconds since the epoch; `None` where it has no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_time: Option<i64>,
    /// What was found.
    pub message: String,
}

impl Verdict {
    pub(crate) fn new(subject: &str, kind: &'static str, message: String) -> Self {
        Verdict {
            subject: subject.to_owned(),
            kind,
            outcome: Ruling::Passed,
            message,
            failures: Vec::new(),
            count: 0,
        }
    }

    fn of(subject: &str, kind: &'static str, message: String, holds: bool) -> Self {
        let mut verdict = Verdict::new(subject, kind, message.clone());
        if !holds {
            verdict.breaks(None, || message);
        }
        verdict
    }

    pub(crate) fn breaks(&mut self, log_time: Option<i64>, message: impl FnOnce() -> String) {
        self.outcome = Ruling::Failed;
        self.count += 1;
        if self.failures.len() < KEPT_FAILURES {
            self.failures.push(ExpectationFailure {
                log_time,
                message: message(),
            });
        }
    }

    fn failed(mut self, message: String) -> Self {
        self.message.clone_from(&message);
        self.breaks(None, || message);
        self
    }
}

/// Checks all expectations except the queries against a recording; also returns how many messages could not be decoded.
pub fn judge(
    expectations: &Expectations,
    recording: &Recording,
) -> Result<(Vec<Verdict>, u64), Error> {
    let survey = Survey::of(recording, Depth::Times)?;
    let mut undecoded = survey.undecoded;
    let mut verdicts = Vec::new();
    for (name, expected) in &expectations.topics {
        let Some(topic) = survey.topics.get(name) else {
            let missing = Verdict::new(name, "topic", String::new());
            verdicts.push(missing.failed(format!("there is no topic {name}")));
            continue;
        };
        of_totals(&mut verdicts, name, expected, topic, &survey);
        let each = Each::new(name, expected);
        if each.is_needed() {
            let failed = &mut 0;
            verdicts.extend(each.judge(recording, &survey, topic, failed)?);
            undecoded = undecoded.max(*failed);
        }
    }
    if !expectations.transforms.is_empty() {
        let buffer = TransformBuffer::from_source(recording)?.buffer;
        for expected in &expectations.transforms {
            verdicts.push(of_transform(expected, recording, &survey, &buffer)?);
        }
    }
    Ok((verdicts, undecoded))
}

/// Checks the totals of a topic.
fn of_totals(
    verdicts: &mut Vec<Verdict>,
    name: &str,
    expected: &OfTopic,
    topic: &TopicSurvey,
    survey: &Survey,
) {
    if let Some(wanted) = &expected.type_name {
        let message = format!("{}, expected {wanted}", topic.types.join(", "));
        let is_right = topic.types.iter().all(|found| found == wanted);
        verdicts.push(Verdict::of(name, "type", message, is_right));
    }
    let mut number = |kind: &'static str, found: f64, bounds: Bounds<f64>, unit: &str| {
        // A rounded number that would pass is no reason for a failure.
        let short = (found * 1000.0).round() / 1000.0;
        let is_told = bounds.has(&short) == bounds.has(&found);
        let told = if is_told { short } else { found };
        let message = format!("{told}{unit}, expected {bounds}{unit}");
        verdicts.push(Verdict::of(name, kind, message, bounds.has(&found)));
    };
    if let Some(bounds) = expected.messages {
        number("messages", topic.messages as f64, bounds, "");
    }
    if let Some(bounds) = expected.rate {
        number("rate", survey.rate(topic), bounds, " Hz");
    }
}

/// Checks messages one by one.
struct Each<'a> {
    expected: &'a OfTopic,
    name: &'a str,
    gap: Option<(Span, Verdict)>,
    latency: Option<(Bounds<Span>, Verdict)>,
    jump: Option<(Span, Verdict)>,
    ranges: BTreeMap<&'a FieldPath, (Bounds<f64>, Verdict, bool)>,
    last: Option<(i64, Option<i64>)>,
}

impl<'a> Each<'a> {
    fn new(name: &'a str, expected: &'a OfTopic) -> Self {
        let verdict = |kind, message| Verdict::new(name, kind, message);
        let ranges = expected.ranges.iter().map(|(path, bounds)| {
            let message = format!("{}, expected {bounds}", path.0);
            (&path.0, (*bounds, verdict("range", message), false))
        });
        Each {
            name,
            expected,
            gap: expected
                .gap
                .map(|most| (most, verdict("gap", format!("expected at most {most}")))),
            latency: expected
                .latency
                .map(|bounds| (bounds, verdict("latency", format!("expected {bounds}")))),
            jump: expected
                .jump
                .map(|most| (most, verdict("jump", format!("expected at most {most}")))),
            ranges: ranges.collect(),
            last: None,
        }
    }

    fn is_needed(&self) -> bool {
        self.gap.is_some()
            || self.latency.is_some()
            || self.jump.is_some()
            || !self.ranges.is_empty()
    }

    fn judge(
        mut self,
        recording: &Recording,
        survey: &Survey,
        topic: &TopicSurvey,
        undecoded: &mut u64,
    ) -> Result<Vec<Verdict>, Error> {
        let mut paths: Vec<String> = self
            .expected
            .ranges
            .keys()
            .map(|path| path.0.fields())
            .collect();
        if let Projection::AnyOf(stamps) = Projection::stamp() {
            paths.extend(stamps);
        }
        let query = Query::topics([self.name]);
        each_batch(
            recording,
            &query,
            Projection::any_of(paths),
            undecoded,
            |channel, batch| {
                let times = Times::of(channel, recording.summary().range, batch);
                self.see(batch, &times, survey.range.start);
                Ok(())
            },
        )?;
        if let Some((most, verdict)) = &mut self.gap {
            let (end, last) = (survey.range.end, self.last.map(|last| last.0));
            let last = last.unwrap_or(survey.range.start.nanos());
            see_gap(verdict, *most, last, end.nanos());
            let gap = survey.gap(topic);
            verdict.message = format!("{}, {}", Span(gap.nanos.unwrap_or(0)), verdict.message);
        }
        let is_measured = topic.latency.count > 0;
        // Parts of a recording begin with what was latched before them. Where there are no messages, each of them is as
        // expected; that there are some is an expectation of its own.
        let is_silent = topic.messages == 0;
        let is_excused = topic.is_latched || is_silent;
        if let Some((_, verdict)) = &mut self.latency {
            let (min, max) = (topic.latency.min as i64, topic.latency.max as i64);
            let found = if is_measured {
                format!("{} to {}", Span(min), Span(max))
            } else if is_silent {
                "no messages".to_owned()
            } else {
                "latched before".to_owned()
            };
            verdict.message = format!("{found}, {}", verdict.message);
        }
        if let Some((_, verdict)) = &mut self.jump {
            let largest = Span(topic.jump.nanos.unwrap_or(0));
            verdict.message = format!("{largest}, {}", verdict.message);
        }
        let timed = [self.latency.map(|one| one.1), self.jump.map(|one| one.1)];
        let timed = timed.into_iter().flatten().map(|verdict| {
            if is_measured || is_excused {
                verdict
            } else {
                verdict.failed("its messages have no stamps".to_owned())
            }
        });
        let mut verdicts: Vec<Verdict> = self.gap.map(|one| one.1).into_iter().collect();
        verdicts.extend(timed);
        verdicts.extend(
            self.ranges
                .into_iter()
                .map(|(path, (_, verdict, is_there))| {
                    if is_there || is_silent {
                        verdict
                    } else {
                        verdict.failed(format!("no message has a number {path}"))
                    }
                }),
        );
        Ok(verdicts)
    }

    fn see(&mut self, batch: &RecordBatch, times: &Times<'_>, start: Stamp) {
        for (at, latency) in times.all() {
            let (before, latency_before) = self.last.unwrap_or((start.nanos(), None));
            if let Some((most, verdict)) = &mut self.gap {
                see_gap(verdict, *most, before, at);
            }
            if let (Some((bounds, verdict)), Some(latency)) = (&mut self.latency, latency)
                && !bounds.has(&Span(latency))
            {
                verdict.breaks(Some(at), || format!("a latency of {}", Span(latency)));
            }
            if let (Some((most, verdict)), Some(latency), Some(before)) =
                (&mut self.jump, latency, latency_before)
            {
                let change = latency.saturating_sub(before);
                if change.saturating_abs() > most.0 {
                    verdict.breaks(Some(at), || {
                        format!("a jump of the clock by {}", Span(-change))
                    });
                }
            }
            self.last = Some((at, latency));
        }
        let Some(logged) = times.logged else { return };
        for (path, (bounds, verdict, is_there)) in &mut self.ranges {
            let Some(values) = values(path, batch) else {
                continue;
            };
            *is_there |= !values.is_empty();
            for (row, value) in values {
                if !bounds.has(&value) {
                    verdict.breaks(Some(logged.value(row)), || format!("{path} is {value}"));
                }
            }
        }
    }
}

fn see_gap(verdict: &mut Verdict, most: Span, before: i64, at: i64) {
    let gap = at.saturating_sub(before);
    if gap > most.0 {
        verdict.breaks(Some(at), || format!("no message for {}", Span(gap)));
    }
}

/// Whether a transform is known at every stamp of a topic.
fn of_transform(
    expected: &OfTransform,
    recording: &Recording,
    survey: &Survey,
    buffer: &TransformBuffer,
) -> Result<Verdict, Error> {
    let OfTransform { from, to, at } = expected;
    let subject = format!("{from} to {to}");
    let mut verdict = Verdict::new(&subject, "transform", String::new());
    if !survey.topics.contains_key(at) {
        return Ok(verdict.failed(format!("there is no topic {at}")));
    }
    let whole = Coverage::of(buffer, from, to);
    let (mut asked, mut at_the_ends) = (0_u64, 0_u64);
    each_stamp(recording, at, |stamps, logged| {
        asked += stamps.len() as u64;
        match buffer.lookup_many(from.as_str(), to.as_str(), stamps) {
            Ok(many) => {
                for (row, error) in many.failures {
                    if whole.is_some_and(|whole| whole.excuses(stamps[row])) {
                        at_the_ends += 1;
                        continue;
                    }
                    verdict.breaks(Some(logged[row]), || error.to_string());
                }
            }
            Err(error) => {
                for at in logged {
                    verdict.breaks(Some(*at), || error.to_string());
                }
            }
        }
    })?;
    let known = asked - (verdict.count + at_the_ends).min(asked);
    verdict.message = format!("known at {known} of {asked} stamps of {at}");
    if at_the_ends > 0 {
        let _ = write!(
            verdict.message,
            ", and {at_the_ends} before its first sample or after the last"
        );
    }
    Ok(verdict)
}

/// When a transform is known, and for how long around it a recording cannot say: its neighbours were sent before the
/// recording began or after it ended.
#[derive(Clone, Copy)]
pub(super) struct Coverage {
    range: TimeRange,
    pause: i64,
}

impl Coverage {
    /// Of a transform that changes; `None` where it is not known, or is static.
    pub(super) fn of(buffer: &TransformBuffer, from: &str, to: &str) -> Option<Self> {
        let range = buffer.covered(from, to).ok()?;
        let children: Vec<_> = buffer.chain(from, to).ok()?.into_iter().collect();
        let pause = |edge: &EdgeFacts| {
            let is_between = children.iter().any(|link| link.child == edge.child);
            let range = edge.range.filter(|_| is_between && edge.samples > 1)?;
            Some(range.duration_nanos() / i64::try_from(edge.samples - 1).ok()?)
        };
        let pause = buffer.edges().iter().filter_map(pause).max()?;
        Some(Coverage { range, pause })
    }

    /// Whether a time is just outside of it: not further than twice the usual pause between two samples.
    pub(super) fn excuses(self, stamp: Stamp) -> bool {
        let most = self.pause.saturating_mul(2);
        let TimeRange { start, end } = self.range;
        (stamp < start && start.since(stamp) <= most) || (stamp > end && stamp.since(end) <= most)
    }
}
