//! Serves a recording, or half a minute of the demo robot, until Enter is pressed: a page, and Foxglove's protocol.
//!
//! `cargo run --release -p asof-serve --example serve -- [RECORDING]`

use std::sync::Arc;
use std::time::Duration;

use asof_core::{FollowEnd, Source};
use asof_demo::{Demo, DemoOptions};
use asof_serve::{ServeOptions, Server};
use asof_window::Recent;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1);
    let source: Arc<dyn Source> = match &path {
        Some(path) => Arc::new(asof_formats::open(path)?),
        None => Arc::new(drive()),
    };
    let name = path.as_deref().unwrap_or("the demo robot");
    let server = Server::start(source, name, &ServeOptions::default())?;
    println!("page:                   {}", server.url());
    println!("Foxglove or Lichtblick: {}", server.foxglove_url());
    println!("Enter ends it.");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn drive() -> Recent {
    let recent = Recent::default();
    let demo = Demo::new(DemoOptions {
        duration: Duration::from_secs(30),
        ..DemoOptions::default()
    });
    for message in demo.messages() {
        recent.push(message);
    }
    recent.close(FollowEnd::Complete);
    recent
}
