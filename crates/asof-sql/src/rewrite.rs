//! Rewrites queries into a form that the planner accepts.
//!
//! - `a ASOF JOIN b MATCH_CONDITION (…)` becomes a left join whose condition is a call that the analyzer
//!   recognizes ([`crate::asof`]).
//! - `"/odom" FOR SYSTEM_TIME AS OF '…'` becomes a table function ([`crate::known`]).
//! - `window_join(…)` and `resample(…)` become joins ([`crate::calls`]).
//! - A nested field without an alias is named as it was written.
//! - Parameters that are written as `?` have numbers: `$1`, `$2`.
//! - Times relative to the recording (`'+12.5s'`) become absolute, where they are compared with a time; of several recordings
//!   each has its own zero ([`crate::instants`]).

use std::any::TypeId;
use std::ops::ControlFlow;

use asof_align::Pick;
use asof_core::{TimeRange, When};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, Join, JoinConstraint, JoinOperator, ObjectName,
    ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, Spanned, TableFactor,
    TableFunctionArgs, TableVersion, Value, ValueWithSpan, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};

use crate::asof::MATCH;
use crate::calls;
use crate::database::Shared;
use crate::error::{KnownNames, SqlError, TextPlace};
use crate::instants::INSTANT;
use crate::known::AS_OF;
use crate::tables::Tables;
use crate::times::TIME;
use crate::topic::{LOG_TIME, PUBLISH_TIME, RECORDING, STAMP};

/// The single statement of a text, rewritten.
pub(crate) fn parse(sql: &str, shared: &Shared, tables: &Tables) -> Result<Statement, SqlError> {
    let parser = DFParserBuilder::new(sql).with_dialect(&AsofDialect).build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    let mut statements =
        statements.map_err(|error| SqlError::from_engine(&error, sql, &KnownNames::default()))?;
    let Some(mut statement) = statements.pop_front() else {
        return Err(query("there is no query"));
    };
    if !statements.is_empty() {
        return Err(query("one query at a time; there are several"));
    }
    let mut rewriter = Rewriter {
        // Of several recordings, each has its own zero.
        range: (!shared.has_many()).then(|| shared.range()),
        tables,
        parameters: 0,
    };
    let rewritten = match &mut statement {
        Statement::Statement(inner) => inner.visit(&mut rewriter),
        Statement::Explain(explain) => match &mut *explain.statement {
            Statement::Statement(inner) => inner.visit(&mut rewriter),
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
    match rewritten {
        ControlFlow::Continue(()) => Ok(statement),
        ControlFlow::Break(error) => Err(error),
    }
}

fn query(message: impl Into<String>) -> SqlError {
    SqlError::query(message)
}

/// The generic dialect, with versions of tables.
#[derive(Debug)]
struct AsofDialect;

impl Dialect for AsofDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect {}.is_identifier_part(ch)
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }
}

struct Rewriter<'a> {
    /// That of the only recording.
    range: Option<TimeRange>,
    tables: &'a Tables,
    /// The number of parameters so far that are written as `?`.
    parameters: usize,
}

type Flow = ControlFlow<SqlError>;

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let tables = tables_in(select);
        for item in &mut select.projection {
            name_by_path(item, &tables);
        }
        let mut keys = Vec::new();
        for from in &mut select.from {
            let mut left = name_of(&from.relation);
            for join in &mut from.joins {
                match rewrite_join(join, left.as_ref()) {
                    Ok(found) => keys.extend(found),
                    Err(error) => return ControlFlow::Break(error),
                }
                left = left.or_else(|| name_of(&join.relation));
            }
        }
        if keys.is_empty() {
            return ControlFlow::Continue(());
        }
        expand_wildcards(&mut select.projection, &tables, &keys);
        select
            .visit(&mut Keys(&keys))
            .map_break(|never| match never {})
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let Err(error) = calls::rewrite(factor, self.tables, &AsofDialect) {
            return ControlFlow::Break(error);
        }
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = factor
        {
            let left = name_of(&table_with_joins.relation);
            for join in &mut table_with_joins.joins {
                if let Err(error) = rewrite_join(join, left.as_ref()) {
                    return ControlFlow::Break(error);
                }
            }
        }
        if let TableFactor::Table {
            name,
            alias,
            args,
            version,
            ..
        } = factor
            && let Some(TableVersion::ForSystemTimeAsOf(at)) = version.take()
        {
            let topic = name.0.last().and_then(ObjectNamePart::as_ident);
            let topic = topic.map_or_else(|| name.to_string(), |ident| ident.value.clone());
            alias.get_or_insert_with(|| ast::TableAlias {
                explicit: false,
                name: Ident::with_quote('"', &topic),
                columns: Vec::new(),
                at: None,
            });
            *args = Some(TableFunctionArgs {
                args: vec![argument(text(&topic)), argument(at)],
                settings: None,
            });
            *name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(AS_OF))]);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::BinaryOp { left, right, .. } => {
                self.absolute(left, right);
                self.absolute(right, left);
            }
            Expr::Between {
                expr, low, high, ..
            } => {
                self.absolute(expr, low);
                self.absolute(expr, high);
            }
            Expr::InList { expr, list, .. } => {
                for one in list.iter_mut() {
                    self.absolute(expr, one);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> Flow {
        if let Value::Placeholder(name) = &mut value.value
            && name == "?"
        {
            self.parameters += 1;
            *name = format!("${}", self.parameters);
        }
        ControlFlow::Continue(())
    }
}

impl Rewriter<'_> {
    /// A text compared with a time, in any of asof's forms, becomes RFC 3339.
    fn absolute(&self, beside: &Expr, expr: &mut Expr) {
        let column = match beside {
            Expr::Identifier(ident) => ident.value.as_str(),
            Expr::CompoundIdentifier(idents) => idents.last().map_or("", |last| &last.value),
            _ => return,
        };
        let is_time = [LOG_TIME, PUBLISH_TIME, STAMP].contains(&column);
        if !is_time && column != TIME {
            return;
        }
        // A field of a message may be named `time` and be anything.
        let is_relative = |text: &str| text.starts_with(['+', '-']);
        let Expr::Value(value) = expr else { return };
        let Value::SingleQuotedString(written) = &value.value else {
            return;
        };
        let Ok(when) = written.parse::<When>() else {
            return;
        };
        if !is_time && !is_relative(written) {
            return;
        }
        let at = match (when, self.range) {
            (When::At(at), _) => at,
            (when, Some(range)) => when.resolve(range),
            (_, None) => {
                let written = text(written);
                *expr = call(INSTANT, vec![written, recording_beside(beside)]);
                return;
            }
        };
        value.value = Value::SingleQuotedString(at.to_string());
    }
}

/// The names of the tables of a query, in their order.
fn tables_in(select: &Select) -> Vec<Ident> {
    let from = select.from.iter().flat_map(|from| {
        let joined = from.joins.iter().map(|join| &join.relation);
        std::iter::once(&from.relation).chain(joined)
    });
    from.filter_map(name_of).collect()
}

/// A nested field is named as it was written: `o.pose.pose.position.x`.
fn name_by_path(item: &mut SelectItem, tables: &[Ident]) {
    let SelectItem::UnnamedExpr(expr) = item else {
        return;
    };
    if matches!(expr, Expr::Cast { .. }) {
        // The engine would give it the name of the column itself, which may be selected or sorted by as well.
        let alias = Ident::with_quote('"', expr.to_string());
        let expr = expr.clone();
        *item = SelectItem::ExprWithAlias { expr, alias };
        return;
    }
    let Expr::CompoundIdentifier(path) = &*expr else {
        return;
    };
    // A path of two parts may be a column of a table, which has its own name.
    let is_column = path.len() == 2 && tables.iter().any(|table| table.value == path[0].value);
    if !is_column {
        let names: Vec<&str> = path.iter().map(|ident| ident.value.as_str()).collect();
        let alias = Ident::with_quote('"', names.join("."));
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias,
        };
    }
}

/// A column that USING makes one of two: its name, and the tables that have it.
#[derive(Debug)]
struct Key {
    column: Ident,
    left: Ident,
    right: Ident,
}

/// Names the table of keys that are written without one.
struct Keys<'a>(&'a [Key]);

impl VisitorMut for Keys<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Identifier(name) = expr
            && let Some(key) = self.0.iter().find(|key| key.column.value == name.value)
        {
            *expr = Expr::CompoundIdentifier(vec![key.left.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
    }
}

/// `*` has each key once.
fn expand_wildcards(projection: &mut Vec<SelectItem>, tables: &[Ident], keys: &[Key]) {
    let of_table = |table: &Ident| {
        let own = keys.iter().filter(|key| key.right.value == table.value);
        let own: Vec<ObjectName> = own.map(|key| key.column.clone().into()).collect();
        let options = WildcardAdditionalOptions {
            opt_exclude: (!own.is_empty()).then_some(ExcludeSelectItem::Multiple(own)),
            ..WildcardAdditionalOptions::default()
        };
        let name = SelectItemQualifiedWildcardKind::ObjectName(table.clone().into());
        SelectItem::QualifiedWildcard(name, options)
    };
    let expand = |item: SelectItem| match item {
        SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
            tables.iter().map(of_table).collect()
        }
        other => vec![other],
    };
    *projection = projection.drain(..).flat_map(expand).collect();
}

/// An as-of join as a left join, with its condition as a call. Returns the keys that USING names.
fn rewrite_join(join: &mut Join, left: Option<&Ident>) -> Result<Vec<Key>, SqlError> {
    let JoinOperator::AsOf {
        match_condition,
        constraint,
    } = &join.join_operator
    else {
        return Ok(Vec::new());
    };
    let matching = match_call(match_condition)?;
    let mut named = Vec::new();
    let keys = match constraint {
        JoinConstraint::None => None,
        JoinConstraint::On(keys) => Some(keys.clone()),
        JoinConstraint::Using(names) => {
            let right = name_of(&join.relation);
            let (Some(left), Some(right)) = (left, right) else {
                return Err(query("USING needs tables with names on both sides"));
            };
            let equal = |name: &ObjectName| {
                let column = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
                let column = column.unwrap_or_else(|| Ident::new(name.to_string()));
                let of = |table: &Ident| {
                    Box::new(Expr::CompoundIdentifier(vec![
                        table.clone(),
                        column.clone(),
                    ]))
                };
                let equal = Expr::BinaryOp {
                    left: of(left),
                    op: BinaryOperator::Eq,
                    right: of(&right),
                };
                named.push(Key {
                    left: left.clone(),
                    right: right.clone(),
                    column,
                });
                equal
            };
            names.iter().map(equal).reduce(and)
        }
        JoinConstraint::Natural => return Err(query("ASOF JOIN takes ON or USING, not NATURAL")),
    };
    let condition = match keys {
        Some(keys) => and(keys, matching),
        None => matching,
    };
    join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
    Ok(named)
}

/// The condition as a call of the function that the analyzer recognizes: two times, their comparison, and the
/// tolerance. Anything else is refused: a part that is left out would be a wrong answer.
fn match_call(condition: &Expr) -> Result<Expr, SqlError> {
    let mut parts = Vec::new();
    conjuncts(condition, &mut parts);
    let mut found: Option<Compared> = None;
    let mut bounds = Vec::new();
    for part in parts {
        let compared = match part {
            Expr::Function(function) if is_nearest(function) => nearest_of(function, part)?,
            Expr::BinaryOp { left, op, right } => match (difference(left), difference(right)) {
                (None, None) => compared(left, op, right, part)?,
                (Some(times), None) if *op == BinaryOperator::LtEq => {
                    bounds.push((times, &**right, part));
                    continue;
                }
                (None, Some(times)) if *op == BinaryOperator::GtEq => {
                    bounds.push((times, &**left, part));
                    continue;
                }
                _ => {
                    let message = format!("a tolerance is an upper bound with <=, not {part}");
                    return Err(refused(message, part));
                }
            },
            other => return Err(refused(format!("MATCH_CONDITION cannot be {other}"), other)),
        };
        if found.is_some() {
            let message = format!("MATCH_CONDITION compares two times once; {part} is one more");
            return Err(refused(message, part));
        }
        found = Some(compared);
    }
    let Some(Compared {
        times,
        how,
        mut tolerance,
    }) = found
    else {
        return Err(refused(
            "MATCH_CONDITION does not compare two times",
            condition,
        ));
    };
    for ((later, earlier), bound, part) in bounds {
        // `a >= b` allows `a - b` to have a bound, and `a <= b` allows `b - a`.
        let is_bounded = match how {
            Pick::Last | Pick::Before => (later, earlier) == (&times[0], &times[1]),
            Pick::Next | Pick::After => (later, earlier) == (&times[1], &times[0]),
            _ => false,
        };
        if !is_bounded || tolerance.replace(bound.clone()).is_some() {
            let message = if how == Pick::Nearest {
                "the tolerance of nearest is its third argument".to_owned()
            } else {
                format!("{part} is not the one tolerance of the times that are compared")
            };
            return Err(refused(message, part));
        }
    }
    let tolerance = tolerance.unwrap_or(Expr::value(Value::Null));
    let [one, other] = times;
    Ok(call(MATCH, vec![one, other, text(how.word()), tolerance]))
}

/// A call of one of our functions.
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let list = FunctionArgumentList {
        duplicate_treatment: None,
        args: args.into_iter().map(argument).collect(),
        clauses: Vec::new(),
    };
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The recording in the table of a column.
fn recording_beside(column: &Expr) -> Expr {
    match column {
        Expr::CompoundIdentifier(path) => {
            let mut path = path.clone();
            if let Some(last) = path.last_mut() {
                *last = Ident::new(RECORDING);
            }
            Expr::CompoundIdentifier(path)
        }
        _ => Expr::Identifier(Ident::new(RECORDING)),
    }
}

/// Two times of a condition, and how they are compared.
struct Compared {
    times: [Expr; 2],
    how: Pick,
    tolerance: Option<Expr>,
}

fn compared(
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    part: &Expr,
) -> Result<Compared, SqlError> {
    let how = match op {
        BinaryOperator::GtEq => Pick::Last,
        BinaryOperator::Gt => Pick::Before,
        BinaryOperator::LtEq => Pick::Next,
        BinaryOperator::Lt => Pick::After,
        other => {
            let message =
                format!("MATCH_CONDITION compares two times with >=, >, <= or <, not with {other}");
            return Err(refused(message, part));
        }
    };
    Ok(Compared {
        times: [bare(left).clone(), bare(right).clone()],
        how,
        tolerance: None,
    })
}

fn nearest_of(function: &Function, part: &Expr) -> Result<Compared, SqlError> {
    let message = "nearest takes two times and a tolerance";
    let arguments = arguments(function).ok_or_else(|| refused(message, part))?;
    let (times, tolerance) = match &arguments[..] {
        [one, other] => ([one, other], None),
        [one, other, tolerance] => ([one, other], Some(tolerance.clone())),
        _ => return Err(refused(message, part)),
    };
    Ok(Compared {
        times: times.map(|time| bare(time).clone()),
        how: Pick::Nearest,
        tolerance,
    })
}

/// `a - b`, as `(a, b)`.
fn difference(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match bare(expr) {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Minus,
            right,
        } => Some((bare(left), bare(right))),
        _ => None,
    }
}

/// Without parentheses.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// A part of a condition that is not supported, with its place and the forms that are.
fn refused(message: impl Into<String>, part: &Expr) -> SqlError {
    let start = part.span().start;
    SqlError::Query {
        message: format!("{}; {FORMS}", message.into()),
        place: (start.line > 0).then_some(TextPlace {
            line: start.line,
            column: start.column,
        }),
        suggestion: None,
    }
}

const FORMS: &str = "write a.stamp >= b.stamp, with a tolerance a.stamp - b.stamp <= INTERVAL '20 ms', or nearest(a.stamp, b.stamp, INTERVAL '50 ms')";

fn is_nearest(function: &Function) -> bool {
    function.name.to_string().eq_ignore_ascii_case("nearest")
}

fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let expr = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(expr).collect()
}

fn conjuncts<'a>(expr: &'a Expr, parts: &mut Vec<&'a Expr>) {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(left, parts);
            conjuncts(right, parts);
        }
        Expr::Nested(inner) => conjuncts(inner, parts),
        other => parts.push(other),
    }
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(left))),
        op: BinaryOperator::And,
        right: Box::new(right),
    }
}

fn argument(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

fn text(text: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(text.to_owned()))
}

/// The name of a table in the query.
fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => name.0.last().and_then(ObjectNamePart::as_ident).cloned(),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
        _ => None,
    }
}
