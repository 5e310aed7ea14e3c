#!/usr/bin/env bash
# Builds DeepShard into build/; executables land in build/bin/.
#
#   scripts/build.sh              everything, tests too
#   scripts/build.sh TARGET...    these targets, e.g. ds-launch ds-agent ds-worker
#
# DEEPSHARD_JOBS: compilers at once (default: one a core, at most one for every 1.5 GB of free memory).
# DEEPSHARD_CUDA=OFF: without GPU code, which is built where nvcc, NCCL and cuDNN are, and takes most of the time.
# Safe to run again: builds what changed. Another build type: cmake --preset debug, then cmake --build build-debug.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets=()
for argument in "$@"; do
  case "$argument" in
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "error: unknown argument '$argument'; usage: scripts/build.sh [TARGET...]" >&2; exit 2 ;;
    *) targets+=("$argument") ;;
  esac
done

free_mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
jobs=$(nproc)
(( jobs * 1500 <= free_mb )) || jobs=$(( free_mb / 1500 ))
(( jobs >= 1 )) || jobs=1
jobs=${DEEPSHARD_JOBS:-$jobs}

# A second clone of the same sources finds what the first one compiled.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
options=()
[[ -z ${DEEPSHARD_CUDA:-} ]] || options+=("-DDEEPSHARD_CUDA=$DEEPSHARD_CUDA")
if [[ -f build/CMakeCache.txt ]]; then
  [[ -w build ]] || { echo "error: $PWD/build is another user's ($(stat -c %U build)), and cannot be written" >&2; exit 1; }
  cmake -S . -B build ${options[@]+"${options[@]}"} > build/configure.log || { cat build/configure.log; exit 1; }
else
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release ${options[@]+"${options[@]}"}
fi
cmake --build build --parallel "$jobs" ${targets[@]+--target "${targets[@]}"}
