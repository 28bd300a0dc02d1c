//! What was known as of a time, in parts: the last messages of all topics may be more than there is memory for.

use asof_core::{Batch, Message, Source as _, Stamp, Topics};

use crate::app::App;
use crate::reply::{Failure, Reply};

/// About the most bytes of messages that are held at once.
const PART_BYTES: usize = 16 << 20;
/// Topics that are looked up first, to learn how large their messages are; and at most at once.
const FIRST_TOPICS: usize = 16;
const MOST_TOPICS: usize = 4096;

/// A message that was found: its place in the order of all, its topic and its size.
struct Found {
    log_time: Stamp,
    order: u64,
    topic: String,
    bytes: usize,
}

/// Passes on the last message of each topic up to a time, in the order of the recording.
pub(crate) fn each_latest(
    app: &App,
    reply: &mut Reply,
    topics: &Topics,
    at: Stamp,
    mut take: impl FnMut(&mut Reply, &Message) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let summary = app.cache.summary();
    let (names, is_listed): (Vec<String>, bool) = match topics {
        Topics::Named(names) => (names.iter().cloned().collect(), true),
        Topics::All => {
            let names = summary.topics().into_iter().map(str::to_owned);
            (names.collect(), app.cache.lists_all_topics())
        }
    };
    // A robot's newest messages are in memory; topics that the summary lacks are found by asking for all of them.
    if summary.recent.is_some() || !is_listed || names.len() <= FIRST_TOPICS {
        for message in latest(app, topics, at)?.iter() {
            take(reply, &message.to_message())?;
        }
        return Ok(());
    }
    let most = app.waiting.share(PART_BYTES);
    let _room = reply.room(most)?;
    let (mut found, mut kept): (Vec<Found>, Vec<Message>) = (Vec::new(), Vec::new());
    let (mut all, mut count) = (0, FIRST_TOPICS);
    let mut rest = &names[..];
    while !rest.is_empty() {
        if !reply.is_wanted() {
            return Err(Failure::Gone);
        }
        let (now, later) = rest.split_at(count.min(rest.len()));
        rest = later;
        let batch = latest(app, &Topics::named(now), at)?;
        let bytes: usize = batch.iter().map(|message| message.payload.len()).sum();
        all += bytes;
        if all > most {
            kept = Vec::new();
        } else {
            kept.extend(batch.iter().map(|message| message.to_message().detached()));
        }
        for (row, message) in batch.rows().iter().zip(batch.iter()) {
            found.push(Found {
                log_time: row.log_time,
                order: row.order,
                topic: message.channel.topic.clone(),
                bytes: message.payload.len(),
            });
        }
        // As many as fit if the next ones are as large.
        let fitting = count * most / bytes.max(1);
        count = fitting.clamp(1, 4 * count).min(MOST_TOPICS);
    }
    let mut places: Vec<usize> = (0..found.len()).collect();
    places.sort_by_key(|&place| (found[place].log_time, found[place].order));
    if all <= most {
        return places
            .into_iter()
            .try_for_each(|place| take(reply, &kept[place]));
    }
    let mut rest = &places[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |place: &&usize| {
            bytes += found[**place].bytes;
            bytes <= most
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        rest = later;
        let topics = now.iter().map(|&place| found[place].topic.as_str());
        for message in latest(app, &Topics::named(topics), at)?.iter() {
            take(reply, &message.to_message())?;
        }
    }
    Ok(())
}

fn latest(app: &App, topics: &Topics, at: Stamp) -> Result<Batch, Failure> {
    let known = app.cache.latest_at(topics, at);
    known.map_err(|error| Failure::Wrong(error.to_string()))
}
