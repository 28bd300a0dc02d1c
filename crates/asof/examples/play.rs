//! Plays a recording in real time, or follows a running robot, and prints what passes.
//!
//! `cargo run --release -p asof --example play -- recording.mcap [SPEED]`

use std::time::{Duration, Instant};

use asof::Topics;
use asof::blocks::{BlockCache, CacheOptions};
use asof::player::{PlayState, Player, PlayerEvent, Speed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: play RECORDING [SPEED]")?;
    let cache = BlockCache::new(asof::open(path)?, CacheOptions::default());
    let mut player = Player::new(&cache, Topics::All)?;
    if let Some(speed) = arguments.next() {
        player.set_speed(Speed::Times(speed.parse()?));
    }
    player.play();
    let mut messages = 0;
    let mut printed = Instant::now();
    while player.state() != PlayState::Ended {
        for event in player.tick(Instant::now()) {
            match event {
                PlayerEvent::Messages(batch) => messages += batch.len(),
                PlayerEvent::State(state) => println!("{state:?}"),
                PlayerEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        if printed.elapsed() >= Duration::from_secs(1) {
            println!("{}: {messages} messages so far", player.position());
            printed = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(16));
    }
    println!("{messages} messages");
    Ok(())
}
