//! The flags that select topics and times, and the query that they make.

use std::path::Path;

use asof::catalogue::{NamePattern, NamePatterns};
use asof::{Query, Source, Stamp, StampError, TimeRange, Topics, When};
use clap::Args;

use super::completions;
use super::failure::Usage;
use super::screen::Screen;
use asof::text::hint;
use asof::text::quoted;

/// Selects messages.
#[derive(Debug, Args)]
pub struct Select {
    #[command(flatten)]
    choice: TopicChoice,

    #[command(flatten)]
    span: Span,
}

/// Selects topics.
#[derive(Debug, Args)]
pub struct TopicChoice {
    /// Only these topics: names or globs, separated by commas
    #[arg(long, value_name = "A,B", value_parser = parse_patterns, add = completions::topics())]
    topics: Option<Patterns>,
}

/// Selects a time range.
#[derive(Debug, Args)]
pub struct Span {
    /// Only messages at or after this time: RFC 3339, seconds since the epoch, nanoseconds with ns, or
    /// relative to the recording: +12.5s from its start, -3s from its end
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    start: Option<When>,

    /// Only messages at or before this time, in the same forms; a day is all of it
    #[arg(long, value_name = "T", allow_hyphen_values = true, value_parser = parse_end)]
    end: Option<When>,
}

/// How many globs that match nothing are named.
const MISSING_NAMED: usize = 10;

/// Names and globs of topics, as given.
#[derive(Debug, Clone)]
pub struct Patterns(NamePatterns);

impl Select {
    /// The topics as given.
    pub fn patterns(&self) -> Option<Patterns> {
        self.choice.patterns()
    }

    /// Whether no time was given.
    pub fn is_all_of_time(&self) -> bool {
        self.span.start.is_none() && self.span.end.is_none()
    }

    /// The query for this source. Notes a time that can match nothing; a topic that matches nothing is an error.
    pub fn query(
        &self,
        place: &Path,
        source: &dyn Source,
        screen: &Screen,
    ) -> anyhow::Result<Query> {
        Ok(Query {
            topics: self.choice.topics(place, source, screen)?,
            range: self.span.range(source, screen),
        })
    }
}

impl Span {
    /// The selected time range. Notes one that must be empty.
    pub fn range(&self, source: &dyn Source, screen: &Screen) -> TimeRange {
        // More may come to what grows.
        let range = source.summary().range;
        let is_known = !source.growth().is_growing();
        let known = is_known.then_some((range, "the recording has nothing"));
        range_between((self.start, self.end), range, known, screen)
    }
}

/// The time range between two times, which are relative to another range. Notes one that must be empty: by itself, or because what
/// is there, which has this range, lies elsewhere.
pub fn range_between(
    (first, last): (Option<When>, Option<When>),
    relative_to: TimeRange,
    known: Option<(TimeRange, &str)>,
    screen: &Screen,
) -> TimeRange {
    let instant = |when: Option<When>, otherwise: Stamp| {
        when.map_or(otherwise, |when| when.resolve(relative_to))
    };
    let wanted = TimeRange::new(instant(first, Stamp::MIN), instant(last, Stamp::MAX));
    let TimeRange { start, end } = wanted;
    if wanted.is_empty() {
        screen.note(format_args!(
            "--start {start} is after --end {end}, so nothing is between them"
        ));
    } else if let Some((known, nothing)) = known
        && !known.is_empty()
        && !wanted.overlaps(known)
    {
        let TimeRange { start, end } = known;
        let meant = |when| meant_relative(when, known);
        let meant = meant(first).or_else(|| meant(last));
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
        screen.note(format_args!(
            "{nothing} in that time: it spans {start} to {end}{meant}"
        ));
    } else if let Some(meant) = meant_relative(first, relative_to) {
        screen.note(format_args!(
            "--start {start} is before everything; did you mean --start {meant}?"
        ));
    }
    wanted
}

impl Patterns {
    /// Whether one of them matches this topic.
    pub fn is_match(&self, topic: &str) -> bool {
        self.0.is_match(topic)
    }

    /// A name that no topic has, or a glob if none of them matches anything.
    pub fn refused(&self, known: &[&str]) -> Option<&str> {
        let missing = self.missing(known);
        let is_none = missing.len() == self.0.as_slice().len();
        let is_exact = |name: &&&str| {
            let mut patterns = self.0.as_slice().iter();
            patterns.any(|pattern| pattern.is_exact() && pattern.as_str() == **name)
        };
        let first = || missing.first().filter(|_| is_none);
        missing.iter().find(is_exact).or_else(first).copied()
    }

    /// Those that match no topic.
    fn missing(&self, known: &[&str]) -> Vec<&str> {
        let patterns = self.0.as_slice();
        let mut is_found = vec![false; patterns.len()];
        for at in known.iter().flat_map(|topic| self.0.matches(topic)) {
            is_found[at] = true;
        }
        let missing = patterns.iter().zip(is_found).filter(|(_, found)| !found);
        missing.map(|(pattern, _)| pattern.as_str()).collect()
    }

    /// Refuses a name that no topic of a recording has, and globs if none of them matches anything. A glob that matches
    /// nothing beside others that do is noted.
    pub fn check(&self, place: &Path, known: &[&str], screen: &Screen) -> anyhow::Result<()> {
        if let Some(refused) = self.refused(known) {
            return Err(no_topic(refused, place, known));
        }
        let missing = self.missing(known);
        for pattern in missing.iter().take(MISSING_NAMED) {
            screen.note(no_topic(pattern, place, known));
        }
        if let more @ 1.. = missing.len().saturating_sub(MISSING_NAMED) {
            screen.note(format_args!("{more} more globs match no topic"));
        }
        Ok(())
    }
}

impl TopicChoice {
    /// These topics, where no others were given.
    pub fn or(&self, topics: Option<&Patterns>) -> TopicChoice {
        TopicChoice {
            topics: self.topics.as_ref().or(topics).cloned(),
        }
    }

    /// The topics as given.
    pub fn patterns(&self) -> Option<Patterns> {
        self.topics.clone()
    }

    /// The selected topics of a source. A name that matches nothing is an error, except where topics may appear later.
    pub fn topics(
        &self,
        place: &Path,
        source: &dyn Source,
        screen: &Screen,
    ) -> anyhow::Result<Topics> {
        let Some(patterns) = &self.topics else {
            return Ok(Topics::All);
        };
        let summary = source.summary();
        if summary.recent.is_some() {
            // It was opened with this choice, and says itself what never came.
            return Ok(Topics::All);
        }
        let known = summary.topics();
        let checked = patterns.check(place, &known, screen);
        if source.growth().is_growing() {
            if let Err(error) = checked {
                screen.note(format_args!("{error:#}"));
            }
            // It was opened with this choice and has nothing else; matching topics may appear later.
            return Ok(Topics::All);
        }
        checked?;
        let is_wanted = |topic: &&str| patterns.is_match(topic);
        Ok(Topics::named(known.iter().copied().filter(is_wanted)))
    }
}

/// A time that is the last of a range: a day is all of it.
pub fn parse_end(text: &str) -> Result<When, String> {
    match asof::catalogue::until(text) {
        Ok(end) => Ok(When::At(end)),
        Err(_) => text.parse().map_err(|error: StampError| error.to_string()),
    }
}

/// What a few seconds since 1970 probably mean in a recording of another time: seconds from its start.
pub fn meant_relative(when: Option<When>, range: TimeRange) -> Option<String> {
    const DAY: i64 = 86_400_000_000_000;
    let Some(When::At(at)) = when else {
        return None;
    };
    let is_short = (0..DAY).contains(&at.nanos());
    let is_other = !range.is_empty() && range.start.since(at) > 365 * DAY;
    (is_short && is_other).then(|| format!("+{}s", at.nanos() as f64 / 1e9))
}

/// The error for a topic that a recording does not have, with the one that may have been meant.
pub fn no_topic(wanted: &str, place: &Path, known: &[&str]) -> anyhow::Error {
    let listing = || format!("`asof info {}` lists the topics", quoted(place));
    let hint = hint(wanted, known.iter().copied()).unwrap_or_else(listing);
    Usage::error(format!("no topic matches '{wanted}'; {hint}"))
}

pub fn parse_patterns(text: &str) -> Result<Patterns, String> {
    let patterns = names_in(text);
    if patterns.is_empty() {
        return Err("no topic is named; give names or globs, such as '/scan,/tf*'".to_owned());
    }
    Ok(Patterns(patterns.into_iter().collect()))
}

/// The names and globs of a comma-separated list.
pub fn names_in(text: &str) -> Vec<NamePattern> {
    let parts = split_at_commas(text).into_iter().map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(NamePattern::new)
        .collect()
}

/// Splits at commas, except within the braces of a glob: `/tf,/{odom,imu}`.
pub fn split_at_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(patterns: &str, topics: &[&str]) -> Vec<String> {
        let Patterns(patterns) = parse_patterns(patterns).expect(patterns);
        let is_wanted = |topic: &&&str| patterns.is_match(topic);
        topics
            .iter()
            .filter(is_wanted)
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn globs_and_names_choose_topics() {
        let topics = [
            "/tf",
            "/tf_static",
            "/odom",
            "/camera/left/image",
            "/odd[name",
        ];
        assert_eq!(matching("/tf*", &topics), ["/tf", "/tf_static"]);
        assert_eq!(matching("/tf, /odom", &topics), ["/tf", "/odom"]);
        assert_eq!(matching("/camera/*", &topics), ["/camera/left/image"]);
        assert_eq!(matching("/{tf,odom}", &topics), ["/tf", "/odom"]);
        assert_eq!(matching("/odd[name", &topics), ["/odd[name"]);
    }

    #[test]
    fn a_choice_of_nothing_is_refused() {
        assert!(parse_patterns(" , ").is_err());
    }
}
