//! The frames of a transform buffer, and its tree as text.

use std::ffi::c_char;

use asof_core::Stamp;
use asof_tf::TreeFormat;

use super::{AsofFrame, AsofTf, frame_id};
use crate::border::{AsofStatus, Failure, call, given, held, put, put_text, tell, text};

/// The format of a tree.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsofTfFormat {
    /// For a terminal.
    Tree = 0,
    /// For Graphviz.
    Dot = 1,
    /// For Mermaid.
    Mermaid = 2,
    /// In the shape of tf2's `allFramesAsYAML`.
    Yaml = 3,
}

/// What is known of an edge.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsofTfEdge {
    /// The parent.
    pub parent: AsofFrame,
    /// Samples in its history.
    pub samples: u64,
    /// The time of its oldest sample; 0 without any.
    pub oldest: i64,
    /// The time of its newest sample; 0 without any.
    pub newest: i64,
    /// Whether it holds for all times.
    pub is_static: bool,
}

/// The tree as text, for `asof_text_free`. `format` is one of `AsofTfFormat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_text(
    tf: *const AsofTf,
    format: i32,
    tree: *mut *mut c_char,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let tf = unsafe { held(tf) }?;
        let all = [
            TreeFormat::Tree,
            TreeFormat::Dot,
            TreeFormat::Mermaid,
            TreeFormat::Yaml,
        ];
        let format = usize::try_from(format).ok().and_then(|at| all.get(at));
        let format = *format.ok_or(Failure::invalid("the format is not one of AsofTfFormat"))?;
        let mut written = Vec::new();
        tf.buffer
            .write_tree(format, &mut written)
            .map_err(|error| Failure::new(AsofStatus::Internal, error))?;
        // SAFETY: upheld by the caller.
        unsafe { put_text(tree, String::from_utf8_lossy(&written)) }
    })
}

/// The frame of a name, made if there is none yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_frame(
    tf: *const AsofTf,
    name: *const c_char,
    frame: *mut AsofFrame,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, name) = unsafe { (held(tf)?, text(name)?) };
        let found = tf.buffer.frame(name)?.to_bits();
        // SAFETY: upheld by the caller.
        unsafe { put(frame, found) }
    })
}

/// The frame of a name; 0 and `ASOF_STATUS_NOT_FOUND` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_find_frame(
    tf: *const AsofTf,
    name: *const c_char,
    frame: *mut AsofFrame,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, name) = unsafe { (held(tf)?, text(name)?) };
        let found = tf.buffer.find(name);
        // SAFETY: upheld by the caller.
        unsafe { put(frame, found.map_or(0, asof_tf::FrameId::to_bits)) }?;
        match found {
            Some(_) => Ok(()),
            None => Err(Failure::new(
                AsofStatus::NotFound,
                format_args!("frame '{name}' is unknown"),
            )),
        }
    })
}

/// The name of a frame, for `asof_text_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_frame_name(
    tf: *const AsofTf,
    frame: AsofFrame,
    name: *mut *mut c_char,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let found = unsafe { held(tf) }?.buffer.name(frame_id(frame)?)?;
        // SAFETY: upheld by the caller.
        unsafe { put_text(name, found.as_str()) }
    })
}

/// All frames, in the order in which they were first named: at most `room` of them. `count` is how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_frames(
    tf: *const AsofTf,
    frames: *mut AsofFrame,
    room: usize,
    count: *mut usize,
) -> AsofStatus {
    call(|| {
        // SAFETY: upheld by the caller.
        let (tf, places) = unsafe { (held(tf)?, crate::border::array_mut(frames, room)?) };
        let names = tf.buffer.frames();
        for (place, name) in places.iter_mut().zip(&names) {
            // It can have been removed meanwhile.
            *place = tf.buffer.find(name).map_or(0, asof_tf::FrameId::to_bits);
        }
        // SAFETY: upheld by the caller.
        unsafe { put(count, names.len()) }
    })
}

/// The parent of a frame at a time, or its current one if `stamp` is NULL; 0 for a root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_parent(
    tf: *const AsofTf,
    frame: AsofFrame,
    stamp: *const i64,
    parent: *mut AsofFrame,
) -> AsofStatus {
    call(|| {
        let frame = frame_id(frame)?;
        // SAFETY: upheld by the caller.
        let (tf, stamp) = unsafe { (held(tf)?, given(stamp)) };
        let found = match stamp {
            Some(stamp) => tf.buffer.parent_at(frame, Stamp::from_nanos(*stamp))?,
            None => tf.buffer.parent(frame)?,
        };
        let found = found.and_then(|name| tf.buffer.find(&name));
        // SAFETY: upheld by the caller.
        unsafe { put(parent, found.map_or(0, asof_tf::FrameId::to_bits)) }
    })
}

/// What is known of the edge above a frame. `ASOF_STATUS_NOT_FOUND` for a root. `authority`, which may be NULL, is its last
/// sender's name, for `asof_text_free`; NULL if that is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asof_tf_edge(
    tf: *const AsofTf,
    frame: AsofFrame,
    edge: *mut AsofTfEdge,
    authority: *mut *mut c_char,
) -> AsofStatus {
    call(|| {
        let frame = frame_id(frame)?;
        // SAFETY: upheld by the caller.
        let tf = unsafe { held(tf) }?;
        let Some(facts) = tf.buffer.edge_facts(frame)? else {
            return Err(Failure::fixed(
                AsofStatus::NotFound,
                "the frame has no parent",
            ));
        };
        let found = AsofTfEdge {
            parent: tf
                .buffer
                .find(&facts.parent)
                .map_or(0, asof_tf::FrameId::to_bits),
            samples: facts.samples,
            oldest: facts.range.map_or(0, |range| range.start.nanos()),
            newest: facts.range.map_or(0, |range| range.end.nanos()),
            is_static: facts.is_static,
        };
        // SAFETY: upheld by the caller.
        unsafe {
            put(edge, found)?;
            tell(authority, std::ptr::null_mut());
            match facts.authority {
                Some(name) if !authority.is_null() => put_text(authority, name),
                _ => Ok(()),
            }
        }
    })
}
