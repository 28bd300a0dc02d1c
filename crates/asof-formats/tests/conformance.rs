//! The official MCAP conformance suite: every record of every variant, and what a source makes of it.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use asof_core::{FileParts, Query, Source};
use asof_formats::McapFile;
use serde_json::Value;

#[test]
fn every_variant_reads_as_its_expectation_says() {
    let Some(data) = common::test_data() else {
        return;
    };
    let mut variants = Vec::new();
    common::files_below(&data.join("conformance"), &mut variants);
    variants.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "mcap")
    });
    assert!(
        variants.len() >= 262,
        "only {} variants found",
        variants.len()
    );
    for variant in &variants {
        check(variant);
    }
    println!("{} variants of the conformance suite pass", variants.len());
}

/// The expected records of one type, each with its fields by name.
fn expected(path: &Path) -> BTreeMap<String, Vec<BTreeMap<String, Value>>> {
    let text = std::fs::read_to_string(path.with_extension("json"))
        .expect("an expectation beside the file");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let mut records: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for record in json["records"].as_array().expect("records") {
        let pair = |field: &Value| {
            (
                field[0].as_str().expect("a name").to_owned(),
                field[1].clone(),
            )
        };
        let fields = record["fields"]
            .as_array()
            .expect("fields")
            .iter()
            .map(pair)
            .collect();
        records
            .entry(record["type"].as_str().expect("a type").to_owned())
            .or_default()
            .push(fields);
    }
    records
}

fn bytes(value: &Value) -> Vec<u8> {
    let byte = |text: &Value| text.as_str().expect("a number").parse().expect("a byte");
    value.as_array().expect("bytes").iter().map(byte).collect()
}

fn number(value: &Value) -> i64 {
    value.as_str().expect("a number").parse().expect("a number")
}

fn check(path: &Path) {
    let name = path
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let records = expected(path);
    let none = Vec::new();
    let of = |kind: &str| records.get(kind).unwrap_or(&none);
    let file = McapFile::open(path).expect("opens");
    let summary = file.summary();
    assert_eq!(summary.problems, [], "{name}");
    assert_eq!(
        summary.profile,
        of("Header")[0]["profile"].as_str().unwrap_or_default(),
        "{name}"
    );
    assert_eq!(
        summary.library,
        of("Header")[0]["library"].as_str().unwrap_or_default(),
        "{name}"
    );

    let messages = common::messages(&file, &Query::all());
    assert_eq!(messages.len(), of("Message").len(), "{name}");
    assert_eq!(summary.messages, Some(messages.len() as u64), "{name}");
    for (found, wanted) in messages.iter().zip(of("Message")) {
        assert_eq!(
            found.log_time.nanos(),
            number(&wanted["log_time"]),
            "{name}"
        );
        assert_eq!(
            found.publish_time.nanos(),
            number(&wanted["publish_time"]),
            "{name}"
        );
        assert_eq!(
            i64::from(found.sequence),
            number(&wanted["sequence"]),
            "{name}"
        );
        assert_eq!(found.payload, bytes(&wanted["data"]), "{name}");
        let channel = of("Channel")
            .iter()
            .find(|c| c["id"] == wanted["channel_id"])
            .expect("its channel");
        assert_eq!(
            found.channel.topic,
            channel["topic"].as_str().unwrap_or_default(),
            "{name}"
        );
        assert_eq!(
            found.channel.message_encoding,
            channel["message_encoding"].as_str().unwrap_or_default(),
            "{name}"
        );
        let metadata = serde_json::to_value(&found.channel.metadata).expect("JSON");
        assert_eq!(metadata, channel["metadata"], "{name}");
        match of("Schema")
            .iter()
            .find(|s| s["id"] == channel["schema_id"])
        {
            None => assert_eq!(found.channel.schema, None, "{name}"),
            Some(wanted) => {
                let schema = found.channel.schema.as_ref().expect("a schema");
                assert_eq!(
                    schema.name,
                    wanted["name"].as_str().unwrap_or_default(),
                    "{name}"
                );
                assert_eq!(
                    schema.encoding,
                    wanted["encoding"].as_str().unwrap_or_default(),
                    "{name}"
                );
                assert_eq!(schema.data, bytes(&wanted["data"]), "{name}");
            }
        }
    }

    assert_eq!(summary.attachments.len(), of("Attachment").len(), "{name}");
    for (found, wanted) in summary.attachments.iter().zip(of("Attachment")) {
        assert_eq!(
            found.name,
            wanted["name"].as_str().unwrap_or_default(),
            "{name}"
        );
        assert_eq!(
            found.media_type,
            wanted["media_type"].as_str().unwrap_or_default(),
            "{name}"
        );
        assert_eq!(
            found.log_time.map(Into::into),
            Some(number(&wanted["log_time"])),
            "{name}"
        );
        assert_eq!(
            found.create_time.map(Into::into),
            Some(number(&wanted["create_time"])),
            "{name}"
        );
        assert_eq!(
            file.attachment(found).expect("its data"),
            bytes(&wanted["data"]),
            "{name}"
        );
    }
    assert_eq!(summary.metadata.len(), of("Metadata").len(), "{name}");
    for (found, wanted) in summary.metadata.iter().zip(of("Metadata")) {
        assert_eq!(
            found.name,
            wanted["name"].as_str().unwrap_or_default(),
            "{name}"
        );
        let metadata = serde_json::to_value(file.metadata(found).expect("its text")).expect("JSON");
        assert_eq!(metadata, wanted["metadata"], "{name}");
    }
    let problems = file.check(&mut |_, _| Ok(())).expect("reads");
    assert_eq!(problems, [], "{name}");
}
