//! `asof cat zenoh://…`: messages as they come, decoded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use asof_core::Batch;

use super::Connection;
use super::robot::TICK;
use crate::cli::Outcome;
use crate::cli::lines::{Lines, Style};
use crate::cli::numbers::counted;
use crate::cli::screen::{Screen, output};
use crate::cli::select::Patterns;

/// So many messages may wait to be printed; what comes then is dropped and counted.
const WAITING: usize = 4096;
/// So long a type may take to be described.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints the messages of a running robot until the limit, or until it is told to stop.
pub fn cat(
    place: &Path,
    topics: Option<Patterns>,
    msg_path: &[PathBuf],
    style: Style,
    limit: Option<u64>,
    screen: &Screen,
) -> anyhow::Result<Outcome> {
    let connection = Connection {
        url: place.display().to_string(),
        topics,
        key: Vec::new(),
        msg_path: msg_path.to_vec(),
        duration: None,
    };
    let mut session = connection.open(screen)?;
    let dropped = Arc::new(AtomicU64::new(0));
    let (sender, samples) = mpsc::sync_channel(WAITING);
    let count = Arc::clone(&dropped);
    let _subscription = session
        .robot
        .subscribe(connection.chooser(), move |sample| {
            if sender.try_send(sample).is_err() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    let mut lines = Lines::new(output(), style);
    let mut left = limit.unwrap_or(u64::MAX);
    while session.is_open() && left > 0 {
        let sample = match samples.recv_timeout(TICK) {
            Ok(sample) => sample,
            Err(RecvTimeoutError::Timeout) => {
                session.tell(screen);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let patience = Instant::now() + PATIENCE;
        while !sample.is_settled() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let one: Batch = std::iter::once(sample.to_message()).collect();
        one.iter().try_for_each(|message| lines.write(message))?;
        lines.flush()?;
        left -= 1;
    }
    let has_damage = lines.finish(screen)?;
    let dropped = dropped.load(Ordering::Relaxed);
    if dropped > 0 {
        let dropped = counted(dropped, "message");
        screen.warning(format_args!(
            "{dropped} left out: they came faster than they could be printed"
        ));
    }
    Ok(if has_damage {
        Outcome::Damaged
    } else {
        Outcome::Done
    })
}
