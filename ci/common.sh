# Sourced by the suites: what they run is the complete command, with the features of the whole workspace. A choice of packages
# (`-p`) without asof-features would compile most dependencies again, with fewer features.
target="${CARGO_TARGET_DIR:-target}"

# The command and what else is named (`--bin` of ci/programs, `--example`), in $target/debug. An example among the targets
# brings in the features of the development dependencies, which the tests were built with.
build_asof() {
    cargo build --quiet --workspace --features asof-cli/full --bin asof --example robot "$@"
}

# Runs cargo on models of loom, in a target folder that they share.
under_loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" "$@"
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
# `interpreter` is the Python that it is made from, if not python3. Suites run side by side: one makes it, the other waits.
has_environment() {
    local venv="${ASOF_VENV:-$target/venv/$1}" only
    shift
    python="$venv/bin/python"
    mkdir -p "$(dirname "$venv")"
    exec {only}>"$venv.lock"
    flock "$only"
    made_environment "$venv" "$@"
    local status=$?
    exec {only}>&-
    return "$status"
}

made_environment() {
    local venv=$1
    shift
    [ -x "$python" ] || "${interpreter:-python3}" -m venv "$venv" || return
    [ "$(cat "$venv/asof-packages" 2>/dev/null)" = "$*" ] && return
    "$python" -m pip install --quiet --disable-pip-version-check "$@" || return
    echo "$*" >"$venv/asof-packages"
}
