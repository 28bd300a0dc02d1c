//! The work on a slice of time, independent of its recording.

use std::sync::Arc;

use asof_core::TimeRange;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures_util::StreamExt;

use super::{LazyRecording, RecordingAddress, RecordingOpener};
use crate::assemble::Shape;
use crate::database::Shared;
use crate::fused::AsofScan;
use crate::labels::RecordingLabels;
use crate::meanings::MeaningPart;
use crate::points::PointSlice;
use crate::recordings::Opened;
use crate::right::RightTopic;
use crate::scan::TopicScan;
use crate::times::{self, Grid};
use crate::topic::Slice;
use crate::view::{Part, rows_of};

/// What is made from the messages of a slice.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// The rows of a topic, at most this many of each slice.
    Topic(Shape, Option<usize>),
    /// A topic and the topics joined with it.
    Asof {
        left: Shape,
        rights: Vec<RightTopic>,
        schema: SchemaRef,
    },
    /// These columns of a view.
    View(ViewKind, Option<Vec<usize>>),
}

/// A view, without its recordings.
#[derive(Debug, Clone)]
pub(crate) enum ViewKind {
    Meaning {
        schema: SchemaRef,
        topics: Vec<String>,
        each: Option<&'static str>,
    },
    Points {
        schema: SchemaRef,
        /// The names of the point columns in the messages.
        fields: Vec<String>,
        topic: String,
        limit: usize,
    },
    Times {
        hz: f64,
    },
}

impl ViewKind {
    pub fn schema(&self) -> SchemaRef {
        match self {
            ViewKind::Meaning { schema, .. } | ViewKind::Points { schema, .. } => {
                Arc::clone(schema)
            }
            ViewKind::Times { .. } => times::schema(),
        }
    }

    fn part(&self, shared: Arc<Shared>, slice: Slice) -> Arc<dyn Part> {
        match self {
            ViewKind::Meaning {
                schema,
                topics,
                each,
            } => Arc::new(MeaningPart {
                schema: Arc::clone(schema),
                recording: slice.recording,
                topics: topics.clone(),
                range: slice.range,
                each: *each,
                shared,
            }),
            ViewKind::Points {
                schema,
                fields,
                topic,
                limit,
            } => Arc::new(PointSlice::of(schema, fields, topic, *limit, shared, slice)),
            ViewKind::Times { hz } => Arc::new(Grid {
                schema: times::schema(),
                recording: shared.opened(slice.recording).name.clone(),
                place: slice.recording,
                range: slice.range,
                hz: *hz,
            }),
        }
    }
}

/// A slice of a recording at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedSlice {
    pub recording: RecordingAddress,
    pub range: TimeRange,
    pub labels: Option<RecordingLabels>,
}

impl Work {
    /// The output columns.
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(match self {
            Work::Topic(shape, _) => Arc::clone(&shape.output),
            Work::Asof { schema, .. } => Arc::clone(schema),
            Work::View(kind, None) => kind.schema(),
            Work::View(kind, Some(columns)) => Arc::new(kind.schema().project(columns)?),
        })
    }

    /// Its description for `EXPLAIN`.
    pub fn name(&self) -> String {
        match self {
            Work::Topic(shape, _) => shape.topic.clone(),
            Work::Asof { left, rights, .. } => {
                let rights = rights.iter().map(|right| right.shape.topic.as_str());
                let topics: Vec<&str> = [left.topic.as_str()].into_iter().chain(rights).collect();
                format!("as-of join of {}", topics.join(", "))
            }
            Work::View(ViewKind::Meaning { topics, .. }, _) => topics.join(", "),
            Work::View(ViewKind::Points { topic, .. }, _) => format!("points of {topic}"),
            Work::View(ViewKind::Times { hz }, _) => format!("instants at {hz} Hz"),
        }
    }

    /// Starts reading a slice. Its recording is opened on a thread that may block.
    pub fn start(
        &self,
        placed: PlacedSlice,
        opener: &Arc<dyn RecordingOpener>,
        context: Arc<TaskContext>,
    ) -> Result<(Arc<Shared>, SendableRecordBatchStream)> {
        let slice = Slice {
            recording: 0,
            range: placed.range,
        };
        let name = placed.recording.name.clone();
        let recording = LazyRecording::new(placed.recording, Arc::clone(opener));
        let shared = Arc::new(Shared::elsewhere(vec![Opened {
            labels: placed.labels,
            ..Opened::new(name, Arc::new(recording))
        }]));
        let rows = match self {
            Work::Topic(shape, limit) => {
                let shared = Arc::clone(&shared);
                TopicScan::of_slices(shape.clone(), shared, vec![slice], *limit)
                    .execute(0, context)?
            }
            Work::Asof {
                left,
                rights,
                schema,
            } => {
                let (left, rights) = (left.clone(), rights.clone());
                let schema = Arc::clone(schema);
                AsofScan::of_slices(left, rights, schema, Arc::clone(&shared), vec![slice])
                    .execute(0, context)?
            }
            Work::View(kind, columns) => {
                let part = kind.part(Arc::clone(&shared), slice);
                let rows = rows_of(part, kind.schema(), context);
                match columns.clone() {
                    None => rows,
                    Some(columns) => {
                        let rows = rows.map(move |rows| Ok(rows?.project(&columns)?));
                        Box::pin(RecordBatchStreamAdapter::new(self.schema()?, rows))
                    }
                }
            }
        };
        Ok((shared, rows))
    }
}
