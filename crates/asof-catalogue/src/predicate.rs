//! Conditions on recordings, in SQL syntax.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use asof_core::{Comparison, Stamp};

use crate::tables::RecordingRow;

/// A condition on the columns of a recording: `messages > 1000 AND tags.weather = 'rain'`.
///
/// Comparisons (`=`, `!=`, `<>`, `<`, `<=`, `>`, `>=`), `LIKE`, `IN (…)`, `BETWEEN … AND …`, `IS NULL`, `IS NOT NULL`,
/// `AND`, `OR`, `NOT` and parentheses, with SQL's semantics: a comparison with NULL is NULL. The columns are
/// `recording`, `address`, `etag`, `format`, `robot`, `site`, `date` (texts), `size`, `messages`, `duration` (seconds),
/// `problems` (their number) (numbers), `start`, `end`, `modified` (times, compared with texts that are times), and
/// `tags.name` or `tags['name']`.
///
/// ```
/// use asof_catalogue::{Predicate, RecordingRow};
///
/// let long: Predicate = "messages >= 10 AND robot LIKE 'r%'".parse()?;
/// let row = RecordingRow { messages: Some(12), robot: Some("r7".into()), ..RecordingRow::default() };
/// assert!(long.is_true(&row));
/// # Ok::<(), asof_catalogue::PredicateError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    text: String,
    condition: Condition,
}

/// Why a text is not a [`Predicate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the condition '{text}' at '{rest}': {reason}")]
pub struct PredicateError {
    /// The complete condition.
    pub text: String,
    /// The part from the error on.
    pub rest: String,
    /// What is wrong.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Condition {
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Compare(Operand, Comparison, Operand),
    Like(Operand, String),
    In(Operand, Vec<Operand>),
    IsNull(Operand),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Column(Column),
    Tag(String),
    Value(Value),
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Number(f64),
    Time(Stamp),
    Null,
}

macro_rules! columns {
    ($($name:literal => $column:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Column {
            $($column),*
        }

        const COLUMNS: &[(&str, Column)] = &[$(($name, Column::$column)),*];
    };
}

columns! {
    "recording" => Recording,
    "address" => Address,
    "etag" => ETag,
    "size" => Size,
    "modified" => Modified,
    "format" => Format,
    "start" => Start,
    "end" => End,
    "duration" => Duration,
    "messages" => Messages,
    "robot" => Robot,
    "site" => Site,
    "date" => Date,
    "problems" => Problems,
}

/// The deepest nesting that is parsed.
const MAX_DEPTH: usize = 64;

impl Predicate {
    /// Whether it is true of a recording. NULL is not true.
    pub fn is_true(&self, row: &RecordingRow) -> bool {
        self.condition.evaluate(row) == Some(true)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    fn evaluate(&self, row: &RecordingRow) -> Option<bool> {
        match self {
            Condition::And(a, b) => match (a.evaluate(row), b.evaluate(row)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Condition::Or(a, b) => match (a.evaluate(row), b.evaluate(row)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Condition::Not(inner) => inner.evaluate(row).map(|is_true| !is_true),
            Condition::Compare(a, comparison, b) => {
                let order = a.value(row).compare(&b.value(row))?;
                Some(comparison.holds(order))
            }
            Condition::Like(operand, pattern) => match operand.value(row) {
                Value::Text(text) => Some(is_like(&text, pattern)),
                _ => None,
            },
            Condition::In(operand, list) => {
                let value = operand.value(row);
                let mut is_unknown = matches!(value, Value::Null);
                for other in list {
                    match value.compare(&other.value(row)) {
                        Some(Ordering::Equal) => return Some(true),
                        Some(_) => {}
                        None => is_unknown = true,
                    }
                }
                (!is_unknown).then_some(false)
            }
            Condition::IsNull(operand) => Some(operand.value(row) == Value::Null),
        }
    }
}

impl Operand {
    fn value(&self, row: &RecordingRow) -> Value {
        let text =
            |text: Option<&String>| text.map_or(Value::Null, |text| Value::Text(text.clone()));
        let number = |number: Option<f64>| number.map_or(Value::Null, Value::Number);
        let time = |stamp: Option<Stamp>| stamp.map_or(Value::Null, Value::Time);
        let known = (!row.range.is_empty()).then_some(row.range);
        let column = match self {
            Operand::Column(column) => column,
            Operand::Tag(name) => return text(row.tags.get(name).or_else(|| row.labels.get(name))),
            Operand::Value(value) => return value.clone(),
        };
        match column {
            Column::Recording => text(Some(&row.recording)),
            Column::Address => text(Some(&row.address)),
            Column::ETag => text(row.e_tag.as_ref()),
            Column::Size => number(Some(row.size as f64)),
            Column::Modified => time(row.modified),
            Column::Format => text(row.format.as_ref()),
            Column::Start => time(known.map(|range| range.start)),
            Column::End => time(known.map(|range| range.end)),
            Column::Duration => number(known.map(|range| range.duration_nanos() as f64 / 1e9)),
            Column::Messages => number(row.messages.map(|messages| messages as f64)),
            Column::Robot => text(row.robot.as_ref()),
            Column::Site => text(row.site.as_ref()),
            Column::Date => text(row.date.as_ref()),
            Column::Problems => number(Some(row.problems.len() as f64)),
        }
    }
}

impl Value {
    /// The order of two values; `None` if one is NULL, or they cannot be compared.
    fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::Number(a), Value::Number(b)) => a.partial_cmp(b),
            (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
            (Value::Time(a), Value::Text(b)) => Some(a.cmp(&time_in(b)?)),
            (Value::Text(a), Value::Time(b)) => Some(time_in(a)?.cmp(b)),
            // Tags are texts, also those that look like numbers.
            (Value::Text(a), Value::Number(b)) => a.trim().parse::<f64>().ok()?.partial_cmp(b),
            (Value::Number(a), Value::Text(b)) => a.partial_cmp(&b.trim().parse::<f64>().ok()?),
            (Value::Time(a), Value::Number(b)) => (a.nanos() as f64 / 1e9).partial_cmp(b),
            (Value::Number(a), Value::Time(b)) => a.partial_cmp(&(b.nanos() as f64 / 1e9)),
            (Value::Null, _) | (_, Value::Null) => None,
        }
    }
}

fn time_in(text: &str) -> Option<Stamp> {
    crate::since(text).ok()
}

/// SQL's `LIKE`: `%` is anything, `_` one character.
fn is_like(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    let (mut at, mut in_pattern) = (0, 0);
    let mut last_percent: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(in_pattern) {
            Some('%') => {
                last_percent = Some((in_pattern, at));
                in_pattern += 1;
            }
            Some(&wanted) if wanted == '_' || wanted == text[at] => {
                at += 1;
                in_pattern += 1;
            }
            _ => match &mut last_percent {
                Some((percent, from)) => {
                    *from += 1;
                    at = *from;
                    in_pattern = *percent + 1;
                }
                None => return false,
            },
        }
    }
    pattern[in_pattern..].iter().all(|&rest| rest == '%')
}

impl FromStr for Predicate {
    type Err = PredicateError;

    fn from_str(text: &str) -> Result<Self, PredicateError> {
        let mut parser = Parser { text, rest: text };
        let condition = parser.or(0)?;
        if !parser.rest.trim_start().is_empty() {
            return Err(parser.error("expected AND, OR, or the end"));
        }
        Ok(Predicate {
            text: text.to_owned(),
            condition,
        })
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Parser<'_> {
    fn error(&self, reason: impl Into<String>) -> PredicateError {
        PredicateError {
            text: self.text.to_owned(),
            rest: self.rest.trim_start().to_owned(),
            reason: reason.into(),
        }
    }

    fn or(&mut self, depth: usize) -> Result<Condition, PredicateError> {
        let mut condition = self.and(depth)?;
        while self.word("OR") {
            condition = Condition::Or(Box::new(condition), Box::new(self.and(depth)?));
        }
        Ok(condition)
    }

    fn and(&mut self, depth: usize) -> Result<Condition, PredicateError> {
        let mut condition = self.not(depth)?;
        while self.word("AND") {
            condition = Condition::And(Box::new(condition), Box::new(self.not(depth)?));
        }
        Ok(condition)
    }

    fn not(&mut self, depth: usize) -> Result<Condition, PredicateError> {
        if depth > MAX_DEPTH {
            return Err(self.error("it is nested too deeply"));
        }
        if self.word("NOT") {
            return Ok(Condition::Not(Box::new(self.not(depth + 1)?)));
        }
        if self.sign("(") {
            let inner = self.or(depth + 1)?;
            if !self.sign(")") {
                return Err(self.error("expected ')'"));
            }
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Condition, PredicateError> {
        let left = self.operand()?;
        if self.word("IS") {
            let is_negated = self.word("NOT");
            if !self.word("NULL") {
                return Err(self.error("expected NULL"));
            }
            return Ok(negated(is_negated, Condition::IsNull(left)));
        }
        let is_negated = self.word("NOT");
        if self.word("LIKE") {
            return match self.operand()? {
                Operand::Value(Value::Text(pattern)) => {
                    Ok(negated(is_negated, Condition::Like(left, pattern)))
                }
                _ => Err(self.error("expected a text after LIKE, such as 'r%'")),
            };
        }
        if self.word("IN") {
            return Ok(negated(is_negated, Condition::In(left, self.list()?)));
        }
        if self.word("BETWEEN") {
            let least = self.operand()?;
            if !self.word("AND") {
                return Err(self.error("expected AND"));
            }
            let most = self.operand()?;
            let low = Condition::Compare(left.clone(), Comparison::GreaterOrEqual, least);
            let high = Condition::Compare(left, Comparison::LessOrEqual, most);
            return Ok(negated(
                is_negated,
                Condition::And(Box::new(low), Box::new(high)),
            ));
        }
        if is_negated {
            return Err(self.error("expected LIKE, IN or BETWEEN"));
        }
        if let Some((comparison, rest)) = Comparison::leading(self.rest.trim_start()) {
            self.rest = rest;
            let right = self.operand()?;
            self.check_time(&left, &right)?;
            self.check_time(&right, &left)?;
            return Ok(Condition::Compare(left, comparison, right));
        }
        Err(self.error("expected a comparison such as = or >"))
    }

    /// Rejects a text that is not a time: it would never be equal to anything, for no apparent reason.
    fn check_time(&self, column: &Operand, other: &Operand) -> Result<(), PredicateError> {
        let is_time = matches!(
            column,
            Operand::Column(Column::Start | Column::End | Column::Modified)
        );
        match other {
            Operand::Value(Value::Text(text)) if is_time && time_in(text).is_none() => Err(self
                .error(format!(
                    "'{text}' is not a time; write it as '2024-05-01T12:00:00Z'"
                ))),
            _ => Ok(()),
        }
    }

    fn list(&mut self) -> Result<Vec<Operand>, PredicateError> {
        if !self.sign("(") {
            return Err(self.error("expected '('"));
        }
        let mut list = vec![self.operand()?];
        while self.sign(",") {
            list.push(self.operand()?);
        }
        if !self.sign(")") {
            return Err(self.error("expected ')'"));
        }
        Ok(list)
    }

    fn operand(&mut self) -> Result<Operand, PredicateError> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('\'') {
            return Ok(Operand::Value(Value::Text(self.quoted('\'')?)));
        }
        let is_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
        if self.rest.starts_with(is_number) {
            let end = self
                .rest
                .find(|c: char| !(is_number(c) || c == 'e' || c == 'E' || c == '_'));
            let (number, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            let value = number
                .replace('_', "")
                .parse()
                .map_err(|_| self.error("not a number"))?;
            self.rest = rest;
            return Ok(Operand::Value(Value::Number(value)));
        }
        if self.word("NULL") {
            return Ok(Operand::Value(Value::Null));
        }
        let name = self.name()?;
        if name.eq_ignore_ascii_case("tags") {
            return self.tag().map(Operand::Tag);
        }
        let column = COLUMNS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(&name));
        if let Some(&(_, column)) = column {
            return Ok(Operand::Column(column));
        }
        let names: Vec<&str> = COLUMNS.iter().map(|&(name, _)| name).collect();
        Err(self.error(format!(
            "there is no column '{name}'; there are {} and tags.NAME",
            names.join(", ")
        )))
    }

    /// The name of a tag, after `tags`.
    fn tag(&mut self) -> Result<String, PredicateError> {
        if self.sign(".") {
            return self.name();
        }
        if self.sign("[") {
            self.rest = self.rest.trim_start();
            let name = self.quoted('\'')?;
            if self.sign("]") {
                return Ok(name);
            }
        }
        Err(self.error("name the tag: tags.weather, or tags['weather']"))
    }

    fn name(&mut self) -> Result<String, PredicateError> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('"') {
            return self.quoted('"');
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.error("expected a column or a value"));
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// A text in quotes; a doubled quote stands for one.
    fn quoted(&mut self, quote: char) -> Result<String, PredicateError> {
        let Some(mut rest) = self.rest.strip_prefix(quote) else {
            return Err(self.error(format!("expected {quote}")));
        };
        let mut text = String::new();
        loop {
            let Some(end) = rest.find(quote) else {
                return Err(self.error("the quote is not closed"));
            };
            text.push_str(&rest[..end]);
            rest = &rest[end + quote.len_utf8()..];
            match rest.strip_prefix(quote) {
                Some(more) => {
                    text.push(quote);
                    rest = more;
                }
                None => break,
            }
        }
        self.rest = rest;
        Ok(text)
    }

    /// Consumes this word if it comes next, and returns whether it did.
    fn word(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let Some(front) = rest.get(..word.len()) else {
            return false;
        };
        let after = &rest[word.len()..];
        let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if front.eq_ignore_ascii_case(word) && ends {
            self.rest = after;
            return true;
        }
        false
    }

    fn sign(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

fn negated(is_negated: bool, condition: Condition) -> Condition {
    if is_negated {
        Condition::Not(Box::new(condition))
    } else {
        condition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::TimeRange;

    fn row() -> RecordingRow {
        let tags = [("weather", "rain"), ("laps", "12")];
        RecordingRow {
            recording: "r7/run.mcap".into(),
            robot: Some("r7".into()),
            messages: Some(100),
            size: 5_000,
            range: TimeRange::new(
                "2024-05-01T12:00:00Z".parse().expect("a time"),
                "2024-05-01T12:01:00Z".parse().expect("a time"),
            ),
            tags: tags
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..RecordingRow::default()
        }
    }

    #[test]
    fn conditions_mean_what_they_mean_in_sql() {
        let cases = [
            ("robot = 'r7'", true),
            ("robot <> 'r7'", false),
            ("NOT robot = 'r8' AND messages > 50", true),
            ("messages > 50 OR robot = 'r8'", true),
            ("messages BETWEEN 100 AND 200", true),
            ("messages NOT BETWEEN 100 AND 200", false),
            ("tags.weather LIKE 'ra%'", true),
            ("tags['weather'] NOT LIKE '%in'", false),
            ("tags.laps >= 9", true),
            ("site IS NULL", true),
            ("site IS NOT NULL", false),
            // What is not known is neither this nor that.
            ("site = 'x' OR NOT site = 'x'", false),
            ("site IN ('x', 'y') OR robot IN ('r7')", true),
            (
                "start >= '2024-05-01T00:00:00Z' AND \"end\" < '2024-05-02T00:00:00Z'",
                true,
            ),
            ("duration = 60", true),
            ("start > '2024-05-01' AND start < '2024-05-02'", true),
        ];
        for (text, wanted) in cases {
            let predicate: Predicate = text.parse().expect(text);
            assert_eq!(predicate.is_true(&row()), wanted, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_the_place() {
        let deep = format!("{}robot = 'a'{}", "(".repeat(500), ")".repeat(500));
        for text in [
            "",
            "robot",
            "robot =",
            "robot = 'x",
            "colour = 1",
            "robot = 'x' robot",
            "start > 'soon'",
            "tags = 'x'",
            "(size) > 1",
            "robot IN ()",
            "robot LIKE 5",
            "messages > 1e",
            "robot = 'ä' ö",
            deep.as_str(),
        ] {
            assert!(text.parse::<Predicate>().is_err(), "{text}");
        }
        let error = "colour = 1"
            .parse::<Predicate>()
            .expect_err("no such column");
        assert!(error.reason.contains("messages"), "{error}");
    }

    #[test]
    fn like_is_quick_whatever_it_is_asked() {
        assert!(!is_like(
            &"a".repeat(5_000),
            &format!("{}b", "%a".repeat(50))
        ));
        assert!(is_like("r7", "r_"));
        assert!(!is_like("r77", "r_"));
        assert!(is_like("", "%"));
    }
}
