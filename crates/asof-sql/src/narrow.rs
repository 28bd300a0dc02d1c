//! The parts of a nested column that a projection uses.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// For each column, the paths within it that are used; `None` where all of it is, or it is not a struct.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Paths(Vec<Vec<Option<Vec<String>>>>);

impl Paths {
    /// What these expressions use, of this many columns.
    pub fn of<'a>(
        columns: usize,
        exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    ) -> Self {
        let mut paths = Paths(vec![Vec::new(); columns]);
        for expr in exprs {
            paths.look(expr);
        }
        paths
    }

    /// Whether a column is used at all.
    pub fn has(&self, column: usize) -> bool {
        self.0.get(column).is_some_and(|paths| !paths.is_empty())
    }

    /// The field reduced to what is used, and its paths for a decoder.
    pub fn narrowed(&self, column: usize, field: &FieldRef) -> (FieldRef, Vec<String>) {
        let name = field.name().clone();
        let paths = self.0.get(column).map(Vec::as_slice).unwrap_or_default();
        let parts: Option<Vec<&Vec<String>>> = paths.iter().map(Option::as_ref).collect();
        let Some(parts) = parts.filter(|parts| !parts.is_empty()) else {
            return (Arc::clone(field), vec![name]);
        };
        let narrowed = narrow(
            field,
            &parts.iter().map(|path| &path[..]).collect::<Vec<_>>(),
        );
        let paths = parts
            .iter()
            .map(|path| format!("{name}.{}", path.join(".")));
        (narrowed, paths.collect())
    }

    fn look(&mut self, expr: &Arc<dyn PhysicalExpr>) {
        if let Some((column, path)) = field_path(expr) {
            self.0[column].push((!path.is_empty()).then_some(path));
            return;
        }
        for child in expr.children() {
            self.look(child);
        }
    }
}

/// A column, or a field within one, by its names.
fn field_path(expr: &Arc<dyn PhysicalExpr>) -> Option<(usize, Vec<String>)> {
    let any = expr.as_ref();
    if let Some(column) = any.downcast_ref::<Column>() {
        return Some((column.index(), Vec::new()));
    }
    let function = any.downcast_ref::<ScalarFunctionExpr>()?;
    if function.fun().name() != "get_field" {
        return None;
    }
    let (base, names) = function.args().split_first()?;
    let (column, mut path) = field_path(base)?;
    for name in names {
        let literal = name.as_ref().downcast_ref::<Literal>()?;
        let (ScalarValue::Utf8(Some(name)) | ScalarValue::Utf8View(Some(name))) = literal.value()
        else {
            return None;
        };
        path.push(name.clone());
    }
    Some((column, path))
}

/// The struct with only the fields on some path.
fn narrow(field: &FieldRef, paths: &[&[String]]) -> FieldRef {
    let DataType::Struct(children) = field.data_type() else {
        return Arc::clone(field);
    };
    if paths.iter().any(|path| path.is_empty()) {
        return Arc::clone(field);
    }
    let kept = children.iter().filter_map(|child| {
        let within: Vec<&[String]> = paths
            .iter()
            .filter(|path| path[0] == *child.name())
            .map(|path| &path[1..])
            .collect();
        (!within.is_empty()).then(|| narrow(child, &within))
    });
    let kept: Fields = kept.collect::<Vec<_>>().into();
    let narrowed = Field::new(field.name(), DataType::Struct(kept), field.is_nullable());
    Arc::new(narrowed.with_metadata(field.metadata().clone()))
}
