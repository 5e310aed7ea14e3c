#!/usr/bin/env bash
# Prepares the text of configs/quickstart.yaml: the King James Bible, from the Debian package bible-kjv.
#
#   data/kjv/train/NN-BOOK.txt, data/kjv/validation/NN-BOOK.txt   a book a file, a chapter a paragraph, no verse numbers
#   data/kjv/train.tok, data/kjv/validation.tok                   the same as token files
#
# The last 2% of the verses of every book are held out for validation. Safe to run again: what is there and right stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; echo "usage: scripts/prepare_data.sh [BUILD-FOLDER]"; exit 0 ;;
esac
convert="${1:-build}/bin/ds-convert"
folder=data/kjv

command -v bible > /dev/null || {
  echo "error: the program \`bible\` is missing; install its package: apt-get install bible-kjv" >&2; exit 2; }
[[ -x $convert ]] || {
  echo "error: $convert is missing; build it: cmake --preset release && cmake --build build --target ds-convert" >&2; exit 2; }

mkdir -p "$folder"
fresh=$(mktemp -d "$folder/.prepare.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh/train" "$fresh/validation"

# Lines are "Ge1:1 In the beginning ...": BOOK CHAPTER ":" VERSE. Books come in order, one after another.
bible -f gen1:1-rev22:21 > "$fresh/verses"
[[ $(wc -l < "$fresh/verses") -eq 31102 ]] || {
  echo "error: \`bible -f gen1:1-rev22:21\` printed $(wc -l < "$fresh/verses") verses, not 31102" >&2; exit 1; }
LC_ALL=C awk -v folder="$fresh" '
  function write_book(    held_out, i, side, last_side, out) {
    held_out = int(n / 50)
    for (i = 1; i <= n; i++) {
      side = i > n - held_out ? "validation" : "train"
      out = sprintf("%s/%s/%02d-%s.txt", folder, side, number, book)
      if (side != last_side) { if (i > 1) printf "\n" > previous }
      else printf "%s", (chapter[i] == chapter[i - 1] ? " " : "\n\n") > out
      printf "%s", text[i] > out
      last_side = side
      previous = out
    }
    printf "\n" > out
    if (held_out) close(sprintf("%s/train/%02d-%s.txt", folder, number, book))
    close(out)
  }
  {
    split($1, label, ":")
    match(label[1], /[0-9]+$/)
    this_book = substr(label[1], 1, RSTART - 1)
    if (this_book != book) { if (n) write_book(); book = this_book; number++; n = 0 }
    n++
    chapter[n] = substr(label[1], RSTART)
    text[n] = substr($0, length($1) + 2)
    gsub(/  +/, " ", text[n])
  }
  END { write_book() }
' "$fresh/verses"

for side in train validation; do
  if ! diff -rq "$fresh/$side" "$folder/$side" > /dev/null 2>&1; then
    rm -rf "${folder:?}/$side"
    mv "$fresh/$side" "$folder/$side"
  fi
  echo "$folder/$side: $(ls "$folder/$side" | wc -l) books, $(cat "$folder/$side"/*.txt | wc -c) bytes"
  "$convert" data --input "$folder/$side" --output "$folder/$side.tok" --force
done
