//! Layers: they decide which table a channel becomes.
//!
//! A *message layer* claims channels; of several, the first in order wins. A *file layer* makes a table of a source as
//! a whole. [`Layers`] is the set of layers, and [`Layers::plan`] returns which layer takes which channel, and why.

pub(crate) mod archetypes;
mod file;
mod raw;
mod semantic;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use asof_core::{Channel, FileParts, Source, SourceError, Summary};

use crate::{Decoder, PayloadError, Projection, Timed};

pub use archetypes::Archetype;

/// Builds the rows of one channel.
pub trait Table: Send {
    /// The schema of the rows.
    fn schema(&self) -> SchemaRef;

    /// Adds a run of messages. Messages that cannot be decoded are skipped and reported, by their position in the run.
    fn append(&mut self, run: &[Timed<'_>], failed: &mut dyn FnMut(usize, PayloadError));

    /// Messages that were added and not yet taken.
    fn rows(&self) -> usize;

    /// The memory that those hold and keep alive, in bytes.
    fn bytes(&self) -> usize;

    /// Reserves memory for `more` messages like the existing ones; only a hint.
    fn reserve(&mut self, more: usize) {
        let _ = more;
    }

    /// Takes the rows as a batch; `None` where there are none.
    ///
    /// # Errors
    /// When Arrow refuses them, which is a bug in the layer.
    fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError>;
}

impl Table for Decoder {
    fn schema(&self) -> SchemaRef {
        Arc::clone(Decoder::schema(self))
    }

    fn append(&mut self, run: &[Timed<'_>], failed: &mut dyn FnMut(usize, PayloadError)) {
        Decoder::append(self, run, failed);
    }

    fn rows(&self) -> usize {
        Decoder::rows(self)
    }

    fn bytes(&self) -> usize {
        Decoder::bytes(self)
    }

    fn reserve(&mut self, more: usize) {
        Decoder::reserve(self, more);
    }

    fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        Decoder::take(self)
    }
}

/// A layer's answer to a channel.
pub enum Claim {
    /// It takes the channel.
    Takes {
        /// Why, in a few words.
        reason: String,
        /// The table for its messages.
        table: Box<dyn Table>,
    },
    /// It leaves the channel to the next layer, for this reason.
    Declines(String),
}

/// Makes tables of channels.
pub trait MessageLayer: Send + Sync {
    /// The name for enabling and disabling it.
    fn name(&self) -> &str;

    /// Takes a channel or leaves it to the next layer. `samples` are some of its payloads, if available; only channels
    /// without a schema need them.
    fn claim(&self, channel: &Channel, projection: &Projection, samples: &[&[u8]]) -> Claim;
}

/// Makes a table of a source as a whole.
pub trait FileLayer: Send + Sync {
    /// The name for enabling and disabling it.
    fn name(&self) -> &str;

    /// The table, batch by batch; empty where there is nothing to report. What the source holds beside messages is read from
    /// `parts`; without it, a table has no contents.
    fn table<'a>(
        &'a self,
        source: &'a dyn Source,
        parts: Option<&'a dyn FileParts>,
    ) -> FileTable<'a>;
}

/// The batches of a file layer's table, all of one schema. They are made on demand: attachments can be larger than
/// memory.
pub type FileTable<'a> = Box<dyn Iterator<Item = Result<RecordBatch, SourceError>> + 'a>;

/// Reflection: the columns are the message's own fields.
struct Reflection;

impl MessageLayer for Reflection {
    fn name(&self) -> &'static str {
        "reflection"
    }

    fn claim(&self, channel: &Channel, projection: &Projection, samples: &[&[u8]]) -> Claim {
        match Decoder::new(channel, projection, samples) {
            Ok(decoder) => Claim::Takes {
                reason: match &channel.schema {
                    Some(schema) => format!("it has a valid {} schema", schema.encoding),
                    None => format!("{} needs no schema", channel.message_encoding),
                },
                table: Box::new(decoder),
            },
            Err(error) => Claim::Declines(error.to_string()),
        }
    }
}

/// The layers that are used, in order.
///
/// ```
/// use asof_decode::Layers;
///
/// let names = |layers: &Layers| layers.names().join(" ");
/// assert_eq!(names(&Layers::standard()), "semantic reflection raw");
/// assert_eq!(names(&Layers::standard().without("semantic")), "reflection raw");
/// assert_eq!(names(&Layers::standard().only("raw")), "raw");
/// ```
#[derive(Clone)]
pub struct Layers {
    messages: Vec<Arc<dyn MessageLayer>>,
    files: Vec<Arc<dyn FileLayer>>,
}

impl Default for Layers {
    fn default() -> Self {
        Layers::standard()
    }
}

impl Layers {
    /// Semantic, reflection, raw; and the file layers.
    pub fn standard() -> Self {
        Layers {
            messages: vec![
                Arc::new(semantic::Semantic),
                Arc::new(Reflection),
                Arc::new(raw::Raw),
            ],
            files: file::all(),
        }
    }

    /// Puts a layer before all others.
    #[must_use]
    pub fn with_first(mut self, layer: Arc<dyn MessageLayer>) -> Self {
        self.messages.insert(0, layer);
        self
    }

    /// Puts a layer after all others.
    #[must_use]
    pub fn with_last(mut self, layer: Arc<dyn MessageLayer>) -> Self {
        self.messages.push(layer);
        self
    }

    /// Adds a file layer.
    #[must_use]
    pub fn with_file(mut self, layer: Arc<dyn FileLayer>) -> Self {
        self.files.push(layer);
        self
    }

    /// Disables a layer by its name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.messages.retain(|layer| layer.name() != name);
        self.files.retain(|layer| layer.name() != name);
        self
    }

    /// Keeps only one layer.
    #[must_use]
    pub fn only(mut self, name: &str) -> Self {
        self.messages.retain(|layer| layer.name() == name);
        self.files.retain(|layer| layer.name() == name);
        self
    }

    /// Puts the message layers in this order; those that are not named come after, in their old order.
    #[must_use]
    pub fn in_order(mut self, names: &[&str]) -> Self {
        let place = |layer: &Arc<dyn MessageLayer>| {
            let at = names.iter().position(|name| *name == layer.name());
            at.unwrap_or(names.len())
        };
        self.messages.sort_by_key(place);
        self
    }

    /// The names of the message layers, in order.
    pub fn names(&self) -> Vec<&str> {
        self.messages.iter().map(|layer| layer.name()).collect()
    }

    /// Which layer takes which channel of a source, and why.
    pub fn plan(&self, summary: &Summary) -> Vec<Assignment> {
        let channels = summary.channels.iter();
        channels
            .map(|entry| self.assign(&entry.channel, &Projection::All, &[]).0)
            .collect()
    }

    /// Offers a channel to the layers in turn.
    pub fn assign(
        &self,
        channel: &Arc<Channel>,
        projection: &Projection,
        samples: &[&[u8]],
    ) -> (Assignment, Option<Box<dyn Table>>) {
        let mut assignment = Assignment {
            channel: Arc::clone(channel),
            layer: None,
            reason: "no layer takes it".to_owned(),
            declined: Vec::new(),
        };
        for layer in &self.messages {
            match layer.claim(channel, projection, samples) {
                Claim::Takes { reason, table } => {
                    assignment.layer = Some(layer.name().into());
                    assignment.reason = reason;
                    return (assignment, Some(table));
                }
                Claim::Declines(reason) => {
                    assignment.declined.push((layer.name().into(), reason));
                }
            }
        }
        (assignment, None)
    }

    /// The names of the file layers, in order.
    pub fn file_names(&self) -> Vec<&str> {
        self.files.iter().map(|layer| layer.name()).collect()
    }

    /// Runs the file layers, one after the other, with the contents of `parts`, usually the source's own; each batch of a table comes with its layer's name. A layer with
    /// nothing to report has no batches.
    pub fn file_tables<'a>(
        &'a self,
        source: &'a dyn Source,
        parts: Option<&'a dyn FileParts>,
    ) -> impl Iterator<Item = Result<(&'a str, RecordBatch), SourceError>> {
        self.files.iter().flat_map(move |layer| {
            let batches = layer.table(source, parts);
            batches.map(|batch| batch.map(|batch| (layer.name(), batch)))
        })
    }
}

/// A channel's layer, and why it has it.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The channel.
    pub channel: Arc<Channel>,
    /// The layer that took it; `None` where none did.
    pub layer: Option<Arc<str>>,
    /// Its reason.
    pub reason: String,
    /// The layers before it, and why they declined.
    pub declined: Vec<(Arc<str>, String)>,
}
