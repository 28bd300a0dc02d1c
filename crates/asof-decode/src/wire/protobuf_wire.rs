//! The primitives of the protobuf wire format: varints, numbers, lengths, groups.

use crate::error::{Fault, PayloadError};
use crate::schema::proto::WireKind;

use super::protobuf::{DEEPEST, Wire};

impl Wire<'_, '_> {
    #[cold]
    #[allow(clippy::unnecessary_box_returns, clippy::unused_self)]
    pub(super) fn malformed(&self, reason: &str) -> Fault {
        Box::new(PayloadError::malformed(self.pos, reason))
    }

    #[cold]
    #[allow(clippy::unnecessary_box_returns, clippy::unused_self)]
    pub(super) fn short(&self, what: &'static str) -> Fault {
        Box::new(PayloadError::Short {
            what,
            at: self.pos,
            len: self.payload.bytes.len(),
        })
    }

    #[inline]
    pub(super) fn varint(&mut self, end: usize) -> Result<u64, Fault> {
        let bytes = &self.payload.bytes[self.pos..end];
        match bytes.first() {
            Some(&byte) if byte < 0x80 => {
                self.pos += 1;
                return Ok(u64::from(byte));
            }
            None => return Err(self.short("a varint")),
            _ => {}
        }
        let mut value = 0u64;
        for (at, &byte) in bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.pos += at + 1;
                return Ok(value);
            }
        }
        if bytes.len() >= 10 {
            Err(self.malformed("a varint of more than ten bytes"))
        } else {
            Err(self.short("a varint"))
        }
    }

    #[inline]
    pub(super) fn word64(&mut self, wire: WireKind, end: usize) -> Result<u64, Fault> {
        let value = self.varint(end)?;
        Ok(match wire {
            WireKind::Zigzag64 => (value >> 1) ^ (value & 1).wrapping_neg(),
            _ => value,
        })
    }

    #[inline]
    pub(super) fn word32(&mut self, wire: WireKind, end: usize) -> Result<u32, Fault> {
        let value = self.varint(end)? as u32;
        Ok(match wire {
            WireKind::Zigzag32 => (value >> 1) ^ (value & 1).wrapping_neg(),
            _ => value,
        })
    }

    #[inline]
    pub(super) fn fixed64(&mut self, end: usize) -> Result<u64, Fault> {
        match self.payload.bytes[self.pos..end].first_chunk() {
            Some(bytes) => {
                self.pos += 8;
                Ok(u64::from_le_bytes(*bytes))
            }
            None => Err(self.short("a number")),
        }
    }

    #[inline]
    pub(super) fn fixed32(&mut self, end: usize) -> Result<u32, Fault> {
        match self.payload.bytes[self.pos..end].first_chunk() {
            Some(bytes) => {
                self.pos += 4;
                Ok(u32::from_le_bytes(*bytes))
            }
            None => Err(self.short("a number")),
        }
    }

    /// The end of a length-prefixed value.
    #[inline]
    pub(super) fn delimited(&mut self, end: usize) -> Result<usize, Fault> {
        let len = self.varint(end)?;
        if len > (end - self.pos) as u64 {
            return Err(self.short("a delimited value"));
        }
        Ok(self.pos + len as usize)
    }

    /// The end of a group's contents, and of the group.
    pub(super) fn group(&mut self, number: u32, end: usize) -> Result<(usize, usize), Fault> {
        let start = self.pos;
        loop {
            let before = self.pos;
            let tag = self.varint(end)?;
            if tag == u64::from(number) << 3 | 4 {
                let after = self.pos;
                self.pos = start;
                return Ok((before, after));
            }
            self.skip((tag & 7) as u8, (tag >> 3) as u32, end, 0)?;
        }
    }

    pub(super) fn skip(
        &mut self,
        wire_type: u8,
        number: u32,
        end: usize,
        depth: usize,
    ) -> Result<(), Fault> {
        match wire_type {
            0 => self.varint(end).map(drop),
            1 => self.fixed64(end).map(drop),
            5 => self.fixed32(end).map(drop),
            2 => {
                self.pos = self.delimited(end)?;
                Ok(())
            }
            3 if depth < DEEPEST => loop {
                let tag = self.varint(end)?;
                if tag & 7 == 4 {
                    break if tag >> 3 == u64::from(number) {
                        Ok(())
                    } else {
                        Err(self.malformed("a group ends with the number of another"))
                    };
                }
                self.skip((tag & 7) as u8, (tag >> 3) as u32, end, depth + 1)?;
            },
            3 => Err(Box::new(PayloadError::TooDeep {
                at: self.pos,
                limit: DEEPEST,
            })),
            _ => Err(self.malformed("an invalid wire type")),
        }
    }
}
