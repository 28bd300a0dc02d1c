//! The severity of log messages, in one scale for all systems.

use std::fmt;
use std::str::FromStr;

use crate::Archetype;

/// The severity of a log message. ROS 1, ROS 2 and Foxglove each have their own numbers for these.
///
/// ```
/// use asof_decode::LogLevel;
///
/// assert_eq!(LogLevel::of("rcl_interfaces/msg/Log", 40), Some(LogLevel::Error));
/// assert_eq!(LogLevel::of("rosgraph_msgs/Log", 8), Some(LogLevel::Error));
/// assert!(LogLevel::Fatal > LogLevel::Error);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For debugging.
    Debug,
    /// Normal operation.
    Info,
    /// A possible problem.
    Warn,
    /// An error.
    Error,
    /// An error that ends the program.
    Fatal,
}

/// Every level with its name.
const NAMES: [(&str, LogLevel); 5] = [
    ("debug", LogLevel::Debug),
    ("info", LogLevel::Info),
    ("warn", LogLevel::Warn),
    ("error", LogLevel::Error),
    ("fatal", LogLevel::Fatal),
];

impl LogLevel {
    /// The level of a number in a type of log messages; `None` for other types, and for numbers below all levels. A
    /// number between two levels is the lower of them.
    pub fn of(type_name: &str, number: i64) -> Option<Self> {
        let archetype = Archetype::of(type_name).filter(|archetype| archetype.name == "Log")?;
        let package = type_name.split(['/', '.', ':']).next().unwrap_or_default();
        debug_assert!(!archetype.paths_of("level").is_empty());
        let numbers: [i64; 5] = match package {
            "rcl_interfaces" => [10, 20, 30, 40, 50],
            "rosgraph_msgs" => [1, 2, 4, 8, 16],
            _ => [1, 2, 3, 4, 5],
        };
        let reached = numbers.iter().filter(|least| number >= **least).count();
        reached.checked_sub(1).map(|at| NAMES[at].1)
    }
}

/// Why text is not a log level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a log level: use debug, info, warn, error or fatal")]
pub struct LogLevelError(String);

impl FromStr for LogLevel {
    type Err = LogLevelError;

    fn from_str(text: &str) -> Result<Self, LogLevelError> {
        let name = text.to_ascii_lowercase();
        let name = if name == "warning" { "warn" } else { &name };
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, level)| *level)
            .ok_or_else(|| LogLevelError(text.to_owned()))
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.iter().find(|(_, level)| level == self);
        f.write_str(known.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_each_system_are_understood() {
        for (type_name, numbers) in [
            ("rcl_interfaces/msg/Log", [10, 20, 30, 40, 50]),
            ("rosgraph_msgs/Log", [1, 2, 4, 8, 16]),
            ("foxglove.Log", [1, 2, 3, 4, 5]),
            ("foxglove_msgs/msg/Log", [1, 2, 3, 4, 5]),
        ] {
            let levels = numbers.map(|number| LogLevel::of(type_name, number));
            assert_eq!(levels, NAMES.map(|(_, level)| Some(level)), "{type_name}");
        }
        assert_eq!(
            LogLevel::of("rcl_interfaces/msg/Log", 45),
            Some(LogLevel::Error)
        );
        assert_eq!(LogLevel::of("rcl_interfaces/msg/Log", 0), None);
        assert_eq!(LogLevel::of("std_msgs/msg/String", 40), None);
    }

    #[test]
    fn levels_are_read_by_their_names() {
        assert_eq!("WARNING".parse(), Ok(LogLevel::Warn));
        for (name, level) in NAMES {
            assert_eq!(name.parse(), Ok(level));
            assert_eq!(level.to_string(), name);
        }
        let error = "loud".parse::<LogLevel>().expect_err("not a level");
        assert!(error.to_string().contains("fatal"), "{error}");
    }
}
