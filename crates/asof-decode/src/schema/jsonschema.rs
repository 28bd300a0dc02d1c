//! JSON Schema.
//!
//! Everything is optional: JSON may omit anything. What the schema leaves open, and what no single type can hold,
//! stays JSON text.

use serde_json::Value;

use crate::error::SchemaError;
use crate::model::{Field, Kind, MessageType, Scalar, Struct};

/// The field for values that the schema does not have.
pub(crate) const OTHER: &str = "_other";

/// The deepest nesting of structs; deeper values stay text.
pub(super) const DEEPEST: usize = 24;
pub(super) const FIELDS_AT_MOST: usize = 4096;
/// The most references, or choices with one choice, that lead from one to the next.
const STEPS_AT_MOST: usize = 16;
/// A type is one of at most this many; of more, it stays text.
const CHOICES_AT_MOST: usize = 64;
/// Names this long count as one field more: a type that is named often has its names as often.
const LONG_NAME: usize = 256;

/// Parses a schema.
pub(crate) fn parse(name: &str, data: &[u8]) -> Result<MessageType, SchemaError> {
    let unreadable = |reason: String| SchemaError::Unreadable {
        language: "jsonschema",
        reason,
    };
    let document: Value = if data.iter().all(u8::is_ascii_whitespace) {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_slice(data).map_err(|error| unreadable(error.to_string()))?
    };
    if !document.is_object() {
        return Err(unreadable("not a JSON object".to_owned()));
    }
    let mut reader = Reader {
        document: &document,
        types: MessageType::default(),
        fields: 0,
    };
    let root = reader.structure(name, &document, 0);
    reader.types.root = root;
    Ok(with_other(reader.types))
}

struct Reader<'a> {
    document: &'a Value,
    types: MessageType,
    fields: usize,
}

impl<'a> Reader<'a> {
    fn structure(&mut self, name: &str, schema: &'a Value, depth: usize) -> usize {
        let place = self.types.structs.len();
        self.types.structs.push(Struct {
            name: name.to_owned(),
            ..Struct::default()
        });
        let mut fields = Vec::new();
        let declared = self.resolve(schema).get("properties");
        for (name, property) in declared.and_then(Value::as_object).into_iter().flatten() {
            self.fields += 1 + name.len() / LONG_NAME;
            if self.fields > FIELDS_AT_MOST {
                break;
            }
            let kind = self.kind(name, property, depth + 1);
            fields.push(Field::new(name, kind).optional());
        }
        self.types.structs[place].fields = fields;
        place
    }

    /// Follows references within the document, up to a limit.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..STEPS_AT_MOST {
            let target = schema.get("$ref").and_then(Value::as_str);
            let Some(path) = target.and_then(|target| target.strip_prefix('#')) else {
                break;
            };
            match self.document.pointer(path) {
                Some(found) => schema = found,
                None => break,
            }
        }
        schema
    }

    /// Follows references and choices to the only one there is; "this or null" is this, since everything may be null.
    /// `None` where there are several, or where a choice leads to itself.
    fn chosen(&self, schema: &'a Value) -> Option<&'a Value> {
        let mut schema = self.resolve(schema);
        for _ in 0..STEPS_AT_MOST {
            let choices = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word));
            let Some(choices) = choices.and_then(Value::as_array) else {
                return Some(schema);
            };
            let is_real = |choice: &&Value| choice.get("type").is_none_or(|kind| kind != "null");
            let mut real = choices.iter().take(CHOICES_AT_MOST).filter(is_real);
            let only = real.next().filter(|_| choices.len() <= CHOICES_AT_MOST)?;
            if real.next().is_some() {
                return None;
            }
            schema = self.resolve(only);
        }
        None
    }

    fn kind(&mut self, name: &str, schema: &'a Value, depth: usize) -> Kind {
        let Some(schema) = self.chosen(schema).filter(|_| depth <= DEEPEST) else {
            return Kind::Json;
        };
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => several
                .iter()
                .take(CHOICES_AT_MOST)
                .filter_map(Value::as_str)
                .filter(|one| *one != "null")
                .collect(),
            _ if schema.get("properties").is_some() => vec!["object"],
            _ => Vec::new(),
        };
        match types[..] {
            ["boolean"] => Kind::Scalar(Scalar::Bool),
            ["integer"] => Kind::Scalar(Scalar::Int64),
            ["number"] => Kind::Scalar(Scalar::Float64),
            ["string"] => {
                let is_base64 =
                    schema.get("contentEncoding").and_then(Value::as_str) == Some("base64");
                if is_base64 { Kind::Blob } else { Kind::Text }
            }
            ["object"] if schema.get("properties").is_some() => {
                Kind::Struct(self.structure(name, schema, depth))
            }
            ["array"] => match schema.get("items") {
                Some(items) if items.is_object() => {
                    Kind::List(Box::new(self.kind("item", items, depth + 1)))
                }
                _ => Kind::Json,
            },
            _ => Kind::Json,
        }
    }
}

/// Adds the field for values that the schema does not have. A field of the message that has this name goes there too,
/// whatever it holds.
pub(super) fn with_other(mut types: MessageType) -> MessageType {
    let root = types.root;
    let fields = &mut types.structs[root].fields;
    fields.retain(|field| field.name != OTHER);
    fields.push(Field::new(OTHER, Kind::Json).optional());
    types
}
