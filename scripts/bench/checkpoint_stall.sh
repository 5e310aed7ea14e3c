#!/usr/bin/env bash
# How long training waits for a checkpoint of the quickstart: asynchronous against synchronous.
#
# Trains configs/quickstart.yaml twice with two workers, a checkpoint every ten steps, once with checkpoint.async and once
# without; reads checkpoint_stall_ms from metrics.jsonl and prints the medians and their ratio. The last checkpoint of a
# job, which is always synchronous, is left out on both sides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "${1:-}" in
  -h|--help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/checkpoint_stall.sh
    echo "usage: scripts/bench/checkpoint_stall.sh [STEPS] [BUILD-FOLDER]"
    echo "TMPDIR is where the checkpoints go: the disk that is measured."
    exit 0 ;;
esac
steps="${1:-60}"
launch="${2:-build}/bin/ds-launch"
[[ -x $launch ]] || {
  echo "error: $launch is missing; build it: cmake --preset release && cmake --build build" >&2
  exit 2
}
[[ $steps -ge 20 ]] || { echo "error: $steps steps take no checkpoint but the last; at least 20" >&2; exit 2; }
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

for async in true false; do
  "$launch" configs/quickstart.yaml --num-gpus 2 --output "$output/$async" --set training.steps="$steps" \
    --set training.validate_every=0 --set checkpoint.every=10 --set checkpoint.async="$async" > "$output/log" 2>&1 || {
    cat "$output/log" >&2
    exit 1
  }
done

field() { grep -o "\"$1\":[^,}]*" | cut -d: -f2; }
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
stalls() { grep checkpoint_stall_ms "$output/$1"/*/latest/metrics.jsonl | sed '$d' | field checkpoint_stall_ms; }
waits=$(cat "$output"/true/*/latest/events.jsonl | grep -c '"checkpoint_wait"' || true)
bytes=$(cat "$output"/true/*/latest/checkpoints/latest/*.safetensors | wc -c)
awk -v async="$(stalls true | median)" -v sync="$(stalls false | median)" -v worst="$(stalls true | sort -g | tail -1)" \
  -v count="$(stalls true | wc -l)" -v waits="$waits" -v bytes="$bytes" \
  -v async_step="$(field step_ms < <(cat "$output"/true/*/latest/metrics.jsonl) | median)" \
  -v sync_step="$(field step_ms < <(cat "$output"/false/*/latest/metrics.jsonl) | median)" 'BEGIN {
  printf "%d checkpoints of %.1f MB: training waits %.1f ms (worst %.1f ms, %d waited for the one before); synchronous %.1f ms: %.1f times as long\n",
    count, bytes / 1e6, async, worst, waits, sync, sync / async
  printf "step (median): %.1f ms while checkpoints are written beside it, %.1f ms with synchronous ones\n", async_step, sync_step
}'
