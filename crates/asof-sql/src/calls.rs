//! Calls in `FROM` that become joins, or take tables by name.
//!
//! - `window_join(a, b, '-500ms', '0s')`: each row of `a` with all rows of `b` within that time range around it.
//! - `resample(a, b, 10, 'last')`: the topics at each instant of a grid of this many hertz.
//! - `points(a)`: its argument may be written as a table.

use asof_align::{On, Pick, Rule, Span};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::SchemaProvider as _;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, TableAlias,
    TableFactor, UnaryOperator, Value,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::asof::{How, MATCH, OR_NEAREST, duration_of};
use crate::error::SqlError;
use crate::tables::Tables;
use crate::times::{TIME, TIMES};
use crate::topic::{LOG_TIME, STAMP};

const WINDOW_FORM: &str = "window_join takes two tables and the ends of the window from the first one's time: \
    window_join(bumper, imu, '-500ms', '0s'), and optionally the time to join by, 'stamp' or 'log_time'";
const RESAMPLE_FORM: &str = "resample takes tables, a rate, and a method: resample(odom, imu, 10, 'last'), with 'last', 'next', \
    'before', 'after', 'nearest' or 'interpolate', and optionally a tolerance, '500ms', the time, 'stamp' or 'log_time', and 'or_nearest': \
    interpolation takes the nearest row before the first and after the last one";

/// Rewrites a call for the planner; leaves everything else unchanged.
pub(crate) fn rewrite(
    factor: &mut TableFactor,
    tables: &Tables,
    dialect: &dyn Dialect,
) -> Result<(), SqlError> {
    let TableFactor::Table {
        name, alias, args, ..
    } = factor
    else {
        return Ok(());
    };
    let Some(args) = args else { return Ok(()) };
    let function = name.0.last().and_then(ObjectNamePart::as_ident);
    let function = function.map(|ident| ident.value.to_ascii_lowercase());
    let text = match function.as_deref() {
        Some("window_join") => {
            window_join(&arguments(&args.args, WINDOW_FORM)?, alias.as_ref(), tables)?
        }
        Some("resample") => resample(
            &arguments(&args.args, RESAMPLE_FORM)?,
            alias.as_ref(),
            tables,
        )?,
        Some("points") => {
            // The planner would take the name for a column.
            if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(table))) = args.args.first_mut()
                && let Expr::Identifier(ident) = table
            {
                *table = Expr::value(Value::SingleQuotedString(ident.value.clone()));
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    let parsed = Parser::new(dialect)
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_table_factor());
    *factor = parsed.map_err(|error| SqlError::query(error.to_string()))?;
    Ok(())
}

/// An argument: its name in this query, and its value.
struct Argument<'a> {
    name: Option<&'a Ident>,
    value: &'a Expr,
}

fn arguments<'a>(args: &'a [FunctionArg], form: &str) -> Result<Vec<Argument<'a>>, SqlError> {
    let argument = |arg: &'a FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Ok(Argument { name: None, value }),
        FunctionArg::Named {
            name,
            arg: FunctionArgExpr::Expr(value),
            ..
        } => Ok(Argument {
            name: Some(name),
            value,
        }),
        _ => Err(SqlError::query(form)),
    };
    args.iter().map(argument).collect()
}

/// A table, and its name in the query.
struct Named {
    table: String,
    alias: String,
}

impl Named {
    fn of(argument: &Argument<'_>, form: &str) -> Result<Self, SqlError> {
        let Some(table) = name_of(argument.value) else {
            return Err(SqlError::query(form));
        };
        let alias = argument.name.map_or(&table, |name| &name.value).clone();
        Ok(Named { table, alias })
    }

    fn has_stamp(&self, tables: &Tables) -> bool {
        // If a table does not exist, the planner reports it.
        let columns = tables.columns(&self.table);
        let field = columns.as_ref().map(|schema| schema.field_with_name(STAMP));
        matches!(field, Some(Ok(field)) if matches!(field.data_type(), DataType::Timestamp(..)))
    }

    fn factor(&self) -> String {
        format!("{} AS {}", quoted(&self.table), quoted(&self.alias))
    }

    fn time(&self, column: &str) -> String {
        format!("{}.{}", quoted(&self.alias), quoted(column))
    }
}

fn window_join(
    arguments: &[Argument<'_>],
    alias: Option<&TableAlias>,
    tables: &Tables,
) -> Result<String, SqlError> {
    let (Some([left, right]), Some([from, to])) = (arguments.get(..2), arguments.get(2..4)) else {
        return Err(SqlError::query(WINDOW_FORM));
    };
    let left = Named::of(left, WINDOW_FORM)?;
    let mut right = Named::of(right, WINDOW_FORM)?;
    // An alias after the call names the rows in the window.
    if let Some(alias) = alias {
        right.alias.clone_from(&alias.name.value);
    }
    if left.alias == right.alias {
        return Err(SqlError::query(format!(
            "both sides are named {}; give one another name: window_join(a => {0}, b => {0}, …)",
            left.alias
        )));
    }
    let (from, to) = (length_of(from, WINDOW_FORM)?, length_of(to, WINDOW_FORM)?);
    if from > to {
        return Err(SqlError::query(
            "the window of window_join ends before it starts; the earlier end comes first",
        ));
    }
    let time = match &arguments[4..] {
        [] if left.has_stamp(tables) && right.has_stamp(tables) => STAMP,
        [] => LOG_TIME,
        [time] => time_column(time, WINDOW_FORM)?,
        _ => return Err(SqlError::query(WINDOW_FORM)),
    };
    let how = How::All(Span { from, to });
    Ok(format!(
        "({} LEFT JOIN {} ON {})",
        left.factor(),
        right.factor(),
        matching(&left.time(time), &right.time(time), &how.word(), None)
    ))
}

fn resample(
    arguments: &[Argument<'_>],
    alias: Option<&TableAlias>,
    tables: &Tables,
) -> Result<String, SqlError> {
    let is_rate = |argument: &Argument<'_>| {
        let value = argument.value;
        matches!(value, Expr::Value(value) if matches!(value.value, Value::Number(..)))
            || matches!(value, Expr::UnaryOp { .. })
    };
    let Some(rate) = arguments.iter().position(is_rate) else {
        return Err(SqlError::query(RESAMPLE_FORM));
    };
    let mut topics = Vec::new();
    for argument in &arguments[..rate] {
        topics.extend(tables_of(argument, tables)?);
    }
    if topics.is_empty() {
        return Err(SqlError::query(RESAMPLE_FORM));
    }
    let mut rest = arguments[rate + 1..].iter();
    let how = rest.next().map(|how| text_of(how.value));
    let pick = match how {
        None => Pick::Last,
        Some(word) => {
            let pick = word.and_then(|word| word.parse().ok());
            pick.ok_or_else(|| SqlError::query(RESAMPLE_FORM))?
        }
    };
    let (mut within, mut time, mut rule) = (None, LOG_TIME, Rule::new(pick));
    for argument in rest {
        if let Ok(column) = time_column(argument, RESAMPLE_FORM) {
            time = column;
        } else if text_of(argument.value).as_deref() == Some(OR_NEAREST) {
            rule = rule.or_nearest();
        } else {
            within = Some(length_of(argument, RESAMPLE_FORM)?);
        }
    }
    let grid = alias.map_or("resample", |alias| &alias.name.value);
    let mut text = format!("({TIMES}({}) AS {}", arguments[rate].value, quoted(grid));
    let instant = format!("{}.{TIME}", quoted(grid));
    let how = How::One(rule).word();
    for topic in &topics {
        let condition = matching(&instant, &topic.time(time), &how, within);
        text.extend([" LEFT JOIN ", &topic.factor(), " ON ", &condition]);
    }
    text.push(')');
    Ok(text)
}

/// The tables of an argument: one, a list of them, or a comma-separated text.
fn tables_of(argument: &Argument<'_>, tables: &Tables) -> Result<Vec<Named>, SqlError> {
    let many: Vec<&Expr> = match argument.value {
        Expr::Array(array) => array.elem.iter().collect(),
        Expr::Tuple(all) => all.iter().collect(),
        Expr::Nested(one) => vec![one],
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("make_array") => {
            let FunctionArguments::List(list) = &call.args else {
                return Err(SqlError::query(RESAMPLE_FORM));
            };
            let each = list.args.iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            let all: Option<Vec<&Expr>> = each.collect();
            all.ok_or_else(|| SqlError::query(RESAMPLE_FORM))?
        }
        one => {
            // A topic may have a comma in its own name.
            let text = text_of(one).filter(|text| !tables.table_exist(text));
            if let Some(text) = text.filter(|text| text.contains(',')) {
                let named = |name: &str| Named {
                    table: name.trim().to_owned(),
                    alias: name.trim().to_owned(),
                };
                return Ok(text.split(',').map(named).collect());
            }
            return Ok(vec![Named::of(argument, RESAMPLE_FORM)?]);
        }
    };
    let named = |value| Named::of(&Argument { name: None, value }, RESAMPLE_FORM);
    many.into_iter().map(named).collect()
}

/// The condition that the analyzer turns into a join.
fn matching(left: &str, right: &str, how: &str, within: Option<i64>) -> String {
    let within = within.map_or_else(|| "NULL".to_owned(), |nanos| format!("'{nanos}ns'"));
    format!("{MATCH}({left}, {right}, '{how}', {within})")
}

/// A name, quoted for a query.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The name of a table, given as an identifier or as a text.
fn name_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        other => text_of(other),
    }
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn time_column(argument: &Argument<'_>, form: &str) -> Result<&'static str, SqlError> {
    let on = name_of(argument.value).and_then(|word| word.parse::<On>().ok());
    on.map(On::word).ok_or_else(|| SqlError::query(form))
}

/// A duration in nanoseconds: `'-500ms'`, or an interval.
fn length_of(argument: &Argument<'_>, form: &str) -> Result<i64, SqlError> {
    let nanos = match argument.value {
        Expr::Interval(interval) if interval.leading_field.is_none() => {
            text_of(&interval.value).and_then(|text| duration_of(&text))
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => {
            let length = Argument {
                name: None,
                value: expr,
            };
            return Ok(length_of(&length, form)?.saturating_neg());
        }
        other => text_of(other).and_then(|text| duration_of(&text)),
    };
    nanos.ok_or_else(|| SqlError::query(form))
}
