//! The prompt: lines become queries, and queries become answers.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::running::{NoAnswer, Session};
use super::statements;
use asof::QueryWords;
use asof::text::counted;

const PROMPT: &str = "asof> ";
/// Before a line that goes on with a query: until its semicolon.
const GOES_ON: &str = " ...> ";

const HELP: &str = "\
A query ends with a semicolon, and may have several lines. Tab completes tables and columns.
  \\d         the topics, their types and how many messages they have
  \\d TABLE   the columns of a table
  \\timing    say how long each query takes, or stop saying so
  \\?         this
  \\q         leave (Ctrl-D)
Ctrl-C ends a query that runs.";

/// Reads queries and answers them, until the user leaves.
pub fn run(session: &Session<'_>) -> anyhow::Result<()> {
    let mut editor: Editor<Hand, FileHistory> =
        Editor::new().context("cannot read from this terminal")?;
    editor.set_helper(Some(Hand(QueryWords::of(session.database))));
    let history = history_file();
    if let Some(file) = &history {
        // The first time there is no history.
        let _ = editor.load_history(file);
    }
    let tables = session.database.tables().len() as u64;
    session.screen.note(format_args!(
        "{}; \\? lists the commands",
        counted(tables, "table")
    ));
    let (mut is_timed, mut text) = (false, String::new());
    loop {
        match editor.readline(if text.is_empty() { PROMPT } else { GOES_ON }) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
                if !is_whole(&text) {
                    continue;
                }
                let whole = std::mem::take(&mut text);
                let _ = editor.add_history_entry(whole.trim());
                if !obey(session, &whole, &mut is_timed)? {
                    break;
                }
            }
            // Discards what was typed, not the prompt.
            Err(ReadlineError::Interrupted) => text.clear(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("cannot read from this terminal"),
        }
    }
    if let Some(file) = &history
        && let Some(folder) = file.parent()
        && std::fs::create_dir_all(folder).is_ok()
        && let Err(error) = editor.save_history(file)
    {
        session.screen.note(format_args!(
            "the history is not kept in {}: {error}",
            file.display()
        ));
    }
    Ok(())
}

/// Executes a line; returns whether to go on.
fn obey(session: &Session<'_>, text: &str, is_timed: &mut bool) -> anyhow::Result<bool> {
    let text = text.trim();
    match text.trim_end_matches(';').trim() {
        "" => {}
        "\\q" | "exit" | "quit" => return Ok(false),
        "\\?" | "\\h" | "help" => println!("{HELP}"),
        "\\timing" => {
            *is_timed = !*is_timed;
            println!("timing is {}", if *is_timed { "on" } else { "off" });
        }
        command if command.starts_with('\\') => told(session, session.obey(command).map(drop))?,
        _ => {
            for query in statements::all(text) {
                let start = Instant::now();
                told(session, session.obey(query).map(drop))?;
                if *is_timed {
                    println!("{:.3} s", start.elapsed().as_secs_f64());
                }
            }
        }
    }
    Ok(true)
}

/// A failed query does not end the prompt; a closed terminal does.
fn told(session: &Session<'_>, result: anyhow::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.is::<std::io::Error>() => Err(error),
        Err(error) => {
            if !error.is::<NoAnswer>() {
                session.screen.error(&error);
            }
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The file of the history.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")))?;
    Some(state.join("asof/sql_history"))
}

/// Completion while a line is typed.
struct Hand(QueryWords);

impl Helper for Hand {}

impl Highlighter for Hand {}

impl Hinter for Hand {
    type Hint = String;
}

impl Completer for Hand {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.complete(line, cursor))
    }
}

impl Validator for Hand {}

/// Whether the statement is complete; otherwise another line is read.
fn is_whole(text: &str) -> bool {
    let trimmed = text.trim();
    let is_word = ["exit", "quit", "help"].contains(&trimmed);
    trimmed.starts_with('\\') || is_word || statements::is_blank(statements::split(text).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_goes_on_until_its_semicolon() {
        for whole in [
            "",
            "\\d",
            "quit",
            "SELECT 1;",
            "SELECT ';'\n;",
            "SELECT 1; -- done",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for begun in [
            "SELECT 1",
            "SELECT ';",
            "SELECT 1; SELECT",
            "-- a; b\nSELECT",
        ] {
            assert!(!is_whole(begun), "{begun}");
        }
    }
}
