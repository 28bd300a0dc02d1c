//! asof for C and C++.
//!
//! The library `libasof` with the header `asof.h`, which is generated from this crate; `asof.hpp` is C++17 over it, and
//! `asof/tf2.hpp` has tf2's names. From Rust, use [`asof_tf`] and its siblings: this crate is their C interface and nothing
//! else.
//!
//! ```
//! use asof_c::border::AsofStatus;
//! use asof_c::tf::{AsofTf, AsofTransform};
//!
//! let mut buffer = std::ptr::null_mut::<AsofTf>();
//! let pose = AsofTransform { translation: [0.2, 0.0, 0.3], ..AsofTransform::IDENTITY };
//! let mut found = AsofTransform::IDENTITY;
//! // SAFETY: the names are NUL-terminated, the places are valid, and the buffer is freed once.
//! unsafe {
//!     asof_c::tf::asof_tf_new(std::ptr::null(), &raw mut buffer);
//!     asof_c::tf::asof_tf_set_static(buffer, c"base_link".as_ptr(), c"lidar".as_ptr(), &raw const pose);
//!     let status = asof_c::tf::lookup::asof_tf_lookup(buffer, c"base_link".as_ptr(), c"lidar".as_ptr(), 7, &raw mut found);
//!     assert_eq!(status, AsofStatus::Ok);
//!     asof_c::tf::asof_tf_free(&raw mut buffer);
//! }
//! assert_eq!(found.translation, [0.2, 0.0, 0.3]);
//! ```
//!
//! # Safety
//! The same for all functions. Handles come from this library and were not copied before they were freed: what frees a
//! handle leaves a mark in its place, by which every function recognises it. Strings are NUL-terminated. Arrays are as long
//! as the count beside them, and places for results are valid or, where the function says so, NULL. Handles may be used from
//! several threads at once unless their type says otherwise. Checked are: NULL, freed handles, text that is not UTF-8, counts
//! that no array has, and values outside of an enum.

pub mod border;
#[cfg(feature = "recordings")]
pub mod recording;
pub mod tf;
pub mod window;
