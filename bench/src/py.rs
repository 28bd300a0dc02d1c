//! asof from Python beside its peers: `python.py` measures, in an environment that `peers/python.sh` makes.

use std::path::Path;
use std::process::Command;

use crate::harness::Bench;

pub fn run(bench: &mut Bench) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/python.sh");
    let mut command = Command::new(script);
    if bench.json {
        command.arg("--json");
    }
    if let Some(case) = &bench.only {
        command.args(["--case", case]);
    }
    if let Some(rounds) = bench.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("py: the suite ended with {status}"),
        Err(error) => eprintln!("py: the suite cannot be run: {error}"),
    }
}
