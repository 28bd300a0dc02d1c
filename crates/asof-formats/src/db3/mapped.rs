//! Messages read from a file's mapped pages, while that is safe.

use std::fs::File;
use std::path::Path;

use asof_core::SourceError;
use rusqlite::Connection;

use super::database::Database;
use super::pages::{Columns, PageError, Rows, Table};
use crate::storage::MappedFile;

/// The table `messages`, mapped.
///
/// A reader holds SQLite's read lock ([`Database::unchanging`]), and checks
/// [`is_unchanged`](MappedMessages::is_unchanged) first: a file that was written to since it was opened is read by
/// SQLite.
pub(crate) struct MappedMessages {
    map: MappedFile,
    table: Table,
    /// The first page of the timestamp index.
    times: Option<u32>,
    change_counter: [u8; 4],
    /// Kept open: closing any handle of a file releases all locks that this process has on it, including SQLite's.
    file: File,
}

/// Bytes that may stay in memory: opening touches every page with messages, and reading soon touches them again.
const KEPT_BYTES: usize = 128 << 20;

impl MappedMessages {
    /// Maps the file, if it has no journal or WAL and its table can be read from the pages.
    pub fn open(database: &Database, path: &Path, may_map: bool) -> Result<Self, String> {
        if !may_map {
            return Err("it is not to be mapped".into());
        }
        if !database.is_all_in_one_file() {
            return Err("there is a journal beside it, or it is written to in WAL mode".into());
        }
        let MessageTable {
            root,
            columns,
            times,
        } = MessageTable::of(database)?;
        let file = File::open(path).map_err(|error| error.to_string())?;
        let open = || {
            let map = MappedFile::of_file(&file, database.name().to_owned(), KEPT_BYTES)
                .map_err(|error| error.to_string())?;
            let table =
                Table::new(map.bytes(), root, columns).map_err(|error| error.to_string())?;
            let change_counter = change_counter(&map).ok_or("it has no header")?;
            Ok::<_, String>((map, table, change_counter))
        };
        let opened = database.unchanging(open);
        let (map, table, change_counter) = opened.map_err(|error| error.to_string())??;
        Ok(MappedMessages {
            map,
            table,
            times,
            change_counter,
            file,
        })
    }

    /// Whether the file is unchanged since it was opened.
    pub fn is_unchanged(&self) -> bool {
        change_counter(&self.map) == Some(self.change_counter)
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The first page of an index with the time of every message, if there is one.
    pub fn times(&self) -> Option<u32> {
        self.times
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn map(&self) -> &MappedFile {
        &self.map
    }

    pub fn rows(&self, first: i64, last: i64) -> Rows<'_> {
        self.table.rows(self.map.bytes(), first, last)
    }
}

/// Bytes 24 to 28 of the file count changes to it.
fn change_counter(map: &MappedFile) -> Option<[u8; 4]> {
    map.bytes().get(24..)?.first_chunk().copied()
}

/// Where the messages of a file are.
pub(crate) struct MessageTable {
    /// The first page of the table.
    pub root: u32,
    pub columns: Columns,
    /// The first page of the timestamp index.
    times: Option<u32>,
}

impl MessageTable {
    /// From the schema of a file; an error if its messages are not plain rows.
    pub fn of(database: &Database) -> Result<Self, String> {
        database
            .with(|connection| Ok(table(connection)))
            .and_then(|found| found.map_err(|error| database.failed(&error)))
            .map_err(|error| error.to_string())?
            .ok_or_else(|| "the table is not one of plain rows".to_owned())
    }
}

/// Where the messages are; `None` if records do not store the columns as declared.
fn table(connection: &Connection) -> Result<Option<MessageTable>, rusqlite::Error> {
    let is_plain: bool = connection.query_row(
        "SELECT count(*) = 1 FROM pragma_table_list('messages') WHERE schema = 'main' AND type = 'table' AND wr = 0",
        [],
        |row| row.get(0),
    )?;
    // An index for the primary key means that it is not the rowid.
    let is_keyed_apart: bool = connection.query_row(
        "SELECT count(*) > 0 FROM pragma_index_list('messages') WHERE origin = 'pk'",
        [],
        |row| row.get(0),
    )?;
    let root: u32 = connection.query_row(
        "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'messages' COLLATE NOCASE",
        [],
        |row| row.get(0),
    )?;
    let mut statement = connection
        .prepare("SELECT name, upper(type), pk, hidden FROM pragma_table_xinfo('messages')")?;
    let columns = statement.query_map([], |row| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            key: row.get(2)?,
            hidden: row.get(3)?,
        })
    })?;
    let columns = columns.collect::<Result<Vec<Column>, _>>()?;
    let place = |name: &str, is_right: fn(&Column) -> bool| {
        let found = columns.iter().position(|column| column.name == name)?;
        is_right(&columns[found]).then_some(found)
    };
    // Columns declared otherwise may be stored as one type and read as another.
    let is_whole_number = |column: &Column| column.kind.contains("INT");
    let found = (
        place("id", |column| column.kind == "INTEGER" && column.key == 1),
        place("topic_id", is_whole_number),
        place("timestamp", is_whole_number),
        place("data", |_| true),
    );
    let (Some(_), Some(topic), Some(time), Some(data)) = found else {
        return Ok(None);
    };
    let has_hidden = columns.iter().any(|column| column.hidden != 0);
    let columns = Columns { topic, time, data };
    let times = index_of_times(connection)?;
    Ok(
        (is_plain && !is_keyed_apart && !has_hidden).then_some(MessageTable {
            root,
            columns,
            times,
        }),
    )
}

/// The first page of an index of all messages by timestamp only.
fn index_of_times(connection: &Connection) -> Result<Option<u32>, rusqlite::Error> {
    let sql = "SELECT rootpage FROM sqlite_master JOIN pragma_index_list('messages') AS list ON sqlite_master.name = list.name
        WHERE sqlite_master.type = 'index' AND NOT list.partial
        AND (SELECT count(*) = 1 AND max(name) = 'timestamp' FROM pragma_index_xinfo(list.name) WHERE key)";
    let mut statement = connection.prepare(sql)?;
    let roots = statement.query_map([], |row| row.get(0))?;
    roots.take(1).next().transpose()
}

struct Column {
    name: String,
    kind: String,
    key: i64,
    hidden: i64,
}

/// Why the pages cannot be used, so that SQLite reads instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it was written to since it was opened")]
    Changed,
    #[error("{0}")]
    Page(#[from] PageError),
    #[error("it has no index of times")]
    NoIndex,
    #[error("its index of times or its own description does not fit its messages")]
    Stale,
    #[error("the thread that looked at it failed")]
    Panicked,
    #[error("its payloads are more than the file")]
    TooMuch,
    #[error("{0}")]
    Locked(#[from] SourceError),
}
