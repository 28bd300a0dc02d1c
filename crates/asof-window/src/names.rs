//! The names and semantics of other caches, for code that is being ported.

use std::time::SystemTime;

use asof_core::Stamp;

use crate::{Entry, Window};

/// `message_filters::Cache` by its own names: before and after are strict, as in C++.
///
/// The order of equal stamps and the surrounding interval are those of ROS 1 and of ROS 2 up to 2025.
pub trait MessageFiltersCache<T> {
    /// The messages from `start` to `end`, both included; empty when `start > end`.
    fn get_interval(&self, start: Stamp, end: Stamp) -> Vec<Entry<T>>;
    /// The last message strictly before `time`.
    fn get_elem_before_time(&self, time: Stamp) -> Option<Entry<T>>;
    /// The first message strictly after `time`.
    fn get_elem_after_time(&self, time: Stamp) -> Option<Entry<T>>;
    /// From the last message at or before `start` (else the first) to the first one at or after `end` (else the last).
    /// At least one message, even when `start > end`, unless the window is empty.
    fn get_surrounding_interval(&self, start: Stamp, end: Stamp) -> Vec<Entry<T>>;
    /// The largest stamp; zero when the window is empty.
    fn get_latest_time(&self) -> Stamp;
    /// The smallest stamp; zero when the window is empty.
    fn get_oldest_time(&self) -> Stamp;
}

impl<T> MessageFiltersCache<T> for Window<T> {
    fn get_interval(&self, start: Stamp, end: Stamp) -> Vec<Entry<T>> {
        self.interval(start, end)
    }

    fn get_elem_before_time(&self, time: Stamp) -> Option<Entry<T>> {
        self.strictly_before(time)
    }

    fn get_elem_after_time(&self, time: Stamp) -> Option<Entry<T>> {
        self.strictly_after(time)
    }

    fn get_surrounding_interval(&self, start: Stamp, end: Stamp) -> Vec<Entry<T>> {
        self.around(start, end)
    }

    fn get_latest_time(&self) -> Stamp {
        self.newest_stamp().unwrap_or_default()
    }

    fn get_oldest_time(&self) -> Stamp {
        self.oldest_stamp().unwrap_or_default()
    }
}

/// `ZCache` by its own names and with its own time type: before and after are inclusive.
pub trait ZCache<T> {
    /// The messages from `t_start` to `t_end`, both included; empty when `t_start > t_end`.
    fn get_interval(&self, t_start: SystemTime, t_end: SystemTime) -> Vec<Entry<T>>;
    /// The last message at or before `t`.
    fn get_before(&self, t: SystemTime) -> Option<Entry<T>>;
    /// The first message at or after `t`.
    fn get_after(&self, t: SystemTime) -> Option<Entry<T>>;
    /// The message nearest to `t`; the earlier of two that are equally far.
    fn get_nearest(&self, t: SystemTime) -> Option<Entry<T>>;
}

impl<T> ZCache<T> for Window<T> {
    fn get_interval(&self, t_start: SystemTime, t_end: SystemTime) -> Vec<Entry<T>> {
        self.interval(stamp(t_start), stamp(t_end))
    }

    fn get_before(&self, t: SystemTime) -> Option<Entry<T>> {
        self.before(stamp(t))
    }

    fn get_after(&self, t: SystemTime) -> Option<Entry<T>> {
        self.after(stamp(t))
    }

    fn get_nearest(&self, t: SystemTime) -> Option<Entry<T>> {
        self.nearest(stamp(t))
    }
}

/// Times beyond the range of a stamp are beyond every message: they are clamped.
fn stamp(time: SystemTime) -> Stamp {
    Stamp::try_from(time).unwrap_or(if time < SystemTime::UNIX_EPOCH {
        Stamp::MIN
    } else {
        Stamp::MAX
    })
}
