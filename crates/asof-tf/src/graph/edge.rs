//! An edge: the pose of a child in its parent, over time, and how it is read.

// The compiler would not inline these; inlined, a pose stays in registers.
#![allow(clippy::inline_always)]

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::Frame;
use crate::history::{Bounds, Fixed, History, Neighbours, Slot, View, placed};
use crate::pool::Pool;
use crate::pose::Pose;
use crate::shelf::{Link, Spot};
use crate::sync::SpinGuard;
use crate::wait::Waiters;

/// From a child to its parent: the pose of the child in the parent, over time. Four cache lines.
#[repr(C)]
pub struct Edge {
    /// The samples, with the parent and the limits on the same cache lines; unused if the edge is static.
    pub(crate) history: History<Link<Frame>, Limits>,
    /// The pose of a static edge.
    pose: Slot,
    pose_seq: AtomicU64,
    /// The frame whose edge this is. Like the parent, changed only by the holder of the graph's change lock,
    /// while the epoch is odd.
    child: Link<Frame>,
    /// The authority that wrote it last, as a number of the graph; zero if unnamed.
    pub(crate) authority: AtomicU32,
    /// The number of samples that were refused; it stays at the largest number.
    too_old: AtomicU32,
    pub(crate) waiters: Waiters,
}

/// A tree has many edges, and a new one has to be written entirely.
const _: () = assert!(size_of::<Edge>() <= 256);

/// How much an edge keeps.
pub(crate) struct Limits {
    window: AtomicI64,
    count: AtomicU64,
}

/// Why an edge has no pose for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Empty,
    Outside { oldest: i64, newest: i64 },
}

/// What to do for times outside the range of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Extrapolation {
    /// Returns an error.
    #[default]
    Refuse,
    /// Holds the nearest sample, up to this many nanoseconds outside.
    Hold(u64),
    /// Continues the two nearest samples at their velocity, up to this many nanoseconds outside; a single
    /// sample is held.
    ConstantVelocity(u64),
}

impl Extrapolation {
    #[inline]
    fn reach(self) -> u64 {
        match self {
            Extrapolation::Refuse => 0,
            Extrapolation::Hold(nanos) | Extrapolation::ConstantVelocity(nanos) => nanos,
        }
    }
}

impl Edge {
    /// A new edge: static if there is a pose, else dynamic. `colour` as for [`History::new`].
    pub(crate) fn new(
        (parent, child): (Spot<Frame>, Spot<Frame>),
        pose: Option<&Pose>,
        bounds: Bounds,
        colour: u32,
    ) -> Self {
        let parent = Link::holding(parent);
        let limits = Limits {
            window: AtomicI64::new(bounds.window),
            count: AtomicU64::new(bounds.count),
        };
        Edge {
            history: match pose {
                Some(_) => History::unused(parent, limits),
                None => History::new(parent, limits, colour),
            },
            pose: Slot::of(&pose.unwrap_or(&Pose::IDENTITY).words(0)),
            pose_seq: AtomicU64::new(0),
            child: Link::holding(child),
            authority: AtomicU32::new(0),
            too_old: AtomicU32::new(0),
            waiters: Waiters::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn parent(&self) -> Spot<Frame> {
        let parent = self.history.beside.load(Ordering::Acquire);
        parent.expect("an edge is made with its parent")
    }

    pub(crate) fn child(&self) -> Spot<Frame> {
        let child = self.child.load(Ordering::Acquire);
        child.expect("an edge is made with its child")
    }

    /// For the holder of the change lock.
    pub(crate) fn set_parent(&self, parent: Spot<Frame>) {
        self.history.beside.store(parent, Ordering::Release);
    }

    /// Reuses a spare edge for another frame. For the holder of the change lock.
    pub(crate) fn give_to(
        &self,
        (parent, child): (Spot<Frame>, Spot<Frame>),
        pose: Option<&Pose>,
        bounds: Bounds,
        pool: &Pool,
    ) {
        let held = self.history.hold();
        self.set_parent(parent);
        self.child.store(child, Ordering::Release);
        self.set_bounds(bounds);
        self.authority.store(0, Ordering::Relaxed);
        self.set_kind(&held, pose, pool);
    }

    /// Makes it static with a pose, or dynamic. Its samples are dropped when it becomes static.
    pub(crate) fn set_kind(&self, held: &SpinGuard<'_>, pose: Option<&Pose>, pool: &Pool) {
        match pose {
            Some(pose) => {
                let fixed = Fixed {
                    seq: &self.pose_seq,
                    slot: &self.pose,
                };
                fixed.set(held, &pose.words(0));
                self.history.retire(held, pool);
            }
            None => self.history.use_again(held),
        }
    }

    /// Whether it has neither a sample nor a static pose.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_static() && self.history.len() == 0
    }

    /// The pose of a static edge.
    #[inline(always)]
    pub(crate) fn fixed(&self) -> Option<Fixed<'_>> {
        self.history.is_unused().then_some(Fixed {
            seq: &self.pose_seq,
            slot: &self.pose,
        })
    }

    pub(crate) fn is_static(&self) -> bool {
        self.history.is_unused()
    }

    fn limits(&self) -> &Limits {
        self.history.beside_writer()
    }

    /// The number of samples that were refused.
    pub(crate) fn too_old(&self) -> u64 {
        self.too_old.load(Ordering::Relaxed).into()
    }

    pub(crate) fn count_too_old(&self, more: u64) {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let add = |count: u32| Some(count.saturating_add(more));
        let _ = (self.too_old).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            window: self.limits().window.load(Ordering::Relaxed),
            count: self.limits().count.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        self.limits().window.store(bounds.window, Ordering::Relaxed);
        self.limits().count.store(bounds.count, Ordering::Relaxed);
    }

    /// The pose at `t`.
    #[inline]
    pub(crate) fn at(&self, pool: &Pool, t: i64) -> Result<Pose, Miss> {
        if let Some(fixed) = self.fixed() {
            return Ok(fixed.read(&self.history, Pose::of));
        }
        let found = self.history.read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let pose = match place {
                Neighbours::At(slot) => Ok(Pose::of(slot)),
                Neighbours::Between(a, b) => Ok(Pose::between_slots(a, b, t)),
                Neighbours::Empty => Err(Miss::Empty),
                Neighbours::Before(..) | Neighbours::After(..) => return miss(view),
            };
            Some((pose, lowest))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The pose at `t` of a dynamic edge, if the samples are where they are expected and no writer
    /// interferes. `None` is inconclusive.
    #[inline(always)]
    pub(crate) fn at_expected(&self, pool: &Pool, t: i64) -> Option<Pose> {
        let view = self.history.glance(pool)?;
        let (a, b, lowest) = view.expected(t)?;
        let pose = Pose::between_slots(a, b, t);
        self.history.is_whole(&view, lowest).then_some(pose)
    }

    /// The pose at `t`, if no writer interferes: no retry, no reason.
    #[inline(always)]
    pub(crate) fn at_once(&self, pool: &Pool, t: i64) -> Option<Pose> {
        if let Some(fixed) = self.fixed() {
            let (slot, seq) = fixed.glance();
            let pose = Pose::of(slot);
            return fixed.is_whole(seq).then_some(pose);
        }
        match self.at_expected(pool, t) {
            Some(pose) => Some(pose),
            None => self.at_apart(pool, t),
        }
    }

    /// The same if the samples are not where they are expected.
    #[inline(never)]
    fn at_apart(&self, pool: &Pool, t: i64) -> Option<Pose> {
        let view = self.history.glance(pool)?;
        let (place, lowest) = view.place(t)?;
        let pose = match place {
            Neighbours::At(slot) => Pose::of(slot),
            Neighbours::Between(a, b) => Pose::between_slots(a, b, t),
            _ => return None,
        };
        self.history.is_whole(&view, lowest).then_some(pose)
    }

    /// The pose at `t`, if no writer interferes, for a caller that asks again and again, often for the newest time: `last` is the
    /// index that was found the last time.
    #[inline(always)]
    pub(crate) fn at_again(&self, pool: &Pool, t: i64, last: &mut u64) -> Option<Pose> {
        if self.fixed().is_some() {
            return self.at_once(pool, t);
        }
        match self.history.newest_at_once(pool, t, Pose::of) {
            Some(pose) => Some(pose),
            None => self.at_known(pool, t, last),
        }
    }

    /// The pose at `t` of a dynamic edge, at the index of the last time or wherever it is now.
    #[inline(never)]
    fn at_known(&self, pool: &Pool, t: i64, last: &mut u64) -> Option<Pose> {
        let view = self.history.glance(pool)?;
        let (place, lowest) = match view.known(t, *last) {
            Some((a, b)) => (placed(a, b, t), *last),
            None => view.place(t)?,
        };
        let pose = match place {
            Neighbours::At(slot) => Pose::of(slot),
            Neighbours::Between(a, b) => Pose::between_slots(a, b, t),
            _ => return None,
        };
        *last = lowest;
        self.history.is_whole(&view, lowest).then_some(pose)
    }

    /// The stamp of the newest sample of a dynamic edge, if no writer interferes.
    #[inline(always)]
    pub(crate) fn newest_stamp_once(&self) -> Option<i64> {
        self.history.newest_stamp_once()
    }

    /// The range of a dynamic edge, if `t` is after all of it and no writer interferes: callers that poll
    /// for the future ask this repeatedly. `None` is inconclusive.
    #[inline(always)]
    pub(crate) fn not_yet(&self, pool: &Pool, t: i64) -> Option<Miss> {
        let view = self.history.glance(pool)?;
        if !view.is_before(t) || view.len() == 0 {
            return None;
        }
        let (oldest, newest) = view.ends()?;
        let is_whole = self.history.is_whole(&view, view.tail());
        (newest < t && is_whole).then_some(Miss::Outside { oldest, newest })
    }

    /// The pose at `t` or the reason why there is none, if no writer interferes: no retry.
    #[inline]
    pub(crate) fn look(&self, pool: &Pool, t: i64) -> Option<Result<Pose, Miss>> {
        if let Some(fixed) = self.fixed() {
            let (slot, seq) = fixed.glance();
            let pose = Pose::of(slot);
            return fixed.is_whole(seq).then_some(Ok(pose));
        }
        let view = self.history.glance(pool)?;
        let (place, mut lowest) = view.place(t)?;
        let found = match place {
            Neighbours::Between(a, b) => Ok(Pose::between_slots(a, b, t)),
            Neighbours::At(slot) => Ok(Pose::of(slot)),
            Neighbours::Before(..) | Neighbours::After(..) | Neighbours::Empty => {
                let (missed, from) = miss(&view)?;
                lowest = from;
                missed
            }
        };
        self.history.is_whole(&view, lowest).then_some(found)
    }

    /// The newest pose and its stamp, if no writer interferes. A static edge has no stamp.
    #[inline(always)]
    pub(crate) fn newest_once(&self, pool: &Pool) -> Option<(Pose, Option<i64>)> {
        if let Some(fixed) = self.fixed() {
            let (slot, seq) = fixed.glance();
            let pose = Pose::of(slot);
            return fixed.is_whole(seq).then_some((pose, None));
        }
        self.history
            .newest_once(pool, |slot| (Pose::of(slot), Some(slot.stamp())))
    }

    /// The pose at `t`, or extrapolated.
    pub(crate) fn at_or_near(
        &self,
        pool: &Pool,
        t: i64,
        policy: Extrapolation,
    ) -> Result<Pose, Miss> {
        if policy == Extrapolation::Refuse || self.is_static() {
            return self.at(pool, t);
        }
        let is_moving = matches!(policy, Extrapolation::ConstantVelocity(_));
        let found = self.history.read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let pose = match place {
                Neighbours::Before(end, next) | Neighbours::After(end, next) => {
                    if t.abs_diff(end.stamp()) > policy.reach() {
                        return miss(view);
                    }
                    match next.filter(|_| is_moving) {
                        Some(next) => continued(next, end, t),
                        None => Pose::of(end),
                    }
                }
                Neighbours::At(slot) => Pose::of(slot),
                Neighbours::Between(a, b) => Pose::between_slots(a, b, t),
                Neighbours::Empty => return Some((Err(Miss::Empty), lowest)),
            };
            Some((Ok(pose), lowest))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The pose at `t`, or extrapolated, and the number of its parent frame if that is stored with the
    /// samples. Between two samples with different parents it is the older one, as in tf2.
    ///
    /// For a walk on a tree that does not change in the meantime.
    pub(crate) fn step(
        &self,
        pool: &Pool,
        t: i64,
        policy: Extrapolation,
    ) -> Result<(Pose, Option<u32>), Miss> {
        if !self.history.is_mixed() {
            return Ok((self.at_or_near(pool, t, policy)?, None));
        }
        let is_moving = matches!(policy, Extrapolation::ConstantVelocity(_));
        let found = self.history.read(pool, |view| {
            let (place, lowest) = view.place(t)?;
            let found = match place {
                Neighbours::At(slot) => (Pose::of(slot), view.parent(lowest)?),
                Neighbours::Between(a, b) => {
                    let parent = view.parent(lowest)?;
                    if view.parent(lowest + 1)? == parent {
                        (Pose::between_slots(a, b, t), parent)
                    } else {
                        (Pose::of(a), parent)
                    }
                }
                Neighbours::Before(end, next) | Neighbours::After(end, next) => {
                    if t.abs_diff(end.stamp()) > policy.reach() {
                        return miss(view);
                    }
                    let (index, other) = if t < end.stamp() {
                        (lowest, lowest + 1)
                    } else {
                        (lowest + u64::from(next.is_some()), lowest)
                    };
                    let parent = view.parent(index)?;
                    match next.filter(|_| is_moving) {
                        Some(next) if view.parent(other)? == parent => {
                            (continued(next, end, t), parent)
                        }
                        _ => (Pose::of(end), parent),
                    }
                }
                Neighbours::Empty => return Some((Err(Miss::Empty), lowest)),
            };
            let (pose, parent) = found;
            Some((Ok((pose, Some(parent))), lowest))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The newest pose, with its stamp if the edge is dynamic.
    #[inline]
    pub(crate) fn newest(&self, pool: &Pool) -> Result<(Pose, Option<i64>), Miss> {
        if let Some(fixed) = self.fixed() {
            return Ok((fixed.read(&self.history, Pose::of), None));
        }
        let found = self.history.read(pool, |view| {
            if view.len() == 0 {
                return Some((Err(Miss::Empty), view.tail()));
            }
            let (slot, index) = view.newest()?;
            Some((Ok((Pose::of(slot), Some(slot.stamp()))), index))
        });
        found.unwrap_or(Err(Miss::Empty))
    }

    /// The oldest and the newest stamp; `None` for a static edge, or one without samples.
    pub(crate) fn range(&self, pool: &Pool) -> Option<(i64, i64)> {
        if self.is_static() {
            return None;
        }
        let found = self.history.read(pool, |view| miss::<()>(view));
        match found? {
            Err(Miss::Outside { oldest, newest }) => Some((oldest, newest)),
            _ => None,
        }
    }
}

/// The range of a history, as the reason for a miss.
fn miss<T>(view: &View<'_>) -> Option<(Result<T, Miss>, u64)> {
    if view.len() == 0 {
        return Some((Err(Miss::Empty), view.tail()));
    }
    let (oldest, newest) = view.ends()?;
    Some((Err(Miss::Outside { oldest, newest }), view.tail()))
}

/// The motion from one sample to the next, continued to `t`.
fn continued(from: &Slot, to: &Slot, t: i64) -> Pose {
    let (a, b) = (from.stamp(), to.stamp());
    let part = (t as f64 - a as f64) / (b as f64 - a as f64);
    let exact = 1.0 + (t.wrapping_sub(b) as f64) / (b.wrapping_sub(a) as f64);
    let part = if exact.is_finite() { exact } else { part };
    Pose::of(from).beyond(&Pose::of(to), part)
}
