#!/usr/bin/env bash
# Makes the models and golden token ids of test/unit/data/tokenizer_test.cc with SentencePiece's own programs
# (Debian package sentencepiece). Run it in this folder; the files it makes are committed.
#
#   own.model      as `ds-convert tokenizer --vocabulary 400` trains it on train.txt
#   prefixed.model a model in the manner of LLaMA: a space before the text, byte fallback, nothing else changed
#   NAME.ids       the ids of each line of lines.txt, by spm_encode
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
programs=${1:-../../../build/bin}
"$programs/ds-convert" tokenizer --input train.txt --vocabulary 400 --output own.model --force
spm_train --input=train.txt --model_prefix=prefixed --vocab_size=400 --model_type=bpe --byte_fallback=true \
  --normalization_rule_name=identity --add_dummy_prefix=true --remove_extra_whitespaces=false --split_digits=true \
  --minloglevel=2
rm -f prefixed.vocab
for name in own prefixed; do spm_encode --model=$name.model --output_format=id < lines.txt > $name.ids; done
