//! The MCAP writer.

use std::ffi::c_char;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use asof::formats::{McapWriteError, McapWriter, McapWriterOptions};
use asof::{Channel, Message, Schema};

use crate::border::{
    AsofStatus, Failure, array, call, free, hand_out, held_alone, put, take, text,
};

/// A recording that is being written. One thread at a time uses it.
pub struct AsofWriter {
    writer: McapWriter<BufWriter<File>>,
    channels: Vec<Arc<Channel>>,
}

impl From<McapWriteError> for Failure {
    fn from(error: McapWriteError) -> Self {
        Failure::new(AsofStatus::Unreadable, error)
    }
}

/// Creates an MCAP file, and replaces one that is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_writer_new(
    path: *const c_char,
    writer: *mut *mut AsofWriter,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let path = unsafe { text(path) }?;
        if writer.is_null() {
            return Err(Failure::invalid("the place for the handle is NULL"));
        }
        let created = AsofWriter {
            writer: McapWriter::create(path, McapWriterOptions::default())?,
            channels: Vec::new(),
        };
        // SAFETY: upheld by the caller.
        unsafe { hand_out(writer, created) }
    })
}

/// Adds a channel to write to. `encoding` is that of its messages ("cdr", "json", "protobuf"); the type may be NULL, and then
/// there is no schema.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_writer_channel(
    writer: *mut AsofWriter,
    topic: *const c_char,
    encoding: *const c_char,
    message_type: *const c_char,
    schema_encoding: *const c_char,
    schema: *const u8,
    schema_size: usize,
    channel: *mut u32,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (writer, topic, encoding) =
            unsafe { (held_alone(writer)?, text(topic)?, text(encoding)?) };
        let schema = if message_type.is_null() {
            None
        } else {
            // SAFETY: upheld by the caller.
            let (name, kind, data) = unsafe {
                let name = text(message_type)?;
                (name, text(schema_encoding)?, array(schema, schema_size)?)
            };
            Some(Arc::new(Schema {
                name: name.to_owned(),
                encoding: kind.to_owned(),
                data: data.to_vec().into(),
            }))
        };
        let added = Arc::new(Channel {
            topic: topic.to_owned(),
            message_encoding: encoding.to_owned(),
            schema,
            ..Channel::default()
        });
        let number = u32::try_from(writer.channels.len())
            .map_err(|_| Failure::fixed(AsofStatus::Full, "there are too many channels"))?;
        // SAFETY: upheld by the caller.
        unsafe { put(channel, number) }?;
        writer.writer.add_channel(&added)?;
        writer.channels.push(added);
        Ok(())
    })
}

/// Writes a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_writer_write(
    writer: *mut AsofWriter,
    channel: u32,
    log_time: i64,
    publish_time: i64,
    sequence: u32,
    data: *const u8,
    size: usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (writer, payload) = unsafe { (held_alone(writer)?, array(data, size)?) };
        let channel = writer.channels.get(channel as usize);
        let channel =
            channel.ok_or(Failure::invalid("the channel was not added to this writer"))?;
        let message = Message {
            channel: Arc::clone(channel),
            log_time: log_time.into(),
            publish_time: publish_time.into(),
            sequence,
            payload: payload.to_vec().into(),
        };
        Ok(writer.writer.write(&message)?)
    })
}

/// Writes the summary and closes the file. The handle is freed, also when that fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_writer_finish(writer: *mut *mut AsofWriter) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let taken = unsafe { take(writer) };
        let taken = taken.ok_or(Failure::invalid("the handle is NULL, or was freed"))?;
        taken.writer.finish()?;
        Ok(())
    })
}

/// Closes the file without a summary, as after a crash: it stays readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_writer_free(writer: *mut *mut AsofWriter) {
    // SAFETY: upheld by the caller.
    unsafe { free(writer) }
}
