//! What a person or another program says to a recorder that runs: lines on the terminal, and a signal.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

/// Longer lines are cut.
const MAX_LINE_BYTES: usize = 10_000;

/// What was said.
pub enum Prompt {
    /// The enter key alone: now.
    Now,
    /// A line of text.
    Line(String),
    /// SIGUSR1.
    Signal,
}

/// Listens for lines and signals.
pub struct Prompts {
    lines: Option<Receiver<String>>,
    signal: Arc<AtomicBool>,
}

impl Prompts {
    /// Begins to listen. Lines are read of a terminal alone: what is piped in is for others.
    pub fn listen() -> Self {
        let signal = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        if let Err(error) =
            signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&signal))
        {
            tracing::warn!("SIGUSR1 cannot be listened for: {error}");
        }
        let is_terminal = std::io::stdin().is_terminal();
        Prompts {
            lines: is_terminal.then(read_lines),
            signal,
        }
    }

    /// Whether a person may type.
    pub fn is_terminal(&self) -> bool {
        self.lines.is_some()
    }

    /// What was said since the last time, one after another.
    pub fn next(&self) -> Option<Prompt> {
        if self.signal.swap(false, Ordering::Relaxed) {
            return Some(Prompt::Signal);
        }
        let line = self.lines.as_ref()?.try_recv().ok()?;
        let line = line.trim();
        Some(if line.is_empty() {
            Prompt::Now
        } else {
            Prompt::Line(line.chars().take(MAX_LINE_BYTES).collect())
        })
    }
}

/// The thread ends with the program: nothing wakes it from its wait for a line.
fn read_lines() -> Receiver<String> {
    let (lines, received) = mpsc::channel();
    let started = std::thread::Builder::new()
        .name("asof-lines".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else {
                    return;
                };
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
    if let Err(error) = started {
        tracing::warn!("lines are not read: {error}");
    }
    received
}
