//! The robot's camera: every column of the picture is a ray into the house.
//!
//! Walls and furniture are upright, so one level ray finds everything in a column; the floor is
//! cast pixel by pixel. Patterns fade with distance, where they would only flicker.

use jpeg_encoder::{ColorType, Encoder};

use crate::house::{CEILING, Hit, House, Outline, Room, Surface, Thing};
use crate::paint::{self, Colour};
use crate::pose::PlanarPose;
use crate::sensors::CAMERA;

/// Image width in pixels.
const WIDTH: usize = 320;
/// Image height in pixels.
const HEIGHT: usize = 240;
/// Half the image's width at depth one: a field of view of about 74 degrees.
const HALF_VIEW: f64 = 0.75;
/// JPEG quality, of 100. Good enough to look at, and ten images a second stay small.
const QUALITY: u8 = 72;

/// Draws images, and reuses the canvas.
#[derive(Debug)]
pub(crate) struct Camera {
    canvas: Vec<u8>,
    hits: Vec<Hit>,
    /// For every row, its part of the floor or of the ceiling.
    ground: Vec<Ground>,
}

/// A row of floor or ceiling: everything that does not depend on the robot's pose.
#[derive(Debug, Clone, Copy)]
struct Ground {
    depth: f64,
    light: f32,
    detail: f32,
}

impl Camera {
    pub(crate) fn new() -> Self {
        let ground = (0..HEIGHT).map(|row| {
            let below = row as f64 + 0.5 - HEIGHT as f64 / 2.0;
            let height = if below > 0.0 {
                CAMERA.1
            } else {
                CEILING - CAMERA.1
            };
            let depth = height * focal_length() / below.abs();
            Ground {
                depth,
                light: light(depth),
                detail: detail(depth),
            }
        });
        Camera {
            canvas: vec![0; WIDTH * HEIGHT * 3],
            hits: Vec::new(),
            ground: ground.collect(),
        }
    }

    /// The camera's view from a robot at this pose, as a JPEG.
    pub(crate) fn picture(&mut self, house: &House, robot: PlanarPose) -> Vec<u8> {
        let eye = robot.then(PlanarPose::new(CAMERA.0, 0.0, 0.0));
        for column in 0..WIDTH {
            self.draw_column(house, eye, column);
        }
        let mut jpeg = Vec::with_capacity(16 * 1024);
        let encoder = Encoder::new(&mut jpeg, QUALITY);
        // Writing to memory fails only when the image size differs from the canvas.
        let drawn = encoder.encode(&self.canvas, WIDTH as u16, HEIGHT as u16, ColorType::Rgb);
        debug_assert!(drawn.is_ok());
        jpeg
    }

    fn draw_column(&mut self, house: &House, eye: PlanarPose, column: usize) {
        let across = HALF_VIEW * (1.0 - 2.0 * (column as f64 + 0.5) / WIDTH as f64);
        let (sin, cos) = libm::sincos(eye.heading);
        // One unit deep along this ray; depth, not distance, so that straight walls stay straight.
        let ray = (cos - across * sin, sin + across * cos);
        let mut hits = std::mem::take(&mut self.hits);
        house.view((eye.x, eye.y), ray, &mut hits);
        let depth = hits.last().map_or(f64::INFINITY, |hit| hit.distance);
        self.draw_ground(eye, ray, column, depth);
        for hit in hits.iter().rev() {
            self.draw_thing(house.thing(hit.thing), hit, eye, ray, column);
        }
        self.hits = hits;
    }

    /// Floor and ceiling, above and below the wall that covers the rest of the column.
    fn draw_ground(&mut self, eye: PlanarPose, ray: (f64, f64), column: usize, wall: f64) {
        let middle = HEIGHT / 2;
        let floor = row_of(0.0, wall).clamp(middle as f64, HEIGHT as f64) as usize;
        for row in floor..HEIGHT {
            let ground = self.ground[row];
            let (x, y) = (eye.x + ground.depth * ray.0, eye.y + ground.depth * ray.1);
            let colour = paint::floor(x, y, ground.detail);
            self.put(column, row, colour.lit(ground.light));
        }
        let ceiling = row_of(CEILING, wall).clamp(0.0, middle as f64 - 1.0) as usize;
        for row in 0..=ceiling {
            let ground = self.ground[row];
            let (x, y) = (eye.x + ground.depth * ray.0, eye.y + ground.depth * ray.1);
            self.put(column, row, paint::ceiling(x, y).lit(ground.light));
        }
    }

    fn draw_thing(
        &mut self,
        thing: &Thing,
        hit: &Hit,
        eye: PlanarPose,
        ray: (f64, f64),
        column: usize,
    ) {
        let depth = hit.distance.max(0.02);
        let (top, bottom) = (row_of(thing.top, depth), row_of(thing.bottom, depth));
        let first = (top - 0.5).ceil().clamp(0.0, HEIGHT as f64) as usize;
        let last = (bottom - 0.5).ceil().clamp(0.0, HEIGHT as f64) as usize;
        let (x, y) = (eye.x + depth * ray.0, eye.y + depth * ray.1);
        // The room that the surface faces decides the wallpaper.
        let room = Room::at(x + 0.01 * hit.normal.0, y + 0.01 * hit.normal.1);
        let edge = edge(thing.outline, hit);
        let slant = 0.86 + 0.14 * hit.normal.0 * 0.6 + 0.1 * hit.normal.1.abs();
        let shine = light(depth) * slant as f32;
        let detail = detail(depth);
        for row in first..last {
            let height =
                CAMERA.1 + (HEIGHT as f64 / 2.0 - row as f64 - 0.5) * depth / focal_length();
            let spot = paint::Spot {
                along: hit.along,
                height,
                edge,
                detail,
                room,
            };
            if let Some(colour) = paint::surface(thing, &spot) {
                self.put(column, row, colour.lit(shine * corner_shade(thing, height)));
            }
        }
    }

    fn put(&mut self, column: usize, row: usize, colour: Colour) {
        let at = (row * WIDTH + column) * 3;
        self.canvas[at..at + 3].copy_from_slice(&colour.bytes());
    }
}

/// Pixels per unit at depth one.
fn focal_length() -> f64 {
    WIDTH as f64 / 2.0 / HALF_VIEW
}

/// The image row of a point at this height and depth.
fn row_of(height: f64, depth: f64) -> f64 {
    HEIGHT as f64 / 2.0 + (CAMERA.1 - height) / depth * focal_length()
}

/// How much of a pattern is visible at a distance.
fn detail(depth: f64) -> f32 {
    (1.0 / (1.0 + 0.05 * depth * depth)) as f32
}

/// How bright things are at a distance: the robot carries a lamp.
fn light(depth: f64) -> f32 {
    (0.42 + 0.66 / (1.0 + 0.05 * depth * depth)) as f32
}

/// Walls darken towards the floor and the ceiling, as they do in corners.
fn corner_shade(thing: &Thing, height: f64) -> f32 {
    if thing.surface != Surface::Wall {
        return 1.0;
    }
    let gap = height.min(CEILING - height).max(0.0);
    (1.0 - 0.2 / (1.0 + 14.0 * gap)) as f32
}

/// Metres from the hit to the nearest end of that side.
fn edge(outline: Outline, hit: &Hit) -> f64 {
    match outline {
        Outline::Round(..) => f64::INFINITY,
        Outline::Box(west, south, east, north) => {
            let (low, high) = if hit.normal.0 == 0.0 {
                (west, east)
            } else {
                (south, north)
            };
            (hit.along - low).min(high - hit.along)
        }
    }
}
