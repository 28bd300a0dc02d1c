#!/usr/bin/env bash
# cargo runs each program of tests by this script in the gate. The tests with all features leave out what those with the default ones
# have run: the very same program (its name has a hash of all that it was compiled from), and tests of the command that know no feature.
set -euo pipefail
name="$(basename "${1%-*}")"
if grep -qxF -- "$1" "$ASOF_PROGRAMS"; then
    echo "ran before"
    exit
fi
if grep -qxF -- "$CARGO_PKG_NAME $name" "$ASOF_PROGRAMS" && [ -e "tests/$name.rs" ] && ! grep -q 'feature = ' "tests/$name.rs"; then
    echo "ran with the default features"
    exit
fi
printf '%s\n' "$1" "$CARGO_PKG_NAME $name" >>"$ASOF_PROGRAMS"
exec "$@"
