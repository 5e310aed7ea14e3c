#include "runtime/data/prepare.h"

#include <algorithm>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/data/text_source.h"
#include "runtime/data/tokenizer.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

/// Tokenizes documents into the training set or the validation set.
class Tokenize : public DocumentSink {
 public:
  Tokenize(const Tokenizer& tokenizer, std::vector<std::unique_ptr<TokenFileWriter>>& sets, double validation_fraction)
      : tokenizer_(tokenizer), sets_(sets), validation_below_(validation_fraction * 0x1p64) {}

  void BeginDocument(uint64_t checksum) override {
    set_ = sets_[sets_.size() > 1 && static_cast<double>(checksum) < validation_below_ ? 1 : 0].get();
    set_->BeginDocument();
  }
  void Text(std::string_view piece) override {
    tokens_.clear();
    tokenizer_.Encode(piece, tokens_);
    set_->Append(tokens_);
  }
  void EndDocument() override { set_->Append({tokenizer_.end_of_document()}); }
  void Progress(int64_t done) override {
    if (progress) progress(done);
  }

  std::function<void(int64_t)> progress;

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<TokenFileWriter>>& sets_;
  double validation_below_;
  TokenFileWriter* set_ = nullptr;
  std::vector<int32_t> tokens_;
};

std::vector<fs::path> OutputNames(const PrepareOptions& options) {
  if (options.validation_fraction == 0) return {options.output};
  fs::path stem = options.output;
  stem.replace_extension();
  return {stem.string() + "-train.tok", stem.string() + "-validation.tok"};
}

void Check(const PrepareOptions& options) {
  if (!IsTokenFileName(options.output))
    throw UsageError("the output " + options.output.string() + " must end in .tok: " + options.output.string() +
                     ".tok");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1))
    throw UsageError("the validation fraction must be at least 0 and below 1");
  if (options.shard_tokens < 0) throw UsageError("tokens a shard must not be negative");
}

}  // namespace

PrepareResult PrepareTokens(const PrepareOptions& options) {
  Check(options);
  std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(options.tokenizer);
  const std::vector<DataInput> inputs = FindInputs(options.inputs);
  PrepareResult result;
  for (const DataInput& input : inputs) {
    if (input.kind == InputKind::tokens) throw UsageError(input.path.string() + " is a token file already");
    result.input_bytes += static_cast<int64_t>(fs::file_size(input.path));
  }

  const std::vector<fs::path> names = OutputNames(options);
  std::vector<std::unique_ptr<TokenFileWriter>> sets;
  for (const fs::path& name : names) {
    if (name.has_parent_path()) MakeDirectories(name.parent_path());
    sets.push_back(
        std::make_unique<TokenFileWriter>(name, tokenizer->id(), tokenizer->vocabulary(), options.shard_tokens));
  }
  Tokenize sink(*tokenizer, sets, options.validation_fraction);
  int64_t before = 0;
  if (options.progress)
    sink.progress = [&](int64_t done) {
      options.progress(std::min(before + done, result.input_bytes), result.input_bytes);
    };
  for (const DataInput& input : inputs) {
    result.empty_documents += ReadDocuments(input, options.field, sets.size() > 1, sink);
    before += static_cast<int64_t>(fs::file_size(input.path));
  }
  for (size_t i = 0; i < sets.size(); ++i)
    if (sets.size() > 1 && sets[i]->documents() == 0)
      throw UsageError("no document fell to " + names[i].string() + ": " +
                       std::to_string(sets[0]->documents() + sets[1]->documents()) +
                       " documents are too few to split by a fraction; split the text yourself and convert each part");
  for (size_t i = 0; i < sets.size(); ++i) {
    const TokenFileWriter::Outcome outcome = sets[i]->Commit(options.force);
    result.sets.push_back({sets[i]->files(), outcome, sets[i]->documents(), sets[i]->tokens()});
  }
  return result;
}

}  // namespace ds
