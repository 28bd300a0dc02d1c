//! Rows of columns as a serde deserializer; and a probe without a row, to check a struct against a schema.

use std::cell::RefCell;
use std::fmt;

use asof_core::Channel;
use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};

use super::error::TypedError;
use crate::Projection;
use crate::columns::Columns;
use crate::layout::{Group, Node, Shape};
use crate::model::Scalar;
use crate::print::number_at;

/// Why a value does not fit, and its path.
#[derive(Debug)]
pub(crate) struct Fault {
    /// From the innermost name to the outermost.
    path: Vec<String>,
    reason: String,
    /// Whether it is about types, which are the same for every message.
    is_of_types: bool,
    /// Whether the reason includes what was found.
    is_complete: bool,
}

impl Fault {
    fn new(reason: String, is_of_types: bool) -> Self {
        Fault {
            path: Vec::new(),
            reason,
            is_of_types,
            is_complete: false,
        }
    }

    fn within(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self.is_complete = true;
        self
    }

    pub fn is_of_types(&self) -> bool {
        self.is_of_types
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for name in self.path.iter().rev() {
            if !path.is_empty() && !name.starts_with('[') {
                path.push('.');
            }
            path.push_str(name);
        }
        path
    }

    pub fn of_type<T>(self, channel: &Channel) -> TypedError {
        TypedError::Misfit {
            topic: channel.topic.clone(),
            type_name: channel.type_name().to_owned(),
            wanted: std::any::type_name::<T>(),
            path: self.path(),
            reason: self.reason,
        }
    }

    pub fn of_value(self) -> TypedError {
        TypedError::Value {
            path: self.path(),
            reason: self.reason,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.reason)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Fault::new(message.to_string(), false)
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Fault::new(format!("{expected} is expected"), true)
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Fault::new(
            format!("there are {len} elements, expected {expected}"),
            true,
        )
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        let reason = "the struct does not have this field and denies unknown fields".to_owned();
        Fault::new(reason, true).within(field)
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::new("the message does not have this field".to_owned(), true).within(field)
    }
}

/// Finds out which fields a struct reads, without a message.
pub(crate) struct Probe {
    /// The names of the fields that are being read.
    open: RefCell<Vec<String>>,
    used: RefCell<Vec<String>>,
    is_loose: bool,
}

impl Probe {
    pub fn new(is_loose: bool) -> Self {
        Probe {
            open: RefCell::default(),
            used: RefCell::default(),
            is_loose,
        }
    }

    pub fn root<'a>(&'a self, root: &'a Group) -> NodeReader<'a> {
        NodeReader {
            place: Position::Group(root, None),
            at: At::Probe(self),
        }
    }

    /// The fields that were read.
    pub fn projection(&self) -> Option<Projection> {
        let used = self.used.borrow();
        let is_some = !used.is_empty() && used.iter().all(|path| !path.is_empty());
        is_some.then(|| Projection::paths(used.iter().cloned()))
    }

    fn mark(&self) {
        let path = self.open.borrow().join(".");
        let mut used = self.used.borrow_mut();
        if used.last() != Some(&path) {
            used.push(path);
        }
    }
}

/// A value: of a row, or the simplest that its type allows.
#[derive(Clone, Copy)]
pub(crate) struct NodeReader<'a> {
    place: Position<'a>,
    at: At<'a>,
}

#[derive(Clone, Copy)]
enum Position<'a> {
    Group(&'a Group, Option<&'a [usize]>),
    Node(&'a Node),
}

#[derive(Clone, Copy)]
enum At<'a> {
    Row(&'a Columns, usize),
    Probe(&'a Probe),
}

/// The most elements of an array that are probed.
const TRIED: usize = 4096;

impl<'a> NodeReader<'a> {
    pub fn row(root: &'a Group, columns: &'a Columns, row: usize, shown: &'a [usize]) -> Self {
        NodeReader {
            place: Position::Group(root, Some(shown)),
            at: At::Row(columns, row),
        }
    }

    fn group(&self) -> Option<(&'a Group, Option<&'a [usize]>)> {
        match self.place {
            Position::Group(group, shown) => Some((group, shown)),
            Position::Node(node) => match &node.shape {
                Shape::Struct(group) => Some((group, None)),
                _ => None,
            },
        }
    }

    fn shape(&self) -> Option<&'a Shape> {
        match self.place {
            Position::Group(..) => None,
            Position::Node(node) => Some(&node.shape),
        }
    }

    /// The type in the schema.
    fn kind(&self) -> String {
        match self.shape() {
            None | Some(Shape::Struct(_)) => "a struct".to_owned(),
            Some(Shape::Scalar(scalar, _)) => format!("{scalar:?}").to_lowercase(),
            Some(Shape::Enum(names, _)) => format!("the enum {}", names.name),
            Some(Shape::Text(_)) => "a text".to_owned(),
            Some(Shape::Json(_)) => "any JSON".to_owned(),
            Some(Shape::Blob(_) | Shape::FixedBlob(..)) => "bytes".to_owned(),
            Some(Shape::List(..)) => "a list".to_owned(),
            Some(Shape::Array(len, _)) => format!("an array of {len}"),
            Some(Shape::Map(..)) => "a map".to_owned(),
        }
    }

    /// Records that the value is read.
    fn mark(&self) {
        if let At::Probe(probe) = self.at {
            probe.mark();
        }
    }

    /// Adds what was found to the reason.
    fn told<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|mut fault| {
            if !fault.is_complete {
                fault.reason = format!("it is {}; {}", self.kind(), fault.reason);
                fault.is_complete = true;
            }
            fault
        })
    }

    fn any<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let Some(shape) = self.shape() else {
            return self.fields(visitor);
        };
        match shape {
            Shape::Scalar(scalar, column) => self.scalar(*scalar, *column, visitor),
            Shape::Enum(names, column) => self.scalar(names.scalar(), *column, visitor),
            Shape::Text(column) => {
                self.mark();
                match self.at {
                    At::Row(columns, row) => {
                        visitor.visit_str(&String::from_utf8_lossy(columns.texts[*column].get(row)))
                    }
                    At::Probe(_) => visitor.visit_str(""),
                }
            }
            Shape::Json(column) => {
                self.mark();
                match self.at {
                    At::Row(columns, row) => {
                        let text = columns.texts[*column].get(row);
                        let value = serde_json::from_slice::<serde_json::Value>(text);
                        let read = value.and_then(|value| value.deserialize_any(visitor));
                        read.map_err(|error| Fault::new(error.to_string(), false))
                    }
                    // It may be anything, so it cannot be checked.
                    At::Probe(_) => Err(Fault::new("any JSON".to_owned(), false)),
                }
            }
            Shape::Blob(_) | Shape::FixedBlob(..) => {
                self.mark();
                visitor.visit_bytes(self.bytes())
            }
            Shape::Struct(_) => self.fields(visitor),
            Shape::List(..) | Shape::Array(..) => self.items(visitor),
            Shape::Map(ends, key, value) => {
                self.mark();
                let (places, at) = match self.at {
                    At::Row(columns, row) => {
                        let ends = &columns.ends[*ends];
                        (ends[row] as usize..ends[row + 1] as usize, self.at)
                    }
                    At::Probe(_) => (0..1, self.at),
                };
                visitor.visit_map(Entries {
                    key,
                    value,
                    places,
                    at,
                    next: 0,
                })
            }
        }
    }

    fn scalar<'de, V: Visitor<'de>>(
        self,
        scalar: Scalar,
        column: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.mark();
        let (number, bits) = match self.at {
            At::Probe(_) => (0, 0),
            At::Row(columns, row) => {
                let bits = match scalar.width() {
                    4 => u64::from(columns.w4[column][row]),
                    8 => columns.w8[column][row],
                    _ => 0,
                };
                (number_at(columns, scalar, column, row), bits)
            }
        };
        match scalar {
            Scalar::Bool => visitor.visit_bool(number != 0),
            Scalar::Float32 => visitor.visit_f32(f32::from_bits(bits as u32)),
            Scalar::Float64 => visitor.visit_f64(f64::from_bits(bits)),
            Scalar::Uint64 => visitor.visit_u64(bits),
            Scalar::Uint8 | Scalar::Uint16 | Scalar::Uint32 => visitor.visit_u64(number as u64),
            _ => visitor.visit_i64(number),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match (self.shape(), self.at) {
            (Some(Shape::Blob(column)), At::Row(columns, row)) => columns.blobs[*column].get(row),
            (Some(Shape::FixedBlob(len, column)), At::Row(columns, row)) => {
                let len = *len as usize;
                &columns.w1[*column][row * len..(row + 1) * len]
            }
            _ => &[],
        }
    }

    fn fields<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let Some((group, shown)) = self.group() else {
            return Err(Fault::new("a struct is expected".to_owned(), true));
        };
        let before = match self.at {
            At::Probe(probe) => probe.used.borrow().len(),
            At::Row(..) => 0,
        };
        let value = visitor.visit_map(Fields {
            group,
            shown,
            at: self.at,
            next: 0,
            open: None,
        })?;
        // A struct of which no field is read is selected all the same.
        if let At::Probe(probe) = self.at
            && probe.used.borrow().len() == before
        {
            probe.mark();
        }
        Ok(value)
    }

    fn items<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let (item, places) = match (self.shape(), self.at) {
            (Some(Shape::List(_, item)), At::Probe(_)) => (item, 0..1),
            (Some(Shape::Array(len, item)), At::Probe(_)) => (item, 0..(*len as usize).min(TRIED)),
            (Some(Shape::List(ends, item)), At::Row(columns, row)) => {
                let ends = &columns.ends[*ends];
                (item, ends[row] as usize..ends[row + 1] as usize)
            }
            (Some(Shape::Array(len, item)), At::Row(_, row)) => {
                let len = *len as usize;
                (item, row * len..(row + 1) * len)
            }
            _ => return Err(Fault::new("a list is expected".to_owned(), true)),
        };
        self.mark();
        let is_list = matches!(self.shape(), Some(Shape::List(..)));
        let len = places.len();
        let mut items = Items {
            item,
            places,
            at: self.at,
            next: 0,
        };
        let value = visitor.visit_seq(&mut items);
        // The length of a list is known only with each message.
        let value = value.map_err(|mut fault| {
            fault.is_of_types &= !(is_list && fault.path.is_empty());
            fault
        })?;
        if items.places.is_empty() {
            return Ok(value);
        }
        let read = len - items.places.len();
        let reason = format!("there are {len} elements, expected {read}");
        Err(Fault::new(reason, !is_list))
    }
}

impl<'de> Deserializer<'de> for NodeReader<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.told(self.any(visitor))
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let (At::Probe(probe), Some(Shape::Scalar(Scalar::Float64, _))) = (self.at, self.shape())
            && !probe.is_loose
        {
            let fault = Fault::new("f32 is expected, which is narrower".to_owned(), true);
            return self.told(Err(fault));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// Bytes can be read as a list of numbers, and so can the fields of a struct.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if let Some(Shape::Blob(_) | Shape::FixedBlob(..)) = self.shape() {
            self.mark();
            let bytes = self.bytes().iter().copied();
            let mut bytes = de::value::SeqDeserializer::new(bytes);
            let value = visitor.visit_seq(&mut bytes);
            return self.told(value.map_err(|mut fault: Fault| {
                fault.is_of_types &= matches!(self.at, At::Row(..));
                fault
            }));
        }
        let Some((group, shown)) = self.group() else {
            return self.deserialize_any(visitor);
        };
        let mut fields = Fields {
            group,
            shown,
            at: self.at,
            next: 0,
            open: None,
        };
        let value = self.told(visitor.visit_seq(&mut fields))?;
        if fields.advance() {
            let reason = "fewer fields are expected".to_owned();
            return self.told(Err(Fault::new(reason, true)));
        }
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let Some(Shape::Enum(names, column)) = self.shape() else {
            return self.deserialize_any(visitor);
        };
        self.mark();
        let At::Row(columns, row) = self.at else {
            return visitor.visit_str(names.values.first().map_or("", |(_, name)| name));
        };
        let number = number_at(columns, names.scalar(), *column, row);
        match names.name_of(number) {
            Some(name) => visitor.visit_str(name),
            None => visitor.visit_str(&number.to_string()),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let name = <String as de::Deserialize>::deserialize(self)?;
        let name: StringDeserializer<Fault> = name.into_deserializer();
        self.told(visitor.visit_enum(name))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f64 char bytes byte_buf unit unit_struct map struct identifier
    }
}

/// The fields of a struct.
struct Fields<'a> {
    group: &'a Group,
    shown: Option<&'a [usize]>,
    at: At<'a>,
    next: usize,
    open: Option<&'a Node>,
}

impl Fields<'_> {
    /// Advances to the next present field; returns whether there is one.
    fn advance(&mut self) -> bool {
        while let Some(node) = self.group.fields.get(self.next) {
            let place = self.next;
            self.next += 1;
            let is_shown = self.shown.is_none_or(|shown| shown.contains(&place));
            let Some(node) = node.as_ref().filter(|_| is_shown) else {
                continue;
            };
            if let At::Row(columns, row) = self.at
                && node.is_absent(columns, row)
            {
                continue;
            }
            self.open = Some(node);
            return true;
        }
        false
    }

    fn read<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some(node) = self.open.take() else {
            return Err(Fault::new("there is no field".to_owned(), false));
        };
        read_named(node, &node.name, self.at, seed)
    }
}

fn read_named<'de, S: DeserializeSeed<'de>>(
    node: &Node,
    name: &str,
    at: At<'_>,
    seed: S,
) -> Result<S::Value, Fault> {
    if let At::Probe(probe) = at {
        probe.open.borrow_mut().push(name.to_owned());
    }
    let reader = NodeReader {
        place: Position::Node(node),
        at,
    };
    let value = seed.deserialize(reader);
    if let At::Probe(probe) = at {
        probe.open.borrow_mut().pop();
    }
    value.map_err(|fault| fault.within(name))
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        if !self.advance() {
            return Ok(None);
        }
        let name = self.open.map_or("", |node| node.name.as_str());
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        self.read(seed)
    }
}

impl<'de> SeqAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        if !self.advance() {
            return Ok(None);
        }
        self.read(seed).map(Some)
    }
}

/// The elements of a list.
struct Items<'a> {
    item: &'a Node,
    places: std::ops::Range<usize>,
    at: At<'a>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(place) = self.places.next() else {
            return Ok(None);
        };
        let index = self.next;
        self.next += 1;
        let at = match self.at {
            At::Row(columns, _) => At::Row(columns, place),
            probe @ At::Probe(_) => probe,
        };
        let reader = NodeReader {
            place: Position::Node(self.item),
            at,
        };
        let value = seed.deserialize(reader);
        value
            .map(Some)
            .map_err(|fault| fault.within(&format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.places.len())
    }
}

/// The entries of a map.
struct Entries<'a> {
    key: &'a Node,
    value: &'a Node,
    places: std::ops::Range<usize>,
    at: At<'a>,
    next: usize,
}

impl Entries<'_> {
    fn at(&self) -> At<'_> {
        match self.at {
            At::Row(columns, _) => At::Row(columns, self.next),
            probe @ At::Probe(_) => probe,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some(place) = self.places.next() else {
            return Ok(None);
        };
        self.next = place;
        let reader = NodeReader {
            place: Position::Node(self.key),
            at: self.at(),
        };
        seed.deserialize(reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let reader = NodeReader {
            place: Position::Node(self.value),
            at: self.at(),
        };
        seed.deserialize(reader)
    }
}

/// For fields of bytes: `#[serde(deserialize_with = "asof_decode::bytes")]` reads them at once, where serde's own
/// `Vec<u8>` would read them one by one. JSON may have base64 or a list of numbers.
///
/// # Errors
/// When the value is not bytes.
pub fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct Bytes;
    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            bytes.map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            // The cells of an occupancy grid are signed.
            while let Some(byte) = seq.next_element::<i16>()? {
                bytes.push(byte as u8);
            }
            Ok(bytes)
        }
    }
    deserializer.deserialize_any(Bytes)
}
