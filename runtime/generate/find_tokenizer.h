// The tokenizer of a trained model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/data/tokenizer.h"
#include "runtime/job/job_spec.h"

namespace ds {

/// The tokenizer that `job`, the spec in the folder `checkpoint`, was trained with, known by its id. `named`: the file
/// to use, from the command line; empty: the first of tokenizer.model in the checkpoint's folder, tokenizer.model in
/// its run's directory, and where the job had it. Throws UsageError: the named one is another, or none of those is
/// there and the one; and where it looked.
std::unique_ptr<Tokenizer> FindTokenizer(const JobSpec& job, const std::filesystem::path& checkpoint,
                                         const std::string& named);

}  // namespace ds
