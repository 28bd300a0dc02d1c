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
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Spanned, Subscript,
    TableFactor, TableFunctionArgs, TableVersion, TableWithJoins, Value, ValueWithSpan, Visit,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::asof::MATCH;
use crate::calls;
use crate::database::Shared;
use crate::error::{KnownNames, SqlError, TextPlace};
use crate::instants::INSTANT;
use crate::known::AS_OF;
use crate::tables::Tables;
use crate::times::{self, TIME, TIMES};
use crate::topic::{LOG_TIME, PUBLISH_TIME, RECORDING, STAMP};
use crate::transforms;

/// The longest text of a query, and how deep expressions and how many selections and tables it may have: planning one is recursive.
const MOST_BYTES: usize = 512 << 10;
const MOST_DEPTH: usize = 1_000;
const MOST_TABLES: usize = 1_000;

/// The single statement of a text, rewritten.
pub(crate) fn parse(sql: &str, shared: &Shared, tables: &Tables) -> Result<Statement, SqlError> {
    if sql.len() > MOST_BYTES {
        return Err(query(format!(
            "a query has at most {MOST_BYTES} bytes; join a table of your own in place of a long list"
        )));
    }
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
        scopes: Vec::new(),
    };
    let rewritten = match &mut statement {
        Statement::Statement(inner) => {
            measured(inner)?;
            inner.visit(&mut rewriter)
        }
        Statement::Explain(explain) => match &mut *explain.statement {
            Statement::Statement(inner) => {
                measured(inner)?;
                inner.visit(&mut rewriter)
            }
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

/// Refuses a statement that would take too much stack.
fn measured(statement: &ast::Statement) -> Result<(), SqlError> {
    let mut measure = Measure::default();
    match statement.visit(&mut measure) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// How deep expressions are nested at the current place, and how many selections and tables there were.
#[derive(Default)]
struct Measure {
    depth: usize,
    tables: usize,
}

impl Measure {
    fn count(&mut self, start: Location) -> ControlFlow<SqlError> {
        self.tables += 1;
        if self.tables > MOST_TABLES {
            return ControlFlow::Break(SqlError::Query {
                message: format!(
                    "the query has more than {MOST_TABLES} selections and tables; write IN (…) or VALUES in place of a long chain of UNION, or run several queries"
                ),
                place: place_of(start),
                suggestion: None,
            });
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Measure {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<SqlError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return ControlFlow::Break(query(format!(
                "the query is nested more than {MOST_DEPTH} deep; write IN (…) in place of a long chain of OR"
            )));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        self.count(select.select_token.0.span.start)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        self.count(match factor {
            TableFactor::Table { name, .. } => name.span().start,
            _ => Location::empty(),
        })
    }
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
    /// The tables of each `SELECT` around the current place, the innermost last.
    scopes: Vec<Vec<InScope>>,
}

/// A table of a `SELECT`: its name there, and its columns where they are known.
struct InScope {
    name: Ident,
    columns: Option<SchemaRef>,
}

type Flow = ControlFlow<SqlError>;

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        balance(&mut query.body);
        // The order names columns of the tables too, where it does not name those of the answer.
        if let (SetExpr::Select(select), Some(order)) = (&*query.body, &mut query.order_by) {
            let is_free = |key: &Key| {
                let mut items = select.projection.iter();
                !items.any(|item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value == key.column.value))
            };
            let mut keys = Vec::new();
            for from in &select.from {
                let left = name_of(&from.relation);
                for join in &from.joins {
                    // The rewriting of the join reports an error.
                    keys.extend(keys_of(join, left.as_ref()).unwrap_or_default());
                }
            }
            keys.retain(is_free);
            Keys::name_in(&keys, order);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        let tables = tables_in(select);
        for item in &mut select.projection {
            name_by_path(item, &tables);
        }
        let mut scope = Vec::new();
        for from in &mut select.from {
            if let Err(error) = self.enter(from, &mut scope) {
                return ControlFlow::Break(error);
            }
        }
        self.scopes.push(scope);
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
        if !keys.is_empty() {
            expand_wildcards(&mut select.projection, &tables, &keys);
            Keys::name_in(&keys, select);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> Flow {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
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
            Expr::BinaryOp { left, right, .. }
            | Expr::IsDistinctFrom(left, right)
            | Expr::IsNotDistinctFrom(left, right) => {
                self.absolute(left, right);
                self.absolute(right, left);
            }
            Expr::Case {
                operand: Some(operand),
                conditions,
                ..
            } => {
                for when in conditions {
                    self.absolute(operand, &mut when.condition);
                }
            }
            Expr::Function(function) => self.absolute_in_call(function),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    by_key(access);
                }
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
    /// Rewrites the calls among these tables, and adds the tables to a scope.
    fn enter(&self, from: &mut TableWithJoins, scope: &mut Vec<InScope>) -> Result<(), SqlError> {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            calls::rewrite(factor, self.tables, &AsofDialect)?;
            if let TableFactor::NestedJoin {
                table_with_joins, ..
            } = factor
            {
                self.enter(table_with_joins, scope)?;
            } else if let Some(name) = name_of(factor) {
                let columns = self.columns_of(factor);
                scope.push(InScope { name, columns });
            }
        }
        Ok(())
    }

    fn columns_of(&self, factor: &TableFactor) -> Option<SchemaRef> {
        let TableFactor::Table { name, args, .. } = factor else {
            return None;
        };
        let name = &name.0.last().and_then(ObjectNamePart::as_ident)?.value;
        match args {
            Some(_) => (name == TIMES).then(times::schema),
            None => self.tables.columns(name),
        }
    }

    /// A text compared with a time, in any of asof's forms, becomes RFC 3339.
    fn absolute(&self, beside: &Expr, expr: &mut Expr) {
        let beside = bare(beside);
        let column = match beside {
            Expr::Identifier(ident) => ident.value.as_str(),
            Expr::CompoundIdentifier(idents) => idents.last().map_or("", |last| &last.value),
            _ => return,
        };
        let is_time = [LOG_TIME, PUBLISH_TIME, STAMP].contains(&column);
        if is_time || column == TIME {
            self.resolve(expr, is_time, || self.recording_beside(beside));
        }
    }

    /// The stamp of a transform.
    fn absolute_in_call(&self, function: &mut Function) {
        let name = function.name.to_string().to_ascii_lowercase();
        let FunctionArguments::List(list) = &mut function.args else {
            return;
        };
        let Some(least) = transforms::least_arguments(&name) else {
            return;
        };
        let argument = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        };
        let named = list.args.get(least).and_then(argument);
        if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(stamp))) = list.args.get_mut(2) {
            let column = Expr::Identifier(Ident::new(LOG_TIME));
            let recording = || named.unwrap_or_else(|| self.recording_beside(&column));
            self.resolve(stamp, true, recording);
        }
    }

    /// The text of a time becomes RFC 3339. Where each recording has its own zero, a relative one becomes a call with the
    /// recording. With `is_time` it can be nothing else than a time: a field of a message may be named `time` and be anything.
    fn resolve(&self, expr: &mut Expr, is_time: bool, recording: impl FnOnce() -> Expr) {
        if let Expr::Nested(inner) = expr {
            return self.resolve(inner, is_time, recording);
        }
        let Expr::Value(value) = expr else { return };
        let Value::SingleQuotedString(written) = &value.value else {
            return;
        };
        let Ok(when) = written.parse::<When>() else {
            return;
        };
        if !is_time && !written.starts_with(['+', '-']) {
            return;
        }
        let at = match (when, self.range) {
            (When::At(at), _) => at,
            (when, Some(range)) => when.resolve(range),
            (_, None) => {
                *expr = call(INSTANT, vec![text(written), recording()]);
                return;
            }
        };
        value.value = Value::SingleQuotedString(at.to_string());
    }

    /// The recording in the table of a column.
    fn recording_beside(&self, column: &Expr) -> Expr {
        let mut path = match column {
            Expr::CompoundIdentifier(path) => path.clone(),
            Expr::Identifier(column) => {
                let scope = self.scopes.last().map_or(&[][..], Vec::as_slice);
                let has = |table: &&InScope| {
                    let columns = table.columns.as_ref();
                    columns.is_none_or(|columns| columns.field_with_name(&column.value).is_ok())
                };
                let mut tables = scope.iter().filter(has);
                match (tables.next(), tables.next()) {
                    (Some(only), None) if scope.len() > 1 => {
                        vec![only.name.clone(), column.clone()]
                    }
                    // The engine reports a column of several tables.
                    _ => vec![column.clone()],
                }
            }
            _ => vec![Ident::new(LOG_TIME)],
        };
        if let Some(last) = path.last_mut() {
            *last = Ident::new(RECORDING);
        }
        if let [only] = &path[..] {
            return Expr::Identifier(only.clone());
        }
        Expr::CompoundIdentifier(path)
    }
}

/// A chain of unions becomes a balanced tree: the engine's work grows with the number of parts below each union.
fn balance(body: &mut SetExpr) {
    let SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier:
            quantifier @ (SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None),
        ..
    } = *body
    else {
        if let SetExpr::SetOperation { left, right, .. } = body {
            balance(left);
            balance(right);
        }
        return;
    };
    let nothing = ast::Table {
        table_name: None,
        schema_name: None,
    };
    let mut rest = std::mem::replace(body, SetExpr::Table(Box::new(nothing)));
    let mut parts = Vec::new();
    let first = loop {
        match rest {
            SetExpr::SetOperation {
                op: SetOperator::Union,
                set_quantifier,
                left,
                right,
            } if set_quantifier == quantifier => {
                parts.push(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    parts.push(first);
    parts.iter_mut().for_each(balance);
    parts.reverse();
    while parts.len() > 1 {
        let mut alone = parts.into_iter();
        let mut pairs = Vec::new();
        while let Some(left) = alone.next() {
            pairs.push(match alone.next() {
                Some(right) => SetExpr::SetOperation {
                    op: SetOperator::Union,
                    set_quantifier: quantifier,
                    left: Box::new(left),
                    right: Box::new(right),
                },
                None => left,
            });
        }
        parts = pairs;
    }
    if let Some(whole) = parts.pop() {
        *body = whole;
    }
}

/// The engine takes a field of an element, `transforms[1].header`, by its key alone: `transforms[1]['header']`.
fn by_key(access: &mut AccessExpr) {
    if let AccessExpr::Dot(Expr::Identifier(field)) = access {
        let index = text(&field.value);
        *access = AccessExpr::Subscript(Subscript::Index { index });
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
    if matches!(expr, Expr::Cast { .. } | Expr::CompoundFieldAccess { .. }) {
        // The engine would give a cast the name of the column itself, which may be selected or sorted by as well.
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

impl Key {
    /// The condition that both tables have the same value.
    fn equality(&self) -> Expr {
        let of = |table: &Ident| {
            Box::new(Expr::CompoundIdentifier(vec![
                table.clone(),
                self.column.clone(),
            ]))
        };
        Expr::BinaryOp {
            left: of(&self.left),
            op: BinaryOperator::Eq,
            right: of(&self.right),
        }
    }
}

/// Names the table of keys that are written without one, outside of subqueries.
struct Keys<'a> {
    keys: &'a [Key],
    /// How many queries within are around the current place.
    depth: usize,
}

impl<'a> Keys<'a> {
    fn name_in<T: VisitMut>(keys: &'a [Key], place: &mut T) {
        let mut visitor = Keys { keys, depth: 0 };
        let ControlFlow::Continue(()) = place.visit(&mut visitor);
    }
}

impl VisitorMut for Keys<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(key) = self.keys.iter().find(|key| key.column.value == name.value)
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
    let named = keys_of(join, left)?;
    let keys = match constraint {
        JoinConstraint::None => None,
        JoinConstraint::On(keys) => Some(keys.clone()),
        JoinConstraint::Using(_) => named.iter().map(Key::equality).reduce(and),
        JoinConstraint::Natural => return Err(query("ASOF JOIN takes ON or USING, not NATURAL")),
    };
    let condition = match keys {
        Some(keys) => and(keys, matching),
        None => matching,
    };
    join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
    Ok(named)
}

/// The keys that USING of an as-of join names.
fn keys_of(join: &Join, left: Option<&Ident>) -> Result<Vec<Key>, SqlError> {
    let JoinOperator::AsOf {
        constraint: JoinConstraint::Using(names),
        ..
    } = &join.join_operator
    else {
        return Ok(Vec::new());
    };
    let (Some(left), Some(right)) = (left, name_of(&join.relation)) else {
        return Err(query("USING needs tables with names on both sides"));
    };
    let key = |name: &ObjectName| {
        let column = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
        Key {
            column: column.unwrap_or_else(|| Ident::new(name.to_string())),
            left: left.clone(),
            right: right.clone(),
        }
    };
    Ok(names.iter().map(key).collect())
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
    SqlError::Query {
        message: format!("{}; {FORMS}", message.into()),
        place: place_of(part.span().start),
        suggestion: None,
    }
}

fn place_of(start: Location) -> Option<TextPlace> {
    (start.line > 0).then_some(TextPlace {
        line: start.line,
        column: start.column,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(body: &SetExpr) -> usize {
        match body {
            SetExpr::SetOperation { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    /// The body of a query, after its unions were balanced.
    fn balanced(sql: &str) -> SetExpr {
        let parser = DFParserBuilder::new(sql).with_dialect(&AsofDialect).build();
        let parsed = parser.and_then(|mut parser| parser.parse_statements());
        let Some(Statement::Statement(statement)) = parsed.expect("a query").pop_front() else {
            panic!("{sql}");
        };
        let ast::Statement::Query(mut query) = *statement else {
            panic!("{sql}");
        };
        balance(&mut query.body);
        assert_eq!(
            query.to_string(),
            sql,
            "its parts are the same, in their order"
        );
        *query.body
    }

    #[test]
    fn unions_of_many_parts_are_not_nested_as_deep() {
        for word in ["UNION ALL", "UNION"] {
            let parts: Vec<String> = (0..1_000).map(|n| format!("SELECT {n}")).collect();
            let chain = balanced(&parts.join(&format!(" {word} ")));
            assert_eq!(depth(&chain), 10, "{word}");
        }
    }

    #[test]
    fn unions_that_drop_duplicates_stay_apart_from_those_that_do_not() {
        let mixed = "SELECT 1 UNION ALL SELECT 2 UNION SELECT 3 UNION ALL SELECT 4 EXCEPT SELECT 5";
        let SetExpr::SetOperation { op, left, .. } = balanced(mixed) else {
            panic!("a set operation");
        };
        assert_eq!((op, depth(&left)), (SetOperator::Except, 3));
        let SetExpr::SetOperation { left, .. } =
            balanced("SELECT 1 UNION ALL SELECT 2 UNION SELECT 3")
        else {
            panic!("a set operation");
        };
        assert!(matches!(
            *left,
            SetExpr::SetOperation {
                set_quantifier: SetQuantifier::All,
                ..
            }
        ));
    }
}
