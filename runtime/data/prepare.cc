#include "runtime/data/prepare.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/data/assemble.h"
#include "runtime/data/conversion_work.h"
#include "runtime/data/encode.h"
#include "runtime/data/ordered_workers.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

/// Bytes of text in the queue of the threads.
constexpr int64_t kQueueBytes = int64_t{64} << 20;

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
  if (options.threads < 0) throw UsageError("the number of threads must not be negative");
  if (options.inputs.empty()) throw UsageError("no input is named");
  if (options.field.empty()) throw UsageError("the field's name is empty");
}

/// Ids without a tokenizer: what Megatron-LM's data are where none is named.
Encoding IdsEncoding(const PrepareOptions& options, const std::string& input) {
  if (options.vocabulary == 0)
    throw UsageError(input +
                     " holds token ids and does not say of which vocabulary: say --vocabulary N, or --tokenizer");
  Encoding encoding;
  encoding.id = kIdsTokenizer;
  encoding.vocabulary = options.vocabulary;
  const int64_t end = options.end_of_document.value_or(-1);
  if (end < -1 || end >= options.vocabulary)
    throw UsageError("--end-of-document " + std::to_string(end) + " is not in the vocabulary of " +
                     std::to_string(options.vocabulary));
  encoding.end_of_document = static_cast<int32_t>(end);
  return encoding;
}

Encoding MakeEncoding(const PrepareOptions& options, const std::vector<DataInput>& inputs) {
  const auto ids = [](const DataInput& input) { return input.kind == InputKind::megatron; };
  const auto megatron = std::find_if(inputs.begin(), inputs.end(), ids);
  const bool all = std::all_of(inputs.begin(), inputs.end(), ids);
  if (!options.tokenizer.empty() || megatron == inputs.end()) {
    if (options.vocabulary != 0 || options.end_of_document)
      throw UsageError("--vocabulary and --end-of-document are for Megatron-LM's data without --tokenizer");
    std::shared_ptr<const Tokenizer> tokenizer = MakeTokenizer(options.tokenizer.empty() ? "bytes" : options.tokenizer);
    return {tokenizer, tokenizer->id(), tokenizer->vocabulary(), tokenizer->end_of_document()};
  }
  if (!all)
    throw UsageError(megatron->path.string() +
                     " holds token ids, other inputs are texts: say --tokenizer, which made " +
                     "the ids and is to make the texts' tokens");
  if (options.vocabulary < 0 || options.vocabulary > INT32_MAX)
    throw UsageError("--vocabulary must be from 1 to " + std::to_string(INT32_MAX));
  return IdsEncoding(options, megatron->path.string());
}

fs::path BytesPath(const DataInput& input) {
  fs::path path = input.path;
  return input.kind == InputKind::megatron ? path.replace_extension(".bin") : path;
}

/// Path, size and time of change: what tells that an input is still the same.
std::string IdentityOf(const DataInput& input) {
  if (input.stream) return input.path.string() + "\tread once, at " + std::to_string(UnixNanoseconds());
  std::string identity = fs::absolute(input.path).lexically_normal().string();
  std::vector<fs::path> files{input.path};
  if (input.kind == InputKind::megatron) files.push_back(BytesPath(input));
  for (const fs::path& path : files) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
      throw UsageError("cannot read " + path.string() + ": " + std::generic_category().message(errno));
    identity += "\t" + std::to_string(info.st_size) + " bytes\tchanged " + std::to_string(info.st_mtim.tv_sec) + "." +
                std::to_string(info.st_mtim.tv_nsec);
  }
  return identity + (input.kind == InputKind::json_lines ? "\tjsonl" : "");
}

/// The first pass.
class Tokenizing {
 public:
  Tokenizing(const PrepareOptions& options, const std::vector<DataInput>& inputs, const Encoding& encoding,
             const ConversionIdentity& identity, ConversionWork& work)
      : options_(options),
        inputs_(inputs),
        identity_(identity),
        work_(work),
        workers_(Threads(options), kQueueBytes, [&encoding, &options](const InputUnit& unit) {
          return Result{EncodeUnit(unit, encoding, options.field), unit.after, unit.file_position};
        }) {
    for (const DataInput& input : inputs_) {
      before_.push_back(total_);
      if (input.stream) unknown_ = true;
      if (!input.stream) total_ += static_cast<int64_t>(fs::file_size(BytesPath(input)));
    }
    before_.push_back(total_);
  }

  void Run() {
    try {
      ReadAll();
      while (!workers_.Empty()) Take();
      if (options_.progress)
        options_.progress({false, total_, unknown_ ? -1 : total_});  // a signal may have ended a pipe
    } catch (...) {
      Stopped();
      throw;
    }
    work_.ClosePiece(true);
  }

 private:
  struct Result {
    Encoded encoded;
    InputPosition after;
    int64_t file_position = 0;
  };

  static int Threads(const PrepareOptions& options) {
    return options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }

  /// An error in reading comes after those of everything that was read before.
  template <class F>
  auto InOrder(F&& read) {
    try {
      return read();
    } catch (...) {
      while (!workers_.Empty()) Take();
      throw;
    }
  }

  void ReadAll() {
    InputPosition at = work_.state().at;
    for (; at.input < static_cast<int64_t>(inputs_.size()); at = {at.input + 1}) {
      const size_t index = static_cast<size_t>(at.input);
      const std::unique_ptr<InputReader> reader = InOrder([&] { return OpenInput(inputs_[index], at); });
      for (InputUnit unit; InOrder([&] { return reader->Next(unit); }); unit = InputUnit()) {
        while (workers_.Full()) Take();
        const int64_t weight = unit.weight();
        workers_.Push(std::move(unit), weight);
        while (workers_.Ready()) Take();
      }
      if (!inputs_[index].stream && IdentityOf(inputs_[index]) != identity_.inputs[index])
        throw UsageError(inputs_[index].path.string() + " was changed while it was read; run the conversion again");
    }
  }

  void Take() {
    const Result result = workers_.Pop();
    work_.Append(result.encoded, result.after);
    if (work_.open_bytes() >= options_.piece_bytes) work_.ClosePiece(false);
    if (options_.progress)
      options_.progress(
          {false, before_[static_cast<size_t>(result.after.input)] + result.file_position, unknown_ ? -1 : total_});
  }

  /// What came so far counts, unless it is of no use: an input is wrong, or cannot be read again.
  void Stopped() {
    try {
      throw;
    } catch (const UsageError&) {
    } catch (...) {
      if (!unknown_) {
        try {
          work_.ClosePiece(false);
        } catch (const Error&) {  // a full disk: the pieces before it count
        }
      }
    }
  }

  const PrepareOptions& options_;
  const std::vector<DataInput>& inputs_;
  const ConversionIdentity& identity_;
  ConversionWork& work_;
  std::vector<int64_t> before_;  // bytes of the inputs before each
  int64_t total_ = 0;
  bool unknown_ = false;
  OrderedWorkers<InputUnit, Result> workers_;
};

/// What earlier versions left of a conversion that was killed. Nobody writes to these: the work's folder is locked.
void RemoveOldTemporaries(const fs::path& name) {
  const std::string prefix = name.filename().string() + ".tmp.";
  const fs::path folder = name.has_parent_path() ? name.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error))
    if (i->path().filename().string().starts_with(prefix)) ::unlink(i->path().c_str());
}

std::vector<std::unique_ptr<TokenFileWriter>> MakeWriters(const PrepareOptions& options, const Encoding& encoding,
                                                          const fs::path& temporary) {
  std::vector<std::unique_ptr<TokenFileWriter>> sets;
  for (const fs::path& name : OutputNames(options)) {
    RemoveOldTemporaries(name);
    sets.push_back(
        std::make_unique<TokenFileWriter>(name, encoding.id, encoding.vocabulary, options.shard_tokens, temporary));
  }
  return sets;
}

void Write(const PrepareOptions& options, const ConversionWork& work,
           const std::vector<std::unique_ptr<TokenFileWriter>>& sets, PrepareResult& result) {
  AssembleOptions assemble{options.shuffle_seed, options.validation_fraction, {}};
  if (options.progress) assemble.progress = [&](int64_t done) { options.progress({true, done, work.state().tokens}); };
  Assemble(work, assemble, sets);
  if (options.progress) options.progress({true, work.state().tokens, work.state().tokens});
  const std::vector<fs::path> names = OutputNames(options);
  for (size_t i = 0; i < sets.size(); ++i)
    if (sets.size() > 1 && sets[i]->documents() == 0)
      throw UsageError("no document fell to " + names[i].string() + ": " +
                       std::to_string(sets[0]->documents() + sets[1]->documents()) +
                       " documents are too few to split by a fraction; split the text yourself and convert each part");
  for (const auto& set : sets) {
    const TokenFileWriter::Outcome outcome = set->Commit(options.force);
    result.sets.push_back({set->files(), outcome, set->documents(), set->tokens()});
  }
}

}  // namespace

PrepareResult PrepareTokens(const PrepareOptions& options) {
  Check(options);
  const std::vector<DataInput> inputs = FindInputs(options.inputs, {options.format, true});
  const Encoding encoding = MakeEncoding(options, inputs);
  ConversionIdentity identity;
  identity.options = "tokenizer " + encoding.id + ", " + std::to_string(encoding.vocabulary) +
                     " tokens, end of document " + std::to_string(encoding.end_of_document) + ", field " +
                     options.field;
  bool streams = false;
  for (const DataInput& input : inputs) {
    if (input.kind == InputKind::tokens) throw UsageError(input.path.string() + " is a token file already");
    if (input.stream && std::exchange(streams, true)) throw UsageError("only one input can be a stream");
    identity.inputs.push_back(IdentityOf(input));
  }

  const std::function<void(const std::string&)> say = options.say ? options.say : [](const std::string&) {};
  ConversionWork work(options.output.string() + ".partial", identity, static_cast<int>(TokenBytes(encoding.vocabulary)),
                      say);
  PrepareResult result;
  const auto stopped = [&](bool keep) {
    if (!keep || !work.HasPieces() || streams) return work.Remove();
    say("what was done is kept in " + work.folder().string() + ": the same command goes on from there");
  };
  bool tokenized = false;
  try {
    if (!work.state().complete) Tokenizing(options, inputs, encoding, identity, work).Run();
    tokenized = work.state().tokens > 0;  // the work on inputs without text is of no use
    Write(options, work, MakeWriters(options, encoding, work.folder()), result);
  } catch (const UsageError&) {
    stopped(tokenized);
    throw;
  } catch (...) {
    stopped(true);
    throw;
  }
  result.empty_documents = work.state().empty;
  result.text_bytes = work.state().bytes;
  result.input_files = static_cast<int64_t>(inputs.size());
  work.Remove();
  return result;
}

}  // namespace ds
