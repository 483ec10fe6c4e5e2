#!/bin/bash
# VNN-COMP: installs relucert from this copy of its sources. One argument: the version of the interface, v1.
set -eu
if [ "${1:-}" != v1 ]; then
    echo "expected the version v1 as the first argument, got '${1:-}'" >&2
    exit 1
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
"${PYTHON3:-python3}" -m venv .venv
.venv/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt setuptools torch
.venv/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt --no-build-isolation -e ".[vnnlib]"
.venv/bin/relucert --version
