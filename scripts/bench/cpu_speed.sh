#!/usr/bin/env bash
# Training speed of GPT-2 (124M parameters, 256 tokens a sample, 4 samples a step) on this machine's processor, beside
# PyTorch's: fp32 and bf16, the same number of threads, both sides in one run, taking turns.
#
# PyTorch is measured as it comes from PyPI, eager and compiled; the better of the two counts. To get it:
#
#     python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy     # torch.compile also wants g++ and python3-dev
#
# See docs/benchmarks.md for what was measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=${PYTHON:-}
arguments=()
while (($#)); do
  case "$1" in
    -h|--help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/cpu_speed.sh
      echo "usage: scripts/bench/cpu_speed.sh [--python PYTHON] [options of cpu_speed.py: --threads, --seconds, --dtypes, ...]"
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
exec "$python" scripts/bench/cpu_speed.py "${arguments[@]}"
