//! The type description service: a node's own description of its types.
//!
//! Nodes of ROS 2 Iron and later serve `~/get_type_description`. The request names a type and its hash; the response
//! has the fields of that type and of every type in it, and the `.msg` files that they came from.

use std::fmt::Write as _;

use asof_core::{Channel, Schema};
use asof_decode::{Decoder, Projection};
use asof_ros::{CdrWriter, differs};
use serde::Deserialize;

/// The service's type, in the spelling of DDS.
pub const GET_TYPE_DESCRIPTION: &str =
    "type_description_interfaces::srv::dds_::GetTypeDescription_";

/// Why a response cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The node does not have the description.
    #[error("the node does not have the type description: {0}")]
    Refused(String),
    /// The response cannot be decoded.
    #[error("the type description cannot be decoded: {0}")]
    Unreadable(String),
    /// A field has an unknown type.
    #[error("the type description of {type_name} has a field '{field}' of unknown type {type_id}")]
    FieldType {
        /// The type.
        type_name: String,
        /// The field.
        field: String,
        /// The number of its type.
        type_id: u8,
    },
    /// It describes another type.
    #[error("the type description is of {described}, expected {asked}")]
    OfAnother {
        /// The type that was asked for.
        asked: String,
        /// The type that is described.
        described: String,
    },
    /// It does not have the hash that the publisher announces: messages would be decoded wrongly.
    #[error("the type description of {type_name} does not have the hash {type_hash}")]
    Otherwise {
        /// The type.
        type_name: String,
        /// The hash that its publisher announces.
        type_hash: String,
    },
}

/// Encodes the request for a type such as `sensor_msgs/msg/Imu`.
pub fn description_request(type_name: &str, type_hash: &str) -> Vec<u8> {
    let mut cdr = CdrWriter::with_capacity(type_name.len() + type_hash.len() + 16);
    // With the sources, which have the constants and the comments.
    cdr.string(type_name).string(type_hash).boolean(true);
    cdr.finish()
}

/// Decodes the schema in a response.
pub fn described_schema(response: &[u8]) -> Result<Schema, DescriptionError> {
    read(response)?.schema()
}

/// Decodes the schema in a response, and checks that it is the requested type. A node may describe another type of
/// that name; its hash reveals that, where it is known.
pub fn described_as(
    response: &[u8],
    type_name: &str,
    type_hash: &str,
) -> Result<Schema, DescriptionError> {
    let mut response = read(response)?;
    let mut schema = response.schema()?;
    if schema.name != type_name {
        return Err(DescriptionError::OfAnother {
            asked: type_name.to_owned(),
            described: schema.name,
        });
    }
    if is_otherwise(&schema, type_hash) {
        // The files may be newer than the node; its fields are what it was built with.
        response.type_sources.clear();
        schema = response.schema()?;
    }
    if is_otherwise(&schema, type_hash) {
        return Err(DescriptionError::Otherwise {
            type_name: schema.name,
            type_hash: type_hash.to_owned(),
        });
    }
    Ok(schema)
}

fn is_otherwise(schema: &Schema, type_hash: &str) -> bool {
    let text = std::str::from_utf8(&schema.data).unwrap_or_default();
    differs(type_hash, &schema.name, text)
}

fn read(response: &[u8]) -> Result<Response, DescriptionError> {
    let unreadable =
        |cause: &dyn std::fmt::Display| DescriptionError::Unreadable(cause.to_string());
    let mut decoder = Decoder::new(&response_channel(), &Projection::All, &[])
        .map_err(|cause| unreadable(&cause))?;
    let json = decoder.json(response).map_err(|cause| unreadable(&cause))?;
    let response: Response = serde_json::from_str(&json).map_err(|cause| unreadable(&cause))?;
    if !response.successful {
        return Err(DescriptionError::Refused(response.failure_reason));
    }
    Ok(response)
}

const RULE: &str =
    "================================================================================";

#[derive(Deserialize)]
struct Response {
    successful: bool,
    failure_reason: String,
    type_description: Description,
    type_sources: Vec<TypeSource>,
}

#[derive(Deserialize)]
struct Description {
    type_description: TypeDescription,
    referenced_type_descriptions: Vec<TypeDescription>,
}

#[derive(Deserialize)]
struct TypeDescription {
    type_name: String,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    r#type: FieldType,
    default_value: String,
}

#[derive(Deserialize)]
struct FieldType {
    type_id: u8,
    capacity: u64,
    string_capacity: u64,
    nested_type_name: String,
}

#[derive(Deserialize)]
struct TypeSource {
    type_name: String,
    encoding: String,
    raw_file_contents: String,
}

impl Response {
    fn schema(&self) -> Result<Schema, DescriptionError> {
        let Description {
            type_description: main,
            referenced_type_descriptions: parts,
        } = &self.type_description;
        let mut text = self.text_of(main)?;
        for part in parts {
            let name = part.type_name.replace("/msg/", "/");
            if !text.ends_with('\n') {
                text.push('\n');
            }
            let _ = write!(text, "{RULE}\nMSG: {name}\n{}", self.text_of(part)?);
        }
        Ok(Schema {
            name: main.type_name.clone(),
            encoding: "ros2msg".to_owned(),
            data: text.into(),
        })
    }

    /// The definition of one type: its own file if that is a `.msg`, else generated from its fields.
    fn text_of(&self, described: &TypeDescription) -> Result<String, DescriptionError> {
        let is_file = |source: &&TypeSource| {
            source.type_name == described.type_name && source.encoding == "msg"
        };
        match self.type_sources.iter().find(is_file) {
            Some(source) => Ok(source.raw_file_contents.clone()),
            None => described.text(),
        }
    }
}

impl TypeDescription {
    fn text(&self) -> Result<String, DescriptionError> {
        let mut text = String::new();
        for field in &self.fields {
            let kind = field.r#type.text().ok_or(DescriptionError::FieldType {
                type_name: self.type_name.clone(),
                field: field.name.clone(),
                type_id: field.r#type.type_id,
            })?;
            let _ = write!(text, "{kind} {}", field.name);
            if !field.default_value.is_empty() {
                let _ = write!(text, " {}", field.default_value);
            }
            text.push('\n');
        }
        Ok(text)
    }
}

impl FieldType {
    /// The numbers of `type_description_interfaces/msg/FieldType`: scalars from 1, arrays from 49, bounded sequences
    /// from 97, sequences from 145.
    fn text(&self) -> Option<String> {
        let scalar = match self.type_id % 48 {
            1 => self.nested_type_name.replace("/msg/", "/"),
            2 => "int8".to_owned(),
            3 => "uint8".to_owned(),
            4 => "int16".to_owned(),
            5 => "uint16".to_owned(),
            6 => "int32".to_owned(),
            7 => "uint32".to_owned(),
            8 => "int64".to_owned(),
            9 => "uint64".to_owned(),
            10 => "float32".to_owned(),
            11 => "float64".to_owned(),
            // A character of IDL; in message definitions it is a byte.
            13 => "char".to_owned(),
            15 => "bool".to_owned(),
            16 => "byte".to_owned(),
            17 => "string".to_owned(),
            18 => "wstring".to_owned(),
            21 => format!("string<={}", self.string_capacity),
            22 => format!("wstring<={}", self.string_capacity),
            _ => return None,
        };
        match self.type_id / 48 {
            0 => Some(scalar),
            1 => Some(format!("{scalar}[{}]", self.capacity)),
            2 => Some(format!("{scalar}[<={}]", self.capacity)),
            3 => Some(format!("{scalar}[]")),
            _ => None,
        }
    }
}

fn response_channel() -> Channel {
    let schema = Schema {
        name: "type_description_interfaces/srv/GetTypeDescription_Response".to_owned(),
        encoding: "ros2msg".to_owned(),
        data: RESPONSE.replace("---", RULE).into(),
    };
    Channel {
        message_encoding: "cdr".to_owned(),
        schema: Some(schema.into()),
        ..Channel::default()
    }
}

const RESPONSE: &str = "\
bool successful
string failure_reason
type_description_interfaces/TypeDescription type_description
type_description_interfaces/TypeSource[] type_sources
type_description_interfaces/KeyValue[] extra_information
---
MSG: type_description_interfaces/TypeDescription
type_description_interfaces/IndividualTypeDescription type_description
type_description_interfaces/IndividualTypeDescription[] referenced_type_descriptions
---
MSG: type_description_interfaces/IndividualTypeDescription
string type_name
type_description_interfaces/Field[] fields
---
MSG: type_description_interfaces/Field
string name
type_description_interfaces/FieldType type
string default_value
---
MSG: type_description_interfaces/FieldType
uint8 type_id
uint64 capacity
uint64 string_capacity
string nested_type_name
---
MSG: type_description_interfaces/TypeSource
string type_name
string encoding
string raw_file_contents
---
MSG: type_description_interfaces/KeyValue
string key
string value
";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes what a node answers.
    #[derive(Default)]
    struct Cdr(Vec<u8>);

    impl Cdr {
        fn u8(mut self, value: u8) -> Self {
            self.0.push(value);
            self
        }

        fn u32(mut self, value: usize) -> Self {
            self.0.resize(self.0.len().next_multiple_of(4), 0);
            self.0.extend((value as u32).to_le_bytes());
            self
        }

        fn u64(mut self, value: u64) -> Self {
            self.0.resize(self.0.len().next_multiple_of(8), 0);
            self.0.extend(value.to_le_bytes());
            self
        }

        fn text(self, text: &str) -> Self {
            let mut this = self.u32(text.len() + 1);
            this.0.extend(text.bytes());
            this.u8(0)
        }

        fn field(self, name: &str, (id, capacity, bound): (u8, u64, u64), nested: &str) -> Self {
            let this = self.text(name).u8(id).u64(capacity).u64(bound);
            this.text(nested).text("")
        }

        fn done(self) -> Vec<u8> {
            [vec![0, 1, 0, 0], self.0].concat()
        }
    }

    fn response(sources: &[(&str, &str, &str)]) -> Vec<u8> {
        let mut cdr = Cdr::default().u8(1).text("");
        cdr = cdr.text("my_msgs/msg/Base").u32(4);
        cdr = cdr.field("wheels", (49, 4, 0), "my_msgs/msg/Wheel");
        cdr = cdr.field("name", (21, 0, 8), "");
        cdr = cdr.field("speeds", (155, 0, 0), "");
        cdr = cdr.field("limits", (98, 3, 0), "");
        cdr = cdr.u32(1).text("my_msgs/msg/Wheel").u32(1);
        cdr = cdr.field("speed", (11, 0, 0), "");
        cdr = cdr.u32(sources.len());
        for (name, encoding, contents) in sources {
            cdr = cdr.text(name).text(encoding).text(contents);
        }
        cdr.u32(0).done()
    }

    fn text(schema: &Schema) -> String {
        String::from_utf8(schema.data.to_vec()).expect("text")
    }

    #[test]
    fn fields_make_a_definition_where_there_are_no_sources() {
        let schema = described_schema(&response(&[])).expect("described");
        assert_eq!(schema.name, "my_msgs/msg/Base");
        assert_eq!(
            text(&schema),
            format!(
                "my_msgs/Wheel[4] wheels\nstring<=8 name\nfloat64[] speeds\nint8[<=3] limits\n\
                 {RULE}\nMSG: my_msgs/Wheel\nfloat64 speed\n"
            )
        );
    }

    #[test]
    fn files_are_taken_as_they_are_with_their_constants() {
        let wheel = "uint8 FRONT=1\nfloat64 speed # in m/s";
        let sources = [
            ("my_msgs/msg/Wheel", "msg", wheel),
            ("my_msgs/msg/Base", "idl", "module my_msgs {}"),
        ];
        let schema = described_schema(&response(&sources)).expect("described");
        assert!(text(&schema).ends_with(wheel), "{}", text(&schema));
        assert!(text(&schema).starts_with("my_msgs/Wheel[4] wheels\n"));
    }

    #[test]
    fn a_node_that_does_not_know_says_why() {
        let cdr = Cdr::default().u8(0).text("no such type");
        let cdr = cdr.text("").u32(0).u32(0).u32(0).u32(0).done();
        let refused = DescriptionError::Refused("no such type".to_owned());
        assert_eq!(described_schema(&cdr), Err(refused));
    }

    #[test]
    fn a_description_is_taken_if_it_is_of_the_type_and_of_the_hash_that_was_asked_for() {
        let name = "my_msgs/msg/Base";
        let honest = described_schema(&response(&[])).expect("described");
        let hash = super::super::type_hash(name, &text(&honest)).expect("a hash");
        assert_eq!(
            described_as(&response(&[]), name, &hash),
            Ok(honest.clone())
        );
        // Not every publisher announces one.
        assert_eq!(described_as(&response(&[]), name, ""), Ok(honest.clone()));
        // A file that contradicts the fields is ignored, since the fields are right.
        let newer = [("my_msgs/msg/Wheel", "msg", "float32 speed\n")];
        assert_eq!(
            described_as(&response(&newer), name, &hash),
            Ok(honest.clone())
        );
        let last = if hash.ends_with('0') { "1" } else { "0" };
        let other = format!("{}{last}", &hash[..hash.len() - 1]);
        let refused = described_as(&response(&[]), name, &other);
        assert!(
            matches!(refused, Err(DescriptionError::Otherwise { .. })),
            "{refused:?}"
        );
        let refused = described_as(&response(&[]), "my_msgs/msg/Wheel", "");
        assert!(
            matches!(refused, Err(DescriptionError::OfAnother { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn the_request_is_aligned() {
        let request = description_request("ab", "RIHS01_0");
        let expected = Cdr::default().text("ab").text("RIHS01_0").u8(1).done();
        assert_eq!(request, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = described_schema(&bytes);
        }

        #[test]
        fn no_damage_panics(at in 0usize..300, value: u8) {
            let mut bytes = response(&[]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = described_schema(&bytes);
        }
    }
}
