# Sourced by the suites: what they run is built with the features of the whole workspace, exactly as `cargo test --workspace`
# builds it. A choice of packages (`-p`) would compile most dependencies again, with fewer features.
target="${CARGO_TARGET_DIR:-target}"

# The command and what else is named (`--bin` of ci/programs, `--example`), in $target/debug. An example among the targets
# brings in the features of the development dependencies, which the tests were built with.
build_asof() {
    cargo build --quiet --workspace --bin asof --example robot "$@"
}

# Everything that has the SQL engine in it is built with this one choice of packages and features: another one would compile
# DataFusion again, a quarter of an hour of CPU time. An array, for `cargo … "${engine[@]}"`.
engine=(-p asof-sql -p asof-cluster -p asof-cli --features asof-cli/cluster)

# The command with the engine, in $target/debug. A test among the targets brings in the features that tests have.
build_asof_with_engine() {
    cargo build --quiet "${engine[@]}" --bin asof --test sql
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

# Whether there is such a Python. It stays in the target folder for the next run; ASOF_VENV is one that is there already.
# `interpreter` is the Python that it is made from, if not python3.
has_environment() {
    local venv="${ASOF_VENV:-$target/venv/$1}"
    shift
    python="$venv/bin/python"
    [ -x "$python" ] || "${interpreter:-python3}" -m venv "$venv" || return
    [ "$(cat "$venv/asof-packages" 2>/dev/null)" = "$*" ] && return
    "$python" -m pip install --quiet --disable-pip-version-check "$@" || return
    echo "$*" >"$venv/asof-packages"
}
