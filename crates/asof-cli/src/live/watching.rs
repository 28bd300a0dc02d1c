//! `asof live`: statistics of the topics, repeatedly.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use asof::Stamp;
use asof::live::{TopicRate, Watch};
use serde_json::json;

use super::Live;
use super::plain::Plain;
use super::robot::{check_names, now};
use super::table;
use crate::Outcome;
use crate::place::TopicRequest;
use crate::screen::{Screen, output, write_json};

impl Live {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        let mut session = self.connection.open(screen)?;
        let mut watch = Watch::new(&session.robot, self.connection.chooser());
        for key in &self.connection.key {
            watch.add_key(&session.robot, key)?;
        }
        let wanted = TopicRequest::chosen(self.connection.topics.clone());
        let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if is_terminal && !self.plain && !self.json {
            table::show(&mut session, &watch, self.interval)?;
            session.answered()?;
            check_names([&session], &heard(&watch), &wanted, screen)?;
            return Ok(Outcome::Done);
        }
        let mut out = output();
        let mut plain = Plain::new(screen.palette());
        let mut next = Instant::now();
        while session.is_open() {
            next += self.interval;
            session.wait(next);
            session.tell(screen);
            let now = now();
            let rates = watch.rates(now);
            if self.json {
                for rate in &rates {
                    write_json(&mut out, &row(rate, now))?;
                }
            } else {
                plain.print(&mut out, &rates, now)?;
            }
            out.flush()?;
        }
        session.answered()?;
        check_names([&session], &heard(&watch), &wanted, screen)?;
        for rate in watch.rates(now()) {
            if !rate.stamps.is_good() {
                screen.note(format_args!("{}: {}", rate.topic, rate.stamps));
            }
        }
        if watch.rates(now()).is_empty() {
            screen.note(session.without_topics());
        }
        Ok(Outcome::Done)
    }
}

/// The topics that were heard: a robot that has left has none any more.
fn heard(watch: &Watch) -> Vec<String> {
    watch
        .rates(now())
        .into_iter()
        .map(|rate| rate.topic)
        .collect()
}

/// A topic at an instant. Times are nanoseconds, as everywhere; `jitter` and `age` are seconds.
fn row(rate: &TopicRate, now: Stamp) -> serde_json::Value {
    json!({
        "time": now.nanos(),
        "topic": rate.topic,
        "type": rate.type_name,
        "messages": rate.messages,
        "bytes": rate.bytes,
        "hz": rate.hertz,
        "bytes_per_second": rate.bytes_per_second,
        "jitter": rate.jitter,
        "last": rate.last.map(Stamp::nanos),
        "age": rate.age(now),
        "drops": rate.lost,
        "stamps": asof::stamps_as_json(&rate.stamps),
    })
}
