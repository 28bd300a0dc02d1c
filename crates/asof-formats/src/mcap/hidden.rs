//! Records that a copy keeps although reading does not return them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{HiddenRecord, HiddenRecords, SourceError, Stamp, Topics};
use bytes::Bytes;
use mcap::records::op;

use super::Mcap;
use super::inner::Step;
use super::record::{HEADER_LEN, MESSAGE_HEADER_LEN, MessageHeader, RecordHeader};

/// Opcodes from here on are private to the writer.
pub(crate) const PRIVATE: u8 = 0x80;

/// Sections that contain something that reading does not return.
#[derive(Debug, Default)]
pub(super) struct HiddenPlaces(Mutex<BTreeSet<usize>>);

impl HiddenPlaces {
    pub fn note(&self, section: usize) {
        let mut sections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sections.insert(section);
    }

    fn sections(&self) -> BTreeSet<usize> {
        let sections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sections.clone()
    }
}

impl Mcap {
    pub(super) fn hidden_records(self: &Arc<Self>, topics: &Topics) -> HiddenRecords {
        let shared = Arc::clone(self);
        let places = shared.directory.private.clone();
        let private = places.into_iter().filter_map({
            let shared = Arc::clone(&shared);
            move |offset| shared.private_record(offset).transpose()
        });
        let mut sections = shared.hidden.sections();
        // A chunk whose end is past the last representable time declares a message there.
        for (index, section) in shared.directory.sections.iter().enumerate() {
            if section.range.end == Stamp::MAX {
                sections.insert(index);
            }
        }
        let topics = topics.clone();
        let in_sections = sections.into_iter().flat_map(move |section| {
            let found = shared.hidden_in(section, &topics);
            found.map_or_else(
                |error| vec![Err(error)],
                |all| all.into_iter().map(Ok).collect(),
            )
        });
        Box::new(private.chain(in_sections))
    }

    fn private_record(&self, offset: u64) -> Result<Option<HiddenRecord>, SourceError> {
        let head = self.storage().get(offset, HEADER_LEN)?;
        let header = RecordHeader::parse(offset, &head)
            .filter(|header| header.opcode >= PRIVATE && header.end() <= self.storage().size());
        let Some(header) = header else {
            return Ok(None);
        };
        Ok(Some(HiddenRecord::Private {
            opcode: header.opcode,
            data: self.storage().get(header.body(), header.len)?,
        }))
    }

    fn hidden_in(&self, section: usize, topics: &Topics) -> Result<Vec<HiddenRecord>, SourceError> {
        let bytes = self.bytes_of(section)?;
        let mut found = Vec::new();
        let mut records = self.directory.sections[section].records_in(&bytes);
        loop {
            let header = match records.next() {
                Step::Record(header) => header,
                Step::Gap(_) => continue,
                Step::End => break,
            };
            let body = bytes.slice(header.body() as usize..header.end() as usize);
            match header.opcode {
                op::MESSAGE => found.extend(self.message_beyond(&body, topics)),
                PRIVATE.. => found.push(HiddenRecord::Private {
                    opcode: header.opcode,
                    data: body,
                }),
                _ => {}
            }
        }
        Ok(found)
    }

    fn message_beyond(&self, body: &Bytes, topics: &Topics) -> Option<HiddenRecord> {
        let message = MessageHeader::parse(body)?;
        i64::try_from(message.log_time).is_err().then_some(())?;
        let definitions = self.definitions();
        let (_, channel) = definitions.find(message.channel)?;
        topics
            .contains(&channel.topic)
            .then(|| HiddenRecord::Message {
                channel: Arc::clone(channel),
                log_time: message.log_time,
                publish_time: message.publish_time,
                sequence: message.sequence,
                payload: body.slice(MESSAGE_HEADER_LEN as usize..),
            })
    }
}
