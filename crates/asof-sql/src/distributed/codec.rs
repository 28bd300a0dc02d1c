//! Serializes plans, and deserializes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use asof_core::{Stamp, Summary, TimeRange};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExpr;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::{self, PhysicalExprNode};
use prost::Message as _;

use super::messages::{
    AsofMessage, JoinMessage, MeaningMessage, PlacesMessage, PlanKind, PlanMessage, PointsMessage,
    ProjectionMessage, RecordingMessage, RecordingsMessage, RightMessage, ShapeMessage,
    SlicesMessage, TopicMessage, VersionMessage, WorkKind,
};
use super::work::{ViewKind, Work};
use super::{FleetVersion, LazyRecording, RecordingAddress, RecordingOpener, SliceExec};
use crate::asof::How;
use crate::assemble::Shape;
use crate::database::Shared;
use crate::instants::{self, INSTANT};
use crate::meanings::unfolded_list;
use crate::merge::AsofJoinExec;
use crate::numbered::{NumberedExec, without_number};
use crate::pushdown::Pushdown;
use crate::recordings::Opened;
use crate::right::RightTopic;
use crate::times::is_rate;
use crate::transforms::{Transforms, function_named, recordings_of};

/// The start of our bytes. Another version has another.
const MARK: &[u8] = b"asof-plan-3\0";

/// For how many sets of recordings transforms stay loaded for later plans.
const KEPT_TRANSFORMS: usize = 4;

/// Plans over recordings as bytes, for an engine that sends them to its processes; everything else is left to the engine's
/// own codec.
///
/// The bytes contain addresses, times and columns. The recordings are opened by the process that decodes them, and only through its
/// [`RecordingOpener`].
#[derive(Debug)]
pub struct PlanCodec {
    opener: Arc<dyn RecordingOpener>,
    others: Arc<dyn PhysicalExtensionCodec>,
    transforms: Mutex<VecDeque<(Vec<u8>, Arc<Transforms>)>>,
}

impl PlanCodec {
    /// For a process that opens recordings with this opener.
    pub fn new(opener: Arc<dyn RecordingOpener>, others: Arc<dyn PhysicalExtensionCodec>) -> Self {
        PlanCodec {
            opener,
            others,
            transforms: Mutex::default(),
        }
    }

    /// For a process that makes plans, or passes them on, and opens nothing.
    pub fn handing_on(others: Arc<dyn PhysicalExtensionCodec>) -> Self {
        PlanCodec::new(Arc::new(super::OpensNothing), others)
    }

    /// The transforms of the recordings that these bytes name. One plan may request them many times.
    fn transforms_of(&self, bytes: &[u8]) -> Result<Arc<Transforms>> {
        let mut kept = self
            .transforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = kept.iter().find(|(key, _)| key == bytes) {
            return Ok(Arc::clone(known));
        }
        let message = RecordingsMessage::decode(bytes).map_err(|error| damaged(&error))?;
        let recordings = message.recordings.into_iter().map(|one| {
            let address = RecordingAddress {
                name: one.name.clone(),
                address: one.address,
                size: one.size,
                version: one.version.map(|version| FleetVersion {
                    fleet: version.fleet,
                    generation: version.generation,
                    e_tag: version.e_tag,
                    modified: version.modified.map(Stamp::from_nanos),
                }),
            };
            let recording = LazyRecording::new(address.clone(), Arc::clone(&self.opener));
            let mut opened = Opened::new(one.name, Arc::new(recording));
            // A scheduler passes on what it received.
            opened.address = Some(address);
            let mut described = Summary::empty("");
            described.range = TimeRange::new(one.start.into(), one.end.into());
            opened.described = Some(Arc::new(described));
            opened
        });
        let shared = Arc::new(Shared::elsewhere(recordings.collect()));
        let transforms = Arc::new(Transforms::of(&shared));
        kept.push_back((bytes.to_vec(), Arc::clone(&transforms)));
        if kept.len() > KEPT_TRANSFORMS {
            kept.pop_front();
        }
        Ok(transforms)
    }
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(bytes) = buf.strip_prefix(MARK) else {
            return self.others.try_decode(buf, inputs, context, converter);
        };
        let message = PlanMessage::decode(bytes).map_err(|error| damaged(&error))?;
        let context = PhysicalPlanDecodeContext::new(context, self);
        let reader = Reader {
            context: &context,
            converter,
        };
        match (message.kind, inputs) {
            (Some(PlanKind::Slices(message)), [input]) => {
                let order = message.order.map(|place| place as usize);
                let work = reader.work(message)?;
                let opener = Arc::clone(&self.opener);
                let exec = SliceExec::new(work, order, opener, Arc::clone(input))?;
                Ok(Arc::new(exec))
            }
            (Some(PlanKind::Join(message)), [left, right]) => reader.join(message, left, right),
            (Some(PlanKind::Numbered(())), [input]) => {
                Ok(Arc::new(NumberedExec::new(Arc::clone(input))))
            }
            _ => plan_err!("a plan has no kind, or lacks inputs"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let writer = Writer {
            codec: self,
            converter,
        };
        let kind = if let Some(exec) = node.downcast_ref::<SliceExec>() {
            PlanKind::Slices(writer.slices(exec)?)
        } else if let Some(exec) = node.downcast_ref::<AsofJoinExec>() {
            PlanKind::Join(writer.join(exec)?)
        } else if node.downcast_ref::<NumberedExec>().is_some() {
            PlanKind::Numbered(())
        } else {
            return self.others.try_encode(node, buf, converter);
        };
        buf.extend_from_slice(MARK);
        PlanMessage { kind: Some(kind) }
            .encode(buf)
            .map_err(|error| internal_datafusion_err!("a plan cannot be written: {error}"))
    }

    fn try_decode_udf(&self, name: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        let Some(bytes) = buf.strip_prefix(MARK) else {
            return self.others.try_decode_udf(name, buf);
        };
        let transforms = self.transforms_of(bytes)?;
        if name == INSTANT {
            return Ok(Arc::new(instants::function(transforms.shared())));
        }
        let Some(function) = function_named(name, &transforms) else {
            return plan_err!("there is no function '{name}' over recordings");
        };
        Ok(Arc::new(function))
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        let Some(shared) = recordings_of(node).or_else(|| instants::recordings_of(node)) else {
            return self.others.try_encode_udf(node, buf);
        };
        let mut recordings = Vec::new();
        for opened in shared.known_recordings() {
            let Some(address) = &opened.address else {
                return plan_err!(
                    "other processes cannot find {}: it has no address",
                    opened.name
                );
            };
            let range = opened.range();
            recordings.push(RecordingMessage {
                name: address.name.clone(),
                address: address.address.clone(),
                size: address.size,
                version: address.version.as_ref().map(|version| VersionMessage {
                    fleet: version.fleet.clone(),
                    generation: version.generation,
                    e_tag: version.e_tag.clone(),
                    modified: version.modified.map(Stamp::nanos),
                }),
                start: range.start.nanos(),
                end: range.end.nanos(),
            });
        }
        buf.extend_from_slice(MARK);
        RecordingsMessage { recordings }
            .encode(buf)
            .map_err(|error| internal_datafusion_err!("a plan cannot be written: {error}"))
    }

    fn try_decode_higher_order_function(
        &self,
        name: &str,
        buf: &[u8],
    ) -> Result<Arc<HigherOrderUDF>> {
        self.others.try_decode_higher_order_function(name, buf)
    }

    fn try_encode_higher_order_function(
        &self,
        node: &HigherOrderUDF,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        self.others.try_encode_higher_order_function(node, buf)
    }

    fn try_decode_udaf(&self, name: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.others.try_decode_udaf(name, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udaf(node, buf)
    }

    fn try_decode_udwf(&self, name: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        self.others.try_decode_udwf(name, buf)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        self.others.try_encode_udwf(node, buf)
    }
}

fn damaged(error: &prost::DecodeError) -> DataFusionError {
    DataFusionError::Plan(format!(
        "a plan over recordings is damaged, or of another version of asof: {error}"
    ))
}

fn missing(what: &str) -> DataFusionError {
    DataFusionError::Plan(format!("a plan over recordings lacks {what}"))
}

fn schema_message(schema: &SchemaRef) -> Result<Option<protobuf::Schema>> {
    let message = protobuf::Schema::try_from(schema.as_ref());
    message
        .map(Some)
        .map_err(|error| internal_datafusion_err!("columns cannot be written: {error}"))
}

fn schema_of(message: Option<&protobuf::Schema>) -> Result<SchemaRef> {
    let message = message.ok_or_else(|| missing("its columns"))?;
    let schema = Schema::try_from(message);
    let schema =
        schema.map_err(|error| DataFusionError::Plan(format!("columns of a plan: {error}")))?;
    Ok(Arc::new(schema))
}

fn how_of(word: &str, tolerance: Option<i64>) -> Result<How> {
    How::parse(word, tolerance).ok_or_else(|| missing("how it compares two times"))
}

/// Writes plans of ours.
struct Writer<'a> {
    codec: &'a dyn PhysicalExtensionCodec,
    converter: &'a dyn PhysicalProtoConverterExtension,
}

impl Writer<'_> {
    fn expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<PhysicalExprNode> {
        self.converter.physical_expr_to_proto(expr, self.codec)
    }

    fn shape(&self, shape: &Shape) -> Result<ShapeMessage> {
        let projected = match &shape.projected {
            None => None,
            Some(all) => {
                let exprs = all.iter().map(|one| self.expr(&one.expr));
                Some(ProjectionMessage {
                    exprs: exprs.collect::<Result<_>>()?,
                    names: all.iter().map(|one| one.alias.clone()).collect(),
                })
            }
        };
        Ok(ShapeMessage {
            topic: shape.topic.clone(),
            read: schema_message(&shape.read)?,
            paths: shape.paths.clone(),
            projected,
            output: schema_message(&shape.output)?,
            labels: shape.labels.clone(),
        })
    }

    fn slices(&self, exec: &SliceExec) -> Result<SlicesMessage> {
        let mut projection = None;
        let work = match &exec.work {
            Work::Topic(shape, limit) => WorkKind::Topic(TopicMessage {
                shape: Some(self.shape(shape)?),
                limit: limit.map(|limit| limit as u64),
            }),
            Work::Asof {
                left,
                rights,
                schema,
            } => WorkKind::Asof(AsofMessage {
                left: Some(self.shape(left)?),
                rights: rights
                    .iter()
                    .map(|right| self.right(right))
                    .collect::<Result<_>>()?,
                schema: schema_message(schema)?,
            }),
            Work::View(kind, columns) => {
                projection = columns.as_ref().map(|columns| PlacesMessage {
                    places: columns.iter().map(|place| *place as u32).collect(),
                });
                view(kind)?
            }
        };
        Ok(SlicesMessage {
            work: Some(work),
            order: exec.order.map(|place| place as u32),
            projection,
        })
    }

    fn right(&self, right: &RightTopic) -> Result<RightMessage> {
        Ok(RightMessage {
            shape: Some(self.shape(&right.shape)?),
            left_time: right.left_time as u32,
            right_time: right.right_time as u32,
            how: How::One(right.rule).word(),
            tolerance: How::One(right.rule).tolerance(),
            is_by_log_time: right.is_by_log_time,
            start: right.wanted.range.start.nanos(),
            end: right.wanted.range.end.nanos(),
        })
    }

    fn join(&self, exec: &AsofJoinExec) -> Result<JoinMessage> {
        let left_keys = exec.keys.iter().map(|(one, _)| self.expr(one));
        let right_keys = exec.keys.iter().map(|(_, other)| self.expr(other));
        Ok(JoinMessage {
            left_time: Some(self.expr(&exec.left_time)?),
            right_time: Some(self.expr(&exec.right_time)?),
            left_keys: left_keys.collect::<Result<_>>()?,
            right_keys: right_keys.collect::<Result<_>>()?,
            how: exec.how.word(),
            tolerance: exec.how.tolerance(),
            schema: schema_message(&exec.schema)?,
        })
    }
}

fn view(kind: &ViewKind) -> Result<WorkKind> {
    Ok(match kind {
        ViewKind::Meaning {
            schema,
            topics,
            each,
        } => WorkKind::Meaning(MeaningMessage {
            schema: schema_message(schema)?,
            topics: topics.clone(),
            each: each.map(str::to_owned),
        }),
        ViewKind::Points {
            schema,
            fields,
            topic,
            limit,
        } => WorkKind::Points(PointsMessage {
            schema: schema_message(schema)?,
            fields: fields.clone(),
            topic: topic.clone(),
            limit: *limit as u64,
        }),
        ViewKind::Times { hz } => WorkKind::Times(*hz),
    })
}

/// Reads our plans. They come from outside: every index in them is checked before it is used.
struct Reader<'a> {
    context: &'a PhysicalPlanDecodeContext<'a>,
    converter: &'a dyn PhysicalProtoConverterExtension,
}

impl Reader<'_> {
    fn expr(&self, expr: &PhysicalExprNode, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        self.converter
            .proto_to_physical_expr(expr, schema, self.context)
    }

    fn shape(&self, message: Option<ShapeMessage>) -> Result<Shape> {
        let message = message.ok_or_else(|| missing("a topic"))?;
        let read = schema_of(message.read.as_ref())?;
        let output = schema_of(message.output.as_ref())?;
        let projected = match message.projected {
            None => None,
            Some(all) if all.exprs.len() == all.names.len() => {
                let exprs = all.exprs.iter().zip(all.names).map(|(expr, alias)| {
                    let expr = self.expr(expr, &read)?;
                    Ok(ProjectionExpr { expr, alias })
                });
                Some(exprs.collect::<Result<Vec<_>>>()?)
            }
            Some(_) => return Err(missing("the names of its columns")),
        };
        let made = projected.as_ref().map_or(read.fields().len(), Vec::len);
        if made != output.fields().len() {
            return plan_err!("a plan over recordings has other columns than it declares");
        }
        Ok(Shape {
            topic: message.topic,
            paths: message.paths,
            labels: message.labels,
            projected,
            output,
            read,
        })
    }

    fn work(&self, message: SlicesMessage) -> Result<Work> {
        let columns = message.projection.map(|columns| {
            let places = columns.places.into_iter();
            places.map(|place| place as usize).collect::<Vec<_>>()
        });
        let kind = match message.work.ok_or_else(|| missing("what it reads"))? {
            WorkKind::Topic(topic) => {
                let limit = topic.limit.and_then(|limit| usize::try_from(limit).ok());
                return Ok(Work::Topic(self.shape(topic.shape)?, limit));
            }
            WorkKind::Asof(message) => return self.asof(message),
            WorkKind::Meaning(message) => ViewKind::Meaning {
                schema: schema_of(message.schema.as_ref())?,
                topics: message.topics,
                each: match message.each {
                    None => None,
                    Some(name) => Some(unfolded_list(&name).ok_or_else(|| missing("a list"))?),
                },
            },
            WorkKind::Points(message) => ViewKind::Points {
                schema: schema_of(message.schema.as_ref())?,
                fields: message.fields,
                topic: message.topic,
                limit: usize::try_from(message.limit).unwrap_or(usize::MAX).max(1),
            },
            WorkKind::Times(hz) if is_rate(hz) => ViewKind::Times { hz },
            WorkKind::Times(_) => return Err(missing("a rate")),
        };
        Ok(Work::View(kind, columns))
    }

    fn asof(&self, message: AsofMessage) -> Result<Work> {
        let left = self.shape(message.left)?;
        let mut rights = Vec::new();
        for right in message.rights {
            let shape = self.shape(right.shape)?;
            let (left_time, right_time) = (right.left_time as usize, right.right_time as usize);
            for (schema, place) in [(&left.output, left_time), (&shape.output, right_time)] {
                if !is_time(schema, place) {
                    return plan_err!("an as-of join compares column {place}, which is not a time");
                }
            }
            let how = how_of(&right.how, right.tolerance)?;
            let How::One(rule) = how else {
                return plan_err!("an as-of join in one pass cannot be {how}");
            };
            if how.is_between() {
                return plan_err!("an as-of join in one pass cannot be {how}");
            }
            rights.push(RightTopic {
                wanted: Pushdown {
                    range: TimeRange::new(right.start.into(), right.end.into()),
                    ..Pushdown::default()
                },
                shape,
                left_time,
                right_time,
                rule,
                is_by_log_time: right.is_by_log_time,
            });
        }
        let schema = schema_of(message.schema.as_ref())?;
        let shapes = rights.iter().map(|right| &right.shape);
        let columns = [&left].into_iter().chain(shapes);
        let columns: usize = columns.map(|shape| shape.output.fields().len()).sum();
        if schema.fields().len() != columns {
            return plan_err!("an as-of join has other columns than its topics");
        }
        Ok(Work::Asof {
            left,
            rights,
            schema,
        })
    }

    fn join(
        &self,
        message: JoinMessage,
        left: &Arc<dyn ExecutionPlan>,
        right: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schemas = (left.schema(), right.schema());
        let time = |time: Option<PhysicalExprNode>, schema: &SchemaRef| {
            let time = time.ok_or_else(|| missing("a time"))?;
            self.expr(&time, schema)
        };
        let left_time = time(message.left_time, &schemas.0)?;
        let right_time = time(message.right_time, &schemas.1)?;
        let keys = message.left_keys.iter().zip(&message.right_keys);
        let keys = keys
            .map(|(one, other)| Ok((self.expr(one, &schemas.0)?, self.expr(other, &schemas.1)?)));
        let schema = schema_of(message.schema.as_ref())?;
        let shown = without_number(&schemas.1);
        if schema.fields().len() != schemas.0.fields().len() + shown.fields().len() {
            return plan_err!("an as-of join has other columns than its sides");
        }
        Ok(Arc::new(AsofJoinExec::new(
            Arc::clone(left),
            Arc::clone(right),
            left_time,
            right_time,
            keys.collect::<Result<_>>()?,
            how_of(&message.how, message.tolerance)?,
            schema,
        )))
    }
}

fn is_time(schema: &SchemaRef, place: usize) -> bool {
    let field = schema.fields().get(place);
    field.is_some_and(|field| {
        matches!(
            field.data_type(),
            DataType::Timestamp(TimeUnit::Nanosecond, _)
        )
    })
}
