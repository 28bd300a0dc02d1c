//! Which of its times a message is indexed by.

use asof_core::Stamp;

/// A message and its times on arrival.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a, T> {
    /// The message.
    pub value: &'a T,
    /// The transport's send time, if there is one.
    pub transport: Option<Stamp>,
    /// The publisher's send time, if there is one.
    pub source: Option<Stamp>,
    /// When it was received.
    pub received: Stamp,
}

/// How a window stamps its messages; chosen at compile time.
///
/// `None` means that this message has no such stamp: it is then indexed by its time of receipt and counted, and the
/// first one is logged.
pub trait Stamping<T>: Send + Sync + 'static {
    /// The stamp of a message.
    fn stamp(&self, arrival: &Arrival<'_, T>) -> Option<Stamp>;
}

/// By the transport's time: works for any type, and is the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct TransportStamp;

impl<T> Stamping<T> for TransportStamp {
    fn stamp(&self, arrival: &Arrival<'_, T>) -> Option<Stamp> {
        arrival.transport
    }
}

/// By the time that the publisher attached.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceStamp;

impl<T> Stamping<T> for SourceStamp {
    fn stamp(&self, arrival: &Arrival<'_, T>) -> Option<Stamp> {
        arrival.source
    }
}

/// By the time of receipt.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceiveStamp;

impl<T> Stamping<T> for ReceiveStamp {
    fn stamp(&self, arrival: &Arrival<'_, T>) -> Option<Stamp> {
        Some(arrival.received)
    }
}

/// By a time in the message itself, extracted by a closure.
#[derive(Debug, Clone, Copy)]
pub struct MessageStamp<F>(pub F);

impl<T, F: Fn(&T) -> Option<Stamp> + Send + Sync + 'static> Stamping<T> for MessageStamp<F> {
    fn stamp(&self, arrival: &Arrival<'_, T>) -> Option<Stamp> {
        (self.0)(arrival.value)
    }
}

/// The stamp of a CDR message that starts with a `std_msgs/Header`, read in place; nothing is decoded.
///
/// Both byte orders are understood. `None` if there are too few bytes, the encoding is unknown, or the time is invalid
/// (a second or more in the nanoseconds).
///
/// The type must start with a header; the bytes alone do not show it. Those of a `Twist` at rest read as time zero,
/// and most numbers as some time. asof-decode finds the type's fields by its schema.
///
/// ```
/// let image = [0, 1, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0];
/// assert_eq!(asof_window::header_stamp(&image), Some(7_000_000_005.into()));
/// ```
#[inline]
pub fn header_stamp(cdr: &[u8]) -> Option<Stamp> {
    let head: &[u8; 12] = cdr.first_chunk()?;
    let [_, order, _, _, s0, s1, s2, s3, n0, n1, n2, n3] = *head;
    let (seconds, nanos) = ([s0, s1, s2, s3], [n0, n1, n2, n3]);
    let (seconds, nanos) = match (head[0], order) {
        // CDR and parameter lists, XCDR2 plain, delimited and parameter lists: an odd number is little endian.
        (0, 1 | 3 | 7 | 9 | 11) => (i32::from_le_bytes(seconds), u32::from_le_bytes(nanos)),
        (0, 0 | 2 | 6 | 8 | 10) => (i32::from_be_bytes(seconds), u32::from_be_bytes(nanos)),
        _ => return None,
    };
    Stamp::from_ros2(seconds, nanos).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_byte_orders_are_read() {
        let big = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 5];
        assert_eq!(header_stamp(&big), Some(7_000_000_005.into()));
    }

    #[test]
    fn a_fraction_of_a_second_or_more_is_no_time() {
        let bad = [0, 1, 0, 0, 7, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(header_stamp(&bad), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = header_stamp(&bytes);
        }
    }
}
