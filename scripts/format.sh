#!/usr/bin/env bash
# Formats the C++ sources with .clang-format.
#
#   scripts/format.sh            in place
#   scripts/format.sh --check    change nothing; exit code 1 and a list when a file would change
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang-format > /dev/null || { echo "error: clang-format is missing: apt-get install clang-format" >&2; exit 3; }

arguments=(-i)
case "${1:-}" in
  "") ;;
  --check) arguments=(--dry-run --Werror) ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  *) echo "error: unknown argument '$1'; usage: scripts/format.sh [--check]" >&2; exit 2 ;;
esac
git ls-files -z '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format "${arguments[@]}"
