//! The command `asof`.

fn main() -> std::process::ExitCode {
    asof_cli::main()
}
