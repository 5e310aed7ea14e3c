#!/usr/bin/env bash
# Installs what is missing, builds everything and runs the test suite. Exit code: 0 when all tests pass.
#
#   scripts/test.sh                  all tests
#   scripts/test.sh -L fast          those of a label: fast or slow, or a kind (test/'s folders: unit/comm, plan, layout)
#   scripts/test.sh ARGUMENT...      any arguments of ctest
#
# At the end stands the time of each label. One test: build/bin/test-unit-comm --list-tests, build/bin/test-unit-comm "NAME".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac

scripts/setup.sh
scripts/build.sh
command -v clang++ > /dev/null ||
  echo "note: clang++ is missing, so the fuzz test is skipped: fuzz targets are built by clang alone; scripts/setup.sh" \
       "installs it" >&2
ctest --test-dir build --output-on-failure --no-tests=error --timeout 900 "$@"
