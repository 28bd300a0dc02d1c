//! Decodes protobuf from the wire straight into columns.
//!
//! Each struct of the layout has a table from field number to slot. A field is written as it comes: the first value is
//! pushed, a later one of the same field replaces it, and missing fields are filled in at the end of their message.

use crate::columns::{Backing, Columns, Payload};
use crate::error::{Fault, PayloadError, SchemaError};
use crate::layout::{Asked, Layout, Projection, Recursion};
use crate::schema::proto::{ProtoTypes, WireKind};

use super::WireDecoder;
use super::protobuf_plan::{Act, Plan, Slot, Target, Vector, compile};
use super::protobuf_quick::{self, Quick};

/// Decodes the messages of one type.
pub(crate) struct ProtobufDecoder {
    types: std::sync::Arc<ProtoTypes>,
    layout: Layout,
    plan: Plan,
    quick: Option<Quick>,
    /// Messages to read the thorough way before the quick way is tried again.
    pause: usize,
    /// The length of the next pause.
    patience: usize,
    scratch: Scratch,
}

/// The deepest nesting of messages, for recursive types.
pub(super) const DEEPEST: usize = 64;

#[derive(Default)]
pub(super) struct Scratch {
    /// For each open message and each of its slots: how often it occurred.
    seen: Vec<u32>,
    /// Decoders of recursive types.
    inner: rustc_hash::FxHashMap<usize, Vec<ProtobufDecoder>>,
    depth: usize,
}

impl ProtobufDecoder {
    pub fn new(types: ProtoTypes, asked: Asked<'_>) -> Result<Self, SchemaError> {
        let layout = Layout::new(&types.types, asked, Recursion::Text)?;
        let plan = compile(&types, &layout.root);
        Ok(ProtobufDecoder {
            types: std::sync::Arc::new(types),
            layout,
            quick: Quick::new(&plan),
            pause: 0,
            patience: 0,
            plan,
            scratch: Scratch::default(),
        })
    }

    /// A decoder for one of the recursive structs.
    fn inner(types: &std::sync::Arc<ProtoTypes>, id: usize) -> Result<Self, SchemaError> {
        let mut rooted = types.types.clone();
        rooted.root = id;
        let layout = Layout::new(&rooted, &Projection::All, Recursion::Text)?;
        let plan = compile(types, &layout.root);
        Ok(ProtobufDecoder {
            types: std::sync::Arc::clone(types),
            layout,
            quick: None,
            pause: 0,
            patience: 0,
            plan,
            scratch: Scratch::default(),
        })
    }
}

impl WireDecoder for ProtobufDecoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn decode_one(
        &mut self,
        payload: Payload<'_>,
        columns: &mut Columns,
        rows: usize,
    ) -> Result<(), Fault> {
        if self.read_quickly(payload, columns, rows) {
            return Ok(());
        }
        self.scratch.seen.clear();
        let mut wire = Wire {
            payload,
            pos: 0,
            types: &self.types,
            scratch: &mut self.scratch,
        };
        wire.message(&self.plan, payload.bytes.len(), columns)
    }
}

/// The longest pause between attempts at the quick way.
const LONGEST_PAUSE: usize = 256;

impl ProtobufDecoder {
    /// Tries the quick way; returns whether it produced a row. It is soon tried rarely for writers whose messages
    /// never fit.
    fn read_quickly(&mut self, payload: Payload<'_>, columns: &mut Columns, rows: usize) -> bool {
        let Some(quick) = &self.quick else {
            return false;
        };
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        if protobuf_quick::read(quick, payload, columns) {
            self.patience = 0;
            return true;
        }
        self.layout.truncate(columns, rows);
        self.patience = (2 * self.patience + 1).min(LONGEST_PAUSE);
        self.pause = self.patience;
        false
    }
}

/// A read position in a payload.
pub(super) struct Wire<'a, 's> {
    pub payload: Payload<'a>,
    pub pos: usize,
    types: &'a std::sync::Arc<ProtoTypes>,
    scratch: &'s mut Scratch,
}

impl Wire<'_, '_> {
    /// Reads the message that ends at `end`.
    fn message(&mut self, plan: &Plan, end: usize, columns: &mut Columns) -> Result<(), Fault> {
        let base = self.scratch.seen.len();
        let start = self.pos;
        self.scratch.seen.resize(base + plan.slots.len(), 0);
        while self.pos < end {
            let tag = self.varint(end)?;
            let number = (tag >> 3) as u32;
            let wire_type = (tag & 7) as u8;
            if number == 0 || tag > u64::from(u32::MAX) {
                return Err(self.malformed("an invalid field number"));
            }
            let Some(at) = plan.slot(number) else {
                self.skip(wire_type, number, end, 0)?;
                continue;
            };
            let slot = &plan.slots[at];
            let came = self.scratch.seen[base + at];
            match &slot.act {
                Act::Skip => self.skip(wire_type, number, end, 0)?,
                Act::One(target) => {
                    if plan.has_oneof && slot.oneof.is_some() {
                        self.clear_others(plan, at, base, columns);
                    }
                    let is_message = matches!(
                        target,
                        Target::Message(_) | Target::Vector(_) | Target::Json(..)
                    );
                    if came > 0 && is_message {
                        self.skip(wire_type, number, end, 0)?;
                        // Once is enough: it reads all of them together.
                        if came == 1 {
                            self.scratch.seen[base + at] = 2;
                            self.merge(slot, target, start, end, columns)?;
                        }
                        continue;
                    }
                    if self.value(slot, target, wire_type, end, columns, came > 0)? {
                        if came == 0
                            && let Some(presence) = slot.presence
                        {
                            columns.w1[presence].push(1);
                        }
                        self.scratch.seen[base + at] = 1;
                    }
                }
                Act::Many(_, target) => {
                    let count = self.elements(slot, target, wire_type, end, columns)?;
                    self.scratch.seen[base + at] = came.saturating_add(count);
                }
                Act::Map(_, entry) => {
                    if wire_type != 2 {
                        self.skip(wire_type, number, end, 0)?;
                        continue;
                    }
                    let entry_end = self.delimited(end)?;
                    self.message(entry, entry_end, columns)?;
                    self.scratch.seen[base + at] = came.saturating_add(1);
                }
            }
        }
        for (at, slot) in plan.slots.iter().enumerate() {
            let came = self.scratch.seen[base + at];
            match &slot.act {
                Act::Skip => {}
                Act::One(_) if came > 0 => {}
                Act::One(_) => {
                    if let Some(node) = &slot.node {
                        node.push_default(columns, 1);
                    }
                }
                Act::Many(ends, _) | Act::Map(ends, _) => {
                    let ends = &mut columns.ends[*ends];
                    let last = ends.last().copied().unwrap_or(0);
                    let next = i32::try_from(came)
                        .ok()
                        .and_then(|came| last.checked_add(came));
                    match next {
                        Some(next) => ends.push(next),
                        None => return Err(self.malformed("more than two billion elements")),
                    }
                }
            }
        }
        self.scratch.seen.truncate(base);
        Ok(())
    }

    /// Removes the other members of a oneof.
    fn clear_others(&mut self, plan: &Plan, at: usize, base: usize, columns: &mut Columns) {
        let oneof = plan.slots[at].oneof;
        for (other, slot) in plan.slots.iter().enumerate() {
            let came = &mut self.scratch.seen[base + other];
            if other == at || slot.oneof != oneof || *came == 0 {
                continue;
            }
            *came = 0;
            if let Some(node) = &slot.node
                && let Some(len) = node.len(columns)
            {
                node.truncate(columns, len.saturating_sub(1));
            }
        }
    }

    /// A message field that occurs more than once is merged, which is equivalent to concatenating the bytes.
    fn merge(
        &mut self,
        slot: &Slot,
        target: &Target,
        start: usize,
        end: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let after = self.pos;
        self.pos = start;
        let mut joined = Vec::new();
        while self.pos < end {
            let tag = self.varint(end)?;
            let (number, wire_type) = ((tag >> 3) as u32, (tag & 7) as u8);
            if number == slot.number && wire_type == 2 {
                let inner = self.delimited(end)?;
                joined.extend_from_slice(&self.payload.bytes[self.pos..inner]);
                self.pos = inner;
            } else {
                self.skip(wire_type, number, end, 0)?;
            }
        }
        self.pos = after;
        if let Some(node) = &slot.node
            && let Some(len) = node.len(columns)
        {
            node.truncate(columns, len.saturating_sub(1));
        }
        if let Some(presence) = slot.presence {
            columns.w1[presence].push(1);
        }
        let len = joined.len();
        let mut inner = Wire {
            payload: Payload::from(joined.as_slice()),
            pos: 0,
            types: self.types,
            scratch: self.scratch,
        };
        match target {
            Target::Message(plan) => inner.message(plan, len, columns),
            Target::Vector(vector) => inner.vector(vector, len, columns),
            Target::Json(column, id) => inner.json(*column, *id, len, columns),
            _ => Ok(()),
        }
    }

    /// Reads one value; returns whether it had the declared wire type.
    #[inline]
    fn value(
        &mut self,
        slot: &Slot,
        target: &Target,
        wire_type: u8,
        end: usize,
        columns: &mut Columns,
        is_again: bool,
    ) -> Result<bool, Fault> {
        macro_rules! put {
            ($column:expr, $value:expr) => {{
                let value = $value;
                let column = &mut $column;
                match column.last_mut() {
                    Some(last) if is_again => *last = value,
                    _ => column.push(value),
                }
            }};
        }
        match (target, wire_type) {
            (Target::W8(column), 1) if slot.wire == WireKind::Fixed64 => {
                put!(columns.w8[*column], self.fixed64(end)?);
            }
            (Target::W8(column), 0) if slot.wire != WireKind::Fixed64 => {
                put!(columns.w8[*column], self.word64(slot.wire, end)?);
            }
            (Target::W4(column), 5) if slot.wire == WireKind::Fixed32 => {
                put!(columns.w4[*column], self.fixed32(end)?);
            }
            (Target::W4(column), 0) if slot.wire != WireKind::Fixed32 => {
                put!(columns.w4[*column], self.word32(slot.wire, end)?);
            }
            (Target::W1(column), 0) => {
                put!(columns.w1[*column], u8::from(self.varint(end)? != 0));
            }
            (Target::Text(column), 2) => {
                let inner = self.delimited(end)?;
                let texts = &mut columns.texts[*column];
                if is_again {
                    texts.truncate(texts.ends.len().saturating_sub(2));
                }
                texts.push(&self.payload.bytes[self.pos..inner]);
                self.pos = inner;
            }
            (Target::Blob(column), 2) => {
                let inner = self.delimited(end)?;
                let blobs = &mut columns.blobs[*column];
                if is_again {
                    blobs.views.pop();
                }
                let place = Backing {
                    owner: self.payload.owner,
                };
                blobs.push(&self.payload.bytes[self.pos..inner], self.pos, place);
                self.pos = inner;
            }
            (Target::Message(plan), 2) => {
                let inner = self.delimited(end)?;
                self.message(plan, inner, columns)?;
            }
            (Target::Vector(vector), 2) => {
                let inner = self.delimited(end)?;
                self.vector(vector, inner, columns)?;
            }
            (Target::Vector(vector), 3) if slot.wire == WireKind::Group => {
                let (inner, after) = self.group(slot.number, end)?;
                self.vector(vector, inner, columns)?;
                self.pos = after;
            }
            (Target::Message(plan), 3) if slot.wire == WireKind::Group => {
                let (inner, after) = self.group(slot.number, end)?;
                self.message(plan, inner, columns)?;
                self.pos = after;
            }
            (Target::Json(column, id), 2) => {
                let inner = self.delimited(end)?;
                self.json(*column, *id, inner, columns)?;
            }
            (Target::Json(column, id), 3) if slot.wire == WireKind::Group => {
                let (inner, after) = self.group(slot.number, end)?;
                self.json(*column, *id, inner, columns)?;
                self.pos = after;
            }
            _ => {
                self.skip(wire_type, slot.number, end, 0)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Elements of a repeated field: one, or a packed run of them.
    fn elements(
        &mut self,
        slot: &Slot,
        target: &Target,
        wire_type: u8,
        end: usize,
        columns: &mut Columns,
    ) -> Result<u32, Fault> {
        let is_packed =
            wire_type == 2 && matches!(target, Target::W1(_) | Target::W4(_) | Target::W8(_));
        if !is_packed {
            return Ok(u32::from(
                self.value(slot, target, wire_type, end, columns, false)?,
            ));
        }
        let inner = self.delimited(end)?;
        let run = &self.payload.bytes[self.pos..inner];
        let mut count = 0;
        match (target, slot.wire) {
            (Target::W8(column), WireKind::Fixed64) => {
                let (words, rest) = run.as_chunks::<8>();
                if !rest.is_empty() {
                    return Err(self.malformed("a packed field ends within an element"));
                }
                columns.w8[*column].extend(words.iter().map(|word| u64::from_le_bytes(*word)));
                count = words.len() as u32;
                self.pos = inner;
            }
            (Target::W4(column), WireKind::Fixed32) => {
                let (words, rest) = run.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(self.malformed("a packed field ends within an element"));
                }
                columns.w4[*column].extend(words.iter().map(|word| u32::from_le_bytes(*word)));
                count = words.len() as u32;
                self.pos = inner;
            }
            _ => {
                while self.pos < inner {
                    match target {
                        Target::W8(column) => {
                            let value = self.word64(slot.wire, inner)?;
                            columns.w8[*column].push(value);
                        }
                        Target::W4(column) => {
                            let value = self.word32(slot.wire, inner)?;
                            columns.w4[*column].push(value);
                        }
                        Target::W1(column) => {
                            let value = u8::from(self.varint(inner)? != 0);
                            columns.w1[*column].push(value);
                        }
                        _ => {}
                    }
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// A message of floats as one array; missing fields are zero.
    fn vector(&mut self, vector: &Vector, end: usize, columns: &mut Columns) -> Result<(), Fault> {
        let len = vector.numbers.len();
        let start = if vector.is_double {
            let column = &mut columns.w8[vector.column];
            column.resize(column.len() + len, 0);
            column.len() - len
        } else {
            let column = &mut columns.w4[vector.column];
            column.resize(column.len() + len, 0);
            column.len() - len
        };
        while self.pos < end {
            let tag = self.varint(end)?;
            if tag >> 3 == 0 || tag > u64::from(u32::MAX) {
                return Err(self.malformed("an invalid field number"));
            }
            let (number, wire_type) = ((tag >> 3) as u32, (tag & 7) as u8);
            let place = vector.numbers.iter().position(|known| *known == number);
            match (place, wire_type) {
                (Some(place), 1) if vector.is_double => {
                    columns.w8[vector.column][start + place] = self.fixed64(end)?;
                }
                (Some(place), 5) if !vector.is_double => {
                    columns.w4[vector.column][start + place] = self.fixed32(end)?;
                }
                _ => self.skip(wire_type, number, end, 0)?,
            }
        }
        Ok(())
    }

    /// A message of a recursive type, as JSON text.
    fn json(
        &mut self,
        column: usize,
        id: usize,
        end: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        if self.scratch.depth >= DEEPEST {
            return Err(Box::new(PayloadError::TooDeep {
                at: self.pos,
                limit: DEEPEST,
            }));
        }
        let known = self.scratch.inner.get_mut(&id).and_then(Vec::pop);
        let mut decoder = match known {
            Some(decoder) => decoder,
            None => ProtobufDecoder::inner(self.types, id)
                .map_err(|error| Box::new(PayloadError::malformed(self.pos, error.to_string())))?,
        };
        let mut inner = decoder.layout.columns();
        decoder.scratch.depth = self.scratch.depth + 1;
        decoder.scratch.seen.clear();
        let bytes = &self.payload.bytes[self.pos..end];
        let mut wire = Wire {
            payload: Payload::from(bytes),
            pos: 0,
            types: self.types,
            scratch: &mut decoder.scratch,
        };
        wire.message(&decoder.plan, bytes.len(), &mut inner)?;
        let mut text = Vec::new();
        decoder.layout.root.print(&inner, 0, &mut text);
        columns.texts[column].push(&text);
        self.scratch.inner.entry(id).or_default().push(decoder);
        self.pos = end;
        Ok(())
    }
}
