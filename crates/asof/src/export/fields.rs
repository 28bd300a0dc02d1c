//! The topics that have some fields.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Fields};
use asof_core::{Channel, Query, Schema, Summary, Topics};
use asof_decode::{Decoder, Projection, SchemaError};

use crate::text::counted;
use crate::{Error, Progress};

/// How many topics a note names at most.
const NAMED_TOPICS: usize = 5;

/// Narrows a query to the topics that have any of the fields, with a note about those that have none. A field that no
/// topic has is an error.
///
/// # Errors
/// When no topic has one of them.
pub fn narrow(
    query: &mut Query,
    fields: &[String],
    summary: &Summary,
    progress: &Progress,
) -> Result<(), Error> {
    // In the order in which they were named, each once.
    let mut named = HashSet::new();
    let fields: Vec<&String> = fields.iter().filter(|field| named.insert(*field)).collect();
    let mut nowhere = fields.clone();
    // What was found in a definition, which many channels may share.
    let mut by_schema: HashMap<(*const Schema, &str), Vec<&String>> = HashMap::new();
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    let channels = summary.channels.iter().map(|entry| &entry.channel);
    for channel in channels.filter(|channel| query.topics.contains(&channel.topic)) {
        let is_missing = |field: &String| {
            let decoder = Decoder::new(channel, &Projection::paths([field]), &[]);
            matches!(decoder, Err(SchemaError::NoSuchField { .. }))
        };
        // Topics whose fields are unknown before their messages are read may have them.
        let found = match &channel.schema {
            None => &fields,
            Some(schema) => {
                let key = (Arc::as_ptr(schema), channel.message_encoding.as_str());
                let is_there = |field: &&String| !is_missing(field);
                let find = || fields.iter().copied().filter(is_there).collect();
                &*by_schema.entry(key).or_insert_with(find)
            }
        };
        let here: HashSet<&String> = found.iter().copied().collect();
        nowhere.retain(|field| !here.contains(field));
        let topics = if found.is_empty() {
            &mut without
        } else {
            &mut with
        };
        topics.insert(channel.topic.clone());
    }
    let left_out: Vec<&str> = without.difference(&with).map(String::as_str).collect();
    if let Some(field) = nowhere.first()
        && !(with.is_empty() && without.is_empty())
    {
        let channels = summary.channels.iter().map(|entry| &*entry.channel);
        let chosen = channels.filter(|channel| query.topics.contains(&channel.topic));
        let meant = meant_field(field, chosen)
            .map_or(String::new(), |path| format!("; did you mean '{path}'?"));
        return Err(Error::Option(format!(
            "none of these topics has a field '{field}'{meant}"
        )));
    }
    if !left_out.is_empty() {
        let names = left_out[..left_out.len().min(NAMED_TOPICS)].join(", ");
        let more = if left_out.len() > NAMED_TOPICS {
            ", …"
        } else {
            ""
        };
        progress.note(format_args!(
            "{} without any of these fields left out: {names}{more}",
            counted(left_out.len() as u64, "topic"),
        ));
    }
    query.topics = Topics::Named(with.into());
    Ok(())
}

/// The field of these channels whose path is most like this one, if it is near enough to be a typo. A path that is left out
/// in front is found too: `position` for `pose.pose.position`.
pub fn meant_field<'a>(
    wanted: &str,
    channels: impl IntoIterator<Item = &'a Channel>,
) -> Option<String> {
    let paths = field_paths(channels);
    let names = paths.iter().map(String::as_str);
    if let Some(meant) = asof_core::spelling::nearest(wanted, names.clone()) {
        return Some(meant.to_owned());
    }
    let ends_so = |path: &&str| {
        let rest = path.strip_suffix(wanted);
        rest.is_some_and(|rest| rest.ends_with('.'))
    };
    names
        .filter(ends_so)
        .min_by_key(|path| path.len())
        .map(str::to_owned)
}

/// The paths of all fields of these channels' messages, those of structs included.
pub fn field_paths<'a>(channels: impl IntoIterator<Item = &'a Channel>) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut seen = HashSet::new();
    for channel in channels {
        let schema = channel.schema.as_ref().map(Arc::as_ptr);
        if schema.is_some_and(|schema| !seen.insert((schema, &channel.message_encoding))) {
            continue;
        }
        if let Ok(decoder) = Decoder::new(channel, &Projection::All, &[]) {
            add_paths(decoder.schema().fields(), "", &mut paths);
        }
    }
    paths
}

/// Adds the paths of fields, those of structs included.
pub(crate) fn add_paths(fields: &Fields, before: &str, paths: &mut BTreeSet<String>) {
    for field in fields {
        let path = format!("{before}{}", field.name());
        if let DataType::Struct(inner) = field.data_type() {
            add_paths(inner, &format!("{path}."), paths);
        }
        paths.insert(path);
    }
}
