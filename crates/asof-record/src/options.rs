//! Options of a recording.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asof_formats::McapWriterOptions;

use crate::sink::Tags;

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// How the file is written. The age of a chunk is by a clock that never goes back. With chunks of half a second, a killed process loses at most half a second, and a
    /// power cut at most one second.
    pub writer: McapWriterOptions,
    /// How many bytes may wait for the disk before messages are dropped.
    pub queue_bytes: u64,
    /// Metadata of the recording, written under the name `tags`.
    pub tags: Tags,
    /// Which topics are dropped first when the disk is slower than the robot. Latched topics are dropped last.
    pub priorities: Priorities,
    /// Whether messages are logged by the robot's clock, the topic `/clock`; the times at which they were sent are moved to
    /// that clock, too. Messages before its first time are dropped and counted, except for those that are kept for late
    /// joiners.
    pub sim_time: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            writer: McapWriterOptions {
                profile: "ros2".to_owned(),
                // Half of the second that a power cut may cost; syncing the file takes the other half.
                chunk_age: Some(Duration::from_millis(500)),
                ..McapWriterOptions::default()
            },
            queue_bytes: 256 << 20,
            tags: Tags::new(),
            priorities: Priorities::default(),
            sim_time: false,
        }
    }
}

/// Priorities of topics: those with higher numbers are kept when there is no room for all. The default is 0.
///
/// ```
/// use asof_record::Priorities;
///
/// let priorities = Priorities::new(|topic| if topic.starts_with("/camera") { -1 } else { 0 });
/// assert_eq!((priorities.of("/camera/image"), priorities.of("/odom")), (-1, 0));
/// ```
#[derive(Clone)]
pub struct Priorities(Arc<dyn Fn(&str) -> i32 + Send + Sync>);

impl Priorities {
    /// Priorities by topic name.
    pub fn new(of: impl Fn(&str) -> i32 + Send + Sync + 'static) -> Self {
        Priorities(Arc::new(of))
    }

    /// The priority of a topic.
    pub fn of(&self, topic: &str) -> i32 {
        (self.0)(topic)
    }
}

impl Default for Priorities {
    /// The same priority for all topics.
    fn default() -> Self {
        Priorities::new(|_| 0)
    }
}

impl fmt::Debug for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priorities").finish_non_exhaustive()
    }
}
