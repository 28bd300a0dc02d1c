//! The transform buffer: what is put into it, and what is removed.

pub mod lookup;
pub mod path;
pub mod tree;
pub mod wait;

use std::ffi::c_char;
use std::time::Duration;

use asof_core::Stamp;
use asof_tf::{BufferOptions, BufferStats, Conflicts, FrameId, Limits, TransformBuffer};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::border::{
    AsofStatus, Failure, Outcome, array, call, free, given, hand_out, held, put, tell, text,
};

/// A transform buffer: the pose of every frame of a robot at any time in its history. Any number of threads may use it at
/// once; lookups wait for no writer.
pub struct AsofTf {
    pub(crate) buffer: TransformBuffer,
}

/// A frame by number, which saves the search for its name. 0 is none.
pub type AsofFrame = u64;

/// A rigid transform: of a point, from one frame to another; or the pose of a frame in its parent, which is the same.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AsofTransform {
    /// The rotation as a unit quaternion: x, y, z, w.
    pub rotation: [f64; 4],
    /// The translation in metres: x, y, z.
    pub translation: [f64; 3],
}

/// What a buffer keeps.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofTfOptions {
    /// How much older than its newest sample the oldest one of an edge may be, in nanoseconds; negative for no bound.
    pub window: i64,
    /// The most samples of an edge; 0 for no bound.
    pub samples: u64,
    /// The most bytes of samples in the buffer; 0 for no bound.
    pub bytes: u64,
    /// The most frames in the buffer; 0 for no bound.
    pub frames: u64,
    /// Whether an update that conflicts with its edge (another parent, static instead of dynamic, a cycle) is stored, as tf2
    /// does. Otherwise it is refused.
    pub last_wins: bool,
}

/// One update of many.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofTfUpdate {
    /// The parent frame.
    pub parent: *const c_char,
    /// The child frame.
    pub child: *const c_char,
    /// The time in nanoseconds; ignored if it is static.
    pub stamp: i64,
    /// The pose of the child in its parent.
    pub transform: AsofTransform,
    /// Whether it holds for all times.
    pub is_static: bool,
}

/// Counts of what a buffer holds and of what it dropped.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct AsofTfStats {
    /// Frames.
    pub frames: u64,
    /// Names of removed frames, which are still kept.
    pub removed: u64,
    /// Edges, static ones included.
    pub edges: u64,
    /// Samples in all histories.
    pub samples: u64,
    /// Bytes allocated for samples.
    pub bytes: u64,
    /// Samples evicted by their edge's bounds.
    pub evicted: u64,
    /// Samples refused because they were too old.
    pub too_old: u64,
}

impl AsofTransform {
    /// Of a frame to itself.
    pub const IDENTITY: AsofTransform = AsofTransform {
        rotation: [0.0, 0.0, 0.0, 1.0],
        translation: [0.0; 3],
    };

    #[inline]
    pub(crate) fn isometry(&self) -> Isometry3<f64> {
        let [x, y, z, w] = self.rotation;
        // The buffer checks and normalizes what it stores.
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        Isometry3::from_parts(Translation3::from(self.translation), rotation)
    }
}

impl From<Isometry3<f64>> for AsofTransform {
    #[inline]
    fn from(isometry: Isometry3<f64>) -> Self {
        AsofTransform {
            rotation: isometry.rotation.coords.into(),
            translation: isometry.translation.vector.into(),
        }
    }
}

impl From<BufferStats> for AsofTfStats {
    fn from(stats: BufferStats) -> Self {
        AsofTfStats {
            frames: stats.frames as u64,
            removed: stats.removed as u64,
            edges: stats.edges as u64,
            samples: stats.samples,
            bytes: stats.bytes,
            evicted: stats.evicted,
            too_old: stats.too_old,
        }
    }
}

impl AsofTfOptions {
    fn options(&self) -> BufferOptions {
        let mut options = BufferOptions::unbounded().conflicts(if self.last_wins {
            Conflicts::LastWins
        } else {
            Conflicts::Refuse
        });
        options.limits = Limits {
            window: u64::try_from(self.window).ok().map(Duration::from_nanos),
            count: (self.samples > 0).then_some(self.samples),
        };
        options.bytes = (self.bytes > 0).then_some(self.bytes);
        if self.frames > 0 {
            options.max_frames = usize::try_from(self.frames).unwrap_or(usize::MAX);
        }
        options
    }
}

/// The frame of an id from C.
pub(crate) fn frame_id(frame: AsofFrame) -> Outcome<FrameId> {
    FrameId::from_bits(frame).ok_or(Failure::invalid("a frame is 0"))
}

/// What a buffer keeps unless it is told otherwise: 10 s of each edge, as tf2; 256 MiB, 65,536 frames.
#[unsafe(no_mangle)]
pub extern "C" fn asof_tf_options() -> AsofTfOptions {
    let options = BufferOptions::default();
    AsofTfOptions {
        window: options
            .limits
            .window
            .map_or(-1, |window| window.as_nanos() as i64),
        samples: options.limits.count.unwrap_or(0),
        bytes: options.bytes.unwrap_or(0),
        frames: options.max_frames as u64,
        last_wins: options.conflicts == Conflicts::LastWins,
    }
}

/// A new, empty buffer. Options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_new(
    options: *const AsofTfOptions,
    tf: *mut *mut AsofTf,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let options = unsafe { given(options) };
        let options = options.map_or_else(BufferOptions::default, AsofTfOptions::options);
        let buffer = TransformBuffer::with_options(options);
        // SAFETY: upheld by the caller.
        unsafe { hand_out(tf, AsofTf { buffer }) }
    })
}

/// Frees a buffer. What was made from it (paths, waits) keeps what it needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_free(tf: *mut *mut AsofTf) {
    // SAFETY: upheld by the caller.
    unsafe { free(tf) }
}

/// Stores the pose of `child` in `parent` at `stamp`. Stamps may come in any order; 0 is a time like any other; a second sample
/// with the same stamp replaces the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_set(
    tf: *const AsofTf,
    parent: *const c_char,
    child: *const c_char,
    stamp: i64,
    transform: *const AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, parent, child, pose) =
            unsafe { (held(tf)?, text(parent)?, text(child)?, pose(transform)?) };
        Ok(tf.buffer.update(parent, child, stamp.into(), pose)?)
    })
}

/// Stores the pose of `child` in `parent` for all times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_set_static(
    tf: *const AsofTf,
    parent: *const c_char,
    child: *const c_char,
    transform: *const AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, parent, child, pose) =
            unsafe { (held(tf)?, text(parent)?, text(child)?, pose(transform)?) };
        Ok(tf.buffer.update_static(parent, child, pose)?)
    })
}

/// Stores a pose as `asof_tf_set` or, if `is_static`, as `asof_tf_set_static`, and notes who sent it: the tree as YAML names
/// the last sender of every edge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_set_from(
    tf: *const AsofTf,
    update: *const AsofTfUpdate,
    authority: *const c_char,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, update, authority) = unsafe { (held(tf)?, given(update), text(authority)?) };
        let update = update.ok_or(Failure::invalid("the update is NULL"))?;
        // SAFETY: upheld by the caller.
        let (parent, child) = unsafe { (text(update.parent)?, text(update.child)?) };
        let writer = tf.buffer.writer(authority);
        let pose = update.transform.isometry();
        if update.is_static {
            Ok(writer.update_static(parent, child, pose)?)
        } else {
            Ok(writer.update(parent, child, update.stamp.into(), pose)?)
        }
    })
}

/// Stores many poses, each by itself. If some are refused, the status is that of the first of them, and the others are stored;
/// `stored` is how many were, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_set_many(
    tf: *const AsofTf,
    updates: *const AsofTfUpdate,
    count: usize,
    stored: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, updates) = unsafe { (held(tf)?, array(updates, count)?) };
        let mut failures = updates.iter().filter_map(|update| {
            // SAFETY: upheld by the caller.
            unsafe { set_one(&tf.buffer, update) }.err()
        });
        let first = failures.next();
        let failed = usize::from(first.is_some()) + failures.count();
        // SAFETY: upheld by the caller.
        unsafe { tell(stored, count - failed) };
        first.map_or(Ok(()), Err)
    })
}

/// # Safety
/// The names are as by the crate's contract.
unsafe fn set_one(buffer: &TransformBuffer, update: &AsofTfUpdate) -> Outcome {
    // SAFETY: upheld by the caller.
    let (parent, child) = unsafe { (text(update.parent)?, text(update.child)?) };
    let pose = update.transform.isometry();
    if update.is_static {
        return Ok(buffer.update_static(parent, child, pose)?);
    }
    Ok(buffer.update(parent, child, update.stamp.into(), pose)?)
}

/// Moves `child` to another parent, from `stamp` on. Samples under the old parent stay valid for their times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_reparent(
    tf: *const AsofTf,
    parent: *const c_char,
    child: *const c_char,
    stamp: i64,
    transform: *const AsofTransform,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, parent, child, pose) =
            unsafe { (held(tf)?, text(parent)?, text(child)?, pose(transform)?) };
        Ok(tf.buffer.reparent(parent, child, stamp.into(), pose)?)
    })
}

/// Drops all samples; frames, static edges and the shape of the tree stay. For a clock that jumped back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_clear(tf: *const AsofTf) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { held(tf) }?.buffer.clear();
        Ok(())
    })
}

/// Removes a frame and all frames below it, with their samples. `removed` is how many, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_remove(
    tf: *const AsofTf,
    frame: *const c_char,
    removed: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, frame) = unsafe { (held(tf)?, text(frame)?) };
        let count = tf.buffer.remove(frame)?;
        // SAFETY: upheld by the caller.
        unsafe { tell(removed, count) };
        Ok(())
    })
}

/// Removes the frames that have not moved since `before`, unless something below them has. `removed` is how many, and may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_remove_older(
    tf: *const AsofTf,
    before: i64,
    removed: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let count = unsafe { held(tf) }?
            .buffer
            .remove_older(Stamp::from_nanos(before));
        // SAFETY: upheld by the caller.
        unsafe { tell(removed, count) };
        Ok(())
    })
}

/// Counts of what is held and what was dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_stats(tf: *const AsofTf, stats: *mut AsofTfStats) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        unsafe { put(stats, held(tf)?.buffer.stats().into()) }
    })
}

/// # Safety
/// NULL, or valid for reading.
unsafe fn pose(transform: *const AsofTransform) -> Outcome<Isometry3<f64>> {
    // SAFETY: upheld by the caller.
    let transform = unsafe { given(transform) };
    let transform = transform.ok_or(Failure::invalid("the transform is NULL"))?;
    Ok(transform.isometry())
}
