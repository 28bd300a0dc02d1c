//! Serves a recording until Enter is pressed: `cargo run --release -p asof-serve --example serve -- run.mcap`

use std::sync::Arc;

use asof_serve::{ServeOptions, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a recording")?;
    let recording = asof_formats::open(&path)?;
    let server = Server::start(Arc::new(recording), &path, &ServeOptions::default())?;
    println!(
        "Open {} and press Enter here when you have seen enough.",
        server.url()
    );
    std::io::stdin().read_line(&mut String::new())?;
    println!("{}", server.status());
    Ok(())
}
