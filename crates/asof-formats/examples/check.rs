//! What the doctor says of a recording: its problems, one a line. Exits with 1 if there are any.
//!
//! `cargo run -p asof-formats --example check -- PLACE...`

use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut is_healthy = true;
    for place in std::env::args_os().skip(1) {
        let recording = asof_formats::open(&place)?;
        for problem in recording.check(&mut |_, _| Ok(()))? {
            println!("{}: {problem}", place.display());
            is_healthy = false;
        }
    }
    Ok(if is_healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
