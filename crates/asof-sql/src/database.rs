//! Recordings as one database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{Stamp, TimeRange};
use asof_decode::PayloadError;
use asof_formats::Recording;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionConfig;
use futures_util::StreamExt;
use tokio::runtime::Runtime;

use crate::asof::{AsofPlanner, AsofRule, match_function};
use crate::error::SqlError;
use crate::topic::{Opened, TopicTable};
use crate::{catalogue, known, rewrite, transforms};

/// How queries run.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Bytes that sorts, joins and groups may hold; beyond that they spill to temporary files, or fail with a reason.
    pub memory: usize,
    /// Threads that read, decode and compute.
    pub threads: usize,
}

impl Default for SqlOptions {
    /// 1 GB, and as many threads as there are cores.
    fn default() -> Self {
        SqlOptions {
            memory: 1_000_000_000,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// One recording or several, as tables. Nothing of them is converted or loaded beforehand.
pub struct Database {
    context: SessionContext,
    runtime: Runtime,
    shared: Arc<Shared>,
    tables: Vec<String>,
}

/// What the tables and functions of a database share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub recordings: Vec<Opened>,
    pub options: SqlOptions,
    /// Messages that could not be decoded, so far.
    pub undecoded: AtomicU64,
    /// The first of those for each topic.
    first_undecoded: Mutex<BTreeMap<String, Undecoded>>,
}

/// A message that could not be decoded: the first of its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecoded {
    /// When it was logged.
    pub log_time: Stamp,
    /// Why it could not be decoded.
    pub reason: String,
}

impl Shared {
    pub fn tell_undecoded(&self, topic: &str, log_time: Stamp, error: &PayloadError) {
        let mut first = self
            .first_undecoded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !first.contains_key(topic) {
            let reason = error.to_string();
            first.insert(topic.to_owned(), Undecoded { log_time, reason });
        }
    }

    /// From the first start to the last end of all recordings.
    pub fn range(&self) -> TimeRange {
        let ranges = self
            .recordings
            .iter()
            .map(|one| one.recording.summary().range);
        ranges
            .filter(|range| !range.is_empty())
            .reduce(|all, range| TimeRange::new(all.start.min(range.start), all.end.max(range.end)))
            .unwrap_or(TimeRange::EMPTY)
    }
}

/// The answer to a query: batches of rows, as they are made.
pub struct Rows<'a> {
    database: &'a Database,
    stream: SendableRecordBatchStream,
}

impl Rows<'_> {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.database.runtime.block_on(self.stream.next())?;
        Some(next.map_err(|error| self.database.failed(&error)))
    }
}

impl Database {
    /// A database of these recordings, each with the name that its rows carry.
    ///
    /// # Errors
    /// When the engine cannot be started.
    pub fn new(
        recordings: Vec<(String, Arc<dyn Recording>)>,
        options: SqlOptions,
    ) -> Result<Self, SqlError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("asof-sql")
            .enable_time()
            .build()
            .map_err(SqlError::Start)?;
        let opened = recordings
            .into_iter()
            .map(|(name, recording)| Opened { name, recording });
        let shared = Arc::new(Shared {
            recordings: opened.collect(),
            options: options.clone(),
            undecoded: AtomicU64::new(0),
            first_undecoded: Mutex::default(),
        });
        let context = context(&options).map_err(|error| SqlError::from_engine(&error, &[]))?;
        let mut database = Database {
            context,
            runtime,
            shared,
            tables: Vec::new(),
        };
        database
            .register()
            .map_err(|error| SqlError::from_engine(&error, &[]))?;
        Ok(database)
    }

    /// The names of all tables: topics in their own spelling, aliases, and what is known about the recordings.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }

    /// The names of all columns of all topics, each once.
    pub fn columns(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for opened in &self.shared.recordings {
            for topic in opened.recording.summary().topics() {
                let table = TopicTable::new(&self.shared, topic, &mut |_| {});
                let fields = table.schema.fields().iter();
                names.extend(fields.map(|field| field.name().clone()));
            }
        }
        names.into_iter().collect()
    }

    /// Starts a query.
    ///
    /// # Errors
    /// When it is not a query, would write, or cannot be planned.
    pub fn query(&self, sql: &str) -> Result<Rows<'_>, SqlError> {
        let statement = rewrite::parse(sql, self.shared.range())?;
        let stream = self.runtime.block_on(async {
            let plan = self.context.state().statement_to_plan(statement).await?;
            SQLOptions::new()
                .with_allow_ddl(false)
                .with_allow_dml(false)
                .with_allow_statements(false)
                .verify_plan(&plan)?;
            let frame = self.context.execute_logical_plan(plan).await?;
            frame.execute_stream().await
        });
        let stream = stream.map_err(|error| self.failed(&error))?;
        Ok(Rows {
            database: self,
            stream,
        })
    }

    /// Runs a query, and returns all its rows.
    ///
    /// # Errors
    /// As [`Database::query`], and when a recording cannot be read or memory is spent.
    pub fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>, SqlError> {
        self.query(sql)?.collect()
    }

    /// Messages that could not be decoded so far, and the first of each topic.
    pub fn undecoded(&self) -> (u64, BTreeMap<String, Undecoded>) {
        let first = self.shared.first_undecoded.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).clone();
        (self.shared.undecoded.load(Ordering::Relaxed), first)
    }

    fn register(&mut self) -> Result<(), DataFusionError> {
        let tables = MemorySchemaProvider::new();
        let mut told = Vec::new();
        let mut topics = BTreeSet::new();
        for opened in &self.shared.recordings {
            let summary = opened.recording.summary();
            topics.extend(summary.topics().into_iter().map(str::to_owned));
        }
        let own = catalogue::NAMES.map(str::to_owned);
        let mut aliases: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for topic in &topics {
            aliases.entry(alias_of(topic)).or_default().push(topic);
        }
        for topic in &topics {
            let table = TopicTable::new(&self.shared, topic, &mut |text| told.push(text));
            let table = Arc::new(table);
            tables.register_table(topic.clone(), Arc::clone(&table) as _)?;
            let alias = alias_of(topic);
            let is_unique = aliases[&alias].len() == 1;
            if is_unique && alias != *topic && !topics.contains(&alias) && !own.contains(&alias) {
                tables.register_table(alias, table)?;
            }
        }
        catalogue::register(&tables, &self.shared, &told)?;
        self.tables = tables.table_names();
        self.tables.sort();
        let catalog = self
            .context
            .catalog("asof")
            .ok_or_else(|| DataFusionError::Internal("there is no catalogue".to_owned()))?;
        catalog.register_schema("public", Arc::new(tables))?;
        self.context.register_udf(match_function());
        transforms::register(&self.context, &self.shared);
        known::register(&self.context, &self.shared);
        Ok(())
    }

    fn failed(&self, error: &DataFusionError) -> SqlError {
        if let DataFusionError::Plan(text) = error.find_root()
            && let Some(what) = text.strip_suffix(" not supported").or_else(|| {
                let (_, rest) = text.split_once(" not supported: ")?;
                Some(rest)
            })
        {
            return SqlError::NotReading(what.to_owned());
        }
        SqlError::from_engine(error, &self.tables)
    }
}

/// `/camera/image` is `camera_image`.
pub(crate) fn alias_of(topic: &str) -> String {
    let plain: String = topic
        .trim_matches('/')
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{plain}")
    } else {
        plain
    }
}

fn context(options: &SqlOptions) -> Result<SessionContext, DataFusionError> {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema("asof", "public")
        .with_create_default_catalog_and_schema(true)
        .with_information_schema(true)
        .with_target_partitions(options.threads.max(1));
    // Names keep their case: ROS 1's CameraInfo has K and D.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(options.memory)))
        .build_arc()?;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_analyzer_rule(Arc::new(AsofRule))
        .with_query_planner(Arc::new(AsofPlanner))
        .build();
    Ok(SessionContext::new_with_state(state))
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("tables", &self.tables.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::alias_of;

    #[test]
    fn an_alias_is_a_plain_word() {
        assert_eq!(alias_of("/odom"), "odom");
        assert_eq!(alias_of("/camera/image-raw"), "camera_image_raw");
        assert_eq!(alias_of("/3d/points"), "_3d_points");
    }
}
