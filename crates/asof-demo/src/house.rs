//! The house that the robot drives through.
//!
//! Four rooms around a cross of walls, joined in a ring by four doorways, with some furniture.
//! Every obstacle is a [`Thing`]: a box or a column with a height and a surface. The laser,
//! the camera, the bumper and the map all use the same things, so they agree.

/// Eight metres from west to east.
pub(crate) const WIDTH: f64 = 8.0;
/// Six metres from south to north.
pub(crate) const DEPTH: f64 = 6.0;
/// The height of the ceiling.
pub(crate) const CEILING: f64 = 2.4;

/// The thickness of the outer walls.
const OUTER: f64 = 0.15;
/// Half the thickness of the inner walls.
const INNER: f64 = 0.06;
/// Where the inner walls cross.
const CROSS: (f64, f64) = (4.0, 3.0);

/// A room of the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// South-west, where the drive starts.
    Hall,
    /// South-east.
    Kitchen,
    /// North-east.
    LivingRoom,
    /// North-west.
    Study,
}

impl Room {
    /// The room at a point.
    pub fn at(x: f64, y: f64) -> Room {
        match (x < CROSS.0, y < CROSS.1) {
            (true, true) => Room::Hall,
            (false, true) => Room::Kitchen,
            (false, false) => Room::LivingRoom,
            (true, false) => Room::Study,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Room::Hall => "hall",
            Room::Kitchen => "kitchen",
            Room::LivingRoom => "living room",
            Room::Study => "study",
        }
    }
}

/// What a thing looks like; the colours are the camera's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A wall, papered or tiled like the room that it faces.
    Wall,
    /// Drawers with handles.
    Cupboard,
    /// Rows of books.
    Bookshelf,
    /// Cushions.
    Sofa,
    /// Light wood with grain.
    Wood,
    /// A pot with leaves above it.
    Plant,
    /// A bin of brushed metal.
    Metal,
    /// A picture in a frame.
    Picture(u8),
    /// The piece of wall above a doorway.
    Lintel,
}

/// The outline of a thing, seen from above.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outline {
    /// West, south, east, north.
    Box(f64, f64, f64, f64),
    /// Centre and radius.
    Round(f64, f64, f64),
}

/// An obstacle in the house.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thing {
    pub(crate) outline: Outline,
    /// Its lower edge above the floor: pictures hang, everything else stands.
    pub(crate) bottom: f64,
    /// Its upper edge above the floor.
    pub(crate) top: f64,
    pub(crate) surface: Surface,
}

/// Where a ray meets a thing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    /// From the ray's start, in multiples of its direction.
    pub(crate) distance: f64,
    /// Metres along the surface, for its pattern.
    pub(crate) along: f64,
    /// Which way the surface faces.
    pub(crate) normal: (f64, f64),
    /// The index of the thing.
    pub(crate) thing: usize,
}

/// The floor plan with its obstacles.
#[derive(Debug, Clone)]
pub struct House {
    things: Vec<Thing>,
}

impl Default for House {
    fn default() -> Self {
        House::new()
    }
}

impl House {
    /// The house. There is only one.
    pub fn new() -> Self {
        let mut things = walls();
        things.extend(furniture());
        things.extend(lintels());
        things.extend(pictures());
        House { things }
    }

    /// Metres from west to east and from south to north; the south-west corner is the origin.
    pub fn size(&self) -> (f64, f64) {
        (WIDTH, DEPTH)
    }

    /// Whether a point is occupied, at the height of the laser and the bumper.
    pub fn is_occupied(&self, x: f64, y: f64) -> bool {
        self.solid()
            .any(|thing| clearance(thing.outline, x, y) <= 0.0)
    }

    /// Metres from a point to the nearest thing; negative inside of one.
    pub fn clearance(&self, x: f64, y: f64) -> f64 {
        self.solid()
            .map(|thing| clearance(thing.outline, x, y))
            .fold(f64::INFINITY, f64::min)
    }

    /// Metres from a point to the first hit of a level ray in this direction, at laser height.
    pub fn range(&self, x: f64, y: f64, direction: f64) -> Option<f64> {
        self.echo(x, y, direction).map(|(distance, _)| distance)
    }

    /// Range, and the cosine of incidence: from 0, along the surface, to 1, head on.
    pub(crate) fn echo(&self, x: f64, y: f64, direction: f64) -> Option<(f64, f64)> {
        let (sin, cos) = libm::sincos(direction);
        self.solid()
            .filter_map(|thing| meet(thing.outline, (x, y), (cos, sin)))
            .map(|(distance, _, normal)| (distance, -(normal.0 * cos + normal.1 * sin)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Everything that a level ray hits, nearest first, up to and including the first full-height wall.
    pub(crate) fn view(&self, from: (f64, f64), direction: (f64, f64), hits: &mut Vec<Hit>) {
        hits.clear();
        for (index, thing) in self.things.iter().enumerate() {
            if let Some((distance, along, normal)) = meet(thing.outline, from, direction) {
                hits.push(Hit {
                    distance,
                    along,
                    normal,
                    thing: index,
                });
            }
        }
        hits.sort_unstable_by(|a, b| a.distance.total_cmp(&b.distance));
        let wall = hits
            .iter()
            .position(|hit| self.things[hit.thing].surface == Surface::Wall);
        if let Some(last) = wall {
            hits.truncate(last + 1);
        }
    }

    pub(crate) fn thing(&self, index: usize) -> &Thing {
        &self.things[index]
    }

    /// The things that stand on the floor.
    fn solid(&self) -> impl Iterator<Item = &Thing> {
        self.things.iter().filter(|thing| thing.bottom == 0.0)
    }
}

fn walls() -> Vec<Thing> {
    let wall = |west, south, east, north| Thing {
        outline: Outline::Box(west, south, east, north),
        bottom: 0.0,
        top: CEILING,
        surface: Surface::Wall,
    };
    let (x, y) = CROSS;
    vec![
        wall(0.0, 0.0, WIDTH, OUTER),
        wall(0.0, DEPTH - OUTER, WIDTH, DEPTH),
        wall(0.0, 0.0, OUTER, DEPTH),
        wall(WIDTH - OUTER, 0.0, WIDTH, DEPTH),
        // Hall | kitchen, with a doorway from 1.05 to 1.95.
        wall(x - INNER, 0.0, x + INNER, 1.05),
        wall(x - INNER, 1.95, x + INNER, y),
        // Study | living room, with a doorway from 4.05 to 4.95.
        wall(x - INNER, y, x + INNER, 4.05),
        wall(x - INNER, 4.95, x + INNER, DEPTH),
        // Hall | study, with a doorway from 1.55 to 2.45.
        wall(0.0, y - INNER, 1.55, y + INNER),
        wall(2.45, y - INNER, x, y + INNER),
        // Kitchen | living room, with a doorway from 5.55 to 6.45.
        wall(x, y - INNER, 5.55, y + INNER),
        wall(6.45, y - INNER, WIDTH, y + INNER),
    ]
}

fn lintels() -> Vec<Thing> {
    let over = |west, south, east, north| Thing {
        outline: Outline::Box(west, south, east, north),
        bottom: 2.0,
        top: CEILING,
        surface: Surface::Lintel,
    };
    let (x, y) = CROSS;
    vec![
        over(x - INNER, 1.05, x + INNER, 1.95),
        over(x - INNER, 4.05, x + INNER, 4.95),
        over(1.55, y - INNER, 2.45, y + INNER),
        over(5.55, y - INNER, 6.45, y + INNER),
    ]
}

fn furniture() -> Vec<Thing> {
    let piece = |outline, top, surface| Thing {
        outline,
        bottom: 0.0,
        top,
        surface,
    };
    vec![
        // Hall: a bench, a plant, a bin.
        piece(Outline::Box(0.15, 0.15, 1.35, 0.5), 0.5, Surface::Wood),
        piece(Outline::Round(3.55, 2.55, 0.2), 1.3, Surface::Plant),
        piece(Outline::Round(3.6, 0.5, 0.16), 0.6, Surface::Metal),
        // Kitchen: a counter along the south wall, a table's pedestal, a fridge.
        piece(Outline::Box(4.6, 0.15, 7.0, 0.6), 0.95, Surface::Cupboard),
        piece(Outline::Round(4.75, 2.45, 0.3), 0.75, Surface::Wood),
        piece(Outline::Box(7.3, 2.2, 7.85, 2.94), 1.8, Surface::Metal),
        // Living room: a sofa, a shelf, a plant.
        piece(Outline::Box(7.1, 3.6, 7.85, 5.2), 0.8, Surface::Sofa),
        piece(Outline::Box(4.5, 5.55, 6.2, 5.85), 1.9, Surface::Bookshelf),
        piece(Outline::Round(7.45, 5.5, 0.2), 1.4, Surface::Plant),
        // Study: a desk, shelves, a stool.
        piece(Outline::Box(1.6, 5.3, 3.2, 5.85), 0.75, Surface::Wood),
        piece(
            Outline::Box(3.55, 3.06, 3.94, 3.75),
            2.1,
            Surface::Bookshelf,
        ),
        piece(Outline::Round(0.6, 3.5, 0.22), 0.5, Surface::Wood),
    ]
}

fn pictures() -> Vec<Thing> {
    // A little in front of the wall, so that the ray hits them first.
    let hung = |west, south, east, north, kind| Thing {
        outline: Outline::Box(west, south, east, north),
        bottom: 1.15,
        top: 1.85,
        surface: Surface::Picture(kind),
    };
    vec![
        hung(WIDTH - OUTER - 0.02, 0.9, WIDTH - OUTER, 1.7, 0),
        hung(4.06, 5.2, 4.08, 5.7, 1),
        hung(OUTER, 4.0, OUTER + 0.02, 5.0, 2),
        hung(2.7, 2.92, 3.3, 2.94, 3),
        hung(6.7, 3.06, 7.5, 3.08, 4),
        hung(5.0, 2.92, 5.4, 2.94, 1),
    ]
}

/// Metres from a point to an outline; negative inside.
fn clearance(outline: Outline, x: f64, y: f64) -> f64 {
    match outline {
        Outline::Round(cx, cy, radius) => {
            let (dx, dy) = (x - cx, y - cy);
            (dx * dx + dy * dy).sqrt() - radius
        }
        Outline::Box(west, south, east, north) => {
            let dx = (west - x).max(x - east);
            let dy = (south - y).max(y - north);
            if dx > 0.0 && dy > 0.0 {
                (dx * dx + dy * dy).sqrt()
            } else {
                dx.max(dy)
            }
        }
    }
}

/// Where a ray enters an outline: distance in multiples of the direction, position along the surface,
/// and normal.
fn meet(
    outline: Outline,
    from: (f64, f64),
    direction: (f64, f64),
) -> Option<(f64, f64, (f64, f64))> {
    match outline {
        Outline::Box(west, south, east, north) => {
            let (near_x, far_x) = slab(from.0, direction.0, west, east);
            let (near_y, far_y) = slab(from.1, direction.1, south, north);
            let near = near_x.max(near_y);
            // A ray that starts inside a thing does not hit it.
            if near <= 0.0 || near > far_x.min(far_y) {
                return None;
            }
            Some(if near_x > near_y {
                let along = from.1 + near * direction.1;
                (near, along, (-direction.0.signum(), 0.0))
            } else {
                let along = from.0 + near * direction.0;
                (near, along, (0.0, -direction.1.signum()))
            })
        }
        Outline::Round(cx, cy, radius) => {
            let (dx, dy) = (cx - from.0, cy - from.1);
            // The direction may have any length: distances count in multiples of it.
            let length = direction.0 * direction.0 + direction.1 * direction.1;
            let closest = (dx * direction.0 + dy * direction.1) / length;
            let aside = dx * dx + dy * dy - closest * closest * length;
            let inside = radius * radius - aside;
            if inside < 0.0 {
                return None;
            }
            let distance = closest - (inside / length).sqrt();
            if distance <= 0.0 {
                return None;
            }
            let normal = (
                (distance * direction.0 - dx) / radius,
                (distance * direction.1 - dy) / radius,
            );
            Some((distance, libm::atan2(normal.1, normal.0) * radius, normal))
        }
    }
}

/// Where a ray enters and leaves the strip between two parallel lines.
fn slab(from: f64, direction: f64, low: f64, high: f64) -> (f64, f64) {
    if direction == 0.0 {
        return if (low..=high).contains(&from) {
            (f64::NEG_INFINITY, f64::INFINITY)
        } else {
            (f64::INFINITY, f64::NEG_INFINITY)
        };
    }
    let (a, b) = ((low - from) / direction, (high - from) / direction);
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_PI_2, PI};

    #[test]
    fn a_ray_ends_where_the_wall_begins() {
        let house = House::new();
        let east = house.range(5.0, 1.5, 0.0).expect("the east wall");
        assert!((east - (WIDTH - OUTER - 5.0)).abs() < 1e-9, "{east}");
        let west = house.range(2.0, 1.5, PI).expect("the west wall");
        assert!((west - (2.0 - OUTER)).abs() < 1e-9, "{west}");
    }

    #[test]
    fn a_ray_goes_through_a_doorway() {
        let house = House::new();
        let through = house.range(2.0, 1.5, 0.0).expect("the east wall");
        assert!((through - (WIDTH - OUTER - 2.0)).abs() < 1e-9, "{through}");
        let north = house.range(6.0, 1.5, FRAC_PI_2).expect("the shelf");
        assert!((north - (5.55 - 1.5)).abs() < 1e-9, "{north}");
    }

    #[test]
    fn every_direction_from_every_free_place_meets_something() {
        let house = House::new();
        for (x, y) in [(2.0, 1.5), (6.0, 1.5), (6.0, 4.5), (2.0, 4.5)] {
            for degree in 0..360 {
                let direction = f64::from(degree).to_radians();
                let range = house.range(x, y, direction).expect("a closed house");
                assert!(range > 0.0 && range < 10.0);
                let (sin, cos) = libm::sincos(direction);
                let (x, y) = (x + range * cos, y + range * sin);
                assert!(house.clearance(x, y).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn the_clearance_of_a_point_inside_of_a_wall_is_negative() {
        let house = House::new();
        assert!(house.is_occupied(0.05, 3.0));
        assert!(!house.is_occupied(2.0, 1.5));
        assert!((house.clearance(2.0, 1.5) - 1.35).abs() < 0.5);
    }
}
