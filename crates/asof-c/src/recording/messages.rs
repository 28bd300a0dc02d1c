//! The messages of a recording as they were recorded.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::Arc;

use asof::{Batch, Batches, Channel, Query, Recording, TimeRange, Topics};

use super::{AsofRecording, texts};
use crate::border::{
    AsofStatus, Failure, Outcome, c_text, call, free, hand_out, held, held_alone, put,
};

/// Messages in order of log time. One thread at a time uses it.
pub struct AsofMessages {
    batches: Batches,
    batch: Batch,
    next: usize,
    channels: HashMap<*const Channel, Names>,
}

/// One message. What it points to stays until the next call with its AsofMessages.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofMessage {
    /// Its topic.
    pub topic: *const c_char,
    /// The name of its type; empty without a schema.
    pub message_type: *const c_char,
    /// The encoding of its data, such as "cdr".
    pub encoding: *const c_char,
    /// The encoding of its schema, such as "ros2msg"; empty without one.
    pub schema_encoding: *const c_char,
    /// Its schema.
    pub schema: *const u8,
    /// The bytes of its schema.
    pub schema_size: usize,
    /// When it was recorded.
    pub log_time: i64,
    /// When it was sent.
    pub publish_time: i64,
    /// Its data.
    pub data: *const u8,
    /// The bytes of its data.
    pub size: usize,
    /// The sender's number.
    pub sequence: u32,
}

/// The texts of a channel as C has them; the channel is kept, so that no other one gets its address.
struct Names {
    channel: Arc<Channel>,
    topic: CString,
    message_type: CString,
    encoding: CString,
    schema_encoding: CString,
}

impl Names {
    fn new(channel: &Arc<Channel>) -> Self {
        let schema = channel.schema.as_ref();
        Names {
            channel: Arc::clone(channel),
            topic: c_text(channel.topic.clone()),
            message_type: c_text(schema.map_or(String::new(), |schema| schema.name.clone())),
            encoding: c_text(channel.message_encoding.clone()),
            schema_encoding: c_text(schema.map_or(String::new(), |schema| schema.encoding.clone())),
        }
    }
}

/// # Safety
/// As by the crate's contract.
unsafe fn selected(
    recording: &Recording,
    topics: *const *const c_char,
    count: usize,
) -> Outcome<Topics> {
    if count == 0 {
        return Ok(Topics::All);
    }
    // SAFETY: upheld by the caller.
    let names = unsafe { texts(topics, count) }?;
    for name in &names {
        recording.topic(name)?;
    }
    Ok(Topics::named(names))
}

fn messages(batches: Batches) -> AsofMessages {
    AsofMessages {
        batches,
        batch: Batch::default(),
        next: 0,
        channels: HashMap::new(),
    }
}

/// The messages of some topics, or of all if `count` is 0, from `start` to `end`, both ends in. `ASOF_STATUS_NOT_FOUND` if there
/// is no such topic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_messages(
    recording: *const AsofRecording,
    topics: *const *const c_char,
    count: usize,
    start: i64,
    end: i64,
    place: *mut *mut AsofMessages,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let recording = unsafe { &held(recording)?.recording };
        // SAFETY: upheld by the caller.
        let topics = unsafe { selected(recording, topics, count) }?;
        let range = TimeRange::new(start.into(), end.into());
        let read = recording.read(&Query { topics, range })?;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(place, messages(read)) }
    })
}

/// What was known at a time: the last message of each of some topics, or of all if `count` is 0, at or before it.
/// `ASOF_STATUS_NOT_FOUND` if there is no such topic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_at(
    recording: *const AsofRecording,
    topics: *const *const c_char,
    count: usize,
    time: i64,
    place: *mut *mut AsofMessages,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let recording = unsafe { &held(recording)?.recording };
        // SAFETY: upheld by the caller.
        let topics = unsafe { selected(recording, topics, count) }?;
        let known = recording.latest_at(&topics, time.into())?;
        let one: Batches = Box::new(std::iter::once(Ok(known)));
        // SAFETY: upheld by the caller.
        unsafe { hand_out(place, messages(one)) }
    })
}

/// Frees messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_messages_free(messages: *mut *mut AsofMessages) {
    // SAFETY: upheld by the caller.
    unsafe { free(messages) }
}

/// The next message; `ASOF_STATUS_END` after the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_messages_next(
    messages: *mut AsofMessages,
    message: *mut AsofMessage,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let messages = unsafe { held_alone(messages) }?;
        let found = messages.next()?;
        // SAFETY: upheld by the caller.
        unsafe { put(message, found) }
    })
}

impl AsofMessages {
    fn next(&mut self) -> Outcome<AsofMessage> {
        while self.next >= self.batch.len() {
            let next = self.batches.next().ok_or(Failure::fixed(
                AsofStatus::End,
                "there are no more messages",
            ))?;
            (self.batch, self.next) = (next?, 0);
        }
        let message = self.batch.get(self.next).ok_or(Failure::fixed(
            AsofStatus::Internal,
            "a batch is shorter than it says",
        ))?;
        self.next += 1;
        let names = self
            .channels
            .entry(Arc::as_ptr(message.channel))
            .or_insert_with(|| Names::new(message.channel));
        let schema = names.channel.schema.as_ref();
        Ok(AsofMessage {
            topic: names.topic.as_ptr(),
            message_type: names.message_type.as_ptr(),
            encoding: names.encoding.as_ptr(),
            schema_encoding: names.schema_encoding.as_ptr(),
            schema: schema.map_or(null(), |schema| schema.data.as_ptr()),
            schema_size: schema.map_or(0, |schema| schema.data.len()),
            log_time: message.log_time.nanos(),
            publish_time: message.publish_time.nanos(),
            data: message.payload.as_ptr(),
            size: message.payload.len(),
            sequence: message.sequence,
        })
    }
}
