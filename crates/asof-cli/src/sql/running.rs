//! Queries over the named places.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use asof::Source;
use asof::sql::{Database, FleetPlace, OwnTable, SqlError, SqlOptions, TextPlace, Waited};

use super::answers::{Answer, Form, to_file};
use super::{Sql, prompt, statements};
use crate::Outcome;
use crate::cat::tell_problems;
use crate::failure::Usage;
use crate::fleet::{CataloguePlace, fleet_of};
use crate::place::{Opening, Purpose, TopicRequest, shown_place};
use crate::screen::Screen;
use crate::signals;
use asof::export::Container;
use asof::files::{note_input, remove_unfinished};
use asof::in_quotes;
use asof::is_address;
use asof::text::{counted, shown};

/// How often a running query is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Sql {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let (places, query) = self.places_and_query()?;
        let interrupts = Interrupts::listen()?;
        let places: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
        let Places {
            recordings,
            fleets,
            is_short,
        } = opened(&places, &self.catalogue, &self.opening, screen)?;
        let only = if fleets.is_empty() && recordings.len() == 1 {
            recordings.first()
        } else {
            None
        };
        let options = SqlOptions {
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            fleets,
            tables: own_tables(&self.table)?,
            ..SqlOptions::default()
        };
        let database = match &self.cluster {
            None => Database::new(
                recordings.iter().map(NamedRecording::named).collect(),
                options,
            )?,
            #[cfg(feature = "cluster")]
            Some(cluster) => super::clustered::database(
                cluster,
                &self.token,
                &recordings,
                &self.opening,
                options,
            )?,
            #[cfg(not(feature = "cluster"))]
            Some(_) => {
                return Err(anyhow!(asof::text::absent("cluster", "cluster")));
            }
        };
        let session = Session {
            database: &database,
            form: self.form(),
            screen,
            interrupts: &interrupts,
        };
        let texts = match query {
            Some(query) => query,
            None if std::io::stdin().is_terminal() => {
                prompt::run(&session)?;
                return Ok(session.outcome(only, is_short));
            }
            None => {
                let mut text = String::new();
                std::io::stdin()
                    .read_to_string(&mut text)
                    .context("cannot read queries from standard input")?;
                text
            }
        };
        let queries = statements::all(&texts);
        if queries.is_empty() {
            return Err(Usage::error(
                "there is no query; write one after the places, such as 'SELECT * FROM topics'",
            ));
        }
        if queries.len() > 1 && matches!(self.form(), Form::File(..) | Form::ArrowStream) {
            return Err(Usage::error(format!(
                "an output file is for one query, and there are {}",
                queries.len()
            )));
        }
        for query in queries {
            match session.obey(query) {
                Ok(QueryEnd::Whole) => {}
                Ok(QueryEnd::Interrupted) => return Ok(Outcome::Interrupted),
                Err(error) if error.is::<NoAnswer>() => return Ok(Outcome::Misnamed),
                Err(error) => return Err(error),
            }
        }
        Ok(session.outcome(only, is_short))
    }

    /// The places, and the query given with them.
    fn places_and_query(&self) -> anyhow::Result<(&[String], Option<String>)> {
        if let Some(file) = &self.file {
            let text = std::fs::read_to_string(file);
            note_input(file);
            let text = text.with_context(|| format!("cannot read {}", file.display()))?;
            return Ok((&self.words, Some(text)));
        }
        let Some((last, places)) = self.words.split_last() else {
            return Ok((&[], None));
        };
        if !is_query(last) {
            return Ok((&self.words, None));
        }
        if places.is_empty() {
            return Err(Usage::error(
                "name a recording before the query: asof sql run.mcap 'SELECT …'",
            ));
        }
        Ok((places, Some(last.clone())))
    }

    fn form(&self) -> Form {
        match (&self.parquet, &self.arrow) {
            (Some(path), _) => to_file(Container::Parquet, path, self.force),
            (_, Some(path)) => to_file(Container::Arrow, path, self.force),
            _ if self.json => Form::Json,
            _ if self.csv => Form::Csv,
            _ => Form::Table,
        }
    }
}

/// The tables of `--table NAME=FILE`.
fn own_tables(given: &[String]) -> anyhow::Result<BTreeMap<String, OwnTable>> {
    let mut tables = BTreeMap::new();
    for word in given {
        let Some((name, file)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Usage::error(format!(
                "--table is a name and a file, such as labels=labels.parquet, not '{word}'"
            )));
        };
        if tables
            .insert(name.to_owned(), asof::own_table(file)?)
            .is_some()
        {
            return Err(Usage::error(format!("--table names '{name}' twice")));
        }
    }
    Ok(tables)
}

/// A named recording.
#[derive(Clone)]
pub struct NamedRecording {
    /// Its name in rows.
    pub name: String,
    /// Its address.
    #[cfg_attr(
        not(feature = "cluster"),
        allow(dead_code, reason = "only other processes use it")
    )]
    pub place: PathBuf,
    pub recording: Arc<dyn Source>,
}

impl NamedRecording {
    pub fn named(&self) -> (String, Arc<dyn Source>) {
        (self.name.clone(), Arc::clone(&self.recording))
    }
}

/// Opened places.
pub struct Places {
    pub recordings: Vec<NamedRecording>,
    pub fleets: Vec<FleetPlace>,
    /// Whether recordings could not be read, which was reported.
    pub is_short: bool,
}

/// The places as recordings, each with its name in rows, and as catalogues, of which only the recordings that a query needs are
/// opened. A folder or bucket is many recordings, with a catalogue and without.
pub fn opened(
    places: &[PathBuf],
    catalogue: &CataloguePlace,
    opening: &Opening,
    screen: &Screen,
) -> anyhow::Result<Places> {
    let mut fleets = Vec::new();
    let mut is_short = false;
    // Each with how many others its place has.
    let mut each: Vec<(PathBuf, usize)> = Vec::new();
    for place in places {
        note_input(place);
        if let Some((fleet, is_whole)) = fleet_of(place, catalogue, opening, screen)? {
            fleets.push(fleet);
            is_short |= !is_whole;
            continue;
        }
        if catalogue.is_named() {
            return Err(anyhow!(
                "there is no catalogue of {} in the folder of --catalogue; make one with `asof index`",
                shown_place(place)
            ));
        }
        let (below, problems) = catalogue.each_recording(std::slice::from_ref(place), screen)?;
        is_short |= problems;
        let others = below.len() - 1;
        each.extend(below.into_iter().map(|one| (one, others)));
    }
    let mut recordings: Vec<NamedRecording> = Vec::new();
    let mut failed = None;
    for ((place, others), opened) in each.iter().zip(open_each(&each, opening, screen)) {
        let name = shown_place(place);
        let recording = match opened {
            Ok(recording) => recording,
            // One of many that cannot be read does not hide the others.
            Err(error) if *others > 0 => {
                is_short = true;
                screen.warning(format_args!("{name} was left out: {error:#}"));
                failed = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut name = name;
        while recordings.iter().any(|known| known.name == name) {
            name.push('\'');
        }
        recordings.push(NamedRecording {
            name,
            place: place.clone(),
            recording: Arc::from(recording),
        });
    }
    match failed {
        Some(error) if recordings.is_empty() && fleets.is_empty() => Err(error),
        _ => Ok(Places {
            recordings,
            fleets,
            is_short,
        }),
    }
}

/// How many recordings are opened at once: over a network each waits for requests.
const OPENED_AT_ONCE: usize = 16;

/// Opens recordings, several at once.
fn open_each(
    each: &[(PathBuf, usize)],
    opening: &Opening,
    screen: &Screen,
) -> Vec<anyhow::Result<Box<dyn Source>>> {
    let open = |(place, _): &(PathBuf, usize)| {
        let only = std::slice::from_ref(place);
        opening.open(only, &TopicRequest::all(), Purpose::LookInSlices, screen)
    };
    if each.len() == 1 {
        return each.iter().map(open).collect();
    }
    let (next, opened) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..OPENED_AT_ONCE.min(each.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = each.get(number) else { break };
                    let recording = open(one);
                    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
                    opened.insert(number, recording);
                }
            });
        }
    });
    let opened = opened.into_inner().unwrap_or_else(PoisonError::into_inner);
    opened.into_values().collect()
}

/// Whether the last argument is a query: anything that is not a place and contains a space, or starts like a query.
fn is_query(word: &str) -> bool {
    let path = Path::new(word);
    if is_address(path) || path.exists() {
        return false;
    }
    let first: String = word
        .trim_start_matches(|c: char| c.is_whitespace() || c == '(')
        .chars()
        .take_while(char::is_ascii_alphabetic)
        .collect();
    let starts = [
        "select", "with", "show", "describe", "desc", "explain", "values", "table",
    ];
    let is_start = starts.contains(&first.to_ascii_lowercase().as_str());
    word.contains(char::is_whitespace) || is_start || word.starts_with('\\')
}

/// How a query ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryEnd {
    Whole,
    Interrupted,
}

/// The queries of one user.
pub struct Session<'a> {
    pub database: &'a Database,
    pub form: Form,
    pub screen: &'a Screen,
    pub interrupts: &'a Interrupts,
}

impl Session<'_> {
    /// Answers a query, or executes a line with a backslash.
    pub fn obey(&self, statement: &str) -> anyhow::Result<QueryEnd> {
        let statement = statement.trim();
        let words = statement.split_whitespace();
        if statement.starts_with('\\') {
            self.command(statement)
        } else if words.map(str::to_lowercase).eq(["show", "tables"]) {
            self.answer_as(&self.listing()?, &self.form)
        } else {
            self.answer_as(statement, &self.form)
        }
    }

    /// `\d` lists the tables, `\d odom` the columns of one.
    fn command(&self, line: &str) -> anyhow::Result<QueryEnd> {
        let (command, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = name.trim().trim_end_matches(';').trim_matches('"');
        match (command.trim_end_matches(';'), name) {
            ("\\d", "") => self.answer_as(&self.listing()?, &Form::Table),
            ("\\d", name) => {
                let quoted = name.replace('"', "\"\"");
                self.answer_as(&format!("DESCRIBE \"{quoted}\""), &Form::Table)
            }
            (other, _) => Err(Usage::error(format!(
                "there is no command {other}; there are \\d, \\d TABLE, \\timing, \\? and \\q"
            ))),
        }
    }

    /// The query that lists the tables: each topic once, with its plain name beside it, then the tables about the recordings. What it
    /// lists is in it: of a large catalogue, `topics` has millions of rows.
    fn listing(&self) -> anyhow::Result<String> {
        let tables = self.database.tables();
        let topics = self.database.topics()?;
        let is_table = |name: &String| tables.contains(name);
        let plain: BTreeMap<String, &String> = tables
            .iter()
            .map(|topic| (plain_name(topic), topic))
            .filter(|(plain, topic)| plain != *topic && is_table(plain))
            .collect();
        let alias_of: BTreeMap<&String, &String> =
            plain.iter().map(|(plain, topic)| (*topic, plain)).collect();
        let text = |name: &str| format!("'{}'", name.replace('\'', "''"));
        let or_null = |text: Option<String>| text.unwrap_or_else(|| "NULL".to_owned());
        let rows = tables.iter().filter(|name| !plain.contains_key(*name));
        let rows = rows.map(|name| {
            let alias = or_null(alias_of.get(name).map(|plain| text(plain)));
            let topic = topics.get(name);
            let kind = or_null(topic.map(|topic| text(&topic.type_name)));
            let messages = topic.and_then(|topic| topic.messages);
            let messages = or_null(messages.map(|messages| messages.to_string()));
            let name = (text(name), text(&in_quotes(name)));
            format!("({}, {}, {alias}, {kind}, {messages})", name.0, name.1)
        });
        Ok(format!(
            "SELECT name AS \"table\", alias, type, arrow_cast(messages, 'UInt64') AS messages \
             FROM (VALUES {}) AS n(topic, name, alias, type, messages) \
             ORDER BY type IS NULL, topic",
            rows.collect::<Vec<_>>().join(", ")
        ))
    }

    fn answer_as(&self, sql: &str, form: &Form) -> anyhow::Result<QueryEnd> {
        let running = self.interrupts.running();
        let mut rows = self
            .database
            .query(sql)
            .map_err(|error| self.explained(error, sql))?;
        let progress = self.screen.progress(0, "{elapsed}  {pos} messages read");
        let before = self.database.messages_read();
        let mut answer = Answer::start(form, &rows.schema())?;
        loop {
            match rows.wait(POLL_INTERVAL) {
                Waited::Rows(batch) => {
                    let batch = batch.map_err(|error| self.explained(error, sql))?;
                    progress.suspend(|| answer.write(batch))?;
                }
                Waited::Nothing => progress.set_position(self.database.messages_read() - before),
                Waited::End => break,
            }
            if running.is_interrupted() {
                progress.finish_and_clear();
                self.screen.note("interrupted");
                return Ok(QueryEnd::Interrupted);
            }
        }
        progress.finish_and_clear();
        if let Some((path, count)) = answer.finish()? {
            let what = counted(count, "row");
            self.screen
                .note(format_args!("{what} in {}", path.display()));
        }
        Ok(QueryEnd::Whole)
    }

    /// The error; on a terminal with the line of the query that it is about.
    fn explained(&self, error: SqlError, sql: &str) -> anyhow::Error {
        let pointed = match &error {
            SqlError::Query {
                place: Some(place), ..
            } if std::io::stderr().is_terminal() => pointer(sql, *place),
            _ => None,
        };
        match pointed {
            Some(pointed) => {
                self.screen.error(&error.into());
                eprintln!("{pointed}");
                anyhow::Error::new(NoAnswer)
            }
            None => match error {
                error @ SqlError::Memory(_) => anyhow!("{error}: --memory 4G"),
                error => error.into(),
            },
        }
    }

    /// Reports the problems of the recordings found so far.
    fn outcome(&self, only: Option<&NamedRecording>, is_short: bool) -> Outcome {
        let mut outcome = if is_short {
            Outcome::Damaged
        } else {
            Outcome::Done
        };
        if let Some(only) = only {
            let problems = &only.recording.summary().problems;
            if !problems.is_empty() {
                outcome = Outcome::Damaged;
                tell_problems(problems, self.screen);
            }
        } else {
            for (name, problems) in self.database.recordings_used() {
                if let Some(first) = problems.first() {
                    outcome = Outcome::Damaged;
                    let more = counted(problems.len() as u64, "problem");
                    self.screen
                        .warning(format_args!("{name} is damaged ({more}): {first}"));
                }
            }
        }
        for (name, why) in self.database.left_out() {
            outcome = Outcome::Damaged;
            self.screen
                .warning(format_args!("{name} was left out: {why}"));
        }
        let (count, topics) = self.database.undecoded();
        for (topic, first) in &topics {
            outcome = Outcome::Damaged;
            let (at, reason) = (first.log_time, &first.reason);
            self.screen.warning(format_args!(
                "{topic} has messages that are not decoded, {} over all topics; the first: at {at}, {reason}",
                counted(count, "message")
            ));
        }
        if count > 0 && topics.is_empty() {
            outcome = Outcome::Damaged;
            self.screen.warning(format_args!(
                "{} could not be decoded; run the query without --cluster to see which",
                counted(count, "message")
            ));
        }
        outcome
    }
}

/// The name that a topic has in queries without quotes: `/camera/image` is `camera_image`.
fn plain_name(topic: &str) -> String {
    let letter = |c: char| if c.is_alphanumeric() { c } else { '_' };
    let plain: String = topic.trim_matches('/').chars().map(letter).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{plain}")
    } else {
        plain
    }
}

/// The affected line of a query, and an arrow below it.
fn pointer(sql: &str, place: TextPlace) -> Option<String> {
    let line = sql
        .lines()
        .nth(usize::try_from(place.line).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(place.column).ok()?.saturating_sub(1);
    let before: String = line
        .chars()
        .take(column)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    Some(format!("  {}\n  {before}^", shown(line)))
}

/// Ctrl-C: the first one cancels the running query, any other ends the program.
pub struct Interrupts(Arc<AtomicU8>);

/// No query runs.
const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const INTERRUPTED: u8 = 2;

impl Interrupts {
    fn listen() -> anyhow::Result<Self> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let shared = Arc::clone(&state);
        let act = move |code: i32| {
            let noted =
                shared.compare_exchange(RUNNING, INTERRUPTED, Ordering::Relaxed, Ordering::Relaxed);
            if noted.is_err() || code != 130 {
                remove_unfinished();
                std::process::exit(code);
            }
        };
        signals::on_end(act).context("cannot listen for Ctrl-C")?;
        Ok(Interrupts(state))
    }

    /// Marks a query as running, until the returned guard is dropped.
    fn running(&self) -> QueryGuard<'_> {
        self.0.store(RUNNING, Ordering::Relaxed);
        QueryGuard(self)
    }
}

/// A running query.
struct QueryGuard<'a>(&'a Interrupts);

impl QueryGuard<'_> {
    fn is_interrupted(&self) -> bool {
        self.0.0.load(Ordering::Relaxed) == INTERRUPTED
    }
}

impl Drop for QueryGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(IDLE, Ordering::Relaxed);
    }
}

/// An error that was reported already.
#[derive(Debug, thiserror::Error)]
#[error("the query has no answer")]
pub struct NoAnswer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_a_query_where_it_is_no_place() {
        for query in [
            "SELECT 1",
            "select\n1",
            "(SELECT 1)",
            "SHOW TABLES",
            "DROP TABLE x",
            "SELEC 1",
            "\\d",
        ] {
            assert!(is_query(query), "{query}");
        }
        for place in ["run.mcap", "https://host/a b.mcap", "/", "missing.bag"] {
            assert!(!is_query(place), "{place}");
        }
    }

    #[test]
    fn an_arrow_points_at_the_place() {
        let place = TextPlace { line: 2, column: 3 };
        let found = pointer("SELECT\né odmo", place);
        assert_eq!(found.as_deref(), Some("  é odmo\n    ^"));
        let nowhere = TextPlace { line: 9, column: 1 };
        assert_eq!(pointer("SELECT", nowhere), None);
    }
}
