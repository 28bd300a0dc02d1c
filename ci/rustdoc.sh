#!/usr/bin/env bash
# Replaces rustdoc in the gate, where cargo calls it for doc tests: runs them, and writes the documentation from what was compiled
# for them. `cargo doc` would check every dependency once more.
set -euo pipefail
[[ " $* " == *" --test "* ]] || exec rustdoc "$@"
arguments=()
for argument in "$@"; do
    case $argument in
        --test) ;;
        --test-run-directory | --test-runtool | --test-args) skip=yes ;;
        *) [ -n "${skip:-}" ] || arguments+=("$argument"); skip="" ;;
    esac
done
rustdoc "${arguments[@]}" --out-dir "$CARGO_TARGET_DIR/doc"
# Those of the other crates ran with the default features.
case $CARGO_PKG_NAME in
    asof | asof-c | asof-cluster | asof-hot | asof-live | asof-sql) exec rustdoc "$@" ;;
esac
