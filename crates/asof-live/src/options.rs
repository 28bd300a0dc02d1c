//! How a robot is recorded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asof_formats::McapWriterOptions;

use crate::sink::Tags;

/// How a robot is recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// How the file is written. Chunks of half a second lose no more than that when the process is killed, and no more
    /// than a second when the power is cut.
    pub writer: McapWriterOptions,
    /// How many bytes may wait for the disk before messages are dropped.
    pub queue_bytes: u64,
    /// What is written into the recording as its metadata `tags`.
    pub tags: Tags,
    /// What is dropped first when the disk is slower than the robot.
    pub priorities: Priorities,
    /// Whether messages are logged by the robot's own clock, the topic `/clock`: what comes before it is left out, and
    /// counted, except for messages that are kept for late joiners.
    pub sim_time: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            writer: McapWriterOptions {
                profile: "ros2".to_owned(),
                // Half of the second that may be missing after a cut of power; the disk has the other half.
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

/// How important topics are: those of higher numbers are kept when there is no room for all. Without a number, it is 0.
///
/// ```
/// use asof_live::Priorities;
///
/// let priorities = Priorities::new(|topic| if topic.starts_with("/camera") { -1 } else { 0 });
/// assert_eq!((priorities.of("/camera/image"), priorities.of("/odom")), (-1, 0));
/// ```
#[derive(Clone)]
pub struct Priorities(Arc<dyn Fn(&str) -> i32 + Send + Sync>);

impl Priorities {
    /// Priorities by the names of topics.
    pub fn new(of: impl Fn(&str) -> i32 + Send + Sync + 'static) -> Self {
        Priorities(Arc::new(of))
    }

    /// The priority of a topic.
    pub fn of(&self, topic: &str) -> i32 {
        (self.0)(topic)
    }
}

impl Default for Priorities {
    /// All are the same.
    fn default() -> Self {
        Priorities::new(|_| 0)
    }
}

impl fmt::Debug for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Priorities").finish_non_exhaustive()
    }
}
