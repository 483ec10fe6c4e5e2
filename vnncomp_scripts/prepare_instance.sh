#!/bin/bash
# VNN-COMP: makes sure that an instance can be run. Arguments: v1, category, network (.onnx), property (.vnnlib).
set -eu
if [ "${1:-}" != v1 ] || [ $# -lt 4 ]; then
    echo "usage: prepare_instance.sh v1 CATEGORY NETWORK PROPERTY" >&2
    exit 1
fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
for file in "$root/.venv/bin/relucert" "$3" "$4"; do
    if [ ! -e "$file" ]; then
        echo "there is no $file" >&2
        exit 1
    fi
done
"$root/.venv/bin/python" -c "import torch, onnx, onnxruntime"  # brings the libraries into the cache of files
