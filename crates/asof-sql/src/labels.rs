//! Labels of recordings, from users, paths and metadata, as columns of every topic and of the tables of meanings: robot,
//! site, and tags.
//!
//! A filter on these, and on the name of the recording, is answered before any recording is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, MapBuilder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;

use crate::database::Shared;
use crate::recordings::{Chosen, Opened};
use crate::topic::RECORDING;

/// The labels of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingLabels {
    /// The robot that made it.
    pub robot: Option<String>,
    /// The site where it was made.
    pub site: Option<String>,
    /// Everything else.
    pub tags: BTreeMap<String, String>,
}

pub(crate) const ROBOT: &str = "robot";
pub(crate) const SITE: &str = "site";
pub(crate) const TAGS: &str = "tags";

impl RecordingLabels {
    /// A label as a column of this many rows; `None` where there is no label of that name.
    pub(crate) fn column(&self, name: &str, rows: usize) -> Option<ArrayRef> {
        let text = |text: &Option<String>| -> ArrayRef {
            let all = std::iter::repeat_n(text.as_deref(), rows);
            Arc::new(all.collect::<StringArray>())
        };
        Some(match name {
            ROBOT => text(&self.robot),
            SITE => text(&self.site),
            TAGS => maps(std::iter::repeat_n(&self.tags, rows)),
            _ => return None,
        })
    }
}

#[cfg(feature = "distributed")]
impl RecordingLabels {
    /// Serialized for another process.
    pub(crate) fn to_text(&self) -> String {
        let Self { robot, site, tags } = self;
        serde_json::json!({ ROBOT: robot, SITE: site, TAGS: tags }).to_string()
    }

    /// Deserialized; the text comes from outside, and anything missing is empty.
    pub(crate) fn from_text(text: &str) -> Self {
        let said: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let word = |name: &str| said[name].as_str().map(str::to_owned);
        let tags = said[TAGS].as_object().into_iter().flatten();
        let tags = tags.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        RecordingLabels {
            robot: word(ROBOT),
            site: word(SITE),
            tags: tags.collect(),
        }
    }
}

fn maps<'a>(all: impl Iterator<Item = &'a BTreeMap<String, String>>) -> ArrayRef {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for tags in all {
        for (key, value) in tags {
            maps.keys().append_value(key);
            maps.values().append_value(value);
        }
        // Keys and values were appended together, so their numbers are equal.
        let appended = maps.append(true);
        debug_assert!(appended.is_ok());
    }
    Arc::new(maps.finish())
}

/// The columns.
pub(crate) fn fields() -> [Field; 3] {
    let tags = maps(std::iter::empty()).data_type().clone();
    [
        Field::new(ROBOT, DataType::Utf8, true),
        Field::new(SITE, DataType::Utf8, true),
        Field::new(TAGS, tags, true),
    ]
}

/// Whether a column of this name is a label.
pub(crate) fn is_label(name: &str) -> bool {
    [ROBOT, SITE, TAGS].contains(&name)
}

/// The columns for a table that has these already: none where no recording has labels. A field of the messages
/// keeps its name.
pub(crate) fn fields_beside(shared: &Shared, is_taken: impl Fn(&str) -> bool) -> Vec<Field> {
    if !shared.has_labels() {
        return Vec::new();
    }
    let all = fields().into_iter();
    all.filter(|label| !is_taken(label.name())).collect()
}

/// The filters among these that names and labels alone can answer.
pub(crate) fn about_recordings<'a>(filters: &'a [Expr], labels: &[String]) -> Vec<&'a Expr> {
    let filters = filters.iter();
    let about = filters.filter(|filter| is_about_recordings(filter, labels));
    about.collect()
}

/// The names of the columns.
pub(crate) fn names() -> [String; 3] {
    [ROBOT, SITE, TAGS].map(str::to_owned)
}

/// Whether names and labels, those of these names, can answer a filter.
pub(crate) fn is_about_recordings(filter: &Expr, labels: &[String]) -> bool {
    let columns = filter.column_refs();
    let is_known = |column: &&Column| column.name == RECORDING || labels.contains(&column.name);
    let has_subquery = filter.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
        ))
    });
    !columns.is_empty()
        && columns.iter().all(is_known)
        && !filter.is_volatile()
        && !has_subquery.unwrap_or(true)
}

impl Shared {
    /// A label of a recording as a column; `None` where it has none.
    pub fn label(&self, recording: usize, name: &str, rows: usize) -> Option<ArrayRef> {
        self.opened(recording).labels.as_ref()?.column(name, rows)
    }

    /// The labels of recordings.
    fn labelled(&self, chosen: &[Chosen]) -> Result<RecordBatch> {
        let nothing = RecordingLabels::default();
        let opened = chosen.iter().map(|one| self.opened(one.place));
        let opened: Vec<Arc<Opened>> = opened.collect();
        let said = opened
            .iter()
            .map(|one| one.labels.as_ref().unwrap_or(&nothing));
        let all: Vec<&RecordingLabels> = said.collect();
        let names = opened.iter().map(|one| Some(one.name.as_str()));
        let robots = all.iter().map(|labels| labels.robot.as_deref());
        let sites = all.iter().map(|labels| labels.site.as_deref());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(names.collect::<StringArray>()),
            Arc::new(robots.collect::<StringArray>()),
            Arc::new(sites.collect::<StringArray>()),
            maps(all.iter().map(|labels| &labels.tags)),
        ];
        let mut fields = vec![Field::new(RECORDING, DataType::Utf8, false)];
        fields.extend(self::fields());
        Ok(RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns,
        )?)
    }

    /// Which of these recordings pass.
    pub fn passing(&self, chosen: &[Chosen], filter: &LabelFilter) -> Result<BooleanArray> {
        let labelled = self.labelled(chosen)?;
        let columns = filter.schema.fields().iter();
        let columns = columns.map(|field| labelled.schema_ref().index_of(field.name()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        filter.passing(&labelled.project(&columns)?)
    }
}

/// Filters on the names and labels of recordings, to be asked of rows of these columns.
#[derive(Debug, Clone)]
pub(crate) struct LabelFilter {
    /// The columns that the filters are about.
    pub schema: SchemaRef,
    filters: Vec<Arc<dyn PhysicalExpr>>,
}

impl LabelFilter {
    pub fn new(filters: &[&Expr], session: &dyn Session) -> Result<Self> {
        let mut fields = vec![Field::new(RECORDING, DataType::Utf8, false)];
        fields.extend(self::fields());
        fields.retain(|field| {
            let columns = filters.iter().flat_map(|filter| filter.column_refs());
            columns
                .into_iter()
                .any(|column| column.name == *field.name())
        });
        let schema = Schema::new(fields);
        let known = DFSchema::try_from(schema.clone())?;
        let planned = |filter: &&Expr| {
            let plain = (*filter).clone().transform(|expr| {
                Ok(match expr {
                    Expr::Column(column) => {
                        Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
                    }
                    other => Transformed::no(other),
                })
            })?;
            session.create_physical_expr(plain.data, &known)
        };
        Ok(LabelFilter {
            filters: filters.iter().map(planned).collect::<Result<_>>()?,
            schema: Arc::new(schema),
        })
    }

    /// Which rows pass all filters.
    pub fn passing(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let mut passing = vec![true; rows.num_rows()];
        for filter in &self.filters {
            let found = filter.evaluate(rows)?.into_array(passing.len())?;
            let found = found.as_boolean();
            for (row, passes) in passing.iter_mut().enumerate() {
                *passes &= found.is_valid(row) && found.value(row);
            }
        }
        Ok(passing.into())
    }
}
