//! Suite `hot`: the lock-free buffers of asof-hot and their peers, on the sizes of a small robot.

mod cores;
mod cpp;
mod latest;
mod map;
mod ring;
mod ring_peers;
mod shm;
mod small;
mod tails;

use crate::harness::Bench;

pub fn run(bench: &mut Bench) {
    if shm::is_child() {
        return;
    }
    let bench = &*bench;
    ring::run(bench);
    latest::run(bench);
    small::run(bench);
    map::run(bench);
    shm::run(bench);
    tails::run(bench);
}
