//! Opening a bag: by the index at its end, or by scanning it.

use asof_core::{Problem, ProblemKind, SourceError, TimeRange};

use super::connections::Connections;
use super::record::{Fields, Frame, INDEX_ENTRY_LEN, LONGEST_HEADER, MAGIC, op};
use super::scan::{Opened, Scan};
use super::{Contents, Section, SectionKind};
use crate::problems::Problems;
use crate::storage::Storage;

pub(crate) fn open(storage: &dyn Storage) -> Result<Opened, SourceError> {
    refuse_other_versions(storage)?;
    let mut problems = Problems::default();
    let head = storage.get(MAGIC.len() as u64, LONGEST_HEADER)?;
    let parsed = Frame::parse(MAGIC.len() as u64, &head).and_then(|(frame, header)| {
        let fields = Fields::parse(header).filter(|fields| fields.op == Some(op::BAG_HEADER))?;
        Some((frame, fields))
    });
    let Some((frame, fields)) = parsed else {
        let message = "the bag's header cannot be read; the file was scanned instead";
        let offset = MAGIC.len() as u64;
        problems.push(Problem::at(ProblemKind::BadRecord, offset, message));
        return walk(storage, offset, problems);
    };
    refuse_encrypted(storage, &fields)?;
    let index = fields.index_pos.unwrap_or(0);
    let size = storage.size();
    if index == 0 {
        let message =
            "the recording was not closed: there is no index; it was rebuilt by walking the file";
        problems.push(Problem::whole(ProblemKind::Incomplete, message));
        return walk(storage, frame.end(), problems);
    }
    if index < frame.end() || index > size {
        let message = format!(
            "the index should be at byte {index} of {size}, where it cannot be; the file was scanned instead"
        );
        let kind = if index > size {
            ProblemKind::Truncated
        } else {
            ProblemKind::BadIndex
        };
        problems.push(Problem::at(kind, frame.at, message));
        return walk(storage, frame.end(), problems);
    }
    match read_index(storage, index, &fields)? {
        Ok(opened) => Ok(opened),
        Err(problem) => {
            problems.push(problem);
            walk(storage, frame.end(), problems)
        }
    }
}

fn walk(storage: &dyn Storage, from: u64, problems: Problems) -> Result<Opened, SourceError> {
    let mut scan = Scan::new(storage, problems);
    scan.walk(from)?;
    Ok(scan.finish())
}

fn refuse_other_versions(storage: &dyn Storage) -> Result<(), SourceError> {
    // Older versions have longer names.
    let front = storage.get(0, 2 * MAGIC.len() as u64)?;
    if front.starts_with(MAGIC) {
        return Ok(());
    }
    let line = String::from_utf8_lossy(&front);
    let line = line.lines().next().unwrap_or_default();
    let reason = if line.starts_with("#ROSBAG V") || line.starts_with("#ROSRECORD V") {
        format!(
            "this is a bag of an old version ('{line}'); asof reads version 2.0: run `rosbag reindex` or `rosbag fix` on it first"
        )
    } else {
        "this is not a ROS 1 bag: it does not start with '#ROSBAG V2.0'".to_owned()
    };
    Err(unreadable(storage, reason))
}

fn refuse_encrypted(storage: &dyn Storage, fields: &Fields<'_>) -> Result<(), SourceError> {
    match fields.encryptor {
        Some(name) if !name.is_empty() => Err(unreadable(
            storage,
            format!(
                "this bag is encrypted ('{}'); decrypt it with `rosbag decrypt` first",
                String::from_utf8_lossy(name)
            ),
        )),
        _ => Ok(()),
    }
}

fn unreadable(storage: &dyn Storage, reason: String) -> SourceError {
    SourceError::Unreadable {
        place: storage.name().to_owned(),
        reason,
    }
}

/// Connections and chunk infos, from `index` to the end of the file; the inner error is why they are not trusted.
fn read_index(
    storage: &dyn Storage,
    index: u64,
    declared: &Fields<'_>,
) -> Result<Result<Opened, Problem>, SourceError> {
    let size = storage.size();
    let bytes = storage.get(index, size - index)?;
    let mut connections = Connections::default();
    let mut problems = Problems::default();
    let mut sections = Vec::new();
    let mut defined = 0;
    let mut at = 0;
    while at < bytes.len() {
        let offset = index + at as u64;
        let bad = |what: &str| {
            let message = format!("{what}; the file was scanned instead");
            Ok(Err(Problem::at(ProblemKind::BadIndex, offset, message)))
        };
        let parsed = Frame::parse(at as u64, &bytes[at..]).and_then(|(frame, header)| {
            let fields = Fields::parse(header).filter(Fields::is_complete)?;
            let data = bytes.get(frame.data() as usize..frame.end() as usize)?;
            Some((frame, fields, data))
        });
        let Some((frame, fields, data)) = parsed else {
            return bad("the index is damaged or cut here");
        };
        at = frame.end() as usize;
        match fields.op {
            Some(op::CONNECTION) => {
                let (Some(id), Some(topic)) = (fields.conn, fields.topic) else {
                    return bad("the index has a connection without id or topic");
                };
                defined += 1;
                problems.extend(connections.add(offset, id, topic, data));
            }
            Some(op::CHUNK_INFO) => match section_of(&fields, data, index) {
                Some(section) => sections.push(section),
                None => return bad("a chunk info points outside of the file"),
            },
            _ => return bad("the index has a record that does not belong there"),
        }
    }
    let is_short = |declared: Option<u32>, found: usize| {
        declared.is_some_and(|declared| declared as usize > found)
    };
    if is_short(declared.chunk_count, sections.len()) || is_short(declared.conn_count, defined) {
        let message = format!(
            "the index lists {} chunks and {defined} connections, fewer than the {} and {} that the bag's header counts; the file was scanned instead",
            sections.len(),
            declared.chunk_count.unwrap_or(0),
            declared.conn_count.unwrap_or(0)
        );
        return Ok(Err(Problem::at(ProblemKind::Truncated, index, message)));
    }
    sections.sort_by_key(|section| section.offset);
    if let Some(twice) = sections
        .windows(2)
        .find(|two| two[0].offset == two[1].offset)
    {
        let message = format!(
            "the index names the chunk at byte {} more than once; the file was scanned instead",
            twice[0].offset
        );
        return Ok(Err(Problem::at(ProblemKind::BadIndex, index, message)));
    }
    // The index records of a chunk follow it, up to the next chunk.
    for place in 1..sections.len() {
        sections[place - 1].end = sections[place].offset;
    }
    // Each message has an entry in an index record after its chunk.
    let has_room = |section: &&Section| {
        let counts = section.contents.known().unwrap_or_default().iter();
        let messages = counts.fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        messages.saturating_mul(INDEX_ENTRY_LEN) <= section.end.saturating_sub(section.offset)
    };
    if let Some(full) = sections.iter().find(|section| !has_room(section)) {
        let message = format!(
            "the index counts more messages in the chunk at byte {} than there is room for; the file was scanned instead",
            full.offset
        );
        return Ok(Err(Problem::at(ProblemKind::BadIndex, index, message)));
    }
    Ok(Ok(Opened {
        sections,
        connections,
        problems,
    }))
}

fn section_of(fields: &Fields<'_>, data: &[u8], index: u64) -> Option<Section> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
    let counts: Box<[(u32, u64)]> = data
        .chunks_exact(8)
        .filter_map(|pair| Some((word(&pair[..4])?, u64::from(word(&pair[4..])?))))
        .filter(|&(_, count)| count > 0)
        .collect();
    let offset = fields.chunk_pos.filter(|&offset| offset < index)?;
    Some(Section {
        kind: SectionKind::Chunk,
        offset,
        end: index,
        range: TimeRange::new(fields.start_time?, fields.end_time?),
        contents: Contents::Indexed(counts),
        size: 0,
        compression: String::new(),
    })
}
