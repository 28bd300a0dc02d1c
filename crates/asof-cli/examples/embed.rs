//! A program with the command in it: `cargo run -p asof-cli --example embed -- info run.mcap`

fn main() -> std::process::ExitCode {
    asof_cli::main_with(std::env::args_os().collect())
}
