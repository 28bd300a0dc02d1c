//! `asof export --format images` and `--format video`, the shapes of tables, and poses as trajectories.

mod common;

use std::fs::File;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_schema::{DataType, TimeUnit};
use asof::{Channel, Schema};
use common::film::{VIDEO, bytes_of, find};
use common::{Folder, asof};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn channel(topic: &str, name: &str) -> Arc<Channel> {
    let schema = Schema {
        name: name.to_owned(),
        encoding: "jsonschema".to_owned(),
        data: "{}".into(),
    };
    Arc::new(Channel {
        topic: topic.to_owned(),
        message_encoding: "json".to_owned(),
        schema: Some(Arc::new(schema)),
        ..Channel::default()
    })
}

/// Exports video as where there is no ffmpeg, and ends with this code; what was said.
fn video_without_ffmpeg(folder: &Folder, code: i32) -> String {
    let output = asof()
        .args(["export", "run.mcap", "-o", "out", "--format", "video"])
        .env("PATH", folder.path(""))
        .current_dir(folder.path(""))
        .output()
        .expect("asof runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{told}");
    told
}

#[test]
fn pictures_are_written_as_they_were_compressed() {
    let folder = Folder::with_demo();
    assert_eq!(
        folder.exit_code("export run.mcap -o out --format images"),
        0
    );
    let names = folder.names_in("out/camera.image");
    assert_eq!(names.len(), 10);
    let is_jpeg = |name: &String| name.rsplit('.').next() == Some("jpg");
    assert!(names.iter().all(is_jpeg), "{names:?}");
    let picture = folder.read(&format!("out/camera.image/{}", names[0]));
    assert_eq!(picture[..2], [0xff, 0xd8]);
    // They are not written over without being asked.
    assert_eq!(
        folder.exit_code("export run.mcap -o out --format images"),
        1
    );
    assert_eq!(
        folder.exit_code("export run.mcap -o out --format images --force"),
        0
    );
}

#[test]
fn no_topic_leaves_the_folder_of_an_export() {
    let picture = r#"{"width":1,"height":1,"encoding":"rgb8","step":3,"data":[1,2,3]}"#;
    let topics =
        ["..", ".", "/../x", "/a/../../b"].map(|topic| channel(topic, "sensor_msgs/Image"));
    let messages: Vec<_> = topics
        .iter()
        .map(|topic| (topic, picture.to_owned()))
        .collect();
    let folder = Folder::with_messages(1, &messages);
    let line = "export run.mcap -o out/in --format images";
    assert_eq!(folder.exit_code(line), 0);
    assert_eq!(folder.names(), ["out", "run.mcap"]);
    assert_eq!(folder.names_in("out"), ["in"]);
    let mut names = folder.names_in("out/in");
    names.sort();
    assert_eq!(names, ["_", "__", "___x", "a.......b"]);
    for name in names {
        assert_eq!(folder.names_in(&format!("out/in/{name}")).len(), 1);
    }
}

#[test]
fn raw_pictures_become_png_with_their_own_values() {
    let camera = channel("/raw", "sensor_msgs/Image");
    let depth = channel("/depth", "sensor_msgs/Image");
    let broken = r#"{"width":9,"height":9,"encoding":"rgb8","step":27,"data":[1,2,3]}"#;
    let folder = Folder::with_messages(
        1,
        &[
            (
                &camera,
                r#"{"width":2,"height":1,"encoding":"bgr8","step":6,"data":[1,2,3,4,5,6]}"#
                    .to_owned(),
            ),
            (
                &depth,
                r#"{"width":1,"height":2,"encoding":"16UC1","step":2,"data":[232,3,1,0]}"#
                    .to_owned(),
            ),
            (&camera, broken.to_owned()),
        ],
    );
    let told = folder.run("export run.mcap -o out --format images");
    assert!(told.contains("1 message on /raw not written"), "{told}");
    assert!(told.contains("exit 3"), "{told}");
    let pixels = |name: &str| {
        let bytes = folder.read(name);
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .expect("PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("pixels");
        (info.width, info.height, info.bit_depth, pixels)
    };
    let rgb = (2, 1, png::BitDepth::Eight, vec![3, 2, 1, 6, 5, 4]);
    assert_eq!(pixels("out/raw/1000000000.png"), rgb);
    let millimetres = (1, 2, png::BitDepth::Sixteen, vec![3, 232, 0, 1]);
    assert_eq!(pixels("out/depth/2000000000.png"), millimetres);
}

#[test]
fn video_is_its_stream_from_the_first_packet_that_can_be_started_with() {
    let video = channel("/video", "foxglove.CompressedVideo");
    // A picture that nobody can start with, then parameters with one, then another.
    let packets = ["AAAAAUGa", "AAAAAWdkAB+sAAAAAWjuAAAAAWWI", "AAAAAUGb"];
    let message = |data: &str| format!(r#"{{"format":"h264","data":"{data}"}}"#);
    let messages: Vec<(&Arc<Channel>, String)> =
        packets.iter().map(|data| (&video, message(data))).collect();
    let folder = Folder::with_messages(1, &messages);
    let told = video_without_ffmpeg(&folder, 0);
    assert!(told.contains("ffmpeg is not installed"), "{told}");
    assert!(told.contains("1 packet on /video left out"), "{told}");
    let stream = folder.read("out/video.h264");
    let wanted =
        b"\0\0\0\x01\x67\x64\0\x1f\xac\0\0\0\x01\x68\xee\0\0\0\x01\x65\x88\0\0\0\x01\x41\x9b";
    assert_eq!(stream, wanted);
}

#[test]
fn h264_becomes_an_mp4_whose_pictures_last_until_the_next_without_ffmpeg() {
    let video = channel("/video", "foxglove.CompressedVideo");
    let other = channel("/other", "std_msgs/String");
    let message = |at: usize| {
        let data = bytes_of(VIDEO[at]);
        (&video, format!(r#"{{"format":"h264","data":{data:?}}}"#))
    };
    let wait = || (&other, r#"{"data":""}"#.to_owned());
    // Seconds 1 to 8; a decoder can start at second 2, and nothing is shown in seconds 4 and 5.
    let messages = [
        message(1),
        message(0),
        message(1),
        wait(),
        wait(),
        message(2),
        message(3),
        message(4),
    ];
    let folder = Folder::with_messages(1, &messages);
    let told = video_without_ffmpeg(&folder, 0);
    assert!(told.contains("5 pictures on /video"), "{told}");
    assert!(told.contains("1 packet on /video left out"), "{told}");
    assert!(!told.contains("ffmpeg"), "{told}");
    assert_eq!(folder.names_in("out"), ["video.mp4"]);
    let film = folder.read("out/video.mp4");
    let tables = find(&film, &["moov", "trak", "mdia", "minf", "stbl"]);
    let words = |name: &str| -> Vec<u32> {
        let body = find(tables, &[name]).chunks_exact(4);
        body.map(|four| u32::from_be_bytes(four.try_into().expect("four")))
            .collect()
    };
    // Two lists of (count, ticks): a second, three, and the rest a second each; the last as long as the one before.
    assert_eq!(words("stts")[1..], [3, 1, 90_000, 1, 270_000, 3, 90_000]);
    assert_eq!(words("stss")[1..], [2, 1, 4]);
    let head = find(&film, &["moov", "mvhd"]);
    let duration = u64::from_be_bytes(head[24..32].try_into().expect("eight"));
    assert_eq!(duration, 7 * 90_000);
}

#[test]
fn video_that_changes_its_size_is_told_and_left_out() {
    let video = channel("/video", "foxglove.CompressedVideo");
    let message = |packet: &[u8]| (&video, format!(r#"{{"format":"h264","data":{packet:?}}}"#));
    let first = bytes_of(VIDEO[0]);
    // The same with another level in its parameters.
    let mut other = first.clone();
    other[7] = 0x0b;
    let later = bytes_of(VIDEO[1]);
    let messages = [&first, &later, &other, &later, &first, &later].map(|one| message(one));
    let folder = Folder::with_messages(1, &messages);
    let told = video_without_ffmpeg(&folder, 3);
    assert!(told.contains("4 pictures on /video"), "{told}");
    assert!(
        told.contains("2 messages on /video not written; the first: at 1970-01-01T00:00:03"),
        "{told}"
    );
}

#[cfg(unix)]
#[test]
fn more_videos_than_files_may_be_open_are_written() {
    let topics: Vec<Arc<Channel>> = (0..600)
        .map(|at| channel(&format!("/video/{at}"), "foxglove.CompressedVideo"))
        .collect();
    // Every tenth is a stream that goes into no container without ffmpeg.
    let message = |at: usize, packet: usize| {
        if at.is_multiple_of(10) {
            return r#"{"format":"h264","data":"AAAAAWdkAB+sAAAAAWjuAAAAAWWI"}"#.to_owned();
        }
        let data = bytes_of(VIDEO[packet]);
        format!(r#"{{"format":"h264","data":{data:?}}}"#)
    };
    let messages: Vec<_> = [0, 1, 3]
        .iter()
        .flat_map(|&packet| {
            let topics = topics.iter().enumerate();
            topics.map(move |(at, topic)| (topic, message(at, packet)))
        })
        .collect();
    let folder = Folder::with_messages(1, &messages);
    let line = "export run.mcap -o out --format video";
    let (code, told) = folder.limited("ulimit -n 256", line);
    assert_eq!(code, Some(0), "{told}");
    let names = folder.names_in("out");
    assert_eq!(names.len(), 600);
    for name in names.iter().filter(|name| name.contains(".mp4")) {
        let film = folder.read(&format!("out/{name}"));
        let sizes = find(&film, &["moov", "trak", "mdia", "minf", "stbl", "stsz"]);
        assert_eq!(sizes[8..12], 3u32.to_be_bytes(), "{name}");
        let contents: usize = VIDEO.iter().take(4).map(|packet| packet.len() / 2).sum();
        assert!(find(&film, &["mdat"]).len() < contents, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn few_videos_of_pictures_are_encoded_at_a_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let picture = r#"{"width":1,"height":1,"encoding":"rgb8","step":3,"data":[1,2,3]}"#;
    let topics: Vec<Arc<Channel>> = (0..70)
        .map(|at| channel(&format!("/camera/{at}"), "sensor_msgs/Image"))
        .collect();
    let messages: Vec<_> = topics
        .iter()
        .map(|topic| (topic, picture.to_owned()))
        .collect();
    let folder = Folder::with_messages(1, &messages);
    // Notes when it starts and ends, and writes what it is fed.
    let script = "#!/bin/sh\n[ \"$1\" = -version ] && exit 0\nfor last; do :; done\necho + >> told\ncat > \"$last\"\necho - >> told\n";
    std::fs::write(folder.path("ffmpeg"), script).expect("write");
    let rights = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path("ffmpeg"), rights).expect("executable");
    let line = "export run.mcap -o out --format video";
    let (code, told) = folder.limited("ulimit -n 256", line);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(folder.names_in("out").len(), 70);
    let (mut running, mut most) = (0, 0);
    for line in String::from_utf8(folder.read("told"))
        .expect("text")
        .lines()
    {
        running += if line == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    assert!((1..=32).contains(&most), "{most}");
}

#[cfg(unix)]
#[test]
fn pictures_that_do_not_fit_say_the_file_and_the_cause() {
    let big = format!("[255,216,255{}]", ",0".repeat(99_999));
    let camera = channel("/camera", "sensor_msgs/CompressedImage");
    let video = channel("/video", "foxglove.CompressedVideo");
    let frame = |at: usize| {
        let mut data = bytes_of(VIDEO[at]);
        data.extend(vec![7; 40_000]);
        format!(r#"{{"format":"h264","data":{data:?}}}"#)
    };
    let folder = Folder::with_messages(
        1,
        &[
            (&camera, format!(r#"{{"format":"jpeg","data":{big}}}"#)),
            (&video, frame(0)),
            (&video, frame(1)),
        ],
    );
    for (topic, format, file) in [
        ("/camera", "images", "out/camera/1000000000.jpg"),
        ("/video", "video", "out/video"),
    ] {
        let line = format!("export run.mcap -o out --format {format} --topics {topic}");
        let (code, told) = folder.on_full_disk(8, &line);
        assert_eq!(code, Some(1), "{told}");
        assert!(
            told.contains(file) && told.contains("File too large"),
            "{told}"
        );
    }
}

#[test]
fn a_film_of_pictures_says_that_it_needs_ffmpeg() {
    let folder = Folder::with_demo();
    let told = video_without_ffmpeg(&folder, 1);
    assert!(told.contains("--format images"), "{told}");
}

#[test]
fn what_has_no_pictures_says_so() {
    let folder = Folder::with_demo();
    let line = "export run.mcap -o out --format images --topics /odom";
    let told = folder.run(line);
    assert!(
        told.contains("no pictures") && told.contains("exit 2"),
        "{told}"
    );
    for line in [
        "export run.mcap -o out --format images --fields data",
        "export run.mcap -o out --format csv --flatten",
        "export run.mcap -o out --format ndjson --time-zone none",
    ] {
        assert_eq!(folder.exit_code(line), 2, "{line}");
    }
}

#[test]
fn tables_are_flat_and_without_a_zone_where_that_is_wanted() {
    let folder = Folder::with_demo();
    let line = "export run.mcap -o out --topics /odom --flatten --time-zone none";
    assert_eq!(folder.exit_code(line), 0);
    let file = File::open(folder.path("out/odom.parquet")).expect("a table");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
    let schema = Arc::clone(reader.schema());
    let kind = |name: &str| {
        schema
            .field_with_name(name)
            .map(|field| field.data_type().clone())
    };
    let bare = DataType::Timestamp(TimeUnit::Nanosecond, None);
    assert_eq!(kind("log_time").expect("log_time"), bare);
    assert_eq!(kind("pose.pose.position.x").expect("x"), DataType::Float64);
    assert!(
        !schema
            .fields()
            .iter()
            .any(|field| matches!(field.data_type(), DataType::Struct(_)))
    );
    let batch = reader
        .build()
        .expect("a reader")
        .next()
        .expect("rows")
        .expect("rows");
    let x = batch.column_by_name("pose.pose.position.x").expect("x");
    assert_eq!(x.len(), 50);
    let x = x.as_primitive::<arrow_array::types::Float64Type>();
    assert!(x.values().iter().any(|x| x.fract().abs() > 1e-6));
}

#[test]
fn poses_of_a_topic_become_a_trajectory() {
    let folder = Folder::with_demo();
    let tum = folder.stdout("tf run.mcap --pose-topic /odom --format tum");
    assert_eq!(tum.lines().count(), 50);
    // What a topic says is what the table of it says.
    assert_eq!(
        folder.exit_code("export run.mcap -o out --format csv --topics /odom"),
        0
    );
    let table = String::from_utf8(folder.read("out/odom.csv")).expect("text");
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    let at = |name: &str| names.iter().position(|one| *one == name).expect(name);
    let (x, w) = (at("pose.pose.position.x"), at("pose.pose.orientation.w"));
    for (line, row) in tum.lines().zip(lines) {
        let pose: Vec<f64> = line
            .split(' ')
            .map(|one| one.parse().expect("a number"))
            .collect();
        // Lists are quoted, and stand behind.
        let row: Vec<&str> = row.split(',').collect();
        let number = |at: usize| row[at].parse::<f64>().expect("a number");
        assert_eq!((pose[1], pose[7]), (number(x), number(w)), "{line}");
    }
    let kitti = folder.stdout("tf run.mcap --pose-topic /odom --format kitti --end +0.5s");
    assert!((20..30).contains(&kitti.lines().count()), "{kitti}");
    assert!(kitti.lines().all(|line| line.split(' ').count() == 12));
    let wrong = folder.run("tf run.mcap --pose-topic /odmo --format tum");
    assert!(wrong.contains("did you mean '/odom'?"), "{wrong}");
    assert!(wrong.contains("exit 2"), "{wrong}");
    let wrong = folder.run("tf run.mcap --pose-topic /imu --format tum");
    assert!(
        wrong.contains("has no poses") && wrong.contains("exit 1"),
        "{wrong}"
    );
    let line = "tf run.mcap --pose-topic /odom --from odom --to base_link";
    assert_eq!(folder.exit_code(line), 2);
}
