# Sourced by the suites, which run the complete command, with the features of the whole workspace. A choice of packages
# (`-p`) without asof-features would compile most dependencies again, with fewer features.
target="${CARGO_TARGET_DIR:-target}"

# The command and what else is named (`--bin` of ci/programs, `--example`), in $target/debug. An example among the targets
# brings in the features of the development dependencies, which the tests were built with.
build_asof() {
    cargo build --quiet --workspace --features asof-cli/full --bin asof --example robot "$@"
}

# Runs cargo with Clippy as the compiler of the workspace's own crates, warnings as errors: what is compiled for tests is linted on
# the way, as `cargo clippy` does it, but no dependency is compiled once more for lints alone.
linted() {
    RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" "$@"
}

# Runs cargo on models of loom, in a target folder that they share.
under_loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" "$@"
}

# Sets the target folder of Miri. What it compiles runs from the clone that it was compiled in alone: another one begins anew.
in_miri() {
    export CARGO_TARGET_DIR="$target/miri"
    [ "$(cat "$CARGO_TARGET_DIR/clone" 2>/dev/null)" != "$PWD" ] || return 0
    rm -rf "$CARGO_TARGET_DIR"
    mkdir -p "$CARGO_TARGET_DIR"
    echo "$PWD" >"$CARGO_TARGET_DIR/clone"
}

# Says what a suite leaves out, in the one form that the gate counts and repeats.
skip() {
    echo "SKIPPED: $*"
}

# Leaves the rest of the suite out. The gate counts a suite that ends like this as skipped, not as passed.
skip_rest() {
    skip "$@"
    exit 77
}

# `recordings FOLDER` sets `data` to the folder of recordings, which has to hold FOLDER.
recordings() {
    data="${ASOF_TEST_DATA:-../shared/data}"
    [ -d "$data/$1" ] || skip_rest "no recordings in $data/$1 (set ASOF_TEST_DATA)"
}

# `in_turn LOCK COMMAND...` runs a command of which there may be one at a time: suites run side by side, and the others wait.
in_turn() {
    local lock=$1 only status=0
    shift
    mkdir -p "$(dirname "$lock")"
    exec {only}>"$lock"
    flock "$only"
    "$@" || status=$?
    exec {only}>&-
    return "$status"
}

# Installs packages of Debian, if it is one.
debian_packages() {
    command -v apt-get >/dev/null && in_turn "$target/debian.lock" install_packages "$@" >/dev/null 2>&1
}

install_packages() {
    local sudo
    sudo=$(command -v sudo || true)
    $sudo apt-get update -q && $sudo apt-get install -q -y --no-install-recommends "$@"
}

# `virtual_environment NAME PACKAGE...` sets `python` to a Python with these packages, without which there is no suite.
virtual_environment() {
    has_environment "$@" || skip_rest "a Python with ${*:2} is not here"
}

# The one Python of the suites that compare files with what other libraries read and write.
comparing_environment() {
    virtual_environment compare duckdb flatbuffers foxglove-schemas-flatbuffer foxglove-schemas-protobuf jsonschema lz4 mcap \
        mcap-protobuf-support mcap-ros1-support mcap-ros2-support numpy polars pyarrow pytz pyulog rosbags zstandard
}

# Whether there is such a Python. It stays in the target folder for the next run; ASOF_VENV is one that is there already.
# `interpreter` is the Python that it is made from, if not python3.
has_environment() {
    local venv="${ASOF_VENV:-$target/venv/$1}"
    python="$venv/bin/python"
    in_turn "$venv.lock" made_environment "$venv" "${@:2}"
}

made_environment() {
    local venv=$1
    shift
    [ -x "$python" ] || "${interpreter:-python3}" -m venv "$venv" || return
    [ "$(cat "$venv/asof-packages" 2>/dev/null)" = "$*" ] && return
    "$python" -m pip install --quiet --disable-pip-version-check "$@" || return
    echo "$*" >"$venv/asof-packages"
}
