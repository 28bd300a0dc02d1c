//! The quick way through a protobuf message, which works for almost every writer.
//!
//! Writers put fields in the order of their numbers, each once, and omit zeros. Such a message is read in one pass
//! over the possible fields: the next tag is either this field's, or the field is absent. Nothing is looked up or
//! remembered. Anything else (another order, duplicates, unknown fields, maps, groups) ends the attempt, and the
//! message is read the thorough way.

use crate::columns::{Backing, Columns, Payload};
use crate::layout::Node;
use crate::schema::proto::WireKind;

use super::protobuf_plan::{Act, Plan, Slot, Target};
use super::values_at_most;

/// The fields of one message in the order of their numbers.
#[derive(Debug)]
pub(super) struct Quick {
    steps: Vec<Step>,
    /// See [`Plan::size`].
    size: usize,
}

#[derive(Debug)]
struct Step {
    /// The field's tag, in one byte or two.
    tag: u16,
    is_wide: bool,
    does: Does,
    presence: Option<usize>,
    /// A bit for its oneof.
    oneof: u64,
    /// What is filled in where it is absent.
    node: Option<Node>,
}

#[derive(Debug)]
enum Does {
    /// Not selected.
    Skip(u8),
    Fixed64(usize),
    Fixed32(usize),
    Varint64(usize),
    Varint32(usize),
    Zigzag64(usize),
    Zigzag32(usize),
    Bool(usize),
    Text(usize),
    Blob(usize),
    Message(Quick),
    /// Floats that become one array: their tags, the column.
    Doubles(Vec<u8>, usize),
    Floats(Vec<u8>, usize),
    /// A column of ends, and the plan of an element.
    Messages(usize, Quick),
    Texts(usize, usize),
    Packed64(usize, usize),
    Packed32(usize, usize),
    PackedVarint64(usize, usize),
    PackedVarint32(usize, usize),
    /// A column of ends; if the field occurs, the thorough way is taken.
    NoneOf(usize),
    /// The same for a field that is not a list.
    NotThis,
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

impl Quick {
    pub fn new(plan: &Plan) -> Option<Self> {
        let mut slots: Vec<&Slot> = plan.slots.iter().collect();
        slots.sort_by_key(|slot| slot.number);
        let steps = slots.into_iter().map(Step::new).collect::<Option<_>>()?;
        Some(Quick {
            steps,
            size: plan.size,
        })
    }
}

impl Step {
    fn new(slot: &Slot) -> Option<Self> {
        let wire_type = match slot.wire {
            WireKind::Bool
            | WireKind::Varint32
            | WireKind::Varint64
            | WireKind::Zigzag32
            | WireKind::Zigzag64 => VARINT,
            WireKind::Fixed64 => FIXED64,
            WireKind::Fixed32 => FIXED32,
            WireKind::Bytes | WireKind::Message => DELIMITED,
            WireKind::Group => 3,
        };
        let (does, wire_type) = match &slot.act {
            Act::Skip => (Does::Skip(wire_type as u8), wire_type),
            Act::One(target) => (one(target, slot.wire)?, wire_type),
            Act::Many(ends, target) => (many(*ends, target, slot.wire)?, DELIMITED),
            Act::Map(ends, _) => (Does::NoneOf(*ends), DELIMITED),
        };
        // Tags of more than two bytes are rare: field numbers from 2048 on.
        let tag = slot.number << 3 | wire_type;
        let is_wide = slot.number >= 16;
        let tag = match slot.number {
            0..16 => tag as u16,
            16..2048 => (tag & 0x7f | 0x80 | (tag >> 7) << 8) as u16,
            _ => return None,
        };
        let oneof = match slot.oneof {
            None => 0,
            Some(index) => 1u64.checked_shl(index)?,
        };
        Some(Step {
            tag,
            is_wide,
            does,
            presence: slot.presence,
            oneof,
            node: slot.node.clone(),
        })
    }
}

fn one(target: &Target, wire: WireKind) -> Option<Does> {
    Some(match (target, wire) {
        (_, WireKind::Group) | (Target::Json(..), _) => Does::NotThis,
        (Target::W8(column), WireKind::Fixed64) => Does::Fixed64(*column),
        (Target::W8(column), WireKind::Varint64) => Does::Varint64(*column),
        (Target::W8(column), WireKind::Zigzag64) => Does::Zigzag64(*column),
        (Target::W4(column), WireKind::Fixed32) => Does::Fixed32(*column),
        (Target::W4(column), WireKind::Varint32) => Does::Varint32(*column),
        (Target::W4(column), WireKind::Zigzag32) => Does::Zigzag32(*column),
        (Target::W1(column), WireKind::Bool) => Does::Bool(*column),
        (Target::Text(column), WireKind::Bytes) => Does::Text(*column),
        (Target::Blob(column), WireKind::Bytes) => Does::Blob(*column),
        (Target::Message(plan), WireKind::Message) => Does::Message(Quick::new(plan)?),
        (Target::Vector(vector), WireKind::Message) => {
            let kind = if vector.is_double { FIXED64 } else { FIXED32 };
            let mut tags = Vec::new();
            for &number in &vector.numbers {
                if number >= 16 || tags.last().is_some_and(|last| *last >= (number << 3) as u8) {
                    return Some(Does::NotThis);
                }
                tags.push((number << 3 | kind) as u8);
            }
            if vector.is_double {
                Does::Doubles(tags, vector.column)
            } else {
                Does::Floats(tags, vector.column)
            }
        }
        _ => return None,
    })
}

fn many(ends: usize, target: &Target, wire: WireKind) -> Option<Does> {
    Some(match (target, wire) {
        (Target::W8(column), WireKind::Fixed64) => Does::Packed64(ends, *column),
        (Target::W4(column), WireKind::Fixed32) => Does::Packed32(ends, *column),
        (Target::W8(column), WireKind::Varint64) => Does::PackedVarint64(ends, *column),
        (Target::W4(column), WireKind::Varint32) => Does::PackedVarint32(ends, *column),
        (Target::Text(column), WireKind::Bytes) => Does::Texts(ends, *column),
        (Target::Message(plan), WireKind::Message) => Does::Messages(ends, Quick::new(plan)?),
        _ => Does::NoneOf(ends),
    })
}

/// Reads a payload; returns whether it was of the usual kind. If not, columns hold parts of it.
pub(super) fn read(quick: &Quick, payload: Payload<'_>, columns: &mut Columns) -> bool {
    let mut cursor = Cursor {
        left: values_at_most(payload.bytes.len()),
        bytes: payload.bytes,
        at: 0,
        place: Backing {
            owner: payload.owner,
        },
    };
    cursor
        .message(quick, payload.bytes.len(), columns)
        .is_some()
}

struct Cursor<'a> {
    /// How many more values there may be.
    left: usize,
    bytes: &'a [u8],
    at: usize,
    place: Backing<'a>,
}

impl Cursor<'_> {
    fn message(&mut self, quick: &Quick, end: usize, columns: &mut Columns) -> Option<()> {
        self.left = self.left.checked_sub(quick.size)?;
        let mut oneofs = 0;
        for step in &quick.steps {
            if !self.is_next(step, end) {
                step.fill(columns)?;
                continue;
            }
            if step.oneof & oneofs != 0 {
                return None;
            }
            oneofs |= step.oneof;
            if let Some(presence) = step.presence {
                columns.w1[presence].push(1);
            }
            self.field(step, end, columns)?;
        }
        (self.at == end).then_some(())
    }

    #[inline]
    fn is_next(&mut self, step: &Step, end: usize) -> bool {
        if step.is_wide {
            let tag = step.tag.to_le_bytes();
            let is_next = self.at + 2 <= end && self.bytes[self.at..].starts_with(&tag);
            self.at += 2 * usize::from(is_next);
            return is_next;
        }
        let is_next = self.at < end && self.bytes[self.at] == step.tag as u8;
        self.at += usize::from(is_next);
        is_next
    }

    #[inline]
    fn field(&mut self, step: &Step, end: usize, columns: &mut Columns) -> Option<()> {
        match &step.does {
            Does::Fixed64(column) => columns.w8[*column].push(self.fixed64(end)?),
            Does::Fixed32(column) => columns.w4[*column].push(self.fixed32(end)?),
            Does::Varint64(column) => columns.w8[*column].push(self.varint(end)?),
            Does::Varint32(column) => columns.w4[*column].push(self.varint(end)? as u32),
            Does::Zigzag64(column) => {
                let value = self.varint(end)?;
                columns.w8[*column].push((value >> 1) ^ (value & 1).wrapping_neg());
            }
            Does::Zigzag32(column) => {
                let value = self.varint(end)? as u32;
                columns.w4[*column].push((value >> 1) ^ (value & 1).wrapping_neg());
            }
            Does::Bool(column) => columns.w1[*column].push(u8::from(self.varint(end)? != 0)),
            Does::Text(column) => {
                let inner = self.delimited(end)?;
                columns.texts[*column].push(&self.bytes[self.at..inner]);
                self.at = inner;
            }
            Does::Blob(column) => {
                let inner = self.delimited(end)?;
                let bytes = &self.bytes[self.at..inner];
                columns.blobs[*column].push(bytes, self.at, self.place);
                self.at = inner;
            }
            Does::Message(quick) => {
                let inner = self.delimited(end)?;
                self.message(quick, inner, columns)?;
            }
            Does::Doubles(tags, column) => {
                let inner = self.delimited(end)?;
                let column = &mut columns.w8[*column];
                for &tag in tags {
                    column.push(if self.is_tag(tag, inner) {
                        self.fixed64(inner)?
                    } else {
                        0
                    });
                }
                if self.at != inner {
                    return None;
                }
            }
            Does::Floats(tags, column) => {
                let inner = self.delimited(end)?;
                let column = &mut columns.w4[*column];
                for &tag in tags {
                    column.push(if self.is_tag(tag, inner) {
                        self.fixed32(inner)?
                    } else {
                        0
                    });
                }
                if self.at != inner {
                    return None;
                }
            }
            Does::Skip(wire_type) => loop {
                self.skip(*wire_type, end)?;
                if !self.is_next(step, end) {
                    break;
                }
            },
            Does::NoneOf(_) | Does::NotThis => return None,
            Does::Messages(..)
            | Does::Texts(..)
            | Does::Packed64(..)
            | Does::Packed32(..)
            | Does::PackedVarint64(..)
            | Does::PackedVarint32(..) => self.elements(step, end, columns)?,
        }
        Some(())
    }

    fn elements(&mut self, step: &Step, end: usize, columns: &mut Columns) -> Option<()> {
        let (ends, count) = match &step.does {
            Does::Messages(ends, quick) => {
                let mut count = 0usize;
                loop {
                    let inner = self.delimited(end)?;
                    self.message(quick, inner, columns)?;
                    count += 1;
                    if !self.is_next(step, end) {
                        break (ends, count);
                    }
                }
            }
            Does::Texts(ends, column) => {
                let mut count = 0usize;
                loop {
                    let inner = self.delimited(end)?;
                    columns.texts[*column].push(&self.bytes[self.at..inner]);
                    self.at = inner;
                    count += 1;
                    if !self.is_next(step, end) {
                        break (ends, count);
                    }
                }
            }
            Does::Packed64(ends, column) => {
                let inner = self.delimited(end)?;
                let (words, rest) = self.bytes[self.at..inner].as_chunks::<8>();
                columns.w8[*column].extend(words.iter().map(|word| u64::from_le_bytes(*word)));
                self.at = inner;
                rest.is_empty().then_some((ends, words.len()))?
            }
            Does::Packed32(ends, column) => {
                let inner = self.delimited(end)?;
                let (words, rest) = self.bytes[self.at..inner].as_chunks::<4>();
                columns.w4[*column].extend(words.iter().map(|word| u32::from_le_bytes(*word)));
                self.at = inner;
                rest.is_empty().then_some((ends, words.len()))?
            }
            Does::PackedVarint64(ends, column) => {
                let inner = self.delimited(end)?;
                let before = columns.w8[*column].len();
                while self.at < inner {
                    let value = self.varint(inner)?;
                    columns.w8[*column].push(value);
                }
                (ends, columns.w8[*column].len() - before)
            }
            Does::PackedVarint32(ends, column) => {
                let inner = self.delimited(end)?;
                let before = columns.w4[*column].len();
                while self.at < inner {
                    let value = self.varint(inner)?;
                    columns.w4[*column].push(value as u32);
                }
                (ends, columns.w4[*column].len() - before)
            }
            _ => return None,
        };
        let ends = &mut columns.ends[*ends];
        let last = ends.last().copied().unwrap_or(0);
        ends.push(last.checked_add(i32::try_from(count).ok()?)?);
        Some(())
    }

    #[inline]
    fn is_tag(&mut self, tag: u8, end: usize) -> bool {
        let is_next = self.at < end && self.bytes[self.at] == tag;
        self.at += usize::from(is_next);
        is_next
    }

    #[inline]
    fn fixed64(&mut self, end: usize) -> Option<u64> {
        let bytes = self.bytes[self.at..end].first_chunk()?;
        self.at += 8;
        Some(u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn fixed32(&mut self, end: usize) -> Option<u32> {
        let bytes = self.bytes[self.at..end].first_chunk()?;
        self.at += 4;
        Some(u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn varint(&mut self, end: usize) -> Option<u64> {
        let bytes = &self.bytes[self.at..end];
        let mut value = 0u64;
        for (at, &byte) in bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.at += at + 1;
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn delimited(&mut self, end: usize) -> Option<usize> {
        let len = self.varint(end)?;
        (len <= (end - self.at) as u64).then(|| self.at + len as usize)
    }

    fn skip(&mut self, wire_type: u8, end: usize) -> Option<()> {
        match u32::from(wire_type) {
            VARINT => self.varint(end).map(drop),
            FIXED64 => self.fixed64(end).map(drop),
            FIXED32 => self.fixed32(end).map(drop),
            DELIMITED => {
                self.at = self.delimited(end)?;
                Some(())
            }
            _ => None,
        }
    }
}

impl Step {
    /// Adds the value of an absent field.
    #[inline]
    fn fill(&self, columns: &mut Columns) -> Option<()> {
        if let Some(presence) = self.presence {
            columns.w1[presence].push(0);
        }
        match &self.does {
            Does::Skip(_) => {}
            Does::Fixed64(column) | Does::Varint64(column) | Does::Zigzag64(column) => {
                columns.w8[*column].push(0);
            }
            Does::Fixed32(column) | Does::Varint32(column) | Does::Zigzag32(column) => {
                columns.w4[*column].push(0);
            }
            Does::Bool(column) => columns.w1[*column].push(0),
            Does::Text(column) => columns.texts[*column].push(b""),
            Does::Blob(column) => columns.blobs[*column].views.push(0),
            Does::NoneOf(ends)
            | Does::Messages(ends, _)
            | Does::Texts(ends, _)
            | Does::Packed64(ends, _)
            | Does::Packed32(ends, _)
            | Does::PackedVarint64(ends, _)
            | Does::PackedVarint32(ends, _) => {
                let ends = &mut columns.ends[*ends];
                let last = ends.last().copied().unwrap_or(0);
                ends.push(last);
            }
            Does::Message(_) | Does::Doubles(..) | Does::Floats(..) | Does::NotThis => {
                self.node.as_ref()?.push_default_value(columns, 1);
            }
        }
        Some(())
    }
}
