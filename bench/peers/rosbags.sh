#!/usr/bin/env bash
# Puts Python's rosbags into a virtual environment for the suite `formats`: rosbags.sh VENV
set -euo pipefail
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check rosbags
