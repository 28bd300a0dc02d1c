//! `asof serve zenoh://…`: a running robot in the browser.

use std::path::Path;
use std::time::Instant;

use asof_live::{Publisher, Sample};
use asof_serve::{Retained, Retention, Server};

use super::Connection;
use super::robot::{TICK, now};
use crate::cli::Outcome;
use crate::cli::place::Opening;
use crate::cli::screen::Screen;
use crate::cli::serve::{OfRobot, Serving};

/// Serves a robot until the person has had enough.
pub fn serve(
    place: &Path,
    of_robot: &OfRobot,
    opening: &Opening,
    serving: &Serving,
    screen: &Screen,
) -> anyhow::Result<Outcome> {
    let connection = Connection {
        url: place.display().to_string(),
        topics: of_robot.topics.clone(),
        key: of_robot.key.clone(),
        msg_path: opening.folders().to_vec(),
        duration: None,
    };
    let mut session = connection.open(screen)?;
    let retained = Retained::new(Retention {
        age: of_robot.window,
        bytes: serving.cache_bytes(),
    });
    let (listed, kept) = (retained.clone(), retained.clone());
    let chosen = connection.chooser();
    let wants = move |publisher: &Publisher| {
        let is_wanted = chosen(publisher);
        if is_wanted {
            // Shown even before its first message.
            listed.add_channel(&publisher.channel);
        }
        is_wanted
    };
    let mut subscriptions = vec![
        session
            .robot
            .subscribe(wants, move |sample| keep(&kept, &sample)),
    ];
    for key in &connection.key {
        let kept = retained.clone();
        let subscribed = session
            .robot
            .subscribe_key(key, move |sample| keep(&kept, &sample))?;
        subscriptions.push(subscribed);
    }
    let start = |options: &_| Server::start_live(&retained, &connection.url, now(), options);
    let server = serving.start(screen, start)?;
    while session.is_open() {
        session.tell(screen);
        retained.set_connected(session.robot.is_connected());
        session.wait(Instant::now() + TICK);
    }
    // The robot first: nothing is pushed while the server goes.
    drop((subscriptions, server));
    Ok(Outcome::Done)
}

fn keep(retained: &Retained, sample: &Sample) {
    let len = sample.payload.len() as u64;
    // What is a small part of a receive buffer would keep all of it.
    let is_part = sample.payload.weight() > len + len / 4;
    let message = sample.to_message();
    retained.push(if is_part { message.detached() } else { message });
}
