//! The flags that select topics and times, and the query that they make.

use std::path::Path;

use asof::catalogue::NamePattern;
use asof::{Query, Source, Stamp, TimeRange, Topics, When};
use clap::Args;

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
    #[arg(long, value_name = "A,B", value_parser = parse_patterns)]
    topics: Option<Patterns>,
}

/// Selects a time range.
#[derive(Debug, Args)]
pub struct Span {
    /// Only messages at or after this time: RFC 3339, seconds since the epoch, nanoseconds with ns, or
    /// relative to the recording: +12.5s from its start, -3s from its end
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    start: Option<When>,

    /// Only messages at or before this time, in the same forms
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    end: Option<When>,
}

/// Names and globs of topics, as given.
#[derive(Debug, Clone)]
pub struct Patterns(Vec<NamePattern>);

impl Select {
    /// The topics as given.
    pub fn patterns(&self) -> Option<Patterns> {
        self.choice.patterns()
    }

    /// Whether no time was given.
    pub fn is_all_of_time(&self) -> bool {
        self.span.start.is_none() && self.span.end.is_none()
    }

    /// The query for this source. Notes a choice that can match nothing.
    pub fn query(&self, place: &Path, source: &dyn Source, screen: &Screen) -> Query {
        Query {
            topics: self.choice.topics(place, source, screen),
            range: self.span.range(source, screen),
        }
    }
}

impl Span {
    /// The selected time range. Notes one that must be empty.
    pub fn range(&self, source: &dyn Source, screen: &Screen) -> TimeRange {
        let summary = source.summary();
        let instant = |when: Option<When>, otherwise: Stamp| {
            when.map_or(otherwise, |when| when.resolve(summary.range))
        };
        let wanted = TimeRange::new(
            instant(self.start, Stamp::MIN),
            instant(self.end, Stamp::MAX),
        );
        let TimeRange { start, end } = wanted;
        if wanted.is_empty() {
            screen.note(format_args!(
                "--start {start} is after --end {end}, so nothing is between them"
            ));
        } else if !summary.range.is_empty()
            && !wanted.overlaps(summary.range)
            && !source.growth().is_growing()
        {
            let TimeRange { start, end } = summary.range;
            screen.note(format_args!(
                "the recording has nothing in that time: it spans {start} to {end}"
            ));
        }
        wanted
    }
}

impl Patterns {
    /// Whether one of them matches this topic.
    pub fn is_match(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(topic))
    }

    /// Notes which of them match no topic of a recording.
    pub fn note_those_without_a_match(&self, place: &Path, known: &[&str], screen: &Screen) {
        for pattern in &self.0 {
            if !known.iter().any(|topic| pattern.is_match(topic)) {
                let listing = || format!("`asof info {}` lists the topics", quoted(place));
                let hint = hint(pattern.as_str(), known.iter().copied()).unwrap_or_else(listing);
                screen.note(format_args!("no topic matches '{pattern}'; {hint}"));
            }
        }
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

    /// The selected topics of a source. Notes a choice that matches nothing.
    pub fn topics(&self, place: &Path, source: &dyn Source, screen: &Screen) -> Topics {
        let Some(patterns) = &self.topics else {
            return Topics::All;
        };
        let summary = source.summary();
        let known = summary.topics();
        patterns.note_those_without_a_match(place, &known, screen);
        if source.growth().is_growing() {
            // It was opened with this choice and has nothing else; matching topics may appear later.
            return Topics::All;
        }
        let is_wanted = |topic: &&str| patterns.is_match(topic);
        Topics::named(known.iter().copied().filter(is_wanted))
    }
}

pub fn parse_patterns(text: &str) -> Result<Patterns, String> {
    let patterns = names_in(text);
    if patterns.is_empty() {
        return Err("no topic is named; give names or globs, such as '/scan,/tf*'".to_owned());
    }
    Ok(Patterns(patterns))
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
        let is_wanted = |topic: &&&str| patterns.iter().any(|pattern| pattern.is_match(topic));
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
