//! The ROS messages that carry transforms: `tf2_msgs/TFMessage` and `sensor_msgs/JointState`, as CDR (ROS 2, both
//! byte orders) and in ROS 1's serialization.
//!
//! Decoding belongs to asof-decode, by the house's law of one way to do a thing, and what has a schema goes
//! there. These two are read here because their layout never changed and is all that a robot needs on its
//! own: a live `/tf` has no schema at hand, many recordings of it neither, and a buffer on a robot should
//! not have to be built with Arrow for it.

use asof_core::Stamp;
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

/// How a message is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RosEncoding {
    /// ROS 2: CDR with its four bytes of header, in either byte order.
    Cdr,
    /// ROS 1.
    Ros1,
}

/// Why bytes are not the message that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosDecodeError {
    /// The message ends in the middle of something.
    #[error("the message ends at byte {len}, inside of {what}")]
    Truncated {
        /// Its length.
        len: usize,
        /// What should be there.
        what: &'static str,
    },
    /// A header of CDR that is not known.
    #[error("the message starts with CDR header {0:#06x}, which is not one of plain CDR")]
    UnknownCdr(u16),
    /// A name that is not UTF-8.
    #[error("the text at byte {0} is not UTF-8")]
    NotText(usize),
    /// A time whose fraction is a second or more.
    #[error("the stamp at byte {0} has a fraction of a second or more")]
    BadStamp(usize),
}

/// One transform of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct StampedTransform {
    /// When.
    pub stamp: Stamp,
    /// The parent frame, `header.frame_id`.
    pub parent: String,
    /// The child frame.
    pub child: String,
    /// The pose of the child in the parent, not checked in any way.
    pub isometry: Isometry3<f64>,
}

/// Positions of joints at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct JointState {
    /// When.
    pub stamp: Stamp,
    /// The joints' names.
    pub names: Vec<String>,
    /// Their positions, in the same order: radians or metres. May be shorter than the names.
    pub positions: Vec<f64>,
}

/// Reads a `tf2_msgs/TFMessage` (or ROS 1's older `tf/tfMessage`, which is the same).
///
/// # Errors
/// [`RosDecodeError`] says what is wrong and where.
pub fn tf_message(
    encoding: RosEncoding,
    payload: &[u8],
) -> Result<Vec<StampedTransform>, RosDecodeError> {
    let mut reader = Reader::new(encoding, payload)?;
    let count = reader.u32("the number of transforms")?;
    // Not reserved by what the message claims: it may claim anything.
    let mut transforms = Vec::new();
    for _ in 0..count {
        let stamp = reader.header()?;
        let parent = reader.text("header.frame_id")?;
        let child = reader.text("child_frame_id")?;
        let mut parts = [0.0; 7];
        for part in &mut parts {
            *part = reader.f64("a transform")?;
        }
        let [a, b, c, x, y, z, w] = parts;
        let rotation = UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z));
        transforms.push(StampedTransform {
            stamp,
            parent,
            child,
            isometry: Isometry3::from_parts(Translation3::new(a, b, c), rotation),
        });
    }
    Ok(transforms)
}

/// Reads a `sensor_msgs/JointState`, up to the positions.
///
/// # Errors
/// [`RosDecodeError`] says what is wrong and where.
pub fn joint_state(encoding: RosEncoding, payload: &[u8]) -> Result<JointState, RosDecodeError> {
    let mut reader = Reader::new(encoding, payload)?;
    let stamp = reader.header()?;
    reader.text("header.frame_id")?;
    let count = reader.u32("the number of names")?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(reader.text("a joint's name")?);
    }
    let count = reader.u32("the number of positions")?;
    let mut positions = Vec::new();
    for _ in 0..count {
        positions.push(reader.f64("a position")?);
    }
    Ok(JointState {
        stamp,
        names,
        positions,
    })
}

/// Reads a `std_msgs/String`.
///
/// # Errors
/// [`RosDecodeError`] says what is wrong and where.
pub fn text_message(encoding: RosEncoding, payload: &[u8]) -> Result<String, RosDecodeError> {
    Reader::new(encoding, payload)?.text("the text")
}

struct Reader<'a> {
    encoding: RosEncoding,
    bytes: &'a [u8],
    at: usize,
    /// Where alignment counts from, and what eight bytes align to: four in CDR version 2.
    origin: usize,
    widest: usize,
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn new(encoding: RosEncoding, bytes: &'a [u8]) -> Result<Self, RosDecodeError> {
        let mut reader = Reader {
            encoding,
            bytes,
            at: 0,
            origin: 0,
            widest: 1,
            is_big: false,
        };
        if encoding == RosEncoding::Cdr {
            let [high, low, ..] = reader.take::<4>("the CDR header")?;
            let header = u16::from_be_bytes([high, low]);
            (reader.is_big, reader.widest) = match header {
                0x0000 => (true, 8),
                0x0001 => (false, 8),
                0x0006 => (true, 4),
                0x0007 => (false, 4),
                other => return Err(RosDecodeError::UnknownCdr(other)),
            };
            reader.origin = 4;
        }
        Ok(reader)
    }

    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RosDecodeError> {
        let found = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>());
        let found = *found.ok_or(RosDecodeError::Truncated {
            len: self.bytes.len(),
            what,
        })?;
        self.at += N;
        Ok(found)
    }

    fn align(&mut self, to: usize) {
        let to = to.min(self.widest);
        self.at = self.origin + (self.at - self.origin).next_multiple_of(to);
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, RosDecodeError> {
        self.align(4);
        let bytes = self.take(what)?;
        Ok(if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn f64(&mut self, what: &'static str) -> Result<f64, RosDecodeError> {
        self.align(8);
        let bytes = self.take(what)?;
        Ok(if self.is_big {
            f64::from_be_bytes(bytes)
        } else {
            f64::from_le_bytes(bytes)
        })
    }

    /// `std_msgs/Header` up to its stamp.
    fn header(&mut self) -> Result<Stamp, RosDecodeError> {
        if self.encoding == RosEncoding::Ros1 {
            self.u32("header.seq")?;
        }
        let (sec, nanosec) = (self.u32("header.stamp")?, self.u32("header.stamp")?);
        let at = self.at - 8;
        let stamp = match self.encoding {
            RosEncoding::Ros1 => Stamp::from_ros1(sec, nanosec),
            RosEncoding::Cdr => Stamp::from_ros2(sec as i32, nanosec),
        };
        stamp.map_err(|_| RosDecodeError::BadStamp(at))
    }

    /// Length and bytes; CDR counts a closing zero.
    fn text(&mut self, what: &'static str) -> Result<String, RosDecodeError> {
        let len = self.u32(what)? as usize;
        let at = self.at;
        let found = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        let mut found = found.ok_or(RosDecodeError::Truncated {
            len: self.bytes.len(),
            what,
        })?;
        self.at += len;
        if self.encoding == RosEncoding::Cdr {
            found = found.strip_suffix(&[0]).unwrap_or(found);
        }
        let text = std::str::from_utf8(found).map_err(|_| RosDecodeError::NotText(at))?;
        Ok(text.to_owned())
    }
}
