#!/usr/bin/env bash
# Checks C++ sources with .clang-tidy, as they are compiled in build/.
#
# clang-tidy 15 or later: older ones do not know _Float16, which kernels/dtype.h has.
#
#   scripts/tidy.sh              files that differ from the branch main, new ones too
#   scripts/tidy.sh FILE.cc...   these files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac
command -v clang-tidy > /dev/null || { echo "error: clang-tidy is missing: apt-get install clang-tidy" >&2; exit 3; }
[[ -f build/compile_commands.json ]] || { echo "error: build first: scripts/build.sh" >&2; exit 2; }

files=("$@")
if [[ ${#files[@]} -eq 0 ]]; then
  mapfile -t files < <(git diff --name-only --diff-filter=d main -- '*.cc'; git ls-files --others --exclude-standard -- '*.cc')
  [[ ${#files[@]} -gt 0 ]] || { echo "tidy: no file differs from main"; exit 0; }
fi
clang-tidy -p build --quiet "${files[@]}"
