//! Prepared paths, and many lookups at once.

use std::ffi::c_char;

use asof_core::Stamp;
use asof_tf::{LookupError, LookupPath};
use nalgebra::{Isometry3, Point3};

use super::{AsofTf, AsofTransform};
use crate::border::{
    AsofStatus, Outcome, array_mut, call, free, hand_out, held, held_alone, put, stamps, tell, text,
};

/// A path between two frames, resolved once and used many times: for a pair that is looked up again and again. One thread at
/// a time uses it; make one for each thread.
pub struct AsofTfPath {
    path: LookupPath,
}

/// Prepares the path from `source` to `target`. They must be known, but need not be connected yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_new(
    tf: *const AsofTf,
    target: *const c_char,
    source: *const c_char,
    path: *mut *mut AsofTfPath,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, target, source) = unsafe { (held(tf)?, text(target)?, text(source)?) };
        let prepared = tf.buffer.path(target, source)?;
        // SAFETY: upheld by the caller.
        unsafe { hand_out(path, AsofTfPath { path: prepared }) }
    })
}

/// Frees a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_free(path: *mut *mut AsofTfPath) {
    // SAFETY: upheld by the caller.
    unsafe { free(path) }
}

/// Like `asof_tf_lookup`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_lookup(
    path: *mut AsofTfPath,
    stamp: i64,
    transform: *mut AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let found = unsafe { held_alone(path) }?.path.lookup(stamp.into())?;
        // SAFETY: upheld by the caller.
        unsafe { put(transform, found.into()) }
    })
}

/// Like `asof_tf_lookup_latest`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_lookup_latest(
    path: *mut AsofTfPath,
    transform: *mut AsofTransform,
    stamp: *mut i64,
    is_static: *mut bool,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let latest = unsafe { held_alone(path) }?.path.lookup_latest()?;
        // SAFETY: upheld by the caller.
        unsafe {
            tell(stamp, latest.stamp.unwrap_or_default().nanos());
            tell(is_static, latest.stamp.is_none());
            put(transform, latest.isometry.into())
        }
    })
}

/// Looks up `count` times, fastest if they are in order. Where there is no transform, the result is NaN; the status is that of
/// the first such time, and `failed`, which may be NULL, is how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_lookup_many(
    path: *mut AsofTfPath,
    times: *const i64,
    count: usize,
    transforms: *mut AsofTransform,
    failed: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (path, times, places) = unsafe {
            let path = held_alone(path)?;
            (path, stamps(times, count)?, array_mut(transforms, count)?)
        };
        let mut places = places.iter_mut();
        let store = |found: Option<Isometry3<f64>>| {
            if let Some(place) = places.next() {
                *place = found.map_or(MISSING, AsofTransform::from);
            }
        };
        // SAFETY: upheld by the caller.
        unsafe { each(&mut path.path, times, store, failed) }
    })
}

/// Transforms `count` points in place, x, y, z after each other, each at its own time. Where there is no transform, they become
/// NaN; the status is that of the first such time, and `failed`, which may be NULL, is how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_transform_points(
    path: *mut AsofTfPath,
    times: *const i64,
    count: usize,
    points: *mut f64,
    failed: *mut usize,
) -> AsofStatus {
    // SAFETY: upheld by the caller.
    call(|| unsafe { move_points(path, times, count, points.cast::<[f64; 3]>(), failed) })
}

/// The same for points of single precision, as clouds have them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_path_transform_points_f32(
    path: *mut AsofTfPath,
    times: *const i64,
    count: usize,
    points: *mut f32,
    failed: *mut usize,
) -> AsofStatus {
    // SAFETY: upheld by the caller.
    call(|| unsafe { move_points(path, times, count, points.cast::<[f32; 3]>(), failed) })
}

/// Where there is no transform.
const MISSING: AsofTransform = AsofTransform {
    rotation: [f64::NAN; 4],
    translation: [f64::NAN; 3],
};

/// The coordinates of a point.
trait Coordinates: Copy {
    fn moved(self, by: &Isometry3<f64>) -> Self;
    const MISSING: Self;
}

impl Coordinates for [f64; 3] {
    fn moved(self, by: &Isometry3<f64>) -> Self {
        (by * Point3::from(self)).into()
    }

    const MISSING: Self = [f64::NAN; 3];
}

impl Coordinates for [f32; 3] {
    fn moved(self, by: &Isometry3<f64>) -> Self {
        self.map(f64::from).moved(by).map(|part| part as f32)
    }

    const MISSING: Self = [f32::NAN; 3];
}

/// # Safety
/// As by the crate's contract.
unsafe fn move_points<P: Coordinates>(
    path: *mut AsofTfPath,
    times: *const i64,
    count: usize,
    points: *mut P,
    failed: *mut usize,
) -> Outcome {
    // SAFETY: upheld by the caller.
    let (path, times, points) = unsafe {
        let path = held_alone(path)?;
        (path, stamps(times, count)?, array_mut(points, count)?)
    };
    let mut points = points.iter_mut();
    let store = |found: Option<Isometry3<f64>>| {
        if let Some(point) = points.next() {
            *point = found.map_or(P::MISSING, |found| point.moved(&found));
        }
    };
    // SAFETY: upheld by the caller.
    unsafe { each(&mut path.path, times, store, failed) }
}

/// Looks up all times; the first failure is the result, and their count goes to `failed`.
///
/// # Safety
/// `failed` is NULL or valid for writing.
unsafe fn each(
    path: &mut LookupPath,
    times: &[Stamp],
    mut store: impl FnMut(Option<Isometry3<f64>>),
    failed: *mut usize,
) -> Outcome {
    let (mut count, mut first): (usize, Option<LookupError>) = (0, None);
    path.lookup_each(times, |found| match found {
        Ok(found) => store(Some(found)),
        Err(error) => {
            count += 1;
            first.get_or_insert(error);
            store(None);
        }
    });
    // SAFETY: upheld by the caller.
    unsafe { tell(failed, count) };
    first.map_or(Ok(()), |error| Err(error.into()))
}
