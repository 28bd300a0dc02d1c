//! Recordings as one database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use asof_catalogue::TopicTotal;
use asof_core::{Problem, Source, Stamp};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
#[cfg(feature = "distributed")]
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::asof::{AsofRule, match_function};
#[cfg(feature = "distributed")]
use crate::distributed::{Cluster, RecordingAddress, distributed, one_after_the_other, waves};
use crate::ends::Ends;
use crate::error::{KnownNames, SqlError, nested_names};
use crate::fleet::{Fleet, FleetPlace};
use crate::labels::RecordingLabels;
use crate::lags::Lags;
use crate::order::StampOrder;
use crate::own::OwnTable;
use crate::parameters::{Described, parameters_of, with_values};
use crate::planning::{AsofFilterRule, AsofPlanner};
use crate::recordings::{ColumnsByKind, NamedTopic, Opened, Recordings};
use crate::right::StampsGoBack;
use crate::scan::FirstInTime;
use crate::tables::Tables;
use crate::transforms::RecordingOfRow;
use crate::{instants, known, points, rewrite, times, transforms};

/// How queries run.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Memory limit of sorts, joins and groups, in bytes; beyond it they spill to temporary files, or fail with a reason.
    pub memory: usize,
    /// Threads that read, decode and compute.
    pub threads: usize,
    /// The labels of recordings, by their names. With any, each topic has the columns `robot`, `site` and
    /// `tags`, and filters on them are answered before a recording is opened.
    pub labels: BTreeMap<String, RecordingLabels>,
    /// Catalogues whose recordings belong to the database too, with their labels. Nothing of a recording is loaded before a query
    /// needs it, and queries see what a catalogue holds when they start.
    pub fleets: Vec<FleetPlace>,
    /// Tables of the user's own, by name, beside those of the recordings.
    pub tables: BTreeMap<String, OwnTable>,
}

impl Default for SqlOptions {
    /// 1 GB, and one thread per core.
    fn default() -> Self {
        SqlOptions {
            memory: 1_000_000_000,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            labels: BTreeMap::new(),
            fleets: Vec::new(),
            tables: BTreeMap::new(),
        }
    }
}

/// One recording or several, as tables. Nothing is converted or loaded beforehand.
pub struct Database {
    context: SessionContext,
    shared: Arc<Shared>,
    tables: RwLock<Arc<Tables>>,
    /// The cluster that reads the recordings, if not this process.
    #[cfg(feature = "distributed")]
    cluster: Option<Arc<dyn Cluster>>,
}

/// Fewer recordings than this are looked at one after the other.
const FEW_RECORDINGS: usize = 8;
const VERIFIED_AT_ONCE: usize = 16;

/// What the tables and functions of a database share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Those known so far; the first are those that were named.
    pub recordings: RwLock<Recordings>,
    pub named: usize,
    pub named_topics: OnceLock<BTreeMap<String, Vec<NamedTopic>>>,
    pub fleets: Vec<Fleet>,
    pub columns: Mutex<ColumnsByKind>,
    pub options: SqlOptions,
    /// Messages that scans have read so far.
    pub read: AtomicU64,
    /// Messages that could not be decoded so far.
    pub undecoded: AtomicU64,
    pub stamp_order: StampOrder,
    pub ends: Ends,
    pub lags: Lags,
    /// The first of those for each topic.
    first_undecoded: Mutex<BTreeMap<String, Undecoded>>,
    /// The recordings that queries have read, by index.
    used: Mutex<BTreeSet<usize>>,
    /// Recordings that could not be read, by index, and why.
    left_out: Mutex<BTreeMap<usize, String>>,
    /// Whether other processes read the recordings.
    #[cfg(feature = "distributed")]
    pub is_distributed: bool,
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
    fn new(mut named: Vec<Opened>, options: SqlOptions) -> Self {
        let mut names = BTreeSet::new();
        for one in &mut named {
            let labels = options.labels.get(&one.name).cloned();
            one.labels = one.labels.take().or(labels);
            // The name tells recordings apart, in joins as in transforms.
            while !names.insert(one.name.clone()) {
                one.name.push('\'');
            }
        }
        let count = named.len();
        let mut recordings = Recordings::default();
        for one in named {
            recordings.add(one);
        }
        Shared {
            recordings: RwLock::new(recordings),
            named: count,
            named_topics: OnceLock::new(),
            fleets: Vec::new(),
            columns: Mutex::default(),
            options,
            read: AtomicU64::new(0),
            undecoded: AtomicU64::new(0),
            stamp_order: StampOrder::default(),
            ends: Ends::default(),
            lags: Lags::default(),
            first_undecoded: Mutex::default(),
            used: Mutex::default(),
            left_out: Mutex::default(),
            #[cfg(feature = "distributed")]
            is_distributed: false,
        }
    }

    /// Recordings that were planned elsewhere, and are read here.
    #[cfg(feature = "distributed")]
    pub fn elsewhere(recordings: Vec<Opened>) -> Self {
        Shared::new(recordings, SqlOptions::default())
    }

    /// Counts messages of a topic that could not be decoded. `first` is the log time of the first, and the reason.
    pub fn tell_undecoded(
        &self,
        topic: &str,
        count: u64,
        first: impl FnOnce() -> Option<(Stamp, String)>,
    ) {
        if count == 0 {
            return;
        }
        self.undecoded.fetch_add(count, Ordering::Relaxed);
        let known = self.first_undecoded.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(topic)
            && let Some((log_time, reason)) = first()
        {
            known.insert(topic.to_owned(), Undecoded { log_time, reason });
        }
    }

    /// Leaves out what cannot be read; notes which recordings a query uses, and why others are left out. Many are looked at at once:
    /// over a network each is a request.
    pub fn retain_readable<T>(&self, all: &mut Vec<T>, place: impl Fn(&T) -> usize) {
        let places: Vec<usize> = all.iter().map(place).collect();
        let verify = |place: &usize| self.opened(*place).recording.verify();
        let verified: Vec<_> = if places.len() < FEW_RECORDINGS {
            places.iter().map(verify).collect()
        } else {
            let share = places.len().div_ceil(VERIFIED_AT_ONCE);
            std::thread::scope(|scope| {
                let shares = places.chunks(share);
                let threads: Vec<_> = shares
                    .map(|share| scope.spawn(move || share.iter().map(verify).collect::<Vec<_>>()))
                    .collect();
                let mut verified = Vec::with_capacity(places.len());
                for thread in threads {
                    match thread.join() {
                        Ok(found) => verified.extend(found),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                verified
            })
        };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = self.left_out.lock();
        let mut left_out = left_out.unwrap_or_else(PoisonError::into_inner);
        let mut found = places.into_iter().zip(verified);
        all.retain(|_| {
            let Some((place, verified)) = found.next() else {
                return false;
            };
            used.insert(place);
            match verified {
                Ok(()) => drop(left_out.remove(&place)),
                Err(ref error) => drop(left_out.insert(place, error.to_string())),
            }
            verified.is_ok()
        });
    }

    /// Leaves out a recording that could not be read because it has become another one than its catalogue describes since the query
    /// began. Any other error is returned.
    pub fn leave_out(&self, place: usize, error: DataFusionError) -> Result<(), DataFusionError> {
        let Err(why) = self.opened(place).recording.verify() else {
            return Err(error);
        };
        let left_out = self.left_out.lock();
        let mut left_out = left_out.unwrap_or_else(PoisonError::into_inner);
        left_out.insert(place, why.to_string());
        Ok(())
    }

    /// The first message of each topic that could not be decoded.
    pub fn undecoded_topics(&self) -> BTreeMap<String, Undecoded> {
        let first = self.first_undecoded.lock();
        first.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The answer to a query: batches of rows, as they are produced.
///
/// Dropping it ends the query.
pub struct QueryRows<'a> {
    database: &'a Database,
    sql: String,
    parameters: Vec<ScalarValue>,
    running: Running,
    /// Whether rows were returned already.
    has_begun: bool,
}

/// A query on threads of its own. It is cancelled when this is dropped.
struct Running {
    schema: SchemaRef,
    coming: Receiver<Result<RecordBatch, DataFusionError>>,
    _task: SpawnedTask<()>,
    runtime: Option<Runtime>,
    /// Cancels it where it runs, if that is elsewhere.
    cancel: Option<Cancel>,
}

type Cancel = Box<dyn FnOnce() + Send>;

impl Drop for Running {
    /// Does not wait for a cancelled query: a join of a billion rows may not notice for long.
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What arrived within a waiting time.
#[derive(Debug)]
pub enum Waited {
    /// Rows, or the error that ended them.
    Rows(Result<RecordBatch, SqlError>),
    /// Nothing so far; the query is running.
    Nothing,
    /// There are no more rows.
    End,
}

impl QueryRows<'_> {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.running.schema)
    }

    /// The next rows, if they arrive within this time: so that a query can be watched and cancelled.
    pub fn wait(&mut self, time: Duration) -> Waited {
        let end = Instant::now() + time;
        // The engine's own clock stops while all its threads are busy.
        let mut pause = Duration::from_micros(50);
        loop {
            match self.running.coming.try_recv() {
                Ok(rows) => {
                    if let Some(rows) = self.taken(rows) {
                        return Waited::Rows(rows);
                    }
                }
                Err(TryRecvError::Disconnected) => return Waited::End,
                Err(TryRecvError::Empty) if Instant::now() >= end => return Waited::Nothing,
                Err(TryRecvError::Empty) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(10));
                }
            }
        }
    }

    /// What arrived, with errors for the user. `None` where the query was restarted: stamps that a join relied on are not in
    /// order, and no row was returned yet.
    fn taken(
        &mut self,
        rows: Result<RecordBatch, DataFusionError>,
    ) -> Option<Result<RecordBatch, SqlError>> {
        let error = match rows {
            Ok(rows) => {
                self.has_begun = true;
                return Some(Ok(rows));
            }
            Err(error) => error,
        };
        let disorder = disorder_in(&error);
        if let Some(StampsGoBack { topic }) = &disorder {
            self.database.shared.tell_stamps_go_back(topic);
            if !self.has_begun {
                match self.database.start(&self.sql, &self.parameters) {
                    Ok(running) => {
                        self.running = running;
                        return None;
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        // Without the code that it had between processes.
        let error = disorder.map_or(error, |found| DataFusionError::External(Box::new(found)));
        Some(Err(self.database.failed(&error, &self.sql)))
    }
}

impl Iterator for QueryRows<'_> {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rows = self.running.coming.blocking_recv()?;
            if let Some(rows) = self.taken(rows) {
                return Some(rows);
            }
        }
    }
}

/// Whether stamps go back, if that is the cause of an error.
fn disorder_in(error: &DataFusionError) -> Option<StampsGoBack> {
    let root = error.find_root();
    let here = match root {
        DataFusionError::External(cause) => cause.downcast_ref::<StampsGoBack>().cloned(),
        _ => None,
    };
    // A cluster returns only texts.
    here.or_else(|| StampsGoBack::of_code(&root.to_string()))
}

/// Sends rows until the receiver is dropped.
async fn hand_on(
    mut stream: SendableRecordBatchStream,
    sender: Sender<Result<RecordBatch, DataFusionError>>,
) {
    while let Some(rows) = stream.next().await {
        let is_over = rows.is_err();
        if sender.send(rows).await.is_err() || is_over {
            break;
        }
    }
}

impl Database {
    /// A database of these recordings, each with its name in the rows. Of two with the same name, the second has an apostrophe
    /// after it.
    ///
    /// They are read in as many slices of time as there are threads. Opened with one thread each
    /// (`OpenOptions::threads`), they take no more memory than a section for each slice.
    ///
    /// # Errors
    /// When the engine cannot be started, or a table of the user's own has a name that is taken.
    pub fn new(
        recordings: Vec<(String, Arc<dyn Source>)>,
        options: SqlOptions,
    ) -> Result<Self, SqlError> {
        let opened = recordings
            .into_iter()
            .map(|(name, recording)| Opened::new(name, recording));
        let shared = Shared::new(opened.collect(), options);
        Database::over(shared, Ok)
    }

    /// A database of recordings that a cluster reads. They are opened here for planning: only their summaries
    /// are read, and the single messages that a query asks for (`at`, `FOR SYSTEM_TIME AS OF`).
    ///
    /// # Errors
    /// When the engine cannot be started, or there are tables of the user's own, which a cluster does not read.
    #[cfg(feature = "distributed")]
    pub fn on_cluster(
        recordings: Vec<(RecordingAddress, Arc<dyn Source>)>,
        mut options: SqlOptions,
        cluster: Arc<dyn Cluster>,
    ) -> Result<Self, SqlError> {
        if let Some(name) = options.tables.keys().next() {
            return Err(SqlError::query(format!(
                "a cluster does not read '{name}', a table of your own; run the query without the cluster"
            )));
        }
        options.threads = cluster.parallelism().max(1);
        let opened = recordings.into_iter().map(|(address, recording)| {
            let mut opened = Opened::new(address.name.clone(), recording);
            opened.address = Some(address);
            opened
        });
        let mut shared = Shared::new(opened.collect(), options);
        shared.is_distributed = true;
        let mut database = Database::over(shared, |context| {
            let state = cluster.prepared(context.state())?;
            Ok(SessionContext::new_with_state(state))
        })?;
        database.cluster = Some(cluster);
        Ok(database)
    }

    fn over(
        shared: Shared,
        prepare: impl FnOnce(SessionContext) -> Result<SessionContext, DataFusionError>,
    ) -> Result<Self, SqlError> {
        let explained =
            |error: DataFusionError| SqlError::from_engine(&error, "", &KnownNames::default());
        let mut shared = shared;
        for place in shared.options.fleets.clone() {
            shared.fleets.push(Fleet::open(place).map_err(explained)?);
        }
        let context = context(&shared).and_then(prepare).map_err(explained)?;
        let shared = Arc::new(shared);
        let tables = Tables::of(&shared);
        if let Some(name) = tables.taken.first() {
            return Err(SqlError::query(format!(
                "a table '{name}' is in the recordings already; give your own another name"
            )));
        }
        let database = Database {
            tables: RwLock::new(Arc::new(tables)),
            context,
            shared,
            #[cfg(feature = "distributed")]
            cluster: None,
        };
        database.register().map_err(explained)?;
        Ok(database)
    }

    /// The names of all tables: topics in their own spelling, aliases, and the tables about the recordings.
    pub fn tables(&self) -> Vec<String> {
        self.current_tables().names()
    }

    /// The columns of a table.
    pub fn columns(&self, table: &str) -> Option<SchemaRef> {
        self.current_tables().columns(table)
    }

    /// Every topic with its type and its messages, from the summaries of the recordings and from the catalogues.
    ///
    /// # Errors
    /// When a catalogue cannot be read.
    pub fn topics(&self) -> Result<BTreeMap<String, TopicTotal>, SqlError> {
        let totals = self.followed().and_then(|_| self.shared.topic_totals());
        totals.map_err(|error| self.failed(&error, ""))
    }

    fn current_tables(&self) -> Arc<Tables> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&tables)
    }

    /// The tables of what the catalogues hold now.
    fn followed(&self) -> Result<Arc<Tables>, DataFusionError> {
        let mut has_changed = false;
        for fleet in &self.shared.fleets {
            has_changed |= fleet.follow()?;
        }
        if has_changed {
            let tables = Arc::new(Tables::of(&self.shared));
            self.register_tables(&tables)?;
            *self.tables.write().unwrap_or_else(PoisonError::into_inner) = tables;
        }
        Ok(self.current_tables())
    }

    /// Messages that queries have read so far.
    pub fn messages_read(&self) -> u64 {
        let read = self.shared.read.load(Ordering::Relaxed);
        #[cfg(feature = "distributed")]
        if let Some(cluster) = &self.cluster {
            return read + cluster.stats().read;
        }
        read
    }

    /// Starts a query.
    ///
    /// # Errors
    /// When it is not a query, would write, or cannot be planned.
    pub fn query(&self, sql: &str) -> Result<QueryRows<'_>, SqlError> {
        self.query_with(sql, Vec::new())
    }

    /// Starts a query with values for its parameters, which are written as `?`, or as `$1`, `$2` and so on.
    ///
    /// # Errors
    /// As [`Database::query`], and when a parameter has no value.
    pub fn query_with(
        &self,
        sql: &str,
        parameters: Vec<ScalarValue>,
    ) -> Result<QueryRows<'_>, SqlError> {
        Ok(QueryRows {
            database: self,
            sql: sql.to_owned(),
            running: self.start(sql, &parameters)?,
            parameters,
            has_begun: false,
        })
    }

    /// The columns and parameters of a query, without running it. Columns of a query whose parameters
    /// are not given may have other types once they are.
    ///
    /// # Errors
    /// As [`Database::query`].
    pub fn describe(&self, sql: &str, parameters: &[ScalarValue]) -> Result<Described, SqlError> {
        on_large_stack(|| self.described(sql, parameters))
    }

    fn described(&self, sql: &str, parameters: &[ScalarValue]) -> Result<Described, SqlError> {
        let statement = self.parsed(sql)?;
        let described = runtime(&self.shared.options)?.block_on(async {
            let plan = self.plan(statement, &[]).await?;
            let wanted = parameters_of(&plan)?;
            if wanted.fields().len() > parameters.len() {
                return Ok(Described {
                    columns: Arc::new(plan.schema().as_arrow().clone()),
                    parameters: wanted,
                });
            }
            let plan = with_values(plan, parameters)?;
            // The schema of the rows themselves; the plan as written is less precise.
            let physical = self.context.state().create_physical_plan(&plan).await?;
            Ok::<_, DataFusionError>(Described {
                columns: physical.schema(),
                parameters: wanted,
            })
        });
        described.map_err(|error| self.failed(&error, sql))
    }

    fn parsed(&self, sql: &str) -> Result<Statement, SqlError> {
        let tables = self.followed().map_err(|error| self.failed(&error, sql))?;
        rewrite::parse(sql, &self.shared, &tables)
    }

    /// A statement as a read-only plan.
    async fn plan(
        &self,
        statement: Statement,
        parameters: &[ScalarValue],
    ) -> Result<LogicalPlan, DataFusionError> {
        let plan = self.context.state().statement_to_plan(statement).await?;
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&plan)?;
        with_values(plan, parameters)
    }

    fn start(&self, sql: &str, parameters: &[ScalarValue]) -> Result<Running, SqlError> {
        on_large_stack(|| self.started(sql, parameters))
    }

    fn started(&self, sql: &str, parameters: &[ScalarValue]) -> Result<Running, SqlError> {
        let statement = self.parsed(sql)?;
        let runtime = runtime(&self.shared.options)?;
        let stream = runtime.block_on(async {
            let plan = self.plan(statement, parameters).await?;
            #[cfg(feature = "distributed")]
            if let Some(cluster) = &self.cluster {
                return self.start_on(&**cluster, &plan).await;
            }
            let frame = self.context.execute_logical_plan(plan).await?;
            Ok((frame.execute_stream().await?, None::<Cancel>))
        });
        let (stream, cancel) = stream.map_err(|error| self.failed(&error, sql))?;
        let schema = stream.schema();
        let (sender, coming) = tokio::sync::mpsc::channel(1);
        let entered = runtime.enter();
        let task = SpawnedTask::spawn(hand_on(stream, sender));
        drop(entered);
        Ok(Running {
            schema,
            coming,
            _task: task,
            runtime: Some(runtime),
            cancel,
        })
    }

    /// Starts a plan on a cluster, or here where it reads no recording.
    #[cfg(feature = "distributed")]
    async fn start_on(
        &self,
        cluster: &dyn Cluster,
        plan: &LogicalPlan,
    ) -> Result<(SendableRecordBatchStream, Option<Cancel>), DataFusionError> {
        let state = self.context.state();
        let plan = state.create_physical_plan(plan).await?;
        match distributed(&plan, cluster.parallelism())? {
            Some(plan) => {
                let plans = waves(plan, cluster.parallelism())?.into_iter();
                let started = plans.map(|plan| cluster.execute(plan, state.config().clone()));
                let started = one_after_the_other(started.collect::<Result<_, _>>()?);
                Ok((started.rows, Some(started.cancel)))
            }
            None => Ok((execute_stream(plan, self.context.task_ctx())?, None)),
        }
    }

    /// Runs a query, and returns all its rows.
    ///
    /// # Errors
    /// As [`Database::query`], and when a recording cannot be read or memory is exhausted.
    pub fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>, SqlError> {
        self.query(sql)?.collect()
    }

    /// Messages that could not be decoded so far, and the first of each topic. For a cluster, only the count.
    pub fn undecoded(&self) -> (u64, BTreeMap<String, Undecoded>) {
        let count = self.shared.undecoded.load(Ordering::Relaxed);
        #[cfg(feature = "distributed")]
        let count = count + (self.cluster.as_ref()).map_or(0, |cluster| cluster.stats().undecoded);
        (count, self.shared.undecoded_topics())
    }

    /// How many recordings queries have asked for so far, and those that were named: of a catalogue, nothing else is loaded.
    pub fn recordings_loaded(&self) -> usize {
        self.shared.known_recordings().len()
    }

    /// The recordings that queries have read so far, and the problems found in each.
    pub fn recordings_used(&self) -> BTreeMap<String, Vec<Problem>> {
        let used = (self.shared.used.lock()).unwrap_or_else(PoisonError::into_inner);
        let one = |place: &usize| {
            let opened = self.shared.opened(*place);
            (opened.name.clone(), opened.described().problems.clone())
        };
        used.iter().map(one).collect()
    }

    /// The recordings that the last queries over them have left out, because they are not what their catalogue describes, and why.
    pub fn left_out(&self) -> BTreeMap<String, String> {
        let left_out = (self.shared.left_out.lock()).unwrap_or_else(PoisonError::into_inner);
        let name = |place: &usize| self.shared.opened(*place).name.clone();
        left_out
            .iter()
            .map(|(place, why)| (name(place), why.clone()))
            .collect()
    }

    fn register_tables(&self, tables: &Arc<Tables>) -> Result<(), DataFusionError> {
        let catalog = self
            .context
            .catalog("asof")
            .ok_or_else(|| DataFusionError::Internal("there is no catalogue".to_owned()))?;
        catalog.register_schema("public", Arc::clone(tables) as _)?;
        Ok(())
    }

    fn register(&self) -> Result<(), DataFusionError> {
        self.register_tables(&self.current_tables())?;
        self.context.register_udf(match_function());
        transforms::register(&self.context, &self.shared);
        known::register(&self.context, &self.shared);
        points::register(&self.context, &self.shared);
        times::register(&self.context, &self.shared);
        instants::register(&self.context, &self.shared);
        Ok(())
    }

    fn failed(&self, error: &DataFusionError, sql: &str) -> SqlError {
        if let DataFusionError::Plan(text) = error.find_root()
            && let Some(what) = text.strip_suffix(" not supported").or_else(|| {
                let (_, rest) = text.split_once(" not supported: ")?;
                Some(rest)
            })
        {
            return SqlError::NotReading(what.to_owned());
        }
        let mut fields = BTreeSet::new();
        let tables = self.current_tables();
        for schema in tables.known_columns() {
            nested_names(schema.fields(), &mut fields);
        }
        let state = self.context.state();
        // Sorted, so that of two equally near names it is always the same one.
        let functions: BTreeSet<&String> = (state.scalar_functions().keys())
            .chain(state.aggregate_functions().keys())
            .chain(state.window_functions().keys())
            .chain(state.table_functions().keys())
            .collect();
        let known = KnownNames {
            tables: tables.names(),
            fields: fields.into_iter().collect(),
            functions: functions.into_iter().cloned().collect(),
        };
        SqlError::from_engine(error, sql, &known)
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

/// The stack of a thread that plans: an expression, its plan and its optimization are recursive. Of it only what is used is memory.
const PLANNING_STACK: usize = 256 << 20;
/// The stack of a thread that computes.
const COMPUTING_STACK: usize = 16 << 20;

/// Plans on a thread whose stack is large enough, wherever this is called.
fn on_large_stack<T: Send>(
    plan: impl FnOnce() -> Result<T, SqlError> + Send,
) -> Result<T, SqlError> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("asof-plan".to_owned());
        let thread = builder
            .stack_size(PLANNING_STACK)
            .spawn_scoped(scope, plan)
            .map_err(SqlError::Start)?;
        match thread.join() {
            Ok(planned) => planned,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Threads for a query.
fn runtime(options: &SqlOptions) -> Result<Runtime, SqlError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads.max(1))
        .thread_name("asof-sql")
        .thread_stack_size(COMPUTING_STACK)
        .enable_all()
        .build()
        .map_err(SqlError::Start)
}

fn context(shared: &Shared) -> Result<SessionContext, DataFusionError> {
    let options = &shared.options;
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema("asof", "public")
        .with_create_default_catalog_and_schema(true)
        .with_information_schema(true)
        .with_target_partitions(options.threads.max(1));
    // Names keep their case: ROS 1's CameraInfo has K and D.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    // So that an error can point at its place.
    config.options_mut().sql_parser.collect_spans = true;
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(options.memory)))
        .build_arc()?;
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_analyzer_rule(Arc::new(AsofRule));
    if shared.has_many() {
        state = state.with_analyzer_rule(Arc::new(RecordingOfRow));
    }
    let state = state
        .with_optimizer_rule(Arc::new(AsofFilterRule))
        .with_physical_optimizer_rule(Arc::new(FirstInTime))
        .with_query_planner(Arc::new(AsofPlanner))
        .build();
    Ok(SessionContext::new_with_state(state))
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("tables", &self.tables().len())
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
