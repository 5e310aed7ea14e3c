#!/usr/bin/env bash
# Runs the GPU tests of a bundle (scripts/bundle.sh --tests) or of a build on this machine, and prints a short table; then
# ds-bench all, briefly, of which it shows the key lines.
#
#   scripts/gpu_check.sh [--only NAME] [--memcheck | --quick]
#
#   --only NAME   this test alone, and no ds-bench: unit-gpu, unit-gpu_runtime or layout_gpu
#   --memcheck    compute-sanitizer's tools too: hours
#   --quick       the same on small shapes, which run every kernel of ours: minutes
#
# The tools, where compute-sanitizer is installed:
#   memcheck    all tests, but for those that promise to end in time ([time]); --quick: unit-gpu, and whole jobs on one
#               GPU of layout_gpu
#   racecheck   unit-gpu, our own kernels: it looks at shared memory alone, the runtime's tests run the same kernels,
#               and libraries synchronize in ways that it reports
#   initcheck   unit-gpu without the cases that call cuBLASLt or cuDNN, which read what they pad ([library]). Not the
#               runtime's tests: all memory that the runtime takes is zeroed, and what a peer's GPU wrote is unknown
#               to the tool. The tests leave new memory unpoisoned for it
#
# Exit code: 0 all passed, 1 otherwise, 77 there is no GPU here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage="usage: scripts/gpu_check.sh [--only NAME] [--memcheck | --quick]"
memcheck=0 quick=0 only='*gpu*'
while (($#)); do
  case "$1" in
    --memcheck) memcheck=1 ;;
    --quick) memcheck=1 quick=1 ;;
    --only) [[ ${2:-} ]] || { echo "error: --only needs the name of a test; $usage" >&2; exit 2; }; only=$2; shift ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: unknown option '$1'; $usage" >&2; exit 2 ;;
  esac
  shift
done
bin=$root/bin
[[ -d $bin ]] || bin=$root/build/bin
# shellcheck disable=SC2206  # a pattern
tests=("$bin"/test-$only)
[[ -x ${tests[0]} && $only == *gpu* ]] || { echo "error: no GPU test $only in $bin; names are unit-gpu, unit-gpu_runtime" \
  "and layout_gpu; build them, or make the bundle with --tests" >&2; exit 2; }
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if ((memcheck)) && ! command -v compute-sanitizer > /dev/null; then
  echo "compute-sanitizer is not installed: its tools are left out"
  memcheck=0
fi

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT  # an interrupt does not reach what runs in the background
failed=0 passed=0
processes=$(($(nproc) / 2 > 8 ? 8 : ($(nproc) / 2 > 0 ? $(nproc) / 2 : 1)))
printf '%-34s %-9s %8s  %s\n' check result seconds summary
check() {  # NAME COMMAND...
  local name=$1 begin=$SECONDS code=0 result=passed
  shift
  "$@" > "$logs/$name.log" 2>&1 || code=$?
  case $code in
    0) passed=1 ;;
    77) result=skipped ;;
    *) result="failed $code" failed=1 ;;
  esac
  printf '%-34s %-9s %8d  %s\n' "$name" "$result" $((SECONDS - begin)) "$(grep -v '^=*$' "$logs/$name.log" | tail -n 1 | cut -c1-80)"
}

# sanitize TOOL TEST FILTER [OPTION...]: FILTER names Catch's cases, all where it is empty; OPTIONs are the tool's. The
# cases are dealt out to several processes side by side: a tool spends its time in one thread of the host.
deal() {
  local tool=$1 test=$2 filter=$3 lists=$4 i codes=() code=0
  shift 4
  mkdir "$lists"
  # A comma in a name would end it there; what names no case must not pass for one that passed.
  "$test" --list-test-names-only ${filter:+"$filter"} | sed 's/,/\\,/g' |
    awk -v n="$processes" -v to="$lists" '{ print > (to "/" NR % n) }' || true
  for i in "$lists"/*; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$@" "$test" --input-file "$i" > "$i.log" 2>&1 & codes+=($!)
  done
  for i in "${codes[@]}"; do wait "$i" || code=$?; done
  cat "$lists"/*.log
  if grep -q -e '^Invalid Filter' -e '^No test' "$lists"/*.log; then echo "cases were not found by their names"; return 1; fi
  echo "$(grep -h ' SUMMARY' "$lists"/*.log | sort | uniq -c | sed 's/ \+/ /g; s/=//g' | paste -sd';') in ${#codes[@]} processes"
  return $code
}
sanitize() {
  local tool=$1 test=$2 filter=$3 name
  shift 3
  name=$(basename "$test")-$tool
  ((quick)) && export DS_TEST_QUICK=1
  [[ $tool == initcheck ]] && export DS_TEST_UNPOISONED=1
  check "$name" deal "$tool" "$test" "$filter" "$logs/$name" "$@"
  unset DS_TEST_QUICK DS_TEST_UNPOISONED
}
own_kernels() {  # the option that names them; newer versions call it --kernel-name
  local option=--kernel-regex
  compute-sanitizer --help | grep -q -e --kernel-name && option=--kernel-name
  echo "$option kns=2ds4cuda"
}

for test in "${tests[@]}"; do
  check "$(basename "$test")" "$test"
  ((memcheck)) || continue
  case $test in
    */test-unit-gpu)
      sanitize memcheck "$test" "~[slow]"
      # shellcheck disable=SC2046  # two words
      sanitize racecheck "$test" "~[slow]~[library]" $(own_kernels)
      sanitize initcheck "$test" "~[slow]~[library]" ;;
    */test-unit-gpu_runtime) ((quick)) || sanitize memcheck "$test" "~[time]" ;;
    */test-layout_gpu) sanitize memcheck "$test" "$( ((quick)) && echo "one GPU follows*")" ;;
  esac
done
# Where the tests found a GPU: what it achieves.
if ((passed)) && [[ $only == '*gpu*' && -x $bin/ds-bench ]]; then
  check ds-bench "$bin/ds-bench" all --device gpu --seconds 60 --size 64MiB --path "$logs" --output "$logs/machine.yaml"
  grep -E '^(kernels|memory|collectives|io:|error)|matmul square|attention|memory copy|to (host|device)|take|adamw|64\.0 MiB|1\.0 GiB|fitted|not measured|left out' \
    "$logs/ds-bench.log" || true
fi
echo "logs: $logs"
((failed)) && exit 1
((passed)) || exit 77
exit 0
