//! Transforms, with tf2's API.

use std::time::{Duration, Instant};

use asof::tf::{
    BufferOptions, Conflicts, LatestTransform, LookupError, TransformBuffer as Inner,
    TransformWaitError, UpdateError, every,
};
use asof::{Stamp, TimeRange, When};
use nalgebra::{Isometry3, Point3, Quaternion, Translation3, UnitQuaternion};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::interrupt::SIGNAL_POLL_INTERVAL;
use crate::time::{Length, Time};

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let class = match error {
            LookupError::UnknownFrame { .. } => "LookupException",
            LookupError::Disconnected { .. } | LookupError::Circle { .. } => {
                "ConnectivityException"
            }
            LookupError::Extrapolation { .. } | LookupError::NoData { .. } => {
                "ExtrapolationException"
            }
            _ => "TransformException",
        };
        Failure::new(class, error)
    }
}

impl From<UpdateError> for Failure {
    fn from(error: UpdateError) -> Self {
        Failure::new("InvalidArgumentException", error)
    }
}

impl From<TransformWaitError> for Failure {
    fn from(error: TransformWaitError) -> Self {
        let message = error.to_string();
        match error {
            TransformWaitError::TimedOut { missing, .. } => Failure {
                message,
                ..missing.into()
            },
            _ => Failure::new("TransformException", message),
        }
    }
}

/// The transform between two frames: takes a point given in `source` into `target`.
#[pyclass(frozen, module = "asof")]
pub struct Transform {
    /// The target frame.
    #[pyo3(get)]
    target: String,
    /// The source frame.
    #[pyo3(get)]
    source: String,
    /// Its time in nanoseconds; None where it is static.
    #[pyo3(get)]
    stamp: Option<i64>,
    pose: Isometry3<f64>,
}

impl Transform {
    fn rotation_parts(&self) -> [f64; 4] {
        let q = self.pose.rotation.coords;
        [q.x, q.y, q.z, q.w]
    }

    fn translation_parts(&self) -> [f64; 3] {
        let t = self.pose.translation.vector;
        [t.x, t.y, t.z]
    }
}

#[pymethods]
impl Transform {
    /// x, y, z.
    #[getter]
    fn translation<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.translation_parts())
    }

    /// The quaternion x, y, z, w.
    #[getter]
    fn rotation<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, &self.rotation_parts())
    }

    /// The 4 x 4 matrix.
    #[getter]
    fn matrix<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let matrix = self.pose.to_homogeneous();
        // nalgebra is column-major, numpy row-major.
        let rows = PyArray1::from_slice(py, matrix.transpose().as_slice());
        rows.reshape([4, 4])
    }

    /// The fields of a TransformStamped: `header`, with the target frame and the time.
    #[getter]
    fn header<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        stamped(slf)?.get_item("header")
    }

    /// The source frame, as in a TransformStamped.
    #[getter]
    fn child_frame_id(&self) -> &str {
        &self.source
    }

    /// `translation` and `rotation` with their parts by name, as in a TransformStamped.
    #[getter]
    fn transform<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        stamped(slf)?.get_item("transform")
    }

    fn __repr__(&self) -> String {
        let ([x, y, z], [qx, qy, qz, qw]) = (self.translation_parts(), self.rotation_parts());
        format!(
            "<asof.Transform {} -> {}: translation [{x:.6}, {y:.6}, {z:.6}], rotation [{qx:.6}, {qy:.6}, {qz:.6}, {qw:.6}]>",
            self.source, self.target
        )
    }
}

fn stamped<'py>(transform: &Bound<'py, Transform>) -> PyResult<Bound<'py, PyAny>> {
    let helper = transform.py().import("asof._tf")?.getattr("stamped")?;
    helper.call1((transform,))
}

/// A tree of frames over time.
#[pyclass(frozen, subclass, module = "asof._asof")]
pub struct TransformBuffer {
    buffer: Inner,
    /// The range that relative times refer to.
    range: TimeRange,
    /// Keeps the source of its transforms running, if there is one.
    _filler: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl TransformBuffer {
    /// A buffer that was filled from something that spans `range`.
    pub fn over(buffer: Inner, range: TimeRange) -> Self {
        TransformBuffer {
            buffer,
            range,
            _filler: None,
        }
    }

    /// A buffer that is filled continuously.
    pub fn filled(buffer: Inner, filler: impl std::any::Any + Send + Sync) -> Self {
        TransformBuffer {
            buffer,
            range: TimeRange::EMPTY,
            _filler: Some(Box::new(filler)),
        }
    }

    /// The resolved time; `None` for the latest, which zero means as well, as in tf2.
    fn instant(&self, time: Option<Time>) -> Result<Option<Stamp>, Failure> {
        match time.map(|time| time.0) {
            None | Some(When::At(Stamp::EPOCH)) => Ok(None),
            Some(When::At(stamp)) => Ok(Some(stamp)),
            Some(relative) if self.range.is_empty() => Time(relative).absolute().map(Some),
            Some(relative) => Ok(Some(relative.resolve(self.range))),
        }
    }

    /// Waits for a transform in short steps, so that Ctrl-C can interrupt it; without a stamp, for the latest.
    fn wait_for(
        &self,
        py: Python<'_>,
        target: &str,
        source: &str,
        stamp: Option<Stamp>,
        timeout: Duration,
    ) -> PyResult<Result<LatestTransform, TransformWaitError>> {
        let started = Instant::now();
        loop {
            py.check_signals()?;
            let rest = timeout.saturating_sub(started.elapsed());
            let moment = rest.min(SIGNAL_POLL_INTERVAL);
            let found = py.detach(|| match stamp {
                None => self.buffer.wait_for_latest(target, source, moment),
                Some(at) => {
                    let found = self.buffer.wait_for(target, source, at, moment);
                    found.map(|isometry| LatestTransform { stamp, isometry })
                }
            });
            match found {
                Err(TransformWaitError::TimedOut { .. }) if rest > SIGNAL_POLL_INTERVAL => {}
                Err(TransformWaitError::TimedOut { missing, .. }) => {
                    let waited = timeout;
                    return Ok(Err(TransformWaitError::TimedOut { waited, missing }));
                }
                found => return Ok(found),
            }
        }
    }

    fn answer(target: &str, source: &str, stamp: Option<Stamp>, pose: Isometry3<f64>) -> Transform {
        Transform {
            target: target.to_owned(),
            source: source.to_owned(),
            stamp: stamp.map(Stamp::nanos),
            pose,
        }
    }
}

/// A buffer on its way to the public class.
#[pyclass(frozen, module = "asof._asof")]
pub struct Filled(Mutex<Option<TransformBuffer>>);

impl Filled {
    /// Passes on a buffer.
    pub fn new(buffer: TransformBuffer) -> Self {
        Filled(Mutex::new(Some(buffer)))
    }
}

/// Translations, rotations, and a mask of the valid ones.
type ManyArrays<'py> = (
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<bool>>,
);

#[pymethods]
impl TransformBuffer {
    /// An empty buffer that keeps this much of each edge.
    #[new]
    #[pyo3(signature = (cache_time = None, last_wins = false, *, filled = None))]
    fn new(
        cache_time: Option<Length>,
        last_wins: bool,
        filled: Option<PyRef<'_, Filled>>,
    ) -> PyResult<Self> {
        if let Some(filled) = filled {
            let taken = filled.0.lock().take();
            let gone = || Failure::new("TransformException", "this buffer was taken already");
            return Ok(taken.ok_or_else(gone)?);
        }
        let mut options = BufferOptions::default();
        if let Some(Length(window)) = cache_time {
            options = options.window(window);
        }
        if last_wins {
            options = options.conflicts(Conflicts::LastWins);
        }
        let buffer = Inner::with_options(options);
        Ok(TransformBuffer::over(buffer, TimeRange::EMPTY))
    }

    /// Stores a child's pose in its parent: at a time, or as static without one.
    fn update(
        &self,
        parent: &str,
        child: &str,
        stamp: Option<Time>,
        translation: [f64; 3],
        rotation: [f64; 4],
    ) -> PyResult<()> {
        let [x, y, z] = translation;
        let [qx, qy, qz, qw] = rotation;
        let quaternion = Quaternion::new(qw, qx, qy, qz);
        let norm = quaternion.norm();
        if !norm.is_finite() || (norm - 1.0).abs() > NORM_TOLERANCE {
            let message = format_args!(
                "edge '{parent}' -> '{child}': the quaternion x={qx}, y={qy}, z={qz}, w={qw} is not a rotation: its length is {norm}, not 1"
            );
            return Err(Failure::new("InvalidArgumentException", message).into());
        }
        let pose = Isometry3::from_parts(
            Translation3::new(x, y, z),
            UnitQuaternion::new_normalize(quaternion),
        );
        let stored = match stamp {
            None => self.buffer.update_static(parent, child, pose),
            Some(stamp) => self.buffer.update(parent, child, stamp.absolute()?, pose),
        };
        Ok(stored.map_err(Failure::from)?)
    }

    /// The transform that takes a point given in `source_frame` into `target_frame` at a time; the latest without one.
    #[pyo3(signature = (target_frame, source_frame, time = None, timeout = None))]
    fn lookup_transform(
        &self,
        py: Python<'_>,
        target_frame: &str,
        source_frame: &str,
        time: Option<Time>,
        timeout: Option<Length>,
    ) -> PyResult<Transform> {
        let stamp = self.instant(time)?;
        let LatestTransform { stamp, isometry } = match (stamp, timeout) {
            (stamp, Some(Length(timeout))) => self
                .wait_for(py, target_frame, source_frame, stamp, timeout)?
                .map_err(Failure::from)?,
            (None, None) => self
                .buffer
                .lookup_latest(target_frame, source_frame)
                .map_err(Failure::from)?,
            (Some(at), None) => {
                let found = self.buffer.lookup(target_frame, source_frame, at);
                let isometry = found.map_err(Failure::from)?;
                LatestTransform { stamp, isometry }
            }
        };
        Ok(Self::answer(target_frame, source_frame, stamp, isometry))
    }

    /// Why there is no transform; None where there is one.
    #[pyo3(signature = (target_frame, source_frame, time = None, timeout = None))]
    fn missing(
        &self,
        py: Python<'_>,
        target_frame: &str,
        source_frame: &str,
        time: Option<Time>,
        timeout: Option<Length>,
    ) -> PyResult<Option<String>> {
        Ok(match (self.instant(time)?, timeout) {
            (stamp, Some(Length(timeout))) => {
                let waited = self.wait_for(py, target_frame, source_frame, stamp, timeout)?;
                waited.err().map(|error| error.to_string())
            }
            (Some(stamp), None) => {
                let found = self.buffer.can_transform(target_frame, source_frame, stamp);
                found.err().map(|error| error.to_string())
            }
            (None, None) => {
                let found = self.buffer.lookup_latest(target_frame, source_frame);
                found.err().map(|error| error.to_string())
            }
        })
    }

    /// From `source_frame` at one time to `target_frame` at another, through a fixed frame.
    fn lookup_transform_full(
        &self,
        target_frame: &str,
        target_time: Time,
        source_frame: &str,
        source_time: Time,
        fixed_frame: &str,
    ) -> PyResult<Transform> {
        let latest = |frame: &str, time| -> Result<Stamp, Failure> {
            match self.instant(Some(time))? {
                Some(stamp) => Ok(stamp),
                None => Ok(self
                    .buffer
                    .latest_common_time(fixed_frame, frame)?
                    .unwrap_or_default()),
            }
        };
        let (to, from) = (
            latest(target_frame, target_time)?,
            latest(source_frame, source_time)?,
        );
        let pose = self
            .buffer
            .lookup_full(target_frame, to, source_frame, from, fixed_frame);
        Ok(Self::answer(
            target_frame,
            source_frame,
            Some(to),
            pose.map_err(Failure::from)?,
        ))
    }

    /// Transforms at many times at once: translations (n, 3), rotations (n, 4) and a mask of the valid ones.
    fn lookup_many<'py>(
        &self,
        py: Python<'py>,
        target_frame: &str,
        source_frame: &str,
        stamps: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<ManyArrays<'py>> {
        let stamps: Vec<Stamp> = stamps
            .as_array()
            .iter()
            .copied()
            .map(Stamp::from_nanos)
            .collect();
        let count = stamps.len();
        let (places, turns, mask) = py.detach(|| -> Result<_, Failure> {
            let many = self
                .buffer
                .lookup_many(target_frame, source_frame, &stamps)?;
            let mut places = Vec::with_capacity(count * 3);
            let mut turns = Vec::with_capacity(count * 4);
            for isometry in &many.isometries {
                let (t, q) = (isometry.translation.vector, isometry.rotation.coords);
                places.extend([t.x, t.y, t.z]);
                turns.extend([q.x, q.y, q.z, q.w]);
            }
            let mut mask = vec![true; count];
            for (place, _) in &many.failures {
                mask[*place] = false;
                places[place * 3..place * 3 + 3].fill(f64::NAN);
                turns[place * 4..place * 4 + 4].fill(f64::NAN);
            }
            Ok((places, turns, mask))
        })?;
        Ok((
            PyArray1::from_vec(py, places).reshape([count, 3])?,
            PyArray1::from_vec(py, turns).reshape([count, 4])?,
            PyArray1::from_vec(py, mask),
        ))
    }

    /// Takes points from one frame into another, each at its own time; NaN where there is no transform.
    fn transform_points<'py>(
        &self,
        py: Python<'py>,
        target_frame: &str,
        source_frame: &str,
        points: PyReadonlyArray2<'py, f64>,
        stamps: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (points, stamps) = (points.as_array(), stamps.as_array());
        let count = points.nrows();
        let mut timed: Vec<(Stamp, Point3<f64>)> = points
            .rows()
            .into_iter()
            .zip(stamps)
            .map(|(p, &t)| (Stamp::from_nanos(t), Point3::new(p[0], p[1], p[2])))
            .collect();
        let moved = py.detach(|| -> Result<Vec<f64>, Failure> {
            let failures = self
                .buffer
                .transform_points(target_frame, source_frame, &mut timed)?;
            let mut moved: Vec<f64> = timed.iter().flat_map(|(_, p)| [p.x, p.y, p.z]).collect();
            for (place, _) in failures {
                moved[place * 3..place * 3 + 3].fill(f64::NAN);
            }
            Ok(moved)
        })?;
        PyArray1::from_vec(py, moved).reshape([count, 3])
    }

    /// The latest time that every edge between two frames covers; None where all are static.
    fn get_latest_common_time(
        &self,
        target_frame: &str,
        source_frame: &str,
    ) -> PyResult<Option<i64>> {
        let time = self.buffer.latest_common_time(target_frame, source_frame);
        Ok(time.map_err(Failure::from)?.map(Stamp::nanos))
    }

    /// Times at a step of this many nanoseconds for which there is a transform, from the first to the last.
    fn times_between(&self, target: &str, source: &str, step: i64) -> PyResult<Vec<i64>> {
        let covered = self.buffer.covered(target, source).map_err(Failure::from)?;
        let covered = if covered == TimeRange::ALL {
            self.range
        } else {
            covered
        };
        let most = covered.duration_nanos() / step.max(1);
        if most > MOST_TIMES {
            let message =
                format_args!("{most} times are more than {MOST_TIMES}; give a lower rate");
            return Err(Failure::new("TimeError", message).into());
        }
        Ok(every(covered, step).map(Stamp::nanos).collect())
    }

    /// The resolved time, in nanoseconds; zero for the latest.
    fn resolve(&self, time: Time) -> PyResult<i64> {
        let stamp = self.instant(Some(time))?;
        Ok(stamp.map_or(0, Stamp::nanos))
    }

    /// The names of the frames.
    fn frames(&self) -> Vec<String> {
        let frames = self.buffer.frames().into_iter();
        frames.map(|frame| frame.as_str().to_owned()).collect()
    }

    /// Every edge: parent, child, whether it is static, samples, first and last stamp.
    #[allow(clippy::type_complexity, reason = "it is a row of a table")]
    fn edges(&self) -> Vec<(String, String, bool, u64, Option<(i64, i64)>)> {
        let edges = self.buffer.edges().into_iter();
        edges
            .map(|edge| {
                let range = edge
                    .range
                    .map(|range| (range.start.nanos(), range.end.nanos()));
                let (parent, child) = (edge.parent.as_str(), edge.child.as_str());
                (
                    parent.to_owned(),
                    child.to_owned(),
                    edge.is_static,
                    edge.samples,
                    range,
                )
            })
            .collect()
    }

    /// The tree as text.
    fn tree(&self) -> String {
        self.buffer.to_tree()
    }

    /// The tree as tf2's YAML.
    fn all_frames_as_yaml(&self) -> String {
        self.buffer.to_yaml()
    }

    /// Removes all dynamic transforms.
    fn clear(&self) {
        self.buffer.clear();
    }
}

/// The most times of one answer.
const MOST_TIMES: i64 = 50_000_000;

/// How far from 1 the norm of a quaternion may be, as in tf2.
const NORM_TOLERANCE: f64 = 1e-3;

/// A buffer with all transforms of a recording; how many were read, and what could not be used.
pub fn of_recording(
    recording: &dyn asof::Source,
    topics: &asof::Topics,
) -> Result<(Filled, u64, Vec<String>), Failure> {
    let loaded = Inner::from_topics(recording, topics)?;
    let range = recording.summary().range;
    let problems = loaded.problems.iter().map(ToString::to_string).collect();
    Ok((
        Filled::new(TransformBuffer::over(loaded.buffer, range)),
        loaded.transforms + loaded.joints,
        problems,
    ))
}
