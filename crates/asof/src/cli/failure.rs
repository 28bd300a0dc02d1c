//! How a failure is told: in one line, with what to do; and its exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use super::screen::Screen;

/// A command line that cannot be obeyed: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl Usage {
    pub fn error(message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Usage(message.into()))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Why a verb could not be done.
pub enum Failure {
    /// Whoever was reading has had enough, such as `head`. Nothing is wrong.
    Hangup,
    Usage(anyhow::Error),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let is_hangup = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(is_hangup) {
            Failure::Hangup
        } else if error.is::<Usage>() {
            Failure::Usage(error)
        } else {
            Failure::Other(error)
        }
    }
}

impl Failure {
    pub fn tell(&self, screen: &Screen) -> ExitCode {
        match self {
            Failure::Hangup => ExitCode::SUCCESS,
            Failure::Usage(error) => {
                screen.error(error);
                ExitCode::from(2)
            }
            Failure::Other(error) => {
                screen.error(error);
                ExitCode::FAILURE
            }
        }
    }
}

/// Tells what clap found wrong, in one line like every other error. Help and versions go out as they are.
pub fn of_usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let is_asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_asked_for || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A reader that went away is no failure.
        let _ = error.print();
        return ExitCode::from(if is_asked_for { 0 } else { 2 });
    }
    let _ = writeln!(io::stderr(), "{}", in_one_line(&error.to_string()));
    ExitCode::from(2)
}

/// Clap's paragraphs, without its usage and its last words.
fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    let mut help = "`asof --help`".to_owned();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(usage) = part.strip_prefix("Usage: ") {
            if let Some(verb) = usage.split(' ').nth(1).filter(|verb| is_verb(verb)) {
                help = format!("`asof {verb} --help`");
            }
        } else if !part.starts_with("For more information") {
            if !line.is_empty() {
                line.push_str(if line.ends_with(':') { " " } else { "; " });
            }
            line.push_str(part);
        }
    }
    format!("{line}; see {help}")
}

fn is_verb(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: the following required arguments were not provided:\n  <PLACE>\n\nUsage: asof cat --raw <PLACE>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            in_one_line(text),
            "error: the following required arguments were not provided: <PLACE>; see `asof cat --help`"
        );
    }
}
