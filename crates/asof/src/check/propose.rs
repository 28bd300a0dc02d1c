//! Expectations that a good recording suggests.

use asof_decode::FieldPath;
use asof_tf::TransformBuffer;

use super::expectations::{Bounds, Expectations, OfTopic, OfTransform, Path, Span};
use super::judge::Coverage;
use super::survey::{Depth, Numbers, Survey, TopicSurvey, each_stamp};
use crate::{Error, Recording};

/// How many topics a note names.
const MOST_NAMED: usize = 5;
/// Frames to look up others from; the first that works is used.
const ROOTS: [&str; 4] = ["map", "world", "odom", "base_link"];

/// What another run of the same robot should meet as well: the measurements, with a margin.
pub fn propose(recording: &Recording) -> Result<Expectations, Error> {
    let survey = Survey::of(recording, Depth::Fields)?;
    let mut expectations = Expectations::default();
    for (name, topic) in &survey.topics {
        expectations
            .topics
            .insert(name.clone(), of_topic(topic, &survey));
    }
    let others: Vec<&str> = survey
        .topics
        .iter()
        .filter(|(_, topic)| topic.has_another_clock())
        .map(|(name, _)| name.as_str())
        .collect();
    if !others.is_empty() {
        recording.progress().note(format_args!(
            "the stamps of {} are from another clock than the log times, such as that of a simulation: no latency is expected of them",
            first_of(&others)
        ));
    }
    let buffer = TransformBuffer::from_source(recording)?.buffer;
    for (name, topic) in &survey.topics {
        let Some(frame) = &topic.frame else { continue };
        if let Some(root) = root_of(recording, name, frame, &buffer)? {
            expectations.transforms.push(OfTransform {
                from: root.to_owned(),
                to: frame.clone(),
                at: name.clone(),
            });
        }
    }
    Ok(expectations)
}

fn of_topic(topic: &TopicSurvey, survey: &Survey) -> OfTopic {
    let mut expected = OfTopic {
        type_name: match &topic.types[..] {
            [one] if !one.is_empty() => Some(one.clone()),
            _ => None,
        },
        ..OfTopic::default()
    };
    if topic.is_latched && topic.messages > 0 {
        // It comes when somebody subscribes, and again at the beginning of each part.
        expected.messages = Some(Bounds {
            min: Some(1.0),
            max: None,
        });
    } else if topic.is_regular() {
        let rate = survey.rate(topic);
        expected.rate = Some(Bounds::new(below(rate * 0.9), above(rate * 1.1)));
        let gap = survey.gap(topic).nanos.unwrap_or(0);
        expected.gap = Some(milliseconds(gap as f64 * 1.5));
    }
    if topic.latency.count > 0 && !topic.has_another_clock() {
        let Numbers { min, max, .. } = topic.latency;
        let room = (max - min).max(1e6);
        expected.latency = Some(Bounds::new(
            milliseconds(min - room),
            milliseconds(max + room),
        ));
        let jump = topic.jump.nanos.unwrap_or(0);
        expected.jump = Some(milliseconds(jump as f64 * 2.0 + 1e6));
    }
    for (path, numbers) in &topic.fields {
        // A constant value is a setting, and a field with values that are not finite has no range.
        if numbers.count == 0 || numbers.strange > 0 {
            continue;
        }
        let Ok(path) = FieldPath::parse(path) else {
            continue;
        };
        let room = (numbers.max - numbers.min) * 0.25;
        let bounds = Bounds::new(below(numbers.min - room), above(numbers.max + room));
        expected.ranges.insert(Path(path), bounds);
    }
    expected
}

/// The first frame from which this one is known at every stamp of the topic.
fn root_of(
    recording: &Recording,
    topic: &str,
    frame: &str,
    buffer: &TransformBuffer,
) -> Result<Option<&'static str>, Error> {
    let mut roots: Vec<(&str, Option<Coverage>)> = ROOTS
        .into_iter()
        .filter(|root| *root != frame)
        .map(|root| (root, Coverage::of(buffer, root, frame)))
        .collect();
    each_stamp(recording, topic, |stamps, _| {
        roots.retain(|(root, known)| {
            let is_excused = |row: usize| known.is_some_and(|known| known.excuses(stamps[row]));
            let found = buffer.lookup_many(*root, frame, stamps);
            found.is_ok_and(|many| many.failures.into_iter().all(|(row, _)| is_excused(row)))
        });
    })?;
    Ok(roots.first().map(|(root, _)| *root))
}

/// The first few names.
fn first_of(names: &[&str]) -> String {
    let shown = names.len().min(MOST_NAMED);
    match names.len() - shown {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..shown].join(", ")),
    }
}

/// A number of few digits that is at most this one.
fn below(value: f64) -> f64 {
    let short = rounded(value, f64::floor);
    if short <= value { short } else { value }
}

/// A number of few digits that is at least this one.
fn above(value: f64) -> f64 {
    let short = rounded(value, f64::ceil);
    if short >= value { short } else { value }
}

fn rounded(value: f64, round: fn(f64) -> f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().ceil() as i32;
    let scale = 10_f64.powi(digits.clamp(-300, 300));
    let short = round(value * scale) / scale;
    if short.is_finite() { short } else { value }
}

/// Rounded to a tenth of a millisecond, away from zero.
fn milliseconds(nanos: f64) -> Span {
    let tenths = nanos / 1e5;
    let tenths = if tenths < 0.0 {
        tenths.floor()
    } else {
        tenths.ceil()
    };
    Span((tenths * 1e5) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_bounds_are_short_and_never_cut_what_was_measured() {
        for value in [
            0.0,
            1.0,
            -1.0,
            0.123_456_7,
            -9.806_65,
            1e-12,
            1e17,
            255.0,
            -0.000_123,
        ] {
            assert!(below(value) <= value && above(value) >= value, "{value}");
            assert!(above(value) - below(value) <= value.abs() * 0.02, "{value}");
        }
        assert!((above(0.123_456_7) - 0.124).abs() < 1e-12);
        assert_eq!(milliseconds(1_234_567.0), Span(1_300_000));
        assert_eq!(milliseconds(-1_234_567.0), Span(-1_300_000));
    }
}
