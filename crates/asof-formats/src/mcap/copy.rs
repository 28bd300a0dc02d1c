//! From one recording into another.

use std::io::{Seek, Write};

use asof_core::{Problem, ProblemKind, Query, Source, SourceError, Stamp};

use super::McapFile;
use super::writer::{Attachment, McapWriteError, McapWriter};

/// What was copied from one recording into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Messages.
    pub messages: u64,
    /// Attachments.
    pub attachments: u64,
    /// Metadata records.
    pub metadata: u64,
}

/// Why copying stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The input could not be read.
    #[error(transparent)]
    Read(#[from] SourceError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] McapWriteError),
}

impl McapFile {
    /// Writes the messages that match, in order, and everything that lies beside them: channels (also
    /// those without a message), attachments, metadata. What cannot be read is left out, and is among
    /// the problems afterwards. `progress` hears how many messages were written.
    ///
    /// # Errors
    /// When the input cannot be read at all, or the output cannot be written.
    pub fn copy_to<W: Write + Seek>(
        &self,
        query: &Query,
        writer: &mut McapWriter<W>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, CopyError> {
        let summary = self.summary();
        let mut copied = Copied::default();
        for entry in summary
            .channels
            .iter()
            .filter(|entry| query.topics.contains(&entry.channel.topic))
        {
            writer.add_channel(&entry.channel)?;
        }
        for batch in self.read(query)? {
            let batch = batch?;
            for message in batch.iter() {
                writer.write_ref(message)?;
            }
            copied.messages += batch.len() as u64;
            progress(copied.messages);
        }
        for entry in &summary.attachments {
            let data = match self.attachment(entry) {
                Ok(data) => data,
                Err(SourceError::Unreadable { reason, .. }) => {
                    self.shared
                        .report(Problem::at(ProblemKind::BadRecord, entry.offset, reason));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            writer.attach(&Attachment {
                name: &entry.name,
                media_type: &entry.media_type,
                log_time: entry.log_time.unwrap_or(Stamp::EPOCH),
                create_time: entry.create_time.unwrap_or(Stamp::EPOCH),
                data: &data,
            })?;
            copied.attachments += 1;
        }
        for entry in &summary.metadata {
            match self.metadata(entry) {
                Ok(metadata) => writer.write_metadata(&entry.name, metadata)?,
                Err(SourceError::Unreadable { reason, .. }) => {
                    self.shared
                        .report(Problem::at(ProblemKind::BadRecord, entry.offset, reason));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            copied.metadata += 1;
        }
        Ok(copied)
    }
}
