#!/usr/bin/env bash
# Installs DuckDB and polars for the suite `sql`.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv target/sql-venv
target/sql-venv/bin/pip --quiet install duckdb polars pyarrow
