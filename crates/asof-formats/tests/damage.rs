//! Files that are damaged, or unusual: what is readable is read, and the rest is said with its place.

mod common;

use asof_core::{Message, ProblemKind, Query, Source};
use asof_formats::McapFile;
use mcap::records::op;

/// Top-level records: opcode, where it starts, where it ends.
fn records(bytes: &[u8]) -> Vec<(u8, usize, usize)> {
    let mut found = Vec::new();
    let mut at = 8;
    while at + 9 <= bytes.len() - 8 {
        let len =
            u64::from_le_bytes(bytes[at + 1..at + 9].try_into().expect("eight bytes")) as usize;
        found.push((bytes[at], at, at + 9 + len));
        at += 9 + len;
    }
    found
}

fn chunks(bytes: &[u8]) -> Vec<(usize, usize)> {
    records(bytes)
        .into_iter()
        .filter(|&(opcode, ..)| opcode == op::CHUNK)
        .map(|(_, start, end)| (start, end))
        .collect()
}

fn open(bytes: Vec<u8>) -> McapFile {
    McapFile::from_bytes("test.mcap", bytes).expect("opens")
}

fn all(file: &McapFile) -> Vec<Message> {
    common::messages(file, &Query::all())
}

fn kinds(file: &McapFile) -> Vec<(ProblemKind, Option<u64>)> {
    file.summary()
        .problems
        .iter()
        .map(|problem| (problem.kind, problem.offset))
        .collect()
}

/// Without a summary: the file ends with its last message index.
fn without_summary() -> Vec<u8> {
    common::demo_file(
        1.0,
        common::small_chunks()
            .emit_summary_records(false)
            .emit_summary_offsets(false),
    )
}

fn whole() -> Vec<u8> {
    common::demo_file(1.0, common::small_chunks())
}

/// Puts a record in front of the data end record, and mends the footer.
fn add_record(mut bytes: Vec<u8>, opcode: u8, body: &[u8]) -> Vec<u8> {
    let (_, data_end, after) = *records(&bytes)
        .iter()
        .find(|record| record.0 == op::DATA_END)
        .expect("a data end");
    bytes[after - 4..after].fill(0);
    let record = [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat();
    bytes.splice(data_end..data_end, record.iter().copied());
    let footer = bytes.len() - 8 - 20;
    for field in [footer, footer + 8] {
        let old = u64::from_le_bytes(bytes[field..field + 8].try_into().expect("eight bytes"));
        if old != 0 {
            bytes[field..field + 8].copy_from_slice(&(old + record.len() as u64).to_le_bytes());
        }
    }
    bytes[footer + 16..footer + 20].fill(0);
    bytes
}

fn message_body(channel: u16, log_time: u64, payload: &[u8]) -> Vec<u8> {
    let times = [log_time.to_le_bytes(), log_time.to_le_bytes()].concat();
    [
        &channel.to_le_bytes()[..],
        &7u32.to_le_bytes(),
        &times,
        payload,
    ]
    .concat()
}

#[test]
fn every_way_of_writing_a_recording_reads_alike() {
    let wanted = all(&open(whole()));
    assert!(wanted.len() > 300);
    let plain = common::small_chunks;
    let ways = [
        (
            "no summary",
            plain()
                .emit_summary_records(false)
                .emit_summary_offsets(false),
        ),
        ("no chunk index", plain().emit_chunk_indexes(false)),
        ("no message index", plain().emit_message_indexes(false)),
        (
            "neither statistics nor message index",
            plain().emit_message_indexes(false).emit_statistics(false),
        ),
        ("no repeated channels", plain().repeat_channels(false)),
        ("no repeated schemas", plain().repeat_schemas(false)),
        ("no statistics", plain().emit_statistics(false)),
        ("unchunked", plain().use_chunks(false)),
        ("lz4", plain().compression(Some(mcap::Compression::Lz4))),
        ("uncompressed", plain().compression(None)),
        ("one chunk", plain().chunk_size(None)),
        (
            "no checksums",
            plain()
                .calculate_chunk_crcs(false)
                .calculate_data_section_crc(false)
                .calculate_summary_section_crc(false),
        ),
    ];
    for (name, options) in ways {
        let file = open(common::demo_file(1.0, options));
        assert_eq!(kinds(&file), [], "{name}");
        assert!(all(&file) == wanted, "{name}");
        assert_eq!(file.summary().messages, Some(wanted.len() as u64), "{name}");
        assert_eq!(
            file.summary().range,
            open(whole()).summary().range,
            "{name}"
        );
        assert_eq!(file.summary().attachments.len(), 1, "{name}");
        assert_eq!(file.check(&mut |_, _| Ok(())).expect("reads"), [], "{name}");
        let odom = common::messages(&file, &Query::topics(["/odom"]));
        assert!(
            odom.iter()
                .eq(wanted.iter().filter(|m| m.channel.topic == "/odom")),
            "{name}"
        );
    }
}

#[test]
fn a_file_cut_within_a_chunk_keeps_the_readable_front_of_that_chunk() {
    // Compressed data is readable block by block, so the chunks must be of several blocks.
    let large = || {
        mcap::WriteOptions::new()
            .chunk_size(Some(300 << 10))
            .emit_summary_records(false)
            .emit_summary_offsets(false)
    };
    for compression in [
        Some(mcap::Compression::Zstd),
        Some(mcap::Compression::Lz4),
        None,
    ] {
        let bytes = common::demo_file(4.0, large().compression(compression).compression_threads(0));
        let (start, end) = chunks(&bytes)[1];
        let before = all(&open([&bytes[..start], mcap::MAGIC].concat())).len();
        let file = open(bytes[..start + (end - start) * 9 / 10].to_vec());
        assert!(
            kinds(&file).contains(&(ProblemKind::Truncated, Some(start as u64))),
            "{:?}",
            kinds(&file)
        );
        let found = all(&file);
        assert!(
            found.len() > before,
            "nothing of the cut chunk, {compression:?}"
        );
        assert!(found == all(&open(bytes))[..found.len()], "{compression:?}");
        assert_eq!(file.summary().messages, Some(found.len() as u64));
    }
}

#[test]
fn a_file_without_its_footer_loses_nothing() {
    let bytes = whole();
    let file = open(bytes[..bytes.len() - 30].to_vec());
    assert_eq!(kinds(&file)[0].0, ProblemKind::Truncated);
    assert!(all(&file) == all(&open(bytes)));
}

#[test]
fn a_hole_in_the_middle_costs_the_chunks_in_it_and_no_more() {
    for bytes in [without_summary(), whole()] {
        let chunks = chunks(&bytes);
        let total = all(&open(bytes.clone())).len();
        let mut holed = bytes.clone();
        holed[chunks[2].0 - 3..chunks[3].0 + 20].fill(0);
        let file = open(holed);
        let found = all(&file);
        let lost = total - found.len();
        assert!(lost > 0 && lost < total / 3, "{lost} of {total} lost");
        let problems = kinds(&file);
        assert!(
            problems
                .iter()
                .any(|(_, offset)| offset.is_some_and(|o| o >= chunks[1].0 as u64)),
            "{problems:?}"
        );
        assert!(!file.check(&mut |_, _| Ok(())).expect("reads").is_empty());
    }
}

#[test]
fn a_wrong_checksum_is_reported_at_its_chunk_and_the_messages_are_kept() {
    let mut bytes = whole();
    let start = chunks(&bytes)[1].0;
    bytes[start + 9 + 24] ^= 0xff;
    let file = open(bytes);
    assert_eq!(kinds(&file), [], "opening reads the summary only");
    assert!(all(&file) == all(&open(whole())));
    assert_eq!(
        kinds(&file),
        [(ProblemKind::BadChecksum, Some(start as u64))]
    );
}

#[test]
fn a_summary_with_a_wrong_checksum_is_not_believed() {
    let mut bytes = whole();
    let place = bytes.len() - 60;
    bytes[place] ^= 1;
    let file = open(bytes);
    assert_eq!(kinds(&file)[0].0, ProblemKind::BadChecksum);
    assert!(all(&file) == all(&open(whole())));
}

#[test]
fn a_chunk_that_lies_about_its_size_is_read_as_far_as_it_goes() {
    // The size once decompressed, and the size compressed.
    for (field, size) in [(16, 1u64 << 40), (16, 5), (16, u64::MAX)] {
        let mut bytes = whole();
        let start = chunks(&bytes)[1].0;
        bytes[start + 9 + field..start + 9 + field + 8].copy_from_slice(&size.to_le_bytes());
        let file = open(bytes);
        let found = all(&file);
        assert!(
            kinds(&file).contains(&(ProblemKind::BadChunk, Some(start as u64))),
            "{:?}",
            kinds(&file)
        );
        if size > 5 {
            assert!(found == all(&open(whole())));
        }
    }
}

#[test]
fn a_kilobyte_that_claims_a_terabyte_costs_nothing() {
    let claims = [1u64 << 40, u64::MAX, u64::MAX - 8];
    for claim in claims {
        for compression in ["", "zstd", "lz4"] {
            let mut body = [[0; 8], [9; 8], claim.to_le_bytes()].concat();
            body.extend([0; 4]);
            body.extend((compression.len() as u32).to_le_bytes());
            body.extend(compression.as_bytes());
            body.extend(claim.to_le_bytes());
            body.extend([0x28; 900]);
            for len in [claim, body.len() as u64] {
                let record = [&[op::CHUNK][..], &len.to_le_bytes(), &body].concat();
                let file = open([mcap::MAGIC, &record].concat());
                assert!(all(&file).is_empty());
                assert!(!kinds(&file).is_empty());
            }
        }
    }
}

#[test]
fn a_compression_that_nobody_knows_costs_its_chunk() {
    // Where there is a summary, the chunk's index knows it.
    let mut bytes = without_summary();
    let chunk = chunks(&bytes)[2].0;
    let name = bytes[chunk..]
        .windows(4)
        .position(|window| window == b"zstd")
        .expect("its compression")
        + chunk;
    bytes[name..name + 4].copy_from_slice(b"zzzz");
    let total = all(&open(without_summary())).len();
    let file = open(bytes);
    let found = all(&file).len();
    assert!(found > total / 2 && found < total);
    let unknown = (ProblemKind::UnknownCompression, Some(chunk as u64));
    assert!(kinds(&file).contains(&unknown));
}

#[test]
fn private_and_unknown_records_are_passed_over() {
    let bytes = without_summary();
    let place = chunks(&bytes)[2].0;
    for opcode in [0x80u8, 0xff, 0x42] {
        let record = [&[opcode][..], &5u64.to_le_bytes(), b"hello"].concat();
        let changed = [&bytes[..place], &record, &bytes[place..]].concat();
        // Cut as well, so that nothing but a walk over the records can find the rest.
        let cut = changed.len() - 100;
        let file = open(changed[..cut].to_vec());
        let total = all(&open(bytes.clone())).len();
        assert!(all(&file).len() > total * 9 / 10, "{opcode:#x}");
    }
}

#[test]
fn messages_outside_of_chunks_are_found_beside_a_summary() {
    let bytes = whole();
    let end = open(bytes.clone())
        .summary()
        .range
        .end
        .to_unsigned_nanos()
        .expect("after 1970");
    let changed = add_record(
        bytes.clone(),
        op::MESSAGE,
        &message_body(1, end + 5, b"late"),
    );
    let file = open(changed);
    let found = all(&file);
    assert_eq!(found.len(), all(&open(bytes)).len() + 1);
    assert_eq!(found.last().expect("messages").payload, "late");
}

#[test]
fn a_time_past_2262_is_reported_and_costs_that_message() {
    let file = open(add_record(
        whole(),
        op::MESSAGE,
        &message_body(1, u64::MAX, b"never"),
    ));
    assert_eq!(all(&file).len(), all(&open(whole())).len());
    assert!(
        kinds(&file)
            .iter()
            .any(|(kind, _)| *kind == ProblemKind::BadTime),
        "{:?}",
        kinds(&file)
    );
}

#[test]
fn a_message_on_a_channel_that_nobody_defined_is_counted() {
    let file = open(add_record(
        whole(),
        op::MESSAGE,
        &message_body(999, 5, b"whose?"),
    ));
    assert_eq!(all(&file).len(), all(&open(whole())).len());
    assert!(
        kinds(&file)
            .iter()
            .any(|(kind, _)| *kind == ProblemKind::UnknownReference),
        "{:?}",
        kinds(&file)
    );
}

#[test]
fn a_second_definition_of_a_channel_that_disagrees_is_reported() {
    let body = [
        &1u16.to_le_bytes()[..],
        &0u16.to_le_bytes(),
        &2u32.to_le_bytes(),
        b"/x",
        &[0; 8],
    ]
    .concat();
    let file = open(add_record(whole(), op::CHANNEL, &body));
    assert_eq!(kinds(&file)[0].0, ProblemKind::ConflictingDefinition);
    assert!(all(&file) == all(&open(whole())));
}

#[test]
fn what_is_no_mcap_file_is_refused_in_a_sentence() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"\x89MCA", "first 8"),
        (b"hello, world, here I am", "not an MCAP"),
    ] {
        let error = McapFile::from_bytes("x.mcap", bytes.to_vec())
            .expect_err("refused")
            .to_string();
        assert!(
            error.starts_with("x.mcap: ") && error.contains(word),
            "{error}"
        );
    }
}

#[test]
fn an_index_that_points_elsewhere_does_not_mislead_latest_at() {
    let mut bytes = whole();
    let index = records(&bytes)
        .into_iter()
        .rfind(|record| record.0 == op::MESSAGE_INDEX)
        .expect("an index");
    // The last entry's place in the chunk.
    let place = index.2 - 8;
    bytes[place..place + 8].copy_from_slice(&3u64.to_le_bytes());
    let good = open(whole());
    let end = good.summary().range.end;
    let topics = asof_core::Topics::All;
    let wanted: Vec<_> = good
        .latest_at(&topics, end)
        .expect("reads")
        .iter()
        .map(|m| m.to_message())
        .collect();
    let file = open(bytes);
    let found: Vec<_> = file
        .latest_at(&topics, end)
        .expect("reads")
        .iter()
        .map(|m| m.to_message())
        .collect();
    assert!(found == wanted);
    assert_eq!(kinds(&file)[0].0, ProblemKind::BadIndex);
}

/// A file of messages on channel 1 outside of chunks, with statistics that count them.
fn counted(channel: bool, times: &[u64]) -> Vec<u8> {
    let record = |opcode: u8, body: &[u8]| {
        [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat()
    };
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = mcap::MAGIC.to_vec();
    bytes.extend(record(op::HEADER, &[text(""), text("")].concat()));
    let defined = [vec![1, 0, 0, 0], text("/a"), text("json"), vec![0; 4]].concat();
    if channel {
        bytes.extend(record(op::CHANNEL, &defined));
    }
    for time in times {
        let time = time.to_le_bytes();
        bytes.extend(record(
            op::MESSAGE,
            &[&[1, 0, 0, 0, 0, 0][..], &time, &time].concat(),
        ));
    }
    bytes.extend(record(op::DATA_END, &[0; 4]));
    let summary = bytes.len() as u64;
    if channel {
        bytes.extend(record(op::CHANNEL, &defined));
    }
    let count = (times.len() as u64).to_le_bytes();
    let mut statistics = count.to_vec();
    statistics.extend([0, 0]);
    statistics.extend(u32::from(channel).to_le_bytes());
    statistics.extend([0; 12]);
    statistics.extend(times.iter().min().expect("times").to_le_bytes());
    statistics.extend(times.iter().max().expect("times").to_le_bytes());
    statistics.extend(10u32.to_le_bytes());
    statistics.extend([1, 0]);
    statistics.extend(count);
    bytes.extend(record(op::STATISTICS, &statistics));
    bytes.extend(record(
        op::FOOTER,
        &[&summary.to_le_bytes()[..], &[0; 12]].concat(),
    ));
    bytes.extend(mcap::MAGIC);
    bytes
}

#[test]
fn a_summary_counts_what_can_be_read() {
    let past = u64::MAX - 5;
    for (channel, times, readable) in [
        (true, vec![5, 6, 7], 3),
        (false, vec![5, 6, 7], 0),
        (true, vec![5, past, 7], 2),
        (true, vec![past, past], 0),
    ] {
        let file = open(counted(channel, &times));
        let summary = file.summary();
        assert_eq!(summary.messages, Some(readable), "{times:?}");
        assert_eq!(all(&file).len() as u64, readable, "{times:?}");
        let by_channel: u64 = summary.channels.iter().filter_map(|one| one.messages).sum();
        assert_eq!(by_channel, readable, "{times:?}");
        let is_good = readable == times.len() as u64;
        assert_eq!(
            summary.problems.is_empty(),
            is_good,
            "{:?}",
            summary.problems
        );
    }
}
