#!/usr/bin/env bash
# Builds the wheel of asof in release, installs it beside its peers, and runs the suite `py` with what is given.
# ASOF_BENCH_VENV names an environment that has all of it already.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
target="${CARGO_TARGET_DIR:-$here/target}"
venv="${ASOF_BENCH_VENV:-$target/py-venv}"
if [ -z "${ASOF_BENCH_VENV:-}" ]; then
    # Debian's tf2 is a package of the system's own Python.
    python=python3
    /usr/bin/python3 -c 'import tf2_py, ensurepip' 2>/dev/null && python=/usr/bin/python3
    [ -x "$venv/bin/python" ] || "$python" -m venv --system-site-packages "$venv"
    "$venv/bin/pip" --quiet install maturin numpy pandas polars pyarrow rosbags mcap mcap-ros2-support >&2
    "$venv/bin/pip" --quiet install 'rerun-sdk[catalog]' >&2 || echo "py: rerun-sdk cannot be had here" >&2
    wheels="$(mktemp -d)"
    trap 'rm -rf "$wheels"' EXIT
    "$venv/bin/maturin" build --quiet --release --locked --manifest-path "$here/../crates/asof-py/Cargo.toml" --out "$wheels" >&2
    "$venv/bin/pip" --quiet install --force-reinstall --no-deps "$wheels"/asof-*.whl >&2
fi
"$venv/bin/python" "$here/python.py" "$@"
