//! The same trees, samples and questions to tf2 and to us. `ci/ros/tf2-compare` builds the program that asks tf2
//! and runs this test.

use std::io::Write;
use std::process::{Command, Stdio};

use asof_core::Stamp;
use asof_tf::{BufferOptions, Conflicts, LookupError, TransformBuffer};
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
    ours: Vec<(Result<Isometry3<f64>, LookupError>, Missing)>,
}

/// In which ways edges above the frames of a lookup have nothing for its times: any of them may be told.
#[derive(Debug, Clone, Copy, Default)]
struct Missing {
    past: bool,
    future: bool,
    none: bool,
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

fn program() -> String {
    std::env::var("ASOF_TF2_PROGRAM").expect("ci/ros/tf2-compare says where it is")
}

#[test]
#[ignore = "needs tf2: ci/ros/tf2-compare runs it"]
fn numbers_and_errors_are_those_of_tf2() {
    let mut random = Random(0x5eed);
    let mut record = Record::default();
    let mut longest = 0;
    for tree in 0..TREES {
        longest = longest.max(one_tree(&mut random, &mut record, tree));
    }
    let (_, answers) = ask_tf2(&program(), &record.script);
    assert_eq!(answers.len(), record.ours.len());
    assert!(answers.len() >= 100_000);
    assert!(longest >= 50, "the longest chain has {longest} edges");
    compare(&record, &answers);
}

#[test]
#[ignore = "needs tf2: ci/ros/tf2-compare runs it"]
fn frames_that_move_and_clocks_that_jump_are_as_in_tf2() {
    let (version, _) = ask_tf2(&program(), &[]);
    let mut random = Random(0xc10c);
    let mut record = Record::default();
    for forest in 0..TREES {
        one_forest(&mut random, &mut record, forest, version == 2);
    }
    let (_, answers) = ask_tf2(&program(), &record.script);
    assert_eq!(answers.len(), record.ours.len());
    assert!(answers.len() >= 100_000);
    compare(&record, &answers);
    if version == 1 {
        println!("changes of kind were NOT tried: tf2 of ROS 1 ignores them");
    }
}

/// Frames that change their parents from sample to sample, now and then their kind, and a clock that jumps
/// back; with questions in between.
fn one_forest(random: &mut Random, record: &mut Record, forest: usize, changes_kinds: bool) {
    let options = BufferOptions::unbounded().conflicts(Conflicts::LastWins);
    let buffer = TransformBuffer::with_options(options);
    record.script.push(b'N');
    let frames = 3 + random.below(8);
    // Without circles, a parent has a lower number.
    let (has_circles, is_restless) = (random.chance(20), random.chance(30));
    let kinds = if changes_kinds && random.chance(30) {
        5
    } else {
        0
    };
    let name = |frame: usize| format!("frame_{forest}_{frame}");
    let mut fixed = vec![None; frames];
    let mut parents: Vec<usize> = (0..frames)
        .map(|frame| random.below(frame.max(1)))
        .collect();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..=random.below(3) {
        for _ in 0..frames * (4 + random.below(20)) {
            let child =
                usize::from(!has_circles) + random.below(frames - usize::from(!has_circles));
            if random.chance(if is_restless { 40 } else { 5 }) {
                let others = if has_circles { frames } else { child };
                parents[child] = random.below(others);
            }
            let (parent, t) = (parents[child], random.time(FROM, TO));
            // Two samples with one stamp are another matter, in which tf2's versions differ.
            if parent == child || !seen.insert((child, t)) {
                continue;
            }
            let is_static = match fixed[child] {
                // tf2 of ROS 1 keeps the first kind that a frame has.
                Some(kind) if !changes_kinds => kind,
                Some(true) => !random.chance(kinds),
                Some(false) => random.chance(kinds),
                None => random.chance(20),
            };
            fixed[child] = Some(is_static);
            let (above, below, pose) = (name(parent), name(child), random.pose());
            let stored = if is_static {
                buffer.update_static(&above, &below, pose)
            } else {
                buffer.update(&above, &below, t.into(), pose)
            };
            stored.expect("the last word counts");
            record.update((&above, &below), t, &pose, is_static);
        }
        for _ in 0..LOOKUPS {
            let (target, source) = (name(random.below(frames)), name(random.below(frames)));
            if buffer.find(&target).is_none() && target == source {
                continue;
            }
            ask(
                &buffer,
                record,
                (&target, &source),
                random.time(FROM - SECOND / 10, TO),
            );
        }
        if random.chance(30) {
            buffer.clear();
            record.script.push(b'C');
            seen.clear();
        }
    }
}

fn ask(buffer: &TransformBuffer, record: &mut Record, (target, source): (&str, &str), t: i64) {
    record.script.push(b'L');
    record.name(target);
    record.name(source);
    record.stamp(t);
    let mut missing = Missing::default();
    missing.look(buffer, target, t);
    missing.look(buffer, source, t);
    let ours = buffer.lookup(target, source, t.into());
    record.ours.push((ours, missing));
}

/// A tree, its samples in random order, and questions to it. Returns the length of the longest chain.
fn one_tree(random: &mut Random, record: &mut Record, tree: usize) -> usize {
    let buffer = TransformBuffer::with_options(BufferOptions::unbounded());
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
            let mut missing = Missing::default();
            for (frame, t) in [(&target, t), (&fixed, t), (&fixed, other), (&source, other)] {
                missing.look(&buffer, frame, t);
            }
            record.ours.push((ours, missing));
        } else {
            ask(&buffer, record, (&target, &source), t);
        }
    }
    longest
}

impl Missing {
    /// Notes where an edge above the frame has nothing for `t`: all of them, if there is one way up only.
    fn look(&mut self, buffer: &TransformBuffer, frame: &str, t: i64) {
        let mut at = frame.to_owned();
        for _ in 0..200 {
            match buffer.parent_at(&at, t.into()) {
                Ok(Some(parent)) => at = parent.to_string(),
                Ok(None) => return,
                Err(error) => {
                    match error.kind() {
                        "extrapolation_past" => self.past = true,
                        "extrapolation_future" => self.future = true,
                        _ => self.none = true,
                    }
                    // What is above counts as well where frames keep their parents.
                    match buffer.parent(&at) {
                        Ok(Some(parent)) => at = parent.to_string(),
                        _ => return,
                    }
                }
            }
        }
    }

    fn is_any(self) -> bool {
        self.past || self.future || self.none
    }
}

/// What tf2 said: the kind of answer, and a pose.
/// Before it, the version of ROS.
fn ask_tf2(program: &str, script: &[u8]) -> (u8, Vec<(u8, [f64; 7])>) {
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
    let (version, answers) = output.stdout.split_first().expect("it tells its version");
    (*version, answers.chunks_exact(57).map(answer).collect())
}

fn compare(record: &Record, answers: &[(u8, [f64; 7])]) {
    let (mut kinds, mut worst, mut earlier) = ([0; 10], 0.0_f64, 0);
    for (place, ((ours, missing), (kind, theirs))) in record.ours.iter().zip(answers).enumerate() {
        let our_kind = match ours {
            Ok(_) => 0,
            Err(LookupError::UnknownFrame { .. }) => 1,
            Err(LookupError::Disconnected { .. }) => 2,
            Err(LookupError::Extrapolation { asked, oldest, .. }) if asked < oldest => 3,
            Err(LookupError::Extrapolation { .. }) => 4,
            Err(LookupError::NoData { .. }) => 5,
            Err(LookupError::Circle { .. }) => 6,
            Err(other) => panic!("lookup {place}: {other}"),
        };
        let is_time = |kind: u8| (3..=5).contains(&kind);
        if our_kind == 2 && is_time(*kind) && missing.is_any() {
            // Both hold: tf2 meets the missing sample before it finds that the trees do not meet.
            earlier += 1;
            continue;
        }
        // Of several edges that have nothing, either may be told; of one sample tf2 does not say on which
        // side it is.
        let is_either = match kind {
            3 => missing.past,
            4 => missing.future,
            5 => missing.is_any(),
            _ => false,
        };
        let is_same = our_kind == *kind || (is_time(our_kind) && is_time(*kind) && is_either);
        assert!(
            is_same,
            "lookup {place}: {ours:?}, tf2 says {kind}; {missing:?}"
        );
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
        "{TREES} trees, {} lookups: {} answers agree to {worst:.1e}, {} unknown frames, {} not connected ({earlier} \
         more that tf2 calls extrapolation), {} into the past, {} into the future, {} with one sample or none, {} \
         circles",
        answers.len(),
        kinds[0],
        kinds[1],
        kinds[2],
        kinds[3],
        kinds[4],
        kinds[5],
        kinds[6]
    );
}
