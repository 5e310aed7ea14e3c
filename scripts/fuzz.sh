#!/usr/bin/env bash
# Fuzzes the parsers: builds test/fuzz by clang into build-fuzz/ and runs its targets under ASan and UBSan.
#
#   scripts/fuzz.sh                          every target for a minute
#   scripts/fuzz.sh hostfile json            these targets
#   scripts/fuzz.sh --seconds N [TARGET...]  N seconds a target; 0: only what the corpus holds
#   scripts/fuzz.sh --total N [TARGET...]    N seconds for all targets together
#   scripts/fuzz.sh --seed N ...             the same inputs in the same order each time (CI does); else others each time
#   scripts/fuzz.sh --list                   the targets
#
# A target first runs its seeds, test/fuzz/corpus/TARGET, then what libFuzzer makes of them; what proved new is kept in
# build-fuzz/corpus/TARGET for the next run. An input that fails is kept in build-fuzz/findings/. Exit code: 0 nothing
# was found, 1 something was, 77 there is no clang here (scripts/setup.sh installs it). DEEPSHARD_JOBS: targets at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="usage: scripts/fuzz.sh [--seconds N | --total N] [--seed N] [TARGET...]; --help says more"

all=()
for source in test/fuzz/*_fuzz.cc; do
  name=${source##*/}
  all+=("${name%_fuzz.cc}")
done
seconds=60 total="" seed="" targets=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    --list) printf '%s\n' "${all[@]}"; exit 0 ;;
    --seconds|--total|--seed)
      [[ ${2:-} =~ ^[0-9]{1,6}$ ]] || { echo "error: $1: a whole number is wanted; $usage" >&2; exit 2; }
      case "$1" in
        --seconds) seconds=$2 ;;
        --total) total=$2 ;;
        --seed) seed=$2 ;;
      esac
      shift ;;
    -*) echo "error: unknown argument '$1'; $usage" >&2; exit 2 ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || { echo "error: there is no target '$1'; the targets are: ${all[*]}" >&2; exit 2; }
      targets+=("$1") ;;
  esac
  shift
done
[[ ${#targets[@]} -gt 0 ]] || targets=("${all[@]}")
[[ -z $total ]] || seconds=$(( total / ${#targets[@]} ))

compiler=${DEEPSHARD_CLANG:-clang++}
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > "$probe/probe.cc"
if ! command -v "$compiler" > /dev/null; then
  echo "skipped: $compiler is missing, and fuzz targets are built by clang alone; install it: scripts/setup.sh" >&2
  exit 77
fi
if ! "$compiler" -fsanitize=fuzzer,address,undefined "$probe/probe.cc" -o "$probe/probe" 2> "$probe/log"; then
  cat "$probe/log" >&2
  echo "skipped: $compiler finds no libFuzzer or sanitizers (package libclang-rt-N-dev, N as in clang-N); install it:" \
       "scripts/setup.sh" >&2
  exit 77
fi

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
build=build-fuzz
mkdir -p "$build/findings" "$build/logs"
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DDEEPSHARD_FUZZ=ON > "$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --parallel "${DEEPSHARD_JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz-}" > "$build/build.log" ||
  { cat "$build/build.log"; exit 1; }

# A fuzz run ends by itself; what is beyond its limits is a finding. Leaks are looked for at its end.
run_target() {
  local name=$1 dictionary="" options=() corpus=("$build/corpus/$1" "test/fuzz/corpus/$1")
  case "$name" in
    hostfile|filter) dictionary=hostfile ;;
    job_spec) dictionary=job_spec ;;
    tokenizer|token_file|compressed|megatron) dictionary= ;;
    *) dictionary=json ;;
  esac
  options=(-timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=8192 -print_final_stats=1 -verbosity=1
           -artifact_prefix="$build/findings/$name-")
  if [[ -n $seed ]]; then  # nothing that an earlier run found may change the order
    options+=(-seed="$seed" -reload=0)
    corpus[0]=$build/corpus-seeded/$name
    rm -rf "${corpus[0]}"
  fi
  mkdir -p "${corpus[@]}"
  [[ -z $dictionary ]] || options+=(-dict="test/fuzz/corpus/$dictionary.dict")
  if (( seconds == 0 )); then
    options+=(-runs=0)
  else
    options+=(-max_total_time="$seconds")
  fi
  local rc=0
  OMP_NUM_THREADS=1 UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=allocator_may_return_null=0 \
    timeout --kill-after=10 $(( seconds + 120 )) "$build/bin/fuzz-$name" "${options[@]}" \
    "${corpus[@]}" > "$build/logs/$name.log" 2>&1 || rc=$?
  echo "$rc" > "$build/logs/$name.rc"
}

rm -f "$build"/logs/*.rc
jobs=${DEEPSHARD_JOBS:-$(nproc)}
for name in "${targets[@]}"; do
  while (( $(jobs -rp | wc -l) >= jobs )); do wait -n; done
  run_target "$name" &
done
wait

printf '%-14s %10s %8s %9s %8s  %s\n' target runs runs/s coverage seeds finding
failed=0
for name in "${targets[@]}"; do
  log=$build/logs/$name.log
  stat() { grep -a "^stat::$1:" "$log" | sed 's/.*: *//' | tail -1; }
  coverage=$(grep -a -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2 || true)
  seeds=$(find "test/fuzz/corpus/$name" -type f | wc -l)
  finding=none
  if [[ $(cat "$build/logs/$name.rc") != 0 ]]; then
    failed=1
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    finding="${finding:-no input kept}; see $log"
  fi
  printf '%-14s %10s %8s %9s %8s  %s\n' "$name" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" \
    "$coverage" "$seeds" "$finding"
done
for name in "${targets[@]}"; do
  [[ $(cat "$build/logs/$name.rc") == 0 ]] && continue
  printf '\n== %s\n' "$name"
  grep -a -m 3 -E 'FINDING|ERROR: |runtime error' "$build/logs/$name.log" || tail -5 "$build/logs/$name.log"
done
if [[ $failed -ne 0 ]]; then
  printf '\nOne input again: %s/bin/fuzz-TARGET FILE. Mended, it becomes a seed and a unit test.\n' "$build"
fi
exit "$failed"
