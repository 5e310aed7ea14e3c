// The keys that follow from the tokenizer: data.tokenizer_id and model.vocabulary.
#pragma once

#include <string>

#include "runtime/job/job_spec.h"
#include "runtime/job/problems.h"

namespace ds {

/// Makes data.tokenizer absolute, relative to `folder`, and fills in or checks what follows from it. The file is read
/// unless the spec states id and vocabulary, as resolved specs do: what a checkpoint says must be readable when the
/// file has moved. `id_written`: whether the spec states data.tokenizer_id.
void FillInTokenizer(const std::string& folder, bool id_written, JobSpec& spec, Problems& problems);

/// That data.tokenizer is there, is the one that data.tokenizer_id states, and fits the model. Throws UsageError naming
/// the file.
void CheckTokenizer(const JobSpec& spec);

}  // namespace ds
