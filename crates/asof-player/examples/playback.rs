//! Plays ten seconds of the demo robot four times as fast, jumps back in the middle, and counts what passes.
//!
//! `cargo run --release -p asof-player --example playback`

use std::time::{Duration, Instant};

use asof_blocks::{BlockCache, CacheOptions};
use asof_core::{FollowEnd, Topics};
use asof_demo::{Demo, DemoOptions};
use asof_player::{PlayState, Player, PlayerEvent, Speed};
use asof_window::Recent;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let drive = Recent::default();
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(10),
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        drive.push(message);
    }
    drive.close(FollowEnd::Complete);

    let cache = BlockCache::new(drive, CacheOptions::default());
    let mut player = Player::new(&cache, Topics::All)?;
    player.set_speed(Speed::Times(4.0));
    player.play();
    let start = player.position();
    let (mut messages, mut is_back) = (0, false);
    while player.state() != PlayState::Ended {
        for event in player.tick(Instant::now()) {
            match event {
                PlayerEvent::Messages(batch) => messages += batch.len(),
                PlayerEvent::State(state) => println!("{}: {state:?}", player.position()),
                PlayerEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        if !is_back && player.position().nanos() - start.nanos() > 5_000_000_000 {
            is_back = true;
            println!("{}: back to the start", player.position());
            player.seek(start);
        }
        std::thread::sleep(Duration::from_millis(16));
    }
    println!("{messages} messages");
    Ok(())
}
