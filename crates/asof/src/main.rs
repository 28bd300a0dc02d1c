//! The command `asof`.

fn main() -> std::process::ExitCode {
    asof::cli::main()
}
