//! Lookups.

use std::time::Duration;

use asof_core::{Stamp, TimeRange};
use nalgebra::{Isometry3, Vector3};

use crate::answers::{ChainLink, FrameTwist, LatestTransform, Newest};
use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::sealed::Resolve;
use crate::frame_ref::{FrameId, FrameRef};
use crate::graph::{AtNewest, AtTime, Edge, Extrapolation, Frame, Stop};
use crate::name::FrameName;
use crate::pool::Pool;
use crate::pose::Pose;
use crate::wait::{TransformWaitError, Wait};

impl TransformBuffer {
    /// The transform of a point from `source` to `target` at time `t`: tf2's `lookupTransform(target, source, t)`.
    ///
    /// Translations are interpolated along the line, rotations along the shorter arc. A sample is found at its own
    /// time even if it is the only one (as in tf2; schiebung needs two). The transform of a frame to itself is the
    /// identity at any time, but the frame must be known.
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
    /// let lidar = buffer.lookup("odom", "lidar", at(1))?;
    /// assert_eq!(lidar.translation.vector.as_slice(), [1.0, 0.0, 0.3]);
    ///
    /// let error = buffer.lookup("odom", "lidar", at(3)).unwrap_err();
    /// assert!(error.to_string().contains("base_link"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LookupError`] names the frame or the edge, the times it has and the difference.
    #[inline]
    pub fn lookup(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
    ) -> Result<Isometry3<f64>, LookupError> {
        let graph = self.graph();
        match (target.get(graph), source.get(graph)) {
            (Some(target), Some(source)) => self.lookup_between(target, source, t.nanos()),
            (None, _) => Err(target.why()),
            _ => Err(source.why()),
        }
    }

    /// Like [`lookup`](TransformBuffer::lookup), with extrapolation as `policy` allows.
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
    /// use asof_tf::Extrapolation;
    ///
    /// let second = 1_000_000_000;
    /// let ahead = buffer.lookup_with("odom", "base_link", at(3), Extrapolation::ConstantVelocity(second))?;
    /// assert_eq!(ahead.translation.x, 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lookup`](TransformBuffer::lookup).
    pub fn lookup_with(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
        policy: Extrapolation,
    ) -> Result<Isometry3<f64>, LookupError> {
        let graph = self.graph();
        let (target, source) = (target.find(graph)?, source.find(graph)?);
        match self.walk(target, source, t.nanos(), policy) {
            Ok(pose) => Ok(pose.isometry()),
            Err(stop) => Err(graph.explain(target, source, t.nanos(), &stop)),
        }
    }

    /// The transform at the latest time that every edge on the way has, its
    /// [`latest_common_time`](TransformBuffer::latest_common_time): tf2's lookup at time zero.
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
    /// let latest = buffer.lookup_latest("odom", "lidar")?;
    /// assert_eq!((latest.stamp, latest.isometry.translation.x), (Some(at(2)), 2.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lookup`](TransformBuffer::lookup).
    pub fn lookup_latest(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<LatestTransform, LookupError> {
        let graph = self.graph();
        match (target.get(graph), source.get(graph)) {
            (Some(target), Some(source)) => self.latest_between(target, source),
            (None, _) => Err(target.why()),
            _ => Err(source.why()),
        }
    }

    /// Like [`lookup_latest`](TransformBuffer::lookup_latest), if it is not older than `max_age` at the time
    /// `now`.
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
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// assert!(buffer.lookup_latest_within("odom", "lidar", at(3), second).is_ok());
    /// assert!(buffer.lookup_latest_within("odom", "lidar", at(9), second).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LookupError::Stale`] if it is older; else as for [`lookup`](TransformBuffer::lookup).
    pub fn lookup_latest_within(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        now: Stamp,
        max_age: Duration,
    ) -> Result<LatestTransform, LookupError> {
        let graph = self.graph();
        let (target, source) = (target.find(graph)?, source.find(graph)?);
        let latest = self.latest_between(target, source)?;
        let nanos = i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX);
        let oldest = now.plus_nanos(-nanos);
        match latest.stamp {
            Some(stamp) if stamp < oldest => Err(LookupError::Stale {
                target: target.name.clone(),
                source_frame: source.name.clone(),
                stamp,
                now,
                oldest,
            }),
            _ => Ok(latest),
        }
    }

    /// The composition of the newest sample of every edge on the way, whatever their ages: what schiebung calls
    /// latest. The stamps show how old and how far apart they are.
    ///
    /// # Errors
    /// As for [`lookup`](TransformBuffer::lookup), but never for the time.
    pub fn lookup_newest(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<Newest, LookupError> {
        let graph = self.graph();
        match (target.get(graph), source.get(graph)) {
            (Some(target), Some(source)) => self.newest_between(target, source),
            (None, _) => Err(target.why()),
            _ => Err(source.why()),
        }
    }

    /// The latest time that every edge on the way has; `None` if all are static, or there are no edges.
    ///
    /// # Errors
    /// If a frame is unknown, they are not connected, or an edge has no sample.
    pub fn latest_common_time(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<Option<Stamp>, LookupError> {
        let newest = self.lookup_newest(target, source)?;
        Ok(newest.stamps.map(|stamps| stamps.start))
    }

    /// Whether [`lookup`](TransformBuffer::lookup) would succeed, and if not, why.
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
    /// assert!(buffer.can_transform("odom", "lidar", at(1)).is_ok());
    /// println!("{}", buffer.can_transform("odom", "camera", at(1)).unwrap_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error that the lookup would return.
    pub fn can_transform(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
    ) -> Result<(), LookupError> {
        self.lookup(target, source, t).map(drop)
    }

    /// Time travel: the transform of a point from `source` at time `source_time` to `target` at time
    /// `target_time`, through a frame `fixed` that does not move between the two.
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
    /// // Where the lidar was at one second, seen from the robot at two seconds.
    /// let then = buffer.lookup_full("base_link", at(2), "lidar", at(1), "odom")?;
    /// assert_eq!(then.translation.x, -1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lookup`](TransformBuffer::lookup), for either leg.
    pub fn lookup_full(
        &self,
        target: impl FrameRef,
        target_time: Stamp,
        source: impl FrameRef,
        source_time: Stamp,
        fixed: impl FrameRef,
    ) -> Result<Isometry3<f64>, LookupError> {
        let graph = self.graph();
        let (target, source) = (target.find(graph)?, source.find(graph)?);
        let fixed = fixed.find(graph)?;
        // Both legs on one and the same tree.
        graph.steady(|| {
            // The source's leg first, as in tf2: if both fail, this is the error returned.
            let far = self
                .stopped_by(fixed, source, source_time.nanos())
                .map_err(|stop| graph.explain(fixed, source, source_time.nanos(), &stop))?;
            let near = self
                .stopped_by(target, fixed, target_time.nanos())
                .map_err(|stop| graph.explain(target, fixed, target_time.nanos(), &stop))?;
            Ok(near.times(&far).isometry())
        })
    }

    /// The velocity of `moving` as seen from `observer`, as the mean over `window` around `t`.
    ///
    /// Linear is the velocity of `moving`'s origin, angular its rotation; both along the axes of `observer`: a
    /// body that drives along the observer's x axis has its velocity in x, whatever its orientation. (tf2's
    /// `lookupVelocity` rotates the result by the body's own rotation and so does not have that property;
    /// [`FrameTwist::along`] and [`FrameTwist::at_offset`] give other axes and other points.)
    ///
    /// The window is centred on `t` where there is data, and otherwise moved to fit the data.
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
    /// use std::time::Duration;
    ///
    /// let twist = buffer.lookup_twist("base_link", "odom", at(1), Duration::from_millis(100))?;
    /// assert!((twist.linear.x - 1.0).abs() < 1e-9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`lookup`](TransformBuffer::lookup). `t` itself must be within the data.
    pub fn lookup_twist(
        &self,
        moving: impl FrameRef,
        observer: impl FrameRef,
        t: Stamp,
        window: Duration,
    ) -> Result<FrameTwist, LookupError> {
        let graph = self.graph();
        let (moving, observer) = (moving.find(graph)?, observer.find(graph)?);
        let at = |t: i64| {
            self.stopped_by(observer, moving, t)
                .map_err(|stop| graph.explain(observer, moving, t, &stop))
        };
        at(t.nanos())?;
        let over = self.window_around(observer, moving, t, window);
        let (start, end) = (over.start.nanos(), over.end.nanos());
        let seconds = end.saturating_sub(start) as f64 * 1e-9;
        if seconds <= 0.0 {
            let zero = Vector3::zeros();
            return Ok(FrameTwist {
                linear: zero,
                angular: zero,
                over,
            });
        }
        let (first, last) = (at(start)?.isometry(), at(end)?.isometry());
        let turn = last.rotation * first.rotation.inverse();
        Ok(FrameTwist {
            linear: (last.translation.vector - first.translation.vector) / seconds,
            angular: turn.scaled_axis() / seconds,
            over,
        })
    }

    /// Blocks until `lookup(target, source, t)` succeeds.
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
    /// use std::time::Duration;
    ///
    /// let writer = buffer.clone();
    /// std::thread::spawn(move || writer.update("odom", "base_link", at(4), Isometry3::identity()));
    /// buffer.wait_for("odom", "lidar", at(3), Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TransformWaitError::TimedOut`] has what was missing last; [`TransformWaitError::Never`] means that the
    /// time is already before what the buffer keeps.
    pub fn wait_for(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
        timeout: Duration,
    ) -> Result<Isometry3<f64>, TransformWaitError> {
        let found = self.wait(target, source, t, Some(timeout)).block();
        found.map(|found| found.isometry)
    }

    /// The same as a future, for any executor. Without a timeout it waits indefinitely.
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
    /// # struct Idle;
    /// # impl std::task::Wake for Idle { fn wake(self: std::sync::Arc<Self>) {} }
    /// # let waker = std::task::Waker::from(std::sync::Arc::new(Idle));
    /// # let mut context = std::task::Context::from_waker(&waker);
    /// // In an async function: `let lidar = buffer.wait("odom", "lidar", at(1), None).await?;`
    /// let mut lidar = std::pin::pin!(buffer.wait("odom", "lidar", at(1), None));
    /// assert!(lidar.as_mut().poll(&mut context).is_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
        t: Stamp,
        timeout: Option<Duration>,
    ) -> Wait {
        let name = |text: &str| FrameName::unchecked(text);
        let (target, source) = (
            name(&target.text(self.graph())),
            name(&source.text(self.graph())),
        );
        Wait::new(self.clone(), target, source, Some(t), timeout)
    }

    /// The edges from `source` up to the common ancestor, then down to `target`.
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
    /// let chain = buffer.chain("odom", "lidar")?;
    /// let children: Vec<&str> = chain.iter().map(|link| link.child.as_str()).collect();
    /// assert_eq!(children, ["lidar", "base_link"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a frame is unknown, or they are not connected.
    pub fn chain(
        &self,
        target: impl FrameRef,
        source: impl FrameRef,
    ) -> Result<Vec<ChainLink>, LookupError> {
        let graph = self.graph();
        let (target, source) = (target.find(graph)?, source.find(graph)?);
        let (near, far) = graph
            .steady(|| graph.trace(target, source))
            .map_err(|stop| graph.explain(target, source, 0, &stop))?;
        let link = |edge: &Edge, is_inverse| ChainLink {
            parent: graph.frames.at(edge.parent()).name.clone(),
            child: graph.frames.at(edge.child()).name.clone(),
            is_static: edge.is_static(),
            is_inverse,
            range: edge
                .range(&graph.pool)
                .map(|(first, last)| TimeRange::new(first.into(), last.into())),
        };
        let up = far.into_iter().map(|edge| link(edge, false));
        let down = near.into_iter().rev().map(|edge| link(edge, true));
        Ok(up.chain(down).collect())
    }

    /// The current parent of a frame; `None` for a root.
    ///
    /// # Errors
    /// If the frame is unknown.
    pub fn parent(&self, frame: impl FrameRef) -> Result<Option<FrameName>, LookupError> {
        let graph = self.graph();
        let edge = graph.edge_of(frame.find(graph)?);
        Ok(edge.map(|edge| graph.frames.at(edge.parent()).name.clone()))
    }

    /// The parent of a frame at a time; `None` for a root. Differs from [`parent`](TransformBuffer::parent) if the
    /// frame was moved.
    ///
    /// # Errors
    /// If the frame is unknown, or its edge has no sample for that time.
    pub fn parent_at(
        &self,
        frame: impl FrameRef,
        t: Stamp,
    ) -> Result<Option<FrameName>, LookupError> {
        let graph = self.graph();
        let frame = frame.find(graph)?;
        graph.steady(|| {
            let Some(edge) = graph.edge_of(frame) else {
                return Ok(None);
            };
            let step = edge.step(&graph.pool, t.nanos(), Extrapolation::Refuse);
            let (_, number) = step.map_err(|miss| graph.explain_edge(edge, t.nanos(), miss))?;
            let parent = number.and_then(|number| graph.numbered(number));
            let parent = parent.unwrap_or_else(|| graph.frames.at(edge.parent()));
            Ok(Some(parent.name.clone()))
        })
    }

    /// All frames, in the order in which they were first named.
    pub fn frames(&self) -> Vec<FrameName> {
        self.graph().all().map(|frame| frame.name.clone()).collect()
    }

    /// The name of a frame.
    ///
    /// # Errors
    /// If the id belongs to another buffer.
    pub fn name(&self, frame: FrameId) -> Result<FrameName, LookupError> {
        Ok(frame.find(self.graph())?.name.clone())
    }

    /// Parent and child first: the most common lookup.
    #[inline(never)]
    fn lookup_between(
        &self,
        target: &Frame,
        source: &Frame,
        t: i64,
    ) -> Result<Isometry3<f64>, LookupError> {
        let graph = self.graph();
        let epoch = graph.epoch();
        if graph.is_in_order()
            && let Some(edge) = graph.direct(target, source)
        {
            if let Some(pose) = edge.at_expected(&graph.pool, t)
                && graph.is_still(epoch)
            {
                return Ok(pose.isometry());
            }
            if let Some(miss) = edge.not_yet(&graph.pool, t)
                && graph.is_still(epoch)
            {
                return Err(graph.explain_edge(edge, t, miss));
            }
            if let Some(answer) = self.direct_apart(edge, t, epoch) {
                return answer;
            }
        }
        self.lookup_far(target, source, t)
    }

    /// One try on the fast path, then the slow path.
    #[inline(never)]
    fn lookup_far(
        &self,
        target: &Frame,
        source: &Frame,
        t: i64,
    ) -> Result<Isometry3<f64>, LookupError> {
        let graph = self.graph();
        let reading = AtTime {
            pool: &graph.pool,
            t,
        };
        if let Some(pose) = graph.climb_once(target, source, reading) {
            return Ok(pose.isometry());
        }
        match self.stopped_by(target, source, t) {
            Ok(pose) => Ok(pose.isometry()),
            Err(stop) => Err(graph.explain(target, source, t, &stop)),
        }
    }

    /// From parent to child, if the samples are not where they are expected. `None` if a writer interfered.
    #[inline(never)]
    fn direct_apart(
        &self,
        edge: &Edge,
        t: i64,
        epoch: u64,
    ) -> Option<Result<Isometry3<f64>, LookupError>> {
        let graph = self.graph();
        let found = edge.look(&graph.pool, t)?;
        graph.is_still(epoch).then(|| match found {
            Ok(pose) => Ok(pose.isometry()),
            Err(miss) => Err(graph.explain_edge(edge, t, miss)),
        })
    }

    /// The pose of `source` in `target` at `t`, or what stopped it.
    #[inline]
    pub(crate) fn stopped_by<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        t: i64,
    ) -> Result<Pose, Stop<'a>> {
        self.walk(target, source, t, Extrapolation::Refuse)
    }

    /// Composes the poses of all edges on the way, through the parents of time `t`.
    #[inline]
    fn walk<'a>(
        &'a self,
        target: &'a Frame,
        source: &'a Frame,
        t: i64,
        policy: Extrapolation,
    ) -> Result<Pose, Stop<'a>> {
        let graph = self.graph();
        let pool = &graph.pool;
        graph.tidy();
        graph.steady(|| {
            if graph.is_in_order() {
                graph.climb(target, source, |edge| edge.at_or_near(pool, t, policy))
            } else {
                graph.compose(target, source, |edge| edge.step(pool, t, policy))
            }
        })
    }

    /// Parent and child first, as in [`lookup_between`](TransformBuffer::lookup_between): the latest common time is that of
    /// the newest sample.
    #[inline(never)]
    fn latest_between(
        &self,
        target: &Frame,
        source: &Frame,
    ) -> Result<LatestTransform, LookupError> {
        let graph = self.graph();
        let epoch = graph.epoch();
        if let Some(edge) = graph.direct(target, source)
            && let Some((pose, stamp)) = edge.newest_once(&graph.pool)
            && graph.is_still(epoch)
        {
            return Ok(LatestTransform {
                stamp: stamp.map(Stamp::from_nanos),
                isometry: pose.isometry(),
            });
        }
        self.latest_far(target, source)
    }

    /// The newest sample is read and then looked up by its time. With a writer that evicts quickly it can be gone
    /// by then, and a newer one is there.
    #[inline(never)]
    fn latest_far(&self, target: &Frame, source: &Frame) -> Result<LatestTransform, LookupError> {
        let mut newest = self.newest_between(target, source)?;
        loop {
            let stamp = newest.stamps.map(|stamps| stamps.start);
            let isometry = match newest.stamps {
                Some(stamps) if stamps.start != stamps.end => {
                    self.lookup_between(target, source, stamps.start.nanos())
                }
                // All newest samples have the same stamp, or none: their composition is the result.
                _ => Ok(newest.isometry),
            };
            let error = match isometry {
                Ok(isometry) => return Ok(LatestTransform { stamp, isometry }),
                Err(error) => error,
            };
            let before = std::mem::replace(&mut newest, self.newest_between(target, source)?);
            if newest.stamps == before.stamps {
                return Err(error);
            }
        }
    }

    #[inline]
    pub(crate) fn newest_between(
        &self,
        target: &Frame,
        source: &Frame,
    ) -> Result<Newest, LookupError> {
        let graph = self.graph();
        let epoch = graph.epoch();
        if let Some(edge) = graph.direct(target, source)
            && let Some((pose, stamp)) = edge.newest_once(&graph.pool)
            && graph.is_still(epoch)
        {
            return Ok(Newest {
                stamps: stamp.map(|stamp| TimeRange::new(stamp.into(), stamp.into())),
                isometry: pose.isometry(),
            });
        }
        self.newest_far(target, source)
    }

    #[inline(never)]
    fn newest_far(&self, target: &Frame, source: &Frame) -> Result<Newest, LookupError> {
        let graph = self.graph();
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        let newest = AtNewest {
            pool: &graph.pool,
            first: &mut first,
            last: &mut last,
        };
        let quick = graph.climb_once(target, source, newest);
        let pose = match quick {
            Some(pose) => pose,
            None => self.newest_carefully(target, source, &mut first, &mut last)?,
        };
        Ok(Newest {
            stamps: (first <= last).then(|| TimeRange::new(first.into(), last.into())),
            isometry: pose.isometry(),
        })
    }

    #[cold]
    fn newest_carefully(
        &self,
        target: &Frame,
        source: &Frame,
        first: &mut i64,
        last: &mut i64,
    ) -> Result<Pose, LookupError> {
        let graph = self.graph();
        graph.tidy();
        let walked = graph.steady(|| {
            // The current path, which is that of every newest sample.
            let mut range = (i64::MAX, i64::MIN);
            let walked = graph.trace(target, source).and_then(|(near, far)| {
                let up = newest_product(&graph.pool, near, &mut range)?;
                let down = newest_product(&graph.pool, far, &mut range)?;
                Ok(up.inverse().times(&down))
            });
            (*first, *last) = range;
            walked
        });
        walked.map_err(|stop| graph.explain(target, source, 0, &stop))
    }

    /// `window` around `t`, moved into the times that every edge on the way has.
    fn window_around(
        &self,
        target: &Frame,
        source: &Frame,
        t: Stamp,
        window: Duration,
    ) -> TimeRange {
        let graph = self.graph();
        let nanos = window.as_nanos().min(i64::MAX as u128) as i64;
        let has = graph
            .steady(|| {
                graph.meet(target, source, |edge| {
                    edge.step(&graph.pool, t.nanos(), Extrapolation::Refuse)
                })
            })
            .into_iter()
            .flat_map(|(near, far)| near.into_iter().chain(far))
            .filter_map(|(_, edge, _)| edge.range(&graph.pool))
            .fold(TimeRange::ALL, |has, (first, last)| {
                has.intersect(TimeRange::new(first.into(), last.into()))
            });
        let start = t.plus_nanos(-(nanos / 2)).max(has.start);
        let end = start.plus_nanos(nanos).min(has.end);
        let start = end.plus_nanos(-nanos).max(has.start);
        TimeRange::new(start, end)
    }
}

/// The product of the newest poses of edges on the way up, and the range of their stamps.
fn newest_product<'a>(
    pool: &Pool,
    edges: Vec<&'a Edge>,
    range: &mut (i64, i64),
) -> Result<Pose, Stop<'a>> {
    let mut total = Pose::IDENTITY;
    for edge in edges {
        let (pose, stamp) = edge.newest(pool).map_err(|miss| Stop::At(edge, miss))?;
        if let Some(stamp) = stamp {
            *range = (range.0.min(stamp), range.1.max(stamp));
        }
        total = pose.times(&total);
    }
    Ok(total)
}
