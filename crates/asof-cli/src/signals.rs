//! Ctrl-C, and other signals that ask the program to end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a verb has installed a handler.
static IS_ARRANGED: AtomicBool = AtomicBool::new(false);

/// Calls `act` on a thread of its own for each signal that asks the program to end. It receives the exit code that tells a
/// shell which one it was: 130 for Ctrl-C, 143 for SIGTERM. The first caller wins: `false` for others.
///
/// # Errors
/// When the system refuses to deliver signals.
pub fn on_end(act: impl Fn(i32) + Send + 'static) -> io::Result<bool> {
    if IS_ARRANGED.swap(true, Ordering::Relaxed) {
        return Ok(false);
    }
    listen(act)?;
    Ok(true)
}

/// From here on an interrupt removes temporary files: unfinished ones, and those that
/// recordings were unpacked into.
pub fn clean_up_on_interrupt() {
    // A verb that has installed its own handler keeps it.
    let _ = on_end(|code| {
        asof::files::remove_unfinished();
        std::process::exit(code);
    });
}

#[cfg(unix)]
fn listen(act: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let thread = std::thread::Builder::new().name("asof-signals".to_owned());
    thread.spawn(move || signals.forever().for_each(|signal| act(128 + signal)))?;
    Ok(())
}

#[cfg(not(unix))]
fn listen(act: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    ctrlc::set_handler(move || act(130)).map_err(io::Error::other)
}
