//! Recordings through the C interface: written, read as messages and as a stream, and everything that must be refused.
#![cfg(feature = "recordings")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatchReader};
use asof_c::border::{AsofStatus, asof_last_error, asof_text_free};
use asof_c::recording::messages::*;
use asof_c::recording::stream::*;
use asof_c::recording::writer::*;
use asof_c::recording::*;
use asof_c::tf::{AsofTf, asof_tf_free, asof_tf_stats};

const NOT_UTF8: *const c_char = c"\xff\xfe".as_ptr();
const ODOM: *const c_char = c"/odom".as_ptr();
const JSON: *const c_char = c"json".as_ptr();

fn message() -> String {
    // SAFETY: it is valid until the next call.
    let text = unsafe { CStr::from_ptr(asof_last_error()) };
    text.to_string_lossy().into_owned()
}

#[track_caller]
fn done(status: AsofStatus) {
    assert_eq!(status, AsofStatus::Ok, "{}", message());
}

#[track_caller]
fn refused(status: AsofStatus) {
    assert_eq!(status, AsofStatus::InvalidArgument, "{}", message());
}

/// Two topics, ten messages each, a second apart.
fn written() -> (tempfile::TempDir, CString) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut writer = null_mut();
    // SAFETY: texts end, arrays are as long as they say, and the handle is finished once.
    unsafe {
        done(asof_writer_new(path.as_ptr(), &raw mut writer));
        let mut channels = [0; 2];
        for (topic, channel) in [ODOM, c"/imu".as_ptr()].into_iter().zip(&mut channels) {
            let nothing = (null(), null(), null());
            let (name, kind, data) = nothing;
            done(asof_writer_channel(
                writer, topic, JSON, name, kind, data, 0, channel,
            ));
        }
        for second in 0..10_i64 {
            for channel in channels {
                let text = format!(r#"{{"x":{second}.5,"name":"here"}}"#);
                let at = (second + 100) * 1_000_000_000 + i64::from(channel);
                done(asof_writer_write(
                    writer,
                    channel,
                    at,
                    at + 1,
                    second as u32,
                    text.as_ptr(),
                    text.len(),
                ));
            }
        }
        refused(asof_writer_write(writer, 9, 0, 0, 0, null(), 0));
        refused(asof_writer_write(writer, 0, 0, 0, 0, null(), 1));
        refused(asof_writer_write(
            writer,
            0,
            0,
            0,
            0,
            JSON.cast(),
            usize::MAX,
        ));
        done(asof_writer_finish(&raw mut writer));
        refused(asof_writer_finish(&raw mut writer));
        asof_writer_free(&raw mut writer);
    }
    (folder, path)
}

fn opened(path: &CStr) -> *mut AsofRecording {
    let mut recording = null_mut();
    // SAFETY: the text ends and the place is valid.
    done(unsafe { asof_open(path.as_ptr(), &raw mut recording) });
    recording
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let (_folder, path) = written();
    let mut recording = opened(&path);
    let (mut start, mut end, mut name, mut count) = (0, 0, null_mut(), 0);
    let (mut kind, mut encoding) = (null_mut(), null_mut());
    // SAFETY: the handle and the places are good.
    unsafe {
        done(asof_recording_range(
            recording,
            &raw mut start,
            &raw mut end,
        ));
        assert_eq!((start, end), (100_000_000_000, 109_000_000_001));
        let mut names = Vec::new();
        while asof_recording_topic(
            recording,
            names.len(),
            &raw mut name,
            &raw mut kind,
            &raw mut encoding,
            &raw mut count,
        ) == AsofStatus::Ok
        {
            names.push(CStr::from_ptr(name).to_owned());
            assert_eq!((CStr::from_ptr(encoding), count), (c"json", 10));
            asof_text_free(&raw mut name);
            asof_text_free(&raw mut kind);
            asof_text_free(&raw mut encoding);
        }
        names.sort();
        assert_eq!(names, [c"/imu".to_owned(), c"/odom".to_owned()]);
        assert_eq!(
            asof_recording_problem(recording, 0, &raw mut name),
            AsofStatus::End
        );

        let mut messages = null_mut();
        done(asof_recording_messages(
            recording,
            std::ptr::from_ref(&ODOM),
            1,
            102_000_000_000,
            104_000_000_000,
            &raw mut messages,
        ));
        let mut found = std::mem::zeroed::<AsofMessage>();
        let mut times = Vec::new();
        // They need their recording no longer.
        asof_recording_free(&raw mut recording);
        while asof_messages_next(messages, &raw mut found) == AsofStatus::Ok {
            assert_eq!(CStr::from_ptr(found.topic), c"/odom");
            let data = std::slice::from_raw_parts(found.data, found.size);
            assert!(data.starts_with(format!("{{\"x\":{}.5", found.sequence).as_bytes()));
            times.push((found.log_time, found.publish_time));
        }
        let seconds = [102_i64, 103, 104].map(|second| second * 1_000_000_000);
        assert_eq!(times, seconds.map(|at| (at, at + 1)));
        assert_eq!(
            asof_messages_next(messages, &raw mut found),
            AsofStatus::End
        );
        asof_messages_free(&raw mut messages);
    }
}

#[test]
fn what_was_known_at_a_time_is_the_last_of_each_topic() {
    let (_folder, path) = written();
    let mut recording = opened(&path);
    let mut messages = null_mut();
    // SAFETY: the handles and the places are good.
    unsafe {
        done(asof_at(
            recording,
            null(),
            0,
            105_000_000_000,
            &raw mut messages,
        ));
        let mut found = std::mem::zeroed::<AsofMessage>();
        let mut times = Vec::new();
        while asof_messages_next(messages, &raw mut found) == AsofStatus::Ok {
            times.push(found.log_time);
        }
        assert_eq!(times, [104_000_000_001, 105_000_000_000]);
        asof_messages_free(&raw mut messages);
        asof_recording_free(&raw mut recording);
    }
}

/// Takes a stream over as any consumer of the Arrow C data interface does.
fn rows(stream: FFI_ArrowArrayStream) -> (Vec<String>, usize) {
    let reader = ArrowArrayStreamReader::try_new(stream).unwrap();
    let fields = reader.schema();
    let names = fields.fields().iter().map(|field| field.name().clone());
    let names = names.collect();
    (names, reader.map(|batch| batch.unwrap().num_rows()).sum())
}

#[test]
fn topics_and_joins_are_streams() {
    let (_folder, path) = written();
    let mut recording = opened(&path);
    let column = c"x".as_ptr();
    let imu = c"/imu".as_ptr();
    // SAFETY: the handles and the places are good; a stream is taken over once.
    unsafe {
        let (mut stream, mut losses) = (FFI_ArrowArrayStream::empty(), null_mut());
        done(asof_recording_stream(
            recording,
            ODOM,
            &raw const column,
            1,
            i64::MIN,
            i64::MAX,
            &raw mut stream,
            &raw mut losses,
        ));
        assert_eq!(rows(stream), (vec!["x".to_owned()], 10));
        let mut lost = 1;
        done(asof_losses_count(losses, &raw mut lost));
        assert_eq!(lost, 0);
        asof_losses_free(&raw mut losses);
        refused(asof_losses_count(losses, &raw mut lost));

        let mut stream = FFI_ArrowArrayStream::empty();
        let mut options = asof_join_options();
        options.pick = c"last".as_ptr();
        let (others, to) = (&raw const imu, &raw mut stream);
        done(asof_recording_join(
            recording,
            ODOM,
            others,
            1,
            &raw const options,
            to,
            null_mut(),
        ));
        let (names, count) = rows(stream);
        assert!(
            names.contains(&"/imu.x".to_owned()) && count == 10,
            "{names:?} {count}"
        );
        options.pick = c"sideways".as_ptr();
        let mut stream = FFI_ArrowArrayStream::empty();
        refused(asof_recording_join(
            recording,
            ODOM,
            others,
            1,
            &raw const options,
            &raw mut stream,
            null_mut(),
        ));
        done(asof_recording_resample(
            recording,
            others,
            1,
            2.0,
            null(),
            &raw mut stream,
            null_mut(),
        ));
        assert!(rows(stream).1 >= 18);
        asof_recording_free(&raw mut recording);
    }
}

/// Fields of bytes, such as images, are what asof itself has as views.
#[test]
fn bytes_are_plain_unless_views_are_wanted() {
    use arrow_schema::DataType;
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(folder.path().join("blob.mcap").to_str().unwrap()).unwrap();
    let (mut writer, mut channel) = (null_mut(), 0);
    let (cdr, name, kind) = (
        c"cdr".as_ptr(),
        c"own/msg/Blob".as_ptr(),
        c"ros2msg".as_ptr(),
    );
    let (schema, value) = (b"uint8[] data\n", [7_u8; 40]);
    let payload = [&[0, 1, 0, 0, 40, 0, 0, 0][..], &value].concat();
    // SAFETY: texts end, arrays are as long as they say, and the handle is finished once.
    unsafe {
        done(asof_writer_new(path.as_ptr(), &raw mut writer));
        let (text, size, to) = (schema.as_ptr(), schema.len(), &raw mut channel);
        done(asof_writer_channel(
            writer, ODOM, cdr, name, kind, text, size, to,
        ));
        for at in 1..=3 {
            let (data, size) = (payload.as_ptr(), payload.len());
            done(asof_writer_write(writer, channel, at, at, 0, data, size));
        }
        done(asof_writer_finish(&raw mut writer));
    }
    let mut recording = opened(&path);
    let read = || {
        let mut stream = FFI_ArrowArrayStream::empty();
        let (to, all) = (&raw mut stream, (i64::MIN, i64::MAX));
        // SAFETY: the handle and the places are good; the stream is taken over once.
        let reader = unsafe {
            done(asof_recording_stream(
                recording,
                ODOM,
                null(),
                0,
                all.0,
                all.1,
                to,
                null_mut(),
            ));
            ArrowArrayStreamReader::try_new(stream).unwrap()
        };
        let data = reader.schema().index_of("data").unwrap();
        let columns: Vec<_> = reader
            .map(|batch| Arc::clone(batch.unwrap().column(data)))
            .collect();
        assert_eq!(columns.iter().map(Array::len).sum::<usize>(), 3);
        Arc::clone(&columns[0])
    };
    let plain = read();
    assert_eq!(plain.as_binary::<i32>().value(2), value);
    // SAFETY: the handle is good.
    unsafe { done(asof_recording_use_views(recording, true)) };
    let views = read();
    assert_eq!(views.data_type(), &DataType::BinaryView);
    assert_eq!(views.as_binary_view().value(2), value);
    // SAFETY: as above, and nobody uses the recording any more.
    unsafe {
        done(asof_recording_use_views(recording, false));
        assert_eq!(read().data_type(), &DataType::Binary);
        asof_recording_free(&raw mut recording);
    }
}

/// Names with a NUL, which no text of C has: streams refuse them in words, and other functions leave the NUL out.
#[test]
fn names_with_a_nul_do_no_harm() {
    use asof::formats::{McapWriter, McapWriterOptions};
    use asof::{Channel, Message};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nul.mcap");
    let mut writer = McapWriter::create(&path, McapWriterOptions::default()).unwrap();
    for (topic, text) in [("/a", r#"{"x\u0000y":1}"#), ("/b\0c", r#"{"x":1}"#)] {
        let channel = Channel {
            topic: topic.to_owned(),
            message_encoding: "json".to_owned(),
            ..Channel::default()
        };
        let message = Message {
            channel: Arc::new(channel),
            log_time: 1.into(),
            publish_time: 1.into(),
            sequence: 0,
            payload: text.as_bytes().to_vec().into(),
        };
        writer.write(&message).unwrap();
    }
    writer.finish().unwrap();
    let mut recording = opened(&CString::new(path.to_str().unwrap()).unwrap());
    let (mut stream, mut topic) = (FFI_ArrowArrayStream::empty(), null_mut());
    let all = (i64::MIN, i64::MAX);
    let name = c"/a".as_ptr();
    // SAFETY: the handles and the places are good; a stream is taken over once.
    unsafe {
        let to = &raw mut stream;
        done(asof_recording_stream(
            recording,
            name,
            null(),
            0,
            all.0,
            all.1,
            to,
            null_mut(),
        ));
        assert!(ArrowArrayStreamReader::try_new(stream).is_err());
        let (none, count) = (null_mut(), null_mut());
        done(asof_recording_topic(
            recording,
            1,
            &raw mut topic,
            none,
            none,
            count,
        ));
        assert_eq!(CStr::from_ptr(topic), c"/bc");
        asof_text_free(&raw mut topic);
        asof_recording_free(&raw mut recording);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let (folder, path) = written();
    let mut recording = opened(&path);
    let missing = folder.path().join("missing.mcap");
    let missing = CString::new(missing.to_str().unwrap()).unwrap();
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the handles and the places are good.
    unsafe {
        let mut none = null_mut();
        let status = asof_open(missing.as_ptr(), &raw mut none);
        assert_eq!(status, AsofStatus::Unreadable);
        assert!(message().contains("missing.mcap"), "{}", message());
        let status = asof_recording_stream(
            recording,
            c"/nothing".as_ptr(),
            null(),
            0,
            0,
            1,
            &raw mut stream,
            null_mut(),
        );
        assert_eq!(status, AsofStatus::NotFound, "{}", message());
        let nothing = [c"/nothing".as_ptr(), ODOM];
        let (list, to) = (nothing.as_ptr(), &raw mut stream);
        let all = (i64::MIN, i64::MAX);
        let mut messages = null_mut();
        let place = &raw mut messages;
        for status in [
            asof_recording_stream(recording, ODOM, list, 1, all.0, all.1, to, null_mut()),
            asof_recording_join(
                recording,
                nothing[0],
                std::ptr::from_ref(&ODOM),
                1,
                null(),
                to,
                null_mut(),
            ),
            asof_recording_join(recording, ODOM, list, 1, null(), to, null_mut()),
            asof_recording_resample(recording, list, 1, 1.0, null(), to, null_mut()),
            asof_recording_messages(recording, list, 2, all.0, all.1, place),
            asof_at(recording, list, 2, all.1, place),
        ] {
            assert_eq!(status, AsofStatus::NotFound, "{}", message());
        }
        assert!(message().contains("/imu"), "{}", message());
        for hz in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let status = asof_recording_resample(
                recording,
                std::ptr::from_ref(&ODOM),
                1,
                hz,
                null(),
                to,
                null_mut(),
            );
            refused(status);
        }
        refused(asof_recording_resample(
            recording,
            null(),
            0,
            1.0,
            null(),
            to,
            null_mut(),
        ));
        assert!(stream.release.is_none() && messages.is_null());
        if cfg!(not(feature = "sql")) {
            let status = asof_recording_sql(recording, c"SELECT 1".as_ptr(), &raw mut stream);
            assert_eq!(status, AsofStatus::Unsupported);
        }
        let mut tf = null_mut::<AsofTf>();
        done(asof_recording_tf(recording, &raw mut tf));
        refused(asof_tf_stats(tf, null_mut()));
        asof_tf_free(&raw mut tf);
        asof_recording_free(&raw mut recording);
    }
}

#[test]
fn null_freed_handles_counts_and_bad_text_are_refused() {
    let (_folder, path) = written();
    let mut good = opened(&path);
    let mut freed = opened(&path);
    // SAFETY: the handles are good, NULL or freed; arrays that are shorter than their counts are never read.
    unsafe {
        asof_recording_free(&raw mut freed);
        asof_recording_free(&raw mut freed);
        asof_recording_free(null_mut());
        let (mut stream, mut at, mut text, mut messages) =
            (FFI_ArrowArrayStream::empty(), 0, null_mut(), null_mut());
        let (mut other, mut tf, mut writer) = (null_mut(), null_mut(), null_mut());
        for bad in [null_mut(), freed] {
            let to = &raw mut stream;
            let (one, two) = (&raw mut at, &raw mut text);
            refused(asof_recording_range(bad, one, one));
            refused(asof_recording_topic(bad, 0, two, two, two, one));
            refused(asof_recording_problem(bad, 0, two));
            refused(asof_recording_tf(bad, &raw mut tf));
            refused(asof_recording_use_views(bad, true));
            refused(asof_recording_stream(
                bad,
                ODOM,
                null(),
                0,
                0,
                1,
                to,
                null_mut(),
            ));
            refused(asof_recording_join(
                bad,
                ODOM,
                null(),
                0,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_resample(
                bad,
                null(),
                0,
                1.0,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_sql(bad, ODOM, to));
            refused(asof_recording_messages(
                bad,
                null(),
                0,
                0,
                1,
                &raw mut messages,
            ));
            refused(asof_at(bad, null(), 0, 0, &raw mut messages));
        }
        for bad in [null(), NOT_UTF8] {
            let (to, list) = (&raw mut stream, &raw const bad);
            refused(asof_open(bad, &raw mut other));
            refused(asof_open_all(list, 1, &raw mut other));
            refused(asof_recording_stream(
                good,
                bad,
                null(),
                0,
                0,
                1,
                to,
                null_mut(),
            ));
            refused(asof_recording_stream(
                good,
                ODOM,
                list,
                1,
                0,
                1,
                to,
                null_mut(),
            ));
            refused(asof_recording_join(
                good,
                bad,
                null(),
                0,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_join(
                good,
                ODOM,
                list,
                1,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_resample(
                good,
                list,
                1,
                1.0,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_sql(good, bad, to));
            refused(asof_recording_messages(
                good,
                list,
                1,
                0,
                1,
                &raw mut messages,
            ));
            refused(asof_at(good, list, 1, 0, &raw mut messages));
            refused(asof_writer_new(bad, &raw mut writer));
        }
        for count in [usize::MAX, usize::MAX / 8 + 1] {
            let (to, list) = (&raw mut stream, std::ptr::from_ref(&ODOM));
            refused(asof_open_all(list, count, &raw mut other));
            refused(asof_recording_stream(
                good,
                ODOM,
                list,
                count,
                0,
                1,
                to,
                null_mut(),
            ));
            refused(asof_recording_join(
                good,
                ODOM,
                list,
                count,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_resample(
                good,
                list,
                count,
                1.0,
                null(),
                to,
                null_mut(),
            ));
            refused(asof_recording_messages(
                good,
                list,
                count,
                0,
                1,
                &raw mut messages,
            ));
            refused(asof_at(good, null(), count, 0, &raw mut messages));
        }
        refused(asof_open(path.as_ptr(), null_mut()));
        refused(asof_recording_range(good, null_mut(), null_mut()));
        refused(asof_recording_topic(
            good,
            0,
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
        ));
        refused(asof_recording_stream(
            good,
            ODOM,
            null(),
            0,
            0,
            1,
            null_mut(),
            null_mut(),
        ));
        refused(asof_recording_messages(good, null(), 0, 0, 1, null_mut()));
        refused(asof_recording_tf(good, null_mut()));
        refused(asof_writer_new(path.as_ptr(), null_mut()));
        let mark = freed.addr();
        for bad in [0, mark] {
            let messages = without_provenance_mut::<AsofMessages>(bad);
            let writer = without_provenance_mut::<AsofWriter>(bad);
            refused(asof_messages_next(messages, null_mut()));
            refused(asof_writer_write(writer, 0, 0, 0, 0, null(), 0));
            refused(asof_writer_channel(
                writer,
                ODOM,
                JSON,
                null(),
                null(),
                null(),
                0,
                null_mut(),
            ));
            refused(asof_losses_count(without_provenance_mut(bad), null_mut()));
            let (mut messages, mut writer) = (messages, writer);
            asof_messages_free(&raw mut messages);
            refused(asof_writer_finish(&raw mut writer));
            asof_writer_free(&raw mut writer);
        }
        asof_recording_free(&raw mut good);
    }
}
