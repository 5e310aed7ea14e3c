// A job file as a tree of values: the file, its DeepSpeed configuration, the overrides. Nothing is checked but syntax.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/value.h"
#include "runtime/job/job_spec.h"

namespace ds {

/// Parses `text` as YAML, puts the JSON that `deepspeed: PATH` names (relative to `folder`) in its place, applies
/// `overrides` in order. A file of another program (foreign.h) is an error. Duplicate keys are appended to
/// `duplicates`. Throws UsageError for what cannot be parsed or found.
Value BuildTree(const std::string& text, const std::string& name, const std::string& folder,
                const std::vector<Override>& overrides, std::vector<std::string>& duplicates);

/// `path`, absolute and without dots, relative to `folder`.
std::string ResolvePath(const std::string& path, const std::string& folder);

}  // namespace ds
