//! As-of joins as nodes of a plan.
//!
//! A query arrives with a left join whose condition has a call of [`MATCH`] ([`crate::rewrite`]). The analyzer makes an
//! [`AsofJoin`] of it, and the planner one pass over all topics ([`crate::fused`]) or a merge of two inputs
//! ([`crate::merge`]).

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asof_align::{Pick, Rule, Span};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, Result, ScalarValue, TableReference, not_impl_err, plan_err,
};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::logical_plan::builder::build_join_schema;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Extension, Join, JoinType, LogicalPlan,
    Operator, Projection, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    UserDefinedLogicalNode, UserDefinedLogicalNodeCore, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::topic::RECORDING;

/// The function that marks the condition of an as-of join.
pub(crate) const MATCH: &str = "__asof_match";

/// The word for interpolation that takes the nearest row where one side has none.
pub(crate) const OR_NEAREST: &str = "or_nearest";

/// Which rows of the right side match one of the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum How {
    /// One, or a value between two.
    One(Rule),
    /// All in a span of time around it.
    All(Span),
}

impl How {
    /// By its word, and the largest distance in nanoseconds.
    pub fn parse(word: &str, tolerance: Option<i64>) -> Option<Self> {
        if let Some(ends) = word.strip_prefix("window ") {
            let (from, to) = ends.split_once(' ')?;
            return Some(How::All(Span {
                from: from.parse().ok()?,
                to: to.parse().ok()?,
            }));
        }
        let (word, or_nearest) = match word.strip_suffix(OR_NEAREST) {
            Some(word) => (word.trim_end(), true),
            None => (word, false),
        };
        let rule = Rule::new(word.parse::<Pick>().ok()?);
        let rule = if or_nearest { rule.or_nearest() } else { rule };
        Some(How::One(match tolerance {
            None => rule,
            Some(nanos) => rule.within(Duration::from_nanos(u64::try_from(nanos).ok()?)),
        }))
    }

    /// The word, which [`How::parse`] accepts.
    pub fn word(self) -> String {
        match self {
            How::One(rule) if rule.has_nearest_at_ends() => {
                format!("{} {OR_NEAREST}", rule.pick().word())
            }
            How::One(rule) => rule.pick().word().to_owned(),
            How::All(Span { from, to }) => format!("window {from} {to}"),
        }
    }

    /// The largest distance in nanoseconds.
    pub fn tolerance(self) -> Option<i64> {
        let How::One(rule) = self else { return None };
        let nanos = rule.tolerance()?.as_nanos();
        Some(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// Whether a row lies between two messages.
    pub fn is_between(self) -> bool {
        matches!(self, How::One(rule) if rule.pick() == Pick::Interpolate)
    }

    /// The same seen from the other side.
    fn swapped(self) -> Self {
        match self {
            How::All(span) => How::All(span.swapped()),
            How::One(rule) => {
                let other = match rule.pick() {
                    Pick::Last => Pick::Next,
                    Pick::Next => Pick::Last,
                    Pick::Before => Pick::After,
                    Pick::After => Pick::Before,
                    both => both,
                };
                How::One(rule.with_pick(other))
            }
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::One(rule) => rule.pick().fmt(f),
            How::All(Span { from, to }) => {
                let seconds = |nanos: &i64| *nanos as f64 * 1e-9;
                write!(f, "all from {} s to {} s", seconds(from), seconds(to))
            }
        }
    }
}

/// For each row of the left side, the row of the right side that was known as of then.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AsofJoin {
    pub left: LogicalPlan,
    pub right: LogicalPlan,
    pub left_time: Expr,
    pub right_time: Expr,
    pub how: How,
    /// Expressions of both sides that have to be equal.
    pub on: Vec<(Expr, Expr)>,
    pub schema: DFSchemaRef,
}

impl PartialOrd for AsofJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.how.partial_cmp(&other.how)
    }
}

impl UserDefinedLogicalNodeCore for AsofJoin {
    fn name(&self) -> &'static str {
        "AsofJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let mut all = vec![self.left_time.clone(), self.right_time.clone()];
        for (left, right) in &self.on {
            all.extend([left.clone(), right.clone()]);
        }
        all
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "AsofJoin: {} of {} by {}",
            self.how, self.right_time, self.left_time
        )?;
        if let How::One(rule) = self.how
            && let Some(tolerance) = rule.tolerance()
        {
            write!(f, ", within {tolerance:?}")?;
        }
        for (left, right) in &self.on {
            write!(f, ", {left} = {right}")?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let Ok([left, right]) = <[LogicalPlan; 2]>::try_from(inputs) else {
            return plan_err!("an as-of join has two sides");
        };
        let mut exprs = exprs.into_iter();
        let (Some(left_time), Some(right_time)) = (exprs.next(), exprs.next()) else {
            return plan_err!("an as-of join compares two times");
        };
        let mut on = Vec::new();
        while let (Some(one), Some(other)) = (exprs.next(), exprs.next()) {
            on.push((one, other));
        }
        let schema = joined_schema(left.schema(), right.schema(), self.how)?;
        Ok(AsofJoin {
            left,
            right,
            left_time,
            right_time,
            how: self.how,
            on,
            schema,
        })
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let left_len = self.left.schema().fields().len();
        let mut left = Vec::new();
        let mut right = Vec::new();
        for &column in output_columns {
            if column < left_len {
                left.push(column);
            } else {
                right.push(column - left_len);
            }
        }
        let need = |expr: &Expr, schema: &DFSchema, list: &mut Vec<usize>| {
            for column in expr.column_refs() {
                if let Some(place) = schema.maybe_index_of_column(column) {
                    list.push(place);
                }
            }
        };
        need(&self.left_time, self.left.schema(), &mut left);
        need(&self.right_time, self.right.schema(), &mut right);
        for (one, other) in &self.on {
            need(one, self.left.schema(), &mut left);
            need(other, self.right.schema(), &mut right);
        }
        for list in [&mut left, &mut right] {
            list.sort_unstable();
            list.dedup();
        }
        Some(vec![left, right])
    }
}

/// Turns the marked left joins into as-of joins.
#[derive(Debug)]
pub(crate) struct AsofRule;

impl AnalyzerRule for AsofRule {
    fn name(&self) -> &'static str {
        "asof_join"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let found = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if is_asof(&join) => {
                let join = asof_of(join)?;
                let is_between = join.how.is_between();
                let left = join.left.schema().fields().len();
                let right = Arc::clone(join.right.schema());
                let node: Arc<dyn UserDefinedLogicalNode> = Arc::new(join);
                let plan = LogicalPlan::Extension(Extension { node });
                Ok(Transformed::yes(if is_between {
                    renamed(plan, left, &right)?
                } else {
                    plan
                }))
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(found?.data)
    }
}

/// The columns of interpolated rows get internal names, so that no field of a struct is extracted before the
/// join: interpolating a rotation is not interpolating each of its numbers. This restores their names.
fn renamed(plan: LogicalPlan, left: usize, right: &DFSchema) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let mut exprs: Vec<Expr> = columns.collect();
    for (expr, (relation, field)) in exprs[left..].iter_mut().zip(right.iter()) {
        *expr = expr
            .clone()
            .alias_qualified(relation.cloned(), field.name());
    }
    let projection = Projection::try_new(exprs, Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}

/// The internal table name of interpolated columns.
const BETWEEN: &str = "__between";

/// The columns of both sides, the right ones null where nothing matches.
fn joined_schema(left: &DFSchema, right: &DFSchema, how: How) -> Result<DFSchemaRef> {
    if !how.is_between() {
        let schema = build_join_schema(left, right, &JoinType::Left)?;
        return Ok(Arc::new(schema));
    }
    let own = left
        .iter()
        .map(|(relation, field)| (relation.cloned(), Arc::clone(field)));
    let others = right.iter().map(|(relation, field)| {
        let name = Column::new(relation.cloned(), field.name()).flat_name();
        let field = field.as_ref().clone().with_name(name).with_nullable(true);
        (Some(TableReference::bare(BETWEEN)), Arc::new(field))
    });
    let fields = own.chain(others).collect();
    let schema = DFSchema::new_with_metadata(fields, left.metadata().clone())?;
    Ok(Arc::new(schema))
}

fn is_asof(join: &Join) -> bool {
    let filter = join.filter.as_ref();
    filter.is_some_and(|filter| {
        let found = filter.exists(|expr| Ok(is_match(expr)));
        found.unwrap_or(false)
    })
}

fn is_match(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == MATCH)
}

fn asof_of(join: Join) -> Result<AsofJoin> {
    let (left, right) = (
        Arc::unwrap_or_clone(join.left),
        Arc::unwrap_or_clone(join.right),
    );
    let mut on = join.on;
    let mut matching = None;
    for part in join.filter.into_iter().flat_map(split_conjunction_owned) {
        match part {
            Expr::ScalarFunction(call) if call.func.name() == MATCH => matching = Some(call.args),
            Expr::BinaryExpr(BinaryExpr {
                left: one,
                op: Operator::Eq,
                right: other,
            }) => {
                if is_of(&one, left.schema()) && is_of(&other, right.schema()) {
                    on.push((*one, *other));
                } else if is_of(&other, left.schema()) && is_of(&one, right.schema()) {
                    on.push((*other, *one));
                } else {
                    return plan_err!(
                        "ON of an ASOF JOIN compares a column of each side, not {one} = {other}"
                    );
                }
            }
            other => {
                return plan_err!(
                    "ON of an ASOF JOIN takes equalities, not {other}; put it into WHERE"
                );
            }
        }
    }
    let arguments = matching.and_then(|found| <[Expr; 4]>::try_from(found).ok());
    let Some([one, other, how, tolerance]) = arguments else {
        return plan_err!("an ASOF JOIN needs a MATCH_CONDITION");
    };
    let tolerance = tolerance_of(&tolerance)?;
    let how = text_of(&how).and_then(|word| How::parse(&word, tolerance));
    let Some(how) = how else {
        return plan_err!("an ASOF JOIN compares two times");
    };
    let (left_time, right_time, how) = if is_of(&one, left.schema())
        && is_of(&other, right.schema())
    {
        (one, other, how)
    } else if is_of(&other, left.schema()) && is_of(&one, right.schema()) {
        (other, one, how.swapped())
    } else {
        return plan_err!("MATCH_CONDITION compares a time of each side, not {one} with {other}");
    };
    for (time, schema) in [(&left_time, left.schema()), (&right_time, right.schema())] {
        let found = time.get_type(schema)?;
        if !matches!(found, DataType::Timestamp(..)) {
            return plan_err!("MATCH_CONDITION compares times, and {time} is {found}");
        }
    }
    on.extend(same_recording(
        &left_time,
        left.schema(),
        right.schema(),
        &on,
    ));
    let schema = joined_schema(left.schema(), right.schema(), how)?;
    Ok(AsofJoin {
        left,
        right,
        left_time,
        right_time,
        how,
        on,
        schema,
    })
}

/// As of a moment of one recording, nothing of another was known.
fn same_recording(
    left_time: &Expr,
    left: &DFSchema,
    right: &DFSchema,
    on: &[(Expr, Expr)],
) -> Option<(Expr, Expr)> {
    let is_there = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == RECORDING);
    if on
        .iter()
        .any(|(one, other)| is_there(one) && is_there(other))
    {
        return None;
    }
    // The recording of the table that the time is from: the left side may be a join itself.
    let relation = left_time
        .column_refs()
        .into_iter()
        .find_map(|column| column.relation.clone());
    let one = Column::new(relation, RECORDING);
    left.maybe_index_of_column(&one)?;
    let mut others = right.columns().into_iter();
    let other = others.find(|column| column.name == RECORDING)?;
    Some((Expr::Column(one), Expr::Column(other)))
}

/// Whether an expression uses only columns of this side.
pub(crate) fn is_of(expr: &Expr, schema: &DFSchema) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty()
        && columns
            .into_iter()
            .all(|column| schema.maybe_index_of_column(column).is_some())
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::Utf8View(text), _) => text.clone(),
        _ => None,
    }
}

/// A duration in nanoseconds: an interval, or a text such as `50ms`.
fn tolerance_of(expr: &Expr) -> Result<Option<i64>> {
    const DAY: i64 = 86_400_000_000_000;
    let nanos = match expr {
        Expr::Literal(value, _) if value.is_null() => return Ok(None),
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _) => {
            let (months, days, nanos) = IntervalMonthDayNanoType::to_parts(*value);
            (months == 0).then(|| nanos.saturating_add(DAY.saturating_mul(days.into())))
        }
        Expr::Literal(ScalarValue::DurationNanosecond(value), _) => *value,
        other => text_of(other).and_then(|text| duration_of(&text)),
    };
    match nanos {
        Some(nanos) if nanos >= 0 => Ok(Some(nanos)),
        Some(_) => plan_err!("a tolerance cannot be negative; write one such as INTERVAL '20 ms'"),
        None => plan_err!("a tolerance is a duration such as INTERVAL '20 ms', not {expr}"),
    }
}

/// `50ms` in nanoseconds; `-50ms` is negative.
pub(crate) fn duration_of(text: &str) -> Option<i64> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let is_signed = text.starts_with(['+', '-']);
    let text = if is_signed { text } else { format!("+{text}") };
    match text.parse() {
        Ok(asof_core::When::AfterStart(nanos)) => Some(nanos),
        Ok(asof_core::When::BeforeEnd(nanos)) => Some(-nanos),
        _ => None,
    }
}

/// The function that marks the condition; it is replaced before anything runs.
pub(crate) fn match_function() -> ScalarUDF {
    ScalarUDF::new_from_impl(MatchFunction {
        signature: Signature::any(4, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MatchFunction {
    signature: Signature,
}

impl ScalarUDFImpl for MatchFunction {
    fn name(&self) -> &'static str {
        MATCH
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        not_impl_err!("MATCH_CONDITION is only for an ASOF JOIN")
    }
}
