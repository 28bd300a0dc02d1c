//! Small definitions and messages that stand for endless ones: each is refused, or costs what it is.

mod common;

use std::fmt::Write as _;
use std::sync::Arc;

use asof_core::testing::assert_linear;
use asof_core::{Channel, Query, Stamp};
use asof_decode::{Decoder, Decoders, PayloadError, Projection, SchemaError, TableOptions, Tables};
use common::flat::Flat;
use common::{cdr, channel, message, recording, ros2};

/// Texts, one after the other.
fn all(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).map(text).collect()
}

fn refused(channel: &Channel) -> SchemaError {
    let decoder = Decoder::new(channel, &Projection::All, &[]);
    decoder.err().expect("the definition is refused")
}

fn idl(text: &str) -> Channel {
    let text = format!("module t {{ {text} }};");
    channel("/t", "cdr", "t/T", "ros2idl", text.as_bytes())
}

fn json_schema(text: &str) -> Channel {
    channel("/t", "json", "t", "jsonschema", text.as_bytes())
}

#[test]
fn a_choice_that_leads_to_itself_is_any_value() {
    let choices = json_schema(
        r##"{"definitions":{"a":{"anyOf":[{"$ref":"#/definitions/b"}]},"b":{"oneOf":[{"$ref":"#/definitions/a"}]}},
            "properties":{"x":{"$ref":"#/definitions/a"},"y":{"type":"number"}}}"##,
    );
    let mut decoder = Decoder::new(&choices, &Projection::All, &[]).expect("a decoder");
    let text = decoder
        .json(br#"{"x":[1,{"z":2}],"y":3}"#)
        .expect("decodes");
    assert_eq!(text, r#"{"x":[1,{"z":2}],"y":3}"#);
}

#[test]
fn a_choice_of_this_or_null_is_this() {
    let optional = json_schema(
        r##"{"definitions":{"a":{"oneOf":[{"type":"null"},{"type":"integer"}]}},
            "properties":{"x":{"anyOf":[{"$ref":"#/definitions/a"},{"type":"null"}]}}}"##,
    );
    let decoder = Decoder::new(&optional, &Projection::All, &[]).expect("a decoder");
    let field = decoder.schema().field_with_name("x").expect("a field");
    assert!(field.data_type().is_integer(), "{field}");
}

#[test]
fn names_that_stand_for_two_others_each_do_not_double_without_end() {
    let mut text = "typedef map<long, long> a0;".to_owned();
    for at in 1..100 {
        write!(text, "typedef map<a{}, a{}> a{at};", at - 1, at - 1).expect("writes");
    }
    let error = refused(&idl(&format!("{text} struct T {{ a99 x; }};")));
    assert!(matches!(error, SchemaError::TooLarge { .. }), "{error}");
}

#[test]
fn an_array_has_a_number_of_dimensions_with_an_end() {
    let text = format!("struct T {{ long x{}; }};", "[1]".repeat(100_000));
    let error = refused(&idl(&text)).to_string();
    assert!(error.contains("too many dimensions"), "{error}");
    let grid = idl("struct T { long x[2][1][2]; };");
    assert!(Decoder::new(&grid, &Projection::All, &[]).is_ok());
}

#[test]
fn types_that_inherit_a_large_one_count_its_fields() {
    let fields = all(1000, |at| format!("long f{at};"));
    let heirs = all(1000, |at| format!("struct H{at} : B {{ }};"));
    let members = all(1000, |at| format!("H{at} h{at};"));
    let text = format!("struct B {{ {fields} }}; {heirs} struct T {{ {members} }};");
    let error = refused(&idl(&text));
    assert!(matches!(error, SchemaError::TooLarge { .. }), "{error}");
}

#[test]
fn the_largest_numbers_have_no_successor() {
    let text = "enum E { @value(9223372036854775807) A, B }; struct B0 { @id(4294967295) long a; };
        struct T : B0 { long b; E e; };";
    drop(Decoder::new(&idl(text), &Projection::All, &[]));
}

#[test]
fn constants_stay_beside_their_struct() {
    let text = "struct T { long a; }; module T_Constants { const long B = 2; const long A = 1; };";
    let decoder = Decoder::new(&idl(text), &Projection::All, &[]).expect("a decoder");
    let constants = &decoder.schema().metadata()["asof:constants"];
    assert_eq!(constants, r#"{"A":"1","B":"2"}"#);
}

#[test]
fn a_long_name_of_a_module_is_refused() {
    let name = "m".repeat(100_000);
    let error = refused(&idl(&format!(
        "module {name} {{ struct T {{ long a; }}; }};"
    )))
    .to_string();
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn a_definition_of_many_structs_with_constants_costs_its_bytes() {
    let make = |scale: usize| {
        let structs = all(200 * scale, |at| {
            format!("struct S{at} {{ long a; }}; module S{at}_Constants {{ const long A = 1; }};")
        });
        let members = all(200 * scale, |at| format!("S{at} s{at};"));
        idl(&format!("{structs} struct T {{ {members} }};"))
    };
    assert_linear("structs with constants", make, |channel: Channel| {
        assert!(Decoder::new(&channel, &Projection::All, &[]).is_ok());
    });
}

/// A definition of FlatBuffers in which `objects` types are one and the same, as are their `fields` fields.
fn shared(objects: usize, fields: usize) -> Vec<u8> {
    let name = || Some(Flat::Text("T".to_owned()));
    let number = Flat::Table(vec![Some(Flat::U8(7))]);
    let field = Flat::Table(vec![name(), Some(number)]);
    let object = Flat::Table(vec![name(), Some(Flat::Shared(Box::new(field), fields))]);
    let objects = Flat::Shared(Box::new(object), objects);
    common::flat::buffer(&Flat::Table(vec![Some(objects)]), *b"BFBS")
}

fn flat(data: &[u8]) -> Channel {
    channel("/t", "flatbuffer", "T", "flatbuffer", data)
}

#[test]
fn a_shared_part_of_a_binary_schema_counts_as_often_as_it_is_used() {
    let few = Decoder::new(&flat(&shared(2, 3)), &Projection::All, &[]).expect("a decoder");
    assert_eq!(
        few.schema().fields().len(),
        2 + 3,
        "two times, three numbers"
    );
    let error = refused(&flat(&shared(50_000, 50_000)));
    assert!(matches!(error, SchemaError::TooLarge { .. }), "{error}");
}

#[test]
fn a_type_with_many_constants_that_occurs_often_is_refused() {
    let constants = all(5000, |at| format!("int32 CONSTANT_{at}={at}\n"));
    let fields = all(5000, |at| format!("t/A a{at}\n"));
    let line = "=".repeat(80);
    let of = |fields: &str| {
        ros2(
            "/t",
            "t/msg/T",
            &format!("{fields}{line}\nMSG: t/A\n{constants}int8 x\n"),
        )
    };
    assert!(matches!(
        refused(&of(&fields)),
        SchemaError::TooLarge { .. }
    ));
    assert!(Decoder::new(&of("t/A a\nt/A b\n"), &Projection::All, &[]).is_ok());
}

#[test]
fn many_fields_of_one_name_have_names_of_their_own_in_linear_time() {
    let make = |scale: usize| ros2("/t", "t/msg/T", &"int8 a\n".repeat(300 * scale));
    assert_linear("fields of one name", make, |channel: Channel| {
        let decoder = Decoder::new(&channel, &Projection::All, &[]).expect("a decoder");
        let fields = decoder.schema().fields();
        let mut names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names[2..5], ["a", "a_", "a__"]);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), fields.len());
    });
}

#[test]
fn types_that_are_named_without_their_package_are_found_in_linear_time() {
    let line = "=".repeat(80);
    let make = |scale: usize| {
        let fields = all(300 * scale, |at| format!("A{at} a{at}\n"));
        let types = all(300 * scale, |at| {
            format!("{line}\nMSG: other/A{at}\nint8 x\n")
        });
        ros2("/t", "t/msg/T", &(fields + &types))
    };
    assert_linear("types without a package", make, |channel: Channel| {
        assert!(Decoder::new(&channel, &Projection::All, &[]).is_ok());
    });
}

/// The definition of a message with a list of another one, which has many fields and possibly itself.
fn protobuf(fields: i32) -> Channel {
    use prost_reflect::prost::Message as _;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    };
    let list = |number: i32| FieldDescriptorProto {
        name: Some("list".to_owned()),
        number: Some(number),
        label: Some(Label::Repeated.into()),
        r#type: Some(Type::Message.into()),
        type_name: Some(".Inner".to_owned()),
        ..FieldDescriptorProto::default()
    };
    let number = |at: i32| FieldDescriptorProto {
        name: Some(format!("n{at}")),
        number: Some(at + 16),
        label: Some(Label::Optional.into()),
        r#type: Some(Type::Double.into()),
        ..FieldDescriptorProto::default()
    };
    let message = |name: &str, field| DescriptorProto {
        name: Some(name.to_owned()),
        field,
        ..DescriptorProto::default()
    };
    let inner = (0..fields).map(number).chain([list(2)]).collect();
    let file = FileDescriptorProto {
        name: Some("t.proto".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![message("Outer", vec![list(1)]), message("Inner", inner)],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file] };
    channel("/t", "protobuf", "Outer", "protobuf", &set.encode_to_vec())
}

/// The definition of a message with a choice of two messages, each of two numbers.
fn choice() -> Channel {
    use prost_reflect::prost::Message as _;
    use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
    use prost_reflect::prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
        OneofDescriptorProto,
    };
    let field = |name: &str, number: i32, kind: Type| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    };
    let member = |name: &str, number: i32| FieldDescriptorProto {
        type_name: Some(".Part".to_owned()),
        oneof_index: Some(0),
        ..field(name, number, Type::Message)
    };
    let message = |name: &str, field, oneof_decl| DescriptorProto {
        name: Some(name.to_owned()),
        field,
        oneof_decl,
        ..DescriptorProto::default()
    };
    let numbers = vec![field("x", 1, Type::Int32), field("y", 2, Type::Int32)];
    let oneof = OneofDescriptorProto {
        name: Some("choice".to_owned()),
        ..OneofDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("t.proto".to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![
            message("T", vec![member("a", 1), member("b", 2)], vec![oneof]),
            message("Part", numbers, Vec::new()),
        ],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file] };
    channel("/t", "protobuf", "T", "protobuf", &set.encode_to_vec())
}

#[test]
fn of_a_choice_what_came_after_its_last_change_counts() {
    let mut decoder = Decoder::new(&choice(), &Projection::All, &[]).expect("a decoder");
    // x or y of the first or the second member.
    let part = |member: u8, field: u8, value: u8| [member << 3 | 2, 2, field << 3, value];
    let mut json = |parts: &[[u8; 4]]| decoder.json(&parts.concat()).expect("decodes");
    let merged = json(&[part(1, 1, 5), part(1, 2, 6)]);
    assert!(merged.contains(r#""a":{"x":5,"y":6}"#), "{merged}");
    let changed = json(&[part(1, 1, 5), part(2, 1, 7), part(1, 2, 6), part(1, 2, 8)]);
    assert!(changed.contains(r#""a":{"x":0,"y":8}"#), "{changed}");
    assert!(!changed.contains(r#""b":{"#), "{changed}");
    let other = json(&[part(1, 1, 5), part(1, 1, 6), part(2, 1, 7)]);
    assert!(other.contains(r#""b":{"x":7,"y":0}"#), "{other}");
    assert!(!other.contains(r#""a":{"#), "{other}");
    // A member that is not selected takes the place of the others, too.
    let only = Projection::paths(["a"]);
    let mut decoder = Decoder::new(&choice(), &only, &[]).expect("a decoder");
    let text = decoder.json(&[part(1, 1, 5), part(2, 1, 7)].concat());
    assert!(!text.expect("decodes").contains(r#""a":{"#));
}

#[test]
fn a_choice_that_changes_again_and_again_is_read_in_linear_time() {
    let channel = choice();
    let make = |scale: usize| [0x0a, 0, 0x0a, 0, 0x12, 0, 0x12, 0].repeat(200 * scale);
    assert_linear("changes of a choice", make, |payload: Vec<u8>| {
        assert!(decoded(&channel, &payload).is_ok());
    });
}

fn decoded(channel: &Channel, payload: &[u8]) -> Result<usize, PayloadError> {
    let mut decoder = Decoder::new(channel, &Projection::All, &[]).expect("a decoder");
    let mut failure = None;
    let at = Stamp::EPOCH;
    decoder.append(&[(at, at, payload.into())], |_, error| {
        failure = Some(error);
    });
    failure.map_or(Ok(decoder.bytes()), Err)
}

#[test]
fn elements_of_two_bytes_with_thousands_of_fields_are_limited() {
    let channel = protobuf(2000);
    assert!(decoded(&channel, &[0x0a, 0].repeat(100)).is_ok());
    let error = decoded(&channel, &[0x0a, 0].repeat(50_000)).expect_err("refused");
    assert!(matches!(error, PayloadError::TooLarge { .. }), "{error}");
}

#[test]
fn a_recursive_type_is_text_within_the_same_limit() {
    let channel = protobuf(2000);
    let within = |count: usize| {
        let inner = [0x12, 0].repeat(count);
        let mut payload = vec![0x0a];
        payload.extend([(inner.len() & 0x7f) as u8 | 0x80, (inner.len() >> 7) as u8]);
        payload.extend(inner);
        payload
    };
    assert!(decoded(&channel, &within(100)).is_ok());
    let error = decoded(&channel, &within(5000)).expect_err("refused");
    assert!(matches!(error, PayloadError::TooLarge { .. }), "{error}");
}

#[test]
fn empty_objects_in_json_are_limited_by_the_fields_that_they_do_not_have() {
    let fields: Vec<String> = (0..400).map(|at| format!("\"field{at}\":{at}")).collect();
    let sample = format!("{{\"list\":[{{{}}}]}}", fields.join(","));
    let json = channel("/t", "json", "", "", b"");
    let of = |count: usize| format!("{{\"list\":[{}]}}", vec!["{}"; count].join(","));
    let mut decoder =
        Decoder::new(&json, &Projection::All, &[sample.as_bytes()]).expect("a decoder");
    let mut run = |text: &str| {
        let mut failed = None;
        let at = Stamp::EPOCH;
        decoder.append(&[(at, at, text.as_bytes().into())], |_, error| {
            failed = Some(error);
        });
        failed
    };
    assert_eq!(run(&of(1000)), None);
    let error = run(&of(100_000)).expect("refused");
    assert!(matches!(error, PayloadError::TooLarge { .. }), "{error}");
}

#[test]
fn what_has_no_column_does_not_repeat_a_long_name_without_end() {
    let long = "n".repeat(100_000);
    let sample = format!("{{\"{long}\":{{\"a\":1}}}}");
    let others: Vec<String> = (0..20_000).map(|at| format!("\"b{at}\":1")).collect();
    let message = format!("{{\"{long}\":{{{}}}}}", others.join(","));
    let json = channel("/t", "json", "", "", b"");
    let mut decoder =
        Decoder::new(&json, &Projection::All, &[sample.as_bytes()]).expect("a decoder");
    let mut failed = None;
    let at = Stamp::EPOCH;
    decoder.append(&[(at, at, message.as_bytes().into())], |_, error| {
        failed = Some(error);
    });
    assert!(
        matches!(failed, Some(PayloadError::TooLarge { .. })),
        "{failed:?}"
    );
}

#[test]
fn messages_without_bytes_of_a_type_with_many_columns_close_a_batch_in_time() {
    let fields = all(4000, |at| format!("\"f{at}\":{{\"type\":\"number\"}},"));
    let wide = json_schema(&format!(
        "{{\"properties\":{{{}}}}}",
        fields.trim_end_matches(',')
    ));
    let messages: Vec<_> = (0..2000).map(|_| (&wide, b"{}".to_vec())).collect();
    let file = recording(&messages);
    let options = TableOptions {
        threads: 1,
        ..TableOptions::default()
    };
    let most = options.bytes;
    let tables = Tables::read(&file, &Query::all(), options).expect("it opens");
    let mut rows = 0;
    for batch in tables {
        let batch = batch.expect("a batch").batch;
        rows += batch.num_rows();
        let bytes = batch.get_array_memory_size();
        assert!(bytes < 8 * most, "{bytes} bytes");
    }
    assert_eq!(rows, 2000);
}

#[test]
fn channels_of_one_definition_share_a_decoder() {
    let fields = all(2000, |at| format!("int8 f{at}\n"));
    let first = ros2("/t0", "t/msg/T", &fields);
    let mut decoders = Decoders::default();
    let mut kept = Vec::new();
    let before = asof_decode::decoders_made();
    for at in 0..500 {
        let channel = Arc::new(Channel {
            topic: format!("/t{at}"),
            ..first.clone()
        });
        let message = message(&channel, at, cdr(&[1; 2000]));
        let mut text = Vec::new();
        decoders
            .of(&channel, &[])
            .expect("a decoder")
            .write_json(&message.payload, &mut text)
            .expect("decodes");
        kept.push(channel);
    }
    let made = asof_decode::decoders_made() - before;
    assert!(made < 100, "{made} for 500 channels");
}
