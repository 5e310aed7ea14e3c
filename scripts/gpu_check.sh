#!/usr/bin/env bash
# Runs the GPU tests of a bundle (scripts/bundle.sh --tests) or of a build on this machine, and prints a short table; then
# ds-bench all, briefly, of which it shows the key lines.
#
#   scripts/gpu_check.sh [--memcheck]     --memcheck: compute-sanitizer's memcheck and racecheck too, where it is installed
#
# Exit code: 0 all passed, 1 otherwise, 77 there is no GPU here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
memcheck=0
case "${1:-}" in
  "") ;;
  --memcheck) memcheck=1 ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "error: unknown option '$1'; usage: scripts/gpu_check.sh [--memcheck]" >&2; exit 2 ;;
esac
bin=$root/bin
[[ -d $bin ]] || bin=$root/build/bin
tests=("$bin"/test-*gpu*)
[[ -x ${tests[0]} ]] || { echo "error: no GPU tests in $bin; build them, or make the bundle with --tests" >&2; exit 2; }
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

logs=$(mktemp -d)
failed=0 skipped=0
printf '%-34s %-9s %8s  %s\n' check result seconds summary
check() {  # NAME COMMAND...
  local name=$1 begin=$SECONDS code=0 result=passed
  shift
  "$@" > "$logs/$name.log" 2>&1 || code=$?
  case $code in
    0) ;;
    77) result=skipped skipped=$((skipped + 1)) ;;
    *) result="failed $code" failed=1 ;;
  esac
  printf '%-34s %-9s %8d  %s\n' "$name" "$result" $((SECONDS - begin)) "$(grep -v '^=*$' "$logs/$name.log" | tail -n 1 | cut -c1-80)"
}
for test in "${tests[@]}"; do
  check "$(basename "$test")" "$test"
  if ((memcheck)) && command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck; do
      check "$(basename "$test")-$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$test" "~[slow]"
    done
  fi
done
# Where the tests found a GPU: what it achieves.
if ((skipped < ${#tests[@]})) && [[ -x $bin/ds-bench ]]; then
  check ds-bench "$bin/ds-bench" all --device gpu --seconds 60 --size 64MiB --path "$logs" --output "$logs/machine.yaml"
  grep -E '^(kernels|memory|collectives|storage|error)|matmul square|attention|memory copy|to (host|device)|take|adamw|64\.0 MiB|1\.0 GiB|fitted|not measured|left out' \
    "$logs/ds-bench.log" || true
fi
echo "logs: $logs"
((failed)) && exit 1
((skipped == ${#tests[@]})) && exit 77
exit 0
