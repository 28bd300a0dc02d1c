//! Replaces running robots in a build without them.

use std::convert::Infallible;

use asof::{Source, Stamp, When};

use super::Place;
use crate::place::{Opening, Wanted};
use crate::screen::Screen;

/// A robot that is listened to: uninhabited.
pub struct Listening(Infallible);

pub fn listen(
    places: Vec<Place>,
    _opening: &Opening,
    _wanted: &Wanted,
    _screen: &Screen,
) -> anyhow::Result<Listening> {
    let robot = places.into_iter().find_map(|place| match place {
        Place::Robot(url) => Some(url),
        Place::Recording(..) => None,
    });
    Err(super::absent(&robot.unwrap_or_default()))
}

impl Listening {
    pub fn listened(self) -> Self {
        self
    }

    pub fn listened_already(self) -> Self {
        self
    }

    pub fn looked_at(self) -> Self {
        self
    }

    pub fn listen_until(&self, _time: Option<When>) -> Stamp {
        match self.0 {}
    }
}

impl asof::SourceLayer for Listening {
    type Inner = dyn Source;

    fn inner(&self) -> &Self::Inner {
        match self.0 {}
    }
}
