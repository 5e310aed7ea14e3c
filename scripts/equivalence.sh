#!/usr/bin/env bash
# The whole of the equivalence matrix, of which CI runs a part: every pipeline schedule over 2, 3 and 4 stages, under
# every ZeRO stage, over one data-parallel rank and two, with and without recomputation, for a GPT-2 with a tied token
# table and a LLaMA without, in 16 and 32 bits, against no pipeline: losses, gradient norms, parameters and optimizer
# state, bit for bit. A few minutes on two cores.
#
#   scripts/equivalence.sh            builds what it needs, and runs it
#
# Exit code: 0 where nothing differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  "") ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  *) echo "error: unknown argument '$1'; usage: scripts/equivalence.sh" >&2; exit 2 ;;
esac
scripts/build.sh test-layout
OMP_WAIT_POLICY=passive build/bin/test-layout "[.equivalence]"
