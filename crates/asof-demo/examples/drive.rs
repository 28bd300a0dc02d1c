//! Draws the house and the robot's path through it, from above, in braille.
//!
//!     cargo run --release -p asof-demo --example drive [SECONDS]

use std::time::Duration;

use asof_demo::{Demo, DemoOptions, House};

/// Metres to a dot: four dots down and two across make a character.
const DOT: f64 = 0.07;

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(seconds),
        ..DemoOptions::default()
    });
    let house = House::new();
    let (width, depth) = house.size();
    let (columns, rows) = ((width / DOT) as usize + 1, (depth / DOT) as usize + 1);
    let mut dots = vec![vec![false; columns]; rows];
    for (row, line) in dots.iter_mut().enumerate() {
        for (column, dot) in line.iter_mut().enumerate() {
            let (x, y) = (column as f64 * DOT, row as f64 * DOT);
            // Only the outline of things, so that the path stands out.
            *dot = house.clearance(x, y) <= 0.0 && house.clearance(x, y) > -DOT;
        }
    }
    for (_, pose) in demo.truth() {
        dots[(pose.y / DOT) as usize][(pose.x / DOT) as usize] = true;
    }
    for top in (0..rows.div_ceil(4)).rev() {
        let line = (0..columns.div_ceil(2)).map(|left| braille(&dots, top * 4, left * 2));
        println!("{}", line.collect::<String>().trim_end());
    }
}

/// The character for a block of two by four dots; rows go up, braille's go down.
fn braille(dots: &[Vec<bool>], row: usize, column: usize) -> char {
    const BITS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let mut bits = 0;
    for (down, pair) in BITS.iter().enumerate() {
        for (across, bit) in pair.iter().enumerate() {
            let line = dots.get(row + 3 - down);
            if line.and_then(|line| line.get(column + across)) == Some(&true) {
                bits |= bit;
            }
        }
    }
    char::from_u32(0x2800 + bits).unwrap_or(' ')
}
