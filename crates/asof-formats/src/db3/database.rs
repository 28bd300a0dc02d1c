//! The SQLite side: connections, and the tables of all versions of rosbag2.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asof_core::{Channel, Problem, ProblemKind, Schema, SourceError};
use asof_ros::{Definitions, Era};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::yaml::first_document;

/// A file that any number of threads can read, each on its own connection.
pub(crate) struct Database {
    name: String,
    path: PathBuf,
    is_immutable: bool,
    may_map: bool,
    /// The actual and the expected size of the file, if it was truncated.
    cut: Option<(u64, u64)>,
    idle: Mutex<Vec<Connection>>,
}

/// A topic, with its id in the file.
pub(crate) struct Topic {
    pub id: i64,
    pub channel: Channel,
}

/// The topics, definitions and metadata of a file.
pub(crate) struct Layout {
    pub topics: Vec<Topic>,
    /// Why topics may be missing here.
    pub topics_fault: Option<String>,
    /// Definitions by type: encoding and text.
    pub embedded: HashMap<String, (String, String)>,
    pub metadata: Vec<(u64, String)>,
    pub era: Era,
    pub library: String,
}

impl Database {
    pub fn open(path: &Path, name: &str, may_map: bool) -> Result<Self, SourceError> {
        // SQLite would create side files beside a database in WAL mode that has none: it is not being
        // written then, and can be read as it is.
        let wal = beside(path, "-wal");
        let has_wal = std::fs::metadata(&wal).is_ok_and(|found| found.len() > 0);
        let mut database = Database {
            name: name.to_owned(),
            path: path.to_owned(),
            is_immutable: !has_wal
                && is_in_wal_mode(path).map_err(|cause| SourceError::Io {
                    place: name.to_owned(),
                    offset: 0,
                    cause,
                })?,
            may_map,
            cut: cut(path),
            idle: Mutex::default(),
        };
        let probe = |database: &Database| {
            let connection = database.connect()?;
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| {
                row.get::<_, i64>(0)
            })?;
            Ok(connection)
        };
        let connection = match probe(&database) {
            Err(_) if !database.is_immutable => {
                // SQLite cannot create its lock files in a read-only folder.
                database.is_immutable = true;
                probe(&database)
            }
            other => other,
        };
        let connection = connection.map_err(|error| database.failed(&error))?;
        database.give_back(connection);
        Ok(database)
    }

    /// Whether the end of the file is missing.
    pub fn missing_end(&self) -> Option<Problem> {
        self.cut.map(|(is, should_be)| {
            let message = format!(
                "the file ends after {is} of {should_be} bytes; what was in the rest is skipped"
            );
            Problem::at(ProblemKind::Truncated, is, message)
        })
    }

    /// The problem of a journal or WAL beside this file that could not be read.
    pub fn stale_view(&self) -> Option<Problem> {
        let message = if !self.is_immutable {
            return None;
        } else if self.has_beside("-wal") {
            "the newest messages are in the -wal file beside it, which cannot be read where the folder is read-only; copy both elsewhere"
        } else if self.has_beside("-journal") {
            "its writer was interrupted, and what it had half written may be damaged; the -journal file beside it can undo that: open a copy of both with sqlite3"
        } else {
            return None;
        };
        Some(Problem::whole(ProblemKind::Incomplete, message))
    }

    /// Whether SQLite has a side file with this ending.
    fn has_beside(&self, ending: &str) -> bool {
        std::fs::metadata(beside(&self.path, ending)).is_ok_and(|found| found.len() > 0)
    }

    /// Bytes on disk, including the WAL.
    pub fn size(&self) -> u64 {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        size(&self.path) + size(&beside(&self.path, "-wal"))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the file alone is complete: it has no log of recent changes.
    ///
    /// With locks, SQLite rolls back a leftover journal by itself.
    pub fn is_all_in_one_file(&self) -> bool {
        if self.is_immutable {
            !self.has_beside("-wal") && !self.has_beside("-journal")
        } else {
            is_in_wal_mode(&self.path).is_ok_and(|is_in_wal_mode| !is_in_wal_mode)
        }
    }

    /// Runs `work` under a lock that excludes writers.
    pub fn unchanging<T>(&self, work: impl FnOnce() -> T) -> Result<T, SourceError> {
        if self.is_immutable {
            return Ok(work());
        }
        self.with(|connection| {
            // An unfinished statement keeps the file locked for reading.
            let mut statement = connection.prepare_cached("SELECT 1 FROM sqlite_master")?;
            let mut rows = statement.query([])?;
            rows.next()?;
            let result = work();
            drop(rows);
            Ok(result)
        })
    }

    /// Runs `work` on a connection of its own.
    pub fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, SourceError> {
        let idle = self.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect().map_err(|error| self.failed(&error))?,
        };
        let result = work(&connection).map_err(|error| self.failed(&error));
        self.give_back(connection);
        result
    }

    pub fn layout(&self) -> Result<Layout, SourceError> {
        let columns = |connection: &Connection, table: &str| {
            let sql = "SELECT name FROM pragma_table_info(?1) WHERE NOT EXISTS
                (SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ?1 COLLATE NOCASE)";
            let mut statement = connection.prepare(sql)?;
            let names = statement.query_map([table], |row| row.get::<_, String>(0))?;
            names.collect::<Result<Vec<String>, _>>()
        };
        let (topic_columns, message_columns) = self.with(|connection| {
            Ok((
                columns(connection, "topics")?,
                columns(connection, "messages")?,
            ))
        })?;
        let has = |columns: &[String], wanted: &[&str]| {
            wanted
                .iter()
                .all(|name| columns.iter().any(|found| found == name))
        };
        if !has(&topic_columns, &["id", "name", "type"])
            || !has(&message_columns, &["id", "topic_id", "timestamp", "data"])
        {
            return Err(SourceError::Unreadable {
                place: self.name.clone(),
                reason: "this is an SQLite file, but no ROS 2 bag: the tables 'topics' and 'messages' are not those of rosbag2".into(),
            });
        }
        let (topics, topics_fault) = self.with(|connection| topics(connection, &topic_columns))?;
        // The tables below were added later and may be missing or damaged; they are optional.
        let embedded = self.with(embedded_definitions).unwrap_or_default();
        let metadata = self.with(metadata).unwrap_or_default();
        let distribution = self.with(distribution).ok().flatten();
        let era = match distribution.as_deref() {
            None | Some("dashing" | "eloquent" | "foxy" | "galactic") => Era::BeforeHumble,
            Some(_) => Era::Humble,
        };
        let library = distribution.map_or_else(String::new, |name| format!("rosbag2 ({name})"));
        Ok(Layout {
            topics,
            topics_fault,
            embedded,
            metadata,
            era,
            library,
        })
    }

    fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let query = if self.is_immutable {
            "?immutable=1"
        } else {
            ""
        };
        let connection = Connection::open_with_flags(format!("{}{query}", uri(&self.path)), flags)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        // No recorder creates views; a view in place of a table can run forever.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        if self.cut.is_some() {
            // Without it SQLite refuses a file that is shorter than its header declares. Nothing is written.
            connection.pragma_update(None, "writable_schema", true)?;
        }
        if self.may_map {
            connection.pragma_update(None, "mmap_size", 1i64 << 40)?;
        }
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.lock();
        if idle.len() < 16 {
            idle.push(connection);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn failed(&self, error: &rusqlite::Error) -> SourceError {
        SourceError::Unreadable {
            place: self.name.clone(),
            reason: format!("SQLite cannot read it: {error}"),
        }
    }
}

/// Sets the schema of each topic; returns the topics and types without one.
pub(crate) fn define(
    topics: &mut [Topic],
    embedded: &HashMap<String, (String, String)>,
    era: Era,
    definitions: &Definitions,
) -> Vec<(String, String)> {
    let mut known: HashMap<String, Arc<Schema>> = HashMap::new();
    let mut undefined = Vec::new();
    for topic in topics {
        let Some(named) = topic.channel.schema.take() else {
            continue;
        };
        let name = &named.name;
        let schema = known.entry(name.clone()).or_insert_with(|| {
            // A service's events have the definition of the service, as rosbag2 has it in MCAP too.
            let own = [Some(name.as_str()), name.strip_suffix("_Event")];
            let mut own = own
                .into_iter()
                .flatten()
                .filter_map(|name| embedded.get(name));
            let (encoding, data) = match own.find(|(_, text)| !text.is_empty()) {
                Some((encoding, text)) => (encoding.clone(), text.clone()),
                None => match definitions.definition_of(name, era) {
                    Ok(found) => (found.encoding.to_owned(), found.text),
                    // As rosbag2 itself does in MCAP: the name alone.
                    Err(_) => (String::new(), String::new()),
                },
            };
            Arc::new(Schema {
                name: name.clone(),
                encoding,
                data: data.into(),
            })
        });
        if schema.encoding.is_empty() {
            undefined.push((topic.channel.topic.clone(), name.clone()));
        }
        topic.channel.schema = Some(Arc::clone(schema));
    }
    undefined
}

/// The readable topics, and why others are not.
fn topics(
    connection: &Connection,
    columns: &[String],
) -> Result<(Vec<Topic>, Option<String>), rusqlite::Error> {
    // Columns were added over the years; a missing one reads as empty.
    let column = |name: &str| {
        if columns.iter().any(|found| found == name) {
            format!("CAST({name} AS TEXT)")
        } else {
            "''".to_owned()
        }
    };
    let sql = format!(
        "SELECT id, name, type, {}, {}, {} FROM topics",
        column("serialization_format"),
        column("offered_qos_profiles"),
        column("type_description_hash")
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], |row| {
        let text = |index| {
            row.get::<_, Option<String>>(index)
                .map(Option::unwrap_or_default)
        };
        let mut metadata = BTreeMap::new();
        for (name, value) in [
            ("offered_qos_profiles", text(4)?),
            ("topic_type_hash", text(5)?),
        ] {
            if !value.is_empty() {
                metadata.insert(name.to_owned(), value);
            }
        }
        Ok(Topic {
            id: row.get(0)?,
            channel: Channel {
                topic: text(1)?,
                message_encoding: text(3)?,
                schema: Some(Arc::new(Schema {
                    name: full_name(&text(2)?),
                    ..Schema::default()
                })),
                metadata,
            },
        })
    })?;
    let (mut topics, mut fault) = (Vec::new(), None);
    for row in rows {
        match row {
            Ok(topic) => topics.push(topic),
            Err(error) => fault = Some(error.to_string()),
        }
    }
    Ok((topics, fault))
}

/// `package/msg/Type`, also where it was written `package/Type` as in the first year.
fn full_name(name: &str) -> String {
    match name.split_once('/') {
        Some((package, kind)) if !kind.contains('/') => format!("{package}/msg/{kind}"),
        _ => name.to_owned(),
    }
}

fn embedded_definitions(
    connection: &Connection,
) -> Result<HashMap<String, (String, String)>, rusqlite::Error> {
    let mut statement = connection.prepare(
        "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)))
    })?;
    rows.collect()
}

fn metadata(connection: &Connection) -> Result<Vec<(u64, String)>, rusqlite::Error> {
    // The recorder adds rows while it records; the last one counts.
    let mut statement =
        connection.prepare("SELECT id, metadata FROM metadata ORDER BY id DESC LIMIT 1")?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
    })?;
    rows.collect()
}

/// Message counts that the recorder declared, by the file's topic ids; `None` if they are missing or ambiguous.
pub(crate) fn declared_counts(metadata: &str, topics: &[Topic]) -> Option<BTreeMap<i64, u64>> {
    let document = first_document(metadata)?;
    let described = document["topics_with_message_count"].as_vec()?;
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for entry in described {
        let name = entry["topic_metadata"]["name"].as_str()?;
        let count = u64::try_from(entry["message_count"].as_i64()?).ok()?;
        let mut named = topics.iter().filter(|topic| topic.channel.topic == name);
        let (Some(topic), None) = (named.next(), named.next()) else {
            return None;
        };
        if counts.insert(topic.id, count).is_some() {
            return None;
        }
    }
    Some(counts)
}

fn distribution(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    connection.query_row("SELECT ros_distro FROM schema", [], |row| row.get(0))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Bytes 18 and 19 of the file are 2 in WAL mode.
fn is_in_wal_mode(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(20).read_to_end(&mut head)?;
    Ok(head.get(18..20) == Some(&[2, 2]))
}

/// The size of a file and the size in its header, if that is larger.
fn cut(path: &Path) -> Option<(u64, u64)> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok()?;
    let is = file.metadata().ok()?.len();
    let mut header = Vec::new();
    file.take(100).read_to_end(&mut header).ok()?;
    let number = |at: usize| Some(u32::from_be_bytes(*header.get(at..)?.first_chunk()?));
    // The page count is valid if it was written with the last change.
    if number(24) != number(92) {
        return None;
    }
    let page_size = match number(16)? >> 16 {
        1 => 65536,
        size => size,
    };
    let should_be = u64::from(page_size) * u64::from(number(28)?);
    (is < should_be).then_some((is, should_be))
}

/// A path as an SQLite URI, to which options can be appended.
fn uri(path: &Path) -> String {
    use std::fmt::Write as _;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = String::from("file:");
    for byte in absolute.to_string_lossy().bytes() {
        match byte {
            b'?' | b'#' | b'%' => drop(write!(uri, "%{byte:02x}")),
            b'\\' => uri.push('/'),
            0..=127 => uri.push(byte as char),
            _ => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri
}
