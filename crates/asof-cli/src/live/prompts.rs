//! Requests to a running recorder: lines on the terminal, and a signal.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 10_000;

/// A request.
pub enum Prompt {
    /// The enter key alone: take a snapshot now.
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
    /// Starts listening. Lines are read only from a terminal: piped input is for other programs.
    pub fn listen() -> Self {
        let signal = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        if let Err(error) =
            signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&signal))
        {
            tracing::warn!("cannot listen for SIGUSR1: {error}");
        }
        let is_terminal = std::io::stdin().is_terminal();
        Prompts {
            lines: is_terminal.then(read_lines),
            signal,
        }
    }

    /// Whether standard input is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.lines.is_some()
    }

    /// The requests since the last call, one after another.
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

/// The thread ends with the program: nothing interrupts its wait for a line.
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
        tracing::warn!("cannot read lines: {error}");
    }
    received
}
