//! Ballista's log.

use ::log::{Level, LevelFilter, Log, Metadata, Record};

/// The level of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something is wrong.
    Warning,
    /// Something happened.
    Note,
}

/// Passes Ballista's log to a function: warnings, and with `all` everything else. Only the first call counts.
pub fn log_to(all: bool, tell: impl Fn(Severity, &str) + Send + Sync + 'static) {
    let level = if all {
        LevelFilter::Info
    } else {
        LevelFilter::Warn
    };
    if ::log::set_boxed_logger(Box::new(Logger(tell))).is_ok() {
        ::log::set_max_level(level);
    }
}

struct Logger<F>(F);

impl<F: Fn(Severity, &str) + Send + Sync> Log for Logger<F> {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target().starts_with("ballista") || about.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = if record.level() <= Level::Warn {
                Severity::Warning
            } else {
                Severity::Note
            };
            (self.0)(level, &record.args().to_string());
        }
    }

    fn flush(&self) {}
}
