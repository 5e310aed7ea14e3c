#!/usr/bin/env bash
# How much of a training step of the quickstart is spent outside kernels, communication and data.
#
# Trains configs/quickstart.yaml for some steps with two workers, reads metrics.jsonl and prints the medians. Ends with 1
# when the share is 5% or more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "${1:-}" in
  -h|--help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/step_overhead.sh
    echo "usage: scripts/bench/step_overhead.sh [STEPS] [BUILD-FOLDER]"
    exit 0 ;;
esac
steps="${1:-60}"
launch="${2:-build}/bin/ds-launch"
[[ -x $launch ]] || {
  echo "error: $launch is missing; build it: cmake --preset release && cmake --build build" >&2
  exit 2
}
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

"$launch" configs/quickstart.yaml --num-gpus 2 --output "$output" \
  --set training.steps="$steps" --set training.validate_every=0 --set checkpoint.every=-1 > "$output/log" 2>&1 || {
  cat "$output/log" >&2
  exit 1
}

# A line a step: step_ms, and what of it is neither computing, waiting for others nor reading samples. The first steps
# warm up.
awk '
  function field(name) {
    if (!match($0, "\"" name "\":[^,}]*")) { print "error: no " name " in metrics.jsonl" > "/dev/stderr"; exit 2 }
    return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
  }
  NR > 5 {
    step = field("step_ms")
    print step, step - field("compute_ms") - field("comm_exposed_ms") - field("io_exposed_ms") - field("data_ms")
  }' "$output"/*/latest/metrics.jsonl > "$output/parts"
median() { awk -v column="$1" '{print $column}' "$output/parts" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
step=$(median 1)
overhead=$(median 2)
awk -v step="$step" -v overhead="$overhead" 'BEGIN {
  share = 100 * overhead / step
  printf "step %.2f ms, outside kernels, communication and data %.3f ms: %.2f%%\n", step, overhead, share
  exit share >= 5
}'
