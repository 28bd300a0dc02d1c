//! The buffer against a model that is slow and plainly right.

use std::collections::BTreeMap;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{
    BufferOptions, Conflicts, FrameName, Limits, LookupError, TransformBuffer, Update, UpdateError,
};
use nalgebra::{Isometry3, Translation3, UnitQuaternion};
use proptest::prelude::*;

/// Edges by child: parent, and every sample by stamp.
#[derive(Default)]
struct Model {
    edges: BTreeMap<usize, (usize, BTreeMap<i64, Isometry3<f64>>)>,
    window: i64,
    count: usize,
}

impl Model {
    fn update(&mut self, parent: usize, child: usize, t: i64, pose: Isometry3<f64>) -> bool {
        let (window, count) = (self.window, self.count);
        let samples = &mut self
            .edges
            .entry(child)
            .or_insert((parent, BTreeMap::new()))
            .1;
        let newest = samples.keys().next_back().copied().unwrap_or(t);
        let oldest = samples.keys().next().copied().unwrap_or(t);
        if let Some(present) = samples.get_mut(&t) {
            *present = pose;
            return true;
        }
        if t < newest - window || (samples.len() >= count && t < oldest) {
            return false;
        }
        samples.insert(t, pose);
        let newest = newest.max(t);
        samples.retain(|stamp, _| *stamp >= newest - window);
        while samples.len() > count {
            samples.pop_first();
        }
        true
    }

    fn edge(&self, child: usize, t: i64) -> Result<Isometry3<f64>, &'static str> {
        let samples = &self.edges[&child].1;
        if let Some(pose) = samples.get(&t) {
            return Ok(*pose);
        }
        let before = samples.range(..t).next_back();
        let after = samples.range(t..).next();
        match (before, after) {
            (Some((a, p)), Some((b, q))) => {
                let part = (t - a) as f64 / (b - a) as f64;
                let translation = p.translation.vector.lerp(&q.translation.vector, part);
                let turn = p.rotation.inverse() * q.rotation;
                let rotation = p.rotation * turn.powf(part);
                Ok(Isometry3::from_parts(translation.into(), rotation))
            }
            (None, Some(_)) => Err("extrapolation_past"),
            (Some(_), None) => Err("extrapolation_future"),
            (None, None) => Err("no_data"),
        }
    }

    fn to_root(&self, frame: usize, t: i64) -> Vec<(usize, Result<Isometry3<f64>, &'static str>)> {
        let mut way = Vec::new();
        let mut at = frame;
        while let Some((parent, _)) = self.edges.get(&at) {
            way.push((at, self.edge(at, t)));
            at = *parent;
        }
        way
    }

    fn root(&self, frame: usize) -> usize {
        self.edges
            .get(&frame)
            .map_or(frame, |(parent, _)| self.root(*parent))
    }

    fn lookup(
        &self,
        target: usize,
        source: usize,
        t: i64,
    ) -> Result<Isometry3<f64>, Vec<&'static str>> {
        if self.root(target) != self.root(source) {
            return Err(vec!["disconnected"]);
        }
        let (mut up, mut down) = (self.to_root(target, t), self.to_root(source, t));
        while up.last().map(|e| e.0) == down.last().map(|e| e.0) && !up.is_empty() {
            up.pop();
            down.pop();
        }
        let errors: Vec<_> = up
            .iter()
            .chain(&down)
            .filter_map(|(_, pose)| pose.err())
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let product = |way: Vec<(usize, Result<Isometry3<f64>, _>)>| {
            way.into_iter()
                .fold(Isometry3::identity(), |sum, (_, pose)| {
                    pose.expect("no error") * sum
                })
        };
        Ok(product(up).inverse() * product(down))
    }
}

/// tf2's cache: for each child its samples with their parents, or one for all times.
#[derive(Default)]
struct Tf2 {
    caches: BTreeMap<usize, Cache>,
    /// Before these times samples of a child count as evicted.
    starts: BTreeMap<usize, i64>,
}

enum Cache {
    Static(usize, Isometry3<f64>),
    Timed(BTreeMap<i64, (usize, Isometry3<f64>)>),
}

/// What a walk up found: the frames with the poses in their parents, and why it ended.
struct Walk {
    frames: Vec<usize>,
    poses: Vec<Isometry3<f64>>,
    missed: Option<&'static str>,
}

impl Tf2 {
    fn set(&mut self, (parent, child): (usize, usize), t: Option<i64>, pose: Isometry3<f64>) {
        match (self.caches.get_mut(&child), t) {
            (Some(Cache::Timed(samples)), Some(t)) => {
                samples.insert(t, (parent, pose));
            }
            (_, Some(t)) => {
                let samples = BTreeMap::from([(t, (parent, pose))]);
                self.caches.insert(child, Cache::Timed(samples));
            }
            (_, None) => {
                self.caches.insert(child, Cache::Static(parent, pose));
            }
        }
    }

    fn get(&self, child: usize, t: i64) -> Option<Result<(usize, Isometry3<f64>), &'static str>> {
        let samples = match self.caches.get(&child)? {
            Cache::Static(parent, pose) => return Some(Ok((*parent, *pose))),
            Cache::Timed(samples) => samples,
        };
        let start = self.starts.get(&child).copied().unwrap_or(i64::MIN);
        if samples.is_empty() {
            return Some(Err("no_data"));
        }
        let before = samples.range(..=t).next_back().filter(|_| t >= start);
        let after = samples.range(t..).next();
        Some(match (before, after) {
            (Some((a, (parent, p))), Some((b, (other, q)))) if a != b && parent == other => {
                let part = (t - a) as f64 / (b - a) as f64;
                let translation = p.translation.vector.lerp(&q.translation.vector, part);
                let turn = p.rotation.inverse() * q.rotation;
                let rotation = p.rotation * turn.powf(part);
                Ok((*parent, Isometry3::from_parts(translation.into(), rotation)))
            }
            (Some((_, (parent, pose))), Some(_)) => Ok((*parent, *pose)),
            (None, _) => Err("extrapolation_past"),
            (Some(_), None) => Err("extrapolation_future"),
        })
    }

    /// `None` where it goes round in a circle.
    fn walk(&self, from: usize, until: usize, t: i64) -> Option<Walk> {
        let mut walk = Walk {
            frames: vec![from],
            poses: Vec::new(),
            missed: None,
        };
        let mut at = from;
        while at != until {
            match self.get(at, t) {
                None => break,
                Some(Err(missed)) => {
                    walk.missed = Some(missed);
                    break;
                }
                Some(Ok((parent, pose))) => {
                    walk.poses.push(pose);
                    walk.frames.push(parent);
                    at = parent;
                }
            }
            if walk.poses.len() > 100 {
                return None;
            }
        }
        Some(walk)
    }

    fn lookup(
        &self,
        target: usize,
        source: usize,
        t: i64,
    ) -> Result<Isometry3<f64>, Vec<&'static str>> {
        let product = |poses: &[Isometry3<f64>]| {
            poses
                .iter()
                .fold(Isometry3::identity(), |sum, pose| pose * sum)
        };
        let far = self.walk(source, target, t).ok_or(vec!["circle"])?;
        if far.frames.last() == Some(&target) {
            return Ok(product(&far.poses));
        }
        let near = self.walk(target, source, t).ok_or(vec!["circle"])?;
        if near.frames.last() == Some(&source) {
            return Ok(product(&near.poses).inverse());
        }
        let meeting = near
            .frames
            .iter()
            .position(|frame| far.frames.contains(frame));
        let Some(up) = meeting else {
            let missed: Vec<_> = near.missed.into_iter().chain(far.missed).collect();
            // Where a sample is missing, it is not known whether they would be connected.
            return Err([missed, vec!["disconnected"]].concat());
        };
        let down = far
            .frames
            .iter()
            .position(|frame| *frame == near.frames[up]);
        let down = down.expect("it is there");
        Ok(product(&near.poses[..up]).inverse() * product(&far.poses[..down]))
    }
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn pose(&mut self) -> Isometry3<f64> {
        let mut unit = || self.below(2_000_001) as f64 / 1e6 - 1.0;
        let translation = Translation3::new(unit(), unit(), unit());
        let rotation = UnitQuaternion::from_euler_angles(unit(), unit(), unit() * 3.0);
        Isometry3::from_parts(translation, rotation)
    }

    /// A stamp at `now`, or late: a little, or by up to everything that ever was.
    fn stamp(&mut self, now: i64) -> i64 {
        match self.below(100) {
            0..80 => now,
            80..95 => now - self.below(50_000) as i64,
            _ => self.below(now as u64 + 1) as i64,
        }
    }
}

/// A buffer beside tf2's cache, which evicts nothing.
struct Pair {
    buffer: TransformBuffer,
    tf2: Tf2,
    /// The current parents.
    parents: BTreeMap<usize, usize>,
    dice: Dice,
    now: i64,
    is_free: bool,
    has_limits: bool,
}

/// The frames of a [`Pair`], of which the first has no parent, and the others one with a lower number.
const PAIRED_FRAMES: u64 = 6;

impl Pair {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut options = BufferOptions::unbounded();
        options.bytes = [None, Some(48 << 10), Some(64 << 10), Some(128 << 10)][seed as usize % 4];
        if dice.below(4) == 0 {
            options = options.window(Duration::from_nanos(dice.below(1_000_000)));
        }
        if dice.below(4) == 0 {
            options = options.count(1 + dice.below(500));
        }
        let is_free = dice.below(2) == 0;
        if is_free {
            options = options.conflicts(Conflicts::LastWins);
        }
        Pair {
            buffer: TransformBuffer::with_options(options),
            tf2: Tf2::default(),
            parents: BTreeMap::new(),
            dice,
            now: 0,
            is_free,
            has_limits: false,
        }
    }

    fn step(&mut self) {
        self.now += self.dice.below(2_000) as i64;
        let child = 1 + self.dice.below(PAIRED_FRAMES - 1) as usize;
        let other = self.dice.below(child as u64) as usize;
        let present = self.parents.get(&child).copied().unwrap_or(other);
        match self.dice.below(2_000) {
            0..2 => self.remove(child),
            2 => {
                self.buffer.clear();
                for cache in self.tf2.caches.values_mut() {
                    if let Cache::Timed(samples) = cache {
                        samples.clear();
                    }
                }
            }
            3 => {
                let limits = Limits {
                    window: Some(Duration::from_nanos(self.dice.below(1_000_000))),
                    count: Some(1 + self.dice.below(1_000)),
                };
                let _ = self.buffer.set_limits(&name(child), limits);
                self.has_limits = true;
            }
            4..6 if self.is_free => {
                let pose = self.dice.pose();
                (self.buffer.update_static(&name(other), &name(child), pose))
                    .expect("all are good");
                self.tf2.set((other, child), None, pose);
                self.parents.insert(child, other);
            }
            6..16 => self.update(child, other),
            16..36 => self.extend(child, present),
            36..300 => self.compare(),
            _ => self.update(child, present),
        }
    }

    fn update(&mut self, child: usize, parent: usize) {
        let (stamp, pose) = (self.dice.stamp(self.now), self.dice.pose());
        let (above, below) = (name(parent), name(child));
        let stored = if self.is_free {
            self.buffer.update(&above, &below, stamp.into(), pose)
        } else {
            self.buffer.reparent(&above, &below, stamp.into(), pose)
        };
        match stored {
            Ok(()) => self.note(child, parent, stamp, pose),
            Err(UpdateError::TooOld { .. }) => {
                let oldest = self.oldest(child);
                // Narrower limits refuse at once what an update evicts only later.
                let is_older = oldest.is_some_and(|oldest| stamp < oldest);
                assert!(is_older || self.has_limits, "{stamp} {oldest:?}");
            }
            Err(UpdateError::KindConflict { .. }) => assert!(!self.is_free),
            Err(error) => panic!("{error}"),
        }
    }

    /// What is stored of a batch is told by what the buffer then holds, from its oldest sample on.
    fn extend(&mut self, child: usize, parent: usize) {
        let samples: Vec<_> = (0..=self.dice.below(40))
            .map(|_| {
                (
                    Stamp::from_nanos(self.dice.stamp(self.now)),
                    self.dice.pose(),
                )
            })
            .collect();
        let (before, count) = (self.oldest(child), samples.len());
        let too_old = (self.buffer)
            .extend_edge(&name(parent), &name(child), samples.iter().copied())
            .expect("all are good");
        assert!(too_old <= count as u64);
        let oldest = self.oldest(child).expect("it has the newest at least");
        for (stamp, pose) in samples {
            if stamp.nanos() >= oldest.min(before.unwrap_or(oldest)) {
                self.note(child, parent, stamp.nanos(), pose);
            }
        }
    }

    fn note(&mut self, child: usize, parent: usize, stamp: i64, pose: Isometry3<f64>) {
        self.tf2.set((parent, child), Some(stamp), pose);
        if let Some(Cache::Timed(samples)) = self.tf2.caches.get(&child) {
            let (_, (newest, _)) = samples.last_key_value().expect("one was added");
            self.parents.insert(child, *newest);
        }
    }

    fn remove(&mut self, frame: usize) {
        let Ok(gone) = self.buffer.remove(&name(frame)) else {
            return;
        };
        let mut below = vec![frame];
        for child in frame..PAIRED_FRAMES as usize {
            if self
                .parents
                .get(&child)
                .is_some_and(|parent| below.contains(parent))
            {
                below.push(child);
            }
        }
        assert_eq!(gone, below.len());
        for frame in below {
            self.tf2.caches.remove(&frame);
            self.parents.remove(&frame);
        }
    }

    /// The oldest stamp that the buffer still has of an edge.
    fn oldest(&self, child: usize) -> Option<i64> {
        let edges = self.buffer.edges();
        let edge = edges
            .iter()
            .find(|edge| edge.child.as_str() == name(child))?;
        Some(edge.range?.start.nanos())
    }

    /// Everything from the oldest sample on is there, and is found; nothing else is.
    fn compare(&mut self) {
        let mut samples = 0;
        for child in 1..PAIRED_FRAMES as usize {
            let oldest = self.oldest(child).unwrap_or(i64::MAX);
            self.tf2.starts.insert(child, oldest);
            if let Some(Cache::Timed(all)) = self.tf2.caches.get(&child) {
                samples += all.range(oldest..).count() as u64;
            }
        }
        let stats = self.buffer.stats();
        assert_eq!(stats.samples, samples, "{:?}", self.buffer.options());
        let least = 2 * 4160 * PAIRED_FRAMES;
        let budget = self.buffer.options().bytes.unwrap_or(u64::MAX - least);
        assert!(stats.bytes <= budget + least, "{stats:?}");
        for _ in 0..4 {
            let [target, source] = [(); 2].map(|()| self.dice.below(PAIRED_FRAMES) as usize);
            let t = self.dice.stamp(self.now);
            let found = self.buffer.lookup(&name(target), &name(source), t.into());
            if [target, source]
                .iter()
                .any(|one| self.buffer.find(&name(*one)).is_none())
            {
                assert!(matches!(found, Err(LookupError::UnknownFrame { .. })));
                continue;
            }
            match (self.tf2.lookup(target, source, t), found) {
                (Ok(wanted), Ok(found)) => {
                    assert!(
                        same(&wanted, &found),
                        "{source} in {target} at {t}: {found}{wanted}"
                    );
                }
                (Err(wanted), Err(found)) => {
                    assert!(wanted.contains(&found.kind()), "{found:?}, not {wanted:?}");
                }
                (wanted, found) => panic!("{source} in {target} at {t}: {found:?}, not {wanted:?}"),
            }
        }
    }
}

/// 10,000 steps for each seed; `ASOF_TF_SEEDS` is how many. `ci/hot/loom` runs all of them, optimized.
#[test]
fn a_buffer_that_evicts_has_no_holes() {
    let seeds = std::env::var("ASOF_TF_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let (seeds, steps) = if cfg!(miri) {
        (1, 100)
    } else {
        (
            seeds.unwrap_or(if cfg!(debug_assertions) { 12 } else { 100 }),
            10_000,
        )
    };
    for seed in 0..seeds {
        let mut pair = Pair::new(seed);
        for step in 0..steps {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pair.step()));
            assert!(stepped.is_ok(), "seed {seed}, step {step}");
        }
    }
}

#[derive(Debug, Clone)]
struct Sample {
    child: usize,
    stamp: i64,
    pose: Isometry3<f64>,
}

fn pose() -> impl Strategy<Value = Isometry3<f64>> {
    let unit = -1.0..1.0_f64;
    (
        [unit.clone(), unit.clone(), unit.clone()],
        [unit.clone(), unit.clone(), unit],
    )
        .prop_map(|([x, y, z], [roll, pitch, yaw])| {
            Isometry3::from_parts(
                Translation3::new(x, y, z),
                UnitQuaternion::from_euler_angles(roll, pitch, yaw * 3.0),
            )
        })
}

fn same(a: &Isometry3<f64>, b: &Isometry3<f64>) -> bool {
    let apart = (a.translation.vector - b.translation.vector).norm();
    let (p, q) = (a.rotation.coords, b.rotation.coords);
    apart < 1e-9 && (p - q).norm().min((p + q).norm()) < 1e-9
}

fn name(frame: usize) -> String {
    format!("frame_{frame}")
}

const FRAMES: usize = 8;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { ProptestConfig::default().cases },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn lookups_agree_with_the_model(
        parents in proptest::collection::vec(0..FRAMES, FRAMES),
        samples in proptest::collection::vec(
            (1..FRAMES, 0..400_i64, pose()).prop_map(|(child, stamp, pose)| Sample { child, stamp, pose }),
            0..if cfg!(miri) { 20 } else { 400 },
        ),
        queries in proptest::collection::vec((0..FRAMES, 0..FRAMES, -20..420_i64), 60),
        window in 50..500_i64,
        count in 1..200_usize,
    ) {
        let options = BufferOptions::default()
            .window(Duration::from_nanos(window as u64))
            .count(count as u64);
        let buffer = TransformBuffer::with_options(options);
        let mut model = Model { window, count, ..Model::default() };
        let mut refused = 0;
        for Sample { child, stamp, pose } in &samples {
            // Frame 1 is a second root now and then: then there are two trees.
            if *child == 1 && parents[0] == 0 {
                continue;
            }
            let parent = parents[*child] % child;
            let stored = buffer.update(&name(parent), &name(*child), (*stamp).into(), *pose);
            let kept = model.update(parent, *child, *stamp, *pose);
            prop_assert_eq!(stored.is_ok(), kept, "{:?}", stored);
            if let Err(error) = stored {
                let is_too_old = matches!(error, UpdateError::TooOld { .. });
                prop_assert!(is_too_old);
                refused += 1;
            }
        }
        let held: usize = model.edges.values().map(|(_, samples)| samples.len()).sum();
        prop_assert_eq!(buffer.stats().samples, held as u64);
        prop_assert_eq!(buffer.stats().too_old, refused);
        for (target, source, t) in queries {
            let found = buffer.lookup(&name(target), &name(source), t.into());
            if buffer.find(&name(target)).is_none() || buffer.find(&name(source)).is_none() {
                let is_unknown = matches!(found, Err(LookupError::UnknownFrame { .. }));
                prop_assert!(is_unknown);
                continue;
            }
            let mut path = buffer.path(&name(target), &name(source)).expect("both are known");
            prop_assert_eq!(path.lookup(t.into()).is_ok(), found.is_ok());
            match (model.lookup(target, source, t), found) {
                (Ok(wanted), Ok(found)) => {
                    prop_assert!(same(&wanted, &found), "{} is not {}", found, wanted);
                    let by_path = path.lookup(t.into()).expect("the lookup did");
                    prop_assert!(same(&wanted, &by_path));
                    let many = path.lookup_many(&[Stamp::from_nanos(t); 2]);
                    prop_assert!(many.failures.is_empty());
                    prop_assert!(same(&wanted, &many.isometries[1]));
                }
                (Err(wanted), Err(found)) => {
                    prop_assert!(wanted.contains(&found.kind()), "{:?}, not {:?}", found, wanted);
                }
                (wanted, found) => prop_assert!(false, "{:?} is not {:?}", found, wanted),
            }
        }
    }

    #[test]
    fn frames_that_change_parents_and_kinds_are_found_as_by_tf2(
        samples in proptest::collection::vec(
            (0..5_usize, 0..5_usize, 0..200_i64, 0..100_u8, pose()),
            0..if cfg!(miri) { 10 } else { 120 },
        ),
        queries in proptest::collection::vec((0..5_usize, 0..5_usize, -5..205_i64), 60),
        is_steady in any::<bool>(),
        kinds in 0..30_u8,
        in_batches in any::<bool>(),
    ) {
        let options = BufferOptions::unbounded().conflicts(Conflicts::LastWins);
        let buffer = TransformBuffer::with_options(options);
        let mut tf2 = Tf2::default();
        let mut batch: Vec<Update> = Vec::new();
        for (parent, child, t, kind, pose) in &samples {
            // Either a tree that changes seldom, or anything goes, circles too.
            let parent = if is_steady { (child + 4 + usize::from(*t > 100)) % 5 } else { *parent };
            if parent == *child || (is_steady && *child == 0) {
                continue;
            }
            let is_static = *kind < kinds.saturating_sub(10);
            if is_static || !in_batches {
                let refused = buffer.extend(std::mem::take(&mut batch));
                prop_assert!(refused.is_empty(), "{:?}", refused);
            }
            let (above, below) = (name(parent), name(*child));
            if is_static {
                buffer.update_static(&above, &below, *pose).expect("anything goes");
            } else if in_batches {
                let name = |text: &str| text.parse::<FrameName>().expect("a name");
                batch.push(Update {
                    parent: name(&above),
                    child: name(&below),
                    stamp: Some((*t).into()),
                    isometry: *pose,
                });
            } else {
                buffer.update(&above, &below, (*t).into(), *pose).expect("anything goes");
            }
            tf2.set((parent, *child), (!is_static).then_some(*t), *pose);
        }
        // A batch keeps the order of equal stamps within an edge only.
        let mut stamps: Vec<_> = samples.iter().map(|(_, child, t, ..)| (*child, *t)).collect();
        stamps.sort_unstable();
        prop_assume!(!in_batches || stamps.windows(2).all(|pair| pair[0] != pair[1]));
        let refused = buffer.extend(batch);
        prop_assert!(refused.is_empty(), "{:?}", refused);
        for (target, source, t) in queries {
            if buffer.find(&name(target)).is_none() || buffer.find(&name(source)).is_none() {
                continue;
            }
            let found = buffer.lookup(&name(target), &name(source), t.into());
            let mut path = buffer.path(&name(target), &name(source)).expect("both are known");
            prop_assert_eq!(path.lookup(t.into()).is_ok(), found.is_ok());
            match (tf2.lookup(target, source, t), found) {
                (Ok(wanted), Ok(found)) => {
                    prop_assert!(same(&wanted, &found), "{} is not {}", found, wanted);
                    let by_path = path.lookup(t.into()).expect("the lookup did");
                    prop_assert!(same(&wanted, &by_path));
                }
                (Err(wanted), Err(found)) => {
                    prop_assert!(wanted.contains(&found.kind()), "{:?}, not {:?}", found, wanted);
                }
                (wanted, found) => prop_assert!(false, "{:?} is not {:?}", found, wanted),
            }
        }
    }

    #[test]
    fn a_path_that_is_kept_answers_as_the_buffer_does(
        events in proptest::collection::vec((0..5_usize, 0..60_i64, 0..40_u8, pose()), 0..250),
        window in 500..4_000_u64,
        ends in (0..6_usize, 0..6_usize),
    ) {
        let options = BufferOptions::default().window(Duration::from_nanos(window));
        let buffer = TransformBuffer::with_options(options.conflicts(Conflicts::LastWins));
        for frame in 0..6 {
            buffer.frame(&name(frame)).expect("a name");
        }
        let (target, source) = (name(ends.0), name(ends.1));
        let mut path = buffer.path(&target, &source).expect("both are known");
        for (edge, step, kind, pose) in events {
            // Samples come ever faster: where one is cannot be told from the mean rate.
            let t = 3_600 - step * step;
            let (parent, child) = (name(edge), name(edge + 1));
            match kind {
                0..20 => drop(buffer.update(&parent, &child, t.into(), pose)),
                20 => buffer.update_static(&parent, &child, pose).expect("the last one wins"),
                21 => buffer.clear(),
                _ => {}
            }
            // Twice at one time, then shortly after it: the second time it is known where.
            for t in [t, t, t + 1] {
                match (path.lookup(t.into()), buffer.lookup(&target, &source, t.into())) {
                    (Ok(kept), Ok(found)) => prop_assert!(same(&found, &kept), "{} is not {}", kept, found),
                    (kept, found) => prop_assert_eq!(kept, found),
                }
            }
            match (path.lookup_latest(), buffer.lookup_latest(&target, &source)) {
                (Ok(kept), Ok(found)) => {
                    prop_assert_eq!(kept.stamp, found.stamp);
                    prop_assert!(same(&found.isometry, &kept.isometry), "{:?} is not {:?}", kept, found);
                }
                // Of several edges without a sample they may name different ones.
                (kept, found) => {
                    let kind = |error: LookupError| error.kind();
                    prop_assert_eq!(kept.err().map(kind), found.err().map(kind));
                }
            }
        }
    }

    #[test]
    fn a_batch_in_any_order_is_the_same_as_one_by_one(
        first in proptest::collection::vec((0..300_i64, pose()), 0..150),
        batch in proptest::collection::vec((0..300_i64, pose()), 0..150),
        window in 50..500_u64,
        count in 1..200_u64,
    ) {
        let options = BufferOptions::default().window(Duration::from_nanos(window)).count(count);
        let (one, all) = (TransformBuffer::with_options(options), TransformBuffer::with_options(options));
        for (stamp, pose) in &first {
            let _ = one.update("a", "b", (*stamp).into(), *pose);
            let _ = all.update("a", "b", (*stamp).into(), *pose);
        }
        // In order, so that the model of one by one drops nothing that comes back to matter.
        let mut sorted: BTreeMap<i64, Isometry3<f64>> = BTreeMap::new();
        sorted.extend(batch.iter().copied());
        for (stamp, pose) in &sorted {
            let _ = one.update("a", "b", (*stamp).into(), *pose);
        }
        let samples = batch.iter().map(|(stamp, pose)| ((*stamp).into(), *pose));
        all.extend_edge("a", "b", samples).expect("all are good");
        for t in 0..300_i64 {
            let (x, y) = (one.lookup("a", "b", t.into()), all.lookup("a", "b", t.into()));
            prop_assert_eq!(x, y, "at {}", t);
        }
    }
}
