#!/usr/bin/env bash
# Tokens a second of ds-generate, with its key and value cache and computing every window anew, of one checkpoint.
#
# Trains a model for one step, generates greedily from a prompt both ways, checks that the texts are equal and prints both
# speeds and their ratio.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "${1:-}" in
  -h|--help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/generate.sh
    echo "usage: scripts/bench/generate.sh [TOKENS] [PRESET] [CONTEXT] [BUILD-FOLDER]"
    exit 0 ;;
esac
tokens="${1:-64}" preset="${2:-gpt2-tiny}" context="${3:-256}" bin="${4:-build}/bin"
for program in ds-launch ds-worker ds-agent ds-generate; do
  [[ -x $bin/$program ]] || {
    echo "error: $bin/$program is missing; build it: scripts/build.sh" >&2
    exit 2
  }
done
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

cat > "$output/job.yaml" << JOB
job: {name: bench}
model: {preset: $preset, max_positions: $context}
data: {train: $PWD/LICENSE, sequence_length: $context}
training: {steps: 1}
deepspeed: {train_batch_size: 1}
JOB
"$bin/ds-launch" "$output/job.yaml" --num-gpus 1 --output "$output/runs" > "$output/log" 2>&1 || {
  cat "$output/log" >&2
  exit 1
}
head -c $((context / 4)) LICENSE > "$output/prompt"
for way in cached anew; do
  options=(--greedy --timing --tokens "$tokens" --prompt-file "$output/prompt")
  [[ $way == cached ]] || options+=(--no-cache)
  "$bin/ds-generate" --checkpoint "$output/runs/bench/latest" "${options[@]}" > "$output/$way" 2> "$output/$way.speed"
done
cmp "$output/cached" "$output/anew"
head -1 "$output/cached.speed" | sed "s|$output/||"
tail -n 1 -q "$output/cached.speed" "$output/anew.speed"
awk '/tokens\/s/ { speed[++n] = $3 } END { printf "cached / anew: %.1f times\n", speed[1] / speed[2] }' \
  "$output/cached.speed" "$output/anew.speed"
