// Job specs for tests: a small valid one, and what goes wrong with a text.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/job/job_spec.h"

namespace ds {

/// A valid spec; `more` is appended (further sections).
inline std::string TinyJob(const std::string& more = "") {
  return "model: {preset: gpt2-tiny}\n"
         "data: {train: train.txt}\n"
         "training: {steps: 20}\n" +
         (more.find("deepspeed:") == std::string::npos ? std::string("deepspeed: {train_batch_size: 4}\n")
                                                       : std::string()) +
         more;
}

inline JobSpec Parse(const std::string& text, const std::vector<Override>& overrides = {}, int64_t ranks = 2) {
  return ParseJobSpec(text, "job.yaml", "/jobs", overrides, ranks);
}

/// The error that reading `text` gives; "accepted" where there is none.
inline std::string SpecFailure(const std::string& text, const std::vector<Override>& overrides = {},
                               int64_t ranks = 2) {
  try {
    Parse(text, overrides, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

inline bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline bool HasNote(const JobSpec& spec, const std::string& part) {
  for (const std::string& note : spec.notes) {
    if (Has(note, part)) return true;
  }
  return false;
}

}  // namespace ds
