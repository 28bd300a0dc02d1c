# Sourced by the suites: what they run is built with the features of the whole workspace, exactly as `cargo test --workspace`
# builds it. A choice of packages (`-p`) would compile most dependencies again, with fewer features.
target="${CARGO_TARGET_DIR:-target}"

# The command and the named examples, in $target/debug. An example among the targets brings in the features of the
# development dependencies, which the tests were built with.
build_asof() {
    cargo build --quiet --workspace --bin asof --example robot "$@"
}
