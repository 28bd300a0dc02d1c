//! ROS formats: `.msg` definitions, type hashes, and CDR.
//!
//! [`Definitions`] assembles the full definition of a type, from the standard packages built in or from folders of
//! `.msg` and `.idl` files. [`CdrWriter`] and [`RosReader`] write and read one message value by value. [`msg`] parses
//! definitions:
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
pub use definitions::{Definitions, Era, FullDefinition, MissingDefinition};
#[cfg(feature = "hash")]
pub use hash::{differs, type_hash};
pub use read::{RosDecodeError, RosEncoding, RosReader};

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
