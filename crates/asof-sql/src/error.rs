//! Why a query has no answer.

use asof_core::SourceError;
use datafusion::common::DataFusionError;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The text is not a query, or names what does not exist.
    #[error("{message}{}", .suggestion.as_ref().map(|other| format!("; did you mean {other}?")).unwrap_or_default())]
    Query {
        /// What is wrong with it, and where.
        message: String,
        /// The nearest name that exists.
        suggestion: Option<String>,
    },
    /// It would write or open something. Queries only read what was opened.
    #[error("{0} is not allowed: queries read the recordings that were named, and nothing else")]
    NotReading(String),
    /// It needs more memory than it may have.
    #[error("the query needs more memory than it may have ({0}); raise the limit, or select less")]
    Memory(String),
    /// A recording could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The system refused a thread or a runtime.
    #[error("cannot start the query engine: {0}")]
    Start(#[source] std::io::Error),
    /// The engine failed.
    #[error("the query failed: {0}")]
    Engine(String),
}

impl SqlError {
    /// What the engine said, in words for a person.
    pub(crate) fn from_engine(error: &DataFusionError, names: &[String]) -> Self {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(text) => SqlError::Memory(first_line(text)),
            DataFusionError::SQL(error, _) => SqlError::Query {
                message: error.to_string(),
                suggestion: None,
            },
            DataFusionError::External(error) => match error.downcast_ref::<SourceError>() {
                Some(error) => SqlError::Engine(error.to_string()),
                None => SqlError::Engine(error.to_string()),
            },
            DataFusionError::SchemaError(error, _) => {
                let message = error.to_string();
                // The engine lists the valid fields itself; the nearest is what a person looks for.
                let (what, valid) = message
                    .split_once(" Valid fields are ")
                    .map_or((message.as_str(), ""), |(what, valid)| (what, valid));
                let valid = valid.trim_end_matches('.').split(", ");
                let wanted = quoted_name(what).unwrap_or_default();
                let columns: Vec<String> = valid.map(str::to_owned).collect();
                SqlError::Query {
                    message: what.trim_end_matches('.').to_owned(),
                    suggestion: nearest(&wanted, &columns),
                }
            }
            DataFusionError::Plan(text) => {
                let missing = text
                    .strip_prefix("table '")
                    .and_then(|rest| rest.split_once("' not found"))
                    .map(|(name, _)| name.rsplit_once(".public.").map_or(name, |(_, name)| name));
                match missing {
                    Some(name) => SqlError::Query {
                        message: format!("there is no table '{name}'"),
                        suggestion: nearest(name, names),
                    },
                    None => SqlError::Query {
                        message: first_line(text),
                        suggestion: None,
                    },
                }
            }
            other => SqlError::Engine(first_line(&other.to_string())),
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The name in a sentence such as "No field named o.stmp."
fn quoted_name(text: &str) -> Option<String> {
    let (_, name) = text.split_once("named ")?;
    let name = name.trim_end_matches('.').split_whitespace().next()?;
    Some(name.replace('"', ""))
}

/// The name that is most like `wanted`, if one is like it at all.
fn nearest(wanted: &str, names: &[String]) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let distance = |name: &String| distance(&last(wanted), &last(&name.replace('"', "")));
    let best = names.iter().min_by_key(|name| distance(name))?;
    (distance(best) <= wanted.chars().count().div_ceil(3)).then(|| best.clone())
}

/// How many letters have to change.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, known) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != *known);
            before = row[place + 1];
            row[place + 1] = replaced.min(row[place] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_strange_one_is_not() {
        let names = ["/odom".to_owned(), "odom".to_owned(), "/imu".to_owned()];
        assert_eq!(nearest("/odmo", &names), Some("/odom".to_owned()));
        assert_eq!(nearest("/completely/else", &names), None);
    }
}
