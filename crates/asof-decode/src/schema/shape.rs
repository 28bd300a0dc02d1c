//! Type inference for JSON without a schema: the narrowest types that hold every message seen.
//!
//! Integers widen to floats, and to text where neither holds all of them exactly; a field with values of different
//! types is JSON text. Fields are added as they occur, up to a limit.

use std::fmt;

use rustc_hash::FxHashMap;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::jsonschema::{DEEPEST, FIELDS_AT_MOST, with_other};
use crate::model::{Field, Kind, MessageType, Scalar, Struct};
use crate::print::print_text;

/// The type of a value, or the common type of several values.
#[derive(Debug, Default)]
pub(crate) enum Shape {
    #[default]
    Unknown,
    Bool,
    /// Integers, from the minimum to the maximum.
    Whole(i128, i128),
    Number,
    Text,
    Object(Object),
    Array(Box<Shape>),
    Any,
}

/// The fields of an object, in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct Object {
    fields: Vec<(String, Shape)>,
    places: FxHashMap<String, usize>,
}

/// The most fields of all objects of a message together; further ones have no column of their own.
const NODES_AT_MOST: usize = 8192;
/// An object within a message that has more different names than this is a dictionary: it stays text.
const NAMES_AT_MOST: usize = 512;
/// Integers up to this size are floats without loss.
const EXACT: i128 = 1 << 53;

/// Infers types from message after message.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    root: Shape,
    nodes: usize,
    changes: usize,
}

impl Inference {
    /// Widens the types so that they hold this message as well. A message that cannot be parsed is ignored.
    pub fn add(&mut self, text: &[u8]) {
        let seed = Widen {
            shape: &mut self.root,
            nodes: &mut self.nodes,
            changes: &mut self.changes,
            depth: 0,
        };
        // Half of a broken message may have been added: types are then wider than necessary.
        let _ = seed.deserialize(&mut serde_json::Deserializer::from_slice(text));
    }

    /// How often the types have changed so far.
    pub fn changes(&self) -> usize {
        self.changes
    }

    pub fn into_types(self, name: &str) -> MessageType {
        let mut types = MessageType::default();
        types.root = match self.root {
            Shape::Object(object) => place_object(name, object, &mut types),
            _ => place_object(name, Object::default(), &mut types),
        };
        with_other(types)
    }

    /// Two small messages in JSON that together have the types of all that were seen.
    pub fn witnesses(&self) -> [Vec<u8>; 2] {
        [false, true].map(|is_second| {
            let mut out = Vec::new();
            match self.root {
                // Nothing was seen, which is not to say that null was.
                Shape::Unknown => out.extend_from_slice(b"{}"),
                _ => self.root.witness(is_second, &mut out),
            }
            out
        })
    }
}

impl Shape {
    /// Widens it by a scalar; returns whether it is another type now.
    fn widen(&mut self, other: Shape) -> bool {
        let before = self.scalar();
        *self = match (std::mem::take(self), other) {
            (Shape::Unknown, shape) | (shape, Shape::Unknown) => shape,
            (Shape::Bool, Shape::Bool) => Shape::Bool,
            (Shape::Text, Shape::Text) => Shape::Text,
            (Shape::Number, Shape::Number) => Shape::Number,
            (Shape::Whole(a, b), Shape::Whole(c, d)) => Shape::Whole(a.min(c), b.max(d)),
            (Shape::Whole(a, b), Shape::Number) | (Shape::Number, Shape::Whole(a, b))
                if a >= -EXACT && b <= EXACT =>
            {
                Shape::Number
            }
            _ => Shape::Any,
        };
        self.scalar() != before
    }

    /// The type of a scalar.
    fn scalar(&self) -> Option<Kind> {
        match self {
            Shape::Bool => Some(Kind::Scalar(Scalar::Bool)),
            Shape::Whole(least, most) => {
                Some(if *least >= i64::MIN.into() && *most <= i64::MAX.into() {
                    Kind::Scalar(Scalar::Int64)
                } else if *least >= 0 && *most <= u64::MAX.into() {
                    Kind::Scalar(Scalar::Uint64)
                } else {
                    Kind::Json
                })
            }
            Shape::Number => Some(Kind::Scalar(Scalar::Float64)),
            Shape::Text => Some(Kind::Text),
            _ => None,
        }
    }

    fn into_kind(self, name: &str, types: &mut MessageType) -> Kind {
        if let Some(scalar) = self.scalar() {
            return scalar;
        }
        match self {
            Shape::Array(item) => Kind::List(Box::new(item.into_kind("item", types))),
            Shape::Object(object) if !object.fields.is_empty() => {
                Kind::Struct(place_object(name, object, types))
            }
            _ => Kind::Json,
        }
    }

    /// Writes a value of this type; two of them show what one cannot.
    fn witness(&self, is_second: bool, out: &mut Vec<u8>) {
        match self {
            Shape::Unknown => out.extend_from_slice(b"null"),
            Shape::Bool => out.extend_from_slice(b"false"),
            Shape::Whole(least, most) => {
                let number = if is_second { most } else { least };
                out.extend_from_slice(number.to_string().as_bytes());
            }
            Shape::Number => out.extend_from_slice(b"0.5"),
            Shape::Any if is_second => out.push(b'0'),
            Shape::Text | Shape::Any => out.extend_from_slice(b"\"\""),
            Shape::Array(item) => {
                out.push(b'[');
                if !matches!(**item, Shape::Unknown) {
                    item.witness(is_second, out);
                }
                out.push(b']');
            }
            Shape::Object(object) => {
                for (at, (name, shape)) in object.fields.iter().enumerate() {
                    out.push(if at == 0 { b'{' } else { b',' });
                    print_text(name.as_bytes(), out);
                    out.push(b':');
                    shape.witness(is_second, out);
                }
                out.extend_from_slice(if object.fields.is_empty() {
                    b"{}"
                } else {
                    b"}"
                });
            }
        }
    }
}

fn place_object(name: &str, object: Object, types: &mut MessageType) -> usize {
    let place = types.structs.len();
    types.structs.push(Struct {
        name: name.to_owned(),
        ..Struct::default()
    });
    let fields = object
        .fields
        .into_iter()
        .map(|(name, shape)| {
            let kind = shape.into_kind(&name, types);
            Field::new(name, kind).optional()
        })
        .collect();
    types.structs[place].fields = fields;
    place
}

/// Reads a value and widens a type by it, without building the value.
struct Widen<'a> {
    shape: &'a mut Shape,
    nodes: &'a mut usize,
    changes: &'a mut usize,
    depth: usize,
}

impl Widen<'_> {
    fn scalar(self, scalar: Shape) {
        *self.changes += usize::from(self.shape.widen(scalar));
    }

    /// An object or array takes its type, where it is the first value.
    fn first(&mut self, shape: Shape) {
        if matches!(self.shape, Shape::Unknown) && self.depth < DEEPEST {
            *self.shape = shape;
            *self.changes += 1;
        }
    }

    fn any(shape: &mut Shape, changes: &mut usize) {
        *changes += usize::from(!matches!(shape, Shape::Any));
        *shape = Shape::Any;
    }
}

impl<'de> DeserializeSeed<'de> for Widen<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Widen<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.scalar(Shape::Bool);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(Shape::Whole(value.into(), value.into()));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(Shape::Whole(value.into(), value.into()));
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.scalar(Shape::Number);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.scalar(Shape::Text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.first(Shape::Array(Box::default()));
        let Shape::Array(item) = &mut *self.shape else {
            Self::any(self.shape, self.changes);
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        loop {
            // An array of any values cannot be widened further.
            if matches!(**item, Shape::Any) {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(());
            }
            let seed = Widen {
                shape: item,
                nodes: self.nodes,
                changes: self.changes,
                depth: self.depth + 1,
            };
            if seq.next_element_seed(seed)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.first(Shape::Object(Object::default()));
        let is_root = self.depth == 0;
        let Shape::Object(object) = &mut *self.shape else {
            Self::any(self.shape, self.changes);
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let mut guess = 0;
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            // Fields are usually in the same order.
            let known = object.fields.get(guess).is_some_and(|(at, _)| *at == name);
            let place = if known {
                Some(guess)
            } else {
                object.places.get(&*name).copied()
            };
            let most = if is_root {
                FIELDS_AT_MOST
            } else {
                NAMES_AT_MOST
            };
            let has_room = object.fields.len() < most && *self.nodes < NODES_AT_MOST;
            let place = match place {
                Some(place) => place,
                None if has_room => {
                    *self.nodes += 1;
                    *self.changes += 1;
                    object.places.insert(name.to_string(), object.fields.len());
                    object.fields.push((name.to_string(), Shape::Unknown));
                    object.fields.len() - 1
                }
                None if is_root => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                    Self::any(self.shape, self.changes);
                    return Ok(());
                }
            };
            guess = place + 1;
            map.next_value_seed(Widen {
                shape: &mut object.fields[place].1,
                nodes: self.nodes,
                changes: self.changes,
                depth: self.depth + 1,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types_of(messages: &[&str]) -> MessageType {
        let mut inference = Inference::default();
        for message in messages {
            inference.add(message.as_bytes());
        }
        inference.into_types("t")
    }

    fn kind_of(messages: &[&str]) -> Kind {
        types_of(messages).root().fields[0].kind.clone()
    }

    #[test]
    fn whole_numbers_widen_to_what_holds_all_of_them_exactly() {
        let float = Kind::Scalar(Scalar::Float64);
        let (signed, unsigned) = (Kind::Scalar(Scalar::Int64), Kind::Scalar(Scalar::Uint64));
        assert_eq!(kind_of(&[r#"{"a":0}"#, r#"{"a":0.5}"#]), float);
        assert_eq!(kind_of(&[r#"{"a":0.5}"#, r#"{"a":3}"#]), float);
        assert_eq!(kind_of(&[r#"{"a":0}"#, r#"{"a":-7}"#]), signed);
        let huge = r#"{"a":18446744073709551615}"#;
        assert_eq!(kind_of(&[r#"{"a":1}"#, huge]), unsigned);
        assert_eq!(kind_of(&[r#"{"a":-1}"#, huge]), Kind::Json);
        // 2^53 + 1 is not a float.
        let large = r#"{"a":9007199254740993}"#;
        assert_eq!(kind_of(&[large]), signed);
        assert_eq!(kind_of(&[large, r#"{"a":0.5}"#]), Kind::Json);
        assert_eq!(
            kind_of(&[r#"{"a":null}"#, r#"{"a":true}"#]),
            Kind::Scalar(Scalar::Bool)
        );
        assert_eq!(kind_of(&[r#"{"a":1}"#, r#"{"a":"x"}"#]), Kind::Json);
    }

    #[test]
    fn two_witnesses_have_the_shape_of_all_messages() {
        let messages = [
            r#"{"a":0,"b":{"c":[1,2.5],"d":null},"e":[],"f":"x","g":-3}"#,
            r#"{"a":0.25,"b":{"c":[],"d":{"x":1}},"e":[],"f":1,"g":18446744073709551615}"#,
            r#"{"h":[{"i":1},{"j":[[true]]}],"k":9007199254740993}"#,
            "{",
        ];
        let mut inference = Inference::default();
        for text in messages {
            inference.add(text.as_bytes());
        }
        let mut again = Inference::default();
        for witness in inference.witnesses() {
            again.add(&witness);
        }
        assert_eq!(again.into_types("t"), types_of(&messages));
    }

    #[test]
    fn names_without_end_take_memory_with_an_end() {
        let mut inference = Inference::default();
        for round in 0..20_000 {
            let text = format!(r#"{{"r{round}":1,"d":{{"n{round}":1,"o":{{"p{round}":2}}}}}}"#);
            inference.add(text.as_bytes());
        }
        assert!(inference.nodes <= NODES_AT_MOST);
        let types = inference.into_types("t");
        let dictionary = types.root().fields.iter().find(|field| field.name == "d");
        assert_eq!(dictionary.map(|field| &field.kind), Some(&Kind::Json));
    }
}
