#!/usr/bin/env bash
# The file tier's reads and writes beside fio's: the same disk, blocks, queue depth and bytes, io_uring and O_DIRECT on
# both sides, in turns in one run. Prints the medians and their ratio, both ways; bar: 0.9 of fio.
#
#   scripts/bench/io_fio.sh [FOLDER [SIZE [ROUNDS]]]      default: . 1GiB 7
#
# FOLDER's disk is measured; nothing is left there. Each round writes SIZE, sync counted, and reads it, of a file that was
# written before, first the one side and then the other, next round the other way round. Blocks and depths: 256KiB at
# 16, 1MiB at 4 and 32, 4MiB at 16; best: each side's best median over them. DS_BUILD: another build folder than build/.
# fio: apt-get install fio.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "${1:-}" in -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/bench/io_fio.sh; exit 0 ;; esac
folder=$(realpath -- "${1:-.}") size=${2:-1GiB} rounds=${3:-7}
bench=$PWD/${DS_BUILD:-build}/bin/ds-bench
[[ -x $bench ]] || { echo "error: $bench is missing; build it: scripts/build.sh ds-bench" >&2; exit 2; }
command -v fio > /dev/null || { echo "error: fio is missing: apt-get install fio" >&2; exit 2; }
[[ -d $folder ]] || { echo "error: $folder is no folder" >&2; exit 2; }
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo "error: ROUNDS is '$rounds'; write a number" >&2; exit 2; }

work=$(mktemp -d "$folder/.io-fio-XXXXXX")
trap 'rm -rf "$work"' EXIT
# Written once: neither side pays for blocks that the disk has not touched yet.
# fio takes MiB for 10^6 bytes and M for 2^20, as it did before there were other names.
fio --name=lay --filename="$work/file" --size="${size%iB}" --rw=write --bs=4M --iodepth=8 --ioengine=io_uring --direct=1 \
  --end_fsync=1 > /dev/null

# fio BLOCK DEPTH: a line a direction, "fio DIRECTION BLOCK DEPTH BYTES-PER-SECOND"; fio's runtime has the sync in it.
run_fio() {
  local way field
  for way in write read; do
    fio --name=run --filename="$work/file" --size="${size%iB}" --rw="$way" --bs="${1%iB}" --iodepth="$2" --ioengine=io_uring \
      --direct=1 --overwrite=1 --end_fsync=1 --fixedbufs=1 --registerfiles=1 --output-format=json > "$work/json"
    field=$(sed -n "/\"$way\" : {/,/bw_bytes/s/.*\"bw_bytes\" : \([0-9]*\).*/\1/p" "$work/json" | head -1)
    echo "fio $way $1 $2 $field"
  done
}
run_ours() {
  "$bench" io --device cpu --path "$work" --size "$size" --block "$1" --queue "$2" --backend io_uring --seconds 600 \
    --output "$work/machine.yaml" > "$work/log" || { cat "$work/log" >&2; exit 1; }
  sed -n "s/.*write_bytes_per_second: \([0-9.e+]*\), read_bytes_per_second: \([0-9.e+]*\),.*/ours write $1 $2 \1\nours read $1 $2 \2/p" \
    "$work/machine.yaml"
  rm "$work/machine.yaml"
}

for ((round = 0; round < rounds; ++round)); do
  for setting in "256KiB 16" "1MiB 4" "1MiB 32" "4MiB 16"; do
    if ((round % 2)); then run_ours $setting; run_fio $setting; else run_fio $setting; run_ours $setting; fi
  done
done > "$work/rates"

sort -k2,4 -k1,1 -k5,5g "$work/rates" | awk -v bar=0.9 '
  { key = $2 " " $3 " " $4; n[$1, key]++; rate[$1, key, n[$1, key]] = $5; keys[key] = 1 }
  function median(side, key,   c) { c = n[side, key]; return (rate[side, key, int((c + 1) / 2)] + rate[side, key, int((c + 2) / 2)]) / 2 }
  function range(side, key) { return sprintf("%.2f to %.2f", rate[side, key, 1] / 1e9, rate[side, key, n[side, key]] / 1e9) }
  END {
    printf "%-6s %-8s %5s  %22s  %22s  %s\n", "way", "block", "queue", "ours, GB/s", "fio, GB/s", "ratio"
    for (key in keys) {
      split(key, part, " ")
      ours = median("ours", key); fio = median("fio", key)
      printf "%-6s %-8s %5s  %5.2f (%s)  %5.2f (%s)  %.2f\n", part[1], part[2], part[3], ours / 1e9, range("ours", key), fio / 1e9, range("fio", key), ours / fio | "sort"
      if (ours > best["ours", part[1]]) best["ours", part[1]] = ours
      if (fio > best["fio", part[1]]) best["fio", part[1]] = fio
    }
    close("sort")
    for (i = 1; i <= 2; ++i) {
      way = i == 1 ? "write" : "read"
      ratio = best["ours", way] / best["fio", way]
      printf "best %s: ours %.2f GB/s, fio %.2f GB/s, ratio %.2f: %s\n", way, best["ours", way] / 1e9, best["fio", way] / 1e9, ratio, (ratio >= bar ? "met" : "missed")
      if (ratio < bar) missed = 1
    }
    exit missed
  }'
