//! Lookups of the transform buffer.

use std::ffi::c_char;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{Extrapolation, LatestTransform};

use super::{AsofFrame, AsofTf, AsofTransform, frame_id};
use crate::border::{AsofStatus, Failure, Outcome, call, held, put, tell, text};

/// A velocity: how a frame moves relative to another, along the axes of the observing frame.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AsofTwist {
    /// Of the moving frame's origin, in metres per second.
    pub linear: [f64; 3],
    /// In radians per second.
    pub angular: [f64; 3],
    /// The first time of the range that it is the mean over.
    pub start: i64,
    /// The last one.
    pub end: i64,
}

/// The transform of a point from `source` to `target` at time `stamp`. Interpolated between samples, never extrapolated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        let found = tf.buffer.lookup(target, source, stamp.into())?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// Like `asof_tf_lookup`, with frames by number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup_frames(
    tf: *const AsofTf,
    target: AsofFrame,
    source: AsofFrame,
    stamp: i64,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let tf = unsafe { held(tf) }?;
        let (target, source) = (frame_id(target)?, frame_id(source)?);
        let found = tf.buffer.lookup(target, source, stamp.into())?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// The transform at the latest time that every edge on the way has. `stamp` is that time; `is_static` is whether every edge is
/// static, so that any time is as good and `stamp` is 0. Both may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup_latest(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    transform: *mut AsofTransform,
    stamp: *mut i64,
    is_static: *mut bool,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        let latest = tf.buffer.lookup_latest(target, source)?;
        // SAFETY: upheld by the caller.
        unsafe { put_latest(latest, transform, stamp, is_static) }
    })
}

/// # Safety
/// As by the crate's contract.
pub(super) unsafe fn put_latest(
    latest: LatestTransform,
    transform: *mut AsofTransform,
    stamp: *mut i64,
    is_static: *mut bool,
) -> Outcome {
    // SAFETY: upheld by the caller.
    unsafe {
        tell(stamp, latest.stamp.unwrap_or_default().nanos());
        tell(is_static, latest.stamp.is_none());
        put(transform, latest.isometry.into())
    }
}

/// Like `asof_tf_lookup`, up to `limit` nanoseconds before the first sample or after the last one of an edge, at constant
/// velocity. The nearest sample is used if there is no second one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup_extrapolated(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
    limit: i64,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        let limit = u64::try_from(limit).map_err(|_| Failure::invalid("the limit is negative"))?;
        let policy = Extrapolation::ConstantVelocity(limit);
        let found = tf
            .buffer
            .lookup_with(target, source, stamp.into(), policy)?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// Time travel: the transform of a point from `source` at `source_time` to `target` at `target_time`, through a frame `fixed`
/// that does not move between the two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup_full(
    tf: *const AsofTf,
    target: *const c_char,
    target_time: i64,
    source: *const c_char,
    source_time: i64,
    fixed: *const c_char,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source, fixed) =
            unsafe { (held(tf)?, text(target)?, text(source)?, text(fixed)?) };
        let (target_time, source_time) = (target_time.into(), source_time.into());
        let found = tf
            .buffer
            .lookup_full(target, target_time, source, source_time, fixed)?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// Whether `asof_tf_lookup` would succeed: `ASOF_STATUS_OK`, or the reason, which `asof_last_error` says in words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_can_transform(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: i64,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        Ok(tf.buffer.can_transform(target, source, stamp.into())?)
    })
}

/// The latest time that every edge on the way has. `is_static`, which may be NULL, is whether all are static, or there is no
/// edge: then there is no such time, and `stamp` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_latest_common_time(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    stamp: *mut i64,
    is_static: *mut bool,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        let latest = tf.buffer.latest_common_time(target, source)?;
        // SAFETY: upheld by the caller.
        unsafe {
            tell(is_static, latest.is_none());
            put(stamp, latest.unwrap_or_default().nanos())
        }
    })
}

/// The velocity of `moving` as seen from `observer`, as the mean over `window` nanoseconds around `stamp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_lookup_twist(
    tf: *const AsofTf,
    moving: *const c_char,
    observer: *const c_char,
    stamp: i64,
    window: i64,
    twist: *mut AsofTwist,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, moving, observer) = unsafe { (held(tf)?, text(moving)?, text(observer)?) };
        let window =
            u64::try_from(window).map_err(|_| Failure::invalid("the window is negative"))?;
        let (stamp, window) = (Stamp::from_nanos(stamp), Duration::from_nanos(window));
        let found = tf.buffer.lookup_twist(moving, observer, stamp, window)?;
        let found = AsofTwist {
            linear: found.linear.into(),
            angular: found.angular.into(),
            start: found.over.start.nanos(),
            end: found.over.end.nanos(),
        };
        // SAFETY: upheld by the caller.
        unsafe { put(twist, found) }
    })
}
