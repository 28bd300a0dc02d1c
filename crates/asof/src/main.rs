//! The command `asof`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
