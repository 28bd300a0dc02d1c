//! Replaces running robots in a build without them.

use std::convert::Infallible;

use asof::{Source, Stamp, When};

use super::Place;
use crate::place::{Opening, TopicRequest};
use crate::screen::Screen;

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
    Err(super::absent(&robot.unwrap_or_default()))
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
