//! The same trees, samples and questions to tf2 and to us. `ci/tf2-compare` builds the program that asks tf2
//! and runs this test.

use std::io::Write;
use std::process::{Command, Stdio};

use asof_core::Stamp;
use asof_tf::{LookupError, Options, TransformBuffer};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

const TREES: usize = 1_000;
const LOOKUPS: usize = 101;
const SECOND: i64 = 1_000_000_000;
/// All samples are from here to there.
const FROM: i64 = 100 * SECOND;
const TO: i64 = 110 * SECOND;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 30) as f64 / f64::from(1 << 29) - 1.0
    }

    fn time(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as usize) as i64
    }

    fn pose(&mut self) -> Isometry3<f64> {
        let parts = [self.unit(), self.unit(), self.unit(), self.unit() + 1e-3];
        let rotation = UnitQuaternion::new_normalize(Quaternion::from(parts));
        Isometry3::from_parts(
            Translation3::new(self.unit(), self.unit(), self.unit()),
            rotation,
        )
    }
}

/// What tf2's program is told, and what we say ourselves.
#[derive(Default)]
struct Record {
    script: Vec<u8>,
    ours: Vec<(Result<Isometry3<f64>, LookupError>, bool)>,
}

impl Record {
    fn name(&mut self, name: &str) {
        self.script.extend_from_slice(name.as_bytes());
        self.script.push(0);
    }

    fn stamp(&mut self, stamp: i64) {
        self.script.extend_from_slice(&stamp.to_ne_bytes());
    }

    fn update(
        &mut self,
        (parent, child): (&str, &str),
        stamp: i64,
        pose: &Isometry3<f64>,
        is_static: bool,
    ) {
        self.script.push(b'S');
        self.name(parent);
        self.name(child);
        self.stamp(stamp);
        let [x, y, z, w]: [f64; 4] = pose.rotation.coords.into();
        let t = pose.translation.vector;
        for part in [x, y, z, w, t.x, t.y, t.z] {
            self.script.extend_from_slice(&part.to_ne_bytes());
        }
        self.script.push(u8::from(is_static));
    }
}

#[test]
#[ignore = "needs tf2: ci/tf2-compare runs it"]
fn numbers_and_errors_are_those_of_tf2() {
    let program = std::env::var("ASOF_TF2_PROGRAM").expect("ci/tf2-compare says where it is");
    let mut random = Random(0x5eed);
    let mut record = Record::default();
    let mut longest = 0;
    for tree in 0..TREES {
        longest = longest.max(one_tree(&mut random, &mut record, tree));
    }
    let answers = ask_tf2(&program, &record.script);
    assert_eq!(answers.len(), record.ours.len());
    assert!(answers.len() >= 100_000);
    assert!(longest >= 50, "the longest chain has {longest} edges");
    compare(&record, &answers, longest);
}

/// A tree, its samples in random order, and questions to it. Returns the length of the longest chain.
fn one_tree(random: &mut Random, record: &mut Record, tree: usize) -> usize {
    let buffer = TransformBuffer::with_options(Options::unbounded());
    record.script.push(b'N');
    let frames = 2 + random.below(60);
    let (is_forest, is_covered) = (random.chance(30), random.chance(80));
    let name = |frame: usize| format!("frame_{tree}_{frame}");
    let mut samples = Vec::new();
    let mut stamps = Vec::new();
    for child in 1..frames {
        if is_forest && random.chance(10) {
            continue;
        }
        let parent = if random.chance(90) {
            child - 1
        } else {
            random.below(child)
        };
        let edge = (name(parent), name(child));
        if random.chance(25) {
            let pose = random.pose();
            buffer
                .update_static(&edge.0, &edge.1, pose)
                .expect("a good edge");
            record.update((&edge.0, &edge.1), FROM, &pose, true);
            continue;
        }
        let mut times: Vec<i64> = (0..=random.below(12))
            .map(|_| random.time(FROM, TO))
            .collect();
        if is_covered {
            times.extend([FROM, TO]);
        }
        times.sort_unstable();
        times.dedup();
        stamps.extend_from_slice(&times);
        // Half of the edges turn a little from sample to sample, as real ones do.
        let is_smooth = random.chance(50);
        let mut pose = random.pose();
        for t in times {
            let step = random.pose();
            let turn = UnitQuaternion::identity().slerp(&step.rotation, 0.01);
            pose = if is_smooth {
                pose * Isometry3::from_parts(step.translation, turn)
            } else {
                step
            };
            samples.push((edge.clone(), t, pose));
        }
    }
    for i in (1..samples.len()).rev() {
        samples.swap(i, random.below(i + 1));
    }
    for ((parent, child), t, pose) in &samples {
        buffer
            .update(parent, child, Stamp::from_nanos(*t), *pose)
            .expect("a good update");
        record.update((parent, child), *t, pose, false);
    }
    let time = |random: &mut Random| match stamps.len() {
        0 => random.time(FROM, TO),
        count if random.chance(25) => stamps[random.below(count)],
        _ if random.chance(10) => random.time(FROM - SECOND, TO + SECOND),
        _ => random.time(FROM, TO),
    };
    let mut longest = 0;
    for _ in 0..LOOKUPS {
        let frame = |random: &mut Random| {
            if random.chance(1) {
                "nowhere".to_owned()
            } else {
                name(random.below(frames))
            }
        };
        let (target, source) = match random.below(4) {
            0 => (name(0), name(frames - 1)),
            _ => (frame(random), frame(random)),
        };
        // tf2 answers for an unknown frame in itself; we do not, by decision.
        let is_twin = |a: &str, b: &str| a == b && buffer.find(a).is_none();
        if is_twin(&target, &source) {
            continue;
        }
        longest = longest.max(
            buffer
                .chain(&target, &source)
                .map_or(0, |chain| chain.len()),
        );
        let t = time(random);
        if random.chance(20) {
            let (fixed, other) = (frame(random), time(random));
            if is_twin(&target, &fixed) || is_twin(&fixed, &source) {
                continue;
            }
            record.script.push(b'F');
            record.name(&target);
            record.stamp(t);
            record.name(&source);
            record.stamp(other);
            record.name(&fixed);
            let ours = buffer.lookup_full(&target, t.into(), &source, other.into(), &fixed);
            let is_uncovered = [(&target, t), (&fixed, t), (&fixed, other), (&source, other)]
                .iter()
                .any(|(frame, t)| is_uncovered(&buffer, frame, *t));
            record.ours.push((ours, is_uncovered));
        } else {
            record.script.push(b'L');
            record.name(&target);
            record.name(&source);
            record.stamp(t);
            let ours = buffer.lookup(&target, &source, t.into());
            let is_uncovered =
                is_uncovered(&buffer, &target, t) || is_uncovered(&buffer, &source, t);
            record.ours.push((ours, is_uncovered));
        }
    }
    longest
}

/// Whether an edge above the frame has nothing for `t`.
fn is_uncovered(buffer: &TransformBuffer, frame: &str, t: i64) -> bool {
    let mut at = frame.to_owned();
    while let Ok(Some(parent)) = buffer.parent(&at) {
        if buffer.can_transform(&parent, &at, t.into()).is_err() {
            return true;
        }
        at = parent.to_string();
    }
    false
}

/// What tf2 said: the kind of answer, and a pose.
fn ask_tf2(program: &str, script: &[u8]) -> Vec<(u8, [f64; 7])> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(script).expect("the program reads"));
        child.wait_with_output().expect("the program ends")
    });
    assert!(output.status.success(), "{}", output.status);
    let answer = |bytes: &[u8]| {
        let part = |i: usize| {
            let at = 1 + 8 * i;
            f64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        (bytes[0], std::array::from_fn(part))
    };
    output.stdout.chunks_exact(57).map(answer).collect()
}

fn compare(record: &Record, answers: &[(u8, [f64; 7])], longest: usize) {
    let (mut kinds, mut worst, mut earlier) = ([0; 4], 0.0_f64, 0);
    for (place, ((ours, is_uncovered), (kind, theirs))) in
        record.ours.iter().zip(answers).enumerate()
    {
        let our_kind = match ours {
            Ok(_) => 0,
            Err(LookupError::UnknownFrame { .. }) => 1,
            Err(LookupError::Disconnected { .. }) => 2,
            Err(LookupError::Extrapolation { .. } | LookupError::NoData { .. }) => 3,
            Err(other) => panic!("lookup {place}: {other}"),
        };
        if our_kind == 2 && *kind == 3 && *is_uncovered {
            // Both hold: tf2 meets the missing sample before it finds that the trees do not meet.
            earlier += 1;
            continue;
        }
        assert_eq!(our_kind, *kind, "lookup {place}: {ours:?}");
        kinds[usize::from(*kind)] += 1;
        if let Ok(ours) = ours {
            let [x, y, z, w]: [f64; 4] = ours.rotation.coords.into();
            let t = ours.translation.vector;
            let sign = (x * theirs[0] + y * theirs[1] + z * theirs[2] + w * theirs[3]).signum();
            let found = [x * sign, y * sign, z * sign, w * sign, t.x, t.y, t.z];
            let off = found
                .iter()
                .zip(theirs)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            assert!(off < 1e-9, "lookup {place}: {found:?}, tf2 says {theirs:?}");
            worst = worst.max(off);
        }
    }
    println!(
        "{TREES} trees, {} lookups, chains up to {longest} edges: {} answers agree to {worst:.1e}, {} unknown \
         frames, {} not connected ({earlier} more that tf2 calls extrapolation), {} extrapolations",
        answers.len(),
        kinds[0],
        kinds[1],
        kinds[2],
        kinds[3]
    );
}
