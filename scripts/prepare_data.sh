#!/usr/bin/env bash
# Prepares the text of configs/: the King James Bible, from the Debian package bible-kjv.
#
#   data/kjv/train.txt, data/kjv/validation.txt   prose: a chapter a paragraph, no verse numbers
#   data/kjv/train.tok, data/kjv/validation.tok   the same as token files
#
# The last 2% of the verses of every book are held out for validation. Safe to run again: what is there and right stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h|--help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' scripts/prepare_data.sh
    echo "usage: scripts/prepare_data.sh [BUILD-FOLDER]"
    exit 0 ;;
esac
convert="${1:-build}/bin/ds-convert"
folder=data/kjv

command -v bible > /dev/null || {
  echo "error: the program \`bible\` is missing; install its package: apt-get install bible-kjv" >&2
  exit 2
}
[[ -x $convert ]] || {
  echo "error: $convert is missing; build it: cmake --preset release && cmake --build build --target ds-convert" >&2
  exit 2
}

mkdir -p "$folder"
fresh=$(mktemp -d "$folder/.prepare.XXXXXX")
trap 'rm -rf "$fresh"' EXIT

# Lines are "Ge1:1 In the beginning ...": BOOK CHAPTER ":" VERSE. Books come in order, one after another.
bible -f gen1:1-rev22:21 > "$fresh/verses"
verses=$(wc -l < "$fresh/verses")
[[ $verses -eq 31102 ]] || {
  echo "error: \`bible -f gen1:1-rev22:21\` printed $verses verses, not 31102" >&2
  exit 1
}
LC_ALL=C awk -v folder="$fresh" '
  function write_verse(side, paragraph, verse) {  # a paragraph is a chapter of a book
    if (side in last) printf "%s", (paragraph == last[side] ? " " : "\n\n") > (folder "/" side ".txt")
    printf "%s", verse > (folder "/" side ".txt")
    last[side] = paragraph
  }
  function write_book(    i, train) {
    train = n - int(n / 50)
    for (i = 1; i <= n; i++) write_verse(i <= train ? "train" : "validation", chapter[i], text[i])
    n = 0
  }
  {
    split($1, label, ":")
    this_book = label[1]
    sub(/[0-9]+$/, "", this_book)
    if (this_book != book) write_book()
    book = this_book
    n++
    chapter[n] = label[1]
    text[n] = substr($0, length($1) + 2)
    gsub(/  +/, " ", text[n])
  }
  END {
    write_book()
    for (side in last) printf "\n" > (folder "/" side ".txt")
  }
' "$fresh/verses"

for side in train validation; do
  cmp -s "$fresh/$side.txt" "$folder/$side.txt" || mv "$fresh/$side.txt" "$folder/$side.txt"
  echo "$folder/$side.txt: $(wc -w < "$folder/$side.txt") words, $(wc -c < "$folder/$side.txt") bytes"
  "$convert" data --input "$folder/$side.txt" --output "$folder/$side.tok" --force
done
