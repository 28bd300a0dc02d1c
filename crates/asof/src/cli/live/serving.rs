//! `asof serve zenoh://…`: a running robot in the browser.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use asof_core::{Source, Stamp};
use asof_live::RecentOptions;
use asof_serve::{ServeOptions, Server};
use asof_window::Bounds;

use super::Connection;
use super::robot::TICK;
use crate::cli::Outcome;
use crate::cli::place::Opening;
use crate::cli::screen::Screen;
use crate::cli::select::Patterns;
use crate::cli::serve::Serving;

/// Serves a robot until the person has had enough.
pub fn serve(
    place: &Path,
    topics: Option<Patterns>,
    opening: &Opening,
    serving: &Serving,
    screen: &Screen,
) -> anyhow::Result<Outcome> {
    let of_robot = opening.robot();
    let connection = Connection {
        url: place.display().to_string(),
        topics,
        key: of_robot.key.clone(),
        msg_path: opening.folders().to_vec(),
        duration: of_robot.duration,
    };
    let mut session = connection.open(screen)?;
    let bounds = Bounds::age(of_robot.window).and_bytes(serving.cache_bytes());
    let mut options = RecentOptions::default()
        .with_bounds(bounds)
        .with_topics(connection.chooser());
    for key in &connection.key {
        options = options.with_key(key);
    }
    let source: Arc<dyn Source> = Arc::new(session.robot.recent(&options)?);
    let start = |options: &ServeOptions| {
        let options = ServeOptions {
            start: Some(Stamp::now()),
            ..options.clone()
        };
        Server::start(source, &connection.url, &options)
    };
    let server = serving.start(screen, start)?;
    while session.is_open() {
        session.tell(screen);
        session.wait(Instant::now() + TICK);
    }
    drop(server);
    Ok(Outcome::Done)
}
