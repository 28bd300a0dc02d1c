//! Plans on the wire, as Protocol Buffers.

use datafusion_proto::protobuf::{PhysicalExprNode, Schema};

/// A plan of ours.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PlanMessage {
    #[prost(oneof = "PlanKind", tags = "1, 2, 3")]
    pub kind: Option<PlanKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(
    clippy::large_enum_variant,
    reason = "one lives at a time, while a plan is written or read"
)]
pub(super) enum PlanKind {
    #[prost(message, tag = "1")]
    Slices(SlicesMessage),
    #[prost(message, tag = "2")]
    Join(JoinMessage),
    /// [`crate::numbered::NumberedExec`] without its input.
    #[prost(message, tag = "3")]
    Numbered(()),
}

/// [`super::SliceExec`] without its input.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SlicesMessage {
    #[prost(oneof = "WorkKind", tags = "1, 2, 3, 4, 5")]
    pub work: Option<WorkKind>,
    #[prost(uint32, optional, tag = "6")]
    pub order: Option<u32>,
    /// The requested columns of a view.
    #[prost(message, optional, tag = "7")]
    pub projection: Option<PlacesMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PlacesMessage {
    #[prost(uint32, repeated, tag = "1")]
    pub places: Vec<u32>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum WorkKind {
    #[prost(message, tag = "1")]
    Topic(TopicMessage),
    #[prost(message, tag = "2")]
    Asof(AsofMessage),
    #[prost(message, tag = "3")]
    Meaning(MeaningMessage),
    #[prost(message, tag = "4")]
    Points(PointsMessage),
    /// Instants, this many per second.
    #[prost(double, tag = "5")]
    Times(f64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TopicMessage {
    #[prost(message, optional, tag = "1")]
    pub shape: Option<ShapeMessage>,
    #[prost(uint64, optional, tag = "2")]
    pub limit: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AsofMessage {
    #[prost(message, optional, tag = "1")]
    pub left: Option<ShapeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub rights: Vec<RightMessage>,
    #[prost(message, optional, tag = "3")]
    pub schema: Option<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RightMessage {
    #[prost(message, optional, tag = "1")]
    pub shape: Option<ShapeMessage>,
    #[prost(uint32, tag = "2")]
    pub left_time: u32,
    #[prost(uint32, tag = "3")]
    pub right_time: u32,
    #[prost(string, tag = "4")]
    pub how: String,
    #[prost(int64, optional, tag = "5")]
    pub tolerance: Option<i64>,
    #[prost(bool, tag = "6")]
    pub is_by_log_time: bool,
    #[prost(sint64, tag = "7")]
    pub start: i64,
    #[prost(sint64, tag = "8")]
    pub end: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ShapeMessage {
    #[prost(string, tag = "1")]
    pub topic: String,
    #[prost(message, optional, tag = "2")]
    pub read: Option<Schema>,
    #[prost(string, repeated, tag = "3")]
    pub paths: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub projected: Option<ProjectionMessage>,
    #[prost(message, optional, tag = "5")]
    pub output: Option<Schema>,
    #[prost(string, repeated, tag = "6")]
    pub labels: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProjectionMessage {
    #[prost(message, repeated, tag = "1")]
    pub exprs: Vec<PhysicalExprNode>,
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MeaningMessage {
    #[prost(message, optional, tag = "1")]
    pub schema: Option<Schema>,
    #[prost(string, repeated, tag = "2")]
    pub topics: Vec<String>,
    #[prost(string, optional, tag = "3")]
    pub each: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PointsMessage {
    #[prost(message, optional, tag = "1")]
    pub schema: Option<Schema>,
    #[prost(string, repeated, tag = "2")]
    pub fields: Vec<String>,
    #[prost(string, tag = "3")]
    pub topic: String,
    #[prost(uint64, tag = "4")]
    pub limit: u64,
}

/// [`crate::merge::AsofJoinExec`] without its inputs.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct JoinMessage {
    #[prost(message, optional, tag = "1")]
    pub left_time: Option<PhysicalExprNode>,
    #[prost(message, optional, tag = "2")]
    pub right_time: Option<PhysicalExprNode>,
    #[prost(message, repeated, tag = "3")]
    pub left_keys: Vec<PhysicalExprNode>,
    #[prost(message, repeated, tag = "4")]
    pub right_keys: Vec<PhysicalExprNode>,
    #[prost(string, tag = "5")]
    pub how: String,
    #[prost(int64, optional, tag = "6")]
    pub tolerance: Option<i64>,
    #[prost(message, optional, tag = "7")]
    pub schema: Option<Schema>,
}

/// The recordings in which a function looks up transforms.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RecordingsMessage {
    #[prost(message, repeated, tag = "1")]
    pub recordings: Vec<RecordingMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RecordingMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub address: String,
    #[prost(uint64, optional, tag = "3")]
    pub size: Option<u64>,
    #[prost(sint64, tag = "4")]
    pub start: i64,
    #[prost(sint64, tag = "5")]
    pub end: i64,
    #[prost(message, optional, tag = "6")]
    pub version: Option<VersionMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct VersionMessage {
    #[prost(string, tag = "1")]
    pub fleet: String,
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    #[prost(string, optional, tag = "3")]
    pub e_tag: Option<String>,
    #[prost(sint64, optional, tag = "4")]
    pub modified: Option<i64>,
}
