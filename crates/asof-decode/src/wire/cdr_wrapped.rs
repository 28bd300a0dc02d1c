//! CDR with the wrapping of DDS-XTypes: lengths before structs, ids before members, absent members.
//!
//! This walks the message type itself, without a program: for XCDR2, for parameter lists, and for types with optional
//! members, unions or maps.

use crate::columns::{Backing, Columns};
use crate::error::{Fault, PayloadError};
use crate::layout::{Group, Node, Shape};
use crate::model::{Extensibility, Field, Kind, MessageType, Scalar, Struct};

use super::cdr::{CdrDecoder, Cursor, Version, Wide, push_end, push_words, scalar_width};
use super::cdr_memo::NoTrace;

/// The end of a parameter list, in XTypes and in RTPS.
const LIST_END: [u16; 2] = [0x3f02, 0x0001];
/// A parameter whose id and length follow in 32 bits each.
const EXTENDED: u16 = 0x3f01;
/// At most this many values that are missing at the end of an older struct are filled in.
const FILLED_AT_MOST: usize = 1 << 16;
/// The most bytes after a message that has its own length: transports pad to at most a multiple of this.
const PADDING: usize = 8;

impl CdrDecoder {
    pub(super) fn decode_wrapped(
        &mut self,
        cursor: Cursor<'_>,
        columns: &mut Columns,
        rows: usize,
    ) -> Result<(), Fault> {
        let mut first_error = None;
        let ways = match cursor.version {
            Version::Xcdr2(_) => [Wide::Bytes, Wide::Four, Wide::Two],
            _ => [self.wide, Wide::Four, Wide::Two],
        };
        for wide in ways {
            let mut attempt = cursor;
            attempt.wide = wide;
            let mut walk = Walk {
                types: &self.types,
                cursor: attempt,
                columns,
                filled: 0,
            };
            let whole = walk.group(self.types.root, Some(&self.layout.root));
            match whole.and_then(|()| walk.is_even()) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
            self.layout.truncate(columns, rows);
        }
        Err(first_error.unwrap_or_else(|| cursor.short("the message", cursor.pos)))
    }
}

struct Walk<'a> {
    types: &'a MessageType,
    cursor: Cursor<'a>,
    columns: &'a mut Columns,
    filled: usize,
}

impl Walk<'_> {
    fn is_xcdr2(&self) -> bool {
        matches!(self.cursor.version, Version::Xcdr2(_))
    }

    fn extensibility(&self, declared: &Struct) -> Extensibility {
        declared.extensibility.unwrap_or(match self.cursor.version {
            Version::Xcdr1 => Extensibility::Final,
            Version::Xcdr1Parameters => Extensibility::Mutable,
            Version::Xcdr2(extensibility) => extensibility,
        })
    }

    /// Refuses a message whose own length is far shorter than its payload: the excluded bytes would be taken for
    /// members that an older writer did not have.
    fn is_even(&self) -> Result<(), Fault> {
        let (pos, left) = (self.cursor.pos, self.cursor.left());
        let root = &self.types.structs[self.types.root];
        let has_length = self.is_xcdr2() && self.extensibility(root) != Extensibility::Final;
        if !has_length || left < PADDING {
            return Ok(());
        }
        let reason =
            format!("the message ends here according to its own length, but {left} bytes follow");
        Err(Box::new(PayloadError::malformed(pos, reason)))
    }

    fn group(&mut self, id: usize, group: Option<&Group>) -> Result<(), Fault> {
        let types = self.types;
        let declared = &types.structs[id];
        let extensibility = self.extensibility(declared);
        let is_delimited = self.is_xcdr2() && extensibility != Extensibility::Final;
        self.delimited(is_delimited, |walk, end| {
            if let Some(cases) = &declared.cases {
                walk.union(declared, cases, group)
            } else if extensibility == Extensibility::Mutable {
                walk.members(declared, group, end)
            } else {
                walk.fields(declared, group, end)
            }
        })
    }

    /// Reads a length-prefixed value, and continues after its length whatever was read.
    fn delimited(
        &mut self,
        is_delimited: bool,
        read: impl FnOnce(&mut Self, Option<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !is_delimited {
            return read(self, None);
        }
        let len = self.cursor.u32()? as usize;
        self.bounded(len, "a delimited value", |walk, end| read(walk, Some(end)))
    }

    /// Reads a value of exactly the next `len` bytes, and continues after them.
    fn bounded(
        &mut self,
        len: usize,
        what: &'static str,
        read: impl FnOnce(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.cursor.pos;
        if len > self.cursor.left() {
            return Err(self.cursor.short(what, start));
        }
        let (whole, end) = (self.cursor.payload.bytes, start + len);
        self.cursor.payload.bytes = &whole[..end];
        let done = read(self, end);
        self.cursor.payload.bytes = whole;
        self.cursor.pos = end;
        done.map_err(|fault| match *fault {
            PayloadError::Short { what, at, len } if len == end && end < whole.len() => {
                let reason = format!("{what} reaches past byte {end}, the end of its length");
                Box::new(PayloadError::malformed(at, reason))
            }
            other => Box::new(other),
        })
    }

    /// Fields in order; an older writer may have omitted the last ones.
    fn fields(
        &mut self,
        declared: &Struct,
        group: Option<&Group>,
        end: Option<usize>,
    ) -> Result<(), Fault> {
        if declared.fields.is_empty() && end.is_none() {
            self.cursor.u8()?;
        }
        for (at, field) in declared.fields.iter().enumerate() {
            let node = group.and_then(|group| group.fields[at].as_ref());
            if end.is_some_and(|end| self.cursor.pos >= end) {
                self.fill(node)?;
                continue;
            }
            if !field.is_optional {
                self.value(&field.kind, node)?;
                continue;
            }
            if self.is_xcdr2() {
                if self.cursor.u8()? == 0 {
                    self.fill(node)?;
                } else {
                    self.present(field, node)?;
                }
                continue;
            }
            let (_, len) = self.parameter()?;
            if len == 0 {
                self.fill(node)?;
                continue;
            }
            self.within(len, |walk| walk.present(field, node))?;
        }
        Ok(())
    }

    /// Members by id, in any order, each with its length.
    fn members(
        &mut self,
        declared: &Struct,
        group: Option<&Group>,
        end: Option<usize>,
    ) -> Result<(), Fault> {
        let mut seen = vec![false; declared.fields.len()];
        loop {
            let (id, len) = match end {
                Some(end) if self.cursor.pos >= end => break,
                Some(_) => self.member_header()?,
                None => match self.parameter()? {
                    (u32::MAX, _) => break,
                    parameter => parameter,
                },
            };
            let place = declared.fields.iter().position(|field| field.number == id);
            let Some(place) = place.filter(|&place| !seen[place]) else {
                self.cursor.bytes(len, "a member")?;
                continue;
            };
            seen[place] = true;
            let field = &declared.fields[place];
            let node = group.and_then(|group| group.fields[place].as_ref());
            self.within(len, |walk| walk.present(field, node))?;
        }
        for (place, _) in seen.iter().enumerate().filter(|(_, is_seen)| !**is_seen) {
            let node = group.and_then(|group| group.fields[place].as_ref());
            self.fill(node)?;
        }
        Ok(())
    }

    /// The member header of XCDR2: flags, a length code, and the id.
    fn member_header(&mut self) -> Result<(u32, usize), Fault> {
        let header = self.cursor.u32()?;
        let id = header & 0x0fff_ffff;
        let code = header >> 28 & 7;
        if code < 4 {
            return Ok((id, 1 << code));
        }
        let next = self.cursor.u32()? as usize;
        if code == 4 {
            return Ok((id, next));
        }
        // The length is also the member's own first word.
        self.cursor.pos -= 4;
        let width = [1, 4, 8][code as usize - 5];
        Ok((id, next.saturating_mul(width).saturating_add(4)))
    }

    /// The parameter header of XCDR1; the end of the list has the largest id.
    fn parameter(&mut self) -> Result<(u32, usize), Fault> {
        self.cursor.align(4);
        let id = self.cursor.u16()?;
        let len = self.cursor.u16()? as usize;
        let bare = id & 0x3fff;
        if LIST_END.contains(&bare) {
            return Ok((u32::MAX, 0));
        }
        if bare == EXTENDED {
            let id = self.cursor.u32()? & 0x0fff_ffff;
            return Ok((id, self.cursor.u32()? as usize));
        }
        Ok((u32::from(bare), len))
    }

    /// Reads a member of `len` bytes, and continues after it whatever was read.
    fn within(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let origin = self.cursor.origin;
        self.bounded(len, "a member", |walk, _| {
            if !walk.is_xcdr2() {
                walk.cursor.origin = walk.cursor.pos;
            }
            read(walk)
        })?;
        self.cursor.origin = origin;
        Ok(())
    }

    fn union(
        &mut self,
        declared: &Struct,
        cases: &[crate::model::Case],
        group: Option<&Group>,
    ) -> Result<(), Fault> {
        let Some((discriminator, members)) = declared.fields.split_first() else {
            return Ok(());
        };
        let node_of = |at: usize| group.and_then(|group| group.fields[at].as_ref());
        let label = self.peek_label(&discriminator.kind)?;
        self.value(&discriminator.kind, node_of(0))?;
        let chosen = cases
            .iter()
            .position(|case| case.labels.contains(&label))
            .or_else(|| cases.iter().position(|case| case.is_default));
        for (at, field) in members.iter().enumerate() {
            if Some(at) == chosen {
                self.present(field, node_of(at + 1))?;
            } else {
                self.fill(node_of(at + 1))?;
            }
        }
        Ok(())
    }

    fn peek_label(&self, kind: &Kind) -> Result<i64, Fault> {
        let mut ahead = self.cursor;
        let scalar = match kind {
            Kind::Scalar(scalar) => *scalar,
            Kind::Enum(names) => names.scalar(),
            _ => Scalar::Int32,
        };
        Ok(match scalar {
            Scalar::Int8 => i64::from(ahead.u8()? as i8),
            Scalar::Bool | Scalar::Uint8 => i64::from(ahead.u8()?),
            Scalar::Int16 => i64::from(ahead.u16()? as i16),
            Scalar::Uint16 => i64::from(ahead.u16()?),
            Scalar::Int32 => i64::from(ahead.u32()? as i32),
            Scalar::Uint32 | Scalar::Float32 => i64::from(ahead.u32()?),
            _ => ahead.u64()? as i64,
        })
    }

    fn present(&mut self, field: &Field, node: Option<&Node>) -> Result<(), Fault> {
        if let Some(presence) = node.and_then(|node| node.presence) {
            self.columns.w1[presence].push(1);
        }
        self.value(&field.kind, node)
    }

    /// Adds a value that is not in the payload.
    fn fill(&mut self, node: Option<&Node>) -> Result<(), Fault> {
        let Some(node) = node else { return Ok(()) };
        self.filled = self.filled.saturating_add(node.fill_size());
        if self.filled > FILLED_AT_MOST.max(16 * self.cursor.payload.bytes.len()) {
            return Err(Box::new(PayloadError::TooLarge {
                at: self.cursor.pos,
                reason: "more values are missing than can be filled in".to_owned(),
            }));
        }
        node.push_default(self.columns, 1);
        Ok(())
    }

    fn value(&mut self, kind: &Kind, node: Option<&Node>) -> Result<(), Fault> {
        let column = node.and_then(Node::column);
        let place = Backing {
            owner: self.cursor.payload.owner,
        };
        match kind {
            Kind::Scalar(_) | Kind::Enum(_) => {
                let width = scalar_width(kind).unwrap_or(4);
                self.cursor
                    .words(width, 1, column, self.columns, &mut NoTrace)?;
            }
            Kind::Text => {
                let len = self.cursor.u32()? as usize;
                let text = self.cursor.text(len)?;
                if let Some(column) = column {
                    self.columns.texts[column].push(text);
                }
            }
            Kind::WideText => {
                let text = self.cursor.wide_text(&mut NoTrace)?;
                if let Some(column) = column {
                    self.columns.texts[column].push(text.as_bytes());
                }
            }
            Kind::Blob => {
                let len = self.cursor.u32()? as usize;
                let at = self.cursor.pos;
                let bytes = self.cursor.bytes(len, "bytes")?;
                if let Some(column) = column {
                    self.columns.blobs[column].push(bytes, at, place);
                }
            }
            Kind::FixedBlob(len) => {
                let bytes = self.cursor.bytes(*len as usize, "bytes")?;
                if let Some(column) = column {
                    push_words(self.columns, 1, column, bytes, false);
                }
            }
            Kind::Struct(id) => {
                let group = match node.map(|node| &node.shape) {
                    // Every field goes to the single column of the array.
                    Some(Shape::Array(len, item)) => {
                        let fields = vec![Some((**item).clone()); *len as usize];
                        let group = Group {
                            id: *id,
                            fields,
                            metadata: Vec::new(),
                        };
                        return self.group(*id, Some(&group));
                    }
                    Some(Shape::Struct(group)) => Some(group),
                    _ => None,
                };
                self.group(*id, group)?;
            }
            Kind::List(item) => self.list(item, node)?,
            Kind::Array(item, len) => {
                let inner = match node.map(|node| &node.shape) {
                    Some(Shape::Array(_, inner)) => Some(&**inner),
                    _ => None,
                };
                self.delimited(self.is_long(item), |walk, _| {
                    if let Some(width) = scalar_width(item) {
                        let (element, len) = (inner.and_then(Node::column), *len as usize);
                        let columns = &mut *walk.columns;
                        if len > 0 {
                            walk.cursor
                                .words(width, len, element, columns, &mut NoTrace)?;
                        }
                        return Ok(());
                    }
                    for _ in 0..*len {
                        let before = walk.cursor.pos;
                        walk.value(item, inner)?;
                        // Elements that take no bytes and have no column leave nothing to do, however many.
                        if inner.is_none() && walk.cursor.pos == before {
                            break;
                        }
                    }
                    Ok(())
                })?;
            }
            Kind::Map(key, value) => {
                let (ends, key_node, value_node) = match node.map(|node| &node.shape) {
                    Some(Shape::Map(ends, key, value)) => {
                        (Some(*ends), Some(&**key), Some(&**value))
                    }
                    _ => (None, None, None),
                };
                self.delimited(self.is_long(key) || self.is_long(value), |walk, _| {
                    let count = walk.cursor.u32()? as usize;
                    walk.cursor.check_count(count, 1)?;
                    if let Some(ends) = ends {
                        push_end(walk.columns, ends, count, &walk.cursor)?;
                    }
                    for _ in 0..count {
                        walk.value(key, key_node)?;
                        walk.value(value, value_node)?;
                    }
                    Ok(())
                })?;
            }
            Kind::Json => return Err(self.cursor.short("a value without a type", self.cursor.pos)),
        }
        Ok(())
    }

    fn list(&mut self, item: &Kind, node: Option<&Node>) -> Result<(), Fault> {
        let (ends, inner) = match node.map(|node| &node.shape) {
            Some(Shape::List(ends, inner)) => (Some(*ends), Some(&**inner)),
            _ => (None, None),
        };
        self.delimited(self.is_long(item), |walk, _| {
            let count = walk.cursor.u32()? as usize;
            let scalar = scalar_width(item);
            // Every element takes at least a byte: CDR does not have empty structs.
            walk.cursor.check_count(count, scalar.unwrap_or(1))?;
            if let Some(ends) = ends {
                push_end(walk.columns, ends, count, &walk.cursor)?;
            }
            if let Some(width) = scalar {
                if count > 0 {
                    let (element, columns) = (inner.and_then(Node::column), &mut *walk.columns);
                    walk.cursor
                        .words(width, count, element, columns, &mut NoTrace)?;
                }
                return Ok(());
            }
            for _ in 0..count {
                let before = walk.cursor.pos;
                walk.value(item, inner)?;
                if walk.cursor.pos == before {
                    return Err(walk.cursor.short("an element", before));
                }
            }
            Ok(())
        })
    }

    /// Whether a collection of these is length-prefixed: XCDR2 does so unless they are primitive.
    fn is_long(&self, item: &Kind) -> bool {
        self.is_xcdr2() && !is_primitive(item)
    }
}

fn is_primitive(kind: &Kind) -> bool {
    match kind {
        Kind::Scalar(_) | Kind::Enum(_) | Kind::FixedBlob(_) => true,
        // A matrix is one array in CDR.
        Kind::Array(item, _) => is_primitive(item),
        _ => false,
    }
}

impl Node {
    /// The number of values that fill in for a missing one.
    pub fn fill_size(&self) -> usize {
        match &self.shape {
            Shape::FixedBlob(len, _) => *len as usize,
            Shape::Array(len, item) => (*len as usize).saturating_mul(item.fill_size()),
            Shape::Struct(group) => group
                .fields
                .iter()
                .flatten()
                .fold(1usize, |sum, node| sum.saturating_add(node.fill_size())),
            _ => 1,
        }
    }
}
