//! One section, read: its messages in order, with the buffer that holds them.

use std::fmt::Write as _;

use asof_core::{Problem, ProblemKind, Row, SourceError, Stamp, TimeRange};
use rusqlite::types::ValueRef;

use super::Db3Shared;
use super::directory::for_each;
use crate::sections::{Loaded, Wanted, order_of};

/// The first bytes of a zstd frame; no CDR payload starts so, since its second byte is at most 0x0b.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A message may not become larger than this.
const LARGEST_MESSAGE: usize = 1 << 30;

impl Db3Shared {
    /// Reads a section. What cannot be read is reported and left out.
    pub fn load_section(&self, index: usize, wanted: &Wanted) -> Result<Loaded, SourceError> {
        let section = &self.directory.sections[index];
        let mut buffer = Filling {
            bytes: self.pool.take(section.bytes as usize),
            used: 0,
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut faults: Vec<String> = Vec::new();
        let sql = self.sql(wanted);
        let losses = self.database.with(|connection| {
            Ok(for_each(
                connection,
                &sql,
                section.first,
                section.last,
                |id, row| {
                    let (Ok(topic), Ok(time)) = (row.get::<_, i64>(1), row.get::<_, i64>(2)) else {
                        return Ok(());
                    };
                    let Some(channel) = self.channel_of(topic) else {
                        return Ok(());
                    };
                    let payload = match row.get_ref(3)? {
                        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes,
                        _ => &[],
                    };
                    let offset = buffer.used as u64;
                    if let Err(fault) = buffer.push(payload) {
                        faults.push(format!("message id {id}: {fault}; it is left out"));
                        return Ok(());
                    }
                    let log_time = Stamp::from_nanos(time);
                    rows.push(Row {
                        log_time,
                        publish_time: log_time,
                        order: order_of(index, id.wrapping_sub(section.first) as u64),
                        offset,
                        len: buffer.used as u64 - offset,
                        sequence: 0,
                        channel,
                        buffer: 0,
                    });
                    Ok(())
                },
            ))
        })?;
        for loss in losses {
            self.report(loss.problem());
        }
        for fault in faults {
            self.report(Problem::whole(ProblemKind::BadRecord, fault));
        }
        if !rows.is_sorted_by_key(|row| row.log_time) {
            rows.sort_by_key(|row| (row.log_time, row.order));
        }
        let buffer = self.pool.seal(buffer.bytes, buffer.used);
        Ok(Loaded { buffer, rows })
    }

    /// What is not wanted is left to SQLite, which then does not touch its payload.
    fn sql(&self, wanted: &Wanted) -> String {
        let mut sql = String::from(
            "SELECT id, topic_id, timestamp, data FROM messages WHERE id >= ? AND id <= ?",
        );
        if !wanted.is_everything() {
            let ids: Vec<String> = self
                .topics
                .iter()
                .enumerate()
                .filter(|(index, _)| wanted.wants(*index as u32, &self.channels))
                .map(|(_, id)| id.to_string())
                .collect();
            let _ = write!(sql, " AND topic_id IN ({})", ids.join(","));
        }
        let TimeRange { start, end } = wanted.range;
        if start != Stamp::MIN {
            let _ = write!(sql, " AND timestamp >= {}", literal(start));
        }
        if end != Stamp::MAX {
            let _ = write!(sql, " AND timestamp <= {}", literal(end));
        }
        sql.push_str(" ORDER BY id");
        sql
    }

    /// Lets SQLite look over its own pages.
    pub fn check_pages(&self) -> Result<(), SourceError> {
        let found = self.database.with(|connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(100)")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<Result<Vec<_>, _>>()
        });
        let lines = match found {
            Ok(lines) => lines,
            Err(SourceError::Unreadable { reason, .. }) => vec![reason],
            Err(error) => return Err(error),
        };
        for line in lines.into_iter().filter(|line| line != "ok") {
            self.report(Problem::whole(
                ProblemKind::BadRecord,
                format!("SQLite: {line}"),
            ));
        }
        Ok(())
    }
}

/// A stamp in SQL; the smallest number cannot be written as it is.
fn literal(stamp: Stamp) -> String {
    match stamp.nanos() {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        nanos => nanos.to_string(),
    }
}

/// A buffer with payloads at its front.
struct Filling {
    bytes: Vec<u8>,
    used: usize,
}

impl Filling {
    /// Adds a payload, decompressed where it was compressed by itself.
    fn push(&mut self, payload: &[u8]) -> Result<(), String> {
        if payload.starts_with(&ZSTD) {
            return self.push_compressed(payload);
        }
        self.room(payload.len())?.copy_from_slice(payload);
        self.used += payload.len();
        Ok(())
    }

    fn push_compressed(&mut self, payload: &[u8]) -> Result<(), String> {
        let bound = zstd::zstd_safe::get_frame_content_size(payload)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size <= LARGEST_MESSAGE);
        let Some(bound) = bound else {
            let whole = zstd::stream::decode_all(payload).map_err(|error| error.to_string())?;
            self.room(whole.len())?.copy_from_slice(&whole);
            self.used += whole.len();
            return Ok(());
        };
        // A frame that lies about its size is found out before memory is spent on it.
        if bound > payload.len().saturating_mul(4096).saturating_add(1 << 20) {
            return Err(format!(
                "{} compressed bytes cannot hold {bound}",
                payload.len()
            ));
        }
        let room = self.room(bound)?;
        let written = zstd::bulk::decompress_to_buffer(payload, room)
            .map_err(|error| format!("its zstd data is damaged ({error})"))?;
        self.used += written;
        Ok(())
    }

    fn room(&mut self, len: usize) -> Result<&mut [u8], String> {
        let end = self.used + len;
        if end > self.bytes.len() {
            let larger = end.max(self.bytes.len().saturating_mul(2));
            self.bytes
                .try_reserve_exact(larger - self.bytes.len())
                .map_err(|_| format!("there is no memory for its {len} bytes"))?;
            self.bytes.resize(larger, 0);
        }
        Ok(&mut self.bytes[self.used..end])
    }
}
