//! What lies between two samples has the same bits for a transform, a window, joined and resampled topics, a dataset, the command,
//! and SQL: numbers, times, vectors, rotations and poses.

use std::sync::Arc;

use crate::common::{Folder, ros2};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use asof::align::{AlignOptions, On, Rule, between};
use asof::formats::{McapWriter, McapWriterOptions};
use asof::ros::CdrWriter;
use asof::window::{Bounds, PoseSample, Rotation, Window};
use asof::{Channel, Message, Stamp};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

const START: i64 = 1_000_000_007;
const END: i64 = 1_100_000_003;
/// The second instant of a grid of 30 Hz, and the stamp of the anchor.
const INSTANT: i64 = START + 33_333_333;

const SAMPLE: &str = "std_msgs/Header header\nfloat64 x\nfloat32 f\nfloat64[3] v\n\
    builtin_interfaces/Time taken\ngeometry_msgs/Pose pose\n===\n\
    MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n===\n\
    MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n===\n\
    MSG: geometry_msgs/Pose\ngeometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n===\n\
    MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n===\n\
    MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n";

const TRANSFORMS: &str = "geometry_msgs/TransformStamped[] transforms\n===\n\
    MSG: geometry_msgs/TransformStamped\nstd_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform\n===\n\
    MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n===\n\
    MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n===\n\
    MSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation\n===\n\
    MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n===\n\
    MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n";

/// What is measured at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    stamp: i64,
    x: f64,
    f: f32,
    v: [f64; 3],
    /// Nanoseconds.
    taken: i64,
    position: [f64; 3],
    rotation: [f64; 4],
}

impl Sample {
    fn of(stamp: i64, seed: f64, rotation: [f64; 4]) -> Self {
        Sample {
            stamp,
            x: seed.sin() * 1e3,
            f: (seed * 7.7).cos() as f32,
            v: [seed, -seed / 3.0, 1e-9 * seed],
            taken: (seed * 987_654_321.0) as i64 - 3_000_000_000,
            position: [seed / 7.0, seed * 11.3, -seed],
            rotation,
        }
    }

    fn message(&self, channel: &Arc<Channel>) -> Message {
        let mut cdr = CdrWriter::with_capacity(200);
        time(&mut cdr, self.stamp);
        cdr.string("odom").float64(self.x).float32(self.f);
        cdr.float64s(&self.v);
        time(&mut cdr, self.taken);
        cdr.float64s(&self.position).float64s(&self.rotation);
        logged(channel, self.stamp, cdr.finish())
    }

    fn transform(&self, channel: &Arc<Channel>) -> Message {
        let mut cdr = CdrWriter::with_capacity(200);
        cdr.length(1);
        time(&mut cdr, self.stamp);
        cdr.string("odom").string("base");
        cdr.float64s(&self.position).float64s(&self.rotation);
        logged(channel, self.stamp, cdr.finish())
    }

    fn pose(&self) -> PoseSample {
        PoseSample {
            position: self.position,
            rotation: Rotation(self.rotation),
        }
    }
}

fn time(cdr: &mut CdrWriter, nanos: i64) {
    cdr.int32(nanos.div_euclid(1_000_000_000) as i32)
        .uint32(nanos.rem_euclid(1_000_000_000) as u32);
}

fn logged(channel: &Arc<Channel>, at: i64, payload: Vec<u8>) -> Message {
    let at = Stamp::from_nanos(at);
    Message {
        channel: Arc::clone(channel),
        log_time: at,
        publish_time: at,
        sequence: 0,
        payload: payload.into(),
    }
}

/// Two samples on `/b` and as transforms, and an anchor on `/a`.
fn recording(samples: [Sample; 2]) -> Folder {
    let folder = Folder::empty();
    let path = folder.path("run.mcap");
    let mut writer = McapWriter::create(path, McapWriterOptions::default()).expect("create");
    let [a, b] = ["/a", "/b"].map(|topic| ros2(topic, "test_msgs/msg/Sample", SAMPLE));
    let tf = ros2("/tf", "tf2_msgs/msg/TFMessage", TRANSFORMS);
    let anchor = Sample::of(INSTANT, 0.5, [0.0, 0.0, 0.0, 1.0]);
    let [first, second] = samples;
    for message in [
        first.message(&b),
        first.transform(&tf),
        anchor.message(&a),
        second.message(&b),
        second.transform(&tf),
    ] {
        writer.write(&message).expect("written");
    }
    writer.finish().expect("finished");
    folder
}

/// The bits of all that lies between: x, f, v, the time, the position, the rotation.
type Bits = Vec<u64>;

/// By the functions themselves.
fn wanted([a, b]: [Sample; 2]) -> Bits {
    let part = between::part(a.stamp, b.stamp, INSTANT);
    let number = |a: f64, b: f64| between::number(a, b, part);
    let mut all = vec![number(a.x, b.x)];
    all.push(f64::from(number(a.f.into(), b.f.into()) as f32));
    all.extend(a.v.iter().zip(b.v).map(|(a, b)| number(*a, b)));
    let mut bits: Bits = all.into_iter().map(f64::to_bits).collect();
    bits.push(between::time(a.taken.into(), b.taken.into(), part) as u64);
    let position = between::vector(a.position, b.position, part);
    let rotation = between::rotation(a.rotation, b.rotation, part);
    bits.extend(position.into_iter().chain(rotation).map(f64::to_bits));
    bits
}

fn field(row: &dyn Array, name: &str) -> ArrayRef {
    let row = row.as_struct();
    Arc::clone(row.column_by_name(name).expect(name))
}

/// Of a row of columns.
fn bits(row: usize, column: impl Fn(&str) -> ArrayRef) -> Bits {
    let float = |array: &dyn Array| array.as_primitive::<Float64Type>().value(row).to_bits();
    let mut all = vec![float(&column("x"))];
    let f = column("f").as_primitive::<Float32Type>().value(row);
    all.push(f64::from(f).to_bits());
    let v = column("v").as_fixed_size_list().value(row);
    all.extend(
        v.as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|v| v.to_bits()),
    );
    let taken = column("taken");
    let seconds = field(&taken, "sec").as_primitive::<Int32Type>().value(row);
    let nanos = field(&taken, "nanosec")
        .as_primitive::<UInt32Type>()
        .value(row);
    all.push((i64::from(seconds) * 1_000_000_000 + i64::from(nanos)) as u64);
    let pose = column("pose");
    for (name, parts) in [("position", "xyz"), ("orientation", "xyzw")] {
        let part = field(&pose, name);
        all.extend(
            parts
                .chars()
                .map(|name| float(&field(&part, &name.to_string()))),
        );
    }
    all
}

/// Of the row at the instant.
fn of_rows(batches: &[RecordBatch], prefix: &str) -> Bits {
    let times = |batch: &RecordBatch| {
        let times = batch.column_by_name("time").expect("time");
        times
            .as_primitive::<arrow_array::types::TimestampNanosecondType>()
            .clone()
    };
    let place = batches.iter().find_map(|batch| {
        let row = times(batch).iter().position(|time| time == Some(INSTANT))?;
        Some((batch, row))
    });
    let (batch, row) = place.expect("a row at the instant");
    bits(row, |name| {
        let name = format!("{prefix}{name}");
        Arc::clone(batch.column_by_name(&name).expect(&name))
    })
}

/// The numbers of a list in a line of JSON, exactly.
fn numbers(line: &str, name: &str) -> Vec<u64> {
    let (_, rest) = line.split_once(&format!("\"{name}\":[")).expect(line);
    let (list, _) = rest.split_once(']').expect(line);
    let number = |text: &str| text.trim().parse::<f64>().expect(line).to_bits();
    list.split(',').map(number).collect()
}

#[test]
fn what_lies_between_two_samples_has_the_same_bits_everywhere() {
    let turn = |angle: f64, length: f64| {
        let (sin, cos) = (angle / 2.0).sin_cos();
        [0.36 * sin, 0.48 * sin, 0.8 * sin, cos].map(|part| part * length)
    };
    // From almost no turn to almost half of one, of unit length up to rounding and not; both signs.
    for (angle, length) in [
        (1e-7, 1.0),
        (0.003, 1.0),
        (0.1, 1.002),
        (0.7, 1.0),
        (3.1, 0.999),
        (1.0, -1.0),
    ] {
        let samples = [
            Sample::of(START, 0.3 + angle, turn(0.2, 1.0)),
            Sample::of(END, 2.9 - angle, turn(0.2 + angle, length)),
        ];
        let folder = recording(samples);
        let wanted = wanted(samples);
        let pose = &wanted[6..];

        let window = Window::new(Bounds::count(10));
        for sample in samples {
            let value = ((sample.x, sample.f, sample.v), sample.pose());
            window.insert(sample.stamp.into(), value);
        }
        let matched = window.pick(INSTANT.into(), Rule::interpolate());
        let ((x, f, v), there): ((f64, f32, [f64; 3]), PoseSample) =
            matched.value().expect("between");
        let mut found = vec![x.to_bits(), f64::from(f).to_bits()];
        found.extend(v.map(f64::to_bits));
        assert_eq!(found, wanted[..5], "a window, {angle}");
        let found: Vec<u64> = there
            .position
            .into_iter()
            .chain(there.rotation.0)
            .map(f64::to_bits)
            .collect();
        assert_eq!(found, pose, "a window, {angle}");

        let recording = asof::open(folder.path("run.mcap")).expect("opens");
        let loaded = recording.tf().expect("transforms");
        let found = loaded
            .buffer
            .lookup("odom", "base", INSTANT.into())
            .expect("a transform");
        let (t, q) = (found.translation, found.rotation);
        let found = [t.x, t.y, t.z, q.i, q.j, q.k, q.w].map(f64::to_bits);
        assert_eq!(found, pose, "a transform, {angle}");
        let line = folder.stdout(&format!(
            "tf run.mcap --from odom --to base --at {INSTANT}ns --json"
        ));
        let found = [numbers(&line, "translation"), numbers(&line, "rotation")].concat();
        assert_eq!(found, pose, "asof tf, {angle}");

        let options = || AlignOptions {
            rule: Rule::interpolate(),
            on: Some(On::LogTime),
            ..AlignOptions::default()
        };
        let joined = recording.join("/a", &["/b"], options()).expect("a table");
        let found = of_rows(&joined.collect().expect("rows"), "/b.");
        assert_eq!(found, wanted, "joined topics, {angle}");
        let grid = recording
            .resample(&["/b"], 30.0, options())
            .expect("a table");
        let found = of_rows(&grid.collect().expect("rows"), "/b.");
        assert_eq!(found, wanted, "resampled topics, {angle}");

        let line = "join run.mcap --anchor /a --with /b --method interpolate --on log_time -o rows.parquet --force";
        assert_eq!(folder.exit_code(line), 0);
        let file = std::fs::File::open(folder.path("rows.parquet")).expect("a file");
        let mut batches = ParquetRecordBatchReader::try_new(file, 10).expect("Parquet");
        let batch = batches.next().expect("a row").expect("a batch");
        let side = batch.column_by_name("/b").expect("a side");
        assert_eq!(
            bits(0, |name| field(side, name)),
            wanted,
            "asof join, {angle}"
        );
        let line = "join run.mcap --anchor /a --with /b --method interpolate --on log_time --fields v --json";
        let said = folder.stdout(line);
        let (_, with) = said.split_once("\"with\"").expect("another topic");
        assert_eq!(
            numbers(with, "v"),
            wanted[2..5],
            "asof join --json, {angle}"
        );

        #[cfg(feature = "sql")]
        {
            let columns =
                ["x", "f", "v", "taken", "pose"].map(|name| format!("b.{name} AS {name}"));
            let columns = columns.join(", ");
            let query = format!("SELECT time, {columns} FROM resample(b, 30, 'interpolate')");
            let table = recording.sql(&query).expect("a query");
            let found = of_rows(&table.collect().expect("rows"), "");
            assert_eq!(found, wanted, "resample in SQL, {angle}");
        }
    }
}
