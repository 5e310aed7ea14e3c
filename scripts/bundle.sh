#!/usr/bin/env bash
# Makes a relocatable archive of a build: programs, the shared libraries they need, and configs, for nodes that have
# nothing but glibc and, for GPUs, NVIDIA's driver, cuBLAS, cuDNN and NCCL.
#
#   scripts/bundle.sh [--build DIR] [--tests] [OUTPUT.tgz]     default: of build/, to deepshard.tgz
#
# Unpack it anywhere, on a file system that all nodes share or at the same path on each, and start DIR/bin/ds-launch.
# --tests adds the GPU tests, scripts/gpu_check.sh and gpu_jobs.py, which run them and whole jobs. Libraries go to lib/, where the programs look
# first; glibc and NVIDIA's libraries are left to the nodes. A node's glibc must be at least this machine's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build output= tests=0
while (($#)); do
  case "$1" in
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bundle.sh; exit 0 ;;
    --build) [[ -n ${2:-} ]] || { echo "error: --build needs a folder" >&2; exit 2; }; build=$2; shift 2 ;;
    --tests) tests=1; shift ;;
    -*) echo "error: unknown option '$1'; scripts/bundle.sh --help says more" >&2; exit 2 ;;
    *) [[ -z $output ]] || { echo "error: two outputs, '$output' and '$1': name one" >&2; exit 2; }; output=$1; shift ;;
  esac
done
output=${output:-deepshard.tgz}
[[ -x $build/bin/ds-launch ]] || {
  echo "error: $build/bin/ds-launch is missing; build it: cmake --preset release && cmake --build build" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder" "$output.partial"' EXIT
root=$folder/deepshard
mkdir -p "$root/bin" "$root/lib"
for program in "$build"/bin/ds-* "$build"/bin/libds_*.so; do [[ -f $program ]] && cp "$program" "$root/bin/"; done
cp -r configs LICENSE README.md "$root/"
if ((tests)); then
  for test in "$build"/bin/test-*gpu*; do [[ -f $test ]] && cp "$test" "$root/bin/"; done
  mkdir -p "$root/scripts" "$root/test/data"
  cp test/data/gpt2_124m_losses.json "$root/test/data/"
  cp -r scripts/gpu_check.sh scripts/gpu_jobs.py scripts/bench "$root/scripts/"
fi

# What the dynamic linker finds for all of them here, less what a node must have of its own.
of_the_node='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl)\.so[^/]*|lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia|nvJitLink|mpi|open-rte|open-pal)[^/]*)$'
missing=$(ldd "$root"/bin/* 2> /dev/null | awk '/not found/ { print $1 }' | sort -u)
[[ -z $missing ]] || { echo "error: not found on this machine:" $missing >&2; exit 1; }
ldd "$root"/bin/* 2> /dev/null | awk '/=> \// { print $3 }' | sort -u | grep -Ev "$of_the_node" |
  while read -r library; do cp -L "$library" "$root/lib/"; done
tar -C "$folder" -czf "$output.partial" deepshard || { echo "error: cannot write $output" >&2; exit 1; }
mv "$output.partial" "$output"
glibc=$(ldd --version | sed -n '1s/.* //p')
echo "$output: $(ls "$root/bin" | wc -l) programs, $(ls "$root/lib" | wc -l) libraries, $(du -h "$output" | cut -f1); needs glibc $glibc or newer"
