//! How a failure is reported: in one line, with a way on; and its exit code.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use asof::catalogue::NamePattern;
use asof::{Source as _, SourceError};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Outcome;
use super::screen::Screen;
use asof::text::shown;

/// A command line that cannot be executed: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

impl Usage {
    pub fn error(message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Usage(message.into()))
    }
}

/// Why a verb failed.
pub enum Failure {
    /// The reader of the output has closed it, such as `head`. Nothing is wrong.
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
        } else if let Some(topic) = meant_topic(&error) {
            let line = format!("{error}; for a topic: --topics {topic}");
            Failure::Usage(error.context(line))
        } else if is_usage(&error) {
            Failure::Usage(error)
        } else if let Some(cause) = error.chain().next().and_then(|error| {
            let own = error.downcast_ref::<io::Error>();
            own.or(match error.downcast_ref() {
                Some(asof::Error::Io(cause)) => Some(cause),
                _ => None,
            })
        }) {
            // Every other system error has context of its own.
            let line = format!("cannot write to the output: {cause}; is the disk full?");
            Failure::Other(error.context(line))
        } else {
            Failure::Other(error)
        }
    }
}

/// What a place that does not exist was meant as: a topic of about this name, or a glob of topics, of a recording beside it.
fn meant_topic(error: &anyhow::Error) -> Option<String> {
    let Some(SourceError::Io { place, cause, .. }) = error.downcast_ref() else {
        return None;
    };
    let words = super::words();
    if cause.kind() != io::ErrorKind::NotFound || !words.iter().any(|word| word == place.as_str()) {
        return None;
    }
    let files = words
        .iter()
        .skip(1)
        .map(Path::new)
        .filter(|word| word.is_file());
    let meant_in = |file: &Path| {
        let summary = asof::formats::open(file).ok()?.summary();
        let topics = summary.topics();
        let pattern = NamePattern::new(place);
        let is_glob = !pattern.is_exact() && topics.iter().any(|topic| pattern.is_match(topic));
        let topic = asof::spelling::nearest(place, topics);
        let meant = if is_glob { Some(place.as_str()) } else { topic };
        meant.map(str::to_owned)
    };
    files.into_iter().find_map(meant_in)
}

/// Whether the command line is wrong: an option that cannot be followed, or a name that nothing has.
fn is_usage(error: &anyhow::Error) -> bool {
    use asof::tf::LookupError;
    #[cfg(feature = "sql")]
    if let Some(asof::sql::SqlError::Query { .. } | asof::sql::SqlError::NotReading(_)) =
        error.downcast_ref()
    {
        return true;
    }
    #[cfg(feature = "live")]
    if let Some(asof::live::LiveError::Address(_)) = error.downcast_ref() {
        return true;
    }
    error.is::<Usage>()
        || error.downcast_ref().is_some_and(is_misnamed)
        || matches!(error.downcast_ref(), Some(LookupError::UnknownFrame { .. }))
}

/// Whether an option is wrong, or names something that is not there.
fn is_misnamed(error: &asof::Error) -> bool {
    use asof::Error;
    use asof::align::AlignError;
    use asof::catalogue::CatalogueError;
    use asof::decode::RowsError;
    use asof::lerobot::LerobotError;
    match error {
        Error::Option(_)
        | Error::Path(_)
        | Error::Catalogue(CatalogueError::UnknownRecording { .. }) => true,
        Error::In { cause, .. } => is_misnamed(cause),
        Error::Rows(rows) | Error::Align(AlignError::Rows(rows)) => {
            matches!(rows, RowsError::NoSuchTopic { .. } | RowsError::Path { .. })
        }
        Error::Lerobot(error) => matches!(
            error,
            LerobotError::NoTopic { .. } | LerobotError::NoPath { .. }
        ),
        _ => false,
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

/// Failures of some of several places: one bad place does not stop the others. All but the last
/// are reported on the way; the last is returned by the verb.
#[derive(Default)]
pub struct Failures(Option<anyhow::Error>);

impl Failures {
    pub fn add(&mut self, error: anyhow::Error, screen: &Screen) {
        if let Some(earlier) = self.0.replace(error) {
            screen.error(&earlier);
        }
    }

    /// The outcome, if nothing went wrong.
    pub fn or(self, outcome: Outcome) -> anyhow::Result<Outcome> {
        self.0.map_or(Ok(outcome), Err)
    }
}

/// Prints clap's error in one line like every other error. Help and versions are printed unchanged.
pub fn of_usage(error: &clap::Error) -> ExitCode {
    let is_asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_asked_for || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed output is not a failure.
        let _ = error.print();
        return ExitCode::from(if is_asked_for { 0 } else { 2 });
    }
    let mut line = in_one_line(&error.to_string());
    if let Some(verb) = meant(error) {
        let _ = write!(line, "; did you mean '{verb}'?");
    }
    let help = match verb() {
        Some(verb) => format!("asof {verb} --help"),
        None => "asof --help".to_owned(),
    };
    let _ = writeln!(io::stderr(), "{}; see `{help}`", shown(&line));
    ExitCode::from(2)
}

/// Clap's paragraphs, without its usage and its closing hint.
fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    let is_told = |part: &&str| {
        !part.is_empty()
            && !part.starts_with("Usage: ")
            && !part.starts_with("For more information")
    };
    for part in text.lines().map(str::trim).filter(is_told) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part);
    }
    line
}

/// The verb meant by a mistyped one. Clap finds those that begin alike, but not transposed letters.
fn meant(error: &clap::Error) -> Option<String> {
    let is_seen = error.get(ContextKind::SuggestedSubcommand).is_some();
    if error.kind() != ErrorKind::InvalidSubcommand || is_seen {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let cli = super::Cli::command();
    let verbs: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    asof::spelling::nearest(word, verbs).map(str::to_owned)
}

/// The verb on the command line, as far as it can be determined.
fn verb() -> Option<String> {
    let cli = super::Cli::command();
    let is_verb = |word: &String| cli.find_subcommand(word).is_some();
    let words = super::words().into_iter().skip(1);
    words
        .filter_map(|word| word.into_string().ok())
        .find(is_verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: the following required arguments were not provided:\n  <PLACE>\n\nUsage: asof cat --raw <PLACE>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            in_one_line(text),
            "error: the following required arguments were not provided: <PLACE>"
        );
    }
}
