//! Decodes FlatBuffers tables into columns.

use std::collections::HashMap;
use std::sync::Arc;

use crate::columns::{Backing, Columns, Payload};
use crate::error::{Fault, PayloadError, SchemaError};
use crate::layout::{Group, Layout, Node, Projection, Recursion, Shape};
use crate::model::{Kind, MessageType, Scalar};
use crate::schema::flatbuffer::FlatTypes;

use super::WireDecoder;
use super::cdr::{push_words, scalar_width};
use super::flat_table::{Table, follow, vector};

/// Decodes the messages of one type.
pub(crate) struct FlatbufferDecoder {
    types: Arc<FlatTypes>,
    layout: Layout,
    inner: InnerLayouts,
}

/// The layouts of tables that become text, by struct: those of unions, and of recursive types.
#[derive(Default)]
struct InnerLayouts {
    known: HashMap<usize, Arc<Layout>>,
    /// The nodes of all of them.
    nodes: usize,
}

/// The most nodes of layouts that are kept.
const NODES_KEPT: usize = 200_000;

/// The deepest nesting of tables.
const MAX_DEPTH: usize = 64;

impl FlatbufferDecoder {
    pub fn new(types: FlatTypes, projection: &Projection) -> Result<Self, SchemaError> {
        let layout = Layout::new(&types.types, projection, Recursion::Text)?;
        Ok(FlatbufferDecoder {
            types: Arc::new(types),
            layout,
            inner: InnerLayouts::default(),
        })
    }
}

impl WireDecoder for FlatbufferDecoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn decode_one(
        &mut self,
        payload: Payload<'_>,
        columns: &mut Columns,
        _rows: usize,
    ) -> Result<(), Fault> {
        let mut walk = Walk {
            types: &self.types,
            inner: &mut self.inner,
            payload,
            // Parts may be shared, so a small message could have endless values.
            budget: 16 * payload.bytes.len() + (1 << 16),
            depth: 0,
        };
        let table =
            Table::root(payload.bytes).ok_or_else(|| walk.bad(0, "there is no root table"))?;
        walk.table(&self.layout.root, table, columns)
    }
}

impl InnerLayouts {
    fn of(&mut self, types: &MessageType, id: usize) -> Result<Arc<Layout>, SchemaError> {
        if let Some(known) = self.known.get(&id) {
            return Ok(Arc::clone(known));
        }
        let layout = Arc::new(Layout::of(types, id, &Projection::All, Recursion::Text)?);
        self.nodes += layout.nodes;
        if self.nodes > NODES_KEPT {
            self.nodes = layout.nodes;
            self.known.clear();
        }
        self.known.insert(id, Arc::clone(&layout));
        Ok(layout)
    }
}

struct Walk<'a> {
    types: &'a FlatTypes,
    inner: &'a mut InnerLayouts,
    payload: Payload<'a>,
    budget: usize,
    depth: usize,
}

impl<'a> Walk<'a> {
    #[cold]
    #[allow(clippy::unnecessary_box_returns, clippy::unused_self)]
    fn bad(&self, at: usize, reason: &str) -> Fault {
        Box::new(PayloadError::malformed(at, reason))
    }

    #[cold]
    #[allow(clippy::unnecessary_box_returns, clippy::unused_self)]
    fn short(&self, what: &'static str, at: usize) -> Fault {
        Box::new(PayloadError::Short {
            what,
            at,
            len: self.payload.bytes.len(),
        })
    }

    /// Subtracts values from the budget.
    fn spend(&mut self, values: usize, at: usize) -> Result<(), Fault> {
        match self.budget.checked_sub(values) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.bad(at, "far more values than bytes")),
        }
    }

    fn table(
        &mut self,
        group: &Group,
        table: Table<'a>,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        self.spend(1 + group.fields.len(), table.pos)?;
        if self.depth >= MAX_DEPTH {
            return Err(Box::new(PayloadError::TooDeep {
                at: table.pos,
                limit: MAX_DEPTH,
            }));
        }
        self.depth += 1;
        let types = self.types;
        let object = &types.objects[group.id];
        for (at, node) in group.fields.iter().enumerate() {
            let Some(node) = node else { continue };
            let kind = &types.types.structs[group.id].fields[at].kind;
            let Some(pos) = table.field(object.places[at]) else {
                self.absent(node, object.defaults[at], columns)?;
                continue;
            };
            if let Some((type_slot, choices)) = object.unions.get(&at) {
                let choice = table.u8(*type_slot);
                let chosen = choices.iter().find(|(value, _)| *value == choice);
                let inner = Table::behind(self.payload.bytes, pos);
                match (chosen, inner, node.column()) {
                    (Some((_, id)), Some(inner), Some(column)) => {
                        self.json(*id, inner, column, columns)?;
                        if let Some(presence) = node.presence {
                            columns.w1[presence].push(1);
                        }
                    }
                    _ => node.push_default(columns, 1),
                }
                continue;
            }
            self.value(kind, node, pos, false, columns)?;
            if let Some(presence) = node.presence {
                columns.w1[presence].push(1);
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// A field that a table omits: its default, or nothing.
    fn absent(&mut self, node: &Node, default: u64, columns: &mut Columns) -> Result<(), Fault> {
        self.spend(node.fill_size(), 0)?;
        let scalar = match &node.shape {
            Shape::Scalar(scalar, column) => Some((*scalar, *column)),
            Shape::Enum(names, column) => Some((names.scalar(), *column)),
            _ => None,
        };
        match scalar {
            Some((scalar, column)) if node.presence.is_none() => {
                let bytes = default.to_le_bytes();
                push_words(
                    columns,
                    scalar.width(),
                    column,
                    &bytes[..scalar.width()],
                    false,
                );
            }
            _ => node.push_default(columns, 1),
        }
        Ok(())
    }

    /// A value at `pos`: in place, or through an offset.
    fn value(
        &mut self,
        kind: &Kind,
        node: &Node,
        pos: usize,
        is_inline: bool,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let bytes = self.payload.bytes;
        match (&node.shape, kind) {
            (Shape::Scalar(scalar, column), _) => self.words(*scalar, *column, pos, 1, columns),
            (Shape::Enum(names, column), _) => self.words(names.scalar(), *column, pos, 1, columns),
            (Shape::Text(column), _) => {
                let text = self.vector_bytes(pos, 1)?.0;
                self.spend(text.len(), pos)?;
                columns.texts[*column].push(text);
                Ok(())
            }
            (Shape::Blob(column), _) => {
                let (blob, at) = self.vector_bytes(pos, 1)?;
                self.spend(blob.len(), pos)?;
                let place = Backing {
                    owner: self.payload.owner,
                };
                columns.blobs[*column].push(blob, at, place);
                Ok(())
            }
            (Shape::FixedBlob(len, column), _) => {
                self.words(Scalar::Uint8, *column, pos, *len as usize, columns)
            }
            (Shape::Struct(group), _) => {
                let object = &self.types.objects[group.id];
                if object.is_inline {
                    return self.structure(group, pos, columns);
                }
                let _ = is_inline;
                let table = Table::behind(bytes, pos).ok_or_else(|| self.short("a table", pos))?;
                self.table(group, table, columns)
            }
            (Shape::Json(column), Kind::Struct(id)) => {
                let table = Table::behind(bytes, pos).ok_or_else(|| self.short("a table", pos))?;
                self.json(*id, table, *column, columns)
            }
            (Shape::List(ends, item), Kind::List(kind)) => {
                self.list(*ends, item, kind, pos, columns)
            }
            (Shape::Array(len, item), Kind::Array(kind, _)) => {
                let width = self.element_width(kind);
                for at in 0..*len as usize {
                    self.value(kind, item, pos + at * width, true, columns)?;
                }
                Ok(())
            }
            _ => Err(self.bad(pos, "a value of a type that FlatBuffers does not have")),
        }
    }

    fn structure(&mut self, group: &Group, pos: usize, columns: &mut Columns) -> Result<(), Fault> {
        self.spend(1 + group.fields.len(), pos)?;
        if self.depth >= MAX_DEPTH {
            return Err(Box::new(PayloadError::TooDeep {
                at: pos,
                limit: MAX_DEPTH,
            }));
        }
        self.depth += 1;
        let types = self.types;
        let object = &types.objects[group.id];
        for (at, node) in group.fields.iter().enumerate() {
            let Some(node) = node else { continue };
            let kind = &types.types.structs[group.id].fields[at].kind;
            if let Some(presence) = node.presence {
                columns.w1[presence].push(1);
            }
            self.value(kind, node, pos + object.places[at], true, columns)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn list(
        &mut self,
        ends: usize,
        item: &Node,
        kind: &Kind,
        pos: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let (start, count) =
            vector(self.payload.bytes, pos).ok_or_else(|| self.short("a vector", pos))?;
        let width = self.element_width(kind);
        let end = count
            .checked_mul(width)
            .and_then(|len| start.checked_add(len));
        if end.is_none_or(|end| end > self.payload.bytes.len()) || width == 0 && count > 0 {
            return Err(self.short("a vector", pos));
        }
        self.spend(count, pos)?;
        let last = columns.ends[ends].last().copied().unwrap_or(0);
        let next = i32::try_from(count)
            .ok()
            .and_then(|count| last.checked_add(count));
        columns.ends[ends].push(next.ok_or_else(|| self.bad(pos, "too many elements"))?);
        match &item.shape {
            Shape::Scalar(scalar, column) => self.words(*scalar, *column, start, count, columns),
            Shape::Enum(names, column) => {
                self.words(names.scalar(), *column, start, count, columns)
            }
            _ => {
                for at in 0..count {
                    self.value(kind, item, start + at * width, false, columns)?;
                }
                Ok(())
            }
        }
    }

    /// The size of a vector's element: numbers and structs are in place, others are offsets.
    fn element_width(&self, kind: &Kind) -> usize {
        match kind {
            Kind::Struct(id) if self.types.objects[*id].is_inline => self.types.objects[*id].size,
            kind => scalar_width(kind).unwrap_or(4),
        }
    }

    fn words(
        &mut self,
        scalar: Scalar,
        column: usize,
        pos: usize,
        count: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let width = scalar.width();
        let end = pos.saturating_add(count.saturating_mul(width));
        let bytes = self
            .payload
            .bytes
            .get(pos..end)
            .ok_or_else(|| self.short("a number", pos))?;
        self.spend(count, pos)?;
        push_words(columns, width, column, bytes, false);
        Ok(())
    }

    fn vector_bytes(&self, pos: usize, width: usize) -> Result<(&'a [u8], usize), Fault> {
        let found = follow(self.payload.bytes, pos).and_then(|_| vector(self.payload.bytes, pos));
        let (start, count) = found.ok_or_else(|| self.short("a vector", pos))?;
        let end = start.saturating_add(count.saturating_mul(width));
        let bytes = self.payload.bytes.get(start..end);
        Ok((bytes.ok_or_else(|| self.short("a vector", pos))?, start))
    }

    /// A table as JSON text: of a union, or of a recursive type.
    fn json(
        &mut self,
        id: usize,
        table: Table<'a>,
        column: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let types = &self.types.types;
        let layout = self.inner.of(types, id);
        let layout = layout.map_err(|error| self.bad(table.pos, &error.to_string()))?;
        // Each of its fields is in the text, also where the table omits it.
        self.spend(layout.nodes, table.pos)?;
        let mut inner = layout.columns();
        self.table(&layout.root, table, &mut inner)?;
        let mut text = Vec::new();
        layout.root.print(&inner, 0, &mut text);
        self.spend(text.len(), table.pos)?;
        columns.texts[column].push(&text);
        Ok(())
    }
}
