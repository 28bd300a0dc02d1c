//! Tables of a recording as streams of the Arrow C data interface, in types that every reader of it knows unless the caller
//! wants views.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::ffi_stream::FFI_ArrowArrayStream as ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use asof::align::{AlignOptions, On, Pick, Rule};
use asof::{Table, TableBatches, TimeRange};

use super::{AsofRecording, texts};
use crate::border::{
    AsofStatus, Failure, Outcome, c_text, call, free, given, hand_out, held, is_there, put, text,
};

/// How many messages a stream has left out so far: those that cannot be decoded, or have no stamp to join by.
pub struct AsofLosses {
    count: Arc<AtomicU64>,
}

/// How topics are joined.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofJoinOptions {
    /// Which message goes with a time: "last", "before", "next", "after", "nearest" or "interpolate"; NULL for the nearest.
    pub pick: *const c_char,
    /// How far away it may be, in nanoseconds; negative for any distance.
    pub within: i64,
    /// Whether log times are joined by, even where all messages have stamps of their own.
    pub by_log_time: bool,
    /// The first log time of the anchor's messages.
    pub start: i64,
    /// The last one.
    pub end: i64,
}

/// A table, batch by batch. No panic leaves it.
struct Reader {
    schema: SchemaRef,
    batches: TableBatches,
    lost: Arc<AtomicU64>,
    is_over: bool,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = catch_unwind(AssertUnwindSafe(|| self.batches.next()));
        self.lost.store(self.batches.lost(), Ordering::Relaxed);
        let batch = match next {
            Ok(None) => None,
            Ok(Some(batch)) => Some(batch.map_err(|error| arrow_error(error.to_string()))),
            Err(panic) => {
                std::mem::forget(panic);
                let text = "a defect of asof: reading has panicked".to_owned();
                Some(Err(ArrowError::ComputeError(text)))
            }
        };
        self.is_over = !matches!(batch, Some(Ok(_)));
        batch
    }
}

/// Arrow aborts at a text with a NUL, and names of topics and fields may have one.
fn arrow_error(text: String) -> ArrowError {
    let text = c_text(text).to_string_lossy().into_owned();
    ArrowError::from_external_error(text.into())
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// # Safety
/// The places are NULL or valid for writing.
unsafe fn start(
    recording: &AsofRecording,
    table: Table,
    stream: *mut ArrowArrayStream,
    losses: *mut *mut AsofLosses,
) -> Outcome {
    let lost = Arc::<AtomicU64>::default();
    let table = if recording.has_views.load(Ordering::Relaxed) {
        table
    } else {
        table.without_views()
    };
    let reader = Reader {
        schema: Arc::clone(table.schema()),
        batches: table.batches()?,
        lost: Arc::clone(&lost),
        is_over: false,
    };
    // SAFETY: upheld by the caller. What was in the place is overwritten, as every producer of the interface does.
    unsafe { put(stream, ArrowArrayStream::new(Box::new(reader))) }?;
    if losses.is_null() {
        return Ok(());
    }
    // SAFETY: upheld by the caller.
    unsafe { hand_out(losses, AsofLosses { count: lost }) }
}

/// A topic as a table: `log_time`, `publish_time`, `stamp`, and a column for each field, or only the named ones (paths such as
/// `pose.pose.position.x`); all of them if `count` is 0. Messages from `start` to `end`, both ends in. The consumer releases the
/// stream. `losses` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_stream(
    recording: *const AsofRecording,
    topic: *const c_char,
    columns: *const *const c_char,
    count: usize,
    start: i64,
    end: i64,
    stream: *mut ArrowArrayStream,
    losses: *mut *mut AsofLosses,
) -> AsofStatus {
    call(|| {
        is_there(stream)?;
        // SAFETY: upheld by the caller.
        let (recording, topic, columns) =
            unsafe { (held(recording)?, text(topic)?, texts(columns, count)?) };
        let range = TimeRange::new(start.into(), end.into());
        let topic = recording.recording.topic(topic)?.between(range);
        let table = match &columns[..] {
            [] => topic.read()?,
            columns => topic.columns(columns)?,
        };
        // SAFETY: upheld by the caller.
        unsafe { self::start(recording, table, stream, losses) }
    })
}

/// The options of a join unless it is told otherwise: the nearest message, at any distance, at all times, by stamps where all
/// topics have them.
#[unsafe(no_mangle)]
pub extern "C" fn asof_join_options() -> AsofJoinOptions {
    AsofJoinOptions {
        pick: std::ptr::null(),
        within: -1,
        by_log_time: false,
        start: i64::MIN,
        end: i64::MAX,
    }
}

/// For each message of one topic, the matching message of others: `time`, the columns of the anchor, and those of the others,
/// named after their topics. Options and `losses` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_join(
    recording: *const AsofRecording,
    anchor: *const c_char,
    others: *const *const c_char,
    count: usize,
    options: *const AsofJoinOptions,
    stream: *mut ArrowArrayStream,
    losses: *mut *mut AsofLosses,
) -> AsofStatus {
    call(|| {
        is_there(stream)?;
        // SAFETY: upheld by the caller.
        let (recording, anchor, others) =
            unsafe { (held(recording)?, text(anchor)?, texts(others, count)?) };
        // SAFETY: upheld by the caller.
        let options = unsafe { align_options(options) }?;
        let table = recording.recording.join(anchor, &others, options)?;
        // SAFETY: upheld by the caller.
        unsafe { start(recording, table, stream, losses) }
    })
}

/// Topics at a fixed rate, in instants per second. Otherwise as `asof_recording_join`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_resample(
    recording: *const AsofRecording,
    topics: *const *const c_char,
    count: usize,
    hz: f64,
    options: *const AsofJoinOptions,
    stream: *mut ArrowArrayStream,
    losses: *mut *mut AsofLosses,
) -> AsofStatus {
    call(|| {
        is_there(stream)?;
        // SAFETY: upheld by the caller.
        let (recording, topics) = unsafe { (held(recording)?, texts(topics, count)?) };
        // SAFETY: upheld by the caller.
        let options = unsafe { align_options(options) }?;
        let table = recording.recording.resample(&topics, hz, options)?;
        // SAFETY: upheld by the caller.
        unsafe { start(recording, table, stream, losses) }
    })
}

/// # Safety
/// The options are NULL or valid, and so is their text.
unsafe fn align_options(options: *const AsofJoinOptions) -> Outcome<AlignOptions> {
    // SAFETY: upheld by the caller.
    let Some(options) = (unsafe { given(options) }) else {
        return Ok(AlignOptions::default());
    };
    let pick = if options.pick.is_null() {
        Pick::Nearest
    } else {
        // SAFETY: upheld by the caller.
        let word = unsafe { text(options.pick) }?;
        word.parse()
            .map_err(|error| Failure::new(AsofStatus::InvalidArgument, error))?
    };
    let mut rule = Rule::new(pick);
    if let Ok(within) = u64::try_from(options.within) {
        rule = rule.within(Duration::from_nanos(within));
    }
    Ok(AlignOptions {
        rule,
        on: options.by_log_time.then_some(On::LogTime),
        range: TimeRange::new(options.start.into(), options.end.into()),
        ..AlignOptions::default()
    })
}

/// The rows of an SQL query, in which every topic is a table. `ASOF_STATUS_UNSUPPORTED` in a build without the feature `sql`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_recording_sql(
    recording: *const AsofRecording,
    query: *const c_char,
    stream: *mut ArrowArrayStream,
) -> AsofStatus {
    call(|| {
        is_there(stream)?;
        // SAFETY: upheld by the caller.
        let (recording, query) = unsafe { (held(recording)?, text(query)?) };
        let table = sql(recording, query)?;
        // SAFETY: upheld by the caller.
        unsafe { start(recording, table, stream, std::ptr::null_mut()) }
    })
}

#[cfg(feature = "sql")]
fn sql(recording: &AsofRecording, query: &str) -> Outcome<Table> {
    Ok(recording.recording.sql(query)?)
}

#[cfg(not(feature = "sql"))]
fn sql(_: &AsofRecording, _: &str) -> Outcome<Table> {
    Err(Failure::fixed(
        AsofStatus::Unsupported,
        "this build has no SQL; build it with the feature `sql`",
    ))
}

/// How many messages have been left out so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_losses_count(
    losses: *const AsofLosses,
    count: *mut u64,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let found = unsafe { held(losses) }?.count.load(Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { put(count, found) }
    })
}

/// Frees a count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_losses_free(losses: *mut *mut AsofLosses) {
    // SAFETY: upheld by the caller.
    unsafe { free(losses) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_of_errors_have_no_nul() {
        let text = super::arrow_error("no topic /a\0b".to_owned()).to_string();
        assert!(text.ends_with("no topic /ab"), "{text}");
    }
}
