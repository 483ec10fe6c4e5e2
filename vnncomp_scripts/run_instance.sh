#!/bin/bash
# VNN-COMP: verifies an instance. Arguments: v1, category, network (.onnx), property (.vnnlib), results file, seconds.
set -eu
if [ "${1:-}" != v1 ] || [ $# -lt 6 ]; then
    echo "usage: run_instance.sh v1 CATEGORY NETWORK PROPERTY RESULTS SECONDS" >&2
    exit 1
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
exec "$root/.venv/bin/relucert" verify "$3" "$4" --results "$5" --time-limit "$6" --overwrite --quiet
