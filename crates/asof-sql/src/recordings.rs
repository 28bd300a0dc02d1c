//! The recordings of a database: those that were named, and those of catalogues, which are known once a query has asked for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use asof_catalogue::TopicTotal;
use asof_core::{Channel, Query, Source, Stamp, Summary, TimeRange};
use asof_decode::Survey;
use datafusion::arrow::datatypes::Fields;
use datafusion::catalog::Session;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Expr;

use crate::database::{Shared, alias_of};
use crate::fleet::failed;
use crate::labels::{LabelFilter, RecordingLabels};
use crate::pushdown::Pushdown;

/// A recording with its name.
pub(crate) struct Opened {
    pub name: String,
    pub recording: Arc<dyn Source>,
    pub labels: Option<RecordingLabels>,
    /// Its summary without channels, where it is known without opening it.
    pub described: Option<Arc<Summary>>,
    /// Its version in a catalogue: size, time of modification, ETag.
    pub version: Option<(u64, Option<Stamp>, Option<String>)>,
    /// Its address for other processes, if one reads it.
    #[cfg(feature = "distributed")]
    pub address: Option<crate::distributed::RecordingAddress>,
    /// The types of topics without a schema, once they are asked for.
    pub surveys: Mutex<HashMap<String, Arc<OnceLock<Survey>>>>,
}

impl Opened {
    pub fn new(name: String, recording: Arc<dyn Source>) -> Self {
        Opened {
            name,
            recording,
            labels: None,
            described: None,
            version: None,
            #[cfg(feature = "distributed")]
            address: None,
            surveys: Mutex::default(),
        }
    }

    /// Messages that together show the types of a channel without a schema: its topic is read once, as 0 may be followed by 0.5.
    /// None where there is a schema, or nothing that can be read.
    pub fn samples(&self, channel: &Channel) -> Vec<Vec<u8>> {
        if !Survey::is_needed(channel) {
            return Vec::new();
        }
        let topic = &channel.topic;
        let survey = {
            let mut surveys = self.surveys.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(surveys.entry(topic.clone()).or_default())
        };
        let survey = survey.get_or_init(|| {
            let query = Query::topics([topic]);
            Survey::of(&*self.recording, &query).unwrap_or_default()
        });
        let samples = survey.samples(channel).into_iter().flatten();
        samples.map(<[u8]>::to_vec).collect()
    }

    /// Its summary, whose channels may be missing.
    pub fn described(&self) -> Arc<Summary> {
        match &self.described {
            Some(described) => Arc::clone(described),
            None => self.recording.summary(),
        }
    }

    /// Its time range.
    pub fn range(&self) -> TimeRange {
        match &self.described {
            Some(described) => described.range,
            None => self.recording.summary().range,
        }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Opened").field(&self.name).finish()
    }
}

/// All recordings that are known so far. A place never changes its recording; a version that replaces another has a place of
/// its own.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    all: Vec<Arc<Opened>>,
    places: HashMap<String, usize>,
}

impl Recordings {
    pub fn add(&mut self, opened: Opened) -> usize {
        let known = self.places.get(&opened.name).copied();
        let is_same = |place: &usize| {
            let known = &self.all[*place];
            opened.version.is_some()
                && known.version == opened.version
                && known.labels == opened.labels
        };
        if let Some(place) = known.filter(is_same) {
            return place;
        }
        self.places.insert(opened.name.clone(), self.all.len());
        self.all.push(Arc::new(opened));
        self.all.len() - 1
    }
}

/// A topic of a recording that was named.
#[derive(Debug)]
pub(crate) struct NamedTopic {
    pub place: usize,
    pub channel: Arc<Channel>,
    pub messages: Option<u64>,
}

/// A recording that a query reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub place: usize,
    /// The wanted topics that it has.
    pub topics: Vec<String>,
    /// Messages of these topics, where its index is reliable.
    pub messages: Option<u64>,
}

/// The columns of channels, by encoding and definition.
pub(crate) type ColumnsByKind = HashMap<ChannelKind, Option<Fields>>;

/// What determines the columns of a channel.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChannelKind {
    /// Which of several views of the messages.
    view: &'static str,
    message_encoding: String,
    name: String,
    encoding: String,
    definition: Vec<u8>,
}

impl Shared {
    /// The recording at a place, which this database gave out.
    pub fn opened(&self, place: usize) -> Arc<Opened> {
        let known = self.recordings.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&known.all[place])
    }

    /// Those known so far.
    pub fn known_recordings(&self) -> Vec<Arc<Opened>> {
        let known = self.recordings.read();
        known.unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// Adds recordings, or finds them where the same versions are known.
    pub fn add(&self, opened: Vec<Opened>) -> Vec<usize> {
        let known = self.recordings.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        opened.into_iter().map(|one| known.add(one)).collect()
    }

    /// Whether rows may come from more than one recording.
    pub fn has_many(&self) -> bool {
        self.named != 1 || !self.fleets.is_empty()
    }

    /// Whether recordings have labels.
    pub fn has_labels(&self) -> bool {
        !self.fleets.is_empty()
            || self
                .known_recordings()
                .iter()
                .any(|one| one.labels.is_some())
    }

    /// The topics of the recordings that were named.
    pub fn named_topics(&self) -> &BTreeMap<String, Vec<NamedTopic>> {
        self.named_topics.get_or_init(|| {
            let mut topics: BTreeMap<String, Vec<NamedTopic>> = BTreeMap::new();
            for place in 0..self.named {
                let summary = self.opened(place).recording.summary();
                for entry in &summary.channels {
                    let topic = topics.entry(entry.channel.topic.clone()).or_default();
                    topic.push(NamedTopic {
                        place,
                        channel: Arc::clone(&entry.channel),
                        messages: entry.messages.filter(|_| summary.problems.is_empty()),
                    });
                }
            }
            topics
        })
    }

    /// The names of all topics.
    pub fn topics(&self) -> BTreeSet<String> {
        let mut topics: BTreeSet<String> = self.named_topics().keys().cloned().collect();
        for fleet in &self.fleets {
            topics.extend(fleet.contents().kinds.iter().map(|kind| kind.topic.clone()));
        }
        topics
    }

    /// Every topic with its type and messages: no recording of a catalogue is loaded.
    pub fn topic_totals(&self) -> Result<BTreeMap<String, TopicTotal>> {
        let mut all = BTreeMap::new();
        for place in 0..self.named {
            for entry in &self.opened(place).recording.summary().channels {
                let (channel, messages) = (&entry.channel, entry.messages);
                TopicTotal::note(&mut all, &channel.topic, channel.type_name(), messages);
            }
        }
        for fleet in &self.fleets {
            for (topic, total) in fleet.place.catalogue.topic_totals().map_err(failed)? {
                TopicTotal::note(&mut all, &topic, &total.type_name, total.messages);
            }
        }
        Ok(all)
    }

    /// The topic of a table's name: itself, or the one that it is an alias of.
    pub fn topic_of(&self, name: &str) -> Result<String> {
        let topics = self.topics();
        if topics.contains(name) {
            return Ok(name.to_owned());
        }
        let found = topics.into_iter().rfind(|topic| alias_of(topic) == name);
        found.map_or_else(|| plan_err!("table '{name}' not found"), Ok)
    }

    /// Each kind of channel of these topics, once, and a recording that has it where that is known.
    pub fn channels_of(&self, topic: &str) -> Result<Vec<(Arc<Channel>, Option<usize>)>> {
        let named = self.named_topics().get(topic).into_iter().flatten();
        let mut all: Vec<_> = named
            .map(|one| (Arc::clone(&one.channel), Some(one.place)))
            .collect();
        for fleet in &self.fleets {
            let channels = fleet.channels_of(topic)?.into_iter();
            all.extend(channels.map(|channel| (channel, None)));
        }
        Ok(all)
    }

    /// The columns of a channel, which are made once for each definition.
    pub fn columns_of(
        &self,
        view: &'static str,
        channel: &Channel,
        make: impl FnOnce() -> Option<Fields>,
    ) -> Option<Fields> {
        let schema = channel.schema.as_deref();
        let text = |part: fn(&asof_core::Schema) -> &String| schema.map(part).cloned();
        let kind = ChannelKind {
            view,
            message_encoding: channel.message_encoding.clone(),
            name: text(|schema| &schema.name).unwrap_or_default(),
            encoding: text(|schema| &schema.encoding).unwrap_or_default(),
            definition: schema
                .map(|schema| schema.data.to_vec())
                .unwrap_or_default(),
        };
        let lock = || self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&kind) {
            return known.clone();
        }
        let made = make();
        lock().insert(kind, made.clone());
        made
    }

    /// The recordings that hold wanted rows of these topics, or of any with `None`. Those of catalogues are searched for there, and become known.
    /// `about` are filters on names and labels.
    pub fn select(
        &self,
        topics: Option<&[&str]>,
        wanted: &Pushdown,
        about: &[&Expr],
        session: Option<&dyn Session>,
    ) -> Result<Vec<Chosen>> {
        let session = session.filter(|_| !about.is_empty());
        let filter = session.map(|session| LabelFilter::new(about, session));
        let filter = filter.transpose()?;
        let mut chosen = self.named_with(topics);
        for fleet in &self.fleets {
            chosen.extend(fleet.select(self, topics, wanted, about, filter.as_ref())?);
        }
        chosen.retain(|one| wanted.has_recording(&self.opened(one.place).name));
        if let Some(filter) = filter {
            let passing = self.passing(&chosen, &filter)?;
            let mut passing = passing.values().iter();
            chosen.retain(|_| passing.next().unwrap_or(false));
        }
        Ok(chosen)
    }

    /// The recording of this name.
    pub fn place_of(&self, name: &str) -> Result<Option<usize>> {
        let lock = self.recordings.read();
        let known = lock
            .unwrap_or_else(PoisonError::into_inner)
            .places
            .get(name)
            .copied();
        if known.is_some() {
            return Ok(known);
        }
        let wanted = Pushdown {
            recordings: Some(BTreeSet::from([name.to_owned()])),
            ..Pushdown::default()
        };
        let found = self.select(None, &wanted, &[], None)?;
        Ok(found.first().map(|one| one.place))
    }

    fn named_with(&self, topics: Option<&[&str]>) -> Vec<Chosen> {
        let nothing = |place: usize| Chosen {
            place,
            topics: Vec::new(),
            messages: None,
        };
        let Some(topics) = topics else {
            return (0..self.named).map(nothing).collect();
        };
        let mut found: BTreeMap<usize, Chosen> = BTreeMap::new();
        for topic in topics {
            for one in self.named_topics().get(*topic).into_iter().flatten() {
                let chosen = found.entry(one.place).or_insert_with(|| Chosen {
                    messages: Some(0),
                    ..nothing(one.place)
                });
                chosen.messages = chosen
                    .messages
                    .zip(one.messages)
                    .map(|(sum, more)| sum + more);
                if chosen.topics.last().is_none_or(|last| last != topic) {
                    chosen.topics.push((*topic).to_owned());
                }
            }
        }
        found.into_values().collect()
    }

    /// From the first start to the last end of all recordings.
    pub fn range(&self) -> TimeRange {
        let named = (0..self.named).map(|place| self.opened(place).range());
        let fleets = self.fleets.iter().map(|fleet| fleet.contents().range);
        named.chain(fleets).fold(TimeRange::EMPTY, TimeRange::cover)
    }
}
