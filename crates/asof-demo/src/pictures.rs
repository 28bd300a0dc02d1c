//! Images that are rendered ahead, on every core.
//!
//! Rendering is most of the cost of a recording. An image depends only on where the robot is, so each
//! painter simulates the drive by itself and stops where its own images are due.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::DemoOptions;
use crate::camera::Camera;
use crate::drive::Drive;

/// Steps between two images, and the step of the first.
const PICTURE_STEPS: (u64, u64) = (20, 13);
/// More painters would only wait for the recorder.
const MAX_PAINTERS: usize = 8;
/// The number of images that a painter renders ahead.
const IMAGES_AHEAD: usize = 2;

/// The camera's images, in order.
#[derive(Debug)]
pub(crate) struct Pictures {
    options: DemoOptions,
    /// They take turns. They start when the first image is requested.
    painters: Vec<Receiver<Vec<u8>>>,
    taken: usize,
    /// The fallback when no thread can be started.
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

    /// Whether an image is taken in this step.
    pub(crate) fn is_due(step: u64) -> bool {
        step % PICTURE_STEPS.0 == PICTURE_STEPS.1
    }

    /// The next image: the camera's view at the current step of this drive.
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
        let count = cores.min(MAX_PAINTERS);
        for number in 0..count {
            let (sender, receiver) = sync_channel(IMAGES_AHEAD);
            let options = self.options.clone();
            let spawned = std::thread::Builder::new()
                .name("asof-demo".into())
                .spawn(move || paint(&options, number, count, &sender));
            if spawned.is_ok() {
                self.painters.push(receiver);
            } else {
                // With one of them missing, the turns would not match.
                self.painters.clear();
                return;
            }
        }
    }
}

/// Paints every `count`th image, until the receiver is dropped.
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
