//! ROS's own formats: definitions of types, their hashes, and CDR.
//!
//! ```
//! use asof_ros::msg::{Line, parse_line};
//!
//! let Ok(Line::Field(field)) = parse_line("geometry_msgs/Point[<=3] corners # in metres") else {
//!     panic!("a field");
//! };
//! assert_eq!((field.kind.base, field.name), ("geometry_msgs/Point", "corners"));
//! ```

#![forbid(unsafe_code)]

mod cdr;
mod definitions;
#[cfg(feature = "hash")]
mod hash;
pub mod msg;
mod read;

pub use cdr::CdrWriter;
pub use definitions::{Definitions, Era, FullDefinition};
#[cfg(feature = "hash")]
pub use hash::{differs, type_hash};
pub use read::{RosDecodeError, RosEncoding, RosReader};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
