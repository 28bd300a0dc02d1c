//! Replaces running robots in a build without them.

use std::convert::Infallible;

use asof::{Source, Stamp, When};

use super::{Live, Place, Play, Record};
use crate::Outcome;
use crate::place::{Opening, TopicRequest};
use crate::screen::Screen;

impl Live {
    pub fn run(&self, _: &Screen) -> anyhow::Result<Outcome> {
        Err(absent(&self.connection.url))
    }
}

impl Record {
    pub fn run(&self, _: &Screen) -> anyhow::Result<Outcome> {
        Err(absent(&self.connection.url))
    }
}

impl Play {
    pub fn run(&self, _: &Screen) -> anyhow::Result<Outcome> {
        Err(absent(&self.url))
    }
}

/// Nothing needs an orderly end.
#[allow(clippy::unnecessary_wraps, reason = "with robots it can fail")]
pub fn stop_on_signals() -> anyhow::Result<()> {
    Ok(())
}

/// The error of a robot's address.
pub fn absent(url: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "cannot connect to {url}: {}",
        asof::text::absent("live support", "live")
    )
}

/// Robots that are listened to: uninhabited.
pub struct Robots(Infallible);

pub fn listen(
    places: Vec<Place>,
    _opening: &Opening,
    _wanted: &TopicRequest,
    _screen: &Screen,
) -> anyhow::Result<Robots> {
    let robot = places.into_iter().find_map(|place| match place {
        Place::Robot(url) => Some(url),
        Place::Recording(..) => None,
    });
    Err(absent(&robot.unwrap_or_default()))
}

impl Robots {
    pub fn growing(self) -> Box<dyn Source> {
        match self.0 {}
    }

    pub fn listened(self) -> anyhow::Result<Box<dyn Source>> {
        match self.0 {}
    }

    pub fn listened_until(self, _time: Option<When>) -> anyhow::Result<(Box<dyn Source>, Stamp)> {
        match self.0 {}
    }
}
