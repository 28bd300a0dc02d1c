//! Frames by name and by id.

use std::borrow::Cow;
use std::fmt;

use crate::error::LookupError;
use crate::frame_ref::sealed::Resolve;
use crate::graph::{Change, Frame, Graph, NameError};
use crate::name::{FrameName, strip};

/// A frame of one buffer by number: faster than its name for repeated lookups.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameId {
    pub(crate) buffer: u32,
    pub(crate) number: u32,
}

impl FrameId {
    /// The id as a number that is never zero, for interfaces that have nothing else.
    pub fn to_bits(self) -> u64 {
        (u64::from(self.buffer) + 1) << 32 | u64::from(self.number)
    }

    /// The id of a number from [`to_bits`](FrameId::to_bits); `None` if it cannot be one. Whether the frame is one of a buffer
    /// is checked when it is used.
    pub fn from_bits(bits: u64) -> Option<FrameId> {
        let buffer = u32::try_from((bits >> 32).checked_sub(1)?).ok()?;
        Some(FrameId {
            buffer,
            number: bits as u32,
        })
    }
}

/// A frame by name or by id: `&str`, `&String`, `&FrameName` or [`FrameId`].
pub trait FrameRef: Copy + Resolve {}

pub(crate) mod sealed {
    use std::borrow::Cow;

    use crate::error::LookupError;
    use crate::graph::{Change, Frame, Graph, NameError};
    use crate::name::FrameName;

    pub trait Resolve {
        /// The frame, if there is one.
        fn get(self, graph: &Graph) -> Option<&Frame>;
        /// Why there is none.
        fn why(self) -> LookupError;
        fn find(self, graph: &Graph) -> Result<&Frame, LookupError>
        where
            Self: Copy,
        {
            self.get(graph).ok_or_else(|| self.why())
        }
        fn intern<'a>(
            self,
            graph: &'a Graph,
            change: &mut Change<'_>,
        ) -> Result<&'a Frame, NameError>;
        /// The name that a frame would get, or why it is invalid.
        fn vet(self) -> Result<FrameName, NameError>;
        fn text(&self, graph: &Graph) -> Cow<'_, str>;
    }
}

impl fmt::Debug for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameId({})", self.number)
    }
}

#[cold]
fn unknown(name: &str) -> LookupError {
    LookupError::UnknownFrame {
        frame: FrameName::unchecked(strip(name)),
    }
}

macro_rules! resolve_as_str {
    ($($type:ty),*) => {$(
        impl Resolve for $type {
            #[inline(always)]
            #[allow(clippy::inline_always)] // Used by every lookup.
            fn get(self, graph: &Graph) -> Option<&Frame> {
                graph.find(self)
            }

            #[cold]
            fn why(self) -> LookupError {
                unknown(self)
            }

            fn intern<'a>(self, graph: &'a Graph, change: &mut Change<'_>) -> Result<&'a Frame, NameError> {
                graph.intern(change, self)
            }

            fn vet(self) -> Result<FrameName, NameError> {
                FrameName::new(self).map_err(NameError::Bad)
            }

            fn text(&self, _graph: &Graph) -> Cow<'_, str> {
                Cow::Borrowed(strip(self))
            }
        }

        impl FrameRef for $type {}
    )*};
}

resolve_as_str!(&str, &String, &FrameName, &&str);

impl Resolve for FrameId {
    #[inline]
    fn get(self, graph: &Graph) -> Option<&Frame> {
        if self.buffer != graph.id {
            return None;
        }
        graph.numbered(self.number).filter(|frame| frame.is_there())
    }

    #[cold]
    fn why(self) -> LookupError {
        LookupError::ForeignId
    }

    fn intern<'a>(
        self,
        graph: &'a Graph,
        _change: &mut Change<'_>,
    ) -> Result<&'a Frame, NameError> {
        self.find(graph).map_err(|_| NameError::Foreign)
    }

    fn vet(self) -> Result<FrameName, NameError> {
        Err(NameError::Foreign)
    }

    fn text(&self, graph: &Graph) -> Cow<'_, str> {
        match self.find(graph) {
            Ok(frame) => Cow::Owned(frame.name.to_string()),
            Err(_) => Cow::Borrowed("?"),
        }
    }
}

impl FrameRef for FrameId {}
