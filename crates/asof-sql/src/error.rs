//! Errors of queries.

use std::collections::BTreeSet;
use std::fmt;

use asof_core::SourceError;
use asof_core::spelling::distance;
use datafusion::arrow::datatypes::{DataType, Fields};
use datafusion::common::{DataFusionError, SchemaError};

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqlError {
    /// The text is not a query, or names something that does not exist.
    #[error(
        "{message}{}{}",
        .place.map(|place| format!(" ({place})")).unwrap_or_default(),
        .suggestion.as_ref().map(|other| format!("; did you mean {other}?")).unwrap_or_default()
    )]
    Query {
        /// What is wrong with it.
        message: String,
        /// The position in the text.
        place: Option<TextPlace>,
        /// The nearest name that exists.
        suggestion: Option<String>,
    },
    /// It would write or open something. Queries only read what was opened.
    #[error("{0} is not allowed: queries only read the recordings that were named")]
    NotReading(String),
    /// It exceeds the memory limit.
    #[error("the query exceeds its memory limit ({0}); raise the limit, or select less")]
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

/// A position in the text of a query. Both numbers count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextPlace {
    /// The line.
    pub line: u64,
    /// The character in that line.
    pub column: u64,
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl SqlError {
    /// A query that cannot be answered, without a position.
    pub(crate) fn query(message: impl Into<String>) -> Self {
        SqlError::Query {
            message: message.into(),
            place: None,
            suggestion: None,
        }
    }

    /// An error of the engine, in words for a user. `known` are the existing tables and fields.
    pub(crate) fn from_engine(error: &DataFusionError, sql: &str, known: &KnownNames) -> Self {
        let span = error.diagnostic().and_then(|found| found.span);
        let spanned = span.map(|span| TextPlace {
            line: span.start.line,
            column: span.start.column,
        });
        let missing = |message: String, wanted: &str, suggestion: Option<String>| SqlError::Query {
            message,
            // Where the engine gives no position, the name is searched for in the text.
            place: spanned.or_else(|| place_of_name(sql, wanted)),
            suggestion,
        };
        let root = error.find_root();
        if let Some((word, why)) = not_sorted_by(&root.to_string()) {
            return missing(why.to_owned(), word, None);
        }
        match root {
            DataFusionError::ResourcesExhausted(text) => SqlError::Memory(first_line(text)),
            DataFusionError::SQL(error, _) => of_parser(&error.to_string()),
            DataFusionError::External(error) => SqlError::Engine(error.to_string()),
            DataFusionError::SchemaError(error, _) => match &**error {
                SchemaError::FieldNotFound {
                    field,
                    valid_fields,
                } => {
                    let valid = valid_fields.iter().map(|column| column.name.clone());
                    let valid: Vec<String> = valid.collect();
                    missing(
                        format!(
                            "there is no column '{}'",
                            field.flat_name().replace('"', "")
                        ),
                        &field.name,
                        nearest(&field.name, &valid),
                    )
                }
                SchemaError::AmbiguousReference { field } => missing(
                    format!(
                        "'{}' is a column of several tables; write the table before it",
                        field.name
                    ),
                    &field.name,
                    None,
                ),
                other => SqlError::query(other.to_string()),
            },
            DataFusionError::Plan(text) | DataFusionError::Execution(text) => {
                match Missing::parse(text) {
                    Some(Missing::Table(name)) => missing(
                        format!("there is no table '{name}'"),
                        name,
                        nearest(name, &known.tables).map(|near| in_quotes(&near)),
                    ),
                    Some(Missing::Field(name)) => missing(
                        format!("there is no field '{name}' in that struct"),
                        name,
                        nearest(name, &known.fields),
                    ),
                    Some(Missing::Function(name)) => missing(
                        format!("there is no function '{name}'"),
                        name,
                        nearest(name, &known.functions),
                    ),
                    None => SqlError::Query {
                        message: first_line(text),
                        place: spanned,
                        suggestion: None,
                    },
                }
            }
            other => {
                let text = other.to_string();
                match no_time_in(&text) {
                    Some(given) => missing(
                        format!(
                            "'{given}' is not a time; write '2024-05-01T12:00:10Z', or '+12.5s' from the start of each recording"
                        ),
                        given,
                        None,
                    ),
                    None => SqlError::Engine(first_line(&text)),
                }
            }
        }
    }
}

/// The text that was to be a time, if that is what an error is about.
fn no_time_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Error parsing timestamp from '")?;
    rest.split_once("':").map(|(given, _)| given)
}

/// What the engine has no plan for, if that is what an error is about: a word of it, and why with a way on.
fn not_sorted_by(text: &str) -> Option<(&'static str, &'static str)> {
    if text.contains("does not satisfy order requirements") {
        let why = "rows cannot be sorted by this expression; give it a name in SELECT, and write that name in ORDER BY";
        return Some(("ORDER", why));
    }
    let why = "unnest stands in SELECT alone; give it a name there, and write that name in ORDER BY, or around a subquery in WHERE";
    text.contains("Unnest should be rewritten")
        .then_some(("unnest", why))
}

/// Names for suggestions.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    pub tables: Vec<String>,
    /// Fields of structs, at any depth.
    pub fields: Vec<String>,
    pub functions: Vec<String>,
}

/// A name quoted for a query.
fn in_quotes(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}

/// Something that does not exist, according to a message of the engine.
enum Missing<'a> {
    Table(&'a str),
    Field(&'a str),
    Function(&'a str),
}

impl<'a> Missing<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("table '") {
            let (name, _) = rest.split_once("' not found")?;
            let name = name.rsplit_once(".public.").map_or(name, |(_, name)| name);
            return Some(Missing::Table(name));
        }
        if let Some(rest) = text.strip_prefix("table function '") {
            let (name, _) = rest.split_once("' not found")?;
            return Some(Missing::Function(name));
        }
        if let Some(rest) = text.strip_prefix("Field ") {
            let (name, _) = rest.split_once(" not found in struct")?;
            return Some(Missing::Field(name));
        }
        let rest = text.strip_prefix("Invalid function '")?;
        let (name, _) = rest.split_once('\'')?;
        Some(Missing::Function(name))
    }
}

/// The parser's messages end with the position: `… at Line: 1, Column: 8`.
fn of_parser(text: &str) -> SqlError {
    let text = text
        .trim_start_matches("sql parser error: ")
        .trim_start_matches("ParserError(\"");
    let place = text.rsplit_once(" at Line: ").and_then(|(what, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let digits = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let place = TextPlace {
            line: digits(line)?,
            column: digits(column)?,
        };
        Some((what, place))
    });
    SqlError::Query {
        message: first_line(place.map_or(text, |(what, _)| what)),
        place: place.map(|(_, place)| place),
        suggestion: None,
    }
}

/// The position of a name in a query, as a separate word.
fn place_of_name(sql: &str, name: &str) -> Option<TextPlace> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '/';
    for (number, line) in sql.lines().enumerate() {
        for (at, _) in line.match_indices(name) {
            let before = line[..at].chars().next_back();
            let after = line[at + name.len()..].chars().next();
            if !before.is_some_and(is_word) && !after.is_some_and(is_word) && !name.is_empty() {
                return Some(TextPlace {
                    line: number as u64 + 1,
                    column: line[..at].chars().count() as u64 + 1,
                });
            }
        }
    }
    None
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The name most similar to `wanted`, if any is similar.
fn nearest(wanted: &str, names: &[String]) -> Option<String> {
    let best = names.iter().min_by_key(|name| distance(wanted, name))?;
    (distance(wanted, best) <= most_letters(wanted)).then(|| best.clone())
}

/// How many letters a typing error may change.
fn most_letters(wanted: &str) -> usize {
    wanted.chars().count().div_ceil(3)
}

/// The names of all fields of structs, at any depth.
pub(crate) fn nested_names(fields: &Fields, names: &mut BTreeSet<String>) {
    for field in fields {
        if let DataType::Struct(inner) = field.data_type() {
            names.extend(inner.iter().map(|field| field.name().clone()));
            nested_names(inner, names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_strange_one_is_not() {
        let names = ["/odom".to_owned(), "odom".to_owned(), "/imu".to_owned()];
        assert_eq!(nearest("/odmo", &names), Some("/odom".to_owned()));
        assert_eq!(nearest("/completely/else", &names), None);
        let names = ["mean".to_owned(), "median".to_owned(), "min".to_owned()];
        assert_eq!(nearest("medain", &names), Some("median".to_owned()));
    }

    #[test]
    fn a_name_is_found_as_a_word_of_its_own_alone() {
        let place = |line, column| Some(TextPlace { line, column });
        let sql = "SELECT stamps,\n  é, stamp FROM a";
        assert_eq!(place_of_name(sql, "stamp"), place(2, 6));
        assert_eq!(place_of_name(sql, "nothing"), None);
        assert_eq!(place_of_name(sql, ""), None);
    }

    #[test]
    fn what_the_parser_says_has_its_place() {
        let error = of_parser(
            "sql parser error: Expected: an expression, found: FROM at Line: 3, Column: 12",
        );
        assert_eq!(
            error.to_string(),
            "Expected: an expression, found: FROM (line 3, column 12)"
        );
        assert_eq!(of_parser("Unterminated").to_string(), "Unterminated");
    }
}
