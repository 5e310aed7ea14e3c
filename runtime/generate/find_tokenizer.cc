#include "runtime/generate/find_tokenizer.h"

#include <vector>

#include "runtime/base/error.h"
#include "runtime/job/tokenizer_file.h"

namespace ds {

namespace fs = std::filesystem;

std::unique_ptr<Tokenizer> FindTokenizer(const JobSpec& job, const fs::path& checkpoint, const std::string& named) {
  const std::string& wanted = job.data.tokenizer_id;
  if (!named.empty()) {
    std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(named);
    if (tokenizer->id() != wanted)
      throw UsageError("the tokenizer " + named + " is " + tokenizer->id() + ", the checkpoint was trained with " +
                       wanted + "; name that one, or leave --tokenizer out");
    return tokenizer;
  }
  if (wanted == kByteTokenizer) return MakeTokenizer(kByteTokenizer);
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(checkpoint, error);
  const fs::path run = folder.parent_path().parent_path();  // RUN/checkpoints/step-N
  std::string looked;
  for (const fs::path& file : {folder / kRunTokenizer, run / kRunTokenizer, fs::path(job.data.tokenizer)}) {
    looked += "\n  " + file.string() + ": ";
    if (!fs::exists(file, error)) {
      looked += "not there";
      continue;
    }
    try {
      std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(file.string());
      if (tokenizer->id() == wanted) return tokenizer;
      looked += "is " + tokenizer->id();
    } catch (const UsageError& failure) {
      looked += failure.what();
    }
  }
  throw UsageError("the checkpoint was trained with the tokenizer " + wanted + ", which was not found; name its file " +
                   "with --tokenizer. Looked at:" + looked);
}

}  // namespace ds
