//! Pictures that are painted ahead, on every core.
//!
//! Painting is most of what a recording costs. A picture depends on where the robot is and on nothing that was
//! said before, so each painter drives through the house by itself and stops where its own pictures are due.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::DemoOptions;
use crate::camera::Camera;
use crate::drive::Drive;

/// Steps between two pictures, and the step of the first.
const PICTURE_STEPS: (u64, u64) = (20, 13);
/// More painters than this would only wait for the recorder.
const MOST_PAINTERS: usize = 8;
/// How many pictures a painter has ready.
const AHEAD: usize = 2;

/// The camera's pictures, in order.
#[derive(Debug)]
pub(crate) struct Pictures {
    options: DemoOptions,
    /// They take turns. Nobody paints before the first picture is asked for.
    painters: Vec<Receiver<Vec<u8>>>,
    taken: usize,
    /// For where there is no other thread to be had.
    camera: Camera,
}

impl Pictures {
    pub(crate) fn new(options: &DemoOptions) -> Self {
        Pictures {
            options: options.clone(),
            painters: Vec::new(),
            taken: 0,
            camera: Camera::new(),
        }
    }

    /// Whether this is a step in which a picture is taken.
    pub(crate) fn is_due(step: u64) -> bool {
        step % PICTURE_STEPS.0 == PICTURE_STEPS.1
    }

    /// The next picture: what the camera sees on this drive, which has come to it.
    pub(crate) fn next(&mut self, drive: &Drive) -> Vec<u8> {
        if self.taken == 0 {
            self.start();
        }
        let turn = self.taken % self.painters.len().max(1);
        self.taken += 1;
        let painted = self.painters.get(turn).and_then(|own| own.recv().ok());
        painted.unwrap_or_else(|| self.camera.picture(&drive.house, drive.robot.truth))
    }

    fn start(&mut self) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = cores.min(MOST_PAINTERS);
        for number in 0..count {
            let (sender, receiver) = sync_channel(AHEAD);
            let options = self.options.clone();
            let spawned = std::thread::Builder::new()
                .name("asof-demo".into())
                .spawn(move || paint(&options, number, count, &sender));
            if spawned.is_ok() {
                self.painters.push(receiver);
            } else {
                // Without one of them the turns would not come out.
                self.painters.clear();
                return;
            }
        }
    }
}

/// Paints every `count`th picture, until nobody takes them any more.
fn paint(options: &DemoOptions, number: usize, count: usize, pictures: &SyncSender<Vec<u8>>) {
    let mut drive = Drive::new(options);
    let mut camera = Camera::new();
    let mut seen = 0;
    loop {
        drive.decide();
        if Pictures::is_due(drive.steps()) {
            if seen % count == number {
                let picture = camera.picture(&drive.house, drive.robot.truth);
                if pictures.send(picture).is_err() {
                    return;
                }
            }
            seen += 1;
        }
        drive.advance();
    }
}
