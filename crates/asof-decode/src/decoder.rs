//! Decodes the messages of one channel.

mod between;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use asof_core::{Channel, Stamp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::columns::{Columns, Payload, Sizes};
use crate::error::{PayloadError, SchemaError};
use crate::layers::archetypes::has_between;
use crate::layout::{Asked, Group, Node, Projection};
use crate::model::MessageType;
use crate::recycle::room_for;
use crate::schema::{flatbuffer, idl, jsonschema, proto, rosmsg};
use crate::stamps::{STAMP_PATHS, StampColumns, times_array};
use crate::wire::WireDecoder;
use crate::wire::cdr::{CdrDecoder, Flavour};
use crate::wire::flatbuffer::FlatbufferDecoder;
use crate::wire::json::JsonDecoder;
use crate::wire::protobuf::ProtobufDecoder;
use between::Neighbours;

/// Decodes the messages of one channel: into rows of an Arrow table, or into JSON.
///
/// ```
/// use asof_core::{Channel, Schema, Stamp};
/// use asof_decode::{Decoder, Projection};
///
/// let schema = Schema {
///     name: "geometry_msgs/msg/Point".into(),
///     encoding: "ros2msg".into(),
///     data: "float64 x\nfloat64 y\nfloat64 z\n".into(),
/// };
/// let channel = Channel {
///     topic: "/goal".into(),
///     message_encoding: "cdr".into(),
///     schema: Some(schema.into()),
///     ..Channel::default()
/// };
/// let mut payload = vec![0, 1, 0, 0];
/// for value in [1.5f64, 0.1, -2.0] {
///     payload.extend(value.to_le_bytes());
/// }
/// let mut decoder = Decoder::new(&channel, &Projection::All, &[&payload])?;
/// assert_eq!(decoder.json(&payload)?, r#"{"x":1.5,"y":0.1,"z":-2.0}"#);
///
/// let at = Stamp::from_nanos(7);
/// decoder.append(&[(at, at, payload.as_slice().into())], |_, error| panic!("{error}"));
/// let batch = decoder.take()?.expect("one row");
/// assert_eq!(batch.num_rows(), 1);
/// assert_eq!(batch.schema().field(2).name(), "x");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Decoder {
    wire: Box<dyn WireDecoder>,
    columns: Columns,
    /// Nanoseconds, with the sign in the highest bit, as in Arrow.
    log_times: Vec<u64>,
    publish_times: Vec<u64>,
    /// The rows and sizes of the last batch, until memory is reserved for the next one.
    last_rows: usize,
    last_sizes: Sizes,
    schema: SchemaRef,
    /// The positions of the message's fields in the output, in the order of the schema.
    shown: Vec<usize>,
    stamp: Option<StampColumns>,
    /// Whether every field is selected.
    is_whole: bool,
    /// Whether messages can be interpolated.
    has_between: bool,
    neighbours: Neighbours,
    failed: Vec<(usize, PayloadError)>,
}

/// A message with its log time and publish time.
pub type Timed<'a> = (Stamp, Stamp, Payload<'a>);

/// The largest payload: Arrow counts the bytes of a batch's texts in 31 bits.
pub(crate) const LARGEST_PAYLOAD: usize = 1 << 30;

static DECODERS_MADE: AtomicU64 = AtomicU64::new(0);

/// How many decoders this process has made, each from a channel's schema: what is read of one topic should not make those of all.
pub fn decoders_made() -> u64 {
    DECODERS_MADE.load(Ordering::Relaxed)
}

impl Decoder {
    /// Creates a decoder for a channel's messages.
    ///
    /// For a channel without a schema, the columns are inferred from `samples`; otherwise they are not needed.
    ///
    /// # Errors
    /// When the encoding is unknown, or the schema cannot be used.
    pub fn new(
        channel: &Channel,
        projection: &Projection,
        samples: &[&[u8]],
    ) -> Result<Self, SchemaError> {
        Self::with_vectors(channel, projection, &[], samples)
    }

    /// The same; structs of floats at these paths become arrays where the wire format allows it.
    pub(crate) fn with_vectors(
        channel: &Channel,
        projection: &Projection,
        vectors: &[String],
        samples: &[&[u8]],
    ) -> Result<Self, SchemaError> {
        DECODERS_MADE.fetch_add(1, Ordering::Relaxed);
        let wanted = with_stamp(projection);
        let asked = |projection| Asked {
            projection,
            vectors,
        };
        let wire = match wire_decoder(channel, asked(&wanted), samples) {
            // The stamp was only added in case it is there.
            Err(SchemaError::NoSuchField { .. }) if wanted != *projection => {
                wire_decoder(channel, asked(projection), samples)?
            }
            result => result?,
        };
        let root = &wire.layout().root;
        let stamp = StampColumns::find(root);
        let shown = shown_fields(root, projection);
        let schema = Arc::new(arrow_schema_of(channel, root, &shown, stamp.is_some()));
        Ok(Decoder {
            columns: wire.layout().columns(),
            neighbours: Neighbours::new(wire.layout().columns()),
            wire,
            log_times: Vec::new(),
            publish_times: Vec::new(),
            last_rows: 0,
            last_sizes: Sizes::default(),
            schema,
            shown,
            stamp,
            is_whole: *projection == Projection::All,
            has_between: has_between(channel.type_name()),
            failed: Vec::new(),
        })
    }

    /// The columns of a row, with those within others.
    pub(crate) fn columns(&self) -> usize {
        self.wire.layout().nodes
    }

    /// The table's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows that were decoded and not yet taken.
    pub fn rows(&self) -> usize {
        self.log_times.len()
    }

    /// The memory that those rows hold and keep alive, in bytes.
    pub fn bytes(&self) -> usize {
        self.columns.bytes() + 16 * self.rows()
    }

    /// Reserves memory for `more` rows like the existing ones.
    pub fn reserve(&mut self, more: usize) {
        let rows = self.rows();
        self.columns.reserve(rows, more);
        self.log_times.reserve(more);
        self.publish_times.reserve(more);
    }

    /// Decodes a run of messages into rows. Messages that cannot be decoded are skipped and reported, by their
    /// position in the run.
    pub fn append(&mut self, run: &[Timed<'_>], mut failed: impl FnMut(usize, PayloadError)) {
        let mut errors = std::mem::take(&mut self.failed);
        let unpacked = unpacked(run);
        let payloads: Vec<Payload<'_>> = match &unpacked {
            Some(unpacked) => unpacked
                .iter()
                .map(|bytes| Payload::from(&**bytes))
                .collect(),
            None => run.iter().map(|(_, _, payload)| *payload).collect(),
        };
        let rows = self.rows();
        if rows == 0 && self.last_rows > 0 {
            self.make_room();
        }
        self.decode(&payloads, rows, &mut errors);
        if errors.is_empty() {
            self.log_times
                .extend(run.iter().map(|(log_time, _, _)| log_time.nanos() as u64));
            self.publish_times
                .extend(run.iter().map(|(_, time, _)| time.nanos() as u64));
        } else {
            let mut bad = errors.iter().map(|(at, _)| *at).peekable();
            for (at, (log_time, publish_time, _)) in run.iter().enumerate() {
                if bad.next_if_eq(&at).is_none() {
                    self.log_times.push(log_time.nanos() as u64);
                    self.publish_times.push(publish_time.nanos() as u64);
                }
            }
        }
        for (at, error) in errors.drain(..) {
            failed(at, error);
        }
        self.failed = errors;
    }

    /// Decodes payloads into rows after the existing `rows`; one that is too large is an error of its own.
    fn decode(
        &mut self,
        payloads: &[Payload<'_>],
        mut rows: usize,
        errors: &mut Vec<(usize, PayloadError)>,
    ) {
        let mut start = 0;
        for part in payloads.split_inclusive(|payload| payload.bytes.len() > LARGEST_PAYLOAD) {
            let is_large = |payload: &&Payload<'_>| payload.bytes.len() > LARGEST_PAYLOAD;
            let large = part.last().filter(is_large);
            let good = &part[..part.len() - usize::from(large.is_some())];
            let before = errors.len();
            self.wire.decode(good, &mut self.columns, rows, errors);
            for (at, _) in &mut errors[before..] {
                *at += start;
            }
            rows += good.len() - (errors.len() - before);
            start += part.len();
            errors.extend(large.map(|large| (start - 1, too_large(large.bytes.len()))));
        }
    }

    /// Reserves memory for a batch like the last one, once.
    fn make_room(&mut self) {
        self.columns.make_room(&self.last_sizes);
        self.log_times = room_for(self.last_rows);
        self.publish_times = room_for(self.last_rows);
        self.last_rows = 0;
    }

    /// Takes the rows as a batch; `None` where there are none.
    ///
    /// # Errors
    /// When Arrow refuses them, which is a bug in this crate.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let rows = self.rows();
        if rows == 0 {
            return Ok(None);
        }
        self.last_rows = rows;
        self.columns.sizes(&mut self.last_sizes);
        let stamp = self
            .stamp
            .as_ref()
            .map(|stamp| stamp.array(&self.columns, rows));
        let mut arrays: Vec<ArrayRef> = vec![
            times_array(std::mem::take(&mut self.log_times), None),
            times_array(std::mem::take(&mut self.publish_times), None),
        ];
        arrays.extend(stamp);
        let root = &self.wire.layout().root;
        for (at, node) in root.fields.iter().enumerate() {
            let Some(node) = node else { continue };
            let array = node.take(&mut self.columns, rows)?;
            if self.shown.contains(&at) {
                arrays.push(array);
            }
        }
        RecordBatch::try_new(Arc::clone(&self.schema), arrays).map(Some)
    }

    /// Decodes one message to a JSON object.
    ///
    /// # Errors
    /// When the payload cannot be decoded.
    pub fn json(&mut self, payload: &[u8]) -> Result<String, PayloadError> {
        let mut out = Vec::new();
        self.write_json(payload, &mut out)?;
        Ok(String::from_utf8(out)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
    }

    /// Decodes one message and writes it as a JSON object.
    ///
    /// # Errors
    /// When the payload cannot be decoded; nothing is written then.
    pub fn write_json(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), PayloadError> {
        if payload.len() > LARGEST_PAYLOAD {
            return Err(too_large(payload.len()));
        }
        if self.is_whole
            && let Some(text) = self.wire.text(payload)
        {
            out.extend_from_slice(&text?);
            return Ok(());
        }
        self.with_row(payload, |root, columns, row, shown| {
            root.print_shown(columns, row, Some(shown), out);
        })
    }

    /// Whether messages of this type have a stamp.
    pub fn has_stamp(&self) -> bool {
        self.stamp.is_some()
    }

    /// A message's stamp: when it was measured. `None` where it has none.
    ///
    /// Use [`Projection::stamp`] for a decoder that decodes only the stamp.
    ///
    /// # Errors
    /// When the payload cannot be decoded.
    pub fn stamp(&mut self, payload: &[u8]) -> Result<Option<Stamp>, PayloadError> {
        let rows = self.rows();
        self.push_row(payload, rows)?;
        let stamp = self.stamp.as_ref();
        let found = stamp.and_then(|stamp| stamp.at(&self.columns, rows));
        self.wire.layout().truncate(&mut self.columns, rows);
        Ok(found.map(Stamp::from_nanos))
    }

    /// The names of the columns that a message is spread over, where structs are.
    pub fn cell_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let root = &self.wire.layout().root;
        root.cell_names("", Some(&self.shown), &mut names);
        names
    }

    /// Decodes one message and passes on the text of each of these columns; `None` where it has no value. Lists and maps are
    /// JSON.
    ///
    /// # Errors
    /// When the payload cannot be decoded; nothing is passed on then.
    pub fn cells(
        &mut self,
        payload: &[u8],
        mut each: impl FnMut(Option<&str>),
    ) -> Result<(), PayloadError> {
        self.with_row(payload, |root, columns, row, shown| {
            root.cells(columns, Some(row), Some(shown), &mut each);
        })
    }

    /// The message's own fields.
    pub(crate) fn root(&self) -> &Group {
        &self.wire.layout().root
    }

    /// Decodes one message, calls `show` with the row, and discards it.
    pub(crate) fn with_row(
        &mut self,
        payload: &[u8],
        show: impl FnOnce(&Group, &Columns, usize, &[usize]),
    ) -> Result<(), PayloadError> {
        let rows = self.rows();
        self.push_row(payload, rows)?;
        let layout = self.wire.layout();
        show(&layout.root, &self.columns, rows, &self.shown);
        layout.truncate(&mut self.columns, rows);
        Ok(())
    }

    /// Decodes one message as row number `rows`, without its times.
    fn push_row(&mut self, payload: &[u8], rows: usize) -> Result<(), PayloadError> {
        let unpacked = is_packed(payload).then(|| unpack(payload)).flatten();
        let payload = unpacked.as_deref().unwrap_or(payload);
        let mut errors = std::mem::take(&mut self.failed);
        self.decode(&[Payload::from(payload)], rows, &mut errors);
        let error = errors.pop();
        self.failed = errors;
        match error {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

fn wire_decoder(
    channel: &Channel,
    asked: Asked<'_>,
    samples: &[&[u8]],
) -> Result<Box<dyn WireDecoder>, SchemaError> {
    let projection = asked.projection;
    let empty = asof_core::Schema::default();
    let schema = channel.schema.as_deref().unwrap_or(&empty);
    if let Some(found) = cdr_types(channel) {
        let (types, flavour, language) = found?;
        return Ok(Box::new(CdrDecoder::new(types, asked, flavour, language)?));
    }
    match (channel.message_encoding.as_str(), schema.encoding.as_str()) {
        ("protobuf", "protobuf") => {
            let types = proto::parse(&schema.name, &schema.data)?;
            Ok(Box::new(ProtobufDecoder::new(types, asked)?))
        }
        ("flatbuffer", "flatbuffer") => {
            let types = flatbuffer::parse(&schema.name, &schema.data)?;
            Ok(Box::new(FlatbufferDecoder::new(types, projection)?))
        }
        (encoding @ ("json" | "cbor"), schema_encoding @ ("jsonschema" | "")) => {
            let is_cbor = encoding == "cbor";
            let types = match schema_encoding {
                "" => None,
                _ => Some(jsonschema::parse(&schema.name, &schema.data)?)
                    .filter(|types| types.root().fields.len() > 1),
            };
            // A schema without fields is treated as no schema.
            let decoder = match types {
                Some(types) => JsonDecoder::with_schema(&types, projection, is_cbor)?,
                None => JsonDecoder::inferred(&schema.name, samples, projection, is_cbor)?,
            };
            Ok(Box::new(decoder))
        }
        (_, "") if !schema.name.is_empty() && schema.data.is_empty() => {
            Err(SchemaError::NoDefinition {
                name: schema.name.clone(),
            })
        }
        (message_encoding, schema_encoding) => Err(SchemaError::UnknownEncoding {
            message_encoding: message_encoding.to_owned(),
            schema_encoding: schema_encoding.to_owned(),
        }),
    }
}

/// The type of a channel whose messages are CDR, or in the serialization of ROS 1; `None` for every other encoding.
pub(crate) fn cdr_types(
    channel: &Channel,
) -> Option<Result<(MessageType, Flavour, &'static str), SchemaError>> {
    let schema = channel.schema.as_deref()?;
    let (flavour, language) = match (&*channel.message_encoding, &*schema.encoding) {
        ("cdr", "ros2msg") => (Flavour::Cdr, "ros2msg"),
        ("ros1", "ros1msg") => (Flavour::Ros1, "ros1msg"),
        ("cdr", "ros2idl") => (Flavour::Cdr, "ros2idl"),
        ("cdr", "omgidl") => (Flavour::Cdr, "omgidl"),
        _ => return None,
    };
    let text = std::str::from_utf8(&schema.data).map_err(|error| SchemaError::Unreadable {
        language,
        reason: format!("it is not UTF-8: {error}"),
    });
    let types = text.and_then(|text| match language {
        "ros2msg" => rosmsg::parse(&schema.name, text, rosmsg::Dialect::Ros2),
        "ros1msg" => rosmsg::parse(&schema.name, text, rosmsg::Dialect::Ros1),
        language => idl::parse(&schema.name, text, language),
    });
    Some(types.map(|types| (types, flavour, language)))
}

/// Adds the stamp to a projection, wherever it may be.
fn with_stamp(projection: &Projection) -> Projection {
    match projection {
        Projection::All | Projection::And(..) => projection.clone(),
        Projection::Paths(_) | Projection::AnyOf(_) => Projection::And(
            Box::new(projection.clone()),
            STAMP_PATHS.map(str::to_owned).to_vec(),
        ),
    }
}

fn shown_fields(root: &Group, projection: &Projection) -> Vec<usize> {
    let is_shown = |node: &Node| projection.wants(&node.name);
    let fields = root.fields.iter().enumerate();
    fields
        .filter(|(_, node)| node.as_ref().is_some_and(is_shown))
        .map(|(at, _)| at)
        .collect()
}

pub(crate) fn time_field(name: &str, is_nullable: bool) -> Field {
    let kind = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Field::new(name, kind, is_nullable)
}

/// Metadata of a column that was renamed because a time has its name: the field's own name.
pub(crate) const OWN_NAME: &str = "asof:name";

/// A name that is taken gets up to this many underscores; then a number.
const UNDERSCORES: usize = 4;

fn arrow_schema_of(channel: &Channel, root: &Group, shown: &[usize], has_stamp: bool) -> Schema {
    let mut fields = vec![
        time_field("log_time", false),
        time_field("publish_time", false),
    ];
    if has_stamp {
        fields.push(time_field("stamp", true));
    }
    let mut names: FxHashSet<String> = fields.iter().map(|field| field.name().clone()).collect();
    // How often a name was extended.
    let mut tried: FxHashMap<&str, usize> = FxHashMap::default();
    for &at in shown {
        let Some(node) = &root.fields[at] else {
            continue;
        };
        let mut field = node.arrow_field();
        // A message may itself have a field of this name, and a schema several.
        let mut tries = 0;
        while !names.insert(field.name().clone()) {
            tries = tried
                .get(node.name.as_str())
                .map_or(1, |known| known + 1)
                .max(tries + 1);
            let renamed = match tries {
                ..=UNDERSCORES => format!("{}{}", node.name, "_".repeat(tries)),
                _ => format!("{}_{tries}", node.name),
            };
            field
                .metadata_mut()
                .insert(OWN_NAME.to_owned(), node.name.clone());
            field = field.with_name(renamed);
        }
        if tries > 0 {
            tried.insert(&node.name, tries);
        }
        fields.push(field);
    }
    let mut metadata = channel_metadata(channel, "reflection");
    metadata.extend(root.metadata.iter().cloned());
    Schema::new(fields).with_metadata(metadata.into_iter().collect())
}

/// The metadata of an Arrow schema: the origin of its rows.
pub(crate) fn channel_metadata(channel: &Channel, layer: &str) -> Vec<(String, String)> {
    let schema_encoding = channel.schema.as_ref().map_or("", |s| s.encoding.as_str());
    [
        ("asof:topic", channel.topic.as_str()),
        ("asof:type", channel.type_name()),
        ("asof:message_encoding", channel.message_encoding.as_str()),
        ("asof:schema_encoding", schema_encoding),
        ("asof:layer", layer),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec()
}

fn too_large(len: usize) -> PayloadError {
    PayloadError::TooLarge {
        at: 0,
        reason: format!("the payload has {len} bytes, more than the limit of {LARGEST_PAYLOAD}"),
    }
}

/// rosbag2 can compress each message, which is not recorded in the channel: the first bytes of a zstd frame show it,
/// since they are not valid CDR.
pub(crate) fn is_packed(payload: &[u8]) -> bool {
    payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

fn unpack(payload: &[u8]) -> Option<Vec<u8>> {
    let limit = (payload.len() as u64).saturating_mul(1024).max(1 << 16);
    let mut out = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(payload).ok()?;
    decoder.take(limit).read_to_end(&mut out).ok()?;
    Some(out)
}

/// The payloads, with compressed ones decompressed; `None` where none is compressed.
fn unpacked(run: &[Timed<'_>]) -> Option<Vec<Vec<u8>>> {
    if !run.iter().any(|(_, _, payload)| is_packed(payload.bytes)) {
        return None;
    }
    let one = |(_, _, payload): &Timed<'_>| {
        let is_packed = is_packed(payload.bytes);
        let unpacked = if is_packed {
            unpack(payload.bytes)
        } else {
            None
        };
        unpacked.unwrap_or_else(|| payload.bytes.to_vec())
    };
    Some(run.iter().map(one).collect())
}
