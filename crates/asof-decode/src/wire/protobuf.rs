//! Decodes protobuf from the wire straight into columns.
//!
//! Each struct of the layout has a table from field number to slot. A field is written as it comes: the first value is
//! pushed, a later one of the same field replaces it, and missing fields are filled in at the end of their message.

use std::collections::BTreeMap;

use crate::columns::{Backing, Columns, Payload};
use crate::error::{Fault, PayloadError, SchemaError};
use crate::layout::{Asked, Layout, Projection, Recursion};
use crate::schema::proto::{ProtoTypes, WireKind};

use super::protobuf_plan::{Act, Plan, Slot, Target, Vector, compile};
use super::protobuf_quick::{self, Quick};
use super::{BYTES_OF_A_VALUE, WireDecoder, too_many_values, values_at_most};

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
    /// For each open message and each of its oneofs: the slot that occurred last, plus one.
    chosen: Vec<u32>,
    /// Decoders of recursive types.
    inner: rustc_hash::FxHashMap<usize, Vec<ProtobufDecoder>>,
    depth: usize,
    /// How many more values there may be.
    left: usize,
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
        let layout = Layout::of(&types.types, id, &Projection::All, Recursion::Text)?;
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
        self.scratch.chosen.clear();
        self.scratch.left = values_at_most(payload.bytes.len());
        let mut wire = Wire {
            payload,
            pos: 0,
            types: &self.types,
            scratch: &mut self.scratch,
        };
        wire.message(&self.plan, payload.bytes.len(), columns)
    }
}

/// The mark of a message field that occurred more than once.
const REPEATED: u32 = 2;

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
        self.spend(plan.size)?;
        let (base, oneofs) = (self.scratch.seen.len(), self.scratch.chosen.len());
        let start = self.pos;
        self.scratch.seen.resize(base + plan.slots.len(), 0);
        self.scratch.chosen.resize(oneofs + plan.oneofs, 0);
        let mut is_repeated = false;
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
            if let Some(oneof) = slot.oneof {
                self.choose(plan, at, (base, oneofs + oneof as usize), columns);
            }
            let came = self.scratch.seen[base + at];
            match &slot.act {
                Act::Skip => self.skip(wire_type, number, end, 0)?,
                Act::One(target) => {
                    if came > 0 && target.is_message() {
                        self.skip(wire_type, number, end, 0)?;
                        if wire_type == 2 {
                            self.scratch.seen[base + at] = REPEATED;
                            is_repeated = true;
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
        if is_repeated {
            self.merge(plan, base, start, columns)?;
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
        self.scratch.chosen.truncate(oneofs);
        Ok(())
    }

    /// Counts values.
    fn spend(&mut self, values: usize) -> Result<(), Fault> {
        let left = self.scratch.left.checked_sub(values);
        self.scratch.left = left.ok_or_else(|| too_many_values(self.pos))?;
        Ok(())
    }

    /// Notes which member of a oneof occurs, and removes the one before. `places` are those of the message's first slot and
    /// of the oneof.
    fn choose(&mut self, plan: &Plan, at: usize, places: (usize, usize), columns: &mut Columns) {
        let (base, oneof) = places;
        let now = at as u32 + 1;
        let before = std::mem::replace(&mut self.scratch.chosen[oneof], now);
        if before == 0 || before == now {
            return;
        }
        let other = before as usize - 1;
        let came = std::mem::take(&mut self.scratch.seen[base + other]);
        if came > 0
            && let Some(node) = &plan.slots[other].node
            && let Some(len) = node.len(columns)
        {
            node.truncate(columns, len.saturating_sub(1));
        }
    }

    /// Reads again the message fields that occurred more than once: they are merged, which is equivalent to concatenating
    /// their bytes. Of a oneof, only what came after its last change counts.
    fn merge(
        &mut self,
        plan: &Plan,
        base: usize,
        start: usize,
        columns: &mut Columns,
    ) -> Result<(), Fault> {
        let end = std::mem::replace(&mut self.pos, start);
        let mut joined: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut chosen = rustc_hash::FxHashMap::default();
        while self.pos < end {
            let tag = self.varint(end)?;
            let (number, wire_type) = ((tag >> 3) as u32, (tag & 7) as u8);
            let Some(at) = plan.slot(number) else {
                self.skip(wire_type, number, end, 0)?;
                continue;
            };
            let slot = &plan.slots[at];
            if let Some(oneof) = slot.oneof
                && let Some(other) = chosen.insert(oneof, at)
                && other != at
            {
                joined.remove(&other);
            }
            let is_joined = matches!(&slot.act, Act::One(target) if target.is_message())
                && self.scratch.seen[base + at] == REPEATED
                && wire_type == 2;
            if is_joined {
                let inner = self.delimited(end)?;
                let bytes = &self.payload.bytes[self.pos..inner];
                joined.entry(at).or_default().extend_from_slice(bytes);
                self.pos = inner;
            } else {
                self.skip(wire_type, number, end, 0)?;
            }
        }
        for (at, bytes) in joined {
            let slot = &plan.slots[at];
            if let Some(node) = &slot.node
                && let Some(len) = node.len(columns)
            {
                node.truncate(columns, len.saturating_sub(1));
            }
            if let Some(presence) = slot.presence {
                columns.w1[presence].push(1);
            }
            let len = bytes.len();
            let mut inner = Wire {
                payload: Payload::from(bytes.as_slice()),
                pos: 0,
                types: self.types,
                scratch: self.scratch,
            };
            match &slot.act {
                Act::One(Target::Message(plan)) => inner.message(plan, len, columns)?,
                Act::One(Target::Vector(vector)) => inner.vector(vector, len, columns)?,
                Act::One(Target::Json(column, id)) => inner.json(*column, *id, len, columns)?,
                _ => {}
            }
        }
        Ok(())
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
        decoder.scratch.chosen.clear();
        decoder.scratch.left = self.scratch.left;
        let bytes = &self.payload.bytes[self.pos..end];
        let mut wire = Wire {
            payload: Payload::from(bytes),
            pos: 0,
            types: self.types,
            scratch: &mut decoder.scratch,
        };
        wire.message(&decoder.plan, bytes.len(), &mut inner)?;
        self.scratch.left = decoder.scratch.left;
        let mut text = Vec::new();
        decoder.layout.root.print(&inner, 0, &mut text);
        self.spend(text.len() / BYTES_OF_A_VALUE)?;
        columns.texts[column].push(&text);
        self.scratch.inner.entry(id).or_default().push(decoder);
        self.pos = end;
        Ok(())
    }
}
