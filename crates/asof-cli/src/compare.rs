//! Several recordings side by side: each under a name, on one time axis.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use asof::Source;
use asof::formats::Merged;
use asof::layers::Shift;
use asof_serve::RobotDescription;
use clap::{Args, ValueEnum};

use super::failure::Usage;

/// Flags for recordings that are to be compared.
#[derive(Debug, Default, Args)]
pub struct Compare {
    /// Keep the places apart: a name for each, separated by commas, which is prefixed to its topics and frames. `before,after`
    /// turns two /odom into /before/odom and /after/odom
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    prefix: Vec<String>,

    /// Show all places at the time of the first, however far apart they were recorded. Without --prefix, they are named
    /// after their files
    #[arg(long, value_enum, value_name = "WHERE")]
    align: Option<Align>,
}

/// Where recordings are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Align {
    /// Each starts when the first one does
    Start,
}

/// Recordings as one, and the robots in it.
pub struct Comparison {
    pub recording: Box<dyn Source>,
    pub robots: Vec<RobotDescription>,
}

impl Compare {
    /// Whether recordings are to be kept apart.
    pub fn is_wanted(&self) -> bool {
        !self.prefix.is_empty() || self.align.is_some()
    }

    /// How files are compared when several are dropped at once.
    pub fn by_name() -> Self {
        Compare {
            prefix: Vec::new(),
            align: Some(Align::Start),
        }
    }

    /// Puts recordings, opened by `open`, side by side.
    pub fn open(
        &self,
        places: &[PathBuf],
        mut open: impl FnMut(&PathBuf) -> anyhow::Result<Box<dyn Source>>,
    ) -> anyhow::Result<Comparison> {
        let names = self.names(places)?;
        let mut parts: Vec<(String, Box<dyn Source>)> = Vec::new();
        let mut robots = Vec::new();
        let mut first = None;
        for (place, name) in places.iter().zip(names) {
            let recording = open(place)?;
            let start = Some(recording.summary().range)
                .filter(|range| !range.is_empty())
                .map(|range| range.start);
            let aligned = self.align.and(*first.get_or_insert(start)).zip(start);
            let by = aligned.map_or(0, |(first, own)| first.since(own));
            let prefix = format!("/{name}");
            robots.push(RobotDescription {
                prefix: prefix.clone(),
                behind: by,
            });
            let moved = Shift::new(recording, prefix, by);
            parts.push((place.display().to_string(), Box::new(moved)));
        }
        Ok(Comparison {
            recording: Box::new(Merged::new(parts)),
            robots,
        })
    }

    /// A name for each place.
    fn names(&self, places: &[PathBuf]) -> anyhow::Result<Vec<String>> {
        if self.prefix.is_empty() {
            return Ok(names_of(places));
        }
        let (names, places) = (self.prefix.len(), places.len());
        if names != places {
            return Err(Usage::error(format!(
                "--prefix needs a name for each place: there are {places} places and {names} names"
            )));
        }
        let mut known = HashSet::new();
        let name = |text: &String| {
            let name = text.trim_matches('/');
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
            if name.is_empty() || !name.chars().all(is_part) {
                return Err(Usage::error(format!(
                    "--prefix: '{text}' is not the first part of a topic's name: letters, digits, _ and -"
                )));
            }
            if !known.insert(name.to_owned()) {
                return Err(Usage::error(format!("--prefix: '{name}' is there twice")));
            }
            Ok(name.to_owned())
        };
        self.prefix.iter().map(name).collect()
    }
}

/// The names of files without their extensions, as valid in topics; duplicates get a number.
fn names_of(places: &[PathBuf]) -> Vec<String> {
    let mut known = HashSet::new();
    let name = |place: &PathBuf| {
        let stem = Path::new(place).file_stem().unwrap_or_default();
        let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
        let stem: String = stem.to_string_lossy().chars().map(plain).collect();
        let stem = if stem.is_empty() {
            "run".to_owned()
        } else {
            stem
        };
        let mut name = stem.clone();
        let mut numbers = 2_u64..;
        while !known.insert(name.clone()) {
            name = format!("{stem}_{}", numbers.next().unwrap_or(u64::MAX));
        }
        name
    };
    places.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_names_that_topics_can_start_with() {
        let places = ["a/run 1.mcap", "b/run-1.mcap", "x.db3"].map(PathBuf::from);
        assert_eq!(names_of(&places), ["run_1", "run_1_2", "x"]);
        let named = |prefix: &[&str]| {
            let prefix = prefix.iter().map(ToString::to_string).collect();
            Compare {
                prefix,
                align: None,
            }
            .names(&places[..2])
        };
        assert_eq!(
            named(&["/before", "after"]).expect("names"),
            ["before", "after"]
        );
        for wrong in [
            &["one"][..],
            &["a", "a"],
            &["a", "b/c"],
            &["a", ""],
            &["a", "b", "c"],
        ] {
            assert!(named(wrong).is_err(), "{wrong:?}");
        }
    }
}
