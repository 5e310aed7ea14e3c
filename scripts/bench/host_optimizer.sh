#!/usr/bin/env bash
# AdamW on the host, as ZeRO-Offload steps: ours, PyTorch's fused AdamW on the CPU, and a stream that reads and writes the
# same bytes; the same threads, in one run, taking turns, from arrays that caches hold to 1 GiB.
#
# PyTorch is measured as it comes from PyPI. To get it:
#
#     python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
#
# See docs/benchmarks.md for what was measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=${PYTHON:-}
arguments=()
while (($#)); do
  case "$1" in
    -h|--help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/host_optimizer.sh
      echo "usage: scripts/bench/host_optimizer.sh [--python PYTHON] [options of host_optimizer.py: --threads, --state, --seconds, ...]"
      exit 0 ;;
    --python) python=${2:?--python needs a program}; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
if [[ -z $python ]]; then
  for candidate in /tmp/torch/bin/python python3; do
    if "$candidate" -c 'import torch' 2> /dev/null; then python=$candidate; break; fi
  done
fi
[[ -n $python ]] || {
  echo "error: no python with torch; make one (--help says how) and name it: --python /tmp/torch/bin/python" >&2
  exit 2
}
exec "$python" scripts/bench/host_optimizer.py "${arguments[@]}"
