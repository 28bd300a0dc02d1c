//! CDR, of ROS 2 and DDS, and the serialization of ROS 1, which is CDR without alignment.
//!
//! A message type is compiled into a program: a list of operations on numbered columns. Structs are flattened, so that
//! only operations that move bytes remain. Where the same lengths repeat, the [memo](super::cdr_memo) of an earlier
//! message replaces the program.

use crate::columns::{Backing, Columns, Payload};
use crate::error::{Allowance, Fault, PayloadError, SchemaError};
use crate::layout::{Asked, Group, Layout, Node, Recursion, Shape};
use crate::model::{Extensibility, Kind, MessageType};

use super::WireDecoder;
use super::cdr_memo::{Memo, NoTrace, Recorder, Trace};

/// The serialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Cdr,
    Ros1,
}

/// Decodes the messages of one type.
#[derive(Debug)]
pub(crate) struct CdrDecoder {
    pub types: MessageType,
    pub layout: Layout,
    program: Vec<Op>,
    flavour: Flavour,
    /// Whether the type has parts that only XTypes wraps: optional or mutable members, unions, maps.
    pub(super) is_wrapped: bool,
    pub(super) has_wide_text: bool,
    pub(super) wide: Wide,
    memo: Memo,
}

/// The encoding of wide strings in a payload. Writers differ, so the first one that fits is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wide {
    /// A count of characters, four bytes each (Fast CDR).
    Four,
    /// A count of characters, two bytes each.
    Two,
    /// A count of bytes, two for each character (XCDR2).
    Bytes,
}

/// One operation of a program. Columns are numbers; `None` is a column that is not selected.
#[derive(Debug)]
pub(super) enum Op {
    W1(usize),
    W2(usize),
    W4(usize),
    W8(usize),
    Skip(usize),
    /// This many scalars of this width.
    Run(usize, usize, Option<usize>),
    Text(Option<usize>),
    WideText(Option<usize>),
    Blob(Option<usize>),
    /// A sequence of scalars of this width: column of ends, column of elements.
    Words(usize, Option<(usize, usize)>),
    /// A sequence of anything else, and the least size of an element.
    Each(Option<usize>, Vec<Op>, usize),
    /// This many of anything else.
    Times(usize, Vec<Op>),
}

impl CdrDecoder {
    pub fn new(
        types: MessageType,
        asked: Asked<'_>,
        flavour: Flavour,
        language: &'static str,
    ) -> Result<Self, SchemaError> {
        let layout = Layout::new(&types, asked, Recursion::Refused(language))?;
        let mut compiler = Compiler::new(&types, flavour);
        let mut program = Vec::new();
        compiler.group(types.root, Some(&layout.root), &mut program)?;
        let (is_wrapped, has_wide_text) = (compiler.is_wrapped, compiler.has_wide_text);
        Ok(CdrDecoder {
            types,
            layout,
            program,
            flavour,
            is_wrapped,
            has_wide_text,
            wide: Wide::Four,
            memo: Memo::default(),
        })
    }
}

impl WireDecoder for CdrDecoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn decode_alike(&mut self, run: &[Payload<'_>], columns: &mut Columns) -> usize {
        let same = self.memo.matching(run, columns);
        if same > 0 {
            self.memo.transpose(&run[..same], columns);
        }
        same
    }

    fn decode_one(
        &mut self,
        payload: Payload<'_>,
        columns: &mut Columns,
        rows: usize,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::new(payload, self.flavour)?;
        cursor.wide = self.wide;
        if self.is_wrapped || cursor.is_wrapped() {
            return self.decode_wrapped(cursor, columns, rows);
        }
        if self.has_wide_text {
            return self.decode_wide(cursor, columns, rows);
        }
        if self.memo.wants_to_learn() && !cursor.is_big_endian {
            let mut recorder = Recorder::default();
            run_program(&self.program, &mut cursor, columns, &mut recorder)?;
            self.memo
                .learn(recorder, payload.bytes, self.flavour == Flavour::Cdr);
            return Ok(());
        }
        run_program(&self.program, &mut cursor, columns, &mut NoTrace)
    }
}

impl CdrDecoder {
    /// Tries the encodings of wide strings until one consumes the whole message.
    fn decode_wide(
        &mut self,
        cursor: Cursor<'_>,
        columns: &mut Columns,
        rows: usize,
    ) -> Result<(), Fault> {
        let mut first_error = None;
        for wide in [self.wide, Wide::Four, Wide::Two, Wide::Bytes] {
            let mut attempt = cursor;
            attempt.wide = wide;
            match run_program(&self.program, &mut attempt, columns, &mut NoTrace) {
                Ok(()) if attempt.left() < 4 => {
                    self.wide = wide;
                    return Ok(());
                }
                Ok(()) => {}
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
            self.layout.truncate(columns, rows);
        }
        Err(first_error.unwrap_or_else(|| {
            Box::new(PayloadError::malformed(
                cursor.pos,
                "a wide string in an unknown encoding",
            ))
        }))
    }
}

/// Executes a program on one payload.
pub(super) fn run_program<T: Trace>(
    ops: &[Op],
    cursor: &mut Cursor<'_>,
    columns: &mut Columns,
    trace: &mut T,
) -> Result<(), Fault> {
    for op in ops {
        match op {
            Op::W1(column) => {
                let at = cursor.pos;
                columns.w1[*column].push(cursor.u8()?);
                trace.words(1, *column, at, 1);
            }
            Op::W2(column) => {
                let value = cursor.u16()?;
                columns.w2[*column].push(value);
                trace.words(2, *column, cursor.pos - 2, 1);
            }
            Op::W4(column) => {
                let value = cursor.u32()?;
                columns.w4[*column].push(value);
                trace.words(4, *column, cursor.pos - 4, 1);
            }
            Op::W8(column) => {
                let value = cursor.u64()?;
                columns.w8[*column].push(value);
                trace.words(8, *column, cursor.pos - 8, 1);
            }
            Op::Skip(width) => {
                cursor.align(*width);
                cursor.bytes(*width, "a number")?;
            }
            Op::Run(width, count, column) => {
                cursor.words(*width, *count, *column, columns, trace)?;
            }
            Op::Text(column) => {
                let len = cursor.length(trace)?;
                let at = cursor.pos;
                let text = cursor.text(len)?;
                if let Some(column) = column {
                    columns.texts[*column].push(text);
                    trace.text(*column, at, len, text.len() < len);
                }
            }
            Op::WideText(column) => {
                let text = cursor.wide_text(trace)?;
                if let Some(column) = column {
                    columns.texts[*column].push(text.as_bytes());
                }
            }
            Op::Blob(column) => {
                let len = cursor.length(trace)?;
                let at = cursor.pos;
                let bytes = cursor.bytes(len, "bytes")?;
                if let Some(column) = column {
                    let place = Backing {
                        owner: cursor.payload.owner,
                    };
                    columns.blobs[*column].push(bytes, at, place);
                    trace.blob(*column, at, len);
                }
            }
            Op::Words(width, column) => {
                let count = cursor.length(trace)?;
                if let Some((ends, _)) = column {
                    push_end(columns, *ends, count, cursor)?;
                    trace.end(*ends, count);
                }
                if count > 0 {
                    let elements = column.map(|(_, elements)| elements);
                    cursor.words(*width, count, elements, columns, trace)?;
                }
            }
            Op::Each(ends, body, least) => {
                let count = cursor.length(trace)?;
                cursor.check_count(count, *least)?;
                if let Some(ends) = ends {
                    push_end(columns, *ends, count, cursor)?;
                    trace.end(*ends, count);
                }
                if !body.is_empty() {
                    for _ in 0..count {
                        run_program(body, cursor, columns, trace)?;
                    }
                }
            }
            Op::Times(count, body) => {
                for _ in 0..*count {
                    run_program(body, cursor, columns, trace)?;
                }
            }
        }
    }
    Ok(())
}

#[inline]
pub(super) fn push_end(
    columns: &mut Columns,
    ends: usize,
    count: usize,
    cursor: &Cursor<'_>,
) -> Result<(), Fault> {
    let ends = &mut columns.ends[ends];
    let last = ends.last().copied().unwrap_or(0);
    let end = i32::try_from(count)
        .ok()
        .and_then(|count| last.checked_add(count));
    let Some(end) = end else {
        return Err(Box::new(PayloadError::TooLarge {
            at: cursor.pos,
            reason: "more than two billion elements in one batch".to_owned(),
        }));
    };
    ends.push(end);
    Ok(())
}

/// A read position in a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub payload: Payload<'a>,
    pub pos: usize,
    /// The offset that alignment counts from.
    pub origin: usize,
    /// The largest alignment: 8 in XCDR1, 4 in XCDR2, 1 in ROS 1.
    pub widest: usize,
    pub is_big_endian: bool,
    pub version: Version,
    pub wide: Wide,
    /// How many more elements without bytes the message may have.
    empty_elements: usize,
}

/// The most elements of a message that take no bytes of it, all lists together.
const EMPTY_ELEMENTS: usize = 1 << 16;

/// The CDR version of the encapsulation header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Xcdr1,
    Xcdr1Parameters,
    Xcdr2(Extensibility),
}

impl<'a> Cursor<'a> {
    pub fn new(payload: Payload<'a>, flavour: Flavour) -> Result<Self, Fault> {
        let mut cursor = Cursor {
            payload,
            pos: 0,
            origin: 0,
            widest: 1,
            is_big_endian: false,
            version: Version::Xcdr1,
            wide: Wide::Four,
            empty_elements: EMPTY_ELEMENTS,
        };
        if flavour == Flavour::Ros1 {
            return Ok(cursor);
        }
        let &[high, low, _, _, ..] = payload.bytes else {
            return Err(cursor.short("the encapsulation header", 0));
        };
        // RTPS 2.5, table 10.3, and the earlier numbers of XTypes 1.2.
        cursor.version = match (high, low) {
            (0, 0x00 | 0x01) => Version::Xcdr1,
            (0, 0x02 | 0x03) => Version::Xcdr1Parameters,
            (0, 0x06 | 0x07 | 0x10 | 0x11) => Version::Xcdr2(Extensibility::Final),
            (0, 0x08 | 0x09 | 0x14 | 0x15) => Version::Xcdr2(Extensibility::Appendable),
            (0, 0x0a | 0x0b | 0x12 | 0x13) => Version::Xcdr2(Extensibility::Mutable),
            _ => {
                return Err(Box::new(PayloadError::malformed(
                    0,
                    format!("unknown CDR encapsulation {high:#04x} {low:#04x}"),
                )));
            }
        };
        cursor.is_big_endian = low & 1 == 0;
        cursor.widest = if matches!(cursor.version, Version::Xcdr2(_)) {
            4
        } else {
            8
        };
        cursor.pos = 4;
        cursor.origin = 4;
        Ok(cursor)
    }

    pub fn is_wrapped(&self) -> bool {
        self.version != Version::Xcdr1
    }

    pub fn left(&self) -> usize {
        self.payload.bytes.len().saturating_sub(self.pos)
    }

    #[cold]
    #[allow(clippy::unnecessary_box_returns, clippy::unused_self)]
    pub fn short(&self, what: &'static str, at: usize) -> Fault {
        Box::new(PayloadError::Short {
            what,
            at,
            len: self.payload.bytes.len(),
        })
    }

    #[inline]
    pub fn align(&mut self, width: usize) {
        let mask = width.min(self.widest) - 1;
        self.pos = self.origin + ((self.pos - self.origin + mask) & !mask);
    }

    #[inline]
    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Fault> {
        let end = self.pos.saturating_add(len);
        match self.payload.bytes.get(self.pos..end) {
            Some(bytes) => {
                self.pos = end;
                Ok(bytes)
            }
            None => Err(self.short(what, self.pos)),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.align(N);
        let found = self
            .payload
            .bytes
            .get(self.pos..)
            .and_then(|rest| rest.first_chunk::<N>());
        match found {
            Some(bytes) => {
                self.pos += N;
                let mut bytes = *bytes;
                if self.is_big_endian {
                    bytes.reverse();
                }
                Ok(bytes)
            }
            None => Err(self.short("a number", self.pos)),
        }
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count or a length, which determines where everything after it is.
    #[inline]
    pub fn length<T: Trace>(&mut self, trace: &mut T) -> Result<usize, Fault> {
        let value = self.u32()?;
        trace.guard(self.pos - 4, value);
        Ok(value as usize)
    }

    /// The text of this length, without a terminating zero.
    #[inline]
    pub fn text(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let bytes = self.bytes(len, "text")?;
        match bytes {
            [text @ .., 0] if self.widest > 1 => Ok(text),
            _ => Ok(bytes),
        }
    }

    pub fn wide_text<T: Trace>(&mut self, trace: &mut T) -> Result<String, Fault> {
        let count = self.length(trace)?;
        let at = self.pos;
        let bad = || Box::new(PayloadError::malformed(at, "an invalid wide string"));
        let (width, count) = match self.wide {
            Wide::Four => (4, count),
            Wide::Two => (2, count),
            Wide::Bytes => (2, count / 2),
        };
        if count == 0 {
            return Ok(String::new());
        }
        let bytes = self.bytes(count.saturating_mul(width), "wide text")?;
        let mut units = Vec::with_capacity(count);
        for unit in bytes.chunks_exact(width) {
            let mut word = [0; 4];
            word[..width].copy_from_slice(unit);
            if self.is_big_endian {
                word[..width].reverse();
            }
            let value = u32::from_le_bytes(word);
            if let Ok(unit) = u16::try_from(value) {
                units.push(unit);
                continue;
            }
            // A character outside of the basic plane, in one unit of four bytes.
            let character = char::from_u32(value).ok_or_else(bad)?;
            units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
        }
        if units.last() == Some(&0) {
            units.pop();
        }
        if units.contains(&0) {
            return Err(bad());
        }
        String::from_utf16(&units).map_err(|_| bad())
    }

    /// Refuses an impossible number of elements before memory is allocated for them.
    #[inline]
    pub fn check_count(&mut self, count: usize, least: usize) -> Result<(), Fault> {
        let most = self.left().checked_div(least);
        if count > most.unwrap_or(self.empty_elements) {
            return Err(self.short("a sequence", self.pos));
        }
        if least == 0 {
            self.empty_elements -= count;
        }
        Ok(())
    }

    /// `count` scalars of one width, to a column if there is one.
    #[inline]
    pub fn words<T: Trace>(
        &mut self,
        width: usize,
        count: usize,
        column: Option<usize>,
        columns: &mut Columns,
        trace: &mut T,
    ) -> Result<(), Fault> {
        self.align(width);
        let at = self.pos;
        let bytes = self.bytes(count.saturating_mul(width), "an array")?;
        let Some(column) = column else {
            return Ok(());
        };
        trace.words(width, column, at, count);
        push_words(columns, width, column, bytes, self.is_big_endian);
        Ok(())
    }
}

#[inline]
pub(super) fn push_words(
    columns: &mut Columns,
    width: usize,
    column: usize,
    bytes: &[u8],
    is_big_endian: bool,
) {
    macro_rules! extend {
        ($columns:expr, $word:ty) => {{
            let (words, _) = bytes.as_chunks();
            let column = &mut $columns[column];
            if is_big_endian {
                column.extend(words.iter().map(|word| <$word>::from_be_bytes(*word)));
            } else {
                column.extend(words.iter().map(|word| <$word>::from_le_bytes(*word)));
            }
        }};
    }
    match width {
        1 => columns.w1[column].extend_from_slice(bytes),
        2 => extend!(columns.w2, u16),
        4 => extend!(columns.w4, u32),
        _ => extend!(columns.w8, u64),
    }
}

pub(super) struct Compiler<'a> {
    pub types: &'a MessageType,
    flavour: Flavour,
    is_wrapped: bool,
    has_wide_text: bool,
    ops: Allowance,
    open: Vec<usize>,
}

/// The most operations of a program.
const OPS_AT_MOST: usize = 100_000;

impl<'a> Compiler<'a> {
    pub fn new(types: &'a MessageType, flavour: Flavour) -> Self {
        Compiler {
            types,
            flavour,
            is_wrapped: false,
            has_wide_text: false,
            ops: Allowance::new(OPS_AT_MOST, "values in a message"),
            open: Vec::new(),
        }
    }

    fn group(
        &mut self,
        id: usize,
        group: Option<&Group>,
        out: &mut Vec<Op>,
    ) -> Result<(), SchemaError> {
        let types = self.types;
        let declared = &types.structs[id];
        if self.open.contains(&id) {
            return Err(SchemaError::Recursive {
                name: declared.name.clone(),
                language: "CDR",
            });
        }
        self.open.push(id);
        self.is_wrapped |= declared.extensibility == Some(Extensibility::Mutable)
            || declared.cases.is_some()
            || declared.fields.iter().any(|field| field.is_optional);
        // ROS 2 gives a struct without fields one byte, since IDL does not have empty structs.
        if declared.fields.is_empty() && self.flavour == Flavour::Cdr {
            out.push(Op::Skip(1));
        }
        for (at, field) in declared.fields.iter().enumerate() {
            let node = group.and_then(|group| group.fields[at].as_ref());
            self.kind(&field.kind, node, out)?;
        }
        self.open.pop();
        Ok(())
    }

    pub fn kind(
        &mut self,
        kind: &Kind,
        node: Option<&Node>,
        out: &mut Vec<Op>,
    ) -> Result<(), SchemaError> {
        self.ops.take(1)?;
        let column = node.and_then(Node::column);
        match kind {
            Kind::Scalar(scalar) => out.push(word(scalar.width(), column)),
            Kind::Enum(names) => out.push(word(names.scalar().width(), column)),
            Kind::Text => out.push(Op::Text(column)),
            Kind::WideText => {
                self.has_wide_text = true;
                out.push(Op::WideText(column));
            }
            Kind::Blob => out.push(Op::Blob(column)),
            // An array without elements does not align.
            Kind::FixedBlob(0) | Kind::Array(_, 0) => {}
            Kind::FixedBlob(len) => out.push(Op::Run(1, *len as usize, column)),
            Kind::Struct(id) => {
                let group = match node.map(|node| &node.shape) {
                    // Floats of one width have the layout of an array.
                    Some(Shape::Array(len, item)) => {
                        let width = item.width().unwrap_or(8);
                        out.push(Op::Run(width, *len as usize, item.column()));
                        return Ok(());
                    }
                    Some(Shape::Struct(group)) => Some(group),
                    _ => None,
                };
                self.group(*id, group, out)?;
            }
            Kind::List(item) => {
                let (ends, inner) = match node.map(|node| &node.shape) {
                    Some(Shape::List(ends, inner)) => (Some(*ends), Some(&**inner)),
                    _ => (None, None),
                };
                if let Some(width) = scalar_width(item) {
                    let element = inner.and_then(Node::column);
                    out.push(Op::Words(width, ends.zip(element)));
                    return Ok(());
                }
                let mut body = Vec::new();
                self.kind(item, inner, &mut body)?;
                let least = least(&body);
                out.push(Op::Each(ends, body, least));
            }
            Kind::Array(item, len) => {
                let inner = match node.map(|node| &node.shape) {
                    Some(Shape::Array(_, inner)) => Some(&**inner),
                    _ => None,
                };
                if let Some(width) = scalar_width(item) {
                    let element = inner.and_then(Node::column);
                    out.push(Op::Run(width, *len as usize, element));
                    return Ok(());
                }
                let mut body = Vec::new();
                self.kind(item, inner, &mut body)?;
                // Elements without bytes leave nothing to do, however many.
                if !body.is_empty() {
                    out.push(Op::Times(*len as usize, body));
                }
            }
            Kind::Map(..) => self.is_wrapped = true,
            Kind::Json => {
                return Err(SchemaError::Unreadable {
                    language: "CDR",
                    reason: "values without a type".to_owned(),
                });
            }
        }
        Ok(())
    }
}

pub(super) fn scalar_width(kind: &Kind) -> Option<usize> {
    match kind {
        Kind::Scalar(scalar) => Some(scalar.width()),
        Kind::Enum(names) => Some(names.scalar().width()),
        _ => None,
    }
}

fn word(width: usize, column: Option<usize>) -> Op {
    match (width, column) {
        (width, None) => Op::Skip(width),
        (1, Some(column)) => Op::W1(column),
        (2, Some(column)) => Op::W2(column),
        (4, Some(column)) => Op::W4(column),
        (_, Some(column)) => Op::W8(column),
    }
}

/// The least number of bytes that a program can take, without padding.
pub(super) fn least(ops: &[Op]) -> usize {
    ops.iter().fold(0usize, |sum, op| {
        sum.saturating_add(match op {
            Op::W1(_) => 1,
            Op::W2(_) => 2,
            Op::W4(_)
            | Op::Text(_)
            | Op::WideText(_)
            | Op::Blob(_)
            | Op::Words(..)
            | Op::Each(..) => 4,
            Op::W8(_) => 8,
            Op::Skip(width) => *width,
            Op::Run(width, count, _) => width.saturating_mul(*count),
            Op::Times(count, body) => count.saturating_mul(least(body)),
        })
    })
}

impl Node {
    /// The width of a scalar.
    pub fn width(&self) -> Option<usize> {
        match &self.shape {
            Shape::Scalar(scalar, _) => Some(scalar.width()),
            Shape::Enum(names, _) => Some(names.scalar().width()),
            _ => None,
        }
    }

    /// The column of a leaf.
    pub fn column(&self) -> Option<usize> {
        match &self.shape {
            Shape::Scalar(_, column)
            | Shape::Enum(_, column)
            | Shape::Text(column)
            | Shape::Json(column)
            | Shape::Blob(column)
            | Shape::FixedBlob(_, column) => Some(*column),
            _ => None,
        }
    }
}
