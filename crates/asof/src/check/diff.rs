//! Two recordings compared.

use serde::Serialize;

use super::expectations::Span;
use super::survey::{Depth, Numbers, Survey, TopicSurvey};
use crate::{Error, Recording};

/// The size of something that appeared, disappeared or changed its type: larger than any number.
const STRUCTURAL_SIZE: f64 = 1e9;

/// A difference; an object of `diff --json`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// A topic, or a field of one.
    pub subject: String,
    /// `topic`, `type`, `rate`, `gap`, `latency` or `field`.
    pub kind: &'static str,
    /// In the reference.
    pub good: String,
    /// In the other recording.
    pub new: String,
    /// Its size, relative to its kind.
    pub size: f64,
}

impl Recording {
    /// All differences between this one, which is good, and another: topics, types, rates, gaps, latencies, and every field. The
    /// largest come first. A rate, a gap or a latency is compared relative to its own size, a field's mean relative to the
    /// field's variation in this recording.
    ///
    /// # Errors
    /// When one of them cannot be read, or the work on either is cancelled.
    pub fn diff(&self, other: &Recording) -> Result<Vec<Difference>, Error> {
        let good = Survey::of(self, Depth::Fields)?;
        let progress = other.progress().or_cancelled_with(self.progress());
        let new = Survey::of(&other.clone().with_progress(progress), Depth::Fields)?;
        Ok(compare(&good, &new))
    }
}

/// All differences, the largest first.
fn compare(good: &Survey, new: &Survey) -> Vec<Difference> {
    let mut found = Vec::new();
    for (name, topic) in &good.topics {
        match new.topics.get(name) {
            None => found.push(whole(name, "topic", &topic.types.join(", "), "missing")),
            Some(other) => compare_topic(name, (good, topic), (new, other), &mut found),
        }
    }
    for (name, topic) in &new.topics {
        if !good.topics.contains_key(name) {
            found.push(whole(name, "topic", "missing", &topic.types.join(", ")));
        }
    }
    found.retain(|one| one.size > 0.0);
    found.sort_by(|one, other| other.size.total_cmp(&one.size));
    found
}

fn whole(subject: &str, kind: &'static str, good: &str, new: &str) -> Difference {
    Difference {
        subject: subject.to_owned(),
        kind,
        good: good.to_owned(),
        new: new.to_owned(),
        size: STRUCTURAL_SIZE,
    }
}

fn compare_topic(
    name: &str,
    (good, one): (&Survey, &TopicSurvey),
    (new, other): (&Survey, &TopicSurvey),
    found: &mut Vec<Difference>,
) {
    if one.types != other.types {
        let (one, other) = (one.types.join(", "), other.types.join(", "));
        found.push(whole(name, "type", &one, &other));
    }
    let mut push = |kind, good: String, new: String, size: f64| {
        found.push(Difference {
            subject: name.to_owned(),
            kind,
            good,
            new,
            size,
        });
    };
    let (rate, new_rate) = (good.rate(one), new.rate(other));
    let hertz = |rate: f64| format!("{rate:.3} Hz");
    push("rate", hertz(rate), hertz(new_rate), ratio(rate, new_rate));
    let gap = |survey: &Survey, topic| survey.gap(topic).nanos.unwrap_or(0);
    let (gap, new_gap) = (gap(good, one), gap(new, other));
    let size = ratio(gap as f64, new_gap as f64);
    push(
        "gap",
        Span(gap).to_string(),
        Span(new_gap).to_string(),
        size,
    );
    // Between two clocks that have nothing to do with each other, every run has another latency.
    let is_compared = !(one.has_another_clock() && other.has_another_clock());
    if is_compared && (one.latency.count > 0 || other.latency.count > 0) {
        let text = |latency: &Numbers| match latency.count {
            0 => "no stamps".to_owned(),
            _ => format!(
                "{} (at most {})",
                Span(latency.mean as i64),
                Span(latency.max as i64)
            ),
        };
        // Below a millisecond latencies are noise.
        let size = moved(&one.latency, &other.latency, 1e6);
        push("latency", text(&one.latency), text(&other.latency), size);
    }
    let nothing = Numbers::default();
    let mut paths: Vec<&String> = one.fields.keys().chain(other.fields.keys()).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let numbers = one.fields.get(path).unwrap_or(&nothing);
        let others = other.fields.get(path).unwrap_or(&nothing);
        found.push(Difference {
            subject: format!("{name} {path}"),
            kind: "field",
            good: summed_up(numbers),
            new: summed_up(others),
            size: moved(numbers, others, 0.0),
        });
    }
}

/// Symmetric: twice as much counts like half as much.
fn ratio(one: f64, other: f64) -> f64 {
    if one.total_cmp(&other).is_eq() {
        0.0
    } else if one <= 0.0 || other <= 0.0 {
        STRUCTURAL_SIZE / 2.0
    } else {
        (other / one).ln().abs()
    }
}

/// How far numbers moved, in units of their earlier spread.
fn moved(good: &Numbers, new: &Numbers, least: f64) -> f64 {
    if (good.count == 0) != (new.count == 0) {
        return STRUCTURAL_SIZE / 2.0;
    }
    let share = |numbers: &Numbers| {
        let all = (numbers.count + numbers.strange).max(1);
        numbers.strange as f64 / all as f64
    };
    let strange = (share(good) - share(new)).abs() * 10.0;
    let changes = [
        new.mean - good.mean,
        new.deviation() - good.deviation(),
        (new.max - good.max) / 4.0,
        (new.min - good.min) / 4.0,
    ];
    let change = changes
        .into_iter()
        .fold(0.0_f64, |all, one| all.max(one.abs()));
    if change == 0.0 {
        return strange;
    }
    // A field that never changed is compared relative to its own size.
    let spread = good.deviation().max(least);
    let spread = if spread > 0.0 {
        spread
    } else {
        good.mean.abs().max(new.mean.abs()).max(f64::MIN_POSITIVE)
    };
    (change / spread).min(STRUCTURAL_SIZE / 4.0) + strange
}

fn summed_up(numbers: &Numbers) -> String {
    let strange = match numbers.strange {
        0 => String::new(),
        count => format!(", {count} not finite"),
    };
    if numbers.count == 0 {
        return format!("no values{strange}");
    }
    let Numbers { min, max, mean, .. } = numbers;
    if min.total_cmp(max).is_eq() {
        return format!("{min}{strange}");
    }
    format!(
        "{} ± {} ({} to {}){strange}",
        short(*mean),
        short(numbers.deviation()),
        short(*min),
        short(*max)
    )
}

/// Four digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3e}");
    text.parse::<f64>().map_or(text, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: &[f64]) -> Numbers {
        let mut found = Numbers::default();
        for value in values {
            found.see(*value);
        }
        found
    }

    #[test]
    fn what_moved_most_for_its_spread_is_largest() {
        let calm = numbers(&[1.0, 1.1, 0.9]);
        let wild = numbers(&[-100.0, 100.0, 50.0]);
        let up = |numbers: &Numbers| {
            let mut moved = numbers.clone();
            moved.mean += 1.0;
            moved
        };
        assert!(moved(&calm, &up(&calm), 0.0) > moved(&wild, &up(&wild), 0.0));
        assert!(moved(&calm, &calm, 0.0).abs() < 1e-12);
        assert!(moved(&calm, &numbers(&[]), 0.0) > 1e6);
        assert!(moved(&calm, &numbers(&[1.0, 1.1, 0.9, f64::NAN]), 0.0) > 1.0);
        assert!((ratio(50.0, 25.0) - ratio(50.0, 100.0)).abs() < 1e-12);
        assert!(ratio(50.0, 0.0) > 1e6);
    }
}
