//! Playback for recordings and live robots: play, pause, seek, speed, loop, step, follow.
//!
//! A [`Player`] reads through a [`BlockCache`](asof_blocks::BlockCache), which players can share, and hands out
//! messages as they become due. It has no clock of its own: the caller passes the time to [`Player::tick`], so a test
//! can play an hour in a millisecond. A thread reads ahead, as far as the source's bandwidth and the playback speed
//! require. If the source is slower than playback, the player is [`Buffering`](PlayState::Buffering) and resumes by
//! itself; no message is skipped. A growing source is played to its end and then [followed](PlayState::Following).
//!
//! ```
//! use std::time::{Duration, Instant};
//! use asof_blocks::{BlockCache, CacheOptions};
//! use asof_core::Topics;
//! use asof_player::{PlayerEvent, Player};
//! # use std::sync::Arc;
//! # use asof_core::{Channel, FollowEnd, Message, Stamp};
//! # use asof_window::Recent;
//! # let source = Recent::default();
//! # let channel = Arc::new(Channel { topic: "/odom".into(), ..Channel::default() });
//! # for tenth in 0..100 {
//! #     let at = Stamp::from_nanos(tenth * 100_000_000);
//! #     source.push(Message { channel: Arc::clone(&channel), log_time: at, publish_time: at, sequence: 0, payload: "x".into() });
//! # }
//! # source.close(FollowEnd::Complete);
//!
//! // Any source: the result of `asof_formats::open`, a robot, or your own.
//! let cache = BlockCache::new(source, CacheOptions::default());
//! let mut player = Player::new(&cache, Topics::All)?;
//! player.play();
//!
//! // Two seconds of a recording with ten messages a second, by a clock of our own.
//! let start = Instant::now();
//! let mut count = 0;
//! for tick in 0..=20 {
//!     player.wait_ready(Duration::from_secs(10));
//!     for event in player.tick(start + tick * Duration::from_millis(100)) {
//!         if let PlayerEvent::Messages(batch) = event {
//!             count += batch.len();
//!         }
//!     }
//! }
//! assert!((19..=21).contains(&count), "{count}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cursor;
mod event;
mod feed;
mod pace;
mod player;
mod queue;
mod step;

pub use event::{PlayState, PlayerEvent, Speed};
pub use player::Player;

/// The README's examples run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
