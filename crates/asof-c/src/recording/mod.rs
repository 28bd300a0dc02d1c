//! Recordings of any format: what they hold, tables of them as Arrow streams, and their messages.

pub mod messages;
pub mod stream;
pub mod writer;

use std::ffi::c_char;
use std::path::Path;

use asof::Recording;

use crate::border::{
    AsofStatus, Failure, Outcome, array, call, free, hand_out, held, put, put_text, tell, text,
};
use crate::tf::AsofTf;

/// A recording, several as one, or what this build can open besides. Any number of threads may use it at once.
pub struct AsofRecording {
    pub(crate) recording: Recording,
}

impl From<asof::Error> for Failure {
    fn from(error: asof::Error) -> Self {
        let status = match &error {
            asof::Error::Rows(asof::decode::RowsError::NoSuchTopic { .. })
            | asof::Error::Path(_) => AsofStatus::NotFound,
            _ => AsofStatus::Unreadable,
        };
        Failure::new(status, error)
    }
}

impl From<asof::SourceError> for Failure {
    fn from(error: asof::SourceError) -> Self {
        Failure::new(AsofStatus::Unreadable, error)
    }
}

/// Texts of an array of `count` C strings.
///
/// # Safety
/// As by the crate's contract.
pub(crate) unsafe fn texts<'a>(
    values: *const *const c_char,
    count: usize,
) -> Outcome<Vec<&'a str>> {
    // SAFETY: upheld by the caller.
    let values = unsafe { array(values, count) }?;
    // SAFETY: upheld by the caller.
    values.iter().map(|value| unsafe { text(*value) }).collect()
}

/// Opens a recording: a file or folder of MCAP, ROS 1 and ROS 2 bags, PX4 logs; an address, where the build has `remote`.
/// Opening reads a file's summary and no message. A damaged file opens as far as it can be read: see
/// `asof_recording_problem`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_open(
    place: *const c_char,
    recording: *mut *mut AsofRecording,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let opened = asof::open(Path::new(unsafe { text(place) }?))?;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(recording, AsofRecording { recording: opened }) }
    })
}

/// Opens several places as one recording, merged by time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_open_all(
    places: *const *const c_char,
    count: usize,
    recording: *mut *mut AsofRecording,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let opened = asof::open_all(&unsafe { texts(places, count) }?)?;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(recording, AsofRecording { recording: opened }) }
    })
}

/// Frees a recording. Streams and messages of it keep what they need.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_free(recording: *mut *mut AsofRecording) {
    // SAFETY: upheld by the caller.
    unsafe { free(recording) }
}

/// The first and the last log time. `ASOF_STATUS_NO_DATA` without messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_range(
    recording: *const AsofRecording,
    start: *mut i64,
    end: *mut i64,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let range = unsafe { held(recording) }?.recording.summary().range;
        if range.is_empty() {
            return Err(Failure::fixed(
                AsofStatus::NoData,
                "the recording has no messages",
            ));
        }
        // SAFETY: upheld by the caller.
        unsafe {
            put(start, range.start.nanos())?;
            put(end, range.end.nanos())
        }
    })
}

/// The topic at a place in the list of topics, and `ASOF_STATUS_END` after the last one. The texts are for `asof_text_free`;
/// `message_type` and `encoding` are those of its first channel; `messages` is -1 if it is not known without reading. The last
/// three may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_topic(
    recording: *const AsofRecording,
    place: usize,
    topic: *mut *mut c_char,
    message_type: *mut *mut c_char,
    encoding: *mut *mut c_char,
    messages: *mut i64,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let summary = unsafe { held(recording) }?.recording.summary();
        let name = *summary
            .topics()
            .get(place)
            .ok_or(Failure::fixed(AsofStatus::End, "there are no more topics"))?;
        let mut channels = summary
            .channels
            .iter()
            .filter(|channel| channel.channel.topic == name);
        let counts = channels.clone().map(|channel| channel.messages);
        let count = counts.sum::<Option<u64>>();
        let first = channels.next().map(|channel| &channel.channel);
        let schema = first.and_then(|channel| channel.schema.as_ref());
        // SAFETY: upheld by the caller.
        unsafe {
            put_text(topic, name)?;
            if !message_type.is_null() {
                put_text(message_type, schema.map_or("", |schema| &schema.name))?;
            }
            if !encoding.is_null() {
                put_text(encoding, first.map_or("", |first| &first.message_encoding))?;
            }
            let count = count.and_then(|count| i64::try_from(count).ok());
            tell(messages, count.unwrap_or(-1));
        }
        Ok(())
    })
}

/// The problem at a place in the list of those found so far, as a sentence for `asof_text_free`; `ASOF_STATUS_END` after the last
/// one. Problems are found when they are met, so there may be more after reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_problem(
    recording: *const AsofRecording,
    place: usize,
    problem: *mut *mut c_char,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let summary = unsafe { held(recording) }?.recording.summary();
        let found = summary.problems.get(place).ok_or(Failure::fixed(
            AsofStatus::End,
            "there are no more problems",
        ))?;
        // SAFETY: upheld by the caller.
        unsafe { put_text(problem, found.to_string()) }
    })
}

/// All transforms of a recording in a buffer that keeps everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_tf(
    recording: *const AsofRecording,
    tf: *mut *mut AsofTf,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let buffer = unsafe { held(recording) }?.recording.tf()?.buffer;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(tf, AsofTf { buffer }) }
    })
}
