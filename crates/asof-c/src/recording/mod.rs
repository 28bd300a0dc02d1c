//! Recordings of any format: what they hold, tables of them as Arrow streams, and their messages.

pub mod messages;
pub mod stream;
pub mod writer;

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use asof::{Recording, SourceError, Summary};

use crate::border::{
    AsofStatus, Failure, Outcome, array, call, free, hand_out, held, put, put_text, tell, text,
};
use crate::tf::AsofTf;

/// A recording, several as one, or what this build can open besides. Any number of threads may use it at once.
pub struct AsofRecording {
    pub(crate) recording: Recording,
    topics: Mutex<Option<TopicList>>,
    /// Whether its streams may have Arrow's view types.
    pub(crate) has_views: AtomicBool,
}

/// The topics of a summary, so that to ask for them one by one takes linear time.
struct TopicList {
    summary: Arc<Summary>,
    topics: Arc<[TopicFacts]>,
}

struct TopicFacts {
    name: String,
    message_type: String,
    encoding: String,
    messages: Option<u64>,
}

impl TopicList {
    fn new(summary: Arc<Summary>) -> Self {
        let mut topics = BTreeMap::<&str, TopicFacts>::new();
        for entry in &summary.channels {
            let channel = &entry.channel;
            topics
                .entry(&channel.topic)
                .and_modify(|facts| {
                    let counts = facts.messages.zip(entry.messages);
                    facts.messages = counts.map(|(one, other)| one + other);
                })
                .or_insert_with(|| TopicFacts {
                    name: channel.topic.clone(),
                    message_type: channel
                        .schema
                        .as_ref()
                        .map_or(String::new(), |schema| schema.name.clone()),
                    encoding: channel.message_encoding.clone(),
                    messages: entry.messages,
                });
        }
        let topics = topics.into_values().collect();
        TopicList { summary, topics }
    }
}

impl AsofRecording {
    fn new(recording: Recording) -> Self {
        AsofRecording {
            recording,
            topics: Mutex::default(),
            has_views: AtomicBool::new(false),
        }
    }

    fn topics(&self) -> Arc<[TopicFacts]> {
        let summary = self.recording.summary();
        let mut held = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let list = held.take();
        let list = list.filter(|list| Arc::ptr_eq(&list.summary, &summary));
        let list = list.unwrap_or_else(|| TopicList::new(summary));
        Arc::clone(&held.insert(list).topics)
    }
}

impl From<asof::Error> for Failure {
    fn from(error: asof::Error) -> Self {
        match error {
            asof::Error::Source(error) => error.into(),
            error => Failure::new(status_of(&error), error),
        }
    }
}

fn status_of(error: &asof::Error) -> AsofStatus {
    use asof::Error;
    use asof::align::AlignError;
    use asof::decode::RowsError;
    match error {
        Error::In { cause, .. } => status_of(cause),
        Error::Path(_)
        | Error::Rows(RowsError::NoSuchTopic { .. } | RowsError::Path { .. })
        | Error::Align(AlignError::Rows(RowsError::NoSuchTopic { .. } | RowsError::Path { .. })) => {
            AsofStatus::NotFound
        }
        Error::Align(
            AlignError::NoStamp { .. } | AlignError::Rate { .. } | AlignError::NoTopics,
        )
        | Error::Option(_)
        | Error::Invalid(_) => AsofStatus::InvalidArgument,
        #[cfg(feature = "sql")]
        Error::Sql(asof::sql::SqlError::Query { .. } | asof::sql::SqlError::NotReading(_)) => {
            AsofStatus::InvalidArgument
        }
        #[cfg(feature = "sql")]
        Error::Sql(asof::sql::SqlError::Memory(_)) => AsofStatus::Full,
        Error::Source(SourceError::Unsupported { .. }) => AsofStatus::Unsupported,
        _ => AsofStatus::Unreadable,
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match &error {
            SourceError::Unsupported { feature, .. } => Failure::new(
                AsofStatus::Unsupported,
                format_args!(
                    "{error}. This is libasof: configure it with -DASOF_FEATURES=default,{feature}"
                ),
            ),
            _ => Failure::new(AsofStatus::Unreadable, error),
        }
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

/// Opens a recording: a file or folder of MCAP, ROS 1 and ROS 2 bags, PX4 logs; its address on a web server or in a bucket, where
/// the build has `remote`; or a robot's, where it has `live`. Where it has not, the status is `ASOF_STATUS_UNSUPPORTED`.
/// Opening reads a file's summary and no message. A damaged file opens as far as it can be read: see `asof_recording_problem`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_open(
    place: *const c_char,
    recording: *mut *mut AsofRecording,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let opened = asof::open(Path::new(unsafe { text(place) }?))?;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(recording, AsofRecording::new(opened)) }
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
        unsafe { hand_out(recording, AsofRecording::new(opened)) }
    })
}

/// Frees a recording. Streams and messages of it keep what they need.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_free(recording: *mut *mut AsofRecording) {
    // SAFETY: upheld by the caller.
    unsafe { free(recording) }
}

/// Whether the streams that are made of a recording from now on may have columns of Arrow's types "binary view" and "string view":
/// large values then come without a copy. Not unless this is called: Arrow C++ before 15, and other readers of its age, know no
/// views, and every one knows the plain types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_use_views(
    recording: *const AsofRecording,
    views: bool,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let recording = unsafe { held(recording) }?;
        recording.has_views.store(views, Ordering::Relaxed);
        Ok(())
    })
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
        let topics = unsafe { held(recording) }?.topics();
        let facts = topics
            .get(place)
            .ok_or(Failure::fixed(AsofStatus::End, "there are no more topics"))?;
        // SAFETY: upheld by the caller.
        unsafe {
            put_text(topic, &facts.name)?;
            if !message_type.is_null() {
                put_text(message_type, &facts.message_type)?;
            }
            if !encoding.is_null() {
                put_text(encoding, &facts.encoding)?;
            }
            let count = facts.messages.and_then(|count| i64::try_from(count).ok());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_has_left_out_is_unsupported_and_says_which_has_it() {
        let left_out = || SourceError::Unsupported {
            place: "https://example.org/run.mcap".to_owned(),
            reason: "not here".to_owned(),
            feature: "remote",
        };
        for failure in [
            Failure::from(left_out()),
            Failure::from(asof::Error::from(left_out())),
        ] {
            let text = failure.text().into_string().unwrap();
            assert_eq!(failure.status, AsofStatus::Unsupported, "{text}");
            assert!(text.contains("-DASOF_FEATURES=default,remote"), "{text}");
        }
    }
}
