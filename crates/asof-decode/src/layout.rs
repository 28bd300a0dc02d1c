//! Maps the fields of a message type to columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Fields};

use crate::columns::Columns;
use crate::error::{Allowance, SchemaError};
use crate::model::{Enumeration, Extensibility, Field, Kind, MessageType, Scalar, Struct};

/// The column tree of one message type: nested like the message, without the fields that are not selected.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The fields of the message itself, by their position in its struct.
    pub root: Group,
    /// How many fields and list items there are.
    pub nodes: usize,
    counts: Counts,
}

/// The fields of a struct; `None` where one is not selected.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The struct's position in its message type.
    pub id: usize,
    pub fields: Vec<Option<Node>>,
    /// The metadata of the Arrow field.
    pub metadata: Vec<(String, String)>,
}

/// One field with its columns.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub name: String,
    pub shape: Shape,
    /// A column of booleans: whether the field is present.
    pub presence: Option<usize>,
    pub metadata: Vec<(String, String)>,
}

/// The shape of a field, and the numbers of its columns.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Scalar(Scalar, usize),
    Enum(Arc<Enumeration>, usize),
    Text(usize),
    /// JSON text; printed as it is.
    Json(usize),
    Blob(usize),
    FixedBlob(u32, usize),
    Struct(Group),
    List(usize, Box<Node>),
    Array(u32, Box<Node>),
    Map(usize, Box<Node>, Box<Node>),
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    w1: usize,
    w2: usize,
    w4: usize,
    w8: usize,
    ends: usize,
    texts: usize,
    blobs: usize,
}

/// Selects fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Projection {
    /// Every field.
    #[default]
    All,
    /// These fields, by path: `pose.position.x`. The path of a struct or a list selects everything in it. Each path
    /// has to exist.
    Paths(Vec<String>),
    /// Those of these fields that a message has, by path. A message without any of them is refused as by
    /// [`Paths`](Projection::Paths).
    AnyOf(Vec<String>),
    /// The fields of another projection, and these where they exist.
    #[doc(hidden)]
    And(Box<Projection>, Vec<String>),
}

impl Projection {
    /// Exactly these paths.
    pub fn paths<I: IntoIterator<Item = S>, S: Into<String>>(paths: I) -> Self {
        Projection::Paths(paths.into_iter().map(Into::into).collect())
    }

    /// Those of these paths that exist.
    pub fn any_of<I: IntoIterator<Item = S>, S: Into<String>>(paths: I) -> Self {
        Projection::AnyOf(paths.into_iter().map(Into::into).collect())
    }

    pub(crate) fn wants(&self, path: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let any = |paths: &[String]| {
            paths
                .iter()
                .any(|wanted| is_within(path, wanted) || is_within(wanted, path))
        };
        match self {
            Projection::All => true,
            Projection::Paths(paths) | Projection::AnyOf(paths) => any(paths),
            Projection::And(projection, more) => projection.wants(path) || any(more),
        }
    }

    /// A required path that does not exist.
    fn missing(&self, has: impl Fn(&str) -> bool) -> Option<&str> {
        match self {
            Projection::All => None,
            Projection::Paths(paths) => paths.iter().find(|path| !has(path)).map(String::as_str),
            Projection::AnyOf(paths) if paths.iter().any(|path| has(path)) => None,
            Projection::AnyOf(paths) => Some(paths.first().map_or("", String::as_str)),
            Projection::And(projection, _) => projection.missing(has),
        }
    }
}

/// A request for a layout: which fields, and how some of them are laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub projection: &'a Projection,
    /// Paths of structs of floats, such as `{x, y, z}`, that become one column of arrays. On most wires they have the
    /// layout of an array, so this is cheaper than a column for each.
    pub vectors: &'a [String],
}

impl<'a> From<&'a Projection> for Asked<'a> {
    fn from(projection: &'a Projection) -> Self {
        Asked {
            projection,
            vectors: &[],
        }
    }
}

/// What a recursive type becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recursion {
    /// An error: the encoding does not allow it.
    Refused(&'static str),
    /// JSON text, from the second level on.
    Text,
}

/// The most columns of one message type.
const COLUMNS_AT_MOST: usize = 20_000;
/// The deepest nesting: types are later walked recursively, here or in another program, on a limited stack.
const MAX_DEPTH: usize = 64;
/// The most bytes of the paths of all columns, and of what is noted beside them: a type that occurs often has its names,
/// its constants and those of its enumerations as often.
const TEXT_AT_MOST: usize = 16 << 20;
/// The most elements of a fixed-length array.
const ARRAY_AT_MOST: u64 = 1 << 24;
/// The most elements without a value, in all fixed-length arrays of a message.
const HOLLOW_AT_MOST: u64 = 1 << 16;
/// The same, in each element of a list.
const HOLLOW_IN_A_LIST: u64 = 256;

struct Builder<'a> {
    types: &'a MessageType,
    asked: Asked<'a>,
    recursion: Recursion,
    counts: Counts,
    nodes: Allowance,
    text: Allowance,
    /// The structs that are being laid out, outermost first.
    open: Vec<usize>,
    /// The nesting depth of the field or list item that is being laid out.
    depth: usize,
}

impl Layout {
    pub fn new<'a>(
        types: &'a MessageType,
        asked: impl Into<Asked<'a>>,
        recursion: Recursion,
    ) -> Result<Self, SchemaError> {
        Layout::of(types, types.root, asked, recursion)
    }

    /// The layout of one of the structs.
    pub fn of<'a>(
        types: &'a MessageType,
        id: usize,
        asked: impl Into<Asked<'a>>,
        recursion: Recursion,
    ) -> Result<Self, SchemaError> {
        let asked = asked.into();
        let projection = asked.projection;
        let mut builder = Builder {
            types,
            asked,
            recursion,
            counts: Counts::default(),
            nodes: Allowance::new(COLUMNS_AT_MOST, "fields"),
            text: Allowance::new(TEXT_AT_MOST, "bytes of names and notes"),
            open: vec![id],
            depth: 0,
        };
        let root = builder.group(id, "")?;
        check_hollow(root.hollow(), HOLLOW_AT_MOST)?;
        let layout = Layout {
            root,
            nodes: builder.nodes.used,
            counts: builder.counts,
        };
        if let Some(path) = projection.missing(|path| layout.root.has(path)) {
            return Err(SchemaError::NoSuchField {
                path: path.to_owned(),
                name: types.structs[id].name.clone(),
            });
        }
        Ok(layout)
    }

    /// Empty columns for this layout.
    pub fn columns(&self) -> Columns {
        let counts = self.counts;
        let mut columns = Columns::default();
        columns.w1.resize_with(counts.w1, Vec::new);
        columns.w2.resize_with(counts.w2, Vec::new);
        columns.w4.resize_with(counts.w4, Vec::new);
        columns.w8.resize_with(counts.w8, Vec::new);
        columns.ends.resize_with(counts.ends, || vec![0]);
        columns.texts.resize_with(counts.texts, Default::default);
        columns.blobs.resize_with(counts.blobs, Default::default);
        columns
    }

    /// Removes everything after the first `rows` rows.
    pub fn truncate(&self, columns: &mut Columns, rows: usize) {
        self.root.truncate(columns, rows);
    }
}

impl Builder<'_> {
    fn group(&mut self, id: usize, path: &str) -> Result<Group, SchemaError> {
        let types = self.types;
        let declared: &Struct = &types.structs[id];
        let mut fields = Vec::with_capacity(declared.fields.len());
        for field in &declared.fields {
            let path = if path.is_empty() {
                field.name.clone()
            } else {
                format!("{path}.{}", field.name)
            };
            if !self.asked.projection.wants(&path) {
                fields.push(None);
                continue;
            }
            let mut node = self.node(&field.name, &field.kind, field.is_optional, &path)?;
            let notes = metadata_of(field);
            self.note(&notes)?;
            node.metadata.extend(notes);
            fields.push(Some(node));
        }
        let constants = declared.constants.iter();
        let constants: serde_json::Map<_, _> = constants
            .map(|c| (c.name.clone(), c.value.clone().into()))
            .collect();
        let metadata = if constants.is_empty() {
            Vec::new()
        } else {
            vec![(
                "asof:constants".to_owned(),
                serde_json::Value::from(constants).to_string(),
            )]
        };
        self.note(&metadata)?;
        Ok(Group {
            id,
            fields,
            metadata,
        })
    }

    fn node(
        &mut self,
        name: &str,
        kind: &Kind,
        is_optional: bool,
        path: &str,
    ) -> Result<Node, SchemaError> {
        if self.depth == MAX_DEPTH {
            return Err(SchemaError::TooLarge {
                reason: format!("types are nested more than {MAX_DEPTH} levels deep"),
            });
        }
        self.text.take(path.len())?;
        self.depth += 1;
        let node = self.node_within(name, kind, is_optional, path)?;
        self.depth -= 1;
        self.note(&node.metadata)?;
        Ok(node)
    }

    /// Counts the bytes of notes.
    fn note(&mut self, notes: &[(String, String)]) -> Result<(), SchemaError> {
        let bytes = notes.iter().map(|(key, value)| key.len() + value.len());
        self.text.take(bytes.sum())
    }

    fn node_within(
        &mut self,
        name: &str,
        kind: &Kind,
        is_optional: bool,
        path: &str,
    ) -> Result<Node, SchemaError> {
        self.nodes.take(1)?;
        let mut metadata = Vec::new();
        let counts = &mut self.counts;
        let next = |count: &mut usize| {
            *count += 1;
            *count - 1
        };
        let presence = is_optional.then(|| next(&mut counts.w1));
        let scalar_column = |counts: &mut Counts, scalar: Scalar| match scalar.width() {
            1 => next(&mut counts.w1),
            2 => next(&mut counts.w2),
            4 => next(&mut counts.w4),
            _ => next(&mut counts.w8),
        };
        let shape = match kind {
            Kind::Scalar(scalar) => Shape::Scalar(*scalar, scalar_column(counts, *scalar)),
            Kind::Enum(names) => {
                let text: serde_json::Map<_, _> = names
                    .values
                    .iter()
                    .map(|(number, name)| (number.to_string(), name.clone().into()))
                    .collect();
                metadata.push((
                    "asof:enum".to_owned(),
                    serde_json::Value::from(text).to_string(),
                ));
                Shape::Enum(Arc::clone(names), scalar_column(counts, names.scalar()))
            }
            Kind::Text | Kind::WideText => Shape::Text(next(&mut counts.texts)),
            Kind::Json => {
                metadata.push(("asof:json".to_owned(), "true".to_owned()));
                Shape::Json(next(&mut counts.texts))
            }
            Kind::Blob => Shape::Blob(next(&mut counts.blobs)),
            Kind::FixedBlob(len) => {
                check_array(u64::from(*len))?;
                Shape::FixedBlob(*len, next(&mut counts.w1))
            }
            Kind::Struct(id)
                if let Some((scalar, len)) = even_floats(&self.types.structs[*id])
                    && self.asked.vectors.iter().any(|vector| vector == path) =>
            {
                let item = self.node("item", &Kind::Scalar(scalar), false, path)?;
                Shape::Array(len, Box::new(item))
            }
            Kind::Struct(id) => {
                if self.open.contains(id) {
                    match self.recursion {
                        Recursion::Refused(language) => {
                            return Err(SchemaError::Recursive {
                                name: self.types.structs[*id].name.clone(),
                                language,
                            });
                        }
                        Recursion::Text => {
                            metadata.push(("asof:json".to_owned(), "true".to_owned()));
                            return Ok(Node {
                                name: name.to_owned(),
                                shape: Shape::Json(next(&mut self.counts.texts)),
                                presence,
                                metadata,
                            });
                        }
                    }
                }
                self.open.push(*id);
                let group = self.group(*id, path)?;
                self.open.pop();
                Shape::Struct(group)
            }
            Kind::List(item) => {
                let ends = next(&mut counts.ends);
                let item = self.node("item", item, false, path)?;
                check_hollow(item.hollow(), HOLLOW_IN_A_LIST)?;
                Shape::List(ends, Box::new(item))
            }
            Kind::Array(item, len) => {
                check_array(u64::from(*len))?;
                let item = self.node("item", item, false, path)?;
                check_array(u64::from(*len).saturating_mul(item.elements()))?;
                Shape::Array(*len, Box::new(item))
            }
            Kind::Map(key, value) => {
                let ends = next(&mut counts.ends);
                let key = self.node("key", key, false, path)?;
                let value = self.node("value", value, false, path)?;
                check_hollow(value.hollow(), HOLLOW_IN_A_LIST)?;
                Shape::Map(ends, Box::new(key), Box::new(value))
            }
        };
        Ok(Node {
            name: name.to_owned(),
            shape,
            presence,
            metadata,
        })
    }
}

/// The type and number of a struct's fields, if they are floats of one width and nothing else.
fn even_floats(declared: &Struct) -> Option<(Scalar, u32)> {
    let Kind::Scalar(first @ (Scalar::Float32 | Scalar::Float64)) = declared.fields.first()?.kind
    else {
        return None;
    };
    let is_even = declared
        .fields
        .iter()
        .all(|field| field.kind == Kind::Scalar(first) && !field.is_optional);
    let is_plain = declared.extensibility != Some(Extensibility::Mutable)
        && declared.cases.is_none()
        && declared.fields.iter().all(|field| field.oneof.is_none());
    let names: Vec<&str> = declared.fields.iter().map(|f| f.name.as_str()).collect();
    let is_usual = usual_order(&names).is_sorted();
    (is_even && is_plain && is_usual).then_some((first, declared.fields.len() as u32))
}

/// The positions of a vector's components in the usual order, whatever the schema's: x, y, z, w and r, g, b, a. A JSON
/// schema may list them alphabetically. Other components keep their order.
pub(crate) fn usual_order(names: &[&str]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..names.len()).collect();
    for usual in [["x", "y", "z", "w"], ["r", "g", "b", "a"]] {
        let rank = |name: &str| usual.iter().position(|known| *known == name);
        if names.iter().all(|name| rank(name).is_some()) {
            places.sort_by_key(|&place| rank(names[place]));
        }
    }
    places
}

fn check_array(len: u64) -> Result<(), SchemaError> {
    if len > ARRAY_AT_MOST {
        let reason = format!("an array of {len} elements");
        return Err(SchemaError::TooLarge { reason });
    }
    Ok(())
}

/// Elements without a value take no bytes of a message, so nothing else limits how many there are to print.
fn check_hollow(count: u64, most: u64) -> Result<(), SchemaError> {
    if count > most {
        let reason = format!("arrays of {count} empty elements");
        return Err(SchemaError::TooLarge { reason });
    }
    Ok(())
}

fn metadata_of(field: &Field) -> Vec<(String, String)> {
    let mut metadata = Vec::new();
    if let Some(default) = &field.default {
        metadata.push(("asof:default".to_owned(), default.clone()));
    }
    if let Some(bound) = field.bound {
        metadata.push(("asof:bound".to_owned(), bound.to_string()));
    }
    metadata
}

impl Group {
    /// How many parts of one of these have no value.
    fn hollow(&self) -> u64 {
        if self.fields.iter().flatten().next().is_none() {
            return 1;
        }
        let fields = self.fields.iter().flatten();
        fields.fold(0, |sum, node| sum.saturating_add(node.hollow()))
    }

    /// The field at this path, if it is laid out.
    pub fn find(&self, path: &str) -> Option<&Node> {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let node = self.fields.iter().flatten().find(|n| n.name == first)?;
        match rest {
            None => Some(node),
            Some(rest) => match &node.shape {
                Shape::Struct(group) => group.find(rest),
                _ => None,
            },
        }
    }

    /// Whether a path exists, through lists too.
    fn has(&self, path: &str) -> bool {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let Some(node) = self.fields.iter().flatten().find(|n| n.name == first) else {
            return false;
        };
        rest.is_none_or(|rest| node.inner().is_some_and(|group| group.has(rest)))
    }

    pub fn truncate(&self, columns: &mut Columns, len: usize) {
        for node in self.fields.iter().flatten() {
            node.truncate(columns, len);
        }
    }

    /// Adds `count` rows of zeros and empty values.
    pub fn push_default(&self, columns: &mut Columns, count: usize) {
        for node in self.fields.iter().flatten() {
            node.push_default(columns, count);
        }
    }

    pub fn arrow_fields(&self) -> Fields {
        self.fields
            .iter()
            .flatten()
            .map(|node| Arc::new(node.arrow_field()))
            .collect()
    }
}

impl Node {
    fn inner(&self) -> Option<&Group> {
        match &self.shape {
            Shape::Struct(group) => Some(group),
            Shape::List(_, item) | Shape::Array(_, item) | Shape::Map(_, _, item) => item.inner(),
            _ => None,
        }
    }

    /// The least number of leaf values of one of these.
    fn elements(&self) -> u64 {
        match &self.shape {
            Shape::Array(len, item) => u64::from(*len).saturating_mul(item.elements()),
            Shape::FixedBlob(len, _) => u64::from(*len),
            Shape::Struct(group) => group
                .fields
                .iter()
                .flatten()
                .fold(0u64, |sum, node| sum.saturating_add(node.elements())),
            _ => 1,
        }
    }

    /// How many parts of one of these have no value.
    fn hollow(&self) -> u64 {
        match &self.shape {
            Shape::FixedBlob(0, _) | Shape::Array(0, _) => 1,
            Shape::Array(len, item) => u64::from(*len).saturating_mul(item.hollow()),
            Shape::Struct(group) => group.hollow(),
            _ => 0,
        }
    }

    pub fn truncate(&self, columns: &mut Columns, len: usize) {
        if let Some(presence) = self.presence {
            columns.w1[presence].truncate(len);
        }
        match &self.shape {
            Shape::Scalar(scalar, column) => truncate_words(columns, *scalar, *column, len),
            Shape::Enum(names, column) => truncate_words(columns, names.scalar(), *column, len),
            Shape::Text(column) | Shape::Json(column) => columns.texts[*column].truncate(len),
            Shape::Blob(column) => columns.blobs[*column].truncate(len),
            Shape::FixedBlob(size, column) => columns.w1[*column].truncate(len * *size as usize),
            Shape::Struct(group) => group.truncate(columns, len),
            Shape::List(ends, item) => {
                let inner = cut_list(columns, *ends, len);
                item.truncate(columns, inner);
            }
            Shape::Array(size, item) => item.truncate(columns, len * *size as usize),
            Shape::Map(ends, key, value) => {
                let inner = cut_list(columns, *ends, len);
                key.truncate(columns, inner);
                value.truncate(columns, inner);
            }
        }
    }

    /// Adds `count` values of zero or nothing; an optional field is absent.
    pub fn push_default(&self, columns: &mut Columns, count: usize) {
        if let Some(presence) = self.presence {
            let column = &mut columns.w1[presence];
            column.resize(column.len() + count, 0);
        }
        self.push_default_value(columns, count);
    }

    /// The same, without the presence column.
    pub fn push_default_value(&self, columns: &mut Columns, count: usize) {
        match &self.shape {
            Shape::Scalar(scalar, column) => push_zeros(columns, *scalar, *column, count),
            Shape::Enum(names, column) => push_zeros(columns, names.scalar(), *column, count),
            Shape::Text(column) => (0..count).for_each(|_| columns.texts[*column].push(b"")),
            Shape::Json(column) => (0..count).for_each(|_| columns.texts[*column].push(b"null")),
            Shape::Blob(column) => {
                let views = &mut columns.blobs[*column].views;
                views.resize(views.len() + count, 0);
            }
            Shape::FixedBlob(size, column) => {
                let column = &mut columns.w1[*column];
                column.resize(column.len() + count * *size as usize, 0);
            }
            Shape::Struct(group) => group.push_default(columns, count),
            Shape::List(ends, _) | Shape::Map(ends, _, _) => {
                let ends = &mut columns.ends[*ends];
                let last = ends.last().copied().unwrap_or(0);
                ends.resize(ends.len() + count, last);
            }
            Shape::Array(size, item) => item.push_default(columns, count * *size as usize),
        }
    }

    /// How many values there are.
    pub fn len(&self, columns: &Columns) -> Option<usize> {
        if let Some(presence) = self.presence {
            return Some(columns.w1[presence].len());
        }
        match &self.shape {
            Shape::Scalar(scalar, column) => Some(words(columns, *scalar, *column)),
            Shape::Enum(names, column) => Some(words(columns, names.scalar(), *column)),
            Shape::Text(column) | Shape::Json(column) => {
                Some(columns.texts[*column].ends.len() - 1)
            }
            Shape::Blob(column) => Some(columns.blobs[*column].views.len()),
            Shape::FixedBlob(0, _) | Shape::Array(0, _) => None,
            Shape::FixedBlob(size, column) => Some(columns.w1[*column].len() / *size as usize),
            Shape::Struct(group) => group.fields.iter().flatten().find_map(|n| n.len(columns)),
            Shape::List(ends, _) | Shape::Map(ends, _, _) => Some(columns.ends[*ends].len() - 1),
            Shape::Array(size, item) => item.len(columns).map(|len| len / *size as usize),
        }
    }

    pub fn arrow_field(&self) -> ArrowField {
        let mut metadata: HashMap<String, String> = self.metadata.iter().cloned().collect();
        if let Shape::Struct(group) = &self.shape {
            metadata.extend(group.metadata.iter().cloned());
        }
        ArrowField::new(&self.name, self.data_type(), self.presence.is_some())
            .with_metadata(metadata)
    }

    pub fn data_type(&self) -> DataType {
        match &self.shape {
            Shape::Scalar(scalar, _) => scalar_type(*scalar),
            Shape::Enum(names, _) => scalar_type(names.scalar()),
            Shape::Text(_) | Shape::Json(_) => DataType::Utf8,
            Shape::Blob(_) => DataType::BinaryView,
            Shape::FixedBlob(len, _) => DataType::FixedSizeBinary(*len as i32),
            Shape::Struct(group) => DataType::Struct(group.arrow_fields()),
            Shape::List(_, item) => DataType::List(Arc::new(item.arrow_field())),
            Shape::Array(len, item) => {
                DataType::FixedSizeList(Arc::new(item.arrow_field()), *len as i32)
            }
            Shape::Map(_, key, value) => {
                let entries = [key.arrow_field(), value.arrow_field().with_nullable(true)];
                let entries = DataType::Struct(Fields::from(entries.to_vec()));
                DataType::Map(Arc::new(ArrowField::new("entries", entries, false)), false)
            }
        }
    }
}

pub(crate) fn scalar_type(scalar: Scalar) -> DataType {
    match scalar {
        Scalar::Bool => DataType::Boolean,
        Scalar::Int8 => DataType::Int8,
        Scalar::Uint8 => DataType::UInt8,
        Scalar::Int16 => DataType::Int16,
        Scalar::Uint16 => DataType::UInt16,
        Scalar::Int32 => DataType::Int32,
        Scalar::Uint32 => DataType::UInt32,
        Scalar::Int64 => DataType::Int64,
        Scalar::Uint64 => DataType::UInt64,
        Scalar::Float32 => DataType::Float32,
        Scalar::Float64 => DataType::Float64,
    }
}

/// Truncates a list column to `len` lists, and returns how many elements those have.
fn cut_list(columns: &mut Columns, ends: usize, len: usize) -> usize {
    let ends = &mut columns.ends[ends];
    ends.truncate(len + 1);
    ends.last().copied().unwrap_or(0) as usize
}

fn truncate_words(columns: &mut Columns, scalar: Scalar, column: usize, len: usize) {
    match scalar.width() {
        1 => columns.w1[column].truncate(len),
        2 => columns.w2[column].truncate(len),
        4 => columns.w4[column].truncate(len),
        _ => columns.w8[column].truncate(len),
    }
}

fn words(columns: &Columns, scalar: Scalar, column: usize) -> usize {
    match scalar.width() {
        1 => columns.w1[column].len(),
        2 => columns.w2[column].len(),
        4 => columns.w4[column].len(),
        _ => columns.w8[column].len(),
    }
}

fn push_zeros(columns: &mut Columns, scalar: Scalar, column: usize, count: usize) {
    fn grow<T: Default + Clone>(column: &mut Vec<T>, count: usize) {
        column.resize(column.len() + count, T::default());
    }
    match scalar.width() {
        1 => grow(&mut columns.w1[column], count),
        2 => grow(&mut columns.w2[column], count),
        4 => grow(&mut columns.w4[column], count),
        _ => grow(&mut columns.w8[column], count),
    }
}
