//! Windows of messages decoded into your own structs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asof_core::Channel;
use asof_decode::TypedDecoder;
use asof_window::{Bounds, Window};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::window::Filling;
use crate::{LiveError, LiveWindow, Robot, Sample};

/// How long a topic that is not published yet is waited for.
const TOPIC_TIMEOUT: Duration = Duration::from_secs(5);
/// At most this many messages are in a window of structs, and at most this many bytes: decoded pictures are large.
const CAPACITY: usize = 1_000;
const MOST_BYTES: u64 = 256 << 20;

impl Robot {
    /// Keeps the newest 1,000 messages of a topic, or those of the newest 256 MiB where they are larger, decoded into a struct with serde's `Deserialize`.
    ///
    /// The struct names the fields to decode; it is checked against the definition of the topic's type when the window
    /// is created. Messages are indexed by the stamp of their header where the type has one, and by the publisher's
    /// time elsewhere.
    ///
    /// ```no_run
    /// #[derive(serde::Deserialize)]
    /// struct Imu {
    ///     angular_velocity: [f64; 3],
    /// }
    ///
    /// let robot = asof_live::connect("zenoh://192.168.1.5:7447")?;
    /// let imu = robot.window::<Imu>("/imu/data")?;
    /// imu.wait_for_change(std::time::Duration::from_secs(1))?;
    /// if let Some(newest) = imu.newest() {
    ///     println!("{} rad/s about z at {}", newest.angular_velocity[2], newest.stamp);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the topic is not published within five seconds, its type has no definition, or a field of the struct does
    /// not fit: the error names the field.
    pub fn window<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        topic: &str,
    ) -> Result<LiveWindow<T>, LiveError> {
        self.window_within::<T>(topic, Bounds::count(CAPACITY).and_bytes(MOST_BYTES))
    }

    /// The same, with other bounds. A message weighs its struct and its payload, which what the struct points to is decoded
    /// from.
    ///
    /// # Errors
    /// As [`Robot::window`].
    pub fn window_within<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        topic: &str,
        bounds: Bounds,
    ) -> Result<LiveWindow<T>, LiveError> {
        let channel = self.described_topic(topic)?;
        let fitted = TypedDecoder::<T>::new(&channel)?;
        let decoder = Mutex::new((channel, fitted));
        let make = move |sample: Sample| {
            let stamp = sample.header_stamp().or(sample.source);
            let mut decoder = decoder.lock();
            // A publisher may come back with another definition.
            let channel = sample
                .settled()
                .unwrap_or_else(|| Arc::clone(&sample.channel));
            if !Arc::ptr_eq(&channel, &decoder.0) && channel.schema != decoder.0.schema {
                let fitted = TypedDecoder::<T>::new(&channel).map_err(|error| error.to_string())?;
                *decoder = (channel, fitted);
            }
            let payload = sample.payload.bytes();
            let decoded = decoder.1.decode(&payload);
            let value = decoded.map_err(|error| error.to_string())?;
            Ok(Filling {
                stamp,
                value,
                bytes: (size_of::<T>() + payload.len()) as u64,
            })
        };
        LiveWindow::filled(self, topic, Window::new(bounds), make)
    }

    /// The channel of a topic, with the definition of its type.
    fn described_topic(&self, topic: &str) -> Result<Arc<Channel>, LiveError> {
        let deadline = Instant::now() + TOPIC_TIMEOUT;
        let found = self.wait_for_topic(topic, TOPIC_TIMEOUT);
        let Some(publisher) = found.and_then(|topic| topic.publishers.first().cloned()) else {
            let known = self.topics().into_iter().map(|topic| topic.name);
            return Err(LiveError::NoSuchTopic {
                topic: topic.to_owned(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        };
        loop {
            if let Some(channel) = publisher.described.settled() {
                return Ok(channel);
            }
            if Instant::now() >= deadline {
                return Ok(publisher.described.known().channel);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
