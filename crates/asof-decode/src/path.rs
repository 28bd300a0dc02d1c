//! Paths to fields of a message: `pose.pose.position.x`, `ranges[3]`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, UInt8Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use arrow_select::take::take;

use crate::Projection;
use crate::decoder::OWN_NAME;
use crate::numbers::{is_number, number_at, numbers};

/// A path to a field of a message: field names separated by dots, and list elements in brackets.
///
/// It is parsed once, checked against a schema, and then read from any number of decoded messages.
///
/// ```
/// use asof_decode::FieldPath;
///
/// let path: FieldPath = "transforms[0].header.frame_id".parse()?;
/// assert_eq!(path.to_string(), "transforms[0].header.frame_id");
/// assert_eq!(path.fields(), "transforms.header.frame_id");
/// assert!("pose..x".parse::<FieldPath>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Vec<PathPart>);

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathPart {
    /// Into a field of a struct: `.x`.
    Field(String),
    /// To an element of a list: `[3]`.
    Item(usize),
    /// Through all elements of a list: `[]`.
    Every,
}

/// Why a path is malformed, or does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It cannot be parsed.
    #[error("'{path}' is not a path to a field, such as pose.position.x or ranges[3]: {reason}")]
    Malformed {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A field does not exist.
    #[error("there is no field '{path}': '{name}' is not one of {known}")]
    NoSuchField {
        /// The path.
        path: String,
        /// The part of it that does not exist.
        name: String,
        /// The fields at that place.
        known: String,
    },
    /// A step that is not possible, such as an element of something that is not a list.
    #[error("there is no field '{path}': '{step}' follows {found}")]
    WrongStep {
        /// The path.
        path: String,
        /// The step.
        step: String,
        /// What the step is applied to.
        found: String,
    },
    /// A field has another type than the requested one.
    #[error("'{path}' is {found}, not {wanted}")]
    WrongType {
        /// The path.
        path: String,
        /// Its type.
        found: String,
        /// The requested type.
        wanted: &'static str,
    },
}

/// The most steps: no message is nested so deeply.
const MOST_PARTS: usize = 64;
/// The most fields that an error names.
const NAMED_FIELDS: usize = 12;

impl FromStr for FieldPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        FieldPath::parse(text)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            if at > 0 && matches!(part, PathPart::Field(_)) {
                f.write_str(".")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for PathPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathPart::Field(name) => f.write_str(name),
            PathPart::Item(index) => write!(f, "[{index}]"),
            PathPart::Every => f.write_str("[]"),
        }
    }
}

impl FieldPath {
    /// Parses a path.
    ///
    /// # Errors
    /// When a name is empty, or the text in brackets is not a number.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let malformed = |reason| PathError::Malformed {
            path: text.to_owned(),
            reason,
        };
        let mut parts = Vec::new();
        for field in text.split('.') {
            let (name, indexes) = match field.split_once('[') {
                Some((name, rest)) => {
                    let rest = rest.strip_suffix(']');
                    (
                        name,
                        Some(rest.ok_or_else(|| malformed("a bracket is not closed"))?),
                    )
                }
                None => (field, None),
            };
            if name.is_empty() {
                return Err(malformed("a name is empty"));
            }
            if name.contains(']') {
                return Err(malformed("a bracket was never opened"));
            }
            parts.push(PathPart::Field(name.to_owned()));
            for index in indexes.iter().flat_map(|indexes| indexes.split("][")) {
                parts.push(match index {
                    "" => PathPart::Every,
                    index => PathPart::Item(
                        index
                            .parse()
                            .map_err(|_| malformed("an index is not a number"))?,
                    ),
                });
            }
            if parts.len() > MOST_PARTS {
                return Err(malformed("it is too long"));
            }
        }
        Ok(FieldPath(parts))
    }

    /// Its steps.
    pub fn parts(&self) -> &[PathPart] {
        &self.0
    }

    /// The names of its fields separated by dots, without list elements: the form of a [`Projection`].
    pub fn fields(&self) -> String {
        let names = self.0.iter().filter_map(|part| match part {
            PathPart::Field(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect::<Vec<_>>().join(".")
    }

    /// The projection that a decoder needs for this path.
    pub fn projection(&self) -> Projection {
        Projection::paths([self.fields()])
    }

    /// The field at this path in a table.
    ///
    /// # Errors
    /// When it does not exist; the error names the step, and what there is instead.
    pub fn resolve(&self, schema: &Schema) -> Result<FieldRef, PathError> {
        let mut parts = self.0.iter();
        let Some(PathPart::Field(first)) = parts.next() else {
            return Err(self.wrong_step(&PathPart::Every, "the message itself"));
        };
        let fields = schema.fields();
        let place = own_field(fields, first).ok_or_else(|| self.no_such(first, fields))?;
        let mut field = Arc::clone(&fields[place]);
        for part in parts {
            field = match (part, field.data_type()) {
                (PathPart::Field(name), DataType::Struct(inner)) => {
                    let place = inner.iter().position(|inner| inner.name() == name);
                    let place = place.ok_or_else(|| self.no_such(name, inner))?;
                    Arc::clone(&inner[place])
                }
                (
                    PathPart::Item(_) | PathPart::Every,
                    DataType::List(item) | DataType::FixedSizeList(item, _),
                ) => Arc::clone(item),
                (PathPart::Item(_), DataType::BinaryView | DataType::FixedSizeBinary(_)) => {
                    Arc::new(Field::new("item", DataType::UInt8, false))
                }
                (part, kind) => return Err(self.wrong_step(part, &name_of(kind))),
            };
        }
        Ok(field)
    }

    /// The value at this path in each row of a batch.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve); and for a path through all elements of a list, which is not a single value.
    pub fn column(&self, batch: &RecordBatch) -> Result<PathColumn, PathError> {
        let Some(PathPart::Field(first)) = self.0.first() else {
            return Err(self.wrong_step(&PathPart::Every, "the message itself"));
        };
        let fields = batch.schema_ref().fields();
        let place = own_field(fields, first).ok_or_else(|| self.no_such(first, fields))?;
        self.walk(Arc::clone(batch.column(place)), &self.0[1..])
    }

    /// The value at this path in each row of a column of structs.
    ///
    /// # Errors
    /// As [`column`](Self::column).
    pub fn column_of(&self, table: &StructArray) -> Result<PathColumn, PathError> {
        self.walk(Arc::new(table.clone()), &self.0)
    }

    /// The number at this path in each row of a batch, NaN where there is none.
    ///
    /// # Errors
    /// As [`column`](Self::column), and where the field is not numeric.
    pub fn numbers(&self, batch: &RecordBatch) -> Result<Vec<f64>, PathError> {
        let column = self.column(batch)?;
        let kind = column.array.data_type();
        let wrong = || self.wrong_type(kind, "a number");
        column.numbers().ok_or_else(wrong)
    }

    fn walk(&self, array: ArrayRef, parts: &[PathPart]) -> Result<PathColumn, PathError> {
        let len = array.len();
        let mut column = PathColumn {
            array,
            rows: None,
            len,
        };
        for part in parts {
            column = match part {
                PathPart::Field(name) => self.step_into(&column, name)?,
                PathPart::Item(index) => self.step_to(&column, *index)?,
                PathPart::Every => return Err(self.wrong_step(part, "a list of any length")),
            };
        }
        Ok(column)
    }

    fn step_into(&self, column: &PathColumn, name: &str) -> Result<PathColumn, PathError> {
        let table = column.array.as_struct_opt().ok_or_else(|| {
            let found = name_of(column.array.data_type());
            self.wrong_step(&PathPart::Field(name.to_owned()), &found)
        })?;
        let next = table.column_by_name(name);
        let next = next.ok_or_else(|| self.no_such(name, table.fields()))?;
        let rows = if table.null_count() > 0 {
            let valid = |row: usize| column.place(row).filter(|&row| table.is_valid(row));
            Some((0..column.len).map(valid).collect())
        } else {
            column.rows.clone()
        };
        Ok(PathColumn {
            array: Arc::clone(next),
            rows,
            len: column.len,
        })
    }

    fn step_to(&self, column: &PathColumn, index: usize) -> Result<PathColumn, PathError> {
        let array = &column.array;
        let items = match array.data_type() {
            DataType::List(_) => Arc::clone(array.as_list::<i32>().values()),
            DataType::FixedSizeList(..) => Arc::clone(array.as_fixed_size_list().values()),
            DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                return Ok(bytes_at(column, index));
            }
            kind => return Err(self.wrong_step(&PathPart::Item(index), &name_of(kind))),
        };
        let rows = (0..column.len).map(|row| item_of(array, column.place(row)?, index));
        Ok(PathColumn {
            rows: Some(rows.collect()),
            array: items,
            len: column.len,
        })
    }

    /// The value at this path in a message that was decoded to JSON.
    pub fn value<'a>(&self, message: &'a serde_json::Value) -> Option<&'a serde_json::Value> {
        self.0.iter().try_fold(message, |value, part| match part {
            PathPart::Field(name) => value.get(name),
            PathPart::Item(index) => value.get(index),
            PathPart::Every => None,
        })
    }

    fn no_such(&self, name: &str, fields: &Fields) -> PathError {
        let mut known: Vec<&str> = fields
            .iter()
            .take(NAMED_FIELDS)
            .map(|f| f.name().as_str())
            .collect();
        if fields.len() > NAMED_FIELDS {
            known.push("…");
        }
        PathError::NoSuchField {
            path: self.to_string(),
            name: name.to_owned(),
            known: match known.len() {
                0 => "none".to_owned(),
                _ => known.join(", "),
            },
        }
    }

    fn wrong_step(&self, part: &PathPart, found: &str) -> PathError {
        PathError::WrongStep {
            path: self.to_string(),
            step: part.to_string(),
            found: found.to_owned(),
        }
    }

    pub(crate) fn wrong_type(&self, kind: &DataType, wanted: &'static str) -> PathError {
        PathError::WrongType {
            path: self.to_string(),
            found: name_of(kind),
            wanted,
        }
    }
}

/// The values at a path, for each row of a table.
#[derive(Debug, Clone)]
pub struct PathColumn {
    array: ArrayRef,
    /// The index in the array of each row's value, where it is not the row's own.
    rows: Option<Vec<Option<usize>>>,
    len: usize,
}

impl PathColumn {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The array that holds the values. It also has others where the path leads to one element of a list:
    /// [`place`](Self::place) has the index for each row.
    pub fn array(&self) -> &ArrayRef {
        &self.array
    }

    /// The index of a row's value in the array; `None` where it has none.
    pub fn place(&self, row: usize) -> Option<usize> {
        let place = match &self.rows {
            None => Some(row).filter(|row| *row < self.len),
            Some(rows) => rows.get(row).copied().flatten(),
        };
        place.filter(|&place| place < self.array.len() && self.array.is_valid(place))
    }

    /// The value of a row as an array of one.
    pub fn at(&self, row: usize) -> Option<ArrayRef> {
        self.place(row).map(|place| self.array.slice(place, 1))
    }

    /// The values of all rows as one array, null where there is none. Nothing is copied where each row has its own
    /// value.
    ///
    /// # Errors
    /// When Arrow cannot select the values, which is a bug in this crate.
    pub fn to_array(&self) -> Result<ArrayRef, ArrowError> {
        if self.rows.is_none() {
            return Ok(Arc::clone(&self.array));
        }
        let places: UInt64Array = (0..self.len)
            .map(|row| self.place(row).map(|place| place as u64))
            .collect();
        take(&*self.array, &places, None)
    }

    /// The number of a row. A boolean is 0 or 1, a time its seconds.
    pub fn number(&self, row: usize) -> Option<f64> {
        number_at(&*self.array, self.place(row)?)
    }

    /// The text of a row.
    pub fn text(&self, row: usize) -> Option<&str> {
        let place = self.place(row)?;
        let texts = self.array.as_string_opt::<i32>()?;
        Some(texts.value(place))
    }

    /// The numbers of all rows, NaN where there is none; `None` where the values are not numbers.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        if !is_number(self.array.data_type()) {
            return None;
        }
        let all = numbers(&*self.array);
        if self.rows.is_none() && all.len() == self.len {
            return Some(all);
        }
        let value = |row: usize| self.place(row).and_then(|place| all.get(place).copied());
        Some(
            (0..self.len)
                .map(|row| value(row).unwrap_or(f64::NAN))
                .collect(),
        )
    }
}

/// The index of the message's own field of this name, rather than of a time column that the table adds; else of that
/// time column.
pub(crate) fn own_field(fields: &Fields, name: &str) -> Option<usize> {
    let own = |field: &FieldRef| match field.metadata().get(OWN_NAME) {
        Some(own) => own == name,
        None => field.name() == name && !matches!(field.data_type(), DataType::Timestamp(..)),
    };
    let place = fields.iter().position(own);
    place.or_else(|| fields.iter().position(|field| field.name() == name))
}

fn item_of(array: &ArrayRef, row: usize, index: usize) -> Option<usize> {
    match array.data_type() {
        DataType::List(_) => {
            let offsets = array.as_list::<i32>().offsets();
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            (index < end - start).then_some(start + index)
        }
        DataType::FixedSizeList(_, len) => {
            let len = *len as usize;
            (index < len).then_some(row * len + index)
        }
        _ => None,
    }
}

/// One byte of each row's bytes.
fn bytes_at(column: &PathColumn, index: usize) -> PathColumn {
    let byte = |row: usize| {
        let place = column.place(row)?;
        let bytes = match column.array.data_type() {
            DataType::BinaryView => column.array.as_binary_view().value(place),
            _ => column.array.as_fixed_size_binary().value(place),
        };
        bytes.get(index).copied()
    };
    let bytes: UInt8Array = (0..column.len).map(byte).collect();
    PathColumn {
        array: Arc::new(bytes),
        rows: None,
        len: column.len,
    }
}

/// A type in words.
fn name_of(kind: &DataType) -> String {
    match kind {
        DataType::Struct(_) => "a message".to_owned(),
        DataType::List(_) | DataType::FixedSizeList(..) => "a list".to_owned(),
        DataType::Utf8 => "a text".to_owned(),
        DataType::Boolean => "a boolean".to_owned(),
        DataType::BinaryView | DataType::FixedSizeBinary(_) => "bytes".to_owned(),
        DataType::Timestamp(..) => "a time".to_owned(),
        DataType::Map(..) => "a map".to_owned(),
        kind => format!("a number ({kind})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_fields_and_elements() {
        let parts = |text: &str| FieldPath::parse(text).map(|path| path.0.len()).ok();
        assert_eq!(parts("pose.position.x"), Some(3));
        assert_eq!(parts("ranges[7]"), Some(2));
        assert_eq!(parts("a[1][2].b"), Some(4));
        assert_eq!(parts("joints[].name"), Some(3));
        for text in ["", ".", "a.", "a[", "a[x]", "[1]", "a[-1]", "a]", "a[1]b"] {
            assert_eq!(parts(text), None, "{text}");
        }
        let long = vec!["a"; 65].join(".");
        assert_eq!(parts(&long), None);
    }

    #[test]
    fn values_of_json_are_found_by_path() {
        let value = serde_json::json!({ "a": { "b": [1, { "c": 2 }] } });
        let at = |path: &str| FieldPath::parse(path).ok()?.value(&value).cloned();
        assert_eq!(at("a.b[1].c"), Some(2.into()));
        assert_eq!(at("a.b[7]"), None);
        assert_eq!(at("a.b.c"), None);
    }
}
