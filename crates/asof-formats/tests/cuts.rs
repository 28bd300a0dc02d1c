//! MCAP files that end anywhere, or have a bad byte inside of a chunk: every message that is whole is read.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use asof_core::{Message, Query, Source};
use asof_formats::{BagFile, McapFile};
use common::Dice;
use mcap::records::op;

fn all(bytes: Vec<u8>) -> Vec<Message> {
    let file = McapFile::from_bytes("test.mcap", bytes).expect("opens");
    common::messages(&file, &Query::all())
}

fn record_at(bytes: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let len: [u8; 8] = bytes.get(at + 1..at + 9)?.try_into().ok()?;
    let end = (at + 9).checked_add(usize::try_from(u64::from_le_bytes(len)).ok()?)?;
    Some((bytes[at], at + 9, end))
}

/// The compression of a chunk, and where its data starts: after three words, a checksum, a name and a length.
fn chunk_data(bytes: &[u8], body: usize) -> Option<(&[u8], usize)> {
    let name = body + 8 * 3 + 4;
    let len = u32::from_le_bytes(bytes.get(name..name + 4)?.try_into().ok()?) as usize;
    Some((bytes.get(name + 4..name + 4 + len)?, name + 4 + len + 8))
}

/// What comes out of compressed data before it breaks off.
fn unpacked(compression: &[u8], data: &[u8]) -> Vec<u8> {
    let mut reader: Box<dyn Read> = match compression {
        b"zstd" => Box::new(zstd::stream::read::Decoder::new(data).expect("a decoder")),
        b"lz4" => Box::new(lz4_flex::frame::FrameDecoder::new(data)),
        b"bz2" => Box::new(bzip2::read::BzDecoder::new(data)),
        _ => Box::new(data),
    };
    let (mut found, mut room) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(read @ 1..) = reader.read(&mut room) {
        found.extend_from_slice(&room[..read]);
    }
    found
}

/// Log times and payload sizes, with how many messages have each.
type Counts = BTreeMap<(i64, usize), usize>;

fn counts(messages: impl IntoIterator<Item = (i64, usize)>) -> Counts {
    let mut counts = Counts::new();
    for message in messages {
        *counts.entry(message).or_default() += 1;
    }
    counts
}

/// The message records that are whole in the records of a file or a chunk.
fn whole_messages(bytes: &[u8], mut at: usize, found: &mut Vec<(i64, usize)>) {
    while let Some((opcode, body, end)) = record_at(bytes, at) {
        if opcode == op::CHUNK
            && let Some((compression, start)) = chunk_data(bytes, body)
            && let Some(data) = bytes.get(start..end.min(bytes.len()))
        {
            whole_messages(&unpacked(compression, data), 0, found);
        }
        if end > bytes.len() {
            break;
        }
        if opcode == op::MESSAGE {
            let time = bytes[body + 6..body + 14].try_into().expect("eight bytes");
            found.push((i64::from_le_bytes(time), end - body - 22));
        }
        at = end;
    }
}

/// The messages by a plain walk over an MCAP file and into its chunks.
fn walked(bytes: &[u8]) -> Vec<(i64, usize)> {
    let mut found = Vec::new();
    whole_messages(bytes, 8, &mut found);
    found
}

/// Where the records of an uncompressed chunk are, for damaging them.
fn places_of_messages(bytes: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 8;
    while let Some((opcode, body, end)) = record_at(bytes, at) {
        let mut inner = match opcode {
            op::CHUNK => chunk_data(bytes, body).expect("a chunk").1,
            _ => end,
        };
        while inner < end {
            let (opcode, _, next) = record_at(bytes, inner).expect("a record");
            found.extend((opcode == op::MESSAGE).then_some(inner));
            inner = next;
        }
        at = end;
    }
    found
}

/// The header and the data of a bag's record, and its end, which may lie behind the bytes.
fn bag_record(bytes: &[u8], at: usize) -> Option<(&[u8], usize, usize)> {
    let word = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let data = at + 8 + word(at)?;
    let header = bytes.get(at + 4..data - 4)?;
    Some((header, data, data + word(data - 4)?))
}

/// A field of a bag's record header.
fn bag_field<'a>(mut header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    loop {
        let len = u32::from_le_bytes(header.get(..4)?.try_into().ok()?) as usize;
        let field = header.get(4..4 + len)?;
        if let Some(value) = field.strip_prefix(name)
            && let Some(value) = value.strip_prefix(b"=")
        {
            return Some(value);
        }
        header = &header[4 + len..];
    }
}

/// The messages by a plain walk over a bag and into its chunks.
fn walked_bag(bytes: &[u8]) -> Vec<(i64, usize)> {
    let start = bytes.iter().position(|&byte| byte == b'\n');
    let mut found = Vec::new();
    whole_messages_of_bag(bytes, start.expect("a line") + 1, &mut found);
    found
}

fn whole_messages_of_bag(bytes: &[u8], mut at: usize, found: &mut Vec<(i64, usize)>) {
    while let Some((header, data, end)) = bag_record(bytes, at) {
        let kind = bag_field(header, b"op");
        if kind == Some(&[5]) {
            let compression = bag_field(header, b"compression").expect("a compression");
            let data = &bytes[data..end.min(bytes.len())];
            whole_messages_of_bag(&unpacked(compression, data), 0, found);
        }
        if end > bytes.len() {
            break;
        }
        if kind == Some(&[2]) {
            let time = bag_field(header, b"time").expect("a time");
            let word = |at: usize| u32::from_le_bytes(time[at..at + 4].try_into().expect("four"));
            let nanos = i64::from(word(0)) * 1_000_000_000 + i64::from(word(4));
            found.push((nanos, end - data));
        }
        at = end;
    }
}

/// What of the messages that should be there a source does not have.
fn lost(source: &dyn Source, expected: &Counts) -> usize {
    let found = common::messages(source, &Query::all());
    let found = found.iter();
    let found = counts(found.map(|message| (message.log_time.nanos(), message.payload.len())));
    let missing = |(key, count): (&(i64, usize), &usize)| {
        count.saturating_sub(found.get(key).copied().unwrap_or(0))
    };
    expected.iter().map(missing).sum()
}

/// Messages whose payloads look like the front of an empty chunk: what the end of a double and zeros look like.
fn tempting(chunk_size: Option<u64>) -> Vec<u8> {
    let options = mcap::WriteOptions::new()
        .chunk_size(chunk_size)
        .compression(None)
        .compression_threads(0);
    let mut writer = options
        .create(std::io::Cursor::new(Vec::new()))
        .expect("a writer");
    let schema = writer.add_schema("t", "", b"").expect("a schema");
    let metadata = BTreeMap::new();
    let channel = writer
        .add_channel(schema, "/t", "x", &metadata)
        .expect("a channel");
    for sequence in 0..400u32 {
        let mut payload = vec![0; 300];
        payload[20..22].copy_from_slice(&[0x06, 0xc0]);
        let time = 1_000_000_000 + u64::from(sequence);
        let header = mcap::records::MessageHeader {
            channel_id: channel,
            sequence,
            log_time: time,
            publish_time: time,
        };
        writer
            .write_to_known_channel(&header, &payload)
            .expect("writes");
    }
    writer.finish().expect("finishes");
    writer.into_inner().into_inner()
}

#[test]
fn a_cut_inside_an_uncompressed_chunk_loses_nothing_that_is_there() {
    let demo = common::demo_file(1.0, common::small_chunks().compression(None));
    for bytes in [tempting(Some(64 << 10)), tempting(Some(8 << 10)), demo] {
        let mut dice = Dice(7);
        for _ in 0..60 {
            let cut = 200 + dice.roll(bytes.len() - 200);
            let expected = walked(&bytes[..cut]).len();
            let found = all(bytes[..cut].to_vec()).len();
            assert_eq!(found, expected, "cut at {cut} of {}", bytes.len());
        }
    }
}

#[test]
fn one_bad_byte_inside_a_chunk_costs_one_message() {
    let bytes = tempting(Some(64 << 10));
    let whole = places_of_messages(&bytes);
    assert_eq!(whole.len(), 400);
    for number in [0, 3, 100, 399] {
        let at = whole[number];
        let lost = |place: usize, value: u8| {
            let mut damaged = bytes.clone();
            damaged[place] = value;
            whole.len() - all(damaged).len()
        };
        assert_eq!(lost(at, 0), 1, "an opcode of 0");
        // A wrong length: its payload is wrong or missing, the others are there.
        for (place, value) in [(1, 3), (1, 0xff), (2, 9), (3, 1), (7, 0x80)] {
            let lost = lost(at + place, value);
            assert!(lost <= 1, "byte {place} of {number}: {lost} lost");
        }
    }
}

/// Where a record of this start, start of its contents and end is cut.
type Place<'a> = &'a dyn Fn(&mut Dice, usize, usize, usize) -> usize;

/// Places of every kind, some of each: where records start and end, in their headers and in their contents, anywhere.
fn places(records: &[(usize, usize, usize)], len: usize, dice: &mut Dice) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..10).map(|_| 200 + dice.roll(len - 200)).collect();
    // Chunks are large, and there may be few of them.
    let kinds: [Place<'_>; 4] = [
        &|_, start, _, _| start,
        &|dice, start, body, _| start + 1 + dice.roll(body - start),
        &|dice, _, body, end| body + dice.roll((end - body).max(1)),
        &|_, _, _, end| end,
    ];
    for kind in kinds {
        for _ in 0..5 {
            let (start, body, end) = records[dice.roll(records.len())];
            cuts.push(kind(dice, start, body, end).clamp(100, len));
        }
    }
    cuts
}

/// Cuts a recording at random places and compares with a walk over the rest; returns how many cuts there were.
fn cut(
    path: &Path,
    records: impl Fn(&[u8]) -> Vec<(usize, usize, usize)>,
    walked: impl Fn(&[u8]) -> Vec<(i64, usize)>,
    open: impl Fn(Vec<u8>) -> Box<dyn Source>,
) -> usize {
    let bytes = std::fs::read(path).expect("reads");
    // Some are damaged as they are, or have messages of channels that are not defined.
    let whole = common::messages(&*open(bytes.clone()), &Query::all());
    let whole = counts(
        whole
            .iter()
            .map(|one| (one.log_time.nanos(), one.payload.len())),
    );
    let mut dice = Dice(bytes.len() as u64);
    let cuts = places(&records(&bytes), bytes.len(), &mut dice);
    for &cut in &cuts {
        let mut expected = counts(walked(&bytes[..cut]));
        expected.retain(|key, count| {
            *count = (*count).min(whole.get(key).copied().unwrap_or(0));
            *count > 0
        });
        if expected.is_empty() {
            continue;
        }
        let lost = lost(&*open(bytes[..cut].to_vec()), &expected);
        assert_eq!(lost, 0, "{}: cut at {cut}", path.display());
    }
    cuts.len()
}

/// The recordings with an ending: all of them if `ASOF_CUTS` is set, which `ci/files/cuts` does, else the small ones.
fn recordings(ending: &str) -> Vec<std::path::PathBuf> {
    let Some(data) = common::test_data() else {
        return Vec::new();
    };
    let mut files = Vec::new();
    common::files_below(&data.join("recordings"), &mut files);
    let most = match std::env::var_os("ASOF_CUTS") {
        Some(_) => u64::MAX,
        None => 600_000,
    };
    files.retain(|path| {
        let size = std::fs::metadata(path).expect("a file").len();
        (1000..most).contains(&size) && path.extension().is_some_and(|found| found == ending)
    });
    assert!(!files.is_empty(), "no {ending}");
    files
}

#[test]
fn real_mcap_files_cut_anywhere_keep_what_a_plain_walk_finds() {
    let records = |bytes: &[u8]| {
        let mut found = Vec::new();
        let mut at = 8;
        while let Some((opcode, body, end)) = record_at(bytes, at) {
            if end > bytes.len() {
                break;
            }
            found.push((at, body, end));
            if opcode == op::CHUNK
                && let Some((b"", start)) = chunk_data(bytes, body)
            {
                let mut at = start;
                while let Some((_, body, inner)) = record_at(&bytes[..end], at) {
                    found.push((at, body, inner));
                    at = inner;
                }
            }
            at = end;
        }
        found
    };
    for path in recordings("mcap") {
        let open = |bytes: Vec<u8>| -> Box<dyn Source> {
            Box::new(McapFile::from_bytes("test.mcap", bytes).expect("opens"))
        };
        let tried = cut(&path, records, walked, open);
        assert!(tried >= 25, "{}", path.display());
    }
}

#[test]
fn real_bags_cut_anywhere_keep_what_a_plain_walk_finds() {
    let records = |bytes: &[u8]| {
        let start = bytes.iter().position(|&byte| byte == b'\n');
        let (mut found, mut at) = (Vec::new(), start.expect("a line") + 1);
        while let Some((header, data, end)) = bag_record(bytes, at) {
            if end > bytes.len() {
                break;
            }
            found.push((at, data, end));
            if bag_field(header, b"compression") == Some(b"none") {
                let mut at = data;
                while let Some((_, data, inner)) = bag_record(&bytes[..end], at) {
                    found.push((at, data, inner));
                    at = inner;
                }
            }
            at = end;
        }
        found
    };
    for path in recordings("bag") {
        let open = |bytes: Vec<u8>| -> Box<dyn Source> {
            Box::new(BagFile::from_bytes("test.bag", bytes).expect("opens"))
        };
        let tried = cut(&path, records, walked_bag, open);
        assert!(tried >= 25, "{}", path.display());
    }
}
