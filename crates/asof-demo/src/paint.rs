//! Colours and patterns of floors, walls and furniture.

use crate::house::{Outline, Room, Surface, Thing};

/// Red, green and blue, from 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Colour(f32, f32, f32);

impl Colour {
    /// This colour under this much light.
    pub(crate) fn lit(self, light: f32) -> Colour {
        // Lamplight is a little warm.
        Colour(
            self.0 * light,
            self.1 * light * 0.985,
            self.2 * light * 0.955,
        )
    }

    pub(crate) fn bytes(self) -> [u8; 3] {
        // The cast stops at 0 and at 255.
        [self.0, self.1, self.2].map(|part| part as u8)
    }

    /// This colour blended with another.
    fn mixed(self, other: Colour, part: f32) -> Colour {
        let mix = |a: f32, b: f32| a + (b - a) * part;
        Colour(
            mix(self.0, other.0),
            mix(self.1, other.1),
            mix(self.2, other.2),
        )
    }
}

/// A spot on a surface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// Metres along the surface.
    pub(crate) along: f64,
    /// Metres above the floor.
    pub(crate) height: f64,
    /// Metres to the nearest end of the surface.
    pub(crate) edge: f64,
    /// How much of a pattern is visible, from 0 to 1.
    pub(crate) detail: f32,
    /// The room that the surface faces.
    pub(crate) room: Room,
}

const WHITE: Colour = Colour(238.0, 234.0, 226.0);
const DARK: Colour = Colour(58.0, 48.0, 42.0);

/// The ceiling: white, with a lamp in the middle of each room.
pub(crate) fn ceiling(x: f64, y: f64) -> Colour {
    let lamp_x = if x < 4.0 { 2.0 } else { 6.0 };
    let lamp_y = if y < 3.0 { 1.5 } else { 4.5 };
    let nearest = (x - lamp_x) * (x - lamp_x) + (y - lamp_y) * (y - lamp_y);
    let glow = (1.0 / (1.0 + 2.0 * nearest)) as f32;
    let base = Colour(206.0, 204.0, 200.0);
    if nearest < 0.05 {
        return Colour(330.0, 330.0, 310.0);
    }
    base.mixed(Colour(300.0, 296.0, 280.0), glow * 0.6)
}

/// The floor: every room has its own.
pub(crate) fn floor(x: f64, y: f64, detail: f32) -> Colour {
    let Some(room) = room_inside(x, y) else {
        return DARK;
    };
    match room {
        Room::Hall => {
            let is_light = (cell(x, 0.5) + cell(y, 0.5)) % 2 == 0;
            let (light, dark) = (Colour(206.0, 198.0, 182.0), Colour(120.0, 108.0, 98.0));
            let mean = light.mixed(dark, 0.5);
            mean.mixed(if is_light { light } else { dark }, 0.35 + 0.65 * detail)
        }
        Room::Kitchen => {
            let tile = Colour(196.0, 126.0, 92.0);
            let tone = speckle(cell(x, 0.3), cell(y, 0.3)) * 0.25;
            let tile = tile.mixed(DARK, tone * detail);
            let is_grout = inside(x, 0.3) < 0.02 || inside(y, 0.3) < 0.02;
            let grout = if is_grout { detail } else { 0.0 };
            tile.mixed(Colour(214.0, 204.0, 190.0), grout)
        }
        Room::LivingRoom => {
            let row = cell(y, 0.16);
            let shift = speckle(row, 3) as f64;
            let plank = cell(x + shift, 1.1);
            let wood = Colour(176.0, 122.0, 72.0);
            let tone = speckle(row, plank) * 0.38;
            let is_joint = inside(y, 0.16) < 0.012 || inside(x + shift, 1.1) < 0.012;
            let joint = if is_joint { 0.6 } else { 0.0 };
            wood.mixed(DARK, (tone + joint).min(0.8) * detail)
        }
        Room::Study => {
            let carpet = Colour(74.0, 96.0, 134.0);
            let (dx, dy) = (inside(x, 0.4) - 0.2, inside(y, 0.4) - 0.2);
            let is_diamond = dx.abs() + dy.abs() < 0.12;
            let figure = if is_diamond { 0.5 } else { 0.0 };
            carpet.mixed(Colour(206.0, 178.0, 120.0), figure * detail)
        }
    }
}

/// The colour of a spot on a thing; `None` where the thing is transparent.
pub(crate) fn surface(thing: &Thing, spot: &Spot) -> Option<Colour> {
    Some(match thing.surface {
        Surface::Wall => wall(spot),
        Surface::Lintel => {
            if spot.height < 2.07 || spot.edge < 0.0 {
                WHITE
            } else {
                plaster(spot.room)
            }
        }
        Surface::Cupboard => cupboard(spot),
        Surface::Bookshelf => bookshelf(spot),
        Surface::Sofa => sofa(spot),
        Surface::Wood => wood(thing, spot),
        Surface::Plant => return plant(thing, spot),
        Surface::Metal => metal(thing, spot),
        Surface::Picture(kind) => picture(thing, kind, spot),
    })
}

fn plaster(room: Room) -> Colour {
    match room {
        Room::Hall => Colour(228.0, 208.0, 164.0),
        Room::Kitchen => Colour(176.0, 206.0, 202.0),
        Room::LivingRoom => Colour(92.0, 140.0, 132.0),
        Room::Study => Colour(178.0, 98.0, 78.0),
    }
}

fn wall(spot: &Spot) -> Colour {
    if spot.height < 0.09 {
        return WHITE.mixed(DARK, if spot.height < 0.015 { 0.6 } else { 0.05 });
    }
    // The white frames of the doorways.
    if spot.edge < 0.08 {
        return WHITE.mixed(DARK, if spot.edge > 0.065 { 0.35 } else { 0.0 });
    }
    let plain = plaster(spot.room);
    match spot.room {
        Room::Hall => {
            let is_stripe = inside(spot.along, 0.24) < 0.12;
            plain.mixed(WHITE, if is_stripe { 0.4 * spot.detail } else { 0.0 })
        }
        Room::Kitchen if spot.height < 1.5 => {
            let is_grout = inside(spot.along, 0.15) < 0.008 || inside(spot.height, 0.15) < 0.008;
            let tone = speckle(cell(spot.along, 0.15), cell(spot.height, 0.15)) * 0.1;
            let grout = if is_grout { 0.45 } else { tone };
            Colour(226.0, 232.0, 228.0).mixed(Colour(92.0, 120.0, 128.0), grout * spot.detail)
        }
        Room::Kitchen => plain,
        Room::LivingRoom => {
            if (0.86..0.93).contains(&spot.height) {
                return WHITE;
            }
            let is_panel = spot.height < 0.86;
            let groove = is_panel && inside(spot.along, 0.35) < 0.02;
            let plain = if is_panel {
                plain.mixed(WHITE, 0.35)
            } else {
                plain
            };
            plain.mixed(DARK, if groove { 0.4 * spot.detail } else { 0.0 })
        }
        Room::Study => {
            let course = cell(spot.height, 0.09);
            let along = spot.along + if course % 2 == 0 { 0.0 } else { 0.12 };
            let is_mortar = inside(spot.height, 0.09) < 0.012 || inside(along, 0.24) < 0.012;
            let tone = speckle(course, cell(along, 0.24)) * 0.3 * spot.detail;
            let mortar = if is_mortar { 0.8 * spot.detail } else { 0.12 };
            plain
                .mixed(DARK, tone)
                .mixed(Colour(206.0, 196.0, 186.0), mortar)
        }
    }
}

fn cupboard(spot: &Spot) -> Colour {
    if spot.height > 0.89 {
        return Colour(70.0, 72.0, 78.0);
    }
    if spot.height < 0.08 {
        return DARK;
    }
    let along = inside(spot.along, 0.6);
    let is_gap = along < 0.012 || (0.68..0.692).contains(&spot.height);
    let is_handle = (0.74..0.765).contains(&spot.height) && (0.2..0.4).contains(&along)
        || (0.46..0.6).contains(&spot.height) && (0.05..0.075).contains(&along);
    let front = Colour(118.0, 152.0, 168.0);
    if is_handle {
        Colour(220.0, 214.0, 200.0)
    } else {
        front.mixed(DARK, if is_gap { 0.7 * spot.detail } else { 0.0 })
    }
}

fn bookshelf(spot: &Spot) -> Colour {
    let board = Colour(122.0, 82.0, 50.0);
    let shelf = cell(spot.height, 0.36);
    let above = inside(spot.height, 0.36);
    if above < 0.03 || spot.edge < 0.03 {
        return board;
    }
    let book = cell(spot.along, 0.045);
    let tall = 0.19 + 0.12 * speckle(book, shelf) as f64;
    if above > tall + 0.03 || speckle(book / 5, shelf + 40) < 0.12 {
        return board.mixed(DARK, 0.75);
    }
    let covers = [
        Colour(170.0, 54.0, 48.0),
        Colour(42.0, 84.0, 122.0),
        Colour(196.0, 156.0, 72.0),
        Colour(64.0, 110.0, 76.0),
        Colour(216.0, 206.0, 188.0),
        Colour(98.0, 62.0, 104.0),
    ];
    let cover = covers[(speckle(book, shelf + 7) * 5.999) as usize];
    let is_band = (0.06..0.075).contains(&(above - 0.03)) || inside(spot.along, 0.045) < 0.006;
    let mean = Colour(130.0, 100.0, 84.0);
    let cover = cover.mixed(DARK, if is_band { 0.45 } else { 0.0 });
    mean.mixed(cover, 0.4 + 0.6 * spot.detail)
}

fn sofa(spot: &Spot) -> Colour {
    let cloth = Colour(188.0, 86.0, 62.0);
    if spot.height < 0.08 {
        return DARK;
    }
    let is_seam = (0.4..0.42).contains(&spot.height) || inside(spot.along, 0.53) < 0.02;
    let weave = speckle(cell(spot.along, 0.03), cell(spot.height, 0.03)) * 0.12;
    cloth.mixed(
        DARK,
        (weave + if is_seam { 0.45 } else { 0.0 }) * spot.detail,
    )
}

fn wood(thing: &Thing, spot: &Spot) -> Colour {
    let plain = Colour(202.0, 158.0, 104.0);
    let is_top = spot.height > thing.top - 0.06;
    // A wave of grain, bent a little by the height.
    let wave = inside(spot.height * 3.0 + spot.along * 0.35, 0.16) / 0.16;
    let grain = ((wave - 0.5).abs() * 0.4) as f32;
    let shade = if is_top { 0.0 } else { 0.18 };
    plain.mixed(Colour(104.0, 66.0, 36.0), shade + grain * spot.detail)
}

fn plant(thing: &Thing, spot: &Spot) -> Option<Colour> {
    let round = roundness(thing, spot);
    if spot.height < 0.38 {
        let rim = if spot.height > 0.33 { 0.0 } else { 0.22 };
        let pot = Colour(206.0, 122.0, 84.0);
        return Some(pot.mixed(DARK, rim + 0.3 * round));
    }
    let (column, row) = (
        cell(spot.along, 0.05),
        cell(spot.height + spot.along * 0.7, 0.07),
    );
    let leaf = speckle(column, row);
    let bushiness = 0.9 - 0.5 * ((spot.height - 0.38) / (thing.top - 0.38)) as f32;
    if leaf > bushiness {
        return None;
    }
    let green = Colour(66.0, 128.0, 62.0);
    let lit = Colour(142.0, 188.0, 88.0);
    Some(green.mixed(lit, leaf).mixed(DARK, 0.25 * round))
}

fn metal(thing: &Thing, spot: &Spot) -> Colour {
    let steel = Colour(176.0, 182.0, 190.0);
    let round = roundness(thing, spot);
    let is_lid = spot.height > thing.top - 0.05;
    let is_seam = (1.2..1.215).contains(&spot.height);
    let brushed = speckle(cell(spot.height, 0.01), 5) * 0.08 * spot.detail;
    let shade = if is_lid || is_seam { 0.45 } else { 0.0 };
    steel.mixed(DARK, (shade + brushed + 0.4 * round).min(0.9))
}

/// How far around a column a spot is, as a shade that makes it look round.
fn roundness(thing: &Thing, spot: &Spot) -> f32 {
    match thing.outline {
        Outline::Box(..) => 0.0,
        Outline::Round(_, _, radius) => {
            let turn = libm::sin(spot.along / radius - 0.9);
            (0.5 - 0.5 * turn) as f32
        }
    }
}

/// Small abstract paintings.
fn picture(thing: &Thing, kind: u8, spot: &Spot) -> Colour {
    let up = (spot.height - thing.bottom) / (thing.top - thing.bottom);
    if spot.edge < 0.035 || !(0.05..0.95).contains(&up) {
        return Colour(92.0, 64.0, 36.0);
    }
    if spot.edge < 0.06 || !(0.09..0.91).contains(&up) {
        return WHITE;
    }
    let along = spot.along;
    match kind {
        // Sun over the sea.
        0 => {
            let (dx, dy) = (along - 1.3, (up - 0.62) * 0.7);
            if dx * dx + dy * dy < 0.011 {
                Colour(250.0, 206.0, 92.0)
            } else if up < 0.4 {
                let is_wave = inside(up + 0.02 * libm::sin(along * 30.0), 0.1) < 0.04;
                Colour(46.0, 96.0, 148.0).mixed(WHITE, if is_wave { 0.35 } else { 0.0 })
            } else {
                Colour(232.0, 142.0, 104.0).mixed(Colour(120.0, 110.0, 170.0), up as f32 - 0.35)
            }
        }
        // Coloured fields.
        1 => match (cell(along, 0.17) + cell(up, 0.33)) % 4 {
            0 => Colour(206.0, 62.0, 50.0),
            1 => Colour(240.0, 198.0, 72.0),
            2 => Colour(52.0, 84.0, 150.0),
            _ => Colour(236.0, 230.0, 216.0),
        },
        // Hills.
        2 => {
            let near = 0.3 + 0.1 * libm::sin(along * 7.0);
            let far = 0.5 + 0.12 * libm::sin(along * 4.0 + 1.0);
            if up < near {
                Colour(72.0, 112.0, 62.0)
            } else if up < far {
                Colour(126.0, 152.0, 112.0)
            } else {
                Colour(176.0, 208.0, 226.0).mixed(WHITE, up as f32 * 0.5)
            }
        }
        // Rings.
        3 => {
            let (dx, dy) = (along - 3.0, (up - 0.5) * 0.7);
            let ring = inside((dx * dx + dy * dy).sqrt(), 0.09) < 0.045;
            if ring {
                Colour(36.0, 44.0, 66.0)
            } else {
                Colour(226.0, 118.0, 74.0)
            }
        }
        // Bars.
        _ => {
            let tall = 0.25 + 0.6 * speckle(cell(along, 0.09), 11) as f64;
            if up < tall && inside(along, 0.09) > 0.015 {
                Colour(66.0, 118.0, 138.0)
            } else {
                Colour(240.0, 226.0, 198.0)
            }
        }
    }
}

fn room_inside(x: f64, y: f64) -> Option<Room> {
    let is_inside = (0.0..=8.0).contains(&x) && (0.0..=6.0).contains(&y);
    is_inside.then(|| Room::at(x, y))
}

/// The index of the stretch of this length that a coordinate is in.
///
/// Rounds down by hand: without target features, `floor` is a library call, and this runs for
/// every pixel.
fn cell(place: f64, length: f64) -> i64 {
    let stretches = place / length;
    let towards_zero = stretches as i64;
    towards_zero - i64::from(stretches < towards_zero as f64)
}

/// The offset of a coordinate in its stretch of this length.
fn inside(place: f64, length: f64) -> f64 {
    place - cell(place, length) as f64 * length
}

/// A number in `[0, 1)` that looks random but belongs to its cell.
fn speckle(a: i64, b: i64) -> f32 {
    let mut mixed = (a as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((b as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    (mixed >> 40) as f32 / (1_u64 << 24) as f32
}
