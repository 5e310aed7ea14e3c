#!/usr/bin/env bash
# No process outlives ds-launch: it is killed (SIGKILL) at random moments of its life, from its first millisecond on,
# and all that it started must be gone within 2 s. Everything follows from the seed, which is printed.
#
#   scripts/kills.sh                     60 moments
#   scripts/kills.sh --kills 200
#   scripts/kills.sh --seed 7            the same moments again
#
# Each job has two agents of two workers on this machine, trains a small model and takes checkpoints. A third of the
# moments lies in the first 0.4 s, while agents are brought up, the rest in the first 4 s. It needs the built programs
# (build/bin, or DS_BIN). Exit code: 0 nothing was left; 1 something was, and what.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kills=60
seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 0 ]; do
  case "$1" in
    --kills|--seed)
      [[ "${2:-}" =~ ^[0-9]+$ ]] || { echo "error: $1: expected a whole number, got '${2:-}'" >&2; exit 2; }
      printf -v "${1#--}" %s "$2"
      shift 2 ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "error: unknown argument '$1'; see scripts/kills.sh --help" >&2; exit 2 ;;
  esac
done
bin=${DS_BIN:-$PWD/build/bin}
for program in ds-launch ds-agent ds-worker; do
  [ -x "$bin/$program" ] || { echo "error: $bin/$program is missing: scripts/build.sh" >&2; exit 3; }
done

folder=$(mktemp -d /tmp/ds-kills-XXXXXX)
left() {  # processes of the job: its programs are named by links in the folder, its sockets lie in it
  grep -alFf /dev/fd/3 /proc/[0-9]*/cmdline 3<<< "$folder" 2> /dev/null | cut -d/ -f3 || true
}
clean() {
  local pid
  for pid in $(left); do kill -KILL "$pid" 2> /dev/null || true; done
  rm -rf "$folder"
}
trap clean EXIT

ln -s "$(readlink -f "$bin/ds-agent")" "$folder/ds-agent"
mkdir "$folder/tmp"
seq 1 40000 > "$folder/text.txt"
printf '127.0.0.1 slots=2\n127.0.0.2 slots=2\n' > "$folder/hosts"
cat > "$folder/job.yaml" << 'YAML'
job: {name: kills}
model: {preset: gpt2-tiny}
data: {train: text.txt, sequence_length: 32}
training: {steps: 100000000, log_every: 1000}
checkpoint: {every: 20}
deepspeed: {train_batch_size: 8, optimizer: {type: AdamW}}
YAML

now() { echo $(($(date +%s%N) / 1000000)); }
echo "kills: seed $seed, $kills moments"
RANDOM=$seed
worst=0 late=0
for ((i = 0; i < kills; i++)); do
  if ((i % 3 == 0)); then moment=$((RANDOM % 400)); else moment=$((RANDOM % 4000)); fi
  TMPDIR=$folder/tmp "$bin/ds-launch" "$folder/job.yaml" --hostfile "$folder/hosts" --output "$folder/runs" \
    --agent "$folder/ds-agent" > "$folder/out.txt" 2>&1 &
  launcher=$!
  sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
  kill -KILL "$launcher"
  wait "$launcher" 2> /dev/null || true
  begin=$(now)
  while [ -n "$(left)" ] && (($(now) - begin < 30000)); do sleep 0.02; done
  took=$(($(now) - begin))
  ((took > worst)) && worst=$took
  if ((took > 2000)); then
    late=$((late + 1))
    echo "killed after $moment ms: something lived for $took ms more"
    for pid in $(left); do echo "  $pid: $(tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" || true)"; done
  fi
  if compgen -G "$folder/tmp/*" > /dev/null; then
    echo "killed after $moment ms: files are left in TMPDIR (the next agent removes them):" "$folder"/tmp/*
  fi
done
[ $late = 0 ] || { echo "kills: $late of $kills left something for more than 2 s (again: scripts/kills.sh --seed $seed --kills $kills)" >&2; exit 1; }
echo "kills: nothing was left after $kills kills (seed $seed); the last process was gone $worst ms after the kill at the latest"
