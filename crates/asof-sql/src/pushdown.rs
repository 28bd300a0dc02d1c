//! Filters that the recordings themselves can answer.

use std::collections::BTreeSet;

use asof_core::{Stamp, TimeRange, When};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};

use crate::instants::relative_of;
use crate::topic::{LOG_TIME, RECORDING, STAMP};

/// The wanted rows, as far as times and recordings determine them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pushdown {
    pub range: TimeRange,
    /// Comparisons of the log time with times relative to the recording.
    pub relative: Vec<(Operator, When)>,
    /// Names of recordings; `None` for all.
    pub recordings: Option<BTreeSet<String>>,
    /// Rows with other stamps are not wanted, but may be included: the caller filters each row.
    pub stamps: TimeRange,
}

impl Default for Pushdown {
    fn default() -> Self {
        Pushdown {
            range: TimeRange::ALL,
            relative: Vec::new(),
            recordings: None,
            stamps: TimeRange::ALL,
        }
    }
}

impl Pushdown {
    /// The rows wanted by these filters, all of which were accepted.
    pub fn of(filters: &[Expr]) -> Self {
        let mut wanted = Pushdown::default();
        for filter in filters {
            wanted.narrow(filter);
        }
        wanted
    }

    /// Which of these filters are accepted.
    pub fn pushdown(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        let support = |filter: &&Expr| {
            if Pushdown::default().narrow(filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        filters.iter().map(support).collect()
    }

    /// The same for the tables of topics, where stamps may exclude messages.
    pub fn pushdown_with_stamps(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        let mut support = Pushdown::pushdown(filters);
        for (support, filter) in support.iter_mut().zip(filters) {
            let is_open = *support == TableProviderFilterPushDown::Unsupported;
            if is_open && stamps_of(filter) != TimeRange::ALL {
                *support = TableProviderFilterPushDown::Inexact;
            }
        }
        support
    }

    /// The same, with the stamps that the filters allow.
    pub fn with_stamps(mut self, filters: &[Expr]) -> Self {
        let stamps = filters.iter().map(stamps_of);
        self.stamps = stamps.fold(TimeRange::ALL, both);
        self
    }

    /// Narrows it by a filter. Returns whether it covers the complete filter.
    pub fn narrow(&mut self, filter: &Expr) -> bool {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => {
                    // Both must be covered, or neither is accepted.
                    let mut both = self.clone();
                    let fits = both.narrow(left) && both.narrow(right);
                    if fits {
                        *self = both;
                    }
                    fits
                }
                _ => match (column_of(left), column_of(right)) {
                    (Some(column), _) => self.bound(column, *op, right),
                    (_, Some(column)) => op.swap().is_some_and(|op| self.bound(column, op, left)),
                    _ => false,
                },
            },
            Expr::Between(between) if !between.negated => {
                let Some(column) = column_of(&between.expr) else {
                    return false;
                };
                let mut both = self.clone();
                let fits = both.bound(column, Operator::GtEq, &between.low)
                    && both.bound(column, Operator::LtEq, &between.high);
                if fits {
                    *self = both;
                }
                fits
            }
            _ => false,
        }
    }

    /// Whether no recording is excluded.
    pub fn takes_all_recordings(&self) -> bool {
        self.recordings.is_none()
    }

    pub fn has_recording(&self, name: &str) -> bool {
        let names = self.recordings.as_ref();
        names.is_none_or(|names| names.contains(name))
    }

    /// The log times that are wanted of a recording with this range.
    pub fn range_within(&self, own: TimeRange) -> TimeRange {
        let relative = self.relative.iter().map(|(op, when)| {
            let at = ScalarValue::TimestampNanosecond(Some(when.resolve(own).nanos()), None);
            times_that(*op, &at).unwrap_or(TimeRange::ALL)
        });
        relative.fold(self.range, both)
    }

    /// Whether all log times are wanted.
    pub fn takes_all_times(&self) -> bool {
        self.range == TimeRange::ALL && self.relative.is_empty()
    }

    fn bound(&mut self, column: &str, op: Operator, bound: &Expr) -> bool {
        if let Expr::Literal(value, _) = bound {
            return self.compare(column, op, value);
        }
        let is_range = matches!(
            op,
            Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        let when = relative_of(bound).filter(|_| is_range && column == LOG_TIME);
        self.relative.extend(when.map(|when| (op, when)));
        when.is_some()
    }

    fn compare(&mut self, column: &str, op: Operator, value: &ScalarValue) -> bool {
        match column {
            LOG_TIME => self.compare_time(op, value),
            RECORDING => {
                let (ScalarValue::Utf8(Some(name))
                | ScalarValue::Utf8View(Some(name))
                | ScalarValue::LargeUtf8(Some(name))) = value
                else {
                    return false;
                };
                if op != Operator::Eq {
                    return false;
                }
                let is_wanted = self.has_recording(name);
                self.recordings = Some(if is_wanted {
                    BTreeSet::from([name.clone()])
                } else {
                    BTreeSet::new()
                });
                true
            }
            _ => false,
        }
    }

    fn compare_time(&mut self, op: Operator, value: &ScalarValue) -> bool {
        let Some(range) = times_that(op, value) else {
            return false;
        };
        self.range = both(self.range, range);
        true
    }
}

/// The times that compare this way with a value; `None` where that is not a range.
fn times_that(op: Operator, value: &ScalarValue) -> Option<TimeRange> {
    let ScalarValue::TimestampNanosecond(Some(nanos), _) = value else {
        return None;
    };
    let at = Stamp::from_nanos(*nanos);
    let (start, end) = match op {
        Operator::Eq => (at, at),
        Operator::GtEq => (at, Stamp::MAX),
        Operator::LtEq => (Stamp::MIN, at),
        // There is nothing after the last instant, or before the first.
        Operator::Gt if at == Stamp::MAX => (Stamp::MAX, Stamp::MIN),
        Operator::Lt if at == Stamp::MIN => (Stamp::MAX, Stamp::MIN),
        Operator::Gt => (at.plus_nanos(1), Stamp::MAX),
        Operator::Lt => (Stamp::MIN, at.plus_nanos(-1)),
        _ => return None,
    };
    Some(TimeRange::new(start, end))
}

/// Stamps outside of this range do not pass a filter.
fn stamps_of(filter: &Expr) -> TimeRange {
    let is_stamp = |expr: &Expr| column_of(expr) == Some(STAMP);
    let times = |op: Operator, value: &Expr| match value {
        Expr::Literal(value, _) => times_that(op, value).unwrap_or(TimeRange::ALL),
        _ => TimeRange::ALL,
    };
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => both(stamps_of(left), stamps_of(right)),
            op if is_stamp(left) => times(*op, right),
            op if is_stamp(right) => op.swap().map_or(TimeRange::ALL, |op| times(op, left)),
            _ => TimeRange::ALL,
        },
        Expr::Between(between) if !between.negated && is_stamp(&between.expr) => both(
            times(Operator::GtEq, &between.low),
            times(Operator::LtEq, &between.high),
        ),
        _ => TimeRange::ALL,
    }
}

/// The intersection.
pub(crate) fn both(one: TimeRange, other: TimeRange) -> TimeRange {
    TimeRange::new(one.start.max(other.start), one.end.min(other.end))
}

fn column_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn time(nanos: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(
            Some(nanos),
            Some("UTC".into()),
        ))
    }

    #[test]
    fn times_from_both_sides_make_a_range_and_the_ends_of_time_hold() {
        let mut wanted = Pushdown::default();
        assert!(wanted.narrow(&col("log_time").gt(time(10))));
        assert!(wanted.narrow(&time(20).gt_eq(col("log_time"))));
        assert_eq!(wanted.range, TimeRange::new(11.into(), 20.into()));
        assert!(wanted.narrow(&col("log_time").gt(time(i64::MAX))));
        assert!(wanted.range.is_empty());
    }

    #[test]
    fn what_is_not_about_times_or_recordings_is_left_alone() {
        let mut wanted = Pushdown::default();
        let mixed = col("log_time").gt(time(10)).and(col("x").gt(lit(1)));
        assert!(!wanted.narrow(&mixed));
        assert!(!wanted.narrow(&col("log_time").not_eq(time(10))));
        assert_eq!(wanted, Pushdown::default());
    }

    #[test]
    fn what_a_filter_says_about_stamps_is_noted_and_not_taken() {
        let between = col("stamp").gt_eq(time(10)).and(time(20).gt(col("stamp")));
        let mixed = between.clone().and(col("x").gt(lit(1)));
        let either = between.clone().or(col("x").gt(lit(1)));
        let wanted = |filter: &Expr| Pushdown::default().with_stamps(std::slice::from_ref(filter));
        for filter in [&between, &mixed] {
            assert_eq!(wanted(filter).stamps, TimeRange::new(10.into(), 19.into()));
        }
        assert_eq!(wanted(&either).stamps, TimeRange::ALL);
        let other = col("log_time").gt(time(10));
        assert_eq!(wanted(&other).stamps, TimeRange::ALL);
        assert_eq!(
            Pushdown::pushdown_with_stamps(&[&between, &mixed, &either, &other]),
            [
                TableProviderFilterPushDown::Inexact,
                TableProviderFilterPushDown::Inexact,
                TableProviderFilterPushDown::Unsupported,
                TableProviderFilterPushDown::Exact,
            ]
        );
    }

    #[test]
    fn two_recordings_at_once_are_none() {
        let mut wanted = Pushdown::default();
        assert!(wanted.narrow(&col("recording").eq(lit("a"))));
        assert!(wanted.has_recording("a") && !wanted.has_recording("b"));
        assert!(wanted.narrow(&col("recording").eq(lit("b"))));
        assert!(!wanted.has_recording("a") && !wanted.has_recording("b"));
    }
}
