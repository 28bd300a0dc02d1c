//! `--fields`: which topics have them.

use std::collections::BTreeSet;

use asof_core::{Query, Summary, Topics};
use asof_decode::{Decoder, Projection, SchemaError};

use super::failure::Usage;
use super::numbers::counted;
use super::screen::Screen;

/// More topics than this are not named one by one.
const NAMED: usize = 5;

/// Narrows a query to the topics that have any of the fields, and says which have none. A field that no topic has is
/// an error.
pub fn narrow(
    query: &mut Query,
    fields: &[String],
    summary: &Summary,
    screen: &Screen,
) -> anyhow::Result<()> {
    let mut nowhere: Vec<&String> = fields.iter().collect();
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    let channels = summary.channels.iter().map(|entry| &entry.channel);
    for channel in channels.filter(|channel| query.topics.contains(&channel.topic)) {
        let is_missing = |field: &String| {
            let decoder = Decoder::new(channel, &Projection::paths([field]), &[]);
            matches!(decoder, Err(SchemaError::NoSuchField { .. }))
        };
        // What cannot be known before its messages are seen may be there.
        let is_there = |field: &&String| channel.schema.is_none() || !is_missing(field);
        let found: Vec<&String> = fields.iter().filter(is_there).collect();
        nowhere.retain(|field| !found.contains(field));
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
        let message = format!("no topic that is exported has a field '{field}'");
        return Err(Usage::error(message));
    }
    if !left_out.is_empty() {
        let names = left_out[..left_out.len().min(NAMED)].join(", ");
        let more = if left_out.len() > NAMED { ", …" } else { "" };
        screen.note(format_args!(
            "{} without any of these fields left out: {names}{more}",
            counted(left_out.len() as u64, "topic"),
        ));
    }
    query.topics = Topics::Named(with.into_iter().collect());
    Ok(())
}
