//! The map that the robot builds.

use crate::house::{DEPTH, WIDTH};
use crate::pose::PlanarPose;

/// Metres per cell.
pub(crate) const RESOLUTION: f64 = 0.05;
/// Unknown space around the house, so that its outer walls are not the edge of the map.
const MARGIN: f64 = 0.3;
/// Cells from west to east.
pub(crate) const COLUMNS: usize = ((WIDTH + 2.0 * MARGIN) / RESOLUTION + 0.5) as usize;
/// Cells from south to north.
pub(crate) const ROWS: usize = ((DEPTH + 2.0 * MARGIN) / RESOLUTION + 0.5) as usize;
/// The south-west corner of the first cell, on both axes.
pub(crate) const ORIGIN: f64 = -MARGIN;

/// Evidence for and against an obstacle in each cell, gathered from scans.
#[derive(Debug, Clone)]
pub(crate) struct Mapper {
    /// Above zero: occupied. Below: free. Zero: unknown.
    evidence: Vec<i8>,
}

impl Mapper {
    pub(crate) fn new() -> Self {
        Mapper {
            evidence: vec![0; COLUMNS * ROWS],
        }
    }

    /// Adds one scan: beams `(angle, range)` as seen from the laser's pose.
    pub(crate) fn see(&mut self, laser: PlanarPose, beams: impl Iterator<Item = (f64, f64)>) {
        for (angle, range) in beams {
            let (sin, cos) = libm::sincos(laser.heading + angle);
            // Half a cell each, up to the last cell before the echo.
            let steps = ((range - RESOLUTION) / (RESOLUTION / 2.0)) as i32;
            let mut last = usize::MAX;
            for step in 0..steps {
                let way = f64::from(step) * RESOLUTION / 2.0;
                let Some(cell) = cell(laser.x + way * cos, laser.y + way * sin) else {
                    continue;
                };
                if cell != last {
                    last = cell;
                    self.weigh(cell, -1);
                }
            }
            // Slightly beyond the surface, so that a wall on the edge of a cell falls on its inner side.
            let way = range + RESOLUTION / 4.0;
            if let Some(cell) = cell(laser.x + way * cos, laser.y + way * sin) {
                self.weigh(cell, 6);
            }
        }
    }

    /// A cell that was seen once stays known: its evidence is never zero again.
    fn weigh(&mut self, cell: usize, weight: i8) {
        let sum = (self.evidence[cell] + weight).clamp(-10, 40);
        self.evidence[cell] = if sum == 0 { weight.signum() } else { sum };
    }

    /// The map in ROS's values: -1 unknown, 0 free, 100 occupied; rows from south to north.
    pub(crate) fn grid(&self) -> Vec<i8> {
        self.evidence
            .iter()
            .map(|&evidence| match evidence {
                0 => -1,
                1.. => 100,
                _ => 0,
            })
            .collect()
    }
}

fn cell(x: f64, y: f64) -> Option<usize> {
    let column = ((x - ORIGIN) / RESOLUTION).floor();
    let row = ((y - ORIGIN) / RESOLUTION).floor();
    let is_inside = column >= 0.0 && row >= 0.0 && column < COLUMNS as f64 && row < ROWS as f64;
    is_inside.then(|| row as usize * COLUMNS + column as usize)
}
