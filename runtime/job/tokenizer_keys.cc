#include "runtime/job/tokenizer_keys.h"

#include "runtime/base/error.h"
#include "runtime/job/tokenizer_file.h"
#include "runtime/job/tree.h"

namespace ds {
namespace {

std::string TooSmall(const TokenizerIdentity& tokenizer) {
  return "fewer than the " + std::to_string(tokenizer.vocabulary) + " tokens of data.tokenizer; write " +
         std::to_string(tokenizer.vocabulary) + " or more, or leave the key out";
}

std::string AnotherOne(const TokenizerIdentity& tokenizer) {
  return "data.tokenizer is " + tokenizer.id +
         "; name the file that the id is of, or leave the id out if the file is what is meant";
}

}  // namespace

void FillInTokenizer(const std::string& folder, bool id_written, JobSpec& spec, Problems& problems) {
  if (!problems.Good({"data", "data.tokenizer"})) return;
  DataConfig& data = spec.data;
  const bool file = data.tokenizer != kByteTokenizer;
  if (file) data.tokenizer = ResolvePath(data.tokenizer, folder);
  if (file && id_written && spec.model.vocabulary > 0) return;
  TokenizerIdentity tokenizer;
  try {
    tokenizer = IdentifyTokenizer(data.tokenizer);
  } catch (const UsageError& error) {
    return problems.Add("data.tokenizer", error.what());
  }
  if (!id_written) data.tokenizer_id = tokenizer.id;
  if (spec.model.vocabulary == 0) spec.model.vocabulary = tokenizer.vocabulary;
  if (data.tokenizer_id != tokenizer.id) problems.Add("data.tokenizer_id", AnotherOne(tokenizer));
  if (spec.model.vocabulary < tokenizer.vocabulary && problems.Good({"model.vocabulary", "model.preset"}))
    problems.Add("model.vocabulary", TooSmall(tokenizer));
}

void CheckTokenizer(const JobSpec& spec) {
  const TokenizerIdentity tokenizer = IdentifyTokenizer(spec.data.tokenizer);
  if (tokenizer.id != spec.data.tokenizer_id)
    throw UsageError("data.tokenizer_id: " + spec.data.tokenizer_id + ": " + AnotherOne(tokenizer) + " (" +
                     spec.data.tokenizer + ")");
  if (spec.model.vocabulary < tokenizer.vocabulary)
    throw UsageError("model.vocabulary: " + std::to_string(spec.model.vocabulary) + ": " + TooSmall(tokenizer) + " (" +
                     spec.data.tokenizer + ")");
}

}  // namespace ds
