#!/usr/bin/env bash
# What a machine with GPUs can show of the runtime, in less than 9 minutes, as a table:
#
#     scripts/gpu_check.sh [--device cuda|cpu] [STEP ...]
#
# This part finds an interpreter that has everything, or installs into out/gpu-check; PYTHON names
# one. The rest is in gpu_check.py beside it.

cd "$(dirname "$0")/.." || exit 2
# Looked for rather than imported, which takes torch seconds.
has_all="
import sys
from importlib.util import find_spec
needed = 'torch msgspec networkx pulp highspy pytest pytest_timeout hypothesis'
sys.exit(not all(map(find_spec, needed.split())))"
own=out/gpu-check/bin/python

for python in ${PYTHON:+"$PYTHON"} .venv/bin/python "$own" python3; do
    "$python" -c "$has_all" 2>/dev/null && exec "$python" scripts/gpu_check.py "$@"
done
if ! [ -e /proc/driver/nvidia ] && ! command -v nvidia-smi >/dev/null; then
    echo "gpu_check: everything is skipped: no CUDA device here" >&2
    exit 0
fi
echo "gpu_check: installing into out/gpu-check" >&2
# A torch that is there is kept, as it fits the driver.
if ! { "${PYTHON:-python3}" -m venv --system-site-packages out/gpu-check &&
    timeout 200 "$own" -m pip install --quiet -e ".[torch,test]"; } >&2; then
    echo "gpu_check: cannot install what the tests need; name an interpreter with PYTHON" >&2
    exit 2
fi
exec "$own" scripts/gpu_check.py "$@"
