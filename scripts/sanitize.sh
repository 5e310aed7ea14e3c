#!/usr/bin/env bash
# Runs tests under sanitizers.
#
#   scripts/sanitize.sh thread [--attempts N] [TEST...]    data races, by TSan, in build-tsan/; the control plane's tests
#                                                          unless named
#   scripts/sanitize.sh address [--attempts N] [TEST...]   memory, leaks and undefined behaviour, by ASan, LSan and UBSan,
#                                                          in build-asan/
#
# TEST is a folder of test/, such as unit/control or cluster; `--list` prints them. Only what the tests need is built. What is
# known of libraries that are not built with sanitizers, and why, is in test/sanitizers/. What is reported comes last.
# --attempts: a test that fails is run again, up to N times in all, and what failed is printed all the same: gRPC is not
# built with sanitizers, and one run in twenty of what uses it ends in its own code. Exit code: 0 all passed and nothing was
# reported, 1 otherwise, 77 there is no such sanitizer here. DEEPSHARD_JOBS: compilers at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage="usage: scripts/sanitize.sh thread|address [--attempts N] [TEST...]; --help says more"

all=$(sed -n 's/^ds_test(\([^ ]*\) .*/\1/p' test/CMakeLists.txt)
case "${1:-}" in
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  --list) echo "$all"; exit 0 ;;
  thread) kind=thread build=build-tsan tests=(unit/control) ;;
  address) kind=address,undefined build=build-asan tests=(unit/base unit/job unit/control) ;;
  *) echo "error: a sanitizer is wanted, not '${1:-}'; $usage" >&2; exit 2 ;;
esac
shift
attempts=1
if [[ ${1:-} == --attempts ]]; then
  attempts=${2:-}
  [[ $attempts =~ ^[1-9]$ ]] || { echo "error: --attempts wants a number from 1 to 9, not '$attempts'; $usage" >&2; exit 2; }
  shift 2
fi
[[ $# -eq 0 ]] || tests=("$@")
for name in "${tests[@]}"; do
  grep -qxF -- "$name" <<< "$all" || { echo "error: there is no test '$name'; the tests are:" $all >&2; exit 2; }
done

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'int main() {}' > "$probe/probe.cc"
if ! "${CXX:-c++}" -fsanitize=$kind "$probe/probe.cc" -o "$probe/probe" 2> "$probe/log"; then
  cat "$probe/log" >&2
  echo "skipped: ${CXX:-c++} has no -fsanitize=$kind here; its runtime libraries come with g++: scripts/setup.sh" >&2
  exit 77
fi
# TSan lays memory out itself and stops where addresses are random beyond what it knows.
fixed=()
if [[ $kind == thread ]] && setarch "$(uname -m)" -R true 2> /dev/null; then fixed=(setarch "$(uname -m)" -R); fi
if ! "${fixed[@]}" "$probe/probe" 2> "$probe/log"; then
  cat "$probe/log" >&2
  echo "skipped: a program built with -fsanitize=$kind does not run here" >&2
  exit 77
fi

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
mkdir -p "$build"
# -O1: these builds are compiled more often than they run long.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -DNDEBUG" \
  -DDEEPSHARD_SANITIZE=$kind > "$build/configure.log" || { cat "$build/configure.log"; exit 1; }
names=()
for name in "${tests[@]}"; do names+=("test-${name//\//-}"); done
free_mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
jobs=$(nproc)
(( jobs * 1500 <= free_mb )) || jobs=$(( free_mb / 1500 + 1 ))
cmake --build "$build" --parallel "${DEEPSHARD_JOBS:-$jobs}" --target "${names[@]}" > "$build/build.log" ||
  { tail -40 "$build/build.log"; exit 1; }

where=$PWD/test/sanitizers
export TSAN_OPTIONS="suppressions=$where/thread.supp ignore_noninstrumented_modules=1 exitcode=66 second_deadlock_stack=1"
export ASAN_OPTIONS="detect_leaks=1 exitcode=66 detect_stack_use_after_return=0"
export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1"
export OMP_WAIT_POLICY=passive
# Handshakes that are refused are left out under TSan: with the gRPC 1.51 and OpenSSL 3.0 of Debian 12, neither of them
# built with it, their clients crashed (about one run in twenty) or hung (one in twelve, under load) inside of OpenSSL,
# which memcheck and ASan find nothing wrong with. They run under ASan, and in every build without sanitizers.
# What a process measures of its memory is the sanitizer's too.
cases=("~[measured-memory]")
[[ $kind != thread ]] || cases=("~[refused-tls]~[measured-memory]")
# Reports of the programs that a test starts lie beside its own, by name and process.
reports=$PWD/$build/reports
for options in TSAN_OPTIONS ASAN_OPTIONS UBSAN_OPTIONS; do
  export "$options=${!options} log_path=$reports/report log_exe_name=1"
done
failed=0
for i in "${!tests[@]}"; do
  for (( attempt = 1; attempt <= attempts; ++attempt )); do
    echo "== ${tests[$i]} under $kind"
    rm -rf "$reports" && mkdir "$reports"
    code=0
    timeout --kill-after=10 1800 "${fixed[@]}" "$build/bin/${names[$i]}" "${cases[@]}" || code=$?
    (( code != 0 )) || break
    for report in "$reports"/report.*; do
      [[ ! -e $report ]] || { echo "== ${report##*/}"; head -200 "$report"; }
    done
    echo "== ${tests[$i]}: failed (exit code $code), attempt $attempt of $attempts"
  done
  (( code == 0 )) || failed=1
done
exit "$failed"
