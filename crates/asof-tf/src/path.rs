//! A path between two frames, resolved once and used many times.

use asof_core::{Stamp, TimeRange};
use nalgebra::{Isometry3, Point3};

use crate::answers::{LatestTransform, Newest};
use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::FrameRef;
use crate::graph::{Edge, Frame, Miss, Stop};
use crate::many::{Bracket, Folded, Motion, Tell};
use crate::pose::Pose;
use crate::shelf::Spot;

/// A prepared path from a source frame to a target frame: no names to look up, no tree to walk, and
/// consecutive static edges folded into one.
///
/// It is resolved again when the tree or a static edge has changed, which one load detects. It keeps
/// the buffer alive. Cheap to clone: use one per thread.
///
/// ```
/// use asof_core::Stamp;
/// use asof_tf::TransformBuffer;
/// use nalgebra::Isometry3;
///
/// let buffer = TransformBuffer::new();
/// buffer.update_static("base", "mast", Isometry3::translation(0.0, 0.0, 1.0))?;
/// buffer.update_static("mast", "camera", Isometry3::translation(0.0, 0.0, 0.5))?;
/// let mut path = buffer.path("base", "camera")?;
/// assert_eq!(path.lookup(Stamp::EPOCH)?.translation.z, 1.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LookupPath {
    buffer: TransformBuffer,
    target: Spot<Frame>,
    source: Spot<Frame>,
    /// The buffer's epoch that `steps` belong to.
    epoch: u64,
    /// From target to source; `None` if they are not connected.
    steps: Option<Vec<Step>>,
}

#[derive(Clone, Copy)]
enum Step {
    /// Some static edges.
    Fixed(Pose),
    /// A dynamic edge.
    Moving {
        edge: Spot<Edge>,
        /// Whether the path goes from parent to child.
        is_inverse: bool,
        /// Where its sample was the last time.
        last: u64,
    },
}

/// The results of many lookups: a transform for every stamp, and the errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Many {
    /// One for each stamp, in order; the identity where the lookup failed.
    pub isometries: Vec<Isometry3<f64>>,
    /// The indexes without a transform, in order, and why.
    pub failures: Vec<(usize, LookupError)>,
}

impl Many {
    /// The result at an index; `None` past the end.
    pub fn get(&self, place: usize) -> Option<Result<&Isometry3<f64>, &LookupError>> {
        let isometry = self.isometries.get(place)?;
        let failure = self.failures.binary_search_by_key(&place, |(at, _)| *at);
        Some(failure.map_or(Ok(isometry), |found| Err(&self.failures[found].1)))
    }
}

impl Tell for Many {
    #[inline]
    fn run(&mut self, stamps: &[Stamp], motion: impl Motion) {
        let poses = stamps.iter().map(|t| motion.at(t.nanos()).isometry());
        self.isometries.extend(poses);
    }

    fn one(&mut self, pose: &Pose) {
        self.isometries.push(pose.isometry());
    }

    fn failed(&mut self, error: LookupError) {
        self.failures.push((self.isometries.len(), error));
        self.isometries.push(Isometry3::identity());
    }
}

/// Results that are told in turn.
struct Each<F>(F);

impl<F: FnMut(Result<Isometry3<f64>, LookupError>)> Tell for Each<F> {
    #[inline]
    fn run(&mut self, stamps: &[Stamp], motion: impl Motion) {
        for stamp in stamps {
            (self.0)(Ok(motion.at(stamp.nanos()).isometry()));
        }
    }

    #[inline]
    fn one(&mut self, pose: &Pose) {
        (self.0)(Ok(pose.isometry()));
    }

    fn failed(&mut self, error: LookupError) {
        (self.0)(Err(error));
    }
}

/// Points that are transformed in place.
struct Moved<'a> {
    points: &'a mut [(Stamp, Point3<f64>)],
    done: usize,
    failures: Vec<(usize, LookupError)>,
}

impl Tell for Moved<'_> {
    #[inline]
    fn run(&mut self, stamps: &[Stamp], motion: impl Motion) {
        for stamp in stamps {
            self.one(&motion.at(stamp.nanos()));
        }
    }

    #[inline]
    fn one(&mut self, pose: &Pose) {
        let point = &mut self.points[self.done].1;
        *point = Point3::from(pose.apply((*point).into()));
        self.done += 1;
    }

    fn failed(&mut self, error: LookupError) {
        self.failures.push((self.done, error));
        self.points[self.done].1 = Point3::new(f64::NAN, f64::NAN, f64::NAN);
        self.done += 1;
    }
}

impl TransformBuffer {
    /// Prepares the path from `source` to `target`. They need not be connected yet.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// // For a pair that is looked up repeatedly.
    /// let mut lidar = buffer.path("odom", "lidar")?;
    /// assert_eq!(lidar.lookup(at(1))?.translation.x, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a frame is unknown.
    pub fn path(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<LookupPath, LookupError> {
        let graph = self.graph();
        let mut path = LookupPath {
            buffer: self.clone(),
            target: Spot::of(target.find(graph)?),
            source: Spot::of(source.find(graph)?),
            epoch: 1,
            steps: None,
        };
        path.resolve();
        Ok(path)
    }

    /// [`lookup`](TransformBuffer::lookup) at many times; a failure at one does not stop the others.
    ///
    /// Fastest if the stamps are in order, as in a scan or a table.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// let many = buffer.lookup_many("odom", "lidar", &[at(0), at(1), at(9)])?;
    /// assert_eq!(many.get(1).unwrap().unwrap().translation.x, 1.0);
    /// assert!(many.get(2).unwrap().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a frame is unknown.
    pub fn lookup_many(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        stamps: &[Stamp],
    ) -> Result<Many, LookupError> {
        Ok(self.path(target, source)?.lookup_many(stamps))
    }

    /// Transforms points, each given in `source` at its own stamp, to `target`. Returns the indexes
    /// that failed, whose coordinates become NaN.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// use nalgebra::Point3;
    ///
    /// let mut points = [(at(1), Point3::new(5.0, 0.0, 0.0))];
    /// assert!(buffer.transform_points("odom", "lidar", &mut points)?.is_empty());
    /// assert_eq!(points[0].1, Point3::new(6.0, 0.0, 0.3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a frame is unknown.
    pub fn transform_points(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        points: &mut [(Stamp, Point3<f64>)],
    ) -> Result<Vec<(usize, LookupError)>, LookupError> {
        Ok(self.path(target, source)?.transform_points(points))
    }
}

impl LookupPath {
    /// Like [`TransformBuffer::lookup`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn lookup(&mut self, t: Stamp) -> Result<Isometry3<f64>, LookupError> {
        self.refresh();
        if let Some(pose) = self.pose_once(t.nanos())
            && self.buffer.graph().is_still(self.epoch)
        {
            return Ok(pose.isometry());
        }
        match self.pose_at(t.nanos()) {
            Ok(pose) => Ok(pose.isometry()),
            Err(stop) => Err(self.explain(t.nanos(), &stop)),
        }
    }

    /// Like [`TransformBuffer::lookup_latest`].
    ///
    /// # Errors
    /// As there.
    pub fn lookup_latest(&mut self) -> Result<LatestTransform, LookupError> {
        self.refresh();
        if let Some(latest) = self.latest_once() {
            return Ok(latest);
        }
        match self.latest_common_once() {
            Some(latest) => Ok(latest),
            None => self.latest_apart(),
        }
    }

    /// Of a path of one edge that moves, if no writer interferes.
    #[inline(always)]
    #[allow(clippy::inline_always)] // So that a pose stays in registers.
    fn latest_once(&self) -> Option<LatestTransform> {
        let graph = self.buffer.graph();
        let [
            Step::Moving {
                edge, is_inverse, ..
            },
        ] = self.steps.as_deref()?
        else {
            return None;
        };
        let (pose, stamp) = graph.edges.at(*edge).newest_once(&graph.pool)?;
        let pose = if *is_inverse { pose.inverse() } else { pose };
        graph.is_still(self.epoch).then(|| LatestTransform {
            stamp: stamp.map(Stamp::from_nanos),
            isometry: pose.isometry(),
        })
    }

    /// Of a longer path whose edges have different newest times, if no writer interferes: their common time first, which touches
    /// no sample, then the poses of that time alone.
    #[inline(never)]
    fn latest_common_once(&mut self) -> Option<LatestTransform> {
        let graph = self.buffer.graph();
        let steps = self.steps.as_deref_mut()?;
        let (mut common, mut newest) = (i64::MAX, i64::MIN);
        for step in &*steps {
            if let Step::Moving { edge, .. } = step {
                let stamp = graph.edges.at(*edge).newest_stamp_once()?;
                (common, newest) = (common.min(stamp), newest.max(stamp));
            }
        }
        if common >= newest || !graph.is_in_order() {
            return None;
        }
        let mut total: Option<Pose> = None;
        for step in steps {
            let pose = match step {
                Step::Fixed(pose) => *pose,
                Step::Moving {
                    edge,
                    is_inverse,
                    last,
                } => {
                    let pose = graph.edges.at(*edge).at_again(&graph.pool, common, last)?;
                    if *is_inverse { pose.inverse() } else { pose }
                }
            };
            total = Some(total.map_or(pose, |total| total.times(&pose)));
        }
        let isometry = total?.isometry();
        graph.is_still(self.epoch).then(|| LatestTransform {
            stamp: Some(common.into()),
            isometry,
        })
    }

    #[inline(never)]
    fn latest_apart(&mut self) -> Result<LatestTransform, LookupError> {
        let mut newest = self.lookup_newest()?;
        loop {
            let stamp = newest.stamps.map(|stamps| stamps.start);
            let isometry = match newest.stamps {
                Some(stamps) if stamps.start != stamps.end => self.lookup(stamps.start),
                _ => Ok(newest.isometry),
            };
            let error = match isometry {
                Ok(isometry) => return Ok(LatestTransform { stamp, isometry }),
                Err(error) => error,
            };
            // It can be gone by now, with a writer that evicts quickly.
            let before = std::mem::replace(&mut newest, self.lookup_newest()?);
            if newest.stamps == before.stamps {
                return Err(error);
            }
        }
    }

    /// Like [`TransformBuffer::lookup_newest`].
    ///
    /// # Errors
    /// As there.
    pub fn lookup_newest(&mut self) -> Result<Newest, LookupError> {
        self.refresh();
        let graph = self.buffer.graph();
        let mut stamps: Option<(i64, i64)> = None;
        let walked = self.compose(|edge| {
            let (pose, stamp) = match edge.newest_once(&graph.pool) {
                Some(newest) => newest,
                None => edge.newest(&graph.pool)?,
            };
            if let Some(stamp) = stamp {
                let (first, last) = stamps.unwrap_or((stamp, stamp));
                stamps = Some((first.min(stamp), last.max(stamp)));
            }
            Ok(pose)
        });
        if !graph.is_still(self.epoch) {
            // The tree was changed in the meantime.
            let (target, source) = (graph.frames.at(self.target), graph.frames.at(self.source));
            return self.buffer.newest_between(target, source);
        }
        match walked {
            Ok(pose) => Ok(Newest {
                stamps: stamps.map(|(first, last)| TimeRange::new(first.into(), last.into())),
                isometry: pose.isometry(),
            }),
            Err(stop) => Err(self.explain(0, &stop)),
        }
    }

    /// Like [`TransformBuffer::lookup_many`].
    pub fn lookup_many(&mut self, stamps: &[Stamp]) -> Many {
        let mut many = Many {
            isometries: Vec::with_capacity(stamps.len()),
            failures: Vec::new(),
        };
        self.for_each(stamps, &mut many);
        many
    }

    /// Like [`lookup_many`](LookupPath::lookup_many), telling each result in turn instead of allocating: for results that
    /// belong into memory of the caller's own.
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update("odom", "base_link", Stamp::EPOCH, Isometry3::identity())?;
    /// let mut found = 0;
    /// let mut path = buffer.path("odom", "base_link")?;
    /// path.lookup_each(&[Stamp::EPOCH, Stamp::MAX], |result| found += usize::from(result.is_ok()));
    /// assert_eq!(found, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lookup_each(
        &mut self,
        stamps: &[Stamp],
        tell: impl FnMut(Result<Isometry3<f64>, LookupError>),
    ) {
        self.for_each(stamps, &mut Each(tell));
    }

    /// Like [`TransformBuffer::transform_points`].
    pub fn transform_points(
        &mut self,
        points: &mut [(Stamp, Point3<f64>)],
    ) -> Vec<(usize, LookupError)> {
        let stamps: Vec<Stamp> = points.iter().map(|(stamp, _)| *stamp).collect();
        let mut moved = Moved {
            points,
            done: 0,
            failures: Vec::new(),
        };
        self.for_each(&stamps, &mut moved);
        moved.failures
    }

    /// Looks up every stamp in turn. Consecutive stamps between the same two samples share the search
    /// and everything that depends only on the samples.
    fn for_each(&mut self, stamps: &[Stamp], tell: &mut impl Tell) {
        self.refresh();
        let is_in_order = self.buffer.graph().is_in_order();
        let rest = match self.steps.as_ref().filter(|_| is_in_order) {
            Some(steps) => match one_moving(steps) {
                Some(moving) => self.for_one_moving(moving, stamps, tell),
                None => self.for_steps(steps, stamps, tell),
            },
            None => stamps,
        };
        for t in rest {
            match self.pose_at(t.nanos()) {
                Ok(pose) => tell.one(&pose),
                Err(stop) => tell.failed(self.explain(t.nanos(), &stop)),
            }
        }
    }

    /// Returns the remaining stamps if the tree was changed in the meantime.
    fn for_one_moving<'s>(
        &self,
        (before, edge, is_inverse, after): (Pose, Spot<Edge>, bool, Pose),
        stamps: &'s [Stamp],
        tell: &mut impl Tell,
    ) -> &'s [Stamp] {
        let graph = self.buffer.graph();
        let edge = graph.edges.at(edge);
        let mut folded = Folded::new(before, after, is_inverse);
        let mut rest = stamps;
        while let Some(t) = rest.first().map(|stamp| stamp.nanos()) {
            if !folded.covers(t) {
                let found = folded.find(edge, &graph.pool, t);
                if !graph.is_still(self.epoch) {
                    return rest;
                }
                if let Err(miss) = found {
                    tell.failed(self.explain(t, &Stop::At(edge, miss)));
                    rest = &rest[1..];
                    continue;
                }
            }
            let covered = |stamp: &&Stamp| folded.covers(stamp.nanos());
            // The first one is covered: it was searched for.
            let count = rest.iter().take_while(covered).count().max(1);
            let (run, tail) = rest.split_at(count);
            folded.run(run, tell);
            rest = tail;
        }
        rest
    }

    /// Returns the remaining stamps if the tree was changed in the meantime.
    fn for_steps<'s>(
        &self,
        steps: &[Step],
        stamps: &'s [Stamp],
        tell: &mut impl Tell,
    ) -> &'s [Stamp] {
        let graph = self.buffer.graph();
        let mut brackets = vec![Bracket::NONE; steps.len()];
        for (place, t) in stamps.iter().map(|stamp| stamp.nanos()).enumerate() {
            let mut total = Pose::IDENTITY;
            let mut stop = None;
            for (step, bracket) in steps.iter().zip(&mut brackets) {
                let pose = match step {
                    Step::Fixed(pose) => *pose,
                    Step::Moving {
                        edge, is_inverse, ..
                    } => {
                        if !bracket.covers(t) {
                            let edge = graph.edges.at(*edge);
                            match edge.bracket(&graph.pool, t) {
                                Ok(found) => *bracket = found,
                                Err(miss) => {
                                    stop = Some(self.explain(t, &Stop::At(edge, miss)));
                                    break;
                                }
                            }
                        }
                        let pose = bracket.at(t);
                        if *is_inverse { pose.inverse() } else { pose }
                    }
                };
                total = total.times(&pose);
            }
            if !graph.is_still(self.epoch) {
                return &stamps[place..];
            }
            match stop {
                Some(error) => tell.failed(error),
                None => tell.one(&total),
            }
        }
        &[]
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // So that a pose stays in registers.
    fn pose_once(&self, t: i64) -> Option<Pose> {
        let graph = self.buffer.graph();
        if !graph.is_in_order() {
            return None;
        }
        let mut total: Option<Pose> = None;
        for step in self.steps.as_deref()? {
            let pose = match step {
                Step::Fixed(pose) => *pose,
                Step::Moving {
                    edge, is_inverse, ..
                } => {
                    let pose = graph.edges.at(*edge).at_once(&graph.pool, t)?;
                    if *is_inverse { pose.inverse() } else { pose }
                }
            };
            total = Some(total.map_or(pose, |total| total.times(&pose)));
        }
        Some(total.unwrap_or(Pose::IDENTITY))
    }

    fn pose_at(&self, t: i64) -> Result<Pose, Stop<'_>> {
        let graph = self.buffer.graph();
        let (target, source) = (graph.frames.at(self.target), graph.frames.at(self.source));
        self.buffer.stopped_by(target, source, t)
    }

    #[inline]
    fn compose(&self, mut read: impl FnMut(&Edge) -> Result<Pose, Miss>) -> Result<Pose, Stop<'_>> {
        let graph = self.buffer.graph();
        let steps = self.steps.as_deref().ok_or(Stop::Disconnected)?;
        let mut total: Option<Pose> = None;
        for step in steps {
            let pose = match step {
                Step::Fixed(pose) => *pose,
                Step::Moving {
                    edge, is_inverse, ..
                } => {
                    let edge = graph.edges.at(*edge);
                    let pose = read(edge).map_err(|miss| Stop::At(edge, miss))?;
                    if *is_inverse { pose.inverse() } else { pose }
                }
            };
            total = Some(total.map_or(pose, |total| total.times(&pose)));
        }
        Ok(total.unwrap_or(Pose::IDENTITY))
    }

    #[inline]
    fn refresh(&mut self) {
        if self.buffer.graph().epoch() != self.epoch {
            self.resolve();
        }
    }

    #[cold]
    #[inline(never)]
    fn resolve(&mut self) {
        let graph = self.buffer.graph();
        let (target, source) = (graph.frames.at(self.target), graph.frames.at(self.source));
        (self.epoch, self.steps) = graph.steady(|| {
            let epoch = graph.epoch();
            let Ok((near, far)) = graph.trace(target, source) else {
                return (epoch, None);
            };
            let mut steps = Vec::with_capacity(near.len() + far.len());
            for edge in &near {
                add(&mut steps, edge, true);
            }
            for edge in far.iter().rev() {
                add(&mut steps, edge, false);
            }
            (epoch, Some(steps))
        });
    }

    #[cold]
    fn explain(&self, t: i64, stop: &Stop<'_>) -> LookupError {
        let graph = self.buffer.graph();
        let (target, source) = (graph.frames.at(self.target), graph.frames.at(self.source));
        graph.explain(target, source, t, stop)
    }
}

/// Adds an edge to the steps; consecutive static ones become one.
fn add(steps: &mut Vec<Step>, edge: &Edge, is_inverse: bool) {
    let Some(fixed) = edge.fixed() else {
        steps.push(Step::Moving {
            edge: Spot::of(edge),
            is_inverse,
            last: 0,
        });
        return;
    };
    let pose = fixed.read(&edge.history, Pose::of);
    let pose = if is_inverse { pose.inverse() } else { pose };
    match steps.last_mut() {
        Some(Step::Fixed(last)) => *last = last.times(&pose),
        _ => steps.push(Step::Fixed(pose)),
    }
}

/// The only dynamic edge, and the poses before and after it, if there is just one.
fn one_moving(steps: &[Step]) -> Option<(Pose, Spot<Edge>, bool, Pose)> {
    let moving = |step: &Step| matches!(step, Step::Moving { .. });
    let place = steps.iter().position(moving)?;
    let Step::Moving {
        edge, is_inverse, ..
    } = steps[place]
    else {
        return None;
    };
    // Consecutive static edges are one step, so there is at most one on each side.
    let fixed = |steps: &[Step]| match steps {
        [] => Some(Pose::IDENTITY),
        [Step::Fixed(pose)] => Some(*pose),
        _ => None,
    };
    let (before, after) = (fixed(&steps[..place])?, fixed(&steps[place + 1..])?);
    Some((before, edge, is_inverse, after))
}
